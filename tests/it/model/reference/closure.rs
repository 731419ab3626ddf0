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
    /// Returns the agent's closure. The tick of a current run counts as killed.
    pub fn closure(&self) -> Closure {
        self.closure_for(None)
    }

    /// Returns the agent's closure. Waits that are bound to `message` count as not yet bound.
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
        // Row 4 of the table in semantics §6: a run that continues later has not ended.
        if self.held.is_some()
            && self.last_terminal.is_some_and(|terminal| matches!(terminal, "deferred" | "suspended"))
        {
            return waiting("external", None);
        }
        // Rows 1 and 3 of the table in semantics §6: the last turn did not complete.
        if self.last_terminal.is_some_and(|terminal| terminal != "completed") {
            return plain("failed");
        }
        // Rows 2 and 4 of the table in semantics §6: a turn has started and has not ended.
        if self.run.is_some() {
            return waiting("external", None);
        }
        let current = self.current();
        let state = |item| self.scheduling_for(item, message);
        // Row 5 of the table in semantics §6: an item is runnable.
        if self.open().into_iter().any(|item| state(item) == "runnable") {
            return plain("continuable");
        }
        // Row 6 of the table in semantics §6: the agent or its current item waits for the operator.
        if let Some(wait) = self.own_wait("operator", message) {
            return waiting("operator", Some(wait));
        }
        if let Some(item) = current.filter(|item| state(item) == "waiting_operator") {
            return of_item("operator", item);
        }
        // Rows 7 to 9 of the table in semantics §6: the agent itself waits.
        for kind in ["external", "timer", "task"] {
            if let Some(wait) = self.own_wait(kind, message) {
                return waiting(kind, Some(wait));
            }
        }
        // Rows 10, 11 (semantics §6): the current item waits, or the agent waits for the system.
        let kind_of = |item| state(item).strip_prefix("waiting_");
        let of_current = current.and_then(|item| Some((kind_of(item)?, item)));
        if let Some((kind, item)) = of_current.filter(|(kind, _)| *kind != "system") {
            return of_item(kind, item);
        }
        if let Some(wait) = self.own_wait("system", message) {
            return waiting("system", Some(wait));
        }
        // Row 12 of the table in semantics §6: the oldest waiting item apart from the current one.
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
