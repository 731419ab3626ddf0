//! The state directory: what is asked of it is a handful of verbs, and it knows no rules.

mod agent;
mod archive;
mod batch;
mod config;
pub mod dedupe;
pub mod drops;
pub mod evidence;
pub mod files;
pub mod git;
pub mod inbox;
pub mod journal;
pub mod layout;
mod lease;
pub mod lines;
pub mod lock;
mod notes;
pub mod occupancy;
pub mod record;
pub mod view;
pub mod watch;

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::{Context, Error, Result};
use crate::model::agent::Identity;
use crate::model::id::AgentName;
use crate::model::policy::Policy;
use crate::model::settings::{Durability, GitSettings, StoreConfig};
use crate::model::state::State;
use crate::model::time::Time;
use crate::model::trigger::Trigger;

pub use agent::{Agent, Locked, Version};

use files::Disk;
use layout::AgentDir;

/// Who opens the store, for those who have to wait for its locks, and how long it waits itself.
#[derive(Debug, Clone)]
pub struct Opener {
    pub command: String,
    /// Asked when a lock is taken: whoever only looks need not know.
    pub host: fn() -> String,
    pub patience: Duration,
}

/// An open state directory.
#[derive(Debug)]
pub struct Store {
    root: PathBuf,
    config: StoreConfig,
    disk: Disk,
    opener: Opener,
}

/// What `create` puts into a new agent's directory.
#[derive(Debug)]
pub struct NewAgent {
    pub identity: Identity,
    pub policy: String,
    pub state: State,
    pub trigger: Trigger,
}

impl Store {
    /// The state directory: the one that is named, else the nearest `.dormouse` from `start` upwards.
    pub fn find(named: Option<&Path>, start: &Path) -> Result<PathBuf> {
        if let Some(named) = named {
            // Both the state directory and the directory that holds it will do.
            let inside = named.join(layout::STATE_DIR);
            let root = if is_store(&inside)? { inside } else { named.to_owned() };
            return absolute(&root);
        }
        for dir in start.ancestors() {
            let root = dir.join(layout::STATE_DIR);
            if is_store(&root)? {
                return Ok(root);
            }
        }
        Err(Error::NoStore { start: start.to_owned() })
    }

    /// Opens a state directory. Reads `dormouse.toml` and nothing else.
    pub fn open(root: PathBuf, opener: Opener) -> Result<Store> {
        let path = root.join(layout::CONFIG);
        let Some(bytes) = files::read(&path)? else { return Err(Error::NotAStore { path: root }) };
        let config = config::store_config(&path, &bytes)?;
        let disk = Disk { durability: config.store.durability };
        Ok(Store { root, config, disk, opener })
    }

    /// Makes a state directory in `dir`, or as `dir` where that is the name or the place of one, or finishes
    /// making one. Returns its path and whether it is new.
    pub fn init(dir: &Path) -> Result<(PathBuf, bool)> {
        let dir = absolute(dir)?;
        let is_one = dir.file_name().is_some_and(|name| name == layout::STATE_DIR) || is_store(&dir)?;
        let root = if is_one { dir } else { dir.join(layout::STATE_DIR) };
        let marker = root.join(layout::CONFIG);
        if let Some(bytes) = files::read(&marker)? {
            config::store_config(&marker, &bytes)?;
            return Ok((root, false));
        }
        let disk = Disk { durability: Durability::Full };
        for dir in [layout::AGENTS, layout::HOOKS] {
            files::make_dir(&root.join(dir))?;
        }
        // The file that makes it a state directory comes last: until then it can be made again.
        let files = git::FILES.iter().copied().chain([(layout::CONFIG, DEFAULT_CONFIG)]);
        // Somebody else may be at it as well.
        let this = std::process::id();
        git::keep_inboxes(&root, disk)?;
        for (name, content) in files {
            disk.replace(&root.join(format!("{name}.new-{this}")), &root.join(name), content.as_bytes())?;
        }
        disk.sync_dir(files::parent(&root))?;
        Ok((root, true))
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// What `tick --commit` lets git do.
    pub fn git_settings(&self) -> GitSettings {
        self.config.git
    }

    /// How long is waited for locks.
    pub fn patience(&self) -> Duration {
        self.opener.patience
    }

    /// The directory that holds the state directory: what paths in `agent.toml` are relative to.
    pub fn home(&self) -> &Path {
        files::parent(&self.root)
    }

    /// Every agent, in order of name. What is not an agent's directory is passed over.
    pub fn agents(&self) -> Result<Vec<AgentName>> {
        let entries = files::entries(&self.root.join(layout::AGENTS))?;
        let names =
            entries.iter().filter(|entry| entry.is_dir).filter_map(|entry| entry.name.to_str()?.parse().ok());
        Ok(names.collect())
    }

    /// One agent. Fails if there is none of this name.
    pub fn agent(&self, name: &AgentName) -> Result<Agent<'_>> {
        let dir = AgentDir::new(&self.root, name);
        let found = match std::fs::symlink_metadata(dir.path()) {
            Ok(found) => found,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                // It is not there, whether or not the others may be listed.
                let known = self.agents().ok();
                let known = known.map(|known| known.iter().map(AgentName::to_string).collect());
                return Err(Error::NoAgent { agent: name.to_string(), known });
            }
            Err(error) => return Err(error).context("look at", dir.path()),
        };
        if !found.is_dir() {
            return Err(Error::damaged(
                dir.path(),
                "not a directory: an agent is never a symbolic link or a file",
            ));
        }
        Ok(Agent::new(self, name.clone(), dir))
    }

    /// The policy that a text would make, read as `agent.toml` of this state directory; `path` is
    /// what errors name.
    pub fn policy_from(&self, path: &Path, text: &str) -> Result<Policy> {
        config::policy_from(path, text.as_bytes(), &self.config)
    }

    /// The names of the profiles of `dormouse.toml`.
    pub fn profiles(&self) -> impl Iterator<Item = &str> {
        self.config.profiles.keys().map(String::as_str)
    }

    /// Puts a new agent in place, whole: until the last rename there is none.
    pub fn create(&self, new: &NewAgent) -> Result<()> {
        let name = &new.identity.name;
        let target = AgentDir::new(&self.root, name);
        let agents = self.root.join(layout::AGENTS);
        let taken = || Error::Refused {
            kind: "agent_exists",
            message: format!("there is an agent `{name}` already"),
            hint: Some(format!("see it with `dormouse get {name}`")),
        };
        if std::fs::symlink_metadata(target.path()).is_ok() {
            return Err(taken());
        }
        let staged = AgentDir::at(agents.join(format!(".new-{name}-{}", std::process::id())));
        let made = self.stage_agent(&staged, new).and_then(|()| {
            std::fs::rename(staged.path(), target.path()).map_err(|source| match source.kind() {
                // Somebody else has just made it.
                std::io::ErrorKind::DirectoryNotEmpty | std::io::ErrorKind::AlreadyExists => taken(),
                _ => Error::Io { action: "create", path: target.path().to_owned(), source },
            })
        });
        if made.is_err() {
            let _ = std::fs::remove_dir_all(staged.path());
        }
        made?;
        self.disk.sync_dir(&agents)
    }

    fn stage_agent(&self, staged: &AgentDir, new: &NewAgent) -> Result<()> {
        for dir in layout::AGENT_DIRS {
            files::make_dir(&staged.join(dir))?;
        }
        let trigger = format!("{}/{}.json", layout::TRIGGERS, new.trigger.id);
        let contents = [
            (layout::IDENTITY, record::encode(&new.identity)),
            (layout::POLICY, new.policy.clone().into_bytes()),
            (layout::STATE, record::encode(&new.state)),
            (&trigger, record::encode(&new.trigger)),
            (layout::KEPT, git::KEPT.into()),
        ];
        for (path, bytes) in contents {
            self.disk.stage(&staged.join(path), &bytes)?;
        }
        self.disk.sync_dir(&staged.join(layout::INBOX))?;
        self.disk.sync_dir(&staged.join(layout::TRIGGERS))?;
        self.disk.sync_dir(staged.path())
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

/// Whether a state directory lies there. One that is there and may not be looked into is an error, not nothing.
fn is_store(root: &Path) -> Result<bool> {
    let marker = root.join(layout::CONFIG);
    match std::fs::metadata(&marker) {
        Ok(found) => Ok(found.is_file()),
        Err(error)
            if error.kind() == std::io::ErrorKind::PermissionDenied && root.symlink_metadata().is_ok() =>
        {
            Err(error).context("look at", &marker)
        }
        Err(_) => Ok(false),
    }
}

fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).context("find", path)
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

# What every agent starts from; its own agent.toml goes over it.
# [defaults.turn]
# timeout = \"30m\"
";
