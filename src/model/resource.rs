//! Resources that a turn needs, and the shortage of one (contract, execution §8).

use serde::{Deserialize, Serialize};

use super::time::{Span, Time};

names! {
    /// Resource that a claim may lack.
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
    /// True if the resource is a usage limit of the agent, which is renewed every hour or day.
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

/// Deferral in the outcome of a turn that exits with status 75. At most one of `until` and `after`
/// is set; `after` counts from the end of the turn.
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
    /// Returns the time at which the missing resource is available again, if the turn named a time.
    pub fn until(&self, now: Time) -> Option<Time> {
        self.until.or_else(|| self.after.map(|span| now.after(span)))
    }
}

/// Reason of a deferred message: the missing resource, a text, and the time at which the resource
/// is available again, as far as known.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Deferred {
    pub resource: Option<String>,
    pub reason: Option<String>,
    /// Time at which the resource is available again, if known. No step tries the message earlier.
    pub until: Option<Time>,
    /// Time that the turn named, if it is later than `recovery.max_deferral` allows. `until` is
    /// then the latest allowed time.
    pub asked_until: Option<Time>,
}

impl Deferred {
    /// Returns the reason of the deferral in one line; `None` if the turn gave no details.
    pub fn describe(&self) -> Option<String> {
        let cut = self.asked_until.zip(self.until).map(|(asked, until)| {
            format!("cut to {until} (recovery.max_deferral): the turn asked for {asked}")
        });
        let said = [&self.resource, &self.reason, &cut].map(|said| said.as_deref().unwrap_or_default());
        let said: Vec<&str> = said.into_iter().filter(|said| !said.is_empty()).collect();
        (!said.is_empty()).then(|| said.join(": "))
    }
}

/// Shortage of a resource that a claim needs.
#[derive(Debug, Clone, PartialEq)]
pub struct Shortage {
    pub resource: Resource,
    /// Agents that occupy the resource, or the used amount of it, as text.
    pub evidence: Vec<String>,
    /// Time at which the resource is available again, if known.
    pub back_at: Option<Time>,
    /// True if the cause of the shortage is known, such as a live agent that occupies the resource.
    pub is_occupied: bool,
}

impl Shortage {
    /// Returns the missing resource and its evidence in one line, for records and people.
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
