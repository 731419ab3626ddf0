//! Where the records of an agent are, if they are not in the directory, and how their texts are
//! read there.

use std::cell::Cell;
use std::fmt::Display;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::model::id::AgentName;
use crate::model::record::Record;
use crate::model::state::State;

use super::super::dir::record::decode;
use super::super::dir::{aside, layout};
use super::super::elsewhere::AgentRecords;

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

impl Remote {
    /// A place among the records, for people: `store: agents/ada/work/…`.
    pub fn place(&self, of: impl Display) -> PathBuf {
        PathBuf::from(format!("{}: {}/{}/{of}", self.shown, layout::AGENTS, self.name))
    }

    pub fn decoded<T: Record>(&self, of: impl Display, text: &str) -> Result<T> {
        decode(&self.place(of), text.as_bytes())
    }

    pub fn state_of(&self, text: &str) -> Result<State> {
        let state: State = self.decoded(layout::STATE, text)?;
        let is_whole = if state.agent == self.name {
            aside::check(&state)
        } else {
            Err(format!("the record of agent `{}` is that of `{}`", state.agent, self.name))
        };
        is_whole.map_err(|message| Error::damaged(self.place(layout::STATE), message))?;
        Ok(state)
    }

    /// The error of a process that has waited for the agent's lock, or for another one of its own.
    pub fn busy(&self, waited: Duration) -> Error {
        Error::busy(self.place(""), "another process".to_owned(), waited)
    }
}
