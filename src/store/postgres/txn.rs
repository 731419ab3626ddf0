//! Lock of an agent, and the changes under it.
//!
//! The lock is a row lock on the agent's `state`, in a transaction. Each change commits the
//! transaction; the next query under the same [`Txn`] begins another one.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::error::Result;
use crate::model::id::AgentName;
use crate::model::time::Time;

use super::super::backend::{LeaseClaimant, Op, Ops, ReadView, RemoteTxn, Txn};
use super::super::dir::Subject;
use super::super::settings::Settings;
use super::change::{self, ChangeRows, repeat};
use super::context::{AgentContext, AgentLock, PendingLease};
use super::errors::{self, RoundTripFault};
use super::pool::{BEGIN, Then};
use super::read_view::{LeaseRow, PgReadView};
use super::statements::{self, OpRow, op_row, row, some};
use super::tables::Rows;
use super::wire::{Connection, Row, Statement};
use super::{lease, sql};

#[derive(Debug)]
struct PgTxn {
    state: Rc<TxnState>,
}

#[derive(Debug)]
struct TxnState {
    one: Rc<AgentContext>,
    patience: Duration,
    /// Total time of waiting for the lock.
    waited: Cell<Duration>,
    open: RefCell<Option<OpenPgTxn>>,
    /// Leases that the next change will write.
    granted: RefCell<Vec<GrantedLease>>,
    /// Leases that the next change will delete.
    returned: RefCell<Vec<ReturnedLease>>,
    /// Id of the transaction that found a free slot, which the next change takes for the run.
    slot: RefCell<Option<String>>,
}

/// Open transaction with the lock, and the records that the transaction has loaded.
#[derive(Debug)]
struct OpenPgTxn {
    connection: Connection,
    number: String,
    seen: Rc<PgReadView>,
}

#[derive(Debug)]
struct GrantedLease {
    subject: String,
    claimant: LeaseClaimant,
    mark: Rc<PendingLease>,
    /// Last fence of the agent before this lease was granted.
    after: i64,
}

/// Lease that the next change will delete.
#[derive(Debug)]
struct ReturnedLease {
    subject: String,
    anchor: String,
    mark: Rc<PendingLease>,
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
    /// Begins a transaction unless one is open. Returns `false` if another process holds the lock.
    fn begin(&self) -> Result<bool> {
        if self.open.borrow().is_some() {
            return Ok(true);
        }
        let (one, pool) = (&self.one, &self.one.shared.pool);
        // A process that holds the lease of the run settles the run, and needs no archive lines.
        let settles = one.shared.leases.borrow().contains_key(&(one.id, sql::subject(Subject::Run)));
        let trip = |at_once| {
            let lock = statements::lock(one.id, at_once);
            [statements::limits(self.patience.as_millis()), lock, statements::load(one.id, !settles)]
        };
        let until = Instant::now() + pool.patience();
        loop {
            let mut connection = pool.take()?;
            let mut sent = pool.send(&mut connection, &trip(true), Then::Stay, Duration::ZERO);
            if matches!(sent, Err(RoundTripFault::Locked)) && !self.patience.is_zero() {
                // Only a failed first attempt counts as waiting.
                let since = Instant::now();
                let mut again = ["ROLLBACK", BEGIN].map(Statement::new).to_vec();
                again.extend(trip(false));
                sent = pool.send(&mut connection, &again, Then::Stay, self.patience);
                self.waited.set(self.waited.get() + since.elapsed());
            }
            match sent {
                Ok(mut answers) => {
                    let loaded = answers.pop().unwrap_or_default();
                    let lock = answers.pop().unwrap_or_default();
                    let number = lock.first().and_then(|row| row.text(0));
                    // If the agent does not exist, the drop of the connection rolls back.
                    let (Some(number), Some(seen)) = (number, PgReadView::read(one, &loaded, !settles)?)
                    else {
                        return Err(one.gone());
                    };
                    self.open.replace(Some(OpenPgTxn { connection, number, seen: Rc::new(seen) }));
                    return Ok(true);
                }
                Err(RoundTripFault::Locked) => {
                    pool.roll_back(connection);
                    return Ok(false);
                }
                Err(RoundTripFault::Lost { .. }) if Instant::now() < until => pool.forget(),
                Err(trouble) => return Err(trouble.into_error(pool.url())),
            }
        }
    }

    fn begin_or_busy(&self) -> Result<()> {
        if self.begin()? {
            Ok(())
        } else {
            Err(RoundTripFault::Locked.into_error(self.one.shared.pool.url()))
        }
    }

    /// Returns rows that every change includes: deletion of old dedupe keys, granted leases and
    /// returned leases.
    fn along(&self) -> Vec<OpRow> {
        let mut along = Vec::new();
        if let Some(before) = self.one.forgotten.get() {
            along.push(row("forget_keys", [some(before)]));
        }
        self.granted.borrow_mut().retain(|granted| !granted.mark.is_dropped.get());
        for GrantedLease { subject, claimant, mark, .. } in self.granted.borrow().iter() {
            let LeaseClaimant { anchor, host, pid, lasts } = claimant;
            let duration = some(lasts.as_millis());
            along.push(row(
                "lease",
                [some(subject), some(mark.fence), some(anchor), some(host), some(pid), duration],
            ));
            mark.sent_at.set(lease::boot_time());
        }
        for ReturnedLease { subject, anchor, mark } in self.returned.borrow().iter() {
            along.push(row("released", [some(subject), some(mark.fence), some(anchor)]));
        }
        if self.slot.borrow().is_some() {
            along.push(row("slot", []));
        }
        along
    }

    /// Writes a change and commits. Returns `false` if nothing was committed; a retry is then safe.
    fn finish(&self, revision: u64, rows: ChangeRows<'_>) -> Result<bool> {
        let along = self.along();
        let Some(open) = self.open.take() else { return Ok(false) };
        // The transaction that found a free slot was lost, so another run may have the slot now.
        if self.slot.borrow().as_ref().is_some_and(|number| *number != open.number) {
            return Err(RoundTripFault::Locked.into_error(self.one.shared.pool.url()));
        }
        let is_done = change::write(&self.one, open.connection, &open.number, revision, &|each| {
            along.iter().cloned().try_for_each(&mut *each)?;
            rows(each)
        })?;
        if is_done {
            self.one.forgotten.set(None);
            self.slot.take();
            for GrantedLease { subject, claimant, mark, .. } in self.granted.take() {
                mark.is_written.set(true);
                let lease = (mark.fence, claimant.anchor);
                self.one.shared.leases.borrow_mut().insert((self.one.id, subject), lease);
            }
            for ReturnedLease { subject, mark, .. } in self.returned.take() {
                mark.is_written.set(false);
                self.one.shared.forget_lease(self.one.id, subject, mark.fence);
            }
        }
        Ok(is_done)
    }

    /// Writes a change and commits, and tries again after each loss of the connection before it.
    /// `revision`: as for [`change::write`].
    fn change(
        &self,
        revision: u64,
        rows: ChangeRows<'_>,
        is_fit: impl Fn(&PgReadView) -> Result<()>,
    ) -> Result<()> {
        repeat(&self.one.shared.pool, || {
            self.begin_or_busy()?;
            if let Some(open) = self.open.borrow().as_ref() {
                is_fit(&open.seen)?;
            }
            Ok(self.finish(revision, rows)?.then_some(()))
        })
    }

    /// Writes a change that does not depend on the revision.
    fn change_any(&self, rows: &[OpRow]) -> Result<()> {
        let all = rows.iter().cloned();
        self.change(0, &|each| all.clone().try_for_each(each), |seen| self.check_fences(seen))
    }

    /// Error when the records are not at the revision `base`, or this process is fenced.
    fn check_base(&self, base: u64, seen: &PgReadView) -> Result<()> {
        if seen.seen_at != base {
            return Err(errors::stale(self.one.name.as_str(), base, seen.seen_at));
        }
        self.check_fences(seen)
    }

    /// Error when the records have changed since the lost transaction had loaded them.
    fn refuse_moved_on(&self, seen: &PgReadView) -> Result<()> {
        let open = self.open.borrow();
        let now = open.as_ref().map_or(seen.seen_at, |open| open.seen.seen_at);
        if now == seen.seen_at {
            Ok(())
        } else {
            Err(errors::stale(self.one.name.as_str(), seen.seen_at, now))
        }
    }

    /// Error when another process has taken over a lease of this agent that this process holds, or
    /// for which this process acts.
    fn check_fences(&self, seen: &PgReadView) -> Result<()> {
        // After a lost transaction, another process may have received a lease with such a fence.
        self.granted.borrow_mut().retain(|granted| !granted.mark.is_dropped.get());
        if self.granted.borrow().iter().any(|granted| granted.after != seen.fence) {
            return Err(RoundTripFault::Locked.into_error(self.one.shared.pool.url()));
        }
        let claimed = self.one.claimed();
        if let Some(subject) = &claimed.subject {
            let held = seen.leases.get(subject).map(|leased| leased.fence.unsigned_abs());
            if held != Some(claimed.fence) || claimed.run.is_some_and(|run| !seen.state.contains(&run)) {
                return Err(errors::fenced(self.one.name.as_str()));
            }
        }
        for ((agent, subject), (fence, anchor)) in self.one.shared.leases.borrow().iter() {
            let is_it = |leased: &LeaseRow| leased.fence == *fence && leased.anchor == *anchor;
            let is_ours = seen.leases.get(subject).is_some_and(is_it);
            let is_renewed = self.granted.borrow().iter().any(|granted| granted.subject == *subject);
            if *agent == self.one.id && !is_ours && !is_renewed {
                return Err(errors::fenced(self.one.name.as_str()));
            }
        }
        Ok(())
    }
}

impl AgentLock for TxnState {
    fn ask(&self, statements: &[Statement]) -> Option<Result<Vec<Vec<Row>>>> {
        let pool = &self.one.shared.pool;
        let until = Instant::now() + pool.patience();
        loop {
            let mut open = self.open.take()?;
            match pool.send(&mut open.connection, statements, Then::Stay, Duration::ZERO) {
                Ok(answers) => {
                    self.open.replace(Some(open));
                    return Some(Ok(answers));
                }
                Err(RoundTripFault::Lost { .. }) if Instant::now() < until => {
                    pool.forget();
                    // The lock was lost with the connection. The query is repeated only if the
                    // revision is unchanged under the new lock.
                    if let Err(error) = self.begin_or_busy().and_then(|()| self.refuse_moved_on(&open.seen)) {
                        return Some(Err(error));
                    }
                }
                Err(trouble) => return Some(Err(trouble.into_error(pool.url()))),
            }
        }
    }

    fn is_open(&self) -> bool {
        self.open.borrow().is_some()
    }

    fn is_of(&self, agent: &AgentName) -> bool {
        self.one.name == *agent
    }

    fn take_slot(&self) -> bool {
        let number = self.open.borrow().as_ref().map(|open| open.number.clone());
        let is_open = number.is_some();
        self.slot.replace(number);
        is_open
    }

    fn give_back(&self, subject: &str, anchor: &str, mark: &Rc<PendingLease>) {
        let is_new = |open: &OpenPgTxn| !open.seen.leases.contains_key(subject);
        if !mark.is_written.get() && self.open.borrow().as_ref().is_some_and(is_new) {
            // The next change skips this lease, because it can't both write and delete the lease.
            mark.is_dropped.set(true);
            return;
        }
        let (subject, anchor) = (subject.to_owned(), anchor.to_owned());
        self.returned.borrow_mut().push(ReturnedLease { subject, anchor, mark: Rc::clone(mark) });
    }

    fn grant(&self, subject: &str, claimant: &LeaseClaimant) -> Option<Result<Option<Rc<PendingLease>>>> {
        let open = self.open.borrow();
        let seen = &open.as_ref()?.seen;
        let theirs =
            seen.leases.get(subject).filter(|leased| leased.is_alive && leased.anchor != claimant.anchor);
        if theirs.is_some() {
            return Some(Ok(None));
        }
        if !(0..lease::FENCES).contains(&seen.fence) {
            let url = self.one.shared.pool.url();
            return Some(Err(errors::no_fence(url, &self.one.name, seen.fence)));
        }
        let mut granted = self.granted.borrow_mut();
        granted.retain(|granted| !granted.mark.is_dropped.get());
        let last = granted.last().map_or(seen.fence, |granted| granted.mark.fence);
        let mark = PendingLease::new(last + 1, lease::boot_time(), false);
        granted.push(GrantedLease {
            subject: subject.to_owned(),
            claimant: claimant.clone(),
            mark: Rc::clone(&mark),
            after: seen.fence,
        });
        Some(Ok(Some(mark)))
    }
}

impl Txn for PgTxn {
    fn now(&self) -> Result<Rc<dyn ReadView + '_>> {
        self.state.begin_or_busy()?;
        let open = self.state.open.borrow();
        let seen = open.as_ref().map(|open| Rc::clone(&open.seen));
        seen.map(|seen| seen as Rc<dyn ReadView>).ok_or_else(|| self.state.one.gone())
    }

    fn commit(&self, base: u64, ops: &[Op]) -> Result<()> {
        let made = ops
            .iter()
            .find_map(|op| if let Op::State { revision, .. } = op { Some(*revision) } else { None });
        let rows: ChangeRows<'_> = &|each| ops.iter().map(op_row).try_for_each(each);
        self.state.change(made.unwrap_or(base), rows, |seen| self.state.check_base(base, seen))
    }

    fn forget_keys(&self, before: Time) -> Result<()> {
        let before = before.as_millis();
        let one = &self.state.one;
        one.forgotten.set(Some(one.forgotten.get().map_or(before, |earlier| earlier.max(before))));
        Ok(())
    }

    fn replace_policy(&self, settings: &Settings) -> Result<()> {
        let one = &self.state.one;
        self.state.change_any(&[statements::policy_row(settings)])?;
        one.policy.replace(settings.text.clone());
        Ok(())
    }

    fn replace_identity(&self, identity: &str) -> Result<()> {
        let one = &self.state.one;
        self.state.change_any(&[row("identity", [some(identity)])])?;
        one.identity.replace(identity.to_owned());
        Ok(())
    }
}

impl RemoteTxn for PgTxn {
    fn waited(&self) -> Duration {
        self.state.waited.get()
    }

    fn replace(&self, base: u64, ops: Ops<'_>) -> Result<()> {
        let state = &self.state;
        state.granted.borrow_mut().clear();
        let rows: ChangeRows<'_> = &|each| {
            each(statements::emptied(|rows| rows == Rows::Agent))?;
            ops(&mut |op| each(op_row(&op)))
        };
        state.change(0, rows, |seen| state.check_base(base, seen))
    }

    fn remove(&self, heir: Option<&AgentName>) -> Result<()> {
        self.state.granted.borrow_mut().clear();
        let removed = row("removed", [heir.and_then(some)]);
        self.state.change_any(&[removed, statements::emptied(|rows| rows != Rows::Store)])
    }
}

impl Drop for PgTxn {
    /// Releases the lock. First writes pending leases and deletions of keys, unless a change did.
    fn drop(&mut self) {
        let state = &self.state;
        let shared = Rc::clone(&state.one.shared);
        shared.locks.borrow_mut().remove(&state.one.id);
        state.granted.borrow_mut().retain(|granted| !granted.mark.is_dropped.get());
        state.slot.take();
        let is_pending = state.one.forgotten.get().is_some() || !state.granted.borrow().is_empty();
        let is_fit =
            || state.open.borrow().as_ref().is_some_and(|open| state.check_fences(&open.seen).is_ok());
        if is_pending && state.begin().unwrap_or(false) && is_fit() {
            // After an error, the first heartbeat reports an unwritten lease as lost, and a later
            // change deletes the old keys.
            drop(state.finish(0, &|_| Ok(())));
        }
        state.one.forgotten.set(None);
        if let Some(open) = state.open.take() {
            state.one.shared.pool.roll_back(open.connection);
        }
    }
}
