//! The context in which a command changes one agent's records: all commits are made here.
//!
//! Each commit notes the transitions and attentions that it makes; [`Context::tell`] notifies the
//! hooks of them.

use crate::error::{Error, Result};
use crate::model::records::{LeaseState, Records};
use crate::model::state::State;
use crate::rules::transition::draft::Draft;
use crate::store::{Agent, AgentTxn, Snapshot, Store};

use super::load::{self, Purpose};
use super::sections;
use super::session::Session;

/// A command and the agent that it works on.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    pub session: &'a Session,
    pub agent: &'a Agent<'a>,
}

/// Result of a change.
pub struct Committed<T> {
    /// Value that the rule returned.
    pub made: T,
    /// State of the agent after the change.
    pub state: State,
    /// True if the change was committed, false if there was nothing to commit.
    pub is_changed: bool,
}

/// Transaction on an agent: its lock, and the draft of its changed records.
pub struct OpenTxn<'a> {
    context: Context<'a>,
    pub locked: AgentTxn<'a>,
    pub draft: Draft,
}

impl<'a> Context<'a> {
    pub fn new(session: &'a Session, agent: &'a Agent<'a>) -> Context<'a> {
        Context { session, agent }
    }

    pub fn store(self) -> &'a Store {
        self.agent.store()
    }

    /// Takes the lock and loads the records.
    pub fn open(self) -> Result<OpenTxn<'a>> {
        self.session.is_about(self.agent.name());
        self.load(self.agent.change(self.session.clock.now())?)
    }

    /// Takes the lock without waiting, and loads the records. `None` if another process has it.
    pub fn try_open(self) -> Result<Option<OpenTxn<'a>>> {
        self.agent.try_change(self.session.clock.now())?.map(|locked| self.load(locked)).transpose()
    }

    fn load(self, locked: AgentTxn<'a>) -> Result<OpenTxn<'a>> {
        let state = locked.state()?;
        let draft = self.draft(&locked, state)?;
        Ok(OpenTxn { context: self, locked, draft })
    }

    /// Returns a draft of the records around a state that was read under this lock.
    pub fn draft(self, locked: &AgentTxn<'_>, state: State) -> Result<Draft> {
        self.draft_of(&locked.look(&state)?, state)
    }

    /// Returns a draft from a snapshot that was already opened.
    pub fn draft_of(self, seen: &Snapshot<'_>, state: State) -> Result<Draft> {
        let now = self.session.clock.now();
        let records = load::records(self.agent, seen, state, LeaseState::Free, now, Purpose::Look)?;
        let mut draft = Draft::new(records, self.session.clock.stamp()?);
        sections::close_abandoned(self.agent, &mut draft);
        Ok(draft)
    }

    /// Changes the records by a rule, in one transaction. Commits nothing if the rule refuses or
    /// changes nothing.
    pub fn change<T, E: Into<Error>>(
        self,
        rule: impl FnOnce(&mut Draft) -> std::result::Result<T, E>,
    ) -> Result<Committed<T>> {
        self.open()?.change(rule)
    }

    /// Changes the records by a rule without waiting for the lock. `None` if another process has
    /// it.
    pub fn try_change<T, E: Into<Error>>(
        self,
        rule: impl FnOnce(&mut Draft) -> std::result::Result<T, E>,
    ) -> Result<Option<Committed<T>>> {
        self.try_open()?.map(|open| open.change(rule)).transpose()
    }

    /// Commits the draft, unless it is unchanged, and notes its transitions and attentions for
    /// [`Context::tell`]. Returns the records after the commit.
    pub fn commit(self, locked: &AgentTxn<'_>, mut draft: Draft) -> Result<Records> {
        if draft.is_empty() {
            return Ok(draft.records);
        }
        let Context { session, agent } = self;
        if let Some(waited) = locked.take_wait() {
            draft.waited_for_lock(waited);
        }
        session.to_tell.borrow_mut().note(agent, &mut draft)?;
        let raised = draft.raised().to_vec();
        let onlookers = draft.records.onlookers;
        let (mut transaction, mut records) = draft.finish_and_keep()?;
        let moves = session.moves.borrow_mut().note(agent, &mut transaction, onlookers)?;
        records.state = locked.commit(transaction)?;
        session.moves.borrow_mut().add(moves);
        session.to_tell.borrow_mut().add(&records.state.agent, &raised);
        session.raised.borrow_mut().extend(raised);
        Ok(records)
    }
}

impl<'a> OpenTxn<'a> {
    /// Changes the draft by a rule, commits it, and releases the lock.
    pub fn change<T, E: Into<Error>>(
        mut self,
        rule: impl FnOnce(&mut Draft) -> std::result::Result<T, E>,
    ) -> Result<Committed<T>> {
        let made = rule(&mut self.draft).map_err(E::into)?;
        let is_changed = !self.draft.is_empty();
        Ok(Committed { made, state: self.commit()?, is_changed })
    }

    /// Commits the draft and releases the lock. Returns the state of the agent after that.
    pub fn commit(self) -> Result<State> {
        Ok(self.context.commit(&self.locked, self.draft)?.state)
    }
}
