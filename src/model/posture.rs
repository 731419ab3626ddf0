//! What an agent is doing, in one word: derived for people, never stored and never read back.

names! {
    /// Contract, semantics §3, in the order in which they take precedence.
    "posture" Posture {
        Archived = "archived",
        ActiveTurn = "active_turn",
        HasQueuedInput = "has_queued_input",
        HasRunnableWork = "has_runnable_work",
        WaitingForTask = "waiting_for_task",
        WaitingForExternal = "waiting_for_external",
        WaitingForOperator = "waiting_for_operator",
        Blocked = "blocked",
        Idle = "idle",
    }
}
