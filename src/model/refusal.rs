//! A request that the rules turn down: an answer, not a failure.

use super::execution::ExecutionState;

/// Why a request was refused. Nothing has changed when one is returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// A word for scripts.
    pub kind: &'static str,
    pub message: String,
    pub hint: Option<String>,
    /// The two states between which there is no edge.
    pub edge: Option<(&'static str, &'static str)>,
}

impl Refusal {
    pub fn new(kind: &'static str, message: impl Into<String>) -> Refusal {
        Refusal { kind, message: message.into(), hint: None, edge: None }
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Refusal {
        self.hint = Some(hint.into());
        self
    }

    pub fn between(mut self, from: &'static str, to: &'static str) -> Refusal {
        self.edge = Some((from, to));
        self
    }

    /// A pair of states that no edge joins (contract, execution §1).
    pub fn transition(from: ExecutionState, to: ExecutionState) -> Refusal {
        Refusal::new("invalid_state_transition", format!("invalid state transition: {from} -> {to}"))
            .between(from.name(), to.name())
    }
}
