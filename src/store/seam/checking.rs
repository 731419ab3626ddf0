//! Records of a database as temporary private files of this machine, so that `doctor` checks the
//! records of any store in one way.

use super::super::backend::ReadView;
use super::super::dir::{self, Finding};
use crate::error::Result;
use crate::model::time::Time;

use super::agent::Agent;
use super::change::AgentTxn;
use super::export;

/// Temporary files with an agent's records. Dropping this value removes the files.
pub struct AsFiles<'a> {
    of: &'a Agent<'a>,
    dir: dir::DirImport<'a>,
    agent: Agent<'a>,
}

impl<'a> Agent<'a> {
    /// Writes the records as files; `None` if they are files already. `locked`: lock of the agent;
    /// without it the records are not locked, because a read-only server grants no lock.
    pub fn as_files(&'a self, locked: Option<&AgentTxn<'_>>, now: Time) -> Result<Option<AsFiles<'a>>> {
        let Some(remote) = self.remote() else { return Ok(None) };
        match locked {
            Some(locked) => AsFiles::of(self, locked.local(), &*locked.records().now()?),
            None => AsFiles::of(self, &self.ready_local()?.lock(now)?, &*remote.read_view()?),
        }
        .map(Some)
    }
}

impl<'a> AsFiles<'a> {
    fn of(of: &'a Agent<'a>, lock: &dir::DirTxn<'_>, view: &dyn ReadView) -> Result<AsFiles<'a>> {
        let records = export::with_records(lock.empty_export()?, of.source(), view)?;
        let mut dir = of.local().store.stage_copy(of.name())?;
        records.copy_to(&mut dir, |_| ())?;
        dir.furnish()?;
        let agent = Agent::of_dir(of.store(), dir.agent().clone());
        Ok(AsFiles { of, dir, agent })
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
