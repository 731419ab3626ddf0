//! Attempts of a message. A failed attempt puts the message back into the queue or parks it; an
//! attempt whose run is ended from outside is not counted.

use crate::model::agent::Status;
use crate::model::attention::AttentionSubject;
use crate::model::execution::ExecutionState;
use crate::model::id::{MessageId, RunId};
use crate::model::message::{Message, MessageStatus, Settlement};
use crate::model::recovery::OnExhausted;
use crate::model::refusal::Refusal;
use crate::model::run::Terminal;
use crate::model::setbacks::{FailedAttempt, Setbacks};
use crate::model::state::{CurrentRun, HeldRun, Retry};
use crate::model::time::Span;
use crate::model::transaction::{Delete, Put};

use super::arrival::staleness;
use super::draft::Draft;
use super::gate::give_up;
use super::resources::needs_operator;
use super::settlement::settle_message;

/// Failed attempt of a message, for [`fail_attempt`].
pub(super) struct Attempt {
    /// Message, continuation and checkpoint of the run that has ended, in the form of a held run.
    pub held: HeldRun,
    pub number: u32,
    /// Last run of the attempt; absent if no run had started.
    pub run_id: Option<RunId>,
    pub terminal: Terminal,
    /// True if the message is not tried again, because its turn has done the work.
    pub is_last: bool,
}

/// Puts the message back into the queue for its next attempt, or parks it after the last attempt.
pub(super) fn fail_attempt(draft: &mut Draft, failed: Attempt, reason: String) -> Result<(), Refusal> {
    let policy = draft.records.policy.recovery.clone();
    let now = draft.now();
    let message_id = failed.held.message_id;
    draft.enter(ExecutionState::Failed, Some(message_id), &reason)?;
    let exhausted = failed.is_last || failed.number >= policy.max_attempts;
    let next = failed.number.saturating_add(1);
    if let Some(mut message) = claimed_message(draft, message_id) {
        message.failures.push(FailedAttempt {
            attempt: failed.number,
            run_id: failed.run_id,
            terminal: failed.terminal,
            at: now,
            reason: reason.clone(),
        });
        if exhausted {
            message.checkpoint = failed.held.checkpoint;
            park(draft, message, &failed, &reason);
        } else {
            message.attempt = next;
            release(draft, message, HeldRun { setbacks: Setbacks::default(), ..failed.held });
        }
    }
    let pause = if exhausted { Span::ZERO } else { policy.delay(failed.number, draft.stamp.chance) };
    draft.records.state.retry = Some(Retry {
        message_id: Some(message_id),
        attempt: (!exhausted).then_some(next),
        not_before: now.after(pause),
        reason,
    });
    draft.records.state.current_run = None;
    let is_open = draft.records.state.status != Status::Stopped;
    if exhausted && is_open && policy.on_exhausted == OnExhausted::Stop {
        let about = AttentionSubject { run_id: failed.run_id, ..AttentionSubject::message(message_id) };
        give_up(draft, about, "recovery.on_exhausted");
    }
    Ok(())
}

/// Parks a message as a dead letter, with the reason of every attempt. It blocks no other message.
fn park(draft: &mut Draft, message: Message, failed: &Attempt, reason: &str) {
    let attempts = if failed.number == 1 { "attempt" } else { "attempts" };
    let reason = if failed.is_last {
        format!("its turn exited with status 0 and is not run again: {reason}")
    } else {
        format!("gave up after {} {attempts}: {reason}", failed.number)
    };
    let settlement = Settlement {
        reason: Some(reason),
        run_id: failed.run_id,
        dead_letter: true,
        ..Settlement::new(MessageStatus::Aborted, draft.now())
    };
    settle_message(draft, message, settlement);
}

/// Concludes a run that something outside of its turn has ended. The attempt of the message does
/// not count; after `recovery.max_interruptions` in a row the message is held for the operator.
pub(super) fn interrupted(draft: &mut Draft, run: &CurrentRun, reason: &str) -> Result<(), Refusal> {
    let policy = &draft.records.policy.recovery;
    let setbacks = run.setbacks.interrupted();
    let times = setbacks.interruptions;
    let pause = policy.delay(times, draft.stamp.chance);
    let held = held_after(run, setbacks);
    if times >= policy.max_interruptions {
        let why = format!("interrupted {times} times in a row (recovery.max_interruptions): {reason}");
        draft.enter(ExecutionState::WaitingResources, Some(run.message_id), &why)?;
        let held = needs_operator(draft, held, why);
        draft.records.state.held = Some(held);
    } else {
        put_back(draft, held, pause, reason)?;
    }
    Ok(())
}

/// Returns a held run for the message of an ended run, with the run's checkpoint and continuation.
pub(super) fn held_after(run: &CurrentRun, setbacks: Setbacks) -> HeldRun {
    let held = HeldRun::new(run.message_id, run.continuation.clone());
    HeldRun { checkpoint: run.checkpoint, setbacks, ..held }
}

/// Puts the message of a held run back into the queue, at the same attempt. The agent recovers
/// after the pause.
pub(super) fn put_back(draft: &mut Draft, held: HeldRun, pause: Span, reason: &str) -> Result<(), Refusal> {
    draft.enter(ExecutionState::Failed, Some(held.message_id), reason)?;
    let message = draft.records.inbox.claimed.clone().filter(|message| message.id == held.message_id);
    draft.records.state.retry = Some(Retry {
        message_id: Some(held.message_id),
        attempt: message.as_ref().map(|message| message.attempt),
        not_before: draft.now().after(pause),
        reason: reason.to_owned(),
    });
    if let Some(message) = message {
        release(draft, message, held);
    }
    Ok(())
}

/// Puts a claimed message back into the queue, at the same attempt, with the continuation, setbacks
/// and checkpoint of its run. An expired message does not become the head of the queue.
pub(super) fn release(draft: &mut Draft, mut message: Message, held: HeldRun) {
    message.continuation = Some(held.continuation);
    message.setbacks = held.setbacks;
    message.checkpoint = held.checkpoint;
    draft.records.inbox.claimed = None;
    if staleness(&message, None, draft.now()).is_none() {
        draft.records.inbox.offer(&message);
    }
    draft.put(Put::Message(Box::new(message)));
}

/// Removes the current run from the state. Deletes the checkpoint that the run continued from, if
/// the run has saved a later checkpoint.
pub(super) fn leave(draft: &mut Draft, run: &CurrentRun) {
    draft.records.state.current_run = None;
    if let Some(given) = run.given.filter(|given| run.checkpoint != Some(*given)) {
        draft.delete(Delete::Checkpoint(given));
    }
}

/// Returns the message with this id, if a run has claimed it or may claim it next.
pub(super) fn claimed_message(draft: &Draft, id: MessageId) -> Option<Message> {
    let inbox = &draft.records.inbox;
    inbox.claimed.iter().chain(&inbox.head).find(|message| message.id == id).cloned()
}
