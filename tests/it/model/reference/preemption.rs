//! Execution §6: a turn runs; it is asked to yield, yields, is suspended and goes on; or it is forced.

use super::continuation::Continuation;
use super::hooks::{Entered, HookBehavior};
use super::messages::Message;
use super::step::Decision;
use super::{Born, MAX_SECTION, Millis, Model, REFUSED, Tag, Word, ms};

#[derive(Debug, Clone)]
pub struct Run {
    pub claimed_at: Millis,
    pub message: Born,
    pub continuation: Continuation,
    pub work: Option<Tag>,
    /// The hook of the state that was entered for this turn.
    pub entered: Option<Entered>,
    pub deferred: Deferred,
    pub request: Option<Request>,
    pub sections: Sections,
    pub yielded: bool,
    /// How long after its end it goes on by itself, if its turn has said so last.
    pub pause: Option<i64>,
}

/// A run that was suspended, or lacks a resource.
#[derive(Debug, Clone)]
pub struct Held {
    pub message: Born,
    pub missing: String,
    /// Of the agent's own limits, the one that is reached.
    pub limit: Option<Word>,
    /// When it may go on, or whether a limit is back; where that is known.
    pub not_before: Option<Millis>,
    pub continuation: Continuation,
    pub deferred: Deferred,
    pub entered: Option<Entered>,
    /// Only the operator brings it on (§7).
    pub needs_operator: bool,
}

/// A row of deferrals of one message (§8).
#[derive(Debug, Clone, Copy, Default)]
pub struct Deferred {
    pub since: Option<Millis>,
    /// How much of the time since then was spent waiting for a moment that was known.
    pub known: Millis,
}

/// What somebody wants of the run: one request, however often it is made.
#[derive(Debug, Clone)]
pub struct Request {
    /// That of the latest.
    pub reason: Tag,
    /// Of the latest, too.
    resume_after: Option<i64>,
    /// The earliest.
    force_at: Millis,
}

/// Critical sections, nested: their numbers, and until when they are respected, which is one stretch.
#[derive(Debug, Clone, Default)]
pub struct Sections {
    open: Vec<u32>,
    until: Millis,
}

/// How a safe point says: please yield.
pub const PLEASE_YIELD: i32 = 10;

/// What the hook saves that saves anything.
pub const SAVED_BY_HOOK: &str = "of the hook";

impl Run {
    /// Whether an open section has time left.
    fn is_protected(&self, now: Millis) -> bool {
        !self.sections.open.is_empty() && now <= self.sections.until
    }

    /// The end of the grace, or of the stretch that outlasts it.
    fn force_at(&self) -> Option<Millis> {
        let request = self.request.as_ref()?;
        let until = (!self.sections.open.is_empty()).then_some(self.sections.until);
        Some(request.force_at.max(until.unwrap_or(request.force_at)))
    }
}

impl Model {
    // A turn begins

    pub fn claim(&mut self, now: Millis, born: Born, decision: &Decision) {
        let Some(message) = self.queue.iter().find(|message| message.born == born).cloned() else { return };
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
            request: None,
            sections: Sections::default(),
            yielded: false,
            pause: None,
        });
        self.status = "awake_running";
    }

    pub fn attempt(&self) -> u32 {
        let claimed = self.queue.iter().find(|message| self.is_claimed(message));
        claimed.map_or(0, |message| message.attempt)
    }

    // Requests

    /// Whether a request without a grace leaves the turn some time all the same.
    pub fn is_protected(&self) -> bool {
        self.run.as_ref().is_some_and(|run| run.is_protected(run.claimed_at + ms(60)))
    }

    pub fn ask_to_yield(&mut self, now: Millis, grace: i64, resume_after: Option<i64>) {
        let reason = self.name("reason");
        let Some(run) = &mut self.run else { return };
        let until = now + ms(grace);
        let force_at = run.request.as_ref().map_or(until, |pending| pending.force_at.min(until));
        run.request = Some(Request { reason: reason.clone(), resume_after, force_at });
        self.run_hook_for("on-preempt-request", "running", "suspended", &reason);
    }

    /// Exactly at the end it may still yield.
    pub fn is_overdue(&self, now: Millis) -> bool {
        self.run.as_ref().and_then(Run::force_at).is_some_and(|at| now > at)
    }

    /// Whether its tick ends it before long.
    pub fn is_about_to_be_forced(&self, now: Millis) -> bool {
        self.is_overdue(now + ms(60))
    }

    // Sections

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

    /// The number of the section that was begun last.
    pub fn innermost_section(&self) -> Option<u32> {
        self.run.as_ref()?.sections.open.last().copied()
    }

    /// Ends the section of that number, else the innermost.
    pub fn end_section(&mut self, number: Option<u32>) -> Result<(), i32> {
        let open = &mut self.run.as_mut().ok_or(REFUSED)?.sections.open;
        let at = match number {
            Some(number) => open.iter().position(|open| *open == number),
            None => open.len().checked_sub(1),
        };
        open.remove(at.ok_or(REFUSED)?);
        Ok(())
    }

    // Safe points

    /// Whether a safe point asks for a yield. In a section with time left it never does.
    pub fn asks_to_yield(&self, now: Millis) -> bool {
        self.run.as_ref().is_some_and(|run| run.request.is_some() && !run.is_protected(now))
    }

    /// What the operator has interjected is handed over, once; a peek leaves it.
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
            // The turn has heard it: what it ends is over when this turn's own message is.
            let answered = self.satisfied_by(&message);
            self.claimed().into_iter().for_each(|claimed| self.bind(claimed, &answered));
            self.end_message(born, "interjected");
            if let Some(message) = self.claimed_message() {
                message.interjected.push(said);
            }
        }
    }

    /// What was said to earlier runs of the claimed message.
    pub fn interjected(&self) -> Vec<Tag> {
        let claimed = self.queue.iter().find(|message| self.is_claimed(message));
        claimed.map(|message| message.interjected.clone()).unwrap_or_default()
    }

    // Checkpoints, which belong to the message

    pub fn checkpoint(&self) -> Option<Tag> {
        let claimed = self.queue.iter().find(|message| self.is_claimed(message));
        claimed.and_then(|message| message.checkpoint.clone())
    }

    pub fn save(&mut self, checkpoint: Tag) {
        if let Some(message) = self.claimed_message() {
            message.checkpoint = Some(checkpoint);
        }
    }

    // Yields

    /// A yield without a checkpoint leaves the last one, and one without a time the last time.
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

    /// The hook of a run that is about to be suspended may still save something.
    pub fn before_suspension(&mut self) {
        let reason =
            self.run.as_ref().and_then(|run| run.request.as_ref()).map(|request| request.reason.clone());
        let does = match reason {
            Some(reason) => self.run_hook_for("on-suspend", "running", "suspended", &reason),
            None => self.run_hook("on-suspend", "running", "suspended"),
        };
        if does == HookBehavior::Saves {
            self.save(SAVED_BY_HOOK.to_owned());
        }
    }

    /// Its message stays claimed, at the same attempt. Suspensions have the same bound as deferrals (§8).
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
            limit: None,
            not_before: pause.map(|pause| now + ms(pause)),
            continuation: run.continuation,
            deferred: Deferred::default(),
            entered: None,
            needs_operator: false,
        });
        Some("suspended")
    }

    /// The next step runs it.
    pub fn resume(&mut self, now: Millis) -> Result<(), i32> {
        let suspended = self.execution == "suspended";
        let held = self.held.as_mut().filter(|_| suspended).ok_or(REFUSED)?;
        let at_once = self.since.min(now);
        held.not_before = Some(held.not_before.map_or(at_once, |at| at.min(at_once)));
        self.wake_up();
        Ok(())
    }
}
