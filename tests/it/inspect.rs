//! Tests `get`, `list`, `explain`, `state`, `run`, `briefs` and `events`: the output about an agent
//! and its history.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::harness::Sandbox;
use crate::setup::{
    Beside, add, advisories, assert_includes, changes, commands, decisions, eventually, failure, field,
    objects, say, started, started_with, step, step_on, texts, tick_until_running, tree, words,
};
use crate::sharing::mode as set_mode;

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

#[test]
fn get_shows_the_fields_of_the_contract_with_their_types() {
    let sandbox = started_with("test -e good", "\n[recovery]\nbase = \"1h\"\n");
    step_on(&sandbox, "x");
    sandbox.run(["wake", "ada"]);
    let summary = sandbox.json(["get", "ada"]);
    for object in words(
        "identity execution lifecycle queue last_turn closure continuation work retry limits capabilities \
         counters",
    ) {
        assert!(summary[object].is_object(), "{object}: {}", summary[object]);
    }
    for list in words("active_waits active_tasks active_children active_timers external_triggers advisories")
    {
        assert!(summary[list].is_array(), "{list}: {}", summary[list]);
    }
    for text in ["agent", "status", "posture", "reason", "message_id", "next_due_at"] {
        assert!(summary[text].is_string(), "{text}: {}", summary[text]);
    }
    assert_eq!(summary["execution"]["code"], 9);
    for (object, expected) in [
        ("execution", "state code since task_id reason"),
        ("lifecycle", "runnable accepts_messages hint"),
        ("queue", "pending by_priority oldest_at dead dropped_files rejected"),
        ("work", "open queued runnable waiting waiting_for_operator blocked"),
    ] {
        assert_eq!(keys(&summary[object]), words(expected), "{object}");
    }
    let expected = words("id target_agent_id delivery_mode scope status verify created_at delivery_count");
    assert_eq!(keys(&summary["external_triggers"][0]), expected);
    assert_eq!(summary["closure"]["outcome"], "failed");
    assert!(summary.get("current_run").is_none(), "a field that does not apply is absent");
}

#[test]
fn get_shows_a_field_by_its_path_raw() {
    let sandbox = started("true");
    say(&sandbox, "x");
    for (path, value) in [
        ("agent", "ada\n"),
        ("status", "awake_idle\n"),
        ("queue.pending", "1\n"),
        ("queue.by_priority", "{\"normal\":1}\n"),
        ("lifecycle.runnable", "true\n"),
        ("external_triggers.0.status", "active\n"),
        ("active_timers", "[]\n"),
        ("current_run", "\n"),
        ("current_run.run_id", "\n"),
        ("retry.not_before", "\n"),
    ] {
        sandbox.cmd(["get", "ada", path]).prints(value);
    }
    sandbox.cmd(["get", "ada", "queue.pending", "--json"]).prints("1\n");
    let ran = sandbox.cmd(["get", "ada", "nonsense", "--json"]).output();
    assert_eq!((ran.code(), failure(&ran)["message"].clone()), (2, json!("no field `nonsense`")));
    sandbox.cmd(["get", "nobody"]).status(3).complains("dormouse: no agent `nobody`\nhint: there is ada\n");
}

#[test]
fn reading_changes_no_byte() {
    let sandbox = started_with("exit 1", "\n[recovery]\nmax_attempts = 1\n");
    let id = say(&sandbox, "x");
    let run = step(&sandbox)["run_id"].as_str().unwrap().to_owned();
    say(&sandbox, "y");
    sandbox.run(["wake", "ada"]);
    fs::write(sandbox.agent("ada").join("inbox/drop.json"), "{\"text\":\"x\"}").unwrap();
    let before = tree(&sandbox.project());
    let readers = format!(
        "get ada, get ada queue, list, explain ada, state ada, state ada --diagram, run list -a ada, \
         run show {run}, run show {run} --stdout, briefs ada, events ada, queue list -a ada, queue dead -a ada, \
         queue show {id}, tick ada --dry-run, schema"
    );
    for args in commands(&readers) {
        for json in [&[][..], &["--json"]] {
            sandbox.cmd([&args, json].concat()).exits(0);
        }
        assert_eq!(changes(&before, &tree(&sandbox.project())), Vec::<PathBuf>::new(), "{args:?}");
    }
}

#[test]
fn a_state_directory_that_can_only_be_read_can_be_read() {
    let sandbox = started("true");
    step_on(&sandbox, "x");
    let dirs: Vec<_> = tree(&sandbox.project()).into_keys().filter(|path| path.is_dir()).collect();
    let protect = |mode: u32| dirs.iter().for_each(|dir| set_mode(dir, mode));
    protect(0o500);
    let readers = ["get", "explain", "state", "events", "briefs"];
    let read = readers.map(|verb| sandbox.cmd([verb, "ada"]).output().code());
    protect(0o700);
    assert_eq!(read, [0, 0, 0, 0, 0]);
}

#[test]
fn list_shows_a_line_per_agent() {
    let sandbox = started("true");
    add(&sandbox, "bob", "true");
    sandbox.run(["create", "carl", "--", "true"]);
    step_on(&sandbox, "x");
    say(&sandbox, "y");
    sandbox.run(["tick", "bob"]);
    sandbox.cmd(["list"]).prints(
        "AGENT  POSTURE           QUEUE  LAST TURN  DUE  NOTE\n\
         ada    has_queued_input  1      3s ago     now  next is a message from you\n\
         bob    idle              0      -          -    nothing to do\n\
         carl   idle              0      -          -    not started yet\n",
    );
    let lines = sandbox.json_lines(["list"]);
    let expected = json!({
        "agent": "ada", "status": "awake_idle", "execution_state": "completed", "posture": "has_queued_input",
        "reason": "next is a message from you", "pending": 1, "kind": "named", "visibility": "public",
        "hint": "the next tick decides", "dead": 0, "last_turn_at": "2026-01-02T03:04:12.000Z",
    });
    assert_eq!(lines[0], expected);
    for (flags, expected) in [
        ("--posture idle", "bob carl"),
        ("--status booting --status asleep", "bob carl"),
        ("--posture has_queued_input --posture idle --status awake_idle", "ada"),
        ("--kind named", "ada bob carl"),
        ("--kind child", ""),
    ] {
        let listed = sandbox.json_lines([&["list"], &*words(flags)].concat());
        assert_eq!(texts(&listed, "agent"), words(expected), "{flags}");
    }
    for args in commands("list --posture lazy, list --status paused, list --kind pet") {
        sandbox.cmd(args).exits(2);
    }
}

#[test]
fn one_damaged_agent_does_not_hide_the_others_from_the_list() {
    let sandbox = started("true");
    add(&sandbox, "bob", "true");
    add(&sandbox, "eve", "true");
    fs::remove_file(sandbox.agent("bob").join("state.json")).unwrap();
    let missing = "[SANDBOX]/project/.dormouse/agents/bob/state.json: missing: every agent has one";
    let hint = "restore it from git or a backup; dormouse creates no replacement";
    sandbox
        .cmd(["list"])
        .status(6)
        .stdout(
            "AGENT  POSTURE  QUEUE  LAST TURN  DUE  NOTE\n\
             ada    idle     0      -          -    nothing to do\n\
             eve    idle     0      -          -    nothing to do\n",
        )
        .complains(&format!("dormouse: bob: {missing}\nhint: {hint}\n"));
    let lines = objects(&sandbox.cmd(["list", "--json"]).exits(6).stdout);
    assert_eq!(lines.len(), 3);
    assert_eq!(lines.iter().filter(|line| line["error"]["agent"] == "bob").count(), 1);
    assert_eq!(lines.iter().filter(|line| line["agent"].is_string()).count(), 2);
}

#[test]
fn explain_shows_the_deciding_rung_and_with_verbose_the_earlier_rungs() {
    let sandbox = started_with("echo no network >&2; exit 1", "\n[recovery]\nbase = \"1h\"\n");
    step_on(&sandbox, "x");
    sandbox.cmd(["explain", "ada"]).prints(
        "ada would wait_for_timer: recovery backoff\n\n\
         →  4  wait_for_timer (recovery_backoff)\n\n\
         what would change that:\n\
         \x20 the end of the backoff, 2026-01-02T04:04:09.000Z (in 59m)\n\
         \x20 dormouse recover ada\n\
         \x20 an urgent message: dormouse enqueue ada --priority interject TEXT\n",
    );
    let text = sandbox.run(["explain", "ada", "-v"]);
    let ladder = "\x20  1  stop, noop (stopped, not_started)\n\
         \x20  2  noop (turn_in_progress, turn_elsewhere)\n\
         \x20  3  start_recovery (retry, after_stop)\n\
         →  4  wait_for_timer (recovery_backoff)\n\n";
    assert!(text.contains(ladder), "{text}");
    sandbox.run(["stop", "ada"]);
    let text = sandbox.run(["explain", "ada"]);
    assert!(text.starts_with("ada would do nothing: stopped\n"), "{text}");
}

/// Checks the texts of `list` and `get` about a message before the start of its agent, after a
/// failed attempt, and after the recovery.
#[test]
fn list_and_get_describe_a_message_by_its_attempts_and_recovery() {
    let sandbox = Sandbox::new();
    sandbox.run(["create", "ada", "--shell", "echo no network >&2; exit 1"]);
    sandbox.cmd(["enqueue", "ada", "x"]).output();
    let note = |expected: &str| {
        let list = sandbox.run(["list"]);
        assert!(list.ends_with(expected), "{list}");
    };
    note("  -    not started yet: dormouse start ada\n");
    sandbox.run(["start", "ada"]);
    note("  now  next is a message from you\n");
    sandbox.cmd(["tick", "ada"]).env("DORMOUSE_NOW", "2026-01-03T00:00:00.000Z").output();
    let at = |now: &str| sandbox.cmd(["list"]).env("DORMOUSE_NOW", now).output().stdout;
    assert!(at("2026-01-03T00:00:00.200Z").contains("  now  exit status 1: no network; attempt 2 in 1s\n"));
    assert!(at("2026-01-03T00:01:00.000Z").contains("  now  exit status 1: no network; attempt 2 is due\n"));
    let get = sandbox.cmd(["get", "ada"]).env("DORMOUSE_NOW", "2026-01-03T00:00:00.200Z").output().stdout;
    assert!(get.contains("failed just now: exit status 1: no network\n"), "{get}");
    assert!(get.contains("\nretry       in 1s: exit"), "{get}");
    sandbox.cmd(["tick", "ada"]).env("DORMOUSE_NOW", "2026-01-03T00:02:00.000Z").output();
    assert!(at("2026-01-03T00:02:01.000Z").contains("  now  exit status 1: no network; attempt 2 is next\n"));
}

#[test]
fn after_the_last_attempt_a_recovery_is_due_and_no_retry() {
    let sandbox = started_with("exit 1", "\n[recovery]\nmax_attempts = 1\n");
    step_on(&sandbox, "x");
    let get = sandbox.run(["get", "ada"]);
    assert!(get.contains("\nrecovery    ") && !get.contains("\nretry "), "{get}");
}

/// A reader of a run whose tick was killed reports neither a running turn nor a clock in the
/// future.
#[test]
fn a_turn_whose_tick_was_killed_is_interrupted_for_every_reader() {
    let sandbox = started("kill -9 $PPID; sleep 1").with_real_clock();
    say(&sandbox, "x");
    sandbox.cmd(["tick", "ada"]).output();
    let explained = sandbox.cmd(["explain", "ada"]).output().stdout;
    assert!(!explained.contains("clock_in_future"), "{explained}");
    for command in [&["list"][..], &["get", "ada"]] {
        let said = sandbox.cmd(command).output().stdout;
        assert!(said.contains("interrupted: its tick is gone; attempt 1 is next"), "{said}");
    }
}

#[test]
fn explain_names_everything_that_would_wake_the_agent() {
    let sandbox = started("true");
    let review = sandbox
        .run(words("wait -a ada --on external --reason review --resource pr#1 --recheck 1h --expires 2h"));
    sandbox.run(["wait", "-a", "ada", "--on", "operator", "--reason", "a word"]);
    let item =
        sandbox.run(["work", "add", "-a", "ada", "ship", "--blocked-by", "the crane", "--recheck", "30m"]);
    let timer = sandbox.run(["timer", "add", "-a", "ada", "--every", "1d", "look"]);
    sandbox.run(["create", "kid", "--parent", "ada", "--", "true"]);
    let task = sandbox.run(["task", "start", "-a", "ada", "--delegate", "kid", "dig"]);
    let wakes = sandbox.json(["explain", "ada"])["wakes"].clone();
    let expected = json!([
        format!(
            "word about pr#1 (dormouse wake ada --resource pr#1), or dormouse wake ada --wait {}: review, looked at 2026-01-02T04:04:08.000Z (in 59m), and every 1h, given up 2026-01-02T05:04:08.000Z (in 1h59m)",
            review.trim()
        ),
        "an answer (dormouse enqueue ada TEXT): a word",
        format!("the result of {} (kid)", task.trim()),
        format!("{} fires 2026-01-03T03:04:11.000Z (in 23h59m): look", words(&timer)[0]),
        format!("a look at {}, 2026-01-02T03:34:10.000Z (in 29m)", item.trim()),
        "a message: dormouse enqueue ada TEXT",
    ]);
    assert_eq!(wakes, expected);
}

#[test]
fn explain_shows_the_decision_of_a_dry_run_with_its_reasons() {
    let sandbox = started("true");
    let id = say(&sandbox, "x");
    let explained = sandbox.json(["explain", "ada"]);
    assert_eq!(keys(&explained), ["agent", "decision", "ladder", "facts", "wakes", "on_wake", "advisories"]);
    let dry = sandbox.json(["tick", "ada", "--dry-run"]);
    for name in keys(&explained["decision"]) {
        assert_eq!(explained["decision"][name], dry[name], "{name}");
    }
    let ladder = explained["ladder"].as_array().unwrap();
    let expected = (1..=20).collect::<Vec<_>>();
    assert_eq!(ladder.iter().map(|rung| rung["number"].as_u64().unwrap()).collect::<Vec<_>>(), expected);
    for rung in ladder {
        assert_eq!(keys(rung), ["number", "decision", "reason", "holds"]);
    }
    let first = ladder.iter().find(|rung| rung["holds"] == true).unwrap();
    assert_includes(first, json!({ "number": 7, "decision": "start_model_turn" }));
    assert_eq!(explained["facts"]["message"]["id"], id.as_str());
    assert_eq!(explained["wakes"], json!(["a message: dormouse enqueue ada TEXT"]));
    let expected = json!([
        { "source": "message", "runs": "turn", "trigger_kind": "operator_input" },
        { "source": "hint", "runs": "nothing", "trigger_kind": "system_tick" },
    ]);
    assert_eq!(explained["on_wake"], expected);
    assert_eq!(explained["advisories"], json!([]));
    sandbox.run(["stop", "ada"]);
    assert_eq!(sandbox.json(["explain", "ada"])["wakes"], json!(["dormouse start ada"]));
}

#[test]
fn queued_input_without_ticks_and_frequent_retries_are_advisories() {
    let sandbox = started_with("exit 1", "\n[scheduler]\noverdue_after = \"1m\"\n[recovery]\nbase = \"0\"\n");
    decisions(&sandbox);
    say(&sandbox, "x");
    assert_eq!(advisories(&sandbox), ["idle_posture_has_queued_input"]);
    sandbox.pass(60);
    assert_eq!(advisories(&sandbox), ["idle_posture_has_queued_input", "nobody_ticks"]);
    for _ in 0..6 {
        step(&sandbox);
    }
    assert_eq!(advisories(&sandbox), ["message_retried_often"], "a step ends the advisory `nobody_ticks`");
    assert_eq!(sandbox.json(["explain", "ada"])["advisories"].as_array().unwrap().len(), 1);
}

#[test]
fn state_shows_the_current_state_the_next_states_and_the_history() {
    let sandbox = started("true");
    let state = sandbox.json(["state", "ada"]);
    let expected = json!({
        "agent": "ada", "state": "runnable", "code": 1, "since": "2026-01-02T03:04:07.000Z", "next": ["scheduled"],
        "terminal": false,
        "history": [{ "at": "2026-01-02T03:04:07.000Z", "from": "initializing", "to": "runnable", "cause": "start" }],
    });
    assert_eq!(state, expected);
    sandbox.cmd(["state", "ada"]).prints(
        "ada is runnable (1) since 2026-01-02T03:04:07.000Z (2s ago)\n\
         next: scheduled\n\
         2026-01-02T03:04:07.000Z  initializing → runnable  start\n",
    );
}

#[test]
fn state_lists_the_last_transitions_newest_first_with_their_causes() {
    let sandbox = started("echo no >&2; exit 3");
    say(&sandbox, "hello");
    let run = step(&sandbox)["run_id"].clone();
    let state = sandbox.json(["state", "ada"]);
    assert_eq!((&state["state"], &state["reason"]), (&json!("failed"), &json!("exit status 3: no")));
    let history = state["history"].as_array().unwrap().iter();
    let told: Vec<[&str; 3]> =
        history.map(|entry| ["from", "to", "cause"].map(|field| entry[field].as_str().unwrap())).collect();
    let expected = [
        ["running", "failed", "exit status 3: no"],
        ["scheduled", "running", "turn command starts"],
        ["runnable", "scheduled", "claimed"],
        ["initializing", "runnable", "start"],
    ];
    assert_eq!(told, expected);
    assert_eq!((&state["history"][0]["run_id"], state["history"][3].get("run_id")), (&run, None));
    for _ in 0..4 {
        sandbox.pass(100);
        decisions(&sandbox);
    }
    assert_eq!(sandbox.json(["state", "ada"])["history"].as_array().unwrap().len(), 10);
}

/// The table of the edges holds the answers `yes` and `no` of each pair of states.
#[test]
fn state_can_takes_the_name_or_the_code_of_a_state() {
    let sandbox = started("true");
    let asked = |word: &str| sandbox.cmd(["--json", "state", "ada", "--can", word]).output();
    for (name, code) in [("scheduled", "2"), ("suspended", "6"), ("failed", "9")] {
        assert_eq!(asked(name).stdout, asked(code).stdout);
        assert_eq!(asked(name).code(), asked(code).code());
    }
    let expected = "{\"agent\":\"ada\",\"state\":\"runnable\",\"target\":\"running\",\"can\":false}\n";
    asked("running").printed(4, expected);
    for unknown in ["12", "nowhere"] {
        assert_eq!(asked(unknown).code(), 2);
    }
}

#[test]
fn state_draws_the_23_edges_and_marks_the_edges_that_were_taken() {
    let sandbox = started("true");
    let mermaid = sandbox.run(["state", "ada", "--diagram"]);
    assert_eq!(mermaid, sandbox.run(["state", "ada", "--diagram", "mermaid"]));
    assert!(mermaid.starts_with("stateDiagram-v2\n    [*] --> initializing\n"), "{mermaid}");
    assert_eq!(mermaid.matches(" --> ").count(), 1 + 23);
    assert!(mermaid.ends_with("    class runnable current\n"), "{mermaid}");
    let dot = sandbox.run(["state", "ada", "--diagram", "dot"]);
    assert_eq!(dot.matches(" -> ").count(), 23);
    assert!(dot.contains("    runnable [style=\"rounded,bold\", penwidth=3];\n"), "{dot}");
    assert_eq!(sandbox.json(["state", "ada", "--diagram", "dot"])["diagram"], dot);
    for _ in 0..3 {
        step_on(&sandbox, "x");
    }
    let mermaid = sandbox.run(["state", "ada", "--diagram", "--history"]);
    for edge in
        ["initializing --> runnable : 1\n", "running --> completed : 3\n", "    suspended --> resumed\n"]
    {
        assert!(mermaid.contains(edge), "{edge}: {mermaid}");
    }
    assert_eq!(mermaid.matches(" --> ").count(), 1 + 23);
    let dot = sandbox.run(["state", "ada", "--diagram", "dot", "--history"]);
    assert!(dot.contains("    running -> completed [label=\"3\", penwidth=3];\n"), "{dot}");
    sandbox.cmd(["state", "ada", "--history"]).exits(2);
}

#[test]
fn runs_are_listed_newest_first_with_the_live_one() {
    let sandbox = started("test -e slow || exit 0; touch running; while [ ! -e go ]; do sleep 0.02; done");
    for _ in 0..3 {
        say(&sandbox, "x");
    }
    step(&sandbox);
    step(&sandbox);
    fs::write(sandbox.project().join("slow"), "").unwrap();
    let tick = tick_until_running(&sandbox);
    let runs = sandbox.json_lines(["run", "list", "-a", "ada"]);
    let at = |run: &Value| run["started_at"].as_str().unwrap().to_owned();
    assert_eq!(runs.len(), 3);
    assert!(at(&runs[0]) > at(&runs[1]) && at(&runs[1]) > at(&runs[2]));
    assert!(runs[0].get("terminal").is_none());
    assert_eq!(runs[1]["terminal"], "completed");
    let live = runs[0]["id"].as_str().unwrap();
    assert_eq!(sandbox.json(["run", "show", live])["pid"], tick.0.id());
    let ran = sandbox.cmd(["run", "list", "-a", "ada", "--limit", "1"]).output();
    let expected = (1, "dormouse: the newest 1; --limit 0 lists all\n");
    assert_eq!((ran.stdout.lines().count(), ran.stderr.as_str()), expected);
    fs::write(sandbox.project().join("go"), "").unwrap();
    tick.end();
    assert_eq!(sandbox.json(["run", "show", live])["terminal"], "completed");
}

#[test]
fn run_show_prints_the_record_of_the_run() {
    let sandbox = started("echo done");
    let message = say(&sandbox, "x");
    let stepped = step(&sandbox);
    let id = stepped["run_id"].as_str().unwrap();
    let run = sandbox.json(["run", "show", &id[20..]]);
    let line = fs::read(sandbox.agent("ada").join("archive/2026-01/run.jsonl")).unwrap();
    let mut stored: Value = serde_json::from_slice(&line).unwrap();
    stored.as_object_mut().unwrap().remove("schema");
    assert_eq!(run, stored);
    assert_includes(&run, json!({ "message_id": message, "brief": "done", "attempt": 1 }));
    assert_eq!([&run["closure"], &run["continuation"]], [&stepped["closure"], &stepped["continuation"]]);
    let text = sandbox.run(["run", "show", id]);
    assert!(text.lines().any(|line| line == "brief: done"), "{text}");
    let expected = "dormouse: no run `run_0000`\nhint: `dormouse run list` shows the ids\n";
    sandbox.cmd(["run", "show", "run_0000"]).status(3).complains(expected);
    let expected = "dormouse: `run` is too short for an id: give at least four digits of it, or `latest`\n";
    sandbox.cmd(["run", "show", "run"]).status(2).complains(expected);
}

#[test]
fn briefs_lists_the_newest_first_up_to_the_limit() {
    let sandbox = started("echo \"$DORMOUSE_NOW\"");
    for _ in 0..3 {
        step_on(&sandbox, "x");
    }
    sandbox.cmd(["briefs", "ada", "--limit", "2"]).prints(
        "2026-01-02T03:04:13.000Z  2026-01-02T03:04:13Z\n\
         2026-01-02T03:04:11.000Z  2026-01-02T03:04:11Z\n",
    );
    assert_eq!(sandbox.json_lines(["briefs", "ada", "--limit", "0"]).len(), 3);
    let brief = &sandbox.json_lines(["briefs", "ada"])[0];
    assert_eq!(keys(brief), ["run_id", "message_id", "at", "text"]);
}

#[test]
fn events_are_numbered_and_name_their_kind_agent_and_run() {
    let sandbox = started("true");
    say(&sandbox, "x");
    let run = step(&sandbox)["run_id"].clone();
    let events = sandbox.json_lines(["events", "ada"]);
    let seqs: Vec<u64> = events.iter().map(|event| event["seq"].as_u64().unwrap()).collect();
    assert_eq!(seqs, (1..=events.len() as u64).collect::<Vec<_>>());
    assert_eq!(field(&sandbox, "counters.events"), events.len().to_string());
    for event in &events {
        for name in ["id", "at", "kind", "agent"] {
            assert!(event[name].is_string(), "{event}");
        }
        assert!(event["data"].is_object(), "{event}");
    }
    let settled = sandbox.json(["events", "ada", "--kind", "run_settled"]);
    assert_includes(&settled, json!({ "run_id": run, "data.terminal": "completed" }));
}

#[test]
fn events_can_be_chosen_by_kind_time_and_number() {
    let sandbox = started("true");
    let started_at = "2026-01-02T03:04:07Z";
    sandbox.pass(3600);
    step(&sandbox);
    let kinds = |args: &[&str]| texts(&sandbox.json_lines([&["events", "ada"], args].concat()), "kind");
    assert_eq!(kinds(&["--since", "5m"]), ["scheduler_decision"]);
    assert_eq!(kinds(&["--since", "2d"]).len(), 5);
    assert_eq!(kinds(&["--since", started_at]).len(), 4);
    assert_eq!(kinds(&["--since", "2026-01-02 04:00"]), ["scheduler_decision"]);
    assert_eq!(kinds(&["--limit", "2"]), ["state_transition", "scheduler_decision"]);
    let expected = ["agent_created", "state_transition"];
    assert_eq!(kinds(&["--kind", "agent_created", "--kind", "state_transition"]), expected);
    for args in [["--since", "someday"], ["--kind", "party"], ["--limit", "-1"]] {
        sandbox.cmd(["events", "ada"].iter().chain(&args).copied()).exits(2);
    }
}

#[test]
fn events_follow_prints_new_events_and_ends_without_a_reader() {
    let sandbox = started("true");
    let follow = ["events", "ada", "--follow", "--json", "--kind", "control_applied"];
    let (mut follower, mut lines) = Beside::with_lines(sandbox.cmd(follow));
    let mut expect = |action: &str| {
        let event: Value = serde_json::from_str(&lines.next().unwrap()).unwrap();
        assert_eq!(event["data"]["action"], action);
    };
    expect("start");
    for verb in ["stop", "start"] {
        sandbox.run([verb, "ada"]);
        expect(verb);
    }
    drop(lines);
    // Without a reader, the follower ends when it prints its next line.
    let ended = eventually("the follower ends without a reader", || {
        sandbox.cmd(["stop", "ada"]).output();
        sandbox.cmd(["start", "ada"]).output();
        follower.0.try_wait().unwrap()
    });
    assert_eq!(ended.code(), Some(0));
}

#[test]
fn a_follower_omits_no_event_of_a_command_that_writes_several() {
    let sandbox = started("true");
    let follow = ["events", "ada", "--follow", "--json", "--limit", "1"];
    let (_follower, lines) = Beside::with_lines(sandbox.cmd(follow));
    let mut events = lines.map(|line| {
        let event = serde_json::from_str::<Value>(&line).unwrap();
        (event["seq"].as_u64().unwrap(), event["data"]["action"].as_str().map(str::to_owned))
    });
    let first = events.next().unwrap().0;
    let newest = sandbox.json_lines(["events", "ada"]).len() as u64;
    assert_eq!(first, newest, "`--limit 1` shows the newest event first");
    // `stop` and `start` each write several events at once, and the follower must print them all.
    sandbox.run(["stop", "ada"]);
    sandbox.run(["start", "ada"]);
    let mut seen = Vec::new();
    for (seq, action) in events.by_ref() {
        seen.push(seq);
        if action.as_deref() == Some("start") {
            break;
        }
    }
    assert!(seen.len() > 2, "{seen:?}");
    assert_eq!(seen, (first + 1..=first + seen.len() as u64).collect::<Vec<_>>());
}
