//! First part of a step: takes in arrivals and due times, before the decision, and corrects times
//! that a fast clock has written (contract, execution §4).

use serde_json::json;

use crate::model::agent::Status;
use crate::model::attention::{AttentionSubject, Subject};
use crate::model::event::EventKind;
use crate::model::execution::ExecutionState;
use crate::model::id::{MessageId, RunId};
use crate::model::message::{Body, DUPLICATE, Message, MessageKind};
use crate::model::records::Staleness;
use crate::model::refusal::Refusal;
use crate::model::state::KeptOut;
use crate::model::time::Time;
use crate::model::timer::Timer;
use crate::model::work::SchedulingState;

use crate::rules::clock::{Ahead, correct_state, correct_timer, lease_ends};
use crate::rules::execution::overdue;
use crate::rules::stall::{notify_at, stall};
use crate::rules::work::{WaitsByItem, scheduling_state};

use super::arrival::{admit, admitted, own_message};
use super::attempt::put_back;
use super::draft::Draft;
use super::hints::{coalesce_hints, ignore_hints};
use super::inbox::drop_settled;
use super::lifecycle::end_late_start;
use super::recovery;
use super::resources::try_now;
use super::settlement::drop_message;
use super::timer::take_in_due;
use super::wait::heal;

/// Applies everything that is due before the decision: drops stale messages, corrects times, fails
/// states whose timeout is over, repairs waits, fires timers, and merges hints about one subject.
///
/// A stopped agent only loses its hints. For a booting one only times and its timeout are checked.
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
        // A dropped interjection ends no backoff, so it no longer counts as the last one.
        draft.records.inbox.last_interject.take_if(|last| *last == message.id);
        match why {
            Staleness::Settled => drop_settled(draft, &message),
            Staleness::Expired => {
                let about = AttentionSubject::message(message.id);
                admitted(draft, &message);
                drop_message(draft, message, "ttl_expired");
                // A person is notified, because no person decided to drop the message.
                draft.raise(Subject::MessageDropped, about, "ttl_expired");
            }
            Staleness::Duplicate => {
                admitted(draft, &message);
                // The key belongs to the first message, and must not be recorded for this copy.
                drop_message(draft, Message { dedupe_key: None, ..message }, DUPLICATE);
            }
        }
    }
    set_right(draft);
    end_overdue_state(draft)?;
    heal(draft);
    take_in_due(draft);
    tick_for_unseen(draft);
    coalesce_hints(draft);
    try_if_asked(draft);
    raise_stall(draft);
    Ok(())
}

/// Replaces each stored time that is too far in the future, and logs each correction.
fn set_right(draft: &mut Draft) {
    let now = draft.now();
    let recovery = &draft.records.policy.recovery;
    let mut found = correct_state(&mut draft.records.state, recovery, now);
    let is_ahead = |timer: &Timer| correct_timer(&mut timer.clone(), now).is_some();
    draft.change_each(is_ahead, |timer| found.extend(correct_timer(timer, now)));
    for Ahead { field, stored, corrected } in found {
        repaired(draft, None, &field, stored, corrected);
    }
}

fn repaired(draft: &mut Draft, run_id: Option<RunId>, field: &str, was: Time, is: Time) {
    let data = json!({ "moment": field, "was": was, "is": is, "reason": "clock_in_future" });
    draft.event(EventKind::RecordRepaired, run_id, data);
}

/// Corrects the lease of a run on another machine. Returns `false` if the lease is not too far in
/// the future.
pub fn set_lease_right(draft: &mut Draft, run_id: RunId) -> bool {
    let now = draft.now();
    let Some(run) = draft.records.state.current_run.as_mut().filter(|run| run.run_id == run_id) else {
        return false;
    };
    let Some(taken) = lease_ends(run, now) else { return false };
    let was = run.lease_expires_at;
    (run.claimed_at, run.lease_expires_at) = (now, taken);
    repaired(draft, Some(run_id), "current_run.lease_expires_at", was, taken);
    true
}

/// Notifies a person that the agent has been stalled for a day, once for each stall.
fn raise_stall(draft: &mut Draft) {
    let Some(stall) = stall(&draft.records) else { return };
    let is_due = notify_at(&draft.records).is_some_and(|at| at <= draft.now());
    if is_due {
        draft.raise(Subject::Stalled, stall.about, stall.reason);
        draft.records.state.stalled = Some(stall.since);
    }
}

/// Fails a recovery or a held run that exceeded its timeout, or whose message is gone. The message
/// goes back to the queue with the same attempt.
fn end_overdue_state(draft: &mut Draft) -> Result<(), Refusal> {
    let state = &draft.records.state;
    let overdue = overdue(state, &draft.records.policy.timeouts, draft.now());
    if state.execution.state == ExecutionState::Recovering {
        return overdue.map_or(Ok(()), |reason| recovery::fail(draft, reason));
    }
    let Some(held) = state.held.clone() else { return Ok(()) };
    let gone = draft.records.inbox.claimed.is_none().then_some("its message is gone");
    let Some(reason) = gone.or(overdue) else { return Ok(()) };
    let waits = state.execution.state == ExecutionState::WaitingResources;
    let number = if waits { held.setbacks.deferrals.max(1) } else { 1 };
    let pause = draft.records.policy.recovery.delay(number, draft.stamp.chance);
    draft.records.state.held = None;
    put_back(draft, held, pause, reason)?;
    draft.becomes_idle();
    Ok(())
}

/// Tries a message that its turn put off, if the operator has sent an `interject` message since
/// then. Hints do not cause this. A claim that lacks a resource needs no request, because every
/// step tries it.
fn try_if_asked(draft: &mut Draft) {
    let state = &draft.records.state;
    let (since, now) = (state.execution.since, draft.now());
    let came_since = |at: Time| since < at && at <= now;
    let interject = draft.records.inbox.last_interject.and_then(|id| id.minted_at());
    let asked = interject.is_some_and(came_since);
    if asked && state.held.as_ref().is_some_and(|held| held.resource.is_none()) {
        try_now(draft);
    }
}

/// Emits one `system_tick` about set-aside input whose wait, which kept it from a turn, has ended.
fn tick_for_unseen(draft: &mut Draft) {
    let waits = WaitsByItem::of(&draft.records.waits);
    let still_kept_out = |kept: &KeptOut| match (kept.wait_id, kept.work_item_id) {
        // A bound wait keeps its input out, because the turn for its message lists that input.
        (Some(wait), _) => draft.records.waits.iter().any(|other| other.id == wait && other.is_active()),
        (None, Some(item)) => {
            let item = draft.records.works.iter().find(|other| other.id == item);
            item.is_some_and(|item| scheduling_state(item, &waits) == SchedulingState::WaitingOperator)
        }
        (None, None) => false,
    };
    let is_free = |kept: &KeptOut| !kept.ticked && !still_kept_out(kept);
    let kept = draft.records.state.set_aside.newest.iter();
    let free: Vec<MessageId> = kept.filter(|kept| is_free(kept)).map(|kept| kept.message_id).collect();
    let Some(newest) = free.last() else { return };
    let messages = if free.len() == 1 { "message was" } else { "messages were" };
    let text = format!("{} {messages} said meanwhile and set aside: look at it", free.len());
    let key = format!("reduced_input:{newest}");
    for kept in draft.records.state.set_aside.newest.iter_mut().filter(|kept| free.contains(&kept.message_id))
    {
        kept.ticked = true;
    }
    let mut message = own_message(draft, MessageKind::SystemTick, Body::Text { text });
    message.idempotency_key = Some(key);
    admit(draft, message);
}
