//! A wait as commands show it: its record, and what follows from it.

use serde_json::{Value, json};

use crate::model::wait::{Wait, WaitKind};
use crate::rules::wake_sources::wake_sources;

/// The record with `wake_sources`, and with `recoverability` if the wait is external.
pub fn object(wait: &Wait) -> Value {
    let mut object = json!(wait);
    if wait.kind == WaitKind::External {
        object["recoverability"] = json!(wait.recoverability());
    }
    object["wake_sources"] = json!(wake_sources(wait));
    object
}
