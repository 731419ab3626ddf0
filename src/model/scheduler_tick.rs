//! Messages of kind `system_tick` that the scheduler emits.

/// Reason for which the scheduler emitted a tick, as far as the continuation depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SchedulerTick {
    /// `expires_at` of a wait has passed; the wait ends when the tick is taken up.
    Expiry,
    /// `recheck_at` of a wait has been reached.
    Recheck,
    /// Runnable work, a recheck of blocked work, input that was set aside, or a repaired wait.
    Other,
}
