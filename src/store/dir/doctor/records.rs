//! Checks of the records of one agent: each must be readable, named by its own id, and owned by the
//! agent.

use std::collections::HashSet;

use crate::cap_fs::CapPath;
use crate::error::Error;
use crate::local::{files, layout};
use crate::model::agent::Identity;
use crate::model::id::{AgentName, MessageId, RunId, TaskId};
use crate::model::message::Message;
use crate::model::record::{OpenRecord, Record};
use crate::model::state::Outbox;
use crate::model::state::State;
use crate::model::task::Task;
use crate::model::timer::Timer;
use crate::model::trigger::Trigger;
use crate::model::wait::Wait;
use crate::model::work::WorkItem;

use super::super::super::backend::AgentRecords;
use super::super::journal::Journal;
use super::super::record::{ESSENTIAL, RESTORE, decode};
use super::super::{DirAgent, quarantine};
use super::{Finding, FindingSubject, Remedy};

/// Check of the files of one agent, with its findings so far.
pub struct Checkup<'a> {
    pub(super) agent: &'a DirAgent<'a>,
    /// Names by which records may refer to the agent: its present name and its former names.
    own_names: Vec<AgentName>,
    pub checked: usize,
    pub findings: Vec<Finding>,
}

/// Records that have not ended and that can be read, and facts about the inbox.
pub struct ReadableRecords {
    pub works: Vec<WorkItem>,
    pub waits: Vec<Wait>,
    pub tasks: Vec<Task>,
    pub triggers: Vec<Trigger>,
    /// Messages to other agents that are not delivered yet.
    pub outbox: Outbox,
    /// Ids of the messages in the inbox.
    pub queued: HashSet<MessageId>,
    /// Ids of the tasks whose end a queued message reports.
    pub results: HashSet<TaskId>,
}

impl<'a> Checkup<'a> {
    /// Starts checks of the agent's files. If the caller does not hold the agent's lock, a finding
    /// may be about a file that a command is just changing.
    pub fn new(agent: &'a DirAgent<'a>) -> Checkup<'a> {
        Checkup { agent, own_names: vec![agent.local.name.clone()], checked: 0, findings: Vec::new() }
    }

    /// Checks the files that every step needs: settings, identity, journal, and `state.json`.
    /// Returns the state if it can be read.
    pub fn essentials(&mut self) -> Option<State> {
        self.checked += 1;
        let path = self.path(layout::POLICY);
        let origin = path.display().to_string();
        let policy = self.agent.policy().and_then(|text| self.agent.local.policy_from(&origin, &text));
        if let Err(error) = policy {
            self.unreadable(path, &error);
        }
        let identity = self.record::<Identity>(&self.path(layout::IDENTITY));
        self.journal();
        let state = self.record::<State>(&self.path(layout::STATE))?;
        let is_own = state.is_of(&self.agent.local.name);
        self.check_owner(layout::STATE, &state.agent, is_own);
        self.own_names.extend(is_own.then(|| state.agent.clone()));
        if let Some(identity) = identity {
            let is_own = identity.name == self.agent.local.name || is_own && state.is_of(&identity.name);
            self.check_owner(layout::IDENTITY, &identity.name, is_own);
            self.own_names.extend(identity.former_names.into_iter().map(|former| former.name));
        }
        if let Err(message) = quarantine::check(&state) {
            self.note(self.path(layout::STATE), "damaged", message, Remedy::NONE);
            return None;
        }
        self.passed_over(&state);
        if let Some(moved) = &state.moved {
            self.late(moved);
        }
        let of_run = state.current_run.as_ref().and_then(|run| run.checkpoint);
        if let Some(checkpoint) = of_run.or(state.held.as_ref().and_then(|held| held.checkpoint)) {
            let path = self.agent.local.checkpoint(checkpoint);
            if path.exists().is_ok_and(|there| !there) {
                let message = "missing: the checkpoint from which a run continues";
                self.note(path, "checkpoint", message, Remedy::NONE);
            }
        }
        Some(state)
    }

    /// Checks the inbox and all records that have not ended. Returns the readable ones.
    pub fn open(&mut self) -> ReadableRecords {
        let (queued, results) = self.inbox();
        let works = self.plane::<WorkItem>(|item| Some(&item.agent));
        let waits = self.plane::<Wait>(|wait| Some(&wait.agent));
        self.plane::<Timer>(|timer| Some(&timer.agent));
        let tasks = self.plane::<Task>(|task| Some(&task.agent));
        let triggers = self.plane::<Trigger>(|trigger| Some(&trigger.agent));
        let outbox = Outbox::of(&self.plane::<Message>(|_| None));
        ReadableRecords { works, waits, tasks, triggers, outbox, queued, results }
    }

    /// Adds a finding about a record that can be read.
    pub fn find(
        &mut self,
        about: FindingSubject,
        kind: &'static str,
        message: impl Into<String>,
        remedy: Remedy,
    ) {
        self.note(self.path(&about.path()), kind, message, remedy);
    }

    pub(super) fn note(
        &mut self,
        place: CapPath,
        kind: &'static str,
        message: impl Into<String>,
        remedy: Remedy,
    ) {
        self.add([Finding::new(place, kind, message, remedy)]);
    }

    /// Adds findings about files of the agent.
    pub(super) fn add(&mut self, findings: impl IntoIterator<Item = Finding>) {
        self.findings.extend(findings.into_iter().map(|finding| finding.of(&self.agent.local.name)));
    }

    pub(super) fn path(&self, relative: &str) -> CapPath {
        self.agent.local.dir.join(relative)
    }

    pub(super) fn unreadable(&mut self, path: CapPath, error: &Error) {
        let essential = path.parent().path() == self.agent.local.dir.path()
            && path.name().to_str().is_some_and(|name| ESSENTIAL.contains(&name));
        let advice = error.hint().unwrap_or_else(|| RESTORE.to_owned()).into();
        let by_hand = Remedy::ByHand { advice, is_warning: false };
        let remedy = if essential { by_hand } else { Remedy::Quarantine };
        self.add([Finding::unreadable(path, error, remedy)]);
    }

    /// Reads a record; adds a finding if that fails.
    pub(super) fn record<T: Record>(&mut self, path: &CapPath) -> Option<T> {
        self.checked += 1;
        let read = files::read(path).and_then(|bytes| match bytes {
            Some(bytes) => decode(path, &bytes),
            None => Err(Error::damaged(path.path(), "missing")),
        });
        read.map_err(|error| self.unreadable(path.clone(), &error)).ok()
    }

    /// Reports a record that belongs to another agent, `owner`, unless `is_own`.
    fn check_owner(&mut self, relative: &str, owner: &AgentName, is_own: bool) {
        if !is_own {
            let message = format!("the record of `{owner}`");
            self.note(self.path(relative), "wrong_owner", message, Remedy::NONE);
        }
    }

    /// True if `agent` is the present name or a former name of the checked agent.
    pub(super) fn is_own(&self, agent: &AgentName) -> bool {
        self.own_names.contains(agent)
    }

    fn journal(&mut self) {
        if let Err(error) = Journal::check(&self.agent.local.dir) {
            self.unreadable(self.path(layout::JOURNAL), &error);
        }
        for lock in [layout::LOCK, layout::RUN_LOCK] {
            let path = self.path(lock);
            if path.exists().is_ok_and(|there| there) && !path.is_file().is_ok_and(|is_file| is_file) {
                self.note(path, "damaged", "a lock is a plain file", Remedy::Quarantine);
            }
        }
    }

    /// Checks the records of a kind that have not ended: each must be readable, named by its own
    /// id, and owned by this agent, if `owner_of` returns an owner.
    fn plane<T: OpenRecord>(&mut self, owner_of: impl Fn(&T) -> Option<&AgentName>) -> Vec<T> {
        let path = self.path(layout::plane(T::PLANE));
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
            let (owner, id) = (owner_of(&record).unwrap_or(&self.agent.local.name), record.id());
            if !self.is_own(owner) || format!("{id}.json") != name {
                let message = format!("its content is {id} of `{owner}`");
                self.note(path, "wrong_name", message, Remedy::Quarantine);
                continue;
            }
            records.push(record);
        }
        records
    }

    /// Reports each run directory whose run is neither the current run nor in the archive.
    pub(super) fn runs(&mut self, state: &State, settled: &HashSet<RunId>) {
        let runs = self.path(layout::RUNS);
        let entries = runs.entries().unwrap_or_default();
        for entry in entries {
            let path = runs.join(&entry.name);
            let id = entry.name.to_str().and_then(|name| name.parse::<RunId>().ok());
            let Some(id) = id.filter(|_| entry.is_dir) else {
                self.note(path, "wrong_name", "not the directory of a run", Remedy::Quarantine);
                continue;
            };
            if state.current_run.as_ref().is_some_and(|run| run.run_id == id) {
                continue;
            }
            if !settled.contains(&id) {
                let message = "the archive has no record of it, and it is not the current run";
                self.note(path, "orphaned_run", message, Remedy::Quarantine);
            }
        }
    }
}
