//! Messages that dormouse itself sends (contract, semantics §9), and the arrival of a message in
//! the inbox, with its events in the ledger.

use serde_json::json;

use crate::model::dedupe::DedupeEntry;
use crate::model::event::EventKind;
use crate::model::id::MessageId;
use crate::model::message::{
    AdmissionContext, Body, DeliverySurface, Message, MessageKind, MessageStatus, OriginKind, WakeHint,
};
use crate::model::records::Staleness;
use crate::model::time::Time;
use crate::model::transaction::Put;

use crate::rules::admission::{Provenance, message, speaker_of};

use super::draft::Draft;
use super::trigger::count_message;

/// Returns a message from dormouse itself, with the defaults of its kind.
pub fn own_message(draft: &mut Draft, kind: MessageKind, body: Body) -> Message {
    let origin = speaker_of(kind);
    let delivery_surface = match origin.kind {
        OriginKind::Timer => DeliverySurface::TimerScheduler,
        OriginKind::Task => DeliverySurface::TaskRejoin,
        OriginKind::Operator
        | OriginKind::Channel
        | OriginKind::Webhook
        | OriginKind::Callback
        | OriginKind::System => DeliverySurface::RuntimeSystem,
    };
    let from = Provenance { origin, delivery_surface, admission_context: AdmissionContext::RuntimeOwned };
    message(draft.records.state.agent.clone(), kind, from, body, &mut draft.stamp)
}

/// Returns the reason why a message must not be taken up any more; `None` if it may be taken up.
/// `first` is the message that was admitted first under the same `dedupe_key`.
pub fn staleness(message: &Message, first: Option<MessageId>, now: Time) -> Option<Staleness> {
    // A message with an earlier attempt or interruption has been started, so it does not expire.
    let has_begun = message.attempt > 1 || message.setbacks.interruptions > 0;
    if message.expires_at.is_some_and(|limit| now > limit) && !has_begun {
        Some(Staleness::Expired)
    } else if first.is_some_and(|first| first != message.id) {
        Some(Staleness::Duplicate)
    } else {
        None
    }
}

/// Records in the ledger that a message was admitted. The message itself may have arrived without a
/// transaction.
pub fn admitted(draft: &mut Draft, message: &Message) {
    let mut data = json!({
        "message_id": message.id,
        "kind": message.kind,
        "origin": message.origin.to_string(),
        "priority": message.priority,
        "delivery_surface": message.delivery_surface,
        "admitted_at": message.created_at,
    });
    if let Some(hint) = &message.hint {
        data["hint"] = json!(hint);
        data["resource"] = json!(message.resource);
        data["trigger_id"] = json!(message.trigger_id);
    }
    draft.event(EventKind::MessageAdmitted, None, data);
    count_message(draft, message);
}

/// Puts a message into the inbox, where the same step may take it up. A message that has expired
/// while a timer contained it is not taken up; a later step drops it.
pub fn admit(draft: &mut Draft, message: Message) {
    draft.note_dedupe(&message, MessageStatus::Queued);
    if staleness(&message, None, draft.now()).is_none() {
        draft.records.inbox.offer(&message);
    }
    draft.put(Put::Message(Box::new(message)));
}

/// Puts a message into the inbox in a transaction. If another message, `first`, already has its
/// `dedupe_key`, that message keeps the key, and a step drops the new message as a duplicate.
pub fn admit_drop(draft: &mut Draft, message: Message, first: Option<MessageId>) {
    if first.is_none_or(|first| first == message.id) {
        draft.note_dedupe(&message, MessageStatus::Queued);
        draft.records.inbox.offer(&message);
    }
    draft.put(Put::Message(Box::new(message)));
}

/// Admits a hint in a transaction that also records its key, so that a repeat is recognized.
pub fn admit_hint(draft: &mut Draft, hint: WakeHint, dedupe_key: String) {
    draft.put(Put::Dedupe(Box::new(DedupeEntry {
        key: dedupe_key,
        message_id: hint.id,
        admitted_at: hint.created_at,
        status: MessageStatus::Queued,
        revision: draft.records.state.revision + 1,
        extra: Default::default(),
    })));
    draft.put(Put::Hint(Box::new(hint)));
}
