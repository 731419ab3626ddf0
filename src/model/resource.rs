//! What a turn needs besides its message, and what a claim finds missing (contract, execution §8).

use super::time::Time;

names! {
    /// What a claim can find missing.
    "resource" Resource {
        Workspace = "workspace",
        Slot = "slot",
        TurnsPerHour = "turns_per_hour",
        TurnsPerDay = "turns_per_day",
        CostPerDay = "cost_per_day",
        TokensPerDay = "tokens_per_day",
    }
}

impl Resource {
    /// Whether it is the agent's own allowance: it comes back by itself, at a moment that is known.
    pub const fn is_limit(self) -> bool {
        match self {
            Resource::Workspace | Resource::Slot => false,
            Resource::TurnsPerHour
            | Resource::TurnsPerDay
            | Resource::CostPerDay
            | Resource::TokensPerDay => true,
        }
    }
}

/// A resource that a claim lacks.
#[derive(Debug, Clone, PartialEq)]
pub struct Shortage {
    pub resource: Resource,
    /// Who has it, or how much of it is used.
    pub evidence: Vec<String>,
    /// When it is back, where that is known.
    pub back_at: Option<Time>,
}

impl Shortage {
    /// In one line, for records and people.
    pub fn describe(&self) -> String {
        format!("{}: {}", self.resource, self.evidence.join(", "))
    }
}
