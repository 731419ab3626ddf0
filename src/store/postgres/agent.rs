//! Records of one agent: the operations that do not need its lock.

use std::cell::{Cell, RefCell};
use std::num::NonZeroU32;
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::error::Result;
use crate::model::id::{AgentName, TaskId, TriggerId};
use crate::model::preemption::Checkpoint;
use crate::model::time::{Span, Time};

use super::super::dir::Subject;
use super::super::elsewhere::input::TaskInput;
use super::super::elsewhere::{AgentRecords, Arrival, Lease, LeaseClaimant, ReadView, Txn};
use super::input::PgInput;
use super::pool::ConnectionPool;
use super::shared::{One, Shared, first, number};
use super::sight::PgReadView;
use super::{faults, hold, kept, lease, sql, statements, triggers, whole};

/// Maximum age of facts that were read when the agent was looked up. Each is used at most once.
const GLANCE: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub struct PgAgent {
    one: Rc<One>,
    /// Facts that were read when the agent was looked up.
    glance: Glance,
    room: Option<String>,
}

#[derive(Debug)]
struct Glance {
    at: Cell<Instant>,
    revision: Cell<Option<u64>>,
    state: RefCell<Option<String>>,
    has_arrivals: Cell<Option<bool>>,
}

impl Glance {
    /// Discards the facts, because another query or change makes them outdated.
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
    /// Looks up an agent by its name, with the facts that commands need first, in one round trip.
    pub fn find(shared: &Rc<Shared>, name: &AgentName) -> Result<Option<PgAgent>> {
        let pool = &shared.pool;
        let at = Instant::now();
        let glance = if pool.has_kept() { kept::glance } else { statements::glance };
        let answers = pool.ask(&glance(pool.schema(), &sql::text(name.as_str())?))?;
        let Some(row) = first(&answers) else { return Ok(None) };
        let text = |column| row.get(column).map(str::to_owned);
        let read = || {
            let glance = Glance {
                at: Cell::new(at),
                revision: Cell::new(Some(number(Some(row), 3)?)),
                state: RefCell::new(Some(text(4)?)),
                has_arrivals: Cell::new(Some(row.get(5)? == "t")),
            };
            let one = One {
                shared: Rc::clone(shared),
                name: name.clone(),
                id: number(Some(row), 0)?,
                policy: RefCell::new(text(2)?),
                identity: RefCell::new(text(1)?),
                forgotten: Cell::default(),
            };
            Some(PgAgent { one: Rc::new(one), glance, room: text(6) })
        };
        read().map(Some).ok_or_else(|| pool.unexpected("the row of an agent"))
    }
}

/// Outcome of an attempt to insert arrivals.
struct Came {
    is_there: bool,
    /// True if the condition of the caller held.
    is_provided: bool,
    is_shut: bool,
    /// Text of the agent's state after the insertion.
    state: Option<String>,
}

/// Inserts arrivals into an inbox, in one round trip. `agent`: its number, or an SQL expression for
/// it. `may_lock`: a retry after a lost answer may wait for the agent's lock.
fn arrive(
    pool: &ConnectionPool,
    agent: &str,
    arrivals: &[Arrival],
    provided: &str,
    may_lock: bool,
) -> Result<Came> {
    let schema = pool.schema();
    // The sender needs the state next.
    let state = format!("SELECT (SELECT s.body FROM {schema}.state s WHERE s.agent_id = {agent})");
    let once = statements::arrive(schema, agent, arrivals, false, provided)?;
    let again = statements::arrive(schema, agent, arrivals, true, provided)?;
    let once = format!("{once};{state}");
    let again = if may_lock {
        let wait = pool.patience().as_millis().max(1);
        format!("{}{again};{state};COMMIT", statements::lock(schema, agent, wait, false))
    } else {
        format!("{again};{state}")
    };
    let answers = pool.insist(&once, &again)?;
    let mut last = answers.iter().rev().filter_map(|answer| answer.rows.first());
    let state = last.next().and_then(|row| row.get(0)).map(str::to_owned);
    // The row before the state has the number of agents, the condition and `is_shut`.
    let count = last.next();
    let holds = |column: usize| count.and_then(|row| row.get(column)) == Some("t");
    Ok(Came { is_there: number::<u64>(count, 0) != Some(0), is_provided: holds(1), is_shut: holds(2), state })
}

/// Inserts a message into an agent's inbox if the condition `takes` holds. Returns the agent's
/// state, or `None` if the message was not inserted.
pub fn tell(shared: &Shared, name: &AgentName, message: &Arrival, takes: &str) -> Result<Option<String>> {
    let pool = &shared.pool;
    let agent = statements::number_of(pool.schema(), name.as_str())?;
    let may_lock = shared.lock_of(name).is_none();
    let came = arrive(pool, &agent, std::slice::from_ref(message), takes, may_lock)?;
    Ok(came.state.filter(|_| came.is_there && came.is_provided && !came.is_shut))
}

impl AgentRecords for PgAgent {
    fn identity(&self) -> Result<String> {
        Ok(self.one.identity.borrow().clone())
    }

    fn policy(&self) -> Result<String> {
        Ok(self.one.policy.borrow().clone())
    }

    fn room(&self) -> Option<String> {
        self.room.clone()
    }

    fn state(&self) -> Result<String> {
        if let Some(state) = self.glance.if_fresh(self.glance.state.take()) {
            return Ok(state);
        }
        let one = &self.one;
        let answers =
            one.ask(&format!("SELECT body FROM {}.state WHERE agent_id = {}", one.schema(), one.id))?;
        let state = first(&answers).and_then(|row| row.get(0)).map(str::to_owned);
        state.ok_or_else(|| one.gone())
    }

    fn version(&self) -> Option<u64> {
        if let Some(revision) = self.glance.if_fresh(self.glance.revision.take()) {
            return Some(revision);
        }
        let one = &self.one;
        let asked = format!("SELECT revision FROM {}.state WHERE agent_id = {}", one.schema(), one.id);
        one.ask(&asked).ok().and_then(|answers| number(first(&answers), 0))
    }

    fn has_arrivals(&self) -> Result<bool> {
        if let Some(has_arrivals) = self.glance.if_fresh(self.glance.has_arrivals.take()) {
            return Ok(has_arrivals);
        }
        let one = &self.one;
        let asked = format!("SELECT EXISTS (SELECT FROM {}.inbox WHERE agent_id = {})", one.schema(), one.id);
        Ok(first(&one.ask(&asked)?).and_then(|row| row.get(0)) == Some("t"))
    }

    fn arrive(&self, arrivals: &[Arrival]) -> Result<bool> {
        let one = &self.one;
        if arrivals.is_empty() {
            return Ok(true);
        }
        self.glance.forget();
        let asked_at = Instant::now();
        // If this process has the lock, a retry that takes it would wait for itself.
        let may_lock = !one.lock().is_some_and(|lock| lock.is_open());
        let came = arrive(&one.shared.pool, &one.id.to_string(), arrivals, &one.not_fenced()?, may_lock)?;
        self.glance.at.set(asked_at);
        self.glance.state.replace(came.state);
        if !came.is_there {
            return Err(one.gone());
        }
        if !came.is_provided {
            return Err(faults::fenced(one.name.as_str()));
        }
        Ok(!came.is_shut)
    }

    fn see(&self) -> Result<Rc<dyn ReadView>> {
        self.glance.forget();
        let (schema, id) = (self.one.schema(), self.one.id);
        let load =
            if self.one.is_kept() { kept::load(schema, id, false) } else { statements::load(schema, id) };
        let answers = self.one.ask(&load)?;
        let rows = answers.first().map(|answer| answer.rows.as_slice()).unwrap_or_default();
        let seen = PgReadView::read(&self.one, rows, false)?.ok_or_else(|| self.one.gone())?;
        Ok(Rc::new(seen))
    }

    fn saved(&self, checkpoint: Checkpoint, each: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.glance.forget();
        for part in 0.. {
            match whole::saved_part(&self.one, checkpoint, part)? {
                Some(bytes) => each(&bytes),
                None => return Ok(part > 0),
            }
        }
        Ok(true)
    }

    fn hold(&self, patience: Duration) -> Result<Option<Box<dyn Txn>>> {
        self.glance.forget();
        hold::hold(&self.one, patience)
    }

    fn lease(&self, subject: Subject, claimant: &LeaseClaimant) -> Result<Option<Box<dyn Lease>>> {
        self.glance.forget();
        lease::take(&self.one, subject, claimant)
    }

    fn is_leased(&self, subject: Subject, anchor: &str) -> Result<bool> {
        let one = &self.one;
        let asked = format!(
            "SELECT EXISTS (SELECT FROM {}.lease WHERE agent_id = {} AND subject = {} AND anchor <> {} \
             AND expires_at > {})",
            one.schema(),
            one.id,
            sql::text(&sql::subject(subject))?,
            sql::text(anchor)?,
            sql::SERVER_NOW
        );
        Ok(first(&one.ask(&asked)?).and_then(|row| row.get(0)) == Some("t"))
    }

    fn is_fenced(&self) -> Result<bool> {
        let one = &self.one;
        if one.claimed().is_none() {
            return Ok(false);
        }
        let answers = one.ask(&format!("SELECT {}", one.not_fenced()?))?;
        Ok(first(&answers).and_then(|row| row.get(0)) == Some("f"))
    }

    fn task_input(&self, task: TaskId) -> Result<Box<dyn TaskInput>> {
        Ok(Box::new(PgInput::new(&self.one, task)))
    }

    fn trigger_key(&self, trigger: TriggerId, digest: &str) -> Result<Option<Vec<u8>>> {
        triggers::key(&self.one, trigger, digest)
    }

    fn has_trigger_key(&self, trigger: TriggerId, digest: &str) -> Result<bool> {
        triggers::has_key(&self.one, trigger, digest)
    }

    fn use_trigger(
        &self,
        trigger: TriggerId,
        most: NonZeroU32,
        _: Time,
    ) -> Result<std::result::Result<(), Span>> {
        triggers::count_use(&self.one, trigger, most)
    }
}
