//! Warnings for people (contract, semantics §15). No decision reads them.

use serde::Serialize;

use crate::model::agent::Status;
use crate::model::records::Records;
use crate::model::time::Time;
use crate::model::wait::{Recoverability, WaitKind};
use crate::model::work::{SchedulingState, WorkState};

use super::work::{WaitsByItem, scheduling_state};

/// After how many attempts a message counts as retried often.
const OFTEN: u32 = 3;

/// One warning: its word of the contract, and what it is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Advisory {
    pub kind: &'static str,
    pub message: String,
}

/// Everything worth a warning, in a fixed order.
pub fn advisories(records: &Records, now: Time) -> Vec<Advisory> {
    let mut found = Vec::new();
    let mut say = |kind, message| found.push(Advisory { kind, message });
    let resting = matches!(records.state.status, Status::Asleep | Status::AwaitingTask);
    let waits = WaitsByItem::of(&records.waits);
    for item in &records.works {
        let state = scheduling_state(item, &waits);
        if resting && state == SchedulingState::Runnable {
            say(
                "idle_posture_has_runnable_work",
                format!("asleep, but {} is runnable: {}", item.id, item.objective),
            );
        }
        let stuck = item.state == WorkState::Open
            && item.blocked_by.is_some()
            && item.recheck_at.is_none()
            && waits.on(item.id).is_empty();
        if stuck {
            say(
                "blocked_work_item_without_recheck_or_wait",
                format!("nothing will bring {} back: {}", item.id, item.objective),
            );
        }
    }
    if resting && let Some(message) = &records.inbox.head {
        say(
            "idle_posture_has_queued_input",
            format!("asleep, but {} is queued: the next tick takes it", message.id),
        );
    }
    for wait in records.waits.iter().filter(|wait| wait.is_active()) {
        if wait.kind == WaitKind::External {
            match wait.recoverability() {
                Recoverability::Weak => say(
                    "external_wait_has_weak_recoverability",
                    format!("{} has no recheck, no expiry and no durable source: {}", wait.id, wait.reason),
                ),
                Recoverability::ExplicitNoFallback => say(
                    "external_wait_has_no_fallback",
                    format!(
                        "{} says that it has no fallback: {}",
                        wait.id,
                        wait.no_fallback.as_deref().unwrap_or_default()
                    ),
                ),
                Recoverability::Recoverable => {}
            }
        }
        if wait.kind == WaitKind::External && wait.resource.is_none() && wait.source.is_none() {
            say(
                "wait_without_subject",
                format!("{} names no resource and no source: {}", wait.id, wait.reason),
            );
        }
    }
    if let Some(message) = records.inbox.head.iter().find(|message| message.attempt > OFTEN) {
        say("message_retried_often", format!("{} is at attempt {}", message.id, message.attempt));
    }
    if let (Some(expected), Some(message)) = (records.policy.expect.tick_every.0, &records.inbox.head) {
        let idle = records.state.current_run.is_none() && records.state.status != Status::Stopped;
        let age = now.since(message.created_at);
        if idle && age > expected {
            say(
                "nobody_ticks",
                format!("{} has waited {age}, and a tick is expected every {expected}", message.id),
            );
        }
    }
    found
}
