//! Output of a wait as JSON: its record with derived fields.

use serde_json::{Value, json};

use crate::model::continuation::Runs;
use crate::model::wait::{Wait, WaitKind};
use crate::rules::waits::WakeSource;

use super::text::present;

/// Returns the record with `wake_sources` and `on_wake`; for an external wait also with
/// `recoverability`.
pub fn object(wait: &Wait) -> Value {
    let mut object = json!(wait);
    if wait.kind == WaitKind::External {
        object["recoverability"] = json!(wait.recoverability());
    }
    let sources = WakeSource::of(wait);
    object["wake_sources"] = sources.iter().map(WakeSource::to_string).collect();
    object["on_wake"] = on_wake(wait).collect();
    object
}

/// Lists the wake sources of a wait, each with its effect, and true if it ends the wait.
pub fn on_wake(wait: &Wait) -> impl Iterator<Item = Value> + '_ {
    WakeSource::of(wait).into_iter().map(|source| {
        present(json!({
            "source": source.to_string(),
            "runs": Runs::Turn,
            "wait_id": wait.id,
            "ends_wait": source.ends_wait(),
            "trigger_kind": source.trigger_kind(),
            "work_item_id": wait.work_item_id,
        }))
    })
}
