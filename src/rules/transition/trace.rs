//! Records of a run's end: how it ended, its usage, the last turn in the state, and the archive.

use serde_json::json;

use crate::model::closure::Closure;
use crate::model::event::EventKind;
use crate::model::id::RunId;
use crate::model::record::Extra;
use crate::model::run::{Brief, Exit, Run, Terminal, Usage};
use crate::model::state::{CurrentRun, LastTurn, SetAside};
use crate::model::time::{Span, Time};
use crate::model::transaction::Archived;
use crate::model::turn::TurnEnd;

use crate::rules::limits::{self, dollars};

use super::draft::{Draft, without_nulls};

/// Maximum length, in bytes, of a text that a turn reports and a record stores.
const KEPT_MAX: usize = 4096;

/// Terminal kind of a settled run, with its reason and closure.
#[derive(Debug, Clone, PartialEq)]
pub struct Settled {
    pub terminal: Terminal,
    pub reason: Option<String>,
    /// Closure after the run; absent if the run was no longer current.
    pub closure: Option<Closure>,
}

/// Attempts that a message loses by a run that did not complete (contract, execution §7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cost {
    /// Uses up one attempt of the message: the turn failed or timed out, or `fail` ended it.
    Attempt,
    /// Uses up no attempt, because something outside of the turn ended the run. Consecutive
    /// interruptions are counted separately.
    Interruption,
    /// Uses up all attempts, because the turn has done the work and must not repeat it.
    Message,
}

/// Facts about the end of a run, for its settlement.
pub(super) struct RunEnd<'e> {
    pub terminal: Terminal,
    /// Reason why the run did not complete.
    pub reason: Option<String>,
    pub cost: Cost,
    pub usage: Option<Usage>,
    /// End of the turn command that its `tick` process has observed; absent if no process has.
    pub seen: Option<&'e TurnEnd>,
}

impl<'e> RunEnd<'e> {
    /// Returns the end of a run, with the usage that the turn reported.
    pub fn new(
        terminal: Terminal,
        reason: Option<String>,
        cost: Cost,
        seen: Option<&'e TurnEnd>,
    ) -> RunEnd<'e> {
        let outcome = seen.and_then(|end| end.outcome.as_ref().ok());
        let usage = outcome.and_then(|outcome| outcome.usage.clone());
        RunEnd { terminal, reason, cost, usage, seen }
    }

    /// Returns the time at which the run ended: now, if no process saw the end.
    fn at(&self, now: Time) -> Time {
        self.seen.map_or(now, |end| end.ended_at)
    }

    /// Returns the summary of a completed turn: its outcome's brief, else its last line of output.
    fn brief(&self) -> Option<String> {
        let end = self.seen.filter(|_| self.terminal == Terminal::Completed)?;
        let own = end.outcome.as_ref().ok().and_then(|outcome| outcome.brief.clone());
        let text = own.or_else(|| end.last_line.clone())?;
        Some(cut(&text)).filter(|text| !text.trim().is_empty())
    }
}

/// Returns the end of a run by its turn's exit, outcome file and timeout. A turn that exited with
/// status 0 by itself has done its work, even if its `tick` process was told to end afterwards.
pub(super) fn verdict(end: &TurnEnd) -> RunEnd<'_> {
    let ended = |terminal, reason: Option<&str>, cost| {
        RunEnd::new(terminal, reason.map(str::to_owned), cost, Some(end))
    };
    let failed = |reason: &str, cost| ended(Terminal::Failed, Some(reason), cost);
    if end.timed_out {
        return ended(Terminal::TimedOut, Some("turn.timeout was reached"), Cost::Attempt);
    }
    let is_done = end.by_itself && end.exit == Exit::Code { code: 0 };
    if let Some(signal) = end.cancelled_by.filter(|_| !is_done) {
        let reason = format!("the tick was ended by signal {signal}");
        return ended(Terminal::Interrupted, Some(&reason), Cost::Interruption);
    }
    match (&end.exit, &end.outcome) {
        (Exit::Code { code: 0 }, Ok(outcome)) if outcome.deferred.is_some() => {
            let reason = "outcome file: $.deferred: the turn ended with exit status 0, not 75";
            failed(reason, Cost::Message)
        }
        (Exit::Code { code: 0 }, Ok(_)) => ended(Terminal::Completed, None, Cost::Attempt),
        (Exit::Code { code: 0 }, Err(reason)) => failed(reason, Cost::Message),
        (Exit::Code { code: 75 }, Ok(_)) => ended(Terminal::Deferred, None, Cost::Attempt),
        (Exit::Code { code: 75 }, Err(reason)) => failed(reason, Cost::Attempt),
        (exit, _) => {
            let said = end.last_error_line.as_ref().or(end.last_line.as_ref());
            let said = said.map(|line| format!(": {line}")).unwrap_or_default();
            let cost = if end.is_prevented { Cost::Interruption } else { Cost::Attempt };
            failed(&format!("{exit}{said}"), cost)
        }
    }
}

/// Returns a text, cut at a character boundary to at most [`KEPT_MAX`] bytes.
pub(super) fn cut(text: &str) -> String {
    let mut end = text.len().min(KEPT_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}

/// Counts a run that ends, and stores it as the last turn.
pub(super) fn count(draft: &mut Draft, run: &CurrentRun, ended: &RunEnd<'_>) {
    let now = draft.now();
    let state = &mut draft.records.state;
    let counters = &mut state.counters;
    if let Some(usage) = &ended.usage {
        limits::count_usage(&mut state.spending, now, usage);
        counters.input_tokens = counters.input_tokens.saturating_add(usage.input_tokens.unwrap_or(0));
        counters.output_tokens = counters.output_tokens.saturating_add(usage.output_tokens.unwrap_or(0));
        // JSON can't express an infinite number, so the record would become unreadable.
        counters.cost_usd =
            dollars(counters.cost_usd + usage.cost_usd.unwrap_or(0.0)).clamp(f64::MIN, f64::MAX);
    }
    counters.turns = counters.turns.saturating_add(1);
    state.meters.count_turn(ended.terminal, ended.seen.map(|end| Span::from_millis(end.duration_ms)));
    limits::count_turn(&mut state.spending, run.claimed_at, now, ended.terminal);
    match ended.terminal {
        Terminal::Completed => {
            state.runtime_error = None;
            // Only a completed turn has surely read the messages that were settled without a turn.
            counters.reduced_since_turn = 0;
            state.set_aside = SetAside::default();
        }
        Terminal::Failed | Terminal::TimedOut | Terminal::Interrupted => {
            counters.turns_failed = counters.turns_failed.saturating_add(1);
        }
        Terminal::Aborted | Terminal::Suspended | Terminal::Deferred => {}
    }
    state.last_turn = Some(LastTurn {
        run_id: run.run_id,
        message_id: run.message_id,
        attempt: run.attempt,
        terminal: ended.terminal,
        ended_at: ended.at(now),
        brief: ended.brief(),
        reason: ended.reason.clone(),
        model: ended.usage.as_ref().and_then(|usage| usage.model.clone()),
    });
}

/// Archives a run that has ended and its brief (summary), stores its closure, logs the end.
pub(super) fn archive(draft: &mut Draft, run: &CurrentRun, ended: RunEnd<'_>, closure: Closure) -> Settled {
    let (terminal, at, brief) = (ended.terminal, ended.at(draft.now()), ended.brief());
    let RunEnd { reason, usage, seen, .. } = ended;
    draft.records.state.last_closure = Some(closure.clone());
    let data = json!({
        "message_id": run.message_id,
        "attempt": run.attempt,
        "terminal": terminal,
        "closure": closure.outcome,
        "reason": reason,
    });
    // An end that no process saw was logged as `run_interrupted`, unless a stop ended the run.
    if seen.is_some() || terminal == Terminal::Aborted {
        draft.event(EventKind::RunSettled, Some(run.run_id), without_nulls(data));
    }
    draft.archive(Archived::Run(Box::new(Run {
        id: run.run_id,
        agent: draft.records.state.agent.clone(),
        message_id: run.message_id,
        work_item_id: run.work_item_id,
        attempt: run.attempt,
        started_at: run.claimed_at,
        ended_at: at,
        duration_ms: seen.map(|end| end.duration_ms),
        terminal,
        exit: seen.map_or(Exit::Unknown {}, |end| end.exit.clone()),
        reason: reason.clone(),
        brief: brief.clone(),
        usage,
        notes: seen.map(|end| end.notes.clone()).unwrap_or_default(),
        stdout_bytes: seen.map(|end| end.stdout_bytes),
        stderr_bytes: seen.map(|end| end.stderr_bytes),
        continuation: run.continuation.clone(),
        closure: Some(closure.clone()),
        extra: Extra::new(),
    })));
    if let Some(text) = brief {
        let (run_id, message_id) = (run.run_id, run.message_id);
        draft.archive(Archived::Brief(Box::new(Brief { run_id, message_id, at, text, extra: Extra::new() })));
    }
    Settled { terminal, reason, closure: Some(closure) }
}

/// Adds the end that the `tick` process saw to the record of a run that another process settled.
pub(super) fn record_output(
    draft: &mut Draft,
    run_id: RunId,
    end: &TurnEnd,
    previous: Option<Run>,
) -> Settled {
    let Some(mut record) = previous else {
        return Settled { terminal: Terminal::Aborted, reason: None, closure: None };
    };
    record.exit = end.exit.clone();
    record.duration_ms = Some(end.duration_ms);
    record.stdout_bytes = Some(end.stdout_bytes);
    record.stderr_bytes = Some(end.stderr_bytes);
    let settled = Settled { terminal: record.terminal, reason: record.reason.clone(), closure: None };
    let data = json!({ "terminal": record.terminal, "current": false });
    draft.event(EventKind::RunSettled, Some(run_id), data);
    draft.archive(Archived::Run(Box::new(record)));
    settled
}
