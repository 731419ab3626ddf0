//! Time zones: named zones, with rules that are built in, and zones described by a POSIX rule.

use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;

use chrono::{DateTime, Datelike, Days, NaiveDate, NaiveDateTime, Offset, TimeZone};
use chrono_tz::Tz;

const HOUR: i64 = 3600;
const DAY: i64 = 24 * HOUR;

/// Time zone. Times are in seconds since 1970, offsets in seconds east of Greenwich.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Zone {
    Named(Tz),
    Rule(Box<Rule>),
}

/// POSIX rule of a time zone, such as `CET-1CEST,M3.5.0,M10.5.0/3`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    text: String,
    offset: i64,
    summer: Option<Summer>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Summer {
    offset: i64,
    begins: ZoneChange,
    ends: ZoneChange,
}

/// Day of each year, and the local time in seconds, at which summer time begins or ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ZoneChange {
    day: Day,
    time: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Day {
    /// Day of the year from 1 to 365, without counting 29 February.
    Julian(u32),
    /// Day of the year from 0 to 365, with 29 February.
    Ordinal(u32),
    /// Weekday in a week of a month, from 1; 5 is the last such weekday.
    Week { month: u32, week: u32, weekday: u32 },
}

impl Zone {
    pub const UTC: Zone = Zone::Named(Tz::UTC);

    /// Returns the offset of local time from UTC at a time.
    pub fn offset(&self, at: i64) -> i64 {
        let utc = DateTime::from_timestamp(at, 0).unwrap_or_default().naive_utc();
        match self {
            Zone::Named(zone) => i64::from(zone.offset_from_utc_datetime(&utc).fix().local_minus_utc()),
            Zone::Rule(rule) => rule.offset(at),
        }
    }

    /// Returns the times at which clocks show a local time, the earlier first: one, two if clocks
    /// are put back, or none if they are put forward.
    pub fn moments(&self, local: NaiveDateTime) -> Vec<i64> {
        let shown = local.and_utc().timestamp();
        let offsets = [shown - DAY, shown + DAY].map(|near| self.offset(near));
        let mut moments: Vec<i64> = offsets
            .into_iter()
            .filter(|offset| self.offset(shown - offset) == *offset)
            .map(|offset| shown - offset)
            .collect();
        moments.sort_unstable();
        moments.dedup();
        moments
    }

    /// Returns the first time after `from`, and at or before `until`, at which the offset of local
    /// time changes.
    pub fn next_change(&self, from: i64, until: i64) -> Option<i64> {
        // No zone changes its offset twice within a week.
        const STEP: i64 = 7 * DAY;
        let offset = self.offset(from);
        let mut before = from;
        while before < until {
            let mut after = until.min(before + STEP);
            if self.offset(after) == offset {
                before = after;
                continue;
            }
            while after - before > 1 {
                let middle = before + (after - before) / 2;
                if self.offset(middle) == offset { before = middle } else { after = middle }
            }
            return Some(after);
        }
        None
    }
}

/// Returns the names of all time zones, in order.
pub fn names() -> impl Iterator<Item = &'static str> {
    chrono_tz::TZ_VARIANTS.iter().map(|zone| zone.name())
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Zone::Named(zone) => zone.name(),
            Zone::Rule(rule) => &rule.text,
        })
    }
}

impl FromStr for Zone {
    type Err = String;

    fn from_str(text: &str) -> Result<Zone, String> {
        if let Ok(zone) = text.parse() {
            return Ok(Zone::Named(zone));
        }
        let rule = Parser { left: text }.rule(text);
        rule.map(|rule| Zone::Rule(Box::new(rule)))
            .ok_or_else(|| format!("`{text}` is not a time zone: write it like Europe/Berlin or UTC"))
    }
}

impl Rule {
    fn offset(&self, at: i64) -> i64 {
        let Some(summer) = &self.summer else { return self.offset };
        let local = DateTime::from_timestamp(at + self.offset, 0).unwrap_or_default();
        let begins = summer.begins.shown_in(local.year()) - self.offset;
        let ends = summer.ends.shown_in(local.year()) - summer.offset;
        let is_summer = if begins < ends { begins <= at && at < ends } else { !(ends <= at && at < begins) };
        if is_summer { summer.offset } else { self.offset }
    }
}

impl ZoneChange {
    /// Returns the local time of the change in a year, in local seconds since 1970.
    fn shown_in(&self, year: i32) -> i64 {
        let first = |month| NaiveDate::from_ymd_opt(year, month, 1).unwrap_or_default();
        let day = match self.day {
            Day::Julian(day) => {
                let skipped = u64::from(first(1).leap_year() && day >= 60);
                first(1) + Days::new(u64::from(day) - 1 + skipped)
            }
            Day::Ordinal(day) => first(1) + Days::new(u64::from(day)),
            Day::Week { month, week, weekday } => {
                let ahead = (weekday + 7 - first(month).weekday().num_days_from_sunday()) % 7;
                let day = first(month) + Days::new(u64::from(ahead + 7 * (week - 1)));
                if day.month() == month { day } else { day - Days::new(7) }
            }
        };
        day.and_time(chrono::NaiveTime::MIN).and_utc().timestamp() + self.time
    }
}

/// Parser of a POSIX rule.
struct Parser<'t> {
    left: &'t str,
}

impl Parser<'_> {
    fn rule(mut self, text: &str) -> Option<Rule> {
        self.name()?;
        let offset = -self.time(24)?;
        if self.left.is_empty() {
            return Some(Rule { text: text.to_owned(), offset, summer: None });
        }
        self.name()?;
        let summer = if self.left.starts_with(',') { offset + HOUR } else { -self.time(24)? };
        // A rule without the start of summer time is refused: no default is right everywhere.
        let begins = self.change()?;
        let ends = self.change()?;
        let summer = Some(Summer { offset: summer, begins, ends });
        self.left.is_empty().then(|| Rule { text: text.to_owned(), offset, summer })
    }

    fn take(&mut self, prefix: char) -> Option<()> {
        self.left = self.left.strip_prefix(prefix)?;
        Some(())
    }

    /// Takes the longest prefix of characters for which `fits` returns true.
    fn while_fits(&mut self, fits: impl Fn(char) -> bool) -> &str {
        let end = self.left.find(|c| !fits(c)).unwrap_or(self.left.len());
        let (taken, left) = self.left.split_at(end);
        self.left = left;
        taken
    }

    fn name(&mut self) -> Option<()> {
        let is_quoted = self.take('<').is_some();
        let fits = |c: char| c.is_ascii_alphabetic() || is_quoted && (c.is_ascii_digit() || "+-".contains(c));
        let length = self.while_fits(fits).len();
        if is_quoted {
            self.take('>')?;
        }
        (length >= 3).then_some(())
    }

    fn number(&mut self, least: u32, most: u32) -> Option<u32> {
        let number = self.while_fits(|c| c.is_ascii_digit()).parse().ok()?;
        (least..=most).contains(&number).then_some(number)
    }

    /// Takes `[+|-]hh[:mm[:ss]]` and returns it in seconds.
    fn time(&mut self, hours: u32) -> Option<i64> {
        let sign = if self.take('-').is_some() {
            -1
        } else {
            let _ = self.take('+');
            1
        };
        let mut seconds = i64::from(self.number(0, hours)?) * HOUR;
        for unit in [60, 1] {
            if self.take(':').is_none() {
                break;
            }
            seconds += i64::from(self.number(0, 59)?) * unit;
        }
        Some(sign * seconds)
    }

    fn change(&mut self) -> Option<ZoneChange> {
        self.take(',')?;
        let day = if self.take('J').is_some() {
            Day::Julian(self.number(1, 365)?)
        } else if self.take('M').is_some() {
            let month = self.number(1, 12)?;
            self.take('.')?;
            let week = self.number(1, 5)?;
            self.take('.')?;
            Day::Week { month, week, weekday: self.number(0, 6)? }
        } else {
            Day::Ordinal(self.number(0, 365)?)
        };
        let time = if self.take('/').is_some() { self.time(167)? } else { 2 * HOUR };
        Some(ZoneChange { day, time })
    }
}

/// Function that finds the local time zone. `Err`: reason why it is unknown.
pub type ZoneSource = fn() -> Result<Zone, String>;

static SOURCE: OnceLock<ZoneSource> = OnceLock::new();
static LOCAL: OnceLock<Result<Zone, String>> = OnceLock::new();

/// Sets the function that finds the local time zone. It is called at most once, when the zone is
/// first needed.
pub fn set_source(source: ZoneSource) {
    let _ = SOURCE.set(source);
}

/// Returns the local time zone; `Err`: reason why it is unknown. Without a source, returns UTC.
pub fn local() -> Result<&'static Zone, &'static str> {
    let found = LOCAL.get_or_init(|| SOURCE.get().map_or(Ok(Zone::UTC), |source| source()));
    found.as_ref().map_err(String::as_str)
}

/// Returns the reason why the local time zone is unknown, if a command needed the zone.
pub fn problem() -> Option<&'static str> {
    LOCAL.get()?.as_ref().err().map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(text: &str) -> Zone {
        text.parse().unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn a_posix_rule_has_the_offsets_of_the_zone_it_describes() {
        for (rule, name) in [
            ("CET-1CEST,M3.5.0,M10.5.0/3", "Europe/Berlin"),
            ("EST5EDT,M3.2.0,M11.1.0", "America/New_York"),
            ("NST3:30NDT,M3.2.0,M11.1.0", "America/St_Johns"),
            ("<+1030>-10:30<+11>-11,M10.1.0,M4.1.0", "Australia/Lord_Howe"),
            ("<-02>2<-01>,M3.5.0/-1,M10.5.0/0", "America/Nuuk"),
            ("IST-1GMT0,M10.5.0,M3.5.0/1", "Europe/Dublin"),
            ("IST-5:30", "Asia/Kolkata"),
            ("UTC0", "UTC"),
        ] {
            let (rule, named) = (zone(rule), zone(name));
            // Every half hour of two years, one of them a leap year.
            for half_hour in 0..2 * 366 * 48 {
                let at = 1_830_297_600 + half_hour * 1800;
                assert_eq!(rule.offset(at), named.offset(at), "{rule} at {at}");
            }
            assert_eq!(zone(&rule.to_string()), rule);
        }
        let (julian, ordinal) = (zone("AAA3BBB,J60/0,J300/0"), zone("AAA3BBB,59/0,299/0"));
        let second_of_march = 1_835_481_600 + 2 * DAY;
        assert_eq!((julian.offset(second_of_march), ordinal.offset(second_of_march)), (-7200, -7200));
        let leap_day = 1_835_395_200 + 6 * HOUR;
        assert_eq!((julian.offset(leap_day), ordinal.offset(leap_day)), (-10800, -7200));
    }

    #[test]
    fn a_text_that_is_no_zone_is_refused() {
        for text in [
            "",
            "Europe",
            "Europe/Nowhere",
            "CET-1CEST",
            "CET-1CEST,M3.5.0",
            "CET-25",
            "CE-1",
            "CET-1CEST,M13.5.0,M10.5.0",
            "CET-1CEST,M3.5.7,M10.5.0",
            "CET-1CEST,M3.0.0,M10.5.0",
            "CET-1CEST,J0,J300",
            "CET-1x",
            "<+1>-1",
            "<CET-1",
            "CET-1:60",
            "CET-1CEST,M3.5.0,M10.5.0/168",
            "CET-99999999999",
        ] {
            assert!(text.parse::<Zone>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_local_time_is_shown_once_twice_or_never() {
        let shown = |zone: &Zone, text: &str| {
            zone.moments(NaiveDateTime::parse_from_str(text, "%Y-%m-%d %H:%M").unwrap_or_default()).len()
        };
        for (name, never, twice) in [
            ("Europe/Berlin", "2026-03-29 02:30", "2026-10-25 02:30"),
            ("CET-1CEST,M3.5.0,M10.5.0/3", "2026-03-29 02:30", "2026-10-25 02:30"),
            ("Australia/Lord_Howe", "2026-10-04 02:10", "2026-04-05 01:40"),
            ("Pacific/Apia", "2011-12-30 12:00", "2012-04-01 03:30"),
        ] {
            let zone = zone(name);
            assert_eq!((shown(&zone, never), shown(&zone, twice)), (0, 2), "{name}");
            assert_eq!(shown(&zone, "2026-07-01 02:30"), 1, "{name}");
        }
    }
}
