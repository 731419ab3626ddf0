//! Warnings for people (contract, semantics §15). No decision depends on a warning.

use serde::Serialize;

use crate::model::agent::Status;
use crate::model::attention::AdvisoryKind;
use crate::model::records::Records;
use crate::model::time::Time;
use crate::model::wait::{Recoverability, Wait, WaitKind};
use crate::model::work::WorkItem;

use super::clock::{Ahead, ahead, unbounded};
use super::due::{next_wake, overdue};
use super::stall::{has_input, is_stalled};
use super::work::{WaitsByItem, is_spent};

/// Number of attempts, or of consecutive interruptions, above which a message gets a warning.
const OFTEN: u32 = 3;

/// Warning with its kind in the contract, its subject, and a text with the remedy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Advisory {
    pub kind: AdvisoryKind,
    /// Id of the record, name of the agent, or path of the field that the warning is about.
    pub subject: String,
    pub message: String,
}

impl Advisory {
    fn new(kind: AdvisoryKind, subject: impl ToString, message: String) -> Advisory {
        Advisory { kind, subject: subject.to_string(), message }
    }

    /// Returns the key of the warning: no other warning about the same records has this key.
    pub fn key(&self) -> String {
        format!("{}:{}", self.kind, self.subject)
    }
}

/// Returns all warnings of the agent, in a fixed order.
pub fn advisories(records: &Records, now: Time) -> Vec<Advisory> {
    let waits = WaitsByItem::of(&records.waits);
    let state = &records.state;
    let does_nothing = state.current_run.is_none() && state.held.is_none() && state.retry.is_none();
    let is_silent = does_nothing && !has_input(records) && next_wake(records).is_none();
    let mut found: Vec<Advisory> =
        records.works.iter().flat_map(|item| about_work(records, &waits, item, is_silent)).collect();
    found.extend(about_input(records, now));
    found.extend(records.waits.iter().filter(|wait| wait.is_waiting()).flat_map(about_wait));
    found.extend(about_clock(records, now));
    found
}

/// Returns warnings about stored times in the future that a wrong clock wrote: times that the next
/// step corrects, and times that only a person can correct.
fn about_clock(records: &Records, now: Time) -> Vec<Advisory> {
    let kind = AdvisoryKind::ClockInFuture;
    let repaired = ahead(records, now).into_iter().map(|Ahead { field, stored, corrected }| {
        let text = format!(
            "{field} is {stored}, further ahead than it can be: the next step takes it for {corrected}"
        );
        Advisory::new(kind, field, text)
    });
    let kept = unbounded(records, now).into_iter().map(|(id, at)| {
        let text = format!(
            "{id} was created by a clock that ran ahead, and refers to {at}; if that is wrong, create it again"
        );
        Advisory::new(kind, id, text)
    });
    repaired.chain(kept).collect()
}

fn about_work(records: &Records, waits: &WaitsByItem<'_>, item: &WorkItem, is_silent: bool) -> Vec<Advisory> {
    let (state, id, objective) = (&records.state, item.id, &item.objective);
    let had_turn = is_spent(records, item);
    let rests = matches!(state.status, Status::Asleep | Status::AwaitingTask);
    let has_begun = !matches!(state.status, Status::Booting | Status::Stopped);
    let is_idle = waits.is_runnable(item) && (rests || has_begun && had_turn && is_silent);
    let idle = is_idle.then(|| {
        let text = if had_turn {
            format!(
                "{id} is runnable, and its turn has changed nothing about it: {objective}; `dormouse wake {}` makes the agent look again",
                state.agent
            )
        } else {
            format!("asleep, but {id} is runnable: {objective}; the next tick takes it up")
        };
        Advisory::new(AdvisoryKind::IdlePostureHasRunnableWork, id, text)
    });
    let stalled = is_stalled(item, waits).then(|| {
        let text = format!("nothing will bring {id} back: {objective}; `dormouse work unblock`");
        Advisory::new(AdvisoryKind::BlockedWorkItemWithoutRecheckOrWait, id, text)
    });
    idle.into_iter().chain(stalled).collect()
}

fn about_input(records: &Records, now: Time) -> Vec<Advisory> {
    let mut found = Vec::new();
    let state = &records.state;
    if let Some(message) = &records.inbox.head {
        if matches!(state.status, Status::Asleep | Status::AwaitingTask) {
            let text = format!("asleep, but {} is queued: the next tick takes it", message.id);
            found.push(Advisory::new(AdvisoryKind::IdlePostureHasQueuedInput, message.id, text));
        }
        let times = message.setbacks.interruptions;
        let often = if message.attempt > OFTEN {
            Some(format!("{} is at attempt {}", message.id, message.attempt))
        } else {
            (times > OFTEN).then(|| format!("{} was interrupted {times} times in a row", message.id))
        };
        found.extend(often.map(|text| Advisory::new(AdvisoryKind::MessageRetriedOften, message.id, text)));
    }
    if let Some(late) = overdue(records, now) {
        let agent = &state.agent;
        let text = format!(
            "no process ticks: {}; `dormouse tick {agent}` runs one step, `dormouse service` prints a configuration that runs them",
            late.describe(now)
        );
        found.push(Advisory::new(AdvisoryKind::NobodyTicks, agent, text));
    }
    if let Some(newest) = state.set_aside.newest.last() {
        let ids: Vec<String> =
            state.set_aside.newest.iter().map(|kept| kept.message_id.to_string()).collect();
        let text = format!(
            "{} said, and set aside until the agent continues: {}; `dormouse enqueue {} TEXT` makes it look now",
            state.set_aside.count,
            ids.join(", "),
            state.agent
        );
        found.push(Advisory::new(AdvisoryKind::InputSetAside, newest.message_id, text));
    }
    found
}

fn about_wait(wait: &Wait) -> Vec<Advisory> {
    let Wait { id, reason, agent, .. } = wait;
    let mut found = Vec::new();
    let mut warn = |kind, text| found.push(Advisory::new(kind, id, text));
    if let Some(message) = wait.lost_answer {
        warn(
            AdvisoryKind::AnswerLost,
            format!(
                "{message} would have ended {id}, and no turn has completed for it: {reason}; say it again, or `dormouse queue requeue {message}`"
            ),
        );
    }
    let has_no_deadline = wait.recheck_at.is_none() && wait.expires_at.is_none();
    let names_nothing = wait.resource.is_none() && wait.source.is_none() && wait.trigger_id.is_none();
    let is_endless = wait.kind == WaitKind::External || wait.kind == WaitKind::System && has_no_deadline;
    if names_nothing && is_endless {
        warn(
            AdvisoryKind::WaitWithoutSubject,
            format!(
                "{id} names no resource and no source: {reason}; `dormouse wake {agent} --wait {id}` ends it"
            ),
        );
    }
    if wait.kind != WaitKind::External {
        return found;
    }
    match wait.recoverability() {
        Recoverability::Weak => warn(
            AdvisoryKind::ExternalWaitHasWeakRecoverability,
            format!("{id} has no recheck, no expiry and no durable source: {reason}"),
        ),
        Recoverability::ExplicitNoFallback => {
            let why = wait.no_fallback.as_deref().unwrap_or_default();
            warn(
                AdvisoryKind::ExternalWaitHasNoFallback,
                format!("{id} says that it has no fallback: {why}"),
            );
        }
        Recoverability::Recoverable => {}
    }
    found
}
