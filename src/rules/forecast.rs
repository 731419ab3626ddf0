//! Forecast of the effect of a message or hint, if it arrived now. For people and scripts; no
//! decision depends on a forecast.

use serde::Serialize;

use crate::model::agent::Status;
use crate::model::continuation::{Runs, TriggerKind};
use crate::model::message::{Body, Origin, OriginKind, WakeHint};
use crate::model::records::{LeaseState, Records};
use crate::model::timer::Timer;

use super::continuation::{TriggerSource, TurnTrigger, resolve};
use super::posture::runnable_work;
use super::projection::closure;

/// Expected effect of a hint, and the reason as text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Forecast {
    pub runs: Runs,
    pub why: &'static str,
}

/// True if a turn would run for a trigger, given the present records.
pub fn runs_turn(records: &Records, trigger: &TurnTrigger<'_>) -> bool {
    let prior = closure(records);
    resolve(&prior, trigger, &records.waits, records.policy.inbox.unmatched).model_reentry
}

/// True if a turn would run when a timer fires, given the present records.
pub fn fires_a_turn(records: &Records, timer: &Timer) -> bool {
    if let Some(message) = &timer.message {
        return TurnTrigger::of(message).is_some_and(|trigger| runs_turn(records, &trigger));
    }
    let origin = Origin { kind: OriginKind::Timer, id: None };
    let contentful = timer.body.as_ref().is_some_and(Body::is_contentful);
    let fire = TurnTrigger { contentful, ..plain(TriggerKind::TimerFire, TriggerSource::Said, &origin) };
    runs_turn(records, &fire)
}

/// Returns a trigger without content, wait, item, task and resource.
fn plain(kind: TriggerKind, source: TriggerSource, origin: &Origin) -> TurnTrigger<'_> {
    TurnTrigger {
        kind,
        source,
        contentful: false,
        task_id: None,
        task_status: None,
        wait_id: None,
        work_item_id: None,
        trigger_id: None,
        resource: None,
        origin,
    }
}

/// True if an item is runnable, so that a hint leads to one more turn for it.
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
    let origin = Origin { kind: OriginKind::System, id: Some(hint.source.clone()) };
    let trigger = TurnTrigger {
        contentful: hint.is_contentful(),
        wait_id: hint.wait_id,
        trigger_id: hint.trigger_id,
        resource: hint.resource.as_deref(),
        ..plain(TriggerKind::SystemTick, TriggerSource::WakeHint, &origin)
    };
    if runs_turn(records, &trigger) {
        return forecast(Runs::Turn, "the agent takes the hint up");
    }
    if has_runnable_work(records) {
        return forecast(Runs::Turn, "the agent's runnable work gets another turn");
    }
    forecast(Runs::Nothing, "the hint ends no wait, and no work is runnable; the next turn is told of it")
}
