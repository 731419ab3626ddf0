//! Records of a database as temporary private files of this machine, so that `doctor` has one way
//! to check the records of an agent.

use super::super::dir::{self, Finding};
use super::super::elsewhere::ReadView;
use crate::error::Result;
use crate::model::time::Time;

use super::agent::Agent;
use super::change::AgentTxn;
use super::leaving;

/// The records of an agent as files. Dropping this removes them.
pub struct AsFiles<'a> {
    of: &'a Agent<'a>,
    dir: dir::DirImport<'a>,
    agent: Agent<'a>,
}

impl<'a> AgentTxn<'a> {
    /// The records as files. `None`: they are files already.
    pub fn as_files(&self) -> Result<Option<AsFiles<'a>>> {
        let Some(hold) = self.hold() else { return Ok(None) };
        AsFiles::of(self.agent(), self.local(), &*hold.now()?).map(Some)
    }
}

impl<'a> Agent<'a> {
    /// Returns the records as files, without the lock of the records: a read-only server gives
    /// none.
    pub fn as_files(&'a self, now: Time) -> Result<Option<AsFiles<'a>>> {
        let Some(remote) = self.remote() else { return Ok(None) };
        let room = self.local().lock_room(now)?;
        AsFiles::of(self, &room, &*remote.records.see()?).map(Some)
    }
}

impl<'a> AsFiles<'a> {
    fn of(of: &'a Agent<'a>, room: &dir::DirTxn<'_>, sight: &dyn ReadView) -> Result<AsFiles<'a>> {
        let records = leaving::records(room, sight)?;
        let mut dir = of.local().store().stage_copy(of.name())?;
        records.copy_to(&mut dir, |_| ())?;
        dir.furnish()?;
        let agent = Agent::of_dir(of.store(), dir.agent().clone());
        Ok(AsFiles { of, dir, agent })
    }
}

impl AsFiles<'_> {
    /// The agent that has these files.
    pub fn agent(&self) -> &Agent<'_> {
        &self.agent
    }

    /// Turns a finding at the files into one at the records.
    pub fn named(&self, finding: Finding) -> Finding {
        match self.of.remote() {
            Some(remote) => finding.of_records(self.dir.agent(), |path| remote.place(path)),
            None => finding,
        }
    }
}
