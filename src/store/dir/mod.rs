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
pub mod git;
pub mod hooks;
mod import;
pub mod inbox;
pub mod journal;
pub mod keys;
mod lease;
pub mod lines;
mod local_dir;
pub mod merge;
pub mod merge_trees;
pub mod months;
mod moved;
mod news;
mod notes;
pub mod occupancy;
pub mod prepared;
pub mod quarantine;
pub mod record;
mod rename;
pub mod sharing;
mod snapshot;
mod stale_files;
mod store;
pub mod submissions;
pub mod sweep;
pub mod view;
pub mod watch;

use std::fs::Permissions;
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::Path;

use rustix::fs::FileType;

use crate::cap_fs::{self, Access, Root};
use crate::error::{Error, IoContext, Result};
use crate::local::anchor::Anchor;
use crate::local::files::Disk;
use crate::local::layout::{self, AgentDir};
use crate::local::{authors, config};
use crate::model::agent::Identity;
use crate::model::bound::MAX_SETTINGS;
use crate::model::event::Event;
use crate::model::id::AgentName;
use crate::model::settings::Durability;
use crate::model::state::State;
use crate::model::trigger::Trigger;

pub use agent::DirAgent;
pub use batch::DirBatch;
pub use change::DirTxn;
pub(in crate::store) use doctor::left_behind;
pub use doctor::{Checkup, Finding, FindingSubject, ReadableRecords, Remedy};
pub use export::DirExport;
pub use hooks::HookFile;
pub use import::{Appeared, DirImport};
pub use inbox::{Dropped, QuarantineOutcome};
pub use moved::refusal;
pub use news::{News, Told};
pub use occupancy::Occupant;
pub use snapshot::Waiting;
pub use store::{DirStore, Opener};
pub use submissions::{HandWritten, Rejected, TakenFile};
pub use sweep::Swept;
pub use watch::DirWatch;

pub use super::backend::Subject;
use super::backend::{Backend, Ops};

/// Files that `create` puts into a new agent's directory.
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

impl DirStore {
    /// Opens a state directory. Reads `dormouse.toml` and nothing else.
    pub(in crate::store) fn open(anchor: Anchor, opener: Opener) -> Result<DirStore> {
        let not_one = || Error::NotAStore { path: anchor.path().to_owned() };
        let root = match Root::open(anchor.path()) {
            Ok(root) => root,
            Err(error) if error.kind() == ErrorKind::NotFound => return Err(not_one()),
            Err(error) => return Err(error).context("open", anchor.path()),
        };
        let marker = root.cap().join(layout::CONFIG);
        let Some(bytes) = marker.read(MAX_SETTINGS)? else { return Err(not_one()) };
        let config = config::store_config(&marker, &bytes)?;
        root.set_notifier(opener.tell);
        let guest = config.sharing.group.as_ref().and_then(|_| authors::guest(&marker));
        if guest.is_some() {
            root.allow_changes();
        }
        let access = if guest.is_some() { Access::Group } else { Access::Owner };
        let disk = Disk { durability: config.store.durability, access };
        Ok(DirStore { anchor, root, config, disk, guest, remote: None, lease: local_dir::LEASE, opener })
    }

    /// Creates a state directory, or completes one. Returns true if the directory is new. `url`:
    /// database for the records, if they are not kept in files.
    pub(in crate::store) fn init(anchor: &Anchor, url: Option<&str>) -> Result<bool> {
        let path = anchor.path();
        // `exists` follows symbolic links, which is safe because the user chose this path.
        if !path.exists() {
            refuse_root_in_the_way(anchor.home())?;
            make_dirs(path).context("make directory", path)?;
        }
        let opened = Root::open(path).context("open", path)?;
        let root = opened.cap();
        let marker = root.join(layout::CONFIG);
        if let Some(bytes) = marker.read(MAX_SETTINGS)? {
            config::store_config(&marker, &bytes)?;
            return Ok(false);
        }
        let disk = Disk::new(Durability::Full);
        for dir in [layout::AGENTS, layout::HOOKS] {
            root.join(dir).make_dir()?;
        }
        // The settings file makes the directory a state directory, so it is written last: after a
        // kill before that, `init` can be repeated.
        let settings = match url {
            Some(url) => {
                DEFAULT_CONFIG.replace("[store]\n", &format!("[store]\nurl = {}\n", toml::Value::from(url)))
            }
            None => DEFAULT_CONFIG.to_owned(),
        };
        let files = git::FILES.iter().copied().chain([(layout::CONFIG, settings.as_str())]);
        // Another process may create the same directory at the same time.
        let this = std::process::id();
        git::keep_inboxes(&opened, disk)?;
        for (name, content) in files {
            let temporary = root.join(format!("{name}.new-{this}"));
            disk.replace_unlocked(&temporary, &root.join(name), content.as_bytes())?;
        }
        let above = anchor.home();
        std::fs::File::open(above).and_then(|above| above.sync_all()).context("sync directory", above)?;
        Ok(true)
    }

    /// Returns the agent of this name, or `None` if no such agent exists.
    pub(super) fn find(&self, name: &AgentName) -> Result<Option<DirAgent<'_>>> {
        let dir = AgentDir::new(&self.root, name);
        let Some(found) = dir.cap().look()? else { return Ok(None) };
        if cap_fs::kind(&found) != FileType::Directory {
            return Err(Error::damaged(dir.path(), NOT_A_DIRECTORY));
        }
        Ok(Some(DirAgent::new(self, name.clone(), dir)))
    }

    /// Creates an agent from all operations that make it, and with these hooks. Before the last
    /// rename no other command sees it. Returns `false`, and changes nothing, if the name is taken.
    pub(in crate::store) fn create(
        &self,
        name: &AgentName,
        ops: Ops<'_>,
        hooks: &[HookFile],
    ) -> Result<bool> {
        if self.is_taken(name)? {
            return Ok(false);
        }
        let mut staged = self.stage(name, name)?;
        staged.furnish()?;
        ops(&mut |op| copying::put(op, &mut |path, bytes| staged.append(path, bytes)))?;
        let agent = staged.agent();
        agent.furnish(hooks)?;
        self.share([&agent.dir])?;
        // Another process may have just created an agent of this name.
        staged.place_if_free()
    }
}

/// Creates a directory and its missing parents, each with permissions for the user whatever the
/// umask.
fn make_dirs(path: &Path) -> std::io::Result<()> {
    let make = || match std::fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        Err(error) => Err(error),
        Ok(()) => std::fs::set_permissions(path, Permissions::from_mode(0o700)),
    };
    match (make(), path.parent()) {
        (Err(error), Some(above)) if error.kind() == ErrorKind::NotFound => {
            make_dirs(above)?;
            make()
        }
        (made, _) => made,
    }
}

/// Refuses to let root create a state directory below a directory of another user, who would find
/// it there and could not use it.
fn refuse_root_in_the_way(home: &Path) -> Result<()> {
    let found = home.ancestors().find_map(|dir| Some((dir, dir.metadata().ok()?.uid())));
    match found {
        Some((dir, owner)) if rustix::process::geteuid().is_root() && owner != 0 => {
            Err(cap_fs::not_owner(dir, owner))
        }
        Some(_) | None => Ok(()),
    }
}

/// Message about a file in the place of an agent's directory.
const NOT_A_DIRECTORY: &str = "not a directory: an agent is never a symbolic link or a file";

const DEFAULT_CONFIG: &str = "\
# The settings of this state directory. `dormouse man` explains each.
format = 1

[store]
# \"full\" survives a power cut; \"process\" leaves out the syncs and survives a kill.
durability = \"full\"

# How many turns may run at once, of all agents together; any number unless set.
# [scheduler]
# max_running = 4
# An agent that finds none of these slots asks a turn for its own that is less urgent by this much; off unless set.
# preempt_margin = 10

# Whose users may put messages into the inboxes: a group in which you are too. `dormouse doctor --repair` sets the rights.
# [sharing]
# group = \"ci\"

# What every agent starts from; its own agent.toml goes over it.
# [defaults.turn]
# timeout = \"30m\"
";
