//! Records of one agent: the operations without its lock.

use std::cell::{Cell, RefCell};
use std::num::NonZeroU32;
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::error::Result;
use crate::model::id::{AgentName, TaskId, TriggerId};
use crate::model::preemption::Checkpoint;
use crate::model::state::State;
use crate::model::time::Time;

use super::super::backend::input::TaskInput;
use super::super::backend::{
    AgentRecords, Arrival, Lease, LeaseClaimant, ReadView, RemoteRecords, RemoteTxn, UseOutcome,
};
use super::super::dir::Subject;
use super::context::{AgentContext, StoreContext};
use super::input::PgInput;
use super::pool::ConnectionPool;
use super::read_view::PgReadView;
use super::statements::{AgentKey, NOT_FENCED, Provided};
use super::wire::Statement;
use super::{dump, errors, lease, sql, statements, triggers, txn};

/// Maximum age of prefetched facts. Each fact is used at most once.
const GLANCE: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub struct PgAgent {
    one: Rc<AgentContext>,
    /// Facts that the lookup of the agent has returned.
    glance: Prefetched,
    room: Option<String>,
}

#[derive(Debug)]
struct Prefetched {
    at: Cell<Instant>,
    revision: Cell<Option<u64>>,
    state: RefCell<Option<String>>,
    has_arrivals: Cell<Option<bool>>,
}

impl Prefetched {
    /// Discards the prefetched facts, because another query or change may make them outdated.
    fn forget(&self) {
        self.revision.take();
        self.state.take();
        self.has_arrivals.take();
    }

    fn if_fresh<T>(&self, fact: Option<T>) -> Option<T> {
        fact.filter(|_| self.at.get().elapsed() < GLANCE)
    }
}

impl PgAgent {
    /// Looks up an agent by its name, and prefetches the most used facts, in one round trip.
    pub fn find(shared: &Rc<StoreContext>, name: &AgentName) -> Result<Option<PgAgent>> {
        let pool = &shared.pool;
        let at = Instant::now();
        let asked = Statement::new(
            "SELECT a.id, a.identity, a.policy, s.revision, s.body, \
               EXISTS (SELECT FROM @.inbox i WHERE i.agent_id = a.id), a.room \
             FROM @.agent a JOIN @.state s ON s.agent_id = a.id WHERE a.name = $1",
        );
        let answer = pool.ask_one(asked.with(name.as_str()))?;
        let Some(row) = answer.row() else { return Ok(None) };
        let read = || {
            let glance = Prefetched {
                at: Cell::new(at),
                revision: Cell::new(Some(row.number(3)?)),
                state: RefCell::new(Some(row.text(4)?)),
                has_arrivals: Cell::new(Some(row.is(5))),
            };
            let one = AgentContext {
                shared: Rc::clone(shared),
                name: name.clone(),
                id: row.number(0)?,
                policy: RefCell::new(row.text(2)?),
                identity: RefCell::new(row.text(1)?),
                forgotten: Cell::default(),
            };
            Some(PgAgent { one: Rc::new(one), glance, room: row.text(6) })
        };
        read().map(Some).ok_or_else(|| pool.unexpected("the row of an agent"))
    }
}

/// Outcome of an attempt to insert arrivals.
struct ArrivalOutcome {
    is_there: bool,
    /// True if the caller's condition was met.
    is_provided: bool,
    is_shut: bool,
    /// Text of the agent's state after the insertion.
    state: Option<String>,
}

/// Inserts arrivals into an inbox, in one round trip. `may_lock`: true if a retry after a lost
/// answer may wait for the agent's lock.
fn arrive(
    pool: &ConnectionPool,
    agent: AgentKey<'_>,
    arrivals: &[Arrival],
    provided: &Provided,
    may_lock: bool,
) -> Result<ArrivalOutcome> {
    let once = statements::arrive(agent, arrivals, provided, false);
    let mut again = Vec::new();
    if may_lock {
        again
            .extend([statements::limits(pool.patience().as_millis().max(1)), statements::lock(agent, false)]);
    }
    again.extend(statements::arrive(agent, arrivals, provided, true));
    let answers = pool.ask_until_answered(&once, &again)?;
    let row = answers.last().and_then(|answer| answer.row());
    Ok(ArrivalOutcome {
        is_there: row.is_some(),
        is_provided: row.is_some_and(|row| row.is(0)),
        is_shut: row.is_some_and(|row| row.is(1)),
        state: row.and_then(|row| row.text(2)),
    })
}

/// Inserts a message into an agent's inbox if the agent accepts the message's size. Returns the
/// agent's state; `None` if the message was not inserted.
pub fn tell(
    shared: &StoreContext,
    name: &AgentName,
    message: &Arrival,
    size: (u64, u64),
) -> Result<Option<String>> {
    let provided = Provided { size: Some(size), ..Provided::default() };
    let may_lock = shared.lock_of(name).is_none();
    let agent = AgentKey::Name(name.as_str());
    let came = arrive(&shared.pool, agent, std::slice::from_ref(message), &provided, may_lock)?;
    Ok(came.state.filter(|_| came.is_there && came.is_provided && !came.is_shut))
}

impl AgentRecords for PgAgent {
    fn identity(&self) -> Result<String> {
        Ok(self.one.identity.borrow().clone())
    }

    fn policy(&self) -> Result<String> {
        Ok(self.one.policy.borrow().clone())
    }

    fn is_quiet(&self, _: &State) -> Result<bool> {
        if let Some(has_arrivals) = self.glance.if_fresh(self.glance.has_arrivals.take()) {
            return Ok(!has_arrivals);
        }
        let asked = Statement::new("SELECT NOT EXISTS (SELECT FROM @.inbox WHERE agent_id = $1)");
        Ok(self.one.ask(asked.with(self.one.id))?.row().is_some_and(|row| row.is(0)))
    }

    fn arrive(&self, arrivals: &[Arrival]) -> Result<bool> {
        let one = &self.one;
        if arrivals.is_empty() {
            return Ok(true);
        }
        self.glance.forget();
        let asked_at = Instant::now();
        // A retry must not lock the agent if this process has the lock, or it would deadlock.
        let may_lock = !one.lock().is_some_and(|lock| lock.is_open());
        let provided = Provided { lease: one.claimed(), size: None };
        let came = arrive(&one.shared.pool, AgentKey::Id(one.id), arrivals, &provided, may_lock)?;
        self.glance.at.set(asked_at);
        self.glance.state.replace(came.state);
        if !came.is_there {
            return Err(one.gone());
        }
        if !came.is_provided {
            return Err(errors::fenced(one.name.as_str()));
        }
        Ok(!came.is_shut)
    }

    fn see(&self) -> Result<Rc<dyn ReadView + '_>> {
        self.glance.forget();
        let rows = self.one.ask(statements::load(self.one.id, false))?.rows;
        let seen = PgReadView::read(&self.one, &rows, false)?.ok_or_else(|| self.one.gone())?;
        Ok(Rc::new(seen))
    }

    fn checkpoints(&self) -> Result<Vec<Checkpoint>> {
        dump::checkpoints(&self.one)
    }

    fn saved(&self, checkpoint: Checkpoint, each: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.glance.forget();
        for part in 0.. {
            match dump::saved_part(&self.one, checkpoint, part)? {
                Some(bytes) => each(&bytes),
                None => return Ok(part > 0),
            }
        }
        Ok(true)
    }

    fn trigger_key(&self, trigger: TriggerId, digest: &str) -> Result<Option<Vec<u8>>> {
        triggers::key(&self.one, trigger, digest)
    }

    fn has_trigger_key(&self, trigger: TriggerId, digest: &str) -> Result<bool> {
        triggers::has_key(&self.one, trigger, digest)
    }

    fn use_trigger(&self, trigger: TriggerId, most: NonZeroU32, _: Time) -> Result<UseOutcome> {
        triggers::count_use(&self.one, trigger, most)
    }
}

impl RemoteRecords for PgAgent {
    fn local_dir_name(&self) -> Option<String> {
        self.room.clone()
    }

    fn state(&self) -> Result<String> {
        if let Some(state) = self.glance.if_fresh(self.glance.state.take()) {
            return Ok(state);
        }
        let asked = Statement::new("SELECT body FROM @.state WHERE agent_id = $1").with(self.one.id);
        let state = self.one.ask(asked)?.row().and_then(|row| row.text(0));
        state.ok_or_else(|| self.one.gone())
    }

    fn version(&self) -> Option<u64> {
        if let Some(revision) = self.glance.if_fresh(self.glance.revision.take()) {
            return Some(revision);
        }
        self.one.revision().ok().flatten()
    }

    fn lock(&self, patience: Duration) -> Result<Option<Box<dyn RemoteTxn>>> {
        self.glance.forget();
        txn::begin(&self.one, patience)
    }

    fn lease(&self, subject: Subject, claimant: &LeaseClaimant) -> Result<Option<Box<dyn Lease>>> {
        self.glance.forget();
        lease::take(&self.one, subject, claimant)
    }

    fn is_leased(&self, subject: Subject, anchor: &str) -> Result<bool> {
        let asked = Statement::new(
            "SELECT EXISTS (SELECT FROM @.lease WHERE agent_id = $1 AND subject = $2 AND anchor <> $3 AND expires_at > @now)",
        );
        let asked = asked.with(self.one.id).with(sql::subject(subject)).with(anchor);
        Ok(self.one.ask(asked)?.row().is_some_and(|row| row.is(0)))
    }

    fn is_fenced(&self) -> Result<bool> {
        let claimed = self.one.claimed();
        if claimed.subject.is_none() {
            return Ok(false);
        }
        let asked = claimed.statement(format!("SELECT {NOT_FENCED} FROM (VALUES ($4::bigint)) a (id)"));
        Ok(self.one.ask(asked.with(self.one.id))?.row().is_some_and(|row| row.get(0) == Some("f")))
    }

    fn task_input(&self, task: TaskId) -> Result<Box<dyn TaskInput>> {
        Ok(Box::new(PgInput::new(&self.one, task)))
    }
}
