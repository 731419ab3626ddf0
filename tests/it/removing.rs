//! Tests `rm`: it removes agents, and loses no message that it has not reported.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::harness::{Ran, Sandbox};
use crate::paused::{self, Held};
use crate::setup::{add, agents, failure, names, objects, say, started, texts, tree};
use crate::strace;
use crate::travel::{
    WRITES, around_the_arrival, at_once, changing_calls, each_on_full_disk, elsewhere, export, healthy,
    held_at_some_calls, ids, imported, killed_everywhere, produce_during, refused_during_turn_and_task,
    rewritten, turn_may_only_touch_child,
};

/// Runs a command that must fail and must change no content of an agent's files but the locks.
#[track_caller]
fn refused(sandbox: &Sandbox, words: &[&str], status: i32, kind: &str) -> Ran {
    let before = tree(&sandbox.store().join("agents"));
    let ran = sandbox.cmd([&["--json"], words].concat()).fails(status, kind);
    let after = tree(&sandbox.store().join("agents"));
    let mut changed = rewritten(&before, &after);
    changed.retain(|path| !path.ends_with("lock"));
    assert!(
        changed.is_empty() && before.keys().all(|path| after.contains_key(path)),
        "{words:?}: {changed:?}"
    );
    ran
}

#[test]
fn import_restores_a_removed_agent_from_its_stream() {
    let here = started("echo said");
    say(&here, "first");
    here.run(["tick", "ada", "--until-idle"]);
    add(&here, "bob", "true");
    let files = export(&here, &["ada"]);
    let said = here.json(["rm", "ada"]);
    let nothing =
        json!({ "messages": 0, "hints": 0, "work": 0, "waits": 0, "timers": 0, "outbox": 0, "attention": 0 });
    assert_eq!((&said["agent"], &said["removed"]), (&json!("ada"), &json!(true)), "{said}");
    assert_eq!((&said["exported_to"], &said["unfinished"]), (&json!("ada.tar"), &nothing), "{said}");
    let path = here.project().join("ada.tar");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(agents(&here), ["bob"]);
    healthy(&here);
    for words in [&["get", "ada"][..], &["enqueue", "ada", "x"], &["tick", "ada"], &["rm", "ada"]] {
        refused(&here, words, 3, "no_agent");
    }
    here.run(["import", "ada.tar"]);
    healthy(&here);
    let events = here.json_lines(["events", "ada", "--limit", "2"]);
    assert_eq!(texts(&events, "kind"), ["moved_away", "moved_in"]);
    assert_eq!(events[0]["data"]["by"], "remove");
    assert_eq!(here.json(["get", "ada"])["moved"], Value::Null);
    let there = elsewhere();
    imported(&there, &files, &[]);
    assert_eq!(there.run(["briefs", "ada"]), here.run(["briefs", "ada"]), "briefs are lost");
    // The first removal has written `ada.tar`.
    refused(&here, &["rm", "ada"], 4, "file_exists");
    refused(&here, &["rm", "ada", "bob", "-o", "both.tar"], 2, "usage");
    here.run(["rm", "ada", "-o", "again.tar"]);
    assert_eq!(agents(&here), ["bob"]);
    imported(&elsewhere(), &fs::read(here.project().join("again.tar")).unwrap(), &[]);
}

#[test]
fn rm_refuses_an_agent_with_unfinished_work_without_force() {
    for words in [
        "enqueue ada hello",
        "enqueue ada later --in 1h",
        "wake ada --reason look",
        "work add objective -a ada",
        "timer add -a ada --every 1h x",
        "wait -a ada --on operator --reason why --whole-agent",
    ] {
        let here = started("true");
        let words: Vec<&str> = words.split(' ').collect();
        here.run(words.clone());
        let ran = refused(&here, &["rm", "ada"], 4, "unfinished");
        assert!(ran.stderr.contains("--force"), "{ran}");
        refused(&here, &["rm", "ada", "--dry-run"], 4, "unfinished");
        refused(&here, &["rm", "ada", "--no-export"], 4, "unfinished");
        assert!(!here.project().join("ada.tar").exists());
        let said = here.json(["rm", "ada", "--force", "--dry-run"]);
        assert_eq!((&said["removed"], &said["dry_run"]), (&json!(false), &json!(true)), "{said}");
        let said = here.json(["rm", "ada", "-f"]);
        let counts: u64 = said["unfinished"].as_object().unwrap().values().filter_map(Value::as_u64).sum();
        assert_eq!(counts, 1, "{words:?}: {said}");
    }
    let here = started("true");
    add(&here, "bob", "true");
    say(&here, "hello");
    // The command refuses `ada` and still removes `bob`.
    let ran = here.cmd(["rm", "ada", "bob", "--json"]).output();
    assert_eq!((ran.code(), agents(&here)), (4, vec!["ada".to_owned()]), "{ran}");
    here.run(["rm", "ada", "--no-export", "-f"]);
    assert!(agents(&here).is_empty() && !here.project().join("ada.tar").exists());
    healthy(&here);
}

#[test]
fn rm_refuses_an_agent_with_a_running_turn_or_an_open_task() {
    let here = refused_during_turn_and_task(&["rm", "ada", "--force", "--json"]);
    here.run(["rm", "ada", "--force"]);
    let here = started("true");
    here.run(["task", "start", "-a", "ada", "--delegate", "kid", "hello"]);
    here.cmd(["tick", "ada"]).output();
    for name in ["kid", "ada"] {
        here.cmd(["rm", name, "--force", "--json"]).fails(4, "task_open");
    }
    here.cmd(["tick", "--all", "--until-idle"]).output();
    here.cmd(["rm", "ada", "--force"]).exits(0).warns("kid: its parent was `ada`");
    healthy(&here);
}

#[test]
fn a_turn_removes_its_own_children_and_no_other_agent() {
    let here = turn_may_only_touch_child(|name| format!("rm {name} -f -o \"$HOME/{name}.tar\""));
    assert_eq!(agents(&here), ["ada", "bob"]);
}

#[test]
fn rm_writes_its_stream_only_to_a_new_file_outside_the_state_directory() {
    let here = started("true");
    refused(&here, &["rm", "ada", "-o", ".dormouse/agents/ada/x.tar"], 2, "usage");
    refused(&here, &["rm", "ada", "-o", ".dormouse/x.tar"], 2, "usage");
    refused(&here, &["rm", "ada", "-o", "x.tar", "--no-export"], 2, "usage");
    refused(&here, &["rm", "ada", "-o", "no/x.tar"], 1, "io");
    refused(&here, &["rm"], 2, "usage");
    for name in ["-o", "x\n\u{1b}[31m.tar"] {
        fs::write(here.project().join(name), "mine").unwrap();
        let flag = format!("--output={name}");
        let ran = refused(&here, &["rm", "ada", &flag], 4, "file_exists");
        assert!(!ran.stderr.contains('\u{1b}'), "{ran}");
        assert_eq!(fs::read(here.project().join(name)).unwrap(), b"mine");
    }
    // A removal whose stream can't be written leaves the agent as it was.
    here.cmd(["rm", "ada", "-o", "/dev/full/x.tar"]).exits(1);
    say(&here, "still there");
}

#[test]
fn a_removal_can_be_killed_at_every_call() {
    needs!("strace");
    let template = started("true");
    say(&template, "one");
    let words = ["rm", "ada", "--force", "-o", "x.tar"];
    killed_everywhere(&template, &words, "", |sandbox, what| {
        healthy(sandbox);
        let there = agents(sandbox).contains(&"ada".to_owned());
        let told = sandbox.cmd(["enqueue", "ada", "two"]).output();
        let is_marked = there && sandbox.json(["get", "ada"])["moved"].is_object();
        let expected = match (there, is_marked) {
            (false, _) => 3,
            (true, true) => 4,
            (true, false) => 0,
        };
        assert_eq!(told.code(), expected, "{what}: {told}");
        if is_marked {
            assert!(told.stderr.contains("dormouse rm ada"), "{what}: {told}");
            sandbox.cmd(["rm", "ada", "--force", "-o", "y.tar"]).exits(4);
        }
        sandbox.cmd(words).exits(if there { 0 } else { 3 });
        sandbox.run(["create", "eve", "--", "true"]);
        healthy(sandbox);
        assert_eq!(agents(sandbox), ["eve"], "{what}: leftover files");
        imported(sandbox, &fs::read(sandbox.project().join("x.tar")).unwrap(), &[]);
        assert_eq!(ids(sandbox).len(), if there && !is_marked { 2 } else { 1 }, "{what}");
        healthy(sandbox);
    });
}

#[test]
fn a_removal_that_finds_the_disk_full_loses_nothing() {
    needs!("strace");
    let template = started("true");
    say(&template, "one");
    let words = ["rm", "ada", "--force", "-o", "x.tar"];
    let writes = changing_calls(&template, &words, &WRITES);
    each_on_full_disk(&template, &words, &writes, |sandbox, failed, what| {
        let there = agents(sandbox).contains(&"ada".to_owned());
        assert!([0, 1].contains(&failed.code()), "{what}");
        assert!(there || sandbox.project().join("x.tar").exists(), "{what}");
        healthy(sandbox);
        let ran = sandbox.cmd(words).output();
        let expected: &[i32] = if there { &[0, 4] } else { &[3] };
        assert!(expected.contains(&ran.code()), "{what}\n{ran}");
        if ran.code() == 4 {
            assert_eq!(sandbox.cmd(["rm", "ada", "-f", "-o", "y.tar"]).output().code(), 0, "{what}: {ran}");
        }
    });
}

#[test]
fn producers_lose_nothing_to_a_removal() {
    for round in 0..6 {
        let (here, acknowledged) = produce_during(round, &["rm", "ada", "--force", "-o", "x.tar"], None);
        assert!(agents(&here).is_empty());
        imported(&here, &fs::read(here.project().join("x.tar")).unwrap(), &[]);
        let arrived = ids(&here);
        for id in &acknowledged {
            assert!(arrived.contains(id), "{id}");
        }
    }
}

/// Holds `enqueue` before or after it puts its message into the inbox, while the agent is removed.
#[test]
fn enqueue_fails_if_the_agent_is_removed_during_the_delivery() {
    needs!("strace");
    let template = started("true");
    let [before, arrival] = around_the_arrival(&template);
    for (call, makes_another, expected) in [
        (&arrival, false, "no_agent"),
        (&before, false, "no_agent"),
        (&arrival, true, "agent_replaced"),
        (&before, true, "agent_replaced"),
    ] {
        let here = template.copy();
        let producer = Held::at(&here, &["enqueue", "ada", "held", "--json"], "", call);
        here.run(["rm", "ada", "--force", "-o", "x.tar"]);
        if makes_another {
            add(&here, "ada", "true");
        }
        let ran = producer.go_on();
        assert_eq!(failure(&ran)["kind"], expected, "{call}: {ran}");
        healthy(&here);
    }
}

/// Pauses a command at some of its calls while the agent is removed. Then the command succeeds, is
/// refused, or finds no agent.
#[test]
fn a_command_that_is_paused_during_a_removal_finds_no_agent() {
    needs!("strace");
    let template = started("true");
    say(&template, "one");
    for words in [
        &["tick", "ada"][..],
        &["enqueue", "ada", "x", "--dedupe-key", "k"],
        &["work", "add", "x", "-a", "ada"],
        &["stop", "ada"],
        &["get", "ada"],
        &["gc", "ada"],
        &["rm", "ada", "-f", "-o", "other.tar"],
    ] {
        let remove = ["rm", "ada", "-f", "-o", "x.tar", "--lock-timeout", "0s"];
        held_at_some_calls(&template, words, "agents/ada", &remove, |here, first, second, described| {
            assert!([0, 4, 5].contains(&second.code()), "{described}");
            assert!([0, 3, 4].contains(&first.code()), "{described}");
            let is_gone = !agents(here).contains(&"ada".to_owned());
            assert!(is_gone || second.code() != 0, "{described}");
            healthy(here);
        });
    }
}

#[test]
fn of_two_concurrent_removals_one_succeeds() {
    let template = started("true");
    for round in 0..10 {
        let here = template.copy();
        let other = if round % 2 == 0 { "x.tar" } else { "y.tar" };
        let ran = at_once(&here, ["x.tar", other].map(|file| ["rm", "ada", "-o", file, "--force"]));
        let mut codes = ran.each_ref().map(Ran::code);
        codes.sort_unstable();
        assert!(codes[0] == 0 && [3, 4].contains(&codes[1]), "{ran:?}");
        assert!(agents(&here).is_empty());
        let files = names(&here.project());
        assert!(!files.iter().any(|name| name.contains(".new-")), "{files:?}");
        healthy(&here);
    }
}

/// Removes the record that a moved agent leaves in its old state directory.
#[test]
fn rm_deletes_the_record_of_a_moved_agent() {
    let here = started("true");
    say(&here, "one");
    let bytes = export(&here, &["ada", "--move", "host-b"]);
    let late = here.agent("ada").join("inbox/late.json");
    fs::write(&late, "{\"text\": \"late\"}\n").unwrap();
    refused(&here, &["rm", "ada", "--no-export"], 4, "unfinished");
    here.cmd(["rm", "ada", "--no-export", "--force"]).exits(0).warns("late.json arrived too late");
    assert!(agents(&here).is_empty());
    imported(&here, &bytes, &[]);
    healthy(&here);
}

/// Deletes the tracked files of an agent, as git does: `doctor` removes the untracked rest.
#[test]
fn doctor_removes_the_untracked_rest_of_an_agent_that_git_has_deleted() {
    let here = started("true");
    say(&here, "one");
    here.run(["tick", "ada", "--until-idle"]);
    for name in names(&here.agent("ada")) {
        let path = here.agent("ada").join(&name);
        if path.is_file() && !["lock", "run.lock", "journal.jsonl"].contains(&&*name) {
            fs::remove_file(path).unwrap();
        } else if path.is_dir() && !["tmp", "cache", "runs"].contains(&&*name) {
            fs::remove_dir_all(path).unwrap();
        }
    }
    let ran = here.cmd(["doctor", "--json"]).output();
    assert_eq!((ran.code(), objects(&ran.stdout)[0]["kind"].as_str()), (6, Some("husk")), "{ran}");
    here.cmd(["doctor", "--repair"]).output();
    healthy(&here);
    assert!(agents(&here).is_empty());
}

/// Removes an agent after a command has listed all agents: commands for all agents ignore its
/// absence, commands that name it fail.
#[test]
fn commands_for_all_agents_ignore_an_agent_that_is_removed_meanwhile() {
    needs!("strace");
    let template = started("true");
    add(&template, "bob", "true");
    add(&template, "cyd", "true");
    template.run(["stop", "--all"]);
    for (line, is_all) in [
        ("usage", true),
        ("next-wake --all", true),
        ("logs --all", true),
        ("events --all", true),
        ("list", true),
        ("gc", true),
        ("doctor", true),
        ("start --all", true),
        ("stop --all", true),
        ("tick --all", true),
        ("tick --all --jobs 2", true),
        ("usage bob", false),
        ("next-wake ada bob", false),
        ("gc bob", false),
        ("start bob", false),
        ("stop ada bob", false),
    ] {
        let here = template.copy();
        let args: Vec<&str> = line.split(' ').collect();
        let calls = strace::record(&template.copy(), &args, "").calls;
        // The command is stopped after it lists all agents, or else when it opens its settings.
        let listed = calls.iter().rfind(|call| call.name == "getdents64" && call.rest.contains("/agents>"));
        let at = listed.unwrap_or_else(|| paused::call(&calls, "open", "dormouse.toml"));
        let command = Held::at(&here, &args, "", at);
        here.run(["rm", "bob", "--no-export", "--force"]);
        let ran = command.go_on().exits(if is_all { 0 } else { 3 });
        assert_eq!(ran.stderr.contains("no agent `bob`"), !is_all, "{line}: {ran}");
    }
}
