//! Import of agents from an export stream: each is staged as files on this machine, and checked
//! before it appears. For a database the records then appear by one change, and the other files
//! become the local agent directory.

use crate::error::{Error, Result};
use crate::local::{layout, prepared::PreparedDir};
use crate::model::id::AgentName;
use crate::model::time::Time;

use super::super::backend::{EachOp, Op, RemoteBackend};
use super::super::dir::{self, Appeared, agent_exists, dedupe};
use super::{Agent, Store, ops};

/// Staged agent that no other command sees yet. Dropping this removes the agent.
pub struct AgentImport<'s> {
    store: &'s Store,
    /// Staged files on this machine.
    pub dir: dir::DirImport<'s>,
    /// Staged agent, for checks and changes before it appears.
    pub agent: Agent<'s>,
}

impl Store {
    /// Error if an agent has the name, unless it has left by `export --move` or `rm`.
    pub fn refuse_taken(&self, name: &AgentName) -> Result<()> {
        match self.agent(name) {
            Err(Error::NoAgent { .. }) => Ok(()),
            Ok(there) if there.peek()?.moved.is_some_and(|moved| moved.frees_name()) => Ok(()),
            Ok(_) => Err(agent_exists(name)),
            Err(error) => Err(error),
        }
    }

    /// Creates a hidden directory for an imported agent, whose name in the stream is `former`.
    /// Error if an agent is named `name`, unless it has left by `export --move` or `rm`.
    pub fn stage<'s>(&'s self, name: &AgentName, former: &AgentName) -> Result<AgentImport<'s>> {
        self.refuse_taken(name)?;
        self.sweep_local_dirs();
        let dir = self.local.stage(name, former)?;
        let agent = Agent::of_dir(self, dir.agent().clone());
        Ok(AgentImport { store: self, dir, agent })
    }
}

impl<'s> AgentImport<'s> {
    /// Makes the agent appear, replacing one of this name that has left by `export --move` or `rm`.
    pub fn place(mut self, now: Time) -> Result<Appeared> {
        let Some(remote) = self.store.records.remote() else { return self.dir.place(now) };
        let Some(prepared) = self.create(remote, now)? else { return Ok(Appeared::New) };
        let name = self.agent.name();
        let there = self.store.agent(name)?;
        let locked = there.change(now)?;
        if !locked.any_state()?.moved.is_some_and(|moved| moved.frees_name()) {
            return Err(agent_exists(name));
        }
        // From the change below on, records may name the prepared local directory, even if the
        // answer is lost. No arrivals are lost, because an agent marked as moved accepts none.
        self.dir.may_be_named(true);
        locked.replace(&|each| all(&self.agent, &prepared, now, each))?;
        self.store.local.agent(self.agent.name()).move_in(&prepared)?;
        Ok(Appeared::Back)
    }

    /// Turns the staged files into the local agent directory that the records name, and creates the
    /// agent in the database. Returns the local directory if the agent's name is taken.
    fn create(&mut self, remote: &dyn RemoteBackend, now: Time) -> Result<Option<PreparedDir>> {
        let prepared = self.dir.prepare(now)?;
        self.agent = Agent::of_dir(self.store, self.dir.agent().clone());
        self.dir.may_be_named(true);
        let ops = |each: &mut EachOp<'_>| all(&self.agent, &prepared, now, each);
        if remote.create(self.agent.name(), &ops)? {
            self.store.local.agent(self.agent.name()).move_in(&prepared)?;
            return Ok(None);
        }
        self.dir.may_be_named(false);
        Ok(Some(prepared))
    }
}

/// Calls `each` with all operations that create the agent from its staged files.
fn all(agent: &Agent<'_>, prepared: &PreparedDir, now: Time, each: &mut EachOp<'_>) -> Result<()> {
    let source = agent.source();
    let view = source.records().unchecked_view()?;
    source.copy(&*view, each)?;
    each(Op::LocalDir(prepared.name.clone()))?;
    let window = agent.policy()?.limits.dedupe_window;
    let place = source.place(layout::ARCHIVE);
    dedupe::entries(&*view, (&|name| source.is_own(name), &place), now, window)?.try_for_each(|entry| {
        each(Op::Key { key: entry.key.clone(), admitted_at: entry.admitted_at, text: ops::text(&entry) })
    })
}
