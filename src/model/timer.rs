//! Timers: messages that are sent at set times (contract, semantics §11).

use serde::{Deserialize, Serialize};

use super::id::{AgentName, TimerId};
use super::json::tagged;
use super::message::{Body, Message};
use super::record::{Extra, Plane, is_default, record};
use super::time::{Span, Time};

tagged! {
    "type", [rename_all = "snake_case", deny_unknown_fields]
    /// Schedule of a timer.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum Schedule {
        At { at: Time },
        Every { every: Span, from: Time },
        Cron { expression: String, time_zone: String },
    }
}

names! {
    /// Treatment of fires that became due before a step came to process them.
    "catch-up" CatchUp {
        Once = "once",
        All = "all",
        Skip = "skip",
    }
}

names! {
    "timer status" TimerStatus {
        Active = "active",
        /// The timer has fired for the last time.
        Done = "done",
        Cancelled = "cancelled",
    }
}

// `Timer::new` makes an active timer without a message and with its first fire at `next_at`.
#[serde_with::skip_serializing_none]
#[serde_with::apply(Option => #[new(default)], u32 => #[new(default)], u64 => #[new(default)])]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, derive_new::new)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Timer {
    pub id: TimerId,
    pub agent: AgentName,
    /// Name that its creator gave it. An agent has at most one active timer of a name.
    pub name: Option<String>,
    pub schedule: Schedule,
    #[new(value = "CatchUp::Once")]
    pub catch_up: CatchUp,
    /// Maximum delay at which the latest fire of a timer with [`CatchUp::Skip`] sends its message.
    pub grace: Option<Span>,
    /// Time of the next fire: computed from the schedule, not from the time at which a step noticed
    /// the last fire.
    pub next_at: Time,
    pub body: Option<Body>,
    /// Message of `enqueue --in` or `--at`, which the timer admits unchanged when it fires.
    pub message: Option<Box<Message>>,
    /// Hops of the message that the timer sends; 0 if it fires too late to belong to a chain.
    #[serde(default, skip_serializing_if = "is_default")]
    pub hops: u32,
    /// Number of fires for which a message was sent.
    #[serde(default)]
    pub fired: u64,
    #[serde(default)]
    /// Number of due fires for which no message was sent, because a step came too late.
    pub missed: u64,
    pub last_fired_at: Option<Time>,
    #[new(value = "TimerStatus::Active")]
    pub status: TimerStatus,
    pub created_at: Time,
    pub ended_at: Option<Time>,
    #[new(default)]
    #[serde(flatten)]
    pub extra: Extra,
}

impl Schedule {
    /// True if both schedules have the same definition, apart from the start of an interval.
    pub fn is_like(&self, other: &Schedule) -> bool {
        match (self, other) {
            (Schedule::Every { every, .. }, Schedule::Every { every: other, .. }) => every == other,
            (Schedule::At { .. } | Schedule::Every { .. } | Schedule::Cron { .. }, _) => self == other,
        }
    }
}

impl Timer {
    /// Returns the text that the timer's message will have; empty without a body.
    pub fn text(&self) -> String {
        let body = self.body.as_ref().or(self.message.as_ref().map(|message| &message.body));
        body.map(Body::to_text).unwrap_or_default()
    }
}

record! { Timer of agent = "timer", TimerId in Plane::Timers }
