//! Renames an agent's directory.

use rustix::io::Errno;

use crate::cap_fs::Number;
use crate::error::{IoContext, Result};
use crate::model::id::AgentName;

use super::super::backend::{Backend, Txn};
use super::layout::AgentDir;
use super::{DirStore, DirTxn, agent_exists};

impl DirTxn<'_> {
    /// Renames the agent's directory. Its lock, held here, goes with it. Its records still have the
    /// former name.
    pub(in crate::store) fn rename(&self, name: &AgentName) -> Result<()> {
        self.flush()?;
        let target = AgentDir::new(&self.agent.store.root, name);
        match self.agent.dir.cap().try_rename(target.cap())? {
            Err(Errno::NOTEMPTY | Errno::EXIST) => return Err(agent_exists(name)),
            renamed => renamed.context("rename to", target.path())?,
        }
        self.agent.store.disk.sync_dir(&target.cap().parent())
    }
}

impl DirStore {
    /// True if an agent's directory has this number. For a command that has lost an agent by its
    /// name: the directory with the files of that command may have another name now.
    pub(super) fn has_dir(&self, number: Number) -> Result<bool> {
        for name in self.agents("")? {
            if AgentDir::new(&self.root, &name).cap().number()? == Some(number) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
