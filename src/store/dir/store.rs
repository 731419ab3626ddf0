//! The open state directory: its settings, its user, and the names of its agents.

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::cap_fs::{CapPath, Root, accounts};
use crate::error::Result;
use crate::local::{anchor::Anchor, config, files::Disk, layout, lock};
use crate::model::id::AgentName;
use crate::model::place::{PlaceId, StatePlace};
use crate::model::policy::Policy;
use crate::model::settings::{GitSettings, IngressSettings, StoreConfig};
use crate::model::time::{Span, Time};

use super::super::backend::{AgentRecords, Backend, StoreProperties};

/// Process that opens a store: its name as the holder of locks, and its timeout for locks.
#[derive(Debug, Clone)]
pub struct Opener {
    pub command: String,
    /// Returns the name of this machine. Called only when a lock is taken.
    pub host: fn() -> String,
    pub patience: Duration,
    /// Prints a notice for the user that is no result of the command.
    pub tell: fn(&str),
    /// True if git tracks a file of the state directory, by its path relative to that directory.
    pub is_tracked: fn(&Anchor, &str) -> bool,
}

/// An open state directory.
#[derive(Debug)]
pub struct DirStore {
    /// Place of the state directory on this machine.
    pub(in crate::store) anchor: Anchor,
    pub(super) root: Arc<Root>,
    /// `config.store.url` names the database that has the records, if they are not files.
    pub(in crate::store) config: StoreConfig,
    pub(super) disk: Disk,
    /// Name of the user of this command, if the inboxes are shared and the user is neither their
    /// owner nor root. Such a user may put files into the inboxes, and nothing else.
    pub(super) guest: Option<String>,
    /// Display name of the store that has the records, if they are not in this directory.
    pub(in crate::store) remote: Option<String>,
    /// Time after which a lease in the remote store expires without renewal.
    pub(in crate::store) lease: Span,
    pub(in crate::store) opener: Opener,
}

impl DirStore {
    /// Returns the identity of the state directory, and its path on this machine.
    pub fn state_place(&self) -> Result<StatePlace> {
        let (device, inode) = self.cap().numbers_of_root()?;
        Ok(StatePlace {
            id: PlaceId { device, inode },
            path: self.anchor.path().to_string_lossy().into_owned(),
        })
    }

    /// Root of the paths in the state directory.
    pub(super) fn cap(&self) -> CapPath {
        self.root.cap()
    }

    /// Delay of a due timer or queued message that shows that no tick runs. `None`: never reported.
    pub(in crate::store) fn overdue_after(&self) -> Option<Span> {
        self.config.scheduler.overdue_after.0
    }

    pub fn git_settings(&self) -> GitSettings {
        self.config.git
    }

    /// The name of the user who owns the state directory.
    pub fn owner(&self) -> String {
        accounts::name(self.root.owner())
    }

    /// Refuses a change by a user who does not own the state directory.
    pub fn check_may_change(&self) -> Result<()> {
        self.root.check_may_change()
    }

    /// Maximum time for which commands wait for locks.
    pub fn patience(&self) -> Duration {
        self.opener.patience
    }

    /// Parses a text as the settings of an agent of this store. `origin`: source of the text, for
    /// error messages.
    pub fn policy_from(&self, origin: &str, text: &str) -> Result<Policy> {
        config::policy_from(Path::new(origin), text.as_bytes(), &self.config)
    }

    /// Error if the state directory can't be written to.
    pub fn try_writing(&self) -> Result<()> {
        let cap = self.cap().join(format!("health.new-{}", std::process::id()));
        self.disk.stage_unsynced(&cap, b"\n")?;
        cap.remove()
    }

    pub fn ingress(&self) -> &IngressSettings {
        &self.config.ingress
    }

    /// Names of the profiles in `dormouse.toml`.
    pub fn profiles(&self) -> impl Iterator<Item = &str> {
        self.config.profiles.keys().map(String::as_str)
    }

    pub(super) fn holder(&self, now: Time) -> lock::Holder {
        lock::Holder {
            pid: std::process::id(),
            command: self.opener.command.clone(),
            host: (self.opener.host)(),
            since: now,
            agent: None,
        }
    }
}

impl Backend for DirStore {
    fn properties(&self) -> StoreProperties {
        StoreProperties::default()
    }

    /// Skips entries that are no agent's directory.
    fn agents(&self, beginning: &str) -> Result<Vec<AgentName>> {
        let mut names: Vec<AgentName> = Vec::new();
        self.cap().join(layout::AGENTS).each_entry(|name, is_dir| {
            if is_dir && name.starts_with(beginning.as_bytes()) {
                names.extend(std::str::from_utf8(name).ok().and_then(|name| name.parse().ok()));
            }
            true
        })?;
        names.sort_unstable();
        Ok(names)
    }

    fn agents_in_files(&self) -> Result<Vec<AgentName>> {
        self.agents("")
    }

    fn agent(&self, name: &AgentName) -> Result<Option<Rc<dyn AgentRecords + '_>>> {
        Ok(self.find(name)?.map(|agent| Rc::new(agent) as Rc<dyn AgentRecords>))
    }

    /// True for any entry of this name, even an agent that was moved away.
    fn is_taken(&self, name: &AgentName) -> Result<bool> {
        self.cap().join(layout::AGENTS).join(name.as_str()).exists()
    }

    /// Returns all readable identities, because only an identity has its agent's former names.
    fn formerly_named(&self, _former: &AgentName) -> Result<Vec<(AgentName, String)>> {
        let read = |name: AgentName| Some((self.find(&name).ok()??.identity().ok()?, name));
        Ok(self.agents("")?.into_iter().filter_map(read).map(|(identity, name)| (name, identity)).collect())
    }

    fn guest(&self) -> Option<&str> {
        self.guest.as_deref()
    }
}
