//! End of a message: the message is moved from the inbox to the archive, and the waits that were
//! bound to it are resolved or become active again.

use serde_json::json;

use crate::model::attention::{AttentionSubject, Subject};
use crate::model::event::EventKind;
use crate::model::message::{Message, MessageStatus, Settlement};
use crate::model::transaction::{Archived, Delete};

use super::draft::{Draft, without_nulls};
use super::wait::{recheck_over, settle_bound};

/// Ends a message: moves it from the inbox to the archive. Deletes its checkpoint unless the
/// message was aborted, because only then a requeued message may continue from it.
pub fn settle_message(draft: &mut Draft, mut message: Message, settlement: Settlement) {
    message.checkpoint = draft.checkpoint_of(&message);
    if settlement.status != MessageStatus::Aborted
        && let Some(checkpoint) = message.checkpoint.take()
    {
        draft.delete(Delete::Checkpoint(checkpoint));
    }
    draft.delete(Delete::Message(message.key()));
    let counters = &mut draft.records.state.counters;
    let counter = match settlement.status {
        MessageStatus::Processed => Some(&mut counters.messages_processed),
        MessageStatus::Dropped => Some(&mut counters.messages_dropped),
        MessageStatus::Queued
        | MessageStatus::Dequeued
        | MessageStatus::Aborted
        | MessageStatus::Interjected => None,
    };
    counter.into_iter().for_each(|counter| *counter = counter.saturating_add(1));
    if settlement.dead_letter {
        counters.dead = counters.dead.saturating_add(1);
    }
    draft.note_dedupe(&message, settlement.status);
    recheck_over(draft, message.id);
    settle_bound(draft, message.id, &settlement);
    let (kind, status, reason) = (message.kind, settlement.status, &settlement.reason);
    let data = json!({ "message_id": message.id, "kind": kind, "status": status, "reason": reason });
    draft.event(EventKind::MessageSettled, settlement.run_id, without_nulls(data));
    if settlement.dead_letter {
        let about = AttentionSubject { run_id: settlement.run_id, ..AttentionSubject::message(message.id) };
        draft.raise(Subject::DeadLetter, about, settlement.reason.clone().unwrap_or_default());
    }
    message.settlement = Some(settlement);
    let inbox = &mut draft.records.inbox;
    for slot in [&mut inbox.head, &mut inbox.claimed] {
        slot.take_if(|other| other.id == message.id);
    }
    draft.archive(Archived::Message(Box::new(message)));
}

/// Drops a message, and logs the reason.
pub fn drop_message(draft: &mut Draft, message: Message, reason: &str) {
    let reason = Some(reason.to_owned());
    let settlement = Settlement { reason, ..Settlement::new(MessageStatus::Dropped, draft.now()) };
    settle_message(draft, message, settlement);
}
