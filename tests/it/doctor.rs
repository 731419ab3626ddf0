//! `doctor`: what it finds, what it mends, and what it leaves to people.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use serde_json::{Value, json};

use crate::harness::Sandbox;
use crate::setup::{
    changes, edit_file, edit_state, field, mode, names, objects, only_file, record, say, started, step,
    step_on, tree,
};

/// The findings of a doctor that finds something.
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

#[test]
fn a_healthy_state_directory_has_nothing_wrong() {
    let sandbox = started("true");
    step_on(&sandbox, "x");
    say(&sandbox, "y");
    sandbox.run(["wake", "ada"]);
    let before = tree(&sandbox.store());
    assert_eq!(findings(&sandbox, &[], 0), Vec::<Value>::new());
    assert_eq!(findings(&sandbox, &["--repair"], 0), Vec::<Value>::new());
    assert_eq!(findings(&sandbox, &["ada"], 0), Vec::<Value>::new());
    let lock = sandbox.agent("ada").join("lock");
    let changed: Vec<_> =
        changes(&before, &tree(&sandbox.store())).into_iter().filter(|path| *path != lock).collect();
    assert_eq!(changed, Vec::<std::path::PathBuf>::new());
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
        ("damaged", "state.json", |sandbox| {
            fs::write(sandbox.agent("ada").join("state.json"), "{").unwrap();
        }),
        ("newer_schema", "state.json", |sandbox| {
            edit_state(sandbox, |state| state["schema"] = json!("dormouse/state/2"));
        }),
        ("status_table", "state.json", |sandbox| {
            edit_state(sandbox, |state| state["status"] = json!("awake_running"));
        }),
        ("current_run", "state.json", |sandbox| {
            edit_state(sandbox, |state| {
                state["execution"]["state"] = json!("running");
                state["status"] = json!("awake_running");
            });
        }),
        ("wrong_owner", "state.json", |sandbox| edit_state(sandbox, |state| state["agent"] = json!("bob"))),
        ("damaged", "identity.json", |sandbox| {
            fs::remove_file(sandbox.agent("ada").join("identity.json")).unwrap();
        }),
        ("damaged", "agent.toml", |sandbox| {
            fs::write(sandbox.agent("ada").join("agent.toml"), "x =").unwrap();
        }),
        ("damaged", "inbox/", |sandbox| {
            fs::write(only_file(sandbox, "inbox"), "{\"schema\": \"dormouse/message/1\"}").unwrap();
        }),
        ("wrong_name", "inbox/", |sandbox| {
            let path = only_file(sandbox, "inbox");
            fs::rename(&path, path.with_file_name(format!("1-msg_{}.json", "0".repeat(32)))).unwrap();
        }),
        ("damaged", "ledger/2026-01.jsonl", |sandbox| {
            edit_file(&sandbox.agent("ada").join("ledger/2026-01.jsonl"), |text| text.replacen('{', "<", 1));
        }),
        ("damaged", "archive/2026-01/message.jsonl", |sandbox| {
            edit_file(&sandbox.agent("ada").join("archive/2026-01/message.jsonl"), |text| {
                format!("{text}{{\"half\": ")
            });
        }),
        ("dead_count", "state.json", |sandbox| {
            edit_state(sandbox, |state| state["counters"]["dead"] = json!(3))
        }),
        ("outbox_count", "state.json", |sandbox| {
            edit_state(sandbox, |state| state["outbox"] = json!({ "messages": 2, "bytes": 900 }));
        }),
        ("task_count", "state.json", |sandbox| {
            let id = format!("task_{}", "0".repeat(32));
            let task = json!({
                "schema": "dormouse/task/1", "id": id, "agent": "ada",
                "job": { "kind": "command", "argv": ["true"] }, "status": "running", "notify": true,
                "host": "elsewhere", "boot_id": "another", "created_at": "2026-01-02T03:04:05.000Z",
            });
            let path = sandbox.agent("ada").join("tasks").join(format!("{id}.json"));
            fs::write(path, format!("{task}\n")).unwrap();
        }),
        ("orphaned_run", "runs/", |sandbox| {
            fs::create_dir(sandbox.agent("ada").join(format!("runs/run_{}", "0".repeat(32)))).unwrap();
        }),
        ("damaged", "journal.jsonl", |sandbox| {
            fs::write(sandbox.agent("ada").join("journal.jsonl"), "half\na journal").unwrap();
        }),
        ("writable_by_others", "inbox", |sandbox| {
            fs::set_permissions(sandbox.agent("ada").join("inbox"), fs::Permissions::from_mode(0o777))
                .unwrap();
        }),
        ("damaged", "waits", |sandbox| {
            fs::remove_dir(sandbox.agent("ada").join("waits")).unwrap();
            symlink("/tmp", sandbox.agent("ada").join("waits")).unwrap();
        }),
    ];
    for (kind, path, damage) in cases {
        let sandbox = started("true");
        step_on(&sandbox, "x");
        say(&sandbox, "y");
        damage(&sandbox);
        let before = tree(&sandbox.store());
        let found = findings(&sandbox, &[], 6);
        let lock = sandbox.agent("ada").join("lock");
        let changed: Vec<_> =
            changes(&before, &tree(&sandbox.store())).into_iter().filter(|path| *path != lock).collect();
        assert_eq!(changed, Vec::<std::path::PathBuf>::new(), "{kind} in {path}: looking changes nothing");
        assert_eq!(kinds(&found), [*kind], "{path}: {found:?}");
        let at = found[0]["path"].as_str().unwrap();
        assert!(
            at.starts_with(sandbox.agent("ada").join(path.trim_end_matches('/')).to_str().unwrap()),
            "{path}: {at}"
        );
        for name in ["agent", "message", "repair"] {
            assert!(found[0][name].is_string(), "{name}: {found:?}");
        }
    }
}

#[test]
fn findings_for_people_are_a_line_each() {
    let sandbox = started("true");
    fs::write(sandbox.agent("ada").join("state.json"), "{\n  \"schema\": ]\n}\n").unwrap();
    sandbox
        .cmd(["doctor"])
        .status(6)
        .prints(
            "[SANDBOX]/project/.dormouse/agents/ada/state.json: damaged: line 2, column 13: expected value [restore it from git, a backup or an export: without it there is no agent, so `dormouse doctor --repair` leaves it where it is]\n\
             3 records in 1 agent: 1 open\n",
        );
}

#[test]
fn a_repair_moves_what_can_not_be_read_to_quarantine() {
    let sandbox = started("true");
    step_on(&sandbox, "x");
    say(&sandbox, "broken");
    let path = only_file(&sandbox, "inbox");
    let name = path.file_name().unwrap().to_str().unwrap().to_owned();
    fs::write(&path, "half a mess").unwrap();
    say(&sandbox, "whole");
    let found = findings(&sandbox, &["--repair"], 0);
    assert_eq!((kinds(&found), &found[0]["repaired"]), (vec!["damaged"], &json!(true)));
    assert_eq!(
        fs::read_to_string(sandbox.agent("ada").join(format!("quarantine/inbox__{name}"))).unwrap(),
        "half a mess"
    );
    assert_eq!(findings(&sandbox, &[], 0), Vec::<Value>::new());
    let repaired = sandbox.json(["events", "ada", "--kind", "record_repaired"]);
    assert_eq!(repaired["data"]["path"], format!("inbox/{name}"));
    assert_eq!(step(&sandbox)["terminal"], "completed");
}

#[test]
fn a_repair_takes_broken_lines_out_and_keeps_the_others() {
    let sandbox = started("true");
    step_on(&sandbox, "x");
    let path = sandbox.agent("ada").join("ledger/2026-01.jsonl");
    let text = fs::read_to_string(&path).unwrap();
    let (first, rest) = text.split_once('\n').unwrap();
    fs::write(&path, format!("{first}\n<<<<<<< HEAD\n{rest}not json\n")).unwrap();
    assert_eq!(sandbox.cmd(["events", "ada"]).output().code(), 6);
    let found = findings(&sandbox, &["--repair"], 0);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(fs::read_to_string(&path).unwrap().starts_with(&text), "every whole line is kept");
    assert_eq!(
        fs::read_to_string(sandbox.agent("ada").join("quarantine/ledger__2026-01.jsonl")).unwrap(),
        "<<<<<<< HEAD\nnot json\n"
    );
    sandbox.run(["events", "ada"]);
}

#[test]
fn a_file_without_one_whole_line_is_kept_byte_for_byte() {
    let sandbox = started("true");
    step_on(&sandbox, "x");
    let path = sandbox.agent("ada").join("archive/2026-01/wait.jsonl");
    let text = "{\n  \"schema\": \"dormouse/identity/1\",\n  \"name\": \"kim\"\n}\n";
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, text).unwrap();
    let found = findings(&sandbox, &["--repair"], 0);
    assert_eq!(kinds(&found), ["damaged"]);
    let kept = sandbox.agent("ada").join("quarantine/archive__2026-01__wait.jsonl");
    assert_eq!(fs::read_to_string(kept).unwrap(), text);
    assert!(findings(&sandbox, &[], 0).is_empty());
}

#[test]
fn a_hook_that_is_no_program_is_told_once() {
    let sandbox = started("true");
    sandbox.run(["create", "bob", "--", "true"]);
    let hook = sandbox.store().join("hooks/on-attention");
    fs::write(&hook, "#!/bin/sh\n").unwrap();
    let told = sandbox.cmd(["doctor"]).exits(0);
    assert_eq!(told.stderr.matches("hooks/on-attention is no program").count(), 1, "{}", told.stderr);
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(sandbox.cmd(["doctor"]).output().stderr, "");
}

#[test]
fn a_repair_counts_anew_and_takes_rights_away() {
    let sandbox = started("true");
    edit_state(&sandbox, |state| state["counters"]["dead"] = json!(3));
    let inbox = sandbox.agent("ada").join("inbox");
    fs::set_permissions(&inbox, fs::Permissions::from_mode(0o777)).unwrap();
    let found = findings(&sandbox, &["--repair"], 0);
    assert_eq!(kinds(&found), ["dead_count", "writable_by_others"]);
    assert_eq!(field(&sandbox, "queue.dead"), "0");
    assert_eq!(mode(&inbox), 0o775);
    assert_eq!(findings(&sandbox, &[], 0), Vec::<Value>::new());
}

#[test]
fn what_others_may_read_is_no_finding() {
    let sandbox = started("true");
    for path in tree(&sandbox.store()).into_keys() {
        let readable = if path.is_dir() { 0o755 } else { 0o644 };
        fs::set_permissions(&path, fs::Permissions::from_mode(readable)).unwrap();
    }
    sandbox.run(["doctor"]);
}

#[test]
fn a_repair_leaves_to_people_what_has_no_one_right_answer() {
    let sandbox = started("true");
    edit_state(&sandbox, |state| state["status"] = json!("awake_running"));
    let before = fs::read(sandbox.agent("ada").join("state.json")).unwrap();
    let found = findings(&sandbox, &["--repair"], 6);
    assert_eq!((kinds(&found), &found[0]["repair"]), (vec!["status_table"], &json!("by hand")));
    assert_eq!(fs::read(sandbox.agent("ada").join("state.json")).unwrap(), before);
    assert_eq!(names(&sandbox.agent("ada").join("quarantine")), Vec::<String>::new());
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
fn what_is_no_agent_is_told() {
    let sandbox = started("true");
    let agents = sandbox.store().join("agents");
    fs::create_dir(agents.join("No Agent")).unwrap();
    fs::write(agents.join("file"), "").unwrap();
    symlink("ada", agents.join("link")).unwrap();
    let found = findings(&sandbox, &[], 6);
    assert_eq!(kinds(&found), ["not_an_agent", "not_an_agent", "not_an_agent"]);
    sandbox.cmd(["list", "--columns", "agent,status"]).prints("AGENT  STATUS\nada    awake_idle\n");
}

#[test]
fn doctor_goes_on_past_an_agent_that_is_beyond_help() {
    let sandbox = started("true");
    sandbox.run(["create", "bob", "--", "true"]);
    fs::remove_file(sandbox.agent("ada").join("state.json")).unwrap();
    edit_bob(&sandbox);
    let found = findings(&sandbox, &[], 6);
    let agents: Vec<&str> = found.iter().map(|finding| finding["agent"].as_str().unwrap()).collect();
    assert_eq!(agents, ["ada", "bob"]);
    assert_eq!(record(&sandbox, "identity.json")["name"], "ada");
}

fn edit_bob(sandbox: &Sandbox) {
    edit_file(&sandbox.agent("bob").join("identity.json"), |text| text.replace("\"bob\"", "\"eve\""));
}
