//! Semantics §6: closures.

use super::waits::Wait;
use super::work::Work;
use super::{Born, Model, Tag, Word};

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Closure {
    pub outcome: Word,
    pub reason: Option<Word>,
    /// Wait that decided the closure.
    pub wait: Option<Tag>,
    /// Work item that decided the closure.
    pub item: Option<Tag>,
}

impl Model {
    /// Returns the closure. If there is a current run, its tick is gone.
    pub fn closure(&self) -> Closure {
        self.closure_for(None)
    }

    /// Returns the closure before `message`: waits that are bound to this message still count.
    pub fn closure_for(&self, message: Option<Born>) -> Closure {
        let plain = |outcome| Closure { outcome, ..Closure::default() };
        let waiting = |kind, wait: Option<&Wait>| Closure {
            outcome: "waiting",
            reason: reason_of(kind),
            wait: wait.map(|wait| wait.tag.clone()),
            item: None,
        };
        let of_item = |kind, item: &Work| Closure {
            item: Some(item.tag.clone()),
            ..waiting(kind, self.wait_on(item, kind, message))
        };
        // Row 4: a run that continues later has not ended.
        if self.held.is_some()
            && self.last_terminal.is_some_and(|terminal| matches!(terminal, "deferred" | "suspended"))
        {
            return waiting("external", None);
        }
        // Rows 1 and 3
        if self.last_terminal.is_some_and(|terminal| terminal != "completed") {
            return plain("failed");
        }
        // Rows 2 and 4
        if self.run.is_some() {
            return waiting("external", None);
        }
        let current = self.current();
        let state = |item| self.scheduling_for(item, message);
        // Row 5
        if self.open().into_iter().any(|item| state(item) == "runnable") {
            return plain("continuable");
        }
        // Row 6
        if let Some(wait) = self.own_wait("operator", message) {
            return waiting("operator", Some(wait));
        }
        if let Some(item) = current.filter(|item| state(item) == "waiting_operator") {
            return of_item("operator", item);
        }
        // Rows 7, 8, 9
        for kind in ["external", "timer", "task"] {
            if let Some(wait) = self.own_wait(kind, message) {
                return waiting(kind, Some(wait));
            }
        }
        // Row 10, and row 11, which includes system waits of the agent itself
        let kind_of = |item| state(item).strip_prefix("waiting_");
        let of_current = current.and_then(|item| Some((kind_of(item)?, item)));
        if let Some((kind, item)) = of_current.filter(|(kind, _)| *kind != "system") {
            return of_item(kind, item);
        }
        if let Some(wait) = self.own_wait("system", message) {
            return waiting("system", Some(wait));
        }
        // Row 12: other items, oldest first
        let waits = self.queued().into_iter().find_map(|item| Some((kind_of(item)?, item)));
        if let Some((kind, item)) = of_current.or(waits) {
            return of_item(kind, item);
        }
        plain("completed")
    }
}

fn reason_of(kind: &str) -> Option<Word> {
    match kind {
        "operator" => Some("awaiting_operator_input"),
        "external" => Some("awaiting_external_change"),
        "timer" => Some("awaiting_timer"),
        "task" => Some("awaiting_task_result"),
        _ => None,
    }
}
