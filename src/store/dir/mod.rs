//! State directory as a store: plain files that people read, scripts write and git merges. No
//! business rules are here.

mod agent;
pub mod apply_remote;
mod backlog;
mod batch;
mod change;
mod changes;
pub mod copying;
pub mod dedupe;
mod delete;
mod doctor;
pub mod ended_ids;
pub mod evidence;
mod export;
pub mod gc;
mod import;
pub mod inbox;
pub mod journal;
pub mod keys;
pub mod lines;
pub mod merge;
pub mod merge_trees;
pub mod months;
mod moved;
mod news;
pub mod quarantine;
pub mod record;
mod rename;
mod snapshot;
pub mod submissions;
pub mod sweep;
pub mod view;
pub mod watch;

use std::rc::Rc;

use rustix::fs::FileType;

use crate::cap_fs;
use crate::error::{Error, Result};
use crate::local::{HookFile, StateDir, layout};
use crate::model::agent::Identity;
use crate::model::event::Event;
use crate::model::id::AgentName;
use crate::model::state::State;
use crate::model::trigger::Trigger;

pub use agent::DirAgent;
pub use batch::DirBatch;
pub use change::DirTxn;
pub(in crate::store) use doctor::left_behind;
pub use doctor::{Checkup, Finding, FindingSubject, ReadableRecords, Remedy};
pub use export::DirExport;
pub use import::{Appeared, DirImport};
pub use inbox::{Dropped, QuarantineOutcome};
pub use moved::refusal;
pub use news::{News, Told};
pub use snapshot::Waiting;
pub use submissions::{HandWritten, Rejected, TakenFile};
pub use sweep::Swept;
pub use watch::DirWatch;

use super::backend::{AgentRecords, Backend, Ops};

/// Records and hooks of an agent that is about to be created.
#[derive(Debug)]
pub struct NewAgent {
    pub identity: Identity,
    pub policy: String,
    pub state: State,
    /// Events of the creation.
    pub events: Vec<Event>,
    pub trigger: Trigger,
    pub hooks: Vec<HookFile>,
}

/// Error for a name that another agent has.
pub(in crate::store) fn agent_exists(name: &AgentName) -> Error {
    Error::refused("agent_exists", format!("there is an agent `{name}` already"))
        .with_hint(format!("see it with `dormouse get {name}`, or change it with `dormouse edit {name}`"))
}

/// Store whose records are files of a state directory.
#[derive(Debug)]
pub struct DirStore {
    pub(in crate::store) state_dir: Rc<StateDir>,
}

impl Backend for DirStore {
    fn shown(&self) -> String {
        self.state_dir.anchor.path().to_string_lossy().into_owned()
    }

    fn agents(&self, beginning: &str) -> Result<Vec<AgentName>> {
        self.state_dir.agent_dirs(beginning)
    }

    /// True if the directory of agents has any entry of this name, even an agent marked as moved.
    fn is_taken(&self, name: &AgentName) -> Result<bool> {
        self.state_dir.cap().join(layout::AGENTS).join(name.as_str()).exists()
    }

    /// Returns all readable identities, because only an identity has its agent's former names.
    fn formerly_named(&self, _former: &AgentName) -> Result<Vec<(AgentName, String)>> {
        let read = |agent: DirAgent<'_>| Some((agent.local.name.clone(), agent.identity().ok()?));
        Ok(self.all()?.into_iter().filter_map(read).collect())
    }

    fn guest(&self) -> Option<&str> {
        self.state_dir.guest.as_deref()
    }
}

impl DirStore {
    /// Returns all agents, sorted by name.
    pub fn all(&self) -> Result<Vec<DirAgent<'_>>> {
        let names = self.state_dir.agent_dirs("")?;
        Ok(names.iter().map(|name| DirAgent { local: self.state_dir.agent(name) }).collect())
    }

    /// Returns the agent of this name; `None` if none exists. Error if its path is no directory.
    pub(super) fn find(&self, name: &AgentName) -> Result<Option<DirAgent<'_>>> {
        let local = self.state_dir.agent(name);
        let Some(found) = local.dir.cap().look()? else { return Ok(None) };
        if cap_fs::kind(&found) != FileType::Directory {
            return Err(Error::damaged(local.dir.path(), NOT_A_DIRECTORY));
        }
        Ok(Some(DirAgent { local }))
    }

    /// Creates an agent from all operations that make it, and with these hooks. No other command
    /// sees it before it is complete. Returns `false`, and changes nothing, if the name is taken.
    pub(super) fn create(&self, name: &AgentName, ops: Ops<'_>, hooks: &[HookFile]) -> Result<bool> {
        if self.is_taken(name)? {
            return Ok(false);
        }
        let mut staged = self.state_dir.stage(name, name)?;
        staged.furnish()?;
        ops(&mut |op| copying::put(op, &mut |path, bytes| staged.append(path, bytes)))?;
        let local = &staged.agent().local;
        local.furnish(hooks)?;
        self.state_dir.share([&local.dir])?;
        // Another process may have just created an agent of this name.
        staged.place_if_free()
    }
}

/// Message about a file in the place of an agent's directory.
const NOT_A_DIRECTORY: &str = "not a directory: an agent is never a symbolic link or a file";
