//! Tests rejected files of an inbox: they stop no agent, commands list them, and a person accepts
//! or drops each.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::harness::{Ran, Sandbox};
use crate::missing_tools::leave_out;
use crate::setup::{add, names, objects, texts};

/// Returns a started agent `a` whose turns succeed, with an empty inbox.
fn sandbox() -> Sandbox {
    let sandbox = Sandbox::new();
    add(&sandbox, "a", "true");
    sandbox.run(["tick", "a", "--until-idle"]);
    sandbox
}

fn inbox(sandbox: &Sandbox) -> PathBuf {
    sandbox.agent("a").join("inbox")
}

fn rejected(sandbox: &Sandbox) -> Vec<Value> {
    sandbox.json_lines(["queue", "rejected", "-a", "a"])
}

fn rejected_paths(sandbox: &Sandbox) -> Vec<String> {
    texts(&rejected(sandbox), "path")
}

fn queue_count(sandbox: &Sandbox, field: &str) -> Value {
    sandbox.json(["get", "a"])["queue"][field].clone()
}

/// Runs `queue rejected` with flags that accept or drop files.
fn decide(sandbox: &Sandbox, flags: &[&str]) -> Ran {
    sandbox.cmd(["queue", "rejected", "-a", "a"].iter().chain(flags).copied()).output()
}

/// Sends a message and runs a step, which rejects the file that precedes it and runs the message.
#[track_caller]
fn step_rejects_and_runs(sandbox: &Sandbox, what: &str) -> Ran {
    let id = sandbox.run(["enqueue", "a", "hello"]);
    let ran = sandbox.cmd(["--json", "tick", "a"]).exits(7);
    let step = objects(&ran.stdout).pop().unwrap();
    assert_eq!(
        (&step["message_id"], &step["terminal"]),
        (&json!(id.trim()), &json!("completed")),
        "{what}: {ran}"
    );
    assert!(ran.stderr.contains("message rejected"), "{what}: {ran}");
    assert_eq!(sandbox.cmd(["tick", "a", "--exit-code"]).output().code(), 10, "not idle: {what}");
    ran
}

/// File names of a message and a hint that sort before those of all real records.
const MESSAGE: &str = "0-msg_01900000000070008000000000000001.json";
const HINT: &str = "w-msg_01900000000070008000000000000001.json";

#[test]
fn no_malformed_file_in_an_inbox_stops_an_agent() {
    type Put = fn(&Sandbox);
    let put: [(&str, Put); 13] = [
        ("a name that is too long", |sandbox| {
            fs::write(inbox(sandbox).join("x".repeat(250)), "{\"text\": \"long\"}").unwrap();
        }),
        ("a long name that is no text", |sandbox| {
            fs::write(inbox(sandbox).join("é".repeat(127)), "{\"text\": \"long\"}").unwrap();
        }),
        ("a pipe", |sandbox| drop(fifo(sandbox, "pipe"))),
        ("a pipe as a message", |sandbox| drop(fifo(sandbox, MESSAGE))),
        ("a socket", |sandbox| drop(UnixListener::bind(inbox(sandbox).join("sock")).unwrap())),
        ("a socket as a hint", |sandbox| drop(UnixListener::bind(inbox(sandbox).join(HINT)).unwrap())),
        ("a directory", |sandbox| fs::create_dir(inbox(sandbox).join("dir")).unwrap()),
        ("a directory as a message", |sandbox| fs::create_dir(inbox(sandbox).join(MESSAGE)).unwrap()),
        ("a link", |sandbox| symlink("/etc/hostname", inbox(sandbox).join("link.json")).unwrap()),
        ("a link as a message", |sandbox| symlink("/etc/hostname", inbox(sandbox).join(MESSAGE)).unwrap()),
        ("garbage as a message", |sandbox| fs::write(inbox(sandbox).join(MESSAGE), "garbage").unwrap()),
        ("garbage as a hint", |sandbox| fs::write(inbox(sandbox).join(HINT), "garbage").unwrap()),
        ("a hint of a newer schema", |sandbox| {
            fs::write(inbox(sandbox).join(HINT), "{\"schema\": \"dormouse/wake_hint/2\"}").unwrap();
        }),
    ];
    for (what, put) in put {
        let sandbox = sandbox();
        put(&sandbox);
        step_rejects_and_runs(&sandbox, what);
        let left: Vec<String> =
            names(&inbox(&sandbox)).into_iter().filter(|name| !name.starts_with('.')).collect();
        assert_eq!(left, ["rejected"], "{what}");
        assert_eq!(rejected(&sandbox).len(), 1, "{what}");
        assert_eq!(queue_count(&sandbox, "rejected"), 1, "{what}");
        let findings = sandbox.cmd(["doctor"]).output();
        assert!(
            findings.code() == 0 && findings.stdout.contains("1 file could not be admitted"),
            "{what}: {findings}"
        );
    }
}

fn fifo(sandbox: &Sandbox, name: &str) -> fs::File {
    let path = inbox(sandbox).join(name);
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &path,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .unwrap();
    fs::OpenOptions::new().read(true).write(true).open(path).unwrap()
}

/// Opens a pipe for writing and leaves it incomplete: the step does not wait for the rest.
#[test]
fn a_pipe_with_a_writer_does_not_block_a_step() {
    use std::io::Write;
    for name in ["pipe", MESSAGE, HINT] {
        let sandbox = sandbox();
        let mut writer = fifo(&sandbox, name);
        writer.write_all(b"{\"text\": \"x").unwrap();
        step_rejects_and_runs(&sandbox, name);
        assert_eq!(rejected(&sandbox).len(), 1);
    }
}

#[test]
fn a_step_reads_the_other_messages_of_a_bucket_with_a_torn_message() {
    let sandbox = sandbox();
    let lines: String = (0..1030).map(|number| format!("{{\"text\": \"{number}\"}}\n")).collect();
    sandbox.cmd(["enqueue", "a", "--batch", "-q"]).stdin(lines).output();
    sandbox.run(["tick", "a"]);
    let paths = |dir: &Path| fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let segment = paths(&inbox(&sandbox)).filter(|path| path.is_dir()).min().unwrap();
    let first = paths(&segment).min().unwrap();
    let name = first.file_name().unwrap().to_string_lossy().into_owned();
    let record = fs::read(&first).unwrap();
    fs::write(&first, "torn").unwrap();
    assert_eq!(sandbox.cmd(["queue", "list", "-a", "a"]).output().code(), 6);
    let ran = sandbox.cmd(["--json", "tick", "a"]).output();
    let step = objects(&ran.stdout).pop().unwrap();
    assert_eq!((ran.code(), &step["terminal"]), (7, &json!("completed")), "{ran}");
    assert_eq!(rejected_paths(&sandbox), [&*name]);
    // The repaired and accepted file is the message with the old id.
    fs::write(inbox(&sandbox).join("rejected").join(&name), record).unwrap();
    sandbox.run(["queue", "rejected", "-a", "a", "--accept", &name]);
    let step = sandbox.json(["tick", "a"]);
    assert_eq!(step["message_id"], name[2..].trim_end_matches(".json"));
    assert_eq!(step["terminal"], "completed");
}

/// Damages a message that waits for its second attempt: the step rejects it and reports that.
#[test]
fn a_torn_message_that_waits_for_its_retry_is_rejected_and_reported() {
    let sandbox = Sandbox::new();
    add(&sandbox, "a", "exit 1");
    sandbox.run(["enqueue", "a", "first"]);
    assert_eq!(sandbox.cmd(["tick", "a"]).output().code(), 7);
    let name = names(&inbox(&sandbox)).remove(0);
    fs::write(inbox(&sandbox).join(&name), "torn").unwrap();
    sandbox.pass(3600);
    sandbox.cmd(["tick", "a", "--until-idle"]).exits(7).warns(&format!("message rejected {name}"));
    assert_eq!(rejected_paths(&sandbox), [name]);
    assert_eq!(sandbox.cmd(["tick", "a", "--exit-code"]).output().code(), 10);
}

#[test]
fn a_message_in_the_inbox_of_another_agent_is_rejected() {
    let sandbox = sandbox();
    add(&sandbox, "b", "true");
    let id = sandbox.run(["-q", "enqueue", "b", "for b", "--dedupe-key", "k"]).trim().to_owned();
    let name = format!("2-{id}.json");
    fs::rename(sandbox.agent("b").join("inbox").join(&name), inbox(&sandbox).join(&name)).unwrap();
    // Commands that read the queue name the agent to which the message belongs.
    let reason = "it is a message to `b`: it belongs into that agent's inbox";
    sandbox
        .cmd(["queue", "list", "-a", "a"])
        .stderr(
            &format!(
                "dormouse: [SANDBOX]/project/.dormouse/agents/a/inbox/{name}: no message of a: {reason}\n"
            )
            .replace(&id, "msg_#1"),
        )
        .status(6)
        .check();
    sandbox.cmd(["queue", "show", &id, "-a", "a"]).exits(6).warns(reason);
    assert_eq!(sandbox.cmd(["doctor"]).output().code(), 6);
    assert_ne!(sandbox.json(["tick", "a", "--dry-run"])["decision"], "start_model_turn");
    // The rejected message does not use up its dedupe key at agent `a`.
    let own = sandbox.run(["-q", "enqueue", "a", "for b", "--dedupe-key", "k"]).trim().to_owned();
    assert_ne!(own, id);
    sandbox.run(["queue", "drop", &own, "-a", "a", "-q"]);
    // The error of the step names the agent to which the message belongs.
    sandbox.cmd(["tick", "a"]).exits(7).warns(reason);
    assert_eq!(rejected(&sandbox)[0]["reason"], reason);
    decide(&sandbox, &["--accept", &name]).exits(0);
    sandbox.cmd(["tick", "a"]).exits(7).warns(reason);
    assert_eq!(sandbox.json(["get", "a", "counters.turns"]), 0);
}

/// Damages an admitted message: the step keeps the file, and `queue rejected --accept` takes the
/// repaired file.
#[test]
fn an_unreadable_message_is_kept_unchanged_and_can_be_repaired() {
    type Damage = fn(&str) -> Vec<u8>;
    let damages: [(&str, Damage, &str); 7] = [
        ("half a file", |text| text[..text.len() / 2].into(), "line "),
        ("an empty file", |_| Vec::new(), "line "),
        ("zeros", |text| vec![0; text.len()], "line 1, column 1: "),
        ("conflict markers", |text| format!("<<<<<<< ours\n{text}").into(), "a merge conflict"),
        ("another kind", |text| text.replace("dormouse/message/1", "dormouse/work/1").into(), "schema is "),
        (
            "a newer schema",
            |text| text.replace("message/1", "message/2").into(),
            "written in dormouse/message/2",
        ),
        (
            "another id",
            |text| text.replace("\"id\": \"msg_0", "\"id\": \"msg_1").into(),
            "the file is named ",
        ),
    ];
    for (what, damage, reason) in damages {
        let sandbox = sandbox();
        let id = sandbox.run(["enqueue", "a", "broken"]).trim().to_owned();
        let name = format!("2-{id}.json");
        let text = fs::read_to_string(inbox(&sandbox).join(&name)).unwrap();
        let damaged = damage(&text);
        fs::write(inbox(&sandbox).join(&name), &damaged).unwrap();
        step_rejects_and_runs(&sandbox, what);
        let kept = inbox(&sandbox).join("rejected").join(&name);
        assert_eq!(fs::read(&kept).unwrap(), damaged, "{what}");
        let said = rejected(&sandbox)[0]["reason"].as_str().unwrap().to_owned();
        assert!(said.contains(reason), "{what}: {said}");
        fs::write(&kept, text).unwrap();
        sandbox.run(["queue", "rejected", "-a", "a", "--accept", "--all"]);
        assert_eq!(sandbox.json(["tick", "a"])["message_id"], id, "{what}");
    }
}

/// Puts a link or a file in the place of `rejected/`: the step moves it away, and follows no link.
#[test]
fn a_link_or_file_in_the_place_of_rejected_is_moved_away() {
    for is_link in [true, false] {
        let sandbox = sandbox();
        let elsewhere = sandbox.project().join("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        let place = inbox(&sandbox).join("rejected");
        if is_link {
            symlink(&elsewhere, &place).unwrap();
        } else {
            fs::write(&place, "a file").unwrap();
        }
        fs::write(inbox(&sandbox).join("junk"), "junk").unwrap();
        step_rejects_and_runs(&sandbox, "a link or a file");
        assert_eq!(names(&elsewhere), Vec::<String>::new());
        assert_eq!(rejected_paths(&sandbox), ["junk", "rejected"]);
    }
}

/// Makes a rejected file immovable: the step reports it once and ignores it until it changes.
#[test]
fn an_unmovable_file_is_reported_once_and_then_ignored() {
    let sandbox = sandbox();
    let name = "stuck";
    fs::write(inbox(&sandbox).join(name), "{\"text\": \"at last\"}").unwrap();
    if !set_immutable(&inbox(&sandbox).join(name), true) {
        return leave_out("files can't be made immutable here");
    }
    let ran = step_rejects_and_runs(&sandbox, "an immutable file");
    assert!(ran.stderr.contains("(it stays in inbox/)"), "{ran}");
    assert_eq!((queue_count(&sandbox, "rejected"), queue_count(&sandbox, "pending")), (json!(1), json!(0)));
    assert_eq!(sandbox.json(["get", "a", "posture"]), "idle");
    let listed = rejected(&sandbox);
    assert_eq!((&listed[0]["path"], &listed[0]["stays"]), (&json!(name), &json!(true)));
    assert!(sandbox.run(["doctor"]).contains("passed_over"));
    sandbox.run(["tick", "a", "--until-idle"]);
    assert_eq!(sandbox.json_lines(["events", "a", "--kind", "message_rejected"]).len(), 1);
    assert!(set_immutable(&inbox(&sandbox).join(name), false));
    let ran = sandbox.json(["tick", "a"]);
    assert_eq!(ran["terminal"], "completed", "{ran}");
    assert_eq!(queue_count(&sandbox, "rejected"), 0);
}

fn set_immutable(path: &Path, on: bool) -> bool {
    let flag = if on { "+i" } else { "-i" };
    let chattr = std::process::Command::new("chattr").arg(flag).arg(path).output();
    chattr.is_ok_and(|ran| ran.status.success())
}

#[test]
fn the_operator_accepts_or_drops_rejected_files() {
    let sandbox = sandbox();
    for name in ["one", "two", "three"] {
        fs::write(inbox(&sandbox).join(name), name).unwrap();
    }
    assert_eq!(sandbox.cmd(["tick", "a"]).output().code(), 7);
    let listed = rejected(&sandbox);
    assert_eq!(texts(&listed, "path"), ["one", "three", "two"]);
    let one = &listed[0];
    assert_eq!((&one["agent"], &one["size"], &one["stays"]), (&json!("a"), &json!(3), &json!(false)));
    assert_eq!(one["reason"], "not a message: expected value at line 1 column 1");
    assert!(one["at"].is_string());
    // An accepted file that has not changed is rejected again by the next step, with the reason.
    sandbox.cmd(["queue", "rejected", "-a", "a", "--accept", "one"]).prints("accepted one\n");
    let again = sandbox.cmd(["tick", "a"]).output();
    assert_eq!(again.code(), 7, "{again}");
    assert!(again.stderr.contains("not a message: expected value"), "{again}");
    assert_eq!(texts(&rejected(&sandbox), "path"), ["one", "three", "two"]);
    // The repaired file is accepted.
    fs::write(inbox(&sandbox).join("rejected/one"), "{\"text\": \"now it is\"}").unwrap();
    sandbox.cmd(["queue", "rejected", "-a", "a", "--accept", "one"]).prints("accepted one\n");
    assert_eq!(names(&inbox(&sandbox)), ["one", "rejected"]);
    assert_eq!(sandbox.json(["tick", "a"])["terminal"], "completed");
    sandbox.cmd(["queue", "rejected", "-a", "a", "--drop", "two"]).prints("dropped two\n");
    assert_eq!(names(&inbox(&sandbox).join("rejected")), ["three", "three.reason"]);
    assert_eq!(sandbox.json(["get", "a"])["attention"]["count"], 2);
    sandbox.run(["queue", "rejected", "-a", "a", "--drop", "--all"]);
    assert_eq!(names(&inbox(&sandbox).join("rejected")), Vec::<String>::new());
    assert_eq!(sandbox.json(["get", "a"])["attention"], Value::Null);
    assert_eq!(queue_count(&sandbox, "rejected"), 0);
    assert_eq!(sandbox.json_lines(["events", "a", "--kind", "rejected_removed"]).len(), 2);
    assert_eq!(sandbox.json_lines(["events", "a", "--kind", "rejected_accepted"]).len(), 2);
}

#[test]
fn flags_that_name_no_files_or_two_choices_are_refused() {
    let sandbox = sandbox();
    for args in [
        &["--all"][..],
        &["--accept"],
        &["--drop"],
        &["--accept", "x", "--all"],
        &["--drop", "x", "--all"],
        &["--accept", "x", "--drop", "y"],
    ] {
        assert_eq!(decide(&sandbox, args).code(), 2, "{args:?}");
    }
    decide(&sandbox, &["--drop", "nothing"]).exits(3);
    sandbox.run(["queue", "rejected", "-a", "a", "--accept", "--all"]);
}

/// Rejects files `a.reason` and `a`: the reason of `a` does not replace the file `a.reason`.
#[test]
fn a_file_that_is_named_like_a_reason_is_kept() {
    let sandbox = sandbox();
    fs::write(inbox(&sandbox).join("a.reason"), "one").unwrap();
    assert_eq!(sandbox.cmd(["tick", "a"]).output().code(), 7);
    fs::write(inbox(&sandbox).join("a"), "two").unwrap();
    assert_eq!(sandbox.cmd(["tick", "a"]).output().code(), 7);
    let dir = inbox(&sandbox).join("rejected");
    assert_eq!(fs::read_to_string(dir.join("a.reason")).unwrap(), "one");
    assert_eq!(rejected_paths(&sandbox), ["a.1", "a.reason"]);
}

/// Runs commands other than steps: they succeed, and do not move malformed files of the inbox.
#[test]
fn other_commands_succeed_despite_malformed_files() {
    let sandbox = sandbox();
    for name in [MESSAGE, HINT] {
        fs::write(inbox(&sandbox).join(name), "garbage").unwrap();
    }
    let item = sandbox.run(["work", "add", "something", "-a", "a"]);
    let complete = format!("work complete {}", item.split_whitespace().next().unwrap());
    for line in [
        "get a",
        "list",
        "explain a",
        "wait -a a --on external --reason x --recheck 1h",
        "timer add -a a --in 1h x",
        &complete,
        "enqueue a once --dedupe-key k",
        "stop a",
        "start a",
    ] {
        sandbox.cmd(line.split(' ')).exits(0);
    }
    assert!([MESSAGE, HINT].iter().all(|name| inbox(&sandbox).join(name).exists()));
}
