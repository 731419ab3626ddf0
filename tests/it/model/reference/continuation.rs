//! Semantics §7: continuations.

use super::messages::{KeptOutBy, Maker, Message};
use super::{Model, Tag, Word};

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Continuation {
    pub class: Word,
    pub reentry: bool,
    pub matched: bool,
    /// Waits that the message ends, by the rules of semantics §5 alone.
    pub resolves: Vec<Tag>,
    /// Wait or work item because of which the message is set aside, and starts no turn.
    pub kept_out_by: Option<KeptOutBy>,
}

impl Model {
    /// Returns the continuation of a message; `None` if the message is no trigger.
    pub fn continuation(&self, message: &Message) -> Option<Continuation> {
        let trigger = match message.kind {
            "operator_prompt" => "operator_input",
            "channel_event" | "webhook_event" | "callback_event" => "external_event",
            "timer_tick" => "timer_fire",
            "task_status" | "control" => return None,
            same => same,
        };
        let verdict =
            |class, reentry, matched| Continuation { class, reentry, matched, ..Continuation::default() };
        if message.is_of_scheduler() {
            // An expiry or recheck message is moot if its wait is over or bound to a message.
            let is_moot = matches!(message.maker, Maker::Expiry | Maker::Recheck)
                && !self.is_counting(message.wait.as_ref());
            return Some(if is_moot {
                verdict("liveness_only", false, false)
            } else {
                verdict("local_continuation", true, false)
            });
        }
        let prior = self.closure();
        let resolves = self.satisfied_by(message);
        let waits = prior.outcome == "waiting";
        let found = if waits {
            let awaits = |reason| prior.reason == Some(reason);
            let outside = trigger == "external_event" || message.maker == Maker::Hint;
            let outside = outside && awaits("awaiting_external_change");
            let of_external = || self.counting("external").any(|wait| wait.resource == message.resource);
            let of_task = || self.counting("task").any(|wait| wait.task == message.task);
            // Rows 1 to 5 of the first table in semantics §7: the agent waits for this message.
            let is_expected = match trigger {
                "operator_input" => awaits("awaiting_operator_input"),
                "task_result" => awaits("awaiting_task_result") && of_task(),
                "timer_fire" => awaits("awaiting_timer"),
                _ if message.contentful => outside && (message.resource.is_none() || of_external()),
                _ => outside && !resolves.is_empty(),
            };
            match trigger {
                _ if is_expected => verdict("resume_expected_wait", true, true),
                _ if outside && !message.contentful && self.names_nothing(message) => {
                    verdict("liveness_only", false, true)
                }
                "operator_input" | "task_result" => verdict("resume_override", true, false),
                _ => verdict("liveness_only", false, false),
            }
        } else {
            match trigger {
                "task_result" | "operator_input" | "timer_fire" | "internal_followup" => {
                    verdict("local_continuation", true, false)
                }
                _ if message.contentful => verdict("local_continuation", true, false),
                _ => verdict("liveness_only", false, false),
            }
        };
        // A message that ends a wait always runs a turn. With `unmatched = "run"` so does a
        // message that would be set aside.
        let unmatched_runs = self.settings.unmatched_runs && message.contentful;
        let forced = !found.reentry && (!resolves.is_empty() || unmatched_runs);
        let found = match (forced, waits) {
            (true, true) => verdict("resume_override", true, found.matched),
            (true, false) => verdict("local_continuation", true, found.matched),
            (false, _) => found,
        };
        let by = prior.wait.map(KeptOutBy::Wait).or(prior.item.map(KeptOutBy::Item));
        let kept_out_by = by.filter(|_| !found.reentry && message.contentful);
        Some(Continuation { resolves, kept_out_by, ..found })
    }

    fn is_counting(&self, wait: Option<&Tag>) -> bool {
        self.waits.iter().any(|found| Some(&found.tag) == wait && found.counts())
    }
}
