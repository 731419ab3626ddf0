//! Time zones: named zones, whose rules are built in, and zones described by a POSIX rule.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;

use chrono::NaiveDateTime;
use jiff::Timestamp;
use jiff::tz::TimeZone;

const DAY: i64 = 24 * 3600;

/// Time zone. Times are in seconds since 1970, offsets in seconds east of Greenwich.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Zone {
    /// Name in the IANA database, or a POSIX rule such as `CET-1CEST,M3.5.0,M10.5.0/3`.
    text: Cow<'static, str>,
    zone: TimeZone,
}

impl Zone {
    pub const UTC: Zone = Zone { text: Cow::Borrowed("UTC"), zone: TimeZone::UTC };

    /// Parses a compiled time zone (RFC 9636). Returns its transitions as a zone, and the POSIX
    /// rule for the time after them, or `None` if the file is damaged or has no such rule.
    pub fn compiled(bytes: &[u8]) -> Option<(Zone, Zone)> {
        let rule =
            std::str::from_utf8(bytes.strip_suffix(b"\n")?.rsplit(|byte| *byte == b'\n').next()?).ok()?;
        let zone = TimeZone::tzif("", bytes).ok()?;
        Some((Zone { text: Cow::Borrowed("compiled"), zone }, rule.parse().ok()?))
    }

    /// Returns the offset of local time from UTC at a time.
    pub fn offset(&self, at: i64) -> i64 {
        let at = Timestamp::from_second(at).unwrap_or_default();
        i64::from(self.zone.to_offset(at).seconds())
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
        let offset = self.offset(from);
        let changes = self.zone.following(Timestamp::from_second(from).ok()?);
        let mut changes = changes.map(|change| change.timestamp().as_second());
        changes.find(|at| *at > until || self.offset(*at) != offset).filter(|at| *at <= until)
    }

    /// True if two zones have the same offsets at all times from `since` to `until`.
    pub fn agrees(&self, other: &Zone, since: i64, until: i64) -> bool {
        let mut at = since;
        loop {
            let changes = [self, other].map(|zone| zone.next_change(at, until));
            if self.offset(at) != other.offset(at) || changes[0] != changes[1] {
                return false;
            }
            let Some(next) = changes[0] else { return true };
            at = next;
        }
    }
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl FromStr for Zone {
    type Err = String;

    fn from_str(text: &str) -> Result<Zone, String> {
        let named = TimeZone::get(text).ok().filter(|zone| zone.iana_name() == Some(text));
        let found = named.filter(|zone| !zone.is_unknown()).or_else(|| TimeZone::posix(text).ok());
        found
            .map(|zone| Zone { text: Cow::Owned(text.to_owned()), zone })
            .ok_or_else(|| format!("`{text}` is not a time zone: write it like Europe/Berlin or UTC"))
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

/// Returns the reason why the local time zone is unknown; `None` if no command needed the zone.
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
        let leap_day = 1_835_395_200 + 6 * 3600;
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
