//! `start` and `stop`: the gate, and what stands behind it (contract, execution §10).

use std::time::{Duration, Instant};

use serde_json::json;

use crate::cli;
use crate::error::{Error, Result, Status};
use crate::model::agent::Status as AgentStatus;
use crate::model::execution::ExecutionState;
use crate::model::id::{AgentName, RunId, TaskId};
use crate::model::message::Origin;
use crate::model::policy::{FirstTold, PreemptionPolicy};
use crate::model::run::Terminal;
use crate::model::state::{CurrentRun, State};
use crate::model::submission::CalledBy;
use crate::model::time::{Span, Time};
use crate::process::remains::{EndedBy, Remains};
use crate::process::turn::{Nobody, is_past};
use crate::process::{Mark, Patience};
use crate::rules::preemption::protected_until;
use crate::rules::transition::lifecycle::{self, Given};
use crate::rules::transition::preemption::cut_sections;
use crate::rules::transition::turn::{finish_stop, interrupt, settle};
use crate::store::watch::Watch;
use crate::store::{Agent, Store, layout};

use super::authority;
use super::background;
use super::desk::Desk;
use super::hooks::{self, Occasion};
use super::installed;
use super::litter;
use super::oversee::Grace;
use super::owner::{Owner, TICK_GONE};
use super::patience::wait_until;
use super::resources;
use super::session::Session;
use super::turn::{KILL_GRACE, surroundings};
use super::words::{parse, parse_optional};

/// How far up a chain of parents is looked.
const DESCENDANTS: usize = 1000;

/// How long `stop` waits for the tick of an ended run to see that it ended.
const TICK_GRACE: Duration = LOOKS_AGAIN.saturating_mul(QUIET_LOOKS);

/// How long `stop` waits for that before it looks for processes of the run again.
const LOOKS_AGAIN: Duration = Duration::from_millis(100);

/// How often it looks in vain before it goes on without the tick.
const QUIET_LOOKS: u32 = 20;

/// How long a stop that was killed is given for a hook whose time has no limit.
const HOOK_WITHOUT_LIMIT: Span = Span::from_secs(24 * 3600);

pub fn start(session: &mut Session, args: cli::Start) -> Result<Status> {
    let store = session.store()?;
    let names = authority::governed(session, &store, &args.agents.agents, args.agents.all)?;
    Ok(session.each_agent(&names, |session, name| start_one(session, &store, name)))
}

pub fn start_one(session: &mut Session, store: &Store, name: &AgentName) -> Result<Status> {
    let agent = store.agent(name)?;
    authority::reach(session, store, &agent, "start")?;
    let (previous, state) = open_gate(session, store, &agent, &authority::actor(session, store)?)?;
    report(session, &state, "start", previous, true, None, &[]);
    Ok(Status::Done)
}

/// Opens the gate of an agent that is not started, if `by` may. Returns the status before, and the state after.
pub fn open_gate(
    session: &Session,
    store: &Store,
    agent: &Agent<'_>,
    by: &Origin,
) -> Result<(AgentStatus, State)> {
    let desk = Desk::new(session, agent);
    let mut open = desk.open()?;
    let previous = open.draft.records.state.status;
    lifecycle::refuse_without_command(&open.draft)?;
    if lifecycle::is_uninitialized(&open.draft.records.state)
        && let Some(hook) = hooks::find(store, agent, installed::ON_STARTUP)
    {
        lifecycle::begin_start(&mut open.draft, by)?;
        let limit = open.draft.records.policy.timeouts.init.0;
        let state = open.commit()?;
        let occasion = Occasion::of(&state, ExecutionState::Runnable, Some("start".to_owned()));
        if let Some(failure) = hook.run_within(session, &occasion, limit, &mut Nobody)?.failure {
            if desk.change(lifecycle::end_late_start)?.is_changed {
                desk.tell();
            }
            return Err(Error::Failed { message: failure.to_string(), hint: None });
        }
        open = desk.open()?;
        if state.status != AgentStatus::Stopped && open.draft.records.state.status == AgentStatus::Stopped {
            return Err(Error::Refused {
                kind: "stopped_meanwhile",
                message: format!("`{}` was stopped while its start went on", agent.name()),
                hint: None,
            });
        }
    }
    let state = open.change(|draft| lifecycle::start(draft, by))?.state;
    desk.tell();
    Ok((previous, state))
}

fn report(
    session: &mut Session,
    state: &State,
    action: &str,
    previous: AgentStatus,
    changed: bool,
    run: Option<&EndedRun>,
    tasks: &[TaskId],
) {
    let mut object = json!({
        "agent": state.agent,
        "action": action,
        "previous_status": previous,
        "status": state.status,
        "changed": changed,
        "tasks": tasks,
    });
    if let Some(run) = run {
        object[if run.is_completed { "completed_run_id" } else { "aborted_run_id" }] = json!(run.id);
    }
    session.out.result(&object, |_| {
        let run = run.map(|run| {
            let how = if run.is_completed { "completed" } else { "aborted" };
            format!(", {how} {}", run.id)
        });
        let ended: Vec<String> = tasks.iter().map(TaskId::to_string).collect();
        let ended = if ended.is_empty() { String::new() } else { format!(", ended {}", ended.join(", ")) };
        let ended = format!("{}{ended}", run.unwrap_or_default());
        if changed {
            format!("{}  {previous} → {}{ended}", state.agent, state.status)
        } else {
            format!("{}  {} already{ended}", state.agent, state.status)
        }
    });
}

pub fn stop(session: &mut Session, args: cli::Stop) -> Result<Status> {
    let store = session.store()?;
    let names = authority::governed(session, &store, &args.agents.agents, args.agents.all)?;
    let grace: Option<Span> = parse_optional("--grace", args.grace.as_deref())?;
    let by = authority::actor(session, &store)?;
    let stop = Stop { grace, now: args.now, requeue: args.requeue, reason: args.reason, by };
    Ok(session.each_agent(&names, |session, name| {
        let agent = store.agent(name)?;
        refuse_from_inside(session, &store, &agent, "stop")?;
        authority::reach(session, &store, &agent, "stop")?;
        let Stopped { state, previous, changed, run, tasks, cleared } =
            stop_agent(session, &store, &agent, &stop)?;
        Desk::new(session, &agent).tell_parent();
        report(session, &state, "stop", previous, changed, run.as_ref(), &tasks);
        cleared.map(|()| Status::Done)
    }))
}

/// How an agent is to be stopped.
pub struct Stop {
    /// Absent: what its settings say.
    pub grace: Option<Span>,
    /// Whether a section of the run is not waited for.
    pub now: bool,
    pub requeue: bool,
    pub reason: Option<String>,
    pub by: Origin,
}

/// What a stop has done.
pub struct Stopped {
    state: State,
    previous: AgentStatus,
    changed: bool,
    run: Option<EndedRun>,
    tasks: Vec<TaskId>,
    /// Whether its run and its tasks are over and its workspace is free: the gate is closed all the same.
    pub cleared: Result<()>,
}

/// The run that a stop has seen end.
pub struct EndedRun {
    id: RunId,
    /// Its turn has done its work within the grace; else the run was aborted.
    is_completed: bool,
}

impl EndedRun {
    fn of(id: RunId, state: &State) -> EndedRun {
        let last = state.last_turn.as_ref().filter(|turn| turn.run_id == id);
        EndedRun { id, is_completed: last.is_some_and(|turn| turn.terminal == Terminal::Completed) }
    }
}

/// Closes the gate of an agent, and ends its run and its tasks, those of its children among them.
pub fn stop_agent(session: &Session, store: &Store, agent: &Agent<'_>, how: &Stop) -> Result<Stopped> {
    let Closed { state, previous, changed, run: run_before, recovered, grace, preemption } =
        close_gate(session, store, agent, how)?;
    if state.status != AgentStatus::Stopped {
        // The run had ended while the hook ran, and somebody has started the agent again: what it is
        // at now is none of this stop's.
        Desk::new(session, agent).tell();
        let (run, tasks, cleared) = (run_before.map(|id| EndedRun::of(id, &state)), Vec::new(), Ok(()));
        return Ok(Stopped { state, previous, changed, run, tasks, cleared });
    }
    // A stop that was itself interrupted has left its run: any later one finishes it.
    let (state, run, ended) = match state.current_run.clone() {
        Some(run) => {
            wait_for_section(session, agent, &run, &preemption)?;
            let left = kill_at(agent, run.run_id)?.map_or(Span::ZERO, |at| at.since(session.clock.now()));
            match end_run(session, store, agent, &run, left.min(grace).as_std(), preemption.signal) {
                // One that won't end is no reason to let its tasks go on.
                Err(error) => (state, None, Err(error)),
                Ok(state) => {
                    // On another machine the turn goes on: then nothing has ended.
                    let goes_on =
                        state.current_run.as_ref().is_some_and(|current| current.run_id == run.run_id);
                    let ended = (!goes_on).then(|| EndedRun::of(run.run_id, &state));
                    (state, ended, Ok(()))
                }
            }
        }
        None => {
            if !recovered {
                wait_until(KILL_GRACE + TICK_GRACE, || Ok(!agent.is_leased()?))?;
            }
            // The turn may have come to its end while the hook ran.
            let ended = run_before.map(|id| EndedRun::of(id, &state));
            (state, ended, Ok(()))
        }
    };
    let (tasks, tasks_ended) = background::stop_all(session, store, agent, grace)?;
    // Not before: that would be on the grace of the turn, and give others the time to begin anew.
    Desk::new(session, agent).tell();
    let state = if tasks.is_empty() { state } else { agent.peek()? };
    let released = run.as_ref().map_or(Ok(()), |run| resources::release(session, store, agent, run.id));
    Ok(Stopped { state, previous, changed, run, tasks, cleared: ended.and(tasks_ended).and(released) })
}

/// An agent whose gate is closed, and what it was at.
struct Closed {
    state: State,
    previous: AgentStatus,
    changed: bool,
    run: Option<RunId>,
    /// Whether it was at no recovery.
    recovered: bool,
    grace: Span,
    preemption: PreemptionPolicy,
}

/// Closes the gate and commits that; then the hook, and the commit that the shutdown begins. Without a
/// hook both are one.
fn close_gate(session: &Session, store: &Store, agent: &Agent<'_>, how: &Stop) -> Result<Closed> {
    let desk = Desk::new(session, agent);
    let mut open = desk.open()?;
    let draft = &mut open.draft;
    let (before, preemption) = (draft.records.state.clone(), draft.records.policy.preemption);
    let grace = how.grace.unwrap_or(draft.records.policy.timeouts.shutdown);
    let hook = hooks::find(store, agent, installed::ON_SHUTDOWN);
    // Should this stop be killed while its hook runs, the tick ends the turn after that much.
    let at_most = match &hook {
        Some(_) => grace.plus(draft.records.policy.timeouts.hook.0.unwrap_or(HOOK_WITHOUT_LIMIT)),
        None => grace,
    };
    if how.now {
        cut_sections(draft, grace);
    }
    let changed = lifecycle::stop(draft, at_most, how.requeue, how.reason.clone(), &how.by)?;
    let state = match hook.filter(|_| lifecycle::is_to_be_shut_down(&draft.records.state)) {
        None => open.change(|draft| lifecycle::shut_down(draft, grace))?.state,
        Some(hook) => {
            let closed = open.commit()?;
            let occasion = Occasion::of(&closed, ExecutionState::ShuttingDown, how.reason.clone());
            hooks::recorded(session, hook.run(session, &occasion));
            desk.change(|draft| lifecycle::shut_down(draft, grace))?.state
        }
    };
    Ok(Closed {
        state,
        previous: before.status,
        changed,
        run: before.current_run.map(|run| run.run_id),
        recovered: before.execution.state != ExecutionState::Recovering,
        grace,
        preemption,
    })
}

/// Nobody stops an agent from inside its own work, or that of a child: the stop would wait for the
/// turn or task that it is called from, and that for the stop. `verb`: what is refused.
pub fn refuse_from_inside(session: &Session, store: &Store, agent: &Agent<'_>, verb: &str) -> Result<()> {
    // One whose own work is over may stop whom it likes.
    let Ok(Some(caller)) = session.caller(store) else { return Ok(()) };
    let (kind, what) = match caller.by {
        CalledBy::Turn { .. } => ("own_turn", "turn"),
        CalledBy::Task { .. } => ("own_task", "task"),
    };
    let mut name = Some(caller.agent.clone());
    for _ in 0..DESCENDANTS {
        let Some(next) = name.filter(|name| name != agent.name()) else {
            break;
        };
        name = store.agent(&next).and_then(|agent| agent.identity()).ok().and_then(|found| found.parent);
        if name.is_none() {
            return Ok(());
        }
    }
    let whose = if caller.agent == *agent.name() { "" } else { "a child of " };
    Err(Error::Refused {
        kind,
        message: format!(
            "this is a {what} of {whose}`{}` itself: it can't {verb} its own agent",
            agent.name()
        ),
        hint: Some(format!("end the {what}; whoever is outside can {verb} the agent then")),
    })
}

pub fn fail(session: &mut Session, args: cli::Fail) -> Result<Status> {
    let store = session.store()?;
    let agent = store.agent(&parse("AGENT", &args.agent)?)?;
    refuse_from_inside(session, &store, &agent, "fail")?;
    authority::reach(session, &store, &agent, "fail")?;
    let by = authority::actor(session, &store)?;
    let desk = Desk::new(session, &agent);
    let mut open = desk.open()?;
    let preemption = open.draft.records.policy.preemption;
    if args.now {
        cut_sections(&mut open.draft, Span::ZERO);
    }
    let given = lifecycle::fail(&mut open.draft, &args.reason, &by)?;
    let state = open.commit()?;
    let state = match state.current_run.clone() {
        Some(run) => {
            // A stop has had its own grace.
            let grace = if run.stopping.is_some() { Duration::ZERO } else { KILL_GRACE };
            wait_for_section(session, &agent, &run, &preemption)?;
            if run.stopping.is_none() {
                // Its tick ends it: to be told twice means something else to many. One that does not is
                // not waited for.
                wait_until(TICK_GRACE, || Ok(!is_current(&agent, run.run_id)? || !agent.is_leased()?))?;
            }
            end_run(session, &store, &agent, &run, grace, preemption.signal)?
        }
        None => state,
    };
    desk.tell();
    background::end_if_stopped(session, &store, &agent, &state);
    desk.tell_parent();
    let mut object = json!({
        "agent": agent.name(),
        "action": "fail",
        "status": state.status,
        "execution_state": state.execution.state,
        "reason": args.reason,
        "run_id": null,
    });
    let what = match given {
        Given::Run(run_id) => {
            object["run_id"] = json!(run_id);
            run_id.to_string()
        }
        Given::Held(message_id) => {
            object["message_id"] = json!(message_id);
            message_id.to_string()
        }
        Given::Recovery => "the recovery".to_owned(),
    };
    session.out.result(&object, |_| format!("{}  {} ({what})", agent.name(), state.execution.state));
    Ok(Status::Done)
}

/// Ends the processes of a run that is stopped or failed, and settles it if its own tick does not.
/// `grace`: between SIGTERM and SIGKILL.
fn end_run(
    session: &Session,
    store: &Store,
    agent: &Agent<'_>,
    run: &CurrentRun,
    grace: Duration,
    first: FirstTold,
) -> Result<State> {
    let now = session.clock.now();
    if Owner::of(run, now) == Owner::Elsewhere {
        let stopped = run.stopping.is_some();
        let then =
            if stopped { "the gate is closed, its turn goes on there" } else { "its tick there ends it" };
        session.out.note(&format!("{}: {} runs on {}; {then}", agent.name(), run.run_id, run.host));
        return agent.peek();
    }
    let killed = end_processes(agent, run.run_id, grace, first)?;
    let mut open = Desk::new(session, agent).open()?;
    let draft = &mut open.draft;
    let is_current =
        draft.records.state.current_run.as_ref().is_some_and(|current| current.run_id == run.run_id);
    if !is_current {
        return Ok(open.draft.records.state);
    }
    match agent.noted_end(run.run_id)? {
        Some(end) => {
            let around = surroundings(session, store, agent, &open.locked.view(), &end)?;
            settle(draft, run.run_id, end, None, &around)?;
        }
        None if run.stopping.is_some() => {
            finish_stop(draft, killed, None)?;
        }
        None => interrupt(draft, TICK_GONE)?,
    }
    let (run, retention) = (draft.settled_run().cloned(), draft.records.policy.retention);
    let state = open.commit()?;
    // Its tick, if it lives, has still to say how the turn ended, and clears it then.
    if let Ok(Some(_lease)) = agent.lease(now) {
        litter::clear(agent, run.as_ref(), retention);
    }
    Ok(state)
}

fn is_current(agent: &Agent<'_>, run_id: RunId) -> Result<bool> {
    Ok(agent.peek()?.current_run.is_some_and(|run| run.run_id == run_id))
}

/// When the processes of a run that is stopped are killed.
fn kill_at(agent: &Agent<'_>, run_id: RunId) -> Result<Option<Time>> {
    let run = agent.peek()?.current_run.filter(|run| run.run_id == run_id);
    Ok(run.and_then(|run| run.stopping).map(|stopping| stopping.kill_at))
}

/// Waits until no section protects a run on this machine any more: they have ended, or their time is over,
/// or the run is. What else changes meanwhile, a `--now` say, is seen at once.
fn wait_for_section(
    session: &Session,
    agent: &Agent<'_>,
    run: &CurrentRun,
    preemption: &PreemptionPolicy,
) -> Result<()> {
    let now = session.clock.now();
    if protected_until(run, now).is_none() || Owner::of(run, now) == Owner::Elsewhere {
        return Ok(());
    }
    let mut grace = Grace::default();
    let mut watch = Watch::new();
    watch.add(agent.dir().path());
    loop {
        let now = session.clock.now();
        let state = agent.peek()?;
        let current = state.current_run.filter(|current| current.run_id == run.run_id);
        let Some(until) = current.and_then(|current| protected_until(&current, now)) else { return Ok(()) };
        let end = grace.end(until, until.min(now.after(preemption.max_section)), now);
        if is_past(end) || !agent.is_leased()? {
            return Ok(());
        }
        watch.wait(end.map(|end| end.saturating_duration_since(Instant::now())));
    }
}

/// Ends the processes of a run, until its tick has settled it or is gone. Returns whether any of them
/// had to be killed. A tick that has just claimed the run may have been about to begin it: so it is
/// looked for processes again. Where none come and it doesn't settle (it was stopped itself, say) we do.
fn end_processes(agent: &Agent<'_>, run_id: RunId, grace: Duration, first: FirstTold) -> Result<bool> {
    let leader = agent.dir().run_dir(run_id).join(layout::LEADER);
    let mut patience = Patience::of(grace);
    let mut killed = false;
    let mut quiet = 0;
    loop {
        let mut remains = Remains::find(&Mark::run(run_id), &leader)?;
        remains.ask(first)?;
        let ended = remains.end_by(&mut patience)?;
        killed |= ended == EndedBy::Kill;
        quiet = if ended == EndedBy::Nothing { quiet + 1 } else { 0 };
        if is_over(agent, run_id)? || quiet == QUIET_LOOKS {
            return Ok(killed);
        }
    }
}

/// Whether the tick of a run has settled it, or is gone. Waits a little for that.
fn is_over(agent: &Agent<'_>, run_id: RunId) -> Result<bool> {
    wait_until(LOOKS_AGAIN, || {
        let settled = agent.peek()?.current_run.is_none_or(|run| run.run_id != run_id);
        Ok(settled || !agent.is_leased()?)
    })
}
