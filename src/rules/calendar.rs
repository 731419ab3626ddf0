//! Cron expressions: a parser, and the search for the next fire. The rules are those of Debian's
//! cron(8), also for nights in which clocks are put forward or back.

use chrono::{DateTime, Datelike, NaiveDate, NaiveDateTime, NaiveTime, Timelike};

use crate::model::refusal::Refusal;
use crate::model::time::Time;
use crate::model::zone::Zone;

/// Format of an expression, for errors.
pub const FIVE_FIELDS: &str = "five fields: minute hour day month weekday, for example `0 9 * * mon-fri`";

/// Minimum change of local time, in seconds, that does not count as a summer-time change.
const LONG_CHANGE: i64 = 3 * 3600;

/// Number of years that are searched for the next fire. Within 40 years every date falls on every
/// weekday.
const YEARS: i32 = 40;

/// Parsed cron expression. Each field is a set of numbers: bit n is set if n is in the set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Calendar {
    seconds: u64,
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// True if day of month or weekday has to match, not both: neither field begins with `*`.
    either_day: bool,
    /// True if second, minute or hour begins with `*`. The expression then fires whenever clocks
    /// show a matching time. Without `*` it has fixed times of day, which fire once a day.
    pub(super) follows_clocks: bool,
}

struct CronField {
    name: &'static str,
    least: u32,
    most: u32,
    /// Names of the numbers from `least` on, separated by spaces. Of each, three letters suffice.
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

/// Returns the five fields that a name such as `@daily` stands for; `None` for an unknown name.
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

/// Parses five fields, six fields with the seconds first, or a name such as `@daily`.
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
            // Sunday may be written 0 or 7.
            weekdays: (weekdays | weekdays >> 7) & 0x7f,
            either_day: ![day, weekday].iter().any(|field| field.starts_with('*')),
            follows_clocks: [second, minute, hour].iter().any(|field| field.starts_with('*')),
        })
    };
    read().or_else(|problem| refuse(problem, FIVE_FIELDS))
}

impl CronField {
    /// Parses a list of numbers, names and ranges into a set of bits.
    fn read(&self, list: &str) -> Result<u64, String> {
        let mut set = 0;
        for item in list.split(',') {
            let (first, last, step) = self.range(item).ok_or_else(|| self.fault(list))?;
            for number in (first..=last).step_by(step as usize) {
                set |= 1 << number;
            }
        }
        Ok(set)
    }

    /// Parses one item of a list: its first and last number, and the step. `None` if it is invalid.
    fn range(&self, item: &str) -> Option<(u32, u32, u32)> {
        let (range, step) = item.split_once('/').map_or((item, None), |(range, step)| (range, Some(step)));
        let (first, last) = match range.split_once('-') {
            _ if range == "*" => (self.least, self.most),
            Some((first, last)) => (self.number(first)?, self.number(last)?),
            // A step such as `/2` needs a range before it, or `*`.
            None if step.is_some() => return None,
            None => (self.number(range)?, self.number(range)?),
        };
        // Sunday is 7 at the end of a weekday range.
        let last = if last == 0 && first > 0 && self.most == WEEKDAY.most { WEEKDAY.most } else { last };
        let step = step.map_or(Some(1), |step| step.parse().ok())?;
        (first <= last && (1..=self.most).contains(&step)).then_some((first, last, step))
    }

    fn number(&self, word: &str) -> Option<u32> {
        let numbers = self.least..=self.most;
        if word.bytes().all(|byte| byte.is_ascii_digit()) {
            return word.parse().ok().filter(|number| numbers.contains(number));
        }
        let word = word.to_ascii_lowercase();
        let is_named = |full: &str| full == word || full.get(..3) == Some(&word);
        let at = self.names.split(' ').position(is_named)?;
        u32::try_from(at).ok().map(|at| self.least + at)
    }

    /// Returns the fault of an invalid list, with the forms that are valid.
    fn fault(&self, list: &str) -> String {
        let CronField { name, least, most, names } = self;
        let named = names.split(' ').next().filter(|first| !first.is_empty());
        let or_name = named.map(|first| format!(" or a name such as {first}")).unwrap_or_default();
        format!(
            "`{list}` is not a valid {name}: write a number from {least} to {most}{or_name}, an ascending range, or a range with a step such as {least}-{most}/2"
        )
    }
}

/// Returns the numbers of a set that are `least` or more, in ascending order.
fn from(set: u64, least: u32) -> impl Iterator<Item = u32> {
    (least..64).filter(move |number| set >> number & 1 == 1)
}

impl Calendar {
    fn has_day(&self, date: NaiveDate) -> bool {
        let is_in = |set: u64, number: u32| set >> number & 1 == 1;
        let day = is_in(self.days, date.day());
        let weekday = is_in(self.weekdays, date.weekday().num_days_from_sunday());
        is_in(self.months, date.month()) && if self.either_day { day || weekday } else { day && weekday }
    }

    /// Returns the first matching time of day that is `least` or later.
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

    /// Returns the first matching local time at or after `least`, both in local seconds since 1970.
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
            date = date.succ_opt()?;
            time = NaiveTime::MIN;
        }
        None
    }

    /// Returns the first fire in a time zone after `after`.
    ///
    /// An expression that follows clocks fires whenever clocks show a matching time. So does every
    /// other one at a change of three hours or more. At a smaller change, a fixed time that clocks
    /// skip fires right after it, and one that clocks show twice fires the first time. `None` if
    /// no fire follows within 40 years, or before the maximum of [`Time`].
    pub fn next_after(&self, zone: &Zone, after: Time) -> Option<Time> {
        let later = |seconds: i64| Some(Time::from_millis(seconds * 1000)).filter(|at| *at > after);
        let mut since = after.as_millis().div_euclid(1000);
        let mut offset = zone.offset(since);
        let mut shown = since + offset + 1;
        if !self.follows_clocks
            && let Some(at) = zone.next_change(since - LONG_CHANGE, since)
        {
            // When clocks are put back, times that have already fired appear again.
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
