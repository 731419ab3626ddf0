//! Tests which damage `doctor` finds, what it repairs, and what it leaves to people.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::harness::Sandbox;
use crate::setup::{
    changes, edit_file, edit_state, field, mode, names, objects, only_file, record, say, started, step,
    step_on, texts, tree,
};
use crate::sharing::mode as set_mode;

/// Runs `doctor`, and returns its findings.
#[track_caller]
fn findings(sandbox: &Sandbox, args: &[&str], status: i32) -> Vec<Value> {
    let ran = sandbox.cmd(["doctor", "--json"].iter().chain(args).copied()).exits(status);
    let mut lines = objects(&ran.stdout);
    let last = lines.pop().unwrap();
    assert!(last["checked"].is_u64(), "{last}");
    let open = lines.iter().filter(|finding| finding["repaired"] == false).count();
    assert_eq!(last["findings"], open);
    lines
}

fn kinds(findings: &[Value]) -> Vec<&str> {
    findings.iter().map(|finding| finding["kind"].as_str().unwrap()).collect()
}

/// Path of a file of `ada`.
fn ada(sandbox: &Sandbox, path: &str) -> PathBuf {
    sandbox.agent("ada").join(path)
}

/// Sets a field of `state.json` of `ada`, such as `counters.dead`.
fn set(sandbox: &Sandbox, field: &str, value: impl Into<Value>) {
    edit_state(sandbox, |state| *field.split('.').fold(state, |found, name| &mut found[name]) = value.into());
}

/// Asserts that no file has changed except the lock of `ada`, which names its last holder.
#[track_caller]
fn assert_unchanged(sandbox: &Sandbox, before: &BTreeMap<PathBuf, (u32, Vec<u8>, i64)>) {
    let mut changed = changes(before, &tree(&sandbox.store()));
    changed.retain(|path| *path != ada(sandbox, "lock"));
    assert_eq!(changed, Vec::<PathBuf>::new());
}

#[test]
fn doctor_finds_nothing_in_a_healthy_state_directory() {
    let sandbox = started("true");
    step_on(&sandbox, "x");
    say(&sandbox, "y");
    sandbox.run(["wake", "ada"]);
    let before = tree(&sandbox.store());
    assert_eq!(findings(&sandbox, &[], 0), Vec::<Value>::new());
    assert_eq!(findings(&sandbox, &["--repair"], 0), Vec::<Value>::new());
    assert_eq!(findings(&sandbox, &["ada"], 0), Vec::<Value>::new());
    assert_unchanged(&sandbox, &before);
    sandbox
        .cmd(["doctor", "nobody"])
        .status(3)
        .stdout("0 records in 0 agents: not everything was checked\n")
        .complains("dormouse: no agent `nobody`\nhint: there is ada\n");
}

#[test]
fn each_kind_of_damage_is_found_with_its_place() {
    type Damage = fn(&Sandbox);
    let cases: &[(&str, &str, Damage)] = &[
        ("damaged", "state.json", |sandbox| fs::write(ada(sandbox, "state.json"), "{").unwrap()),
        ("newer_schema", "state.json", |sandbox| set(sandbox, "schema", "dormouse/state/2")),
        ("status_table", "state.json", |sandbox| set(sandbox, "status", "awake_running")),
        ("current_run", "state.json", |sandbox| {
            set(sandbox, "execution.state", "running");
            set(sandbox, "status", "awake_running");
        }),
        ("wrong_owner", "state.json", |sandbox| set(sandbox, "agent", "bob")),
        ("damaged", "identity.json", |sandbox| fs::remove_file(ada(sandbox, "identity.json")).unwrap()),
        ("damaged", "agent.toml", |sandbox| fs::write(ada(sandbox, "agent.toml"), "x =").unwrap()),
        ("damaged", "inbox/", |sandbox| {
            fs::write(only_file(sandbox, "inbox"), "{\"schema\": \"dormouse/message/1\"}").unwrap();
        }),
        ("wrong_name", "inbox/", |sandbox| {
            let path = only_file(sandbox, "inbox");
            fs::rename(&path, path.with_file_name(format!("1-msg_{}.json", "0".repeat(32)))).unwrap();
        }),
        ("damaged", "ledger/2026-01.jsonl", |sandbox| {
            edit_file(&ada(sandbox, "ledger/2026-01.jsonl"), |text| text.replacen('{', "<", 1));
        }),
        ("damaged", "archive/2026-01/message.jsonl", |sandbox| {
            edit_file(&ada(sandbox, "archive/2026-01/message.jsonl"), |text| text + "{\"half\": ");
        }),
        ("dead_count", "state.json", |sandbox| set(sandbox, "counters.dead", 3)),
        ("outbox_count", "state.json", |sandbox| {
            set(sandbox, "outbox", json!({ "messages": 2, "bytes": 900 }));
        }),
        ("task_count", "state.json", |sandbox| {
            let id = format!("task_{}", "0".repeat(32));
            let task = json!({
                "schema": "dormouse/task/1", "id": id, "agent": "ada",
                "job": { "kind": "command", "argv": ["true"] }, "status": "running", "notify": true,
                "host": "elsewhere", "boot_id": "another", "created_at": "2026-01-02T03:04:05.000Z",
            });
            fs::write(ada(sandbox, &format!("tasks/{id}.json")), format!("{task}\n")).unwrap();
        }),
        ("orphaned_run", "runs/", |sandbox| {
            fs::create_dir(ada(sandbox, &format!("runs/run_{}", "0".repeat(32)))).unwrap();
        }),
        ("damaged", "journal.jsonl", |sandbox| {
            fs::write(ada(sandbox, "journal.jsonl"), "half\na journal").unwrap()
        }),
        ("writable_by_others", "inbox", |sandbox| set_mode(&ada(sandbox, "inbox"), 0o777)),
        ("damaged", "waits", |sandbox| {
            fs::remove_dir(ada(sandbox, "waits")).unwrap();
            symlink("/tmp", ada(sandbox, "waits")).unwrap();
        }),
    ];
    for (kind, path, damage) in cases {
        let sandbox = started("true");
        step_on(&sandbox, "x");
        say(&sandbox, "y");
        damage(&sandbox);
        let before = tree(&sandbox.store());
        let found = findings(&sandbox, &[], 6);
        assert_unchanged(&sandbox, &before);
        assert_eq!(kinds(&found), [*kind], "{path}: {found:?}");
        let at = found[0]["path"].as_str().unwrap();
        assert!(at.starts_with(ada(&sandbox, path.trim_end_matches('/')).to_str().unwrap()), "{path}: {at}");
        for name in ["agent", "message", "repair"] {
            assert!(found[0][name].is_string(), "{name}: {found:?}");
        }
    }
}

#[test]
fn doctor_prints_a_line_for_each_finding() {
    let sandbox = started("true");
    fs::write(ada(&sandbox, "state.json"), "{\n  \"schema\": ]\n}\n").unwrap();
    sandbox
        .cmd(["doctor"])
        .status(6)
        .prints(
            "[SANDBOX]/project/.dormouse/agents/ada/state.json: damaged: line 2, column 13: expected value [restore it from git, a backup or an export: without it there is no agent, so `dormouse doctor --repair` leaves it where it is]\n\
             3 records in 1 agent: 1 open\n",
        );
}

#[test]
fn a_repair_moves_an_unreadable_message_to_quarantine() {
    let sandbox = started("true");
    step_on(&sandbox, "x");
    say(&sandbox, "broken");
    let path = only_file(&sandbox, "inbox");
    let name = path.file_name().unwrap().to_str().unwrap().to_owned();
    fs::write(&path, "half a mess").unwrap();
    say(&sandbox, "whole");
    let found = findings(&sandbox, &["--repair"], 0);
    assert_eq!((kinds(&found), &found[0]["repaired"]), (vec!["damaged"], &json!(true)));
    let kept = fs::read_to_string(ada(&sandbox, &format!("quarantine/inbox__{name}"))).unwrap();
    assert_eq!(kept, "half a mess");
    assert_eq!(findings(&sandbox, &[], 0), Vec::<Value>::new());
    let repaired = sandbox.json(["events", "ada", "--kind", "record_repaired"]);
    assert_eq!(repaired["data"]["path"], format!("inbox/{name}"));
    assert_eq!(step(&sandbox)["terminal"], "completed");
}

#[test]
fn a_repair_moves_broken_lines_to_quarantine_and_keeps_the_others() {
    let sandbox = started("true");
    step_on(&sandbox, "x");
    let path = ada(&sandbox, "ledger/2026-01.jsonl");
    let text = fs::read_to_string(&path).unwrap();
    let (first, rest) = text.split_once('\n').unwrap();
    fs::write(&path, format!("{first}\n<<<<<<< HEAD\n{rest}not json\n")).unwrap();
    sandbox.cmd(["events", "ada"]).exits(6);
    let found = findings(&sandbox, &["--repair"], 0);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(fs::read_to_string(&path).unwrap().starts_with(&text), "a complete line was removed");
    let kept = fs::read_to_string(ada(&sandbox, "quarantine/ledger__2026-01.jsonl")).unwrap();
    assert_eq!(kept, "<<<<<<< HEAD\nnot json\n");
    sandbox.run(["events", "ada"]);
}

#[test]
fn a_file_without_a_valid_line_is_moved_to_quarantine_unchanged() {
    let sandbox = started("true");
    step_on(&sandbox, "x");
    let path = ada(&sandbox, "archive/2026-01/wait.jsonl");
    let text = "{\n  \"schema\": \"dormouse/identity/1\",\n  \"name\": \"kim\"\n}\n";
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, text).unwrap();
    let found = findings(&sandbox, &["--repair"], 0);
    assert_eq!(kinds(&found), ["damaged"]);
    let kept = ada(&sandbox, "quarantine/archive__2026-01__wait.jsonl");
    assert_eq!(fs::read_to_string(kept).unwrap(), text);
    assert!(findings(&sandbox, &[], 0).is_empty());
}

#[test]
fn a_hook_that_is_no_program_is_reported_once() {
    let sandbox = started("true");
    sandbox.run(["create", "bob", "--", "true"]);
    let hook = sandbox.store().join("hooks/on-attention");
    fs::write(&hook, "#!/bin/sh\n").unwrap();
    let ran = sandbox.cmd(["doctor"]).exits(0);
    assert_eq!(ran.stderr.matches("hooks/on-attention is no program").count(), 1, "{ran}");
    set_mode(&hook, 0o755);
    assert_eq!(sandbox.cmd(["doctor"]).output().stderr, "");
    // A misspelt hook never runs either; the name of a file that hooks use is not like theirs.
    for name in ["on-atention", "library.sh"] {
        crate::harness::write_program(&sandbox.agent("ada").join("hooks").join(name), "#!/bin/sh\n");
    }
    let ran = sandbox.cmd(["doctor"]).exits(0);
    assert!(
        ran.stderr.contains("hooks/on-atention is never run") && !ran.stderr.contains("library"),
        "{ran}"
    );
}

#[test]
fn a_repair_corrects_counters_and_file_modes() {
    let sandbox = started("true");
    set(&sandbox, "counters.dead", 3);
    let inbox = ada(&sandbox, "inbox");
    set_mode(&inbox, 0o777);
    let found = findings(&sandbox, &["--repair"], 0);
    assert_eq!(kinds(&found), ["dead_count", "writable_by_others"]);
    assert_eq!(field(&sandbox, "queue.dead"), "0");
    assert_eq!(mode(&inbox), 0o775);
    assert_eq!(findings(&sandbox, &[], 0), Vec::<Value>::new());
}

#[test]
fn files_that_others_may_read_are_no_finding() {
    let sandbox = started("true");
    for path in tree(&sandbox.store()).into_keys() {
        set_mode(&path, if path.is_dir() { 0o755 } else { 0o644 });
    }
    sandbox.run(["doctor"]);
}

#[test]
fn a_repair_changes_nothing_that_has_more_than_one_possible_remedy() {
    let sandbox = started("true");
    set(&sandbox, "status", "awake_running");
    let before = fs::read(ada(&sandbox, "state.json")).unwrap();
    let found = findings(&sandbox, &["--repair"], 6);
    assert_eq!((kinds(&found), &found[0]["repair"]), (vec!["status_table"], &json!("by hand")));
    assert_eq!(fs::read(ada(&sandbox, "state.json")).unwrap(), before);
    assert_eq!(names(&ada(&sandbox, "quarantine")), Vec::<String>::new());
}

#[test]
fn a_newer_record_is_never_moved() {
    let sandbox = started("true");
    say(&sandbox, "x");
    let path = only_file(&sandbox, "inbox");
    let text = fs::read_to_string(&path).unwrap().replace("dormouse/message/1", "dormouse/message/2");
    fs::write(&path, &text).unwrap();
    assert_eq!(kinds(&findings(&sandbox, &["--repair"], 6)), ["newer_schema"]);
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
}

#[test]
fn files_that_are_no_agents_are_reported() {
    let sandbox = started("true");
    let agents = sandbox.store().join("agents");
    fs::create_dir(agents.join("No Agent")).unwrap();
    fs::write(agents.join("file"), "").unwrap();
    symlink("ada", agents.join("link")).unwrap();
    let found = findings(&sandbox, &[], 6);
    assert_eq!(kinds(&found), ["not_an_agent", "not_an_agent", "not_an_agent"]);
    sandbox.cmd(["list", "--columns", "agent,posture"]).prints("AGENT  POSTURE\nada    idle\n");
}

#[test]
fn doctor_checks_other_agents_after_one_without_a_state() {
    let sandbox = started("true");
    sandbox.run(["create", "bob", "--", "true"]);
    fs::remove_file(ada(&sandbox, "state.json")).unwrap();
    edit_file(&sandbox.agent("bob").join("identity.json"), |text| text.replace("\"bob\"", "\"eve\""));
    assert_eq!(texts(&findings(&sandbox, &[], 6), "agent"), ["ada", "bob"]);
    assert_eq!(record(&sandbox, "identity.json")["name"], "ada");
}
