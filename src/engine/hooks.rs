//! Hooks: programs of the operator that run at transitions of an agent (contract, execution §5).
//!
//! No hook runs while the agent's lock is held. A command called from a hook runs no hooks, because
//! a hook could otherwise call itself in a loop.

use std::path::PathBuf;
use std::thread;

use serde::Serialize;
use serde_json::{Value, json};

use crate::cap_fs::CapPath;
use crate::error::{Error, IoContext, Result};
use crate::local::stale_files::HookScratch;
use crate::model::attention::{Attention, FailureTold, PendingTransition};
use crate::model::event::EventKind;
use crate::model::execution::ExecutionState;
use crate::model::id::{AgentName, MessageId, RunId};
use crate::model::names;
use crate::model::policy::Limit;
use crate::model::records::InstalledHooks;
use crate::model::run::Exit;
use crate::model::state::State;
use crate::model::time::Span;
use crate::process::HOOK;
use crate::process::hook::{self, HookSpec};
use crate::process::turn::{Monitor, NoMonitor, TurnResult};
use crate::rules::notification as rules;
use crate::store::Agent;

use super::context::Context;
use super::environment::{environment, workspace_path};
use super::session::Session;

/// Maximum bytes of a hook's output in an event of the agent; the end of the output is kept.
const OUTPUT_MAX: usize = 4096;

names! {
    /// Hooks, in the order in which their events occur in the life of an agent.
    "hook" HookName {
        OnStartup = "on-startup",
        OnScheduled = "on-scheduled",
        OnPreemptRequest = "on-preempt-request",
        OnSuspend = "on-suspend",
        OnResume = "on-resume",
        OnShutdown = "on-shutdown",
        OnRecoveryStart = "on-recovery-start",
        OnRecoveryComplete = "on-recovery-complete",
        OnStateChange = "on-state-change",
        OnAttention = "on-attention",
    }
}

/// Event for which a hook is called.
#[derive(Debug, Clone)]
pub struct HookEvent {
    agent: AgentName,
    run_id: Option<RunId>,
    /// JSON object for the hook, without the hook's name.
    data: Value,
}

impl HookEvent {
    /// Returns the event of an agent that enters the execution state `to`.
    pub fn of(state: &State, to: ExecutionState, reason: Option<String>) -> HookEvent {
        let run = state.current_run.as_ref();
        let is_recovering = state.execution.state == ExecutionState::Recovering;
        let failure = rules::failure(state).filter(|_| is_recovering);
        let failed = failure.as_ref();
        let task_id = run
            .map(|run| run.message_id)
            .or(state.execution.task_id)
            .or(failed.and_then(|failure| failure.message_id));
        let run_id = run.map(|run| run.run_id).or(failed.and_then(|failure| failure.run_id));
        HookEvent::between((state.execution.state, to), &state.agent, (task_id, run_id), reason, failed)
    }

    /// Sets the execution state from which the agent comes.
    pub fn from(mut self, state: ExecutionState) -> HookEvent {
        self.data["from"] = json!(state);
        self
    }

    /// Returns the event for `on-attention`.
    pub fn about(agent: &AgentName, attention: &Attention) -> HookEvent {
        let mut data = json!({
            "agent": agent,
            "at": attention.at,
            "subject": attention.subject,
            "reason": attention.reason,
            "count": attention.count,
        });
        if let Some(command) = &attention.answer_with {
            extend(&mut data, json!({ "options": attention.options, "answer_with": command }));
        }
        extend(&mut data, json!(attention.about));
        HookEvent { agent: agent.clone(), run_id: attention.about.run_id, data }
    }

    /// Returns the event of a transition, for `on-state-change`.
    pub fn transition(agent: &AgentName, pending: &PendingTransition) -> HookEvent {
        let (ids, reason) = ((pending.task_id, pending.run_id), Some(pending.cause.clone()));
        HookEvent::between((pending.from, pending.to), agent, ids, reason, pending.failure.as_ref())
    }

    /// Returns the event for `on-recovery-complete`, if this transition ends a recovery.
    pub fn end_of_recovery(agent: &AgentName, pending: &PendingTransition) -> Option<HookEvent> {
        let is_success = pending.to == ExecutionState::Runnable;
        let has_ended = is_success || pending.to == ExecutionState::Failed;
        (has_ended && pending.from == ExecutionState::Recovering).then(|| {
            let mut event = HookEvent::transition(agent, pending);
            event.data["success"] = json!(is_success);
            event
        })
    }

    /// Returns the event of a transition between two execution states. `failure`: cause of the
    /// recovery that the transition starts or ends.
    fn between(
        (from, to): (ExecutionState, ExecutionState),
        agent: &AgentName,
        (task_id, run_id): (Option<MessageId>, Option<RunId>),
        reason: Option<String>,
        failure: Option<&FailureTold>,
    ) -> HookEvent {
        let mut data = json!({
            "agent": agent,
            "from": from,
            "to": to,
            "task_id": task_id,
            "reason": reason,
            "run_id": run_id,
        });
        if let Some(failure) = failure {
            data["failure"] = json!(failure);
        }
        HookEvent { agent: agent.clone(), run_id, data }
    }
}

fn extend(object: &mut Value, fields: Value) {
    if let (Value::Object(object), Value::Object(fields)) = (object, fields) {
        object.extend(fields);
    }
}

/// Prints the failure of a hook, for a caller that continues in spite of the failure.
pub fn report_failure(session: &Session, ran: Result<Option<HookFailure>>) {
    match ran {
        Ok(None) => {}
        Ok(Some(failure)) => session.out.note(&format!("{}: {failure}", failure.agent)),
        Err(error) => session.out.note(&error.to_string()),
    }
}

/// Installed hook of an agent.
pub struct InstalledHook<'a> {
    context: Context<'a>,
    name: HookName,
    program: PathBuf,
    /// Fencing token of the lease of the run for which the hook runs; `None` without such a lease.
    fence: Option<u64>,
}

/// Returns the agent's hook, else that of the state directory; `None` if a hook calls this command.
pub fn find(context: Context<'_>, name: HookName) -> Option<InstalledHook<'_>> {
    if is_nested() {
        return None;
    }
    let program = program(context.agent, name)?;
    Some(InstalledHook { context, name, program, fence: None })
}

/// Failure of a hook, with its last line of stderr.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookFailure {
    agent: AgentName,
    hook: HookName,
    how: String,
    /// Last line of the hook's stderr.
    said: Option<String>,
    /// True if the hook was ended by a signal before its timeout.
    pub was_killed: bool,
}

impl HookFailure {
    /// Returns the reason of the failure: the last line of stderr, else the end of the process.
    pub fn reason(&self) -> &str {
        self.said.as_ref().unwrap_or(&self.how)
    }
}

impl std::fmt::Display for HookFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} failed: {}", self.hook, self.how)?;
        self.said.as_ref().map_or(Ok(()), |said| write!(f, ": {said}"))
    }
}

impl InstalledHook<'_> {
    /// Sets the fencing token of a run's lease. Commands of the hook can change no records once
    /// another machine has taken over the lease.
    pub fn under(self, fence: Option<u64>) -> Self {
        InstalledHook { fence, ..self }
    }

    /// Runs the hook to its end. Must be called without the agent's lock. Returns the failure, if
    /// any. Records an event of the agent after a failure, or for output that has no log file.
    pub fn run(&self, event: &HookEvent) -> Result<Option<HookFailure>> {
        self.run_within(event, None, &mut NoMonitor)
    }

    /// Runs the hook until it ends, or `monitor` or a timeout ends it. `limit`: timeout of the
    /// execution state in which the agent is meanwhile.
    pub fn run_within(
        &self,
        event: &HookEvent,
        limit: Option<Limit>,
        monitor: &mut dyn Monitor,
    ) -> Result<Option<HookFailure>> {
        let (spec, _scratch, timeout) = self.spec(event, limit, event.run_id)?;
        end_abandoned(&self.context.agent.local().tmp())?;
        let ran = hook::run(&spec, monitor)?;
        self.conclude(event, timeout, ran)
    }

    /// Runs the hook while `act` ends the run that the hook is about. Commands of the hook act for
    /// the operator and not for the run, because all processes marked with the run are killed.
    pub fn run_while<T>(
        &self,
        event: &HookEvent,
        act: impl FnOnce() -> T,
    ) -> (T, Result<Option<HookFailure>>) {
        let (spec, _scratch, timeout) = match self.spec(event, None, None) {
            Ok(prepared) => prepared,
            Err(error) => return (act(), Err(error)),
        };
        let tmp = self.context.agent.local().tmp();
        let run = || end_abandoned(&tmp).and_then(|()| hook::run(&spec, &mut NoMonitor));
        let (made, ran) = thread::scope(|scope| {
            let hook = thread::Builder::new().spawn_scoped(scope, run);
            let made = act();
            let ran = match hook.context("start a thread for", &self.program) {
                Ok(hook) => hook.join().unwrap_or_else(|_| Err(Error::failed("the thread of a hook broke"))),
                Err(error) => Err(error),
            };
            (made, ran)
        });
        (made, ran.and_then(|ran| self.conclude(event, timeout, ran)))
    }

    /// Records an event after a failure of the hook, or for hook output that has no log file.
    fn conclude(
        &self,
        event: &HookEvent,
        timeout: Option<Span>,
        (ended, output): (TurnResult, String),
    ) -> Result<Option<HookFailure>> {
        let session = self.context.session;
        session.cancelled_by.set(session.cancelled_by.get().or(ended.cancelled_by));
        let failure = failure(&ended, timeout).map(|how| HookFailure {
            agent: event.agent.clone(),
            hook: self.name,
            how,
            said: ended.stderr.last_line.clone(),
            was_killed: !ended.timed_out && matches!(ended.exit, Exit::Signal { .. }),
        });
        let is_unlogged = !output.is_empty() && self.log(event).is_none();
        if failure.is_some() || is_unlogged {
            let mut data = json!({ "hook": self.name, "success": failure.is_none() });
            if let Some(failure) = &failure {
                data["reason"] = json!(failure.how);
                data["last_line"] = json!(failure.said);
            }
            if is_unlogged {
                data["output"] = json!(end_of(&output));
            }
            self.context.update(|draft| draft.event(EventKind::HookEnded, event.run_id, data))?;
        }
        Ok(failure)
    }

    /// Returns the specification of the hook's process, its directory, and its timeout.
    /// `acting_run`: run in whose name commands of the hook act; `None` for the operator's name.
    fn spec(
        &self,
        event: &HookEvent,
        limit: Option<Limit>,
        acting_run: Option<RunId>,
    ) -> Result<(HookSpec, HookScratch, Option<Span>)> {
        let agent = self.context.agent;
        let scratch = HookScratch::make(&agent.local().tmp())?;
        let policy = agent.policy()?;
        let timeout = policy.timeouts.of_hook(limit).0;
        // Commands of the hook may act for a run only while that run is the current one.
        let current = agent.peek()?.current_run.filter(|run| Some(run.run_id) == acting_run);
        if let Some(run) = &current {
            agent.local().run(run.run_id).cap.make_dirs()?;
        }
        let fence = self.fence.filter(|_| current.is_some());
        let env = environment(agent, &policy, current.as_ref(), fence);
        let mut document = json!({ "hook": self.name });
        extend(&mut document, event.data.clone());
        let spec = HookSpec {
            name: self.name.name(),
            program: self.program.clone(),
            workdir: workspace_path(agent.store(), &policy),
            env,
            document: format!("{document}\n").into_bytes(),
            scratch: scratch.cap.clone(),
            log: self.log(event),
            timeout: timeout.map(Span::as_std),
        };
        Ok((spec, scratch, timeout))
    }

    /// Returns the log file of the event's run; `None` if there is no run, or its directory is
    /// gone.
    fn log(&self, event: &HookEvent) -> Option<CapPath> {
        let dir = self.context.agent.local().run(event.run_id?);
        dir.exists().then(|| dir.hook_log())
    }
}

/// Ends leftover processes of hooks of killed commands, and removes their directories in `tmp`.
pub fn end_abandoned(tmp: &CapPath) -> Result<()> {
    HookScratch::abandoned(tmp)?.try_for_each(|scratch| hook::end_leftover(&scratch.cap))
}

/// Returns the reason why a hook counts as failed; `None` if it succeeded.
fn failure(ended: &TurnResult, timeout: Option<Span>) -> Option<String> {
    if ended.timed_out {
        let limit = timeout.map(|limit| format!(" after {limit}")).unwrap_or_default();
        return Some(format!("timed out{limit}"));
    }
    if let Some(signal) = ended.cancelled_by {
        return Some(format!("ended by signal {signal}"));
    }
    (ended.exit != Exit::Code { code: 0 }).then(|| ended.exit.to_string())
}

fn end_of(said: &str) -> &str {
    let from = said.len().saturating_sub(OUTPUT_MAX);
    let from = (from..said.len()).find(|at| said.is_char_boundary(*at)).unwrap_or(said.len());
    &said[from..]
}

/// Returns notes about files beside the hooks that never run, for example with a misspelt name.
pub fn idle_files(agent: &Agent<'_>) -> Vec<String> {
    let entries = agent.local().hooks().into_iter().flat_map(|(_, dir)| std::fs::read_dir(dir));
    let paths = entries.flatten().flatten().map(|entry| entry.path()).filter(|path| path.is_file());
    let note = |path: PathBuf| {
        let (name, shown) = (path.file_name()?.to_string_lossy(), path.display());
        match HookName::ALL.iter().any(|hook| hook.name() == name) {
            true if hook::is_executable(&path) => None,
            true => Some(format!("{shown} is no program, so it is never run: `chmod +x` makes it one")),
            false if name.starts_with("on-") => Some(format!("{shown} is never run: no hook has this name")),
            false => None,
        }
    };
    paths.filter_map(note).collect()
}

/// Returns the installed ones of the hooks that run between the claim and the start of a turn.
pub fn before_start(agent: &Agent<'_>, state: &State) -> InstalledHooks {
    let is_there = |name| !is_nested() && program(agent, name).is_some();
    let goes_on = state.execution.state == ExecutionState::Suspended
        || state.held.as_ref().is_some_and(|held| held.entered == Some(ExecutionState::Resumed));
    InstalledHooks {
        on_scheduled: !goes_on && is_there(HookName::OnScheduled),
        on_resume: goes_on && is_there(HookName::OnResume),
        on_state_change: is_there(HookName::OnStateChange),
    }
}

/// True if this command was called from a hook, so that it must not run hooks.
pub fn is_nested() -> bool {
    std::env::var_os(HOOK).is_some_and(|outer| !outer.is_empty())
}

/// Returns the path of an agent's hook: its own file, else that of the state directory.
pub fn program(agent: &Agent<'_>, hook: HookName) -> Option<PathBuf> {
    let paths = agent.local().hooks().map(|(_, place)| place.join(hook.name()));
    paths.into_iter().find(|path| hook::is_executable(path))
}

/// Hook file found for an agent. If it never runs, `in_effect` is false and `why_not` says why.
#[derive(Debug, Serialize)]
pub struct Installed {
    pub hook: HookName,
    /// `agent`, or `shared` for a hook of the state directory.
    pub place: &'static str,
    pub path: PathBuf,
    pub in_effect: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why_not: Option<&'static str>,
}

/// Returns the hook files of an agent, in the order of [`HookName`].
pub fn installed(agent: &Agent<'_>) -> Vec<Installed> {
    let mut found = Vec::new();
    for &hook in HookName::ALL {
        let program = program(agent, hook);
        for (place, dir) in agent.local().hooks() {
            let path = dir.join(hook.name());
            let why_not = match &program {
                Some(program) if *program == path => None,
                _ if path.symlink_metadata().is_err() => continue,
                _ if !hook::is_executable(&path) => Some("not an executable file"),
                _ => Some("the agent's own runs instead"),
            };
            found.push(Installed { hook, place, path, in_effect: why_not.is_none(), why_not });
        }
    }
    found
}
