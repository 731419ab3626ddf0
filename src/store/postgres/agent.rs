//! Records of one agent: the operations that do not need its lock.

use std::cell::RefCell;
use std::num::NonZeroU32;
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::local::{Subject, workdir};
use crate::model::digest;
use crate::model::id::{AgentName, TriggerId};
use crate::model::preemption::Checkpoint;
use crate::model::state::State;
use crate::model::time::{Span, Time};
use crate::model::trigger::Uses;

use super::super::backend::{
    AgentRecords, Arrival, AskClaimant, Claim, Lease, ReadView, RemoteRecords, RemoteTxn, UseOutcome,
};
use super::context::{AgentContext, StoreContext};
use super::pool::ConnectionPool;
use super::read_view::PgReadView;
use super::wire::{Row, Statement};
use super::{errors, lease, sql, statements, txn};

/// Maximum age of facts that the lookup of an agent prefetched. Each fact is used at most once.
const GLANCE: Duration = Duration::from_millis(100);

/// SQL that finds the signature key of a trigger by the key's SHA-256. A role with read access may
/// test that the row exists, but not select the key.
const ROW_OF_KEY: &str = "FROM @.trigger_key k WHERE k.agent_id = $1 AND k.trigger_id = $2 AND k.sha = $3";

#[derive(Debug)]
pub struct PgAgent {
    shared: Rc<StoreContext>,
    name: AgentName,
    /// Access to the records; `None` for a database role that may insert into the inbox but read no
    /// records.
    one: Option<Rc<AgentContext>>,
    /// State, and presence of arrivals, as the lookup of the agent returned them. Another query or
    /// change may make them outdated, and discards them.
    glance: RefCell<Prefetched>,
    local_dir: Option<String>,
}

#[derive(Debug, Default)]
struct Prefetched {
    at: Option<Instant>,
    state: Option<String>,
    has_arrivals: Option<bool>,
}

impl PgAgent {
    /// Looks up an agent by name, with its state and the presence of arrivals, in one round trip.
    pub fn find(shared: &Rc<StoreContext>, name: &AgentName) -> Result<Option<PgAgent>> {
        let pool = &shared.pool;
        let at = Instant::now();
        let asked = Statement::new(
            "SELECT a.id, a.identity, a.policy, s.body, \
               EXISTS (SELECT FROM @.inbox i WHERE i.agent_id = a.id), a.room \
             FROM @.agent a JOIN @.state s ON s.agent_id = a.id WHERE a.name = $1",
        );
        let answer = pool.ask_one(asked.with(name.as_str()))?;
        let Some(row) = answer.first() else { return Ok(None) };
        let read = || {
            let glance =
                Prefetched { at: Some(at), state: Some(row.text(3)?), has_arrivals: Some(row.is(4)) };
            let one = AgentContext {
                shared: Rc::clone(shared),
                name: name.clone(),
                id: row.number(0)?,
                identity: RefCell::new(row.text(1)?),
                policy: RefCell::new(row.text(2)?),
            };
            let (one, glance) = (Some(Rc::new(one)), RefCell::new(glance));
            Some(PgAgent { one, glance, local_dir: row.text(5), ..PgAgent::of_producer(shared, name) })
        };
        read().map(Some).ok_or_else(|| pool.unexpected("the row of an agent"))
    }

    /// Returns an agent of this name, existing or not, for a role that may only add messages.
    pub fn of_producer(shared: &Rc<StoreContext>, name: &AgentName) -> PgAgent {
        let (shared, name) = (Rc::clone(shared), name.clone());
        PgAgent { shared, name, one: None, glance: RefCell::default(), local_dir: None }
    }

    /// Takes a prefetched fact, if it is not too old.
    fn fresh<T>(&self, take: impl FnOnce(&mut Prefetched) -> Option<T>) -> Option<T> {
        let mut glance = self.glance.borrow_mut();
        take(&mut glance).filter(|_| glance.at.is_some_and(|at| at.elapsed() < GLANCE))
    }

    fn one(&self) -> Result<&Rc<AgentContext>> {
        self.one.as_ref().ok_or_else(|| {
            let role = self.shared.producer.get().map(String::as_str).unwrap_or_default();
            errors::producers(self.shared.pool.url(), role)
        })
    }

    /// Inserts messages with the rights of a role that may only call the function `deliver`.
    fn deliver(&self, arrivals: &[Arrival]) -> Result<bool> {
        let pool = &self.shared.pool;
        let delivered = |again| [statements::deliver(self.name.as_str(), arrivals, again)];
        let answers = pool.ask_until_answered(&delivered(false), &delivered(true), pool.patience())?;
        match answers.last().and_then(|rows| rows.first()?.get(0)) {
            Some("arrived") => Ok(true),
            Some("shut") => Ok(false),
            Some("gone") => Err(Error::NoAgent { agent: self.name.to_string(), known: None, renamed: None }),
            _ => Err(pool.unexpected("what became of an arrival")),
        }
    }
}

/// Inserts arrivals into an inbox, in one round trip, if the lease `claim` is still valid and the
/// agent accepts a body of this size. Returns the row of [`statements::arrive`]. `may_lock`: true
/// if a retry after a lost answer may wait for the agent's lock.
pub fn arrive(
    pool: &ConnectionPool,
    agent: (Option<i64>, &AgentName),
    arrivals: &[Arrival],
    (claim, size): (Option<&Claim>, Option<(u64, u64)>),
    may_lock: bool,
) -> Result<Option<Row>> {
    let once = [statements::arrive(agent, arrivals, claim, size, None)];
    let again = [
        statements::limits(pool.patience().as_millis().max(1)),
        statements::arrive(agent, arrivals, claim, size, Some(may_lock)),
    ];
    let answers = pool.ask_until_answered(&once, &again, pool.patience())?;
    Ok(answers.into_iter().next_back().and_then(|rows| rows.into_iter().next()))
}

impl AgentRecords for PgAgent {
    fn identity(&self) -> Result<String> {
        Ok(self.one()?.identity.borrow().clone())
    }

    fn policy(&self) -> Result<String> {
        Ok(self.one()?.policy.borrow().clone())
    }

    fn is_quiet(&self, _: &State) -> Result<bool> {
        if let Some(has_arrivals) = self.fresh(|glance| glance.has_arrivals.take()) {
            return Ok(!has_arrivals);
        }
        let asked = Statement::new("SELECT NOT EXISTS (SELECT FROM @.inbox WHERE agent_id = $1)");
        let one = self.one()?;
        Ok(one.ask(asked.with(one.id))?.first().is_some_and(|row| row.is(0)))
    }

    fn arrive(&self, arrivals: &[Arrival]) -> Result<bool> {
        if arrivals.is_empty() {
            return Ok(true);
        }
        let Some(one) = &self.one else { return self.deliver(arrivals) };
        self.glance.take();
        let asked_at = Instant::now();
        // A retry must not lock the agent if this process has the lock, or it would deadlock.
        let may_lock = !one.lock().is_some_and(|lock| lock.is_open());
        let (agent, claim) = ((Some(one.id), &self.name), one.claim());
        let came = arrive(&one.shared.pool, agent, arrivals, (claim.as_ref(), None), may_lock)?;
        let state = came.as_ref().and_then(|row| row.text(2));
        self.glance.replace(Prefetched { at: Some(asked_at), state, ..Prefetched::default() });
        let row = came.ok_or_else(|| one.gone())?;
        if !row.is(0) {
            return Err(errors::fenced(one.name.as_str()));
        }
        Ok(!row.is(1))
    }

    fn read_view(&self) -> Result<Rc<dyn ReadView + '_>> {
        self.glance.take();
        let one = self.one()?;
        let rows = one.ask(statements::load(one.id, false))?;
        let seen = PgReadView::read(one, &rows, false)?.ok_or_else(|| one.gone())?;
        Ok(Rc::new(seen))
    }

    fn checkpoints(&self) -> Result<Vec<Checkpoint>> {
        let one = self.one()?;
        let asked = Statement::new(
            "SELECT b.subject, b.name FROM @.blob b WHERE b.agent_id = $1 AND b.part = 0 ORDER BY 1, 2",
        );
        let named = |row: &Row| workdir::parse_checkpoint(row.get(0)?.parse().ok()?, row.get(1)?);
        self.shared.pool.parse(&one.ask(asked.with(one.id))?, "a checkpoint", named)
    }

    fn saved(&self, checkpoint: Checkpoint, each: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.glance.take();
        let one = self.one()?;
        let asked = Statement::new(
            "SELECT encode(b.bytes, 'hex') FROM @.blob b WHERE b.agent_id = $1 AND b.subject = $2 AND b.name = $3 AND b.part = $4",
        );
        let asked = asked.with(one.id).with(checkpoint.run_id.to_string()).with(workdir::name_of(checkpoint));
        for part in 0u32.. {
            let rows = one.ask(asked.clone().with(part))?;
            let Some(hex) = rows.first().and_then(|row| row.get(0)) else { return Ok(part > 0) };
            each(&digest::bytes(hex).ok_or_else(|| self.shared.pool.unexpected("a checkpoint"))?);
        }
        Ok(true)
    }

    fn trigger_key(&self, trigger: TriggerId, digest: &str) -> Result<Option<Vec<u8>>> {
        let one = self.one()?;
        let asked = Statement::new(format!("SELECT encode(k.key, 'hex') {ROW_OF_KEY}"));
        let answer = one.ask(asked.with(one.id).with(trigger.to_string()).with(digest))?;
        let Some(hex) = answer.first().and_then(|row| row.get(0)) else { return Ok(None) };
        digest::bytes(hex).map(Some).ok_or_else(|| one.shared.pool.unexpected("the key of a trigger"))
    }

    fn has_trigger_key(&self, trigger: TriggerId, digest: &str) -> Result<bool> {
        let one = self.one()?;
        let asked = Statement::new(format!("SELECT EXISTS (SELECT {ROW_OF_KEY})"));
        let answer = one.ask(asked.with(one.id).with(trigger.to_string()).with(digest))?;
        Ok(answer.first().is_some_and(|row| row.is(0)))
    }

    /// Counts one use of a trigger; twice if the answer was lost, so the limit is never exceeded.
    fn use_trigger(&self, trigger: TriggerId, most: NonZeroU32, _: Time) -> Result<UseOutcome> {
        let one = self.one()?;
        let window = Uses::WINDOW.as_millis();
        // A transaction reads the clock before it waits for the trigger's row, so the stored start
        // of the rate limit's minute may be slightly later. A start that differs by more than a
        // minute belongs to another minute or to a wrong clock.
        let is_current =
            format!("u.since > excluded.since - {window} AND u.since < excluded.since + {window}");
        let counted = Statement::new(format!(
            "INSERT INTO @.trigger_use AS u (agent_id, trigger_id, since, times) \
             SELECT a.id, $2, @now, 1 FROM @.agent a WHERE a.id = $1 AND NOT a.is_shut \
             ON CONFLICT (agent_id, trigger_id) DO UPDATE SET \
               since = CASE WHEN {is_current} THEN u.since ELSE excluded.since END, \
               times = CASE WHEN {is_current} THEN u.times + 1 ELSE 1 END \
             WHERE NOT ({is_current}) OR u.times < $3 RETURNING times"
        ));
        let told = Statement::new(
            "SELECT a.is_shut, u.since, @now FROM @.agent a LEFT JOIN @.trigger_use u \
             ON u.agent_id = a.id AND u.trigger_id = $2 WHERE a.id = $1",
        );
        let trigger = trigger.to_string();
        let answers = one.shared.pool.ask(&[
            Statement::new("SELECT pg_advisory_xact_lock_shared(hashtextextended('@', $1))").with(one.id),
            counted.with(one.id).with(&trigger).with(most.get()),
            told.with(one.id).with(&trigger),
        ])?;
        let mut last = answers.iter().rev();
        let seen = last.next().and_then(|answer| answer.first()).ok_or_else(|| one.gone())?;
        let is_counted = last.next().is_some_and(|answer| !answer.is_empty());
        // If the agent is marked as moved, no limit applies: the delivery is refused anyway.
        if is_counted || seen.is(0) {
            return Ok(Ok(()));
        }
        let (Some(since), Some(now)) = (seen.number::<i64>(1), seen.number::<i64>(2)) else {
            return Err(one.shared.pool.unexpected("how often a trigger was used"));
        };
        let left = since.saturating_add_unsigned(window).saturating_sub(now);
        Ok(Err(Span::from_millis(left.clamp(1, window.cast_signed()).unsigned_abs())))
    }

    fn state(&self) -> Result<String> {
        if let Some(state) = self.fresh(|glance| glance.state.take()) {
            return Ok(state);
        }
        let one = self.one()?;
        let asked = Statement::new("SELECT body FROM @.state WHERE agent_id = $1").with(one.id);
        let state = one.ask(asked)?.first().and_then(|row| row.text(0));
        state.ok_or_else(|| one.gone())
    }

    fn lease(&self, subject: Subject, who: AskClaimant<'_>) -> Result<Option<Box<dyn Lease>>> {
        self.glance.take();
        lease::take(self.one()?, subject, &who()?)
    }

    fn is_leased(&self, subject: Subject, who: AskClaimant<'_>) -> Result<Option<bool>> {
        let asked = Statement::new(
            "SELECT EXISTS (SELECT FROM @.lease WHERE agent_id = $1 AND subject = $2 AND anchor <> $3 AND expires_at > @now)",
        );
        let one = self.one()?;
        let asked = asked.with(one.id).with(sql::subject(subject)).with(who()?.anchor);
        Ok(Some(one.ask(asked)?.first().is_some_and(|row| row.is(0))))
    }

    fn is_fenced(&self) -> Result<bool> {
        let Some(one) = &self.one else { return Ok(false) };
        let Some(claim) = one.claim() else { return Ok(false) };
        let asked = statements::claimed("SELECT @.may_act($1, $2, $3, $4)", one.id, Some(&claim));
        Ok(one.ask(asked)?.first().is_some_and(|row| !row.is(0)))
    }
}

impl RemoteRecords for PgAgent {
    fn shown(&self) -> String {
        self.shared.pool.url().shown().to_string()
    }

    fn local_dir_name(&self) -> Option<String> {
        self.local_dir.clone()
    }

    fn lock(&self, patience: Duration) -> Result<Option<Box<dyn RemoteTxn>>> {
        self.glance.take();
        txn::begin(self.one()?, patience)
    }
}
