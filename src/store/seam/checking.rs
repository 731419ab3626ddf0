//! Records of a database as temporary private files of this machine, so that `doctor` checks the
//! records of any store in one way.

use super::super::dir::{self, Finding};
use crate::error::Result;

use super::agent::Agent;
use super::export::each_part;

/// Temporary files with an agent's records. Dropping this value removes the files.
pub struct AsFiles<'a> {
    of: &'a Agent<'a>,
    dir: dir::DirImport<'a>,
    agent: Agent<'a>,
}

impl<'a> Agent<'a> {
    /// Writes the records as files; `None` if they are files already. Does not lock the records,
    /// because a read-only server grants no lock.
    pub fn as_files(&'a self) -> Result<Option<AsFiles<'a>>> {
        let Some(remote) = self.remote() else { return Ok(None) };
        let dir = self.local().store.stage_copy(self.name())?;
        each_part(self.source(), &*remote.read_view()?, &mut |path, bytes| dir.append(path, bytes))?;
        dir.furnish()?;
        let agent = Agent::of_dir(self.store(), dir.agent().clone());
        Ok(Some(AsFiles { of: self, dir, agent }))
    }
}

impl AsFiles<'_> {
    /// Returns the agent that has these files.
    pub fn agent(&self) -> &Agent<'_> {
        &self.agent
    }

    /// Converts a finding about the files into a finding about the records.
    pub fn named(&self, finding: Finding) -> Finding {
        finding.of_records(self.dir.agent(), |path| self.of.source().place(path))
    }
}
