//! Transitions `create`, `start`, `stop` and `fail` of an agent (contract, semantics §14).

use serde_json::json;

use crate::model::agent::Status;
use crate::model::attention::{AttentionSubject, Subject};
use crate::model::event::{Boundary, EventKind};
use crate::model::execution::{Execution, ExecutionState};
use crate::model::id::{AgentName, MessageId, RunId};
use crate::model::message::Origin;
use crate::model::policy::Policy;
use crate::model::records::Records;
use crate::model::refusal::Refusal;
use crate::model::setbacks::Setbacks;
use crate::model::stamp::Stamp;
use crate::model::state::{HeldRun, State};
use crate::model::time::{Span, Time};
use crate::model::transaction::Transaction;

use crate::rules::authority;
use crate::rules::execution::{INIT_TIMEOUT, check, overdue, way_on};

use super::attempt::release;
use super::draft::Draft;
use super::gate::{close, control};
use super::hints::ignore_hints;
use super::recovery;
use super::resources::{fail_held, let_go, release_hold, try_anew};

/// Returns the state of a new agent with the status `booting`.
pub fn new_state(agent: AgentName, now: Time) -> State {
    let state = ExecutionState::Initializing;
    State::new(agent, Execution { state, since: now, task_id: None, reason: None })
}

/// Returns the first transaction of a new agent, whose status is `booting`.
pub fn create(agent: AgentName, policy: Policy, stamp: Stamp) -> Result<Transaction, Refusal> {
    let records = Records::new(policy, new_state(agent, stamp.now));
    let mut draft = Draft::new(records, stamp);
    let data = json!({ "status": Status::Booting, "boundary": Boundary::Bootstrap });
    draft.event(EventKind::AgentCreated, None, data);
    draft.finish()
}

/// Begins a start whose hook runs before the agent takes up messages. For a new agent,
/// `timeouts.init` counts from now. Refused if `by` may not start the agent.
pub fn begin_start(draft: &mut Draft, by: &Origin) -> Result<(), Refusal> {
    may_start(&draft.records.state, by)?;
    let now = draft.now();
    let execution = &mut draft.records.state.execution;
    if execution.state == ExecutionState::Initializing {
        (execution.since, execution.reason) = (now, Some("start".to_owned()));
        draft.touch();
    }
    Ok(())
}

/// Refuses to start an agent without a turn command, because every message would fail.
pub fn refuse_without_command(draft: &Draft) -> Result<(), Refusal> {
    let state = &draft.records.state;
    if !is_closed(state) || draft.records.policy.turn.command.is_some() {
        return Ok(());
    }
    Err(Refusal::new("no_command", format!("`{}` has no turn command", state.agent))
        .hint("say in its agent.toml what it runs, below [turn]: command = [\"./turn.sh\"]"))
}

/// Gives up a start that exceeded its timeout: the execution fails, and the agent is stopped. After
/// a later start, the recovery waits until the end of a pause.
pub fn end_late_start(draft: &mut Draft) -> Result<(), Refusal> {
    let state = &draft.records.state;
    let overdue = overdue(state, &draft.records.policy.timeouts, draft.now());
    if let Some(reason) = overdue.filter(|_| state.status == Status::Booting) {
        draft.enter(ExecutionState::Failed, None, reason)?;
        recovery::pause(draft, reason);
        draft.set_status(Status::Stopped, Boundary::Bootstrap);
        draft.raise(Subject::AgentStopped, AttentionSubject::default(), reason);
        draft.records.state.stopped_by = Some(authority::agent(&draft.records.state.agent));
    }
    Ok(())
}

/// True if the next start is a first start: no start has completed, or the first was given up.
pub fn is_uninitialized(state: &State) -> bool {
    let execution = &state.execution;
    // After an operator has used `fail` with the reason `init_timeout`, `retry` names a message.
    let given_up = execution.state == ExecutionState::Failed
        && execution.reason.as_deref() == Some(INIT_TIMEOUT)
        && state.retry.as_ref().is_none_or(|retry| retry.message_id.is_none());
    execution.state == ExecutionState::Initializing || given_up
}

/// True if the agent takes up no message, because it was never started or is stopped.
pub fn is_closed(state: &State) -> bool {
    matches!(state.status, Status::Booting | Status::Stopped)
}

/// Starts an agent that was never started or is stopped, so that steps claim its messages. Changes
/// nothing for any other agent. Sends no message and runs no turn.
pub fn start(draft: &mut Draft, by: &Origin) -> Result<(), Refusal> {
    let previous = draft.records.state.status;
    if !is_closed(&draft.records.state) {
        return Ok(());
    }
    may_start(&draft.records.state, by)?;
    let boundary = if previous == Status::Booting { Boundary::Bootstrap } else { Boundary::Control };
    control(draft, ("start", boundary), Status::AwakeIdle, by, None);
    draft.set_status(Status::AwakeIdle, boundary);
    draft.records.state.stopped_by = None;
    if previous == Status::Stopped {
        ignore_hints(draft, "stopped");
    }
    draft.acknowledge(|seen| seen.subject == Subject::AgentStopped);
    if draft.records.state.execution.state == ExecutionState::Initializing {
        draft.enter(ExecutionState::Runnable, None, "start")?;
    }
    // While the agent was stopped, no step could try a held run, so the next step tries it at once.
    try_anew(draft);
    Ok(())
}

fn may_start(state: &State, by: &Origin) -> Result<(), Refusal> {
    match state.status {
        Status::Stopped if state.current_run.is_some() => {
            let message = format!("`{}` is still being stopped", state.agent);
            Err(Refusal::action(state.execution.state, ExecutionState::Runnable, message)
                .hint("finish it with `dormouse stop`"))
        }
        Status::Stopped => authority::may_start(state, by),
        Status::Booting
        | Status::AwakeIdle
        | Status::AwakeRunning
        | Status::AwaitingTask
        | Status::Asleep => Ok(()),
    }
}

/// Stops the agent, so that no message is claimed. Returns true if it was not stopped before.
///
/// A held run stays held, unless `requeue` puts its message back into the queue. A live run is
/// marked as stopping; the caller then calls `gate::shut_down`, and `turn::finish_stop` when the
/// processes have ended. Until then another stop may still request `requeue`. If the operator stops
/// an agent that is already stopped, only the operator can start it.
pub fn stop(
    draft: &mut Draft,
    grace: Span,
    requeue: bool,
    reason: Option<String>,
    by: &Origin,
) -> Result<bool, Refusal> {
    if requeue {
        requeue_held(draft)?;
    }
    Ok(close(draft, grace, requeue, reason, by))
}

/// Puts the message of a held run back into the queue, at the same attempt. Resets its setbacks.
fn requeue_held(draft: &mut Draft) -> Result<(), Refusal> {
    let Some(held) = let_go(draft, "stopped: its message goes back to the queue")? else { return Ok(()) };
    let Some(message) = draft.records.inbox.claimed.clone() else { return Ok(()) };
    draft.event(EventKind::MessageRequeued, None, json!({ "message_id": message.id }));
    release(draft, message, HeldRun { setbacks: Setbacks::default(), ..held });
    Ok(())
}

/// Subject of a call of `fail`: a run, the attempt of a held run, or a recovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Given {
    /// Live run. The caller ends its processes, and the run is settled afterwards.
    Run(RunId),
    /// Attempt of a held run; its failure is already recorded.
    Held(MessageId),
    /// Recovery of the agent; its failure is already recorded.
    Recovery,
}

/// Marks the live run as failed, also during its shutdown, or fails the held run or recovery.
pub fn fail(draft: &mut Draft, reason: &str, by: &Origin) -> Result<Given, Refusal> {
    if reason.trim().is_empty() {
        return Err(Refusal::usage("empty_reason", "the reason is empty: say why the attempt has failed"));
    }
    let state = &mut draft.records.state;
    let (status, from) = (state.status, state.execution.state);
    let given = if let Some(run) = &mut state.current_run {
        run.condemned = Some(reason.to_owned());
        Given::Run(run.run_id)
    } else if let Some(held) = &state.held {
        Given::Held(held.message_id)
    } else if from == ExecutionState::Recovering {
        Given::Recovery
    } else {
        check(from, ExecutionState::Failed).map_err(|refusal| refusal.hint(way_on(state)))?;
        let message = format!(
            "`{}` is {from}: only what runs, waits, shuts down or recovers can be failed",
            state.agent
        );
        return Err(Refusal::action(from, ExecutionState::Failed, message).hint(way_on(state)));
    };
    control(draft, ("fail", Boundary::Control), status, by, Some(reason));
    match given {
        Given::Run(_) => {}
        Given::Held(_) => fail_held(draft, reason)?,
        Given::Recovery => recovery::fail(draft, reason)?,
    }
    Ok(given)
}

/// Makes the next step try a held message that waits for resources, at the operator's request.
pub fn retry_held(draft: &mut Draft, by: &Origin) -> Result<(), Refusal> {
    let status = draft.records.state.status;
    release_hold(draft);
    if !try_anew(draft) {
        return Err(recovery::nothing_to_recover(&draft.records.state));
    }
    control(draft, ("recover", Boundary::Control), status, by, None);
    Ok(())
}
