//! Records of an agent, in files or in another store.

use std::cell::Cell;
use std::fmt::Display;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::model::id::AgentName;
use crate::model::state::State;

use super::super::backend::{AgentRecords, ReadView};
use super::super::dir::record::decode;
use super::super::dir::{self, layout, quarantine};

/// Records of an agent in another store.
#[derive(Debug)]
pub struct Remote {
    pub name: AgentName,
    /// Display name of the store.
    pub shown: String,
    pub records: Rc<dyn AgentRecords>,
    /// True if a prepared local agent directory is known to be at its final path.
    pub has_moved_in: Cell<bool>,
}

/// Source of the records of an agent: files or another store.
#[derive(Debug, Clone, Copy)]
pub struct RecordSource<'a> {
    /// Local part of the agent, which has the records if they are files.
    pub local: &'a dir::DirAgent<'a>,
    pub remote: Option<&'a Remote>,
}

impl<'a> RecordSource<'a> {
    /// Returns a view of one revision, for reads without the lock.
    pub fn see(self) -> Result<Rc<dyn ReadView + 'a>> {
        match self.remote {
            None => Ok(Rc::new(self.local.see()?)),
            Some(remote) => Ok(remote.records.see()?),
        }
    }

    /// Returns a view of the current records without a check for an interrupted transaction.
    pub fn glimpse(self) -> Result<Rc<dyn ReadView + 'a>> {
        match self.remote {
            None => Ok(Rc::new(self.local.glimpse())),
            Some(remote) => Ok(remote.records.see()?),
        }
    }

    /// Path of a record, for display and errors. `of`: path relative to the agent's directory.
    pub fn place(self, of: impl Display) -> PathBuf {
        match self.remote {
            None => self.local.dir().path().join(of.to_string()),
            Some(remote) => remote.place(of),
        }
    }

    /// Reads the text of a `state.json`.
    pub fn state(self, text: &str) -> Result<State> {
        let place = self.place(layout::STATE);
        let state: State = decode(&place, text.as_bytes())?;
        quarantine::check_of(self.local.name(), &state).map_err(|message| Error::damaged(place, message))?;
        Ok(state)
    }
}

impl Remote {
    /// Display path of a record in the store: `store: agents/ada/work/ID`. `of`: path relative to
    /// the agent's directory.
    pub fn place(&self, of: impl Display) -> PathBuf {
        let of = of.to_string();
        let of = of.strip_suffix(".json").filter(|of| of.contains('/')).unwrap_or(&of);
        PathBuf::from(format!("{}: {}/{}/{of}", self.shown, layout::AGENTS, self.name))
    }

    /// Error after a timeout for the agent's lock, or for another of its locks.
    pub fn busy(&self, waited: Duration) -> Error {
        Error::busy(self.place(""), "another process".to_owned(), waited)
    }
}
