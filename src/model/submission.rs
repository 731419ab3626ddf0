//! Request to admit a message: a line of `enqueue --batch`, or a file dropped into the inbox.

use serde::Deserialize;

use super::id::{AgentName, MessageId, RunId, TaskId, WaitId, WorkId};
use super::json::Sent;
use super::message::{Body, MessageKind, Origin, OriginKind, Priority};
use super::time::{Span, Time};

/// Request as JSON. `text` and `body` exclude each other; everything else has a default.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Submission {
    /// Body of type text.
    pub text: Option<String>,
    /// Body of type JSON.
    pub body: Option<Sent>,
    pub kind: Option<MessageKind>,
    /// Sender as `KIND` or `KIND:ID`, such as `webhook:github`.
    pub origin: Option<String>,
    pub priority: Option<Priority>,
    pub dedupe_key: Option<String>,
    pub ttl: Option<Span>,
    pub expires_at: Option<Time>,
    pub resource: Option<String>,
    pub work_item_id: Option<WorkId>,
    /// Wait that the message answers.
    pub wait_id: Option<WaitId>,
    pub correlation_id: Option<String>,
    /// True if an empty text is intended.
    pub allow_empty: bool,
}

impl Submission {
    /// Takes the body out of the request. `Err`: fault of the body.
    pub fn take_body(&mut self) -> Result<Body, String> {
        match (self.text.take(), self.body.take()) {
            (Some(text), None) => Ok(Body::Text { text }),
            (None, Some(sent)) => Ok(Body::from(sent)),
            (None, None) => Err("neither `text` nor `body`: a message has one of them".to_owned()),
            (Some(_), Some(_)) => Err("both `text` and `body`: a message has one of them".to_owned()),
        }
    }
}

/// Sender of a message.
#[derive(Debug, Clone, Copy)]
pub enum Speaker<'a> {
    /// Caller outside of any turn or task. It may name any origin but those of the runtime and of
    /// users.
    Outside,
    /// Turn or task, which sends the message in the name of its agent.
    Work(&'a Caller),
    /// File that another program put into the inbox. Its message gets this `Origin`, or an origin
    /// that the file names and that has no more authority.
    File(&'a Origin),
    /// File that a user other than the owner put into the inbox. Its origin is always this user.
    User(&'a str),
}

/// Turn or task that called a command, and its agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    pub agent: AgentName,
    pub by: CalledBy,
    /// Hops of the message that caused the turn or task. Absent if a task has lasted so long that
    /// its messages start a new chain.
    pub hops: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CalledBy {
    Turn {
        run_id: RunId,
        message_id: MessageId,
    },
    /// Background task, and the turn that started the task, if any.
    Task {
        task_id: TaskId,
        run_id: Option<RunId>,
    },
}

impl Caller {
    /// Returns the cause that messages of the caller name: the turn's message, or the task.
    pub fn causation_id(&self) -> String {
        match self.by {
            CalledBy::Turn { message_id, .. } => message_id.to_string(),
            CalledBy::Task { task_id, .. } => task_id.to_string(),
        }
    }

    /// Returns the run of the calling turn, or of the turn that started the calling task.
    pub fn run_id(&self) -> Option<RunId> {
        match self.by {
            CalledBy::Turn { run_id, .. } => Some(run_id),
            CalledBy::Task { run_id, .. } => run_id,
        }
    }

    /// True if the caller is a turn of this agent, not a task.
    pub fn is_turn_of(&self, agent: &AgentName) -> bool {
        match self.by {
            CalledBy::Turn { .. } => self.agent == *agent,
            CalledBy::Task { .. } => false,
        }
    }
}

impl std::str::FromStr for Origin {
    type Err = String;

    /// Parses an origin from `KIND` or `KIND:ID`.
    fn from_str(text: &str) -> Result<Origin, String> {
        let (kind, id) = match text.split_once(':') {
            Some((kind, id)) => (kind, (!id.is_empty()).then(|| id.to_owned())),
            None => (text, None),
        };
        Ok(Origin { kind: kind.parse::<OriginKind>()?, id })
    }
}
