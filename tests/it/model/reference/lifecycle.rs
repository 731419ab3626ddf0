//! Semantics §14: lifecycle control. `stop.rs` has the effect of a stop on a run (execution §10).

use super::{Millis, Model};

impl Model {
    /// Starts the agent, without a message or a turn.
    pub fn start(&mut self, now: Millis) -> Result<(), i32> {
        if !matches!(self.status, "booting" | "stopped") {
            return Ok(());
        }
        if self.status == "stopped" {
            self.ignore_hints();
        }
        self.status = "awake_idle";
        self.acknowledge_stop();
        // The next step tries a deferred run again (execution §8).
        if self.execution == "waiting_resources" {
            self.retry_held(now);
        }
        if self.execution == "initializing" {
            self.run_hook("on-startup", "initializing", "runnable", None);
            self.enter("runnable", None);
        }
        Ok(())
    }

    /// Stops the agent. Queued messages, timers, waits and work stay.
    pub fn stop(&mut self) {
        let recovers = self.execution == "recovering";
        if self.status != "stopped" && (self.run.is_some() || recovers) {
            self.run_hook("on-shutdown", self.execution, "shutting_down", None);
            self.enter("shutting_down", None);
        }
        if recovers {
            self.enter("failed", None);
        }
        self.status = "stopped";
        self.ignore_hints();
    }
}
