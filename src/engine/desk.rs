//! The desk at which one agent is worked on: what is changed in its records is committed here, and
//! nowhere else.
//!
//! What a commit moves or raises is noted on the way, and told by [`Desk::tell`].

use crate::error::{Error, Result};
use crate::model::records::{Lease, Records};
use crate::model::state::State;
use crate::rules::transition::draft::Draft;
use crate::store::{Agent, Change, Snapshot, Store};

use super::load::{self, Purpose};
use super::sections;
use super::session::Session;

/// A command and the agent that it works on.
#[derive(Clone, Copy)]
pub struct Desk<'a> {
    pub session: &'a Session,
    pub agent: &'a Agent<'a>,
}

/// What came of a change.
pub struct Committed<T> {
    /// What the rule made.
    pub made: T,
    /// As it stands now.
    pub state: State,
    /// Whether anything was to be committed.
    pub is_changed: bool,
}

/// The records of an agent, under its lock, and what a command is about to change in them.
pub struct Open<'a> {
    desk: Desk<'a>,
    pub locked: Change<'a>,
    pub draft: Draft,
}

impl<'a> Desk<'a> {
    pub fn new(session: &'a Session, agent: &'a Agent<'a>) -> Desk<'a> {
        Desk { session, agent }
    }

    pub fn store(self) -> &'a Store {
        self.agent.store()
    }

    /// Takes the lock and loads the records.
    pub fn open(self) -> Result<Open<'a>> {
        self.session.is_about(self.agent.name());
        self.load(self.agent.change(self.session.clock.now())?)
    }

    /// The same for a command that can't wait. `None`: another process has the lock.
    pub fn try_open(self) -> Result<Option<Open<'a>>> {
        self.agent.try_change(self.session.clock.now())?.map(|locked| self.load(locked)).transpose()
    }

    fn load(self, locked: Change<'a>) -> Result<Open<'a>> {
        let state = locked.state()?;
        let draft = self.draft(&locked, state)?;
        Ok(Open { desk: self, locked, draft })
    }

    /// The records as a draft for a change, around a state that was read under this lock.
    pub fn draft(self, locked: &Change<'_>, state: State) -> Result<Draft> {
        self.draft_of(&locked.look(&state)?, state)
    }

    /// The same from records that were looked at already.
    pub fn draft_of(self, seen: &Snapshot<'_>, state: State) -> Result<Draft> {
        let now = self.session.clock.now();
        let records = load::records(self.agent, seen, state, Lease::Free, now, Purpose::Look)?;
        let mut draft = Draft::new(records, self.session.clock.stamp()?);
        sections::close_abandoned(self.agent, &mut draft);
        Ok(draft)
    }

    /// Changes the records by a rule, in one transaction. A rule that refuses, or changes nothing,
    /// commits nothing.
    pub fn change<T, E: Into<Error>>(
        self,
        rule: impl FnOnce(&mut Draft) -> std::result::Result<T, E>,
    ) -> Result<Committed<T>> {
        self.open()?.change(rule)
    }

    /// The same for a command that can't wait. `None`: another process has the lock.
    pub fn try_change<T, E: Into<Error>>(
        self,
        rule: impl FnOnce(&mut Draft) -> std::result::Result<T, E>,
    ) -> Result<Option<Committed<T>>> {
        self.try_open()?.map(|open| open.change(rule)).transpose()
    }

    /// Commits, and notes for [`Desk::tell`] which transitions and attentions that makes. A draft
    /// in which nothing has changed is not committed. Returns the records as they are then.
    pub fn commit(self, locked: &Change<'_>, mut draft: Draft) -> Result<Records> {
        if draft.is_empty() {
            return Ok(draft.records);
        }
        let Desk { session, agent } = self;
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

impl<'a> Open<'a> {
    /// Lets a rule change the draft, commits it, and lets go of the lock.
    pub fn change<T, E: Into<Error>>(
        mut self,
        rule: impl FnOnce(&mut Draft) -> std::result::Result<T, E>,
    ) -> Result<Committed<T>> {
        let made = rule(&mut self.draft).map_err(E::into)?;
        let is_changed = !self.draft.is_empty();
        Ok(Committed { made, state: self.commit()?, is_changed })
    }

    /// Commits the draft and lets go of the lock. Returns the agent as it stands then.
    pub fn commit(self) -> Result<State> {
        Ok(self.desk.commit(&self.locked, self.draft)?.state)
    }
}
