//! The resources that a turn needs besides its message, and what a claim finds missing (contract,
//! execution §8).

use serde::{Deserialize, Serialize};

use super::time::{Span, Time};

names! {
    /// What a claim can find missing.
    "resource" Resource {
        Command = "command",
        Workspace = "workspace",
        Slot = "slot",
        TurnsPerHour = "turns_per_hour",
        TurnsPerDay = "turns_per_day",
        CostPerDay = "cost_per_day",
        TokensPerDay = "tokens_per_day",
    }
}

impl Resource {
    /// Whether it is the agent's own allowance, which comes back by itself at a known moment.
    pub const fn is_limit(self) -> bool {
        match self {
            Resource::Command | Resource::Workspace | Resource::Slot => false,
            Resource::TurnsPerHour
            | Resource::TurnsPerDay
            | Resource::CostPerDay
            | Resource::TokensPerDay => true,
        }
    }
}

/// What a turn that exits with status 75 may say in its outcome. At most one of `until` and `after`
/// is given; a span counts from the end of the turn.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Deferral {
    pub resource: Option<String>,
    pub until: Option<Time>,
    pub after: Option<Span>,
    pub reason: Option<String>,
}

impl Deferral {
    /// When the resource is back, if the turn said so at `now`.
    pub fn until(&self, now: Time) -> Option<Time> {
        self.until.or_else(|| self.after.map(|span| now.after(span)))
    }
}

/// Why a message was put off: which resource is missing, why, and when it is back, as far as that
/// is known.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Deferred {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When the resource is back, if that is known. No step tries before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Time>,
    /// The moment that the turn named, if it lies further ahead than `recovery.max_deferral`
    /// allows. `until` is the end of that span then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_until: Option<Time>,
}

impl Deferred {
    /// One line for records and people; `None` if the turn said nothing.
    pub fn describe(&self) -> Option<String> {
        let cut = self.asked_until.zip(self.until).map(|(asked, until)| {
            format!("cut to {until} (recovery.max_deferral): the turn asked for {asked}")
        });
        let said = [&self.resource, &self.reason, &cut].map(|said| said.as_deref().unwrap_or_default());
        let said: Vec<&str> = said.into_iter().filter(|said| !said.is_empty()).collect();
        (!said.is_empty()).then(|| said.join(": "))
    }
}

/// A resource that a claim lacks.
#[derive(Debug, Clone, PartialEq)]
pub struct Shortage {
    pub resource: Resource,
    /// Which agents have it, or how much of it is used.
    pub evidence: Vec<String>,
    /// When the resource is back, if that is known.
    pub back_at: Option<Time>,
    /// True if live agents that are known have the resource.
    pub is_occupied: bool,
}

impl Shortage {
    /// One line for records and people.
    pub fn describe(&self) -> String {
        format!("{}: {}", self.resource, self.evidence.join(", "))
    }

    pub fn deferred(&self) -> Deferred {
        Deferred {
            resource: Some(self.resource.name().to_owned()),
            reason: Some(self.evidence.join(", ")),
            until: self.back_at,
            asked_until: None,
        }
    }
}
