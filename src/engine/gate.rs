//! Start and stop of an agent, and the end of the run of a stopped agent (contract, execution §10).

use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::local::Subject;
use crate::model::agent::Status as AgentStatus;
use crate::model::execution::ExecutionState;
use crate::model::id::{RunId, TaskId};
use crate::model::message::Origin;
use crate::model::place::Away;
use crate::model::policy::{EndOrder, PreemptionPolicy};
use crate::model::run::Terminal;
use crate::model::state::{CurrentRun, State};
use crate::model::time::{Span, Time};
use crate::process::leftover::{EndedBy, LeftoverProcesses};
use crate::process::turn::NoMonitor;
use crate::process::{Patience, ProcessMark, is_past, wait_until};
use crate::rules::preemption::protected_until;
use crate::rules::transition::gate::{is_to_be_shut_down, shut_down};
use crate::rules::transition::lifecycle;
use crate::rules::transition::preemption::cut_sections;
use crate::rules::transition::turn::finish_stop;
use crate::store::{Agent, RecordWatch};

use super::context::{Committed, Context, has_command_section};
use super::hooks::{self, HookEvent, HookName, InstalledHook};
use super::monitor::{Grace, KILL_GRACE};
use super::owner::{TICK_GONE, away};
use super::turn::settle_in_draft;

/// Time that `stop` gives the tick of a run to notice that the run's processes have ended.
pub const TICK_GRACE: Duration = SCAN_PAUSE.saturating_mul(QUIET_SCANS);

/// Pause of `stop` between two searches for processes of the run.
const SCAN_PAUSE: Duration = Duration::from_millis(100);

/// Number of searches without any process of the run after which `stop` settles the run itself.
const QUIET_SCANS: u32 = 20;

/// Assumed duration of a shutdown hook without a timeout. If `stop` is killed while the hook runs,
/// the tick ends the turn after this duration and the grace period.
const HOOK_WITHOUT_LIMIT: Span = Span::from_secs(24 * 3600);

/// Starts an agent that is stopped or new, if `by` may start it. Returns the status before.
pub fn start_agent(context: Context<'_>, by: &Origin) -> Result<(AgentStatus, Committed<()>)> {
    let agent = context.agent;
    let mut open = context.open()?;
    let previous = open.draft.records.state.status;
    lifecycle::refuse_without_command(&open.draft)?;
    if lifecycle::is_closed(&open.draft.records.state)
        && lifecycle::is_uninitialized(&open.draft.records.state)
        && let Some(hook) = hooks::find(context, HookName::OnStartup)
    {
        lifecycle::begin_start(&mut open.draft, by)?;
        let limit = Some(open.draft.records.policy.timeouts.init);
        let state = open.commit()?;
        let event = HookEvent::of(&state, ExecutionState::Runnable, Some("start".to_owned()));
        if let Some(failure) = hook.run_within(&event, limit, &mut NoMonitor)? {
            if context.change(lifecycle::end_late_start)?.is_changed {
                context.notify();
            }
            return Err(Error::failed(failure.to_string()));
        }
        open = context.open()?;
        if state.status != AgentStatus::Stopped && open.draft.records.state.status == AgentStatus::Stopped {
            let message = format!("`{}` was stopped while it was starting", agent.name());
            return Err(Error::refused("stopped_meanwhile", message));
        }
    }
    let started = open.change(|draft| lifecycle::start(draft, by))?;
    context.notify();
    Ok((previous, started))
}

/// Options of the command `stop`.
pub struct Stop {
    /// Time for the turn to end after SIGTERM; `None`: `timeouts.shutdown` of the policy.
    pub grace: Option<Span>,
    /// True if the stop does not wait for a critical section, in which the turn would be protected.
    pub now: bool,
    pub requeue: bool,
    pub reason: Option<String>,
    pub by: Origin,
}

/// Run that was current when `stop` was called, and has ended since.
pub struct EndedRun {
    pub id: RunId,
    /// True if the turn completed before `stop` killed its processes; false if the run was aborted.
    pub is_completed: bool,
}

impl EndedRun {
    fn of(id: RunId, state: &State) -> EndedRun {
        let last = state.last_turn.as_ref().filter(|turn| turn.run_id == id);
        EndedRun { id, is_completed: last.is_some_and(|turn| turn.terminal == Terminal::Completed) }
    }
}

/// Result of a stop.
pub struct Stopped {
    pub state: State,
    pub previous: AgentStatus,
    pub changed: bool,
    pub run: Option<EndedRun>,
    pub tasks: Vec<TaskId>,
    /// Error because of which the run, a task or the workspace was not released. The agent is
    /// stopped even then.
    pub cleared: Result<()>,
}

impl Stopped {
    /// True if the agent is still stopped. If another command has started the agent again, the stop
    /// must not touch the new work.
    pub fn is_stopped(&self) -> bool {
        self.state.status == AgentStatus::Stopped
    }
}

/// Stops an agent: sets the status, runs the shutdown hook, and ends the run if it is on this
/// machine. Also returns the grace period that the turn got.
pub fn stop_run(context: Context<'_>, how: &Stop) -> Result<(Stopped, Span)> {
    let (mut stopped, before) = commit_stop(context, how)?;
    let mut end = || end_run_of_stopped(context, &mut stopped, &before);
    match &before.beside {
        None => end()?,
        Some((hook, event)) => {
            let (ended, ran) = hook.run_while(event, end);
            hooks::report_failure(context.session, ran);
            ended?;
        }
    }
    Ok((stopped, before.grace))
}

struct BeforeStop<'a> {
    run: Option<RunId>,
    was_recovering: bool,
    grace: Span,
    preemption: PreemptionPolicy,
    /// Shutdown hook that is to run while `stop` ends the run; `None` if it has run or is missing.
    beside: Option<(InstalledHook<'a>, HookEvent)>,
}

fn end_run_of_stopped(context: Context<'_>, stopped: &mut Stopped, before: &BeforeStop<'_>) -> Result<()> {
    let agent = context.agent;
    // The run may have ended by itself while the hook ran.
    stopped.run = before.run.map(|id| EndedRun::of(id, &stopped.state));
    if !stopped.is_stopped() {
        return Ok(());
    }
    // The current run may be left over from an earlier `stop` that was killed.
    let Some(run) = stopped.state.current_run.clone() else {
        if before.was_recovering {
            wait_until(KILL_GRACE + TICK_GRACE, || Ok(!agent.is_leased(Subject::Run)?))?;
        }
        return Ok(());
    };
    stopped.run = None;
    wait_for_section(context, &run, &before.preemption)?;
    let left = kill_at(agent, run.run_id)?.map_or(Span::ZERO, |at| at.since(context.session.clock.now()));
    match end_run(context, &run, left.min(before.grace).as_std(), before.preemption.signal) {
        // The error is only stored, so that the caller still ends the tasks.
        Err(error) => stopped.cleared = Err(error),
        Ok(state) => {
            // A run on another machine may continue, so that this `stop` has ended no run.
            let continues = state.current_run.as_ref().is_some_and(|current| current.run_id == run.run_id);
            stopped.run = (!continues).then(|| EndedRun::of(run.run_id, &state));
            stopped.state = state;
        }
    }
    Ok(())
}

/// Commits the status `stopped`, runs the shutdown hook, and commits that the shutdown begins.
/// Without a hook, or with `how.now`, both are one commit. With `how.now` the hook is returned, so
/// that the caller runs the hook while it ends the turn.
fn commit_stop<'a>(context: Context<'a>, how: &Stop) -> Result<(Stopped, BeforeStop<'a>)> {
    let mut open = context.open()?;
    let draft = &mut open.draft;
    let (before, preemption) = (draft.records.state.clone(), draft.records.policy.preemption);
    let grace = how.grace.unwrap_or(draft.records.policy.timeouts.shutdown);
    let hook = hooks::find(context, HookName::OnShutdown);
    let (first, beside) = if how.now { (None, hook) } else { (hook, None) };
    // Time after which the tick ends the turn, in case this process is killed while the hook runs.
    let at_most = match &first {
        Some(_) => grace.plus(draft.records.policy.timeouts.of_hook(None).0.unwrap_or(HOOK_WITHOUT_LIMIT)),
        None => grace,
    };
    if how.now {
        cut_sections(draft, grace);
    }
    let changed = lifecycle::stop(draft, at_most, how.requeue, how.reason.clone(), &how.by)?;
    let runs_hook = is_to_be_shut_down(&draft.records.state);
    let event = |state: &State| HookEvent::of(state, ExecutionState::ShuttingDown, how.reason.clone());
    let beside = beside.filter(|_| runs_hook).map(|hook| (hook, event(&draft.records.state)));
    let state = match first.filter(|_| runs_hook) {
        None => open.change(|draft| shut_down(draft, grace))?.state,
        Some(hook) => {
            let event = event(&open.commit()?);
            hooks::report_failure(context.session, hook.run(&event));
            context.change(|draft| shut_down(draft, grace))?.state
        }
    };
    let (previous, tasks) = (before.status, Vec::new());
    let stopped = Stopped { state, previous, changed, run: None, tasks, cleared: Ok(()) };
    let before = BeforeStop {
        run: before.current_run.map(|run| run.run_id),
        was_recovering: before.execution.state == ExecutionState::Recovering,
        grace,
        preemption,
        beside,
    };
    Ok((stopped, before))
}

/// Ends the processes of a stopped or failed run, and settles the run if its tick does not.
/// `grace`: time between SIGTERM and SIGKILL.
pub fn end_run(context: Context<'_>, run: &CurrentRun, grace: Duration, first: EndOrder) -> Result<State> {
    let Context { session, agent } = context;
    let now = session.clock.now();
    if let Some(away) = away(agent, run, now)? {
        let (name, id, until) = (agent.name(), run.run_id, run.lease_expires_at);
        let then = match (&away, run.stopping.is_some()) {
            (Away::Machine { .. }, false) => "its tick there ends it".to_owned(),
            (Away::Directory { .. }, false) => {
                format!("it is left alone, and has failed here after {until}, or with `recover --force`")
            }
            (Away::Machine { .. } | Away::Directory { .. }, true) => {
                "the agent is stopped, but its turn continues there".to_owned()
            }
        };
        session.out.note(&format!("{name}: {id} runs {away}; {then}"));
        return agent.peek();
    }
    let killed = end_processes(agent, run.run_id, grace, first)?;
    let mut open = context.open()?;
    let draft = &mut open.draft;
    let is_current =
        draft.records.state.current_run.as_ref().is_some_and(|current| current.run_id == run.run_id);
    if !is_current {
        return Ok(open.draft.records.state);
    }
    let noted = agent.local().run(run.run_id).read_end()?;
    if noted.is_none() && run.stopping.is_some() {
        finish_stop(draft, killed, None)?;
    } else {
        settle_in_draft(context, &open.locked.records_snapshot(), draft, (run.run_id, noted), TICK_GONE)?;
    }
    let (run, retention) = (draft.settled_run().cloned(), draft.records.policy.retention);
    let state = open.commit()?;
    // If the tick of the run lives, it holds the lease and clears the directory itself.
    if let (Some(run), Ok(Some(_lease))) = (run, agent.lease(Subject::Run, now)) {
        context.clear_run(&run, retention);
    }
    Ok(state)
}

/// Returns the time at which a run's processes are killed, if it is current and being stopped.
fn kill_at(agent: &Agent<'_>, run_id: RunId) -> Result<Option<Time>> {
    let run = agent.peek()?.current_run.filter(|run| run.run_id == run_id);
    Ok(run.and_then(|run| run.stopping).map(|stopping| stopping.kill_at))
}

/// Waits until no critical section protects a run on this machine from being ended: all have ended
/// or expired, or the run is over. Changes such as `stop --now` take effect at once.
pub fn wait_for_section(context: Context<'_>, run: &CurrentRun, preemption: &PreemptionPolicy) -> Result<()> {
    let Context { session, agent } = context;
    let now = session.clock.now();
    if protected_until(run, now).is_none() || away(agent, run, now)?.is_some() {
        return Ok(());
    }
    let mut grace = Grace::default();
    let mut watch = RecordWatch::new();
    watch.follow_records(agent);
    loop {
        let now = session.clock.now();
        let state = context.end_abandoned_sections(agent.peek()?)?;
        let current = state.current_run.filter(|current| current.run_id == run.run_id);
        let unseen = current.as_ref().is_some_and(has_command_section).then_some(SCAN_PAUSE);
        let Some(until) = current.and_then(|current| protected_until(&current, now)) else { return Ok(()) };
        let end = grace.end(until, until.min(now.after(preemption.max_section)), now);
        if is_past(end) || !agent.is_leased(Subject::Run)? {
            return Ok(());
        }
        let end = end.map(|end| end.saturating_duration_since(Instant::now()));
        watch.wait(end.into_iter().chain(unseen).min());
    }
}

/// Ends the processes of a run until its tick has settled it or is gone, or until `QUIET_SCANS`
/// searches have found no process. Returns true if a process had to be killed. The search is
/// repeated, because a tick that has just claimed the run may start the command later.
fn end_processes(agent: &Agent<'_>, run_id: RunId, grace: Duration, first: EndOrder) -> Result<bool> {
    let leader = agent.local().run(run_id).leader();
    let mut patience = Patience::of(grace);
    let mut killed = false;
    let mut quiet = 0;
    loop {
        let mut leftover = LeftoverProcesses::find(&ProcessMark::run(run_id), &leader)?;
        leftover.ask(first)?;
        let ended = leftover.end_by(&mut patience)?;
        killed |= ended == EndedBy::Kill;
        quiet = if ended == EndedBy::Nothing { quiet + 1 } else { 0 };
        if is_over(agent, run_id, SCAN_PAUSE)? || quiet == QUIET_SCANS {
            return Ok(killed);
        }
    }
}

/// Returns true once the tick of a run has settled the run or has died; false after `patience`.
pub fn is_over(agent: &Agent<'_>, run_id: RunId, patience: Duration) -> Result<bool> {
    wait_until(patience, || {
        let is_settled = agent.peek()?.current_run.is_none_or(|run| run.run_id != run_id);
        Ok(is_settled || !agent.is_leased(Subject::Run)?)
    })
}
