//! Tests times in words and local times in text, in a zone with daylight saving time.

use crate::harness::Sandbox;
use crate::setup::{say, started, words};

/// Central European time in POSIX form, which needs no time zone files.
const ZONE: &str = "CET-1CEST,M3.5.0,M10.5.0/3";
/// A Friday, 04:04:05 in [`ZONE`].
const NOW: &str = "2026-01-02T03:04:05Z";

/// Returns the time at which a timer with this `--at` fires, or the error message.
fn at(sandbox: &Sandbox, now: &str, word: &str) -> Result<String, String> {
    let object = timer(sandbox, ZONE, now, &["--at", word]);
    match object["next_at"].as_str() {
        Some(at) => Ok(at.to_owned()),
        None => Err(object["error"]["message"].as_str().unwrap().to_owned()),
    }
}

#[test]
fn a_future_moment_may_be_in_words() {
    let sandbox = started("true");
    for (word, expected) in [
        ("tomorrow 9:00", "2026-01-03T08:00:00.000Z"),
        ("Tomorrow at 09:00:30", "2026-01-03T08:00:30.000Z"),
        ("tomorrow", "2026-01-02T23:00:00.000Z"),
        ("today 23:59", "2026-01-02T22:59:00.000Z"),
        ("friday 17:30", "2026-01-02T16:30:00.000Z"),
        ("fri 3:00", "2026-01-09T02:00:00.000Z"),
        ("friday", "2026-01-08T23:00:00.000Z"),
        ("sunday 12:00", "2026-01-04T11:00:00.000Z"),
        ("17:30", "2026-01-02T16:30:00.000Z"),
        ("3:00", "2026-01-03T02:00:00.000Z"),
        ("in 2h", "2026-01-02T05:04:05.000Z"),
        ("in 1h 30m", "2026-01-02T04:34:05.000Z"),
        ("2026-06-01 09:00", "2026-06-01T07:00:00.000Z"),
        ("2026-06-01T09:00:00-05:00", "2026-06-01T14:00:00.000Z"),
        // Forms that `date +%FT%T%z`, `date -Iminutes` and `date --rfc-3339=seconds` print
        ("2026-06-01T09:00:00+0200", "2026-06-01T07:00:00.000Z"),
        ("2026-06-01T09:00:00.250-0330", "2026-06-01T12:30:00.250Z"),
        ("2026-06-01T09:00+02:00", "2026-06-01T07:00:00.000Z"),
        ("2026-06-01T09:00Z", "2026-06-01T09:00:00.000Z"),
        ("2026-06-01 09:00:00+02:00", "2026-06-01T07:00:00.000Z"),
        ("2026-06-01 09:00:00+0200", "2026-06-01T07:00:00.000Z"),
        // 02:30 occurs twice in that night; the first one counts.
        ("2026-10-25 02:30", "2026-10-25T00:30:00.000Z"),
    ] {
        assert_eq!(at(&sandbox, NOW, word).as_deref(), Ok(expected), "{word}");
    }
    for (word, wrong) in [
        ("tomorrow 25:00", "--at: `tomorrow 25:00` is not a time: write words (tomorrow 9:00, "),
        ("2h", "--at: `2h` is not a time: "),
        ("1/2/2027", "--at: `1/2/2027` is not a time: "),
        ("2026-06-01T09:00:00+2500", "--at: `2026-06-01T09:00:00+2500` is not a time: "),
        ("2026-06-01T09:00:00+02", "--at: `2026-06-01T09:00:00+02` is not a time: "),
        ("next year", "--at: `next year` is not a time: "),
        ("", "--at: `` is not a time: "),
        ("in", "--at: `in` is not a time: "),
        ("in no time", "`notime` is not a duration"),
        ("ago", "--at: `ago` is not a time: "),
        (
            "2026-03-29 02:30",
            "--at: no clock here shows 02:30:00 on 2026-03-29: clocks are put forward then (CET-1CEST,M3.5.0,M10.5.0/3); ",
        ),
        ("yesterday 9:00", "is past"),
        ("2h ago", "is past"),
    ] {
        let said = at(&sandbox, NOW, word).unwrap_err();
        assert!(said.contains(wrong), "{word}: {said}");
    }
    // On the day before clocks change, `tomorrow 2:30` names a time that does not exist.
    let said = at(&sandbox, "2026-03-28T12:00:00Z", "tomorrow 2:30").unwrap_err();
    assert!(said.contains("no clock here shows 02:30:00 on 2026-03-29"), "{said}");
    assert_eq!(at(&sandbox, "2026-03-28T12:00:00Z", "tomorrow 9:00").unwrap(), "2026-03-29T07:00:00.000Z");
}

#[test]
fn a_past_moment_may_be_in_words_and_is_shown_in_local_time() {
    let sandbox = started("echo done");
    say(&sandbox, "x");
    sandbox.run(["tick", "ada"]);
    let events = |since: &str| {
        let ran = sandbox
            .cmd(["events", "ada", "--limit", "0", "--since", since])
            .env("TZ", ZONE)
            .env("DORMOUSE_NOW", "2026-01-03T12:00:00Z")
            .exits(0);
        ran.stdout
    };
    let all = events("yesterday");
    assert!(!all.is_empty() && all.lines().all(|line| line.starts_with("2026-01-02T04:04:")), "{all}");
    assert!(all.contains("+01:00"), "{all}");
    for since in ["friday 4:00", "33h ago", "33h", "2026-01-02 04:00", "friday"] {
        assert_eq!(events(since), all, "{since}");
    }
    for since in ["1h", "friday 4:30", "today", "11:00", "now"] {
        assert_eq!(events(since), "", "{since}");
    }
    sandbox.cmd(["briefs", "ada"]).env("TZ", ZONE).output().shows("+01:00  done\n");
    let ran = sandbox.cmd(["briefs", "ada", "--json"]).env("TZ", ZONE).output();
    assert!(ran.stdout.contains("\"at\":\"2026-01-02T03:04:") && !ran.stdout.contains("+01:00"), "{ran}");
}

/// Returns the object of `timer add` in this time zone at this time.
fn timer(sandbox: &Sandbox, zone: &str, now: &str, words: &[&str]) -> serde_json::Value {
    let words = [&["--json", "timer", "add", "-a", "ada", "x"], words].concat();
    let ran = sandbox.cmd(words).env("TZ", zone).env("DORMOUSE_NOW", now).output();
    serde_json::from_str(ran.stdout.trim_end()).unwrap_or_else(|_| panic!("{ran}"))
}

#[test]
fn a_cron_expression_is_in_the_local_zone_like_every_other_time() {
    let sandbox = started("true");
    for (zone, named, local, at) in [
        (ZONE, ZONE, "2026-01-02T09:00:00.000+01:00", "2026-01-02T08:00:00.000Z"),
        ("Europe/Berlin", "Europe/Berlin", "2026-01-02T09:00:00.000+01:00", "2026-01-02T08:00:00.000Z"),
        (":Asia/Kolkata", "Asia/Kolkata", "2026-01-02T09:00:00.000+05:30", "2026-01-02T03:30:00.000Z"),
        ("", "UTC", "2026-01-02T09:00:00.000Z", "2026-01-02T09:00:00.000Z"),
    ] {
        let words: [&[&str]; 2] = [&["--cron", "0 9 * * *"], &["--at", "2026-01-02 09:00"]];
        for words in words {
            let made = timer(&sandbox, zone, NOW, words);
            let shown = (&made["time_zone"], &made["next_local"], &made["next_at"]);
            assert_eq!(shown, (&named.into(), &local.into(), &at.into()), "{zone}: {made}");
        }
    }
    // `--tz` overrides the variable TZ.
    let made = timer(&sandbox, ZONE, NOW, &["--cron", "0 9 * * *", "--tz", "Asia/Tokyo"]);
    assert_eq!(
        (&made["time_zone"], &made["next_local"]),
        (&"Asia/Tokyo".into(), &"2026-01-03T09:00:00.000+09:00".into())
    );
}

#[test]
fn an_unknown_local_zone_is_an_error_for_local_times_only() {
    let sandbox = started("echo done");
    for zone in ["Europe/Nowhere", "CET-1CEST", "nonsense"] {
        for words in [&["--cron", "0 9 * * *"][..], &["--at", "tomorrow 9:00"], &["--at", "2026-03-01 09:00"]]
        {
            let error = &timer(&sandbox, zone, NOW, words)["error"];
            let said = format!("{} {}", error["message"], error["hint"]);
            assert!(said.contains(&format!("TZ is `{zone}`")) && error["exit_status"] != 0, "{said}");
        }
        // Commands that need no local zone succeed. Text is in UTC, and says so.
        let made = timer(&sandbox, zone, NOW, &["--cron", "0 9 * * *", "--tz", "Europe/Berlin"]);
        assert_eq!(made["next_at"], "2026-01-02T08:00:00.000Z", "{made}");
        for at in ["in 2h", "2026-03-01T09:00:00+0100"] {
            assert!(timer(&sandbox, zone, NOW, &["--at", at])["next_at"].is_string(), "{at}");
        }
        let ran = sandbox.cmd(["timer", "list", "ada"]).env("TZ", zone).output();
        assert!(ran.code() == 0 && ran.stdout.contains("next 2026-01-02T08:00:00.000Z"), "{ran}");
        assert!(ran.stderr.contains(&format!("times are in UTC, because TZ is `{zone}`")), "{ran}");
        sandbox.cmd(["tick", "ada"]).env("TZ", zone).exits(0);
    }
    // An outcome that needs the local zone is refused with the reason.
    let sandbox =
        started(r#"echo '{"actions": [{"do": "timer.add", "cron": "0 9 * * *"}]}' > "$DORMOUSE_OUTCOME""#);
    say(&sandbox, "x");
    let ran = sandbox.cmd(["--json", "tick", "ada"]).env("TZ", "nonsense").output();
    assert!(ran.stdout.contains("$.actions[0]") && ran.stdout.contains("TZ is `nonsense`"), "{ran}");
}

#[test]
fn a_second_deployment_adds_no_second_timer() {
    let sandbox = started("true");
    let deploy = |words: &[&str]| {
        timer(&sandbox, "Europe/Berlin", NOW, &[&["--name", "nightly", "--cron"], words].concat())
    };
    let first = deploy(&["0 3 * * *"]);
    let again = deploy(&["0 3 * * *"]);
    assert_eq!((&first["action"], &again["action"]), (&"added".into(), &"unchanged".into()));
    assert_eq!((&first["id"], &first["next_at"]), (&again["id"], &again["next_at"]));
    let changed = deploy(&["0 4 * * *", "--catch-up", "skip", "--grace", "15m"]);
    assert_eq!((&changed["action"], &changed["id"]), (&"replaced".into(), &first["id"]));
    assert_eq!(changed["next_local"], "2026-01-03T04:00:00.000+01:00");
    let listed = sandbox.json_lines(["timer", "list", "ada"]);
    assert_eq!(listed.len(), 1);
    assert_eq!((&listed[0]["name"], &listed[0]["grace"]), (&"nightly".into(), &"15m".into()));
    assert!(sandbox.run(["timer", "list", "ada"]).contains("nightly: 0 4 * * *"));
    let other = timer(&sandbox, "UTC", NOW, &["--name", "weekly", "--cron", "0 3 * * 1"]);
    assert_eq!(other["action"], "added");
    let refused = timer(&sandbox, "UTC", NOW, &["--cron", "@daily", "--catch-up", "once", "--grace", "15m"]);
    assert_eq!(refused["error"]["kind"], "invalid_timer", "{refused}");
    let refused = timer(&sandbox, "UTC", NOW, &["--cron", "CRON_TZ=Europe/Berlin 0 9 * * *"]);
    assert_eq!(refused["error"]["hint"].as_str().map(|hint| hint.contains("--tz Europe/Berlin")), Some(true));
}

/// Text has local times, JSON has UTC. Exceptions are `next-wake` and `report`, whose text goes to
/// programs and other people, and the data of events, which are JSON.
#[test]
fn every_moment_in_text_is_local() {
    let sandbox = started("exit 1");
    let is_local = |words: &[&str]| {
        let ran = sandbox.cmd(words).env("TZ", ZONE).output();
        assert!(matches!(ran.code(), 0 | 4 | 7), "{ran}");
        for word in format!("{}{}", ran.stdout, ran.stderr).split_whitespace() {
            let word = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
            assert!(!(word.starts_with("20") && word.ends_with('Z')), "{word} is in UTC: {ran}");
        }
        let ran = sandbox.cmd(words.iter().chain(&["--json"])).env("TZ", ZONE).output();
        // The JSON of `explain` has sentences with local times, and `timer` has `next_local`.
        assert!(["explain", "timer"].contains(&words[0]) || !ran.stdout.contains("+01:00"), "{ran}");
    };
    is_local(&["enqueue", "ada", "--at", "tomorrow 9:00", "look"]);
    for line in [
        "timer add -a ada --in 2h look",
        "timer add -a ada --every 1d look",
        "enqueue ada --ttl 1h look",
        "work add -a ada thing --pick",
        "wait -a ada --on external --resource pr:1 --reason why --expires 3h",
        "wait -a ada --on timer --in 1h --reason why",
        "trigger create -a ada",
        "task start -a ada -- true",
        "tick ada --dry-run",
    ] {
        is_local(&words(line));
    }
    let shown = ["queue", "work", "trigger"].map(|kind| {
        let records = sandbox.json_lines([kind, "list", "ada"]);
        (kind, records[0]["id"].as_str().unwrap().to_owned())
    });
    for command in ["explain", "tick", "tick", "explain", "get", "state", "briefs", "logs", "usage"] {
        is_local(&[command, "ada"]);
    }
    for kind in ["timer", "wait", "work", "trigger", "task", "queue", "run"] {
        is_local(&[kind, "list", "ada"]);
    }
    for (kind, id) in &shown {
        is_local(&[kind, "show", "-a", "ada", id]);
    }
    for line in [
        "list",
        "state ada --history --diagram mermaid",
        "queue dead ada",
        "run show latest -a ada",
        "doctor",
        "gc --dry-run",
        "stop ada",
        "get ada",
    ] {
        is_local(&words(line));
    }
}
