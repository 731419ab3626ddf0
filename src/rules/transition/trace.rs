//! What a run leaves behind: how it ended, what it said and used, and its record.

use serde_json::json;

use crate::model::closure::Closure;
use crate::model::event::EventKind;
use crate::model::id::RunId;
use crate::model::record::Extra;
use crate::model::run::{Exit, Run, Terminal, Usage};
use crate::model::state::{CurrentRun, LastTurn, SetAside};
use crate::model::time::Time;
use crate::model::transaction::Archived;
use crate::model::turn::TurnEnd;

use crate::rules::limits::{self, dollars};

use super::draft::Draft;

/// The longest text of a turn that a record keeps, in bytes.
const KEPT_MAX: usize = 4096;

/// The result of a settlement.
#[derive(Debug, Clone, PartialEq)]
pub struct Settled {
    pub terminal: Terminal,
    pub reason: Option<String>,
    /// Absent if the run was no longer current.
    pub closure: Option<Closure>,
}

/// How a turn ended, and why if not well.
pub(super) fn verdict(end: &TurnEnd) -> (Terminal, Option<String>) {
    if end.timed_out {
        return (Terminal::TimedOut, Some("turn.timeout was reached".to_owned()));
    }
    if let Some(signal) = end.cancelled_by {
        return (Terminal::Interrupted, Some(format!("the tick was ended by signal {signal}")));
    }
    match (&end.exit, &end.outcome) {
        (Exit::Code { code: 0 }, Ok(outcome)) if outcome.deferred.is_some() => {
            let reason = "outcome file: $.deferred: the turn ended with exit status 0, not 75";
            (Terminal::Failed, Some(reason.to_owned()))
        }
        (Exit::Code { code: 0 }, Ok(_)) => (Terminal::Completed, None),
        (Exit::Code { code: 0 }, Err(reason)) => (Terminal::Failed, Some(reason.clone())),
        (Exit::Code { code: 75 }, Ok(_)) => (Terminal::Deferred, None),
        (Exit::Code { code: 75 }, Err(reason)) => (Terminal::Failed, Some(reason.clone())),
        (exit, _) => {
            let said = end.last_error_line.as_ref().map(|line| format!(": {line}")).unwrap_or_default();
            (Terminal::Failed, Some(format!("{exit}{said}")))
        }
    }
}

pub(super) fn brief(end: &TurnEnd, terminal: Terminal) -> Option<String> {
    if terminal != Terminal::Completed {
        return None;
    }
    let own = end.outcome.as_ref().ok().and_then(|outcome| outcome.brief.clone());
    let text = own.or_else(|| end.last_line.clone())?;
    Some(cut(&text)).filter(|text| !text.trim().is_empty())
}

/// A text, cut to what a record keeps.
pub(super) fn cut(text: &str) -> String {
    let mut end = text.len().min(KEPT_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}

pub(super) fn count_usage(draft: &mut Draft, usage: Option<&Usage>) {
    let Some(usage) = usage else { return };
    let now = draft.now();
    limits::count_usage(&mut draft.records.state.spending, now, usage);
    let counters = &mut draft.records.state.counters;
    counters.input_tokens = counters.input_tokens.saturating_add(usage.input_tokens.unwrap_or(0));
    counters.output_tokens = counters.output_tokens.saturating_add(usage.output_tokens.unwrap_or(0));
    // JSON can't express an infinite number: the record could not be read any more.
    counters.cost_usd = dollars(counters.cost_usd + usage.cost_usd.unwrap_or(0.0)).clamp(f64::MIN, f64::MAX);
}

pub(super) fn note_turn(
    draft: &mut Draft,
    run: &CurrentRun,
    terminal: Terminal,
    reason: Option<String>,
    brief: Option<String>,
    ended_at: Time,
) {
    let now = draft.now();
    let state = &mut draft.records.state;
    state.counters.turns = state.counters.turns.saturating_add(1);
    limits::count_turn(&mut state.spending, run.claimed_at, now, terminal);
    match terminal {
        Terminal::Completed => {
            state.runtime_error = None;
            // A turn that did not complete may not have read them.
            state.counters.reduced_since_turn = 0;
            state.set_aside = SetAside::default();
        }
        Terminal::Failed | Terminal::TimedOut | Terminal::Interrupted => {
            state.counters.turns_failed = state.counters.turns_failed.saturating_add(1)
        }
        Terminal::Aborted | Terminal::Suspended | Terminal::Deferred => {}
    }
    state.last_turn = Some(LastTurn {
        run_id: run.run_id,
        message_id: run.message_id,
        attempt: run.attempt,
        terminal,
        ended_at,
        brief,
        reason,
        model: None,
    });
}

/// Records the model that the last turn says it used.
pub(super) fn name_model(draft: &mut Draft, usage: Option<&Usage>) {
    if let Some(last) = &mut draft.records.state.last_turn {
        last.model = usage.and_then(|usage| usage.model.clone());
    }
}

pub(super) fn run_record(draft: &Draft, run: &CurrentRun, terminal: Terminal, end: &TurnEnd) -> Run {
    Run {
        duration_ms: Some(end.duration_ms),
        exit: end.exit.clone(),
        stdout_bytes: Some(end.stdout_bytes),
        stderr_bytes: Some(end.stderr_bytes),
        ..unseen_run(draft, run, terminal, end.ended_at)
    }
}

/// The record of a run whose end no process saw.
pub(super) fn unseen_run(draft: &Draft, run: &CurrentRun, terminal: Terminal, ended_at: Time) -> Run {
    Run {
        id: run.run_id,
        agent: draft.records.state.agent.clone(),
        message_id: run.message_id,
        work_item_id: run.work_item_id,
        attempt: run.attempt,
        started_at: run.claimed_at,
        ended_at,
        duration_ms: None,
        terminal,
        exit: Exit::Unknown,
        reason: None,
        brief: None,
        usage: None,
        stdout_bytes: None,
        stderr_bytes: None,
        continuation: run.continuation.clone(),
        closure: None,
        extra: Extra::new(),
    }
}

pub(super) fn settled_event(draft: &mut Draft, record: &Run) {
    let mut data = json!({
        "message_id": record.message_id,
        "attempt": record.attempt,
        "terminal": record.terminal,
        "closure": record.closure.as_ref().map(|closure| closure.outcome),
    });
    if let Some(reason) = &record.reason {
        data["reason"] = json!(reason);
    }
    draft.event(EventKind::RunSettled, Some(record.id), data);
}

/// Adds to the record of a run how its turn ended, after another process has settled it.
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
    draft.event(
        EventKind::RunSettled,
        Some(run_id),
        json!({ "terminal": record.terminal, "current": false }),
    );
    draft.archive(Archived::Run(Box::new(record)));
    settled
}
