//! The store as steps and commands see it: over the state directory, or over a database.
//!
//! In both cases the state directory has what belongs to the machine: locks, slots, settings, the
//! directories of runs. `local` of each type returns it; its methods about records are private to
//! the store. Questions about records are answered here: by the directory where the records are
//! files, else from the texts that [`Backend`] returns.

mod agent;
mod arriving;
mod batch;
mod change;
mod checking;
mod collecting;
mod database;
mod leased;
mod leaving;
mod past;
mod pieces;
mod remote;
mod slots;
mod snapshot;
mod triggers;
mod watch;

use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use crate::beneath::Spot;
use crate::error::{Error, Result};
use crate::model::agent::Identity;
use crate::model::bound::RECORD;
use crate::model::id::AgentName;
use crate::model::message::Message;
use crate::model::policy::Size;
use crate::model::pool::Pool;
use crate::model::state::State;
use crate::model::time::Time;

use super::anchor::Anchor;
use super::dir::record::decode;
use super::dir::{self, NewAgent, Opener, agent_exists, layout};
use super::elsewhere::{Arrival, Backend, Claim, DatabaseRole, DueAgents, Op, each_of};

pub use agent::{Agent, StoreVersion, moved_away};

pub use arriving::AgentImport;
pub use change::AgentTxn;
pub use checking::AsFiles;
pub use collecting::Collected;
pub use database::{is_url, shown};
pub use leased::HeldLease;
pub use slots::Slot;
pub use snapshot::Snapshot;
pub use watch::RecordWatch;

/// An open store.
#[derive(Debug)]
pub struct Store {
    local: dir::DirStore,
    elsewhere: Option<Rc<dyn Backend>>,
}

impl Store {
    /// Opens a state directory that has the records of its agents, or says where they are. Reads
    /// `dormouse.toml` and nothing else.
    pub fn open(anchor: Anchor, opener: Opener) -> Result<Store> {
        let patience = opener.patience;
        let local = dir::DirStore::open(anchor, opener)?;
        match local.url().map(|url| database::open(url, patience)).transpose()? {
            None => Ok(Store { local, elsewhere: None }),
            Some(elsewhere) => {
                Ok(Store { local: local.remote(elsewhere.shown()), elsewhere: Some(elsewhere) })
            }
        }
    }

    /// This store as a process sees it that has just begun: with the settings as they are now.
    /// Connections are kept.
    pub fn afresh(self) -> Result<Store> {
        let fresh = Store::open(self.local.anchor().clone(), self.local.opener().clone())?;
        let Store { local, elsewhere: Some(now) } = fresh else { return Ok(fresh) };
        let same = self.elsewhere.filter(|before| before.shown() == now.shown());
        Ok(Store { local, elsewhere: Some(same.map_or(now, Backend::afresh)) })
    }

    /// Opens a state directory that has what belongs to this machine, and beside it the records.
    pub fn with(anchor: Anchor, opener: Opener, elsewhere: Rc<dyn Backend>) -> Result<Store> {
        let local = dir::DirStore::open(anchor, opener)?.remote(elsewhere.shown());
        Ok(Store { local, elsewhere: Some(elsewhere) })
    }

    /// Sets the duration of leases without a beat. The default is 60 s.
    #[cfg(test)]
    pub fn with_lease(self, lasts: crate::model::time::Span) -> Store {
        Store { local: self.local.with_lease(lasts), ..self }
    }

    /// Returns this machine's part of the store: settings, seats, hooks, the directories of runs.
    pub fn local(&self) -> &dir::DirStore {
        &self.local
    }

    /// Returns the place of the state directory on this machine.
    pub fn anchor(&self) -> &Anchor {
        self.local.anchor()
    }

    /// True if the records are in a database, and not in the state directory.
    pub fn is_remote(&self) -> bool {
        self.elsewhere.is_some()
    }

    /// Makes a state directory, or finishes making one. Returns whether it is new.
    pub fn init(anchor: &Anchor) -> Result<bool> {
        dir::DirStore::init(anchor, None)
    }

    /// Makes the store that a URL names where there is none, and `anchor`, the state directory of
    /// this machine for it. Returns whether the store is new.
    pub fn init_at(anchor: &Anchor, url: &str, patience: Duration) -> Result<bool> {
        let is_new = database::init(url, patience)?;
        dir::DirStore::init(anchor, Some(url))?;
        Ok(is_new)
    }

    /// Opens the store that a URL names. `anchor`: the state directory of this machine for it,
    /// which is made where there is none.
    pub fn open_at(anchor: Anchor, url: &str, opener: Opener) -> Result<Store> {
        let elsewhere = database::open(url, opener.patience)?;
        dir::DirStore::init(&anchor, Some(url))?;
        Store::with(anchor, opener, elsewhere)
    }

    /// Lets a role of the database be something to the store that a URL names.
    pub fn grant(url: &str, patience: Duration, part: DatabaseRole, role: &str) -> Result<()> {
        database::grant(url, patience, part, role)
    }

    /// In whose name this process speaks, if it may put messages and hints into inboxes and nothing
    /// else: a member of the group that shares them, or a producer of the database. Of the latter
    /// it is known once an agent was looked for.
    pub fn guest(&self) -> Option<&str> {
        self.elsewhere.as_ref().map_or_else(|| self.local.guest(), |elsewhere| elsewhere.guest())
    }

    /// Refuses an agent of a pool that is none of this machine's. A state directory is one
    /// machine's, and has none.
    pub fn refuse_other_pool(&self, agent: &Agent<'_>) -> Result<()> {
        let Some(remote) = agent.remote() else { return Ok(()) };
        let pool = Pool::of(&remote.records.policy()?);
        if self.local.pools().has(&pool) {
            return Ok(());
        }
        Err(Error::refused(
            Error::OTHER_POOL,
            format!("`{}` is of {pool}, and this machine ticks agents of {}", remote.name, self.local.pools()),
        )
        .with_hint(format!(
            "tick it on a machine of that pool, or say `pool = \"{}\"` under [scheduler] in the dormouse.toml of this one",
            pool.as_str()
        )))
    }

    /// Every agent, in order of name.
    pub fn agents(&self) -> Result<Vec<AgentName>> {
        self.agents_beginning("")
    }

    /// Returns the agents whose names begin with `beginning`, in order of name.
    pub fn agents_beginning(&self, beginning: &str) -> Result<Vec<AgentName>> {
        let Some(elsewhere) = &self.elsewhere else { return self.local.agents_beginning(beginning) };
        let mut names = elsewhere.agents()?;
        names.retain(|name| name.as_str().starts_with(beginning));
        Ok(names)
    }

    /// The agents for which a step may find something to do, without a look at the others. `None`
    /// where only a look at each of them tells.
    pub fn due(&self, now: Time) -> Result<Option<DueAgents>> {
        self.elsewhere
            .as_ref()
            .map(|elsewhere| elsewhere.due(now, self.local.pools().all(), None))
            .transpose()
    }

    /// Returns the same for a process that steps them.
    pub fn due_to_tick(&self, now: Time) -> Result<Option<DueAgents>> {
        let Some(elsewhere) = &self.elsewhere else { return Ok(None) };
        elsewhere.due(now, self.local.pools().all(), Some(&self.local.claimant()?)).map(Some)
    }

    /// One agent. Fails if there is none of this name.
    pub fn agent(&self, name: &AgentName) -> Result<Agent<'_>> {
        let Some(elsewhere) = &self.elsewhere else {
            return Ok(Agent::of_dir(self, self.local.agent(name)?));
        };
        match elsewhere.agent(name)? {
            Some(records) => Ok(Agent::remote_of(self, name, elsewhere.shown(), records)),
            None => {
                let known = elsewhere.agents().ok();
                let known = known.map(|known| known.iter().map(AgentName::to_string).collect());
                Err(Error::NoAgent { agent: name.to_string(), known, renamed: None })
            }
        }
    }

    /// Puts a message into the inbox of the agent that it is for, in one go with the question for
    /// that agent. `size`: of its body, `default`: how large it may be where the agent's settings
    /// say nothing.
    ///
    /// Returns the state of the agent after that, as far as it can be read. `None`: nothing has
    /// arrived. Where the records are files that is always so; elsewhere a look at the agent tells
    /// why, or that the message may arrive all the same.
    pub fn tell(&self, message: &Message, size: u64, default: Size) -> Result<Option<Result<State>>> {
        let Some(elsewhere) = &self.elsewhere else { return Ok(None) };
        let arrival = pieces::arrival(message);
        let (Arrival::Message { text, .. } | Arrival::Hint { text, .. }) = &arrival;
        RECORD.check(text.len() as u64)?;
        let told = elsewhere.tell(&message.agent, &arrival, size, default.0)?;
        Ok(told.map(|state| decode(Path::new(layout::STATE), state.as_bytes())))
    }

    /// Puts a new agent in place, whole.
    pub fn create(&self, new: &NewAgent) -> Result<()> {
        let Some(elsewhere) = &self.elsewhere else { return self.local.create(new) };
        let name = &new.identity.name;
        self.refuse_name(name)?;
        // A `doctor` that was killed has left the files that it made of an agent's records.
        self.local.sweep_litter();
        self.sweep_rooms();
        let room = self.local.room(name);
        let prepared = room.prepare(&new.hooks, new.identity.created_at)?;
        let mut pieces = pieces::of_new(new);
        pieces.push(Op::Room(prepared.name.clone()));
        if !elsewhere.create(name, &each_of(&pieces))? {
            room.discard(&prepared)?;
            return Err(agent_exists(name));
        }
        // The agent is there. If this fails the next command that needs the room does it, or says
        // why it can't.
        let _ = room.move_in(&prepared);
        Ok(())
    }

    /// Removes the rooms that killed commands have left. Where the records are files there are
    /// none.
    fn sweep_rooms(&self) {
        for left in self.left_rooms().unwrap_or_default() {
            // A directory that can't be removed disturbs no command.
            let _ = self.local.sweep(&left);
        }
    }

    /// Rooms whose making was killed before the records of an agent named them.
    fn left_rooms(&self) -> Result<Vec<Spot>> {
        let Some(elsewhere) = &self.elsewhere else { return Ok(Vec::new()) };
        let mut spare = self.local.spare_rooms()?;
        if !spare.is_empty() {
            let names: Vec<String> = spare.iter().map(|room| room.name.clone()).collect();
            let named = elsewhere.named_rooms(&names)?;
            spare.retain(|room| !named.contains(&room.name));
        }
        Ok(spare.into_iter().map(|room| room.place).collect())
    }

    /// Says from inside which lease this process speaks. Where the records are files, the lock of
    /// this machine is all that there is to a lease.
    pub fn claim(&self, claim: Claim) {
        if let Some(elsewhere) = &self.elsewhere {
            elsewhere.claim(claim);
        }
    }

    /// Returns the faults of the store as a whole: of the state directory, and of the database if
    /// there is one. `is_quick`: without a look at every row of that.
    pub fn look_around(&self, now: Time, is_quick: bool) -> Result<Vec<dir::Finding>> {
        let mut findings = self.local.look_at_files()?;
        if let Some(elsewhere) = &self.elsewhere {
            let faults = elsewhere.faults(now, self.local.overdue_after(), is_quick)?.into_iter();
            findings.extend(faults.map(|fault| self.local.finding_elsewhere(fault)));
            if !is_quick {
                let known = elsewhere.agents()?;
                findings.extend(self.local.rooms_but_of(&known)?);
                findings.extend(self.left_rooms()?.into_iter().map(dir::left_behind));
            }
        }
        Ok(findings)
    }

    /// The agent that had a name until it was renamed: of several, the one that had it last.
    pub fn successor(&self, former: &AgentName) -> Result<Option<AgentName>> {
        let Some(elsewhere) = &self.elsewhere else { return self.local.successor(former) };
        let mut found = None;
        for (name, identity) in elsewhere.had_name(former)? {
            // An agent that can't be read counts as none of them.
            let identity = decode::<Identity>(Path::new(layout::IDENTITY), identity.as_bytes());
            let had = identity.map(|identity| identity.former_names).unwrap_or_default();
            let until = had.iter().filter(|had| had.name == *former).map(|had| had.until).max();
            found = found.max(until.map(|until| (until, name)));
        }
        Ok(found.map(|(_, name)| name))
    }

    /// Refuses a name that an agent has, be it one that was moved away.
    pub fn refuse_name(&self, name: &AgentName) -> Result<()> {
        match &self.elsewhere {
            None => self.local.refuse_name(name),
            Some(elsewhere) if elsewhere.agent(name)?.is_some() => Err(agent_exists(name)),
            Some(_) => Ok(()),
        }
    }
}
