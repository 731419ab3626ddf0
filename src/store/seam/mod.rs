//! Store as steps and commands use it: over the state directory, or over a database.
//!
//! In both cases the state directory has the local files of a machine: locks, settings, the
//! directories of runs. `local` of each type returns that part, which has no records. Queries on
//! records are answered here, from the texts that [`Backend`] returns.

mod agent;
mod batch;
mod change;
mod checking;
mod collecting;
mod database;
mod export;
mod history;
mod import;
mod leased;
mod ops;
mod slots;
mod snapshot;
mod source;
mod watch;

use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use crate::cap_fs::CapPath;
use crate::error::{Error, Result};
use crate::local::{Opener, StateDir, anchor::Anchor, layout};
use crate::model::agent::Identity;
use crate::model::id::AgentName;
use crate::model::message::Message;
use crate::model::policy::Size;
use crate::model::pool::Pool;
use crate::model::state::State;
use crate::model::time::Time;

use super::backend::{AskClaimant, Backend, Claim, DueAgents, Op, RemoteBackend, StoreProperties, each_of};
use super::dir::record::decode;
use super::dir::{self, DirStore, NewAgent, News, agent_exists};

pub use agent::{Agent, moved_away};
pub use change::AgentTxn;
pub use checking::AsFiles;
pub use collecting::Collected;
pub use database::{grant, is_url, shown_url};
pub use import::AgentImport;
pub use leased::HeldLease;
pub use slots::Slot;
pub use snapshot::Snapshot;
use source::{RecordSource, RecordsIn};
pub use watch::RecordWatch;

/// An open store.
#[derive(Debug)]
pub struct Store {
    local: Rc<StateDir>,
    records: RecordsIn<DirStore, Rc<dyn RemoteBackend>>,
}

impl Store {
    /// Opens a state directory with records, or with the URL of a database for them. Reads
    /// `dormouse.toml` and nothing else.
    pub fn open(anchor: Anchor, opener: Opener) -> Result<Store> {
        let patience = opener.patience;
        let local = Rc::new(StateDir::open(anchor, opener)?);
        let records = match &local.config.store.url {
            None => RecordsIn::Files(DirStore { state_dir: Rc::clone(&local) }),
            Some(url) => RecordsIn::Remote(database::open(url, patience)?),
        };
        Ok(Store { local, records })
    }

    /// Reopens this store with the current settings, as for a new process. Keeps connections.
    pub fn with_new_caches(self) -> Result<Store> {
        let mut fresh = Store::open(self.local.anchor.clone(), self.local.opener.clone())?;
        if let (RecordsIn::Remote(before), RecordsIn::Remote(now)) = (self.records, &mut fresh.records)
            && before.shown() == now.shown()
        {
            *now = before.with_new_caches();
        }
        Ok(fresh)
    }

    /// Opens the state directory of this machine for records in another store.
    pub fn with(anchor: Anchor, opener: Opener, remote: Rc<dyn RemoteBackend>) -> Result<Store> {
        let local = Rc::new(StateDir::open(anchor, opener)?);
        Ok(Store { local, records: RecordsIn::Remote(remote) })
    }

    /// Sets the time after which a lease expires without a heartbeat. The default is 60 s.
    #[cfg(test)]
    pub fn with_lease(mut self, lasts: crate::model::time::Span) -> Store {
        Rc::get_mut(&mut self.local).expect("no other owner").lease = lasts;
        self
    }

    /// Returns the part of the store that belongs to this machine: settings, workspaces, shared
    /// hooks.
    pub fn local(&self) -> &StateDir {
        &self.local
    }

    /// Returns the store as files of this machine, for git and file watches. `None` if the records
    /// are in a database.
    pub fn files(&self) -> Option<&DirStore> {
        self.records.files()
    }

    /// Returns the store as files of this machine.
    ///
    /// # Errors
    ///
    /// `not_files` if the records are in a database. `what`: name of the operation that needs
    /// files, as the beginning of a sentence.
    pub fn files_for(&self, what: &str) -> Result<&DirStore> {
        self.files().ok_or_else(|| {
            let message = format!("{what} works on files; the records of this store are in {}", self.shown());
            Error::refused("not_files", message)
        })
    }

    /// Returns the display name of the store: the path of the state directory, or the URL of the
    /// database without a password.
    pub fn shown(&self) -> String {
        self.backend().shown()
    }

    /// Returns the path of the state directory on this machine.
    pub fn anchor(&self) -> &Anchor {
        &self.local.anchor
    }

    /// Creates the store at a URL if it is missing, and `anchor`, the state directory of this
    /// machine for the store. Returns true if the store is new.
    pub fn init_at(anchor: &Anchor, url: &str, patience: Duration) -> Result<bool> {
        let is_new = database::init(url, patience)?;
        StateDir::init(anchor, Some(url))?;
        Ok(is_new)
    }

    /// Opens the store at a URL. `anchor`: state directory of this machine for the store, created
    /// if it is missing.
    pub fn open_at(anchor: Anchor, url: &str, opener: Opener) -> Result<Store> {
        let remote = database::open(url, opener.patience)?;
        StateDir::init(&anchor, Some(url))?;
        Store::with(anchor, opener, remote)
    }

    pub fn properties(&self) -> StoreProperties {
        self.backend().properties()
    }

    /// Starts file watches that report changes of the records, if the records are files.
    pub fn news(&self) -> News {
        self.files().map_or_else(News::default, |files| News::of(&files.state_dir))
    }

    fn backend(&self) -> &dyn Backend {
        match &self.records {
            RecordsIn::Files(files) => files,
            RecordsIn::Remote(remote) => &**remote,
        }
    }

    /// Returns the user or role of this process, if it may only put messages and hints into
    /// inboxes: see [`Backend::guest`].
    pub fn guest(&self) -> Option<&str> {
        self.backend().guest()
    }

    /// Refuses an agent of a pool (named group of agents) that this machine does not tick. A store
    /// for a single machine has no pools.
    pub fn refuse_other_pool(&self, agent: &Agent<'_>) -> Result<()> {
        if !self.properties().is_shared {
            return Ok(());
        }
        let (pool, pools) = (Pool::of(&agent.policy_text()?), &self.local.config.scheduler.pool);
        if pools.0.contains(&pool) {
            return Ok(());
        }
        Err(Error::refused(
            Error::OTHER_POOL,
            format!("`{}` is of {pool}, and this machine ticks agents of {pools}", agent.name()),
        )
        .with_hint(format!(
            "tick it on a machine of that pool, or say `pool = \"{}\"` under [scheduler] in the dormouse.toml of this one",
            pool.as_str()
        )))
    }

    /// Returns all agents, sorted by name.
    pub fn agents(&self) -> Result<Vec<AgentName>> {
        self.agents_beginning("")
    }

    /// Returns the agents whose names begin with `beginning`, sorted by name.
    pub fn agents_beginning(&self, beginning: &str) -> Result<Vec<AgentName>> {
        self.backend().agents(beginning)
    }

    /// Returns the agents that may have work for a step, without reading the others. `is_ticking`:
    /// true for a process that steps them. `None` if the records are files: then each agent has to
    /// be read.
    pub fn due(&self, now: Time, is_ticking: bool) -> Result<Option<DueAgents>> {
        let who: AskClaimant<'_> = &|| self.local.claimant();
        self.backend().due(now, &self.local.config.scheduler.pool.0, is_ticking.then_some(who))
    }

    /// Returns the agent of this name. Error if no such agent exists.
    pub fn agent(&self, name: &AgentName) -> Result<Agent<'_>> {
        let found = match &self.records {
            RecordsIn::Files(files) => files.find(name)?.map(RecordsIn::Files),
            RecordsIn::Remote(remote) => remote.agent(name)?.map(RecordsIn::Remote),
        };
        let Some(records) = found else {
            // If the list of agents can't be read, the error suggests no other agent.
            let known = self.backend().agents_around(name).ok();
            let known = known.map(|known| known.iter().map(AgentName::to_string).collect());
            return Err(Error::NoAgent { agent: name.to_string(), known, renamed: None });
        };
        Ok(Agent::of(self, RecordSource { local: self.local.agent(name), records }))
    }

    /// Puts a message into the inbox of its agent, in one round trip with the query for that agent.
    /// `size`: bytes of its body. `default`: maximum size if the agent's settings have none.
    ///
    /// Returns the state of the agent after that, if it can be read, or `None` if nothing was
    /// added: always if the records are files; otherwise a read of the agent gives the reason, or
    /// shows that the message can be added after all.
    pub fn deliver(&self, message: &Message, size: u64, default: Size) -> Result<Option<Result<State>>> {
        let arrival = ops::arrival(message);
        arrival.check()?;
        let delivered = self.backend().deliver(&message.agent, &arrival, size, default.0)?;
        Ok(delivered.map(|state| decode(Path::new(layout::STATE), state.as_bytes())))
    }

    /// Creates an agent at once: no other command sees an incomplete agent.
    pub fn create(&self, new: &NewAgent) -> Result<()> {
        let (name, mut ops) = (&new.identity.name, ops::of_new(new));
        let is_new = match &self.records {
            RecordsIn::Files(files) => files.create(name, &each_of(&ops), &new.hooks)?,
            RecordsIn::Remote(remote) if remote.is_taken(name)? => false,
            RecordsIn::Remote(remote) => {
                // A killed `doctor` may have left the temporary files of an agent's records.
                self.local.sweep_stale();
                self.sweep_local_dirs();
                let agent = self.local.agent(name);
                let prepared = agent.prepare(&new.hooks, new.identity.created_at)?;
                ops.push(Op::LocalDir(prepared.name.clone()));
                if !remote.create(name, &each_of(&ops))? {
                    agent.discard(&prepared)?;
                    return Err(agent_exists(name));
                }
                // If the move fails, the next command that needs the directory moves it.
                let _ = agent.move_in(&prepared);
                true
            }
        };
        if is_new { Ok(()) } else { Err(agent_exists(name)) }
    }

    /// Removes the local agent directories of killed commands that no agent's records name.
    fn sweep_local_dirs(&self) {
        for left in self.unused_local_dirs().unwrap_or_default() {
            // A directory that can't be removed blocks no command.
            let _ = self.local.sweep(&left);
        }
    }

    /// Returns local agent directories of killed commands that no agent's records name.
    fn unused_local_dirs(&self) -> Result<Vec<CapPath>> {
        let mut unused = self.local.unused_local_dirs()?;
        if !unused.is_empty() {
            let names: Vec<String> = unused.iter().map(|dir| dir.name.clone()).collect();
            let named = self.backend().named_local_dirs(&names)?;
            unused.retain(|dir| !named.contains(&dir.name));
        }
        Ok(unused.into_iter().map(|dir| dir.place).collect())
    }

    /// Sets the lease under which this process acts: see [`Backend::claim`].
    pub fn claim(&self, claim: Claim) {
        self.backend().claim(claim);
    }

    /// Returns the faults of the store as a whole: of the state directory, and of the database if
    /// the store has one. `is_quick`: true to skip checks that read every row.
    pub fn findings(&self, now: Time, is_quick: bool) -> Result<Vec<dir::Finding>> {
        let mut findings = self.local.file_findings()?;
        let Some(remote) = self.records.remote() else {
            findings.extend(self.local.name_findings()?);
            return Ok(findings);
        };
        let shown = remote.shown();
        let faults = remote.faults(now, self.local.config.scheduler.overdue_after.0, is_quick)?.into_iter();
        findings.extend(faults.map(|fault| self.local.finding_of_store(&shown, fault)));
        if !is_quick {
            let known = remote.agents("")?;
            findings.extend(self.local.local_dirs_but_of(&known)?);
            findings.extend(self.unused_local_dirs()?.into_iter().map(dir::left_behind));
        }
        Ok(findings)
    }

    /// Returns the agent that was named `former` until a rename; if several were, the last of them.
    pub fn successor(&self, former: &AgentName) -> Result<Option<AgentName>> {
        let mut found = None;
        for (name, identity) in self.backend().formerly_named(former)? {
            // An identity that can't be read counts as one without former names.
            let identity = decode::<Identity>(Path::new(layout::IDENTITY), identity.as_bytes());
            let had = identity.map(|identity| identity.former_names).unwrap_or_default();
            let until = had.iter().filter(|had| had.name == *former).map(|had| had.until).max();
            found = found.max(until.map(|until| (until, name)));
        }
        Ok(found.map(|(_, name)| name))
    }

    /// Error if an agent has the name, even an agent that is marked as moved.
    pub fn refuse_name(&self, name: &AgentName) -> Result<()> {
        if self.backend().is_taken(name)? { Err(agent_exists(name)) } else { Ok(()) }
    }
}
