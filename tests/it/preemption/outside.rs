//! Which commands are refused, to which caller, and why; and what a command prints.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::harness::{Ran, Sandbox};
use crate::setup::{
    Beside, add, assert_includes, changes, eventually, failure, field, objects, record, say, step, texts,
    tree,
};

use super::{
    agent, checkpoints_of, current_run, ended, go, hook, refused, running, suspended, take_noted, turn,
    with_message,
};

/// What a turn says to the machine that runs it; `ran` is what no section may have run.
const FROM_INSIDE: [&[&str]; 7] = [
    &["safe-point"],
    &["yield"],
    &["yield", "--checkpoint", "saved"],
    &["non-preemptible", "--deadline", "5s", "--", "touch", "ran"],
    &["non-preemptible", "begin", "--deadline", "5s"],
    &["non-preemptible", "end"],
    &["non-preemptible", "--deadline", "5s", "--", "nonesuch-program"],
];

/// What is stored; locks say who had them last, and a turn that runs may write its log.
fn records(sandbox: &Sandbox) -> std::collections::BTreeMap<PathBuf, (u32, Vec<u8>, i64)> {
    let mut tree = tree(&sandbox.store());
    let is_stored = |path: &Path| {
        !path.ends_with("lock")
            && !["lock", "log"].map(Some).contains(&path.extension().and_then(|name| name.to_str()))
    };
    tree.retain(|path, _| is_stored(path));
    tree
}

/// Runs a command that is refused for this, changes nothing and runs no hook.
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

#[test]
fn who_runs_no_turn_is_not_preempted() {
    let sandbox = agent();
    hook(&sandbox, "on-preempt-request", r#"note "asked""#);
    let ran = changes_nothing(&sandbox, PREEMPT, "invalid_state_transition");
    assert_eq!(failure(&ran)["message"], "no turn of `ada` runs: there is nothing to preempt");
    say(&sandbox, "hello");
    changes_nothing(&sandbox, PREEMPT, "invalid_state_transition");
    turn(&sandbox, "$D yield >/dev/null");
    changes_nothing(&sandbox, PREEMPT, "invalid_state_transition");
    sandbox.run(["resume", "ada"]);
    changes_nothing(&sandbox, PREEMPT, "invalid_state_transition");
    assert_eq!(turn(&sandbox, "exit 75")["terminal"], "deferred");
    changes_nothing(&sandbox, PREEMPT, "invalid_state_transition");
    sandbox.run(["stop", "ada"]);
    changes_nothing(&sandbox, PREEMPT, "invalid_state_transition");
}

/// A run whose tick is gone is none that could yield.
#[test]
fn a_run_whose_tick_was_killed_is_not_preempted() {
    let sandbox = with_message();
    drop(running(&sandbox, "up; come never"));
    changes_nothing(&sandbox, PREEMPT, "invalid_state_transition");
}

#[test]
fn a_run_that_is_being_stopped_is_not_preempted() {
    let sandbox = with_message();
    let tick = running(&sandbox, "trap : TERM; up; come go; $D safe-point; $D yield >/dev/null; note $?");
    let stop = Beside::start(sandbox.cmd(["stop", "ada", "--grace", "1d"]));
    eventually("a stop in progress", || {
        (record(&sandbox, "state.json")["status"] == "stopped").then_some(())
    });
    // This one waits for the lock, and so until the stop has marked its line in the journal.
    refused(&sandbox.cmd(["--json"].iter().chain(PREEMPT).copied()).output(), "invalid_state_transition");
    changes_nothing(&sandbox, PREEMPT, "invalid_state_transition");
    go(&sandbox, "go");
    assert_eq!(stop.end().code(), 0);
    assert_eq!(ended(tick)["terminal"], "aborted");
    assert_eq!(take_noted(&sandbox), ["0"], "it is said to be not done, and aborted all the same");
    assert_eq!(field(&sandbox, "execution.state"), "completed");
}

#[test]
fn only_a_suspended_run_can_be_resumed() {
    let sandbox = agent();
    changes_nothing(&sandbox, &["resume", "ada"], "invalid_state_transition");
    say(&sandbox, "hello");
    assert_eq!(turn(&sandbox, "exit 75")["terminal"], "deferred");
    changes_nothing(&sandbox, &["resume", "ada"], "invalid_state_transition");
}

#[test]
fn what_a_turn_says_is_refused_outside_of_one() {
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

/// Runs all of them in the environment of a turn or task of `ada`, by `$as`, and notes what they come to.
fn all_of_them(extra: &str) -> String {
    let lines = FROM_INSIDE.iter().map(|args| {
        let (first, rest) = args.split_first().unwrap();
        let at = if rest.first().is_some_and(|word| ["begin", "end"].contains(word)) { 1 } else { 0 };
        let (before, after) = rest.split_at(at);
        format!(
            "$D --json {first} {} {extra} {} >> \"$HOME/answers\"; note $?\n",
            before.join(" "),
            after.join(" ")
        )
    });
    lines.collect()
}

#[track_caller]
fn kinds(sandbox: &Sandbox) -> Vec<String> {
    let answers = fs::read_to_string(sandbox.home().join("answers")).unwrap();
    let kinds = texts(&objects(&answers), "error.kind");
    assert_eq!(take_noted(sandbox), ["4"; FROM_INSIDE.len()]);
    assert!(!sandbox.project().join("ran").exists());
    kinds
}

#[test]
fn a_turn_speaks_for_no_other_agent() {
    let sandbox = agent();
    add(&sandbox, "bob", "true");
    fs::write(sandbox.project().join("saved"), "x").unwrap();
    say(&sandbox, "hello");
    assert_eq!(turn(&sandbox, &all_of_them("-a bob"))["terminal"], "completed");
    assert_eq!(kinds(&sandbox), ["not_in_turn"; FROM_INSIDE.len()]);
    // Its own name is no mistake.
    say(&sandbox, "hello");
    turn(&sandbox, "$D safe-point -a ada; note $?");
    assert_eq!(take_noted(&sandbox), ["0"]);
}

#[test]
fn a_turn_that_is_over_says_nothing_more() {
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
fn a_background_task_is_no_turn() {
    let sandbox = with_message();
    fs::write(sandbox.project().join("saved"), "x").unwrap();
    let script =
        format!("D={}\n{}\n{}\ngo", crate::harness::dormouse().display(), super::WORDS, all_of_them(""));
    fs::write(sandbox.home().join("task"), script.replace("\ngo", "\n: > \"$HOME/done\"")).unwrap();
    // The turn lives as long as its task: what is refused is the task.
    turn(&sandbox, r#"$D task start -- sh "$HOME/task" >/dev/null; come done"#);
    assert_eq!(kinds(&sandbox), ["not_in_turn"; FROM_INSIDE.len()]);
    sandbox.run(["stop", "ada"]);
}

/// Nobody is suspended by a mistake in what should be saved.
#[test]
fn a_checkpoint_that_cannot_be_read_is_not_yielded_with() {
    let sandbox = with_message();
    fs::create_dir(sandbox.project().join("dir")).unwrap();
    let step = turn(
        &sandbox,
        r#"for word in missing dir ""; do
            $D --json yield --checkpoint "$word" >> "$HOME/answers"; note $?
        done
        head -c 67108865 /dev/zero > "$HOME/huge"
        $D --json yield --checkpoint "$HOME/huge" >> "$HOME/answers"; note $?
        $D --json yield --checkpoint - < "$HOME/huge" >> "$HOME/answers"; note $?"#,
    );
    assert_eq!(step["terminal"], "completed");
    assert_eq!(take_noted(&sandbox), ["1", "1", "1", "4", "4"]);
    let answers = fs::read_to_string(sandbox.home().join("answers")).unwrap();
    let messages = texts(&objects(&answers), "error.message");
    assert!(messages[0].contains("missing: no such file or directory"), "{messages:?}");
    assert!(messages[1].contains("dir: is a directory"), "{messages:?}");
    for (message, came) in messages[3..].iter().zip(["67108865", "at least 67108865"]) {
        assert_eq!(*message, format!("the checkpoint has {came} bytes, more than max_checkpoint = 64 MiB"));
    }
    let run = step["run_id"].as_str().unwrap();
    assert_eq!(checkpoints_of(&sandbox, run), Vec::<PathBuf>::new());
}

#[test]
fn the_largest_checkpoint_is_taken_whole() {
    let sandbox = with_message();
    let stepped = turn(&sandbox, "head -c 67108864 /dev/zero | $D yield --checkpoint - >/dev/null");
    assert_eq!(stepped["terminal"], "suspended");
    let run = stepped["run_id"].as_str().unwrap();
    assert_eq!(fs::metadata(&checkpoints_of(&sandbox, run)[0]).unwrap().len(), 64 << 20);
}

#[test]
fn a_bad_word_names_its_flag() {
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
    turn(
        &sandbox,
        r#"for time in "" soon -5 5x; do
            $D --json non-preemptible --deadline="$time" -- note ran >> "$HOME/answers"; note $?
            $D --json non-preemptible begin --deadline="$time" >> "$HOME/answers"; note $?
        done"#,
    );
    assert_eq!(take_noted(&sandbox), ["2"; 8]);
    let answers = fs::read_to_string(sandbox.home().join("answers")).unwrap();
    for answer in objects(&answers) {
        assert!(answer["error"]["message"].as_str().unwrap().contains("--deadline"), "{answer}");
    }
}

/// The turn, its hooks and the next attempt are told why: there must be something to tell.
#[test]
fn a_reason_says_something() {
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

/// Somebody has stopped the others on purpose, or they have nothing that could go on.
#[test]
fn all_that_are_resumed_are_those_that_are_suspended() {
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

#[test]
fn what_is_not_there_is_not_found() {
    let sandbox = agent();
    for args in
        [&["preempt", "eve", "--reason", "x"][..], &["resume", "eve"], &["fail", "eve", "--reason", "x"]]
    {
        sandbox.cmd(args.to_vec()).exits(3);
    }
}

/// What a command says in a turn would stand in the way of what the turn itself has to say.
#[test]
fn the_commands_of_a_turn_say_no_more_than_is_promised() {
    let sandbox = with_message();
    let step = turn(
        &sandbox,
        r#"exec 2>&1
        $D safe-point
        $D non-preemptible begin --deadline 5m
        $D non-preemptible end
        $D non-preemptible --deadline 5m -- true
        outside preempt ada --reason urgent --grace 1d >/dev/null
        $D safe-point"#,
    );
    let run = step["run_id"].as_str().unwrap();
    assert_eq!(sandbox.run(["run", "show", run, "--stdout"]), "");
}

#[test]
fn each_command_answers_with_one_object() {
    let sandbox = with_message();
    let stepped = turn(
        &sandbox,
        r#"run() { $D --json "$@" >> "$HOME/answers"; }
        run safe-point
        run non-preemptible begin --deadline 5m
        run non-preemptible begin --deadline 10m
        run non-preemptible end
        run non-preemptible end
        run non-preemptible --deadline 5m -- true
        printf saved | run yield --checkpoint -"#,
    );
    let run = stepped["run_id"].as_str().unwrap().to_owned();
    let answers = objects(&fs::read_to_string(sandbox.home().join("answers")).unwrap());
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

/// Whoever listens no more changes nothing about what is done.
#[test]
fn a_closed_pipe_is_no_failure() {
    let sandbox = with_message();
    let stepped = turn(
        &sandbox,
        r#"mkfifo "$HOME/pipe"
        # Its reader is gone before anything is written.
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
        closed $D yield --json"#,
    );
    assert_eq!(stepped["terminal"], "suspended");
    assert_eq!(take_noted(&sandbox), ["0"; 9]);
}

#[test]
fn a_reason_cannot_forge_a_line() {
    let sandbox = with_message();
    let reason = "urgent\nada  all is well";
    fs::write(sandbox.home().join("reason"), reason).unwrap();
    turn(
        &sandbox,
        r#"outside preempt ada --reason "$(cat "$HOME/reason")" --grace 1d >/dev/null; $D yield >/dev/null"#,
    );
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
