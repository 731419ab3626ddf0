//! Source of the records of an agent: files or another store.

use std::fmt::Display;
use std::ops::Deref;
use std::path::PathBuf;
use std::rc::Rc;

use crate::error::Result;
use crate::local::{LocalAgent, layout};
use crate::model::agent::Identity;
use crate::model::id::AgentName;
use crate::model::state::State;

use super::super::backend::contents::contents;
use super::super::backend::{AgentRecords, EachOp, Op, ReadView, RemoteRecords};
use super::super::dir::DirAgent;
use super::super::dir::quarantine::decoded_state;
use super::super::dir::record::decode;
use super::ops;

/// Records of an agent, and the part of the agent that belongs to this machine.
#[derive(Debug)]
pub struct RecordSource<'s> {
    pub local: LocalAgent<'s>,
    pub records: RecordsIn<DirAgent<'s>, Rc<dyn RemoteRecords>>,
}

/// Records in files of this machine, or in a store outside the state directory.
#[derive(Debug)]
pub enum RecordsIn<F, R> {
    Files(F),
    Remote(R),
}

impl<F, R: Deref> RecordsIn<F, R> {
    pub fn files(&self) -> Option<&F> {
        match self {
            RecordsIn::Files(files) => Some(files),
            RecordsIn::Remote(_) => None,
        }
    }

    pub fn remote(&self) -> Option<&R::Target> {
        match self {
            RecordsIn::Files(_) => None,
            RecordsIn::Remote(remote) => Some(remote),
        }
    }
}

impl<'s> RecordSource<'s> {
    pub fn records(&self) -> &(dyn AgentRecords + 's) {
        match &self.records {
            RecordsIn::Files(files) => files,
            RecordsIn::Remote(remote) => &**remote,
        }
    }

    /// Path of a record, for display and errors; in another store `store: agents/ada/work/ID`.
    /// `of`: path relative to the agent's directory.
    pub fn place(&self, of: impl Display) -> PathBuf {
        let of = of.to_string();
        match &self.records {
            RecordsIn::Files(files) => files.local.dir.path().join(of),
            RecordsIn::Remote(remote) => {
                let of = of.strip_suffix(".json").filter(|of| of.contains('/')).unwrap_or(&of);
                let (shown, agents) = (remote.shown(), layout::AGENTS);
                PathBuf::from(format!("{shown}: {agents}/{}/{of}", self.local.name))
            }
        }
    }

    /// Reads the text of a `state.json`.
    pub fn state(&self, text: &str) -> Result<State> {
        decoded_state(&self.local.name, &self.place(layout::STATE), text.as_bytes())
    }

    /// True if the agent has or had a name. Reads the identity only for a name that is not its own.
    pub fn is_own(&self, name: &AgentName) -> bool {
        let identity = || decode(&self.place(layout::IDENTITY), self.records().identity()?.as_bytes());
        *name == self.local.name
            || identity().is_ok_and(|own: Identity| own.former_names.iter().any(|had| had.name == *name))
    }

    /// Calls `each` with operations that create an agent with the contents of a view.
    pub fn copy(&self, view: &dyn ReadView, each: &mut EachOp<'_>) -> Result<()> {
        let text = view.state()?;
        let state = self.state(&text)?;
        each(ops::state(&state, text))?;
        each(Op::InboxClosed(state.moved.is_some()))?;
        contents(self.records(), view, each)
    }
}
