//! Points in time, and spans of time, both in whole milliseconds.

use std::fmt;
use std::str::FromStr;

use chrono::{
    DateTime, Datelike, Days, FixedOffset, NaiveDate, NaiveDateTime, NaiveTime, Offset, SecondsFormat, Utc,
    Weekday,
};
use serde::{Deserialize, Deserializer};
use serde_with::{DeserializeFromStr, SerializeDisplay};

use super::id::Malformed;
use super::text;
use super::zone::{self, Zone};

/// Point in time: milliseconds since the Unix epoch, written as RFC 3339 in UTC with milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, SerializeDisplay, DeserializeFromStr)]
pub struct Time(i64);

/// First and last time with a year of four digits: 0000-01-01 and 9999-12-31.
const MIN_MS: i64 = -62_167_219_200_000;
const MAX_MS: i64 = 253_402_300_799_999;

impl Time {
    /// Returns a time from milliseconds since the Unix epoch, clamped to the years 0 to 9999.
    pub fn from_millis(millis: i64) -> Time {
        Time(millis.clamp(MIN_MS, MAX_MS))
    }

    pub fn as_millis(self) -> i64 {
        self.0
    }

    /// Returns the date and time in UTC.
    pub fn utc(self) -> DateTime<Utc> {
        DateTime::from_timestamp_millis(self.0).unwrap_or_default()
    }

    /// Returns the month in UTC as `yyyy-mm`, the name of ledger files and archive directories.
    pub fn month(self) -> String {
        self.utc().format("%Y-%m").to_string()
    }

    /// Returns the day in UTC as `yyyy-mm-dd`.
    pub fn day(self) -> String {
        self.utc().format("%Y-%m-%d").to_string()
    }

    /// Returns the date and time in a time zone, with its offset.
    fn shown_in(self, zone: &Zone) -> DateTime<FixedOffset> {
        let offset = i32::try_from(zone.offset(self.0.div_euclid(1000))).ok().and_then(FixedOffset::east_opt);
        self.utc().with_timezone(&offset.unwrap_or(Utc.fix()))
    }

    /// Returns the date and time in the local time zone; in UTC if that zone is unknown.
    fn here(self) -> DateTime<FixedOffset> {
        self.shown_in(zone::local().unwrap_or(&Zone::UTC))
    }

    /// Returns the second in the local time zone as `yyyy-mm-dd hh:mm:ss`.
    pub fn local_second(self) -> String {
        self.here().format("%Y-%m-%d %H:%M:%S").to_string()
    }

    /// Returns the time that is `span` later, but at most the maximum.
    pub fn after(self, span: Span) -> Time {
        Time::from_millis(self.0.saturating_add(i64::try_from(span.0).unwrap_or(i64::MAX)))
    }

    /// Returns the time that is `span` earlier, but at least the minimum.
    pub fn before(self, span: Span) -> Time {
        Time::from_millis(self.0.saturating_sub(i64::try_from(span.0).unwrap_or(i64::MAX)))
    }

    /// Returns the span since `earlier`; zero if `earlier` is in the future.
    pub fn since(self, earlier: Time) -> Span {
        Span(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// Returns the local time as RFC 3339 with its offset, for people.
    pub fn local(self) -> String {
        self.here().to_rfc3339_opts(SecondsFormat::Millis, true)
    }

    /// Returns the time in a zone as RFC 3339 with its offset.
    pub fn in_zone(self, zone: &Zone) -> String {
        self.shown_in(zone).to_rfc3339_opts(SecondsFormat::Millis, true)
    }

    /// Parses a time as people write it: as [`Time::parse`] does, or `now`, `in 2h`, `2h ago`,
    /// `17:30`, `tomorrow`, `tomorrow 9:00`, `friday 17:30`. A day without a time of day means its
    /// start. A weekday, or a time of day alone, means the nearest in `direction` from `now`.
    pub fn said(text: &str, now: Time, direction: Direction) -> Result<Time, Malformed> {
        if let Some(found) = on_calendar(text) {
            return found;
        }
        let unknown = || {
            Err(Malformed(format!(
                "`{text}` is not a time: write words (tomorrow 9:00, friday 17:30, in 2h, 2h ago), a local date and time (2026-01-31 09:00), or RFC 3339 (2026-01-31T09:00:00Z)"
            )))
        };
        let of_day = |word: &str| {
            ["%H:%M", "%H:%M:%S"].iter().find_map(|format| NaiveTime::parse_from_str(word, format).ok())
        };
        let words: Vec<&str> = text.split_whitespace().collect();
        let (day, time) = match words.as_slice() {
            ["now"] => return Ok(now),
            ["in", span @ ..] if !span.is_empty() => return Ok(now.after(span.concat().parse()?)),
            [span @ .., "ago"] if !span.is_empty() => return Ok(now.before(span.concat().parse()?)),
            [time] if of_day(time).is_some() => (None, of_day(time)),
            [day] => (Some(*day), Some(NaiveTime::MIN)),
            [day, time] | [day, "at", time] => (Some(*day), of_day(time)),
            _ => return unknown(),
        };
        let Some(time) = time else { return unknown() };
        let today = now.shown_in(known_zone()?).date_naive();
        let day = day.map(str::to_lowercase);
        let near = match day.as_deref() {
            Some("today") => return at_local(today, time),
            Some("tomorrow") => return at_local(today + Days::new(1), time),
            Some("yesterday") => return at_local(today - Days::new(1), time),
            None => today,
            Some(word) => match word.parse::<Weekday>() {
                Ok(weekday) => {
                    let ahead = today.weekday().days_since(weekday);
                    today - Days::new(u64::from(ahead))
                }
                Err(_) => return unknown(),
            },
        };
        // A weekday occurs once in 7 days, and a time of day without a day occurs every day.
        let days = if day.is_some() { 7 } else { 1 };
        let found = at_local(near, time)?;
        match direction {
            Direction::Ahead if found <= now => at_local(near + Days::new(days), time),
            Direction::Back if found > now => at_local(near - Days::new(days), time),
            Direction::Ahead | Direction::Back => Ok(found),
        }
    }

    /// Parses RFC 3339, or a date with an optional time of day in the local time zone.
    pub fn parse(text: &str) -> Result<Time, Malformed> {
        on_calendar(text).unwrap_or_else(|| {
            Err(Malformed(format!(
                "`{text}` is not a time: write RFC 3339 (2026-01-31T09:00:00Z) or a local date and time (2026-01-31 09:00)"
            )))
        })
    }
}

/// Direction in which the nearest time of day or weekday is searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    Ahead,
    Back,
}

/// Parses a time with its offset from UTC: RFC 3339, or ISO 8601 as `date` prints it, without the
/// colon of the offset or without seconds.
fn with_offset(text: &str) -> Option<Time> {
    let iso = || {
        let (day, time) = text.split_once(['T', ' '])?;
        let (time, offset) = time.split_at(time.find(['+', '-', 'Z'])?);
        let offset = if offset == "Z" { "+0000" } else { offset };
        let text = format!("{day}T{time}{offset}");
        let forms = ["%Y-%m-%dT%H:%M:%S%.f%z", "%Y-%m-%dT%H:%M%z"];
        forms.iter().find_map(|form| DateTime::parse_from_str(&text, form).ok())
    };
    let at = DateTime::parse_from_rfc3339(text).ok().or_else(iso)?;
    Some(Time::from_millis(at.timestamp_millis()))
}

/// Parses a date with an optional time of day; `None` if the text has another form.
fn on_calendar(text: &str) -> Option<Result<Time, Malformed>> {
    if let Some(at) = with_offset(text) {
        return Some(Ok(at));
    }
    let local = ["%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M"]
        .iter()
        .find_map(|format| NaiveDateTime::parse_from_str(text, format).ok())
        .or_else(|| Some(NaiveDate::parse_from_str(text, "%Y-%m-%d").ok()?.and_time(NaiveTime::MIN)))?;
    Some(at_local(local.date(), local.time()))
}

/// Returns the local time zone. Error when it is not known.
fn known_zone() -> Result<&'static Zone, Malformed> {
    zone::local().map_err(|problem| {
        Malformed(format!("a local time can't be read, because {problem}; or write a time with its offset"))
    })
}

/// Returns the time at which clocks show a local time. If they show it twice, the first; error if
/// they skip it.
fn at_local(date: NaiveDate, time: NaiveTime) -> Result<Time, Malformed> {
    let zone = known_zone()?;
    match zone.moments(date.and_time(time)).first() {
        Some(at) => Ok(Time::from_millis(at.saturating_mul(1000))),
        None => Err(Malformed(format!(
            "no clock here shows {time} on {date}: clocks are put forward then ({zone}); name another time, or one with its offset"
        ))),
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.utc().to_rfc3339_opts(SecondsFormat::Millis, true))
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Time {
    type Err = Malformed;

    /// Parses a time with its offset, as records have it.
    fn from_str(text: &str) -> Result<Time, Malformed> {
        with_offset(text).ok_or_else(|| Malformed(format!("`{text}` is not an RFC 3339 time")))
    }
}

/// Span of time in milliseconds, written like `90s`, `1h30m` or `2d`.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, SerializeDisplay)]
pub struct Span(u64);

impl Span {
    pub const ZERO: Span = Span(0);

    pub const fn plus(self, other: Span) -> Span {
        Span(self.0.saturating_add(other.0))
    }

    /// Returns `number` times the span, but at most the maximum.
    pub const fn times(self, number: u64) -> Span {
        Span(self.0.saturating_mul(number))
    }

    pub const fn from_millis(millis: u64) -> Span {
        Span(millis)
    }

    pub const fn from_secs(secs: u64) -> Span {
        Span(secs * 1000)
    }

    /// Returns the span in its largest one or two units, for people: `5s`, `3m`, `1h05m`, `6d21h`.
    pub fn rough(self) -> String {
        let secs = self.as_millis() / 1000;
        match secs {
            0..60 => format!("{secs}s"),
            60..3600 => format!("{}m", secs / 60),
            3600..86_400 => format!("{}h{:02}m", secs / 3600, secs / 60 % 60),
            _ => format!("{}d{}h", secs / 86_400, secs / 3600 % 24),
        }
    }

    pub const fn as_millis(self) -> u64 {
        self.0
    }

    pub const fn as_std(self) -> std::time::Duration {
        std::time::Duration::from_millis(self.0)
    }
}

impl FromStr for Span {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Self, Malformed> {
        let too_long = || Malformed(format!("`{text}` is longer than can be counted"));
        let span = humantime::parse_duration(text).map_err(|error| {
            if error == humantime::DurationError::NumberOverflow {
                return too_long();
            }
            Malformed(format!("`{text}` is not a duration: write 500ms, 90s, 10m, 1h30m or 2d"))
        })?;
        let millis = i64::try_from(span.as_millis()).map_err(|_| too_long())?;
        Ok(Span(millis.unsigned_abs()))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&humantime::format_duration(self.as_std()).to_string().replace(' ', ""))
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expected = "a duration such as \"30m\"";
        let number = |number| Err(format!("invalid type: integer `{number}`, expected {expected}"));
        text::setting(expected, deserializer, number, |text| {
            text.parse().map_err(|error: Malformed| error.to_string())
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Option<Time> {
        serde_json::from_value(serde_json::json!(text)).ok()
    }

    proptest! {
        #[test]
        fn times_are_written_and_read_as_rfc_3339(millis in MIN_MS..=MAX_MS) {
            let at = Time::from_millis(millis);
            let text = at.to_string();
            prop_assert_eq!(&text, &at.utc().to_rfc3339_opts(chrono::SecondsFormat::Millis, true));
            prop_assert_eq!(read(&text), Some(at));
        }

        #[test]
        fn the_time_parser_accepts_the_same_texts_as_chrono(text in "[0-9]{4}-[01][0-9]-[0-3][0-9][Tt ][0-2][0-9]:[0-6][0-9]:[0-6][0-9](\\.[0-9]{1,6})?(Z|z|[+-][0-2][0-9]:[0-6][0-9])") {
            let expected = DateTime::parse_from_rfc3339(&text).ok().map(|at| Time::from_millis(at.timestamp_millis()));
            prop_assert_eq!(read(&text), expected);
        }
    }
}
