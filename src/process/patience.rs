//! Waiting for other processes with a time limit.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use crate::error::Result;

/// Pause of `wait_until` between two checks.
const PAUSE: Duration = Duration::from_millis(5);

/// Number of equal waits in a time limit, and minimum number of waits before the limit counts.
const PARTS: u32 = 20;
const LEAST: u32 = 15;

/// Time limit for processes. A minimum number of waits must pass, too: while a machine is
/// suspended, time passes but its processes can't run, so they need these waits afterwards.
pub struct Patience {
    until: Option<Instant>,
    part: Duration,
    left: u32,
    /// Time at which half of the whole time limit has passed.
    half: Option<Instant>,
}

impl Patience {
    pub fn of(duration: Duration) -> Patience {
        // A part is at most an hour, so that the time of its end can't overflow.
        let part = (duration / PARTS).min(Duration::from_secs(3600));
        let left = if duration.is_zero() { 0 } else { LEAST };
        let now = Instant::now();
        Patience { until: now.checked_add(duration), part, left, half: now.checked_add(duration / 2) }
    }

    /// True if half of the time limit has passed.
    pub fn is_half_over(&self) -> bool {
        is_past(self.half)
    }

    /// Returns the time of the next check of the processes; `None` after the limit.
    pub fn next(&mut self) -> Option<Instant> {
        let next = Instant::now() + self.part;
        if !is_past(self.until) {
            self.left = self.left.saturating_sub(1);
            return Some(self.until.map_or(next, |until| until.min(next)));
        }
        self.left = self.left.checked_sub(1)?;
        Some(next)
    }
}

/// Waits until a descriptor is ready, a signal arrives, or the time `until` is reached.
pub fn poll(fds: &mut [PollFd<'_>], until: Option<Instant>) -> rustix::io::Result<()> {
    let endless = Timespec { tv_sec: i32::MAX.into(), tv_nsec: 0 };
    let left = until.map(|until| until.saturating_duration_since(Instant::now()));
    let timeout = left.map(|left| Timespec::try_from(left).unwrap_or(endless));
    match rustix::event::poll(fds, timeout.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// Waits until the descriptor is ready. Returns false if it is not ready at `until`.
pub fn wait_for(fd: &impl AsFd, flags: PollFlags, until: Option<Instant>) -> rustix::io::Result<bool> {
    loop {
        let mut fds = [PollFd::new(fd, flags)];
        poll(&mut fds, until)?;
        let is_ready = !fds[0].revents().is_empty();
        if is_ready || is_past(until) {
            return Ok(is_ready);
        }
    }
}

/// True if the time has passed; false for `None`.
pub fn is_past(until: Option<Instant>) -> bool {
    until.is_some_and(|until| Instant::now() >= until)
}

/// Waits until `is_so` returns true. Returns false if that takes too long.
///
/// `patience` limits the sum of the pauses, not the elapsed time, so that the other process gets
/// more time on a machine that is suspended or overloaded.
pub fn wait_until(patience: Duration, mut is_so: impl FnMut() -> Result<bool>) -> Result<bool> {
    let mut left = patience;
    while !is_so()? {
        if left.is_zero() {
            return Ok(false);
        }
        std::thread::sleep(PAUSE);
        left = left.saturating_sub(PAUSE);
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_until_makes_all_its_checks_even_if_each_is_slow() {
        for (until, found) in [(4, true), (5, false)] {
            let mut looks = 0;
            let is_so = wait_until(PAUSE * 3, || {
                std::thread::sleep(PAUSE * 10);
                looks += 1;
                Ok(looks == until)
            });
            assert_eq!((is_so.unwrap(), looks), (found, 4));
        }
    }

    #[test]
    fn after_a_suspension_processes_get_the_rest_of_their_time() {
        let mut patience = Patience::of(Duration::from_millis(1));
        assert!(patience.next().is_some());
        while !is_past(patience.until) {}
        assert_eq!(std::iter::from_fn(|| patience.next()).count(), LEAST as usize - 1);
        assert!(patience.next().is_none());
    }

    #[test]
    fn a_zero_time_limit_ends_at_once_and_the_maximum_does_not() {
        assert!(Patience::of(Duration::ZERO).next().is_none());
        let mut endless = Patience::of(Duration::MAX);
        assert!((0..1000).all(|_| endless.next().is_some()));
    }
}
