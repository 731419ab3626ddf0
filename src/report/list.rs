//! A line of `list`: an agent, its state, and what is wrong with it.

use serde::Serialize;

use crate::model::agent::{AgentKind, Identity, Status, Visibility};
use crate::model::attention::Mark;
use crate::model::execution::ExecutionState;
use crate::model::id::AgentName;
use crate::model::message::WakeHint;
use crate::model::posture::Posture;
use crate::model::records::Records;
use crate::model::state::{Moved, Retry};
use crate::model::time::Time;
use crate::rules::posture::{posture, waking_hint};

use super::output::{Output, Tone};
use super::summary::{Arrivals, next_act};
use super::text::{count, one_line, relative};

/// Where an agent comes from, and to whom it is shown.
#[derive(Debug, Clone, Serialize)]
pub struct Lineage {
    pub kind: AgentKind,
    pub visibility: Visibility,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<AgentName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<AgentName>,
}

impl From<Identity> for Lineage {
    fn from(identity: Identity) -> Lineage {
        let Identity { kind, visibility, owner, parent, .. } = identity;
        Lineage { kind, visibility, owner, parent }
    }
}

fn is_none(count: &usize) -> bool {
    *count == 0
}

fn is_none_yet(count: &u64) -> bool {
    *count == 0
}

/// A line of `list`.
#[derive(Debug, Clone, Serialize)]
pub struct Line {
    pub id: AgentName,
    pub status: Status,
    pub execution_state: ExecutionState,
    pub posture: Posture,
    pub reason: String,
    #[serde(flatten)]
    pub lineage: Option<Lineage>,
    /// What a user should do about the agent, if anything.
    pub hint: &'static str,
    pub pending: usize,
    /// What a person should look at and has not acknowledged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attention: Option<Mark>,
    /// In which other store it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub moved: Option<Moved>,
    pub dead: u64,
    /// What will be tried again, and when.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    /// Hand-written files that could not be admitted.
    #[serde(skip_serializing_if = "is_none")]
    pub rejected: usize,
    /// Messages that were reduced since the last turn that completed.
    #[serde(skip_serializing_if = "is_none_yet")]
    pub reduced: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending_wake_hint: Option<WakeHint>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_turn_at: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_due_at: Option<Time>,
}

impl Line {
    pub fn new(records: &Records, arrivals: &Arrivals, lineage: Option<Lineage>) -> Line {
        let state = &records.state;
        let posture = posture(records);
        Line {
            id: state.agent.clone(),
            status: state.status,
            execution_state: state.execution.state,
            posture: posture.posture,
            reason: posture.reason,
            attention: state.attention.clone(),
            moved: state.moved.clone(),
            dead: state.counters.dead,
            retry: state.retry.clone(),
            lineage,
            hint: next_act(state.status),
            pending: arrivals.queued.len() + records.inbox.drops,
            rejected: arrivals.rejected,
            reduced: state.counters.reduced_since_turn,
            pending_wake_hint: waking_hint(records).cloned(),
            last_turn_at: state.last_turn.as_ref().map(|turn| turn.ended_at),
            next_due_at: state.next_due_at,
        }
    }

    pub fn cells(&self, out: &Output, now: Time) -> Vec<String> {
        let mark = if self.attention.is_some() { " !" } else { "" };
        vec![
            out.paint(Tone::Strong, &format!("{}{mark}", self.id)),
            self.status.to_string(),
            self.posture.to_string(),
            match self.rejected {
                0 => format!("{} pending", self.pending),
                rejected => format!("{} pending, {rejected} rejected", self.pending),
            },
            self.last_turn_at
                .map_or_else(|| "no turn yet".to_owned(), |at| format!("turn {}", relative(at, now))),
            out.safe(&self.words(now)),
        ]
    }

    /// Why the agent is in its state. What is wrong comes first.
    fn words(&self, now: Time) -> String {
        let attention = self.attention.as_ref().map(|mark| {
            let newest = mark.newest.last().map(|newest| format!(" ({})", newest.subject.words()));
            format!("{} to look at{}", mark.count, newest.unwrap_or_default())
        });
        let dead = (self.dead > 0).then(|| count(self.dead, "dead letter", "dead letters"));
        let retry =
            self.retry.as_ref().filter(|_| self.execution_state == ExecutionState::Failed).map(|retry| {
                let what = match retry.attempt {
                    Some(attempt) => format!("attempt {attempt}"),
                    None => "goes on".to_owned(),
                };
                format!("failed, {what} {}: {}", relative(retry.not_before, now), one_line(&retry.reason, 60))
            });
        let why = one_line(&self.reason, 60);
        let moved = self.moved.as_ref().map(|moved| format!("moved to {}", one_line(&moved.to, 60)));
        let wrong: Vec<String> = moved.into_iter().chain(attention).chain(dead).chain(retry).collect();
        if wrong.is_empty() { why } else { format!("{}; {why}", wrong.join(", ")) }
    }
}
