//! No agent goes silent (semantics §15): asked of the program alone, after every act. Something that
//! can still happen ends the silence, or an advisory says what to do.

use serde_json::{Value, json};

use super::compare::same;
use super::reference::resources::HELD;
use super::world::Checked;

/// `decision`: what the next step would do.
pub fn nothing_is_silent(summary: &Value, decision: &Value) -> Checked {
    if matches!(summary["status"].as_str(), Some("booting" | "stopped")) {
        return Ok(());
    }
    // A message that came to nothing too often: the decision says that the operator has to decide about it.
    if summary["held"]["needs_operator"] == json!(true) {
        let reason = decision["reason"].as_str().unwrap_or_default();
        return same("whether a person is named", &json!(reason.starts_with(HELD)), &json!(true));
    }
    let some = |field: &str| summary[field].as_array().is_some_and(|records| !records.is_empty());
    let ends_it = [
        // A run whose tick is gone is ended by the next step, whatever time that comes.
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
        // A question in a plan is the operator's to answer.
        summary["work"]["waiting_for_operator"].as_u64().is_some_and(|items| items > 0),
        some("advisories"),
        has_nothing_to_do(summary),
    ];
    same("whether anything ends the silence", &json!(ends_it.contains(&true)), &json!(true))
}

/// A wait that names something that can still happen.
fn may_end(wait: &Value) -> bool {
    match wait["kind"].as_str() {
        Some("operator") => true,
        Some("external" | "system") => {
            ["resource", "source", "trigger_id"].iter().any(|subject| !wait[*subject].is_null())
        }
        // A task that goes on, and a timer to come, show elsewhere.
        _ => false,
    }
}

/// Rest, and rightly so.
fn has_nothing_to_do(summary: &Value) -> bool {
    let none = |value: &Value| value.is_null() || *value == json!(0) || *value == json!([]);
    none(&summary["work"]["open"]) && none(&summary["active_waits"])
}
