//! What somebody asks to be admitted as a message: a line of `enqueue --batch`, a file dropped into the inbox.

use serde::Deserialize;
use serde_json::Value;

use super::id::{AgentName, MessageId, RunId, WorkId};
use super::message::{Body, MessageKind, Origin, OriginKind, Priority};
use super::time::{Span, Time};

/// A request as JSON. `text` and `body` exclude each other; everything else has a default.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Submission {
    /// A body of type text.
    pub text: Option<String>,
    /// A body of type JSON.
    pub body: Option<Value>,
    pub kind: Option<MessageKind>,
    /// `KIND` or `KIND:ID`.
    pub origin: Option<String>,
    pub priority: Option<Priority>,
    pub dedupe_key: Option<String>,
    pub ttl: Option<Span>,
    pub expires_at: Option<Time>,
    pub resource: Option<String>,
    pub work_item_id: Option<WorkId>,
    pub correlation_id: Option<String>,
}

impl Submission {
    /// The body, or what is wrong with it.
    pub fn take_body(&mut self) -> Result<Body, String> {
        match (self.text.take(), self.body.take()) {
            (Some(text), None) => Ok(Body::Text { text }),
            (None, Some(value)) => Ok(Body::Json { value }),
            (None, None) => Err("neither `text` nor `body`: say something".to_owned()),
            (Some(_), Some(_)) => Err("both `text` and `body`: a message has one of them".to_owned()),
        }
    }
}

/// The turn from inside which a command is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    pub agent: AgentName,
    pub run_id: RunId,
    pub message_id: MessageId,
    pub hops: u32,
}

impl std::str::FromStr for Origin {
    type Err = super::UnknownName;

    /// `KIND` or `KIND:ID`
    fn from_str(text: &str) -> Result<Origin, Self::Err> {
        let (kind, id) = match text.split_once(':') {
            Some((kind, id)) => (kind, (!id.is_empty()).then(|| id.to_owned())),
            None => (text, None),
        };
        Ok(Origin { kind: kind.parse::<OriginKind>()?, id })
    }
}
