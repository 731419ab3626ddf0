//! When a timer fires: each schedule by its own table, whatever the moment it is asked at.

use crate::model::time::{Span, Time};
use crate::model::timer::Schedule;
use crate::rules::schedule::{CATCH_UP_MAX, check, due, next_after};

use super::{at, now, secs};

fn moment(text: &str) -> Time {
    Time::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn cron(expression: &str, time_zone: &str) -> Schedule {
    Schedule::Cron { expression: expression.to_owned(), time_zone: time_zone.to_owned() }
}

fn every(period: Span) -> Schedule {
    Schedule::Every { every: period, from: now() }
}

#[test]
fn once_is_before_its_moment_and_never_after_it() {
    let once = Schedule::At { at: at(1000) };
    for (after, expected) in [(-1, Some(at(1000))), (999, Some(at(1000))), (1000, None), (1001, None)] {
        assert_eq!(next_after(&once, at(after)), expected, "{after}");
    }
    assert_eq!(check(&Schedule::At { at: at(-1000) }, now()).ok(), Some(at(-1000)), "what is over is due");
}

#[test]
fn a_period_counts_from_its_beginning_and_not_from_when_it_is_asked() {
    for (after, expected) in [
        (-5_000, 10_000),
        (0, 10_000),
        (9_999, 10_000),
        (10_000, 20_000),
        (10_001, 20_000),
        (99_999, 100_000),
    ] {
        assert_eq!(next_after(&every(secs(10)), at(after)), Some(at(expected)), "{after}");
    }
    let long = every(Span::from_millis(i64::MAX.unsigned_abs()));
    assert!(next_after(&long, now()).is_some_and(|next| next > now()), "the end of time");
}

#[test]
fn a_calendar_is_read_in_its_time_zone() {
    for (expression, zone, after, expected) in [
        ("0 9 * * *", "UTC", "2026-01-02T09:00:00Z", "2026-01-03T09:00:00Z"),
        ("0 9 * * *", "UTC", "2026-01-02T08:59:59.999Z", "2026-01-02T09:00:00Z"),
        ("0 9 * * *", "Asia/Kolkata", "2026-01-02T00:00:00Z", "2026-01-02T03:30:00Z"),
        ("0 0 1 1 *", "UTC", "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z"),
        ("0 0 29 2 *", "UTC", "2026-01-01T00:00:00Z", "2028-02-29T00:00:00Z"),
        ("*/15 * * * *", "UTC", "2026-01-02T09:50:00Z", "2026-01-02T10:00:00Z"),
        ("0 9 * * mon-fri", "UTC", "2026-01-02T09:00:00Z", "2026-01-05T09:00:00Z"),
        ("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", "2026-03-29T01:00:00Z"),
        ("30 2 * * *", "Europe/Berlin", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"),
        ("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", "2026-10-25T00:30:00Z"),
        ("30 2 * * *", "Europe/Berlin", "2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"),
    ] {
        let found = next_after(&cron(expression, zone), moment(after));
        assert_eq!(found, Some(moment(expected)), "{expression} in {zone} after {after}");
    }
}

#[test]
fn a_schedule_that_can_not_fire_is_refused() {
    for (schedule, kind) in [
        (every(Span::ZERO), "schedule_too_short"),
        (every(Span::from_millis(999)), "schedule_too_short"),
        (cron("", "UTC"), "invalid_cron"),
        (cron("* * *", "UTC"), "invalid_cron"),
        (cron("60 * * * *", "UTC"), "invalid_cron"),
        (cron("0 0 30 2 *", "UTC"), "schedule_never"),
        (cron("* * * * *", "Nowhere"), "unknown_time_zone"),
    ] {
        assert_eq!(check(&schedule, now()).map_err(|refusal| refusal.kind), Err(kind), "{schedule:?}");
    }
    assert_eq!(check(&every(secs(1)), now()).ok(), Some(at(1000)));
}

#[test]
fn missed_fires_are_counted_and_the_latest_is_known() {
    for (schedule, until, count, latest) in [
        (Schedule::At { at: at(1000) }, 9_000, 1, 1_000),
        (every(secs(1)), 1_999, 1, 1_000),
        (every(secs(1)), 2_000, 2, 2_000),
        (every(secs(1)), 100_000, 100, 100_000),
        (every(secs(1)), 101_000, 101, 101_000),
        (every(secs(1)), 31_536_000_500, 31_536_000, 31_536_000_000),
    ] {
        let found = due(&schedule, at(1000), at(until));
        assert_eq!((found.count, found.latest), (count, at(latest)), "{schedule:?} until {until}");
        assert_eq!(found.first.len() as u64, count.min(CATCH_UP_MAX));
        assert_eq!(found.first[0], at(1000));
    }
    let hourly = cron("0 * * * *", "UTC");
    let found = due(&hourly, moment("2026-01-01T01:00:00Z"), moment("2027-01-01T00:59:00Z"));
    assert_eq!((found.count, found.latest), (8760, moment("2027-01-01T00:00:00Z")));
    assert_eq!(found.first.len() as u64, CATCH_UP_MAX);
}
