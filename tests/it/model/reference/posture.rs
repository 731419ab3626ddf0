//! Semantics §2 and §3: the status and the posture.

use super::waits::Wait;
use super::{Millis, Model, Word};

impl Model {
    pub fn posture(&self, now: Millis) -> Word {
        let waits = |kind| self.counting(kind).next().is_some();
        let open = self.open();
        match () {
            () if self.status == "stopped" => "archived",
            () if self.run.is_some() => "active_turn",
            () if self.head(now).is_some() || self.has_hint() => "has_queued_input",
            () if open.iter().any(|item| self.is_runnable(item)) => "has_runnable_work",
            () if waits("task") => "waiting_for_task",
            () if waits("external") => "waiting_for_external",
            () if waits("operator") || open.iter().any(|item| item.plan_status == "needs_input") => {
                "waiting_for_operator"
            }
            () if open.iter().any(|item| item.blocked) => "blocked",
            () if waits("timer") || waits("system") || self.held.is_some() => "blocked",
            () => "idle",
        }
    }

    /// Returns the status of a resting agent (execution §3). `decided` means that the step has
    /// decided to wait for a task.
    pub fn at_rest(&self, decided: bool) -> Word {
        let is_open = |wait: &Wait| {
            self.tasks.iter().any(|task| Some(&task.tag) == wait.task.as_ref() && task.is_open())
        };
        let for_task = self.closure().reason == Some("awaiting_task_result");
        let awaits = for_task && self.counting("task").any(is_open);
        if self.execution == "waiting" && (decided || awaits) { "awaiting_task" } else { "asleep" }
    }

    /// Makes a resting agent `awake_idle`, for example because a step processes a message.
    pub fn wake_up(&mut self) {
        if matches!(self.status, "asleep" | "awaiting_task") {
            self.status = "awake_idle";
        }
    }
}
