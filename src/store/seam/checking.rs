//! Records as files of this machine, so that `doctor` checks the records of any store in one way.

use super::super::dir::{DirAgent, DirImport, Finding};
use crate::error::Result;

use super::agent::Agent;
use super::export::each_part;

/// Records of an agent as files.
#[expect(clippy::large_enum_variant, reason = "a command has one of them at a time")]
pub enum AsFiles<'a> {
    /// The records are files.
    Own(&'a Agent<'a>, &'a DirAgent<'a>),
    /// Copy of records in a database. Dropping this removes the files.
    Copy { of: &'a Agent<'a>, dir: DirImport<'a>, agent: Agent<'a> },
}

impl<'a> Agent<'a> {
    /// Returns the records as files. Copies records in a database to temporary files, without a
    /// lock, because a read-only server grants no lock.
    pub fn as_files(&'a self) -> Result<AsFiles<'a>> {
        if let Some(files) = self.files() {
            return Ok(AsFiles::Own(self, files));
        }
        let dir = self.local().state_dir.stage_copy(self.name())?;
        let view = self.records().read_view()?;
        each_part(self.source(), &*view, &mut |path, bytes| dir.append(path, bytes))?;
        dir.furnish()?;
        let agent = Agent::of_dir(self.store(), dir.agent().clone());
        Ok(AsFiles::Copy { of: self, dir, agent })
    }
}

impl AsFiles<'_> {
    /// Returns the agent that has these files.
    pub fn agent(&self) -> &Agent<'_> {
        match self {
            AsFiles::Own(agent, _) => agent,
            AsFiles::Copy { agent, .. } => agent,
        }
    }

    pub fn files(&self) -> &DirAgent<'_> {
        match self {
            AsFiles::Own(_, files) => files,
            AsFiles::Copy { dir, .. } => dir.agent(),
        }
    }

    /// Converts a finding about the files into a finding about the records.
    pub fn named(&self, finding: Finding) -> Finding {
        match self {
            AsFiles::Own(..) => finding,
            AsFiles::Copy { of, dir, .. } => {
                finding.of_records(&dir.agent().local, |path| of.source().place(path))
            }
        }
    }
}
