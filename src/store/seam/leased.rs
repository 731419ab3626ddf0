//! Lease of a run or a task: a lock of this machine, and the lease of the store.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::local::LockGuard;

use super::super::backend::{Beat, Lease};

/// Pause before the next request to a store that could not be reached.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Lease that this process has. Dropping this releases the lease.
#[derive(Debug)]
pub struct HeldLease {
    /// Lease in the store that has the records.
    lease: Box<dyn Lease>,
    /// Local lock, released after the lease, so that the lock's next owner finds the lease free.
    guard: LockGuard,
    /// True if another process of this machine shares the local lock, and releases the lease later.
    is_shared: Cell<bool>,
    /// Interval of heartbeats, which renew the lease.
    every: Duration,
    /// True if the run or task continues without a time limit while the store can't be reached.
    allows_outage: Cell<bool>,
    renewal: RefCell<Renewal>,
}

#[derive(Debug, Clone, Copy)]
struct Renewal {
    next: Instant,
    /// Time at which the lease is lost if the store stays unreachable.
    until: Option<Instant>,
    is_lost: bool,
}

impl HeldLease {
    /// Starts the heartbeats. `lasts`: time after which the lease expires without a heartbeat.
    pub(super) fn new(guard: LockGuard, lease: Box<dyn Lease>, lasts: Duration) -> HeldLease {
        // The lease survives if one heartbeat in six succeeds.
        let every = lasts / 6;
        let renewal = RefCell::new(Renewal { next: Instant::now() + every, until: None, is_lost: false });
        HeldLease { lease, guard, is_shared: Cell::default(), every, allows_outage: Cell::default(), renewal }
    }

    /// Returns the fencing token. `None` if the records are files, where the local lock is enough.
    pub fn fence(&self) -> Option<u64> {
        self.lease.fence()
    }

    /// Renews the lease by a heartbeat, if one is due. Returns false if this process has lost the
    /// lease: its run or task must end, and the result does not count.
    pub fn beat(&self) -> bool {
        let mut renewal = self.renewal.borrow_mut();
        let now = Instant::now();
        if !renewal.is_lost && now >= renewal.next {
            match self.lease.beat() {
                Beat::Held { .. } => (renewal.next, renewal.until) = (now + self.every, None),
                Beat::Lost => renewal.is_lost = true,
                Beat::Unreachable { left } => {
                    let over = Instant::now() + left;
                    renewal.next = now + RETRY_INTERVAL.min(self.every);
                    renewal.until = Some(renewal.until.map_or(over, |until| until.min(over)));
                }
            }
        }
        if !self.allows_outage.get() && renewal.until.is_some_and(|until| Instant::now() >= until) {
            renewal.is_lost = true;
        }
        !renewal.is_lost
    }

    /// Lets the run or task continue while the store can't be reached, even if another machine may
    /// take over the lease. The store then refuses the result.
    pub fn allow_outage(&self) {
        self.allows_outage.set(true);
    }

    /// Error if this process has lost the lease of the run or task.
    pub fn refuse_lost(&self, what: &str) -> Result<()> {
        if !self.renewal.borrow().is_lost {
            return Ok(());
        }
        Err(Error::refused(
            Error::FENCED,
            format!("{what} was ended here, and nothing of it counts: this machine has lost its lease"),
        )
        .with_hint("its output is still on this machine; another one may have taken over"))
    }

    /// Releases the lease with the next change under the agent's lock. Without such a change,
    /// dropping this releases the lease.
    pub fn release_along(&self) {
        if !self.is_shared.get() {
            self.lease.release_along();
        }
    }

    /// Returns the local lock, for a process that holds the lease longer than this process. From
    /// now on a drop of this value does not release the lease.
    pub fn share(&self) -> Result<File> {
        let shared = self.guard.share()?;
        self.is_shared.set(true);
        Ok(shared)
    }
}

impl Drop for HeldLease {
    fn drop(&mut self) {
        if !self.is_shared.get() {
            // A lease that can't be released expires.
            let _ = self.lease.release();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::rc::Rc;

    use super::*;
    use crate::cap_fs::at;
    use crate::local::lock;

    #[derive(Debug)]
    struct Played(Rc<RefCell<VecDeque<Beat>>>);

    impl Lease for Played {
        fn fence(&self) -> Option<u64> {
            Some(7)
        }

        fn beat(&self) -> Beat {
            self.0.borrow_mut().pop_front().unwrap_or(Beat::Lost)
        }

        fn release(&self) -> Result<()> {
            Ok(())
        }
    }

    fn kept(beats: impl IntoIterator<Item = Beat>) -> (HeldLease, Rc<RefCell<VecDeque<Beat>>>) {
        let beats = Rc::new(RefCell::new(beats.into_iter().collect()));
        let dir = tempfile::tempdir().unwrap();
        let guard = lock::try_acquire(&at(dir.path()).join("lock"), None).unwrap().unwrap();
        (HeldLease::new(guard, Box::new(Played(Rc::clone(&beats))), Duration::ZERO), beats)
    }

    #[test]
    fn a_lost_lease_stays_lost() {
        let held = Beat::Held { revision: 1 };
        let (one, left) = kept([held, Beat::Lost, held]);
        assert!(one.beat());
        assert!(!one.beat() && !one.beat());
        assert_eq!(left.borrow().len(), 1, "a lost lease is asked for no more");
    }

    #[test]
    fn a_lease_ends_in_time_unless_the_store_is_reachable_again() {
        let away = |left| Beat::Unreachable { left };
        let held = Beat::Held { revision: 1 };
        let hour = Duration::from_secs(3600);
        let (back, _) = kept([away(hour), held, held]);
        assert!(back.beat() && back.renewal.borrow().until.is_some());
        assert!(back.beat() && back.renewal.borrow().until.is_none());
        let (gone, _) = kept([away(Duration::ZERO), held]);
        assert!(!gone.beat());
        let (stays, _) = kept([away(Duration::ZERO), Beat::Lost]);
        stays.allows_outage.set(true);
        assert!(stays.beat());
        stays.renewal.borrow_mut().next = Instant::now();
        assert!(!stays.beat(), "somebody has taken over");
    }

    #[test]
    fn between_two_beats_the_store_is_not_asked() {
        let (mut one, left) = kept([Beat::Held { revision: 1 }, Beat::Lost]);
        one.every = Duration::from_secs(3600);
        assert!(one.beat() && one.beat());
        assert_eq!(left.borrow().len(), 1);
    }
}
