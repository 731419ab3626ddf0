//! Takes in what has arrived, reduces messages that need no turn, and emits the scheduler's own ticks.

use serde_json::json;

use crate::model::agent::Status;
use crate::model::attention::{About, Subject};
use crate::model::continuation::Continuation;
use crate::model::decision::Tick;
use crate::model::event::EventKind;
use crate::model::execution::ExecutionState;
use crate::model::id::MessageId;
use crate::model::message::{
    AuthorityClass, Body, Hinted, Message, MessageKind, MessageStatus, Settlement, WakeHint,
};
use crate::model::records::Staleness;
use crate::model::refusal::Refusal;
use crate::model::state::{KeptOut, Retry, SetAside};
use crate::model::time::Time;
use crate::model::timer::{CatchUp, Schedule};
use crate::model::transaction::{Archived, Delete, Put};
use crate::model::work::{SchedulingState, Ticked};

use crate::rules::closure::derive;
use crate::rules::continuation::Trigger;
use crate::rules::execution::{deadline, is_over};
use crate::rules::projection::closure_facts;
use crate::rules::retry::delay;
use crate::rules::work::{WaitsByItem, scheduling_state};

use super::clock::set_right;
use super::draft::Draft;
use super::lifecycle::end_late_start;
use super::messages::own_message;
use super::recovery;
use super::rejected;
use super::resources::{fail_held, try_now};
use super::timer::{self, NewTimer, take_in_due};
use super::wait::{heal, note_system_wait};

/// Whether a message is not to be taken up any more, and why. `first` is the message that its `dedupe_key`
/// belongs to.
pub fn staleness(message: &Message, first: Option<MessageId>, now: Time) -> Option<Staleness> {
    if message.expires_at.is_some_and(|limit| now > limit) && message.attempt == 1 {
        Some(Staleness::Expired)
    } else if first.is_some_and(|first| first != message.id) {
        Some(Staleness::Duplicate)
    } else {
        None
    }
}

/// Admits a message that is dropped at once. It starts nothing, and does not end the backoff either.
fn admitted_in_vain(draft: &mut Draft, message: &Message) {
    admitted(draft, message);
    let last_interject = &mut draft.records.inbox.last_interject;
    *last_interject = last_interject.filter(|id| *id != message.id);
}

/// Takes in what is due before anything is decided: drops stale messages, fails states whose timeout is over,
/// and merges hints of one scope.
///
/// While the agent is stopped, messages stay as they are, and hints are ignored.
pub fn take_in(draft: &mut Draft) -> Result<(), Refusal> {
    match draft.records.state.status {
        Status::Booting => {
            set_right(draft);
            return end_late_start(draft);
        }
        Status::Stopped => {
            ignore_hints(draft, "stopped");
            return Ok(());
        }
        Status::AwakeIdle | Status::AwakeRunning | Status::AwaitingTask | Status::Asleep => {}
    }
    for (message, why) in std::mem::take(&mut draft.records.inbox.stale) {
        match why {
            Staleness::Settled => rejected::drop_settled(draft, &message),
            Staleness::Expired => {
                admitted_in_vain(draft, &message);
                drop_unasked(draft, message, "ttl_expired");
            }
            Staleness::Duplicate => {
                admitted_in_vain(draft, &message);
                // The key belongs to the first copy, and must not be taken from it.
                drop_message(draft, Message { dedupe_key: None, ..message }, "duplicate");
            }
        }
    }
    set_right(draft);
    end_overdue_state(draft)?;
    heal(draft);
    take_in_due(draft);
    look_at_set_aside(draft);
    let hints = draft.records.inbox.hints.len();
    coalesce_hints(draft);
    let taken_in = draft.records.inbox.hints.len() < hints;
    try_if_asked(draft, taken_in);
    Ok(())
}

/// Fails a recovery or a held run that has lasted too long, or whose message is gone. A message that was put
/// off for too long has failed like any other. One that was suspended for too long keeps its attempt.
fn end_overdue_state(draft: &mut Draft) -> Result<(), Refusal> {
    let state = &draft.records.state;
    let overdue = deadline(state, &draft.records.policy.timeouts)
        .filter(|(limit, _)| is_over(*limit, draft.now()))
        .map(|(_, reason)| reason);
    if state.execution.state == ExecutionState::Recovering {
        return overdue.map_or(Ok(()), |reason| recovery::fail(draft, reason));
    }
    let Some(held) = state.held.clone() else { return Ok(()) };
    let gone = draft.records.inbox.claimed.is_none().then_some("its message is gone");
    let Some(reason) = gone.or(overdue) else { return Ok(()) };
    if gone.is_none() && state.execution.state == ExecutionState::WaitingResources {
        return fail_held(draft, reason);
    }
    draft.enter(ExecutionState::Failed, Some(held.message_id), reason)?;
    draft.records.state.held = None;
    let claimed = draft.records.inbox.claimed.take();
    let attempt = claimed.as_ref().map(|message| message.attempt);
    if let Some(mut message) = claimed {
        message.continuation = Some(held.continuation);
        message.checkpoint = held.checkpoint;
        // Only the backoff holds the message back now. If its own time is over, it is dropped instead.
        if staleness(&message, None, draft.now()).is_none() {
            draft.records.inbox.offer(&message);
        }
        draft.put(Put::Message(Box::new(message)));
    }
    let pause = delay(&draft.records.policy.recovery, 1, draft.stamp.chance);
    draft.records.state.retry = Some(Retry {
        message_id: Some(held.message_id),
        attempt,
        not_before: draft.now().after(pause),
        reason: reason.to_owned(),
    });
    draft.set_status(Status::AwakeIdle);
    Ok(())
}

/// A hint or an interjection that came after a turn put its message off has the message tried at once, and
/// only once. One that was there before does not. What a claim lacks is looked for by every step anyway.
fn try_if_asked(draft: &mut Draft, by_hint: bool) {
    let state = &draft.records.state;
    let (since, now) = (state.execution.since, draft.now());
    let came_since = |at: Time| since < at && at <= now;
    let by_others = draft.records.inbox.hints.iter().any(|hint| came_since(hint.created_at));
    let interject = draft.records.inbox.last_interject.and_then(|id| id.minted_at());
    let asked = by_hint || by_others || interject.is_some_and(came_since);
    if asked && state.held.as_ref().is_some_and(|held| held.resource.is_none()) {
        try_now(draft);
    }
}

/// Makes the first waiting hint the pending one, and counts others that go with it into it. All other hints
/// stay in the inbox for a later step.
fn coalesce_hints(draft: &mut Draft) {
    let mut hints = std::mem::take(&mut draft.records.inbox.hints).into_iter();
    if draft.records.state.pending_wake_hint.is_none() {
        let Some(first) = hints.next() else { return };
        draft.delete(Delete::Hint(first.id));
        draft.records.state.counters.wakes += 1;
        draft.records.state.pending_wake_hint = Some(first);
    }
    for hint in hints {
        let Some(pending) = &mut draft.records.state.pending_wake_hint else { return };
        if !hint.goes_with(pending) || hint.id == pending.id {
            draft.records.inbox.hints.push(hint);
            continue;
        }
        pending.count += hint.count;
        // A hint that is merged carries on its chain.
        pending.hops = pending.hops.max(hint.hops);
        let data = json!({ "hint_id": hint.id, "into": pending.id, "scope": pending.scope(), "count": pending.count });
        // The newest text counts: it is what the agent finds when it looks.
        pending.body = hint.body.clone().or(pending.body.take());
        pending.reason = hint.reason.clone().or(pending.reason.take());
        draft.delete(Delete::Hint(hint.id));
        draft.event(EventKind::WakeHintCoalesced, None, data);
    }
}

/// Records hints that arrived while nothing could wake the agent.
pub fn ignore_hints(draft: &mut Draft, why: &str) {
    let pending = draft.records.state.pending_wake_hint.take();
    for hint in std::mem::take(&mut draft.records.inbox.hints) {
        draft.delete(Delete::Hint(hint.id));
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

/// Records in the ledger that a message was admitted. The message itself arrived without a transaction.
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
    }
    draft.event(EventKind::MessageAdmitted, None, data);
}

/// Admits a message in a transaction: a message with a `dedupe_key`, or a dropped file, which the caller
/// removes. `first` is the message to which the key belongs already; the key stays with that.
pub fn admit_drop(draft: &mut Draft, message: Message, first: Option<MessageId>) {
    if first.is_none_or(|first| first == message.id) {
        draft.note_dedupe(&message, MessageStatus::Queued);
        draft.records.inbox.offer(&message);
    }
    draft.put(Put::Message(Box::new(message)));
}

/// Puts a message off until `at`: a timer holds it.
pub fn put_off(draft: &mut Draft, message: Message, at: Time) -> Result<(), Refusal> {
    draft.note_dedupe(&message, MessageStatus::Queued);
    let schedule = Schedule::At { at };
    timer::add(
        draft,
        NewTimer { schedule, catch_up: CatchUp::Once, body: None, message: Some(message), hops: None },
    )?;
    Ok(())
}

/// Drops a message although no person asked for that, and raises an attention: the agent was not told what it
/// said.
pub fn drop_unasked(draft: &mut Draft, message: Message, reason: &str) {
    let id = message.id;
    drop_message(draft, message, reason);
    draft.raise(Subject::MessageDropped, About::message(id), reason);
}

/// Records that a message to another agent was not delivered because that agent does not take it.
pub fn not_delivered(draft: &mut Draft, message: &Message, reason: &str) {
    let data = json!({ "message_id": message.id, "to": message.agent, "reason": reason });
    draft.event(EventKind::MessageRejected, None, data);
    let why = format!("not delivered to `{}`: {reason}", message.agent);
    draft.raise(Subject::MessageDropped, About::message(message.id), why);
}

/// Drops a message, with the reason in the ledger.
pub fn drop_message(draft: &mut Draft, message: Message, reason: &str) {
    let settlement = Settlement {
        status: MessageStatus::Dropped,
        at: draft.now(),
        reason: Some(reason.to_owned()),
        run_id: None,
        dead_letter: false,
    };
    draft.settle_message(message, settlement);
}

/// Reduces a message that starts no turn. The next turn finds it in its context.
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
    if Trigger::of(&message).is_some_and(|trigger| trigger.is_input()) {
        set_aside(draft, message.id);
    }
    if matches!(draft.records.state.status, Status::Asleep | Status::AwaitingTask) {
        draft.set_status(Status::AwakeIdle);
    }
    if continuation.is_some() {
        draft.records.state.last_continuation = continuation;
    }
    draft.records.state.counters.messages_reduced += 1;
    draft.records.state.counters.reduced_since_turn += 1;
    let settlement = Settlement {
        status: MessageStatus::Processed,
        at: draft.now(),
        reason: Some("reduced".to_owned()),
        run_id: None,
        dead_letter: false,
    };
    draft.settle_message(message, settlement);
}

/// Records input that no turn has been told of, and what kept it out.
fn set_aside(draft: &mut Draft, message_id: MessageId) {
    let prior = derive(&closure_facts(&draft.records));
    let aside = &mut draft.records.state.set_aside;
    aside.count += 1;
    aside.newest.push(KeptOut {
        message_id,
        wait_id: prior.wait_id,
        work_item_id: prior.work_item_id,
        ticked: false,
    });
    let surplus = aside.newest.len().saturating_sub(SetAside::KEPT);
    aside.newest.drain(..surplus);
}

/// Emits one tick for input that was set aside, once what kept it out has ended in any way.
fn look_at_set_aside(draft: &mut Draft) {
    let waits = WaitsByItem::of(&draft.records.waits);
    let still_kept_out = |kept: &KeptOut| match (kept.wait_id, kept.work_item_id) {
        // The turn that the bound wait belongs to is told of the input, too.
        (Some(wait), _) => draft.records.waits.iter().any(|other| other.id == wait && other.is_active()),
        (None, Some(item)) => {
            let item = draft.records.works.iter().find(|other| other.id == item);
            item.is_some_and(|item| scheduling_state(item, &waits) == SchedulingState::WaitingOperator)
        }
        (None, None) => false,
    };
    let is_free = |kept: &KeptOut| !kept.ticked && !still_kept_out(kept);
    let free: Vec<MessageId> = draft
        .records
        .state
        .set_aside
        .newest
        .iter()
        .filter(|kept| is_free(kept))
        .map(|kept| kept.message_id)
        .collect();
    let Some(newest) = free.last() else { return };
    let text = format!(
        "{} said meanwhile and set aside: look at it",
        count(free.len(), "message was", "messages were")
    );
    let key = format!("reduced_input:{newest}");
    for kept in draft.records.state.set_aside.newest.iter_mut().filter(|kept| free.contains(&kept.message_id))
    {
        kept.ticked = true;
    }
    let mut message = own_message(draft, MessageKind::SystemTick, Body::Text { text });
    message.idempotency_key = Some(key);
    timer::admit(draft, message);
}

fn count(number: usize, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

/// Admits the one `system_tick` for a fact that asks for a turn. The next step runs it.
pub fn emit_tick(draft: &mut Draft, tick: &Tick) {
    let hint = match tick {
        Tick::WakeHint { .. } => draft.records.state.pending_wake_hint.take(),
        Tick::OwnSystemWait { wait_id } => {
            note_system_wait(draft, *wait_id);
            None
        }
        Tick::ContinueActive { .. } | Tick::QueuedAvailable { .. } | Tick::SystemWait { .. } => None,
    };
    if let Tick::WakeHint { key } = tick {
        draft.records.state.last_wake_key = Some(key.clone());
    }
    if let Some(work_item_id) = tick.work_item_id() {
        let wakes = draft.records.state.counters.wakes;
        if let Some(item) = draft.records.works.iter_mut().find(|item| item.id == work_item_id) {
            item.ticked = Some(Ticked { revision: item.revision, wakes });
            let item = Box::new(item.clone());
            draft.put(Put::Work(item));
        }
    }
    if matches!(draft.records.state.status, Status::Asleep | Status::AwaitingTask) {
        draft.set_status(Status::AwakeIdle);
    }
    let message = tick_message(draft, tick, hint);
    draft.records.inbox.offer(&message);
    draft.put(Put::Message(Box::new(message)));
}

fn tick_message(draft: &mut Draft, tick: &Tick, hint: Option<WakeHint>) -> Message {
    let text = match tick {
        Tick::WakeHint { .. } => None,
        Tick::ContinueActive { work_item_id, .. }
        | Tick::QueuedAvailable { work_item_id, .. }
        | Tick::SystemWait { work_item_id, .. } => {
            let item = draft.records.works.iter().find(|item| item.id == *work_item_id);
            item.map(|item| item.objective.clone())
        }
        Tick::OwnSystemWait { wait_id } => {
            let wait = draft.records.waits.iter().find(|wait| wait.id == *wait_id);
            wait.map(|wait| wait.reason.clone())
        }
    };
    let mut message =
        own_message(draft, MessageKind::SystemTick, Body::Text { text: text.unwrap_or_default() });
    message.work_item_id = tick.work_item_id();
    message.idempotency_key = Some(tick.key());
    if let Some(hint) = hint {
        message.body = hint.body.unwrap_or(Body::Text { text: String::new() });
        // The body of a hint is evidence and never an instruction, whatever its source.
        message.authority_class = AuthorityClass::IntegrationSignal;
        message.origin.id = Some(hint.source.clone());
        message.wait_id = hint.wait_id;
        message.trigger_id = hint.trigger_id;
        message.resource = hint.resource;
        message.hops = hint.hops;
        message.causation_id = Some(hint.id.to_string());
        message.hint =
            Some(Hinted { hint_id: hint.id, source: hint.source, reason: hint.reason, count: hint.count });
    }
    message
}

/// Brings a message from the archive back to the queue, as if it had just arrived.
pub fn requeue(draft: &mut Draft, archived: Message) -> Result<(), Refusal> {
    let Some(settlement) = archived.settlement.clone() else {
        return Err(Refusal::new("not_settled", format!("{} is still in the queue", archived.id)));
    };
    match settlement.status {
        MessageStatus::Aborted | MessageStatus::Dropped => {}
        MessageStatus::Queued | MessageStatus::Dequeued => {
            return Err(Refusal::new("not_settled", format!("{} has been requeued already", archived.id)));
        }
        MessageStatus::Processed | MessageStatus::Interjected => {
            let handed_over = settlement.status == MessageStatus::Interjected;
            let was = if handed_over { "was handed over to a turn" } else { "was processed" };
            return Err(Refusal::new(
                "already_processed",
                format!("{} {was}: it does not run again", archived.id),
            )
            .hint("enqueue it anew if it must"));
        }
    }
    bury(draft, &archived, &settlement, MessageStatus::Queued, "requeued by the operator");
    let message = Message { attempt: 1, continuation: None, expires_at: None, settlement: None, ..archived };
    draft.event(EventKind::MessageRequeued, None, json!({ "message_id": message.id }));
    draft.note_dedupe(&message, MessageStatus::Queued);
    draft.put(Put::Message(Box::new(message)));
    Ok(())
}

/// Drops a dead letter for good.
pub fn drop_dead_letter(draft: &mut Draft, archived: Message, reason: &str) -> Result<(), Refusal> {
    match archived.settlement.clone() {
        Some(settlement) if settlement.dead_letter => {
            let checkpoint = archived.checkpoint;
            let archived = Message { checkpoint: None, ..archived };
            bury(draft, &archived, &settlement, MessageStatus::Dropped, reason);
            checkpoint.into_iter().for_each(|saved| draft.delete(Delete::Checkpoint(saved)));
            draft.records.state.counters.messages_dropped += 1;
            draft.event(
                EventKind::MessageSettled,
                None,
                json!({ "message_id": archived.id, "kind": archived.kind, "status": MessageStatus::Dropped, "reason": reason }),
            );
            Ok(())
        }
        Some(settlement) => Err(Refusal::new(
            "not_dead",
            format!("{} is {}: there is nothing to drop", archived.id, settlement.status),
        )),
        None => Err(Refusal::new("not_settled", format!("{} is still in the queue", archived.id))),
    }
}

/// Appends a line about a message to the archive. The newest line counts, so this one ends a dead letter.
fn bury(draft: &mut Draft, archived: &Message, last: &Settlement, status: MessageStatus, reason: &str) {
    if last.dead_letter {
        draft.records.state.counters.dead = draft.records.state.counters.dead.saturating_sub(1);
    }
    let settlement = Settlement {
        status,
        at: draft.now(),
        reason: Some(reason.to_owned()),
        run_id: None,
        dead_letter: false,
    };
    let line = Message { settlement: Some(settlement), ..archived.clone() };
    draft.archive(Archived::Message(Box::new(line)));
    // A person who decides about a message has seen its attention.
    draft.acknowledge(|seen| seen.about.message_id == Some(archived.id) && seen.count == 1);
}
