//! Hooks: programs of the people's own that run beside an agent's transitions (contract, execution §5).
//!
//! None runs while the agent's lock is held, and none for a command that a hook has called: what
//! such a command changes can't call the hook again.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::error::Result;
use crate::model::attention::Attention;
use crate::model::event::EventKind;
use crate::model::execution::ExecutionState;
use crate::model::id::{AgentName, MessageId, RunId};
use crate::model::policy::Policy;
use crate::model::run::Exit;
use crate::model::state::State;
use crate::model::time::Span;
use crate::process;
use crate::process::hook::{self, HookSpec};
use crate::process::turn::{Ended, Nobody, Overseer};
use crate::rules::transition::draft::Draft;
use crate::store::{Agent, Locked, Store, layout};

use super::attention;
use super::load::begin;
use super::resources::workspace_path;
use super::session::Session;
use super::turn::environment;

/// How much of what a hook says goes into the ledger, in bytes: the end of it.
const OUTPUT_MAX: usize = 4096;

pub const ON_STARTUP: &str = "on-startup";
pub const ON_SCHEDULED: &str = "on-scheduled";
pub const ON_PREEMPT_REQUEST: &str = "on-preempt-request";
pub const ON_SUSPEND: &str = "on-suspend";
pub const ON_RESUME: &str = "on-resume";
pub const ON_SHUTDOWN: &str = "on-shutdown";
pub const ON_RECOVERY_START: &str = "on-recovery-start";
pub const ON_RECOVERY_COMPLETE: &str = "on-recovery-complete";
pub const ON_STATE_CHANGE: &str = "on-state-change";
pub const ON_ATTENTION: &str = "on-attention";

/// What a hook is told.
#[derive(Debug, Clone)]
pub struct Occasion {
    agent: AgentName,
    pub from: Value,
    to: Value,
    task_id: Option<MessageId>,
    reason: Option<String>,
    run_id: Option<RunId>,
    /// Of a recovery that has ended.
    success: Option<bool>,
    /// What a person should look at, where that is what it is about.
    attention: Option<Attention>,
}

impl Occasion {
    /// Of an agent as it stands, before or after something.
    pub fn of(state: &State, to: impl serde::Serialize, reason: Option<String>) -> Occasion {
        let run = state.current_run.as_ref();
        Occasion {
            agent: state.agent.clone(),
            from: json!(state.execution.state),
            to: json!(to),
            task_id: run.map(|run| run.message_id).or(state.execution.task_id),
            reason,
            run_id: run.map(|run| run.run_id),
            success: None,
            attention: None,
        }
    }

    /// Of something that needs attention.
    pub fn about(agent: &AgentName, attention: &Attention) -> Occasion {
        Occasion {
            agent: agent.clone(),
            from: Value::Null,
            to: Value::Null,
            task_id: attention.about.message_id,
            reason: Some(attention.reason.clone()),
            run_id: attention.about.run_id,
            success: None,
            attention: Some(attention.clone()),
        }
    }

    /// Whether it went well, if it is a recovery that has come to its end.
    fn end_of_recovery(&self) -> Option<bool> {
        let ends = |state: ExecutionState| self.to == json!(state);
        let went_well = ends(ExecutionState::Runnable);
        let has_ended =
            self.from == json!(ExecutionState::Recovering) && (went_well || ends(ExecutionState::Failed));
        has_ended.then_some(went_well)
    }
}

/// Commits, and remembers for `tell` the transitions and what a person should look at. Everything
/// that changes an agent is committed here.
pub fn commit(session: &Session, locked: &Locked<'_>, mut draft: Draft) -> Result<State> {
    let raised = draft.raised().to_vec();
    if !raised.is_empty() {
        let agent = locked.agent;
        if program(agent.store(), agent, ON_ATTENTION).is_some() {
            draft.is_to_be_told();
        }
    }
    let transaction = draft.finish()?;
    let moves: Vec<_> =
        transaction.events.iter().filter(|event| event.kind == EventKind::StateTransition).cloned().collect();
    // A transaction is about one run at most; not every event of it says so.
    let about = transaction.events.iter().find_map(|event| event.run_id);
    let state = locked.commit(transaction)?;
    attention::note(session, &state.agent, &raised);
    let run_id = state.current_run.as_ref().map(|run| run.run_id).or(about);
    let last = state.last_turn.as_ref().filter(|turn| Some(turn.run_id) == run_id);
    let task_id = state.execution.task_id.or(last.map(|turn| turn.message_id));
    let occasions = moves.into_iter().map(|event| Occasion {
        agent: event.agent,
        from: event.data["from"].clone(),
        to: event.data["to"].clone(),
        task_id,
        reason: event.data["cause"].as_str().map(str::to_owned),
        run_id,
        success: None,
        attention: None,
    });
    session.moves.borrow_mut().extend(occasions);
    Ok(state)
}

/// Tells of what was committed since the last time: of every transition, and of what a person should
/// look at. To be called without the lock.
pub fn tell(session: &Session, store: &Store, agent: &Agent<'_>) {
    tell_moves(session, store, agent);
    attention::tell(session, store, agent);
}

/// Runs `on-state-change` for every transition, and where that was the end of a recovery
/// `on-recovery-complete`.
fn tell_moves(session: &Session, store: &Store, agent: &Agent<'_>) {
    // The others are not told of here: a parent begins and stops its children while its own
    // transitions are still to be told.
    let (moves, others): (Vec<_>, Vec<_>) =
        session.moves.take().into_iter().partition(|occasion| occasion.agent == *agent.name());
    session.moves.replace(others);
    if moves.is_empty() {
        return;
    }
    let changed = find(store, agent, ON_STATE_CHANGE);
    let recovered = find(store, agent, ON_RECOVERY_COMPLETE);
    for occasion in moves {
        let success = occasion.end_of_recovery();
        let ended = Occasion { success, ..occasion.clone() };
        let of_recovery = recovered.as_ref().filter(|_| success.is_some());
        for (hook, occasion) in [(changed.as_ref(), occasion), (of_recovery, ended)] {
            // Who is told to end has no time for more.
            if session.cancelled_by.get().is_some() {
                return;
            }
            if let Some(hook) = hook {
                recorded(session, hook.run(session, &occasion));
            }
        }
    }
}

/// What became of a hook whose failure is no more than recorded.
pub fn recorded(session: &Session, ran: Result<Ran>) {
    match ran {
        Ok(Ran { failure: None }) => {}
        Ok(Ran { failure: Some(failure) }) => session.out.note(&format!("{}: {failure}", failure.agent)),
        Err(error) => session.out.note(&error.to_string()),
    }
}

/// A hook that is there.
pub struct Hook<'a> {
    store: &'a Store,
    agent: &'a Agent<'a>,
    name: &'static str,
    program: PathBuf,
}

/// The hook of an agent: its own, else that of the state directory.
pub fn find<'a>(store: &'a Store, agent: &'a Agent<'a>, name: &'static str) -> Option<Hook<'a>> {
    if is_nested() {
        return None;
    }
    let program = program(store, agent, name)?;
    Some(Hook { store, agent, name, program })
}

/// Whether this command is called from a hook: then it runs none.
pub fn is_nested() -> bool {
    std::env::var_os(process::HOOK).is_some_and(|outer| !outer.is_empty())
}

/// Where the hook of an agent is, if there is one.
fn program(store: &Store, agent: &Agent<'_>, name: &str) -> Option<PathBuf> {
    let places = [agent.dir().join(layout::HOOKS), store.root().join(layout::HOOKS)];
    places.into_iter().map(|place| place.join(name)).find(|path| hook::is_there(path))
}

/// How a hook ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ran {
    pub failure: Option<Failure>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    agent: AgentName,
    hook: &'static str,
    how: String,
    /// The last line of its stderr.
    said: Option<String>,
}

impl Failure {
    /// As a reason: what it said last, else how it ended.
    pub fn reason(&self) -> &str {
        self.said.as_ref().unwrap_or(&self.how)
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} failed: {}", self.hook, self.how)?;
        self.said.as_ref().map_or(Ok(()), |said| write!(f, ": {said}"))
    }
}

impl Hook<'_> {
    /// Runs it to its end, without the lock. That it failed, and what it said where no run has a log
    /// for it, goes into the ledger.
    pub fn run(&self, session: &Session, occasion: &Occasion) -> Result<Ran> {
        self.run_within(session, occasion, None, &mut Nobody)
    }

    /// The same where what it is part of has a limit of its own, or may come to an end before.
    pub fn run_within(
        &self,
        session: &Session,
        occasion: &Occasion,
        limit: Option<Span>,
        overseer: &mut dyn Overseer,
    ) -> Result<Ran> {
        let policy = self.agent.policy()?;
        let timeout = policy.timeouts.hook.0.into_iter().chain(limit).min();
        let (ended, said) = hook::run(&self.spec(&policy, occasion, timeout)?, overseer)?;
        session.cancelled_by.set(session.cancelled_by.get().or(ended.cancelled_by));
        let failure = failure(&ended, timeout).map(|how| Failure {
            agent: occasion.agent.clone(),
            hook: self.name,
            how,
            said: ended.stderr.last_line.clone(),
        });
        let unheard = occasion.run_id.is_none() && !said.is_empty();
        if failure.is_some() || unheard {
            self.record(session, occasion, failure.as_ref(), unheard.then_some(said.as_str()))?;
        }
        Ok(Ran { failure })
    }

    fn spec(&self, policy: &Policy, occasion: &Occasion, timeout: Option<Span>) -> Result<HookSpec> {
        let Hook { store, agent, .. } = self;
        // Only for as long as it is current: what it calls then speaks as its turn.
        let current = agent.peek()?.current_run.filter(|run| Some(run.run_id) == occasion.run_id);
        let log = match occasion.run_id {
            Some(run_id) => {
                agent.make_run_dir(run_id)?;
                Some(agent.dir().run_dir(run_id).join(layout::HOOK_LOG))
            }
            None => None,
        };
        Ok(HookSpec {
            name: self.name,
            program: self.program.clone(),
            workdir: workspace_path(store, policy),
            env: environment(store, agent, policy, current.as_ref()),
            document: document(self.name, occasion),
            tmp: agent.dir().join(layout::TMP),
            log,
            timeout: timeout.map(Span::as_std),
        })
    }

    fn record(
        &self,
        session: &Session,
        occasion: &Occasion,
        failure: Option<&Failure>,
        said: Option<&str>,
    ) -> Result<()> {
        let mut data = json!({ "hook": self.name, "success": failure.is_none() });
        if let Some(failure) = failure {
            data["reason"] = json!(failure.how);
            data["last_line"] = json!(failure.said);
        }
        if let Some(said) = said {
            data["output"] = json!(end_of(said));
        }
        let (mut draft, locked) = begin(session, self.agent)?;
        draft.event(EventKind::HookEnded, occasion.run_id, data);
        commit(session, &locked, draft)?;
        Ok(())
    }
}

fn document(hook: &str, occasion: &Occasion) -> Vec<u8> {
    if let Some(attention) = &occasion.attention {
        let mut document = json!({ "hook": hook, "agent": occasion.agent, "at": attention.at });
        document["subject"] = json!(attention.subject);
        document["reason"] = json!(attention.reason);
        document["count"] = json!(attention.count);
        if let (Value::Object(document), Value::Object(ids)) = (&mut document, json!(attention.about)) {
            document.extend(ids);
        }
        return format!("{document}\n").into_bytes();
    }
    let mut document = json!({
        "hook": hook,
        "agent": occasion.agent,
        "from": occasion.from,
        "to": occasion.to,
        "task_id": occasion.task_id,
        "reason": occasion.reason,
        "run_id": occasion.run_id,
    });
    if let Some(success) = occasion.success {
        document["success"] = json!(success);
    }
    format!("{document}\n").into_bytes()
}

/// Why a hook counts as failed.
fn failure(ended: &Ended, timeout: Option<Span>) -> Option<String> {
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
