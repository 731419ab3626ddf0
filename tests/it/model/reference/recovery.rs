//! Execution §7 and §9: ends of turns, retries, backoff, dead letters, recovery and crashes.

use super::commands::Command;
use super::continuation::Continuation;
use super::hooks::{HookBehaviour, NO_LUCK};
use super::messages::{Maker, Message, Setbacks};
use super::preemption::Run;
use super::{BACKOFF, Born, MAX_ATTEMPTS, MAX_DELAY, Millis, Model, REFUSED, Word};

/// Reason that the operator gives to `fail`.
pub const OPERATORS_REASON: &str = "enough of it";
pub const FORCED: &str = "forced_preemption";

/// Condition under which a failed agent recovers.
#[derive(Debug, Clone)]
pub struct Retry {
    pub not_before: Millis,
    /// The message that waits for its next attempt.
    pub message: Option<Born>,
    /// Number of successive failed recoveries.
    pub recoveries: u32,
}

/// End of a turn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum End {
    // Exit status 0
    Well,
    // Exit status 1
    Badly,
    // Exit status 75
    NotNow,
    // A failing hook prevents the start of the turn.
    Prevented,
    // SIGKILL ends the tick and with it the turn.
    TickKilled,
    // SIGTERM ends the tick, which ends the turn and settles the run.
    TickEnded,
    // `stop` ends the turn.
    Stopped { how: Stopped, requeue: bool },
    // `fail` ends the turn.
    Failed,
    // `preempt` without a grace ends the turn.
    Preempted { resume_after: Option<i64> },
    // The tick ends the turn, because the grace of a preemption request is over.
    Forced,
}

/// End of a turn that is stopped.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Stopped {
    // The turn ignores SIGTERM, and SIGKILL ends it after the grace.
    Killed,
    // SIGTERM ends the turn.
    Dies,
    // The turn exits with 0 at SIGTERM.
    Finishes,
}

impl Model {
    /// Takes up a message, to which the waits are bound that it ends. An expired wait ends at once.
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

    /// Ends the turn, and carries out its actions if all of them are accepted. Returns the
    /// `terminal` of the run; `None` if no process has settled it.
    pub fn end_turn(&mut self, now: Millis, end: End, actions: &[Command], tokens: u64) -> Option<Word> {
        // The counter 1000 sorts records of the settlement after all earlier records of the step.
        self.clock = (now, 1000);
        if end == End::TickKilled {
            return None;
        }
        self.count_tokens(now, tokens);
        if let End::Stopped { how, requeue } = end {
            self.stop();
            let terminal = self.finish_stop(now, how, requeue, actions);
            self.end_tasks();
            return terminal;
        }
        if let End::Preempted { resume_after } = end {
            self.ask_to_yield(now, 0, resume_after);
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

    /// Carries out all of the actions, or none.
    pub fn carry_out_all(&mut self, now: Millis, actions: &[Command]) -> Result<(), i32> {
        let mut after = self.clone();
        for action in actions {
            after.carry_out(now, action, true)?;
        }
        *self = after;
        Ok(())
    }

    /// Settles the run of a completed turn, which has been shown all messages set aside before.
    pub fn complete_turn(&mut self) -> Option<()> {
        let run = self.end_run("completed")?;
        self.end_message(run.message, "processed");
        self.retry = None;
        self.reduced.clear();
        Some(())
    }

    /// Removes the current run, and counts its turn. The message is not settled yet.
    pub fn end_run(&mut self, terminal: Word) -> Option<Run> {
        let run = self.run.take()?;
        self.last_terminal = Some(terminal);
        self.last_message = Some(run.message);
        self.count_turn(self.clock.0, run.claimed_at, terminal);
        Some(run)
    }

    /// Fails the run. `is_done` means that the turn exited with 0, so its message does not run
    /// again.
    pub fn fail(&mut self, now: Millis, terminal: Word, is_done: bool, why: Option<&str>) -> Option<Word> {
        let run = self.end_run(terminal)?;
        self.enter("failed", why);
        if self.status != "stopped" {
            self.status = "awake_idle";
        }
        self.fail_message(now, run.message, &run.continuation, is_done);
        Some(terminal)
    }

    /// Interrupts the run, which costs no attempt.
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
        self.in_queue_mut(born).map(|message| &mut message.setbacks)
    }

    /// Queues a claimed message again, at the same attempt. Recovery may begin at `not_before`.
    pub fn put_back(&mut self, not_before: Millis, born: Born, continuation: &Continuation) {
        self.retry = Some(Retry { not_before, message: Some(born), recoveries: 0 });
        if let Some(message) = self.in_queue_mut(born) {
            message.continuation = Some(continuation.clone());
        }
    }

    /// Queues a claimed message again, at the same attempt, and clears its [`Setbacks`].
    pub fn requeue_claimed(&mut self, born: Born, continuation: Continuation) {
        if let Some(message) = self.in_queue_mut(born) {
            message.continuation = Some(continuation);
            message.setbacks = Setbacks::default();
        }
    }

    /// Fails an attempt of a message, which then waits for another attempt or is a dead letter.
    pub fn fail_message(&mut self, now: Millis, born: Born, continuation: &Continuation, is_done: bool) {
        let Some(message) = self.in_queue_mut(born) else { return };
        if message.attempt < MAX_ATTEMPTS && !is_done {
            let not_before = now + backoff(message.attempt);
            message.attempt += 1;
            message.setbacks = Setbacks::default();
            message.continuation = Some(continuation.clone());
            self.retry = Some(Retry { not_before, message: Some(born), recoveries: 0 });
            return;
        }
        let said = message.said.clone();
        self.retry = Some(Retry { not_before: now, message: Some(born), recoveries: 0 });
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

    /// True if an `interject` message that came after the failure ends the backoff early.
    pub fn ends_backoff(&self, head: Option<&Message>, retry: &Retry) -> bool {
        let is_new = |message: &&Message| message.priority == 0 && Some(message.born) != retry.message;
        let heads = head.filter(is_new).is_some_and(|message| message.attempt == 1 && retry.recoveries == 0);
        let last = self.in_order().into_iter().rev().find(|message| message.priority == 0);
        heads || last.filter(is_new).is_some_and(|message| message.born.0 >= self.since)
    }

    // Recovery of a failed agent

    /// Recovers a failed agent, or continues a recovery whose tick was killed.
    pub fn recover(&mut self, now: Millis) {
        if self.execution == "failed" {
            self.enter("recovering", None);
        }
        let does = self.run_hook("on-recovery-start", "recovering", "runnable", None);
        if does == HookBehaviour::Kills {
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

    /// Fails a recovery, and delays the next one longer each time. After `MAX_ATTEMPTS` successive
    /// failures the agent asks for attention, or stops itself if its settings say so.
    pub fn fail_recovery(&mut self, now: Millis, why: &str) {
        self.enter("failed", Some(why));
        let before = self.retry.clone();
        let recoveries = before.as_ref().map_or(0, |retry| retry.recoveries) + 1;
        let message = before.and_then(|retry| retry.message).or(self.last_message);
        // An agent that does not stop itself tries to recover again after the longest delay.
        let parked = recoveries >= MAX_ATTEMPTS && !self.settings.stop_when_exhausted;
        let pause = if parked { MAX_DELAY } else { backoff(recoveries).min(MAX_DELAY) };
        self.retry = Some(Retry { not_before: now + pause, message, recoveries });
        if self.status != "stopped" {
            self.status = "awake_idle";
        }
        self.end_recovery(false);
        self.alarmed = true;
        if recoveries >= MAX_ATTEMPTS {
            // The attention of an agent that stops itself replaces that about the recovery.
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

    // Runs whose tick was killed

    /// Settles a run whose tick was killed.
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

    // Commands by which the operator recovers or fails an agent

    pub fn recover_by_hand(&mut self, now: Millis, inside: bool) -> Result<(), i32> {
        // A turn can't recover its own agent.
        if inside {
            return Err(REFUSED);
        }
        let interrupted = self.run.is_some();
        self.interrupt(now);
        match self.execution {
            "failed" | "recovering" => self.recover(now),
            _ if interrupted => {}
            // The operator may end the wait for resources by `recover` (execution §8).
            "waiting_resources" => {
                self.release_hold();
                self.retry_held(now);
            }
            _ => return Err(REFUSED),
        }
        Ok(())
    }

    /// Carries out `fail` while no tick runs: fails an interrupted run, a recovery or a held run.
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

/// Returns the exponential backoff: 1, 2, 4 … seconds.
pub fn backoff(attempt: u32) -> Millis {
    BACKOFF << (attempt - 1)
}
