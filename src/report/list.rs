//! Table of `list`: the agents, the state of each, and its problems.

use std::cmp::Ordering;

use serde::Serialize;

use crate::model::agent::{AgentKind, Identity, Status, Visibility};
use crate::model::attention::{Attention, AttentionMark, Subject};
use crate::model::execution::ExecutionState;
use crate::model::id::AgentName;
use crate::model::message::WakeHint;
use crate::model::moved::Moved;
use crate::model::names;
use crate::model::posture::Posture;
use crate::model::record::is_default;
use crate::model::records::{LeaseState, Records};
use crate::model::state::Retry;
use crate::model::time::Time;
use crate::rules::due::{Overdue, has_step, overdue};
use crate::rules::posture::{posture, waking_hint};
use crate::rules::stall::stall;

use super::output::{Output, Tone};
use super::summary::{Arrivals, next_act};
use super::text::{count, due, one_line, relative, relative_change, table, text_width};

names! {
    /// Column of `list`.
    "column" Column {
        Agent = "agent",
        Posture = "posture",
        Queue = "queue",
        Last = "last",
        Due = "due",
        Note = "note",
    }
}

impl Column {
    fn head(self) -> String {
        if self == Column::Last { "LAST TURN".to_owned() } else { self.name().to_uppercase() }
    }
}

/// Minimum and maximum width of a note, in columns.
const NOTE: (usize, usize) = (20, 160);

/// Minimum width of a cut agent name, in columns.
const NAME: usize = 12;

/// Renders the agents as a table with a header. Notes are cut so that a row fits into `width`
/// columns, and then agent names, but no value of another column.
pub fn text(lines: &[ListRow], columns: &[Column], width: Option<usize>, out: &Output, now: Time) -> String {
    let table_of = |room: usize, name: usize| {
        let head = columns.iter().map(|column| out.paint(Tone::Quiet, &column.head())).collect();
        let row = |line: &ListRow| {
            columns.iter().map(|column| line.cell(*column, out, now, (room, name))).collect()
        };
        let rows: Vec<Vec<String>> = std::iter::once(head).chain(lines.iter().map(row)).collect();
        table(&rows)
    };
    let over = |text: &str| {
        let widest = text.lines().map(text_width).max().unwrap_or(0);
        width.map_or(0, |width| widest.saturating_sub(width))
    };
    let wide = table_of(NOTE.1, NOTE.1);
    let notes = lines.iter().map(|line| text_width(&one_line(&out.safe(&line.words(now)), NOTE.1))).max();
    let room = notes.unwrap_or(0).saturating_sub(over(&wide)).max(NOTE.0);
    let narrow = if over(&wide) > 0 { table_of(room, NOTE.1) } else { wide };
    let longest = lines.iter().map(|line| line.agent.as_str().len()).max().unwrap_or(0);
    let name = longest.saturating_sub(over(&narrow)).max(NAME);
    if over(&narrow) > 0 { table_of(room, name) } else { narrow }
}

/// Compares names, with the numbers in the names ordered by value.
pub fn natural(one: &str, other: &str) -> Ordering {
    parts(one).cmp(parts(other)).then_with(|| one.cmp(other))
}

/// Splits a name into numbers and other bytes, as sort keys for [`natural`]. A number sorts like a
/// digit among the bytes, and a number with fewer digits sorts before a number with more.
fn parts(name: &str) -> impl Iterator<Item = (u8, usize, &[u8])> {
    let parts = name.as_bytes().chunk_by(|byte, next| byte.is_ascii_digit() && next.is_ascii_digit());
    parts.map(|part| {
        let zeros = part.iter().take_while(|byte| **byte == b'0').count();
        let place = if part[0].is_ascii_digit() { b'0' } else { part[0] };
        (place, part.len() - zeros, &part[zeros..])
    })
}

/// Row of `list`.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Serialize)]
pub struct ListRow {
    pub agent: AgentName,
    pub status: Status,
    pub execution_state: ExecutionState,
    pub posture: Posture,
    pub reason: String,
    /// Origin (`named` or `child`) and visibility of the agent, if the row shows them.
    pub kind: Option<AgentKind>,
    pub visibility: Option<Visibility>,
    pub owner: Option<AgentName>,
    pub parent: Option<AgentName>,
    /// Recommended action for the user, by the status of the agent.
    pub hint: &'static str,
    pub pending: usize,
    /// Attentions that the operator has not acknowledged.
    pub attention: Option<AttentionMark>,
    /// Set if the agent has moved to another store, or is being removed or renamed.
    pub moved: Option<Moved>,
    pub dead: u64,
    /// Pending retry with its time.
    pub retry: Option<Retry>,
    /// Resource or reason that blocks a suspended or deferred message.
    pub missing: Option<String>,
    /// Number of quarantined files of the inbox.
    #[serde(skip_serializing_if = "is_default")]
    pub rejected: usize,
    /// Number of messages settled without a turn since the last completed turn.
    #[serde(skip_serializing_if = "is_default")]
    pub reduced: u64,
    pub pending_wake_hint: Option<WakeHint>,
    pub last_turn_at: Option<Time>,
    pub next_due_at: Option<Time>,
    /// Set if the agent's next step is overdue.
    pub nobody_ticks: Option<Overdue>,
    /// Reason for which only an operator can unblock the agent.
    pub stalled: Option<String>,
    /// Claim time of the live turn.
    #[serde(skip)]
    pub turn_since: Option<Time>,
    /// Time at which a step has something to do: now, or `next_due_at` if nothing arrives.
    #[serde(skip)]
    pub due: Option<Time>,
}

impl ListRow {
    /// Returns the row of an agent. Without `identity`, the row has no kind, visibility, owner or
    /// parent.
    pub fn new(records: &Records, arrivals: &Arrivals, identity: Option<Identity>, now: Time) -> ListRow {
        let state = &records.state;
        let posture = posture(records);
        let is_here = state.moved.is_none() && records.away.is_none();
        let is_live = records.lease == LeaseState::Held || records.away.is_some();
        ListRow {
            due: if is_here && has_step(records, now) { Some(now) } else { state.next_due_at },
            agent: state.agent.clone(),
            status: state.status,
            execution_state: state.execution.state,
            posture: posture.posture,
            reason: posture.reason,
            attention: state.attention_mark(),
            moved: state.moved.clone(),
            dead: state.counters.dead,
            retry: state.retry.clone(),
            missing: state.held.as_ref().map(|held| held.missing.clone()),
            kind: identity.as_ref().map(|identity| identity.kind),
            visibility: identity.as_ref().map(|identity| identity.visibility),
            owner: identity.as_ref().and_then(|identity| identity.owner.clone()),
            parent: identity.and_then(|identity| identity.parent),
            hint: next_act(state.status),
            pending: arrivals.pending(records),
            rejected: arrivals.rejected,
            reduced: state.counters.reduced_since_turn,
            pending_wake_hint: waking_hint(records),
            last_turn_at: state.last_turn.as_ref().map(|turn| turn.ended_at),
            next_due_at: state.next_due_at,
            nobody_ticks: overdue(records, now),
            stalled: stall(records).map(|stall| stall.reason),
            turn_since: state.current_run.as_ref().filter(|_| is_live).map(|run| run.claimed_at),
        }
    }

    fn cell(&self, column: Column, out: &Output, now: Time, (room, name): (usize, usize)) -> String {
        let moment = |at: Option<Time>| at.map_or_else(|| "-".to_owned(), |at| relative(at, now));
        match column {
            Column::Agent => {
                let mark = if self.needs_attention() { " !" } else { "" };
                out.paint(Tone::Strong, &format!("{}{mark}", one_line(self.agent.as_str(), name)))
            }
            Column::Posture => self.posture.words().to_owned(),
            Column::Queue => match self.rejected {
                0 => self.pending.to_string(),
                rejected => format!("{}, {rejected} rejected", self.pending),
            },
            Column::Last => moment(self.last_turn_at),
            Column::Due => moment(self.due.map(|at| at.max(now))),
            Column::Note => one_line(&out.safe(&self.words(now)), room),
        }
    }

    /// Open questions to the operator, newest first.
    pub fn questions(&self) -> impl Iterator<Item = &Attention> {
        let newest = self.attention.iter().flat_map(|mark| mark.newest.iter().rev());
        newest.filter(|attention| attention.subject == Subject::Asked)
    }

    /// Returns the next moment at which one of the row's times, shown relative to `now`, changes.
    pub fn next_change(&self, now: Time) -> Option<Time> {
        let shown = [self.turn_since, self.last_turn_at, self.due];
        shown.into_iter().flatten().map(|at| relative_change(at, now)).min()
    }

    /// True if the operator should look at the agent.
    pub fn needs_attention(&self) -> bool {
        self.attention.is_some() || self.nobody_ticks.is_some()
    }

    /// Orders agents by a column; without one, agents that need attention are first. Equal agents
    /// are ordered by name.
    pub fn order(&self, other: &ListRow, by: Option<Column>) -> Ordering {
        let order = match by {
            None => other.needs_attention().cmp(&self.needs_attention()),
            Some(Column::Agent) => Ordering::Equal,
            Some(Column::Posture) => self.posture.cmp(&other.posture),
            Some(Column::Queue) => other.pending.cmp(&self.pending),
            // `None` is the least value, so agents without a last turn are last.
            Some(Column::Last) => other.last_turn_at.cmp(&self.last_turn_at),
            Some(Column::Due) => (self.due.is_none(), self.due).cmp(&(other.due.is_none(), other.due)),
            Some(Column::Note) => self.reason.cmp(&other.reason),
        };
        order.then_with(|| natural(self.agent.as_str(), other.agent.as_str()))
    }

    /// Explains the state of the agent, problems first.
    pub fn words(&self, now: Time) -> String {
        let newest = self.attention.as_ref().and_then(|mark| mark.newest.last());
        let attention = self.attention.as_ref().map(|mark| match (newest, mark.count) {
            (Some(only), 1) => brief(only),
            (Some(newest), count) => format!("{}, and {} more to look at", brief(newest), count - 1),
            (None, count) => format!("{count} to look at"),
        });
        let is_stopped = self.posture == Posture::Archived;
        let is_dead_letter = newest.is_some_and(|newest| newest.subject == Subject::DeadLetter);
        let dead =
            (self.dead > 0 && !is_dead_letter).then(|| count(self.dead, "dead letter", "dead letters"));
        let retry = self.retry.as_ref().filter(|_| self.execution_state == ExecutionState::Failed);
        let retry = retry.map(|retry| {
            let what =
                retry.attempt.map_or_else(|| "recovery".to_owned(), |number| format!("attempt {number}"));
            // A stopped agent retries nothing before its next start.
            let when = if is_stopped { "after a start".to_owned() } else { due(retry.not_before, now) };
            let is_told = newest.is_some_and(|newest| newest.reason.ends_with(&retry.reason));
            let why = if is_told { String::new() } else { format!("{}; ", one_line(&retry.reason, 60)) };
            format!("{why}{what} {when}")
        });
        let late = self.nobody_ticks.as_ref().map(|late| format!("no process ticks: {}", late.describe(now)));
        let is_told = newest.is_some_and(|newest| newest.reason == self.reason);
        let is_next = retry.is_some() && self.posture == Posture::HasQueuedInput;
        let why = match &self.stalled {
            Some(stalled) => format!("stalled: {}", one_line(stalled, NOTE.1)),
            None if is_told || is_next || attention.is_some() && self.posture == Posture::Idle => {
                String::new()
            }
            None => one_line(&self.reason, 60),
        };
        let moved = self.moved.as_ref().map(|moved| one_line(&moved.to_string(), 70));
        let state = self.state_words().filter(|words| !self.reason.ends_with(words.as_str()));
        let state = state.map(|words| one_line(&words, 60));
        let wrong = moved.into_iter().chain(attention).chain(retry).chain(late).chain(dead).chain(state);
        let wrong = wrong.collect::<Vec<_>>().join(", ");
        let why = if is_stopped && !wrong.is_empty() { String::new() } else { why };
        [wrong, why].into_iter().filter(|words| !words.is_empty()).collect::<Vec<_>>().join("; ")
    }

    /// Describes an execution state that blocks the queue of the agent.
    fn state_words(&self) -> Option<String> {
        let missing = self.missing.as_ref();
        match self.execution_state {
            ExecutionState::Suspended => missing.cloned(),
            ExecutionState::WaitingResources => missing.map(|missing| format!("missing: {missing}")),
            ExecutionState::Failed if self.retry.is_none() => Some("failed, recovers first".to_owned()),
            ExecutionState::Recovering => Some("recovering".to_owned()),
            ExecutionState::Initializing
            | ExecutionState::Runnable
            | ExecutionState::Scheduled
            | ExecutionState::Running
            | ExecutionState::Waiting
            | ExecutionState::Resumed
            | ExecutionState::Completed
            | ExecutionState::Failed
            | ExecutionState::ShuttingDown => None,
        }
    }
}

/// Describes an attention in few words: for a dead letter, by the cause of the last failure.
fn brief(attention: &Attention) -> String {
    let gave_up = attention.reason.strip_prefix("gave up after ").and_then(|text| text.split_once(": "));
    let reason = gave_up.map_or(attention.reason.as_str(), |(_, cause)| cause);
    format!("{}: {}", attention.subject.words(), one_line(reason, 60))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted_in_natural_order() {
        let mut names = ["a10", "b", "a2", "a", "a2-x", "a02", "10", "9", "a-b"];
        names.sort_by(|one, other| natural(one, other));
        assert_eq!(names, ["9", "10", "a", "a-b", "a02", "a2", "a2-x", "a10", "b"]);
    }
}
