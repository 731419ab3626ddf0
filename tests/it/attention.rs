//! Tests that stderr, exit status 7, `list` and the hook `on-attention` report every final failure.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;

use serde_json::Value;

use crate::docs::read;
use crate::harness::{Sandbox, dormouse, write_program};
use crate::setup::{
    Beside, add, edit_file, edit_state, extend_policy, field, git, hook, make_repository, names,
    noted_objects, objects, own_name, record, say, started, started_with, texts,
};

const ONE_ATTEMPT: &str = "[recovery]\nmax_attempts = 1\n";

/// Shell line that makes the file `home/begun`, then blocks.
const BLOCK: &str = "touch \"$HOME/begun\"; exec sleep 600";

/// Hook that appends its input, one JSON object, to `home/noted`.
const NOTE: &str = r#"cat >> "$HOME/noted""#;

/// Agent whose turns fail, and whose messages become dead letters at the first failure.
fn hopeless() -> Sandbox {
    started_with("exit 3", ONE_ATTEMPT)
}

/// Returns the subjects of the `attention` events of `ada`.
fn raised(sandbox: &Sandbox) -> Vec<String> {
    texts(&sandbox.json_lines(["events", "ada", "--kind", "attention"]), "data.subject")
}

/// Number of failures of `ada` that are not acknowledged; null if there is none.
fn unacknowledged(sandbox: &Sandbox) -> Value {
    record(sandbox, "state.json")["attention"]["count"].clone()
}

/// Starts a tick of `ada`, and returns once the tick runs a program with the line [`BLOCK`].
fn tick_until_blocked(sandbox: &Sandbox) -> Beside {
    Beside::start(sandbox.cmd(["tick", "ada"])).after_it_made(sandbox.home().join("begun"))
}

/// Starts a tick whose `on-attention` hook blocks. The hook of later steps is [`NOTE`].
fn tick_until_hook_blocks(sandbox: &Sandbox) -> Beside {
    let path = hook(&sandbox.store(), "on-attention", BLOCK);
    say(sandbox, "try");
    let tick = tick_until_blocked(sandbox);
    fs::remove_file(path).unwrap();
    hook(&sandbox.store(), "on-attention", NOTE);
    tick
}

#[test]
fn a_dead_letter_is_reported_on_stderr_and_by_status_7_even_by_a_quiet_tick() {
    let sandbox = hopeless();
    let id = say(&sandbox, "try");
    let ran = sandbox.cmd(["tick", "ada", "-q", "--json"]).exits(7);
    let line = format!("dormouse: ada: dead letter {id}: gave up after 1 attempt: exit status 3\n");
    assert_eq!(ran.stderr, line);
    let step = &objects(&ran.stdout)[0];
    assert_eq!(step["attention"][0]["subject"], "dead_letter");
    assert_eq!(step["attention"][0]["message_id"], id);
    assert_eq!(raised(&sandbox), ["dead_letter"]);
    assert_eq!(unacknowledged(&sandbox), 1);
    let ran = sandbox.cmd(["tick", "ada"]).output();
    assert_eq!((ran.code(), ran.stderr.as_str()), (0, ""), "reported a second time: {ran}");
}

#[test]
fn a_failure_that_is_retried_needs_no_attention() {
    let sandbox = started("exit 3");
    say(&sandbox, "try");
    let ran = sandbox.cmd(["tick", "ada"]).output();
    assert_eq!((ran.code(), ran.stderr.as_str()), (7, ""), "{ran}");
    assert_eq!(raised(&sandbox), [""; 0]);
    assert_eq!(sandbox.json(["list"])["retry"]["attempt"], 2);
}

#[test]
fn an_expired_message_is_reported_and_makes_a_step_exit_with_7() {
    let sandbox = started("true");
    for text in ["one", "two"] {
        sandbox.run(["enqueue", "ada", text, "--ttl", "1m"]);
    }
    sandbox.run(["enqueue", "ada", "once", "--dedupe-key", "k"]);
    sandbox.pass(120);
    let ran = sandbox.cmd(["tick", "ada", "--until-idle"]).exits(7);
    assert!(ran.stderr.starts_with("dormouse: ada: message dropped msg_"), "{ran}");
    assert!(ran.stderr.ends_with(" and 1 more: ttl_expired\n"), "{ran}");
    assert_eq!(unacknowledged(&sandbox), 2);
}

#[test]
fn a_message_that_the_operator_drops_needs_no_attention() {
    let sandbox = started("true");
    let id = say(&sandbox, "never mind");
    sandbox.run(["queue", "drop", &id]);
    assert_eq!(record(&sandbox, "state.json").get("attention"), None);
}

#[test]
fn a_rejected_file_is_reported() {
    let sandbox = started("true");
    fs::write(sandbox.agent("ada").join("inbox/todo.json"), "{").unwrap();
    let ran = sandbox.cmd(["tick", "ada", "--quiet"]).exits(7);
    assert!(ran.stderr.starts_with("dormouse: ada: message rejected todo.json: not a message: "), "{ran}");
    assert_eq!(ran.stderr.lines().count(), 1, "{ran}");
    assert_eq!(raised(&sandbox), ["message_rejected"]);
}

#[test]
fn an_agent_that_stops_itself_needs_attention_until_it_is_started() {
    let sandbox = hopeless();
    extend_policy(&sandbox, "ada", "on_exhausted = \"stop\"\n");
    say(&sandbox, "try");
    let ran = sandbox.cmd(["tick", "ada"]).exits(7);
    let lines: Vec<&str> = ran.stderr.lines().collect();
    assert!(lines[0].contains("dead letter") && lines[1].contains("the agent stopped itself"), "{ran}");
    assert_eq!(unacknowledged(&sandbox), 2);
    sandbox.run(["start", "ada"]);
    assert_eq!(unacknowledged(&sandbox), 1, "the dead letter is not acknowledged");
}

#[test]
fn a_start_that_never_finished_is_reported_by_the_step_that_finds_it() {
    let sandbox = Sandbox::new();
    sandbox.run(["create", "ada", "--shell", "true"]);
    hook(&sandbox.store(), "on-startup", BLOCK);
    drop(Beside::start(sandbox.cmd(["start", "ada"])).after_it_made(sandbox.home().join("begun")));
    sandbox.pass(3600);
    let ran = sandbox.cmd(["tick", "ada"]).exits(7);
    assert_eq!(ran.stderr, "dormouse: ada: the agent stopped itself: init_timeout\n");
}

#[test]
fn ack_acknowledges_all_dead_letters_and_changes_no_message() {
    let sandbox = hopeless();
    let dead = |text: &str| {
        let id = say(&sandbox, text);
        sandbox.cmd(["tick", "ada", "--until-idle"]).output();
        id
    };
    dead("one");
    sandbox.cmd(["queue", "dead", "-a", "ada", "--ack"]).prints("ada  acknowledged 1\n");
    let ids = ["two", "three"].map(dead);
    assert_eq!(unacknowledged(&sandbox), 2);
    let letters = sandbox.json_lines(["queue", "dead", "-a", "ada"]);
    let seen: Vec<bool> = letters.iter().map(|letter| letter["acknowledged"].as_bool().unwrap()).collect();
    assert_eq!(seen, [true, false, false]);
    assert_eq!(sandbox.run(["queue", "dead", "-a", "ada"]).matches("    ! gave up").count(), 2);
    sandbox.run(["queue", "requeue", &ids[1]]);
    assert_eq!(unacknowledged(&sandbox), 1, "`requeue` acknowledges the dead letter");
    sandbox.run(["queue", "dead", "-a", "ada", "--ack"]);
    sandbox.cmd(["queue", "dead", "-a", "ada", "--ack"]).prints("ada  acknowledged 0\n");
    assert_eq!(record(&sandbox, "state.json").get("attention"), None);
    assert_eq!(sandbox.json_lines(["queue", "dead", "-a", "ada"]).len(), 2);
}

#[test]
fn the_hook_learns_the_subject_the_agent_and_the_reason() {
    let sandbox = hopeless();
    hook(&sandbox.store(), "on-attention", NOTE);
    let id = say(&sandbox, "try");
    let step = &objects(&sandbox.cmd(["tick", "ada", "--json"]).output().stdout)[0];
    let told = &noted_objects(&sandbox)[0];
    assert_eq!(told["hook"], "on-attention");
    assert_eq!((&told["subject"], &told["agent"]), (&"dead_letter".into(), &"ada".into()));
    assert_eq!((&told["message_id"], &told["run_id"]), (&id.as_str().into(), &step["run_id"]));
    assert_eq!(told["reason"], "gave up after 1 attempt: exit status 3");
    assert_eq!(record(&sandbox, "state.json").get("notifications"), None);
    sandbox.pass(3600);
    sandbox.run(["tick", "ada"]);
    assert_eq!(noted_objects(&sandbox).len(), 1, "the hook was called a second time");
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

/// A killed hook is called once more by a later step, and does not delay the hook of transitions.
#[test]
fn a_hook_that_is_killed_is_called_twice_and_delays_no_other_hook() {
    let sandbox = hopeless();
    hook(&sandbox.store(), "on-attention", r#"echo x >> "$HOME/noted"; kill -9 $$"#);
    hook(&sandbox.store(), "on-state-change", r#"cat >> "$HOME/changes""#);
    let lines = |name: &str| fs::read_to_string(sandbox.home().join(name)).unwrap().lines().count();
    let left = || record(&sandbox, "state.json")["notifications"].as_array().map_or(0, Vec::len);
    say(&sandbox, "try");
    sandbox.cmd(["tick", "ada"]).exits(7);
    let changes = sandbox.json_lines(["events", "ada", "--kind", "state_transition"]).len();
    assert_eq!((lines("noted"), left()), (1, 1));
    assert!(lines("changes") + 2 >= changes, "a change was not told");
    for _ in 0..2 {
        sandbox.pass(1200);
        sandbox.cmd(["tick", "ada"]).output();
        assert_eq!((lines("noted"), left()), (2, 0));
    }
}

#[test]
fn a_later_step_calls_the_hook_if_the_tick_was_killed_in_the_hook() {
    let sandbox = hopeless();
    let tick = tick_until_hook_blocks(&sandbox);
    let ran = sandbox.cmd(["tick", "ada"]).output();
    assert_eq!((ran.code(), ran.stderr.as_str()), (0, ""), "the first tick still runs the hook: {ran}");
    drop(tick);
    sandbox.cmd(["tick", "ada"]).exits(7).warns("dead letter");
    assert_eq!(noted_objects(&sandbox).len(), 1);
    sandbox.pass(1200);
    sandbox.run(["tick", "ada"]);
    assert_eq!(noted_objects(&sandbox).len(), 1);
}

#[test]
fn a_dead_letter_that_the_hook_itself_causes_is_reported_by_a_step_outside_the_hook() {
    let sandbox = hopeless();
    add(&sandbox, "bob", "exit 4");
    extend_policy(&sandbox, "bob", ONE_ATTEMPT);
    let line = r#"cat >> "$HOME/noted"; $D enqueue bob help; $D tick bob --until-idle || true"#;
    hook(&sandbox.store(), "on-attention", line);
    say(&sandbox, "try");
    sandbox.cmd(["tick", "ada"]).output();
    assert_eq!(noted_objects(&sandbox).len(), 1, "a hook ran inside a hook");
    sandbox.pass(1200);
    sandbox.cmd(["tick", "bob"]).exits(7);
    assert_eq!(noted_objects(&sandbox)[1]["agent"], "bob");
}

#[test]
fn a_pending_report_with_a_time_in_the_future_is_delivered() {
    let sandbox = hopeless();
    hook(&sandbox.store(), "on-attention", NOTE);
    say(&sandbox, "try");
    sandbox.cmd(["tick", "ada"]).output();
    edit_state(&sandbox, |state| {
        let attention = &mut state["attention"]["newest"][0];
        attention["at"] = "2031-01-01T00:00:00.000Z".into();
        let mut notification = attention.clone();
        notification["notify"] = "attention".into();
        state["notifications"] = vec![notification].into();
    });
    let ran = sandbox.cmd(["tick", "ada"]).output();
    assert_eq!((ran.code(), noted_objects(&sandbox).len()), (7, 2), "{ran}");
}

#[test]
fn a_tick_of_several_agents_reports_each_failure_and_exits_with_7() {
    let sandbox = hopeless();
    add(&sandbox, "bob", "exit 3");
    extend_policy(&sandbox, "bob", ONE_ATTEMPT);
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
    let line = format!("{} queue dead --ack", own_name());
    edit_file(&sandbox.agent("ada").join("agent.toml"), |text| text.replace("exit 3", &line));
    say(&sandbox, "again");
    sandbox.cmd(["tick", "ada", "--until-idle"]).output().warns("gave up after 1 attempt: exit status 4");
    let run = sandbox.json_lines(["run", "list", "-a", "ada"])[0]["id"].as_str().unwrap().to_owned();
    let said = fs::read_to_string(sandbox.agent("ada").join("runs").join(run).join("stderr.log")).unwrap();
    assert!(said.contains("it can't acknowledge for its own agent"), "{said}");
}

#[test]
fn list_get_and_doctor_show_a_dead_letter_until_it_is_acknowledged() {
    let sandbox = hopeless();
    let id = say(&sandbox, "try");
    sandbox.cmd(["tick", "ada", "--until-idle"]).exits(7);
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
    assert!(text.contains(&format!("try it again: dormouse queue requeue {id}\n")), "{text}");
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
fn until_idle_exits_with_7_if_an_early_step_failed_and_the_last_did_not() {
    let sandbox = started_with("[ \"$DORMOUSE_ATTEMPT\" = 2 ] || exit 3", "[recovery]\nbase = \"0s\"\n");
    say(&sandbox, "try");
    let ran = sandbox.cmd(["tick", "ada", "--until-idle"]).output();
    assert_eq!((ran.code(), ran.stderr.as_str()), (7, ""), "{ran}");
    assert_eq!(sandbox.json(["list"]).get("attention"), None);
}

fn install(sandbox: &Sandbox, script: &str) {
    let path = hook(&sandbox.store(), "on-attention", "");
    fs::write(&path, read(&format!("examples/attention/{script}"))).unwrap();
}

#[test]
fn the_mail_of_the_example_is_sent() {
    let sandbox = hopeless();
    install(&sandbox, "on-attention-mail");
    let bin = sandbox.home().join("bin");
    fs::create_dir(&bin).unwrap();
    let sendmail = "#!/bin/sh\necho \"to $3\"; cat >> \"$HOME/mail\"; echo \"$*\" > \"$HOME/args\"\n";
    write_program(&bin.join("sendmail"), sendmail);
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
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
    install(&sandbox, "on-attention-webhook");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/attention", listener.local_addr().unwrap());
    say(&sandbox, "try");
    let request = thread::spawn(move || {
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
    let text = request.join().unwrap();
    assert!(text.starts_with("POST /attention HTTP/1.1\r\n"), "{text}");
    assert!(text.contains("Content-Type: application/json\r\n"), "{text}");
    let told: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert_eq!(told["subject"], "dead_letter");
}

/// Runs each command of the example crontab. Returns their outputs: cron mails every nonempty one.
fn mailed(sandbox: &Sandbox) -> Vec<String> {
    let crontab = read("examples/cron/crontab");
    let is_job = |line: &&str| line.starts_with(|c: char| c == '*' || c.is_ascii_digit());
    let mailed = crontab.lines().filter(is_job).map(|line| {
        let command = line.splitn(6, ' ').nth(5).unwrap().trim();
        let own = format!("{} --dir {}", own_name(), sandbox.store().display());
        let command = command.replace("dormouse --dir /srv/agents", &own);
        let ran = sandbox.program("sh", vec!["-c".into(), command.into()]).output();
        format!("{}{}", ran.stdout, ran.stderr)
    });
    mailed.collect()
}

#[test]
fn the_crontab_mails_dead_letters_and_nothing_else() {
    let sandbox = started("exit 3");
    assert_eq!(mailed(&sandbox), ["", "", ""]);
    say(&sandbox, "try");
    assert_eq!(mailed(&sandbox), ["", "", ""], "the message will be retried");
    extend_policy(&sandbox, "ada", ONE_ATTEMPT);
    sandbox.pass(60);
    let mails = mailed(&sandbox);
    assert!(mails[0].starts_with("dormouse: ada: dead letter msg_"), "{mails:?}");
    assert!(mails[1].starts_with("ada !"), "{mails:?}");
    assert_eq!(mails[2], "");
    let mails = mailed(&sandbox);
    assert_eq!(mails[0], "", "the tick mails a dead letter once");
    assert!(mails[1].starts_with("ada !"), "the daily list mails every day: {mails:?}");
    sandbox.run(["queue", "dead", "-a", "ada", "--ack"]);
    assert_eq!(mailed(&sandbox), ["", "", ""]);
}

#[test]
fn the_units_of_systemd_hide_no_failure_and_are_valid() {
    needs!("systemd-analyze");
    let unit = read("examples/systemd/dormouse-tick.service");
    assert!(!unit.contains("SuccessExitStatus"), "{unit}");
    assert!(unit.contains("\nOnFailure=dormouse-attention.service\n"), "{unit}");
    let sandbox = Sandbox::empty();
    let mut paths = Vec::new();
    for name in ["dormouse-tick.service", "dormouse-tick.timer", "dormouse-attention.service"] {
        let text = read(&format!("examples/systemd/{name}"));
        let text = text.replace("/usr/local/bin/dormouse", &dormouse().display().to_string());
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
fn recover_reports_a_run_that_was_interrupted_too_often() {
    let sandbox = started_with(BLOCK, "\n[recovery]\nmax_interruptions = 1\n");
    hook(&sandbox.store(), "on-attention", NOTE);
    let id = say(&sandbox, "try");
    drop(tick_until_blocked(&sandbox));
    let ran = sandbox.cmd(["recover", "ada", "-q"]).exits(0);
    assert!(ran.stderr.starts_with(&format!("dormouse: ada: message held {id}: ")), "{ran}");
    assert_eq!(noted_objects(&sandbox).len(), 1);
}

#[test]
fn a_failure_that_the_operator_demands_is_reported_too() {
    let sandbox = started_with(BLOCK, ONE_ATTEMPT);
    say(&sandbox, "try");
    let tick = tick_until_blocked(&sandbox);
    let ran = sandbox.cmd(["fail", "ada", "--reason", "no good"]).output();
    let tick = tick.end();
    // Either `fail` or the tick settles the run; that command alone reports the dead letter.
    let said = format!("{}{}", ran.stderr, tick.stderr);
    assert_eq!(said.matches("dead letter").count(), 1, "{said}");
    assert!(said.contains("gave up after 1 attempt: no good"), "{said}");
    assert_eq!(field(&sandbox, "queue.dead"), "1");
}

#[test]
fn a_later_step_calls_the_hook_for_a_stopped_agent_too() {
    let sandbox = hopeless();
    extend_policy(&sandbox, "ada", "on_exhausted = \"stop\"\n");
    drop(tick_until_hook_blocks(&sandbox));
    let next = sandbox.run(["next-wake", "ada"]);
    assert!(next.starts_with("2026-"), "the step that calls the hook is due: {next}");
    sandbox.cmd(["tick", "--all"]).exits(7);
    assert_eq!(texts(&noted_objects(&sandbox), "subject"), ["dead_letter", "agent_stopped"]);
    assert_eq!(sandbox.run(["next-wake", "ada"]), "");
}

#[test]
fn a_tick_with_commit_commits_the_record_of_the_hook_call() {
    let sandbox = hopeless();
    make_repository(&sandbox);
    hook(&sandbox.store(), "on-attention", NOTE);
    say(&sandbox, "try");
    sandbox.cmd(["tick", "ada", "--commit"]).exits(7);
    assert_eq!(git(&sandbox, &["status", "--porcelain", ".dormouse/agents"]), "");
}

#[test]
fn a_message_to_a_deleted_agent_is_reported() {
    let sandbox = started("true");
    add(&sandbox, "bob", "true");
    sandbox.run(["enqueue", "bob", "x"]);
    // Makes the records of a settlement that was killed before it delivered its message.
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

#[test]
fn the_command_that_answers_a_question_is_never_cut() {
    for question in ["which of these? ".repeat(40), "one line\nand a second".to_owned(), "é".repeat(1000)] {
        let sandbox = started("true");
        let wait = sandbox.run(["wait", "ada", "--on", "operator", "--reason", &question]);
        let answer = format!("; answer: dormouse enqueue ada --wait {} TEXT", wait.trim_end());
        sandbox.cmd(["tick", "ada"]).exits(0).warns(&answer);
    }
}
