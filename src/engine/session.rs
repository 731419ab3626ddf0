//! Session of one command: clock, output, global options, and access to the store.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeSet;
use std::env;
use std::path::PathBuf;

use crate::clock::Clock;
use crate::error::{Error, Result, SUGGESTED, Status};
use crate::local::{LockGuard, Opener, Subject, anchor::Anchor};
use crate::model::attention::{Attention, Notification, PendingTransition};
use crate::model::id::{AgentName, MessageId, RunId, TaskId};
use crate::model::refusal::Refusal;
use crate::model::submission::{CalledBy, Caller};
use crate::model::task::Task;
use crate::model::time::{Span, Time};
use crate::process::git::exchange::RemoteBranch;
use crate::process::{self, git};
use crate::report::output::{Output, talk};
use crate::store::backend::Claim;
use crate::store::{Store, is_url, shown_url};

pub struct Session {
    pub clock: Clock,
    pub out: Output,
    /// Notifications of this command's commits that were not sent yet, by agent. Notifications
    /// about a parent may wait while those about a child that it starts or stops are sent.
    pub pending: RefCell<Vec<(AgentName, Pending)>>,
    /// Attentions that this command has raised. They determine the command's output and exit
    /// status.
    pub raised: RefCell<Vec<Attention>>,
    /// Message whose turns copy their output to stderr while they run.
    pub listens_to: Cell<Option<MessageId>>,
    /// Signal that this process got during a turn or a hook, after which the process starts nothing
    /// more.
    pub cancelled_by: Cell<Option<i32>>,
    /// Lack of memory, disk or processes that kept a turn from starting; the command reports it.
    pub lacked: RefCell<Option<Error>>,
    /// Remote branch to which the claim of a message is pushed before its turn runs.
    pub publishes_to: OnceCell<RemoteBranch>,
    /// Agent of the command, once it is known, to be named in JSON errors.
    subject: RefCell<Option<AgentName>>,
    /// Maximum wait for a lock.
    patience: Cell<Span>,
    said: GlobalOptions,
}

/// Notifications about one agent that were not sent yet. Each commit adds its notifications.
#[derive(Debug, Default)]
pub struct Pending {
    /// Attentions that people have not been told of.
    pub raised: Vec<Attention>,
    /// Ends of recoveries of which the hook `on-recovery-complete` has not been told.
    pub recovered: Vec<PendingTransition>,
    /// Notifications that this process has committed to the outbox in the agent's state.
    pub outbox: Vec<Notification>,
    /// Shared lock that shows other processes that this one will send its notifications.
    pub lock: Option<LockGuard>,
}

/// Agents that a command lists or works through.
#[derive(Debug)]
pub struct Chosen {
    pub names: Vec<AgentName>,
    /// True if no agent was named, so that `names` has all agents.
    pub are_all: bool,
    /// True if each result is printed with the name of its agent.
    pub are_told_apart: bool,
}

/// Global options of the command line.
pub struct GlobalOptions {
    /// Name of the command, shown to processes that wait for its locks.
    pub command: &'static str,
    /// State directory or URL from the command line, if named.
    pub dir: Option<PathBuf>,
    /// Maximum wait for a lock.
    pub patience: Span,
}

impl Session {
    /// Returns the session of one command.
    pub fn new(clock: Clock, out: Output, said: GlobalOptions) -> Session {
        Session {
            clock,
            out,
            pending: RefCell::default(),
            raised: RefCell::default(),
            listens_to: Cell::default(),
            cancelled_by: Cell::default(),
            lacked: RefCell::default(),
            publishes_to: OnceCell::new(),
            subject: RefCell::default(),
            patience: Cell::new(said.patience),
            said,
        }
    }

    /// Returns the state directory that was named on the command line or in the environment.
    pub fn named_dir(&self) -> Option<PathBuf> {
        let from_env = || env::var_os("DORMOUSE_DIR").filter(|dir| !dir.is_empty()).map(PathBuf::from);
        self.said.dir.clone().or_else(from_env)
    }

    /// True if this command has raised an attention about a failure, so that it exits with 7.
    pub fn has_raised_failure(&self) -> bool {
        self.raised.borrow().iter().any(|attention| attention.subject.is_failure())
    }

    /// Sets the agent of the command for errors, unless an agent is set already.
    pub fn is_about(&self, agent: &AgentName) {
        self.subject.borrow_mut().get_or_insert_with(|| agent.clone());
    }

    /// Prints an error, and returns its exit status.
    pub fn fail(&self, error: Error) -> Status {
        let subject = self.subject.borrow().clone();
        let error = self.explained(error, subject.as_ref());
        self.out.failure(&error, None, subject.as_ref().map(AgentName::as_str));
        error.exit_status()
    }

    /// Returns a clearer error, if the agent of the error was renamed or removed.
    pub(super) fn explained(&self, error: Error, about: Option<&AgentName>) -> Error {
        let (is_of_file, is_of_agent) = (error.path().is_some(), error.agent().is_some());
        let Some(store) = (is_of_file || is_of_agent).then(|| self.store().ok()).flatten() else {
            return error;
        };
        let is_gone = |name| matches!(store.agent(name), Err(Error::NoAgent { .. }));
        let error = match about.filter(|name| store.local().is_in_agent(name, &error) && is_gone(name)) {
            Some(name) => Error::NoAgent { agent: name.to_string(), known: None, renamed: None },
            None => error,
        };
        let Error::NoAgent { agent, known, renamed: None } = error else { return error };
        // `successor` may read the identity of every agent, which is too slow for many agents.
        let is_cheap = known.as_ref().is_none_or(|known| known.len() <= SUGGESTED);
        let former = agent.parse().ok().filter(|_| is_cheap);
        let name = former.and_then(|former| store.successor(&former).ok().flatten());
        Error::NoAgent { agent, known, renamed: name.map(|name| name.to_string()) }
    }

    /// Reduces the maximum wait for a lock to `patience`, unless it is shorter already.
    pub fn hurry(&self, patience: Span) {
        self.patience.set(self.patience().min(patience));
    }

    pub fn patience(&self) -> Span {
        self.patience.get()
    }

    /// Returns the URL, if a URL was named instead of a directory.
    pub fn named_url(&self) -> Option<String> {
        let named = self.named_dir()?;
        named.to_str().filter(|word| is_url(word)).map(str::to_owned)
    }

    pub fn store(&self) -> Result<Store> {
        let store = if let Some(url) = self.named_url() {
            Store::open_at(anchor_of(&url)?, &url, self.opener())?
        } else {
            // The user's own settings file need not exist.
            let own = base_dir("XDG_CONFIG_HOME", ".config").map(|base| base.join("dormouse/config.toml"));
            self.store_at(Anchor::find(self.named_dir().as_deref(), own.as_deref())?)?
        };
        if let Some(claim) = claimed(&store) {
            store.claim(claim);
        }
        Ok(store)
    }

    /// Opens the store of a state directory.
    pub fn store_at(&self, anchor: Anchor) -> Result<Store> {
        Store::open(anchor, self.opener())
    }

    fn opener(&self) -> Opener {
        let command = format!("dormouse {}", self.said.command);
        Opener { command, patience: self.patience().as_std(), tell: talk, is_tracked: git::is_tracked }
    }

    /// Returns the running turn or task that has called this command; `None` if the caller belongs
    /// to another state directory. Error when the turn or task has ended.
    pub fn caller(&self, store: &Store) -> Result<Option<Caller>> {
        let Some(agent) = self.called_in(store)? else { return Ok(None) };
        match (set(process::RUN), set(process::TASK)) {
            (Some(run), _) => turn_caller(store, agent, &run).map(Some),
            (None, Some(task)) => task_caller(store, agent, &task, self.clock.now()).map(Some),
            (None, None) => Ok(None),
        }
    }

    /// Returns the agent of the calling turn or task, even if the turn or task has ended.
    pub fn called_in(&self, store: &Store) -> Result<Option<AgentName>> {
        let Some(agent) = set("DORMOUSE_AGENT") else { return Ok(None) };
        if set(process::RUN).or(set(process::TASK)).is_none() || !is_about(store) {
            return Ok(None);
        }
        agent.parse().map(Some).map_err(|error| Error::in_word("DORMOUSE_AGENT", error))
    }
}

/// Returns the absolute path in an environment variable, else `below_home` in the home directory.
fn base_dir(variable: &str, below_home: &str) -> Option<PathBuf> {
    let set = |name: &str| env::var_os(name).map(PathBuf::from).filter(|dir| dir.is_absolute());
    set(variable).or_else(|| Some(set("HOME")?.join(below_home)))
}

/// Returns the state directory on this machine for a store with this URL.
pub fn anchor_of(url: &str) -> Result<Anchor> {
    let state = base_dir("XDG_STATE_HOME", ".local/state").ok_or_else(|| {
        Error::usage(
            "neither XDG_STATE_HOME nor HOME is set: there is no directory for the files of this machine",
        )
    })?;
    Ok(Anchor::of_database(&shown_url(url)?, &state))
}

/// Returns the value of an environment variable, if it is not empty.
fn set(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

/// True if the store is that of the calling turn or task, which has rights in no other store.
fn is_about(store: &Store) -> bool {
    let own = env::var_os("DORMOUSE_DIR").filter(|dir| !dir.is_empty()).map(PathBuf::from);
    own.is_none_or(|own| {
        let (root, home) = (store.anchor().path(), store.anchor().home());
        [root, home].contains(&own.as_path())
            || own.canonicalize().is_ok_and(|own| root.canonicalize().is_ok_and(|root| own == root))
    })
}

/// Returns the calling run or task and its fencing token, if its store is a database.
fn claimed(store: &Store) -> Option<Claim> {
    let fence = set(process::FENCE)?.parse().ok()?;
    let agent = set("DORMOUSE_AGENT")?.parse().ok()?;
    let (subject, run) = match (set(process::RUN), set(process::TASK)) {
        (Some(run), _) => (Subject::Run, run.parse().ok()),
        (None, task) => (Subject::Task(task?.parse().ok()?), None),
    };
    is_about(store).then_some(Claim { agent, subject, fence, run })
}

fn turn_caller(store: &Store, agent: AgentName, run: &str) -> Result<Caller> {
    let run_id: RunId = run.parse().map_err(|error| Error::in_word(process::RUN, error))?;
    let found = store.agent(&agent)?;
    let state = found.peek()?;
    // This comes first: a run whose lease was taken over is not current either.
    found.refuse_fenced()?;
    // After a restore from a backup, a run of another directory may have the same id.
    let here = store.local().state_place()?.id;
    let Some(run) = state.current_run.filter(|run| run.run_id == run_id && run.place.id == here) else {
        let message = format!("{run_id} is no longer the current run of `{agent}`");
        return Err(Error::refused("run_not_current", message)
            .with_hint("its turn is over: unset DORMOUSE_RUN to call this from outside"));
    };
    let by = CalledBy::Turn { run_id, message_id: run.message_id };
    Ok(Caller { agent, by, hops: Some(run.hops) })
}

fn task_caller(store: &Store, agent: AgentName, task: &str, now: Time) -> Result<Caller> {
    let task_id: TaskId = task.parse().map_err(|error| Error::in_word(process::TASK, error))?;
    let found = store.agent(&agent)?;
    found.refuse_fenced()?;
    let Some(task) = found.read(|seen, _| seen.open_one::<Task>(task_id))? else {
        let message = format!("{task_id} is no longer an open task of `{agent}`");
        return Err(Error::refused("task_ended", message)
            .with_hint("it has ended: unset DORMOUSE_TASK to call this from outside"));
    };
    // A message that a task sends after `chain_pause` starts a new chain, so its hops restart.
    let pause = store.agent(&agent)?.policy()?.limits.chain_pause;
    let hops = (now.since(task.created_at) <= pause).then_some(task.hops);
    Ok(Caller { agent, by: CalledBy::Task { task_id, run_id: task.run_id }, hops })
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Error {
        let Refusal { kind, message, hint, edge, is_usage } = refusal;
        Error::Refused { kind, message, hint, is_usage, edge }
    }
}

/// Returns the named agents without duplicates, or with `all` every agent of the store.
pub fn agents(store: &Store, named: &[AgentName], all: bool) -> Result<Vec<AgentName>> {
    if all {
        return store.agents();
    }
    let mut seen = BTreeSet::new();
    Ok(named.iter().filter(|name| seen.insert(*name)).cloned().collect())
}
