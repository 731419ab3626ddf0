//! Looking: every check of every record, without changing anything.

use std::collections::HashSet;
use std::io::ErrorKind;
use std::path::Path;

use rustix::fs::{FileType, Stat};
use walkdir::WalkDir;

use crate::beneath::{self, Spot};
use crate::error::{Error, Result};
use crate::model::agent::{Identity, Status};
use crate::model::execution::ExecutionState;
use crate::model::id::{AgentName, RunId};
use crate::model::record::Record;
use crate::model::run::Run;
use crate::model::state::State;
use crate::model::task::Task;
use crate::model::timer::Timer;
use crate::model::trigger::Trigger;
use crate::model::wait::Wait;
use crate::model::work::WorkItem;
use crate::rules::execution::agrees;
use crate::store::dir::inbox::is_own;
use crate::store::dir::journal::Journal;
use crate::store::dir::old_journal::Old;
use crate::store::dir::record::decode;
use crate::store::dir::sharing::{Misfit, is_writable_by_others};
use crate::store::dir::{files, git, layout};
use crate::store::{Agent, Store};

use super::queued::Queued;
use super::{ESSENTIAL, Finding, Remedy};

/// What was found in one agent's directory.
pub struct Checked {
    pub checked: usize,
    pub findings: Vec<Finding>,
}

/// The state directory itself: names of agents, and who may write where.
pub fn state_directory(store: &Store) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    let agents = store.spot().join(layout::AGENTS);
    for entry in agents.entries()? {
        let path = agents.join(&entry.name);
        let name = entry.name.to_string_lossy();
        let message = if name.starts_with('.') {
            continue;
        } else if !entry.is_dir {
            "not a directory: an agent is never a symbolic link or a file".to_owned()
        } else if let Err(error) = name.parse::<AgentName>() {
            error.to_string()
        } else {
            continue;
        };
        findings.push(Finding { agent: None, path, kind: "not_an_agent", message, remedy: Remedy::None });
    }
    for path in [store.spot(), agents, store.spot().join(layout::CONFIG)] {
        findings.extend(writable_by_others(None, &path, |_| false));
    }
    findings.extend(sharing(store)?);
    for path in store.litter()? {
        findings.push(Finding {
            agent: None,
            path,
            kind: "litter",
            message: "left by a command that was killed while it made this".to_owned(),
            remedy: Remedy::Sweep,
        });
    }
    if store.is_in_git() {
        for (name, wanted) in git::FILES {
            let lines = store.missing_for_git(name, wanted)?;
            if !lines.is_empty() {
                findings.push(Finding {
                    agent: None,
                    path: store.spot().join(name),
                    kind: "git_lines",
                    message: format!("git is not told: {}", lines.join(", ")),
                    remedy: Remedy::AddLines(name, lines),
                });
            }
        }
    }
    Ok(findings)
}

/// Who may come to the state directory and should not, or should and may not; and why that can't be put right.
fn sharing(store: &Store) -> Result<Vec<Finding>> {
    let at_settings = |error: &Error| {
        let message =
            if let Error::Damaged { message, .. } = error { message.clone() } else { error.to_string() };
        let path = store.spot().join(layout::CONFIG);
        Finding { agent: None, path, kind: "sharing", message, remedy: Remedy::Join }
    };
    Ok(match store.unshared() {
        Ok(misfits) => {
            let outsider = store.not_in_group()?;
            let findings = misfits.into_iter().map(|misfit| unshared(None, misfit));
            findings.chain(outsider.as_ref().map(at_settings)).collect()
        }
        Err(error @ Error::Damaged { .. })
            if error.path() == Some(store.spot().join(layout::CONFIG).path()) =>
        {
            vec![at_settings(&error)]
        }
        Err(error) => return Err(error),
    })
}

/// Other rights than `[sharing]` asks for.
fn unshared(agent: Option<&AgentName>, Misfit { spot, mode, wanted }: Misfit) -> Finding {
    let message = match wanted.group {
        Some(group) => format!("mode {mode:o}: to be shared it has mode {:o} and group {group}", wanted.mode),
        None => format!("mode {mode:o}: it is shared with nobody, so it has mode {:o}", wanted.mode),
    };
    Finding { agent: agent.cloned(), path: spot, kind: "sharing", message, remedy: Remedy::Permit(wanted) }
}

/// What others than the owner may write. `is_meant` knows what members of the sharing group may write.
fn writable_by_others(
    agent: Option<&AgentName>,
    path: &Spot,
    is_meant: impl Fn(&Stat) -> bool,
) -> Option<Finding> {
    let found = path.look().ok()??;
    let mode = found.st_mode & 0o7777;
    let is_open = is_writable_by_others(mode, found.st_uid, found.st_gid);
    if beneath::kind(&found) == FileType::Symlink || !is_open || is_meant(&found) {
        return None;
    }
    let who = if mode & 0o002 != 0 { "everybody".to_owned() } else { format!("group {}", found.st_gid) };
    Some(Finding {
        agent: agent.cloned(),
        path: path.clone(),
        kind: "writable_by_others",
        message: format!("mode {mode:o}: {who} may write here, and dormouse runs what this names"),
        remedy: Remedy::Protect,
    })
}

/// What can be seen at a glance, without a lock: what is wrong with settings, policies, states and journals.
pub fn quick(store: &Store) -> Result<Vec<Finding>> {
    let mut findings = state_directory(store)?;
    for name in store.agents()? {
        let agent = store.agent(&name)?;
        let mut checks = Checks { agent: &agent, checked: 0, findings: Vec::new() };
        checks.policy();
        checks.whole::<Identity>(layout::IDENTITY, |identity, name| {
            (identity.name != *name).then(|| identity.name.to_string())
        });
        checks.journal();
        checks.state();
        findings.append(&mut checks.findings);
    }
    Ok(findings)
}

/// Everything about one agent. To be called under its lock, so that nobody changes anything meanwhile.
pub fn agent(agent: &Agent<'_>) -> Checked {
    let mut checks = Checks { agent, checked: 0, findings: Vec::new() };
    checks.policy();
    checks.whole::<Identity>(layout::IDENTITY, |identity, name| {
        (identity.name != *name).then(|| identity.name.to_string())
    });
    checks.journal();
    if let Some(state) = checks.state() {
        let queued = checks.inbox();
        let works = checks.dir::<WorkItem>(layout::WORK, |item| (&item.agent, item.id.to_string()));
        let waits = checks.dir::<Wait>(layout::WAITS, |wait| (&wait.agent, wait.id.to_string()));
        checks.dir::<Timer>(layout::TIMERS, |timer| (&timer.agent, timer.id.to_string()));
        let tasks = checks.dir::<Task>(layout::TASKS, |task| (&task.agent, task.id.to_string()));
        let triggers =
            checks.dir::<Trigger>(layout::TRIGGERS, |trigger| (&trigger.agent, trigger.id.to_string()));
        checks.references(&state, &works, &waits, &tasks, &queued);
        checks.capabilities(&waits, &triggers);
        checks.ledger();
        let settled = checks.archive(&state);
        checks.runs(&state, &settled);
    }
    checks.permissions();
    Checked { checked: checks.checked, findings: checks.findings }
}

pub struct Checks<'a> {
    pub agent: &'a Agent<'a>,
    pub checked: usize,
    pub findings: Vec<Finding>,
}

impl Checks<'_> {
    pub fn path(&self, relative: &str) -> Spot {
        self.agent.dir().join(relative)
    }

    /// The place of a path that was met below the agent's directory.
    fn spot(&self, path: &Path) -> Spot {
        self.agent.dir().join(path.strip_prefix(self.agent.dir().path()).unwrap_or(path))
    }

    pub fn find(&mut self, path: Spot, kind: &'static str, message: impl Into<String>, remedy: Remedy) {
        let agent = Some(self.agent.name().clone());
        self.findings.push(Finding { agent, path, kind, message: message.into(), remedy });
    }

    pub fn unreadable(&mut self, path: Spot, error: &Error) {
        let essential = path.parent().path() == self.agent.dir().path()
            && path.name().to_str().is_some_and(|name| ESSENTIAL.contains(&name));
        let remedy = if essential { Remedy::None } else { Remedy::Quarantine };
        self.findings.push(Finding::unreadable(self.agent.name(), path, error, remedy));
    }

    fn policy(&mut self) {
        self.checked += 1;
        if let Err(error) = self.agent.policy() {
            self.unreadable(self.path(layout::POLICY), &error);
        }
    }

    /// Reads one record; says what is wrong with it.
    pub fn record<T: Record>(&mut self, path: &Spot) -> Option<T> {
        self.checked += 1;
        let read = files::read(path).and_then(|bytes| match bytes {
            Some(bytes) => decode(path, &bytes),
            None => Err(Error::damaged(path.path(), "missing")),
        });
        read.map_err(|error| self.unreadable(path.clone(), &error)).ok()
    }

    fn whole<T: Record>(&mut self, relative: &str, foreign: impl Fn(&T, &AgentName) -> Option<String>) {
        let path = self.path(relative);
        let name = self.agent.name().clone();
        if let Some(owner) = self.record::<T>(&path).and_then(|record| foreign(&record, &name)) {
            self.find(path, "wrong_owner", format!("the record of `{owner}`"), Remedy::None);
        }
    }

    fn journal(&mut self) {
        if let Err(error) = Journal::check(self.agent.dir()) {
            self.unreadable(self.path(layout::JOURNAL), &error);
        }
        if let Err(error) = Old::check(self.agent.dir()) {
            self.unreadable(self.path(layout::OLD_JOURNAL), &error);
        }
        for lock in [layout::LOCK, layout::RUN_LOCK] {
            let path = self.path(lock);
            if path.exists().is_ok_and(|there| there) && !path.is_file().is_ok_and(|is_file| is_file) {
                self.find(path, "damaged", "a lock is a plain file", Remedy::Quarantine);
            }
        }
    }

    fn state(&mut self) -> Option<State> {
        let path = self.path(layout::STATE);
        let state: State = self.record(&path)?;
        if state.agent != *self.agent.name() {
            self.find(path.clone(), "wrong_owner", format!("the record of `{}`", state.agent), Remedy::None);
        }
        if let Some(mark) = &state.attention {
            let newest = mark.newest.last().map(|newest| format!(": {newest}")).unwrap_or_default();
            let message = format!("{} since {}{newest}", mark.count, mark.since);
            self.find(path.clone(), "needs_attention", message, Remedy::Acknowledge);
        }
        self.passed_over(&state);
        if let Some(moved) = &state.moved {
            self.late(moved);
        }
        let execution = state.execution.state;
        if !agrees(execution, state.status) {
            let message = format!("status `{}` does not go with execution state `{execution}`", state.status);
            self.find(path.clone(), "status_table", message, Remedy::None);
        }
        let in_a_run = matches!(
            execution,
            ExecutionState::Scheduled
                | ExecutionState::Running
                | ExecutionState::Resumed
                | ExecutionState::ShuttingDown
        );
        if in_a_run != state.current_run.is_some() {
            let message = format!(
                "execution state `{execution}` {} a current run",
                if in_a_run { "without" } else { "with" }
            );
            self.find(path.clone(), "current_run", message, Remedy::None);
        }
        let is_held = matches!(execution, ExecutionState::Suspended | ExecutionState::WaitingResources);
        if is_held != state.held.is_some() && state.status != Status::Stopped {
            let message = format!(
                "execution state `{execution}` {} a held run",
                if is_held { "without" } else { "with" }
            );
            self.find(path, "held_run", message, Remedy::None);
        }
        let of_run = state.current_run.as_ref().and_then(|run| run.checkpoint);
        if let Some(checkpoint) = of_run.or(state.held.as_ref().and_then(|held| held.checkpoint)) {
            let path = self.agent.workdir().checkpoint(checkpoint);
            if path.exists().is_ok_and(|there| !there) {
                let message = "missing: the checkpoint from which a run goes on".to_owned();
                self.find(path, "checkpoint", message, Remedy::None);
            }
        }
        Some(state)
    }

    /// A directory of open records: each readable, named after itself, and this agent's.
    fn dir<T: Record>(&mut self, dir: &str, name_of: impl Fn(&T) -> (&AgentName, String)) -> Vec<T> {
        let path = self.path(dir);
        let entries = match path.entries() {
            Ok(entries) => entries,
            Err(error) => {
                self.unreadable(path, &error);
                return Vec::new();
            }
        };
        let mut records = Vec::new();
        for entry in &entries {
            let name = entry.name.to_string_lossy();
            if name.starts_with('.') || !name.ends_with(".json") {
                continue;
            }
            let path = path.join(&entry.name);
            let Some(record) = self.record::<T>(&path) else { continue };
            let (owner, id) = name_of(&record);
            if *owner != *self.agent.name() || format!("{id}.json") != name {
                let message = format!("its content is {id} of `{owner}`");
                self.find(path, "wrong_name", message, Remedy::Quarantine);
                continue;
            }
            records.push(record);
        }
        records
    }

    /// Waits and triggers that name each other.
    fn capabilities(&mut self, waits: &[Wait], triggers: &[Trigger]) {
        for wait in waits {
            if let Some(id) = wait.trigger_id.filter(|id| !triggers.iter().any(|trigger| trigger.id == *id)) {
                let message = format!("{id} is not an active trigger: none of its deliveries ends this wait");
                self.find(self.path(&layout::open::<Wait>(wait.id)), "dangling_wait", message, Remedy::None);
            }
        }
        for trigger in triggers {
            let ended = trigger.scope.wait_id().filter(|id| !waits.iter().any(|wait| wait.id == *id));
            if let Some(id) = ended {
                let message = format!("{id}, which it is scoped to, is not an active wait: revoke it");
                self.find(
                    self.path(&layout::open::<Trigger>(trigger.id)),
                    "dangling_trigger",
                    message,
                    Remedy::None,
                );
            }
        }
    }

    fn references(
        &mut self,
        state: &State,
        works: &[WorkItem],
        waits: &[Wait],
        tasks: &[Task],
        queued: &Queued,
    ) {
        let at_state = self.path(layout::STATE);
        if state.open_tasks == 0 && !tasks.is_empty() {
            let message = format!("it says that no task is open, but there are {}", tasks.len());
            self.find(at_state.clone(), "task_count", message, Remedy::None);
        }
        if let Some(focus) = state.focus
            && !works.iter().any(|item| item.id == focus)
        {
            self.find(
                at_state.clone(),
                "dangling_focus",
                format!("{focus} is not an open work item"),
                Remedy::None,
            );
        }
        let claimed = state.current_run.as_ref().map(|run| run.message_id);
        if let Some(id) = claimed.filter(|id| !queued.messages.contains(id)) {
            self.find(
                at_state,
                "dangling_message",
                format!("{id} is claimed and not in the inbox"),
                Remedy::None,
            );
        }
        for wait in waits {
            let path = self.path(&layout::open::<Wait>(wait.id));
            if let Some(item) = wait.work_item_id.filter(|id| !works.iter().any(|item| item.id == *id)) {
                self.find(
                    path.clone(),
                    "dangling_wait",
                    format!("{item} is not an open work item"),
                    Remedy::None,
                );
            }
            if let Some(why) = queued.lacks(wait, tasks) {
                let message = format!("{why}; the next step ends the wait, or lets it wait again");
                self.find(path.clone(), "broken_wait", message, Remedy::None);
            }
            if !wait.is_active() {
                self.find(
                    path,
                    "not_open",
                    format!("a {} wait belongs into the archive", wait.status),
                    Remedy::Quarantine,
                );
            }
        }
        for task in tasks.iter().filter(|task| task.status.is_terminal()) {
            let path = self.path(&format!("{}/{}.json", layout::TASKS, task.id));
            self.find(
                path,
                "not_open",
                format!("a {} task belongs into the archive", task.status),
                Remedy::Quarantine,
            );
        }
    }

    /// Every run but the current one has its record: in the archive, or in its directory, where versions before
    /// have put it.
    fn runs(&mut self, state: &State, settled: &HashSet<RunId>) {
        let runs = self.path(layout::RUNS);
        let entries = runs.entries().unwrap_or_default();
        for entry in entries {
            let path = runs.join(&entry.name);
            let id = entry.name.to_str().and_then(|name| name.parse::<RunId>().ok());
            let Some(id) = id.filter(|_| entry.is_dir) else {
                self.find(path, "wrong_name", "not the directory of a run", Remedy::Quarantine);
                continue;
            };
            if state.current_run.as_ref().is_some_and(|run| run.run_id == id) {
                continue;
            }
            let record = path.join("run.json");
            // A look that fails says nothing about the run.
            if record.exists().is_ok_and(|there| !there) {
                if !settled.contains(&id) {
                    let message = "the archive has no record of it, and it is not the current run";
                    self.find(path, "orphaned_run", message, Remedy::Quarantine);
                }
                continue;
            }
            if let Some(run) = self.record::<Run>(&record)
                && (run.id != id || run.agent != *self.agent.name())
            {
                self.find(
                    record,
                    "wrong_name",
                    format!("its content is {} of `{}`", run.id, run.agent),
                    Remedy::Quarantine,
                );
            }
        }
    }

    /// What others can write, down to the files of runs.
    fn permissions(&mut self) {
        let store = self.agent.store();
        let members = store.sharing_group().ok().flatten();
        let inbox = self.path(layout::INBOX);
        for entry in WalkDir::new(self.agent.dir().path()).follow_links(false) {
            match entry {
                Ok(entry) => {
                    let spot = self.spot(entry.path());
                    // The inbox, and in it what members have made for the group.
                    let is_meant = |found: &Stat| {
                        let is_theirs = spot == inbox
                            || spot.path().starts_with(inbox.path()) && is_own(&spot).is_ok_and(|own| !own);
                        is_theirs && found.st_mode & 0o002 == 0 && members == Some(found.st_gid)
                    };
                    let finding = writable_by_others(Some(self.agent.name()), &spot, is_meant);
                    self.findings.extend(finding);
                }
                // What goes away meanwhile is nobody's to write any more.
                Err(error) if error.io_error().is_none_or(|error| error.kind() == ErrorKind::NotFound) => {}
                Err(error) => {
                    let path = self.spot(error.path().unwrap_or(self.agent.dir().path()));
                    self.find(path, "unreadable", error.to_string(), Remedy::None);
                }
            }
        }
        // Last, so that their rights are what is left of all repairs. A group that the machine does not have is
        // a finding of the state directory.
        if let Ok(misfits) = store.unshared_in(self.agent.dir()) {
            self.findings.extend(misfits.into_iter().map(|misfit| unshared(Some(self.agent.name()), misfit)));
        }
    }
}
