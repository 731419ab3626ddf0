//! Lock of an agent, and the changes under it.
//!
//! The lock is a row lock on the agent's `state`, in a transaction. Each change commits the
//! transaction; the next query under the same [`Txn`] begins another one.

use std::cell::{Cell, RefCell, RefMut};
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::error::Result;
use crate::local::{LeaseClaimant, Subject};
use crate::model::id::AgentName;

use super::super::backend::{Op, Ops, ReadView, RemoteTxn, Txn};
use super::change::{self, ChangeRows, OpenTransaction, repeat};
use super::context::{AgentContext, AgentLock, OwnLease};
use super::errors::{self, RoundTripFault};
use super::pool::{BEGIN, Then};
use super::read_view::PgReadView;
use super::statements::{self, OpRow, op_row, row, some};
use super::tables::Rows;
use super::wire::{Row, Statement};
use super::{lease, sql};

#[derive(Debug)]
struct PgTxn {
    state: Rc<TxnState>,
}

#[derive(Debug)]
struct TxnState {
    one: Rc<AgentContext>,
    patience: Duration,
    /// Total time of waiting for the agent's lock, if any.
    waited: Cell<Option<Duration>>,
    open: RefCell<Option<OpenPgTxn>>,
    /// Leases that the next change will write.
    granted: RefCell<Vec<GrantedLease>>,
    /// Leases that the next change will delete.
    returned: RefCell<Vec<Rc<OwnLease>>>,
    /// Id of the transaction that found a free slot, one of a limited number of concurrent turns.
    /// The next change takes the slot for the run.
    slot: RefCell<Option<String>>,
}

/// Open transaction that holds the agent's lock, and the records that it has loaded.
#[derive(Debug)]
struct OpenPgTxn {
    transaction: OpenTransaction,
    seen: Rc<PgReadView>,
}

#[derive(Debug)]
struct GrantedLease {
    claimant: LeaseClaimant,
    own: Rc<OwnLease>,
    /// Last fencing token of the agent before this lease was granted.
    after: i64,
}

/// Takes the agent's lock and loads the agent's records, in one round trip. Returns `None` if
/// another process held the lock for all of `patience`.
pub fn begin(one: &Rc<AgentContext>, patience: Duration) -> Result<Option<Box<dyn RemoteTxn>>> {
    let state = Rc::new(TxnState {
        one: Rc::clone(one),
        patience,
        waited: Cell::default(),
        open: RefCell::default(),
        granted: RefCell::default(),
        returned: RefCell::default(),
        slot: RefCell::default(),
    });
    if !state.begin()? {
        return Ok(None);
    }
    let lock: Rc<dyn AgentLock> = Rc::<TxnState>::clone(&state);
    one.shared.locks.borrow_mut().insert(one.id, Rc::downgrade(&lock));
    Ok(Some(Box::new(PgTxn { state })))
}

impl TxnState {
    /// Begins a transaction unless one is open. Returns `false` if another process locks the agent.
    fn begin(&self) -> Result<bool> {
        if self.open.borrow().is_some() {
            return Ok(true);
        }
        let (one, pool) = (&self.one, &self.one.shared.pool);
        // A process with the run's lease settles the run, and needs no archive lines for that.
        let run = sql::subject(Subject::Run);
        let settles = one.shared.leases.borrow().iter().any(|own| own.agent == one.id && own.subject == run);
        let trip = |at_once| {
            let lock = statements::lock(one.id, at_once);
            [statements::limits(self.patience.as_millis()), lock, statements::load(one.id, !settles)]
        };
        pool.repeat(pool.patience(), |_, _| {
            let mut connection = pool.take()?;
            let mut sent = pool.send(&mut connection, &trip(true), Then::Stay, Duration::ZERO);
            if matches!(sent, Err(RoundTripFault::Locked(_))) && !self.patience.is_zero() {
                // Waiting begins only here: the first attempt fails at once if the agent is locked.
                let since = Instant::now();
                let mut again = ["ROLLBACK", BEGIN].map(Statement::new).to_vec();
                again.extend(trip(false));
                sent = pool.send(&mut connection, &again, Then::Stay, self.patience);
                self.waited.set(Some(self.waited.take().unwrap_or_default() + since.elapsed()));
            }
            let mut answers = match sent {
                Err(RoundTripFault::Locked(_)) => {
                    pool.roll_back(connection);
                    return Ok(false);
                }
                sent => sent?,
            };
            let loaded = answers.pop().unwrap_or_default();
            let lock = answers.pop().unwrap_or_default();
            let number = lock.first().and_then(|row| row.text(0));
            // If the agent does not exist, the server rolls back when the connection is dropped.
            let (Some(number), Some(seen)) = (number, PgReadView::read(one, &loaded, !settles)?) else {
                return Err(one.gone().into());
            };
            let transaction = OpenTransaction { connection, number };
            self.open.replace(Some(OpenPgTxn { transaction, seen: Rc::new(seen) }));
            Ok(true)
        })
    }

    /// Returns the open transaction; begins one unless one is open. Error if another process holds
    /// the agent's lock.
    fn opened(&self) -> Result<RefMut<'_, OpenPgTxn>> {
        self.begin()?;
        let open = RefMut::filter_map(self.open.borrow_mut(), Option::as_mut);
        open.map_err(|_| errors::busy(self.one.shared.pool.url()))
    }

    fn granted(&self) -> RefMut<'_, Vec<GrantedLease>> {
        let mut granted = self.granted.borrow_mut();
        granted.retain(|granted| !granted.own.is_dropped.get());
        granted
    }

    /// Returns rows that every change includes: granted leases and returned leases.
    fn along(&self) -> Vec<OpRow> {
        let mut along = Vec::new();
        for GrantedLease { claimant: LeaseClaimant { anchor, host, pid, lasts }, own, .. } in
            self.granted().iter()
        {
            let (subject, fence, lasts) = (some(&own.subject), some(own.fence), some(lasts.as_millis()));
            along.push(row("lease", [subject, fence, some(anchor), some(host), some(pid), lasts]));
            own.sent_at.set(lease::boot_time());
        }
        for own in self.returned.borrow().iter() {
            along.push(row("released", [some(&own.subject), some(own.fence), some(&own.anchor)]));
        }
        if self.slot.borrow().is_some() {
            along.push(row("slot", []));
        }
        along
    }

    /// Writes a change in the open transaction, and commits. [`RoundTripFault::Lost`] if nothing
    /// was committed. `revision`: minimum revision of the agent after the commit.
    fn finish(&self, revision: u64, rows: ChangeRows<'_>) -> Result<(), RoundTripFault> {
        let (along, pool) = (self.along(), &self.one.shared.pool);
        let busy = || errors::busy(pool.url());
        let open = self.open.take().ok_or_else(busy)?.transaction;
        // The slot was free in a transaction that is lost, so another run may have the slot now.
        if self.slot.borrow().as_ref().is_some_and(|number| *number != open.number) {
            return Err(busy().into());
        }
        change::write(pool, open, (self.one.id, revision), &|each| {
            along.iter().cloned().try_for_each(&mut *each)?;
            rows(each)
        })?;
        self.slot.take();
        for GrantedLease { own, .. } in self.granted.take() {
            own.is_written.set(true);
            self.one.shared.note_lease(own);
        }
        for own in self.returned.take() {
            own.is_written.set(false);
            self.one.shared.forget_lease(&own);
        }
        Ok(())
    }

    /// Writes a change and commits. Tries again if the connection is lost before the commit.
    /// `revision`: minimum revision of the agent after the commit.
    fn change(
        &self,
        revision: u64,
        rows: ChangeRows<'_>,
        is_fit: impl Fn(&PgReadView) -> Result<()>,
    ) -> Result<()> {
        repeat(&self.one.shared.pool, || {
            is_fit(&self.opened()?.seen)?;
            self.finish(revision, rows)
        })
    }

    /// Writes a change that is valid at any revision of the agent.
    fn change_any(&self, rows: &[OpRow]) -> Result<()> {
        let all = rows.iter().cloned();
        self.change(0, &|each| all.clone().try_for_each(each), |seen| self.check_fences(seen))
    }

    fn check_revision(&self, base: u64, seen: &PgReadView) -> Result<()> {
        if seen.seen_at == base {
            Ok(())
        } else {
            Err(errors::stale(self.one.name.as_str(), base, seen.seen_at))
        }
    }

    /// Error when the records are not at the revision `base`, or this process has lost its lease.
    fn check_base(&self, base: u64, seen: &PgReadView) -> Result<()> {
        self.check_revision(base, seen)?;
        self.check_fences(seen)
    }

    /// Error when another process has taken over a lease of this agent that this process holds, or
    /// under which it acts.
    fn check_fences(&self, seen: &PgReadView) -> Result<()> {
        // If the connection was lost since a lease was granted, another process may have its token.
        if self.granted().iter().any(|granted| granted.after != seen.fence) {
            return Err(errors::busy(self.one.shared.pool.url()));
        }
        let fenced = || Err(errors::fenced(self.one.name.as_str()));
        if let Some(claim) = self.one.claim() {
            let held = seen.leases.get(&sql::subject(claim.subject));
            let is_held = held.is_some_and(|held| held.fence.unsigned_abs() == claim.fence);
            if !is_held || claim.run.is_some_and(|run| !seen.state.contains(&run.to_string())) {
                return fenced();
            }
        }
        for own in self.one.shared.leases.borrow().iter().filter(|own| own.agent == self.one.id) {
            let held = seen.leases.get(&own.subject);
            let is_ours = held.is_some_and(|held| held.fence == own.fence && held.anchor == own.anchor);
            let is_renewed = self.granted().iter().any(|granted| granted.own.subject == own.subject);
            if !is_ours && !is_renewed {
                return fenced();
            }
        }
        Ok(())
    }
}

impl AgentLock for TxnState {
    fn ask(&self, statements: &[Statement]) -> Option<Result<Vec<Vec<Row>>>> {
        let pool = &self.one.shared.pool;
        let base = self.open.borrow().as_ref()?.seen.seen_at;
        Some(pool.repeat(pool.patience(), |_, _| {
            // After a loss of the connection and of its lock, the query is repeated only if the
            // revision is unchanged under the new lock.
            let mut open = self.opened()?;
            self.check_revision(base, &open.seen)?;
            let connection = &mut open.transaction.connection;
            let answers = pool.send(connection, statements, Then::Stay, Duration::ZERO);
            drop(open);
            if answers.is_err() {
                self.open.take();
            }
            answers
        }))
    }

    fn is_open(&self) -> bool {
        self.open.borrow().is_some()
    }

    fn is_of(&self, agent: &AgentName) -> bool {
        self.one.name == *agent
    }

    fn take_slot(&self) -> bool {
        let number = self.open.borrow().as_ref().map(|open| open.transaction.number.clone());
        let is_open = number.is_some();
        self.slot.replace(number);
        is_open
    }

    fn return_lease(&self, own: &Rc<OwnLease>) {
        let is_new = |open: &OpenPgTxn| !open.seen.leases.contains_key(&own.subject);
        if !own.is_written.get() && self.open.borrow().as_ref().is_some_and(is_new) {
            // The database has no row of this lease, and the mark keeps changes from writing it.
            own.is_dropped.set(true);
        } else {
            self.returned.borrow_mut().push(Rc::clone(own));
        }
    }

    fn grant(&self, subject: &str, claimant: &LeaseClaimant) -> Option<Result<Option<Rc<OwnLease>>>> {
        let open = self.open.borrow();
        let seen = &open.as_ref()?.seen;
        let held = seen.leases.get(subject);
        if held.is_some_and(|held| held.is_alive && held.anchor != claimant.anchor) {
            return Some(Ok(None));
        }
        if !(0..lease::FENCES).contains(&seen.fence) {
            let url = self.one.shared.pool.url();
            return Some(Err(errors::no_fence(url, &self.one.name, seen.fence)));
        }
        let mut granted = self.granted();
        let last = granted.last().map_or(seen.fence, |granted| granted.own.fence);
        let own = Rc::new(OwnLease {
            agent: self.one.id,
            subject: subject.to_owned(),
            anchor: claimant.anchor.clone(),
            fence: last + 1,
            sent_at: Cell::new(lease::boot_time()),
            is_written: Cell::new(false),
            is_dropped: Cell::new(false),
        });
        let (claimant, after) = (claimant.clone(), seen.fence);
        granted.push(GrantedLease { claimant, own: Rc::clone(&own), after });
        Some(Ok(Some(own)))
    }
}

impl Txn for PgTxn {
    fn take_wait(&self) -> Option<Duration> {
        self.state.waited.take()
    }

    fn now(&self) -> Result<Rc<dyn ReadView + '_>> {
        let seen = Rc::clone(&self.state.opened()?.seen);
        Ok(seen)
    }

    fn commit(&self, base: u64, ops: &[Op]) -> Result<()> {
        let made = ops
            .iter()
            .find_map(|op| if let Op::State { revision, .. } = op { Some(*revision) } else { None });
        let rows: ChangeRows<'_> = &|each| ops.iter().map(op_row).try_for_each(each);
        self.state.change(made.unwrap_or(base), rows, |seen| self.state.check_base(base, seen))
    }

    fn put(&self, op: Op) -> Result<()> {
        let one = &self.state.one;
        self.state.change_any(&[op_row(&op)])?;
        if let Op::Policy(settings) = op {
            one.policy.replace(settings.text);
        } else if let Op::Identity(identity) = op {
            one.identity.replace(identity);
        }
        Ok(())
    }
}

impl RemoteTxn for PgTxn {
    fn replace(&self, base: u64, ops: Ops<'_>) -> Result<()> {
        let state = &self.state;
        state.granted.borrow_mut().clear();
        let rows: ChangeRows<'_> = &|each| {
            each(statements::emptied(|rows| rows == Rows::Agent))?;
            ops(&mut |op| each(op_row(&op)))
        };
        state.change(0, rows, |seen| state.check_base(base, seen))
    }

    fn remove(&self) -> Result<()> {
        self.state.granted.borrow_mut().clear();
        self.state.change_any(&[row("removed", []), statements::emptied(|rows| rows != Rows::Store)])
    }

    fn rename(&self, name: &AgentName) -> Result<()> {
        self.state.change_any(&[row("name", [some(name)])])
    }
}

impl Drop for PgTxn {
    /// Releases the agent's lock. Before that, writes granted leases.
    fn drop(&mut self) {
        let state = &self.state;
        let shared = Rc::clone(&state.one.shared);
        shared.locks.borrow_mut().remove(&state.one.id);
        state.slot.take();
        let is_pending = !state.granted().is_empty();
        let is_fit =
            || state.open.borrow().as_ref().is_some_and(|open| state.check_fences(&open.seen).is_ok());
        if is_pending && state.begin().unwrap_or(false) && is_fit() {
            // Errors are ignored: the first heartbeat reports an unwritten lease as lost.
            drop(state.finish(0, &|_| Ok(())));
        }
        if let Some(open) = state.open.take() {
            state.one.shared.pool.roll_back(open.transaction.connection);
        }
    }
}
