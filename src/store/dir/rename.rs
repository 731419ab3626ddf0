//! Renames an agent's directory.

use rustix::io::Errno;

use crate::error::{IoContext, Result};
use crate::local::{StateDir, layout::AgentDir};
use crate::model::id::AgentName;
use crate::model::place::PlaceId;

use super::super::backend::Txn;
use super::view::View;
use super::{DirTxn, agent_exists};

impl DirTxn<'_> {
    /// Renames the agent's directory, with the lock file that this process has locked. The records
    /// still contain the former name.
    pub(in crate::store) fn rename(&self, name: &AgentName) -> Result<()> {
        self.flush()?;
        let target = AgentDir::new(&self.agent.local.state_dir.root, name);
        match self.agent.local.dir.cap().try_rename(target.cap())? {
            Err(Errno::NOTEMPTY | Errno::EXIST) => return Err(agent_exists(name)),
            renamed => renamed.context("rename to", target.path())?,
        }
        match self.agent.local.disk().sync_dir(&target.cap().parent()) {
            // Undoes the rename. If the former name is taken by now, the agent keeps the new name.
            Err(error) if target.cap().try_rename(self.agent.local.dir.cap())?.is_ok() => Err(error),
            Err(_) | Ok(()) => Ok(()),
        }
    }
}

impl StateDir {
    /// True if the agent whose directory has the identity `number` was once named `former`: that
    /// agent was renamed while a command was using the former name.
    pub(super) fn is_renamed(&self, former: &AgentName, number: PlaceId) -> Result<bool> {
        for name in self.agent_dirs("")? {
            let dir = AgentDir::new(&self.root, &name);
            if dir.cap().number()? == Some(number) {
                return Ok(View::settled(&dir).is_own(former));
            }
        }
        Ok(false)
    }
}
