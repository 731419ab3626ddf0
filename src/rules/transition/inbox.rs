//! Messages that get no turn, messages of the scheduler, inbox files that are not admitted, and the
//! operator's decisions about ended messages and rejected files.

use serde_json::json;

use crate::model::attention::{AttentionSubject, Subject};
use crate::model::continuation::Continuation;
use crate::model::decision::Tick;
use crate::model::event::EventKind;
use crate::model::id::MessageId;
use crate::model::message::{Body, Message, MessageKind, MessageStatus, Settlement};
use crate::model::refusal::Refusal;
use crate::model::setbacks::Setbacks;
use crate::model::state::{KeptOut, SetAside};
use crate::model::transaction::{Archived, Delete, Put};
use crate::model::wait::Wait;
use crate::model::work::{Ticked, WorkItem};

use crate::rules::projection::closure;

use super::arrival::{admit, admitted, own_message};
use super::draft::{Draft, without_nulls};
use super::settlement::settle_message;

/// Records that a message was not delivered because the receiving agent does not accept it.
pub fn not_delivered(draft: &mut Draft, message: &Message, reason: &str) {
    let data = json!({ "message_id": message.id, "to": message.agent, "reason": reason });
    draft.event(EventKind::MessageRejected, None, data);
    let why = format!("not delivered to `{}`: {reason}", message.agent);
    draft.raise(Subject::MessageDropped, AttentionSubject::message(message.id), why);
}

/// Settles a message without a turn. The context of the next turn will list the message.
pub fn reduce(draft: &mut Draft, message: Message, continuation: Option<Continuation>) {
    admitted(draft, &message);
    if let Some(continuation) = &continuation {
        let data = json!({
            "message_id": message.id,
            "class": continuation.class,
            "matched_waiting_reason": continuation.matched_waiting_reason,
            "waits": "unchanged",
        });
        draft.event(EventKind::TriggerIgnored, None, data);
    }
    if message.is_input() {
        record_unseen(draft, message.id);
    }
    draft.becomes_idle();
    if continuation.is_some() {
        draft.records.state.last_continuation = continuation;
    }
    let counters = &mut draft.records.state.counters;
    counters.messages_reduced = counters.messages_reduced.saturating_add(1);
    counters.reduced_since_turn = counters.reduced_since_turn.saturating_add(1);
    let reason = Some("reduced".to_owned());
    let settlement = Settlement { reason, ..Settlement::new(MessageStatus::Processed, draft.now()) };
    settle_message(draft, message, settlement);
}

/// Records input that no turn has received, and the wait that kept the input from a turn.
fn record_unseen(draft: &mut Draft, message_id: MessageId) {
    let prior = closure(&draft.records);
    let aside = &mut draft.records.state.set_aside;
    aside.count = aside.count.saturating_add(1);
    aside.newest.push(KeptOut {
        message_id,
        wait_id: prior.wait_id,
        work_item_id: prior.work_item_id,
        ticked: false,
    });
    let surplus = aside.newest.len().saturating_sub(SetAside::KEPT);
    aside.newest.drain(..surplus);
}

/// Queues the `system_tick` message for `tick`, and records it, so that it is emitted only once.
pub fn emit_tick(draft: &mut Draft, tick: &Tick) {
    let (now, state) = (draft.now(), &mut draft.records.state);
    let mut hint = None;
    let text = match tick {
        Tick::WakeHint { key } => {
            state.last_wake_key = Some(key.clone());
            hint = state.pending_wake_hint.take();
            None
        }
        Tick::OwnSystemWait { wait_id } => {
            draft.change::<Wait>(*wait_id, |wait| wait.ticked_at = Some(now)).map(|wait| wait.reason)
        }
        Tick::Work { work_item_id, .. } => {
            let wakes = state.counters.wakes;
            let tick = |item: &mut WorkItem| item.ticked = Some(Ticked { revision: item.revision, wakes });
            draft.change(*work_item_id, tick).map(|item| item.objective)
        }
    };
    draft.becomes_idle();
    let body = Body::Text { text: text.unwrap_or_default() };
    let mut message = own_message(draft, MessageKind::SystemTick, body);
    message.work_item_id = tick.work_item_id();
    message.idempotency_key = Some(tick.key());
    if let Some(hint) = hint {
        message = message.of_hint(hint);
    }
    admit(draft, message);
}

/// Puts an aborted or dropped message back into the queue. Its attempts count from 1 again.
pub fn requeue(draft: &mut Draft, archived: Message) -> Result<(), Refusal> {
    let settlement = settlement_of(&archived)?;
    match settlement.status {
        MessageStatus::Aborted | MessageStatus::Dropped => {}
        MessageStatus::Queued | MessageStatus::Dequeued => {
            return Err(Refusal::new("not_settled", format!("{} has been requeued already", archived.id)));
        }
        MessageStatus::Processed | MessageStatus::Interjected => {
            let handed_over = settlement.status == MessageStatus::Interjected;
            let was = if handed_over { "was handed over to a turn" } else { "was processed" };
            let message = format!("{} {was}: it does not run again", archived.id);
            return Err(Refusal::new("already_processed", message).hint("to run it again, enqueue it again"));
        }
    }
    bury(draft, &archived, &settlement, MessageStatus::Queued, "requeued by the operator");
    let taken_up = archived.was_claimed() || settlement.status == MessageStatus::Aborted;
    let message = Message {
        attempt: 1,
        continuation: None,
        expires_at: None,
        setbacks: Setbacks::default(),
        settlement: None,
        taken_up,
        ..archived
    };
    draft.event(EventKind::MessageRequeued, None, json!({ "message_id": message.id }));
    draft.note_dedupe(&message, MessageStatus::Queued);
    draft.put(Put::Message(Box::new(message)));
    Ok(())
}

/// Drops a dead letter and its checkpoint.
pub fn drop_dead_letter(draft: &mut Draft, mut archived: Message, reason: &str) -> Result<(), Refusal> {
    let settlement = settlement_of(&archived)?;
    if !settlement.dead_letter {
        let message = format!("{} is {}: there is nothing to drop", archived.id, settlement.status);
        return Err(Refusal::new("not_dead", message));
    }
    let checkpoint = archived.checkpoint.take();
    bury(draft, &archived, &settlement, MessageStatus::Dropped, reason);
    checkpoint.into_iter().for_each(|saved| draft.delete(Delete::Checkpoint(saved)));
    let dropped = &mut draft.records.state.counters.messages_dropped;
    *dropped = dropped.saturating_add(1);
    note_dropped(draft, &archived, reason);
    Ok(())
}

/// Returns the settlement of an archived message. Refuses a message that is in the queue.
fn settlement_of(message: &Message) -> Result<Settlement, Refusal> {
    let in_queue = || Refusal::new("not_settled", format!("{} is still in the queue", message.id));
    message.settlement.clone().ok_or_else(in_queue)
}

fn note_dropped(draft: &mut Draft, message: &Message, reason: &str) {
    let (id, kind, status) = (message.id, message.kind, MessageStatus::Dropped);
    let data = json!({ "message_id": id, "kind": kind, "status": status, "reason": reason });
    draft.event(EventKind::MessageSettled, None, data);
}

/// Appends a new line about an ended message to the archive. The newest line counts, so the message
/// is no longer a dead letter.
fn bury(draft: &mut Draft, archived: &Message, last: &Settlement, status: MessageStatus, reason: &str) {
    if last.dead_letter {
        draft.records.state.counters.dead = draft.records.state.counters.dead.saturating_sub(1);
    }
    let settlement = Settlement { reason: Some(reason.to_owned()), ..Settlement::new(status, draft.now()) };
    let line = Message { settlement: Some(settlement), ..archived.clone() };
    draft.archive(Archived::Message(Box::new(line)));
    // The attention about this message is settled, unless it stands for several messages.
    draft.acknowledge(|seen| seen.about.message_id == Some(archived.id) && seen.count == 1);
}

/// Records that an inbox file was quarantined, with its name in the quarantine; or that it `stays`
/// in the inbox, because it can be neither admitted nor moved, and that steps skip it from now on.
pub fn rejected(draft: &mut Draft, file: &str, reason: &str, stays: bool) {
    let data = json!({ "path": file, "reason": reason, "stays": stays.then_some(true) });
    draft.event(EventKind::MessageRejected, None, without_nulls(data));
    let place = if stays { "it stays in inbox/" } else { "it is in inbox/rejected/" };
    draft.raise(Subject::MessageRejected, AttentionSubject::file(file), format!("{reason} ({place})"));
}

/// Records a person's decision about a rejected file, and acknowledges the file's attention.
pub fn decided_about_rejected(draft: &mut Draft, kind: EventKind, file: &str) {
    draft.event(kind, None, json!({ "path": file }));
    draft.acknowledge(|seen| {
        seen.subject == Subject::MessageRejected
            && seen.count == 1
            && seen.about.path.as_deref() == Some(file)
    });
}

/// Acknowledges the attentions of all rejected files, because no such file is left.
pub fn decided_about_all_rejected(draft: &mut Draft) {
    draft.acknowledge(|seen| seen.subject == Subject::MessageRejected && seen.about.path.is_some());
}

/// Removes the inbox file of a message that is in the archive already. The archive stays unchanged.
pub fn drop_settled(draft: &mut Draft, message: &Message) {
    draft.delete(Delete::Message(message.key()));
    note_dropped(draft, message, "already_settled");
}
