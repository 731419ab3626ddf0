//! Tests export, import, move, rename and removal of agents between state directories and
//! databases.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::Value;

use crate::fleet::Machine;
use crate::harness::{Cmd, Sandbox, each_in_parallel, one_in, write_program};
use crate::paused::{Held, call};
use crate::server::server;
use crate::setup::{aged_rooms, eventually, names, objects, say, started, texts};
use crate::strace::{Call, Harm, harm_inside, record_inside};

/// Returns paths and contents of all files below a directory, except hidden files.
fn files(dir: &Path) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for entry in walkdir::WalkDir::new(dir).sort_by_file_name() {
        let entry = entry.unwrap();
        if entry.file_type().is_file() && !entry.file_name().to_string_lossy().starts_with('.') {
            let path = entry.path().strip_prefix(dir).unwrap().display().to_string();
            found.push((path, String::from_utf8_lossy(&fs::read(entry.path()).unwrap()).into_owned()));
        }
    }
    found
}

/// Returns paths and contents of the files that an export of an agent has.
fn exported_files(agent: &Path) -> Vec<(String, String)> {
    let mut found = files(agent);
    let is_own = |path: &str| {
        ["cache/", "tmp/", "lock", "run.lock", "journal.jsonl", "inbox.moved"]
            .iter()
            .any(|own| path.starts_with(own))
            || path.ends_with(".lock")
            || path.ends_with("/leader")
    };
    found.retain(|(path, _)| !is_own(path));
    found
}

fn agent_in(sandbox: &Sandbox, name: &str) -> PathBuf {
    sandbox.project().join(".dormouse/agents").join(name)
}

fn file(sandbox: &Sandbox, name: &str) -> String {
    sandbox.project().join(name).display().to_string()
}

/// State directory with the agent `ada`, which has records of two months.
fn lived() -> Sandbox {
    let turn = "cat >/dev/null; dormouse work add 'a report' --plan 'first, then' >/dev/null; echo done";
    let one = started(turn);
    say(&one, "long ago");
    one.cmd(["tick", "ada", "-q"]).exits(0);
    one.pass(150 * 24 * 3600);
    let one = one.with_real_clock();
    for args in [
        &["enqueue", "ada", "first", "--dedupe-key", "one", "-q"][..],
        &["tick", "ada", "-q"],
        &["timer", "add", "-a", "ada", "--in", "2h", "look", "-q"],
        &["enqueue", "ada", "second ä \u{1d11e}", "--dedupe-key", "two", "-q"],
        &["wake", "ada", "soon", "-q"],
    ] {
        one.cmd(args.iter().copied()).exits(0);
    }
    one
}

/// Machine with a new store that has no agent.
fn initialised(schema: &str) -> Machine {
    let machine = Machine::new(&server().url(schema), None);
    machine.run(["init", "-q"]);
    machine
}

#[test]
fn an_export_is_unchanged_after_an_import_into_a_database() {
    needs!("postgresql");
    let one = lived();
    let (there, other) = (initialised("way_one"), initialised("way_two"));
    one.cmd(["export", "ada", "--output", "ada.tar", "-q"]).output();
    let imported = there.json(["import", &file(&one, "ada.tar")]);
    assert_eq!(imported["agent"], "ada");
    let taken = there.cmd(["import", &file(&one, "ada.tar")]);
    taken.exits(4).warns("there is an agent `ada` already");
    // Reading commands print the same from the state directory and from the database.
    for args in [
        &["get", "ada", "queue"][..],
        &["events", "ada"],
        &["work", "list", "-a", "ada"],
        &["timer", "list", "-a", "ada"],
        &["run", "list", "-a", "ada"],
        &["queue", "list", "ada"],
    ] {
        let here = one.cmd(["--json"].into_iter().chain(args.iter().copied())).exits(0);
        let there = there.cmd(["--json"].into_iter().chain(args.iter().copied())).output();
        assert_eq!(here.stdout, there.stdout, "{args:?}: {there}");
    }
    there.run(["export", "ada", "--output", "same.tar", "-q"]);
    let (before, after) =
        (fs::read(file(&one, "ada.tar")).unwrap(), fs::read(file(&there.sandbox, "same.tar")).unwrap());
    assert!(before == after, "the exports differ");
    // The agent is copied to another database, and from there to a state directory.
    there.run(["export", "ada", "--output", "ada.tar", "-q"]);
    other.run(["import", &file(&there.sandbox, "ada.tar"), "-q"]);
    other.run(["export", "ada", "--output", "ada.tar", "-q"]);
    let stream = |sandbox: &Sandbox| fs::read(file(sandbox, "ada.tar")).unwrap();
    assert!(stream(&there.sandbox) == stream(&other.sandbox), "the same records are the same stream");
    let back = Sandbox::new().with_real_clock();
    back.cmd(["import", &file(&other.sandbox, "ada.tar"), "-q"]).output();
    let (before, after) = (exported_files(&agent_in(&one, "ada")), exported_files(&agent_in(&back, "ada")));
    assert!(before.iter().any(|(path, _)| path.ends_with(".plan.md")), "{before:#?}");
    assert_eq!(before, after);
    back.cmd(["doctor", "ada"]).exits(0);
    // The database knows the dedupe keys that were used in the state directory.
    let first = there.cmd(["enqueue", "ada", "again", "--dedupe-key", "one"]).output();
    let here = one.cmd(["enqueue", "ada", "again", "--dedupe-key", "one"]).output();
    assert_eq!((first.stdout, first.status.code()), (here.stdout, here.status.code()));
    there.run(["tick", "ada", "-q"]);
}

#[test]
fn an_import_of_a_file_that_no_table_can_keep_is_refused() {
    needs!("postgresql");
    let one = lived();
    let there = initialised("unfit");
    fs::write(agent_in(&one, "ada").join("inbox/note.txt"), "from a person").unwrap();
    one.cmd(["export", "ada", "--output", "ada.tar", "-q"]).output();
    there.cmd(["import", &file(&one, "ada.tar")]).exits(4).warns("only a state directory");
    assert_eq!(there.cmd(["list"]).output().stdout, "");
}

/// Enqueues messages by this command until the agent `moves` no more. Returns the ids of the
/// acknowledged messages.
fn produce<'a>(enqueue: impl Fn() -> Cmd<'a>, moves: &AtomicBool) -> Vec<String> {
    let mut acknowledged = Vec::new();
    while moves.load(Ordering::SeqCst) {
        let ran = enqueue().output();
        if ran.status.success() {
            acknowledged.push(ran.stdout.trim_end().to_owned());
        } else {
            // During an import into a state directory, an `enqueue` may have opened the former
            // agent and find that the imported agent has taken the name.
            let reasons = ["moved", "no agent", "another agent took the name"];
            assert!(reasons.iter().any(|reason| ran.stderr.contains(reason)), "{ran}");
        }
    }
    acknowledged
}

/// Producers continue while an agent moves from a directory to a database and back. Each
/// acknowledged message ends exactly once.
#[test]
fn producers_lose_no_message_while_an_agent_moves() {
    needs!("postgresql");
    let home = started("cat >/dev/null").with_real_clock();
    let there = initialised("moves");
    let mut all = Vec::new();
    for round in 0..3 {
        let moves = AtomicBool::new(true);
        std::thread::scope(|scope| {
            let producers = [
                scope.spawn(|| produce(|| home.cmd(["enqueue", "ada", "home"]), &moves)),
                scope.spawn(|| produce(|| there.cmd(["enqueue", "ada", "there"]), &moves)),
            ];
            let tar = format!("{round}.tar");
            home.cmd(["export", "ada", "--move", "there", "--output", &tar, "-q"]).exits(0);
            there.cmd(["import", &file(&home, &tar), "-q"]).exits(0);
            there.cmd(["tick", "ada", "-q"]).exits(0);
            there.cmd(["export", "ada", "--move", "home", "--output", &tar, "-q"]).exits(0);
            home.cmd(["import", &file(&there.sandbox, &tar), "-q"]).exits(0);
            moves.store(false, Ordering::SeqCst);
            all.extend(producers.into_iter().flat_map(|producer| producer.join().unwrap()));
        });
    }
    home.cmd(["tick", "ada", "--until-idle", "-q"]).exits(0);
    let archived: Vec<Value> = files(&agent_in(&home, "ada").join("archive"))
        .iter()
        .filter(|(path, _)| path.ends_with("message.jsonl"))
        .flat_map(|(_, lines)| objects(lines))
        .collect();
    let mut ended = texts(&archived, "id");
    ended.sort();
    ended.dedup();
    assert_eq!(archived.len(), ended.len(), "a message has ended twice");
    all.retain(|id| !ended.contains(id));
    assert_eq!(all, Vec::<String>::new(), "acknowledged messages are lost");
}

#[test]
fn an_agent_gets_another_name() {
    needs!("postgresql");
    let there = Machine::new(&server().url("renamed"), None).with_ada("cat >/dev/null; echo done");
    there.run(["create", "bob", "--parent", "ada", "--shell", "echo bob", "-q"]);
    there.run(["enqueue", "ada", "first", "-q"]);
    there.run(["tick", "ada", "-q"]);
    let second = there.id(["enqueue", "ada", "second"]);
    there.cmd(["--json", "rename", "ada", "eve"]).exits(0).warns("bob: its parent is `eve` now");
    let list = there.run(["--json", "list"]);
    assert!(list.contains("\"eve\"") && !list.contains("\"ada\""), "{list}");
    assert_eq!(there.json(["get", "bob"])["parent"], "eve");
    there.cmd(["get", "ada"]).exits(3).warns("eve");
    there.cmd(["rename", "eve", "bob"]).exits(4).warns("there is an agent `bob` already");
    there.run(["tick", "eve", "-q"]);
    assert_eq!(there.json(["queue", "show", &second])["status"], "processed");
    assert_eq!(there.run(["run", "list", "-a", "eve", "--limit", "0", "-q"]).matches("completed").count(), 2);
    there.cmd(["logs", "eve"]).output().shows("done");
    assert!(!there.anchor().join("agents/ada").exists());
    // The former name is free, so the agent can get its name back.
    there.run(["rename", "eve", "ada", "-q"]);
    there.run(["rm", "ada", "--force", "-q"]);
}

/// While a turn runs on one machine, another machine can't remove, rename or move its agent.
#[test]
fn rm_rename_and_move_refuse_an_agent_with_a_turn_on_another_machine() {
    needs!("postgresql");
    let url = server().url("at_work");
    let one =
        Machine::new(&url, None).with_ada("cat >/dev/null; until [ -e \"$HOME/go\" ]; do sleep 0.05; done");
    let other = Machine::new(&url, None);
    one.run(["enqueue", "ada", "work", "-q"]);
    std::thread::scope(|scope| {
        let turn = scope.spawn(|| one.run(["tick", "ada", "-q"]));
        eventually("a turn", || {
            let state = one.cmd(["--json", "get", "ada"]).output().stdout;
            state.contains("\"current_run\"").then_some(())
        });
        for args in
            [&["rm", "ada", "--force"][..], &["rename", "ada", "eve"], &["export", "ada", "--move", "there"]]
        {
            let to = file(&other.sandbox, "ada.tar");
            let to = if args[0] == "rename" { &[][..] } else { &["--output", &to][..] };
            other.cmd(args.iter().chain(to).copied()).exits(4).warns("has a turn here");
        }
        fs::write(one.sandbox.home().join("go"), "").unwrap();
        turn.join().unwrap();
    });
    other.run(["rm", "ada", "--no-export", "-q"]);
    one.cmd(["get", "ada"]).exits(3);
}

/// An export has the checkpoint of a message: from a directory to a database, to another machine
/// and back.
#[test]
fn an_export_contains_the_checkpoint_of_a_message() {
    needs!("postgresql");
    let turn = "cat >/dev/null; last=$(cat \"$DORMOUSE_CHECKPOINT\" 2>/dev/null); \
                if test \"$last\" = 111; then echo \"went on from $last\"; \
                else printf \"1$last\" | dormouse yield --checkpoint - >/dev/null; fi";
    let suspended = |step: Value| assert_eq!(step["terminal"], "suspended", "{step}");
    let one = started(turn).with_real_clock();
    say(&one, "work");
    suspended(one.json(["tick", "ada"]));
    one.run(["resume", "ada"]);
    one.run(["export", "ada", "--output", "ada.tar"]);
    let url = server().url("checkpoint_travels");
    let (there, other) = (Machine::new(&url, None), Machine::new(&url, None));
    there.run(["init"]);
    there.run(["import", &file(&one, "ada.tar")]);
    suspended(other.json(["tick", "ada"]));
    other.run(["resume", "ada"]);
    // This machine has not run the turn that saved the checkpoint, so it reads it from the
    // database.
    there.run(["export", "ada", "--output", "ada.tar"]);
    there.run(["rename", "ada", "bob"]);
    suspended(other.json(["tick", "bob"]));
    other.run(["resume", "bob"]);
    let step = there.json(["tick", "bob"]);
    assert_eq!(step["brief"], "went on from 111", "{step}");
    let back = Sandbox::new().with_real_clock();
    back.run(["import", &file(&there.sandbox, "ada.tar")]);
    suspended(back.json(["tick", "ada"]));
    back.run(["resume", "ada"]);
    assert_eq!(back.json(["tick", "ada"])["brief"], "went on from 111");
}

/// Returns the hooks and outputs of an agent in its local directory.
fn local_files(machine: &Machine, agent: &str) -> Vec<(String, String)> {
    let mut found = files(&machine.anchor().join("agents").join(agent));
    found.retain(|(path, _)| path.starts_with("runs/") || path.starts_with("hooks/"));
    found
}

/// An import that is killed leaves no agent, or a whole agent, whose hooks and outputs are in its
/// local directory after the next command. If there is no agent, its files are deleted after a day.
#[test]
fn an_import_that_is_killed_leaves_no_agent_or_a_whole_one() {
    needs!("strace", "postgresql");
    let one = lived();
    let hooks = agent_in(&one, "ada").join("hooks");
    write_program(&hooks.join("on-scheduled"), "#!/bin/sh\nexit 0\n");
    one.cmd(["export", "ada", "--output", "ada.tar", "-q"]).exits(0);
    let stream = file(&one, "ada.tar");
    let args = ["import", stream.as_str(), "-q"];
    let machine = |schema: String| {
        let machine = initialised(&schema);
        // The imported agent must not get the hooks of a former agent with its name.
        let stale = machine.anchor().join("agents/ada/hooks");
        fs::create_dir_all(&stale).unwrap();
        write_program(&stale.join("on-startup"), "#!/bin/sh\nexit 1\n");
        (machine, format!("DORMOUSE_DIR={}", server().url(&schema)))
    };
    let (whole, url) = machine("import_whole".to_owned());
    let points = record_inside(&whole.sandbox, &[url], &args, "").points();
    whole.run(["work", "add", "-a", "ada", "one more", "-q"]);
    let expected = local_files(&whole, "ada");
    let has = |place: &str| expected.iter().any(|(path, _)| path.starts_with(place));
    assert!(has("runs/") && has("hooks/on-scheduled") && !has("hooks/on-startup"), "{expected:#?}");
    // A kill matters only at calls that make files appear, disappear or durable, or take a lock.
    let names = ["mkdir", "rename", "unlink", "rmdir", "syncfs", "fsync", "flock"];
    let points: Vec<Call> = points.into_iter().filter(|call| names.contains(&call.act())).collect();
    let numbered: Vec<(usize, Call)> = one_in(6, points).into_iter().enumerate().collect();
    let (committed, undone) = (AtomicUsize::new(0), AtomicUsize::new(0));
    each_in_parallel(&numbered, |(number, call)| {
        let (machine, url) = machine(format!("import_{number}"));
        let harmed = harm_inside(&machine.sandbox, &[url], &args, "", call, Harm::Kill);
        if harmed.hit.is_empty() {
            return;
        }
        let agents = machine.anchor().join("agents");
        aged_rooms(&agents);
        machine.run(["create", "bob", "--shell", "true", "-q"]);
        let waits = !aged_rooms(&agents).is_empty();
        let again = machine.cmd(args).output();
        match again.code() {
            0 if waits => panic!("{call:?}: files without an agent were not deleted"),
            0 => undone.fetch_add(1, Ordering::SeqCst),
            4 => committed.fetch_add(1, Ordering::SeqCst),
            _ => panic!("{call:?}: {again}"),
        };
        machine.run(["work", "add", "-a", "ada", "one more", "-q"]);
        assert_eq!(local_files(&machine, "ada"), expected, "{call:?}: {again}");
        let doctor = machine.cmd(["doctor", "ada"]).output();
        assert!(doctor.status.success(), "{call:?}: {doctor}");
        assert_eq!(aged_rooms(&agents), [""; 0].map(PathBuf::from), "{call:?}");
    });
    let (committed, undone) = (committed.into_inner(), undone.into_inner());
    assert!(committed > 2 && undone > 2, "{committed} imported, {undone} not, of {}", numbered.len());
}

/// A repeated `rename` completes a killed one, and the agent has its hooks and outputs.
#[test]
fn a_rename_that_is_killed_can_be_completed() {
    needs!("strace", "postgresql");
    let args = ["rename", "ada", "eve", "-q"];
    let machine = |schema: String| {
        let url = server().url(&schema);
        let machine = Machine::new(&url, None).with_ada("cat >/dev/null; echo done");
        write_program(&machine.anchor().join("agents/ada/hooks/on-startup"), "#!/bin/sh\nexit 0\n");
        machine.run(["enqueue", "ada", "work", "-q"]);
        machine.run(["tick", "ada", "-q"]);
        (machine, format!("DORMOUSE_DIR={url}"))
    };
    let (whole, url) = machine("rename_whole".to_owned());
    let points = record_inside(&whole.sandbox, &[url], &args, "").points();
    assert_eq!(local_files(&whole, "eve").len(), 2);
    let numbered: Vec<(usize, Call)> = one_in(6, points).into_iter().enumerate().collect();
    each_in_parallel(&numbered, |(number, call)| {
        let (machine, url) = machine(format!("rename_{number}"));
        harm_inside(&machine.sandbox, &[url], &args, "", call, Harm::Kill);
        // Another agent may take the name as soon as it is free.
        let is_taken =
            number % 2 == 1 && machine.cmd(["create", "ada", "--shell", "true", "-q"]).output().code() == 0;
        let again = machine.cmd(args).output();
        assert!(matches!((again.code(), is_taken), (0, _) | (3, false) | (4, true)), "{call:?}: {again}");
        assert_eq!(machine.json(["get", "eve"])["moved"], Value::Null, "{call:?}");
        assert_eq!(local_files(&machine, "eve").len(), 2, "{call:?}: {again}");
        if !is_taken {
            assert!(!machine.anchor().join("agents/ada/hooks").exists(), "{call:?}");
            machine.cmd(["get", "ada"]).exits(3).warns("eve");
        }
        let doctor = machine.cmd(["doctor", "eve"]).output();
        assert!(doctor.status.success(), "{call:?}: {doctor}");
    });
}

#[test]
fn a_copy_whose_name_is_taken_meanwhile_leaves_no_local_directory() {
    needs!("strace", "postgresql");
    let [one, other] = Machine::two("copy_taken");
    write_program(&one.anchor().join("agents/ada/hooks/on-startup"), "#!/bin/sh\nexit 0\n");
    let url = [format!("DORMOUSE_DIR={}", server().url("copy_taken"))];
    let args = |name| ["clone", "ada", name, "-q"];
    let calls = record_inside(&one.sandbox, &url, &args("whole"), "").calls;
    let synced = call(&calls, "syncfs", ".room-whole");
    let held = Held::inside(&one.sandbox, &url, &args("eve"), "", synced);
    other.run(["create", "eve", "--shell", "true", "-q"]);
    let refused = held.go_on();
    assert_eq!(refused.code(), 4, "{refused}");
    let mut there = names(&one.anchor().join("agents"));
    there.sort();
    assert_eq!(there, ["ada", "whole"]);
}

#[test]
fn doctor_finds_local_files_of_an_agent_that_is_gone() {
    needs!("postgresql");
    let [one, other] = Machine::two("left_rooms");
    other.run(["enqueue", "ada", "work", "-q"]);
    other.run(["tick", "ada", "-q"]);
    let found = |machine: &Machine| {
        let ran = machine.cmd(["--json", "doctor"]).output();
        let mut found = objects(&ran.stdout);
        found.retain(|finding| finding["kind"] == "left_room");
        texts(&found, "agent")
    };
    assert_eq!((found(&one), found(&other)), (vec![], vec![]));
    one.run(["rename", "ada", "eve", "-q"]);
    assert_eq!((found(&one), found(&other)), (vec![], vec!["ada".to_owned()]));
    fs::remove_dir_all(other.anchor().join("agents/ada")).unwrap();
    assert_eq!(found(&other), [""; 0]);
}
