//! Semantics §14: lifecycle control. What a stop does to a run is in execution §10.

use super::{Millis, Model};

impl Model {
    /// Creates no message, runs no turn, replays no task.
    pub fn start(&mut self, now: Millis) -> Result<(), i32> {
        if !matches!(self.status, "booting" | "stopped") {
            return Ok(());
        }
        if self.status == "stopped" {
            self.ignore_hints();
        }
        self.status = "awake_idle";
        self.acknowledge_stop();
        // What lacked something is tried again (execution §8).
        if self.execution == "waiting_resources" {
            self.retry_held(now);
        }
        if self.execution == "initializing" {
            self.run_hook("on-startup", "initializing", "runnable");
            self.enter("runnable", None);
        }
        Ok(())
    }

    /// Keeps queued messages, timers, waits, work and history.
    pub fn stop(&mut self) {
        let recovers = self.execution == "recovering";
        if self.status != "stopped" && (self.run.is_some() || recovers) {
            self.run_hook("on-shutdown", self.execution, "shutting_down");
            self.enter("shutting_down", None);
        }
        if recovers {
            self.enter("failed", None);
        }
        self.status = "stopped";
        self.ignore_hints();
    }
}
