//! Kinds of warnings for people.

names! {
    /// Kind of a warning (contract, semantics §15).
    "advisory" AdvisoryKind {
        ClockInFuture = "clock_in_future",
        IdlePostureHasRunnableWork = "idle_posture_has_runnable_work",
        BlockedWorkItemWithoutRecheckOrWait = "blocked_work_item_without_recheck_or_wait",
        IdlePostureHasQueuedInput = "idle_posture_has_queued_input",
        MessageRetriedOften = "message_retried_often",
        NobodyTicks = "nobody_ticks",
        InputSetAside = "input_set_aside",
        AnswerLost = "answer_lost",
        WaitWithoutSubject = "wait_without_subject",
        ExternalWaitHasWeakRecoverability = "external_wait_has_weak_recoverability",
        ExternalWaitHasNoFallback = "external_wait_has_no_fallback",
    }
}
