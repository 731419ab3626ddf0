//! Tests of the fires of a timer: a table for each kind of schedule.

use crate::rules::calendar;
use crate::rules::schedule::{CATCH_UP_MAX, check, due, next_after};

use super::*;

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
fn a_timer_for_one_time_fires_once() {
    let once = Schedule::At { at: at(1000) };
    for (after, expected) in [(-1, Some(at(1000))), (999, Some(at(1000))), (1000, None), (1001, None)] {
        assert_eq!(next_after(&once, at(after)), expected, "{after}");
    }
    assert_eq!(check(&Schedule::At { at: at(-1000) }, now()).ok(), Some(at(-1000)), "a past time is due");
}

#[test]
fn a_period_counts_from_its_start() {
    let rows = [
        (-5_000, 10_000),
        (0, 10_000),
        (9_999, 10_000),
        (10_000, 20_000),
        (10_001, 20_000),
        (99_999, 100_000),
    ];
    for (after, expected) in rows {
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
    ] {
        let found = next_after(&cron(expression, zone), moment(after));
        assert_eq!(found, Some(moment(expected)), "{expression} in {zone} after {after}");
    }
}

/// Returns the first `count` fires after a time, as clocks in the zone show them.
fn fires(expression: &str, zone: &str, after: &str, count: usize) -> Vec<String> {
    let schedule = cron(expression, zone);
    let zone: Zone = zone.parse().unwrap_or_else(|error| panic!("{error}"));
    let next = |at: &Time| next_after(&schedule, *at);
    let fires = std::iter::successors(next_after(&schedule, moment(after)), next).take(count);
    fires.map(|at| at.in_zone(&zone).replace(":00.000", "")).collect()
}

#[test]
fn in_the_night_of_a_clock_change_a_fixed_time_fires_once_and_a_wildcard_follows_clocks() {
    let berlin = "Europe/Berlin";
    let (spring, autumn) = ("2026-03-29T00:00:00Z", "2026-10-24T23:00:00Z");
    for (expression, zone, after, expected) in [
        ("30 2,14 * * *", berlin, spring, "29T03:00+02:00 29T14:30+02:00 30T02:30+02:00"),
        ("30 2 * * *", berlin, spring, "29T03:00+02:00 30T02:30+02:00"),
        ("0,30 2 * * *", berlin, spring, "29T03:00+02:00 30T02:00+02:00"),
        ("0 2,3 * * *", berlin, spring, "29T03:00+02:00 30T02:00+02:00"),
        ("0 1-4 * * *", berlin, spring, "29T03:00+02:00 29T04:00+02:00 30T01:00+02:00"),
        ("30 * * * *", berlin, spring, "29T01:30+01:00 29T03:30+02:00 29T04:30+02:00"),
        ("30 */2 * * *", berlin, spring, "29T04:30+02:00 29T06:30+02:00"),
        ("*/20 2 * * *", berlin, spring, "30T02:00+02:00 30T02:20+02:00"),
        ("@hourly", berlin, spring, "29T03:00+02:00 29T04:00+02:00"),
        ("30 2,14 * * *", berlin, autumn, "25T02:30+02:00 25T14:30+01:00 26T02:30+01:00"),
        ("30 2 * * *", berlin, "2026-10-25T00:45:00Z", "26T02:30+01:00"),
        ("30 2 * * *", berlin, "2026-10-25T01:10:00Z", "26T02:30+01:00"),
        ("0 2,3 * * *", berlin, autumn, "25T02:00+02:00 25T03:00+01:00 26T02:00+01:00"),
        ("30 * * * *", berlin, autumn, "25T01:30+02:00 25T02:30+02:00 25T02:30+01:00 25T03:30+01:00"),
        (
            "*/30 2 * * *",
            berlin,
            autumn,
            "25T02:00+02:00 25T02:30+02:00 25T02:00+01:00 25T02:30+01:00 26T02:00+01:00",
        ),
        // The clocks change by half an hour.
        ("15 2 * * *", "Australia/Lord_Howe", "2026-10-03T14:00:00Z", "04T02:30+11:00 05T02:15+11:00"),
        ("45 1 * * *", "Australia/Lord_Howe", "2026-04-04T14:00:00Z", "05T01:45+11:00 06T01:45+10:30"),
        (
            "45 * * * *",
            "Australia/Lord_Howe",
            "2026-04-04T14:00:00Z",
            "05T01:45+11:00 05T01:45+10:30 05T02:45+10:30",
        ),
        // The clocks change at midnight, so that a day starts an hour late, or starts twice.
        ("@daily", "America/Havana", "2025-03-08T12:00:00Z", "09T01:00-04:00 10T00:00-04:00"),
        ("@midnight", "America/Havana", "2025-11-01T12:00:00Z", "02T00:00-04:00 03T00:00-05:00"),
        ("0 0 * * sun", "America/Havana", "2025-11-01T12:00:00Z", "02T00:00-04:00 09T00:00-05:00"),
        // The clocks skip a whole day, more than for summer time, so that day's fires are lost.
        ("0 12 * * *", "Pacific/Apia", "2011-12-29T12:00:00Z", "29T12:00-10:00 31T12:00+14:00"),
        ("30 2 * * *", "CET-1CEST,M3.5.0,M10.5.0/3", spring, "29T03:00+02:00 30T02:30+02:00"),
    ] {
        let expected: Vec<&str> = expected.split(' ').collect();
        let found = fires(expression, zone, after, expected.len());
        let found: Vec<&str> = found.iter().map(|at| &at[8..]).collect();
        assert_eq!(found, expected, "{expression} in {zone} after {after}");
    }
}

#[test]
fn days_and_weekdays_combine_as_in_crontab() {
    let days = |expression: &str, expected: &str| {
        let expected: Vec<&str> = expected.split(' ').collect();
        let found = fires(expression, "UTC", "2025-12-31T12:00:00Z", expected.len());
        let found: Vec<&str> = found.iter().map(|at| &at[5..10]).collect();
        assert_eq!(found, expected, "{expression}");
    };
    // 2026 begins with a Thursday. If day and weekday are both restricted, either is enough.
    days("0 0 1,15 * fri", "01-01 01-02 01-09 01-15 01-16");
    days("0 0 1-7 * mon", "01-01 01-02 01-03 01-04 01-05 01-06 01-07 01-12");
    days("0 0 13 * *", "01-13 02-13");
    days("0 0 * * mon", "01-05 01-12");
    // A field that begins with `*` is not restricted, so that both fields must match.
    days("0 0 */2 * mon", "01-05 01-19");
    days("0 0 13 * */5", "02-13 03-13 09-13");
    days("0 0 *,1 * fri", "01-02 01-09");
    days("0 0 29 2 *", "02-29");
    days("0 0 29 2 */1", "02-29");
    days("0 0 * * 7", "01-04 01-11");
    days("0 0 * * fri-sun", "01-02 01-03 01-04 01-09");
    days("0 0 * * Sat-0", "01-03 01-04 01-10");
}

#[test]
fn names_of_expressions_days_and_months_are_read() {
    for (one, other) in [
        ("@yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 jan *"),
        ("@monthly", "0 0 1 * *"),
        ("@weekly", "0 0 * * 0"),
        ("@daily", "0 0 * * *"),
        ("@Midnight", "0 0 * * *"),
        ("@hourly", "0 * * * *"),
        ("0 9 * * Monday-friday", "0 9 * * 1-5"),
        ("0 9 * * MON,wednesday,Sun", "0 9 * * 1,3,7"),
        ("0 9 1 January,mar-May *", "0 9 1 1,3-5 *"),
        ("5-20/5,59 8 * * *", "5,10,15,20,59 08 * * *"),
        (" 0  9 *\t* * ", "0 9 * * *"),
        ("0 0 9 * * *", "0 9 * * *"),
    ] {
        assert_eq!(calendar::parse(one), calendar::parse(other), "{one}");
        assert!(calendar::parse(one).is_ok(), "{one}");
    }
}

#[test]
fn an_invalid_expression_is_refused_with_its_reason() {
    let rows = [
        ("5M * * * *", "`5M` is not a valid minute: write a number from 0 to 59, an ascending range, "),
        (
            "0 9 * * mon,",
            "`mon,` is not a valid weekday: write a number from 0 to 7 or a name such as sunday",
        ),
        ("0 9 * * ,mon", "`,mon` is not a valid weekday"),
        ("0 9- * * *", "`9-` is not a valid hour"),
        ("5/15 * * * *", "`5/15` is not a valid minute"),
        ("*/0 * * * *", "`*/0` is not a valid minute"),
        ("*/ * * * *", "`*/` is not a valid minute"),
        ("*/90 * * * *", "or a range with a step such as 0-59/2"),
        ("*/5/2 * * * *", "`*/5/2` is not a valid minute"),
        ("0 17-9 * * *", "`17-9` is not a valid hour"),
        ("0 9 * * sat-mon", "`sat-mon` is not a valid weekday"),
        ("60 * * * *", "`60` is not a valid minute"),
        ("0 24 * * *", "`24` is not a valid hour"),
        ("0 0 0 * *", "`0` is not a valid day"),
        ("0 0 * 13 *", "`13` is not a valid month: write a number from 1 to 12 or a name such as january"),
        ("0 0 * * 8", "`8` is not a valid weekday"),
        ("0 0 * * mo", "`mo` is not a valid weekday"),
        ("0 0 * * montag", "`montag` is not a valid weekday"),
        ("0 0 * mon *", "`mon` is not a valid month"),
        ("0 0 L * *", "`L` is not a valid day"),
        ("0 0 ? * *", "`?` is not a valid day"),
        ("-5 * * * *", "`-5` is not a valid minute"),
        ("+5 * * * *", "`+5` is not a valid minute"),
        ("99999999999 * * * *", "`99999999999` is not a valid minute"),
        ("* * *", "it has 3 fields"),
        ("", "it has 0 fields"),
    ];
    let others = [
        ("@reboot", "`@reboot` is not a name of one", "@midnight"),
        ("CRON_TZ=Europe/Berlin 0 9 * * *", "it has no place for a time zone", "--tz Europe/Berlin"),
        ("TZ=UTC 0 9 * * *", "it has no place for a time zone", "--tz UTC"),
    ];
    let rows = rows.map(|(expression, message)| (expression, message, "five fields"));
    for (expression, message, hint) in rows.into_iter().chain(others) {
        let refusal = calendar::parse(expression).expect_err(expression);
        assert!(refusal.message.contains(message), "{expression}: {}", refusal.message);
        let said = refusal.hint.unwrap_or_default();
        assert!(said.contains(hint), "{expression}: {said}");
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
        (cron("0 0 31 4,6,9,11 */2", "Europe/Berlin"), "schedule_never"),
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
    let minutes = cron("* * * * *", "Europe/Berlin");
    let found = due(&minutes, moment("2025-01-01T00:00:00Z"), moment("2026-01-01T00:00:30Z"));
    assert_eq!((found.count, found.latest), (100_000, moment("2026-01-01T00:00:00Z")));
    assert_eq!(found.first[99], moment("2025-01-01T01:39:00Z"));
}
