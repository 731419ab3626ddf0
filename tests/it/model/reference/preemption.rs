//! Execution §6: preemption requests, critical sections, safe points, checkpoints and suspension.

use super::continuation::Continuation;
use super::hooks::{Entered, HookBehaviour};
use super::messages::Message;
use super::step::Decision;
use super::{Born, MAX_SECTION, Millis, Model, REFUSED, Tag, Word, ms};

#[derive(Debug, Clone, Default)]
pub struct Run {
    pub claimed_at: Millis,
    pub message: Born,
    pub continuation: Continuation,
    pub work: Option<Tag>,
    /// State that the claim entered for the sake of its hook, until the hook has run.
    pub entered: Option<Entered>,
    pub deferred: Deferred,
    pub request: Option<Request>,
    pub sections: Sections,
    pub yielded: bool,
    /// Seconds after which the suspended run resumes, from the last `yield --for` of the turn.
    pub pause: Option<i64>,
}

/// A run that was suspended, was deferred, or lacks a resource.
#[derive(Debug, Clone, Default)]
pub struct Held {
    pub message: Born,
    pub missing: String,
    /// Limit of the agent (turns or tokens) that leaves no room for the run.
    pub limit: Option<Word>,
    /// Time at which the run may continue, if that is known.
    pub not_before: Option<Millis>,
    pub continuation: Continuation,
    pub deferred: Deferred,
    pub entered: Option<Entered>,
    /// True if only the operator can continue or end the run (§8).
    pub needs_operator: bool,
}

/// Successive deferrals of one message (§8).
#[derive(Debug, Clone, Copy, Default)]
pub struct Deferred {
    pub since: Option<Millis>,
    /// Milliseconds after `since` during which the run waited for one of the agent's limits.
    pub known: Millis,
}

/// The pending preemption request; repeated requests are merged into it.
#[derive(Debug, Clone)]
pub struct Request {
    /// Reason of the latest preemption request.
    pub reason: Tag,
    /// Seconds in `--for` of the latest `preempt`.
    resume_after: Option<i64>,
    /// Earliest time at which the grace of one of the merged requests ends.
    force_at: Millis,
}

/// Open critical sections, and the time until which they protect the turn from being ended.
#[derive(Debug, Clone, Default)]
pub struct Sections {
    open: Vec<u32>,
    until: Millis,
}

/// Exit status of `safe-point` when it asks the turn to yield.
pub const PLEASE_YIELD: i32 = 10;

/// The checkpoint that the hook `on-suspend` saves, if it is set to save one.
pub const SAVED_BY_HOOK: &str = "of the hook";

impl Run {
    /// True if a critical section is open and has time left.
    fn is_protected(&self, now: Millis) -> bool {
        !self.sections.open.is_empty() && now <= self.sections.until
    }

    /// Returns the time after which the tick ends the turn: the end of the grace, or of the
    /// protection by open sections if that is later.
    fn force_at(&self) -> Option<Millis> {
        let request = self.request.as_ref()?;
        let until = (!self.sections.open.is_empty()).then_some(self.sections.until);
        Some(request.force_at.max(until.unwrap_or(request.force_at)))
    }
}

impl Model {
    // Start of a turn

    pub fn claim(&mut self, now: Millis, born: Born, decision: &Decision) {
        let Some(message) = self.in_queue(born).cloned() else { return };
        let Some(continuation) = decision.continuation.clone() else { return };
        let held = self.held.take();
        self.take_up(&message, &continuation);
        let entered = self.enter_claimed(held.as_ref().and_then(|held| held.entered));
        self.run = Some(Run {
            claimed_at: now,
            message: born,
            continuation,
            work: message.work,
            entered,
            deferred: held.map(|held| self.deferred_until(&held, now)).unwrap_or_default(),
            ..Run::default()
        });
        self.status = "awake_running";
    }

    pub fn attempt(&self) -> u32 {
        self.claimed_message().map_or(0, |message| message.attempt)
    }

    // Requests that a turn yield before a deadline

    /// True if an open critical section delays the end of a turn that is preempted without a grace.
    pub fn is_protected(&self) -> bool {
        self.run.as_ref().is_some_and(|run| run.is_protected(run.claimed_at + ms(60)))
    }

    pub fn ask_to_yield(&mut self, now: Millis, grace: i64, resume_after: Option<i64>) {
        let reason = self.name("reason");
        let Some(run) = &mut self.run else { return };
        let until = now + ms(grace);
        let force_at = run.request.as_ref().map_or(until, |pending| pending.force_at.min(until));
        run.request = Some(Request { reason: reason.clone(), resume_after, force_at });
        self.run_hook("on-preempt-request", "running", "suspended", Some(&reason));
    }

    /// True if the grace is over. At the very end of the grace the turn may still yield.
    pub fn is_overdue(&self, now: Millis) -> bool {
        self.run.as_ref().and_then(Run::force_at).is_some_and(|at| now > at)
    }

    /// True if the tick ends the turn within a minute.
    pub fn is_about_to_be_forced(&self, now: Millis) -> bool {
        self.is_overdue(now + ms(60))
    }

    // Start and end of critical sections

    pub fn begin_section(&mut self, now: Millis, deadline: i64) -> Result<u32, i32> {
        let overdue = self.is_overdue(now);
        let run = self.run.as_mut().ok_or(REFUSED)?;
        let sections = &mut run.sections;
        if sections.open.is_empty() {
            if overdue {
                return Err(REFUSED);
            }
            sections.until = now + ms(deadline).min(MAX_SECTION);
        }
        let number = sections.open.last().map_or(1, |innermost| innermost + 1);
        sections.open.push(number);
        Ok(number)
    }

    /// Returns the number of the critical section that was begun last.
    pub fn innermost_section(&self) -> Option<u32> {
        self.run.as_ref()?.sections.open.last().copied()
    }

    /// Ends the critical section with this number; without a number the innermost one.
    pub fn end_section(&mut self, number: Option<u32>) -> Result<(), i32> {
        let open = &mut self.run.as_mut().ok_or(REFUSED)?.sections.open;
        let at = match number {
            Some(number) => open.iter().position(|open| *open == number),
            None => open.len().checked_sub(1),
        };
        open.remove(at.ok_or(REFUSED)?);
        Ok(())
    }

    // Safe points, at which a turn asks if it must yield

    /// True if a safe point asks the turn to yield: never while a critical section has time left.
    pub fn asks_to_yield(&self, now: Millis) -> bool {
        self.run.as_ref().is_some_and(|run| run.request.is_some() && !run.is_protected(now))
    }

    /// Hands each queued `interject` message to the turn once. With `peek` the messages stay
    /// queued.
    pub fn safe_point(&mut self, now: Millis, peek: bool) {
        let waiting = self.in_order().into_iter().filter(|message| message.priority == 0);
        let handed_over: Vec<_> =
            waiting.filter(|message| !self.is_claimed(message) && !message.is_stale(now)).cloned().collect();
        for message in handed_over {
            let Message { born, said, .. } = message.clone();
            self.handed.push(said.clone());
            if peek {
                continue;
            }
            // The waits that the interjection satisfies end with the message of the running turn.
            let answered = self.satisfied_by(&message);
            self.claimed().into_iter().for_each(|claimed| self.bind(claimed, &answered));
            self.end_message(born, "interjected");
            if let Some(message) = self.claimed_message_mut() {
                message.interjected.push(said);
            }
        }
    }

    /// Returns the interjections that earlier runs of the claimed message have received.
    pub fn interjected(&self) -> Vec<Tag> {
        self.claimed_message().map(|message| message.interjected.clone()).unwrap_or_default()
    }

    // Checkpoints, which belong to the message

    pub fn checkpoint(&self) -> Option<Tag> {
        self.claimed_message().and_then(|message| message.checkpoint.clone())
    }

    pub fn save(&mut self, checkpoint: Tag) {
        if let Some(message) = self.claimed_message_mut() {
            message.checkpoint = Some(checkpoint);
        }
    }

    // Yields, suspensions and resumptions of a run

    /// Records that the turn yields. Without a checkpoint the last checkpoint stays, without a
    /// pause the last pause.
    pub fn yield_turn(&mut self, checkpoint: bool, pause: Option<i64>) {
        if checkpoint {
            let checkpoint = self.name("checkpoint");
            self.save(checkpoint);
        }
        if let Some(run) = &mut self.run {
            run.yielded = true;
            run.pause = pause.or(run.pause);
        }
    }

    /// Runs the hook `on-suspend`, which may still save a checkpoint.
    pub fn before_suspension(&mut self) {
        let request = self.run.as_ref().and_then(|run| run.request.clone());
        let reason = request.as_ref().map(|request| request.reason.as_str());
        if self.run_hook("on-suspend", "running", "suspended", reason) == HookBehaviour::Saves {
            self.save(SAVED_BY_HOOK.to_owned());
        }
    }

    /// Suspends the run. Its message stays claimed at the same attempt. Suspensions have the same
    /// bound as deferrals (§8).
    pub fn suspend(&mut self, now: Millis) -> Option<Word> {
        let run = self.end_run("suspended")?;
        let (reason, asked) = match &run.request {
            Some(request) => (request.reason.clone(), request.resume_after),
            None => ("its turn yielded".to_owned(), None),
        };
        let pause = match (asked, run.pause) {
            (Some(asked), Some(own)) => Some(asked.max(own)),
            (one, other) => one.or(other),
        };
        let setbacks = self.setbacks_of(run.message)?;
        setbacks.interruptions = 0;
        setbacks.suspensions += 1;
        if setbacks.suspensions >= self.settings.max_deferrals {
            self.hold(run.message, run.continuation);
            return Some("suspended");
        }
        self.enter("suspended", Some(&reason));
        self.status = "awake_idle";
        self.held = Some(Held {
            message: run.message,
            missing: format!("suspended: {reason}"),
            not_before: pause.map(|pause| now + ms(pause)),
            continuation: run.continuation,
            ..Held::default()
        });
        Some("suspended")
    }

    /// Lets the next step continue the suspended run.
    pub fn resume(&mut self, now: Millis) -> Result<(), i32> {
        let suspended = self.execution == "suspended";
        let held = self.held.as_mut().filter(|_| suspended).ok_or(REFUSED)?;
        let at_once = self.since.min(now);
        held.not_before = Some(held.not_before.map_or(at_once, |at| at.min(at_once)));
        self.wake_up();
        Ok(())
    }
}
