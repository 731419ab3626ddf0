//! Messages of kind `system_tick` that the scheduler emits.

/// Reason for which the scheduler emitted a tick, as far as the meaning of the tick depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SchedulerTick {
    /// A wait's `expires_at` is past: the wait ends when the tick is taken up.
    Expiry,
    /// A wait's `recheck_at` has come.
    Recheck,
    /// Runnable work, blocked work to check, input that was set aside, or a wait that was repaired.
    Other,
}
