//! Times as people say and read them, in a zone whose clocks are put forward and back.

use crate::harness::Sandbox;
use crate::setup::{say, started};

/// Middle European time as POSIX has it, so that no files of zones are needed.
const ZONE: &str = "CET-1CEST,M3.5.0,M10.5.0/3";
/// A Friday; clocks show 04:04:05.
const NOW: &str = "2026-01-02T03:04:05Z";

/// When a timer fires that is made for this moment; or what is wrong with it.
fn at(sandbox: &Sandbox, now: &str, word: &str) -> Result<String, String> {
    let words = ["timer", "add", "-a", "ada", "--at", word, "x", "--json"];
    let ran = sandbox.cmd(words).env("TZ", ZONE).env("DORMOUSE_NOW", now).output();
    let object: serde_json::Value = serde_json::from_str(ran.stdout.trim_end()).unwrap();
    match object["next_at"].as_str() {
        Some(at) => Ok(at.to_owned()),
        None => Err(object["error"]["message"].as_str().unwrap().to_owned()),
    }
}

#[test]
fn a_moment_that_is_to_come_is_said_in_words() {
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
        // Clocks show 02:30 twice on that night: the first of the two.
        ("2026-10-25 02:30", "2026-10-25T00:30:00.000Z"),
    ] {
        assert_eq!(at(&sandbox, NOW, word).as_deref(), Ok(expected), "{word}");
    }
    for (word, wrong) in [
        ("tomorrow 25:00", "--at: `tomorrow 25:00` is not a time: write words (tomorrow 9:00, "),
        ("2h", "--at: `2h` is not a time: "),
        ("1/2/2027", "--at: `1/2/2027` is not a time: "),
        ("next year", "--at: `next year` is not a time: "),
        ("", "--at: `` is not a time: "),
        ("in", "--at: `in` is not a time: "),
        ("in no time", "`notime` is not a duration"),
        ("ago", "--at: `ago` is not a time: "),
        (
            "2026-03-29 02:30",
            "--at: no clock here shows 02:30:00 on 2026-03-29: clocks are put forward then; ",
        ),
        ("yesterday 9:00", "is past"),
        ("2h ago", "is past"),
    ] {
        let said = at(&sandbox, NOW, word).unwrap_err();
        assert!(said.contains(wrong), "{word}: {said}");
    }
    // The night on which clocks are put forward, said on the day before.
    let said = at(&sandbox, "2026-03-28T12:00:00Z", "tomorrow 2:30").unwrap_err();
    assert!(said.contains("no clock here shows 02:30:00 on 2026-03-29"), "{said}");
    assert_eq!(at(&sandbox, "2026-03-28T12:00:00Z", "tomorrow 9:00").unwrap(), "2026-03-29T07:00:00.000Z");
}

#[test]
fn a_moment_that_was_is_said_in_words_too_and_shown_as_clocks_show_it() {
    let sandbox = started("echo done");
    say(&sandbox, "x");
    sandbox.run(["tick", "ada"]);
    let events = |since: &str| {
        let ran = sandbox
            .cmd(["events", "ada", "--limit", "0", "--since", since])
            .env("TZ", ZONE)
            .env("DORMOUSE_NOW", "2026-01-03T12:00:00Z")
            .output();
        assert_eq!(ran.code(), 0, "{ran}");
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
    let ran = sandbox.cmd(["briefs", "ada"]).env("TZ", ZONE).output();
    assert!(ran.stdout.contains("+01:00  done\n"), "{ran}");
    let ran = sandbox.cmd(["briefs", "ada", "--json"]).env("TZ", ZONE).output();
    assert!(ran.stdout.contains("\"at\":\"2026-01-02T03:04:") && !ran.stdout.contains("+01:00"), "{ran}");
}

/// Text is for people, whose clocks show local time; JSON is for programs, and has UTC. Two print in UTC what is handed
/// on: `next-wake` to a program, `report` to another person. An event's data are JSON.
#[test]
fn every_moment_in_text_is_local() {
    let sandbox = started("exit 1");
    let abroad = |words: &[&str]| {
        let ran = sandbox.cmd(words).env("TZ", ZONE).output();
        assert!(matches!(ran.code(), 0 | 4 | 7), "{ran}");
        for word in format!("{}{}", ran.stdout, ran.stderr).split_whitespace() {
            let word = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
            assert!(!(word.starts_with("20") && word.ends_with('Z')), "{word} is in UTC: {ran}");
        }
        let ran = sandbox.cmd(words.iter().chain(&["--json"])).env("TZ", ZONE).output();
        // What `explain` says in sentences is text wherever it stands.
        assert!(words[0] == "explain" || !ran.stdout.contains("+01:00"), "{ran}");
    };
    for making in [
        &["timer", "add", "-a", "ada", "--in", "2h", "look"][..],
        &["timer", "add", "-a", "ada", "--every", "1d", "look"],
        &["enqueue", "ada", "--at", "tomorrow 9:00", "look"],
        &["enqueue", "ada", "--ttl", "1h", "look"],
        &["work", "add", "-a", "ada", "a thing", "--pick"],
        &[
            "wait",
            "-a",
            "ada",
            "--on",
            "external",
            "--resource",
            "pr:1",
            "--reason",
            "why",
            "--expires",
            "3h",
        ],
        &["wait", "-a", "ada", "--on", "timer", "--in", "1h", "--reason", "why"],
        &["trigger", "create", "-a", "ada"],
        &["task", "start", "-a", "ada", "--", "true"],
    ] {
        abroad(making);
    }
    let first =
        |plane: &str| sandbox.json_lines([plane, "list", "ada"])[0]["id"].as_str().unwrap().to_owned();
    for looking in [
        &["explain", "ada"][..],
        &["tick", "ada", "--dry-run"],
        &["tick", "ada"],
        &["tick", "ada"],
        &["explain", "ada"],
        &["list"],
        &["get", "ada"],
        &["state", "ada"],
        &["state", "ada", "--history", "--diagram", "mermaid"],
        &["timer", "list", "ada"],
        &["wait", "list", "ada"],
        &["work", "list", "ada"],
        &["trigger", "list", "ada"],
        &["task", "list", "ada"],
        &["queue", "list", "ada"],
        &["queue", "dead", "ada"],
        &["run", "list", "ada"],
        &["run", "show", "latest", "-a", "ada"],
        &["briefs", "ada"],
        &["logs", "ada"],
        &["usage", "ada"],
        &["queue", "show", "-a", "ada", &first("queue")],
        &["work", "show", "-a", "ada", &first("work")],
        &["trigger", "show", "-a", "ada", &first("trigger")],
        &["doctor"],
        &["gc", "--dry-run"],
        &["stop", "ada"],
        &["get", "ada"],
    ] {
        abroad(looking);
    }
}
