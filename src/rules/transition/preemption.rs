//! Preemption: a run is asked to yield, yields, is suspended and resumed, or is forced to end
//! (contract, execution §6).

use serde_json::json;

use crate::model::agent::Status;
use crate::model::event::{Boundary, EventKind};
use crate::model::execution::ExecutionState;
use crate::model::id::{AgentName, RunId};
use crate::model::message::{Message, MessageStatus, Settlement};
use crate::model::preemption::{Checkpoint, Preemption, Section};
use crate::model::refusal::Refusal;
use crate::model::resource::Resource;
use crate::model::state::{CurrentRun, HeldRun, State};
use crate::model::time::{Span, Time};
use crate::model::transaction::Put;

use crate::rules::execution::{check, way_on};
use crate::rules::preemption::{ends_soon, force_at, is_being_ended, is_overdue, why_suspended};
use crate::rules::waits::satisfied;

use super::arrival::admitted;
use super::attempt::held_after;
use super::draft::Draft;
use super::resources::needs_operator;
use super::settlement::settle_message;
use super::wait::bind;

/// Failure reason of a run that was forced to end because it did not yield in time.
pub const FORCED: &str = "forced_preemption";

/// Asks the live run to yield. If requests are repeated, the latest request determines the reason
/// and the length of the suspension, and the earliest deadline counts.
pub fn request(
    draft: &mut Draft,
    reason: String,
    grace: Span,
    resume_after: Option<Span>,
) -> Result<(), Refusal> {
    let now = draft.now();
    let no_turn = no_live_turn(&draft.records.state);
    let from = draft.records.state.execution.state;
    let Some(run) = &mut draft.records.state.current_run else { return Err(no_turn) };
    if is_being_ended(run) {
        let message = format!("{} is being ended already", run.run_id);
        return Err(Refusal::action(from, ExecutionState::Suspended, message));
    }
    if reason.trim().is_empty() {
        return Err(Refusal::usage("empty_reason", "the reason is empty: say why the turn should yield"));
    }
    let force_at = now.after(grace);
    let pending = run.preemption.take();
    let request = Preemption {
        requested_at: pending.as_ref().map_or(now, |pending| pending.requested_at),
        force_at: pending.map_or(force_at, |pending| pending.force_at.min(force_at)),
        reason,
        resume_after,
        asked_by: None,
        needed: None,
    };
    let data = json!({
        "reason": request.reason,
        "force_at": request.force_at,
        "resume_after": request.resume_after,
    });
    run.preemption = Some(request);
    let run_id = run.run_id;
    draft.event(EventKind::PreemptionRequested, Some(run_id), data);
    Ok(())
}

/// Asks a run to release a resource to a more urgent agent. Returns `false` if the run has ended or
/// is about to release the resource anyway.
pub fn request_resource(
    draft: &mut Draft,
    run_id: RunId,
    by: &AgentName,
    needed: Resource,
    grace: Span,
) -> Result<bool, Refusal> {
    let asked = current(draft, run_id).is_ok_and(|run| !ends_soon(run));
    if asked {
        request(draft, format!("{by} is more urgent and needs its {needed}"), grace, None)?;
        if let Some(request) = &mut current(draft, run_id)?.preemption {
            (request.asked_by, request.needed) = (Some(by.clone()), Some(needed));
        }
    }
    Ok(asked)
}

/// Returns the refusal of `preempt` when no turn runs.
pub fn no_live_turn(state: &State) -> Refusal {
    let message = format!("no turn of `{}` runs: there is nothing to preempt", state.agent);
    Refusal::action(state.execution.state, ExecutionState::Suspended, message)
}

/// Opens a critical section of the run. Nested sections are protected until the deadline of the
/// outermost; an inner section does not extend that deadline. `of_command`: the section ends when
/// the process that runs its command ends.
pub fn open_section(
    draft: &mut Draft,
    run_id: RunId,
    time: Span,
    of_command: bool,
) -> Result<Section, Refusal> {
    let now = draft.now();
    let time = time.min(draft.records.policy.preemption.max_section);
    let run = current(draft, run_id)?;
    let is_to_end = run.condemned.is_some() || run.told.is_some() || is_overdue(run, now);
    // Otherwise a turn that must end could open one critical section after another.
    if run.sections.is_empty() && is_to_end {
        return Err(Refusal::new("preemption_overdue", format!("{run_id} should have yielded already"))
            .hint("run `dormouse yield` and exit; `dormouse safe-point` tells a turn in time"));
    }
    let until = match run.sections.first() {
        Some(outermost) => outermost.until,
        // The grace period of a stop already protects the turn, and no critical section extends it.
        None if run.stopping.is_some() => now,
        None => now.after(time),
    };
    let number = run.sections.last().map_or(1, |innermost| innermost.number.saturating_add(1));
    let section = Section { number, until, of_command };
    run.sections.push(section);
    draft.touch();
    Ok(section)
}

/// Removes all open critical sections, because the command that ends the run does not wait for
/// their end. A stop that waited for a section kills after `grace` from now, or earlier.
pub fn cut_sections(draft: &mut Draft, grace: Span) {
    let kill_at = draft.now().after(grace);
    let Some(run) = draft.records.state.current_run.as_mut().filter(|run| !run.sections.is_empty()) else {
        return;
    };
    run.sections.clear();
    run.stopping.iter_mut().for_each(|stopping| stopping.kill_at = stopping.kill_at.min(kill_at));
    draft.touch();
}

/// Closes the critical sections of commands whose process is gone.
pub fn close_abandoned(draft: &mut Draft, is_abandoned: impl Fn(&CurrentRun, &Section) -> bool) {
    let Some(run) = &mut draft.records.state.current_run else { return };
    let open = run.sections.iter().filter(|section| !section.of_command || !is_abandoned(run, section));
    let open: Vec<Section> = open.copied().collect();
    if open.len() != run.sections.len() {
        run.sections = open;
        draft.touch();
    }
}

/// Records that the `tick` process asks the turn of this run to end and why, so that commands
/// inside the turn can read the reason. The first reason stays.
pub fn request_end(draft: &mut Draft, run_id: RunId, why: &str) {
    if let Ok(run) = current(draft, run_id)
        && run.told.is_none()
    {
        run.told = Some(why.to_owned());
        draft.touch();
    }
}

/// Closes the open critical section with this number; without a number, the innermost one.
pub fn close_section(draft: &mut Draft, run_id: RunId, number: Option<u32>) -> Result<Section, Refusal> {
    let run = current(draft, run_id)?;
    let at = match number {
        Some(number) => run.sections.iter().position(|section| section.number == number),
        None => run.sections.len().checked_sub(1),
    };
    let Some(at) = at else {
        return Err(Refusal::new("no_section", format!("{run_id} has no such section open"))
            .hint("`non-preemptible begin` opens one"));
    };
    let section = run.sections.remove(at);
    draft.touch();
    Ok(section)
}

/// Records a new checkpoint, even if the turn was told to end, and returns its identity. The caller
/// must write the checkpoint's file before the commit.
pub fn save(draft: &mut Draft, run_id: RunId) -> Result<Checkpoint, Refusal> {
    let checkpoint = next_checkpoint(current(draft, run_id)?);
    draft.event(EventKind::CheckpointSaved, Some(run_id), json!({ "checkpoint": checkpoint.number }));
    Ok(checkpoint)
}

/// Records that the turn asks to be suspended when it has ended; a stop or `fail` before that end
/// takes precedence. `pause`: length of the suspension. `saved`: makes a new checkpoint, whose file
/// the caller must write before the commit. Returns the message's last checkpoint.
pub fn give_way(
    draft: &mut Draft,
    run_id: RunId,
    saved: bool,
    pause: Option<Span>,
) -> Result<Option<Checkpoint>, Refusal> {
    let now = draft.now();
    let execution = draft.records.state.execution.state;
    let run = current(draft, run_id)?;
    // A turn that has done nothing yet can't yield: no edge leads from `scheduled` to `suspended`.
    if execution == ExecutionState::Scheduled {
        let message = format!("the turn of {run_id} has not begun: there is nothing to suspend");
        return Err(Refusal::action(execution, ExecutionState::Suspended, message)
            .hint("exit with a status other than 0: the turn does not start then"));
    }
    run.yielded_at.get_or_insert(now);
    run.resume_after = pause.or(run.resume_after);
    let resume_after = run.resume_after;
    if saved {
        next_checkpoint(run);
    }
    let checkpoint = run.checkpoint;
    let data = json!({ "checkpoint": saved, "resume_after": resume_after });
    draft.event(EventKind::RunYielded, Some(run_id), data);
    Ok(checkpoint)
}

fn next_checkpoint(run: &mut CurrentRun) -> Checkpoint {
    let last = run.checkpoint.filter(|last| last.run_id == run.run_id);
    let number = last.map_or(1, |last| last.number.saturating_add(1));
    let next = Checkpoint { run_id: run.run_id, number };
    run.checkpoint = Some(next);
    next
}

/// Forces a run to end. The caller has found that the run's deadline `over` has passed on the
/// monotonic clock, because the wall clock may have been set. Returns true if the caller must end
/// the run's processes; false if the run has another deadline by now.
pub fn force(draft: &mut Draft, run_id: RunId, over: Time) -> bool {
    let Ok(run) = current(draft, run_id) else { return false };
    if force_at(run) != Some(over) {
        return false;
    }
    // A run that has yielded is only slow to exit, so it is suspended as usual.
    if run.yielded_at.is_none() && run.condemned.is_none() {
        let reason = run.preemption.as_ref().map(|request| request.reason.clone());
        (run.condemned, run.forced) = (Some(FORCED.to_owned()), true);
        draft.event(EventKind::PreemptionForced, Some(run_id), json!({ "reason": reason }));
    }
    true
}

/// Hands messages to the running turn, and settles them, so that no other turn runs for them.
///
/// The messages answer the same waits as other messages from the operator. Those waits are bound to
/// the message that the turn runs for.
pub fn interject(draft: &mut Draft, run_id: RunId, messages: &[Message]) -> Result<(), Refusal> {
    let message_id = current(draft, run_id)?.message_id;
    let at = draft.now();
    for message in messages {
        let answered = satisfied(message, &draft.records.waits);
        bind(draft, message_id, &answered);
        let settlement =
            Settlement { run_id: Some(run_id), ..Settlement::new(MessageStatus::Interjected, at) };
        admitted(draft, message);
        settle_message(draft, message.clone(), settlement);
    }
    // The next run of the claimed message gets the interjected messages, too, because this turn may
    // be killed before it has read them.
    if let Some(claimed) = &mut draft.records.inbox.claimed {
        claimed.interjected.extend(messages.iter().map(|message| message.id));
        let claimed = Box::new(claimed.clone());
        draft.put(Put::Message(claimed));
    }
    Ok(())
}

/// Suspends a run that has yielded; its message stays claimed and the attempt is not counted. After
/// `recovery.max_deferrals` suspensions the message is held for the operator.
pub(super) fn suspend(draft: &mut Draft, run: &CurrentRun) -> Result<(), Refusal> {
    let reason = why_suspended(run);
    let request = run.preemption.as_ref();
    let made_way_for = request.and_then(|request| request.asked_by.clone());
    // A run that has made way for another agent gets a pause of zero, so that it resumes as soon as
    // the resource that it released is available again.
    let asked =
        request.and_then(|request| request.resume_after).or(made_way_for.as_ref().map(|_| Span::ZERO));
    // If both the request and the turn name a length of the suspension, the longer one counts.
    let pause = asked.max(run.resume_after);
    let policy = &draft.records.policy.recovery;
    let (most, longest) = (policy.max_deferrals, policy.max_deferral);
    let cut = pause
        .filter(|pause| *pause > longest)
        .map(|pause| format!(", for {longest} (recovery.max_deferral) and not for {pause}"));
    let missing = format!("suspended: {reason}{}", cut.unwrap_or_default());
    let setbacks = run.setbacks.suspended();
    let times = setbacks.suspensions;
    let held = held_after(run, setbacks);
    let held = if times >= most {
        let why = format!("suspended {times} times (recovery.max_deferrals): {reason}");
        draft.enter(ExecutionState::WaitingResources, Some(run.message_id), &why)?;
        needs_operator(draft, held, why)
    } else {
        draft.enter(ExecutionState::Suspended, Some(run.message_id), reason)?;
        let not_before = pause.map(|pause| draft.now().after(pause.min(longest)));
        let resource = request.and_then(|request| request.needed);
        HeldRun { missing, resource, not_before, made_way_for, ..held }
    };
    draft.records.state.held = Some(held);
    Ok(())
}

/// Lets a suspended run resume at the next step.
pub fn resume(draft: &mut Draft) -> Result<(), Refusal> {
    let now = draft.now();
    let state = &mut draft.records.state;
    check(state.execution.state, ExecutionState::Resumed).map_err(|refusal| refusal.hint(way_on(state)))?;
    let Some(held) = &mut state.held else {
        return Err(Refusal::new(
            "no_held_run",
            format!("`{}` holds no run that could continue", state.agent),
        )
        .hint("run `dormouse doctor`"));
    };
    // The run may resume from the start of its suspension on, so that a fast clock can't delay it.
    let at_once = state.execution.since.min(now);
    held.not_before = Some(held.not_before.map_or(at_once, |at| at.min(at_once)));
    // After this command, the run no longer waits for the agent that asked for the resource.
    held.made_way_for = None;
    let message_id = held.message_id;
    let data = json!({ "action": "resume", "message_id": message_id, "boundary": "control" });
    draft.event(EventKind::ControlApplied, None, data);
    if draft.records.state.status == Status::Asleep {
        draft.set_status(Status::AwakeIdle, Boundary::Control);
    }
    Ok(())
}

/// Returns the current run. Error when `run_id` is no longer current.
fn current(draft: &mut Draft, run_id: RunId) -> Result<&mut CurrentRun, Refusal> {
    let state = &mut draft.records.state;
    let agent = state.agent.clone();
    state.current_run.as_mut().filter(|run| run.run_id == run_id).ok_or_else(|| {
        Refusal::new("run_not_current", format!("{run_id} is no longer the current run of `{agent}`"))
    })
}
