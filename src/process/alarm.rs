//! Alarm at a time of the wall clock, which also fires when that clock is set.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

use crate::error::{IoContext, Result};
use crate::model::time::Time;

/// Kernel timer that also counts while the machine is suspended, unlike the timeout of `poll`. The
/// timer becomes readable at its time, and when the clock is set forward or back.
pub struct Alarm {
    timer: OwnedFd,
    at: Option<Time>,
}

impl Alarm {
    pub fn new() -> Result<Alarm> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Realtime, flags);
        Ok(Alarm { timer: timer.context("make", Path::new("a timer"))?, at: None })
    }

    /// Sets the time of the alarm; `None` switches it off.
    pub fn set(&mut self, at: Option<Time>) -> Result<()> {
        if at == self.at {
            return Ok(());
        }
        let none = Timespec { tv_sec: 0, tv_nsec: 0 };
        // A time of zero would disable the timer. The time is rounded up, because a step before the
        // due time finds nothing to do.
        let moment = at.map_or(none, |at| {
            let millis = at.as_millis().max(1);
            Timespec { tv_sec: millis.div_euclid(1000), tv_nsec: millis.rem_euclid(1000) * 1_000_000 }
        });
        let flags = TimerfdTimerFlags::ABSTIME | TimerfdTimerFlags::CANCEL_ON_SET;
        let spec = Itimerspec { it_interval: none, it_value: moment };
        timerfd_settime(&self.timer, flags, &spec).context("set", Path::new("a timer"))?;
        self.at = at;
        Ok(())
    }

    /// Returns the reason for which the alarm has fired: its time, or a change of the clock. A
    /// fired alarm must be set again.
    pub fn has_rung(&mut self) -> AlarmStage {
        let mut count = [0; 8];
        let rung = match rustix::io::read(&self.timer, &mut count[..]) {
            Ok(_) => AlarmStage::Due,
            Err(rustix::io::Errno::CANCELED) => AlarmStage::ClockSet,
            Err(_) => return AlarmStage::No,
        };
        self.at = None;
        rung
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AlarmStage {
    No,
    Due,
    ClockSet,
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alarm_with_a_past_time_rings_at_once_and_without_a_time_never() {
        let mut alarm = Alarm::new().unwrap();
        assert_eq!(alarm.has_rung(), AlarmStage::No);
        alarm.set(Some(Time::from_millis(5))).unwrap();
        assert_eq!(alarm.has_rung(), AlarmStage::Due);
        assert_eq!(alarm.has_rung(), AlarmStage::No);
        alarm.set(Some(Time::from_millis(5))).unwrap();
        alarm.set(None).unwrap();
        assert_eq!(alarm.has_rung(), AlarmStage::No);
    }
}
