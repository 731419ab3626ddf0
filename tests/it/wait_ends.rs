//! Tests that no agent waits for ever: a wait of a work item that is not current ends, too, every
//! message gets a turn, and an advisory tells the operator what to do if nothing else ends a wait.

use std::fs;

use crate::harness::{Ran, Sandbox};
use crate::setup::{
    advisories, decision, decisions, eventually, has_journal, heard, id, objects, say, started, started_with,
    step, wait, waits,
};

/// Turn that appends the text of its message to the file `heard`.
const NOTING: &str = r#"jq -r '.message.body.text // ""' < "$DORMOUSE_CONTEXT" >> "$HOME/heard""#;

/// Returns the final states of the waits of `ada`, in the order in which the waits ended.
fn endings(sandbox: &Sandbox) -> Vec<String> {
    let events = sandbox.json_lines(["events", "ada", "--kind", "wait_transition"]);
    let ends = events.iter().filter_map(|event| event["data"]["to"].as_str()).filter(|to| *to != "active");
    ends.map(str::to_owned).collect()
}

/// Starts a task of `ada` that ends when the file `name` exists in the home directory.
#[track_caller]
fn task(sandbox: &Sandbox, name: &str) -> String {
    let line = format!("until test -e \"$HOME/{name}\"; do sleep 0.01; done; echo {name}");
    sandbox.json(["task", "start", "-a", "ada", "--", "sh", "-c", &line])["id"].as_str().unwrap().to_owned()
}

/// Runs a `wait` of `ada` for a task, with any exit status.
fn wait_for_task(sandbox: &Sandbox, task: &str) -> Ran {
    sandbox
        .cmd(["wait", "-a", "ada", "--on", "task", "--resource", task, "--reason", "again", "--json"])
        .output()
}

/// Makes a task end, and waits until its result is in the inbox.
#[track_caller]
fn end_task(sandbox: &Sandbox, name: &str) {
    fs::write(sandbox.home().join(name), "").unwrap();
    sandbox.run(["await", "ada", "--posture", "has_queued_input"]);
}

#[test]
fn the_wait_of_an_item_without_the_focus_ends_with_its_event() {
    needs!("jq");
    type Case = (&'static str, &'static [&'static str], fn(&Sandbox, &str));
    let cases: [Case; 5] = [
        ("operator", &[], |sandbox, _| {
            say(sandbox, "yes");
        }),
        ("external", &["--resource", "ci:12"], |sandbox, _| {
            sandbox.run(["wake", "ada", "--resource", "ci:12"]);
        }),
        ("external", &["--resource", "ci:12"], |sandbox, wait| {
            sandbox.run(["wake", "ada", "--wait", wait]);
        }),
        ("external", &["--source", "webhook:ci"], |sandbox, _| {
            sandbox.run(["enqueue", "ada", "done", "--origin", "webhook:ci"]);
        }),
        ("task", &["--resource", "TASK"], |sandbox, _| end_task(sandbox, "over")),
    ];
    for (kind, flags, happen) in cases {
        let sandbox = started(NOTING).with_real_clock();
        sandbox.run(["work", "add", "the other one", "-a", "ada", "--pick", "--blocked-by", "nothing"]);
        let item = id(&sandbox, &["work", "add", "this one"]);
        decisions(&sandbox);
        let task = if kind == "task" { task(&sandbox, "over") } else { String::new() };
        let flags: Vec<&str> =
            flags.iter().map(|flag| if *flag == "TASK" { task.as_str() } else { flag }).collect();
        let wait = wait(&sandbox, kind, &[&["--work-item", &item], flags.as_slice()].concat());
        decisions(&sandbox);
        assert_eq!(waits(&sandbox), [wait.as_str()], "{kind} {flags:?}");
        happen(&sandbox, &wait);
        let taken = decisions(&sandbox);
        assert!(waits(&sandbox).is_empty(), "{kind} {flags:?}: {taken:?}");
        assert_eq!(endings(&sandbox), ["resolved"], "{kind} {flags:?}");
        let shown = sandbox.json(["work", "show", &item]);
        assert_eq!(shown["scheduling_state"], "runnable", "{kind} {flags:?}");
    }
}

#[test]
fn each_task_result_ends_only_the_wait_for_its_own_task() {
    needs!("jq");
    let sandbox = started(NOTING).with_real_clock();
    let (one, other) = (task(&sandbox, "one"), task(&sandbox, "other"));
    let first = wait(&sandbox, "task", &["--resource", &one]);
    wait(&sandbox, "task", &["--resource", &other]);
    decisions(&sandbox);
    end_task(&sandbox, "other");
    decisions(&sandbox);
    assert_eq!(waits(&sandbox), [first]);
    assert!(heard(&sandbox).iter().any(|line| line == "other"), "{:?}", heard(&sandbox));
    end_task(&sandbox, "one");
    decisions(&sandbox);
    assert!(waits(&sandbox).is_empty());
}

#[test]
fn an_unawaited_task_result_runs_a_turn_while_another_is_awaited() {
    needs!("jq");
    let sandbox = started(NOTING).with_real_clock();
    let (awaited, _other) = (task(&sandbox, "awaited"), task(&sandbox, "other"));
    let wait = wait(&sandbox, "task", &["--resource", &awaited]);
    decisions(&sandbox);
    end_task(&sandbox, "other");
    let taken = step(&sandbox);
    assert_eq!(taken["continuation"]["class"], "resume_override");
    assert!(heard(&sandbox).iter().any(|line| line == "other"));
    assert_eq!(waits(&sandbox), [wait]);
    // The task must end now: after the test, without its directory, it would run for ever.
    end_task(&sandbox, "awaited");
}

#[test]
fn a_wait_ends_with_its_event_despite_a_dead_letter_or_runnable_work() {
    for with_dead_letter in [false, true] {
        for by_hint in [false, true] {
            let policy = "[recovery]\nmax_attempts = 1\n";
            let sandbox = started_with("grep -q poison \"$DORMOUSE_CONTEXT\" && exit 1; true", policy);
            wait(&sandbox, "external", &["--resource", "pr:1", "--recheck", "10d"]);
            if with_dead_letter {
                say(&sandbox, "poison");
            } else {
                sandbox.run(["work", "add", "something", "-a", "ada"]);
            }
            decisions(&sandbox);
            sandbox.pass(60);
            decisions(&sandbox);
            if by_hint {
                sandbox.run(["wake", "ada", "--resource", "pr:1"]);
            } else {
                sandbox.run(["enqueue", "ada", "merged", "--origin", "webhook:x", "--resource", "pr:1"]);
            }
            let taken = decisions(&sandbox);
            assert!(waits(&sandbox).is_empty(), "{with_dead_letter} {by_hint}: {taken:?}");
        }
    }
}

#[test]
fn a_stop_that_cancels_the_awaited_task_ends_the_wait_after_the_start() {
    needs!("jq");
    let sandbox = started(NOTING).with_real_clock();
    let task = task(&sandbox, "never");
    wait(&sandbox, "task", &["--resource", &task]);
    decisions(&sandbox);
    sandbox.run(["stop", "ada", "--grace", "1s"]);
    sandbox.run(["start", "ada"]);
    decisions(&sandbox);
    assert!(waits(&sandbox).is_empty());
    assert!(heard(&sandbox).iter().any(|line| line.contains("cancelled")), "{:?}", heard(&sandbox));
}

#[test]
fn one_event_ends_every_wait_that_it_satisfies() {
    needs!("jq");
    let sandbox = started(NOTING);
    let item = id(&sandbox, &["work", "add", "merge", "--pick"]);
    decisions(&sandbox);
    wait(&sandbox, "external", &["--resource", "pr:1", "--whole-agent"]);
    wait(&sandbox, "external", &["--resource", "pr:1", "--work-item", &item]);
    let other = wait(&sandbox, "external", &["--resource", "pr:2", "--whole-agent"]);
    decisions(&sandbox);
    sandbox.run(["enqueue", "ada", "merged", "--origin", "webhook:git", "--resource", "pr:1"]);
    let taken = step(&sandbox);
    assert_eq!(taken["continuation"]["resolves"].as_array().unwrap().len(), 2);
    assert_eq!(waits(&sandbox), [other]);
}

#[test]
fn an_event_before_the_expiry_ends_a_wait_even_if_the_step_is_late() {
    needs!("jq");
    let sandbox = started(NOTING);
    wait(&sandbox, "external", &["--resource", "pr:1", "--expires", "1m"]);
    decisions(&sandbox);
    sandbox.run(["enqueue", "ada", "in time", "--origin", "webhook:git", "--resource", "pr:1"]);
    sandbox.pass(3600);
    decisions(&sandbox);
    let expected = (vec!["in time".to_owned()], vec!["resolved".to_owned()]);
    assert_eq!((heard(&sandbox), endings(&sandbox)), expected);

    wait(&sandbox, "external", &["--resource", "pr:2", "--expires", "1m"]);
    decisions(&sandbox);
    sandbox.pass(3600);
    sandbox.run(["enqueue", "ada", "too late", "--origin", "webhook:git", "--resource", "pr:2"]);
    decisions(&sandbox);
    assert_eq!(heard(&sandbox), ["in time", "expired: why", "too late"]);
    assert_eq!(endings(&sandbox), ["resolved", "expired"]);
}

#[test]
fn a_question_stays_open_if_the_answer_becomes_a_dead_letter() {
    let policy = "[recovery]\nmax_attempts = 2\n";
    let sandbox = started_with("grep -q poison \"$DORMOUSE_CONTEXT\" && exit 1; true", policy);
    let question = wait(&sandbox, "operator", &[]);
    decisions(&sandbox);
    let answer = say(&sandbox, "poison");
    step(&sandbox);
    // The wait stays listed until the turn for the answer succeeds.
    let bound = &sandbox.json_lines(["wait", "list", "-a", "ada"])[0];
    assert_eq!(bound["resolved_by"], answer.as_str());
    assert_eq!(sandbox.json(["get", "ada"])["closure"]["outcome"], "failed");
    sandbox.pass(60);
    sandbox.cmd(["tick", "ada", "--until-idle"]).output();
    assert_eq!(waits(&sandbox), [question]);
    assert!(advisories(&sandbox).contains(&"answer_lost".to_owned()), "{:?}", advisories(&sandbox));
    let told = sandbox.json_lines(["events", "ada", "--kind", "advisory"]);
    let lost = told.iter().filter(|event| event["data"]["kind"] == "answer_lost");
    assert_eq!(lost.count(), 1, "advisories in the ledger");
    say(&sandbox, "fine");
    sandbox.pass(60);
    decisions(&sandbox);
    assert!(waits(&sandbox).is_empty());
    assert!(!advisories(&sandbox).contains(&"answer_lost".to_owned()));
}

#[test]
fn the_hop_limit_ends_every_chain_of_turns_that_cause_each_other() {
    let turns = [
        "dormouse timer add --in 0s again",
        "dormouse wait --on timer --whole-agent --in 0s --reason again",
        "dormouse enqueue ada --in 1s again",
        "dormouse task start -- true && dormouse await ada --posture active_turn",
    ];
    for turn in turns {
        let sandbox = started(&format!("PATH=\"{}:$PATH\"; {turn}; true", bin_dir()));
        say(&sandbox, "begin");
        let mut steps = 0;
        for _ in 0..400 {
            if turn.contains("task start") {
                sandbox.cmd(["await", "ada", "--posture", "has_queued_input", "--timeout", "10s"]).output();
            }
            let taken = step(&sandbox);
            sandbox.pass(5);
            if taken["decision"] == "start_model_turn" {
                steps += 1;
            }
            let is_idle = ["sleep", "stay_idle"].contains(&taken["decision"].as_str().unwrap());
            if steps > 25 || is_idle && sandbox.json_lines(["task", "list", "-a", "ada"]).is_empty() {
                break;
            }
        }
        assert!((20..=22).contains(&steps), "{turn}: {steps} turns");
    }
}

fn bin_dir() -> String {
    crate::harness::dormouse().parent().unwrap().display().to_string()
}

#[test]
fn input_set_aside_by_a_wait_reaches_a_turn_when_the_wait_ends() {
    needs!("jq");
    let ways: [fn(&Sandbox, &str); 3] = [
        |sandbox, wait| {
            sandbox.run(["wait", "cancel", wait, "-a", "ada"]);
        },
        |sandbox, _| {
            say(sandbox, "yes");
        },
        |sandbox, _| sandbox.pass(7200),
    ];
    for (number, end) in ways.iter().enumerate() {
        let sandbox = started(
            r#"jq -r '"\(.message.body.text) (\(.reduced.messages | map(.body.text) | join(",")))"' < "$DORMOUSE_CONTEXT" >> "$HOME/heard""#,
        );
        let wait = wait(&sandbox, "operator", &["--expires", "1h"]);
        decisions(&sandbox);
        let event = sandbox.run(["enqueue", "ada", "news", "--origin", "channel:chat"]).trim_end().to_owned();
        assert_eq!(decision(&step(&sandbox)), "reduce_message_only (channel_event)");
        decisions(&sandbox);
        let summary = sandbox.json(["get", "ada"]);
        let advisory =
            summary["advisories"].as_array().unwrap().iter().find(|one| one["kind"] == "input_set_aside");
        assert!(advisory.unwrap()["message"].as_str().unwrap().contains(&event));
        end(&sandbox, &wait);
        decisions(&sandbox);
        assert_eq!(heard(&sandbox).len(), 1, "way {number}: {:?}", heard(&sandbox));
        assert!(heard(&sandbox)[0].ends_with("(news)"), "way {number}: {:?}", heard(&sandbox));
        assert!(!advisories(&sandbox).contains(&"input_set_aside".to_owned()));
    }
}

#[test]
fn unmatched_input_runs_a_turn_at_once_if_inbox_unmatched_is_run() {
    needs!("jq");
    let sandbox = started_with(NOTING, "[inbox]\nunmatched = \"run\"\n");
    wait(&sandbox, "operator", &[]);
    decisions(&sandbox);
    sandbox.run(["enqueue", "ada", "news", "--origin", "channel:chat"]);
    let taken = step(&sandbox);
    assert_eq!(decision(&taken), "start_model_turn (channel_event) completed");
    assert_eq!(taken["continuation"]["class"], "resume_override");
    assert_eq!(heard(&sandbox), ["news"]);
}

#[test]
fn a_step_ends_a_wait_for_a_task_whose_result_is_lost() {
    needs!("jq");
    let sandbox = started(NOTING).with_real_clock();
    let task = task(&sandbox, "over");
    let wait = wait(&sandbox, "task", &["--resource", &task]);
    decisions(&sandbox);
    end_task(&sandbox, "over");
    eventually("the end of the supervisor's transaction", || {
        let dir = sandbox.agent("ada");
        let is_under_way = has_journal(&dir) || dir.join("tasks").join(format!("{task}.json")).exists();
        (!is_under_way).then_some(())
    });
    // A merge of two clones, or a person, may delete a message like this.
    for entry in fs::read_dir(sandbox.agent("ada").join("inbox")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|ending| ending == "json") {
            fs::remove_file(path).unwrap();
        }
    }
    let found = objects(&sandbox.cmd(["doctor", "--json"]).output().stdout);
    assert!(found.iter().any(|one| one["kind"] == "broken_wait"), "{found:?}");
    decisions(&sandbox);
    assert!(waits(&sandbox).is_empty());
    assert!(heard(&sandbox).iter().any(|line| line.contains("has ended")), "{:?} {wait}", heard(&sandbox));
}

#[test]
fn a_wait_for_an_ended_task_is_resolved_at_once() {
    needs!("jq");
    let sandbox = started(NOTING).with_real_clock();
    let task = task(&sandbox, "over");
    end_task(&sandbox, "over");
    decisions(&sandbox);
    let ran = wait_for_task(&sandbox, &task);
    assert_eq!(objects(&ran.stdout)[0]["status"], "resolved", "{ran}");
    assert!(ran.stderr.contains("over already"), "{ran}");
    assert!(waits(&sandbox).is_empty());
}

#[test]
fn an_interjection_answers_the_question_that_the_turn_has_asked() {
    let sandbox = started(&format!(
        "PATH=\"{}:$PATH\"; test -e \"$HOME/asked\" && exit 0; touch \"$HOME/asked\"; dormouse wait --on operator --reason 'go on?' >/dev/null; until dormouse safe-point | grep -q yes; do sleep 0.02; done",
        bin_dir()
    ))
    .with_real_clock();
    id(&sandbox, &["work", "add", "ask"]);
    let tick = std::thread::scope(|scope| {
        let ticking = scope.spawn(|| sandbox.cmd(["tick", "ada", "--until-idle"]).output());
        eventually("the question", || (!waits(&sandbox).is_empty()).then_some(()));
        sandbox.run(["enqueue", "ada", "yes", "--priority", "interject"]);
        ticking.join().unwrap()
    });
    assert!(waits(&sandbox).is_empty(), "{tick}");
    assert_eq!(endings(&sandbox), ["resolved"]);
}

#[test]
fn a_wait_for_a_result_that_the_turn_already_has_ends_at_once() {
    needs!("jq");
    // The turn waits by a command or its outcome file; or the operator waits after a failed turn.
    let by_command = r#"dormouse wait --on task --whole-agent --reason again --resource "$task" >/dev/null"#;
    let by_outcome = r#"jq -n --arg task "$task" '{actions: [{do: "wait", kind: "task", whole_agent: true,
        reason: "again", resource: $task}]}' > "$DORMOUSE_OUTCOME""#;
    for (does, from_outside) in [(by_command, false), (by_outcome, false), ("exit 1", true)] {
        let sandbox = started(&format!(
            "PATH=\"{}:$PATH\"; echo turn >> \"$HOME/turns\"; test \"$DORMOUSE_ATTEMPT\" = 1 || exit 0
            task=$(jq -r '.message.task_id // empty' \"$DORMOUSE_CONTEXT\"); test -z \"$task\" || {{ {does}; }}",
            bin_dir()
        ))
        .with_real_clock();
        let task = task(&sandbox, "over");
        end_task(&sandbox, "over");
        step(&sandbox);
        if from_outside {
            let ran = wait_for_task(&sandbox, &task);
            assert_eq!(objects(&ran.stdout)[0]["status"], "resolved", "{ran}");
            sandbox.run(["recover", "ada"]);
        }
        assert!(waits(&sandbox).is_empty(), "{does}");
        sandbox.cmd(["doctor"]).exits(0);
        decisions(&sandbox);
        let turns = fs::read_to_string(sandbox.home().join("turns")).unwrap().lines().count();
        assert_eq!(turns, if from_outside { 2 } else { 1 }, "{does}");
    }
}
