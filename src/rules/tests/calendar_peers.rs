//! Compares the fires of cron expressions with two Python libraries: `croniter` and `cronsim`.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::rules::calendar;

use super::*;

const ZONES: &[&str] = &[
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "America/St_Johns",
    "America/Havana",
    "Australia/Lord_Howe",
    "Asia/Kolkata",
    "Africa/Casablanca",
];

const YEAR: i64 = 366 * 24 * 3600;
/// Start of 2019. All compared times are in the past, because later time zone databases don't
/// change the past.
const SINCE: i64 = 1_546_300_800;

const FIRES: usize = 5;

/// Known difference of a library from cron(8) in the night of a clock change.
struct Deviation {
    peer: &'static str,
    /// Time zones with this difference; all time zones if empty.
    zones: &'static [&'static str],
    /// True for expressions with `*` in a time field, false for those with fixed times of day.
    follows_clocks: bool,
    /// True for clocks that are put forward, false for clocks that are put back; `None` for both.
    forward: Option<bool>,
}

const DEVIATIONS: &[Deviation] = &[
    // If clocks skip a time, croniter fires after the clock change, even if a field is `*`.
    Deviation { peer: "croniter", zones: &[], follows_clocks: true, forward: Some(true) },
    // croniter fires twice at a fixed time that clocks show twice.
    Deviation { peer: "croniter", zones: &[], follows_clocks: false, forward: Some(false) },
    // croniter and cronsim advance by hours, and skip 30 minutes after a 30-minute clock change.
    Deviation { peer: "croniter", zones: &["Australia/Lord_Howe"], follows_clocks: true, forward: None },
    Deviation { peer: "cronsim", zones: &["Australia/Lord_Howe"], follows_clocks: true, forward: None },
    // cronsim starts every day at midnight, even if clocks go from midnight to one o'clock.
    Deviation { peer: "cronsim", zones: &["America/Havana"], follows_clocks: true, forward: Some(true) },
];

/// Maximum distance of a known difference from the clock change, in seconds.
const NIGHT: i64 = 3 * 3600;

/// Returns the fires far from a clock change, which must be equal to those of a Python library.
fn outside_night(fires: &[i64], change: i64) -> impl Iterator<Item = i64> {
    fires.iter().copied().filter(move |fire| (fire - change).abs() > NIGHT)
}

fn expressions() -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for minute in ["0", "30", "5,35", "10-50/20", "*", "*/20"] {
        for hour in ["0", "2", "1,2", "2,14", "1-3", "0-23/2", "*", "*/2"] {
            for day in ["* * *", "* * sun", "*/2 * *"] {
                all.push(format!("{minute} {hour} {day}"));
            }
        }
    }
    for day in ["1", "13", "29-31", "1,15", "*/2", "*/10", "*"] {
        for weekday in ["mon", "SUN", "1-5", "5-7", "0,3", "*/2", "7"] {
            all.push(format!("15 9 {day} * {weekday}"));
            all.push(format!("30 1 {day} mar,10 {weekday}"));
        }
    }
    for named in ["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"] {
        all.push(named.to_owned());
    }
    all
}

/// Time before a clock change from which on fires are compared, in seconds.
const BEFORE: i64 = 26 * 3600;

/// Returns the clock changes of the year; for a zone without any, its start and its middle.
fn changes(zone: &Zone) -> Vec<i64> {
    let next = |at: &i64| zone.next_change(*at, SINCE + YEAR);
    let changes: Vec<i64> = std::iter::successors(next(&SINCE), next).collect();
    if changes.is_empty() { vec![SINCE, SINCE + YEAR / 2] } else { changes }
}

#[test]
fn expressions_fire_as_in_croniter_and_cronsim() {
    // A turn of a parallel test would kill this test's child process.
    let _alone = crate::alone::alone();
    let python = std::env::var_os("CRON_PYTHON").unwrap_or_else(|| "python3".into());
    let has_them =
        Command::new(&python).args(["-c", "import croniter, cronsim, tzdata"]).stderr(Stdio::null()).status();
    if !has_them.is_ok_and(|status| status.success()) {
        assert!(std::env::var_os("CI").is_none(), "croniter and cronsim are not installed");
        eprintln!("left out: croniter and cronsim (PyPI) are not installed");
        return;
    }
    let mut cases = Vec::new();
    for name in ZONES {
        let zone: Zone = name.parse().unwrap_or_else(|error| panic!("{error}"));
        for change in changes(&zone) {
            let of = |expression| (expression, *name, zone.clone(), change);
            cases.extend(expressions().into_iter().map(of));
        }
    }
    let mut peers = Command::new(&python)
        .args(["-c", include_str!("calendar_peers.py")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{error}"));
    let line = |(expression, zone, _, change): &(String, &str, Zone, i64)| {
        format!("{expression}\t{zone}\t{}\t{FIRES}\n", change - BEFORE)
    };
    let input: String = cases.iter().map(line).collect();
    let mut stdin = peers.stdin.take().unwrap_or_else(|| panic!("no stdin"));
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = peers.wait_with_output().unwrap_or_else(|error| panic!("{error}"));
    assert!(output.status.success() && writer.join().is_ok_and(|wrote| wrote.is_ok()));
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(lines.lines().count(), cases.len());
    let mut wrong = Vec::new();
    let mut seen = [false; DEVIATIONS.len()];
    for ((expression, name, zone, change), line) in cases.iter().zip(lines.lines()) {
        let calendar = calendar::parse(expression).unwrap_or_else(|refusal| panic!("{}", refusal.message));
        let next = |at: &Time| calendar.next_after(zone, *at);
        let first = next(&Time::from_millis((change - BEFORE) * 1000));
        let ours: Vec<i64> =
            std::iter::successors(first, next).take(FIRES).map(|at| at.as_millis() / 1000).collect();
        for (peer, theirs) in ["croniter", "cronsim"].into_iter().zip(line.split('\t')) {
            // cronsim has no names such as @daily.
            if peer == "cronsim" && expression.starts_with('@') {
                continue;
            }
            let theirs: Vec<i64> = theirs.split(' ').filter_map(|at| at.parse().ok()).collect();
            if ours == theirs {
                continue;
            }
            let forward = zone.offset(*change) > zone.offset(*change - 1);
            let deviates = |of: &Deviation| {
                of.peer == peer
                    && (of.zones.is_empty() || of.zones.contains(name))
                    && of.follows_clocks == calendar.follows_clocks
                    && of.forward.is_none_or(|is| is == forward)
            };
            let known = DEVIATIONS.iter().position(deviates).filter(|_| {
                let both = outside_night(&ours, *change).zip(outside_night(&theirs, *change));
                !theirs.is_empty() && both.into_iter().all(|(ours, theirs)| ours == theirs)
            });
            match known {
                Some(at) => seen[at] = true,
                None => wrong.push(format!(
                    "{peer}: {expression} in {name} around {change}\n  ours   {ours:?}\n  theirs {theirs:?}"
                )),
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {}\n{}", wrong.len(), 2 * cases.len(), wrong.join("\n"));
    assert!(seen.iter().all(|is_seen| *is_seen), "a known deviation does not occur any more: {seen:?}");
}
