//! Semantics §8: one step, which applies everything due, finds the first rung of the decision
//! ladder that applies, and executes its decision, up to the point where a turn runs.

use super::continuation::Continuation;
use super::messages::{Maker, Message};
use super::resources::Shortage;
use super::work::Work;
use super::{Born, Millis, Model, Tag, Word};

#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    pub decision: Word,
    pub reason: String,
    pub continuation: Option<Continuation>,
    about: About,
}

/// Subject of a decision.
#[derive(Debug, Clone, PartialEq)]
enum About {
    Nothing,
    Message(Born),
    // A claim that a limit of the agent forbids
    Lack(Born, Continuation, Shortage),
    Hint,
    Work(Tag),
    // A wait of kind `system` that belongs to the agent itself, not to a work item
    SystemWait(Tag),
    // The agent falls asleep, and waits for a task or for something else.
    Rest { task: bool },
}

impl Model {
    /// Returns the decision of the next step, and changes nothing.
    pub fn preview(&self, now: Millis) -> Decision {
        self.clone().before_acting(now)
    }

    /// True if a step would do something now, other than repeat its decision to rest.
    pub fn has_something_to_do(&self, now: Millis) -> bool {
        let decision = self.preview(now);
        if self.fingerprint() != self.taken_in(now).fingerprint() {
            return true;
        }
        match decision.about {
            About::Nothing | About::Rest { .. } => decision.decision == "start_recovery",
            About::Lack(..) => self.held.is_none(),
            About::Message(_) | About::Hint | About::Work(_) | About::SystemWait(_) => true,
        }
    }

    /// Returns a text of all fields that a step may change before it decides, to detect changes.
    fn fingerprint(&self) -> String {
        let open = (&self.queue, &self.ended, &self.waits, &self.timers, &self.works, &self.hints);
        let moments = (self.since, &self.retry, &self.held, self.spending);
        format!("{open:?} {moments:?} {:?} {:?} {}", self.execution, self.reduced, self.run.is_some())
    }

    /// Returns the agent as the next step finds it when it decides, with everything due applied.
    pub fn taken_in(&self, now: Millis) -> Model {
        let mut after = self.clone();
        after.before_acting(now);
        after
    }

    fn before_acting(&mut self, now: Millis) -> Decision {
        self.clock = (now, 0);
        self.interrupt(now);
        self.take_in(now);
        self.decide(now)
    }

    /// Returns the time of the next due step.
    pub fn next_due(&self) -> Option<Millis> {
        if matches!(self.status, "stopped" | "booting") {
            return None;
        }
        let rechecks = self.works.iter().filter(|item| !item.done).filter_map(|item| item.recheck);
        let timers = self.timers.iter().filter(|timer| timer.status == "active").map(|timer| timer.next);
        let retry = self.retry.as_ref().map(|retry| retry.not_before).filter(|_| self.execution == "failed");
        let held = self.held.iter().filter_map(|held| held.not_before);
        let over = self.deadline().map(|(limit, _)| limit + 1);
        self.wait_due().chain(rechecks).chain(timers).chain(retry).chain(held).chain(over).min()
    }

    // Start of a step: due timers, deadlines and expiries take effect

    fn take_in(&mut self, now: Millis) {
        match self.status {
            "booting" => return,
            "stopped" => return self.ignore_hints(),
            _ => {}
        }
        self.limit_future_moments(now);
        let none_was_left = self.drop_stale(now);
        self.end_overdue(now);
        self.repair_waits();
        self.fire_timers(now);
        self.meet_deadlines(now);
        self.remind(now);
        self.tick_for_set_aside();
        self.take_in_hints();
        self.try_if_asked(now);
        // Messages that due timers have queued may have expired, too, so a second pass drops them.
        if none_was_left {
            self.take_in(now);
        }
    }

    // Decision: the first rung of the ladder (semantics §8) that applies

    fn decide(&self, now: Millis) -> Decision {
        let say = |decision, reason: &str, about| Decision {
            decision,
            reason: reason.to_owned(),
            continuation: None,
            about,
        };
        let rest =
            |decision, reason| say(decision, reason, About::Rest { task: decision == "wait_for_task" });
        // Rung 1 (semantics §8). Rung 2 needs a second process, which the model does not have.
        match self.status {
            "stopped" => return say("stop", "stopped", About::Nothing),
            "booting" => return say("noop", "not_started", About::Nothing),
            _ => {}
        }
        let head = self.head(now);
        // Rungs 3 and 4 (semantics §8): a failed agent
        if matches!(self.execution, "failed" | "recovering") {
            let begun = self.execution == "recovering";
            return match &self.retry {
                None => say("start_recovery", "after_stop", About::Nothing),
                Some(retry) if begun || now >= retry.not_before || self.ends_backoff(head, retry) => {
                    say("start_recovery", "retry", About::Nothing)
                }
                Some(_) => say("wait_for_timer", "recovery_backoff", About::Nothing),
            };
        }
        // Rungs 5 and 6 (semantics §8): a held run, or a message that lacks a resource
        let shortage = self.shortage(now);
        let lack = |message, continuation: &Continuation, shortage: Shortage| {
            say("wait_for_resources", shortage.limit, About::Lack(message, continuation.clone(), shortage))
        };
        if let Some(held) = &self.held {
            if !Model::may_go_on(held, now) {
                return say("wait_for_resources", &held.missing, About::Nothing);
            }
            if let Some(shortage) = shortage {
                return lack(held.message, &held.continuation, shortage);
            }
            let reason =
                if self.execution == "suspended" { "resume_suspended" } else { "resources_available" };
            return Decision {
                continuation: Some(held.continuation.clone()),
                ..say("start_model_turn", reason, About::Message(held.message))
            };
        }
        // Rungs 7 and 8 (semantics §8): the first message of the queue
        if let Some(message) = head {
            let found = message.continuation.clone().or_else(|| self.continuation(message));
            let runs = found.as_ref().is_some_and(|found| found.reentry);
            if let (true, Some(found), Some(shortage)) = (runs, &found, shortage) {
                return lack(message.born, found, shortage);
            }
            let decision = if runs { "start_model_turn" } else { "reduce_message_only" };
            return Decision {
                continuation: found,
                ..say(decision, message.kind, About::Message(message.born))
            };
        }
        // Rung 9 (semantics §8): a wake hint
        if self.pending_hint.is_some() {
            return say("emit_system_tick", "wake_hint", About::Hint);
        }
        // Rungs 10 to 12 (semantics §8): work items that can continue
        let current = self.current();
        let queued = self.queued();
        let about = |item: &Work| About::Work(item.tag.clone());
        if let Some(item) = current.filter(|item| self.is_runnable(item) && !item.ticked) {
            return say("emit_system_tick", "continue_active", about(item));
        }
        if let Some(item) = queued.iter().find(|item| self.is_runnable(item) && !item.ticked) {
            return say("emit_system_tick", "queued_available", about(item));
        }
        if current.is_some_and(|item| self.is_runnable(item)) {
            return say("noop", "duplicate_continue_active", About::Nothing);
        }
        if queued.iter().any(|item| self.is_runnable(item)) {
            return say("noop", "duplicate_queued_available", About::Nothing);
        }
        // Rungs 13 to 16 (semantics §8): waits of the agent itself, and timers
        if self.own_wait("operator", None).is_some() {
            return rest("wait_for_operator", "agent_operator_wait");
        }
        if self.own_wait("external", None).is_some() {
            return rest("wait_for_external_change", "agent_external_wait");
        }
        let has_timer = self.timers.iter().any(|timer| timer.status == "active");
        if has_timer || self.own_wait("timer", None).is_some() {
            return rest("wait_for_timer", "active_timers");
        }
        if self.own_wait("task", None).is_some() {
            return rest("wait_for_task", "agent_task_wait");
        }
        // Rung 17 (semantics §8): waits of the current work item, else of another item
        for item in current.iter().chain(&queued) {
            match self.scheduling(item) {
                "waiting_operator" => return rest("wait_for_operator", "work_item_needs_input"),
                "waiting_task" => return rest("wait_for_task", "work_item_task_wait"),
                "waiting_external" => return rest("wait_for_external_change", "work_item_external_wait"),
                "waiting_timer" => return rest("wait_for_timer", "work_item_timer_wait"),
                _ => {}
            }
        }
        // Rung 18 (semantics §8): waits of kind `system`
        let own = self.own_wait("system", None);
        let of_current = current.filter(|item| self.scheduling(item) == "waiting_system");
        if let Some(wait) = own.filter(|wait| !wait.ticked) {
            return say("emit_system_tick", "system_wait", About::SystemWait(wait.tag.clone()));
        }
        if let Some(item) = of_current.filter(|item| !item.ticked) {
            return say("emit_system_tick", "system_wait", about(item));
        }
        let of_other = queued.iter().any(|item| self.scheduling(item) == "waiting_system");
        if own.is_some() || of_current.is_some() || of_other {
            return rest("wait_for_resources", "system_wait");
        }
        // Rungs 19 and 20 (semantics §8): sleep
        match self.status {
            "asleep" | "awaiting_task" => rest("stay_idle", "already_asleep"),
            _ => rest("sleep", "no_pending_scheduler_facts"),
        }
    }

    // Execution of the decision

    /// Makes one step, up to the point where a turn runs. Returns its decision.
    pub fn step(&mut self, now: Millis) -> Decision {
        let decision = self.before_acting(now);
        match (decision.decision, &decision.about) {
            ("start_recovery", _) => self.recover(now),
            (_, About::Lack(born, continuation, shortage)) => self.lack(now, *born, continuation, shortage),
            ("start_model_turn", About::Message(born)) => self.claim(now, *born, &decision),
            ("reduce_message_only", About::Message(born)) => {
                self.reduce(*born, decision.continuation.as_ref());
                self.wake_up();
            }
            ("emit_system_tick", About::Hint) => {
                if let Some(hint) = self.pending_hint.take() {
                    let tick = self.own_message("system_tick", 2, hint.said(), Maker::Hint);
                    self.queue.push(Message {
                        contentful: !hint.payload.is_empty(),
                        resource: hint.resource,
                        source: Some(hint.source),
                        wait: hint.wait,
                        trigger: hint.trigger,
                        hops: hint.hops,
                        ..tick
                    });
                }
                self.wake_up();
            }
            ("emit_system_tick", About::Work(item)) => {
                let tick = self.own_message("system_tick", 2, item.clone(), Maker::Scheduler);
                self.queue.push(Message { work: Some(item.clone()), ..tick });
                self.works.iter_mut().filter(|work| work.tag == *item).for_each(|work| work.ticked = true);
                self.wake_up();
            }
            ("emit_system_tick", About::SystemWait(tag)) => {
                if let Some(wait) = self.wait_mut(tag) {
                    wait.ticked = true;
                }
                self.tick_of(tag, 2);
                self.wake_up();
            }
            (_, About::Rest { task }) => self.status = self.at_rest(*task),
            _ => {}
        }
        decision
    }
}
