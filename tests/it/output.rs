//! Tests the common behaviour of all commands: streams, JSON, colours, terminals, closed pipes,
//! exit statuses.

use std::fs::{self, File};
use std::io::Read;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::harness::Sandbox;
use crate::setup::{
    Beside, add, assert_includes, commands, failure, objects, own_name, pseudo_terminal, say, started, step,
    words,
};

/// Agent with a processed message, its run, and a queued message. Returns the ids of the first two.
fn furnished() -> (Sandbox, String, String) {
    let sandbox = started("echo done");
    let message = say(&sandbox, "x");
    let run = step(&sandbox)["run_id"].as_str().unwrap().to_owned();
    say(&sandbox, "y");
    (sandbox, message, run)
}

#[test]
fn with_json_every_line_of_every_command_is_an_object() {
    let (sandbox, message, run) = furnished();
    let list = format!(
        "init, create bob -- true, start bob, enqueue ada z, wake ada, tick ada bob, tick --all --until-idle, \
         tick ada --dry-run, get ada, list, explain ada, state ada, state ada --can runnable, \
         state ada --diagram, queue list -a ada, queue dead -a ada, queue show {message}, run list -a ada, \
         run show {run}, run show {run} --stdout, briefs ada, events ada, doctor, schema, schema message, man, \
         completions bash, stop ada"
    );
    for args in commands(&list).into_iter().chain([vec!["man", "queue list"]]) {
        let ran = sandbox.cmd([&["--json"], &*args].concat()).output();
        assert_eq!((ran.code(), ran.stderr.as_str()), (0, ""), "{args:?}: {ran}");
        objects(&ran.stdout);
    }
}

#[test]
fn with_json_a_failure_is_the_last_line_and_prose_for_people_is_on_stderr() {
    let (sandbox, message, _) = furnished();
    fs::create_dir(sandbox.home().join("empty")).unwrap();
    let no_agent = "start nobody, stop nobody, enqueue nobody x, wake nobody, tick nobody, get nobody, \
                    explain nobody, state nobody, queue list -a nobody, briefs nobody, events nobody, \
                    recover nobody, resume nobody, preempt nobody --reason x, fail nobody --reason x";
    let usage = "create Ada -- true, get ada nothing, queue show x, events ada --kind nothing, \
                 doctor Ada, frobnicate, tick, tick ada --lock-timeout soon, tick ada --jobs many, \
                 tick --all --jobs 0, tick ada --until-idle --max-steps 0, list --color red, list -q -v";
    let (requeue, drop) = (format!("queue requeue {message}"), format!("queue drop {message}"));
    let cases = [
        ("create ada -- true", 4, "agent_exists"),
        ("resume ada", 4, "invalid_state_transition"),
        (no_agent, 3, "no_agent"),
        ("enqueue ada @nothing", 1, "io"),
        ("enqueue ada x --origin task", 4, "origin_not_allowed"),
        ("queue show nothing, run show nothing, man nothing", 3, "no_record"),
        (&requeue, 4, "already_processed"),
        (&drop, 4, "not_dead"),
        ("-C nowhere list", 3, "no_state_directory"),
        (usage, 2, "usage"),
    ];
    let each = cases
        .iter()
        .flat_map(|(list, status, kind)| commands(list).into_iter().map(move |args| (args, *status, *kind)));
    for (args, status, kind) in each {
        let ran = sandbox.cmd([&["--json"], &*args].concat()).exits(status);
        let failed = failure(&ran);
        let expected = [&json!(kind), &json!(status)];
        assert_eq!([&failed["kind"], &failed["exit_status"]], expected, "{args:?}: {ran}");
        assert!(failed["message"].as_str().is_some_and(|message| !message.is_empty()), "{args:?}: {ran}");
        let prose = ran.stderr.starts_with("dormouse: ") || ran.stderr.starts_with("error: ");
        assert!(prose, "{args:?}: {ran}");
        sandbox.cmd(args).output().printed(status, "");
    }
}

#[test]
fn a_usage_error_in_json_names_the_missing_argument() {
    let sandbox = Sandbox::new();
    let ran = sandbox.cmd(["tick", "--json"]).output();
    let expected_of = |message: &str| {
        format!("{{\"error\":{{\"kind\":\"usage\",\"message\":\"{message}\",\"exit_status\":2}}}}\n")
    };
    assert_eq!(ran.stdout, expected_of("the following required arguments were not provided: <AGENT>..."));
    let ran = sandbox.cmd(["--json", "queue"]).output();
    assert_eq!(ran.stdout, expected_of("a command is missing"));
    let ran = sandbox.cmd(["create", "ada", "--", "--json"]).output();
    assert_eq!(ran.code(), 0, "after `--`, a flag belongs to the turn command: {ran}");
    sandbox.cmd(["create", "--nope", "--", "--json"]).output().printed(2, "");
}

#[test]
fn each_exit_status_has_the_meaning_of_the_contract() {
    let sandbox = started("exit 1");
    say(&sandbox, "x");
    fs::write(sandbox.store().join("hooks/x"), "").unwrap();
    let status = |args: &[&str]| sandbox.cmd(args.iter().copied()).output().code();
    assert_eq!(status(&["list"]), 0);
    assert_eq!(status(&["enqueue", "ada", "@missing"]), 1);
    assert_eq!(status(&["list", "--nonsense"]), 2);
    assert_eq!(status(&["get", "nobody"]), 3);
    assert_eq!(status(&["resume", "ada"]), 4);
    assert_eq!(status(&["tick", "ada"]), 7);
    sandbox.run(["stop", "ada"]);
    assert_eq!(status(&["tick", "ada", "--exit-code"]), 10);
    let lock = File::options().write(true).open(sandbox.agent("ada").join("lock")).unwrap();
    lock.lock().unwrap();
    assert_eq!(status(&["start", "ada", "--lock-timeout", "10ms"]), 5);
    drop(lock);
    fs::write(sandbox.agent("ada").join("state.json"), "").unwrap();
    assert_eq!(status(&["tick", "ada"]), 6);
}

#[test]
fn a_busy_error_names_the_command_that_holds_the_lock() {
    let sandbox = started("true");
    let path = sandbox.agent("ada").join("lock");
    let held = fs::read_to_string(&path).unwrap();
    let lock = File::options().write(true).open(&path).unwrap();
    lock.lock().unwrap();
    let ran = sandbox.cmd(["stop", "ada", "--lock-timeout", "0", "--json"]).exits(5);
    let failed = failure(&ran);
    let hint = "try again, or wait longer with --lock-timeout";
    assert_includes(&failed, json!({ "kind": "busy", "path": path, "hint": hint }));
    let message = failed["message"].as_str().unwrap();
    assert!(message.contains("dormouse start"), "{message} does not name {held}");
    assert!(message.contains("2026-01-02T03:04:07.000Z"), "{message}");
    // Readers and senders do not wait for the lock.
    let others = "get ada, list, explain ada, events ada, enqueue ada x, wake ada, tick ada --dry-run";
    for args in commands(others) {
        sandbox.cmd(args).exits(0);
    }
}

#[test]
fn output_is_coloured_only_on_a_terminal_or_with_color_always() {
    let sandbox = started("true");
    let plain =
        "AGENT  POSTURE  QUEUE  LAST TURN  DUE  NOTE\nada    idle     0      -          -    nothing to do\n";
    let head =
        ["AGENT", "POSTURE", "QUEUE", "LAST TURN", "DUE", "NOTE"].map(|word| format!("\x1b[2m{word}\x1b[0m"));
    let painted =
        format!("{}\n\x1b[1mada\x1b[0m    idle     0      -          -    nothing to do\n", head.join("  "));
    let painted = painted.as_str();
    sandbox.cmd(["list"]).prints(plain);
    sandbox.cmd(["list", "--color", "never"]).prints(plain);
    sandbox.cmd(["list", "--color", "always"]).prints(painted);
    sandbox.cmd(["list", "--color", "always"]).env("NO_COLOR", "1").prints(painted);
    assert_eq!(on_terminal(&sandbox, &["list"], &[]), painted);
    assert_eq!(on_terminal(&sandbox, &["list"], &[("NO_COLOR", "1")]), plain);
    assert_eq!(on_terminal(&sandbox, &["list"], &[("NO_COLOR", "")]), painted);
    assert_eq!(on_terminal(&sandbox, &["list", "--color", "never"], &[]), plain);
    assert!(!on_terminal(&sandbox, &["list", "--json"], &[]).contains('\x1b'));
}

/// Runs a command on a terminal, and returns all that it writes to both streams.
pub fn on_terminal(sandbox: &Sandbox, args: &[&str], env: &[(&str, &str)]) -> String {
    let (mut ours, theirs) = pseudo_terminal(0, 0);
    let mut cmd = sandbox.cmd(args.iter().copied());
    for (name, value) in env {
        cmd = cmd.env(name, value);
    }
    let mut command = cmd.into_command();
    command.stdin(theirs.try_clone().unwrap()).stdout(theirs.try_clone().unwrap()).stderr(theirs);
    let mut child = command.spawn().unwrap();
    drop(command);
    let mut shown = Vec::new();
    // After the end of the last writer, a read from the terminal fails.
    let _ = ours.read_to_end(&mut shown);
    child.wait().unwrap();
    String::from_utf8(shown).unwrap().replace("\r\n", "\n")
}

/// Runs a command whose standard output has no reader. Returns the exit status and standard error.
fn without_reader(sandbox: &Sandbox, args: &[&str]) -> (Option<i32>, String) {
    let mut child = Beside::start(sandbox.cmd(args.iter().copied()));
    drop(child.0.stdout.take());
    let mut stderr = String::new();
    child.0.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    (child.0.wait().unwrap().code(), stderr)
}

#[test]
fn a_pipe_that_closes_early_is_no_failure() {
    let (sandbox, _, run) = furnished();
    let lines: String = (0..3000).map(|n| format!("{{\"text\":\"{n}\",\"kind\":\"control\"}}\n")).collect();
    sandbox.cmd(["enqueue", "ada", "--batch"]).stdin(lines).output();
    let list = format!(
        "queue list -a ada --limit 0, queue list -a ada --limit 0 --json, list, get ada --json, events ada, \
         run show {run}, doctor, --help, --version"
    );
    for args in commands(&list) {
        let (status, stderr) = without_reader(&sandbox, &args);
        assert_eq!((status, stderr.as_str()), (Some(0), ""), "{args:?}");
    }
    let (status, stderr) = without_reader(&sandbox, &["frobnicate", "--json"]);
    assert!(status == Some(2) && !stderr.contains("panicked"), "{status:?}: {stderr}");
}

#[test]
fn a_result_that_can_not_be_written_is_a_failure() {
    let sandbox = started("true");
    let full = || File::options().write(true).open("/dev/full").unwrap();
    for word in ["list", "--help", "--version"] {
        let mut command = sandbox.cmd([word]).into_command();
        let ended = command.stdin(Stdio::null()).stdout(full()).stderr(Stdio::piped()).output().unwrap();
        assert_eq!(ended.status.code(), Some(1), "{word}");
        let expected = "dormouse: can't write to stdout: No space left on device (os error 28)\n";
        assert_eq!(String::from_utf8(ended.stderr).unwrap(), expected, "{word}");
    }
}

#[test]
fn quiet_prints_only_results_and_failures() {
    let sandbox = started("true");
    sandbox.run(["stop", "ada"]);
    sandbox.cmd(["wake", "ada", "--quiet"]).prints("msg_#1\n");
    let expected = "dormouse: no agent `nobody`\nhint: there is ada\n";
    sandbox.cmd(["-q", "get", "nobody"]).status(3).complains(expected);
}

#[test]
fn verbose_prints_the_continuation_of_a_message_on_stderr() {
    let sandbox = started("true");
    say(&sandbox, "x");
    sandbox
        .cmd(["tick", "ada", "-v"])
        .stdout("ada  start_model_turn (a message from you) → completed\n")
        .complains("dormouse: ada: local_continuation: prior=completed, waiting_reason=none, trigger=operator_input, contentful=true\n");
}

#[test]
fn the_global_flags_are_accepted_at_any_position() {
    let sandbox = started("true");
    let project = sandbox.project().display().to_string();
    for args in [
        &["--json", "-C", &project, "--lock-timeout", "1m30s", "--color", "never", "-q", "get", "ada"][..],
        &["get", "ada", "--json", "--dir", &project, "--lock-timeout", "500ms", "--color=auto", "--verbose"],
    ] {
        let ran = sandbox.cmd(args.iter().copied()).exits(0);
        assert_eq!(objects(&ran.stdout)[0]["agent"], "ada");
    }
}

#[test]
fn the_clock_of_an_invocation_can_be_fixed() {
    let sandbox = started("true");
    for (now, zone, stored) in [
        ("2030-05-06T07:08:09Z", "UTC", "2030-05-06T07:08:09.000Z"),
        ("2030-05-06T07:08:09.123456+02:00", "UTC", "2030-05-06T05:08:09.123Z"),
        ("2030-05-06 07:08", "UTC", "2030-05-06T07:08:00.000Z"),
        ("2030-05-06", "UTC", "2030-05-06T00:00:00.000Z"),
        ("2030-01-06 07:08:09", "CET-1", "2030-01-06T06:08:09.000Z"),
    ] {
        let ran = sandbox.cmd(["enqueue", "ada", "x"]).env("TZ", zone).env("DORMOUSE_NOW", now).output();
        let message = sandbox.json(["queue", "show", ran.stdout.trim_end()]);
        assert_eq!(message["created_at"], stored, "{now} in {zone}");
    }
    let expected = "dormouse: DORMOUSE_NOW: `soon` is not a time: write RFC 3339 (2026-01-31T09:00:00Z) or a \
                    local date and time (2026-01-31 09:00)\n";
    sandbox.cmd(["list"]).env("DORMOUSE_NOW", "soon").status(2).complains(expected);
}

#[test]
fn durations_are_accepted_with_units_like_1h30m() {
    let sandbox = started("true");
    for (word, seconds) in [("90s", 90), ("10m", 600), ("1h30m", 5400), ("2d", 172_800), ("1500ms", 1)] {
        let now = "2030-01-01T00:00:00Z";
        let ran = sandbox.cmd(["enqueue", "ada", "x", "--ttl", word]).env("DORMOUSE_NOW", now).output();
        let message = sandbox.json(["queue", "show", ran.stdout.trim_end()]);
        let expires = message["expires_at"].as_str().unwrap();
        let at = chrono::DateTime::parse_from_rfc3339(expires).unwrap().timestamp();
        assert_eq!(at - 1_893_456_000, seconds, "{word}");
    }
    for word in ["", "5", "5 parsecs", "-1s", "soon"] {
        sandbox.cmd(["enqueue", "ada", "x", "--ttl", word]).exits(2);
    }
}

#[test]
fn every_command_has_help() {
    let sandbox = Sandbox::empty();
    let help = sandbox.run(["--help"]);
    for command in words(
        "init create start stop enqueue wake tick get list explain state queue run briefs events recover \
         doctor schema completions man",
    ) {
        assert!(help.lines().any(|line| line.trim_start().starts_with(&format!("{command} "))), "{command}");
        let own = sandbox.run([command, "--help"]);
        assert!(own.contains(&format!("Usage: dormouse {command}")), "{own}");
        assert!(own.contains("--lock-timeout"), "{own}");
    }
    assert!(sandbox.run(["--version"]).starts_with("dormouse 0."));
}

#[test]
fn each_failing_agent_has_an_error_and_the_worst_sets_the_exit_status() {
    let sandbox = started("true");
    add(&sandbox, "bob", "true");
    fs::write(sandbox.agent("bob").join("identity.json"), "").unwrap();
    fs::write(sandbox.agent("bob").join("agent.toml"), "").unwrap();
    fs::write(sandbox.agent("bob").join("state.json"), "nonsense").unwrap();
    let ran = sandbox.cmd(["tick", "nobody", "bob", "ada", "--json"]).exits(6);
    let kinds: Vec<Value> = objects(&ran.stdout).iter().map(|line| line["error"]["kind"].clone()).collect();
    assert_eq!(kinds, [Value::Null, json!("no_agent"), json!("damaged")]);
}

#[test]
fn a_turn_that_closes_its_streams_completes() {
    let own = own_name();
    let sandbox = started(&format!("exec 1>&- 2>&-; {own} get ada; exit 0"));
    say(&sandbox, "x");
    assert_eq!(step(&sandbox)["terminal"], "completed");
}
