//! Posture: one word about the present activity of an agent, for people. It is never stored.

names! {
    /// Posture of an agent, in order of precedence (contract, semantics §3).
    "posture" Posture {
        Archived = "archived" as "stopped",
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
