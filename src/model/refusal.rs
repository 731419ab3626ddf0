//! A request that the rules turn down: an answer, not a failure.

use super::execution::ExecutionState;

/// Why a request was refused. Nothing has changed when one is returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// A word for scripts.
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

    /// A pair of states that no edge joins (contract, execution §1).
    pub fn transition(from: ExecutionState, to: ExecutionState) -> Refusal {
        Refusal::action(from, to, format!("invalid state transition: {from} -> {to}"))
    }

    /// An action that would lead from one state to another, and is not allowed now.
    pub fn action(from: ExecutionState, to: ExecutionState, message: impl Into<String>) -> Refusal {
        Refusal::between(from.name(), to.name(), message)
    }

    /// A transition of any record from one state to another.
    pub fn between(from: &'static str, to: &'static str, message: impl Into<String>) -> Refusal {
        Refusal { edge: Some((from, to)), ..Refusal::new("invalid_state_transition", message) }
    }
}
