//! Resources that a turn needs: checked before a claim, and occupied until the run is settled
//! (contract, execution §8).

use std::time::Duration;

use crate::error::{Error, Result, describe};
use crate::local::{LockGuard, Occupant, Sharing, Subject, anchor::Workspace};
use crate::model::agent::Status;
use crate::model::execution::ExecutionState;
use crate::model::id::{AgentName, RunId};
use crate::model::policy::{Policy, WorkspaceMode};
use crate::model::preemption::Critical;
use crate::model::records::Records;
use crate::model::resource::{Resource, Shortage};
use crate::model::state::{CurrentRun, State};
use crate::model::time::{Span, Time};
use crate::process::leftover::LeftoverProcesses;
use crate::process::{ProcessMark, wait_until};
use crate::rules::preemption::ends_soon;
use crate::rules::priority::{Occupying, to_make_way};
use crate::rules::step::{self, Next, Step, Tried};
use crate::rules::transition::draft::Draft;
use crate::rules::transition::preemption as rules;
use crate::rules::transition::resources::released;
use crate::store::{Agent, Slot, Store};

use super::context::Context;
use super::hooks::{self, HookEvent, HookName};
use super::owner::away;

/// Locks that a turn holds: on its workspace, and on a slot, of which `max_running` exist.
#[derive(Debug, Default)]
pub struct TurnResources {
    _workspace: Option<LockGuard>,
    _slot: Option<Slot>,
}

/// Reason for which the workspace and the slot of a turn are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Intent {
    /// A dry run, which only checks and creates no file.
    Look,
    /// A step, which occupies the workspace and the slot.
    Take,
}

/// Runs a step up to its decision. If the decision is to claim a message, checks if the resources
/// of the turn are free; if one is not, the step decides again with that shortage as a fact.
pub fn step(agent: &Agent<'_>, draft: Draft, tried: Tried, purpose: Intent) -> Result<(Step, TurnResources)> {
    let step = step::step(draft, tried)?;
    let is_claim = matches!(&step.next, Next::Decided(decision) if decision.is_claim());
    if !is_claim {
        return Ok((step, TurnResources::default()));
    }
    Ok(match take(agent, &step.draft.records, step.draft.now(), purpose)? {
        Ok(grant) => (step, grant),
        Err(shortage) => (step.lacking(shortage, tried), TurnResources::default()),
    })
}

fn take(
    agent: &Agent<'_>,
    records: &Records,
    now: Time,
    purpose: Intent,
) -> Result<Result<TurnResources, Shortage>> {
    let store = agent.store();
    let policy = &records.policy;
    let mut grant = TurnResources::default();
    if policy.turn.command.is_none() {
        let evidence = vec![format!("{} names no turn.command", agent.settings())];
        return Ok(Err(Shortage { resource: Resource::Command, evidence, back_at: None, is_occupied: true }));
    }
    if let Some(held) = &records.state.held
        && let (Some(other), Some(resource)) = (&held.made_way_for, held.resource)
        && still_waits(store, other, now)
    {
        let evidence = vec![format!("kept for {other}, for which this run made way")];
        return Ok(Err(Shortage { resource, evidence, back_at: None, is_occupied: true }));
    }
    if let Some(mode) = policy.workspace.mode {
        match workspace(agent, &policy.workspace.path, mode, now, purpose)? {
            Ok(held) => grant._workspace = held,
            Err(shortage) => return Ok(Err(shortage)),
        }
    }
    // The slot (right to run a turn) comes last: an agent that waits for its workspace needs none.
    if let Some(slots) = store.local().config.scheduler.max_running {
        match slot(agent, slots.get(), now, purpose)? {
            Ok(held) => grant._slot = held,
            Err(shortage) => return Ok(Err(shortage)),
        }
    }
    Ok(Ok(grant))
}

/// Resource that was occupied; `None` if it is free and was only checked.
type GrantedResource<T> = Result<Option<T>, Shortage>;

fn workspace(
    agent: &Agent<'_>,
    path: &str,
    mode: WorkspaceMode,
    now: Time,
    purpose: Intent,
) -> Result<GrantedResource<LockGuard>> {
    let store = agent.store();
    let lacks = |evidence, is_occupied| Shortage {
        resource: Resource::Workspace,
        evidence,
        back_at: None,
        is_occupied,
    };
    let found = match store.anchor().workspace(path) {
        Ok(found) => found,
        // The disk may be mounted later, so the message waits and its attempt is not used up.
        Err(error) => {
            let why = format!("{}: {}", store.anchor().leads_to(path).display(), describe(&error));
            return Ok(Err(lacks(vec![why], false)));
        }
    };
    let sharing = match mode {
        WorkspaceMode::Exclusive => Sharing::Exclusive,
        WorkspaceMode::Shared => Sharing::Shared,
    };
    let free = match purpose {
        Intent::Take => store.local().occupy(&found, sharing)?.map(Some),
        Intent::Look => store.local().is_vacant(&found, sharing)?.then_some(None),
    };
    let Some(held) = free else {
        let (evidence, is_known) = occupied(store, &found);
        return Ok(Err(lacks(evidence, is_known)));
    };
    let last = store.local().occupant(&found).agent.filter(|last| last != agent.name());
    if let Some(evidence) = last.map(|last| leftovers(store, &last, &found, now)).transpose()?.flatten() {
        return Ok(Err(lacks(evidence, false)));
    }
    // `leftovers` needs the name of the last agent, so the lock file is overwritten only now.
    if let Some(held) = &held {
        store.local().sign(held, agent.name(), now);
    }
    Ok(Ok(held))
}

fn slot(agent: &Agent<'_>, slots: u32, now: Time, purpose: Intent) -> Result<GrantedResource<Slot>> {
    let store = agent.store();
    let free = match purpose {
        Intent::Take => store.take_slot(slots, agent.name(), now)?.map(Some),
        Intent::Look => store.has_slot(slots, agent.name())?.then_some(None),
    };
    if let Some(held) = free {
        return Ok(Ok(held));
    }
    let runs: Vec<_> =
        store.slot_holders(slots).into_iter().map(|holder| (run_of(store, &holder), holder)).collect();
    let names: Vec<String> = runs
        .iter()
        .map(|(_, holder)| {
            holder.agent.as_ref().map_or_else(|| holder.described.clone(), ToString::to_string)
        })
        .collect();
    let used = format!("all {slots} in use (scheduler.max_running)");
    let mut evidence = vec![used, format!("by {}", names.join(", "))];
    let ends: Option<Vec<Time>> =
        runs.iter().map(|(run, _)| run.as_ref().map(|run| run.lease_expires_at)).collect();
    let first = ends.as_ref().and_then(|ends| ends.iter().min());
    evidence.extend(first.map(|first| format!("until {first} at the latest")));
    Ok(Err(Shortage { resource: Resource::Slot, evidence, back_at: None, is_occupied: ends.is_some() }))
}

/// Time after its next check for which a resource stays reserved for an agent that waits for it.
const RESERVED_FOR: Span = Span::from_secs(60);

/// True if the agent for which this agent's turn has yielded still waits for a resource.
fn still_waits(store: &Store, other: &AgentName, now: Time) -> bool {
    let Ok(state) = store.agent(other).and_then(|other| other.peek()) else { return false };
    let held = state.held.filter(|held| held.resource.is_some_and(|resource| !resource.is_limit()));
    let looks_until = held.and_then(|held| held.not_before).map(|at| at.after(RESERVED_FOR));
    state.status != Status::Stopped
        && state.execution.state == ExecutionState::WaitingResources
        && looks_until.is_some_and(|until| now <= until)
}

/// Returns the running turns that occupy the resource that an agent lacks, as far as known. Of the
/// agents in a shared workspace only the last to come is known.
pub fn occupying(agent: &Agent<'_>, lacked: Resource, now: Time) -> Result<Vec<Occupying>> {
    let store = agent.store();
    let holders: Vec<AgentName> = match lacked {
        Resource::Slot => {
            let Some(slots) = store.local().config.scheduler.max_running else { return Ok(Vec::new()) };
            // A slot is free, so no turn has to yield.
            if store.has_slot(slots.get(), agent.name())? {
                return Ok(Vec::new());
            }
            store.slot_holders(slots.get()).into_iter().filter_map(|holder| holder.agent).collect()
        }
        Resource::Workspace => {
            let Ok(workspace) = store.anchor().workspace(&agent.policy()?.workspace.path) else {
                return Ok(Vec::new());
            };
            store.local().occupant(&workspace).agent.into_iter().collect()
        }
        Resource::Command
        | Resource::TurnsPerHour
        | Resource::TurnsPerDay
        | Resource::CostPerDay
        | Resource::TokensPerDay => Vec::new(),
    };
    Ok(holders.iter().filter_map(|name| running_turn(store, name, now, |_, _| true)).collect())
}

/// Returns the running turns on this machine whose policy makes them yield when memory or disk is
/// low. Unreadable agents are omitted.
pub fn yielding_when_low(store: &Store, now: Time) -> Result<Vec<Occupying>> {
    let gives_way =
        |policy: &Policy, is_here: bool| is_here && policy.preemption.critical != Critical::default();
    let names = store.agents()?;
    Ok(names.iter().filter_map(|name| running_turn(store, name, now, gives_way)).collect())
}

fn running_turn(
    store: &Store,
    name: &AgentName,
    now: Time,
    counts: impl FnOnce(&Policy, bool) -> bool,
) -> Option<Occupying> {
    let agent = store.agent(name).ok()?;
    let run = agent.peek().ok()?.current_run?;
    // The tick of the recorded run may have been killed, so the run's lease is checked, too.
    let is_here = away(&agent, &run, now).ok()?.is_none();
    let is_live = !is_here || agent.is_leased(Subject::Run).ok()?;
    let policy = agent.policy().ok().filter(|policy| is_live && counts(policy, is_here))?;
    Some(Occupying {
        agent: name.clone(),
        run_id: run.run_id,
        priority: i32::from(policy.scheduler.priority),
        claimed_at: run.claimed_at,
        asked_by: run.preemption.as_ref().and_then(|request| request.asked_by.clone()),
        leaves: ends_soon(&run),
    })
}

/// Returns the current run of the agent that occupies a resource, if known.
fn run_of(store: &Store, occupant: &Occupant) -> Option<CurrentRun> {
    store.agent(occupant.agent.as_ref()?).and_then(|other| other.peek()).ok()?.current_run
}

/// Returns text about the agent that occupies a workspace, its run and the latest end of the run.
/// The second value is true if a run is known.
fn occupied(store: &Store, workspace: &Workspace) -> (Vec<String>, bool) {
    let occupant = store.local().occupant(workspace);
    let place = workspace.path.display();
    match (&occupant.agent, run_of(store, &occupant)) {
        (None, _) => (vec![format!("{place} is held by {}", occupant.described)], false),
        (Some(name), Some(run)) => {
            let until = format!("until {} at the latest", run.lease_expires_at);
            (vec![format!("{place} is held by {name}"), run.run_id.to_string(), until], true)
        }
        // Several agents share the workspace. The one that the lock file names has left, and the
        // others are not named in any file.
        (Some(name), None) => (vec![format!("{place} is held, and {name} was the last to come")], false),
    }
}

/// Returns text if processes of a killed tick of `last` may still work in a workspace whose lock is
/// free. Until the next step of `last` ends them, the workspace counts as occupied.
fn leftovers(
    store: &Store,
    last: &AgentName,
    workspace: &Workspace,
    now: Time,
) -> Result<Option<Vec<String>>> {
    let Ok(other) = store.agent(last) else { return Ok(None) };
    let Some(run) = other.peek().ok().and_then(|state| state.current_run) else { return Ok(None) };
    if away(&other, &run, now)?.is_some() || other.is_leased(Subject::Run)? {
        return Ok(None);
    }
    let leader = other.local().run(run.run_id).leader();
    if LeftoverProcesses::find(&ProcessMark::run(run.run_id), &leader)?.is_gone() {
        return Ok(None);
    }
    Ok(Some(vec![
        format!("{} is held by processes of an interrupted turn of {last}", workspace.path.display()),
        run.run_id.to_string(),
        format!("until the next step of {last}"),
    ]))
}

/// Time that the tick of a stopped run gets to release its locks.
const RELEASE_GRACE: Duration = Duration::from_secs(2);

/// Waits until the agent's workspace is released after a stop, and records the release. Error when
/// the workspace is still occupied after `RELEASE_GRACE`.
pub fn release(context: Context<'_>, run_id: RunId) -> Result<()> {
    let agent = context.agent;
    let store = context.store();
    let policy = agent.policy()?.workspace;
    // Without `[workspace]`, or if that directory is missing, nothing is occupied.
    let (Some(mode), Ok(workspace)) = (policy.mode, store.anchor().workspace(&policy.path)) else {
        return Ok(());
    };
    let is_free = wait_until(RELEASE_GRACE, || {
        let is_ours = || store.local().occupant(&workspace).agent.as_ref() == Some(agent.name());
        Ok(mode != WorkspaceMode::Exclusive
            || store.local().is_vacant(&workspace, Sharing::Exclusive)?
            || !is_ours())
    })?;
    if !is_free {
        let Occupant { described, .. } = store.local().occupant(&workspace);
        let message = format!("{} is not released: {described} still has it", workspace.path.display());
        return Err(Error::failed(message).with_hint("the agent is stopped; end that process"));
    }
    context.update(|draft| released(draft, run_id, &workspace.path.to_string_lossy()))
}

/// Asks the least urgent turn that occupies the lacked resource to yield, if this agent is more
/// urgent by `preempt_margin`. Must be called without a lock, because the request takes the lock of
/// the other agent. If that lock is busy, the next step retries.
pub fn ask_to_yield(context: Context<'_>, priority: i32, lacked: Resource) {
    let asked = try_to_ask(context, priority, lacked);
    if let Err(error) = asked {
        context.session.out.note(&format!("{}: {error}", context.agent.name()));
    }
}

fn try_to_ask(context: Context<'_>, priority: i32, lacked: Resource) -> Result<()> {
    let Context { session, agent } = context;
    let store = context.store();
    let Some(margin) = store.local().config.scheduler.preempt_margin else { return Ok(()) };
    let turns = occupying(agent, lacked, session.clock.now())?;
    let Some(turn) = to_make_way(agent.name(), priority, margin.get(), &turns) else { return Ok(()) };
    let other = store.agent(&turn.agent)?;
    let asked = Context::new(session, &other).try_change(|draft| {
        let grace = draft.records.policy.preemption.grace;
        rules::request_resource(draft, turn.run_id, agent.name(), lacked, grace)
    })?;
    let Some(asked) = asked.filter(|asked| asked.made) else { return Ok(()) };
    session.out.detail(&format!("{}: asked {} for its {lacked}", agent.name(), turn.agent));
    run_preempt_hook(Context::new(session, &other), &asked.state);
    Ok(())
}

/// Runs the hook of a request to yield. The request must be committed before.
pub fn run_preempt_hook(context: Context<'_>, state: &State) {
    let request = state.current_run.as_ref().and_then(|run| run.preemption.as_ref());
    if let Some(hook) = hooks::find(context, HookName::OnPreemptRequest) {
        let reason = request.map(|request| request.reason.clone());
        let event = HookEvent::of(state, ExecutionState::Suspended, reason);
        hooks::report_failure(context.session, hook.run(&event));
    }
}
