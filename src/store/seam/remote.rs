//! The records of an agent, be they files or in another store.

use std::cell::Cell;
use std::fmt::Display;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::model::id::AgentName;
use crate::model::state::State;

use super::super::dir::record::decode;
use super::super::dir::{self, aside, layout};
use super::super::elsewhere::{AgentRecords, ReadView};

/// The records of an agent in another store.
#[derive(Debug)]
pub struct Remote {
    pub name: AgentName,
    /// Where they are, for people.
    pub shown: String,
    pub records: Rc<dyn AgentRecords>,
    /// True if a prepared local agent directory is known to be in its place.
    pub has_moved_in: Cell<bool>,
}

/// The records of an agent, wherever they are.
#[derive(Debug, Clone, Copy)]
pub struct RecordSource<'a> {
    /// This machine's part of the agent, which has the records where they are files.
    pub local: &'a dir::DirAgent<'a>,
    pub remote: Option<&'a Remote>,
}

impl<'a> RecordSource<'a> {
    /// Returns one revision, to be read without the lock.
    pub fn see(self) -> Result<Rc<dyn ReadView + 'a>> {
        match self.remote {
            None => Ok(Rc::new(self.local.see()?)),
            Some(remote) => Ok(remote.records.see()?),
        }
    }

    /// Returns the present records without a check for an interrupted transaction.
    pub fn glimpse(self) -> Result<Rc<dyn ReadView + 'a>> {
        match self.remote {
            None => Ok(Rc::new(self.local.glimpse())),
            Some(remote) => Ok(remote.records.see()?),
        }
    }

    /// The place of a record, for people. `of`: its path from the directory that an agent has.
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
        aside::check_of(self.local.name(), &state).map_err(|message| Error::damaged(place, message))?;
        Ok(state)
    }
}

impl Remote {
    /// A place among the records, for people: `store: agents/ada/work/ID`. `of`: the path that the
    /// record has in a directory.
    pub fn place(&self, of: impl Display) -> PathBuf {
        let of = of.to_string();
        let of = of.strip_suffix(".json").filter(|of| of.contains('/')).unwrap_or(&of);
        PathBuf::from(format!("{}: {}/{}/{of}", self.shown, layout::AGENTS, self.name))
    }

    /// The error of a process that has waited for the agent's lock, or for another one of its own.
    pub fn busy(&self, waited: Duration) -> Error {
        Error::busy(self.place(""), "another process".to_owned(), waited)
    }
}
