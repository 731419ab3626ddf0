//! Execution §7 and §9: a turn that ends, well or not; retry, backoff, dead letter; and crashes.

use super::commands::Command;
use super::continuation::Continuation;
use super::hooks::{HookBehavior, NO_LUCK};
use super::messages::{Maker, Message, Setbacks};
use super::preemption::Run;
use super::{BACKOFF, Born, MAX_ATTEMPTS, MAX_DELAY, Millis, Model, REFUSED, Word};

/// What the operator says who fails something.
pub const OPERATORS_REASON: &str = "enough of it";
pub const FORCED: &str = "forced_preemption";

/// When a failed agent may recover.
#[derive(Debug, Clone)]
pub struct Retry {
    pub not_before: Millis,
    /// The message that has to wait for that.
    pub message: Option<Born>,
    /// How many recoveries have failed in a row.
    pub recoveries: u32,
}

/// How a turn ends.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum End {
    Well,
    Badly,
    /// Exit status 75.
    NotNow,
    /// A hook of the operator keeps it from starting.
    Prevented,
    /// Somebody kills its tick, and it dies with it.
    TickKilled,
    /// Somebody ends its tick, which ends it and says so.
    TickEnded,
    /// `stop` ends it.
    Stopped {
        how: Stopped,
        requeue: bool,
    },
    /// `fail` ends it.
    Failed,
    /// `preempt` without a grace ends it.
    Preempted {
        resume_after: Option<i64>,
    },
    /// It goes on until it is ended, because a request that it has got is overdue.
    Forced,
}

/// What becomes of a turn that is stopped.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Stopped {
    /// The grace is over.
    Killed,
    /// It dies of the signal.
    Dies,
    /// It ends by itself, with exit status 0.
    Finishes,
}

impl Model {
    /// The message's own waits are bound, and a wait that is over by the clock ends.
    pub fn take_up(&mut self, message: &Message, continuation: &Continuation) {
        self.count_message(message.born);
        self.bind(message.born, &continuation.resolves);
        if let (Maker::Expiry, Some(wait)) = (message.maker, &message.wait) {
            let counts = self.waits.iter().any(|found| found.tag == *wait && found.counts());
            if counts {
                self.end_wait(wait, "expired");
            }
        }
        self.wake_up();
    }

    /// The turn ends; its actions are carried out if they all can be. Says how it ended.
    pub fn end_turn(&mut self, now: Millis, end: End, actions: &[Command], tokens: u64) -> Option<Word> {
        // What the settlement makes comes after whatever the step has made.
        self.clock = (now, 1000);
        if end == End::TickKilled {
            return None;
        }
        self.count_tokens(now, tokens);
        match end {
            End::Stopped { how, requeue } => {
                self.stop();
                let terminal = self.finish_stop(now, how, requeue, actions);
                self.end_tasks();
                return terminal;
            }
            End::Preempted { resume_after } => self.ask_to_yield(now, 0, resume_after),
            End::Well
            | End::Badly
            | End::NotNow
            | End::Prevented
            | End::TickKilled
            | End::TickEnded
            | End::Failed
            | End::Forced => {}
        }
        self.settle(now, end, actions)
    }

    fn settle(&mut self, now: Millis, end: End, actions: &[Command]) -> Option<Word> {
        let yielded = self.run.as_ref().is_some_and(|run| run.yielded);
        if end == End::Failed {
            return self.fail(now, "failed", false, Some(OPERATORS_REASON));
        }
        if yielded {
            self.before_suspension();
            return self.suspend(now);
        }
        match end {
            End::Well => {
                if self.carry_out_all(now, actions).is_err() {
                    return self.fail(now, "failed", true, None);
                }
                self.complete_turn()?;
                let closure = self.closure();
                if closure.outcome == "waiting" {
                    self.enter("waiting", None);
                    self.status = self.at_rest(false);
                } else {
                    self.enter("completed", None);
                    self.status = "awake_idle";
                }
                Some("completed")
            }
            End::TickEnded => self.end_from_outside(now, "interrupted", None),
            End::Prevented => self.end_from_outside(now, "failed", None),
            End::Preempted { .. } | End::Forced => self.end_from_outside(now, "failed", Some(FORCED)),
            End::NotNow => self.defer(now),
            End::Badly | End::Failed | End::TickKilled | End::Stopped { .. } => {
                self.fail(now, "failed", false, None)
            }
        }
    }

    /// All of the actions, or none.
    pub fn carry_out_all(&mut self, now: Millis, actions: &[Command]) -> Result<(), i32> {
        let mut after = self.clone();
        for action in actions {
            after.carry_out(now, action, true)?;
        }
        *self = after;
        Ok(())
    }

    /// A turn has completed: its message is processed, and what was set aside was seen.
    pub fn complete_turn(&mut self) -> Option<()> {
        let run = self.end_run("completed")?;
        self.end_message(run.message, "processed");
        self.retry = None;
        self.reduced.clear();
        Some(())
    }

    /// The turn is over, in this way; its message knows nothing of that so far.
    pub fn end_run(&mut self, terminal: Word) -> Option<Run> {
        let run = self.run.take()?;
        self.last_terminal = Some(terminal);
        self.last_message = Some(run.message);
        self.count_turn(self.clock.0, run.claimed_at, terminal);
        Some(run)
    }

    /// `is_done`: it exited with status 0, and its message does not run again.
    pub fn fail(&mut self, now: Millis, terminal: Word, is_done: bool, why: Option<&str>) -> Option<Word> {
        let run = self.end_run(terminal)?;
        self.enter("failed", why);
        if self.status != "stopped" {
            self.status = "awake_idle";
        }
        self.fail_message(now, run.message, &run.continuation, is_done);
        Some(terminal)
    }

    /// What comes from outside costs no attempt. Interruptions in a row are counted for themselves.
    fn end_from_outside(&mut self, now: Millis, terminal: Word, why: Option<&str>) -> Option<Word> {
        let run = self.end_run(terminal)?;
        let setbacks = self.setbacks_of(run.message)?;
        setbacks.interruptions += 1;
        let times = setbacks.interruptions;
        if times >= self.settings.max_interruptions {
            self.hold(run.message, run.continuation);
        } else {
            self.enter("failed", why);
            self.put_back(now + backoff(times).min(MAX_DELAY), run.message, &run.continuation);
        }
        self.status = "awake_idle";
        Some(terminal)
    }

    pub fn setbacks_of(&mut self, born: Born) -> Option<&mut Setbacks> {
        self.queue.iter_mut().find(|message| message.born == born).map(|message| &mut message.setbacks)
    }

    /// A message is queued again, at the same attempt, and waits for that moment.
    pub fn put_back(&mut self, not_before: Millis, born: Born, continuation: &Continuation) {
        self.retry = Some(Retry { not_before, message: Some(born), recoveries: 0 });
        for message in self.queue.iter_mut().filter(|message| message.born == born) {
            message.continuation = Some(continuation.clone());
        }
    }

    /// An attempt is lost: another one after the backoff, or a dead letter.
    pub fn fail_message(&mut self, now: Millis, born: Born, continuation: &Continuation, is_done: bool) {
        let Some(message) = self.queue.iter_mut().find(|message| message.born == born) else { return };
        if message.attempt < MAX_ATTEMPTS && !is_done {
            let not_before = now + backoff(message.attempt);
            message.attempt += 1;
            message.setbacks = Setbacks::default();
            message.continuation = Some(continuation.clone());
            self.retry = Some(Retry { not_before, message: Some(born), recoveries: 0 });
            return;
        }
        self.retry = Some(Retry { not_before: now, message: Some(born), recoveries: 0 });
        let said = message.said.clone();
        self.raise("dead_letter", Some(said));
        self.end_message(born, "dead");
        if self.settings.stop_when_exhausted && self.status != "stopped" {
            self.stop_itself();
        }
    }

    pub fn stop_itself(&mut self) {
        self.stop();
        self.end_tasks();
        self.raise("agent_stopped", None);
    }

    /// An operator's interjection ends a backoff early, once.
    pub fn ends_backoff(&self, head: Option<&Message>, retry: &Retry) -> bool {
        let is_new = |message: &&Message| message.priority == 0 && Some(message.born) != retry.message;
        let heads = head.filter(is_new).is_some_and(|message| message.attempt == 1 && retry.recoveries == 0);
        let last = self.in_order().into_iter().rev().find(|message| message.priority == 0);
        heads || last.filter(is_new).is_some_and(|message| message.born.0 >= self.since)
    }

    // Recovery

    /// From `failed` back to work, or on with a recovery that somebody has begun and not ended.
    pub fn recover(&mut self, now: Millis) {
        if self.execution == "failed" {
            self.enter("recovering", None);
        }
        let does = self.run_hook("on-recovery-start", "recovering", "runnable");
        if does == HookBehavior::Kills {
            self.killed = true;
            return;
        }
        let overdue = self.deadline().filter(|(limit, _)| now > *limit).map(|(_, why)| why);
        let failure = overdue.or(does.fails().then_some(NO_LUCK));
        match failure {
            Some(why) => self.fail_recovery(now, why),
            None => {
                self.enter("runnable", None);
                self.retry = None;
                self.end_recovery(true);
            }
        }
    }

    /// It counts: its pause grows, and after so many in a row it is decided what then.
    pub fn fail_recovery(&mut self, now: Millis, why: &str) {
        self.enter("failed", Some(why));
        let before = self.retry.clone();
        let recoveries = before.as_ref().map_or(0, |retry| retry.recoveries) + 1;
        let message = before.and_then(|retry| retry.message).or(self.last_message);
        // Without its recovery it does not go on: parked, it is tried again after the longest pause.
        let parked = recoveries >= MAX_ATTEMPTS && !self.settings.stop_when_exhausted;
        let pause = if parked { MAX_DELAY } else { backoff(recoveries).min(MAX_DELAY) };
        self.retry = Some(Retry { not_before: now + pause, message, recoveries });
        if self.status != "stopped" {
            self.status = "awake_idle";
        }
        self.end_recovery(false);
        self.alarmed = true;
        if recoveries >= MAX_ATTEMPTS {
            // One that stops itself says so, and that is enough.
            if self.settings.stop_when_exhausted && self.status != "stopped" {
                self.stop_itself();
            } else {
                self.raise("recovery_failed", None);
            }
        }
    }

    fn end_recovery(&mut self, success: bool) {
        self.tell("on-recovery-complete", "recovering", self.execution, None);
        if let Some(told) = self.told.last_mut().filter(|told| told.hook == "on-recovery-complete") {
            told.success = Some(success);
        }
    }

    // Crashes

    /// A run whose tick is gone.
    pub fn interrupt(&mut self, now: Millis) {
        let Some(run) = &self.run else { return };
        if run.yielded {
            self.before_suspension();
            self.suspend(now);
        } else if self.is_overdue(now) {
            self.end_from_outside(now, "failed", Some(FORCED));
        } else {
            self.end_from_outside(now, "interrupted", None);
        }
    }

    // By hand

    pub fn recover_by_hand(&mut self, now: Millis, inside: bool) -> Result<(), i32> {
        // Inside it is the turn itself that is in the way.
        if inside {
            return Err(REFUSED);
        }
        let interrupted = self.run.is_some();
        self.interrupt(now);
        match self.execution {
            "failed" | "recovering" => self.recover(now),
            // A way out (§8): try now.
            _ if interrupted => {}
            "waiting_resources" => {
                self.release_hold();
                self.retry_held(now);
            }
            _ => return Err(REFUSED),
        }
        Ok(())
    }

    /// `fail`, where no tick runs the turn: what is left of a run, or a recovery, or what lacks something.
    pub fn fail_by_hand(&mut self, now: Millis, inside: bool) -> Result<(), i32> {
        match self.execution {
            "running" if !inside => {
                self.fail(now, "failed", false, Some(OPERATORS_REASON));
            }
            "recovering" => self.fail_recovery(now, OPERATORS_REASON),
            "waiting_resources" | "suspended" => {
                self.release_hold();
                let Some(held) = self.held.take() else { return Err(REFUSED) };
                self.enter("failed", Some(OPERATORS_REASON));
                self.fail_message(now, held.message, &held.continuation, false);
            }
            _ => return Err(REFUSED),
        }
        Ok(())
    }
}

/// Exponential: 1, 2, 4 … seconds.
pub fn backoff(attempt: u32) -> Millis {
    BACKOFF << (attempt - 1)
}
