//! Leases: a row names the process that works on a run or a task, and the time at which the lease
//! expires without a heartbeat.
//!
//! `expires_at` is by the server's clock. The process measures its remaining time by its own clock,
//! from the moment a heartbeat was sent, so clocks of two machines are never compared.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use crate::error::Result;

use super::super::dir::Subject;
use super::super::elsewhere::{Beat, Lease, LeaseClaimant};
use super::shared::{LeaseGrant, One, PendingLease, number};
use super::{faults, sql, statements};

/// Timeout of a heartbeat. It is short, because the caller also supervises a process.
const BEAT: Duration = Duration::from_secs(2);

/// Time before the end of the lease at which its work must have ended.
const MARGIN: Duration = Duration::from_secs(15);

/// Upper bound for fences, which no agent reaches. A higher fence, or a negative one, was written
/// by hand.
pub const FENCES: i64 = 1 << 62;

#[derive(Debug)]
struct PgLease {
    one: Rc<One>,
    subject: String,
    /// Machine that has the lease. After a failover to a server that lost the last leases, two
    /// machines may have the same fence.
    anchor: String,
    lasts: Duration,
    mark: Rc<PendingLease>,
}

/// Time since the machine was started, including the time it was suspended.
pub fn boot_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(now.tv_nsec).unwrap_or_default())
}

/// Takes a lease that is free, expired, or of the same machine. Returns `None` if another machine
/// has it.
///
/// Under the agent's lock, the next change writes the lease.
pub fn take(one: &Rc<One>, subject: Subject, claimant: &LeaseClaimant) -> Result<Option<Box<dyn Lease>>> {
    let subject = sql::subject(subject);
    let mark = match one.lock().and_then(|lock| lock.grant(&subject, claimant)) {
        Some(LeaseGrant::Taken) => None,
        Some(LeaseGrant::Ours(mark)) => Some(mark),
        Some(LeaseGrant::Damaged(error)) => return Err(error),
        None => take_alone(one, &subject, claimant)?,
    };
    Ok(mark.map(|mark| {
        let (anchor, lasts) = (claimant.anchor.clone(), claimant.lasts.as_std());
        let leased = PgLease { one: Rc::clone(one), subject, anchor, lasts, mark };
        Box::new(leased) as Box<dyn Lease>
    }))
}

/// Takes a lease in a transaction of its own, in one round trip. If the answer is lost, the round
/// trip is repeated, which is safe because a machine may take over its own lease.
fn take_alone(one: &Rc<One>, subject: &str, claimant: &LeaseClaimant) -> Result<Option<Rc<PendingLease>>> {
    let (schema, id, pool) = (one.schema(), one.id, &one.shared.pool);
    let flight = format!(
        "{lock}\
         INSERT INTO {schema}.lease AS l (agent_id, subject, fence, anchor, host, pid, expires_at) \
         SELECT s.agent_id, {subject}, s.fence + 1, {anchor}, {host}, {pid}, {now} + {lasts} \
         FROM {schema}.state s WHERE s.agent_id = {id} AND s.fence >= 0 AND s.fence < {FENCES} \
         ON CONFLICT (agent_id, subject) DO UPDATE SET fence = excluded.fence, anchor = excluded.anchor, \
           host = excluded.host, pid = excluded.pid, expires_at = excluded.expires_at, has_slot = false \
         WHERE l.anchor = excluded.anchor OR l.expires_at <= {now} RETURNING l.fence;\
         UPDATE {schema}.state s SET fence = l.fence FROM {schema}.lease l \
         WHERE s.agent_id = {id} AND l.agent_id = {id} AND l.fence > s.fence;COMMIT",
        lock = statements::lock(schema, id, pool.patience().as_millis().max(1), false),
        subject = sql::text(subject)?,
        anchor = sql::text(&claimant.anchor)?,
        host = sql::text(&claimant.host)?,
        pid = claimant.pid,
        now = sql::SERVER_NOW,
        lasts = claimant.lasts.as_millis(),
    );
    let sent_at = boot_time();
    let answers = pool.ask(&flight)?;
    // The rows of the lock and, if the lease was granted, of the lease.
    let mut rows = answers.iter().filter_map(|answer| answer.rows.first());
    let Some(locked) = rows.next() else { return Err(one.gone()) };
    let last: i64 = number(Some(locked), 2).ok_or_else(|| pool.unexpected("a fence"))?;
    if !(0..FENCES).contains(&last) {
        return Err(faults::no_fence(pool.url(), &one.name, last));
    }
    let Some(fence) = number::<i64>(rows.next(), 0) else { return Ok(None) };
    let key = (id, subject.to_owned());
    one.shared.leases.borrow_mut().insert(key, (fence, claimant.anchor.clone()));
    Ok(Some(Rc::new(PendingLease {
        fence,
        sent_at: Cell::new(sent_at),
        is_written: Cell::new(true),
        is_dropped: Cell::new(false),
    })))
}

/// Statement that sets the agent's last fence.
pub fn raise(one: &One, fence: i64) -> String {
    format!("UPDATE {}.state SET fence = {fence} WHERE agent_id = {};", one.schema(), one.id)
}

/// Statement that writes a lease granted under the lock. The change also needs [`raise`].
pub fn write(one: &One, subject: &str, claimant: &LeaseClaimant, fence: i64) -> Result<String> {
    let (schema, id) = (one.schema(), one.id);
    Ok(format!(
        "INSERT INTO {schema}.lease (agent_id, subject, fence, anchor, host, pid, expires_at) \
         VALUES ({id},{},{fence},{},{},{},{} + {}) \
         ON CONFLICT (agent_id, subject) DO UPDATE SET fence = excluded.fence, anchor = excluded.anchor, \
           host = excluded.host, pid = excluded.pid, expires_at = excluded.expires_at, has_slot = false;",
        sql::text(subject)?,
        sql::text(&claimant.anchor)?,
        sql::text(&claimant.host)?,
        claimant.pid,
        sql::SERVER_NOW,
        claimant.lasts.as_millis(),
    ))
}

/// Statement that deletes a lease, unless another process has taken it over.
pub fn give_back(one: &One, subject: &str, anchor: &str, fence: i64) -> String {
    format!("DELETE FROM {}.lease l WHERE {};", one.schema(), row(one, subject, anchor, fence))
}

fn row(one: &One, subject: &str, anchor: &str, fence: i64) -> String {
    let [subject, anchor] = [subject, anchor].map(super::wire::literal);
    let agent = one.id;
    format!("l.agent_id = {agent} AND l.subject = {subject} AND l.fence = {fence} AND l.anchor = {anchor}")
}

impl PgLease {
    /// Remaining time before the work under this lease must have ended.
    fn left(&self) -> Duration {
        let kill_at = self.mark.sent_at.get() + self.lasts.saturating_sub(MARGIN);
        kill_at.saturating_sub(boot_time())
    }

    /// SQL condition for the lease's row, which is false after another process has taken it over.
    fn row(&self) -> String {
        row(&self.one, &self.subject, &self.anchor, self.mark.fence)
    }

    /// Removes the lease from the leases of this process.
    fn forget(&self) {
        self.mark.is_dropped.set(true);
        self.one.shared.forget_lease(self.one.id, self.subject.clone(), self.mark.fence);
    }
}

impl Lease for PgLease {
    fn fence(&self) -> u64 {
        self.mark.fence.unsigned_abs()
    }

    fn beat(&self) -> Beat {
        if !self.mark.is_written.get() {
            // A lease that was not written while the lock was held is never written, and its fence
            // may be granted again.
            let is_pending = self.one.lock().is_some();
            return if is_pending { Beat::Unreachable { left: self.left() } } else { Beat::Lost };
        }
        let schema = self.one.schema();
        let flight = format!(
            "UPDATE {schema}.lease l SET expires_at = {} + {} FROM {schema}.state s WHERE {} AND s.agent_id = l.agent_id \
             RETURNING s.revision",
            sql::SERVER_NOW,
            self.lasts.as_millis(),
            self.row()
        );
        let sent_at = boot_time();
        match self.one.shared.pool.ask_within(&flight, BEAT) {
            Err(_) => Beat::Unreachable { left: self.left() },
            Ok(answers) => match number(answers.first().and_then(|answer| answer.rows.first()), 0) {
                None => Beat::Lost,
                Some(revision) => {
                    self.mark.sent_at.set(sent_at);
                    Beat::Held { revision }
                }
            },
        }
    }

    fn release_along(&self) {
        if let Some(lock) = self.one.lock() {
            lock.give_back(&self.subject, &self.anchor, &self.mark);
        }
    }

    fn release(self: Box<Self>) -> Result<()> {
        self.forget();
        if self.mark.is_written.get() {
            self.one.shared.pool.ask(&give_back(&self.one, &self.subject, &self.anchor, self.mark.fence))?;
        }
        Ok(())
    }
}

impl Drop for PgLease {
    /// Keeps a written lease in the table, because another process of this machine may take it
    /// over. A lease that is not written yet is never written.
    fn drop(&mut self) {
        self.forget();
    }
}
