//! Refusal: the rules' answer to a request that is not allowed. It is no failure.

use super::execution::ExecutionState;

/// Reason of a refused request. Nothing has changed when a refusal is returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Kind of the refusal, for scripts.
    pub kind: &'static str,
    pub message: String,
    pub hint: Option<String>,
    /// The two states of a transition that was refused.
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

    /// Returns the refusal of a pair of states without an edge (contract, execution §1).
    pub fn transition(from: ExecutionState, to: ExecutionState) -> Refusal {
        Refusal::action(from, to, format!("invalid state transition: {from} -> {to}"))
    }

    /// Returns the refusal of an action that would change the state, and is not allowed now.
    pub fn action(from: ExecutionState, to: ExecutionState, message: impl Into<String>) -> Refusal {
        Refusal::between(from.name(), to.name(), message)
    }

    /// Returns the refusal of a transition of any record.
    pub fn between(from: &'static str, to: &'static str, message: impl Into<String>) -> Refusal {
        Refusal { edge: Some((from, to)), ..Refusal::new("invalid_state_transition", message) }
    }
}
