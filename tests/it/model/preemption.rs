//! A run is asked to yield, yields, is suspended and goes on; or it is forced (execution §6).

use super::hooks::Entered;
use super::reference::{Held, Millis, Model, OPERATORS_REASON, REFUSED, Run, Tag, Word, ms};

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

/// A critical section: its number, and until when it is respected.
#[derive(Debug, Clone)]
pub struct Section {
    number: u32,
    until: Millis,
}

/// How a safe point says: please yield.
pub const PLEASE_YIELD: i32 = 10;

/// What the hook saves that saves anything.
pub const SAVED_BY_HOOK: &str = "of the hook";

impl Run {
    /// Whether an open section has time left.
    fn is_protected(&self, now: Millis) -> bool {
        self.sections.iter().any(|section| now <= section.until)
    }

    /// The end of the grace, or of the sections that outlast it.
    fn force_at(&self) -> Option<Millis> {
        let request = self.request.as_ref()?;
        self.sections.iter().map(|section| section.until).chain([request.force_at]).max()
    }
}

impl Model {
    // Requests

    /// Whether a request without a grace leaves the turn some time all the same.
    pub fn is_protected(&self) -> bool {
        self.run.as_ref().is_some_and(|run| run.is_protected(run.claimed_at + ms(60)))
    }

    pub(super) fn ask_to_yield(&mut self, now: Millis, grace: i64, resume_after: Option<i64>) {
        let reason = self.name("reason");
        let Some(run) = &mut self.run else { return };
        let until = now + ms(grace);
        let force_at = run.request.as_ref().map_or(until, |pending| pending.force_at.min(until));
        run.request = Some(Request { reason: reason.clone(), resume_after, force_at });
        self.run_hook_for("on-preempt-request", "running", "suspended", &reason);
    }

    /// Exactly at the end it may still yield.
    pub(super) fn is_overdue(&self, now: Millis) -> bool {
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
        if overdue && run.sections.is_empty() {
            return Err(REFUSED);
        }
        let number = run.sections.last().map_or(1, |innermost| innermost.number + 1);
        run.sections.push(Section { number, until: now + ms(deadline) });
        Ok(number)
    }

    /// The number of the section that was begun last.
    pub fn innermost_section(&self) -> Option<u32> {
        Some(self.run.as_ref()?.sections.last()?.number)
    }

    /// Ends the section of that number, else the innermost.
    pub fn end_section(&mut self, number: Option<u32>) -> Result<(), i32> {
        let sections = &mut self.run.as_mut().ok_or(REFUSED)?.sections;
        let at = match number {
            Some(number) => sections.iter().position(|section| section.number == number),
            None => sections.len().checked_sub(1),
        };
        sections.remove(at.ok_or(REFUSED)?);
        Ok(())
    }

    // Safe points

    /// Whether a safe point asks for a yield. In a section with time left it never does.
    pub fn asks_to_yield(&self, now: Millis) -> bool {
        self.run.as_ref().is_some_and(|run| run.request.is_some() && !run.is_protected(now))
    }

    /// What the operator has interjected is handed over, once.
    pub(super) fn safe_point(&mut self, now: Millis) {
        let fresh = |model: &Model, message| !model.is_claimed(message) && !Model::is_stale(message, now);
        let waiting = self.in_order().into_iter().filter(|message| message.priority == 0);
        let handed_over: Vec<_> = waiting
            .filter(|message| fresh(self, message))
            .map(|message| (message.born, message.said.clone()))
            .collect();
        for (born, said) in handed_over {
            self.end_message(born, "interjected");
            self.handed.push(said.clone());
            let claimed = self.claimed();
            for message in self.queue.iter_mut().filter(|message| Some(message.born) == claimed) {
                message.interjected.push(said.clone());
            }
        }
    }

    /// What was said to earlier runs of the claimed message.
    pub fn interjected(&self) -> Vec<Tag> {
        let claimed = self.queue.iter().find(|message| self.is_claimed(message));
        claimed.map(|message| message.interjected.clone()).unwrap_or_default()
    }

    // Yields

    /// A yield without a checkpoint leaves the last one of this attempt.
    pub(super) fn give_way(&mut self, checkpoint: bool) {
        let checkpoint = checkpoint.then(|| self.name("checkpoint"));
        if let Some(run) = &mut self.run {
            run.yielded = true;
            run.checkpoint = checkpoint.or(run.checkpoint.take());
        }
    }

    /// The hook of a run that is about to be suspended may still save something.
    pub(super) fn before_suspension(&mut self) {
        let reason =
            self.run.as_ref().and_then(|run| run.request.as_ref()).map(|request| request.reason.clone());
        let saves = match reason {
            Some(reason) => self.run_hook_for("on-suspend", "running", "suspended", &reason),
            None => self.run_hook("on-suspend", "running", "suspended"),
        }
        .saves();
        if let Some(run) = self.run.as_mut().filter(|_| saves) {
            run.checkpoint = Some(SAVED_BY_HOOK.to_owned());
        }
    }

    /// Its message stays claimed, at the same attempt.
    pub(super) fn suspend(&mut self, now: Millis) -> Option<Word> {
        let run = self.end_run("suspended")?;
        let (reason, pause) = match &run.request {
            Some(request) => (request.reason.clone(), request.resume_after),
            None => ("its turn yielded".to_owned(), None),
        };
        self.enter("suspended", Some(&reason));
        self.status = "awake_idle";
        self.held = Some(Held {
            message: run.message,
            missing: format!("suspended: {reason}"),
            limit: None,
            not_before: pause.map(|pause| now + ms(pause)),
            continuation: run.continuation,
            deferrals: run.deferrals,
            checkpoint: run.checkpoint,
            entered: None,
        });
        Some("suspended")
    }

    /// The next step runs it.
    pub(super) fn resume(&mut self, now: Millis) -> Result<(), i32> {
        let suspended = self.execution == "suspended";
        let held = self.held.as_mut().filter(|_| suspended).ok_or(REFUSED)?;
        held.not_before = Some(held.not_before.map_or(now, |at| at.min(now)));
        self.wake_up();
        Ok(())
    }

    // Giving up

    /// `fail`, where no tick runs the turn: what is left of a run, or a recovery.
    pub(super) fn fail_by_hand(&mut self, now: Millis, inside: bool) -> Result<(), i32> {
        match self.execution {
            "running" if !inside => {
                self.fail(now, "failed", Some(OPERATORS_REASON));
            }
            "recovering" if !inside => {
                self.fail_recovery(now, OPERATORS_REASON);
            }
            _ => return Err(REFUSED),
        }
        Ok(())
    }

    // Going on

    /// The hook of the state that was entered for this turn. `false`: it has failed, and no turn starts.
    pub fn enter_turn(&mut self) -> bool {
        match self.run.as_mut().and_then(|run| run.entered.take()) {
            Some(Entered::Scheduled) => !self.run_hook("on-scheduled", "runnable", "scheduled").fails(),
            Some(Entered::Resumed) => !self.run_hook("on-resume", "suspended", "resumed").fails(),
            None => true,
        }
    }
}
