//! Wake hints: those of one scope become one, and those that can wake nothing are ignored.

use serde_json::json;

use crate::model::event::EventKind;
use crate::model::message::WakeHint;
use crate::model::transaction::Delete;

use super::draft::Draft;
use super::trigger::count_hint;

/// Makes the first waiting hint the pending one, and counts others that go with it into it. All other hints
/// stay in the inbox for a later step.
pub fn coalesce_hints(draft: &mut Draft) {
    let mut hints = std::mem::take(&mut draft.records.inbox.hints).into_iter();
    if draft.records.state.pending_wake_hint.is_none() {
        let Some(first) = hints.next() else { return };
        draft.delete(Delete::Hint(first.id));
        count_hint(draft, &first);
        let counters = &mut draft.records.state.counters;
        counters.wakes = counters.wakes.saturating_add(1);
        draft.records.state.pending_wake_hint = Some(first);
    }
    for hint in hints {
        let Some(pending) = &mut draft.records.state.pending_wake_hint else { return };
        if !hint.goes_with(pending) || hint.id == pending.id {
            draft.records.inbox.hints.push(hint);
            continue;
        }
        pending.count = pending.count.saturating_add(hint.count);
        // A hint that is merged carries on its chain.
        pending.hops = pending.hops.max(hint.hops);
        let data = json!({ "hint_id": hint.id, "into": pending.id, "scope": pending.scope(), "count": pending.count });
        // The newest text counts: it is what the agent finds when it looks.
        pending.body = hint.body.clone().or(pending.body.take());
        pending.reason = hint.reason.clone().or(pending.reason.take());
        pending.source_refs.clone_from(&hint.source_refs);
        draft.delete(Delete::Hint(hint.id));
        count_hint(draft, &hint);
        draft.event(EventKind::WakeHintCoalesced, None, data);
    }
}

/// Records hints that arrived while nothing could wake the agent.
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

/// Removes a pending hint that has become a tick already, so that it is not in the way of the next one.
pub fn ignore_duplicate_hint(draft: &mut Draft) {
    if let Some(hint) = draft.records.state.pending_wake_hint.take() {
        ignore_hint(draft, &hint, "duplicate");
    }
}

fn ignore_hint(draft: &mut Draft, hint: &WakeHint, why: &str) {
    let data = json!({ "hint_id": hint.id, "scope": hint.scope(), "count": hint.count, "reason": why });
    draft.event(EventKind::WakeHintIgnored, None, data);
}
