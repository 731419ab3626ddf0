//! Tests the hooks of preemption: when each runs, its input and environment, and the consequences
//! of its failure.

use serde_json::json;

use crate::setup::{assert_includes, decision, field, say, step};

use super::{
    ASK, agent, continues_from, ended, events, go, hook, occupied, running, signal, suspended, take_noted,
    turn, turns, with_message,
};

#[test]
fn a_hook_has_the_environment_of_the_turn_and_acts_as_the_turn() {
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
    let script = "$D preempt ada --reason urgent --grace 1d >/dev/null; printf here | $D yield --checkpoint - >/dev/null";
    let stepped = turn(&sandbox, script);
    let first = stepped["run_id"].as_str().unwrap().to_owned();
    sandbox.run(["resume", "ada"]);
    let second = turn(&sandbox, "true")["run_id"].as_str().unwrap().to_owned();
    let expected = [
        ("on-preempt-request", &first, "from nothing"),
        ("on-suspend", &first, "from here"),
        ("on-resume", &second, "from here"),
    ]
    .map(|(name, run, from)| {
        [&format!("{name} ada {run} 1 {message} project"), from, "0"].map(str::to_owned)
    });
    assert_eq!(take_noted(&sandbox), expected.concat());
    assert_eq!(sandbox.json_lines(["work", "list", "-a", "ada"]).len(), 3);
}

#[test]
fn a_request_stays_valid_if_its_hook_fails() {
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
fn a_run_whose_suspend_hook_fails_is_suspended_with_its_checkpoint() {
    let sandbox = agent();
    hook(&sandbox, "on-suspend", "echo disk full >&2; exit 1");
    say(&sandbox, "hello");
    turns(&sandbox, "printf own | $D yield --checkpoint - >/dev/null");
    let ran = sandbox.cmd(["tick", "ada", "--json"]).exits(0);
    assert_eq!(ran.stderr, "dormouse: ada: on-suspend failed: exit status 1: disk full\n");
    assert_eq!(field(&sandbox, "execution.state"), "suspended");
    assert_eq!(events(&sandbox, "hook_ended")[0]["data"]["last_line"], "disk full");
    sandbox.run(["resume", "ada"]);
    continues_from(&sandbox, "own", 1);
}

/// `fail` overrides the yield of a turn, so the run is not suspended.
#[test]
fn on_suspend_does_not_run_for_a_turn_that_fails_after_its_yield() {
    let sandbox = with_message();
    hook(&sandbox, "on-suspend", "note suspends");
    let tick = running(&sandbox, "$D yield >/dev/null; up; come never");
    sandbox.run(["fail", "ada", "--reason", "enough"]);
    assert_eq!(ended(tick)["terminal"], "failed");
    assert_eq!(take_noted(&sandbox), Vec::<String>::new());
}

/// The tick that settles the run of a killed tick runs the hook.
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
    assert_eq!(take_noted(&sandbox), Vec::<String>::new());
    continues_from(&sandbox, "hook", 1);
}

#[test]
fn a_turn_whose_resume_hook_fails_has_failed() {
    let sandbox = suspended("here");
    hook(&sandbox, "on-resume", "echo no net >&2; exit 3");
    sandbox.run(["resume", "ada"]);
    let stepped = turn(&sandbox, "note turn");
    let expected = (&json!("failed"), &json!("not started: on-resume failed: exit status 3: no net"));
    assert_eq!((&stepped["terminal"], &stepped["terminal_reason"]), expected);
    assert_eq!(take_noted(&sandbox), Vec::<String>::new());
    assert_eq!(field(&sandbox, "retry.attempt"), "1", "a hook that fails costs no attempt");
}

/// `on-resume` runs once per resumption, right before its first turn, also if that had to wait for
/// a resource.
#[test]
fn on_resume_runs_before_the_resumed_turn_and_not_before_a_missing_resource() {
    let sandbox = suspended("here");
    hook(&sandbox, "on-resume", r#"note "resume $($D get ada status)""#);
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
    assert_eq!(take_noted(&sandbox), ["resume awake_running", "turn", "turn"]);
}

/// No hook runs while its command holds the agent's lock, so a hook can change the agent.
#[test]
fn the_hook_of_a_request_can_interject() {
    let sandbox = agent();
    let script =
        r#"outside --lock-timeout 0 enqueue ada "somebody wants you" --priority interject >/dev/null"#;
    hook(&sandbox, "on-preempt-request", script);
    say(&sandbox, "hello");
    turn(&sandbox, &format!(r#"{ASK}; $D safe-point | grep -c "somebody wants you" >> "$HOME/noted""#));
    assert_eq!(take_noted(&sandbox), ["1"]);
}
