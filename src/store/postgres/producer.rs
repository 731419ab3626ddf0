//! Agent for a producer, who may insert into its inbox but read no records.

use std::num::NonZeroU32;
use std::rc::Rc;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::model::id::{AgentName, TaskId, TriggerId};
use crate::model::preemption::Checkpoint;
use crate::model::state::State;
use crate::model::time::Time;

use super::super::backend::input::TaskInput;
use super::super::backend::{
    AgentRecords, Arrival, Lease, LeaseClaimant, ReadView, RemoteRecords, RemoteTxn, UseOutcome,
};
use super::super::dir::Subject;
use super::context::StoreContext;
use super::wire::Statement;
use super::{errors, statements};

#[derive(Debug)]
pub struct Producer {
    shared: Rc<StoreContext>,
    name: AgentName,
}

impl Producer {
    /// Returns an agent of this name, which need not exist, if the role of this process is a
    /// producer. Otherwise returns `refusal`, the error of a failed query.
    pub fn find(shared: &Rc<StoreContext>, name: &AgentName, refusal: Error) -> Result<Producer> {
        let pool = &shared.pool;
        if shared.producer.get().is_none() {
            let asked = Statement::new(
                "SELECT session_user WHERE has_function_privilege('@.deliver(text, smallint[], uuid[], text[], boolean)', \
                 'EXECUTE')",
            );
            // Without a privilege on the schema, the query fails, and the role is no producer.
            let answer = pool.ask_one(asked).unwrap_or_default();
            let Some(role) = answer.row().and_then(|row| row.get(0)) else { return Err(refusal) };
            shared.producer.get_or_init(|| role.to_owned());
        }
        Ok(Producer::of(shared, name))
    }

    /// Returns an agent of this name for a role that is known to be a producer.
    pub fn of(shared: &Rc<StoreContext>, name: &AgentName) -> Producer {
        Producer { shared: Rc::clone(shared), name: name.clone() }
    }

    fn refused<T>(&self) -> Result<T> {
        let role = self.shared.producer.get().map(String::as_str).unwrap_or_default();
        Err(errors::producers(self.shared.pool.url(), role))
    }
}

impl AgentRecords for Producer {
    fn identity(&self) -> Result<String> {
        self.refused()
    }

    fn policy(&self) -> Result<String> {
        self.refused()
    }

    fn is_quiet(&self, _: &State) -> Result<bool> {
        self.refused()
    }

    fn arrive(&self, arrivals: &[Arrival]) -> Result<bool> {
        if arrivals.is_empty() {
            return Ok(true);
        }
        let pool = &self.shared.pool;
        let delivered = |again| [statements::deliver(self.name.as_str(), arrivals, again)];
        let answers = pool.ask_until_answered(&delivered(false), &delivered(true))?;
        let last = answers.last().and_then(|answer| answer.row());
        match last.and_then(|row| row.get(0)) {
            Some("arrived") => Ok(true),
            Some("shut") => Ok(false),
            Some("gone") => Err(Error::NoAgent { agent: self.name.to_string(), known: None, renamed: None }),
            _ => Err(pool.unexpected("what became of an arrival")),
        }
    }

    fn see(&self) -> Result<Rc<dyn ReadView + '_>> {
        self.refused()
    }

    fn checkpoints(&self) -> Result<Vec<Checkpoint>> {
        self.refused()
    }

    fn saved(&self, _: Checkpoint, _: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.refused()
    }

    fn trigger_key(&self, _: TriggerId, _: &str) -> Result<Option<Vec<u8>>> {
        self.refused()
    }

    fn use_trigger(&self, _: TriggerId, _: NonZeroU32, _: Time) -> Result<UseOutcome> {
        self.refused()
    }
}

impl RemoteRecords for Producer {
    fn state(&self) -> Result<String> {
        self.refused()
    }

    fn version(&self) -> Option<u64> {
        None
    }

    fn lock(&self, _: Duration) -> Result<Option<Box<dyn RemoteTxn>>> {
        self.refused()
    }

    fn lease(&self, _: Subject, _: &LeaseClaimant) -> Result<Option<Box<dyn Lease>>> {
        self.refused()
    }

    fn is_leased(&self, _: Subject, _: &str) -> Result<bool> {
        self.refused()
    }

    fn task_input(&self, _: TaskId) -> Result<Box<dyn TaskInput>> {
        self.refused()
    }
}
