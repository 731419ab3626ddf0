//! An attempt of a message: it ends, and its message goes back into the queue or is parked.

use crate::model::attention::About;
use crate::model::continuation::Continuation;
use crate::model::execution::ExecutionState;
use crate::model::id::{MessageId, RunId};
use crate::model::message::{Failure, Message, MessageStatus, Settlement};
use crate::model::policy::OnExhausted;
use crate::model::preemption::Checkpoint;
use crate::model::refusal::Refusal;
use crate::model::run::Terminal;
use crate::model::state::{CurrentRun, Retry};
use crate::model::time::Span;
use crate::model::transaction::{Delete, Put};

use crate::rules::retry::delay;

use super::draft::Draft;
use super::gate::give_up;
use super::settlement::settle_message;

/// An attempt of a message that did not go well.
pub(super) struct Attempt {
    pub message_id: MessageId,
    pub number: u32,
    /// Its last run; absent if none had begun.
    pub run_id: Option<RunId>,
    pub terminal: Terminal,
    pub continuation: Continuation,
    pub checkpoint: Option<Checkpoint>,
}

/// Puts the message back as its next attempt, or parks it after the last one.
pub(super) fn fail_attempt(draft: &mut Draft, failed: Attempt, reason: String) -> Result<(), Refusal> {
    let policy = draft.records.policy.recovery.clone();
    let now = draft.now();
    draft.enter(ExecutionState::Failed, Some(failed.message_id), &reason)?;
    let exhausted = failed.number >= policy.max_attempts;
    let next = failed.number.saturating_add(1);
    if let Some(mut message) = claimed_message(draft, failed.message_id) {
        message.failures.push(Failure {
            attempt: failed.number,
            run_id: failed.run_id,
            terminal: failed.terminal,
            at: now,
            reason: reason.clone(),
        });
        if exhausted {
            message.checkpoint = failed.checkpoint;
            park(draft, message, &failed, &reason);
        } else {
            message.attempt = next;
            release(draft, message, failed.continuation, failed.checkpoint);
        }
    }
    let pause = if exhausted { Span::ZERO } else { delay(&policy, failed.number, draft.stamp.chance) };
    draft.records.state.retry = Some(Retry {
        message_id: Some(failed.message_id),
        attempt: (!exhausted).then_some(next),
        not_before: now.after(pause),
        reason,
    });
    draft.records.state.current_run = None;
    if exhausted && policy.on_exhausted == OnExhausted::Stop {
        let about = About { run_id: failed.run_id, ..About::message(failed.message_id) };
        give_up(draft, about, "recovery.on_exhausted");
    }
    Ok(())
}

/// Parks a message as a dead letter. It keeps the reason of every attempt and blocks nothing.
fn park(draft: &mut Draft, message: Message, failed: &Attempt, reason: &str) {
    let attempts = if failed.number == 1 { "attempt" } else { "attempts" };
    let settlement = Settlement {
        reason: Some(format!("gave up after {} {attempts}: {reason}", failed.number)),
        run_id: failed.run_id,
        dead_letter: true,
        ..Settlement::new(MessageStatus::Aborted, draft.now())
    };
    settle_message(draft, message, settlement);
}

/// Puts a claimed message back into the queue, with everything that is known of it.
pub(super) fn release(
    draft: &mut Draft,
    mut message: Message,
    continuation: Continuation,
    checkpoint: Option<Checkpoint>,
) {
    message.continuation = Some(continuation);
    message.checkpoint = checkpoint;
    draft.records.inbox.claimed = None;
    draft.records.inbox.offer(&message);
    draft.put(Put::Message(Box::new(message)));
}

/// Ends the current run. The checkpoint that it went on from is removed if it has saved a later one.
pub(super) fn leave(draft: &mut Draft, run: &CurrentRun) {
    draft.records.state.current_run = None;
    if let Some(given) = run.given.filter(|given| run.checkpoint != Some(*given)) {
        draft.delete(Delete::Checkpoint(given));
    }
}

/// The message of that id, if a run has it or may have it next.
pub(super) fn claimed_message(draft: &Draft, id: MessageId) -> Option<Message> {
    let inbox = &draft.records.inbox;
    inbox.claimed.iter().chain(&inbox.head).find(|message| message.id == id).cloned()
}
