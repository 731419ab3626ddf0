//! Source of the records of an agent: files or another store.

use std::fmt::Display;
use std::path::PathBuf;
use std::rc::Rc;

use crate::error::Result;
use crate::local::layout;
use crate::model::agent::Identity;
use crate::model::id::AgentName;
use crate::model::state::State;

use super::super::backend::contents::contents;
use super::super::backend::{AgentRecords, EachOp, Op, ReadView};
use super::super::dir;
use super::super::dir::record::decode;
use super::ops;

/// Local directory of an agent, and its records, which are in files or another store.
#[derive(Debug)]
pub struct RecordSource<'s> {
    /// Directory on this machine. Its files include the records, unless another store has them.
    pub local: dir::DirAgent<'s>,
    /// Records: the files of `local`, or those of another store.
    pub records: Rc<dyn AgentRecords + 's>,
}

impl<'s> RecordSource<'s> {
    /// Path of a record, for display and errors; in another store `store: agents/ada/work/ID`.
    /// `of`: path relative to the agent's directory.
    pub fn place(&self, of: impl Display) -> PathBuf {
        let of = of.to_string();
        if self.records.remote().is_none() {
            return self.local.dir.path().join(of);
        }
        let of = of.strip_suffix(".json").filter(|of| of.contains('/')).unwrap_or(&of);
        let (shown, agents) = (self.local.store.shown(), layout::AGENTS);
        PathBuf::from(format!("{shown}: {agents}/{}/{of}", self.local.name))
    }

    /// Reads the text of a `state.json`.
    pub fn state(&self, text: &str) -> Result<State> {
        self.local.decoded_state(&self.place(layout::STATE), text.as_bytes())
    }

    /// True if the agent has or had a name. Reads the identity only for a name that is not its own.
    pub fn is_own(&self, name: &AgentName) -> bool {
        let identity = || decode(&self.place(layout::IDENTITY), self.records.identity()?.as_bytes());
        *name == self.local.name
            || identity().is_ok_and(|own: Identity| own.former_names.iter().any(|had| had.name == *name))
    }

    /// Calls `each` with operations that create an agent with the contents of a view.
    pub fn copy(&self, view: &dyn ReadView, each: &mut EachOp<'_>) -> Result<()> {
        let text = view.state()?;
        let state = self.state(&text)?;
        each(ops::state(&state, text))?;
        each(Op::InboxClosed(state.moved.is_some()))?;
        contents(&*self.records, view, each)
    }
}
