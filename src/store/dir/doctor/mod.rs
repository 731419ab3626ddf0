//! Checks the files of a state directory without changing anything, and repairs findings that have
//! one right repair (FORMAT §6). `engine::checks` checks relations between records.

mod history;
mod inbox;
mod mend;
mod place;
mod records;
mod rights;

use std::borrow::Cow;
use std::path::PathBuf;

use crate::cap_fs::CapPath;
use crate::error::{Error, Result};
use crate::local::{LocalAgent, StateDir, git, layout, sharing::Rights};
use crate::model::id::{AgentName, TaskId, TriggerId, WaitId};
use crate::model::record::Plane;
use crate::model::state::Outbox;

use super::super::backend::StoreFault;
use super::NOT_A_DIRECTORY;
use super::delete::is_deleted_remnant;

pub(super) use place::may_be_shared;
pub use records::{Checkup, ReadableRecords};

/// Repair of a finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remedy {
    /// A person must act, or should at least read the finding.
    ByHand { advice: Cow<'static, str>, is_warning: bool },
    /// Move the file or directory to `quarantine/`.
    Quarantine,
    /// Move these lines of the file to `quarantine/`.
    QuarantineLines(Vec<Vec<u8>>),
    /// Remove repeated lines of the file, and sort events.
    Untangle,
    /// Remove the write permission of other users.
    Protect,
    /// Set the permissions that `[sharing]` asks for.
    Permit(Rights),
    /// Set the number of dead letters and the size of the outbox to these correct values.
    Recount(u64, Outbox),
    /// Remove stale files of killed commands. The caller removes directories of hooks, because it
    /// may have to end processes first.
    Sweep,
    /// Write the `.gitkeep` of the inbox.
    KeepInbox,
    /// Finish an interrupted replacement of the inbox by an empty directory.
    FinishExchange,
    /// Add these lines to a file of the state directory that git reads.
    AddLines(&'static str, Vec<String>),
}

impl Remedy {
    /// A person must decide.
    pub const NONE: Remedy = Remedy::ByHand { advice: Cow::Borrowed("by hand"), is_warning: false };
    /// A person should read the finding; no repair is needed.
    pub const CONSIDER: Remedy = Remedy::warning("to be considered");
    /// A person should look at a problem whose records are correct, and acknowledge it.
    pub const ACKNOWLEDGE: Remedy = Remedy::warning("look at it, then `dormouse queue dead --ack`");
    /// A person must correct or remove files that could not be admitted.
    const SORT: Remedy =
        Remedy::warning("look at it with `dormouse queue rejected`, then --accept or --drop it");
    /// A person must send on or remove an inbox file that arrived after the export of an agent that
    /// has left by `export --move` or `rm`.
    const FORWARD: Remedy = Remedy::warning("say it again where the agent is now, and remove it here");
    /// A person must create the group, join it, or remove it from the settings.
    const JOIN: Remedy = Remedy::warning("make the group or join it, or take `sharing.group` out");
    /// A person must make sure that only one machine ticks in this state directory.
    const ONE_TICKER: Remedy = Remedy::warning("have one machine tick here, and no other");

    const fn warning(advice: &'static str) -> Remedy {
        Remedy::ByHand { advice: Cow::Borrowed(advice), is_warning: true }
    }

    /// True if the records need no repair.
    pub fn is_warning(&self) -> bool {
        match self {
            Remedy::ByHand { is_warning, .. } => *is_warning,
            Remedy::Untangle
            | Remedy::Sweep
            | Remedy::KeepInbox
            | Remedy::FinishExchange
            | Remedy::AddLines(..)
            | Remedy::Permit(_) => true,
            Remedy::Quarantine | Remedy::QuarantineLines(_) | Remedy::Protect | Remedy::Recount(..) => false,
        }
    }

    pub fn describe(&self) -> &str {
        match self {
            Remedy::ByHand { advice, .. } => advice,
            Remedy::Quarantine => "move it to quarantine/",
            Remedy::QuarantineLines(_) => "move the lines to quarantine/",
            Remedy::Untangle => "leave one of each, in order",
            Remedy::Protect => "take write permission from others",
            Remedy::Permit(_) => "give it these rights",
            Remedy::Recount(..) => "set the counter right",
            Remedy::Sweep => "remove it",
            Remedy::KeepInbox => "put it there",
            Remedy::FinishExchange => "put it into its place",
            Remedy::AddLines(..) => "add what is missing",
        }
    }
}

/// Problem that a check has found.
#[derive(Debug, Clone)]
pub struct Finding {
    pub agent: Option<AgentName>,
    place: CapPath,
    /// Display name of the affected record, if its store has no files.
    shown: Option<PathBuf>,
    pub kind: &'static str,
    pub message: String,
    pub remedy: Remedy,
}

/// Record that a finding is about.
#[derive(Debug, Clone, Copy)]
pub enum FindingSubject {
    State,
    Wait(WaitId),
    Task(TaskId),
    Trigger(TriggerId),
    Policy,
}

impl FindingSubject {
    fn path(self) -> String {
        match self {
            FindingSubject::State => layout::STATE.to_owned(),
            FindingSubject::Policy => layout::POLICY.to_owned(),
            FindingSubject::Wait(id) => layout::open(Plane::Waits, id),
            FindingSubject::Task(id) => layout::open(Plane::Tasks, id),
            FindingSubject::Trigger(id) => layout::open(Plane::Triggers, id),
        }
    }
}

/// Kind of a finding about lines doubled or joined by a merge without `dormouse merge-driver`.
const MERGED_LINES: &str = "merged_lines";
const ENDED_TWICE: &str = "ended_twice";

impl Finding {
    /// Finding about the state directory itself.
    fn new(place: CapPath, kind: &'static str, message: impl Into<String>, remedy: Remedy) -> Finding {
        Finding { agent: None, place, shown: None, kind, message: message.into(), remedy }
    }

    /// Returns this finding as one about an agent.
    fn of(self, agent: &AgentName) -> Finding {
        Finding { agent: Some(agent.clone()), ..self }
    }

    /// True if a git merge has caused the problem. Records in a database are never merged by git.
    pub fn is_of_merge(&self) -> bool {
        self.shown.is_none() && [MERGED_LINES, ENDED_TWICE].contains(&self.kind)
    }

    /// Returns the path of the affected file, or the display name of the record.
    pub fn place(&self) -> String {
        self.shown.as_deref().unwrap_or(self.place.path()).display().to_string()
    }

    /// Returns the path of the file relative to its agent's directory, or the display name.
    pub fn place_in(&self, agent: &LocalAgent<'_>) -> String {
        match &self.shown {
            Some(shown) => shown.display().to_string(),
            None => self.place.below(agent.dir.cap()).display().to_string(),
        }
    }

    /// Converts a finding about `agent`, a file copy of records in another store, into one about
    /// these records. `named`: returns the display name of a path in the copy. Only faults in the
    /// state can be repaired in another store.
    pub(in crate::store) fn of_records(
        self,
        agent: &LocalAgent<'_>,
        named: impl Fn(String) -> PathBuf,
    ) -> Finding {
        let shown = Some(named(self.place_in(agent)));
        let is_kept = matches!(self.remedy, Remedy::Recount(..)) || self.remedy == Remedy::ACKNOWLEDGE;
        let remedy = match self.remedy.is_warning() {
            _ if is_kept => self.remedy,
            true => Remedy::CONSIDER,
            false => Remedy::NONE,
        };
        Finding { shown, remedy, ..self }
    }

    /// Finding about an unreadable record, with the message of the error.
    fn unreadable(place: CapPath, error: &Error, remedy: Remedy) -> Finding {
        // A file of a newer version is not damaged: the newer version can read it.
        let is_whole = matches!(error, Error::Newer { .. } | Error::Io { .. });
        let remedy = if is_whole { Remedy::NONE } else { remedy };
        Finding::new(place, error.kind(), text_without_path(error), remedy)
    }
}

/// Returns the text of an error without the path, because the finding already names the path.
fn text_without_path(error: &Error) -> String {
    let Error::Damaged { message, .. } = error else { return error.to_string() };
    let at = error.place().map(|(line, column)| format!("line {line}, column {column}: "));
    format!("{}{message}", at.unwrap_or_default())
}

const LEFT_ROOM: &str = "the agent is gone: what its turns and tasks left on this machine is still here; \
                         remove it if it is not needed";

/// Finding about a stale file of a killed command in the state directory itself.
pub(in crate::store) fn left_behind(place: CapPath) -> Finding {
    Finding::new(place, "stale_files", "left by a command that was killed while it made this", Remedy::Sweep)
}

impl StateDir {
    /// Finding about the state directory as a whole, for people to read.
    pub fn concern(&self, kind: &'static str, message: String) -> Finding {
        Finding::new(self.cap(), kind, message, Remedy::CONSIDER)
    }

    /// Finding about a database as a whole. `shown`: display name of the database.
    pub(in crate::store) fn finding_of_store(&self, shown: &str, fault: StoreFault) -> Finding {
        let remedy = if fault.is_warning { Remedy::CONSIDER } else { Remedy::NONE };
        let shown = Some(PathBuf::from(shown));
        Finding { shown, ..Finding::new(self.cap(), fault.kind, fault.message, remedy) }
    }

    /// Finds local directories of agents that another machine has deleted or renamed.
    pub(in crate::store) fn local_dirs_but_of(&self, known: &[AgentName]) -> Result<Vec<Finding>> {
        let mut left = self.agent_dirs("")?;
        left.retain(|name| known.binary_search(name).is_err());
        let finding = |name: &AgentName| {
            let place = self.cap().join(layout::AGENTS).join(name.as_str());
            Finding::new(place, "left_room", LEFT_ROOM, Remedy::CONSIDER).of(name)
        };
        Ok(left.iter().map(finding).collect())
    }

    /// Checks the names of agents.
    pub(in crate::store) fn name_findings(&self) -> Result<Vec<Finding>> {
        let mut findings = Vec::new();
        let agents = self.cap().join(layout::AGENTS);
        for entry in agents.entries()? {
            let (name, place) = (entry.name.to_string_lossy(), agents.join(&entry.name));
            if name.starts_with('.') {
                continue;
            }
            if !entry.is_dir {
                findings.push(Finding::new(place, "not_an_agent", NOT_A_DIRECTORY, Remedy::NONE));
            } else if let Err(error) = name.parse::<AgentName>() {
                findings.push(Finding::new(place, "not_an_agent", error.to_string(), Remedy::NONE));
            } else if is_deleted_remnant(&place)? {
                let message = "git has removed this agent, and left the files of this machine";
                findings.push(Finding::new(place, "husk", message, Remedy::Sweep));
            }
        }
        Ok(findings)
    }

    /// Checks the state directory itself: its file system, write permissions, and the files for
    /// git.
    pub(in crate::store) fn file_findings(&self) -> Result<Vec<Finding>> {
        let mut findings = self.place()?;
        findings.extend(self.rights()?);
        findings.extend(self.stale_files()?.into_iter().map(left_behind));
        if self.is_in_git() {
            for (name, wanted) in git::FILES {
                let lines = self.missing_for_git(name, wanted)?;
                if !lines.is_empty() {
                    let message = format!("git is not told: {}", lines.join(", "));
                    let remedy = Remedy::AddLines(name, lines);
                    findings.push(Finding::new(self.cap().join(name), "git_lines", message, remedy));
                }
            }
        }
        Ok(findings)
    }
}

impl Checkup<'_> {
    /// Reports stale files of killed commands. The caller holds the agent's lock.
    pub fn stale_files(&mut self) {
        let message = match self.agent.local.stale_files() {
            Ok(0) | Err(_) => return,
            Ok(1) => "1 thing was left by killed commands".to_owned(),
            Ok(left) => format!("{left} things were left by killed commands"),
        };
        self.note(self.agent.local.tmp(), "stale_files", message, Remedy::Sweep);
    }
}
