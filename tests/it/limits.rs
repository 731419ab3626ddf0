//! Tests that committed transactions can be applied, and records read, under the limits of the
//! system and of the policy.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use crate::harness::{Cmd, Sandbox, copy_of_dormouse, dormouse};
use crate::journal::{self, NO_MARK, line};
use crate::missing_tools::leave_out;
use crate::setup::{self, edit_policy, failure, json_in, objects};
use crate::strace;

/// State directory with a started agent `a`, whose turns run this line of shell.
fn sandbox(turn: &str) -> Sandbox {
    let sandbox = Sandbox::new();
    setup::add(&sandbox, "a", turn);
    sandbox
}

/// Command under limits of the system, as `prlimit` names them.
fn under<'s>(sandbox: &'s Sandbox, limits: &[&str], args: &[&str]) -> Cmd<'s> {
    let mut line: Vec<String> = limits.iter().map(|limit| format!("--{limit}")).collect();
    line.push(dormouse().to_string_lossy().into_owned());
    line.extend(args.iter().map(|arg| (*arg).to_owned()));
    sandbox.program("prlimit", line.into_iter().map(Into::into).collect())
}

/// Replaces the journal of `a` by one line with these writes, which no command has applied.
fn write_journal(sandbox: &Sandbox, revision: &Value, writes: &[Value]) {
    let journal = json!({
        "schema": "dormouse/journal/1", "base_revision": revision, "writes": writes, "appends": [],
        "deletes": [], "number": 1,
    });
    let path = sandbox.agent("a").join("journal.jsonl");
    journal::write(&path, line(&journal, NO_MARK, NO_MARK).as_bytes());
}

/// A journal that a command wrote under wide limits can be applied under tight limits.
#[test]
fn a_journal_line_with_3000_writes_is_applied_with_64_open_files() {
    let sandbox = sandbox("true");
    let dir = sandbox.agent("a");
    let state = fs::read_to_string(dir.join("state.json")).unwrap();
    let mut newer: Value = serde_json::from_str(&state).unwrap();
    let revision = newer["revision"].clone();
    newer["revision"] = (revision.as_u64().unwrap() + 1).into();
    let item = sandbox.run(["work", "add", "one", "--agent", "a"]);
    let item = item.trim();
    let text = fs::read_to_string(dir.join(format!("work/{item}.json"))).unwrap();
    fs::write(dir.join("state.json"), state).unwrap();
    let writes = (0..3000).map(|number| {
        let id = format!("{}{number:012x}", &item[..item.len() - 12]);
        let text = text.replace(item, &id).replace("\"one\"", &format!("\"{}\"", "x".repeat(10_000)));
        json!({ "path": format!("work/{id}.json"), "content": text })
    });
    let last = json!({ "path": "state.json", "content": format!("{newer}\n") });
    write_journal(&sandbox, &revision, &writes.chain([last]).collect::<Vec<_>>());
    under(&sandbox, &["nofile=64"], &["stop", "a"]).exits(0);
    assert_eq!(fs::read_dir(dir.join("work")).unwrap().count(), 3001);
    sandbox.run(["doctor"]);
}

/// Replaces the table `[limits]` of the policy of `a`.
fn set(sandbox: &Sandbox, limits: &str) {
    edit_policy(sandbox, "a", |text| {
        let text = text.split("\n[limits]").next().unwrap();
        format!("{text}\n[limits]\n{limits}\n")
    });
}

/// Writes files into the inbox of `a`. Each is a message, unless its name contains `junk`.
fn drop_files(sandbox: &Sandbox, names: impl IntoIterator<Item = String>) {
    for name in names {
        let text = if name.contains("junk") { "junk".to_owned() } else { format!(r#"{{"text": "{name}"}}"#) };
        fs::write(sandbox.agent("a").join("inbox").join(name), text).unwrap();
    }
}

/// Returns the paths of the messages in the inbox of an agent.
fn messages(sandbox: &Sandbox, agent: &str) -> Vec<PathBuf> {
    let dir = sandbox.agent(agent).join("inbox");
    let names = setup::names(&dir).into_iter().filter(|name| name.starts_with("2-msg_"));
    names.map(|name| dir.join(name)).collect()
}

/// Turn that writes an outcome with `count` times this action.
fn acting(action: &str, count: usize) -> String {
    let actions = vec![action; count].join(",");
    format!("cat > \"$DORMOUSE_OUTCOME\" <<'EOF'\n{{\"actions\": [{actions}]}}\nEOF")
}

/// Sends `a` a message. Its turn, [`RUNS_HOME`], writes an outcome with `count` times this action.
fn with_outcome(sandbox: &Sandbox, action: &str, count: usize) {
    fs::write(sandbox.home().join("turn"), acting(action, count)).unwrap();
    sandbox.run(["enqueue", "a", "go"]);
}

/// Turn that runs the script `home/turn`.
const RUNS_HOME: &str = ". \"$HOME/turn\"";
const ADD: &str = r#"{"do": "work.add", "objective": "one of many"}"#;

#[test]
fn a_thousand_dropped_files_are_admitted_with_1024_open_files() {
    let sandbox = sandbox("true");
    set(&sandbox, "max_drops_per_step = 5000");
    drop_files(&sandbox, (0..1015).map(|number| format!("{number}.json")));
    under(&sandbox, &["nofile=1024"], &["tick", "a"]).exits(0);
    assert_eq!(sandbox.run(["queue", "list", "--agent", "a", "--limit", "0"]).lines().count(), 1014);
    sandbox.run(["doctor"]);
}

#[test]
fn dropped_files_beyond_the_limit_stay_for_the_next_steps() {
    let sandbox = sandbox("true");
    set(&sandbox, "max_drops_per_step = 3");
    drop_files(&sandbox, (0..7).map(|number| format!("{number}.json")));
    for left in [4, 1, 0] {
        let foreseen = sandbox.json(["tick", "a", "--dry-run"]);
        let stepped = sandbox.json(["tick", "a"]);
        assert_eq!(foreseen["decision"], stepped["decision"]);
        assert_eq!(sandbox.json(["get", "a"])["queue"]["dropped_files"], left, "{stepped}");
    }
    // Files that are dropped before a stop become messages, which get their turns after `start`.
    drop_files(&sandbox, (7..14).map(|number| format!("{number}.json")));
    sandbox.run(["stop", "a"]);
    sandbox.run(["tick", "a"]);
    sandbox.run(["start", "a"]);
    assert!(!sandbox.run(["next-wake", "a"]).is_empty());
    sandbox.run(["tick", "a", "--until-idle"]);
    assert_eq!(sandbox.json_lines(["events", "a", "--kind", "run_settled"]).len(), 14);
    sandbox.run(["doctor"]);
}

/// A step that has rejected `max_drops_per_step` files in the inbox takes in further files until
/// one is a message.
#[test]
fn a_step_that_has_only_rejected_dropped_files_reads_more_of_them() {
    let sandbox = sandbox("true");
    set(&sandbox, "max_drops_per_step = 2");
    drop_files(&sandbox, (0..5).map(|number| format!("junk{number}")).chain(["last.json".to_owned()]));
    assert_eq!(sandbox.json(["tick", "a", "--dry-run"])["decision"], "start_model_turn");
    let ran = sandbox.cmd(["--json", "tick", "a"]).exits(7);
    assert_eq!(objects(&ran.stdout).last().unwrap()["decision"], "start_model_turn");
    assert_eq!(fs::read_dir(sandbox.agent("a").join("inbox/rejected")).unwrap().count(), 10);
    assert_eq!(sandbox.json(["tick", "a"])["decision"], "sleep");
}

#[test]
fn an_outcome_with_more_actions_than_max_actions_is_refused() {
    let sandbox = sandbox(RUNS_HOME);
    with_outcome(&sandbox, ADD, 1034);
    let reason = "$.actions: it has 1034 actions, more than limits.max_actions = 1000";
    sandbox.cmd(["--json", "tick", "a"]).exits(7).shows(reason);
    assert_eq!(fs::read_dir(sandbox.agent("a").join("work")).unwrap().count(), 0);
    // The first message is not retried, because its turn exited with status 0. The turn of the
    // second one has the same actions, and a higher limit permits them, also with few open files.
    set(&sandbox, "max_actions = 1034\nmax_open_work = 2000");
    sandbox.run(["enqueue", "a", "again"]);
    sandbox.pass(60);
    under(&sandbox, &["nofile=64"], &["tick", "a", "--until-idle", "--max-steps", "2"]).exits(0);
    assert_eq!(fs::read_dir(sandbox.agent("a").join("work")).unwrap().count(), 1034);
    sandbox.run(["doctor"]);
}

#[test]
fn an_outcome_larger_than_max_outcome_is_refused() {
    let sandbox = sandbox(RUNS_HOME);
    with_outcome(&sandbox, ADD, 2);
    // The second line of the script is the outcome; the here-document adds a line break.
    let bytes = acting(ADD, 2).lines().nth(1).unwrap().len() + 1;
    set(&sandbox, &format!("max_outcome = {}", bytes - 1));
    let reason = format!("it has {bytes} bytes, more than limits.max_outcome = {} bytes", bytes - 1);
    sandbox.cmd(["--json", "tick", "a"]).exits(7).shows(&reason);
    set(&sandbox, &format!("max_outcome = {bytes}"));
    sandbox.run(["enqueue", "a", "again"]);
    sandbox.pass(60);
    sandbox.run(["tick", "a", "--until-idle", "--max-steps", "2"]);
    assert_eq!(fs::read_dir(sandbox.agent("a").join("work")).unwrap().count(), 2);
}

#[test]
fn max_open_work_refuses_new_items_and_keeps_open_items_usable() {
    let sandbox = sandbox(RUNS_HOME);
    set(&sandbox, "max_open_work = 3");
    let items: Vec<String> = ["one", "two", "three"]
        .iter()
        .map(|word| sandbox.run(["work", "add", word, "--agent", "a"]).trim().to_owned())
        .collect();
    let refused = "dormouse: 3 work items are open: one more would pass limits.max_open_work = 3\n\
        hint: complete some, or raise limits.max_open_work in agent.toml\n";
    sandbox.cmd(["work", "add", "four", "--agent", "a"]).status(4).complains(refused);
    with_outcome(&sandbox, ADD, 1);
    sandbox.cmd(["tick", "a"]).exits(7).shows("limits.max_open_work = 3");
    // A limit below the number of open items refuses new items alone.
    set(&sandbox, "max_open_work = 1");
    sandbox.run(["work", "update", &items[0], "--objective", "changed"]);
    sandbox.run(["work", "complete", &items[0]]);
    sandbox.run(["work", "complete", &items[1]]);
    let refused = refused.replace("3 work items are", "1 work items are").replace("= 3", "= 1");
    sandbox.cmd(["work", "add", "four", "--agent", "a"]).status(4).complains(&refused);
    // An outcome may add an item after an action that completes one.
    let swap = format!(r#"{{"do": "work.complete", "id": "{}"}}, {ADD}"#, items[2]);
    with_outcome(&sandbox, &swap, 1);
    sandbox.pass(60);
    sandbox.run(["tick", "a", "--until-idle", "--max-steps", "2"]);
    assert_eq!(fs::read_dir(sandbox.agent("a").join("work")).unwrap().count(), 1);
    sandbox.run(["doctor"]);
}

/// A reader before the journal is applied sees the records as they will be after that: of two
/// writes of one file, the last.
#[test]
fn of_two_writes_of_a_file_in_a_transaction_readers_see_the_last() {
    let sandbox = sandbox("true");
    let item = sandbox.run(["work", "add", "first", "--agent", "a"]).trim().to_owned();
    let dir = sandbox.agent("a");
    let read = |path: &str| fs::read_to_string(dir.join(path)).unwrap();
    let (path, state) = (format!("work/{item}.json"), read("state.json"));
    let second = read(&path).replace("first", "second");
    sandbox.run(["work", "update", &item, "--objective", "third"]);
    let write = |path: &str, content: String| json!({ "path": path, "content": content });
    let revision = &serde_json::from_str::<Value>(&state).unwrap()["revision"];
    let writes = [write(&path, second), write(&path, read(&path)), write("state.json", read("state.json"))];
    fs::write(dir.join("state.json"), state).unwrap();
    write_journal(&sandbox, revision, &writes);
    let before = sandbox.json(["work", "show", &item]);
    assert_eq!(before["objective"], "third", "{before}");
    sandbox.run(["doctor"]);
    assert_eq!(sandbox.json(["work", "show", &item])["objective"], "third");
}

/// A command raises its limit of open files to the maximum; its children get the limits that it was
/// started with.
#[test]
fn a_command_raises_its_own_limit_of_open_files_and_not_its_childrens() {
    let sandbox = sandbox(
        "echo $(ulimit -Sn) $(ulimit -Hn) $(awk '/open files/ { print $4 }' /proc/$PPID/limits) \
         $(awk '/SigIgn/ { print $2 }' /proc/self/status)",
    );
    sandbox.run(["enqueue", "a", "go"]);
    let limits = ["nofile=100:500", "fsize=100000000"];
    under(&sandbox, &limits, &["tick", "a", "--json"]).exits(0);
    let said = sandbox.json(["briefs", "a"])["text"].as_str().unwrap().to_owned();
    let (files, ignored) = said.rsplit_once(' ').unwrap();
    assert_eq!(files, "100 500 500");
    let xfsz = 1 << 24;
    assert_eq!(u64::from_str_radix(ignored, 16).unwrap() & xfsz, 0);
    setup::add(&sandbox, "b", "ulimit -Sn");
    sandbox.run(["enqueue", "a", "go"]);
    sandbox.run(["enqueue", "b", "go"]);
    under(&sandbox, &limits, &["tick", "--all", "--jobs", "2"]).exits(0);
    assert_eq!(sandbox.json(["briefs", "b"])["text"], "100");
}

/// Sandbox of a user of its own, whose number of processes can be limited.
struct Crowded {
    sandbox: Sandbox,
    program: PathBuf,
}

impl Crowded {
    /// Returns `None` unless the tests run as root, and so can become another user.
    fn new(turn: &str) -> Option<Crowded> {
        if !rustix::process::geteuid().is_root() {
            leave_out("needs root");
            return None;
        }
        let sandbox = sandbox(turn);
        let program = sandbox.home().join("dormouse");
        copy_of_dormouse(&program);
        let chown = Command::new("chown").args(["-R", USER]).arg(sandbox.root()).status().unwrap();
        assert!(chown.success());
        Some(Crowded { sandbox, program })
    }

    /// Command of the user, who may have this number of processes.
    fn cmd(&self, processes: u32, args: &[&str]) -> Cmd<'_> {
        let (user, nproc) = (format!("--reuid={USER}"), format!("--nproc={processes}"));
        let program = self.program.to_string_lossy().into_owned();
        let group = format!("--regid={USER}");
        let mut line = vec![user.as_str(), &group, "--clear-groups", "prlimit", &nproc, &program];
        line.extend(args);
        self.sandbox.program("setpriv", line.into_iter().map(Into::into).collect())
    }
}

/// User id that owns no other process.
const USER: &str = "54321";

#[test]
fn a_process_that_can_not_be_started_is_reported_and_damages_nothing() {
    let Some(crowded) = Crowded::new("true") else { return };
    crowded.cmd(1, &["enqueue", "a", "go"]).exits(0);
    let ran = crowded.cmd(1, &["--json", "tick", "a"]).exits(1);
    let ran = ran.warns("resource temporarily unavailable\nhint: no more processes may be");
    setup::assert_includes(&failure(&ran), json!({ "exit_status": 1, "agent": "a" }));
    let start = ["task", "start", "--agent", "a", "--", "true"];
    crowded.cmd(1, &start).exits(1).warns("ulimit -u");
    crowded.cmd(1, &["doctor"]).exits(0);
    crowded.sandbox.pass(60);
    crowded.cmd(50, &["tick", "a", "--until-idle"]).exits(0);
}

#[test]
fn jobs_start_one_after_another_if_not_all_can_start_at_once() {
    let Some(crowded) = Crowded::new("true") else { return };
    for name in ["b", "c", "d"] {
        crowded.cmd(50, &["create", name, "--", "true"]).exits(0);
        crowded.cmd(50, &["start", name]).exits(0);
    }
    crowded.cmd(1, &["tick", "--all", "--jobs", "4"]).exits(1).warns("can't run");
    // With room for one child process, each job starts after the end of the job before.
    let ran = crowded.cmd(2, &["tick", "--all", "--jobs", "4"]).exits(0);
    assert_eq!(ran.stdout.lines().count(), 4, "{ran}");
}

/// Input of `enqueue --batch` with this number of messages.
fn batch(messages: usize) -> String {
    (0..messages).map(|number| format!("{{\"text\": \"{number}\"}}\n")).collect()
}

/// A batch succeeds where no thread can be started.
#[test]
fn a_batch_needs_no_threads() {
    let Some(crowded) = Crowded::new("true") else { return };
    let ran = crowded.cmd(1, &["enqueue", "a", "--batch"]).stdin(batch(500)).exits(0);
    assert_eq!(ran.stdout.lines().count(), 500);
}

#[test]
fn a_batch_of_thousands_is_admitted_with_64_open_files() {
    let sandbox = sandbox("true");
    let ran = under(&sandbox, &["nofile=64"], &["enqueue", "a", "--batch"]).stdin(batch(5000)).exits(0);
    assert_eq!(ran.stdout.lines().count(), 5000);
    under(&sandbox, &["nofile=64"], &["tick", "a"]).exits(0);
}

#[test]
fn a_limit_of_the_file_size_causes_an_error_and_no_signal() {
    let sandbox = sandbox("true");
    sandbox.run(["enqueue", "a", "go"]);
    for size in [0, 1, 100, 600, 1500] {
        for args in [&["enqueue", "a", "hello"][..], &["tick", "a"], &["work", "add", "one", "--agent", "a"]]
        {
            let limit = format!("fsize={size}");
            let ran = under(&sandbox, &[&limit], &[&["--json"], args].concat()).output();
            assert!([0, 1, 7].contains(&ran.code()), "{size} {args:?}: {ran}");
            if ran.code() == 1 {
                let hint = failure(&ran)["hint"].as_str().unwrap().to_owned();
                assert!(hint.contains("ulimit -f"), "{size} {args:?}: {ran}");
            }
            sandbox.run(["doctor"]);
        }
    }
    sandbox.pass(3600);
    sandbox.run(["tick", "a", "--until-idle"]);
}

/// A lack of memory may end a command, but it tears no record, and the next command works.
#[test]
fn a_lack_of_memory_damages_no_record() {
    let sandbox = sandbox("true");
    for size in (4..40).step_by(4) {
        let limit = format!("as={}", size << 20);
        for args in [&["enqueue", "a", "--batch"][..], &["tick", "a"]] {
            let ran = under(&sandbox, &[&limit], args).stdin(batch(300)).output();
            assert!(!ran.stderr.contains("panicked"), "{size} {args:?}: {ran}");
            sandbox.run(["doctor"]);
        }
    }
}

#[test]
fn a_job_that_died_is_reported_with_the_name_of_its_agent() {
    let sandbox = sandbox("true");
    setup::add(&sandbox, "b", "kill -9 $PPID; sleep 10");
    for name in ["a", "b"] {
        sandbox.run(["enqueue", name, "go"]);
    }
    let ran = sandbox.cmd(["--json", "tick", "--all", "--jobs", "2"]).output();
    let ended = "dormouse: b: its tick was ended by signal 9\n";
    assert_eq!((ran.code(), ran.stderr.as_str()), (1, ended), "{ran}");
    let lines = objects(&ran.stdout);
    let told: Vec<&Value> = lines.iter().filter_map(|line| line.get("error")).collect();
    assert_eq!(told.len(), 1, "{ran}");
    setup::assert_includes(told[0], json!({ "agent": "b", "exit_status": 1 }));
    assert!(lines.iter().any(|line| line["agent"] == "a" && line["terminal"] == "completed"), "{ran}");
}

/// Returns the number of system calls of a step whose turn sends `count` messages to another agent.
fn calls_to_deliver(count: usize) -> usize {
    let sandbox = sandbox(RUNS_HOME);
    set(&sandbox, "max_actions = 10000");
    sandbox.run(["create", "b", "--", "true"]);
    with_outcome(&sandbox, r#"{"do": "enqueue", "agent": "b", "text": "one of many"}"#, count);
    let calls = strace::calls(&sandbox, &["tick", "a"]).values().sum();
    assert_eq!(messages(&sandbox, "b").len(), count);
    assert_eq!(sandbox.json(["get", "a"])["outbox"], Value::Null);
    sandbox.run(["doctor"]);
    calls
}

#[test]
fn the_delivery_of_an_outbox_needs_a_linear_number_of_calls() {
    needs!("strace");
    let [none, some, many] = [1, 200, 2000].map(calls_to_deliver);
    let (each_of_some, each_of_many) = ((some - none) as f64 / 200.0, (many - none) as f64 / 2000.0);
    assert!(each_of_many < each_of_some * 1.2, "{none}, {some}, {many}");
}

/// A step that was killed during the delivery leads to no second delivery of a message.
#[test]
fn a_partly_delivered_outbox_delivers_each_message_once() {
    let sandbox = sandbox(RUNS_HOME);
    setup::add(&sandbox, "b", "true");
    let action = r#"{"do": "enqueue", "agent": "b", "text": "one of many"}"#;
    with_outcome(&sandbox, action, 20);
    sandbox.run(["tick", "a"]);
    let said: Vec<Value> = messages(&sandbox, "b").iter().map(json_in).collect();
    assert_eq!(said.len(), 20);
    // `b` has processed 5 of 20 messages; 5 have not arrived, and 10 are still in the inbox.
    for _ in 0..5 {
        sandbox.run(["tick", "b"]);
    }
    for path in &messages(&sandbox, "b")[..5] {
        fs::remove_file(path).unwrap();
    }
    let outbox = sandbox.agent("a").join("outbox");
    for message in &said {
        let name = format!("{}.json", message["id"].as_str().unwrap());
        fs::write(outbox.join(name), message.to_string()).unwrap();
    }
    let path = sandbox.agent("a").join("state.json");
    let mut state = json_in(&path);
    state["outbox"] = json!({ "messages": 20, "bytes": 20_000 });
    fs::write(&path, state.to_string()).unwrap();
    sandbox.run(["tick", "a"]);
    assert_eq!(messages(&sandbox, "b").len(), 15);
    assert_eq!(setup::names(&outbox), Vec::<String>::new());
    sandbox.run(["tick", "b", "--until-idle"]);
    assert_eq!(sandbox.json_lines(["events", "b", "--kind", "run_settled"]).len(), 20);
    sandbox.run(["doctor"]);
}

/// A command refuses to write a record that would be too large to be read.
#[test]
fn a_record_that_would_be_too_large_to_read_is_not_written() {
    let sandbox = sandbox(RUNS_HOME);
    // JSON writes the byte 1 as six bytes, `\u0001`, so a body of 2 MiB exceeds `max_record`.
    set(&sandbox, "max_message = \"64 MiB\"\nmax_outcome = \"8 MiB\"");
    let refused = sandbox.cmd(["enqueue", "a", "-"]).stdin(vec![1; 2 << 20]).exits(4);
    refused.warns("more than max_record = 8 MiB");
    assert!(messages(&sandbox, "a").is_empty());
    // `max_record` also limits a work item that the outcomes of two turns make larger.
    let item = sandbox.run(["work", "add", "one", "--agent", "a"]).trim().to_owned();
    let text = "\\u0001".repeat(1_300_000);
    fs::write(sandbox.home().join("turn"), "cp \"$HOME/outcome\" \"$DORMOUSE_OUTCOME\"").unwrap();
    let update = |field: &str| {
        let actions = format!(r#"{{"actions": [{{"do": "work.update", "id": "{item}", {field}}}]}}"#);
        fs::write(sandbox.home().join("outcome"), actions).unwrap();
        sandbox.run(["enqueue", "a", "go"]);
    };
    update(&format!(r#""objective": "{text}""#));
    sandbox.run(["tick", "a"]);
    update(&format!(r#""todo": [{{"text": "{text}", "state": "pending"}}]"#));
    sandbox.cmd(["tick", "a"]).exits(7).shows("more than max_record = 8 MiB");
    sandbox.run(["doctor"]);
}

/// The outbox for an agent that is locked is bounded, and `state.json` contains none of its
/// messages.
#[test]
fn the_outbox_for_a_locked_agent_is_bounded() {
    let sandbox = sandbox(RUNS_HOME);
    sandbox.run(["create", "b", "--", "true"]);
    let lock = fs::File::create(sandbox.agent("b").join("lock")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let action = format!(r#"{{"do": "enqueue", "agent": "b", "text": "{}"}}"#, "x".repeat(900_000));
    fs::write(sandbox.home().join("turn"), acting(&action, 4)).unwrap();
    let step = || {
        sandbox.run(["enqueue", "a", "go"]);
        sandbox.cmd(["tick", "a", "--lock-timeout", "0s"]).output()
    };
    for _ in 0..2 {
        step().exits(0).warns("more are not delivered yet");
    }
    assert_eq!(setup::names(&sandbox.agent("a").join("outbox")).len(), 8);
    assert!(fs::metadata(sandbox.agent("a").join("state.json")).unwrap().len() < 20_000);
    step().exits(7).shows("more than max_outbox = 8 MiB");
    drop(lock);
    sandbox.pass(3600);
    sandbox.run(["tick", "a", "--until-idle"]);
    assert_eq!(messages(&sandbox, "b").len(), 8, "the third turn has failed, and is not repeated");
    assert_eq!(sandbox.run(["get", "a", "queue.dead"]), "1\n");
    sandbox.run(["doctor"]);
}

/// A step fires only as many of the due timers as fit into one transaction; further steps fire the
/// rest.
#[test]
fn a_step_fires_only_as_many_timers_as_fit_into_a_transaction() {
    let sandbox = sandbox("true");
    let text = "x".repeat(900_000);
    for _ in 0..25 {
        sandbox.cmd(["timer", "add", "--agent", "a", "--in", "1m", "-"]).stdin(text.clone()).exits(0);
    }
    sandbox.pass(3600);
    sandbox.run(["tick", "a"]);
    let waiting = messages(&sandbox, "a").len();
    assert!((10..25).contains(&waiting), "{waiting}");
    sandbox.run(["tick", "a", "--until-idle"]);
    assert_eq!(sandbox.json_lines(["events", "a", "--kind", "run_settled"]).len(), 25);
}

/// A batch treats its lines in order, as if each were a command; it needs no more open files than
/// a single message.
#[test]
fn a_batch_with_keys_admits_each_key_once() {
    let sandbox = sandbox("true");
    sandbox.run(["enqueue", "a", "before", "--dedupe-key", "k7"]);
    let line = |number: usize| match number % 10 {
        0 => "{\"text\": \"without\"}\n".to_owned(),
        _ => format!("{{\"text\": \"{number}\", \"dedupe_key\": \"k{}\"}}\n", number % 500),
    };
    let lines: String = (0..1000).map(line).collect();
    let ran = under(&sandbox, &["nofile=64"], &["enqueue", "a", "--batch", "--json"]).stdin(lines).exits(0);
    let answers = objects(&ran.stdout);
    assert_eq!(answers.len(), 1000);
    let is_repeat = |at: usize| !at.is_multiple_of(10) && (at >= 500 || at == 7);
    for (at, answer) in answers.iter().enumerate() {
        assert_eq!(answer["duplicate"], is_repeat(at), "{at}");
        if is_repeat(at) && at >= 500 {
            assert_eq!(answer["message_id"], answers[at % 500]["message_id"], "{at}");
        }
    }
    assert_eq!(messages(&sandbox, "a").len(), 1 + 449 + 100);
    sandbox.run(["doctor"]);
}

#[test]
fn large_dropped_files_are_admitted_over_several_steps() {
    let sandbox = sandbox("true");
    set(&sandbox, "max_drops_per_step = 5000");
    let text = format!(r#"{{"text": "{}"}}"#, "x".repeat(1_000_000));
    for number in 0..40 {
        fs::write(sandbox.agent("a").join("inbox").join(format!("{number}.json")), &text).unwrap();
    }
    sandbox.run(["tick", "a"]);
    let left = &sandbox.json(["get", "a"])["queue"]["dropped_files"];
    assert!((20..30).contains(&left.as_u64().unwrap()), "{left}");
    sandbox.run(["tick", "a", "--until-idle"]);
    assert_eq!(sandbox.json_lines(["events", "a", "--kind", "run_settled"]).len(), 40);
}
