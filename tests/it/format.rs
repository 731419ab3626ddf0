//! Tests the files of format 1: a state directory of version 0.1 still loads, records are written
//! byte for byte as FORMAT.md shows them, and a damaged file is reported and not changed.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::harness::{Sandbox, copy_tree};
use crate::setup::{
    assert_includes, changes, failure, json_in, names, objects, only_file, only_object, started,
    started_with, tree, words,
};

/// Path of a state directory that version 0.1 has written on another machine.
fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/format-1")
}

/// Sandbox with a copy of the state directory of version 0.1. The clock begins on 2026-01-02.
fn old() -> Sandbox {
    let sandbox = Sandbox::empty();
    fs::create_dir(sandbox.store()).unwrap();
    copy_tree(&fixture(), &sandbox.store());
    sandbox
}

/// Returns the contents of all files below a directory, by their relative paths.
fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let files = tree(dir).into_keys().filter(|path| path.is_file());
    files.map(|path| (path.strip_prefix(dir).unwrap().to_owned(), fs::read(&path).unwrap())).collect()
}

/// Returns the values of one field of each line.
fn column<'a>(lines: &'a [Value], field: &str) -> Vec<&'a str> {
    lines.iter().map(|line| line[field].as_str().unwrap_or_default()).collect()
}

// Tests that load a state directory which version 0.1 has written

#[test]
fn the_old_state_directory_is_never_written_again() {
    let mut hash = Sha256::new();
    let found = files(&fixture());
    for (path, bytes) in &found {
        hash.update(path.as_os_str().as_encoded_bytes());
        hash.update([0]);
        hash.update((bytes.len() as u64).to_be_bytes());
        hash.update(bytes);
    }
    let hash: String = hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    assert_eq!((found.len(), hash.as_str()), (112, "04cf187800a3d1e2"), "the fixture was changed");
}

#[test]
fn the_records_of_an_old_state_directory_are_read_correctly() {
    let sandbox = old();
    let lines = |args: &[&str]| sandbox.json_lines(args.iter().copied());
    let list = lines(&["list"]);
    assert_eq!(column(&list, "agent"), ["ada", "bob", "cyd", "dora", "eve"]);
    let expected = ["has_queued_input", "has_queued_input", "archived", "idle", "blocked"];
    assert_eq!(column(&list, "posture"), expected);
    let expected = ["completed", "failed", "runnable", "initializing", "waiting_resources"];
    assert_eq!(column(&list, "execution_state"), expected);
    let pending: Vec<_> = list.iter().map(|line| line["pending"].as_u64().unwrap()).collect();
    assert_eq!(pending, [5, 1, 1, 0, 1]);

    let steps = lines(&["tick", "--all", "--dry-run"]);
    let decisions: BTreeMap<&str, &str> =
        steps.iter().map(|step| step["agent"].as_str().unwrap()).zip(column(&steps, "decision")).collect();
    let expected = [
        ("ada", "start_model_turn"),
        ("bob", "wait_for_timer"),
        ("cyd", "stop"),
        ("dora", "noop"),
        ("eve", "wait_for_resources"),
    ];
    assert_eq!(decisions, BTreeMap::from(expected));
    let ladder = sandbox.json(["explain", "ada"]);
    assert_eq!(ladder["decision"]["decision"], steps[0]["decision"]);

    let queue = lines(&["queue", "list", "-a", "ada"]);
    assert_eq!(column(&queue, "priority"), ["next", "normal", "normal", "normal", "background"]);
    assert_eq!(queue[1]["body"]["text"], "filed one");
    assert_eq!(queue[3]["body"]["value"], json!({ "action": "opened", "number": 14 }));
    assert_eq!(queue[4]["dedupe_key"], "slow");
    let retried = sandbox.json(["queue", "list", "-a", "bob"]);
    assert_eq!((&retried["attempt"], &retried["failures"][0]["attempt"]), (&json!(2), &json!(1)));
    let dead = sandbox.json(["queue", "dead", "-a", "bob"]);
    let expected = (&json!("never works"), 2);
    assert_eq!((&dead["body"]["text"], dead["failures"].as_array().unwrap().len()), expected);

    let work = lines(&["work", "list", "-a", "ada"]);
    assert_eq!(
        column(&work, "scheduling_state"),
        words("runnable waiting_operator waiting_task waiting_external waiting_timer waiting_system blocked")
    );
    let focus = work[1]["id"].as_str().unwrap();
    assert_eq!((&work[1]["current"], work[1]["todo"].as_array().unwrap().len()), (&json!(true), 3));
    assert_eq!(sandbox.run(["work", "plan", focus]), "# Plan\n\nAsk first.\n");
    let events = lines(&["events", "ada", "--kind", "work_transition"]);
    let completed = events.iter().find(|event| event["data"]["action"] == "complete").unwrap();
    let completed = sandbox.json(["work", "show", completed["data"]["work_item_id"].as_str().unwrap()]);
    assert_eq!((&completed["result"], &completed["objective"]), (&json!("approved"), &json!("already done")));

    let waits = lines(&["wait", "list", "-a", "ada"]);
    assert_eq!(column(&waits, "kind"), ["operator", "task", "external", "timer", "system", "external"]);
    assert_eq!(waits[5]["recoverability"], "explicit_no_fallback");
    let timers = lines(&["timer", "list", "-a", "ada"]);
    let schedules: Vec<_> = timers.iter().map(|timer| timer["schedule"]["type"].as_str().unwrap()).collect();
    assert_eq!(schedules, ["every", "at", "at", "cron"], "in order of the next firing");
    assert_eq!(timers[3]["next_at"], "2026-06-01T07:00:00.000Z");
    assert_eq!(timers.iter().filter(|timer| timer["message"]["dedupe_key"] == "later").count(), 1);

    let task = sandbox.json(["task", "list", "-a", "ada"]);
    assert_eq!((&task["host"], &task["status"]), (&json!("first-host"), &json!("running")));
    let ended = sandbox.json(["task", "list", "-a", "ada", "--ended"]);
    assert_eq!((&ended["status"], &ended["exit"]["code"]), (&json!("failed"), &json!(3)));
    assert_eq!(sandbox.run(["task", "output", ended["id"].as_str().unwrap()]), "one\n");

    let runs = lines(&["run", "list", "-a", "ada"]);
    assert_eq!(column(&runs, "terminal"), ["completed"; 5]);
    assert_eq!(column(&lines(&["briefs", "ada"]), "text")[4], "Reviewed #11");
    let first = runs[4]["id"].as_str().unwrap();
    assert_eq!(sandbox.json(["run", "show", first])["usage"]["model"], "m");
    let events = lines(&["events", "ada"]);
    assert!(events.iter().zip(1..).all(|(event, seq)| event["seq"] == seq));
    assert_eq!(events.len(), sandbox.json(["get", "ada"])["counters"]["events"].as_u64().unwrap() as usize);
    assert_eq!(sandbox.json(["state", "bob"])["next"], json!(["recovering"]));
    assert_eq!(sandbox.json(["get", "ada"])["pending_wake_hint"]["body"]["text"], "look again");
    assert_eq!(sandbox.json(["get", "eve"])["held"]["setbacks"]["deferrals"], 1);
    assert_eq!(sandbox.json(["next-wake", "bob"])["next_due_at"], "2026-03-02T00:43:00.000Z");
}

#[test]
fn reading_an_old_state_directory_changes_no_byte() {
    let sandbox = old();
    let before = tree(&sandbox.store());
    for line in [
        "list",
        "get ada",
        "explain ada",
        "explain bob",
        "state ada",
        "tick --all --dry-run",
        "queue list -a ada",
        "queue dead -a bob",
        "work list -a ada",
        "wait list -a ada",
        "timer list -a ada",
        "task list -a ada",
        "task list -a ada --ended",
        "run list -a ada",
        "briefs ada",
        "events ada",
        "next-wake ada bob cyd dora eve",
    ] {
        sandbox.run(line.split(' '));
        assert_eq!(changes(&before, &tree(&sandbox.store())), Vec::<PathBuf>::new(), "{line}");
    }
    let checked = sandbox.json_lines(["doctor"]);
    // Messages that have waited for long are only a warning.
    assert_eq!(checked.last().unwrap()["findings"], 0, "{checked:?}");
    // `doctor` writes only lock files, because it takes the lock of each agent during the check.
    let changed = changes(&before, &tree(&sandbox.store()));
    assert!(changed.iter().all(|path| path.file_name().unwrap() == "lock"), "{changed:?}");
}

#[test]
fn an_old_state_directory_can_be_used() {
    let sandbox = old();
    // Dedupe keys are known within their window, also without the cache, which a git clone lacks.
    for lost in [false, true] {
        if lost {
            fs::remove_dir_all(sandbox.agent("ada").join("cache")).unwrap();
        }
        for key in ["pr-11", "slow", "later"] {
            let args = ["enqueue", "ada", "again", "--json", "--dedupe-key", key];
            let answer = sandbox.cmd(args).env("DORMOUSE_NOW", "2026-01-01T12:00:00Z").output();
            assert_eq!(objects(&answer.stdout)[0]["duplicate"], true, "{key}, lost: {lost}");
        }
    }
    let steps = sandbox.json_lines(["tick", "--all", "--until-idle"]);
    let of = |agent: &str| -> Vec<String> {
        let steps = steps.iter().filter(|step| step["agent"] == agent);
        steps.map(|step| format!("{}: {}", step["decision"], step["reason"]).replace('"', "")).collect()
    };
    assert_eq!(of("ada")[..2], ["start_model_turn: operator_prompt", "start_model_turn: operator_prompt"]);
    assert_eq!(sandbox.run(["queue", "list", "-a", "ada"]), "");
    assert_eq!(names(&sandbox.agent("ada").join("inbox")), Vec::<String>::new());
    // After 61 days all scheduled messages and timers are due.
    sandbox.pass(61 * 86_400);
    // The status is 7 because the turns of one agent fail.
    let later = objects(&sandbox.cmd(["tick", "--all", "--until-idle", "--json"]).exits(7).stdout);
    let recovered = later.iter().filter(|step| step["agent"] == "bob").map(|step| &step["decision"]);
    assert!(recovered.into_iter().any(|decision| decision == "start_recovery"), "{later:#?}");
    let waits = sandbox.json_lines(["wait", "list", "-a", "ada"]);
    // The list has no wait that an operator's answer, a timer or an event has ended meanwhile.
    assert_eq!(column(&waits, "kind"), ["task", "external", "system"]);
    let checked = sandbox.json_lines(["doctor"]);
    assert_eq!(checked.last().unwrap()["findings"], 0, "a dead letter is a warning: {checked:?}");
}

/// Adds the violations of a schema to `found`. Knows the part of JSON Schema that the schemas in
/// the repository use. `root`: the schema for references; `at`: the path of the value.
fn violations(root: &Value, schema: &Value, value: &Value, at: &str, found: &mut Vec<String>) {
    if let Some(target) = schema["$ref"].as_str() {
        let target = root.pointer(target.trim_start_matches('#')).unwrap();
        violations(root, target, value, at, found);
    }
    let fits = |kind: &Value| match kind.as_str().unwrap() {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        other => panic!("an unknown type in a schema: {other}"),
    };
    let typed = match &schema["type"] {
        Value::Null => true,
        Value::Array(kinds) => kinds.iter().any(fits),
        kind => fits(kind),
    };
    let listed = schema["enum"].as_array().is_none_or(|words| words.contains(value));
    let same = schema.get("const").is_none_or(|one| one == value);
    if !(typed && listed && same) {
        found.push(format!("{at}: {value} does not fit"));
    }
    for choice in ["anyOf", "oneOf"] {
        let Some(schemas) = schema[choice].as_array() else { continue };
        let fits = |schema| {
            let mut wrong = Vec::new();
            violations(root, schema, value, at, &mut wrong);
            wrong.is_empty()
        };
        if !schemas.iter().any(fits) {
            found.push(format!("{at}: {value} fits no alternative"));
        }
    }
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if value.get(name).is_none() {
            found.push(format!("{at}: `{name}` is missing"));
        }
    }
    for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
        if let Some(value) = value.get(name) {
            violations(root, schema, value, &format!("{at}.{name}"), found);
        }
    }
    if let Some(items) = schema.get("items") {
        for (place, value) in value.as_array().into_iter().flatten().enumerate() {
            violations(root, items, value, &format!("{at}[{place}]"), found);
        }
    }
}

#[test]
fn old_records_fit_the_schemas() {
    let mut checked: BTreeMap<String, usize> = BTreeMap::new();
    let mut wrong = Vec::new();
    for (path, bytes) in files(&fixture()) {
        let text = String::from_utf8(bytes).unwrap();
        let values: Vec<Value> = match path.extension().and_then(|end| end.to_str()) {
            Some("json") => vec![serde_json::from_str(&text).unwrap()],
            Some("jsonl") => text.lines().map(|line| serde_json::from_str(line).unwrap()).collect(),
            _ => continue,
        };
        for value in values {
            // Contexts and outcomes of turns have no field `schema`.
            let Some(name) = value["schema"].as_str() else { continue };
            let (kind, version) = name.strip_prefix("dormouse/").unwrap().split_once('/').unwrap();
            assert_eq!(version, "1", "{}", path.display());
            // No version reads the context of an earlier turn. Another test checks new contexts.
            if kind == "context" {
                continue;
            }
            let place = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("schemas/{kind}.json"));
            let Ok(schema) = fs::read(&place) else { continue };
            let schema: Value = serde_json::from_slice(&schema).unwrap();
            violations(&schema, &schema, &value, &path.display().to_string(), &mut wrong);
            *checked.entry(kind.to_owned()).or_default() += 1;
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
    let kinds: Vec<&str> = checked.keys().map(String::as_str).collect();
    assert_eq!(
        kinds,
        words("brief dedupe event identity message run state task timer trigger wait wake_hint work")
    );
    // `violations` itself is tested with an invalid record.
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("schemas/wait.json");
    let schema = json_in(place);
    let mut wrong = Vec::new();
    let bad = json!({ "schema": "dormouse/wait/1", "kind": "never", "reason": 5 });
    violations(&schema, &schema, &bad, "x", &mut wrong);
    assert!(wrong.len() >= 4, "{wrong:?}");
}

/// Contexts and outcomes of turns satisfy their schemas.
#[test]
fn context_and_outcome_fit_their_schemas() {
    let schema =
        |kind: &str| -> Value { serde_json::from_str(&Sandbox::empty().run(["schema", kind])).unwrap() };
    let mut wrong = Vec::new();
    let context = schema("context");
    let sandbox = started("cat >../told");
    sandbox.run(["work", "add", "-a", "ada", "one", "--pick", "--plan", "prose"]);
    sandbox.run(["wait", "-a", "ada", "--on", "operator", "--reason", "why", "--resource", "r"]);
    sandbox.run(["enqueue", "ada", "an answer", "--resource", "r"]);
    sandbox.run(["tick", "ada"]);
    let told = fs::read(sandbox.project().join("../told")).unwrap();
    let told: Value = serde_json::from_slice(&told).unwrap();
    violations(&context, &context, &told, "told", &mut wrong);
    assert_eq!(wrong, Vec::<String>::new());
    assert_eq!(told["work"]["current"]["plan"], "prose");

    let outcome = schema("outcome");
    for (text, fits) in [
        (r#"{}"#, true),
        (
            r#"{"brief": "b", "actions": [{"do": "wait", "kind": "external", "reason": "r", "in": "1h"}]}"#,
            true,
        ),
        (r#"{"usage": {"cost_usd": 0.5}, "deferred": {"after": "2h"}}"#, true),
        (r#"{"actions": [{"do": "wait", "kind": "extern", "reason": "r"}]}"#, false),
        (r#"{"actions": [{"do": "enque", "text": "t"}]}"#, false),
        (r#"{"brief": 7}"#, false),
    ] {
        let value: Value = serde_json::from_str(text).unwrap();
        let mut wrong = Vec::new();
        violations(&outcome, &outcome, &value, "outcome", &mut wrong);
        assert_eq!(wrong.is_empty(), fits, "{text}: {wrong:?}");
        let checked = Sandbox::empty().cmd(["check-outcome", "-"]).stdin(text).output();
        assert_eq!(checked.code() == 0, fits, "{checked}");
    }
}

#[test]
fn an_outcome_is_checked_before_the_turn_ends() {
    let sandbox = Sandbox::empty();
    let file = sandbox.project().join("o.json");
    fs::write(
        &file,
        "{\"actions\": [\n  {\"do\": \"timer.add\", \"in\": \"1d\"},\n  {\"do\": \"wait\", \"kind\": 7}]}",
    )
    .unwrap();
    let answer = only_object(&sandbox.cmd(["check-outcome", "o.json", "--json"]).exits(6).stdout);
    let message = "o.json:3:3: $.actions[1]: invalid type: integer `7`, expected a string";
    let expected = json!({ "line": 3, "column": 3, "path": "o.json", "message": message });
    assert_includes(&answer["error"], expected);
    fs::write(&file, r#"{"actions": [{"do": "timer.add", "in": "1d"}]}"#).unwrap();
    sandbox.cmd(["check-outcome", "o.json"]).prints("o.json: an outcome with 1 action\n");
    let sandbox = started_with("true", "[limits]\nmax_actions = 1\n");
    let two = r#"{"actions": [{"do": "enqueue", "text": "a"}, {"do": "enqueue", "text": "b"}]}"#;
    let refused = sandbox.cmd(["check-outcome", "-", "-a", "ada"]).stdin(two).exits(6);
    refused.warns("stdin:1:13: $.actions: it has 2 actions, more than limits.max_actions = 1");
}

// Tests that new records have the documented bytes

#[test]
fn records_are_written_as_format_md_shows_them() {
    let sandbox = started("true");
    let id = |args: &[&str]| sandbox.run(args.iter().copied()).trim_end().to_owned();
    let todo = ["--todo", "one", "--todo", "[x] two", "--blocked-by", "the release", "--recheck", "1h"];
    let item = id(&[&["work", "add", "tidy up", "-a", "ada"][..], &todo].concat());
    let about = ["--work-item", &item, "--resource", "github:org/repo#12"];
    let deadlines = ["--recheck", "6h", "--expires", "1d", "--source", "github"];
    let wait = ["wait", "-a", "ada", "--on", "external", "--reason", "the author"];
    let wait = id(&[&wait[..], &about, &deadlines].concat());
    let timer = id(&["timer", "add", "-a", "ada", "--cron", "0 9 * * 1-5", "--tz", "Europe/Berlin", "look"]);
    let message = ["enqueue", "ada", "hello", "--dedupe-key", "k", "--correlation-id", "c", "--ttl", "1d"];
    let message = id(&[&message[..], &about].concat());
    let ids = [
        (item.as_str(), "work_ID"),
        (wait.as_str(), "wait_ID"),
        (timer.as_str(), "timer_ID"),
        (message.as_str(), "msg_ID"),
    ];
    let text = |path: &Path| {
        ids.iter().fold(fs::read_to_string(path).unwrap(), |text, (id, name)| text.replace(id, name))
    };
    let agent = sandbox.agent("ada");
    for (dir, id) in [("work", &item), ("waits", &wait), ("timers", &timer)] {
        assert_eq!(names(&agent.join(dir)), [format!("{id}.json")]);
    }
    assert_eq!(names(&agent.join("inbox")), [format!("2-{message}.json")]);
    assert_eq!(text(&agent.join("state.json")), STATE);
    assert_eq!(text(&only_file(&sandbox, "work")), WORK);
    assert_eq!(text(&only_file(&sandbox, "waits")), WAIT);
    assert_eq!(text(&only_file(&sandbox, "timers")), TIMER);
    assert_eq!(text(&only_file(&sandbox, "inbox")), MESSAGE);
    assert_eq!(text(&agent.join("identity.json")), IDENTITY);
}

const STATE: &str = r#"{
  "schema": "dormouse/state/1",
  "agent": "ada",
  "revision": 6,
  "status": "awake_idle",
  "execution": {
    "state": "runnable",
    "since": "2026-01-02T03:04:07.000Z"
  },
  "next_due_at": "2026-01-02T04:04:08.000Z",
  "counters": {
    "events": 8,
    "turns": 0,
    "turns_failed": 0,
    "messages_processed": 0,
    "messages_reduced": 0,
    "messages_dropped": 0,
    "dead": 0,
    "wakes": 0,
    "reduced_since_turn": 0,
    "input_tokens": 0,
    "output_tokens": 0,
    "cost_usd": 0.0
  }
}
"#;
const WORK: &str = r#"{
  "schema": "dormouse/work/1",
  "id": "work_ID",
  "agent": "ada",
  "objective": "tidy up",
  "state": "open",
  "plan_status": "ready",
  "todo": [
    {
      "text": "one",
      "done": false
    },
    {
      "text": "two",
      "done": true
    }
  ],
  "blocked_by": "the release",
  "recheck_at": "2026-01-02T04:04:08.000Z",
  "revision": 2,
  "created_at": "2026-01-02T03:04:08.000Z",
  "updated_at": "2026-01-02T03:04:09.000Z"
}
"#;
const WAIT: &str = r#"{
  "schema": "dormouse/wait/1",
  "id": "wait_ID",
  "agent": "ada",
  "kind": "external",
  "reason": "the author",
  "resource": "github:org/repo#12",
  "work_item_id": "work_ID",
  "recheck_at": "2026-01-02T09:04:09.000Z",
  "recheck_every": "6h",
  "expires_at": "2026-01-03T03:04:09.000Z",
  "source": "github",
  "status": "active",
  "created_at": "2026-01-02T03:04:09.000Z"
}
"#;
const TIMER: &str = r#"{
  "schema": "dormouse/timer/1",
  "id": "timer_ID",
  "agent": "ada",
  "schedule": {
    "type": "cron",
    "expression": "0 9 * * 1-5",
    "time_zone": "Europe/Berlin"
  },
  "catch_up": "once",
  "next_at": "2026-01-02T08:00:00.000Z",
  "body": {
    "type": "text",
    "text": "look"
  },
  "fired": 0,
  "missed": 0,
  "status": "active",
  "created_at": "2026-01-02T03:04:10.000Z"
}
"#;
const MESSAGE: &str = r#"{
  "schema": "dormouse/message/1",
  "id": "msg_ID",
  "agent": "ada",
  "kind": "operator_prompt",
  "priority": "normal",
  "origin": {
    "kind": "operator"
  },
  "authority_class": "operator_instruction",
  "delivery_surface": "cli",
  "admission_context": "local_process",
  "trigger_kind": "operator_input",
  "body": {
    "type": "text",
    "text": "hello"
  },
  "work_item_id": "work_ID",
  "resource": "github:org/repo#12",
  "correlation_id": "c",
  "dedupe_key": "k",
  "expires_at": "2026-01-03T03:04:11.000Z",
  "attempt": 1,
  "created_at": "2026-01-02T03:04:11.000Z"
}
"#;
const IDENTITY: &str = r#"{
  "schema": "dormouse/identity/1",
  "name": "ada",
  "kind": "named",
  "visibility": "public",
  "created_at": "2026-01-02T03:04:06.000Z"
}
"#;

// Tests of records with fields that a later version has added

fn edit(path: &Path, change: impl FnOnce(&mut Value)) {
    let mut value = json_in(path);
    change(&mut value);
    fs::write(path, format!("{}\n", serde_json::to_string_pretty(&value).unwrap())).unwrap();
}

/// Value of a field that this version does not know.
fn later() -> Value {
    json!({ "of a later version": [1, null, { "deep": 0.1 }] })
}

#[test]
fn unknown_fields_survive_every_rewrite() {
    let sandbox = started("exit 1");
    let id = |args: &[&str]| sandbox.run(args.iter().copied()).trim_end().to_owned();
    let item = id(&["work", "add", "tidy up", "-a", "ada"]);
    id(&["wait", "-a", "ada", "--whole-agent", "--on", "external", "--reason", "why", "--recheck", "1m"]);
    id(&["timer", "add", "-a", "ada", "--every", "1m", "look"]);
    let put_off = id(&["enqueue", "ada", "later", "--in", "1m"]);
    id(&["wake", "ada", "look"]);
    id(&["enqueue", "ada", "hello"]);
    let agent = sandbox.agent("ada");
    for dir in ["inbox", "work", "waits", "timers"] {
        for name in names(&agent.join(dir)) {
            edit(&agent.join(dir).join(name), |record| {
                record["later"] = later();
                if record["message"].is_object() {
                    record["message"]["later"] = later();
                }
            });
        }
    }
    edit(&agent.join("state.json"), |state| {
        state["later"] = later();
        state["counters"]["later"] = later();
    });
    sandbox.pass(120);
    sandbox.cmd(["tick", "ada"]).exits(7);
    sandbox.run(["work", "update", &item, "--objective", "tidy up more"]);

    let state = json_in(agent.join("state.json"));
    assert_eq!((&state["later"], &state["counters"]["later"]), (&later(), &later()));
    assert_eq!(state["pending_wake_hint"]["later"], later(), "{state}");
    let mut rewritten = Vec::new();
    for dir in ["inbox", "work", "waits", "timers"] {
        for name in names(&agent.join(dir)) {
            let text = fs::read(agent.join(dir).join(&name)).unwrap();
            let record: Value = serde_json::from_slice(&text).unwrap();
            // This version has just created these messages, so they lack the later version's field.
            let is_new = record["kind"] == "system_tick" || record["kind"] == "timer_tick";
            assert!(is_new || record["later"] == later(), "{dir}/{name}: {record}");
            let changed = [&record["failures"], &record["rechecked_at"], &record["last_fired_at"]];
            if changed.iter().any(|field| !field.is_null()) || record["revision"] == 2 {
                let is_put_off = record["id"] == put_off.as_str();
                assert_eq!(dir == "inbox", is_put_off, "the scheduled message came first");
                rewritten.push(record["schema"].as_str().unwrap().to_owned());
            }
        }
    }
    rewritten.sort_unstable();
    let kinds = ["dormouse/message/1", "dormouse/timer/1", "dormouse/wait/1", "dormouse/work/1"];
    assert_eq!(rewritten, kinds, "some kinds of records were not rewritten");

    sandbox.run(["work", "complete", &item]);
    let archived = fs::read_to_string(agent.join("archive/2026-01/work.jsonl")).unwrap();
    let archived: Value = serde_json::from_str(archived.trim_end()).unwrap();
    assert_eq!((&archived["later"], &archived["state"]), (&later(), &json!("completed")));
}

#[test]
fn a_record_of_a_later_version_is_refused_and_not_changed() {
    for (dir, kind) in RECORDS {
        let sandbox = old();
        let path = record_in(&sandbox, dir);
        edit(&path, |record| record["schema"] = json!(format!("dormouse/{kind}/2")));
        let failed = is_refused(&sandbox, &path, "a later version");
        assert_eq!(failed["kind"], "newer_schema", "{dir}: {failed}");
        let says = failed["message"].as_str().unwrap();
        assert!(says.contains(&format!("dormouse/{kind}/2")), "{says}");
        let hint = failed["hint"].as_str().unwrap_or_default();
        assert!(!hint.is_empty(), "{failed}");
    }
}

// Tests of damaged records

/// Directory and kind of the records that a step must be able to read. Messages are not among them,
/// because a step quarantines a message that it can't read.
const RECORDS: &[(&str, &str)] =
    &[("", "state"), ("work", "work"), ("waits", "wait"), ("timers", "timer"), ("tasks", "task")];

/// Returns the path of the first record in a directory of `ada`.
fn record_in(sandbox: &Sandbox, dir: &str) -> PathBuf {
    let agent = sandbox.agent("ada");
    if dir.is_empty() {
        return agent.join("state.json");
    }
    let names = names(&agent.join(dir));
    let first = names.iter().find(|name| name.ends_with(".json"));
    agent.join(dir).join(first.unwrap())
}

/// Returns the files of the state directory without locks, which reading commands may create.
fn records(sandbox: &Sandbox) -> BTreeMap<PathBuf, (u32, Vec<u8>, i64)> {
    let mut records = tree(&sandbox.store());
    records.retain(|path, _| !["lock", "run.lock"].map(OsStr::new).contains(&path.file_name().unwrap()));
    records
}

/// Asserts that commands of an agent with a damaged record fail with the path and exit status 6 and
/// change nothing, and that other agents still work. Returns the failure.
#[track_caller]
fn is_refused(sandbox: &Sandbox, path: &Path, what: &str) -> Value {
    let case = format!("{what}: {}", path.display());
    let before = records(sandbox);
    let mut failed = Value::Null;
    for line in ["tick ada", "explain ada", "get ada", "work add more -a ada"] {
        let ran = sandbox.cmd(["--json"].into_iter().chain(line.split(' '))).exits(6);
        failed = failure(&ran);
        assert_eq!(failed["path"].as_str(), path.to_str(), "{case}: {line}: {failed}");
        assert_eq!(changes(&before, &records(sandbox)), Vec::<PathBuf>::new(), "{case}: {line}");
    }
    let ran = sandbox.cmd(["list", "--json"]).output();
    let lines = objects(&ran.stdout);
    assert_eq!((ran.code(), lines.len()), (6, 5), "{case}: {ran}");
    let read = |line: &&Value| line["agent"].is_string() && line.get("error").is_none();
    assert_eq!(lines.iter().filter(read).count(), 4, "{case}: {ran}");
    let found = sandbox.cmd(["doctor", "--json"]).output();
    assert_eq!(found.code(), 6, "{case}: doctor: {found}");
    assert!(found.stdout.contains(path.to_str().unwrap()), "{case}: doctor: {found}");
    assert_eq!(changes(&before, &records(sandbox)), Vec::<PathBuf>::new(), "{case}: list and doctor");
    sandbox.run(["start", "dora"]);
    sandbox.run(["enqueue", "dora", "hello"]);
    assert_eq!(sandbox.json(["tick", "dora"])["terminal"], "completed", "{case}: another agent");
    failed
}

#[test]
fn a_damaged_record_is_reported_and_not_changed() {
    type Damage = fn(&Path);
    let damages: &[(&str, &str, Damage)] = &[
        ("conflict markers", ":2:1: ", |path| {
            let text = fs::read_to_string(path).unwrap();
            let (first, rest) = text.split_once('\n').unwrap();
            let both = format!("{first}\n<<<<<<< ours\n{rest}=======\n{rest}>>>>>>> theirs\n");
            fs::write(path, both).unwrap();
        }),
        ("half a file", ":", |path| {
            let bytes = fs::read(path).unwrap();
            fs::write(path, &bytes[..bytes.len() / 2]).unwrap();
        }),
        ("an empty file", ":", |path| fs::write(path, "").unwrap()),
        ("zeros", ":1:1: ", |path| fs::write(path, [0; 512]).unwrap()),
        ("a list", ":1", |path| fs::write(path, "[]\n").unwrap()),
        ("another kind", ": ", |path| edit(path, |record| record["schema"] = json!("dormouse/brief/1"))),
        ("no schema", ": ", |path| {
            edit(path, |record| drop(record.as_object_mut().unwrap().shift_remove("schema")));
        }),
        ("an unknown state", ":", |path| {
            edit(path, |record| {
                for field in ["state", "status"] {
                    record[field] = json!("sleepy");
                }
            });
        }),
        ("a symbolic link", "", |path| {
            let aside = path.with_file_name(".aside");
            fs::rename(path, &aside).unwrap();
            symlink(&aside, path).unwrap();
        }),
        ("a directory", "", |path| {
            fs::remove_file(path).unwrap();
            fs::create_dir(path).unwrap();
        }),
    ];
    for (dir, _) in RECORDS {
        for (what, place, damage) in damages {
            let sandbox = old();
            let path = record_in(&sandbox, dir);
            damage(&path);
            let failed = is_refused(&sandbox, &path, what);
            let says = failed["message"].as_str().unwrap();
            let at = format!("{}{place}", path.display());
            assert!(says.contains(&at), "{what}: {says}");
        }
    }
}

#[test]
fn a_record_under_another_name_is_reported_and_not_changed() {
    for (dir, kind) in RECORDS.iter().filter(|(dir, _)| !dir.is_empty()) {
        let sandbox = old();
        let path = record_in(&sandbox, dir);
        let name = path.file_name().unwrap().to_str().unwrap();
        let other = path.with_file_name(format!("{}{}.json", &name[..name.len() - 37], "0".repeat(32)));
        fs::rename(&path, &other).unwrap();
        is_refused(&sandbox, &other, &format!("a {kind} under another name"));
    }
}

#[test]
fn an_unreadable_record_is_reported_and_not_changed() {
    let sandbox = old();
    let path = record_in(&sandbox, "work");
    let before = records(&sandbox);
    let permissions = fs::metadata(&path).unwrap().permissions();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
    if fs::read(&path).is_ok() {
        // Root can read the file in spite of its mode, so the test can't cause the error.
        return;
    }
    let ran = sandbox.cmd(["tick", "ada", "--json"]).output();
    assert_eq!((ran.code(), failure(&ran)["path"].as_str()), (1, path.to_str()), "{ran}");
    fs::set_permissions(&path, permissions).unwrap();
    assert_eq!(changes(&before, &records(&sandbox)), Vec::<PathBuf>::new());
}
