//! Cron expressions: a parser, and the next time that an expression names. The rules are those of
//! Debian's cron(8), also for the nights in which clocks are put forward or back.

use chrono::{DateTime, Datelike, Months, NaiveDate, NaiveDateTime, NaiveTime, Timelike};

use crate::model::refusal::Refusal;
use crate::model::time::Time;
use crate::model::zone::Zone;

/// Description of the fields of an expression.
pub const FIVE_FIELDS: &str = "five fields: minute hour day month weekday, for example `0 9 * * mon-fri`";

/// Minimum change of local time, in seconds, that is not treated like summer time.
const LONG_CHANGE: i64 = 3 * 3600;

/// Number of years in which a fire is looked for. After 40 years every date has been on every
/// weekday.
const YEARS: i32 = 40;

/// Cron expression. Each field is a set of numbers, as bits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Calendar {
    seconds: u64,
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// True if a day of the month or a weekday suffices: neither field begins with `*`.
    either_day: bool,
    /// True if a field begins with `*`, so that the expression means many times of the day. It then
    /// fires whenever clocks show one of its times. Other expressions have fixed times, and fire
    /// once a day for each.
    follows_clocks: bool,
}

struct CronField {
    name: &'static str,
    least: u32,
    most: u32,
    /// Names of the numbers from `least` on, separated by spaces. Three letters of a name suffice.
    names: &'static str,
}

const SECOND: CronField = CronField { name: "second", least: 0, most: 59, names: "" };
const MINUTE: CronField = CronField { name: "minute", least: 0, most: 59, names: "" };
const HOUR: CronField = CronField { name: "hour", least: 0, most: 23, names: "" };
const DAY: CronField = CronField { name: "day", least: 1, most: 31, names: "" };
const MONTH: CronField = CronField {
    name: "month",
    least: 1,
    most: 12,
    names: "january february march april may june july august september october november december",
};
const WEEKDAY: CronField = CronField {
    name: "weekday",
    least: 0,
    most: 7,
    names: "sunday monday tuesday wednesday thursday friday saturday",
};

/// Returns the fields of a name such as `@daily`.
fn spelled_out(name: &str) -> Option<&'static str> {
    Some(match name.to_ascii_lowercase().as_str() {
        "@yearly" | "@annually" => "0 0 1 1 *",
        "@monthly" => "0 0 1 * *",
        "@weekly" => "0 0 * * 0",
        "@daily" | "@midnight" => "0 0 * * *",
        "@hourly" => "0 * * * *",
        _ => return None,
    })
}

/// Parses an expression of five fields, of six with the seconds first, or a name such as `@daily`.
pub fn parse(expression: &str) -> Result<Calendar, Refusal> {
    let refuse = |problem: String, hint: &str| {
        let message = format!("`{expression}` is not a cron expression: {problem}");
        Err(Refusal::new("invalid_cron", message).hint(hint))
    };
    let said = expression.trim();
    let fields = match spelled_out(said) {
        Some(fields) => fields,
        None if said.starts_with("CRON_TZ=") || said.starts_with("TZ=") => {
            let zone = said.split(['=', ' ']).nth(1).unwrap_or_default();
            return refuse(
                "it has no place for a time zone".to_owned(),
                &format!("say the zone beside it: --tz {zone}, or in JSON \"time_zone\": \"{zone}\""),
            );
        }
        None if said.starts_with('@') => {
            return refuse(
                format!("`{said}` is not a name of one"),
                "names are @yearly, @annually, @monthly, @weekly, @daily, @midnight and @hourly",
            );
        }
        None => said,
    };
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let (second, [minute, hour, day, month, weekday]) = match *fields.as_slice() {
        [second, minute, hour, day, month, weekday] => (second, [minute, hour, day, month, weekday]),
        [minute, hour, day, month, weekday] => ("0", [minute, hour, day, month, weekday]),
        _ => return refuse(format!("it has {} fields", fields.len()), FIVE_FIELDS),
    };
    let read = || {
        let weekdays = WEEKDAY.read(weekday)?;
        Ok(Calendar {
            seconds: SECOND.read(second)?,
            minutes: MINUTE.read(minute)?,
            hours: HOUR.read(hour)?,
            days: DAY.read(day)?,
            months: MONTH.read(month)?,
            // Sunday is 0 and 7.
            weekdays: (weekdays | weekdays >> 7) & 0x7f,
            either_day: ![day, weekday].iter().any(|field| field.starts_with('*')),
            follows_clocks: [second, minute, hour].iter().any(|field| field.starts_with('*')),
        })
    };
    read().or_else(|problem| refuse(problem, FIVE_FIELDS))
}

impl CronField {
    /// Parses a list of numbers, names and ranges.
    fn read(&self, list: &str) -> Result<u64, String> {
        let mut set = 0;
        for item in list.split(',') {
            let (range, step) = match item.split_once('/') {
                Some((range, step)) => (range, Some(step)),
                None => (item, None),
            };
            let (first, last) = match range.split_once('-') {
                _ if range == "*" => (self.least, self.most),
                Some((first, last)) => (self.number(first, list)?, self.number(last, list)?),
                None => match step {
                    None => (self.number(range, list)?, self.number(range, list)?),
                    Some(step) => {
                        let CronField { name, most, .. } = self;
                        return Err(format!(
                            "`{item}` has a step but no range: write `{range}-{most}/{step}` for the {name}"
                        ));
                    }
                },
            };
            // A range may end with Sunday.
            let last = if last == 0 && first > 0 && self.most == WEEKDAY.most { WEEKDAY.most } else { last };
            if first > last {
                return Err(format!(
                    "`{range}` runs backwards for the {}: write it as two ranges",
                    self.name
                ));
            }
            let step = match step.map(str::parse) {
                None => 1,
                Some(Ok(step)) if step > 0 && step <= self.most => step,
                Some(_) => {
                    return Err(format!(
                        "the step of `{item}` for the {} is not a number from 1 to {}",
                        self.name, self.most
                    ));
                }
            };
            for number in (first..=last).step_by(step as usize) {
                set |= 1 << number;
            }
        }
        Ok(set)
    }

    fn number(&self, word: &str, list: &str) -> Result<u32, String> {
        let CronField { name, least, most, .. } = self;
        if word.is_empty() {
            return Err(format!("something is missing in `{list}` for the {name}"));
        }
        if word.bytes().all(|byte| byte.is_ascii_digit()) {
            let number = word.parse().ok().filter(|number| (*least..=*most).contains(number));
            return number.ok_or_else(|| format!("the {name} {word} is not from {least} to {most}"));
        }
        let word = word.to_ascii_lowercase();
        let is_named = |full: &str| full == word || full.get(..3) == Some(&word);
        match self.names.split(' ').position(is_named).and_then(|at| u32::try_from(at).ok()) {
            Some(at) => Ok(least + at),
            None => Err(format!("`{word}` is not a {name}")),
        }
    }
}

/// Returns the numbers of a set that are at least `least`, in order.
fn from(set: u64, least: u32) -> impl Iterator<Item = u32> {
    (least..64).filter(move |number| set >> number & 1 == 1)
}

impl Calendar {
    /// True if the expression fires whenever clocks show one of its times, instead of having fixed
    /// times.
    #[cfg(test)]
    pub fn follows_clocks(&self) -> bool {
        self.follows_clocks
    }

    fn has_day(&self, date: NaiveDate) -> bool {
        let is_in = |set: u64, number: u32| set >> number & 1 == 1;
        let day = is_in(self.days, date.day());
        let weekday = is_in(self.weekdays, date.weekday().num_days_from_sunday());
        is_in(self.months, date.month()) && if self.either_day { day || weekday } else { day && weekday }
    }

    /// Returns the first time of day that is not before `least`.
    fn time_from(&self, least: NaiveTime) -> Option<NaiveTime> {
        for hour in from(self.hours, least.hour()) {
            let is_first = hour == least.hour();
            for minute in from(self.minutes, if is_first { least.minute() } else { 0 }) {
                let is_first = is_first && minute == least.minute();
                if let Some(second) = from(self.seconds, if is_first { least.second() } else { 0 }).next() {
                    return NaiveTime::from_hms_opt(hour, minute, second);
                }
            }
        }
        None
    }

    /// Returns the first local time that is not before `least`. Both are local seconds since 1970.
    fn shown_from(&self, least: i64) -> Option<i64> {
        let least: NaiveDateTime = DateTime::from_timestamp(least, 0)?.naive_utc();
        let mut date = least.date();
        let mut time = least.time();
        while date.year() <= least.year() + YEARS {
            if self.has_day(date)
                && let Some(time) = self.time_from(time)
            {
                return Some(date.and_time(time).and_utc().timestamp());
            }
            // A month that the expression does not name is skipped whole: a yearly expression is
            // common.
            date = if self.months >> date.month() & 1 == 1 {
                date.succ_opt()?
            } else {
                date.with_day(1)?.checked_add_months(Months::new(1))?
            };
            time = NaiveTime::MIN;
        }
        None
    }

    /// Returns the first time after `after` that this expression names in a zone.
    ///
    /// An expression that follows clocks fires whenever they show one of its times. A fixed time
    /// that clocks skip fires right after the change, and one that they show twice fires at the
    /// first of both. `None` after the last time that a [`Time`] can represent.
    pub fn next_after(&self, zone: &Zone, after: Time) -> Option<Time> {
        let later = |seconds: i64| Some(Time::from_millis(seconds * 1000)).filter(|at| *at > after);
        let mut since = after.as_millis().div_euclid(1000);
        let mut offset = zone.offset(since);
        let mut shown = since + offset + 1;
        if !self.follows_clocks
            && let Some(at) = zone.next_change(since - LONG_CHANGE, since)
        {
            // Clocks may show times again that have already fired.
            let before = zone.offset(at - 1);
            if before - LONG_CHANGE < offset {
                shown = shown.max(at + before);
            }
        }
        loop {
            let next = self.shown_from(shown)?;
            let Some(at) = zone.next_change(since, next - offset) else {
                return later(next - offset);
            };
            let changed = zone.offset(at);
            if self.follows_clocks || (changed - offset).abs() >= LONG_CHANGE {
                shown = at + changed;
            } else if next < at + changed {
                return later(at);
            } else {
                shown = at + offset.max(changed);
            }
            (since, offset) = (at, changed);
        }
    }
}
