//! Refusal: the answer of the rules to a request that is not allowed. It is not a failure.

use super::execution::ExecutionState;

/// Refused request, with the reason. The caller must commit nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Kind of the refusal, for scripts.
    pub kind: &'static str,
    pub message: String,
    pub hint: Option<String>,
    /// States of a refused transition, which would lead from the first to the second.
    pub edge: Option<Box<(&'static str, &'static str)>>,
    /// True if the request is wrong whatever the records are.
    pub is_usage: bool,
}

impl Refusal {
    pub fn new(kind: &'static str, message: impl Into<String>) -> Refusal {
        Refusal { kind, message: message.into(), hint: None, edge: None, is_usage: false }
    }

    /// Returns the refusal of a request that is wrong whatever the records are.
    pub fn usage(kind: &'static str, message: impl Into<String>) -> Refusal {
        Refusal { is_usage: true, ..Refusal::new(kind, message) }
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Refusal {
        self.hint = Some(hint.into());
        self
    }

    /// Returns the refusal of a command that would cause a transition, and that is not allowed now.
    pub fn action(from: ExecutionState, to: ExecutionState, message: impl Into<String>) -> Refusal {
        Refusal::between(from.name(), to.name(), message)
    }

    /// Returns the refusal of a transition between two named states of any record.
    pub fn between(from: &'static str, to: &'static str, message: impl Into<String>) -> Refusal {
        Refusal { edge: Some(Box::new((from, to))), ..Refusal::new("invalid_state_transition", message) }
    }
}
