//! Agents that travel between state directories and databases, are removed there and get other names.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use predicates::str::contains;

use crate::fleet::Machine;
use crate::harness::{Sandbox, each_in_parallel, one_in, write_program};
use crate::server::server;
use crate::setup::{aged_rooms, eventually, objects};
use crate::strace::{Call, Harm, harm_inside, record_inside};

/// What a directory has below it that is no hidden file: paths and contents.
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

/// What travels of an agent in a state directory.
fn travelling(agent: &Path) -> Vec<(String, String)> {
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

/// A directory with an agent that has lived, in two months.
fn lived() -> Sandbox {
    fn run(one: &Sandbox, args: &[&str]) {
        let ran = one.cmd(args.iter().copied()).output();
        assert!(ran.status.success(), "{args:?}: {ran}");
    }
    let turn = "cat >/dev/null; dormouse work add 'a report' --plan 'first, then' >/dev/null; echo done";
    let one = Sandbox::new();
    run(&one, &["create", "ada", "--shell", turn]);
    run(&one, &["start", "ada", "-q"]);
    run(&one, &["enqueue", "ada", "long ago", "-q"]);
    run(&one, &["tick", "ada", "-q"]);
    one.pass(150 * 24 * 3600);
    let one = one.with_real_clock();
    for args in [
        &["enqueue", "ada", "first", "--dedupe-key", "one", "-q"][..],
        &["tick", "ada", "-q"],
        &["timer", "add", "-a", "ada", "--in", "2h", "look", "-q"],
        &["enqueue", "ada", "second ä \u{1d11e}", "--dedupe-key", "two", "-q"],
        &["wake", "ada", "soon", "-q"],
    ] {
        run(&one, args);
    }
    one
}

#[test]
fn an_agent_is_the_same_after_its_way_through_a_database() {
    needs!("postgresql");
    let one = lived();
    let (there, other) =
        (Machine::new(&server().url("way_one"), None), Machine::new(&server().url("way_two"), None));
    one.cmd(["export", "ada", "--output", "ada.tar", "-q"]).output();
    there.run(["init", "-q"]);
    let imported = there.json(["import", &file(&one, "ada.tar")]);
    assert_eq!(imported["agent"], "ada");
    let taken = there.cmd(["import", &file(&one, "ada.tar")]).output();
    assert!(
        taken.status.code() == Some(4) && taken.stderr.contains("there is an agent `ada` already"),
        "{taken}"
    );
    // It is the same agent for all who ask.
    for args in [
        &["get", "ada", "queue"][..],
        &["events", "ada"],
        &["work", "list", "-a", "ada"],
        &["timer", "list", "-a", "ada"],
        &["run", "list", "-a", "ada"],
        &["queue", "list", "ada"],
    ] {
        let here = one.cmd(["--json"].into_iter().chain(args.iter().copied())).output();
        let there = there.cmd(["--json"].into_iter().chain(args.iter().copied())).output();
        assert!(here.status.success(), "{here}");
        assert_eq!(here.stdout, there.stdout, "{args:?}: {there}");
    }
    there.run(["export", "ada", "--output", "same.tar", "-q"]);
    let (before, after) =
        (fs::read(file(&one, "ada.tar")).unwrap(), fs::read(file(&there.sandbox, "same.tar")).unwrap());
    assert!(before == after, "to the last byte");
    // From one database to another, and back into a directory.
    there.run(["export", "ada", "--output", "ada.tar", "-q"]);
    other.run(["init", "-q"]);
    other.run(["import", &file(&there.sandbox, "ada.tar"), "-q"]);
    other.run(["export", "ada", "--output", "ada.tar", "-q"]);
    let stream = |sandbox: &Sandbox| fs::read(file(sandbox, "ada.tar")).unwrap();
    assert!(stream(&there.sandbox) == stream(&other.sandbox), "the same records are the same stream");
    let back = Sandbox::new().with_real_clock();
    back.cmd(["import", &file(&other.sandbox, "ada.tar"), "-q"]).output();
    let (before, after) = (travelling(&agent_in(&one, "ada")), travelling(&agent_in(&back, "ada")));
    assert!(before.iter().any(|(path, _)| path.ends_with(".plan.md")), "{before:#?}");
    assert_eq!(before, after);
    assert!(back.cmd(["doctor", "ada"]).output().status.success());
    // What was known of dedupe keys is known there.
    let first = there.cmd(["enqueue", "ada", "again", "--dedupe-key", "one"]).output();
    let here = one.cmd(["enqueue", "ada", "again", "--dedupe-key", "one"]).output();
    assert_eq!((first.stdout, first.status.code()), (here.stdout, here.status.code()));
    there.run(["tick", "ada", "-q"]);
}

#[test]
fn what_only_a_directory_can_keep_is_refused() {
    needs!("postgresql");
    let one = lived();
    let there = Machine::new(&server().url("unfit"), None);
    there.run(["init", "-q"]);
    fs::write(agent_in(&one, "ada").join("inbox/note.txt"), "from a person").unwrap();
    one.cmd(["export", "ada", "--output", "ada.tar", "-q"]).output();
    let refused = there.cmd(["import", &file(&one, "ada.tar")]).output();
    assert!(
        refused.status.code() == Some(4) && refused.stderr.contains("only a state directory"),
        "{refused}"
    );
    assert_eq!(there.cmd(["list"]).output().stdout, "");
}

/// Messages go on while an agent moves from a directory to a database and back: each that was acknowledged ends once.
#[test]
fn producers_go_on_while_an_agent_moves() {
    needs!("postgresql");
    let home = Sandbox::new().with_real_clock();
    let there = Machine::new(&server().url("moves"), None);
    for args in [&["create", "ada", "--shell", "cat >/dev/null"][..], &["start", "ada", "-q"]] {
        assert!(home.cmd(args.iter().copied()).output().status.success());
    }
    there.run(["init", "-q"]);
    let say = |here: &dyn Fn(&str) -> crate::harness::Ran, acknowledged: &mut Vec<String>, text: &str| {
        let said = here(text);
        if said.status.success() {
            acknowledged.push(said.stdout.trim_end().to_owned());
        } else {
            // Whoever is in the middle of an import into a directory is told that the agent is another one by now.
            let is_told = ["moved", "no agent", "another agent took the name"]
                .iter()
                .any(|word| said.stderr.contains(word));
            assert!(is_told, "{said}");
        }
    };
    let mut all = Vec::new();
    for round in 0..3 {
        let goes_on = AtomicBool::new(true);
        let (home, there, goes_on) = (&home, &there, &goes_on);
        let (from_home, from_there) = std::thread::scope(|scope| {
            let at_home = scope.spawn(move || {
                let mut acknowledged = Vec::new();
                while goes_on.load(Ordering::SeqCst) {
                    say(&|text| home.cmd(["enqueue", "ada", text]).output(), &mut acknowledged, "home");
                }
                acknowledged
            });
            let elsewhere = scope.spawn(move || {
                let mut acknowledged = Vec::new();
                while goes_on.load(Ordering::SeqCst) {
                    say(&|text| there.cmd(["enqueue", "ada", text]).output(), &mut acknowledged, "there");
                }
                acknowledged
            });
            let move_over = |output: crate::harness::Ran| assert!(output.status.success(), "{output}");
            move_over(
                home.cmd(["export", "ada", "--move", "there", "--output", &format!("{round}.tar"), "-q"])
                    .output(),
            );
            move_over(there.cmd(["import", &file(home, &format!("{round}.tar")), "-q"]).output());
            move_over(there.cmd(["tick", "ada", "-q"]).output());
            move_over(
                there
                    .cmd(["export", "ada", "--move", "home", "--output", &format!("{round}.tar"), "-q"])
                    .output(),
            );
            move_over(home.cmd(["import", &file(&there.sandbox, &format!("{round}.tar")), "-q"]).output());
            goes_on.store(false, Ordering::SeqCst);
            (at_home.join().unwrap(), elsewhere.join().unwrap())
        });
        all.extend(from_home);
        all.extend(from_there);
    }
    assert!(home.cmd(["tick", "ada", "--until-idle", "-q"]).output().status.success());
    let mut ended: Vec<String> = files(&agent_in(&home, "ada").join("archive"))
        .iter()
        .filter(|(path, _)| path.ends_with("message.jsonl"))
        .flat_map(|(_, lines)| {
            lines
                .lines()
                .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
                .collect::<Vec<_>>()
        })
        .map(|message| message["id"].as_str().unwrap().to_owned())
        .collect();
    let count = ended.len();
    ended.sort();
    ended.dedup();
    assert_eq!(count, ended.len(), "each ends once");
    all.retain(|id| !ended.contains(id));
    assert_eq!(all, Vec::<String>::new(), "each that was acknowledged has ended");
}

#[test]
fn an_agent_gets_another_name() {
    needs!("postgresql");
    let there = Machine::new(&server().url("renamed"), None).with_ada("cat >/dev/null; echo done");
    there.run(["create", "bob", "--parent", "ada", "--shell", "echo bob", "-q"]);
    there.run(["enqueue", "ada", "first", "-q"]);
    there.run(["tick", "ada", "-q"]);
    let second = there.run(["enqueue", "ada", "second"]);
    let renamed = there.cmd(["--json", "rename", "ada", "eve"]).output();
    assert!(renamed.status.success() && renamed.stderr.contains("bob: its parent is `eve` now"), "{renamed}");
    let list = there.run(["--json", "list"]);
    assert!(list.contains("\"eve\"") && !list.contains("\"ada\""), "{list}");
    assert_eq!(there.json(["get", "bob"])["parent"], "eve");
    let gone = there.cmd(["get", "ada"]).output();
    assert!(gone.status.code() == Some(3) && gone.stderr.contains("eve"), "{gone}");
    let taken = there.cmd(["rename", "eve", "bob"]).output();
    assert!(
        taken.status.code() == Some(4) && taken.stderr.contains("there is an agent `bob` already"),
        "{taken}"
    );
    there.run(["tick", "eve", "-q"]);
    assert_eq!(there.json(["queue", "show", second.trim_end()])["status"], "processed");
    assert_eq!(there.run(["run", "list", "-a", "eve", "--limit", "0", "-q"]).matches("completed").count(), 2);
    there.cmd(["logs", "eve"]).assert().stdout(contains("done"));
    assert!(!there.anchor().join("agents/ada").exists());
    // The name is free for another one, and goes back.
    there.run(["rename", "eve", "ada", "-q"]);
    there.run(["rm", "ada", "--force", "-q"]);
}

/// A turn on one machine keeps the other from taking its agent away.
#[test]
fn an_agent_at_work_on_another_machine_stays() {
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
            let refused = other.cmd(args.iter().chain(to).copied()).output();
            let is_refused = refused.status.code() == Some(4) && refused.stderr.contains("has a turn here");
            assert!(is_refused, "{args:?}: {refused}");
        }
        fs::write(one.sandbox.home().join("go"), "").unwrap();
        turn.join().unwrap();
    });
    other.run(["rm", "ada", "--no-export", "-q"]);
    assert_eq!(one.cmd(["get", "ada"]).output().status.code(), Some(3));
}

/// What was saved for a message goes with its agent from a directory to a database, to another machine and back.
#[test]
fn a_checkpoint_travels() {
    needs!("postgresql");
    let one = Sandbox::new().with_real_clock();
    let turn = "cat >/dev/null; last=$(cat \"$DORMOUSE_CHECKPOINT\" 2>/dev/null); \
                if test \"$last\" = 111; then echo \"went on from $last\"; \
                else printf \"1$last\" | dormouse yield --checkpoint - >/dev/null; fi";
    let suspended = |step: serde_json::Value| assert_eq!(step["terminal"], "suspended", "{step}");
    for args in [&["create", "ada", "--shell", turn][..], &["start", "ada"], &["enqueue", "ada", "work"]] {
        one.run(args.iter().copied());
    }
    suspended(one.json(["tick", "ada"]));
    one.run(["resume", "ada"]);
    one.run(["export", "ada", "--output", "ada.tar"]);
    let url = server().url("checkpoint_travels");
    let (there, other) = (Machine::new(&url, None), Machine::new(&url, None));
    there.run(["init"]);
    there.run(["import", &file(&one, "ada.tar")]);
    suspended(other.json(["tick", "ada"]));
    other.run(["resume", "ada"]);
    // This machine has not run that turn.
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

/// What a machine has of the agent that is no record.
fn room(machine: &Machine) -> Vec<(String, String)> {
    let mut found = files(&machine.anchor().join("agents/ada"));
    found.retain(|(path, _)| path.starts_with("runs/") || path.starts_with("hooks/"));
    found
}

/// Wherever an import is killed, there is no agent, or one with all of its hooks and outputs as soon as a command has needed them.
/// Of one that does not appear nothing is left after a day.
#[test]
fn an_import_that_is_killed_leaves_no_agent_or_a_whole_one() {
    needs!("strace", "postgresql");
    let one = lived();
    let hooks = agent_in(&one, "ada").join("hooks");
    write_program(&hooks.join("on-scheduled"), "#!/bin/sh\nexit 0\n");
    assert!(one.cmd(["export", "ada", "--output", "ada.tar", "-q"]).output().status.success());
    let stream = file(&one, "ada.tar");
    let args = ["import", stream.as_str(), "-q"];
    let machine = |schema: String| {
        let url = server().url(&schema);
        let machine = Machine::new(&url, None);
        machine.run(["init", "-q"]);
        // What another agent of this name has left is not this one's.
        let stale = machine.anchor().join("agents/ada/hooks");
        fs::create_dir_all(&stale).unwrap();
        write_program(&stale.join("on-startup"), "#!/bin/sh\nexit 1\n");
        (machine, format!("DORMOUSE_DIR={url}"))
    };
    let (whole, url) = machine("import_whole".to_owned());
    let points = record_inside(&whole.sandbox, &[url], &args, "").points();
    whole.run(["work", "add", "-a", "ada", "one more", "-q"]);
    let expected = room(&whole);
    let has = |place: &str| expected.iter().any(|(path, _)| path.starts_with(place));
    assert!(has("runs/") && has("hooks/on-scheduled") && !has("hooks/on-startup"), "{expected:#?}");
    // Files that are written appear with what renames, makes or removes directories.
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
            0 if waits => panic!("{call:?}: what no records name stays"),
            0 => undone.fetch_add(1, Ordering::SeqCst),
            4 => committed.fetch_add(1, Ordering::SeqCst),
            _ => panic!("{call:?}: {again}"),
        };
        machine.run(["work", "add", "-a", "ada", "one more", "-q"]);
        assert_eq!(room(&machine), expected, "{call:?}: {again}");
        let doctor = machine.cmd(["doctor", "ada"]).output();
        assert!(doctor.status.success(), "{call:?}: {doctor}");
        assert_eq!(aged_rooms(&agents), [""; 0].map(PathBuf::from), "{call:?}");
    });
    let (committed, undone) = (committed.into_inner(), undone.into_inner());
    assert!(committed > 2 && undone > 2, "{committed} had appeared, {undone} not, of {}", numbered.len());
}

#[test]
fn what_a_machine_has_of_an_agent_that_is_gone_is_found() {
    needs!("postgresql");
    let url = server().url("left_rooms");
    let one = Machine::new(&url, None).with_ada("cat >/dev/null; echo done");
    let other = Machine::new(&url, None);
    other.run(["enqueue", "ada", "work", "-q"]);
    other.run(["tick", "ada", "-q"]);
    let found = |machine: &Machine| {
        let ran = machine.cmd(["--json", "doctor"]).output();
        let found = objects(&ran.stdout).into_iter().filter(|finding| finding["kind"] == "left_room");
        found.map(|finding| finding["agent"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!((found(&one), found(&other)), (vec![], vec![]));
    one.run(["rename", "ada", "eve", "-q"]);
    assert_eq!((found(&one), found(&other)), (vec![], vec!["ada".to_owned()]));
    fs::remove_dir_all(other.anchor().join("agents/ada")).unwrap();
    assert_eq!(found(&other), [""; 0]);
}
