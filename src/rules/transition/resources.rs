//! A claim that finds a resource missing: the message stays claimed, and no turn runs (contract, execution §8).

use serde_json::json;

use crate::model::agent::Status;
use crate::model::continuation::Continuation;
use crate::model::decision::DecisionReport;
use crate::model::event::EventKind;
use crate::model::execution::ExecutionState;
use crate::model::id::RunId;
use crate::model::message::Message;
use crate::model::refusal::Refusal;
use crate::model::resource::Shortage;
use crate::model::state::Held;
use crate::model::time::Time;

use crate::rules::retry::delay;

use super::draft::Draft;
use super::inbox::admitted;
use super::rest::decided;
use super::start::{hook_state, to_running};

/// Puts a claim off for want of a resource. Its attempt does not count.
///
/// A claim that lacks what it lacked before changes nothing until it is time to look again, and
/// then only says when to look next. One that lacks something else begins to wait anew.
pub fn lack(
    draft: &mut Draft,
    message: &Message,
    continuation: Continuation,
    shortage: &Shortage,
    report: &DecisionReport,
) -> Result<(), Refusal> {
    let before = draft.records.state.held.clone();
    let waits = draft.records.state.execution.state == ExecutionState::WaitingResources;
    let again = before.as_ref().filter(|held| waits && held.resource == Some(shortage.resource));
    let deferrals = again.map_or(0, |held| held.deferrals) + 1;
    let (missing, resource) = (shortage.describe(), Some(shortage.resource));
    let not_before = look_again(draft, shortage, deferrals);
    let mut held = match before.clone() {
        Some(held) => Held { missing, resource, not_before, deferrals, ..held },
        None => Held {
            message_id: message.id,
            missing,
            resource,
            not_before,
            continuation,
            deferrals,
            checkpoint: message.checkpoint,
            entered: None,
        },
    };
    if let Some(again) = again {
        let unchanged = if shortage.resource.is_limit() {
            again.not_before == held.not_before
        } else {
            again.not_before.is_some_and(|at| draft.now() < at)
        };
        if !unchanged {
            draft.hold(held);
        }
        return Ok(());
    }
    // A message that was claimed before has been told of.
    if before.is_none() && message.attempt == 1 && message.continuation.is_none() {
        admitted(draft, message);
    }
    decided(draft, report);
    held.entered = hook_state(draft.records.state.execution.state, held.entered);
    to_running(draft, message.id)?;
    draft.enter(ExecutionState::WaitingResources, Some(message.id), &held.missing)?;
    draft.hold(held);
    draft.set_status(Status::AwakeIdle);
    Ok(())
}

/// Records that a stopped run has left its workspace.
pub fn released(draft: &mut Draft, run_id: RunId, path: &str) {
    draft.event(EventKind::WorkspaceReleased, Some(run_id), json!({ "path": path }));
}

/// When it is back, if that is known. What others have may be back at any time: every step looks,
/// and whoever waits for the next one looks more and more rarely.
fn look_again(draft: &Draft, shortage: &Shortage, deferrals: u32) -> Option<Time> {
    if shortage.resource.is_limit() {
        return shortage.back_at;
    }
    let pause = delay(&draft.records.policy.recovery, deferrals, draft.stamp.chance);
    Some(draft.now().after(pause))
}
