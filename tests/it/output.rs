//! What every command has in common: streams, JSON, colours, terminals, closed pipes, exit statuses.

use std::fs::{self, File};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::harness::Sandbox;
use crate::setup::{add, failure, objects, own_name, say, started, step, words};

/// An agent with something of everything to show, and the ids of a message and a run of it.
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
    let commands: &[&[&str]] = &[
        &["init"],
        &["create", "bob", "--", "true"],
        &["start", "bob"],
        &["enqueue", "ada", "z"],
        &["wake", "ada"],
        &["tick", "ada", "bob"],
        &["tick", "--all", "--until-idle"],
        &["tick", "ada", "--dry-run"],
        &["get", "ada"],
        &["list"],
        &["explain", "ada"],
        &["state", "ada"],
        &["state", "ada", "--can", "runnable"],
        &["state", "ada", "--diagram"],
        &["queue", "list", "-a", "ada"],
        &["queue", "dead", "-a", "ada"],
        &["queue", "show", &message],
        &["run", "list", "-a", "ada"],
        &["run", "show", &run],
        &["run", "show", &run, "--stdout"],
        &["briefs", "ada"],
        &["events", "ada"],
        &["doctor"],
        &["schema"],
        &["schema", "message"],
        &["man"],
        &["man", "queue list"],
        &["completions", "bash"],
        &["stop", "ada"],
    ];
    for args in commands {
        let ran = sandbox.cmd(["--json"].iter().chain(*args).copied()).output();
        assert_eq!((ran.code(), ran.stderr.as_str()), (0, ""), "{args:?}: {ran}");
        objects(&ran.stdout);
    }
}

#[test]
fn with_json_a_failure_is_the_last_line_and_prose_for_people_is_on_stderr() {
    let (sandbox, message, _) = furnished();
    fs::create_dir(sandbox.home().join("empty")).unwrap();
    let cases: &[(&[&str], i32, &str)] = &[
        (&["create", "ada", "--", "true"], 4, "agent_exists"),
        (&["create", "Ada", "--", "true"], 2, "usage"),
        (&["resume", "ada"], 4, "invalid_state_transition"),
        (&["start", "nobody"], 3, "no_agent"),
        (&["stop", "nobody"], 3, "no_agent"),
        (&["enqueue", "nobody", "x"], 3, "no_agent"),
        (&["enqueue", "ada", "@nothing"], 1, "io"),
        (&["enqueue", "ada", "x", "--origin", "task"], 4, "origin_not_allowed"),
        (&["wake", "nobody"], 3, "no_agent"),
        (&["tick", "nobody"], 3, "no_agent"),
        (&["get", "nobody"], 3, "no_agent"),
        (&["get", "ada", "nothing"], 2, "usage"),
        (&["explain", "nobody"], 3, "no_agent"),
        (&["state", "nobody"], 3, "no_agent"),
        (&["queue", "list", "-a", "nobody"], 3, "no_agent"),
        (&["queue", "show", "nothing"], 3, "no_record"),
        (&["queue", "show", "x"], 2, "usage"),
        (&["queue", "requeue", &message], 4, "already_processed"),
        (&["queue", "drop", &message], 4, "not_dead"),
        (&["queue", "dead", "--ack"], 2, "usage"),
        (&["run", "show", "nothing"], 3, "no_record"),
        (&["briefs", "nobody"], 3, "no_agent"),
        (&["events", "nobody"], 3, "no_agent"),
        (&["events", "ada", "--kind", "nothing"], 2, "usage"),
        (&["recover", "nobody"], 3, "no_agent"),
        (&["doctor", "Ada"], 2, "usage"),
        (&["man", "nothing"], 3, "no_record"),
        (&["-C", "nowhere", "list"], 3, "no_state_directory"),
        (&["frobnicate"], 2, "usage"),
        (&["tick"], 2, "usage"),
        (&["tick", "ada", "--lock-timeout", "soon"], 2, "usage"),
        (&["tick", "ada", "--jobs", "many"], 2, "usage"),
        (&["tick", "--all", "--jobs", "0"], 2, "usage"),
        (&["tick", "ada", "--until-idle", "--max-steps", "0"], 2, "usage"),
        (&["list", "--color", "red"], 2, "usage"),
        (&["list", "-q", "-v"], 2, "usage"),
    ];
    for (args, status, kind) in cases {
        let ran = sandbox.cmd(["--json"].iter().chain(*args).copied()).exits(*status);
        let failed = failure(&ran);
        assert_eq!(failed["kind"], *kind, "{args:?}: {ran}");
        assert_eq!(failed["exit_status"], *status, "{args:?}: {ran}");
        assert!(failed["message"].as_str().is_some_and(|message| !message.is_empty()), "{args:?}: {ran}");
        let prose = ran.stderr.starts_with("dormouse: ") || ran.stderr.starts_with("error: ");
        assert!(prose, "{args:?}: {ran}");
        let quiet = sandbox.cmd(args.iter().copied()).output();
        assert_eq!((quiet.code(), quiet.stdout.as_str()), (*status, ""), "{args:?}: {quiet}");
    }
}

#[test]
fn a_usage_error_says_in_json_what_is_missing() {
    let sandbox = Sandbox::new();
    let ran = sandbox.cmd(["tick", "--json"]).output();
    assert_eq!(
        ran.stdout,
        "{\"error\":{\"kind\":\"usage\",\"message\":\"the following required arguments were not provided: <AGENT>...\",\"exit_status\":2}}\n"
    );
    let ran = sandbox.cmd(["create", "ada", "--", "--json"]).output();
    assert_eq!(ran.code(), 0, "behind -- it is somebody else's flag: {ran}");
    let ran = sandbox.cmd(["create", "--nope", "--", "--json"]).output();
    assert_eq!((ran.code(), ran.stdout.as_str()), (2, ""));
}

#[test]
fn each_exit_status_means_what_the_contract_says() {
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
fn whoever_holds_a_lock_is_named() {
    let sandbox = started("true");
    let path = sandbox.agent("ada").join("lock");
    let held = fs::read_to_string(&path).unwrap();
    let lock = File::options().write(true).open(&path).unwrap();
    lock.lock().unwrap();
    let ran = sandbox.cmd(["stop", "ada", "--lock-timeout", "0", "--json"]).exits(5);
    let failed = failure(&ran);
    assert_eq!((&failed["kind"], &failed["path"]), (&json!("busy"), &json!(path)));
    let message = failed["message"].as_str().unwrap();
    assert!(message.contains("dormouse start"), "{message} does not name {held}");
    assert!(message.contains("2026-01-02T03:04:07.000Z"), "{message}");
    assert_eq!(failed["hint"], "try again, or wait longer with --lock-timeout");
    for args in [
        &["get", "ada"][..],
        &["list"],
        &["explain", "ada"],
        &["events", "ada"],
        &["enqueue", "ada", "x"],
        &["wake", "ada"],
        &["tick", "ada", "--dry-run"],
    ] {
        let ran = sandbox.cmd(args.iter().copied()).output();
        assert_eq!(ran.code(), 0, "neither readers nor arrivals wait: {args:?}: {ran}");
    }
}

#[test]
fn colours_are_for_terminals_and_for_who_asks() {
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

/// What a command shows on a terminal: a pair of pseudo-terminals, and both of its streams.
pub fn on_terminal(sandbox: &Sandbox, args: &[&str], env: &[(&str, &str)]) -> String {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let name = ptsname(&ours, Vec::new()).unwrap().into_string().unwrap();
    let theirs = OwnedFd::from(File::options().read(true).write(true).open(name).unwrap());
    let mut cmd = sandbox.cmd(args.iter().copied());
    for (name, value) in env {
        cmd = cmd.env(name, value);
    }
    let mut command = cmd.into_command();
    command.stdin(theirs.try_clone().unwrap()).stdout(theirs.try_clone().unwrap()).stderr(theirs);
    let mut child = command.spawn().unwrap();
    drop(command);
    let mut shown = Vec::new();
    // The end of the last writer reads as an error here.
    let _ = File::from(ours).read_to_end(&mut shown);
    child.wait().unwrap();
    String::from_utf8(shown).unwrap().replace("\r\n", "\n")
}

#[test]
fn a_pipe_that_closes_early_is_no_failure() {
    let (sandbox, _, run) = furnished();
    let lines: String = (0..3000).map(|n| format!("{{\"text\":\"{n}\",\"kind\":\"control\"}}\n")).collect();
    sandbox.cmd(["enqueue", "ada", "--batch"]).stdin(lines).output();
    for args in [
        &["queue", "list", "-a", "ada", "--limit", "0"][..],
        &["queue", "list", "-a", "ada", "--limit", "0", "--json"],
        &["list"],
        &["get", "ada", "--json"],
        &["events", "ada"],
        &["run", "show", &run],
        &["doctor"],
        &["--help"],
        &["--version"],
    ] {
        let mut child = sandbox.cmd(args.iter().copied()).into_command();
        let mut child =
            child.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let ended = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert_eq!((ended.status.code(), said.as_str()), (Some(0), ""), "{args:?}");
    }
    let mut child = sandbox.cmd(["frobnicate", "--json"]).into_command();
    let mut child = child.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(2));
    assert!(!String::from_utf8_lossy(&ended.stderr).contains("panicked"));
}

#[test]
#[cfg(target_os = "linux")]
fn a_result_that_can_not_be_written_is_a_failure() {
    let sandbox = started("true");
    let full = || File::options().write(true).open("/dev/full").unwrap();
    let mut command = sandbox.cmd(["list"]).into_command();
    let ended = command.stdin(Stdio::null()).stdout(full()).stderr(Stdio::piped()).output().unwrap();
    assert_eq!(ended.status.code(), Some(1));
    assert_eq!(
        String::from_utf8(ended.stderr).unwrap(),
        "dormouse: can't write to stdout: No space left on device (os error 28)\n"
    );
}

#[test]
fn quiet_says_nothing_but_results_and_failures() {
    let sandbox = started("true");
    sandbox.run(["stop", "ada"]);
    sandbox.cmd(["wake", "ada", "--quiet"]).prints("msg_#1\n");
    sandbox
        .cmd(["-q", "get", "nobody"])
        .status(3)
        .complains("dormouse: no agent `nobody`\nhint: there is ada\n");
}

#[test]
fn verbose_says_on_stderr_why_a_message_does_what_it_does() {
    let sandbox = started("true");
    say(&sandbox, "x");
    sandbox
        .cmd(["tick", "ada", "-v"])
        .stdout("ada  start_model_turn (a message from you) → completed\n")
        .complains("dormouse: ada: local_continuation: prior=completed, waiting_reason=none, trigger=operator_input, contentful=true\n");
}

#[test]
fn the_global_flags_go_anywhere() {
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
    for (now, stored) in [
        ("2030-05-06T07:08:09Z", "2030-05-06T07:08:09.000Z"),
        ("2030-05-06T07:08:09.123456+02:00", "2030-05-06T05:08:09.123Z"),
        ("2030-05-06 07:08", "2030-05-06T07:08:00.000Z"),
        ("2030-05-06", "2030-05-06T00:00:00.000Z"),
    ] {
        let ran = sandbox.cmd(["enqueue", "ada", "x"]).env("DORMOUSE_NOW", now).output();
        let message = sandbox.json(["queue", "show", ran.stdout.trim_end()]);
        assert_eq!(message["created_at"], stored);
    }
    sandbox
        .cmd(["list"])
        .env("DORMOUSE_NOW", "soon")
        .status(2)
        .complains(
            "dormouse: DORMOUSE_NOW: `soon` is not a time: write RFC 3339 (2026-01-31T09:00:00Z) or a local date and time (2026-01-31 09:00)\n",
        );
}

#[test]
fn a_local_time_is_that_of_the_time_zone() {
    let sandbox = started("true");
    let ran = sandbox
        .cmd(["enqueue", "ada", "x"])
        .env("TZ", "CET-1")
        .env("DORMOUSE_NOW", "2030-01-06 07:08:09")
        .output();
    let message = sandbox.json(["queue", "show", ran.stdout.trim_end()]);
    assert_eq!(message["created_at"], "2030-01-06T06:08:09.000Z");
}

#[test]
fn durations_are_written_as_people_say_them() {
    let sandbox = started("true");
    for (word, seconds) in [("90s", 90), ("10m", 600), ("1h30m", 5400), ("2d", 172_800), ("1500ms", 1)] {
        let ran = sandbox
            .cmd(["enqueue", "ada", "x", "--ttl", word])
            .env("DORMOUSE_NOW", "2030-01-01T00:00:00Z")
            .output();
        let message = sandbox.json(["queue", "show", ran.stdout.trim_end()]);
        let expires: String = message["expires_at"].as_str().unwrap().to_owned();
        let at = chrono::DateTime::parse_from_rfc3339(&expires).unwrap().timestamp();
        assert_eq!(at - 1_893_456_000, seconds, "{word}");
    }
    for word in ["", "5", "5 parsecs", "-1s", "soon"] {
        assert_eq!(sandbox.cmd(["enqueue", "ada", "x", "--ttl", word]).output().code(), 2, "{word:?}");
    }
}

#[test]
fn generated_texts_are_printed() {
    let sandbox = Sandbox::new();
    for args in [&["completions", "bash"][..], &["completions", "zsh"], &["completions", "fish"], &["schema"]]
    {
        assert_eq!(sandbox.cmd(args.iter().copied()).output().code(), 0, "{args:?}");
    }
    for args in [&["completions", "tcsh"][..], &["schema", "party"], &["completions"]] {
        assert_eq!(sandbox.cmd(args.iter().copied()).output().code(), 2, "{args:?}");
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
fn several_failures_are_told_where_they_happen_and_the_gravest_counts() {
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
fn a_turn_that_closes_its_streams_is_no_trouble() {
    let own = own_name();
    let sandbox = started(&format!("exec 1>&- 2>&-; {own} get ada; exit 0"));
    say(&sandbox, "x");
    assert_eq!(step(&sandbox)["terminal"], "completed");
}
