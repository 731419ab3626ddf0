//! `export` and `import`: agents that go from one state directory to another, and are ticked in one place.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use predicates::prelude::*;
use predicates::str::contains;
use serde_json::Value;

use crate::harness::{Ran, Sandbox, dormouse, each_in_parallel, one_in};
use crate::held::{self, Held};
use crate::setup::{
    add, eventually, failure, field, hook, names, objects, processes, say, started, started_with, texts, tree,
};
use crate::strace::{self, Call, Harm};

/// Another state directory, without agents.
pub fn elsewhere() -> Sandbox {
    let sandbox = Sandbox::in_memory();
    sandbox.run(["init"]);
    sandbox
}

/// Where a sandbox keeps streams.
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

/// An agent with something of every kind.
#[track_caller]
fn estate() -> Sandbox {
    let sandbox = started_with(
        "echo said; echo x > \"$(dirname \"$DORMOUSE_CONTEXT\")/notes\"",
        "[retention]\ncontext = \"all\"\n",
    );
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

/// The same clock, so that what is due here is due there.
fn there(here: &Sandbox) -> Sandbox {
    let there = elsewhere();
    there.pass(101 * 24 * 3600);
    let _ = here;
    there
}

/// The files that travel, by their paths from the agent's directory: contents, and when they were written.
fn contents(sandbox: &Sandbox) -> Vec<(PathBuf, Vec<u8>, i64)> {
    let dir = sandbox.agent("ada");
    let is_local = |path: &Path| {
        let top = path.iter().next().unwrap().to_str().unwrap();
        ["lock", "run.lock", "journal.jsonl", "tmp", "cache"].contains(&top)
            || path.ends_with("leader")
            || path.ends_with(".gitkeep")
    };
    let files = tree(&dir).into_iter().filter(|(path, _)| path.is_file());
    let files = files.map(|(path, (_, bytes, at))| {
        (path.strip_prefix(&dir).unwrap().to_owned(), bytes, at / 1_000_000_000)
    });
    files.filter(|(path, ..)| !is_local(path)).collect()
}

#[test]
fn an_agent_arrives_byte_for_byte() {
    let here = estate();
    let before = contents(&here);
    let bytes = export(&here, &["ada"]);
    assert_eq!(bytes, export(&here, &["--all"]), "the same records are the same bytes");
    let there = there(&here);
    imported(&there, &bytes, &[]);
    assert_eq!(export(&there, &["ada"]), bytes);
    healthy(&there);
    assert_eq!(contents(&there), before);
    let mode = |path: &str| fs::metadata(there.agent("ada").join(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("hooks/on-startup"), mode("state.json"), mode("inbox")), (0o700, 0o600, 0o700));
    // What it was about to do it does there, and what has ended is known.
    let steps = there.cmd(["tick", "ada", "--until-idle", "--json"]).output();
    let turns: Vec<Value> =
        objects(&steps.stdout).into_iter().filter(|step| step["run_id"].is_string()).collect();
    assert!(turns.len() >= 3, "{steps}");
    assert_eq!(there.json(["enqueue", "ada", "once", "--dedupe-key", "k"])["duplicate"], true);
    assert_eq!(export(&here, &["ada"]), bytes, "nothing of it has changed here");
}

#[test]
fn a_backlog_of_thousands_arrives_whole() {
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
fn several_agents_go_in_one_stream() {
    let here = started("true");
    add(&here, "bob", "true");
    add(&here, "eve", "true");
    let bytes = export(&here, &["eve", "ada", "ada"]);
    let there = elsewhere();
    let ran = import(&there, &bytes, &["--json"]);
    let agents: Vec<Value> = objects(&ran.stdout).iter().map(|one| one["agent"].clone()).collect();
    assert_eq!(agents, ["ada", "eve"], "{ran}");
    assert_eq!(names(&there.store().join("agents")), ["ada", "eve"]);
    let all = export(&here, &["--all"]);
    // One of them is there already: none arrives.
    let before = tree(&there.store());
    import(&there, &all, &["--json"]).fails(4, "agent_exists");
    assert_eq!(tree(&there.store()), before);
}

#[test]
fn under_another_name_only_the_name_changes() {
    let here = estate();
    let bytes = export(&here, &["ada"]);
    let there = there(&here);
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
fn what_is_this_machines_own_stays() {
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
fn a_link_among_records_is_damage_and_elsewhere_left_out() {
    let here = estate();
    let dir = here.agent("ada");
    symlink("/etc/passwd", dir.join("hooks/on-suspend")).unwrap();
    fs::write(dir.join("README"), "mine").unwrap();
    let words = ["export", "ada", "--output", "x.tar"];
    here.cmd(words)
        .assert()
        .code(0)
        .stderr(contains("hooks/on-suspend: left out"))
        .stderr(contains("README: left out"));
    for place in ["work/work_0000.json", "inbox/2-x.json", "ledger/2026-01.jsonl.link"] {
        symlink("/etc/passwd", dir.join(place)).unwrap();
        let ran = here.cmd([&["--json"], &words[..]].concat()).fails(6, "damaged");
        assert!(failure(&ran)["path"].as_str().unwrap().ends_with(place), "{ran}");
        fs::remove_file(dir.join(place)).unwrap();
    }
    assert!(!names(&here.project()).iter().any(|name| name.contains(".new-")));
}

/// A stream may name any number of agents. Each is looked at before the next one gets a directory.
#[test]
#[cfg(target_os = "linux")]
fn a_stream_that_names_many_agents_and_brings_none_makes_no_directories() {
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
fn a_stream_that_is_not_as_it_was_written_brings_nothing() {
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
fn records_are_looked_at_before_they_appear() {
    let here = estate();
    let state = here.agent("ada").join("state.json");
    let whole = fs::read_to_string(&state).unwrap();
    let there = there(&here);
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
        // An export looks at no record but this one, and only as far as it must.
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
fn the_stream_goes_to_a_program_or_a_file() {
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
    assert_eq!(names(&here.store().join("agents")), ["ada"]);
}

#[test]
fn a_slow_reader_keeps_nobody_waiting() {
    let here = started("true").with_real_clock();
    fs::create_dir_all(here.agent("ada").join("quarantine")).unwrap();
    fs::write(here.agent("ada").join("quarantine/large"), vec![1; 3 << 20]).unwrap();
    let mut command = here.cmd(["export", "ada"]).into_command();
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let mut bytes = vec![0; 4096];
    stdout.read_exact(&mut bytes).unwrap();
    // It has begun to write, and nobody reads on.
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
fn an_agent_that_was_moved_is_ticked_in_one_place() {
    let here = estate();
    add(&here, "bob", "true");
    let bytes = export(&here, &["ada", "--move", "host-b"]);
    assert_eq!(export(&here, &["ada", "--move", "host-b"]), bytes, "the same as often as it is needed");
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
    let changed: Vec<PathBuf> = tree(&here.agent("ada"))
        .into_iter()
        .filter(|(path, found)| before.get(path).is_none_or(|known| known.1 != found.1))
        .map(|(path, _)| path)
        .filter(|path| {
            !path.ends_with("lock")
                && !path.ends_with("run.lock")
                && !path.to_string_lossy().contains("/cache")
        })
        .collect();
    assert_eq!(changed, Vec::<PathBuf>::new());
    // Whoever asks for all of them is not stopped by it.
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
    // There it goes on.
    let there = there(&here);
    imported(&there, &bytes, &[]);
    healthy(&there);
    assert_eq!(there.json(["get", "ada"])["moved"], Value::Null);
    assert_eq!(there.cmd(["tick", "ada", "--until-idle", "-q"]).output().code(), 0);
    let kinds: Vec<String> = there
        .json_lines(["events", "ada", "--limit", "0"])
        .iter()
        .map(|event| event["kind"].as_str().unwrap().to_owned())
        .filter(|kind| kind.starts_with("moved"))
        .collect();
    assert_eq!(kinds, ["moved_away", "moved_in"]);
    // And comes back, with what it has done.
    let back = export(&there, &["ada", "--move", "host-a"]);
    imported(&here, &back, &[]);
    healthy(&here);
    assert_eq!(here.json(["get", "ada"])["moved"], Value::Null);
    say(&here, "again");
    assert_eq!(names(&here.store().join("agents")), ["ada", "bob"]);
    import(&here, &back, &["--json"]).fails(4, "agent_exists");
}

#[test]
fn nobody_moves_what_is_at_work() {
    let here =
        started("touch \"$HOME/on\"; while [ -e \"$HOME/on\" ]; do sleep 0.02; done").with_real_clock();
    say(&here, "work");
    let tick = crate::setup::Beside::start(here.cmd(["tick", "ada"])).after_it_made(here.home().join("on"));
    let words = ["export", "ada", "--move", "b", "-o", "x.tar", "--json"];
    let ran = here.cmd(words).fails(4, "turn_running");
    assert!(ran.stderr.contains("dormouse stop ada"), "{ran}");
    fs::remove_file(here.home().join("on")).unwrap();
    tick.end();
    let task =
        here.json(["task", "start", "-a", "ada", "--", "sleep", "100"])["id"].as_str().unwrap().to_owned();
    here.cmd(words).fails(4, "task_open");
    here.cmd(["task", "stop", &task]).output();
    assert!(!here.project().join("x.tar").exists());
    assert_eq!(here.cmd(words).output().code(), 0);
}

/// A copy has the ids of its original. What goes on under them goes on in the original alone.
#[test]
fn a_copy_of_what_is_at_work_leaves_the_original_alone() {
    const TURN: &str = "echo x >> \"$HOME/begun\"; while [ -e \"$HOME/on\" ]; do sleep 0.02; done; echo x >> \"$HOME/ended\"";
    let here = started(TURN).with_real_clock();
    fs::write(here.home().join("on"), "").unwrap();
    let task = here.json(["task", "start", "-a", "ada", "--", "sh", "-c", "sleep 100; exit 3"])["id"].clone();
    let task = task.as_str().unwrap();
    let id = say(&here, "work");
    let tick = crate::setup::Beside::start(here.cmd(["tick", "ada", "--json"]))
        .after_it_made(here.home().join("begun"));
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
        assert_eq!(at_work(), before, "nothing of the original has ended: {name}");
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
fn nobody_moves_a_child_that_is_waited_for() {
    let here = started("true");
    here.run(["task", "start", "-a", "ada", "--delegate", "kid", "hello"]);
    let words = ["export", "kid", "--move", "b", "-o", "x.tar", "--json"];
    here.cmd(["tick", "ada"]).output();
    let ran = here.cmd(words).fails(4, "task_open");
    assert!(ran.stderr.contains("`ada` waits for"), "{ran}");
    here.cmd(["tick", "--all", "--until-idle"]).output();
    here.cmd(words).exits(0);
}

/// The messages of an inbox, by id.
pub fn ids(sandbox: &Sandbox) -> Vec<String> {
    texts(&sandbox.json_lines(["queue", "list", "-a", "ada", "--limit", "0"]), "id")
}

/// The archived messages, as text.
fn archived(sandbox: &Sandbox) -> String {
    let months = sandbox.agent("ada").join("archive");
    let files = names(&months).into_iter().map(|month| months.join(month).join("message.jsonl"));
    files.filter_map(|file| fs::read_to_string(file).ok()).collect()
}

/// One command of a producer: a batch, a message with a key, or a plain one. Keeps the ids that it acknowledges.
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

/// The calls with which `enqueue` opens the inbox, and puts its message into it.
pub fn around_the_arrival(template: &Sandbox) -> [Call; 2] {
    let calls = strace::record(&template.copy(), &["enqueue", "ada", "held"], "").calls;
    let arrival = held::call(&calls, "rename", "/inbox");
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
                                    // The part of a batch that went with it is not acknowledged, and may be there.
                                    return kept;
                                }
                                _ => panic!("{ran}"),
                            }
                        }
                        panic!("it was never moved");
                    })
                })
                .collect();
            eventually("a first message", || begun.load(Ordering::Relaxed).then_some(()));
            thread::sleep(std::time::Duration::from_millis(60 + 23 * round));
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
        // What was refused is in neither place.
        let left: BTreeSet<String> = ids(here).into_iter().collect();
        assert!(left.iter().all(|id| once.contains(id)), "late arrivals were taken back");
    }
}

#[test]
fn a_producer_that_is_held_around_its_arrival_learns_what_became_of_it() {
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
        assert_eq!(ids(&here).len(), usize::from(is_taken), "what is refused is gone");
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
fn what_comes_late_is_told_and_comes_along_when_the_agent_is_back() {
    let here = started("true");
    say(&here, "in time");
    let bytes = export(&here, &["ada", "--move", "host-b"]);
    // Who drops files asks nobody.
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

/// Kills a command at every call that changes something.
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
        let agents = sandbox.cmd(["list", "--json"]).output();
        let is_there = !objects(&agents.stdout).is_empty();
        sandbox.cmd(["import", "x.tar"]).exits(if is_there { 4 } else { 0 });
        healthy(sandbox);
        assert_eq!(ids(sandbox).len(), 1, "{what}");
        assert_eq!(sandbox.run(["tick", "ada", "-q", "--json"]).lines().count(), 1);
        sandbox.run(["create", "eve", "--", "true"]);
        assert_eq!(names(&sandbox.store().join("agents")), ["ada", "eve"], "{what}: litter is swept");
    });
}

#[test]
fn an_agent_that_comes_back_can_be_killed_at_every_call() {
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
        assert_eq!(names(&sandbox.store().join("agents")), ["ada", "eve"], "{what}");
        let steps = sandbox.cmd(["tick", "ada", "--until-idle", "--json"]).output();
        let turns = objects(&steps.stdout).iter().filter(|step| step["run_id"].is_string()).count();
        assert_eq!(turns, 2, "{what}: {steps}");
    });
}

#[test]
fn an_import_that_finds_the_disk_full_leaves_nothing() {
    needs!("strace");
    let here = started("true");
    say(&here, "one");
    let template = elsewhere();
    fs::write(template.project().join("x.tar"), export(&here, &["ada", "--move", "b"])).unwrap();
    let words = ["import", "x.tar"];
    let points = strace::record(&template.copy(), &words, "").points();
    let writes: Vec<_> = points
        .into_iter()
        .filter(|call| ["write", "pwrite64", "mkdir", "fsync", "fdatasync", "syncfs"].contains(&call.act()))
        .filter(|call| call.rest.contains("/.dormouse"))
        .collect();
    assert!(writes.len() > 10);
    each_in_parallel(&writes, |call| {
        let sandbox = template.copy();
        let harmed = strace::harm(&sandbox, &words, "", call, Harm::Error("ENOSPC"));
        let there = names(&sandbox.store().join("agents"));
        match harmed.ran.code() {
            0 => assert_eq!(there, ["ada"], "{call}"),
            1 => assert!(there.is_empty() || there == ["ada"], "{call}: {there:?}"),
            _ => panic!("{call}: {}", harmed.ran),
        }
        healthy(&sandbox);
    });
}
