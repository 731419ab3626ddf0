//! The state directory as a store: plain files that people read, scripts write and git merges. It knows no rules.

mod agent;
mod archive;
mod aside;
pub mod authors;
mod backlog;
mod batch;
pub mod bringing;
mod change;
mod changes;
mod collect;
pub mod config;
pub mod converge;
pub mod dedupe;
mod doctor;
pub mod drops;
pub mod evidence;
mod export;
pub mod files;
mod gc;
pub mod git;
mod import;
pub mod inbox;
pub mod journal;
pub mod layout;
mod lease;
pub mod lines;
mod litter;
pub mod lock;
mod machine;
pub mod merge;
pub mod months;
mod moved;
#[cfg(target_os = "linux")]
mod news;
mod notes;
pub mod occupancy;
pub mod old_journal;
pub mod packed;
pub mod record;
mod remembered;
mod rename;
mod search;
pub mod settled;
pub mod sharing;
mod snapshot;
mod sweep;
mod travel;
pub mod triggers;
pub mod view;
pub mod watch;

use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::FileType;
use rustix::io::Errno;

use crate::beneath::{self, Access, Root, Spot};
use crate::error::{Context, Error, Result};
use crate::model::agent::Identity;
use crate::model::bound::MAX_SETTINGS;
use crate::model::event::Event;
use crate::model::id::AgentName;
use crate::model::policy::Policy;
use crate::model::settings::{Durability, GitSettings, IngressSettings, StoreConfig};
use crate::model::state::State;
use crate::model::time::Time;
use crate::model::trigger::Trigger;

pub use agent::Agent;
#[cfg(test)]
pub use batch::Batch;
pub use change::Change;
pub use collect::Collected;
pub use doctor::{About, Checkup, Finding, Open, Remedy};
pub use drops::{Aside, Dropped, Reads, Rejected, Said, Taken};
pub use export::Leaving;
pub use import::{Appeared, Arriving};
pub use lease::Subject;
pub use lock::{Guard, Sharing};
pub use moved::moved_away;
#[cfg(target_os = "linux")]
pub use news::{News, Told};
pub use occupancy::{Occupant, Place};
pub use snapshot::{Snapshot, Touched, Waiting};
pub use sweep::Swept;
pub use watch::Watch;

use files::Disk;
use layout::AgentDir;

/// Who opens the store, for those who have to wait for its locks, and how long it waits itself.
#[derive(Debug, Clone)]
pub struct Opener {
    pub command: String,
    /// Asked when a lock is taken: whoever only looks need not know.
    pub host: fn() -> String,
    pub patience: Duration,
    /// Told of what a person should know and did not ask for.
    pub tell: fn(&str),
    /// Whether git tracks a file.
    pub is_tracked: fn(&Path) -> bool,
}

/// An open state directory.
#[derive(Debug)]
pub struct Store {
    root: Arc<Root>,
    config: StoreConfig,
    disk: Disk,
    /// See [`Store::guest`].
    guest: Option<String>,
    opener: Opener,
}

/// What `create` puts into a new agent's directory.
#[derive(Debug)]
pub struct NewAgent {
    pub identity: Identity,
    pub policy: String,
    pub state: State,
    /// How it came to be.
    pub events: Vec<Event>,
    pub trigger: Trigger,
}

impl Store {
    /// Opens a state directory. Reads `dormouse.toml` and nothing else.
    pub fn open(path: PathBuf, opener: Opener) -> Result<Store> {
        let root = match Root::open(&path) {
            Ok(root) => root,
            Err(error) if error.kind() == ErrorKind::NotFound => return Err(Error::NotAStore { path }),
            Err(error) => return Err(error).context("open", &path),
        };
        let marker = root.spot().join(layout::CONFIG);
        let Some(bytes) = marker.read(MAX_SETTINGS)? else {
            return Err(Error::NotAStore { path });
        };
        let config = config::store_config(&marker, &bytes)?;
        let guest = match config.sharing.group {
            Some(_) => authors::guest(&marker)?,
            None => None,
        };
        let access = if guest.is_some() { Access::Group } else { Access::Owner };
        let disk = Disk { durability: config.store.durability, access };
        Ok(Store { root, config, disk, guest, opener })
    }

    /// Where the state directory is that a command is about: the one that is named, else the nearest `.dormouse` from
    /// `start` upwards. One that was only found has to be the user's own, or trusted in `settings`, the user's own
    /// settings file.
    pub fn find(named: Option<&Path>, start: &Path, settings: Option<&Path>) -> Result<PathBuf> {
        search::find(named, start, settings)
    }

    /// Whether two words for where a state directory is to be mean the same.
    pub fn is_same(one: &Path, other: &Path) -> Result<bool> {
        search::same_place(one, other)
    }

    /// Makes a state directory in `dir`, or as `dir` where that is the name or the place of one, or finishes
    /// making one. Returns its path and whether it is new.
    pub fn init(dir: &Path) -> Result<(PathBuf, bool)> {
        let dir = std::path::absolute(dir).context("find", dir)?;
        let is_one = dir.file_name().is_some_and(|name| name == layout::STATE_DIR) || search::is_store(&dir)?;
        let path = if is_one { dir } else { dir.join(layout::STATE_DIR) };
        // Above the state directory, and its own name, are where the user wants them: links are followed.
        let mut new_dir = std::fs::DirBuilder::new();
        new_dir.recursive(true).mode(0o700).create(&path).context("make directory", &path)?;
        let opened = Root::open(&path).context("open", &path)?;
        let root = opened.spot();
        let marker = root.join(layout::CONFIG);
        if let Some(bytes) = marker.read(MAX_SETTINGS)? {
            config::store_config(&marker, &bytes)?;
            return Ok((path, false));
        }
        let disk = Disk::new(Durability::Full);
        for dir in [layout::AGENTS, layout::HOOKS] {
            root.join(dir).make_dir()?;
        }
        // The file that makes it a state directory comes last: until then it can be made again.
        let files = git::FILES.iter().copied().chain([(layout::CONFIG, DEFAULT_CONFIG)]);
        // Somebody else may be at it as well.
        let this = std::process::id();
        git::keep_inboxes(&opened, disk)?;
        for (name, content) in files {
            let temporary = root.join(format!("{name}.new-{this}"));
            disk.replace_unlocked(&temporary, &root.join(name), content.as_bytes())?;
        }
        let above = path.parent().unwrap_or(&path);
        std::fs::File::open(above).and_then(|above| above.sync_all()).context("sync directory", above)?;
        Ok((path, true))
    }

    /// Its path, for people and for programs.
    pub fn root(&self) -> &Path {
        self.root.path()
    }

    /// Its place, for what lies beneath it.
    pub(super) fn spot(&self) -> Spot {
        self.root.spot()
    }

    /// What `tick --commit` lets git do.
    pub fn git_settings(&self) -> GitSettings {
        self.config.git
    }

    /// The name of the user whom it belongs to.
    pub fn owner(&self) -> Result<String> {
        Ok(authors::name(self.spot().owner_of_root()?))
    }

    /// How long is waited for locks.
    pub fn patience(&self) -> Duration {
        self.opener.patience
    }

    /// The directory that holds the state directory: what paths in `agent.toml` are relative to.
    pub fn home(&self) -> &Path {
        self.root().parent().unwrap_or(Path::new("."))
    }

    /// Every agent, in order of name. What is not an agent's directory is passed over.
    pub fn agents(&self) -> Result<Vec<AgentName>> {
        let entries = self.spot().join(layout::AGENTS).entries()?;
        let names =
            entries.iter().filter(|entry| entry.is_dir).filter_map(|entry| entry.name.to_str()?.parse().ok());
        Ok(names.collect())
    }

    /// One agent. Fails if there is none of this name.
    pub fn agent(&self, name: &AgentName) -> Result<Agent<'_>> {
        let dir = AgentDir::new(&self.root, name);
        let Some(found) = dir.spot().look()? else {
            // It is not there, whether or not the others may be listed.
            let known = self.agents().ok();
            let known = known.map(|known| known.iter().map(AgentName::to_string).collect());
            return Err(Error::NoAgent { agent: name.to_string(), known });
        };
        if beneath::kind(&found) != FileType::Directory {
            return Err(Error::damaged(
                dir.path(),
                "not a directory: an agent is never a symbolic link or a file",
            ));
        }
        Ok(Agent::new(self, name.clone(), dir))
    }

    /// The policy that a text would make, read as the settings of an agent of this store. `origin`: where the
    /// text comes from, which errors name.
    pub fn policy_from(&self, origin: &str, text: &str) -> Result<Policy> {
        config::policy_from(Path::new(origin), text.as_bytes(), &self.config)
    }

    /// Fails where nothing can be written to the state directory.
    pub fn try_writing(&self) -> Result<()> {
        let spot = self.spot().join(format!("health.new-{}", std::process::id()));
        self.disk.stage_unsynced(&spot, b"\n")?;
        spot.remove()
    }

    /// What is let in over HTTP.
    pub fn ingress(&self) -> &IngressSettings {
        &self.config.ingress
    }

    /// The names of the profiles of `dormouse.toml`.
    pub fn profiles(&self) -> impl Iterator<Item = &str> {
        self.config.profiles.keys().map(String::as_str)
    }

    /// Puts a new agent in place, whole: until the last rename there is none.
    pub fn create(&self, new: &NewAgent) -> Result<()> {
        let name = &new.identity.name;
        let target = AgentDir::new(&self.root, name);
        let agents = self.spot().join(layout::AGENTS);
        if target.spot().exists()? {
            return Err(agent_exists(name));
        }
        self.sweep_litter();
        let staged = AgentDir::at(self.staging_of(name));
        let _held = litter::make_dir_unlocked(staged.spot(), Access::Owner)?;
        let made = self.stage_agent(&staged, new).and_then(|()| {
            match staged.spot().try_rename(target.spot())? {
                // Somebody else has just made it.
                Err(Errno::NOTEMPTY | Errno::EXIST) => Err(agent_exists(name)),
                renamed => renamed.context("create", target.path()),
            }
        });
        if made.is_err() {
            let _ = staged.spot().remove_tree();
        }
        made?;
        self.disk.sync_dir(&agents)
    }

    fn stage_agent(&self, staged: &AgentDir, new: &NewAgent) -> Result<()> {
        for dir in layout::AGENT_DIRS {
            staged.join(dir).make_dirs()?;
        }
        let trigger = format!("{}/{}.json", layout::TRIGGERS, new.trigger.id);
        let ledger = layout::ledger(new.identity.created_at);
        let contents = [
            (layout::IDENTITY, record::encode(&new.identity)),
            (layout::POLICY, new.policy.clone().into_bytes()),
            (layout::STATE, record::encode(&new.state)),
            (&trigger, record::encode(&new.trigger)),
            (&ledger, new.events.iter().flat_map(record::encode_plain_line).collect()),
            (layout::KEPT, git::KEPT.into()),
            (layout::JOURNAL, Vec::new()),
        ];
        for (path, bytes) in contents {
            self.disk.stage_unsynced(&staged.join(path), &bytes)?;
        }
        self.share([staged])?;
        self.disk.sync_file_system(staged.spot())
    }

    fn holder(&self, now: Time) -> lock::Holder {
        lock::Holder {
            pid: std::process::id(),
            command: self.opener.command.clone(),
            host: (self.opener.host)(),
            since: now,
            agent: None,
        }
    }
}

/// The refusal of another agent of this name.
fn agent_exists(name: &AgentName) -> Error {
    Error::Refused {
        kind: "agent_exists",
        message: format!("there is an agent `{name}` already"),
        hint: Some(format!("see it with `dormouse get {name}`")),
    }
}

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
