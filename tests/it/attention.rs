//! Attention: what has gone wrong for good reaches a person, by one line, one exit status, one mark and one
//! hook.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;

use serde_json::Value;

use crate::harness::{Sandbox, write_program};
use crate::setup::{
    Beside, add, edit_state, extend_policy, git, hook, make_repository, names, objects, record, say, started,
    started_with,
};

const LAST: &str = "[recovery]\nmax_attempts = 1\n";

/// An agent whose turns fail, and whose messages are dead at once.
fn hopeless() -> Sandbox {
    started_with("exit 3", LAST)
}

fn noted(sandbox: &Sandbox) -> Vec<Value> {
    objects(&fs::read_to_string(sandbox.home().join("noted")).unwrap_or_default())
}

/// A hook that notes what it is told.
const NOTE: &str = r#"cat >> "$HOME/noted""#;

fn raised(sandbox: &Sandbox) -> Vec<String> {
    let events = sandbox.json_lines(["events", "ada"]);
    let raised = events.iter().filter(|event| event["kind"] == "attention");
    raised.map(|event| event["data"]["subject"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_dead_letter_is_told_on_stderr_even_of_a_quiet_step_and_by_its_status() {
    let sandbox = hopeless();
    let id = say(&sandbox, "try");
    let ran = sandbox.cmd(["tick", "ada", "-q", "--json"]).exits(7);
    assert_eq!(
        ran.stderr,
        format!("dormouse: ada: dead letter {id}: gave up after 1 attempt: exit status 3\n")
    );
    let step = &objects(&ran.stdout)[0];
    assert_eq!(step["attention"][0]["subject"], "dead_letter");
    assert_eq!(step["attention"][0]["message_id"], id);
    assert_eq!(raised(&sandbox), ["dead_letter"]);
    assert_eq!(record(&sandbox, "state.json")["attention"]["count"], 1);
    let ran = sandbox.cmd(["tick", "ada"]).output();
    assert_eq!((ran.code(), ran.stderr.as_str()), (0, ""), "it is told once: {ran}");
}

#[test]
fn a_failure_that_is_tried_again_needs_nobody() {
    let sandbox = started("exit 3");
    say(&sandbox, "try");
    let ran = sandbox.cmd(["tick", "ada"]).output();
    assert_eq!((ran.code(), ran.stderr.as_str()), (7, ""), "{ran}");
    assert_eq!(raised(&sandbox), [""; 0]);
}

#[test]
fn what_expired_is_told_and_makes_a_step_end_with_7() {
    let sandbox = started("true");
    for text in ["one", "two"] {
        sandbox.run(["enqueue", "ada", text, "--ttl", "1m"]);
    }
    sandbox.run(["enqueue", "ada", "once", "--dedupe-key", "k"]);
    sandbox.pass(120);
    let ran = sandbox.cmd(["tick", "ada", "--until-idle"]).exits(7);
    assert!(ran.stderr.starts_with("dormouse: ada: message dropped msg_"), "{ran}");
    assert!(ran.stderr.ends_with(" and 1 more: ttl_expired\n"), "{ran}");
    assert_eq!(record(&sandbox, "state.json")["attention"]["count"], 2);
}

#[test]
fn what_the_operator_drops_and_a_copy_that_is_dropped_need_nobody() {
    let sandbox = started("true");
    let id = say(&sandbox, "never mind");
    sandbox.run(["queue", "drop", &id]);
    assert_eq!(record(&sandbox, "state.json").get("attention"), None);
}

#[test]
fn a_rejected_file_is_told() {
    let sandbox = started("true");
    fs::write(sandbox.agent("ada").join("inbox/todo.json"), "{").unwrap();
    let ran = sandbox.cmd(["tick", "ada", "--quiet"]).exits(7);
    assert!(ran.stderr.starts_with("dormouse: ada: message rejected todo.json: not a message: "), "{ran}");
    assert_eq!(ran.stderr.lines().count(), 1, "{ran}");
    assert_eq!(raised(&sandbox), ["message_rejected"]);
}

#[test]
fn an_agent_that_stops_itself_says_so_until_it_is_started() {
    let sandbox = hopeless();
    extend_policy(&sandbox, "ada", "on_exhausted = \"stop\"\n");
    say(&sandbox, "try");
    let ran = sandbox.cmd(["tick", "ada"]).output();
    let lines: Vec<&str> = ran.stderr.lines().collect();
    assert_eq!(ran.code(), 7);
    assert!(lines[0].contains("dead letter") && lines[1].contains("the agent stopped itself"), "{ran}");
    assert_eq!(record(&sandbox, "state.json")["attention"]["count"], 2);
    sandbox.run(["start", "ada"]);
    assert_eq!(record(&sandbox, "state.json")["attention"]["count"], 1, "the dead letter is still there");
}

#[test]
fn a_start_that_is_given_up_is_told_by_the_step_that_finds_it() {
    let sandbox = Sandbox::new();
    sandbox.run(["create", "ada", "--shell", "true"]);
    hook(&sandbox.store(), "on-startup", "touch \"$HOME/begun\"; exec sleep 600");
    let start = Beside::start(sandbox.cmd(["start", "ada"])).after_it_made(sandbox.home().join("begun"));
    drop(start);
    sandbox.pass(3600);
    let ran = sandbox.cmd(["tick", "ada"]).exits(7);
    assert_eq!(ran.stderr, "dormouse: ada: the agent stopped itself: init_timeout\n");
}

#[test]
fn acknowledged_is_all_of_it_or_what_is_named_and_no_message_changes() {
    let sandbox = hopeless();
    let ids = ["one", "two", "three"].map(|text| {
        let id = say(&sandbox, text);
        sandbox.cmd(["tick", "ada", "--until-idle"]).output();
        id
    });
    assert_eq!(record(&sandbox, "state.json")["attention"]["count"], 3);
    sandbox.cmd(["queue", "dead", "-a", "ada", "--ack", &ids[1]]).prints("ada  acknowledged 1, 2 left\n");
    sandbox.cmd(["queue", "dead", "-a", "ada", "--ack", &ids[1]]).exits(3);
    let letters = sandbox.json_lines(["queue", "dead", "-a", "ada"]);
    let seen: Vec<bool> = letters.iter().map(|letter| letter["acknowledged"].as_bool().unwrap()).collect();
    assert_eq!(seen, [false, true, false]);
    assert_eq!(sandbox.run(["queue", "dead", "-a", "ada"]).matches("    ! gave up").count(), 2);
    sandbox.run(["queue", "requeue", &ids[2]]);
    assert_eq!(record(&sandbox, "state.json")["attention"]["count"], 1, "who requeues has seen it");
    sandbox.run(["queue", "dead", "-a", "ada", "--ack"]);
    sandbox.cmd(["queue", "dead", "-a", "ada", "--ack"]).prints("ada  acknowledged 0, 0 left\n");
    assert_eq!(record(&sandbox, "state.json").get("attention"), None);
    assert_eq!(sandbox.json_lines(["queue", "dead", "-a", "ada"]).len(), 2);
}

#[test]
fn the_hook_is_told_what_and_of_whom() {
    let sandbox = hopeless();
    hook(&sandbox.store(), "on-attention", NOTE);
    let id = say(&sandbox, "try");
    let step = &objects(&sandbox.cmd(["tick", "ada", "--json"]).output().stdout)[0];
    let told = &noted(&sandbox)[0];
    assert_eq!(told["hook"], "on-attention");
    assert_eq!((&told["subject"], &told["agent"]), (&"dead_letter".into(), &"ada".into()));
    assert_eq!((&told["message_id"], &told["run_id"]), (&id.as_str().into(), &step["run_id"]));
    assert_eq!(told["reason"], "gave up after 1 attempt: exit status 3");
    assert_eq!(record(&sandbox, "state.json")["attention"]["newest"][0].get("pending"), None);
    sandbox.pass(3600);
    sandbox.run(["tick", "ada"]);
    assert_eq!(noted(&sandbox).len(), 1, "it is told once");
}

#[test]
fn a_hook_that_fails_is_recorded_and_not_called_again() {
    let sandbox = hopeless();
    hook(&sandbox.store(), "on-attention", r#"echo x >> "$HOME/noted"; echo no mail >&2; exit 2"#);
    say(&sandbox, "try");
    let ran = sandbox.cmd(["tick", "ada"]).exits(7);
    assert!(ran.stderr.ends_with("ada: on-attention failed: exit status 2: no mail\n"), "{ran}");
    sandbox.pass(3600);
    sandbox.run(["tick", "ada"]);
    assert_eq!(fs::read_to_string(sandbox.home().join("noted")).unwrap(), "x\n");
}

#[test]
fn what_a_killed_teller_left_a_later_step_tells() {
    let sandbox = hopeless();
    let path = hook(&sandbox.store(), "on-attention", "touch \"$HOME/begun\"; exec sleep 600");
    say(&sandbox, "try");
    let tick = Beside::start(sandbox.cmd(["tick", "ada"])).after_it_made(sandbox.home().join("begun"));
    fs::remove_file(path).unwrap();
    hook(&sandbox.store(), "on-attention", NOTE);
    let ran = sandbox.cmd(["tick", "ada"]).output();
    assert_eq!((ran.code(), ran.stderr.as_str()), (0, ""), "whoever raised it is still at it: {ran}");
    drop(tick);
    let ran = sandbox.cmd(["tick", "ada"]).exits(7);
    assert!(ran.stderr.contains("dead letter"), "{ran}");
    assert_eq!(noted(&sandbox).len(), 1);
    sandbox.pass(1200);
    sandbox.run(["tick", "ada"]);
    assert_eq!(noted(&sandbox).len(), 1);
}

#[test]
fn a_dead_letter_that_the_hook_itself_causes_is_told_by_a_step_outside() {
    let sandbox = hopeless();
    add(&sandbox, "bob", "exit 4");
    extend_policy(&sandbox, "bob", LAST);
    let line = r#"cat >> "$HOME/noted"; $D enqueue bob help; $D tick bob --until-idle || true"#;
    hook(&sandbox.store(), "on-attention", line);
    say(&sandbox, "try");
    sandbox.cmd(["tick", "ada"]).output();
    assert_eq!(noted(&sandbox).len(), 1, "no hook runs in a hook");
    sandbox.pass(1200);
    sandbox.cmd(["tick", "bob"]).exits(7);
    assert_eq!(noted(&sandbox)[1]["agent"], "bob");
}

#[test]
fn a_clock_that_ran_ahead_keeps_nothing_untold() {
    let sandbox = hopeless();
    hook(&sandbox.store(), "on-attention", NOTE);
    say(&sandbox, "try");
    sandbox.cmd(["tick", "ada"]).output();
    edit_state(&sandbox, |state| {
        let attention = &mut state["attention"]["newest"][0];
        attention["pending"] = true.into();
        attention["at"] = "2031-01-01T00:00:00.000Z".into();
    });
    let ran = sandbox.cmd(["tick", "ada"]).output();
    assert_eq!((ran.code(), noted(&sandbox).len()), (7, 2), "{ran}");
}

#[test]
fn of_several_at_once_each_is_told_and_the_status_is_the_gravest() {
    let sandbox = hopeless();
    add(&sandbox, "bob", "exit 3");
    extend_policy(&sandbox, "bob", LAST);
    for name in ["ada", "bob"] {
        sandbox.run(["enqueue", name, "try"]);
    }
    let ran = sandbox.cmd(["tick", "--all", "--jobs", "2", "--until-idle"]).exits(7);
    let mut lines: Vec<&str> = ran.stderr.lines().collect();
    lines.sort_unstable();
    assert!(lines[0].starts_with("dormouse: ada: dead letter"), "{ran}");
    assert!(lines[1].starts_with("dormouse: bob: dead letter"), "{ran}");
    assert_eq!(lines.len(), 2, "{ran}");
}

#[test]
fn an_agent_does_not_acknowledge_for_itself() {
    let sandbox = hopeless();
    say(&sandbox, "try");
    sandbox.cmd(["tick", "ada"]).output();
    let path = sandbox.agent("ada").join("agent.toml");
    let text = fs::read_to_string(&path).unwrap();
    let line = format!("{} queue dead --ack", crate::setup::own_name());
    fs::write(&path, text.replace("exit 3", &line)).unwrap();
    say(&sandbox, "again");
    let ran = sandbox.cmd(["tick", "ada", "--until-idle"]).output();
    assert!(ran.stderr.contains("gave up after 1 attempt: exit status 4"), "{ran}");
    let run = sandbox.json_lines(["run", "list", "-a", "ada"])[0]["id"].as_str().unwrap().to_owned();
    let said = fs::read_to_string(sandbox.agent("ada").join("runs").join(run).join("stderr.log")).unwrap();
    assert!(said.contains("it can't acknowledge for its own agent"), "{said}");
}

#[test]
fn the_mark_is_seen_where_people_look_until_it_is_acknowledged() {
    let sandbox = hopeless();
    let id = say(&sandbox, "try");
    let ran = sandbox.cmd(["tick", "ada", "--until-idle"]).output();
    assert_eq!(ran.code(), 7, "a dead letter stays the news of later steps: {ran}");
    let list = sandbox.run(["list"]);
    assert!(list.contains("\nada !  "), "{list}");
    assert!(list.contains("dead letter: exit status 3\n"), "{list}");
    let line = sandbox.json(["list"]);
    assert_eq!((&line["attention"]["count"], &line["dead"]), (&1.into(), &1.into()));
    let get = sandbox.json(["get", "ada"]);
    assert_eq!(get["attention"]["newest"][0]["message_id"], id.as_str());
    assert!(get["attention"]["since"].is_string());
    let text = sandbox.run(["get", "ada"]);
    assert!(text.contains("attention   1 since"), "{text}");
    let remedy = format!("try it again: dormouse queue requeue {id}\n");
    assert!(text.contains(&remedy), "{text}");
    let explained = sandbox.run(["explain", "ada"]);
    assert!(explained.contains(&remedy), "{explained}");
    let found = sandbox.json_lines(["doctor", "ada"]);
    assert_eq!((&found[0]["kind"], &found[0]["repaired"]), (&"needs_attention".into(), &false.into()));
    assert_eq!((&found[1]["findings"], &found[1]["warnings"]), (&0.into(), &1.into()));
    sandbox.run(["queue", "dead", "-a", "ada", "--ack"]);
    let list = sandbox.run(["list"]);
    assert!(list.contains("\nada    ") && list.ends_with("1 dead letter; nothing to do\n"), "{list}");
    assert_eq!(sandbox.json(["get", "ada"]).get("attention"), None);
    assert_eq!(sandbox.json_lines(["doctor", "ada"]).len(), 1);
}

#[test]
fn list_says_in_words_what_is_tried_again() {
    let sandbox = started("echo no disk >&2; exit 3");
    say(&sandbox, "try");
    sandbox.cmd(["tick", "ada"]).output();
    let list = sandbox.run(["list"]);
    assert!(list.contains("  exit status 3: no disk; attempt 2 is due\n"), "{list}");
    assert_eq!(sandbox.json(["list"])["retry"]["attempt"], 2);
}

#[test]
fn a_failure_of_an_early_step_is_not_forgotten_by_the_last() {
    let sandbox = started_with("[ \"$DORMOUSE_ATTEMPT\" = 2 ] || exit 3", "[recovery]\nbase = \"0s\"\n");
    say(&sandbox, "try");
    let ran = sandbox.cmd(["tick", "ada", "--until-idle"]).output();
    assert_eq!((ran.code(), ran.stderr.as_str()), (7, ""), "{ran}");
    assert_eq!(sandbox.json(["list"]).get("attention"), None);
}

fn example(path: &str) -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A directory of programs that are found first.
fn programs(sandbox: &Sandbox, name: &str, script: &str) -> String {
    let dir = sandbox.home().join("bin");
    fs::create_dir_all(&dir).unwrap();
    write_program(&dir.join(name), &format!("#!/bin/sh\n{script}\n"));
    format!("{}:{}", dir.display(), std::env::var("PATH").unwrap_or_default())
}

fn install(sandbox: &Sandbox, script: &str) {
    let path = hook(&sandbox.store(), "on-attention", "");
    fs::write(&path, example(script)).unwrap();
}

#[test]
fn the_mail_of_the_example_is_sent() {
    let sandbox = hopeless();
    install(&sandbox, "attention/on-attention-mail");
    let path =
        programs(&sandbox, "sendmail", r#"echo "to $3"; cat >> "$HOME/mail"; echo "$*" > "$HOME/args""#);
    let id = say(&sandbox, "try");
    let ran = sandbox.cmd(["tick", "ada"]).env("PATH", path).output();
    assert_eq!(ran.stderr.lines().count(), 1, "{ran}");
    assert_eq!(fs::read_to_string(sandbox.home().join("args")).unwrap(), "-i -- root\n");
    let mail = fs::read_to_string(sandbox.home().join("mail")).unwrap();
    assert!(mail.starts_with("Subject: dormouse: ada needs attention\n"), "{mail}");
    assert!(mail.contains("\"subject\":\"dead_letter\"") && mail.contains(&id), "{mail}");
}

#[test]
fn the_webhook_of_the_example_is_called() {
    needs!("curl");
    let sandbox = hopeless();
    install(&sandbox, "attention/on-attention-webhook");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/attention", listener.local_addr().unwrap());
    say(&sandbox, "try");
    let heard = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut text = String::new();
        let mut buffer = [0; 4096];
        while !text.ends_with("}\n") {
            let length = stream.read(&mut buffer).unwrap();
            text.push_str(&String::from_utf8_lossy(&buffer[..length]));
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").unwrap();
        text
    });
    let ran = sandbox.cmd(["tick", "ada"]).env("ATTENTION_URL", &url).output();
    assert_eq!(ran.stderr.lines().count(), 1, "{ran}");
    let text = heard.join().unwrap();
    assert!(text.starts_with("POST /attention HTTP/1.1\r\n"), "{text}");
    assert!(text.contains("Content-Type: application/json\r\n"), "{text}");
    let told: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert_eq!(told["subject"], "dead_letter");
}

/// What cron would mail of the lines that we ship: each by the number of its field, and what it says.
fn mailed(sandbox: &Sandbox) -> Vec<String> {
    let crontab = example("cron/crontab");
    let lines = crontab
        .lines()
        .filter(|line| line.starts_with('*') || line.starts_with(|c: char| c.is_ascii_digit()));
    let mailed = lines.map(|line| {
        let command = line.splitn(6, ' ').nth(5).unwrap().trim();
        let own = format!("{} --dir {}", crate::setup::own_name(), sandbox.store().display());
        let command = command.replace("dormouse --dir /srv/agents", &own);
        let ran = sandbox.program("sh", vec!["-c".into(), command.into()]).output();
        format!("{}{}", ran.stdout, ran.stderr)
    });
    mailed.collect()
}

#[test]
fn the_crontab_mails_what_went_wrong_and_nothing_else() {
    let sandbox = started("exit 3");
    assert_eq!(mailed(&sandbox), ["", "", ""]);
    say(&sandbox, "try");
    assert_eq!(mailed(&sandbox), ["", "", ""], "it is tried again");
    extend_policy(&sandbox, "ada", LAST);
    sandbox.pass(60);
    let mails = mailed(&sandbox);
    assert!(mails[0].starts_with("dormouse: ada: dead letter msg_"), "{mails:?}");
    assert!(mails[1].starts_with("ada !"), "{mails:?}");
    assert_eq!(mails[2], "");
    let mails = mailed(&sandbox);
    assert_eq!(mails[0], "", "once");
    assert!(mails[1].starts_with("ada !"), "every day: {mails:?}");
    sandbox.run(["queue", "dead", "-a", "ada", "--ack"]);
    assert_eq!(mailed(&sandbox), ["", "", ""]);
}

#[test]
fn the_units_hide_no_failure_and_are_in_order() {
    needs!("systemd-analyze");
    let unit = example("systemd/dormouse-tick.service");
    assert!(!unit.contains("SuccessExitStatus"), "{unit}");
    assert!(unit.contains("\nOnFailure=dormouse-attention.service\n"), "{unit}");
    let sandbox = Sandbox::empty();
    let mut paths = Vec::new();
    for name in ["dormouse-tick.service", "dormouse-tick.timer", "dormouse-attention.service"] {
        let text = example(&format!("systemd/{name}"));
        let own = crate::harness::dormouse();
        let text = text.replace("/usr/local/bin/dormouse", &own.display().to_string());
        fs::write(sandbox.home().join(name), text).unwrap();
        paths.push(sandbox.home().join(name));
    }
    let mut verify = std::process::Command::new("systemd-analyze");
    let ran = verify.arg("verify").arg("--man=no").args(&paths).output();
    let said = String::from_utf8_lossy(&ran.unwrap().stderr).into_owned();
    let ours: Vec<&str> = said.lines().filter(|line| line.contains("dormouse-")).collect();
    assert!(ours.is_empty(), "{said}");
}

#[test]
fn a_run_that_was_interrupted_too_often_is_told_by_whoever_recovers_it() {
    let sandbox =
        started_with("touch \"$HOME/begun\"; exec sleep 600", "\n[recovery]\nmax_interruptions = 1\n");
    hook(&sandbox.store(), "on-attention", NOTE);
    let id = say(&sandbox, "try");
    let tick = Beside::start(sandbox.cmd(["tick", "ada"])).after_it_made(sandbox.home().join("begun"));
    drop(tick);
    let ran = sandbox.cmd(["recover", "ada", "-q"]).exits(0);
    assert!(ran.stderr.starts_with(&format!("dormouse: ada: message held {id}: ")), "{ran}");
    assert_eq!(noted(&sandbox).len(), 1);
}

#[test]
fn a_failure_that_the_operator_calls_for_is_told_too() {
    let sandbox = started_with("touch \"$HOME/begun\"; exec sleep 600", LAST);
    say(&sandbox, "try");
    let tick = Beside::start(sandbox.cmd(["tick", "ada"])).after_it_made(sandbox.home().join("begun"));
    let ran = sandbox.cmd(["fail", "ada", "--reason", "no good"]).output();
    let tick = tick.end();
    // Whoever settles the run says so: one of the two.
    let said = format!("{}{}", ran.stderr, tick.stderr);
    assert_eq!(said.matches("dead letter").count(), 1, "{said}");
    assert!(said.contains("gave up after 1 attempt: no good"), "{said}");
}

#[test]
fn of_a_stopped_agent_a_later_step_tells_too() {
    let sandbox = hopeless();
    extend_policy(&sandbox, "ada", "on_exhausted = \"stop\"\n");
    let path = hook(&sandbox.store(), "on-attention", "touch \"$HOME/begun\"; exec sleep 600");
    say(&sandbox, "try");
    let tick = Beside::start(sandbox.cmd(["tick", "ada"])).after_it_made(sandbox.home().join("begun"));
    drop(tick);
    fs::remove_file(path).unwrap();
    hook(&sandbox.store(), "on-attention", NOTE);
    assert!(sandbox.run(["next-wake", "ada"]).starts_with("2026-"), "the step that tells is due");
    sandbox.cmd(["tick", "--all"]).exits(7);
    let subjects: Vec<Value> = noted(&sandbox).iter().map(|told| told["subject"].clone()).collect();
    assert_eq!(subjects, ["dead_letter", "agent_stopped"]);
    assert_eq!(sandbox.run(["next-wake", "ada"]), "");
}

#[test]
fn what_is_told_is_in_the_commit_of_its_step() {
    let sandbox = hopeless();
    make_repository(&sandbox);
    hook(&sandbox.store(), "on-attention", NOTE);
    say(&sandbox, "try");
    sandbox.cmd(["tick", "ada", "--commit"]).exits(7);
    assert_eq!(git(&sandbox, &["status", "--porcelain", ".dormouse/agents"]), "");
}

#[test]
fn a_message_to_an_agent_that_is_gone_is_told() {
    let sandbox = started("true");
    add(&sandbox, "bob", "true");
    sandbox.run(["enqueue", "bob", "x"]);
    // As a settlement leaves it that was killed before it delivered.
    let (inbox, outbox) = (sandbox.agent("bob").join("inbox"), sandbox.agent("ada").join("outbox"));
    let file = names(&inbox).into_iter().find(|name| name.ends_with(".json")).unwrap();
    fs::create_dir(&outbox).unwrap();
    fs::copy(inbox.join(&file), outbox.join(&file[2..])).unwrap();
    edit_state(&sandbox, |state| state["outbox"] = serde_json::json!({ "messages": 1, "bytes": 500 }));
    fs::remove_dir_all(sandbox.agent("bob")).unwrap();
    let ran = sandbox.cmd(["tick", "ada"]).exits(7);
    assert!(ran.stderr.contains("ada: message dropped msg_"), "{ran}");
    assert!(ran.stderr.contains("not delivered to `bob`"), "{ran}");
    sandbox.run(["tick", "ada"]);
    assert_eq!(names(&outbox), Vec::<String>::new());
}
