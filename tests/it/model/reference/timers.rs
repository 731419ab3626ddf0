//! Semantics §11: timers.

use chrono::{Days, TimeZone, Timelike};
use chrono_tz::America::New_York;

use super::messages::{Maker, Message};
use super::{Born, Millis, Model, NOT_FOUND, Tag, Word, ms};

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Schedule {
    /// Once, in this many seconds; a negative number is a past moment.
    Once(i64),
    /// At intervals of this many seconds.
    Every(i64),
    /// Daily at this hour of the local time of New York, also when its clocks change.
    Daily(u32),
}

#[derive(Debug, Clone)]
pub struct Timer {
    pub born: Born,
    pub tag: Tag,
    pub next: Millis,
    pub fired: u64,
    pub missed: u64,
    pub status: Word,
    pub schedule: Schedule,
    pub catch_up: Word,
    pub blank: bool,
    pub hops: u32,
    /// Delayed message of `enqueue --in` or `--at`.
    pub message: Option<Message>,
    /// Time at which the first interval of a repeating timer begins.
    pub from: Millis,
    /// Scheduled time of the last fire.
    pub last_fire: Option<Millis>,
}

impl Timer {
    /// Returns the text of the timer's message.
    pub fn said(&self) -> &str {
        if self.blank { "" } else { &self.tag }
    }
}

impl Schedule {
    pub fn first(self, now: Millis) -> Millis {
        match self {
            Schedule::Once(seconds) => now + ms(seconds),
            Schedule::Every(_) | Schedule::Daily(_) => self.after(now, now).unwrap_or(now),
        }
    }

    /// Returns the first fire after a time, for a timer whose first interval begins at `made`.
    pub fn after(self, made: Millis, after: Millis) -> Option<Millis> {
        match self {
            Schedule::Once(_) => None,
            Schedule::Every(seconds) => {
                let periods = (after - made).max(0) / ms(seconds) + 1;
                Some(made + periods * ms(seconds))
            }
            Schedule::Daily(hour) => {
                let local = New_York.timestamp_millis_opt(after).single()?;
                let days = u64::from(local.hour() >= hour);
                let day = local.date_naive().checked_add_days(Days::new(days))?;
                let fire = New_York.from_local_datetime(&day.and_hms_opt(hour, 0, 0)?).single()?;
                Some(fire.timestamp_millis())
            }
        }
    }
}

impl Model {
    pub fn add_timer(
        &mut self,
        now: Millis,
        tag: Tag,
        schedule: Schedule,
        catch_up: Word,
        message: Option<Message>,
    ) {
        let timer = Timer {
            born: self.born(),
            tag,
            next: schedule.first(now),
            fired: 0,
            missed: 0,
            status: "active",
            schedule,
            catch_up,
            blank: false,
            hops: 0,
            message,
            from: now,
            last_fire: None,
        };
        self.timers.push(timer);
    }

    /// Cancels a timer. Its delayed message is dropped.
    pub fn cancel_timer(&mut self, number: usize) -> Result<(), i32> {
        let at = number % self.timers.len().max(1);
        let timer = self.timers.get_mut(at).filter(|timer| timer.status == "active").ok_or(NOT_FOUND)?;
        timer.status = "cancelled";
        let put_off = timer.message.clone();
        self.ended.extend(put_off.map(|message| (message, "dropped")));
        Ok(())
    }

    /// Emits the messages of due timers. The next fire follows from the schedule, not from now.
    pub fn fire_timers(&mut self, now: Millis) {
        let mut due: Vec<usize> = (0..self.timers.len())
            .filter(|at| self.timers[*at].status == "active" && self.timers[*at].next <= now)
            .collect();
        due.sort_by_key(|at| self.timers[*at].born);
        for at in due {
            let timer = self.timers[at].clone();
            let (mut fires, mut next, mut latest) = (0u64, Some(timer.next), None);
            while let Some(fire) = next.filter(|fire| *fire <= now) {
                fires += 1;
                latest = Some(fire);
                next = timer.schedule.after(timer.from, fire);
            }
            let wanted = match timer.catch_up {
                "all" => fires.min(100),
                "skip" if fires > 1 => 0,
                _ => 1,
            };
            for _ in 0..wanted {
                let message = timer.message.clone().unwrap_or_else(|| {
                    let fire = self.own_message("timer_tick", 2, timer.said().to_owned(), Maker::Sender);
                    Message { hops: timer.hops, ..fire }
                });
                self.queue.push(message);
            }
            let timer = &mut self.timers[at];
            timer.fired += wanted;
            timer.missed += fires - wanted;
            timer.last_fire = latest.filter(|_| wanted > 0).or(timer.last_fire);
            match next {
                Some(next) => timer.next = next,
                None => timer.status = "done",
            }
        }
    }
}
