//! Tests which preemption commands are refused to which caller and why, and what they print.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::harness::{Ran, Sandbox, dormouse};
use crate::setup::{add, assert_includes, changes, failure, record, say, step, texts, tree};

use super::{
    ASK, WORDS, agent, answers, checkpoints_of, current_run, ended, go, hook, refused, running, suspended,
    take_noted, turn, with_message,
};

/// Commands that only a turn may use. A refused `non-preemptible` must not run its `touch ran`.
const FROM_INSIDE: [&[&str]; 8] = [
    &["safe-point"],
    &["checkpoint", "saved"],
    &["yield"],
    &["yield", "--checkpoint", "saved"],
    &["non-preemptible", "--deadline", "5s", "--", "touch", "ran"],
    &["non-preemptible", "begin", "--deadline", "5s"],
    &["non-preemptible", "end"],
    &["non-preemptible", "--deadline", "5s", "--", "nonesuch-program"],
];

/// Returns the files of the state directory without lock files, which name their last holder, and
/// logs, to which a running turn may write.
fn records(sandbox: &Sandbox) -> std::collections::BTreeMap<PathBuf, (u32, Vec<u8>, i64)> {
    let mut tree = tree(&sandbox.store());
    let is_stored = |path: &Path| {
        !path.ends_with("lock")
            && !["lock", "log"].map(Some).contains(&path.extension().and_then(|name| name.to_str()))
    };
    tree.retain(|path, _| is_stored(path));
    tree
}

/// Runs a command, and asserts that it is refused with the error `kind`, changes no record and runs
/// no hook.
#[track_caller]
fn changes_nothing(sandbox: &Sandbox, args: &[&str], kind: &str) -> Ran {
    let before = records(sandbox);
    let ran = sandbox.cmd(["--json"].iter().chain(args).copied()).output();
    refused(&ran, kind);
    assert_eq!(changes(&before, &records(sandbox)), Vec::<PathBuf>::new(), "{args:?}");
    assert_eq!(take_noted(sandbox), Vec::<String>::new(), "{args:?}");
    ran
}

const PREEMPT: &[&str] = &["preempt", "ada", "--reason", "urgent"];

/// Asserts that a `preempt` of `ada` is refused.
#[track_caller]
fn not_preempted(sandbox: &Sandbox) -> Ran {
    changes_nothing(sandbox, PREEMPT, "invalid_state_transition")
}

/// `preempt` is refused although the next step would run a turn, and if the agent is stopped.
#[test]
fn an_agent_without_a_turn_is_not_preempted() {
    let sandbox = with_message();
    hook(&sandbox, "on-preempt-request", r#"note "asked""#);
    not_preempted(&sandbox);
    turn(&sandbox, "$D yield >/dev/null");
    sandbox.run(["resume", "ada"]);
    not_preempted(&sandbox);
    sandbox.run(["stop", "ada"]);
    not_preempted(&sandbox);
}

/// A `preempt` is refused if the tick of the run was killed, because the run can't yield any more.
#[test]
fn a_run_whose_tick_was_killed_is_not_preempted() {
    let sandbox = with_message();
    drop(running(&sandbox, "up; come never"));
    not_preempted(&sandbox);
}

#[test]
fn commands_of_turns_are_refused_outside_of_a_turn() {
    let sandbox = agent();
    fs::write(sandbox.project().join("saved"), "x").unwrap();
    for args in FROM_INSIDE {
        let ran = changes_nothing(&sandbox, args, "not_in_turn");
        assert!(failure(&ran)["hint"].as_str().unwrap().contains("DORMOUSE_RUN"), "{ran}");
        let plain = sandbox.cmd(args.to_vec()).output();
        assert_eq!((plain.code(), plain.stdout.as_str()), (4, ""), "{plain}");
        assert!(!sandbox.project().join("ran").exists());
    }
}

/// Returns a script that runs all commands of [`FROM_INSIDE`] with more flags, and records each
/// exit status.
fn commands_of_turns(flags: &str) -> String {
    let lines = FROM_INSIDE.iter().map(|args| {
        let has_verb = args.get(1).is_some_and(|word| ["begin", "end"].contains(word));
        let (before, after) = args.split_at(1 + usize::from(has_verb));
        let (before, after) = (before.join(" "), after.join(" "));
        format!("$D --json {before} {flags} {after} >> \"$HOME/answers\"; note $?\n")
    });
    lines.collect()
}

/// Asserts that each of [`FROM_INSIDE`] was refused with `not_in_turn`, and did not `touch ran`.
#[track_caller]
fn all_refused(sandbox: &Sandbox) {
    assert_eq!(take_noted(sandbox), ["4"; FROM_INSIDE.len()]);
    assert!(!sandbox.project().join("ran").exists());
    assert_eq!(texts(&answers(sandbox, "answers"), "error.kind"), ["not_in_turn"; FROM_INSIDE.len()]);
}

#[test]
fn a_turn_cannot_act_for_another_agent() {
    let sandbox = agent();
    add(&sandbox, "bob", "true");
    fs::write(sandbox.project().join("saved"), "x").unwrap();
    say(&sandbox, "hello");
    assert_eq!(turn(&sandbox, &commands_of_turns("-a bob"))["terminal"], "completed");
    all_refused(&sandbox);
    // A turn may name its own agent with `-a`.
    say(&sandbox, "hello");
    turn(&sandbox, "$D safe-point -a ada; note $?");
    assert_eq!(take_noted(&sandbox), ["0"]);
}

#[test]
fn commands_of_an_ended_turn_are_refused() {
    let sandbox = with_message();
    let run = turn(&sandbox, "true")["run_id"].as_str().unwrap().to_owned();
    say(&sandbox, "another");
    let tick = running(&sandbox, "up; come go");
    fs::write(sandbox.project().join("saved"), "x").unwrap();
    assert_ne!(current_run(&sandbox), run);
    for args in FROM_INSIDE {
        let before = records(&sandbox);
        let cmd = sandbox.cmd(["--json"].iter().chain(args).copied());
        let ran = cmd.env("DORMOUSE_AGENT", "ada").env("DORMOUSE_RUN", &run).output();
        refused(&ran, "run_not_current");
        assert!(failure(&ran)["hint"].is_string(), "{ran}");
        assert_eq!(changes(&before, &records(&sandbox)), Vec::<PathBuf>::new(), "{args:?}");
    }
    assert!(!sandbox.project().join("ran").exists());
    go(&sandbox, "go");
    assert_eq!(ended(tick)["terminal"], "completed");
}

#[test]
fn a_background_task_can_not_use_the_commands_of_a_turn() {
    let sandbox = with_message();
    fs::write(sandbox.project().join("saved"), "x").unwrap();
    let (program, commands) = (dormouse(), commands_of_turns(""));
    let script = format!("D={}\n{WORDS}\n{commands}\n: > \"$HOME/done\"", program.display());
    fs::write(sandbox.home().join("task"), script).unwrap();
    // The turn waits for its task, so the commands of the task are refused while a turn runs.
    turn(&sandbox, r#"$D task start -- sh "$HOME/task" >/dev/null; come done"#);
    all_refused(&sandbox);
    sandbox.run(["stop", "ada"]);
}

/// A run is not suspended if its checkpoint can't be saved.
#[test]
fn a_checkpoint_that_cannot_be_read_is_not_yielded_with() {
    let sandbox = with_message();
    fs::create_dir(sandbox.project().join("dir")).unwrap();
    let script = r#"for word in missing dir ""; do
            $D --json yield --checkpoint "$word" >> "$HOME/answers"; note $?
        done
        head -c 67108865 /dev/zero > "$HOME/huge"
        $D --json yield --checkpoint "$HOME/huge" >> "$HOME/answers"; note $?
        $D --json yield --checkpoint - < "$HOME/huge" >> "$HOME/answers"; note $?"#;
    let step = turn(&sandbox, script);
    assert_eq!(step["terminal"], "completed");
    assert_eq!(take_noted(&sandbox), ["1", "1", "1", "4", "4"]);
    let messages = texts(&answers(&sandbox, "answers"), "error.message");
    assert!(messages[0].contains("missing: no such file or directory"), "{messages:?}");
    assert!(messages[1].contains("dir: is a directory"), "{messages:?}");
    for (message, came) in messages[3..].iter().zip(["67108865", "at least 67108865"]) {
        assert_eq!(*message, format!("the checkpoint has {came} bytes, more than max_checkpoint = 64 MiB"));
    }
    let run = step["run_id"].as_str().unwrap();
    assert_eq!(checkpoints_of(&sandbox, run), Vec::<PathBuf>::new());
}

#[test]
fn the_largest_allowed_checkpoint_is_saved_completely() {
    let sandbox = with_message();
    let stepped = turn(&sandbox, "head -c 67108864 /dev/zero | $D yield --checkpoint - >/dev/null");
    assert_eq!(stepped["terminal"], "suspended");
    let run = stepped["run_id"].as_str().unwrap();
    assert_eq!(fs::metadata(&checkpoints_of(&sandbox, run)[0]).unwrap().len(), 64 << 20);
}

#[test]
fn a_wrong_argument_is_refused_with_the_name_of_its_flag() {
    let sandbox = agent();
    for (flag, args) in [
        ("--grace", &["preempt", "ada", "--reason", "x", "--grace", "soon"][..]),
        ("--grace", &["preempt", "ada", "--reason", "x", "--grace=-1s"]),
        ("--for", &["preempt", "ada", "--reason", "x", "--for", "never"]),
        ("--for", &["preempt", "ada", "--reason", "x", "--for", ""]),
        ("--reason", &["preempt", "ada"]),
        ("--reason", &["fail", "ada"]),
        ("--deadline", &["non-preemptible", "--", "true"]),
        ("--deadline", &["non-preemptible", "begin"]),
        ("COMMAND", &["non-preemptible", "--deadline", "5s"]),
        ("--agent", &["safe-point", "-a", "../ada"]),
        ("AGENT", &["preempt", "../ada", "--reason", "x"]),
        ("AGENT", &["fail", "../ada", "--reason", "x"]),
    ] {
        let ran = sandbox.cmd(["--json"].iter().chain(args).copied()).exits(2);
        let error = failure(&ran);
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(flag), "{args:?}: {message}");
    }
    say(&sandbox, "hello");
    let script = r#"for time in "" soon -5 5x; do
            $D --json non-preemptible --deadline="$time" -- note ran >> "$HOME/answers"; note $?
            $D --json non-preemptible begin --deadline="$time" >> "$HOME/answers"; note $?
        done"#;
    turn(&sandbox, script);
    assert_eq!(take_noted(&sandbox), ["2"; 8]);
    for answer in answers(&sandbox, "answers") {
        assert!(answer["error"]["message"].as_str().unwrap().contains("--deadline"), "{answer}");
    }
}

/// The turn, its hooks and the next attempt get the reason of a request, so it must not be empty.
#[test]
fn an_empty_reason_is_refused() {
    let sandbox = with_message();
    let tick = running(&sandbox, "up; come go");
    hook(&sandbox, "on-preempt-request", r#"note "asked""#);
    for verb in ["preempt", "fail"] {
        for reason in ["", " \n\t"] {
            changes_nothing(&sandbox, &[verb, "ada", "--reason", reason], "empty_reason");
        }
    }
    go(&sandbox, "go");
    assert_eq!(ended(tick)["terminal"], "completed");
}

/// `resume --all` leaves out agents that are stopped or have no suspended run.
#[test]
fn resume_all_resumes_only_suspended_agents() {
    let sandbox = suspended("page 3");
    add(&sandbox, "idle", "true");
    add(&sandbox, "stopped", "true");
    sandbox.run(["stop", "stopped"]);
    let resumed = sandbox.json_lines(["resume", "--all"]);
    let agents: Vec<&Value> = resumed.iter().map(|object| &object["agent"]).collect();
    assert_eq!(agents, ["ada"]);
    assert_eq!(sandbox.json(["get", "stopped"])["status"], "stopped");
    assert_eq!(step(&sandbox)["reason"], "resume_suspended");
}

/// Checks what the commands print that a turn runs: their output is mixed into that of the turn.
#[test]
fn safe_point_and_non_preemptible_print_nothing_without_json() {
    let sandbox = with_message();
    let step = turn(
        &sandbox,
        &format!(
            "exec 2>&1
            $D safe-point
            $D non-preemptible begin --deadline 5m
            $D non-preemptible end
            $D non-preemptible --deadline 5m -- true
            {ASK}
            $D safe-point"
        ),
    );
    let run = step["run_id"].as_str().unwrap();
    assert_eq!(sandbox.run(["run", "show", run, "--stdout"]), "");
}

#[test]
fn each_command_answers_with_one_object() {
    let sandbox = with_message();
    let script = r#"run() { $D --json "$@" >> "$HOME/answers"; }
        run safe-point
        run non-preemptible begin --deadline 5m
        run non-preemptible begin --deadline 10m
        run non-preemptible end
        run non-preemptible end
        run non-preemptible --deadline 5m -- true
        printf saved | run yield --checkpoint -"#;
    let stepped = turn(&sandbox, script);
    let run = stepped["run_id"].as_str().unwrap();
    let answers = answers(&sandbox, "answers");
    assert!(answers.iter().all(|answer| answer["agent"] == "ada" && answer["run_id"] == run), "{answers:?}");
    let [point, begun, inner, inner_ended, outer_ended, yielded] = &answers[..] else {
        panic!("{answers:?}")
    };
    assert_includes(point, json!({ "yield": false, "reason": null, "interjections": [] }));
    for (answer, section, state) in
        [(begun, 1, "open"), (inner, 2, "open"), (inner_ended, 2, "closed"), (outer_ended, 1, "closed")]
    {
        assert_eq!((&answer["section"], &answer["state"]), (&json!(section), &json!(state)));
        assert!(answer["until"].is_string());
    }
    assert_eq!(yielded["bytes"], 5);
    assert_eq!(fs::read(yielded["checkpoint"].as_str().unwrap()).unwrap(), b"saved");
}

/// A command takes effect and exits with 0 even if the reader of its output has gone.
#[test]
fn a_closed_pipe_is_no_failure() {
    let sandbox = with_message();
    let script = r#"mkfifo "$HOME/pipe"
        # The reader closes the pipe before the command writes.
        closed() {
            { while test -e "$HOME/open"; do sleep 0.01; done; "$@"; echo $? > "$HOME/status"; } > "$HOME/pipe" &
            : > "$HOME/open"; : < "$HOME/pipe"; rm "$HOME/open"; wait; note "$(cat "$HOME/status")"
        }
        outside enqueue ada "look" --priority interject >/dev/null
        closed $D safe-point
        closed $D safe-point --json
        closed $D non-preemptible begin --deadline 5m --json
        closed $D non-preemptible end --json
        closed $D non-preemptible --deadline 5m --json -- true
        closed outside preempt ada --reason urgent --grace 1d
        closed outside preempt ada --reason urgent --grace 1d --json
        closed $D yield
        closed $D yield --json"#;
    let stepped = turn(&sandbox, script);
    assert_eq!(stepped["terminal"], "suspended");
    assert_eq!(take_noted(&sandbox), ["0"; 9]);
}

#[test]
fn a_reason_cannot_forge_a_line() {
    let sandbox = with_message();
    let reason = "urgent\nada  all is well";
    fs::write(sandbox.home().join("reason"), reason).unwrap();
    let script =
        r#"outside preempt ada --reason "$(cat "$HOME/reason")" --grace 1d >/dev/null; $D yield >/dev/null"#;
    turn(&sandbox, script);
    assert_eq!(record(&sandbox, "state.json")["execution"]["reason"], reason);
    for args in [
        &["get", "ada"][..],
        &["state", "ada"],
        &["explain", "ada"],
        &["tick", "ada"],
        &["run", "list", "-a", "ada"],
    ] {
        let said = sandbox.run(args.to_vec());
        assert!(!said.contains("\nada  all is well"), "{args:?}: {said:?}");
    }
}
