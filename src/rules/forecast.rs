//! Forecast of the effect that a message or hint would have if it arrived now, for people and
//! scripts. No decision depends on a forecast.

use serde::Serialize;
use uuid::Uuid;

use crate::model::agent::Status;
use crate::model::continuation::Runs;
use crate::model::id::MessageId;
use crate::model::message::{Body, Message, MessageKind, WakeHint};
use crate::model::records::{LeaseState, Records};
use crate::model::time::Time;
use crate::model::timer::Timer;

use super::admission::{speaker_of, trigger_kind};
use super::continuation::resolve;
use super::posture::runnable_work;
use super::projection::closure;

/// Expected effect of a hint, and the reason as text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Forecast {
    pub runs: Runs,
    pub why: &'static str,
}

/// True if a turn would run for a message, given the present records.
fn runs_turn(records: &Records, message: &Message) -> bool {
    let prior = closure(records);
    let continuation = resolve(&prior, message, &records.waits, records.policy.inbox.unmatched);
    continuation.is_some_and(|continuation| continuation.model_reentry)
}

/// True if a turn would run when a timer fires, given the present records.
pub fn fires_a_turn(records: &Records, timer: &Timer) -> bool {
    if let Some(message) = &timer.message {
        return runs_turn(records, message);
    }
    let body = timer.body.clone().unwrap_or(Body::Text { text: String::new() });
    runs_turn(records, &own_message(records, MessageKind::TimerTick, body, timer.next_at))
}

/// Returns a message as dormouse itself sends it, with the fields on which a forecast depends.
fn own_message(records: &Records, kind: MessageKind, body: Body, at: Time) -> Message {
    let (id, agent) = (MessageId(Uuid::nil()), records.state.agent.clone());
    Message { trigger_kind: trigger_kind(kind), ..Message::new(id, agent, kind, speaker_of(kind), body, at) }
}

/// True if a work item is runnable, so that a hint leads to one more turn for the item.
pub fn has_runnable_work(records: &Records) -> bool {
    runnable_work(records).is_some()
}

/// Returns the expected effect of a new hint, given the present records.
pub fn of_hint(records: &Records, hint: &WakeHint) -> Forecast {
    let forecast = |runs, why| Forecast { runs, why };
    let state = &records.state;
    match state.status {
        Status::Stopped => return forecast(Runs::Nothing, "it is stopped, and ignores the hint"),
        Status::Booting => return forecast(Runs::Undecided, "the agent was never started"),
        Status::AwakeIdle | Status::AwakeRunning | Status::AwaitingTask | Status::Asleep => {}
    }
    if records.lease == LeaseState::Held || state.current_run.is_some() {
        return forecast(Runs::Undecided, "a turn runs: a step decides when that has ended");
    }
    if state.held.is_some() {
        return forecast(Runs::Undecided, "a run is held: a step decides when that has ended");
    }
    let body = Body::Text { text: String::new() };
    let tick = own_message(records, MessageKind::SystemTick, body, hint.created_at);
    if runs_turn(records, &tick.of_hint(hint.clone())) {
        return forecast(Runs::Turn, "the agent takes the hint up");
    }
    if has_runnable_work(records) {
        return forecast(Runs::Turn, "the agent's runnable work gets another turn");
    }
    forecast(Runs::Nothing, "the hint ends no wait, and no work is runnable; the next turn is told of it")
}
