//! The hooks of preemption: when each runs, what it is told, and what follows if it fails.

use serde_json::{Value, json};

use crate::harness::Sandbox;
use crate::setup::{Beside, add, assert_includes, decision, extend_policy, field, say, step};

use super::{agent, ended, events, go, hook, running, signal, suspended, take_noted, turn, turns};

/// Notes what it is told on stdin, and how the agent stands.
const TELL: &str = r#"read -r told; note "$told"; note "$DORMOUSE_HOOK: $($D get ada execution.state)""#;

#[track_caller]
fn told(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"))
}

#[test]
fn each_hook_is_told_of_its_change_while_the_agent_is_still_before_it() {
    let sandbox = agent();
    for name in ["on-preempt-request", "on-suspend", "on-resume"] {
        hook(&sandbox, name, TELL);
    }
    let message = say(&sandbox, "hello");
    let tick = running(&sandbox, "up; come go; $D safe-point; note $?; $D yield >/dev/null");
    sandbox.run(["preempt", "ada", "--reason", "urgent", "--grace", "1d"]);
    let [asked, stands] = &take_noted(&sandbox)[..] else { panic!("one hook") };
    assert_eq!(stands, "on-preempt-request: running");
    go(&sandbox, "go");
    let first = ended(tick)["run_id"].clone();
    let [answer, suspends, suspends_in] = &take_noted(&sandbox)[..] else { panic!("one hook") };
    assert_eq!((answer.as_str(), suspends_in.as_str()), ("10", "on-suspend: running"));
    for (line, name) in [(asked, "on-preempt-request"), (suspends, "on-suspend")] {
        let expected = json!({
            "hook": name, "agent": "ada", "from": "running", "to": "suspended",
            "task_id": message, "reason": "urgent", "run_id": first
        });
        assert_eq!(told(line), expected);
    }
    sandbox.run(["resume", "ada"]);
    assert_eq!(take_noted(&sandbox), Vec::<String>::new(), "the run goes on with the next step");
    let second = turn(&sandbox, "note turn")["run_id"].clone();
    let [resumes, resumes_in, then] = &take_noted(&sandbox)[..] else { panic!("one hook") };
    assert_eq!((resumes_in.as_str(), then.as_str()), ("on-resume: resumed", "turn"));
    let expected = json!({
        "hook": "on-resume", "agent": "ada", "from": "suspended", "to": "resumed",
        "task_id": message, "reason": null, "run_id": second
    });
    assert_eq!(told(resumes), expected);
}

#[test]
fn a_hook_has_the_environment_of_the_turn_and_speaks_as_it() {
    let sandbox = agent();
    let environment = r#"note "$DORMOUSE_HOOK $DORMOUSE_AGENT $DORMOUSE_RUN $DORMOUSE_ATTEMPT $DORMOUSE_MESSAGE $(basename "$PWD")"; told"#;
    for name in ["on-preempt-request", "on-suspend", "on-resume"] {
        hook(
            &sandbox,
            name,
            &format!("{environment}; $D --lock-timeout 0 work add \"$DORMOUSE_HOOK\" >/dev/null; note $?"),
        );
    }
    let message = say(&sandbox, "hello");
    let stepped = turn(
        &sandbox,
        "$D preempt ada --reason urgent --grace 1d >/dev/null; printf here | $D yield --checkpoint - >/dev/null",
    );
    let first = stepped["run_id"].as_str().unwrap().to_owned();
    sandbox.run(["resume", "ada"]);
    let second = turn(&sandbox, "true")["run_id"].as_str().unwrap().to_owned();
    let line = |name: &str, run: &str| format!("{name} ada {run} 1 {message} project");
    let expected = [
        line("on-preempt-request", &first),
        "from nothing".into(),
        "0".into(),
        line("on-suspend", &first),
        "from here".into(),
        "0".into(),
        line("on-resume", &second),
        "from here".into(),
        "0".into(),
    ];
    assert_eq!(take_noted(&sandbox), expected);
    let work = sandbox.json_lines(["work", "list", "-a", "ada"]);
    assert_eq!(work.len(), 3);
}

#[test]
fn every_transition_of_a_round_is_told() {
    let sandbox = agent();
    hook(&sandbox, "on-state-change", r#"read -r told; note "$told""#);
    say(&sandbox, "hello");
    turn(&sandbox, "$D yield >/dev/null");
    sandbox.run(["resume", "ada"]);
    turn(&sandbox, "true");
    let edges: Vec<String> = take_noted(&sandbox)
        .iter()
        .map(|line| {
            let told = told(line);
            format!("{} {}", told["from"].as_str().unwrap(), told["to"].as_str().unwrap())
        })
        .collect();
    assert_eq!(
        edges,
        [
            "runnable scheduled",
            "scheduled running",
            "running suspended",
            "suspended resumed",
            "resumed running",
            "running completed"
        ]
    );
}

#[test]
fn a_request_whose_hook_fails_stands() {
    let sandbox = agent();
    hook(&sandbox, "on-preempt-request", "echo no mail >&2; exit 3");
    say(&sandbox, "hello");
    let tick = running(&sandbox, "up; come go; $D safe-point; note $?");
    let ran = sandbox.cmd(["preempt", "ada", "--reason", "urgent", "--grace", "1d"]).exits(0);
    assert_eq!(ran.stderr, "dormouse: ada: on-preempt-request failed: exit status 3: no mail\n");
    go(&sandbox, "go");
    assert_eq!(ended(tick)["terminal"], "completed");
    assert_eq!(take_noted(&sandbox), ["10"]);
    let data = events(&sandbox, "hook_ended").remove(0)["data"].clone();
    assert_includes(&data, json!({ "hook": "on-preempt-request", "success": false, "last_line": "no mail" }));
}

#[test]
fn on_suspend_can_save_the_checkpoint() {
    let sandbox = agent();
    hook(&sandbox, "on-suspend", r#"printf 'by the hook\0' | $D yield --checkpoint - >/dev/null; note $?"#);
    say(&sandbox, "hello");
    assert_eq!(turn(&sandbox, "printf own | $D yield --checkpoint - >/dev/null")["terminal"], "suspended");
    sandbox.run(["resume", "ada"]);
    turn(&sandbox, r#"cp "$DORMOUSE_CHECKPOINT" "$HOME/given""#);
    assert_eq!(std::fs::read(sandbox.home().join("given")).unwrap(), b"by the hook\0");
    assert_eq!(take_noted(&sandbox), ["0"]);
}

#[test]
fn a_run_whose_suspend_hook_fails_is_suspended_with_what_was_saved() {
    let sandbox = agent();
    hook(&sandbox, "on-suspend", "echo disk full >&2; exit 1");
    say(&sandbox, "hello");
    turns(&sandbox, "printf own | $D yield --checkpoint - >/dev/null");
    let ran = sandbox.cmd(["tick", "ada", "--json"]).exits(0);
    assert_eq!(ran.stderr, "dormouse: ada: on-suspend failed: exit status 1: disk full\n");
    assert_eq!(field(&sandbox, "execution.state"), "suspended");
    assert_eq!(events(&sandbox, "hook_ended")[0]["data"]["last_line"], "disk full");
    sandbox.run(["resume", "ada"]);
    turn(&sandbox, "told");
    assert_eq!(take_noted(&sandbox), ["from own"]);
}

#[test]
fn on_suspend_runs_for_no_turn_that_is_not_suspended() {
    let sandbox = agent();
    hook(&sandbox, "on-suspend", "note suspends");
    for (script, terminal) in [("true", "completed"), ("exit 75", "deferred"), ("exit 1", "failed")] {
        say(&sandbox, "hello");
        sandbox.pass(60);
        assert_eq!(turn(&sandbox, script)["terminal"], terminal);
    }
    sandbox.run(["recover", "ada"]);
    // It has yielded, and is given up all the same.
    let tick = running(&sandbox, "$D yield >/dev/null; up; come never");
    sandbox.run(["fail", "ada", "--reason", "enough"]);
    assert_eq!(ended(tick)["terminal"], "failed");
    assert_eq!(take_noted(&sandbox), Vec::<String>::new());
}

/// Whoever settles the run runs the hook.
#[test]
fn on_suspend_runs_for_a_run_whose_tick_is_gone() {
    let sandbox = agent();
    hook(&sandbox, "on-suspend", "printf hook | $D yield --checkpoint - >/dev/null; note $?");
    say(&sandbox, "hello");
    let tick = running(&sandbox, "$D yield >/dev/null; up; come never");
    signal("KILL", tick.0.id());
    tick.end();
    step(&sandbox);
    assert_eq!(
        (take_noted(&sandbox), field(&sandbox, "execution.state")),
        (vec!["0".into()], "suspended".into())
    );
    sandbox.run(["resume", "ada"]);
    turn(&sandbox, "told");
    assert_eq!(take_noted(&sandbox), ["from hook"]);
}

#[test]
fn a_turn_whose_resume_hook_fails_has_failed() {
    let sandbox = suspended("here");
    hook(&sandbox, "on-resume", "echo no net >&2; exit 3");
    sandbox.run(["resume", "ada"]);
    let stepped = turn(&sandbox, "note turn");
    assert_eq!(
        (&stepped["terminal"], &stepped["terminal_reason"]),
        (&json!("failed"), &json!("not started: on-resume failed: exit status 3: no net"))
    );
    assert_eq!(take_noted(&sandbox), Vec::<String>::new());
    assert_eq!(field(&sandbox, "retry.attempt"), "1", "a hook that fails costs no attempt");
}

fn occupied(sandbox: &Sandbox) -> Beside {
    add(sandbox, "bob", r#": > "$HOME/bob"; until test -e "$HOME/bob may go"; do sleep 0.01; done"#);
    let workspace = "\n[workspace]\npath = \".\"\nmode = \"exclusive\"\n";
    extend_policy(sandbox, "ada", workspace);
    extend_policy(sandbox, "bob", workspace);
    sandbox.run(["enqueue", "bob", "hold it"]);
    Beside::start(sandbox.cmd(["tick", "bob"])).after_it_made(sandbox.home().join("bob"))
}

/// Once, before the turn that goes on, wherever it had to wait first.
#[test]
fn on_resume_runs_before_the_turn_that_goes_on_and_not_before_a_missing_resource() {
    let sandbox = suspended("here");
    hook(&sandbox, "on-resume", "note resume");
    let bob = occupied(&sandbox);
    sandbox.run(["resume", "ada"]);
    turns(&sandbox, "note turn; exit 75");
    assert_eq!(decision(&step(&sandbox)), "wait_for_resources (workspace)");
    assert_eq!(take_noted(&sandbox), Vec::<String>::new());
    go(&sandbox, "bob may go");
    assert_eq!(bob.end().code(), 0);
    assert_eq!(step(&sandbox)["terminal"], "deferred");
    sandbox.pass(60);
    assert_eq!(step(&sandbox)["terminal"], "deferred");
    assert_eq!(take_noted(&sandbox), ["resume", "turn", "turn"]);
}

/// No hook runs while the lock is held: each of them can change the agent.
#[test]
fn the_hook_of_a_request_can_interject() {
    let sandbox = agent();
    hook(
        &sandbox,
        "on-preempt-request",
        r#"env -u DORMOUSE_RUN -u DORMOUSE_AGENT $D --lock-timeout 0 enqueue ada "somebody wants you" --priority interject >/dev/null"#,
    );
    say(&sandbox, "hello");
    turn(
        &sandbox,
        r#"outside preempt ada --reason urgent --grace 1d >/dev/null; $D safe-point | grep -c "somebody wants you" >> "$HOME/noted""#,
    );
    assert_eq!(take_noted(&sandbox), ["1"]);
}
