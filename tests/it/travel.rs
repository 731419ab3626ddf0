//! Tests `export` and `import`: agents move between state directories, and only one ticks them.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use predicates::prelude::*;
use predicates::str::contains;
use serde_json::{Value, json};

use crate::harness::{Ran, Sandbox, dormouse, each_in_parallel, one_in};
use crate::paused::{self, Held};
use crate::setup::{
    Beside, Tree, add, agents, eventually, failure, field, hook, names, objects, own_name, processes, say,
    started, started_with, texts, tree,
};
use crate::strace::{self, Call, Harm};

/// Returns a second state directory, without agents.
pub fn elsewhere() -> Sandbox {
    let sandbox = Sandbox::in_memory();
    sandbox.run(["init"]);
    sandbox
}

/// Path of the file that `export` writes in a sandbox.
fn stream(sandbox: &Sandbox) -> PathBuf {
    sandbox.home().join("ada.tar")
}

#[track_caller]
pub fn export(sandbox: &Sandbox, words: &[&str]) -> Vec<u8> {
    let path = stream(sandbox);
    let out = ["--output".into(), path.clone().into_os_string()];
    let words = words.iter().map(|word| (*word).into()).chain(out);
    let ran = sandbox.cmd(["export".into()].into_iter().chain(words)).output();
    assert!(ran.code() == 0 && ran.stderr.is_empty(), "{ran}");
    fs::read(path).unwrap()
}

pub fn import(sandbox: &Sandbox, bytes: &[u8], words: &[&str]) -> Ran {
    sandbox.cmd([&["import"], words].concat()).stdin(bytes).output()
}

#[track_caller]
pub fn imported(sandbox: &Sandbox, bytes: &[u8], words: &[&str]) {
    let ran = import(sandbox, bytes, words);
    assert!(ran.code() == 0 && ran.stderr.is_empty(), "{ran}");
}

#[track_caller]
pub fn healthy(sandbox: &Sandbox) {
    let ran = sandbox.cmd(["doctor", "--json"]).output();
    assert!(ran.code() == 0, "{ran}");
}

/// Returns an agent with records and files of every kind.
#[track_caller]
fn estate() -> Sandbox {
    let policy = "[retention]\ncontext = \"all\"\n";
    let sandbox = started_with("echo said; echo x > \"$(dirname \"$DORMOUSE_CONTEXT\")/notes\"", policy);
    let dir = sandbox.agent("ada");
    hook(&dir, "on-startup", "exit 0");
    say(&sandbox, "first");
    sandbox.run(["tick", "ada", "--until-idle"]);
    sandbox.pass(100 * 24 * 3600);
    sandbox.run(["work", "add", "an objective", "-a", "ada", "--plan", "a plan"]);
    sandbox.run(["timer", "add", "-a", "ada", "--in", "500d", "later"]);
    sandbox.run(["gc", "ada"]);
    say(&sandbox, "waiting");
    sandbox.run(["enqueue", "ada", "once", "--dedupe-key", "k"]);
    sandbox.cmd(["wake", "ada", "--reason", "look"]).output();
    fs::write(dir.join("inbox").join("dropped.json"), "{\"text\": \"by hand\"}\n").unwrap();
    fs::create_dir_all(dir.join("inbox/rejected")).unwrap();
    fs::write(dir.join("inbox/rejected/bad.json"), "no").unwrap();
    let run = names(&dir.join("runs"))[0].clone();
    fs::create_dir_all(dir.join("runs").join(&run).join(".hidden")).unwrap();
    let long = dir.join("runs").join(&run).join(".hidden").join("x".repeat(200));
    fs::write(&long, vec![7; 100_000]).unwrap();
    fs::set_permissions(&long, fs::Permissions::from_mode(0o755)).unwrap();
    sandbox
}

/// Returns a second state directory, whose clock is ahead of that of [`estate`].
fn later_elsewhere() -> Sandbox {
    let there = elsewhere();
    there.pass(101 * 24 * 3600);
    there
}

/// Returns the paths of files that are new or have a new content.
pub fn rewritten(before: &Tree, after: &Tree) -> Vec<PathBuf> {
    let changed = after.iter().filter(|(path, found)| before.get(*path).is_none_or(|old| old.1 != found.1));
    changed.map(|(path, _)| path.clone()).collect()
}

/// Path in the agent's directory and content of each exported file, and the modification time (in
/// s) of files of turns and hooks, which the stream contains.
fn contents(sandbox: &Sandbox) -> Vec<(PathBuf, Vec<u8>, Option<i64>)> {
    let dir = sandbox.agent("ada");
    let is_local = |path: &Path| {
        let top = path.iter().next().unwrap().to_str().unwrap();
        ["lock", "run.lock", "journal.jsonl", "tmp", "cache"].contains(&top)
            || path.ends_with("leader")
            || path.ends_with(".gitkeep")
    };
    let files = tree(&dir).into_iter().filter(|(path, _)| path.is_file());
    let files = files.map(|(path, (_, bytes, at))| {
        let path = path.strip_prefix(&dir).unwrap().to_owned();
        let is_checkpoint = path.file_name().unwrap().to_str().unwrap().starts_with("checkpoint");
        let is_timed = path.starts_with("runs") && !is_checkpoint || path.starts_with("hooks");
        (path, bytes, is_timed.then_some(at / 1_000_000_000))
    });
    files.filter(|(path, ..)| !is_local(path)).collect()
}

#[test]
fn export_and_import_keep_every_byte_of_an_agent() {
    let here = estate();
    let before = contents(&here);
    let bytes = export(&here, &["ada"]);
    assert_eq!(bytes, export(&here, &["--all"]), "equal records make equal streams");
    let there = later_elsewhere();
    imported(&there, &bytes, &[]);
    assert_eq!(export(&there, &["ada"]), bytes);
    healthy(&there);
    assert_eq!(contents(&there), before);
    let mode = |path: &str| fs::metadata(there.agent("ada").join(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("hooks/on-startup"), mode("state.json"), mode("inbox")), (0o700, 0o600, 0o700));
    // The copy processes the pending messages, and knows the dedupe keys of ended ones.
    let steps = there.cmd(["tick", "ada", "--until-idle", "--json"]).output();
    let turns: Vec<Value> =
        objects(&steps.stdout).into_iter().filter(|step| step["run_id"].is_string()).collect();
    assert!(turns.len() >= 3, "{steps}");
    assert_eq!(there.json(["enqueue", "ada", "once", "--dedupe-key", "k"])["duplicate"], true);
    assert_eq!(export(&here, &["ada"]), bytes, "the original has changed");
}

#[test]
fn export_and_import_keep_a_backlog_of_thousands() {
    let here = started("true");
    let lines: String = (0..1500).map(|number| format!("{{\"text\": \"m{number}\"}}\n")).collect();
    here.cmd(["enqueue", "ada", "--batch", "-q"]).stdin(lines).output();
    here.run(["tick", "ada"]);
    let bytes = export(&here, &["ada"]);
    let there = elsewhere();
    imported(&there, &bytes, &[]);
    assert_eq!(export(&there, &["ada"]), bytes);
    assert_eq!(field(&there, "queue.pending"), field(&here, "queue.pending"));
    assert_eq!(there.json(["tick", "ada"])["message_id"], here.json(["tick", "ada"])["message_id"]);
    healthy(&there);
}

#[test]
fn one_stream_can_contain_several_agents() {
    let here = started("true");
    add(&here, "bob", "true");
    add(&here, "eve", "true");
    let bytes = export(&here, &["eve", "ada", "ada"]);
    let there = elsewhere();
    let ran = import(&there, &bytes, &["--json"]);
    assert_eq!(texts(&objects(&ran.stdout), "agent"), ["ada", "eve"], "{ran}");
    assert_eq!(agents(&there), ["ada", "eve"]);
    let all = export(&here, &["--all"]);
    // `import` creates either all agents or none, and one of them exists already.
    let before = tree(&there.store());
    import(&there, &all, &["--json"]).fails(4, "agent_exists");
    assert_eq!(tree(&there.store()), before);
}

/// Imports an agent that had another name before: a deferred message and one from that time run.
#[test]
fn import_as_keeps_messages_to_former_names() {
    let here = started("true");
    say(&here, "first");
    here.run(["enqueue", "ada", "deferred", "--in", "1h"]);
    here.run(["rename", "ada", "bob"]);
    let bytes = export(&here, &["bob"]);
    let there = elsewhere();
    imported(&there, &bytes, &["--as", "eve"]);
    healthy(&there);
    there.run(["tick", "eve", "--until-idle"]);
    there.pass(2 * 3600);
    there.run(["tick", "eve", "--until-idle"]);
    let got = there.json(["get", "eve"]);
    assert_eq!(got["counters"]["messages_processed"], 2, "{got}");
    assert_eq!((&got["queue"]["rejected"], &got["attention"]), (&json!(0), &Value::Null), "{got}");
    healthy(&there);
}

#[test]
fn import_as_changes_only_the_name_of_an_agent() {
    let here = estate();
    let bytes = export(&here, &["ada"]);
    let there = later_elsewhere();
    imported(&there, &bytes, &["--as", "zoe"]);
    healthy(&there);
    let renamed = there.agent("zoe").join("state.json");
    let (old, new) = (
        fs::read_to_string(here.agent("ada").join("state.json")).unwrap(),
        fs::read_to_string(renamed).unwrap(),
    );
    assert_eq!(new, old.replace("\"agent\": \"ada\"", "\"agent\": \"zoe\""));
    let back = export(&there, &["zoe"]);
    imported(&here, &back, &["--as", "ada2"]);
    let other = elsewhere();
    imported(&other, &export(&here, &["ada2"]), &["--as", "ada"]);
    assert_eq!(export(&other, &["ada"]), bytes, "and back again");
    there.cmd(["tick", "zoe", "--until-idle", "-q"]).exits(0);
    healthy(&there);
    import(&there, &export(&here, &["--all"]), &["--as", "one"]).exits(2);
}

#[test]
fn an_export_contains_no_machine_local_files() {
    let here = estate();
    let dir = here.agent("ada");
    fs::write(dir.join("inbox/.new-x"), "being made").unwrap();
    fs::write(dir.join("tmp/x"), "being made").unwrap();
    let bytes = export(&here, &["ada"]);
    let text = String::from_utf8_lossy(&bytes);
    for local in ["ada/lock", "run.lock", "journal", "ada/tmp", "ada/cache", ".new-", ".gitkeep", "/leader"] {
        assert!(!text.contains(local), "{local}");
    }
}

#[test]
fn export_refuses_links_among_records_and_omits_other_links() {
    let here = estate();
    let dir = here.agent("ada");
    symlink("/etc/passwd", dir.join("hooks/on-suspend")).unwrap();
    fs::write(dir.join("README"), "mine").unwrap();
    let words = ["export", "ada", "--output", "x.tar"];
    here.cmd(words).exits(0).warns("hooks/on-suspend: left out").warns("README: left out");
    for place in ["work/work_0000.json", "inbox/2-x.json", "ledger/2026-01.jsonl.link"] {
        symlink("/etc/passwd", dir.join(place)).unwrap();
        let ran = here.cmd([&["--json"], &words[..]].concat()).fails(6, "damaged");
        assert!(failure(&ran)["path"].as_str().unwrap().ends_with(place), "{ran}");
        fs::remove_file(dir.join(place)).unwrap();
    }
    assert!(!names(&here.project()).iter().any(|name| name.contains(".new-")));
}

/// Names many absent agents in an export: `import` checks each before it creates a directory.
#[test]
fn an_import_that_names_many_absent_agents_makes_few_directories() {
    needs!("strace");
    let here = estate();
    let bytes = export(&here, &["ada"]);
    let length = usize::from_str_radix(std::str::from_utf8(&bytes[124..135]).unwrap(), 8).unwrap();
    let contents = std::str::from_utf8(&bytes[512..512 + length]).unwrap();
    let others: String = (0..3000).map(|number| format!(",\"ada{number:04}\"")).collect();
    let contents = contents.replace("\"ada\"", &format!("\"ada\"{others}"));
    let mut header = bytes[..512].to_vec();
    header[124..135].copy_from_slice(format!("{:011o}", contents.len()).as_bytes());
    header[148..156].copy_from_slice(b"        ");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:07o}\0").as_bytes());
    let rest = &bytes[512 + length.next_multiple_of(512)..];
    let mut stream = [header, contents.clone().into_bytes()].concat();
    stream.resize(512 + contents.len().next_multiple_of(512), 0);
    stream.extend_from_slice(rest);
    let there = elsewhere();
    let before = tree(&there.store());
    let path = there.home().join("many.tar");
    fs::write(&path, stream).unwrap();
    let made = crate::strace::tried(&there, &["import", path.to_str().unwrap()], "mkdirat");
    assert!((1..60).contains(&made), "{made} directories");
    assert_eq!(tree(&there.store()), before);
}

#[test]
fn a_damaged_stream_imports_nothing() {
    let here = estate();
    let bytes = export(&here, &["ada"]);
    let there = elsewhere();
    let before = tree(&there.store());
    let mut changed = bytes.clone();
    changed[5000] ^= 1;
    let newer = String::from_utf8_lossy(&bytes[..1024]).replace("export/1", "export/9").into_bytes();
    let cases: [(&[u8], i32, &str); 7] = [
        (b"", 4, "not_an_export"),
        (b"hello there\n", 4, "not_an_export"),
        (&bytes[..700], 6, "damaged"),
        (&bytes[..bytes.len() / 2], 6, "damaged"),
        (&bytes[..bytes.len() - 1], 6, "damaged"),
        (&changed, 6, "damaged"),
        (&newer, 6, "newer_schema"),
    ];
    for (bytes, status, kind) in cases {
        import(&there, bytes, &["--json"]).fails(status, kind);
        assert_eq!(tree(&there.store()), before);
    }
    there.cmd(["import", "not-there.tar", "--json"]).fails(1, "io");
}

#[test]
fn import_checks_all_records_before_the_agent_appears() {
    let here = estate();
    let state = here.agent("ada").join("state.json");
    let whole = fs::read_to_string(&state).unwrap();
    let there = later_elsewhere();
    let before = tree(&there.store());
    for (what, text) in [
        ("not JSON", "{".to_owned()),
        ("another's", whole.replace("\"ada\"", "\"bob\"")),
        ("newer", whole.replace("state/1", "state/9")),
        (
            "a focus that is not there",
            whole.replacen(
                "\"counters\"",
                "\"focus\": \"work_019b7d5c000070008000000000000001\",\n  \"counters\"",
                1,
            ),
        ),
    ] {
        fs::write(&state, text).unwrap();
        // `export` reads no more of `state.json` than it needs, so it may miss the damage.
        let ran = here.cmd(["export", "ada", "-o", stream(&here).to_str().unwrap()]).output();
        if ran.code() != 0 {
            assert_eq!(ran.code(), 6, "{what}: {ran}");
            continue;
        }
        let ran = import(&there, &fs::read(stream(&here)).unwrap(), &["--json"]).fails(6, "damaged");
        assert!(ran.stderr.contains("agents/ada/state.json"), "{what}: {ran}");
        assert_eq!(tree(&there.store()), before, "{what}");
    }
    fs::write(&state, whole).unwrap();
    fs::write(here.agent("ada").join("agent.toml"), "[turn]\ncommand = 7\n").unwrap();
    import(&there, &export(&here, &["ada"]), &["--json"]).exits(6);
    assert_eq!(tree(&there.store()), before);
}

#[test]
fn export_writes_its_stream_to_a_pipe_or_a_file() {
    let here = started("true");
    here.cmd(["export", "ada", "--json"]).fails(2, "usage");
    let said = here.json(["export", "ada", "-o", "x.tar"]);
    assert_eq!(said["agent"], "ada");
    assert_eq!(fs::metadata(here.project().join("x.tar")).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(here.cmd(["export", "-o", "y.tar"]).output().code(), 2);
    assert_eq!(here.cmd(["export", "nobody", "-o", "y.tar"]).output().code(), 3);
    assert_eq!(here.cmd(["export", "ada", "-o", "no/y.tar"]).output().code(), 1);
    assert_eq!(names(&here.project()), [".dormouse", "x.tar"]);
    let line = format!("'{}' export ada | cmp - x.tar", dormouse().display());
    let ran = here.program("sh", vec!["-c".into(), line.into()]).output();
    assert!(ran.code() == 0, "{ran}");
    for count in [0, 700, 4000] {
        let line =
            format!("'{0}' export ada | head -c {count} | '{0}' import --as bob", dormouse().display());
        let ran = here.program("sh", vec!["-c".into(), line.into()]).output();
        assert!([4, 6].contains(&ran.code()) && !ran.stderr.contains("roken pipe"), "{ran}");
    }
    assert_eq!(agents(&here), ["ada"]);
}

#[test]
fn a_slow_reader_of_an_export_blocks_no_other_command() {
    let here = started("true").with_real_clock();
    fs::create_dir_all(here.agent("ada").join("quarantine")).unwrap();
    fs::write(here.agent("ada").join("quarantine/large"), vec![1; 3 << 20]).unwrap();
    let mut command = here.cmd(["export", "ada"]).into_command();
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let mut bytes = vec![0; 4096];
    stdout.read_exact(&mut bytes).unwrap();
    // Until the test reads on, the export is blocked and must not block other commands.
    let revision: u64 = field(&here, "revision").parse().unwrap();
    here.run(["enqueue", "ada", "more", "--dedupe-key", "k", "--lock-timeout", "0s"]);
    assert_eq!(here.cmd(["tick", "ada", "--lock-timeout", "0s"]).output().code(), 0);
    assert!(field(&here, "revision").parse::<u64>().unwrap() > revision);
    stdout.read_to_end(&mut bytes).unwrap();
    assert!(child.wait().unwrap().success());
    let there = elsewhere();
    imported(&there, &bytes, &[]);
    assert_eq!(field(&there, "revision"), revision.to_string());
}

#[test]
fn a_moved_agent_runs_only_in_its_new_state_directory() {
    let here = estate();
    add(&here, "bob", "true");
    let bytes = export(&here, &["ada", "--move", "host-b"]);
    assert_eq!(export(&here, &["ada", "--move", "host-b"]), bytes, "a repeated move makes another stream");
    let refused = |words: &[&str]| {
        let ran = here.cmd([&["--json"], words].concat()).fails(4, "moved");
        assert!(ran.stderr.contains("host-b"), "{words:?}: {ran}");
    };
    let before = tree(&here.agent("ada"));
    for words in [
        &["enqueue", "ada", "hello"][..],
        &["enqueue", "ada", "hello", "--dedupe-key", "k2"],
        &["enqueue", "ada", "hello", "--in", "1h"],
        &["ask", "ada", "hello"],
        &["wake", "ada", "--reason", "x"],
        &["tick", "ada"],
        &["tick", "ada", "--dry-run"],
        &["tick", "ada", "--until-idle"],
        &["start", "ada"],
        &["stop", "ada"],
        &["recover", "ada"],
        &["preempt", "ada", "--reason", "x"],
        &["resume", "ada"],
        &["fail", "ada", "--reason", "x"],
        &["gc", "ada"],
        &["timer", "add", "-a", "ada", "--in", "1h", "x"],
        &["work", "add", "x", "-a", "ada"],
        &["wait", "--on", "external", "--reason", "x", "-a", "ada", "--resource", "r"],
        &["task", "start", "-a", "ada", "--", "true"],
        &["queue", "dead", "--ack", "-a", "ada"],
        &["trigger", "create", "-a", "ada"],
        &["await", "ada", "--status", "stopped"],
    ] {
        refused(words);
    }
    let lines = r#"{"text":"one"}
{"text":"two"}
"#;
    here.cmd(["enqueue", "ada", "--batch", "--json"]).stdin(lines).fails(4, "moved");
    here.cmd(["export", "ada", "--move", "host-c", "-o", "x.tar", "--json"]).fails(4, "moved");
    let mut changed = rewritten(&before, &tree(&here.agent("ada")));
    changed.retain(|path| {
        let is_lock = path.ends_with("lock") || path.ends_with("run.lock");
        !is_lock && !path.to_string_lossy().contains("/cache")
    });
    assert_eq!(changed, Vec::<PathBuf>::new());
    // A tick of all agents leaves out the agent that was moved away.
    here.cmd(["tick", "--all", "--json"]).assert().code(0).stdout(contains("ada").not());
    here.cmd(["tick", "--all", "--jobs", "2", "--json"]).assert().code(0).stdout(contains("ada").not());
    assert_eq!(here.cmd(["next-wake", "ada", "-q"]).output().stdout, "");
    assert_eq!(here.json(["get", "ada"])["moved"]["to"], "host-b");
    assert_eq!(here.json_lines(["list"])[0]["moved"]["to"], "host-b");
    assert!(here.run(["list"]).contains("moved to host-b"));
    assert!(here.run(["get", "ada"]).contains("to host-b"));
    assert!(here.cmd(["explain", "ada"]).output().stderr.contains("moved to host-b"));
    healthy(&here);
    assert_eq!(export(&here, &["ada"]), bytes);
    // The agent continues in its new state directory.
    let there = later_elsewhere();
    imported(&there, &bytes, &[]);
    healthy(&there);
    assert_eq!(there.json(["get", "ada"])["moved"], Value::Null);
    assert_eq!(there.cmd(["tick", "ada", "--until-idle", "-q"]).output().code(), 0);
    let mut kinds = texts(&there.json_lines(["events", "ada", "--limit", "0"]), "kind");
    kinds.retain(|kind| kind.starts_with("moved"));
    assert_eq!(kinds, ["moved_away", "moved_in"]);
    // The agent moves back with its new records.
    let back = export(&there, &["ada", "--move", "host-a"]);
    imported(&here, &back, &[]);
    healthy(&here);
    assert_eq!(here.json(["get", "ada"])["moved"], Value::Null);
    say(&here, "again");
    assert_eq!(agents(&here), ["ada", "bob"]);
    import(&here, &back, &["--json"]).fails(4, "agent_exists");
}

#[test]
fn an_older_export_does_not_replace_a_moved_agent() {
    let here = started("true");
    let older = export(&here, &["ada"]);
    say(&here, "later");
    let moved = export(&here, &["ada", "--move", "host-b"]);
    let ran = import(&here, &older, &["--json"]).fails(4, "older_export");
    assert!(failure(&ran)["hint"].as_str().unwrap().contains("`dormouse rm ada`"), "{ran}");
    assert_eq!(here.json(["get", "ada"])["moved"]["to"], "host-b");
    imported(&here, &moved, &[]);
    assert_eq!(here.json_lines(["queue", "list", "-a", "ada"]).len(), 1);
    // A removed agent has no newer records here.
    export(&here, &["ada", "--move", "host-b"]);
    here.run(["rm", "ada", "-q"]);
    imported(&here, &older, &[]);
}

/// Returns an agent `ada` in a turn, and a function that ends this turn and its tick.
#[track_caller]
pub fn in_turn() -> (Sandbox, impl FnOnce(&Sandbox)) {
    let here =
        started("touch \"$HOME/on\"; while [ -e \"$HOME/on\" ]; do sleep 0.02; done").with_real_clock();
    say(&here, "work");
    let tick = Beside::start(here.cmd(["tick", "ada"])).after_it_made(here.home().join("on"));
    let end = |here: &Sandbox| {
        fs::remove_file(here.home().join("on")).unwrap();
        tick.end();
    };
    (here, end)
}

/// Checks that a command is refused for `ada` during a turn, and then while a task is open. Returns
/// the sandbox after both have ended.
#[track_caller]
pub fn refused_during_turn_and_task(words: &[&str]) -> Sandbox {
    let run = |here: &Sandbox, kind| here.cmd(words.iter().copied()).fails(4, kind);
    let (here, end_turn) = in_turn();
    let ran = run(&here, "turn_running");
    assert!(ran.stderr.contains("dormouse stop ada"), "{ran}");
    end_turn(&here);
    let task = here.json(["task", "start", "-a", "ada", "--", "sleep", "100"])["id"].clone();
    run(&here, "task_open");
    here.cmd(["task", "stop", task.as_str().unwrap()]).output();
    here
}

/// Runs a command for `ada`, `bob` and `kid` in a turn of `ada`. The command is refused for `ada`
/// itself and for `bob`, and succeeds for the child `kid`.
#[track_caller]
pub fn turn_may_only_touch_child(command: impl Fn(&str) -> String) -> Sandbox {
    let own = own_name();
    let line = |name: &str| format!("{own} {}; echo $? >> \"$HOME/said\"; ", command(name));
    let here = started(&["ada", "bob", "kid"].map(line).concat());
    add(&here, "bob", "true");
    here.run(["create", "kid", "--parent", "ada", "--", "true"]);
    say(&here, "go");
    here.run(["tick", "ada"]);
    assert_eq!(fs::read_to_string(here.home().join("said")).unwrap(), "4\n4\n0\n");
    here
}

#[test]
fn a_move_is_refused_during_a_turn_or_task() {
    let words = ["export", "ada", "--move", "b", "-o", "x.tar", "--json"];
    let here = refused_during_turn_and_task(&words);
    assert!(!here.project().join("x.tar").exists());
    assert_eq!(here.cmd(words).output().code(), 0);
}

/// Copies an agent during a turn and a task: commands for the copy must end no original process.
#[test]
fn commands_for_a_copy_end_no_turn_or_task_of_the_original() {
    const TURN: &str = "echo x >> \"$HOME/begun\"; while [ -e \"$HOME/on\" ]; do sleep 0.02; done; echo x >> \"$HOME/ended\"";
    let here = started(TURN).with_real_clock();
    fs::write(here.home().join("on"), "").unwrap();
    let task = here.json(["task", "start", "-a", "ada", "--", "sh", "-c", "sleep 100; exit 3"])["id"].clone();
    let task = task.as_str().unwrap();
    let id = say(&here, "work");
    let tick = Beside::start(here.cmd(["tick", "ada", "--json"])).after_it_made(here.home().join("begun"));
    let bytes = export(&here, &["ada"]);
    let there = elsewhere().with_real_clock();
    imported(&there, &bytes, &[]);
    imported(&here, &bytes, &["--as", "eve"]);
    let at_work = || {
        let found = processes(&here).into_iter().filter(|process| !process.contains("sleep 0.02"));
        found.collect::<Vec<_>>()
    };
    let before = at_work();
    for (sandbox, name) in [(&there, "ada"), (&here, "eve")] {
        healthy(sandbox);
        let got = sandbox.json(["get", name]);
        assert!(got["current_run"].is_null() && got["tasks"]["open"] != 1, "{got}");
        let run = sandbox.json_lines(["run", "list", "-a", name]).pop().unwrap();
        assert_eq!((&run["terminal"], &run["message_id"]), (&"interrupted".into(), &(*id).into()), "{run}");
        assert!(run["reason"].as_str().unwrap_or_default().contains("continued there"), "{run}");
        let shown = sandbox.json(["task", "status", task, "-a", name]);
        assert_eq!(shown["status"], "interrupted", "{shown}");
        for words in
            [&["tick", name][..], &["stop", name], &["start", name], &["gc", name], &["doctor", "--repair"]]
        {
            let ran = sandbox.cmd(words).output();
            assert!([0, 7].contains(&ran.code()), "{words:?}: {ran}");
        }
        assert_eq!(at_work(), before, "a process of the original has ended: {name}");
    }
    assert_eq!(here.json(["task", "status", task, "-a", "ada"])["status"], "running");
    fs::remove_file(here.home().join("on")).unwrap();
    let ran = tick.end();
    assert_eq!(objects(&ran.stdout)[0]["terminal"], "completed", "{ran}");
    assert_eq!(fs::read_to_string(here.home().join("ended")).unwrap(), "x\n");
    here.run(["task", "stop", task, "-a", "ada"]);
    healthy(&here);
}

#[test]
fn a_move_of_a_child_with_an_open_delegation_is_refused() {
    let here = started("true");
    here.run(["task", "start", "-a", "ada", "--delegate", "kid", "hello"]);
    let words = ["export", "kid", "--move", "b", "-o", "x.tar", "--json"];
    here.cmd(["tick", "ada"]).output();
    let ran = here.cmd(words).fails(4, "task_open");
    assert!(ran.stderr.contains("`ada` waits for"), "{ran}");
    here.cmd(["tick", "--all", "--until-idle"]).output();
    here.cmd(words).exits(0);
}

/// Returns the ids of the pending messages of `ada`.
pub fn ids(sandbox: &Sandbox) -> Vec<String> {
    texts(&sandbox.json_lines(["queue", "list", "-a", "ada", "--limit", "0"]), "id")
}

/// Returns the text of the archived messages of `ada`.
fn archived(sandbox: &Sandbox) -> String {
    let months = sandbox.agent("ada").join("archive");
    let files = names(&months).into_iter().map(|month| months.join(month).join("message.jsonl"));
    files.filter_map(|file| fs::read_to_string(file).ok()).collect()
}

/// Runs a command that sends a batch (`number` 0), a message with a dedupe key (1), or a plain
/// message. Appends the printed ids to `kept`.
pub fn produce(sandbox: &Sandbox, agent: &str, number: usize, kept: &mut Vec<String>) -> Ran {
    let key = format!("k{}", kept.len());
    let batch = "{\"text\":\"a\"}\n{\"text\":\"b\"}\n";
    let ran = match number {
        0 => sandbox.cmd(["enqueue", agent, "--batch", "--json"]).stdin(batch).output(),
        1 => sandbox.cmd(["enqueue", agent, "keyed", "--json", "--dedupe-key", &key]).output(),
        _ => sandbox.cmd(["enqueue", agent, "plain", "--json"]).output(),
    };
    if ran.code() == 0 {
        kept.extend(texts(&objects(&ran.stdout), "message_id"));
    }
    ran
}

/// Returns the calls with which `enqueue` opens the inbox and renames its message into it.
pub fn around_the_arrival(template: &Sandbox) -> [Call; 2] {
    let calls = strace::record(&template.copy(), &["enqueue", "ada", "held"], "").calls;
    let arrival = paused::call(&calls, "rename", "/inbox");
    let until = calls.iter().take_while(|call| !std::ptr::eq(*call, arrival));
    let before = until.filter(|call| call.act() == "open" && call.rest.contains("/inbox")).last().unwrap();
    [before.clone(), arrival.clone()]
}

#[test]
fn producers_lose_nothing_to_a_move() {
    for round in 0..6 {
        let here = Sandbox::in_memory().with_real_clock();
        here.run(["init"]);
        add(&here, "ada", "true");
        let (here, begun) = (&here, &AtomicBool::new(false));
        let (acknowledged, bytes) = thread::scope(|scope| {
            let producers: Vec<_> = (0..4)
                .map(|number| {
                    scope.spawn(move || {
                        let mut kept = Vec::new();
                        for _ in 0..200 {
                            let ran = produce(here, "ada", number, &mut kept);
                            match ran.code() {
                                0 => begun.store(true, Ordering::Relaxed),
                                4 => {
                                    assert_eq!(failure(&ran)["kind"], "moved", "{ran}");
                                    // A refused batch prints no ids, so the test expects none of
                                    // its messages, although the export may have some.
                                    return kept;
                                }
                                _ => panic!("{ran}"),
                            }
                        }
                        panic!("200 messages, and the agent was not moved");
                    })
                })
                .collect();
            eventually("a first message", || begun.load(Ordering::Relaxed).then_some(()));
            thread::sleep(Duration::from_millis(60 + 23 * round));
            if round % 2 == 1 {
                here.cmd(["tick", "ada"]).output();
            }
            let bytes = export(here, &["ada", "--move", "b"]);
            let kept: Vec<Vec<String>> =
                producers.into_iter().map(|producer| producer.join().unwrap()).collect();
            (kept.concat(), bytes)
        });
        assert_eq!(export(here, &["ada", "--move", "b"]), bytes);
        healthy(here);
        assert_eq!(fs::read_dir(here.agent("ada").join("tmp")).unwrap().count(), 0);
        let there = elsewhere().with_real_clock();
        imported(&there, &bytes, &[]);
        healthy(&there);
        let arrived = ids(&there);
        let once: BTreeSet<&String> = arrived.iter().collect();
        assert_eq!(once.len(), arrived.len());
        let processed = archived(&there);
        let is_processed = |id: &String| processed.contains(id.as_str());
        for id in &acknowledged {
            assert!(once.contains(id) != is_processed(id), "{id}");
        }
        assert!(!acknowledged.is_empty());
        // The old store must have no message that the new store lacks.
        let left: BTreeSet<String> = ids(here).into_iter().collect();
        assert!(left.iter().all(|id| once.contains(id)), "late arrivals were taken back");
    }
}

#[test]
fn enqueue_succeeds_during_a_move_only_if_its_message_was_admitted() {
    needs!("strace");
    let template = started("true");
    let [before, arrival] = around_the_arrival(&template);
    for (call, is_taken) in [(&arrival, true), (&before, false)] {
        let here = template.copy();
        let producer = Held::at(&here, &["enqueue", "ada", "held", "--json"], "", call);
        let bytes = export(&here, &["ada", "--move", "b"]);
        producer.go_on().exits(if is_taken { 0 } else { 4 });
        let there = elsewhere();
        imported(&there, &bytes, &[]);
        assert_eq!(ids(&there).len(), usize::from(is_taken));
        assert_eq!(ids(&here).len(), usize::from(is_taken), "a refused message was kept");
        healthy(&here);
    }
}

#[test]
fn a_tick_of_all_leaves_out_an_agent_that_is_moved_after_it_was_listed() {
    needs!("strace");
    let template = started("true");
    add(&template, "bob", "true");
    say(&template, "one");
    template.run(["enqueue", "bob", "two"]);
    for words in [&["tick", "--all", "--until-idle"][..], &["tick", "--all", "--until-idle", "--jobs", "2"]] {
        let calls = strace::record(&template.copy(), words, "").calls;
        let locked = calls.iter().position(|call| call.act() == "flock" && call.rest.contains("/ada/lock"));
        let looks = calls[..locked.unwrap_or(calls.len())]
            .iter()
            .filter(|call| call.act() == "open" && call.rest.contains("/ada/"));
        let looks: Vec<_> = looks.collect();
        assert!(looks.len() > 1, "{words:?}");
        each_in_parallel(&looks, |call| {
            let here = template.copy();
            let tick = Held::at(&here, words, "", call);
            export(&here, &["ada", "--move", "b"]);
            let ran = tick.go_on();
            assert_eq!((ran.code(), ran.stderr.as_str()), (0, ""), "{words:?} held at {call}: {ran}");
            assert_eq!(here.json(["get", "bob"])["queue"]["pending"], 0, "{words:?} held at {call}");
        });
    }
}

#[test]
fn a_late_file_for_a_moved_agent_is_processed_after_its_return() {
    let here = started("true");
    say(&here, "in time");
    let bytes = export(&here, &["ada", "--move", "host-b"]);
    // A program that drops files into the inbox does not check if the agent was moved.
    let inbox = here.agent("ada").join("inbox");
    fs::write(inbox.join("late.json"), "{\"text\": \"late\"}\n").unwrap();
    let ran = here.cmd(["doctor", "--json"]).output();
    let found = objects(&ran.stdout);
    assert_eq!((ran.code(), found[0]["kind"].as_str()), (0, Some("late_arrival")), "{ran}");
    assert_eq!(export(&here, &["ada"]), bytes, "the stream lacks it");
    let there = elsewhere();
    imported(&there, &bytes, &[]);
    there.run(["tick", "ada", "--until-idle"]);
    imported(&here, &export(&there, &["ada", "--move", "host-a"]), &[]);
    healthy(&here);
    assert!(inbox.join("late.json").exists());
    let steps = here.json_lines(["tick", "ada", "--until-idle"]);
    assert_eq!(steps.iter().filter(|step| step["run_id"].is_string()).count(), 1);
}

/// Kills a command at about one in four of its calls that change files (`DORMOUSE_CUTS` sets
/// another part), each time in a copy of `template`.
pub fn killed_everywhere(
    template: &Sandbox,
    words: &[&str],
    stdin: &str,
    then: impl Fn(&Sandbox, &str) + Sync,
) {
    let points = strace::record(&template.copy(), words, stdin).points();
    assert!(points.len() > 10);
    each_in_parallel(&one_in(4, points), |call| {
        let sandbox = template.copy();
        strace::harm(&sandbox, words, stdin, call, Harm::Kill);
        then(&sandbox, &format!("killed at {call}"));
    });
}

/// System calls that can fail because the disk is full.
pub const WRITES: [&str; 8] =
    ["write", "pwrite64", "mkdir", "open", "rename", "fsync", "fdatasync", "syncfs"];

/// Returns a command's system calls with these names and side effects. Asserts that it has over 10.
pub fn changing_calls(template: &Sandbox, words: &[&str], names: &[&str]) -> Vec<Call> {
    let mut points = strace::record(&template.copy(), words, "").points();
    points.retain(|call| names.contains(&call.act()));
    assert!(points.len() > 10);
    points
}

/// Lets each of these calls of a command fail with `ENOSPC`, each time in a copy of `template`.
pub fn each_on_full_disk(
    template: &Sandbox,
    words: &[&str],
    calls: &[Call],
    then: impl Fn(&Sandbox, &Ran, &str) + Sync,
) {
    each_in_parallel(calls, |call| {
        let sandbox = template.copy();
        let ran = strace::harm(&sandbox, words, "", call, Harm::Error("ENOSPC")).ran;
        then(&sandbox, &ran, &format!("{call}: {ran}"));
    });
}

/// Suspends a command at about eight of its calls on paths that contain `part`, runs a second
/// command meanwhile, and passes the results of both to `then`.
pub fn held_at_some_calls(
    template: &Sandbox,
    words: &[&str],
    part: &str,
    second: &[&str],
    then: impl Fn(&Sandbox, &Ran, &Ran, &str) + Sync,
) {
    let mut calls = strace::record(&template.copy(), words, "").calls;
    calls.retain(|call| call.rest.contains(part));
    let some: Vec<_> = calls.iter().step_by(calls.len().div_ceil(8)).collect();
    each_in_parallel(&some, |call| {
        let here = template.copy();
        let first = Held::at(&here, words, "", call);
        let second = here.cmd(second.iter().copied()).output();
        let first = first.go_on();
        let described = format!("{words:?} held at {call}\n{first}\n{second}");
        then(&here, &first, &second, &described);
    });
}

/// Runs two commands at the same time.
pub fn at_once<const N: usize>(here: &Sandbox, commands: [[&str; N]; 2]) -> [Ran; 2] {
    thread::scope(|scope| {
        let runs = commands.map(|words| scope.spawn(move || here.cmd(words).output()));
        runs.map(|run| run.join().unwrap())
    })
}

/// Runs a command that removes or renames `ada` while three producers send messages to `ada`. Each
/// producer ends when a message is refused, or after its first message to the agent's new name.
/// Returns the acknowledged ids.
pub fn produce_during(round: u64, words: &[&str], new_name: Option<&str>) -> (Sandbox, Vec<String>) {
    let sandbox = Sandbox::in_memory().with_real_clock();
    sandbox.run(["init"]);
    add(&sandbox, "ada", "true");
    let here = &sandbox;
    let acknowledged = thread::scope(|scope| {
        let produce_until_refused = |number| {
            let mut kept: Vec<String> = Vec::new();
            let mut name = "ada";
            loop {
                let ran = produce(here, name, number, &mut kept);
                if ran.code() != 0 {
                    let kind = failure(&ran)["kind"].clone();
                    assert!(kind == "moved" || kind == "no_agent", "{ran}");
                    let Some(new_name) = new_name else { return kept };
                    name = new_name;
                } else if new_name == Some(name) {
                    return kept;
                }
            }
        };
        let producers = [0, 1, 2].map(|number| scope.spawn(move || produce_until_refused(number)));
        thread::sleep(Duration::from_millis(40 + 23 * round));
        here.cmd(words.iter().copied()).exits(0);
        producers.into_iter().flat_map(|producer| producer.join().unwrap()).collect()
    });
    (sandbox, acknowledged)
}

#[test]
fn an_export_that_moves_can_be_killed_at_every_call() {
    needs!("strace");
    let template = started("true");
    say(&template, "one");
    say(&template, "two");
    let words = ["export", "ada", "--move", "host-b", "-o", "x.tar"];
    killed_everywhere(&template, &words, "", |sandbox, what| {
        healthy(sandbox);
        let is_moved = sandbox.json(["get", "ada"])["moved"].is_object();
        sandbox.cmd(["enqueue", "ada", "three"]).exits(if is_moved { 4 } else { 0 });
        sandbox.cmd(words).exits(0);
        let there = elsewhere();
        imported(&there, &fs::read(sandbox.project().join("x.tar")).unwrap(), &[]);
        assert_eq!(ids(&there).len(), if is_moved { 2 } else { 3 }, "{what}");
        healthy(&there);
    });
}

#[test]
fn an_import_can_be_killed_at_every_call() {
    needs!("strace");
    let here = started("true");
    say(&here, "one");
    let bytes = export(&here, &["ada", "--move", "host-b"]);
    let template = elsewhere();
    fs::write(template.project().join("x.tar"), &bytes).unwrap();
    killed_everywhere(&template, &["import", "x.tar"], "", |sandbox, what| {
        let listed = sandbox.cmd(["list", "--json"]).output();
        let is_there = !objects(&listed.stdout).is_empty();
        sandbox.cmd(["import", "x.tar"]).exits(if is_there { 4 } else { 0 });
        healthy(sandbox);
        assert_eq!(ids(sandbox).len(), 1, "{what}");
        assert_eq!(sandbox.run(["tick", "ada", "-q", "--json"]).lines().count(), 1);
        sandbox.run(["create", "eve", "--", "true"]);
        assert_eq!(agents(sandbox), ["ada", "eve"], "{what}: leftover files");
    });
}

#[test]
fn the_import_of_a_returning_agent_can_be_killed_at_every_call() {
    needs!("strace");
    let here = started("true");
    say(&here, "one");
    let bytes = export(&here, &["ada", "--move", "host-b"]);
    fs::write(here.agent("ada").join("inbox/late.json"), "{\"text\": \"late\"}\n").unwrap();
    fs::write(here.project().join("x.tar"), &bytes).unwrap();
    killed_everywhere(&here, &["import", "x.tar"], "", |sandbox, what| {
        let is_back = sandbox.json(["get", "ada"])["moved"].is_null();
        sandbox.cmd(["import", "x.tar"]).exits(if is_back { 4 } else { 0 });
        sandbox.cmd(["create", "eve", "--", "true"]).output();
        healthy(sandbox);
        assert_eq!(agents(sandbox), ["ada", "eve"], "{what}");
        let steps = sandbox.cmd(["tick", "ada", "--until-idle", "--json"]).output();
        let turns = objects(&steps.stdout).iter().filter(|step| step["run_id"].is_string()).count();
        assert_eq!(turns, 2, "{what}: {steps}");
    });
}

#[test]
fn an_import_on_a_full_disk_leaves_no_agent_or_a_complete_one() {
    needs!("strace");
    let here = started("true");
    say(&here, "one");
    let template = elsewhere();
    fs::write(template.project().join("x.tar"), export(&here, &["ada", "--move", "b"])).unwrap();
    let words = ["import", "x.tar"];
    let acts = ["write", "pwrite64", "mkdir", "fsync", "fdatasync", "syncfs"];
    let mut writes = changing_calls(&template, &words, &acts);
    writes.retain(|call| call.rest.contains("/.dormouse"));
    assert!(writes.len() > 10);
    each_on_full_disk(&template, &words, &writes, |sandbox, failed, what| {
        let there = agents(sandbox);
        match failed.code() {
            0 => assert_eq!(there, ["ada"], "{what}"),
            1 => assert!(there.is_empty() || there == ["ada"], "{what}: {there:?}"),
            _ => panic!("{what}"),
        }
        healthy(sandbox);
    });
}
