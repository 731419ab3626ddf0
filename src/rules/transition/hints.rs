//! Wake hints: hints about one subject are merged, and hints that can't wake the agent are ignored.

use serde_json::{Value, json};

use crate::model::event::EventKind;
use crate::model::message::WakeHint;
use crate::model::transaction::Delete;

use super::draft::{Draft, without_nulls};
use super::trigger::count_hint;

/// Makes the first hint in the inbox the pending hint, if there is none, and merges hints about the
/// same wait, trigger and resource into it. All other hints stay in the inbox for a later step.
pub fn coalesce_hints(draft: &mut Draft) {
    for hint in std::mem::take(&mut draft.records.inbox.hints) {
        let Some(pending) = &mut draft.records.state.pending_wake_hint else {
            draft.delete(Delete::Hint(hint.id));
            count_hint(draft, &hint);
            let counters = &mut draft.records.state.counters;
            counters.wakes = counters.wakes.saturating_add(1);
            draft.records.state.pending_wake_hint = Some(hint);
            continue;
        };
        if !hint.merges_with(pending) || hint.id == pending.id {
            draft.records.inbox.hints.push(hint);
            continue;
        }
        pending.absorb(&hint);
        let data = json!({
            "hint_id": hint.id,
            "into": pending.id,
            "scope": pending.scope(),
            "count": pending.count,
            "hint": content(&hint),
        });
        draft.delete(Delete::Hint(hint.id));
        count_hint(draft, &hint);
        draft.event(EventKind::WakeHintCoalesced, None, data);
    }
}

/// Records and removes hints that arrived while no hint can wake the agent.
pub fn ignore_hints(draft: &mut Draft, why: &str) {
    let pending = draft.records.state.pending_wake_hint.take();
    for hint in std::mem::take(&mut draft.records.inbox.hints) {
        draft.delete(Delete::Hint(hint.id));
        count_hint(draft, &hint);
        ignore_hint(draft, &hint, why);
    }
    if let Some(hint) = pending {
        ignore_hint(draft, &hint, why);
    }
}

/// Removes the pending wake hint if its `system_tick` was emitted before: it blocks other hints.
pub fn ignore_duplicate_hint(draft: &mut Draft) {
    if let Some(hint) = draft.records.state.pending_wake_hint.take() {
        ignore_hint(draft, &hint, "duplicate");
    }
}

fn ignore_hint(draft: &mut Draft, hint: &WakeHint, why: &str) {
    let data = json!({
        "hint_id": hint.id,
        "scope": hint.scope(),
        "count": hint.count,
        "reason": why,
        "hint": content(hint),
    });
    draft.event(EventKind::WakeHintIgnored, None, data);
}

/// Returns the content of a hint for the event log, because no message will contain the hint.
fn content(hint: &WakeHint) -> Value {
    let WakeHint { source, reason, resource, body, .. } = hint;
    without_nulls(json!({ "source": source, "reason": reason, "resource": resource, "payload": body }))
}
