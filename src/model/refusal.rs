//! A request that the rules turn down: an answer, not a failure of the world.

use super::execution::ExecutionState;

/// Why a request was refused. Nothing has changed when one is returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// A word for scripts.
    pub kind: &'static str,
    pub message: String,
    pub hint: Option<String>,
}

impl Refusal {
    pub fn new(kind: &'static str, message: impl Into<String>) -> Refusal {
        Refusal { kind, message: message.into(), hint: None }
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Refusal {
        self.hint = Some(hint.into());
        self
    }

    /// A pair of states that no edge joins (contract, execution §1).
    pub fn transition(from: ExecutionState, to: ExecutionState) -> Refusal {
        Refusal::new("invalid_state_transition", format!("invalid state transition: {from} -> {to}"))
    }
}
