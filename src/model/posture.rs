//! Posture: one word about the present activity of an agent, for people. It is never stored.

names! {
    /// Posture of an agent, in order of precedence (contract, semantics §3).
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

impl Posture {
    /// Returns the word that people read. It differs from the name for a stopped agent only.
    pub const fn word(self) -> &'static str {
        if matches!(self, Posture::Archived) { "stopped" } else { self.name() }
    }
}
