//! Tests retention: the removal of old records by `gc`, and by steps that come to rest.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use crate::checker;
use crate::harness::{Sandbox, each_in_parallel, one_in};
use crate::server::durable;
use crate::setup::{
    assert_includes, eventually, extend_policy, field, names, objects, say, started, step, step_on, texts,
    tree,
};
use crate::strace::{self, Harm};
use crate::travel::{elsewhere, export, healthy, imported};

const DAY: i64 = 24 * 3600;

/// State directory with default settings and the started agent `ada`. A turn prints `said`, or
/// fails if its message has `to-fail`.
#[track_caller]
fn talking(policy: &str) -> Sandbox {
    let sandbox = Sandbox::in_memory();
    sandbox.run(["init"]);
    sandbox.keep_records_elsewhere();
    let turn = "case $(cat \"$DORMOUSE_CONTEXT\") in *to-fail*) echo no >&2; exit 3;; esac; echo said
        [ -z \"$NOTES\" ] || head -c \"$NOTES\" /dev/zero > \"$(dirname \"$DORMOUSE_CONTEXT\")/notes\"";
    sandbox.run(["create", "ada", "--shell", turn]);
    extend_policy(&sandbox, "ada", &format!("[recovery]\nmax_attempts = 1\n{policy}"));
    sandbox.run(["start", "ada"]);
    sandbox
}

/// Enqueues a message, and makes steps until the agent rests. Returns the id of the run.
#[track_caller]
fn turn(sandbox: &Sandbox, text: &str) -> String {
    say(sandbox, text);
    let run = step(sandbox)["run_id"].as_str().unwrap().to_owned();
    sandbox.cmd(["tick", "ada", "--until-idle"]).output();
    sandbox.cmd(["queue", "dead", "-a", "ada", "--ack"]).output();
    run
}

/// Wakes the agent, and makes steps until it rests.
fn rest(sandbox: &Sandbox) {
    sandbox.cmd(["wake", "ada", "--reason", "look"]).output();
    sandbox.cmd(["tick", "ada", "--until-idle", "-q"]).output();
}

fn runs(sandbox: &Sandbox) -> Vec<String> {
    names(&sandbox.agent("ada").join("runs"))
}

/// Agent with turns in January, March and June of 2026. The sandbox's clock is in June.
#[track_caller]
fn with_a_past(policy: &str) -> Sandbox {
    let sandbox = talking(policy);
    sandbox.run(["work", "add", "an objective", "-a", "ada"]);
    sandbox.run(["timer", "add", "-a", "ada", "--in", "1s", "tick"]);
    turn(&sandbox, "january");
    turn(&sandbox, "to-fail in january");
    sandbox.pass(70 * DAY);
    turn(&sandbox, "march");
    sandbox.pass(85 * DAY);
    turn(&sandbox, "june");
    sandbox
}

/// Returns the output of commands that show history, without the events of `gc` and `doctor`.
fn told(sandbox: &Sandbox) -> BTreeMap<String, Vec<Value>> {
    let mut told = BTreeMap::new();
    let lines: [&[&str]; 6] = [
        &["run", "list", "-a", "ada", "--limit", "0"],
        &["briefs", "ada", "--limit", "0"],
        &["queue", "list", "-a", "ada"],
        &["work", "list", "-a", "ada"],
        &["queue", "dead", "-a", "ada"],
        &["events", "ada", "--limit", "0"],
    ];
    for words in lines {
        let ran = sandbox.cmd([&["--json"], words].concat()).exits(0);
        let mut said = objects(&ran.stdout);
        said.retain(|line| line["kind"] != "collected" && line["kind"] != "record_repaired");
        told.insert(words.join(" "), said);
    }
    for run in sandbox.json_lines(["run", "list", "-a", "ada", "--limit", "0"]) {
        let (run, message) = (run["id"].as_str().unwrap(), run["message_id"].as_str().unwrap());
        told.insert(run.to_owned(), vec![sandbox.json(["run", "show", run])]);
        told.insert(message.to_owned(), vec![sandbox.json(["queue", "show", message])]);
    }
    told
}

/// Asserts that `doctor` finds nothing and that no record is missing.
#[track_caller]
fn is_sound(sandbox: &Sandbox) {
    doctor_finds_nothing(sandbox);
    if sandbox.schema().is_none() {
        let found = checker::look(&sandbox.agent("ada"));
        assert_eq!(found.complaints, Vec::<String>::new());
    }
}

#[track_caller]
fn doctor_finds_nothing(sandbox: &Sandbox) {
    let ran = sandbox.cmd(["doctor"]).output();
    // The clocks of the server and the sandbox differ, and after a jump of the clock a step is long
    // due. `doctor` reports both.
    let is_of_time =
        |line: &&str| [": clock_skew: ", ": nobody_ticks: "].iter().any(|kind| line.contains(kind));
    let found = ran.stdout.lines().filter(|line| !is_of_time(line)).count();
    assert_eq!((ran.code(), found), (0, 1), "{ran}");
}

/// Copy of a message as it has arrived, which can be delivered again.
enum Arrived {
    File(PathBuf, Vec<u8>),
    Row(String),
}

impl Arrived {
    fn first(sandbox: &Sandbox) -> Arrived {
        if let Some(schema) = sandbox.schema() {
            let found = format!("SELECT format('%s,%s,%L,%L', agent_id, prio, id, body) FROM {schema}.inbox");
            return Arrived::Row(durable().sql(&found).join("\n"));
        }
        let inbox = sandbox.agent("ada").join("inbox");
        let path = inbox.join(names(&inbox).remove(0));
        let bytes = fs::read(&path).unwrap();
        Arrived::File(path, bytes)
    }

    fn again(&self, sandbox: &Sandbox) {
        match self {
            Arrived::File(path, bytes) => fs::write(path, bytes).unwrap(),
            Arrived::Row(values) => {
                let schema = sandbox.schema().unwrap();
                durable()
                    .sql(&format!("INSERT INTO {schema}.inbox (agent_id, prio, id, body) VALUES ({values})"));
            }
        }
    }
}

#[test]
fn a_step_after_which_the_agent_sleeps_removes_expired_history() {
    let sandbox = talking("");
    let went_well = turn(&sandbox, "one");
    let failed = turn(&sandbox, "to-fail");
    let last = turn(&sandbox, "three");
    let task = sandbox.run(["task", "start", "-a", "ada", "--", "echo", "out"]).trim().to_owned();
    let result = eventually("a turn for the result of the task", || {
        sandbox.cmd(["tick", "ada", "--until-idle"]).output();
        Some(field(&sandbox, "last_turn.run_id")).filter(|run| *run != last)
    });
    let all = [&went_well, &failed, &last, &result].map(String::clone);
    assert_eq!(runs(&sandbox), all);
    sandbox.pass(29 * DAY);
    rest(&sandbox);
    assert_eq!(runs(&sandbox), all, "runs are kept for 30 days");
    sandbox.pass(2 * DAY);
    let named = field(&sandbox, "last_turn.run_id");
    rest(&sandbox);
    assert_eq!(runs(&sandbox), [failed.clone(), named.clone()], "failed runs are kept for 90 days");
    let left = names(&sandbox.agent("ada").join("tasks"));
    assert_eq!(left, Vec::<String>::new(), "the lock of the task is removed with it");
    for run in [&went_well, &last] {
        assert_eq!(sandbox.json(["run", "show", run])["terminal"], "completed", "its record stays");
        assert_eq!(sandbox.run(["run", "show", run, "--stdout"]), "");
    }
    assert_eq!(sandbox.json(["task", "status", &task])["status"], "completed");
    is_sound(&sandbox);
    sandbox.pass(60 * DAY);
    rest(&sandbox);
    assert_eq!(runs(&sandbox), [named], "a run that an open record names is kept");
    is_sound(&sandbox);
}

#[test]
fn the_oldest_output_is_removed_first() {
    let policy = "[turn.env]\nNOTES = \"4096\"\n[retention]\noutput = \"10 KiB\"\nruns = \"forever\"\n";
    let sandbox = talking(policy);
    let all: Vec<String> = (0..4).map(|_| turn(&sandbox, "x")).collect();
    sandbox.pass(2 * DAY);
    rest(&sandbox);
    assert_eq!(runs(&sandbox), all[2..]);
    is_sound(&sandbox);
}

/// After a kill at any call, a later step removes all expired runs.
#[test]
fn a_step_that_removes_history_can_be_killed_anywhere() {
    needs!("strace");
    let sandbox = talking("");
    for text in ["one", "to-fail", "three"] {
        turn(&sandbox, text);
    }
    sandbox.pass(31 * DAY);
    step_on(&sandbox, "more");
    let line = ["tick", "ada"];
    let points = strace::record(&sandbox.copy(), &line, "").points();
    assert!(points.len() > 10, "{}", points.len());
    each_in_parallel(&points, |point| {
        let sandbox = sandbox.copy();
        strace::harm(&sandbox, &line, "", point, Harm::Kill);
        sandbox.pass(DAY);
        rest(&sandbox);
        assert_eq!(runs(&sandbox).len(), 2, "killed at {point}");
        is_sound(&sandbox);
    });
}

#[test]
fn a_dry_run_of_gc_lists_the_months_that_gc_drops() {
    let sandbox =
        with_a_past("[retention]\nruns = \"forever\"\nfailed_runs = \"forever\"\narchive = \"40d\"\n");
    let files = tree(&sandbox.store());
    let would = sandbox.json(["gc", "ada", "--dry-run"]);
    assert_includes(&would, json!({ "agent": "ada", "dry_run": true, "runs": 0 }));
    assert_eq!(tree(&sandbox.store()), files, "a dry run changes nothing");
    let did = sandbox.json(["gc"]);
    assert_eq!(did["dropped"], would["dropped"]);
    let months = texts(did["dropped"].as_array().unwrap(), "month");
    assert_eq!(months, ["2026-03"], "January has a dead letter");
    doctor_finds_nothing(&sandbox);
    assert_eq!(sandbox.run(["gc", "ada"]), "ada  nothing to do\n");
    let event = sandbox.json(["events", "ada", "--kind", "collected"]);
    assert_eq!(event["data"]["dropped"], did["dropped"]);
    // In March again, a turn writes records of a month whose earlier records `gc` has deleted.
    sandbox.pass(-85 * DAY);
    turn(&sandbox, "march again");
    sandbox.pass(85 * DAY);
    turn(&sandbox, "june again");
    let more = sandbox.json(["gc"]);
    assert_eq!(more["dropped"].as_array().unwrap().len(), 1, "{more}");
    doctor_finds_nothing(&sandbox);
}

/// A message that arrives again is not run again, even if the archive of its month is deleted.
#[test]
fn a_message_that_has_ended_in_a_dropped_month_is_not_run_again() {
    for archive in ["forever", "100d"] {
        let sandbox = talking(&format!("[retention]\narchive = \"{archive}\"\n"));
        let message = say(&sandbox, "january");
        let arrived = Arrived::first(&sandbox);
        step(&sandbox);
        sandbox.pass(155 * DAY);
        turn(&sandbox, "june");
        let report = sandbox.json(["gc"]);
        let dropped = report["dropped"].as_array().unwrap();
        assert_eq!(dropped.len(), usize::from(archive != "forever"), "{report}");
        sandbox.cmd(["queue", "show", &message]).exits(if archive == "forever" { 0 } else { 3 });
        for cache in [false, true] {
            if cache && sandbox.schema().is_none() {
                fs::remove_dir_all(sandbox.agent("ada").join("cache")).unwrap();
            }
            arrived.again(&sandbox);
            sandbox.cmd(["tick", "ada", "--until-idle"]).output();
            assert_eq!(sandbox.run(["queue", "list", "-a", "ada"]), "");
            let runs = sandbox.json_lines(["run", "list", "-a", "ada", "--limit", "0"]);
            assert_eq!(runs.len(), if archive == "forever" { 2 } else { 1 }, "{runs:?}");
        }
        let events = sandbox.json_lines(["events", "ada", "--kind", "message_settled", "--limit", "0"]);
        let again = events.iter().filter(|event| event["data"]["reason"] == "already_settled").count();
        assert_eq!(again, 2, "{events:?}");
        // An export and import keep the list of ended messages.
        let there = elsewhere();
        there.pass(155 * DAY);
        imported(&there, &export(&sandbox, &["ada"]), &[]);
        healthy(&there);
        let past = names(&there.agent("ada").join("archive"));
        let all = past.iter().flat_map(|name| names(&there.agent("ada").join("archive").join(name)));
        let is_left = past.iter().cloned().chain(all).any(|name| name.contains("ended"));
        assert_eq!(is_left, archive != "forever", "{past:?}");
        sandbox.cmd(["doctor"]).exits(0);
    }
}

/// `gc` keeps the archive of a month with a dead letter, or with a run that an open record names.
#[test]
fn a_month_that_is_still_needed_is_kept() {
    let archive = "[retention]\narchive = \"40d\"\n";
    let dropped = |sandbox: &Sandbox| texts(sandbox.json(["gc"])["dropped"].as_array().unwrap(), "month");
    let sandbox = talking(archive);
    turn(&sandbox, "to-fail");
    sandbox.pass(155 * DAY);
    turn(&sandbox, "june");
    assert_eq!(dropped(&sandbox), Vec::<String>::new(), "a dead letter");
    assert_eq!(sandbox.json_lines(["queue", "dead", "-a", "ada"]).len(), 1);
    let dead = sandbox.json(["queue", "dead", "-a", "ada"])["id"].as_str().unwrap().to_owned();
    sandbox.run(["queue", "drop", &dead, "--reason", "enough"]);
    sandbox.run(["queue", "dead", "-a", "ada", "--ack"]);
    assert_eq!(dropped(&sandbox), ["2026-01"]);
    sandbox.cmd(["doctor"]).exits(0);

    let idle = talking(archive);
    turn(&idle, "january");
    idle.pass(155 * DAY);
    assert_eq!(dropped(&idle), Vec::<String>::new(), "the month has the last turn");
    assert_eq!(idle.run(["run", "show", &field(&idle, "last_turn.run_id"), "--stdout"]), "said\n");
    turn(&idle, "june");
    assert_eq!(dropped(&idle), ["2026-01"]);
}

/// After a kill of `gc` at any call, `doctor --repair` and another `gc` restore the same result.
#[test]
fn gc_can_be_killed_anywhere() {
    needs!("strace");
    let sandbox = with_a_past("[retention]\narchive = \"40d\"\n");
    let collected = sandbox.copy();
    collected.run(["gc"]);
    let after = told(&collected);
    let points = strace::record(&sandbox.copy(), &["gc"], "").points();
    assert!(points.len() > 30, "{}", points.len());
    each_in_parallel(&one_in(6, points), |point| {
        let sandbox = sandbox.copy();
        strace::harm(&sandbox, &["gc"], "", point, Harm::Kill);
        sandbox.run(["doctor", "--repair", "-q"]);
        sandbox.run(["gc"]);
        assert_eq!(told(&sandbox), after, "killed at {point}, and run again");
        doctor_finds_nothing(&sandbox);
        assert_eq!(sandbox.run(["gc"]), "ada  nothing to do\n");
    });
}

#[test]
fn invalid_settings_and_flags_are_refused() {
    let sandbox = talking("");
    for (policy, says) in [
        ("archive = \"1h\"", "retention.archive can't be less than limits.dedupe_window (1day)"),
        ("runs = 30", "`30` has no unit: write \"30d\""),
        ("outputs = \"1 MiB\"", "unknown field `outputs`"),
    ] {
        let copy = sandbox.copy();
        extend_policy(&copy, "ada", &format!("[retention]\n{policy}\n"));
        copy.cmd(["gc"]).exits(6).warns(says).warns("agent.toml");
    }
    sandbox.cmd(["gc", "bob"]).status(3).stderr("dormouse: no agent `bob`: there is ada\n").output();
    sandbox.cmd(["gc", "--keep", "soon"]).exits(2);
    turn(&sandbox, "one");
    turn(&sandbox, "two");
    sandbox.pass(2 * DAY);
    let would = sandbox.json(["gc", "--keep", "1d", "--dry-run"]);
    assert_eq!((&would["runs"], &would["tasks"]), (&json!(1), &json!(0)));
    assert_eq!(runs(&sandbox).len(), 2);
    assert_eq!(sandbox.run(["gc", "--keep", "1d"]), "ada  removed 1 run: 5 B freed\n");
    assert_eq!(runs(&sandbox).len(), 1, "state.json names the last turn");
}

/// Old history is read once, however often the agent changes meanwhile.
#[test]
fn gc_with_a_limit_for_history_ends_while_the_agent_changes() {
    let sandbox = started("true").with_real_clock();
    extend_policy(&sandbox, "ada", "[retention]\narchive = \"40d\"\n");
    let ledger = sandbox.agent("ada").join("ledger");
    let line = "{\"at\":\"2025-01-02T03:04:05.000Z\",\"seq\":1,\"kind\":\"woken\",\"data\":{}}\n";
    fs::write(ledger.join("2025-01.jsonl"), line.repeat(20_000)).unwrap();
    let item = sandbox.run(["work", "add", "ada", "x"]);
    let item = item.trim_end();
    for args in [&["gc", "ada", "--dry-run"][..], &["gc", "ada"]] {
        let has_ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !has_ended.load(Ordering::Relaxed) {
                    sandbox.cmd(["work", "update", item, "--objective", "y"]).output();
                }
            });
            let ran = sandbox.cmd([args, &["--json", "--lock-timeout", "3s"]].concat()).output();
            has_ended.store(true, Ordering::Relaxed);
            assert!(ran.code() == 0 && ran.stdout.contains("\"2025-01\""), "{ran}");
        });
    }
}
