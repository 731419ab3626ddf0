//! Checks after every act of a test case that something can still make the agent continue, or an
//! advisory tells the operator what to do (semantics §15). The check uses program output only.

use serde_json::{Value, json};

use super::compare::same;
use super::reference::resources::HELD;
use super::world::Checked;

/// Checks that something makes the agent continue, or tells the operator what to do. `summary` is
/// the output of `get`, and `decision` is that of the next step.
pub fn nothing_is_silent(summary: &Value, decision: &Value) -> Checked {
    if matches!(summary["status"].as_str(), Some("booting" | "stopped")) {
        return Ok(());
    }
    // The decision must name the operator if only the operator can continue a held message.
    if summary["held"]["needs_operator"] == json!(true) {
        let reason = decision["reason"].as_str().unwrap_or_default();
        return same("whether the decision names the operator", reason.starts_with(HELD), true);
    }
    let some = |field: &str| summary[field].as_array().is_some_and(|records| !records.is_empty());
    let ends_it = [
        // A run continues even if its tick was killed, because the next step ends the run.
        !summary["current_run"].is_null(),
        summary["queue"]["pending"] != json!(0),
        !summary["pending_wake_hint"].is_null(),
        !summary["next_due_at"].is_null(),
        some("active_tasks"),
        matches!(
            decision["decision"].as_str(),
            Some("start_model_turn" | "reduce_message_only" | "emit_system_tick" | "start_recovery")
        ),
        summary["active_waits"].as_array().is_some_and(|waits| waits.iter().any(may_end)),
        // A work item whose plan asks a question continues when the operator answers.
        summary["work"]["waiting_for_operator"].as_u64().is_some_and(|items| items > 0),
        some("advisories"),
        has_nothing_to_do(summary),
    ];
    same("whether anything continues the agent", ends_it.contains(&true), true)
}

/// True if the wait names an event that can still happen.
fn may_end(wait: &Value) -> bool {
    match wait["kind"].as_str() {
        Some("operator") => true,
        Some("external" | "system") => {
            ["resource", "source", "trigger_id"].iter().any(|subject| !wait[*subject].is_null())
        }
        // The caller checks tasks and timers itself, so their waits need no check of their own.
        _ => false,
    }
}

/// True if the agent has neither open work nor an active wait.
fn has_nothing_to_do(summary: &Value) -> bool {
    let none = |value: &Value| value.is_null() || *value == json!(0) || *value == json!([]);
    none(&summary["work"]["open"]) && none(&summary["active_waits"])
}
