//! Leases: the row of a lease names the process that works on a run or a task, and the time at
//! which the lease expires without a heartbeat.
//!
//! `expires_at` is a time of the server's clock. The process measures the remaining time by its own
//! clock since it sent the last heartbeat, so clocks of two machines are never compared.

use std::borrow::Cow;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use crate::error::Result;
use crate::local::{LeaseClaimant, Subject};

use super::super::backend::{Beat, Lease};
use super::context::{AgentContext, OwnLease};
use super::wire::Statement;
use super::{errors, sql, statements};

/// Timeout of a heartbeat, short because the caller also supervises a process.
const BEAT: Duration = Duration::from_secs(2);

/// Time before the expiry of a lease at which its run or task is killed if heartbeats fail.
const MARGIN: Duration = Duration::from_secs(15);

/// Upper bound for fencing tokens, which no agent reaches. Only a manual change can write a higher
/// or a negative token. The SQL function `take_lease` has an equal limit.
pub const FENCES: i64 = 1 << 62;

/// SQL condition for the row of a lease. No row matches once another process has the lease.
const ROW: &str = "l.agent_id = $1 AND l.subject = $2 AND l.fence = $3 AND l.anchor = $4";

#[derive(Debug)]
struct PgLease {
    one: Rc<AgentContext>,
    lasts: Duration,
    own: Rc<OwnLease>,
}

/// Time since the boot of the machine, including the time of suspension.
pub fn boot_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(now.tv_nsec).unwrap_or_default())
}

/// Takes a lease that is free, expired, or held by this machine. Returns `None` if another machine
/// holds the lease.
///
/// If this process holds the agent's lock, the lease is written only with the next change.
pub fn take(
    one: &Rc<AgentContext>,
    subject: Subject,
    claimant: &LeaseClaimant,
) -> Result<Option<Box<dyn Lease>>> {
    let subject = sql::subject(subject);
    let own = match one.lock().and_then(|lock| lock.grant(&subject, claimant)) {
        Some(granted) => granted?,
        None => take_alone(one, &subject, claimant)?,
    };
    Ok(own.map(|own| {
        let leased = PgLease { one: Rc::clone(one), lasts: claimant.lasts.as_std(), own };
        Box::new(leased) as Box<dyn Lease>
    }))
}

/// Takes a lease in its own transaction, in one round trip. The round trip is repeated after a lost
/// answer, which is safe because a machine may take over its own lease.
fn take_alone(
    one: &Rc<AgentContext>,
    subject: &str,
    claimant: &LeaseClaimant,
) -> Result<Option<Rc<OwnLease>>> {
    let (id, pool) = (one.id, &one.shared.pool);
    let LeaseClaimant { host, anchor, pid, lasts } = claimant;
    let taken = Statement::new("SELECT * FROM @.take_lease($1, $2, $3, $4, $5, $6)").with(id).with(subject);
    let trip = [
        statements::limits(pool.patience().as_millis().max(1)),
        taken.with(anchor).with(host).with(*pid).with(lasts.as_millis()),
    ];
    let sent_at = boot_time();
    let answers = pool.ask(&trip)?;
    let row = answers.last().and_then(|rows| rows.first()).ok_or_else(|| one.gone())?;
    let last: i64 = row.number(0).ok_or_else(|| pool.unexpected("a fence"))?;
    if !(0..FENCES).contains(&last) {
        return Err(errors::no_fence(pool.url(), &one.name, last));
    }
    let Some(fence) = row.number(1) else { return Ok(None) };
    let own = Rc::new(OwnLease {
        agent: id,
        subject: subject.to_owned(),
        anchor: anchor.clone(),
        fence,
        sent_at: Cell::new(sent_at),
        is_written: Cell::new(true),
        is_dropped: Cell::new(false),
    });
    one.shared.note_lease(Rc::clone(&own));
    Ok(Some(own))
}

impl PgLease {
    /// Remaining time until the run or task under this lease is killed.
    fn left(&self) -> Duration {
        let kill_at = self.own.sent_at.get() + self.lasts.saturating_sub(MARGIN);
        kill_at.saturating_sub(boot_time())
    }

    /// Returns a statement with the four parameters of [`ROW`]: agent, subject, token, machine.
    fn statement(&self, sql: impl Into<Cow<'static, str>>) -> Statement {
        let statement = Statement::new(sql);
        statement.with(self.one.id).with(&self.own.subject).with(self.own.fence).with(&self.own.anchor)
    }

    fn forget(&self) {
        self.own.is_dropped.set(true);
        self.one.shared.forget_lease(&self.own);
    }
}

impl Lease for PgLease {
    fn fence(&self) -> Option<u64> {
        Some(self.own.fence.unsigned_abs())
    }

    fn beat(&self) -> Beat {
        if !self.own.is_written.get() {
            // After the agent's lock was released, an unwritten lease is never written, and another
            // process may get an equal fencing token.
            let is_pending = self.one.lock().is_some();
            return if is_pending { Beat::Unreachable { left: self.left() } } else { Beat::Lost };
        }
        let beat = self.statement(format!(
            "UPDATE @.lease l SET expires_at = @now + $5::bigint FROM @.state s WHERE {ROW} AND s.agent_id = l.agent_id \
             RETURNING s.revision"
        ));
        let sent_at = boot_time();
        match self.one.shared.pool.ask_within(&[beat.with(self.lasts.as_millis())], BEAT) {
            Err(_) => Beat::Unreachable { left: self.left() },
            Ok(answers) => match answers.last().and_then(|answer| answer.first()?.number(0)) {
                None => Beat::Lost,
                Some(revision) => {
                    self.own.sent_at.set(sent_at);
                    Beat::Held { revision }
                }
            },
        }
    }

    fn release_along(&self) {
        if let Some(lock) = self.one.lock() {
            lock.return_lease(&self.own);
        }
    }

    fn release(&self) -> Result<()> {
        self.forget();
        if self.own.is_written.get() {
            let released = self.statement(format!("DELETE FROM @.lease l WHERE {ROW}"));
            self.one.shared.pool.ask_one(released)?;
        }
        Ok(())
    }
}

impl Drop for PgLease {
    /// Keeps the lease's row in the database, because another process of this machine may take over
    /// the lease. If the row is not written yet, it is never written.
    fn drop(&mut self) {
        self.forget();
    }
}
