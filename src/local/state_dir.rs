//! The open state directory: its settings, its user, and the names of its agents.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::cap_fs::{Access, CapPath, Root, accounts};
use crate::error::{Error, IoContext, Result};
use crate::model::bound::MAX_SETTINGS;
use crate::model::id::AgentName;
use crate::model::place::StatePlace;
use crate::model::policy::Policy;
use crate::model::settings::StoreConfig;
use crate::model::time::{Span, Time};

use super::anchor::Anchor;
use super::files::Disk;
use super::{authors, config, layout, lock, machine};

/// Default time after which a lease without renewal expires.
const LEASE: Span = Span::from_secs(60);

/// Process that opens a store: its name in lock files, and its timeout for locks.
#[derive(Debug, Clone)]
pub struct Opener {
    pub command: String,
    pub patience: Duration,
    /// Prints a notice for the user that is no result of the command.
    pub tell: fn(&str),
    /// True if git tracks a file of the state directory.
    pub is_tracked: fn(&Path) -> bool,
}

/// State directory that is open: settings and files of a store on this machine.
#[derive(Debug)]
pub struct StateDir {
    /// Path of the state directory on this machine.
    pub anchor: Anchor,
    pub root: Arc<Root>,
    /// Settings in `dormouse.toml`.
    pub config: StoreConfig,
    pub disk: Disk,
    /// Name of the user of this command, if the inboxes are shared and the user is neither their
    /// owner nor root. Such a user may put files into the inboxes, and nothing else.
    pub guest: Option<String>,
    /// Time after which a lease in a database expires without renewal.
    pub lease: Span,
    pub opener: Opener,
}

impl StateDir {
    /// Opens a state directory, reading only `dormouse.toml`. Error `NotAStore` without it.
    pub fn open(anchor: Anchor, opener: Opener) -> Result<StateDir> {
        let not_one = || Error::NotAStore { path: anchor.path().to_owned() };
        let root = match Root::open(anchor.path()) {
            Ok(root) => root,
            Err(error) if error.kind() == ErrorKind::NotFound => return Err(not_one()),
            Err(error) => return Err(error).context("open", anchor.path()),
        };
        let marker = root.cap().join(layout::CONFIG);
        let Some(bytes) = marker.read(MAX_SETTINGS)? else { return Err(not_one()) };
        let config = config::store_config(&marker, &bytes)?;
        let _ = root.tell.set(opener.tell);
        let guest = config.sharing.group.as_ref().and_then(|_| authors::guest(&marker));
        if guest.is_some() {
            root.allow_changes();
        }
        let access = if guest.is_some() { Access::Group } else { Access::Owner };
        let disk = Disk { durability: config.store.durability, access };
        Ok(StateDir { anchor, root, config, disk, guest, lease: LEASE, opener })
    }

    /// Returns the identity of the state directory, and its path on this machine.
    pub fn state_place(&self) -> Result<StatePlace> {
        let path = self.anchor.path().to_string_lossy().into_owned();
        Ok(StatePlace { id: self.cap().id_of_root()?, path })
    }

    /// Path of the state directory, through which its files are opened.
    pub fn cap(&self) -> CapPath {
        self.root.cap()
    }

    /// Name of the user who owns the state directory.
    pub fn owner(&self) -> String {
        accounts::name(self.root.owner)
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

    pub fn holder(&self, now: Time) -> lock::Holder {
        lock::Holder {
            pid: std::process::id(),
            command: self.opener.command.clone(),
            host: machine::name(),
            since: now,
            agent: None,
        }
    }

    /// Returns the names of the agents that have a directory here and whose names begin with
    /// `beginning`, sorted. Skips entries that are no agent's directory.
    pub fn agent_dirs(&self, beginning: &str) -> Result<Vec<AgentName>> {
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
}
