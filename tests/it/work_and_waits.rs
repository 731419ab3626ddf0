//! Tests `work`, `wait`, `timer`, `next-wake`, messages with a delay, and the actions of an outcome
//! file.

use std::fs;

use serde_json::{Value, json};

use crate::harness::{Sandbox, each_in_parallel};
use crate::setup::{
    SLEEP, TURN_COMPLETED, add, assert_includes, changes, commands, decision, decisions, eventually,
    extend_policy, failure, field, heard, id, names, objects, say, started, step, step_on, texts, tree, wait,
    waits, words,
};

/// Turn that appends the text of its message, as one line, to the file `home/heard`.
const NOTING: &str = r#"sed -n '/"message": {/,/"authority_class"/d; /"text": "/{s/.*"text": "//; s/"$//; p; q}' "$DORMOUSE_CONTEXT" >> "$HOME/heard""#;

/// Turn that moves `home/outcome`, if it exists, to the path of the turn's outcome.
const ANSWERING: &str =
    r#"test -e "$HOME/outcome" || exit 0; mv "$HOME/outcome" "$DORMOUSE_OUTCOME"; echo answered"#;

#[track_caller]
fn work(sandbox: &Sandbox, objective: &str, flags: &[&str]) -> String {
    id(sandbox, &[&["work", "add", objective], flags].concat())
}

#[track_caller]
fn shown(sandbox: &Sandbox, item: &str) -> Value {
    sandbox.json(["work", "show", item])
}

fn timers(sandbox: &Sandbox) -> Vec<Value> {
    sandbox.json_lines(["timer", "list", "-a", "ada"])
}

fn queue(sandbox: &Sandbox) -> Vec<Value> {
    sandbox.json_lines(["queue", "list", "-a", "ada", "--limit", "0"])
}

/// Returns the action, or else the new status, of each event of this kind that names the record.
fn history(sandbox: &Sandbox, kind: &str, id: &str) -> Vec<String> {
    let events = sandbox.json_lines(["events", "ada", "--kind", kind]);
    let data = events.iter().map(|event| &event["data"]);
    let about = data.filter(|data| data.as_object().unwrap().values().any(|value| value == id));
    about.map(|data| data["action"].as_str().or(data["to"].as_str()).unwrap().to_owned()).collect()
}

/// Runs a command at a fixed time; the command must succeed. Returns the printed JSON objects.
#[track_caller]
fn at(sandbox: &Sandbox, moment: &str, args: &[&str]) -> Vec<Value> {
    let ran = sandbox.cmd([&["--json"], args].concat()).env("DORMOUSE_NOW", moment).output();
    assert_eq!((ran.code(), ran.stderr.as_str()), (0, ""), "{args:?}: {ran}\n{}", sandbox.reproduction());
    objects(&ran.stdout)
}

/// Runs a command that must be refused because of the current records. Returns the error.
#[track_caller]
fn refused(sandbox: &Sandbox, args: &[&str], kind: &str) -> Value {
    failure(&sandbox.cmd([&["--json"], args].concat()).fails(4, kind))
}

/// Runs a command that must be refused as wrong usage.
#[track_caller]
fn wrong(sandbox: &Sandbox, args: &[&str], kind: &str) {
    sandbox.cmd([&["--json"], args].concat()).fails(2, kind);
}

// Tests of work items

#[test]
fn a_work_item_is_shown_whole() {
    let sandbox = started("true");
    let flags = ["--todo", "one", "--todo", "[x] two", "--plan", "# Plan\n", "--pick"];
    let item = work(&sandbox, "tidy up", &flags);
    let expected = json!({
        "id": item, "agent": "ada", "objective": "tidy up", "state": "open", "plan_status": "ready",
        "todo": [{ "text": "one", "done": false }, { "text": "two", "done": true }], "revision": 1,
        "created_at": "2026-01-02T03:04:08.000Z", "updated_at": "2026-01-02T03:04:08.000Z",
        "scheduling_state": "runnable", "readiness": "runnable", "current": true,
    });
    assert_eq!(shown(&sandbox, &item), expected);
    let plan = sandbox.agent("ada").join(format!("work/{item}.plan.md"));
    assert_eq!(fs::read_to_string(plan).unwrap(), "# Plan\n");
    assert_eq!(sandbox.run(["work", "plan", &item]), "# Plan\n");
    let expected = format!("→ {item}  runnable  tidy up\n  [ ] one\n  [x] two\n\n# Plan\n\n");
    assert_eq!(sandbox.run(["work", "show", &item]), expected);
    let summary = sandbox.json(["get", "ada"]);
    assert_includes(&summary, json!({ "work.current": item, "posture": "has_runnable_work" }));
}

#[test]
fn work_list_sorts_items_by_creation_and_filters_them_by_state() {
    let sandbox = started("true");
    let free = work(&sandbox, "free", &[]);
    let blocked = work(&sandbox, "blocked", &["--blocked-by", "a lock"]);
    let asking = work(&sandbox, "asking", &["--plan-status", "needs_input"]);
    let done = work(&sandbox, "done", &[]);
    sandbox.run(["work", "complete", &done, "--result", "it went well"]);
    let list = |flags: &[&str]| {
        let found = sandbox.json_lines([&["work", "list", "-a", "ada"], flags].concat());
        texts(&found, "id")
    };
    assert_eq!(list(&[]), [&free, &blocked, &asking].map(String::clone));
    assert_eq!(list(&["--state", "completed"]), std::slice::from_ref(&done));
    for (state, expected) in [("runnable", &free), ("blocked", &blocked), ("waiting_operator", &asking)] {
        assert_eq!(list(&["--scheduling-state", state]), std::slice::from_ref(expected), "{state}");
    }
    let lines = [
        format!("  {free}  runnable  free\n"),
        format!("  {blocked}  blocked (a lock)  blocked\n"),
        format!("  {asking}  waiting_operator  asking\n"),
    ];
    assert_eq!(sandbox.run(["work", "list", "-a", "ada"]), lines.concat());
    let expected = json!({ "state": "completed", "result": "it went well", "readiness": "completed" });
    assert_includes(&shown(&sandbox, &done), expected);
}

#[test]
fn each_change_of_an_item_adds_a_revision_and_an_event() {
    let sandbox = started("true");
    let item = work(&sandbox, "tidy up", &[]);
    let changes = format!(
        "update {item} --objective all, update {item} --todo one, plan {item} prose, block {item} --reason lock, \
         unblock {item} --reason free, pick {item}"
    );
    for (at, args) in commands(&changes).iter().enumerate() {
        sandbox.run([&["work"], &**args].concat());
        assert_eq!(shown(&sandbox, &item)["revision"], at + 2, "{args:?}");
    }
    let waiting = wait(&sandbox, "operator", &["--work-item", &item]);
    assert_eq!(shown(&sandbox, &item)["revision"], 8);
    sandbox.run(["wait", "cancel", &waiting]);
    assert_eq!(shown(&sandbox, &item)["revision"], 9);
    sandbox.run(["work", "complete", &item]);
    let expected = words("add update update update block unblock pick wait wait_ended complete");
    assert_eq!(history(&sandbox, "work_transition", &item), expected);
}

#[test]
fn work_complete_clears_the_blocker_focus_and_waits_of_an_item() {
    let sandbox = started("true");
    let item = work(&sandbox, "tidy up", &["--pick", "--plan", "slowly"]);
    sandbox.run(["work", "block", &item, "--reason", "a lock", "--recheck", "1h"]);
    let waiting = wait(&sandbox, "external", &["--resource", "r"]);
    sandbox.run(["work", "complete", &item, "--result", "done"]);
    let expected =
        json!({ "blocked_by": null, "recheck_at": null, "current": false, "scheduling_state": "completed" });
    assert_includes(&shown(&sandbox, &item), expected);
    assert_eq!(waits(&sandbox), Vec::<String>::new());
    assert_eq!(history(&sandbox, "wait_transition", &waiting), ["active", "cancelled"]);
    assert_eq!(names(&sandbox.agent("ada").join("work")), Vec::<String>::new());
    assert_eq!(sandbox.run(["work", "plan", &item]), "slowly\n");
    let list = format!(
        "work complete {item}, work pick {item}, work update {item} --objective again, \
         work block {item} --reason r, wait -a ada --on operator --reason r --work-item {item}, \
         work plan {item} again"
    );
    for args in commands(&list) {
        let failed = refused(&sandbox, &args, "not_open");
        assert_eq!(failed["message"], format!("{item} is not an open work item"));
    }
}

#[test]
fn invalid_work_items_and_changes_are_refused() {
    let sandbox = started("true");
    wrong(&sandbox, &["work", "add", "-a", "ada", " \n"], "empty_objective");
    let before = tree(&sandbox.agent("ada"));
    let list = "work add x -a ada --recheck 1h, work add x -a ada --plan-status done, \
                work add x -a ada --blocked-by b --recheck soon, work add x, work list -a ada --state all";
    for args in commands(list) {
        sandbox.cmd(args).output().printed(2, "");
    }
    let nobody = format!("work_{}", "0".repeat(32));
    for args in commands(&format!("work show {nobody}, work complete {nobody}, wait cancel wait_0")) {
        sandbox.cmd(args).exits(3);
    }
    assert_eq!(changes(&before, &tree(&sandbox.agent("ada"))), Vec::<std::path::PathBuf>::new());
    let item = work(&sandbox, "x", &[]);
    wrong(&sandbox, &["work", "block", &item, "--reason", " "], "empty_reason");
    refused(&sandbox, &["work", "unblock", &item, "--reason", "r"], "not_blocked");
    assert_eq!(shown(&sandbox, &item)["revision"], 1);
}

#[test]
fn work_pick_moves_the_focus_and_clears_only_with_clear_blocker() {
    let sandbox = started("true");
    let one = work(&sandbox, "one", &["--pick"]);
    let other = work(&sandbox, "other", &["--blocked-by", "a lock", "--recheck", "1h"]);
    let waiting = wait(&sandbox, "external", &["--work-item", &other, "--resource", "r"]);
    sandbox.run(["work", "pick", &other]);
    assert_includes(&shown(&sandbox, &other), json!({ "current": true, "blocked_by": "a lock" }));
    assert_eq!(shown(&sandbox, &one)["current"], false);
    assert_eq!(waits(&sandbox), [waiting]);
    sandbox.run(["work", "pick", &other, "--clear-blocker", "--reason", "it is free"]);
    let cleared = json!({ "blocked_by": null, "recheck_at": null, "scheduling_state": "runnable" });
    assert_includes(&shown(&sandbox, &other), cleared);
    assert_eq!(waits(&sandbox), Vec::<String>::new());
    sandbox.cmd(["work", "pick", &other, "--clear-blocker"]).exits(2);
}

#[test]
fn an_item_gets_one_tick_for_each_revision_and_reason() {
    let sandbox = started("echo $DORMOUSE_WORK_ITEM");
    let item = work(&sandbox, "tidy up", &[]);
    assert_eq!(field(&sandbox, "posture"), "has_runnable_work");
    let tick = "emit_system_tick (queued_available)";
    let turn = "start_model_turn (system_tick) completed";
    let emitted = step(&sandbox);
    assert_eq!((decision(&emitted).as_str(), &emitted["work_item_id"]), (tick, &json!(item)));
    let key = format!("work_queue:queued_available:{item}:1");
    assert_eq!(queue(&sandbox)[0]["idempotency_key"], key);
    let ran = step(&sandbox);
    assert_eq!(decision(&ran), turn);
    assert_includes(&ran, json!({ "brief": item, "closure.outcome": "continuable" }));
    // After a turn that left the work item unchanged, the scheduler starts no further turn for it.
    for _ in 0..2 {
        assert_eq!(decisions(&sandbox), ["noop (duplicate_queued_available)"]);
    }
    assert_eq!(shown(&sandbox, &item)["current"], false, "a queued item does not take the focus by itself");
    sandbox.run(["work", "update", &item, "--todo", "more"]);
    assert_eq!(decisions(&sandbox), [tick, turn, "noop (duplicate_queued_available)"]);
    sandbox.run(["work", "pick", &item]);
    let expected = ["emit_system_tick (continue_active)", turn, "noop (duplicate_continue_active)"];
    assert_eq!(decisions(&sandbox), expected);
    // A wake hint causes one more turn for the current work item.
    sandbox.run(["wake", "ada"]);
    let after_hint = decisions(&sandbox);
    assert_eq!(after_hint[0], "emit_system_tick (wake_hint)");
    assert_eq!(after_hint.iter().filter(|line| line.contains("(continue_active)")).count(), 1);
    assert_eq!(after_hint.last().unwrap(), "noop (duplicate_continue_active)");
}

#[test]
fn turns_that_change_their_item_repeat_until_the_item_is_completed() {
    let own = crate::setup::own_name();
    let turn = format!(
        r#"n=$(cat "$HOME/n" 2>/dev/null || echo 0); n=$((n + 1)); echo $n > "$HOME/n"
           if test $n -lt 3; then {own} work update "$DORMOUSE_WORK_ITEM" --todo "step $n"
           else {own} work complete "$DORMOUSE_WORK_ITEM" --result "after $n"; fi"#
    );
    let sandbox = started(&turn);
    let item = work(&sandbox, "tidy up", &["--pick"]);
    let done = decisions(&sandbox);
    assert_eq!(done.iter().filter(|line| line.ends_with("completed")).count(), 3, "{done:?}");
    assert_eq!(done.last().unwrap(), SLEEP);
    assert_eq!(shown(&sandbox, &item)["result"], "after 3");
    assert_eq!(field(&sandbox, "closure.outcome"), "completed");
}

#[test]
fn one_recheck_message_lists_all_blocked_items_and_unblocks_none() {
    let sandbox = started(NOTING);
    let one = work(&sandbox, "one", &["--blocked-by", "a lock", "--recheck", "1h"]);
    let other = work(&sandbox, "other", &[]);
    sandbox.run(["work", "block", &other, "--reason", "a key", "--recheck", "30m"]);
    assert_eq!(step(&sandbox)["decision"], "sleep");
    assert_eq!(field(&sandbox, "next_due_at"), "2026-01-02T03:34:10.000Z");
    sandbox.pass(7200);
    let due = step(&sandbox);
    assert_eq!(decision(&due), "start_model_turn (system_tick) completed");
    assert_eq!(due["continuation"]["class"], "local_continuation");
    let message = sandbox.json(["queue", "show", due["message_id"].as_str().unwrap()]);
    assert_eq!(message["priority"], "background");
    let text = format!("{one}: one: blocked by a lock\n{other}: other: blocked by a key");
    assert_eq!(message["body"]["text"], format!("recheck of blocked work:\n{text}"));
    for (item, revision) in [(&one, 1), (&other, 2)] {
        let at = &message["created_at"];
        let expected =
            json!({ "scheduling_state": "blocked", "recheck_consumed_at": at, "revision": revision });
        assert_includes(&shown(&sandbox, item), expected);
    }
    sandbox.pass(7200);
    assert_eq!(decisions(&sandbox).len(), 1, "the reminder came once");
    assert!(field(&sandbox, "stalled").contains("work unblock"), "only the operator can unblock the items");
}

// Tests of waits

#[test]
fn a_wait_belongs_to_the_named_item_the_turn_item_the_focus_or_the_agent() {
    let own = crate::setup::own_name();
    let sandbox = started(&format!("{own} wait --on operator --reason turn"));
    let owner = |id: &str| {
        let waits = sandbox.json_lines(["wait", "list", "-a", "ada"]);
        waits.iter().find(|wait| wait["id"] == id).unwrap()["work_item_id"].clone()
    };
    assert_eq!(owner(&wait(&sandbox, "operator", &[])), Value::Null);
    let focus = work(&sandbox, "focus", &["--pick"]);
    let other = work(&sandbox, "other", &[]);
    assert_eq!(owner(&wait(&sandbox, "operator", &[])), json!(focus));
    assert_eq!(owner(&wait(&sandbox, "operator", &["--work-item", &other])), json!(other));
    assert_eq!(owner(&wait(&sandbox, "external", &["--whole-agent"])), Value::Null);
    let both =
        ["wait", "-a", "ada", "--on", "operator", "--reason", "r", "--whole-agent", "--work-item", &other];
    sandbox.cmd(both).exits(2);
    // Inside a turn, the wait belongs to the turn's work item, although another item is current.
    let third = work(&sandbox, "third", &[]);
    assert_eq!(decision(&step(&sandbox)), "emit_system_tick (queued_available)");
    assert_eq!(decision(&step(&sandbox)), "start_model_turn (system_tick) completed");
    assert_eq!(shown(&sandbox, &third)["scheduling_state"], "waiting_operator");
}

/// No message ends a wait of kind `system`: the agent gets one turn, and then waits for the expiry.
#[test]
fn each_kind_of_wait_of_an_item_or_the_whole_agent_has_its_decision() {
    for (kind, flag, of_item, of_agent) in [
        ("operator", "", "operator (work_item_needs_input)", "operator (agent_operator_wait)"),
        (
            "external",
            "--resource=r",
            "external_change (work_item_external_wait)",
            "external_change (agent_external_wait)",
        ),
        ("timer", "--in=1h", "timer (work_item_timer_wait)", "timer (active_timers)"),
        ("system", "--recheck=1h", "resources (system_wait)", "resources (system_wait)"),
        ("system", "--expires=1h", "resources (system_wait)", "resources (system_wait)"),
    ] {
        for (has_item, decided) in [(true, of_item), (false, of_agent)] {
            let sandbox = started("true");
            let item = has_item.then(|| work(&sandbox, "x", &["--pick"]));
            wait(&sandbox, kind, &words(flag));
            if let Some(item) = item {
                let expected = json!({ "scheduling_state": format!("waiting_{kind}"), "revision": 2 });
                assert_includes(&shown(&sandbox, &item), expected);
            }
            let turn = ["emit_system_tick (system_wait)", "start_model_turn (system_tick) completed"];
            let mut expected = if kind == "system" { turn.map(str::to_owned).to_vec() } else { Vec::new() };
            expected.push(format!("wait_for_{decided}"));
            assert_eq!(decisions(&sandbox), expected, "{kind} {flag}, of an item: {has_item}");
            assert_eq!(field(&sandbox, "closure.outcome"), "waiting", "{kind} {flag}");
            assert_eq!(field(&sandbox, "status"), "asleep", "{kind} {flag}");
        }
    }
}

#[test]
fn invalid_waits_are_refused() {
    let sandbox = started("true");
    let nobody = format!("task_{}", "0".repeat(32));
    let with = |flags: &[&'static str]| [&["wait", "-a", "ada", "--reason", "r"], flags].concat();
    let list = "--on timer, --on task, --on task --resource build, --on operator --in 1h, \
                --on operator --source ci, --on timer --in 1h --no-fallback so";
    for flags in commands(list) {
        wrong(&sandbox, &with(&flags), "invalid_wait");
    }
    wrong(&sandbox, &with(&["--on", "system"]), "endless_wait");
    let args = ["wait", "-a", "ada", "--reason", "r", "--on", "task", "--resource", &nobody];
    refused(&sandbox, &args, "unknown_task");
    wrong(&sandbox, &["wait", "-a", "ada", "--on", "operator", "--reason", " "], "invalid_wait");
    for args in [&["--on", "operator"][..], &["--reason", "r"], &["--on", "rain", "--reason", "r"]] {
        sandbox.cmd([&["wait", "-a", "ada"], args].concat()).exits(2);
    }
    assert_eq!(waits(&sandbox), Vec::<String>::new());
}

#[test]
fn a_new_wait_of_an_item_replaces_the_old_wait() {
    let sandbox = started("true");
    let item = work(&sandbox, "x", &["--pick"]);
    let old = wait(&sandbox, "external", &["--resource", "r"]);
    let own = wait(&sandbox, "operator", &["--whole-agent"]);
    let new = wait(&sandbox, "operator", &[]);
    assert_eq!(waits(&sandbox), [own, new], "a new wait of an item replaces no wait of the whole agent");
    assert_eq!(history(&sandbox, "wait_transition", &old), ["active", "cancelled"]);
    assert_eq!(shown(&sandbox, &item)["scheduling_state"], "waiting_operator");
}

#[test]
fn only_the_wait_that_matches_a_message_or_hint_is_resolved() {
    for (kind, flags, trigger) in [
        ("operator", &[][..], "enqueue ada yes"),
        ("external", &["--resource", "r"], "enqueue ada green --origin webhook --resource r"),
        ("external", &["--resource", "r"], "wake ada --resource r"),
        ("external", &["--source", "webhook"], "wake ada --source webhook:ci"),
        ("external", &[], "enqueue ada green --origin webhook"),
        ("external", &["--resource", "r"], "wake ada --wait WAIT"),
    ] {
        let sandbox = started("true");
        // A second wait of the agent, which the trigger does not match, must survive the step.
        let aside = work(&sandbox, "aside", &[]);
        let other = wait(&sandbox, "external", &["--work-item", &aside, "--resource", "other"]);
        let waiting = wait(&sandbox, kind, flags);
        assert_eq!(step(&sandbox)["model_reentry"], false);
        sandbox.run(words(&trigger.replace("WAIT", &waiting)));
        let done = decisions(&sandbox);
        let is_hint = done.first().is_some_and(|first| first == "emit_system_tick (wake_hint)");
        assert_eq!(is_hint, trigger.starts_with("wake"), "{trigger:?}: {done:?}");
        assert!(done.iter().any(|line| line.ends_with("completed")), "{trigger:?}: {done:?}");
        assert_eq!(waits(&sandbox), [other], "{trigger:?}");
        let expected = ["active", "active", "resolved"];
        assert_eq!(history(&sandbox, "wait_transition", &waiting), expected, "{trigger:?}");
    }
}

#[test]
fn a_message_about_another_resource_is_ignored_and_resolves_no_wait() {
    let sandbox = started("true");
    let waiting = wait(&sandbox, "external", &["--resource", "r"]);
    step(&sandbox);
    sandbox.run(["enqueue", "ada", "red", "--origin", "webhook", "--resource", "s"]);
    let expected = ["reduce_message_only (webhook_event)", "wait_for_external_change (agent_external_wait)"];
    assert_eq!(decisions(&sandbox), expected);
    assert_eq!(waits(&sandbox), std::slice::from_ref(&waiting));
    let ignored = sandbox.json_lines(["events", "ada", "--kind", "trigger_ignored"]);
    assert_eq!(ignored.len(), 1);
    assert_includes(&ignored[0], json!({ "data.class": "liveness_only", "data.waits": "unchanged" }));
    // A message from the operator starts a turn despite the wait, and does not end the wait.
    let over = step_on(&sandbox, "how is it going?");
    assert_eq!(over["continuation"]["class"], "resume_override");
    assert_eq!(waits(&sandbox), [waiting]);
    assert_eq!(over["closure"]["waiting_reason"], "awaiting_external_change");
}

#[test]
fn a_due_timer_wait_runs_a_turn_and_ends() {
    let sandbox = started(NOTING);
    let item = work(&sandbox, "x", &["--pick"]);
    let waiting = wait(&sandbox, "timer", &["--in", "1h"]);
    assert_eq!(decision(&step(&sandbox)), "wait_for_timer (work_item_timer_wait)");
    assert_eq!(field(&sandbox, "next_due_at"), "2026-01-02T04:04:09.000Z");
    assert_eq!(sandbox.run(["next-wake", "ada"]), "2026-01-02T04:04:09.000Z\n");
    sandbox.pass(3590);
    assert_eq!(decision(&step(&sandbox)), "wait_for_timer (work_item_timer_wait)");
    sandbox.pass(10);
    let woken = step(&sandbox);
    assert_eq!(decision(&woken), "start_model_turn (timer_tick) completed");
    let expected = json!({ "class": "resume_expected_wait", "matched_waiting_reason": true });
    assert_includes(&woken["continuation"], expected);
    // The claim records which wait the message will end; the end of the turn resolves the wait.
    assert_eq!(history(&sandbox, "wait_transition", &waiting), ["active", "active", "resolved"]);
    assert_eq!(shown(&sandbox, &item)["scheduling_state"], "runnable");
    assert_eq!(heard(&sandbox), ["why"]);
}

#[test]
fn an_expiry_ends_a_wait_and_a_recheck_only_runs_a_turn() {
    let sandbox = started(NOTING);
    let waiting = wait(&sandbox, "external", &["--resource", "r", "--recheck", "1h", "--expires", "3h"]);
    step(&sandbox);
    assert_eq!(field(&sandbox, "next_due_at"), "2026-01-02T04:04:08.000Z");
    sandbox.pass(3600);
    let looked = step(&sandbox);
    assert_eq!(decision(&looked), "start_model_turn (system_tick) completed");
    assert_eq!(looked["continuation"]["matched_waiting_reason"], false);
    // The recheck is repeated until the wait ends, so the next one is due an hour later.
    assert_eq!(looked["next_due_at"], "2026-01-02T05:04:08.000Z");
    assert_eq!(waits(&sandbox), std::slice::from_ref(&waiting));
    sandbox.pass(3600);
    assert_eq!(decision(&step(&sandbox)), "start_model_turn (system_tick) completed");
    sandbox.pass(3600);
    assert_eq!(decision(&step(&sandbox)), "start_model_turn (system_tick) completed");
    assert_eq!(waits(&sandbox), Vec::<String>::new());
    assert_eq!(history(&sandbox, "wait_transition", &waiting), ["active", "expired"]);
    assert_eq!(heard(&sandbox), ["recheck: why", "recheck: why", "expired: why"]);
    assert_eq!(decisions(&sandbox), [SLEEP]);
}

#[test]
fn an_external_wait_without_a_fallback_is_an_advisory() {
    let weak = "external_wait_has_weak_recoverability";
    let bare = "external_wait_has_no_fallback";
    let subject = "wait_without_subject";
    for (flags, recoverability, expected) in [
        (&["--resource", "r"][..], "weak", &[weak][..]),
        (&[], "weak", &[subject, weak]),
        (&["--resource", "r", "--no-fallback", "it always answers"], "explicit_no_fallback", &[bare]),
        (&["--resource", "r", "--recheck", "1h"], "recoverable", &[]),
        (&["--resource", "r", "--expires", "1h"], "recoverable", &[]),
        (&["--source", "ci"], "recoverable", &[]),
    ] {
        let sandbox = started("true");
        wait(&sandbox, "external", flags);
        assert_eq!(sandbox.json(["wait", "list", "-a", "ada"])["recoverability"], recoverability);
        for command in ["get", "explain"] {
            let found = sandbox.json([command, "ada"]);
            let kinds = texts(found["advisories"].as_array().unwrap(), "kind");
            assert_eq!(kinds, expected, "{command}: {flags:?}");
        }
    }
}

#[test]
fn a_cancelled_wait_has_no_more_effect() {
    let sandbox = started("true");
    let waiting = wait(&sandbox, "operator", &[]);
    assert_eq!(decisions(&sandbox), ["wait_for_operator (agent_operator_wait)"]);
    let cancelled = sandbox.json(["wait", "cancel", &waiting]);
    assert_eq!(cancelled, json!({ "agent": "ada", "wait_id": waiting, "action": "cancelled" }));
    sandbox.cmd(["wait", "cancel", &waiting]).exits(3);
    assert_eq!(decisions(&sandbox), ["stay_idle (already_asleep)"]);
    say(&sandbox, "hello");
    assert_eq!(step(&sandbox)["continuation"]["class"], "local_continuation");
}

// Tests of timers

#[test]
fn a_timer_is_shown_whole_and_fires_once() {
    let sandbox = started(NOTING);
    let timer = id(&sandbox, &["timer", "add", "--in", "1h30m", "look"]);
    let expected = [json!({
        "id": timer, "agent": "ada", "schedule": { "type": "at", "at": "2026-01-02T04:34:08.000Z" },
        "catch_up": "once", "next_at": "2026-01-02T04:34:08.000Z", "body": { "type": "text", "text": "look" },
        "fired": 0, "missed": 0, "status": "active", "created_at": "2026-01-02T03:04:08.000Z",
    })];
    assert_eq!(timers(&sandbox), expected);
    assert_eq!(decision(&step(&sandbox)), "wait_for_timer (active_timers)");
    assert_eq!(field(&sandbox, "next_due_at"), "2026-01-02T04:34:08.000Z");
    sandbox.pass(6000);
    let fired = step(&sandbox);
    assert_eq!(decision(&fired), "start_model_turn (timer_tick) completed");
    let message = sandbox.json(["queue", "show", fired["message_id"].as_str().unwrap()]);
    let expected = json!({
        "source_refs": [format!("{timer}@2026-01-02T04:34:08.000Z")], "origin.kind": "timer",
        "authority_class": "runtime_instruction", "delivery_surface": "timer_scheduler",
        "trigger_kind": "timer_fire",
    });
    assert_includes(&message, expected);
    assert_eq!(heard(&sandbox), ["look"]);
    assert_eq!(timers(&sandbox), Vec::<Value>::new());
    assert_eq!(field(&sandbox, "next_due_at"), "");
    assert_eq!(decisions(&sandbox), [SLEEP]);
}

#[test]
fn each_kind_of_schedule_has_the_correct_next_fire() {
    let sandbox = started("true");
    let next = |flags: &[&str]| {
        let made = at(&sandbox, "2026-01-02T03:04:05Z", &[&["timer", "add", "-a", "ada"], flags].concat());
        made[0]["next_at"].as_str().unwrap().to_owned()
    };
    for (flags, expected) in [
        (&["--in", "90s"][..], "2026-01-02T03:05:35.000Z"),
        (&["--at", "2026-01-31T09:00:00+01:00"], "2026-01-31T08:00:00.000Z"),
        (&["--at", "2026-01-31 09:00"], "2026-01-31T09:00:00.000Z"),
        (&["--every", "1d"], "2026-01-03T03:04:05.000Z"),
        (&["--cron", "0 9 * * mon-fri"], "2026-01-02T09:00:00.000Z"),
        (&["--cron", "0 9 * * mon-fri", "--tz", "America/New_York"], "2026-01-02T14:00:00.000Z"),
        (&["--cron", "4 3 * * *"], "2026-01-03T03:04:00.000Z"),
        (&["--cron", "0 0 29 2 *"], "2028-02-29T00:00:00.000Z"),
        (&["--cron", "30 4 3 * * *", "--seconds"], "2026-01-02T03:04:30.000Z"),
        (&["--cron", "@daily"], "2026-01-03T00:00:00.000Z"),
    ] {
        assert_eq!(next(flags), expected, "{flags:?}");
    }
    // A timer for a past time is due at once.
    assert_eq!(next(&["--at", "2020-01-01T00:00:00Z", "--past-ok"]), "2020-01-01T00:00:00.000Z");
    let wake = &at(&sandbox, "2026-01-02T03:04:06Z", &["next-wake", "ada"])[0];
    assert_eq!(wake["next_due_at"], "2026-01-02T03:04:06.000Z");
    refused(&sandbox, &["timer", "add", "-a", "ada", "--at", "2026-01-02T03:04:05Z"], "past");
    refused(&sandbox, &["timer", "add", "-a", "ada", "--cron", "0 0 30 2 *"], "schedule_never");
    for flags in [
        &["--cron", "every day"][..],
        &["--cron", "61 * * * *"],
        &["--cron", "30 4 3 * * *"],
        &["--cron", "30 4 3 * * * 2027", "--seconds"],
        &["--cron", "4 3 * * *", "--seconds"],
        &["--cron", "0 9 * * *", "--tz", "Mars/Olympus"],
        &[],
    ] {
        sandbox.cmd([&["timer", "add", "-a", "ada"], flags].concat()).exits(2);
    }
    let flags = "--in 1h --every 1h, --in 1h --tz UTC, --in -1h, --every 500ms, --every 0, --at noon";
    for flags in commands(flags) {
        sandbox.cmd([&["timer", "add", "-a", "ada"], &*flags].concat()).exits(2);
    }
    assert_eq!(timers(&sandbox).len(), 11);
}

/// Creates a timer with these flags at 2026-01-02T03:04:08Z, and ticks its agent next at `moment`.
/// Returns the source references of the messages of the timer, and the timers that are left.
fn after_absence(flags: &[&str], moment: &str) -> (Vec<Value>, Vec<Value>) {
    let sandbox = started("true");
    id(&sandbox, &[&["timer", "add", "tick"], flags].concat());
    step(&sandbox);
    let steps = at(&sandbox, moment, &["tick", "ada", "--until-idle"]);
    let taken = steps.iter().filter_map(|step| step["message_id"].as_str());
    let heard = taken.map(|id| sandbox.json(["queue", "show", id])["source_refs"].clone()).collect();
    (heard, timers(&sandbox))
}

fn moments(heard: &[Value]) -> Vec<String> {
    let moment = |refs: &Value| refs[0].as_str().unwrap().split_once('@').unwrap().1.to_owned();
    heard.iter().map(moment).collect()
}

#[test]
fn missed_fires_follow_the_catch_up_setting_of_the_timer() {
    let moment = "2026-01-02T06:34:08Z";
    let (heard, left) = after_absence(&["--every", "1h"], moment);
    assert_eq!(moments(&heard), ["2026-01-02T06:04:08.000Z"]);
    assert_eq!(heard[0][1], "missed=2");
    assert_includes(&left[0], json!({ "fired": 1, "missed": 2 }));
    let (heard, left_all) = after_absence(&["--every", "1h", "--catch-up", "all"], moment);
    let expected = ["2026-01-02T04:04:08.000Z", "2026-01-02T05:04:08.000Z", "2026-01-02T06:04:08.000Z"];
    assert_eq!(moments(&heard), expected);
    assert_eq!(heard[0][1], Value::Null);
    let (heard, left_skip) = after_absence(&["--every", "1h", "--catch-up", "skip"], moment);
    assert_eq!(heard, Vec::<Value>::new());
    assert_eq!((&left_skip[0]["fired"], &left_skip[0]["missed"]), (&json!(0), &json!(3)));
    for left in [left, left_all, left_skip] {
        assert_eq!(left[0]["next_at"], "2026-01-02T07:04:08.000Z", "the next fire keeps to the schedule");
    }
    // A timer that fires on time has missed nothing, so `--catch-up skip` skips no message.
    let (heard, _) = after_absence(&["--every", "1h", "--catch-up", "skip"], "2026-01-02T04:04:09Z");
    assert_eq!(moments(&heard), ["2026-01-02T04:04:08.000Z"]);
}

#[test]
fn a_year_of_missed_fires_is_one_message_or_at_most_a_hundred() {
    let moment = "2027-01-02T03:04:08Z";
    let (heard, left) = after_absence(&["--every", "1h"], moment);
    assert_eq!(moments(&heard), ["2027-01-02T03:04:08.000Z"], "the message is about the latest fire");
    assert_eq!(heard[0][1], "missed=8759");
    assert_eq!((&left[0]["fired"], &left[0]["missed"]), (&json!(1), &json!(8759)));
    let (heard, left) = after_absence(&["--every", "1h", "--catch-up", "all"], moment);
    assert_eq!(heard.len(), 100);
    assert_eq!((&left[0]["fired"], &left[0]["missed"]), (&json!(100), &json!(8660)));
    for flags in [&["--cron", "8 * * * *"][..], &["--cron", "* * * * *"], &["--every", "1s"]] {
        let (heard, left) = after_absence(flags, moment);
        assert_eq!(heard.len(), 1, "{flags:?}");
        assert!(left[0]["next_at"].as_str().unwrap().starts_with("2027-01-02T03:0"), "{flags:?}: {left:?}");
        assert!(moments(&heard)[0].starts_with("2027-01-02T0"), "{flags:?}: the latest: {heard:?}");
    }
}

#[test]
fn a_clock_that_jumps_back_neither_repeats_nor_blocks_a_fire() {
    let sandbox = started(NOTING);
    id(&sandbox, &["timer", "add", "--every", "1h", "tick"]);
    for (moment, total, next) in [
        ("2026-01-02T04:04:08Z", 1, "2026-01-02T05:04:08.000Z"),
        // The clock goes back by half an hour: the time of the next fire stays.
        ("2026-01-02T03:30:00Z", 1, "2026-01-02T05:04:08.000Z"),
        ("2026-01-02T04:04:08Z", 1, "2026-01-02T05:04:08.000Z"),
        ("2026-01-02T05:04:07Z", 1, "2026-01-02T05:04:08.000Z"),
        ("2026-01-02T05:04:08Z", 2, "2026-01-02T06:04:08.000Z"),
        // The clock goes back by six years: the next fire is an hour after the new time.
        ("2020-01-01T00:00:00Z", 2, "2020-01-01T01:00:00.000Z"),
        ("2020-01-01T00:30:00Z", 2, "2020-01-01T01:00:00.000Z"),
        ("2026-01-02T05:30:00Z", 3, "2026-01-02T06:00:00.000Z"),
    ] {
        at(&sandbox, moment, &["tick", "ada", "--until-idle"]);
        assert_eq!(heard(&sandbox).len(), total, "{moment}");
        assert_eq!(timers(&sandbox)[0]["next_at"], next, "{moment}");
        assert_eq!(field(&sandbox, "next_due_at"), next, "{moment}");
    }
}

#[test]
fn a_change_to_daylight_saving_neither_loses_nor_doubles_a_day() {
    for (from, expected) in [
        // On 29 March 02:30 is skipped in Berlin: the timer fires at the end of the gap.
        (
            "2026-03-27T12:00:00Z",
            ["2026-03-28T01:30:00.000Z", "2026-03-29T01:00:00.000Z", "2026-03-30T00:30:00.000Z"],
        ),
        // On 25 October 02:30 occurs twice in Berlin: the timer fires the first time.
        (
            "2026-10-23T12:00:00Z",
            ["2026-10-24T00:30:00.000Z", "2026-10-25T00:30:00.000Z", "2026-10-26T01:30:00.000Z"],
        ),
    ] {
        let sandbox = started("true");
        at(&sandbox, from, &["timer", "add", "-a", "ada", "--cron", "30 2 * * *", "--tz", "Europe/Berlin"]);
        let mut found = Vec::new();
        for _ in 0..3 {
            let next = timers(&sandbox)[0]["next_at"].as_str().unwrap().to_owned();
            let fired = at(&sandbox, &next, &["tick", "ada", "--until-idle"]);
            assert_eq!(decision(&fired[0]), "start_model_turn (timer_tick) completed");
            found.push(next);
        }
        assert_eq!(found, expected);
    }
}

#[test]
fn no_timer_wakes_a_stopped_agent_and_a_due_timer_fires_after_start() {
    let sandbox = started(NOTING);
    id(&sandbox, &["timer", "add", "--in", "1h", "look"]);
    sandbox.run(["stop", "ada"]);
    sandbox.pass(7200);
    assert_eq!(sandbox.run(["next-wake", "ada"]), "");
    assert_eq!(decisions(&sandbox), ["stop (stopped)"]);
    assert_eq!(timers(&sandbox).len(), 1);
    sandbox.run(["start", "ada"]);
    assert_eq!(decisions(&sandbox)[0], "start_model_turn (timer_tick) completed");
    assert_eq!(heard(&sandbox), ["look"]);
}

#[test]
fn next_wake_includes_expired_messages_and_interrupted_runs() {
    let sandbox = started(r#"[ "$DORMOUSE_ATTEMPT" = 1 ] && kill -9 $PPID; true"#);
    sandbox.run(["enqueue", "ada", "too late", "--ttl", "1m"]);
    sandbox.pass(120);
    let next_wake = |sandbox: &Sandbox| sandbox.run(["next-wake", "ada"]).trim_end().to_owned();
    assert_eq!(next_wake(&sandbox), "2026-01-02T03:06:09.000Z", "a step must drop the expired message");
    step(&sandbox);
    assert_eq!(next_wake(&sandbox), "");
    say(&sandbox, "its tick is killed");
    sandbox.cmd(["tick", "ada"]).output();
    sandbox.pass(5);
    assert_eq!(next_wake(&sandbox), "2026-01-02T03:06:19.000Z", "a step must settle the interrupted run");
    step(&sandbox);
    assert_eq!(next_wake(&sandbox), "2026-01-02T03:06:21.000Z", "a second later");
}

#[test]
fn a_cancelled_timer_fires_no_more() {
    let sandbox = started(NOTING);
    let timer = id(&sandbox, &["timer", "add", "--every", "1h"]);
    step(&sandbox);
    let gone = sandbox.json(["timer", "cancel", &timer]);
    assert_includes(&gone, json!({ "status": "cancelled", "id": timer }));
    assert_eq!(field(&sandbox, "next_due_at"), "");
    sandbox.pass(7200);
    assert_eq!(decisions(&sandbox).len(), 1);
    assert_eq!(heard(&sandbox), Vec::<String>::new());
    sandbox.cmd(["timer", "cancel", &timer]).exits(3);
    assert_eq!(history(&sandbox, "timer_transition", &timer), ["add", "cancelled"]);
}

#[test]
fn each_change_sets_the_next_due_time_to_the_earliest_deadline() {
    let sandbox = started("true");
    let due = || field(&sandbox, "next_due_at");
    assert_eq!(due(), "");
    let hours = id(&sandbox, &["timer", "add", "--at", "2026-01-02T09:00:00Z"]);
    assert_eq!(due(), "2026-01-02T09:00:00.000Z");
    let waiting = wait(&sandbox, "external", &["--resource", "r", "--expires", "1h"]);
    let expiry = sandbox.json(["wait", "list", "-a", "ada"])["expires_at"].as_str().unwrap().to_owned();
    // A wait expires one millisecond after its limit.
    let expiry = expiry.replace(".000Z", ".001Z");
    assert_eq!(due(), expiry);
    let item = work(&sandbox, "x", &["--blocked-by", "b", "--recheck", "10m"]);
    assert_eq!(due(), shown(&sandbox, &item)["recheck_at"].as_str().unwrap());
    sandbox.run(["work", "unblock", &item, "--reason", "r"]);
    assert_eq!(due(), expiry);
    sandbox.run(["wait", "cancel", &waiting]);
    assert_eq!(due(), "2026-01-02T09:00:00.000Z");
    sandbox.run(["enqueue", "ada", "later", "--at", "2026-01-02T08:00:00Z"]);
    assert_eq!(due(), "2026-01-02T08:00:00.000Z");
    sandbox.run(["timer", "cancel", &hours]);
    sandbox.run(["stop", "ada"]);
    assert_eq!(due(), "");
    sandbox.run(["start", "ada"]);
    assert_eq!(due(), "2026-01-02T08:00:00.000Z");
}

#[test]
fn next_wake_prints_three_formats() {
    let sandbox = started("true");
    add(&sandbox, "bob", "true");
    let wake =
        |format: &str, agents: &[&str]| sandbox.run([&["next-wake", "--format", format], agents].concat());
    assert_eq!(decisions(&sandbox), [SLEEP]);
    assert_eq!((wake("rfc3339", &["ada"]), wake("epoch", &["ada"])), (String::new(), String::new()));
    id(&sandbox, &["timer", "add", "--at", "2026-01-02T09:00:00.250Z"]);
    sandbox.run(["timer", "add", "-a", "bob", "--at", "2026-01-02T10:00:00Z"]);
    assert_eq!(wake("rfc3339", &["--all"]), "2026-01-02T09:00:00.250Z\n");
    assert_eq!(wake("epoch", &["ada"]), "1767344401\n");
    assert_eq!(wake("systemd", &["ada"]), "2026-01-02 09:00:00.250 UTC\n");
    assert_eq!(wake("systemd", &["bob"]), "2026-01-02 10:00:00.000 UTC\n");
    let expected = json!({ "agents": ["ada", "bob"], "next_due_at": "2026-01-02T09:00:00.250Z" });
    assert_eq!(sandbox.json(["next-wake", "--all"]), expected);
    // A queued message makes a step due now.
    sandbox.run(["enqueue", "bob", "hello"]);
    assert_eq!(wake("rfc3339", &["--all"]), "2026-01-02T03:04:21.000Z\n");
    sandbox.cmd(["next-wake", "carl"]).exits(3);
    sandbox.cmd(["next-wake"]).exits(2);
}

// Tests of messages with a delay

#[test]
fn a_delayed_message_is_delivered_unchanged() {
    let sandbox = started(NOTING);
    let answer =
        sandbox.json(["enqueue", "ada", "later", "--in", "1h", "--origin", "webhook:ci", "--resource", "r"]);
    let message = answer["message_id"].as_str().unwrap().to_owned();
    assert_includes(&answer, json!({ "status": "queued", "duplicate": false }));
    assert_eq!(queue(&sandbox), Vec::<Value>::new());
    assert_eq!(timers(&sandbox)[0]["next_at"], "2026-01-02T04:04:08.000Z");
    assert_eq!(decisions(&sandbox), ["wait_for_timer (active_timers)"]);
    sandbox.pass(3600);
    let taken = step(&sandbox);
    assert_eq!(decision(&taken), "start_model_turn (webhook_event) completed");
    assert_eq!(taken["message_id"], message.as_str());
    let expected = json!({ "origin.id": "ci", "resource": "r", "created_at": "2026-01-02T03:04:08.000Z" });
    assert_includes(&sandbox.json(["queue", "show", &message]), expected);
    assert_eq!(heard(&sandbox), ["later"]);
    let both = ["enqueue", "ada", "x", "--in", "1h", "--at", "2027-01-01"];
    sandbox.cmd(both).exits(2);
}

#[test]
fn a_message_that_is_delayed_past_its_ttl_is_dropped() {
    let sandbox = started("echo one more >> \"$HOME/heard\"");
    sandbox.run(["enqueue", "ada", "late", "--in", "1h", "--ttl", "30m"]);
    sandbox.pass(3600);
    assert_eq!(decisions(&sandbox), [SLEEP]);
    assert_eq!(decisions(&sandbox), ["stay_idle (already_asleep)"]);
    assert_eq!(heard(&sandbox), Vec::<String>::new());
    assert_eq!(queue(&sandbox), Vec::<Value>::new());
    let settled = sandbox.json(["events", "ada", "--kind", "message_settled"]);
    assert_includes(&settled, json!({ "data.status": "dropped", "data.reason": "ttl_expired" }));
}

#[test]
fn a_dedupe_key_counts_while_its_message_is_delayed() {
    let sandbox = started(NOTING);
    let say = |flags: &[&str]| sandbox.json([&["enqueue", "ada", "x", "--dedupe-key", "k"], flags].concat());
    let first = say(&["--in", "1h"]);
    for flags in [&["--in", "2h"][..], &[]] {
        assert_includes(&say(flags), json!({ "message_id": first["message_id"], "duplicate": true }));
    }
    assert_eq!(timers(&sandbox).len(), 1);
    sandbox.pass(3700);
    decisions(&sandbox);
    assert_eq!(heard(&sandbox), ["x"]);
    assert_includes(&say(&["--in", "1h"]), json!({ "status": "processed", "duplicate": true }));
    assert_eq!(timers(&sandbox), Vec::<Value>::new());
}

#[test]
fn a_delayed_message_is_dropped_when_its_timer_is_cancelled() {
    let sandbox = started(NOTING);
    let put_off = sandbox.json(["enqueue", "ada", "x", "--dedupe-key", "k", "--in", "1h"]);
    let message = put_off["message_id"].as_str().unwrap();
    sandbox.run(["timer", "cancel", timers(&sandbox)[0]["id"].as_str().unwrap()]);
    let shown = sandbox.json(["queue", "show", message]);
    assert_includes(&shown, json!({ "status": "dropped", "settlement.reason": "its timer was cancelled" }));
    // The cache of dedupe keys gives the same answer after it was rebuilt from the records.
    for _ in 0..2 {
        let ran = sandbox.cmd(["--json", "enqueue", "ada", "x", "--dedupe-key", "k"]).output();
        let expected = json!({ "message_id": put_off["message_id"], "status": "dropped" });
        assert_includes(&objects(&ran.stdout)[0], expected);
        let _ = fs::remove_dir_all(sandbox.agent("ada").join("cache"));
    }
    sandbox.pass(3700);
    decisions(&sandbox);
    assert_eq!(heard(&sandbox), Vec::<String>::new());
}

// Tests of the actions of an outcome file, by which a turn requests changes

/// Runs one turn of `ada` whose outcome file has the given actions, and returns the step.
#[track_caller]
fn answer(sandbox: &Sandbox, actions: &Value) -> Value {
    fs::write(sandbox.home().join("outcome"), json!({ "actions": actions }).to_string()).unwrap();
    say(sandbox, "go");
    step(sandbox)
}

#[test]
fn each_kind_of_action_is_carried_out_in_order() {
    let sandbox = started(ANSWERING);
    let old = work(&sandbox, "old", &["--blocked-by", "a lock", "--plan", "slowly"]);
    let other = work(&sandbox, "other", &[]);
    let done = answer(
        &sandbox,
        &json!([
            { "do": "work.add", "objective": "new", "todo": [{ "text": "one", "done": false }], "plan": "fast", "blocked_by": "b", "recheck_after": "1h" },
            { "do": "work.unblock", "id": old, "reason": "it is free" },
            { "do": "work.complete", "id": old, "result": "approved" },
            { "do": "work.update", "id": other, "objective": "another", "plan_status": "draft" },
            { "do": "work.block", "id": other, "reason": "a key", "recheck_after": "2h" },
            { "do": "work.pick", "id": other, "clear_blocker": "found it" },
            { "do": "wait", "kind": "external", "resource": "r", "reason": "author", "recheck_after": "6h", "expires_after": "1d" },
            { "do": "wait", "kind": "operator", "whole_agent": true, "reason": "a word" },
            { "do": "timer.add", "in": "1d", "text": "daily look" },
            { "do": "timer.add", "cron": "0 9 * * *", "time_zone": "Europe/Berlin", "catch_up": "skip" },
            { "do": "enqueue", "text": "to myself" },
            { "do": "enqueue", "text": "later", "in": "1h" },
        ]),
    );
    assert_eq!(decision(&done), TURN_COMPLETED);
    assert_eq!(shown(&sandbox, &old)["result"], "approved");
    assert_eq!(sandbox.run(["work", "plan", &old]), "slowly\n");
    let expected = json!({
        "objective": "another", "current": true, "scheduling_state": "waiting_external", "blocked_by": null,
    });
    assert_includes(&shown(&sandbox, &other), expected);
    let items = sandbox.json_lines(["work", "list", "-a", "ada"]);
    assert_eq!(items.len(), 2);
    let new = items.iter().find(|item| item["objective"] == "new").unwrap();
    assert_includes(new, json!({ "blocked_by": "b", "todo": [{ "text": "one", "done": false }] }));
    assert_eq!(sandbox.run(["work", "plan", new["id"].as_str().unwrap()]), "fast\n");
    let waits = sandbox.json_lines(["wait", "list", "-a", "ada"]);
    let kinds: Vec<Value> = waits.iter().map(|wait| json!([wait["kind"], wait["work_item_id"]])).collect();
    assert_eq!(kinds, [json!(["external", other]), json!(["operator", null])]);
    assert_eq!(timers(&sandbox).len(), 3);
    let own = json!({ "kind": "internal_followup", "origin.kind": "system", "body.text": "to myself" });
    assert_includes(&queue(&sandbox)[0], own);
    assert_eq!(done["closure"]["waiting_reason"], "awaiting_operator_input");
    sandbox.run(["doctor"]);
}

#[test]
fn one_invalid_action_fails_the_whole_outcome_and_is_named() {
    let nobody = format!("work_{}", "0".repeat(32));
    let no_wait = format!("wait_{}", "0".repeat(32));
    let not_open = format!("{nobody} is not an open work item");
    let (no_item, not_active) =
        (format!("no open work item `{nobody}`"), format!("no active wait `{no_wait}`"));
    let no_time = "a wait of kind `timer` needs a time (--in or --at, in JSON `wake_at`)";
    let six_fields = "`0 0 9 * * *` is not a cron expression of 5 fields: it has 6";
    let past = "2020-01-01T00:00:00Z";
    let large_plan = "p".repeat((1 << 20) + 1);
    for (bad, reason) in [
        (json!({ "do": "work.complete", "id": nobody }), &*not_open),
        (json!({ "do": "work.add", "objective": "" }), "a work item needs an objective"),
        (json!({ "do": "wait", "kind": "timer", "reason": "r" }), no_time),
        (json!({ "do": "timer.add" }), "a timer has one of `in`, `at`, `every` and `cron`"),
        (json!({ "do": "timer.add", "cron": "x" }), "`x` is not a cron expression"),
        (json!({ "do": "timer.add", "cron": "0 0 9 * * *" }), six_fields),
        (json!({ "do": "timer.add", "at": past }), "is past"),
        (json!({ "do": "enqueue", "text": "x", "at": past }), "is past"),
        (json!({ "do": "wait", "kind": "timer", "reason": "r", "at": past }), "is past"),
        (json!({ "do": "enqueue", "text": " " }), "the message is blank"),
        (json!({ "do": "enqueue", "text": "x", "work_item_id": nobody }), &no_item),
        (json!({ "do": "enqueue", "text": "x", "wait_id": no_wait }), &not_active),
        (
            json!({ "do": "task.start", "delegate": "child", "text": "" }),
            "a delegation needs a text that says what to do",
        ),
        (
            json!({ "do": "work.add", "objective": "x", "plan": large_plan }),
            "the plan has 1048577 bytes, more than max_plan = 1 MiB",
        ),
        (json!({ "do": "enqueue", "agent": "nobody", "text": "x" }), "there is no agent `nobody`"),
        (json!({ "do": "dance" }), "dance"),
        (json!({ "do": "work.add", "objective": "x", "colour": "red" }), "colour"),
    ] {
        let sandbox = started(ANSWERING);
        let actions =
            json!([{ "do": "work.add", "objective": "first" }, { "do": "timer.add", "in": "1h" }, bad]);
        let failed = answer(&sandbox, &actions);
        assert_eq!(failed["terminal"], "failed", "{bad}: {failed}");
        assert_eq!(sandbox.json_lines(["work", "list", "-a", "ada"]).len(), 0, "{bad}");
        assert_eq!(timers(&sandbox).len(), 0, "{bad}");
        let run = sandbox.run(["run", "show", failed["run_id"].as_str().unwrap(), "--json"]);
        assert!(run.contains("$.actions[2]") && run.contains(reason), "{bad}: {run}");
    }
}

#[test]
fn a_message_to_another_agent_is_delivered_once() {
    let sandbox = started(ANSWERING);
    add(&sandbox, "bob", "true");
    let done = answer(&sandbox, &json!([{ "do": "enqueue", "agent": "bob", "text": "over to you" }]));
    assert_eq!(done["terminal"], "completed");
    let of_bob = || sandbox.json_lines(["queue", "list", "-a", "bob"]);
    assert_eq!(of_bob().len(), 1);
    let message = of_bob()[0].clone();
    assert_includes(&message, json!({ "kind": "internal_followup", "body.text": "over to you", "hops": 1 }));
    assert!(message["source_refs"].to_string().contains(done["run_id"].as_str().unwrap()), "{message}");
    decisions(&sandbox);
    assert_eq!(of_bob().len(), 1);
    assert_eq!(crate::setup::record(&sandbox, "state.json").get("outbox"), None);
}

#[test]
fn max_hops_ends_an_exchange_of_messages_between_two_agents() {
    let talk = |to: &str| {
        format!(
            r#"echo '{{"actions": [{{"do": "enqueue", "agent": "{to}", "text": "and you?"}}]}}' > "$DORMOUSE_OUTCOME""#
        )
    };
    let sandbox = started(&talk("bob"));
    add(&sandbox, "bob", &talk("ada"));
    for agent in ["ada", "bob"] {
        extend_policy(&sandbox, agent, "\n[limits]\nmax_hops = 5\n\n[recovery]\nmax_attempts = 1\n");
    }
    say(&sandbox, "how are you?");
    let mut ended = Vec::new();
    for _ in 0..12 {
        for agent in ["ada", "bob"] {
            sandbox.pass(3600);
            let steps = objects(&sandbox.cmd(["tick", agent, "--json"]).output().stdout);
            ended.extend(steps.iter().filter_map(|step| step["terminal"].as_str().map(str::to_owned)));
        }
    }
    assert_eq!(ended, ["completed", "completed", "completed", "completed", "completed", "failed"]);
}

// Tests of what each kind of trigger (message or hint) does to an agent with each kind of wait

/// Triggers (rows) and the waits that the agent has before them (columns), with the expected
/// continuation:
///
/// - `E`: the trigger matches the wait, starts a turn and resolves the wait. `e`: the wait stays.
/// - `O`: the trigger starts a turn although it does not match. The wait stays. `R`: it resolves
///   the wait.
/// - `L`: the trigger starts a turn of an agent that waits for nothing (`local_continuation`).
/// - `m`: the trigger matches, but starts no turn. `h`: like `m`, but a later step ends the wait.
/// - `.`: the trigger does not match and starts no turn. `-`: no such case.
///
/// Two tasks run in the cases that name a task: TASK, for which the task wait waits, and OTHER.
/// `still` delivers a task result that says that the task is still running.
const CONTINUATIONS: &str = "
                                              none operator external timer system task
    enqueue ada hello                            L        E        O     O      O    O
    enqueue ada green --origin webhook --resource r
                                                 L        .        E     .      .    .
    enqueue ada green --origin webhook --resource s
                                                 L        .        .     .      .    .
    enqueue ada green --origin webhook           L        .        e     .      .    .
    enqueue ada _ --allow-empty --origin webhook --resource r
                                                 .        .        E     .      .    .
    enqueue ada _ --allow-empty --origin webhook --resource s
                                                 .        .        .     .      .    .
    enqueue ada _ --allow-empty --origin webhook
                                                 .        .        m     .      .    .
    enqueue ada green --origin callback          L        .        e     .      .    .
    enqueue ada green --origin channel           L        .        e     .      .    .
    wake ada _ --resource r                      .        .        E     .      .    .
    wake ada _ --resource s                      .        .        .     .      .    .
    wake ada _ --wait WAIT                       -        -        E     R      R    R
    wake ada _                                   .        .        m     .      .    .
    wake ada look                                .        .        m     .      .    .
    wake ada look --resource r                   .        .        E     .      .    .
    wake ada look --resource s                   .        .        .     .      .    .
    timer add -a ada --in 10s look               L        .        .     e      .    .
    timer add -a ada --in 10s                    L        .        .     e      .    .
    task stop TASK                               L        O        O     O      O    E
    task stop OTHER                              L        O        O     O      O    O
    still TASK                                   .        .        .     .      .    h
    still OTHER                                  .        .        .     .      .    m
";

/// Agent with a wait, and the ids of the wait and of two tasks, which are empty without a record.
struct Waiting {
    sandbox: Sandbox,
    wait: String,
    task: String,
    other: String,
}

impl Waiting {
    /// Makes an agent with the wait `prior`. Starts tasks if `has_tasks`, or if the wait needs one.
    fn after(prior: &str, has_tasks: bool) -> Waiting {
        let sandbox = Sandbox::in_memory();
        sandbox.run(["init"]);
        add(&sandbox, "ada", "true");
        let start =
            || sandbox.run(["task", "start", "-a", "ada", "--", "sleep", "100000"]).trim_end().to_owned();
        let [task, other] =
            if has_tasks || prior == "task" { [start(), start()] } else { [String::new(), String::new()] };
        let waiting = match prior {
            "none" => String::new(),
            "external" => wait(&sandbox, "external", &["--resource", "r"]),
            "timer" => wait(&sandbox, "timer", &["--in", "10h"]),
            "task" => wait(&sandbox, "task", &["--resource", &task]),
            "system" => {
                work(&sandbox, "x", &["--pick"]);
                let waiting = wait(&sandbox, "system", &["--recheck", "10d"]);
                decisions(&sandbox);
                waiting
            }
            kind => wait(&sandbox, kind, &[]),
        };
        decisions(&sandbox);
        Waiting { sandbox, wait: waiting, task, other }
    }

    /// Returns a copy of the agent; or a new agent if there are tasks, because running processes
    /// can't be copied.
    fn again(&self, prior: &str, has_tasks: bool) -> Waiting {
        if has_tasks || prior == "task" {
            return Waiting::after(prior, has_tasks);
        }
        let Waiting { wait, task, other, .. } = self;
        Waiting { sandbox: self.sandbox.copy(), wait: wait.clone(), task: task.clone(), other: other.clone() }
    }

    fn trigger(&self, words: &[&str]) {
        let word = |word: &&str| {
            match *word {
                "_" => "",
                "WAIT" => &self.wait,
                "TASK" => &self.task,
                "OTHER" => &self.other,
                word => word,
            }
            .to_owned()
        };
        let words: Vec<String> = words.iter().map(word).collect();
        if words[0] != "still" {
            self.sandbox.run(&words);
            return;
        }
        // Only an ended task sends a result, so the test edits one to report a running task.
        self.sandbox.run(["task", "stop", &words[1]]);
        let inbox = self.sandbox.agent("ada").join("inbox");
        let path = eventually("its result", || names(&inbox).first().map(|name| inbox.join(name)));
        let text = fs::read_to_string(&path).unwrap();
        let still = text.replace(r#""task_status": "cancelled""#, r#""task_status": "running""#);
        assert_ne!(still, text);
        fs::write(&path, still).unwrap();
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if !self.task.is_empty() {
            self.sandbox.cmd(["stop", "ada", "--grace", "0s"]).output();
        }
    }
}

#[test]
fn the_prior_closure_decides_the_continuation_class_of_each_trigger() {
    let cells: Vec<&str> = CONTINUATIONS.split_whitespace().collect();
    let (priors, mut rest) = cells.split_at(6);
    let mut cases = Vec::new();
    while !rest.is_empty() {
        let is_code = |word: &&str| ["E", "e", "O", "R", "L", "m", "h", ".", "-"].contains(word);
        let end = rest.iter().position(is_code).unwrap();
        for (prior, code) in priors.iter().zip(&rest[end..end + 6]).filter(|(_, code)| **code != "-") {
            cases.push((rest[..end].to_vec(), *prior, *code));
        }
        rest = &rest[end + 6..];
    }
    assert_eq!(cases.len(), 22 * 6 - 2);
    let templates: Vec<(&str, Waiting)> =
        priors.iter().map(|prior| (*prior, Waiting::after(prior, false))).collect();
    each_in_parallel(&cases, |(trigger, prior, code)| {
        let (_, template) = templates.iter().find(|(name, _)| name == prior).unwrap();
        let has_tasks = ["task", "still"].contains(&trigger[0]);
        let agent = template.again(prior, has_tasks);
        let (sandbox, waiting) = (&agent.sandbox, &agent.wait);
        agent.trigger(trigger);
        sandbox.pass(60);
        let ran = sandbox.cmd(["tick", "ada", "--json", "--until-idle"]).output();
        let step = objects(&ran.stdout).into_iter().find(|step| step["continuation"].is_object()).unwrap();
        let found = &step["continuation"];
        let (class, reenters, matched) = match *code {
            "E" | "e" => ("resume_expected_wait", true, true),
            "O" | "R" => ("resume_override", true, false),
            "L" => ("local_continuation", true, false),
            "m" | "h" => ("liveness_only", false, true),
            _ => ("liveness_only", false, false),
        };
        let reason = match *prior {
            "operator" => json!("awaiting_operator_input"),
            "external" => json!("awaiting_external_change"),
            "timer" => json!("awaiting_timer"),
            "task" => json!("awaiting_task_result"),
            _ => Value::Null,
        };
        let outcome = if *prior == "none" { "completed" } else { "waiting" };
        let case = format!("{trigger:?} after {prior}: {step}");
        assert_eq!(found["class"], class, "{case}");
        assert_eq!(found["model_reentry"], reenters, "{case}");
        assert_eq!(found["matched_waiting_reason"], matched, "{case}");
        let expected = (&json!(outcome), &reason);
        assert_eq!((&found["prior_closure_outcome"], &found["prior_waiting_reason"]), expected, "{case}");
        let decided = if reenters { "start_model_turn" } else { "reduce_message_only" };
        assert_eq!(step["decision"], decided, "{case}");
        let resolves = ["E", "R"].contains(code);
        let left =
            if resolves || *code == "h" || *prior == "none" { Vec::new() } else { vec![waiting.clone()] };
        assert_eq!(waits(sandbox), left, "{case}");
        if resolves {
            assert_eq!(found["resolves"], json!([waiting]), "{case}");
            let history = history(sandbox, "wait_transition", waiting);
            assert_eq!(history, ["active", "active", "resolved"], "{case}");
        }
    });
}

#[test]
fn an_empty_plan_from_stdin_or_a_file_does_not_replace_the_plan() {
    let sandbox = started("true");
    let item = work(&sandbox, "asking", &["--plan", "first this"]);
    fs::write(sandbox.project().join("nothing"), "").unwrap();
    let plan = |words: &[&str]| sandbox.cmd([&["work"][..], words].concat()).stdin("").output().code();
    assert_eq!(plan(&["plan", &item, "-"]), 4);
    assert_eq!(plan(&["plan", &item, "@nothing"]), 4);
    assert_eq!(plan(&["update", &item, "--plan", "-"]), 4);
    assert_eq!(sandbox.run(["work", "plan", &item]), "first this\n");
    assert_eq!(plan(&["plan", &item, ""]), 0, "an empty text as an argument is intended");
}

#[test]
fn a_text_is_given_as_itself_as_a_file_or_on_stdin() {
    let sandbox = started(SLEEP);
    fs::write(sandbox.home().join("said"), "from the file").unwrap();
    let file = format!("@{}", sandbox.home().join("said").display());
    let item = sandbox.cmd(["work", "add", "ada", "-"]).stdin("from stdin").output().stdout;
    let item = item.trim_end();
    assert_eq!(shown(&sandbox, item)["objective"], "from stdin");
    let unnamed = sandbox.cmd(["work", "add", "-a", "ada"]).stdin("no word").output().stdout;
    assert_eq!(shown(&sandbox, unnamed.trim_end())["objective"], "no word");
    sandbox
        .cmd(["work", "add", "ada", "-", "--blocked-by", "-"])
        .stdin("x")
        .exits(2)
        .warns("stdin can be only");
    let reads = |args: &[&str]| {
        sandbox.cmd(args.iter().copied().chain([&*file])).exits(0);
        sandbox.cmd(args.iter().copied().chain(["@nothing"])).exits(1).warns("take the text from");
    };
    reads(&["work", "update", item, "--objective"]);
    reads(&["work", "update", item, "--todo"]);
    assert_includes(&shown(&sandbox, item), json!({ "objective": "from the file" }));
    assert_eq!(shown(&sandbox, item)["todo"][0]["text"], "from the file");
    reads(&["work", "block", item, "--reason"]);
    assert_eq!(shown(&sandbox, item)["blocked_by"], "from the file");
    reads(&["work", "unblock", item, "--reason"]);
    reads(&["work", "pick", item, "--clear-blocker", "--reason"]);
    reads(&["work", "add", "ada", "x", "--blocked-by"]);
    reads(&["wait", "ada", "--on", "operator", "--whole-agent", "--reason"]);
    reads(&["wait", "ada", "--on", "external", "--reason", "x", "--no-fallback"]);
    assert!(
        sandbox.json_lines(["wait", "list", "ada"]).iter().any(|wait| wait["no_fallback"] == "from the file")
    );
    reads(&["work", "complete", item, "--result"]);
    assert_eq!(shown(&sandbox, item)["result"], "from the file");
    reads(&["wake", "ada", "--reason"]);
    reads(&["create", "kim", "--shell", "true", "--description"]);
    assert_eq!(sandbox.json(["get", "kim"])["description"], "from the file");
    let task = sandbox.run(["task", "start", "ada", "--summary", &file, "--", "true"]);
    assert_eq!(sandbox.json(["task", "status", task.trim_end()])["summary"], "from the file");
    let message = say(&sandbox, "x");
    reads(&["queue", "drop", &message, "--reason"]);
    assert!(sandbox.run(["queue", "show", &message]).contains("dropped: from the file"));
    for command in ["fail", "preempt"] {
        sandbox.cmd([command, "ada", "--reason", "@nothing"]).exits(1).warns("take the text from");
    }
    reads(&["stop", "ada", "--reason"]);
}
