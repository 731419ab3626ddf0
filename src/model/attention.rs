//! What has gone wrong and a person should look at, and the mark that stays until one has.

use serde::{Deserialize, Serialize};

use super::id::{MessageId, RunId, TaskId, WaitId, WorkId};
use super::time::Time;

names! {
    /// What has gone wrong.
    "attention subject" Subject {
        DeadLetter = "dead_letter",
        MessageDropped = "message_dropped",
        MessageRejected = "message_rejected",
        AgentStopped = "agent_stopped",
        AnswerLost = "answer_lost",
        RecoveryFailed = "recovery_failed",
    }
}

impl Subject {
    /// For people: what has happened, before the ids of what it happened to.
    pub const fn words(self) -> &'static str {
        match self {
            Subject::DeadLetter => "dead letter",
            Subject::MessageDropped => "message dropped",
            Subject::MessageRejected => "message rejected",
            Subject::AgentStopped => "the agent stopped itself",
            Subject::AnswerLost => "answer lost",
            Subject::RecoveryFailed => "recovery failed",
        }
    }
}

/// What an attention is about: as many of these as apply.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct About {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_id: Option<MessageId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_id: Option<WaitId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work_item_id: Option<WorkId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_id: Option<TaskId>,
    /// The name of a dropped file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
}

impl About {
    pub fn message(id: MessageId) -> About {
        About { message_id: Some(id), ..About::default() }
    }

    /// The ids and names in it, each as it is written; a message stands before its run.
    pub fn ids(&self) -> Vec<String> {
        let About { message_id, run_id, wait_id, work_item_id, task_id, file } = self;
        let ids = [
            message_id.map(|id| id.to_string()),
            run_id.map(|id| id.to_string()),
            wait_id.map(|id| id.to_string()),
            work_item_id.map(|id| id.to_string()),
            task_id.map(|id| id.to_string()),
            file.clone(),
        ];
        ids.into_iter().flatten().collect()
    }

    pub fn file(name: &str) -> About {
        About { file: Some(name.to_owned()), ..About::default() }
    }
}

/// One thing that a person should look at.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Attention {
    /// The sequence number of its event.
    pub seq: u64,
    pub at: Time,
    pub subject: Subject,
    /// With a `count`, the ids are those of the first.
    #[serde(flatten)]
    pub about: About,
    pub reason: String,
    /// How many alike one transaction raised, where that is more than one.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub count: u64,
    /// The hook is still to be told of it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub untold: bool,
}

const fn one() -> u64 {
    1
}

const fn is_one(count: &u64) -> bool {
    *count == 1
}

impl std::fmt::Display for Attention {
    /// For people: one line.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.subject.words())?;
        // The first says enough: a message leads to its run.
        if let Some(id) = self.about.ids().first() {
            write!(f, " {id}")?;
        }
        if self.count > 1 {
            write!(f, " and {} more", self.count - 1)?;
        }
        write!(f, ": {}", self.reason)
    }
}

/// How many of the unacknowledged are kept; of the others only their number is known.
const NEWEST: usize = 10;

/// The mark of an agent that a person should look at. It stays until it is acknowledged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Mark {
    /// How many are not acknowledged.
    pub count: u64,
    /// When the first of them was raised.
    pub since: Time,
    /// The last of them, oldest first.
    pub newest: Vec<Attention>,
}

impl Mark {
    /// The mark with one more on it.
    pub fn with(mark: Option<Mark>, attention: Attention) -> Mark {
        let mut mark = mark.unwrap_or(Mark { count: 0, since: attention.at, newest: Vec::new() });
        mark.count += attention.count;
        mark.newest.push(attention);
        if mark.newest.len() > NEWEST {
            mark.newest.remove(0);
        }
        mark
    }

    /// The mark without those that were dealt with; none if nothing is left.
    pub fn without(mut self, is_dealt_with: impl Fn(&Attention) -> bool) -> Option<Mark> {
        let (gone, newest): (Vec<_>, Vec<_>) = self.newest.into_iter().partition(is_dealt_with);
        self.newest = newest;
        self.count = self.count.saturating_sub(gone.iter().map(|attention| attention.count).sum());
        if self.knows_all()
            && let Some(first) = self.newest.first()
        {
            self.since = first.at;
        }
        (self.count > 0).then_some(self)
    }

    /// Whether a message that died then is still to be looked at. Of more than are kept the oldest are.
    pub fn covers(&self, id: MessageId, at: Time) -> bool {
        let is_older = self.newest.first().is_none_or(|oldest| at < oldest.at);
        self.newest.iter().any(|one| one.about.message_id == Some(id)) || (!self.knows_all() && is_older)
    }

    /// Whether every one that it counts is among the newest.
    pub fn knows_all(&self) -> bool {
        self.newest.iter().map(|attention| attention.count).sum::<u64>() == self.count
    }
}
