//! Tests the state machine of the contract: commands take every edge between its 12 states, hooks
//! and the log of events record each edge, and every other pair of states is refused.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::docs;
use crate::harness::{Sandbox, copy_tree, dormouse, each_in_parallel};
use crate::setup::{
    Beside, HOOKS, assert_includes, changes, edit_policy, edit_state, eventually, extend_policy, failure,
    field, has_journal, hook, in_time, noted, say, step, take_noted, texts, tree, words,
};

/// Turn that does what the file `home/how` says, so that the agent can get into every state.
const TURN: &str = r#"
echo turn >> "$HOME/noted"
case "$(cat "$HOME/how")" in
    completes) ;;
    fails) echo "no luck" >&2; exit 1 ;;
    waits) "$D" wait --on operator --reason "an answer" >/dev/null ;;
    defers) exit 75 ;;
    yields) "$D" yield >/dev/null ;;
    listens)
        echo up > "$HOME/up"
        while [ ! -e "$HOME/go" ]; do sleep 0.02; done
        "$D" safe-point >/dev/null && exit 98
        "$D" yield >/dev/null
        ;;
    runs) echo up > "$HOME/up"; exec sleep 600 ;;
    stays) trap "" TERM; echo up > "$HOME/up"; exec sleep 600 ;;
    *) exit 99 ;;
esac
"#;

/// Hook that appends a line to `home/noted`: its input, its environment and the state of the agent.
const RECORDER: &str = r#"
read -r told
printf '{"told":%s,"seen":"%s","hook":"%s","agent":"%s","run":"%s","message":"%s"}\n' \
    "$told" "$("$D" get ada execution.state)" "$DORMOUSE_HOOK" "$DORMOUSE_AGENT" \
    "${DORMOUSE_RUN-}" "${DORMOUSE_MESSAGE-}" >> "$HOME/noted"
if [ -e "$HOME/$DORMOUSE_HOOK.fails" ]; then echo "still broken" >&2; exit 1; fi
"#;

const STATES: &str = "initializing runnable scheduled running waiting waiting_resources suspended resumed \
                      completed failed shutting_down recovering";

/// Returns each state with each state that may follow it, from the table in docs/CONTRACT.md.
fn edges() -> BTreeSet<(String, String)> {
    let text = docs::read("docs/CONTRACT.md");
    let (_, table) = text.split_once("| # | State | May be followed by |\n").unwrap();
    let mut edges = BTreeSet::new();
    for row in table.lines().skip(1).take_while(|line| line.starts_with('|')) {
        let mut names = row.split('`').skip(1).step_by(2).map(str::to_owned);
        let from = names.next().unwrap();
        edges.extend(names.map(|to| (from.clone(), to)));
    }
    edges
}

/// Makes the next turn do what `word` says, one of the cases in [`TURN`].
fn how(sandbox: &Sandbox, word: &str) {
    fs::write(sandbox.home().join("how"), word).unwrap();
}

/// Installs [`RECORDER`] as every hook, and deletes the lines of `home/noted`.
fn listen(sandbox: &Sandbox) {
    for name in HOOKS {
        hook(&sandbox.store(), name, RECORDER);
    }
    take_noted(sandbox);
}

/// Starts a tick whose turn does what `word` says in [`TURN`], and returns once the turn runs.
fn tick_until_up(sandbox: &Sandbox, word: &str) -> Beside {
    how(sandbox, word);
    say(sandbox, "hello");
    Beside::start(sandbox.cmd(["tick", "ada"])).after_it_made(sandbox.home().join("up"))
}

/// Starts `ada`, and a tick whose turn does what `word` says. Returns once the turn runs.
fn running(sandbox: &Sandbox, word: &str) -> Beside {
    sandbox.run(["start", "ada"]);
    tick_until_up(sandbox, word)
}

/// Starts `ada`, and runs one turn, which does what `word` says in [`TURN`].
fn turned(sandbox: &Sandbox, word: &str) {
    sandbox.run(["start", "ada"]);
    tick_once(sandbox, word);
}

/// Kills a command while it runs one of the agent's hooks.
fn kill_in_hook(sandbox: &Sandbox, name: &str, command: [&str; 2]) {
    hook(&sandbox.agent("ada"), name, "echo > \"$HOME/begun\"; exec sleep 600");
    drop(Beside::start(sandbox.cmd(command)).after_it_made(sandbox.home().join("begun")));
}

/// Makes an agent in this state, by commands or, if no command leaves the state behind, by an edit
/// of `state.json`. Also returns the processes that keep the agent in the state.
fn bring(state: &str) -> (Sandbox, Vec<Beside>) {
    let sandbox = Sandbox::new();
    sandbox.run(["create", "ada", "--shell", &format!("D='{}'\n{TURN}", dormouse().display())]);
    extend_policy(&sandbox, "ada", "[recovery]\nbase = \"10s\"\n");
    let mut beside = Vec::new();
    match state {
        "initializing" => {}
        "runnable" => drop(sandbox.run(["start", "ada"])),
        "running" => beside.push(running(&sandbox, "runs")),
        "waiting" => turned(&sandbox, "waits"),
        "waiting_resources" => turned(&sandbox, "defers"),
        "suspended" => turned(&sandbox, "yields"),
        "completed" => turned(&sandbox, "completes"),
        "failed" => turned(&sandbox, "fails"),
        "shutting_down" => {
            beside.push(running(&sandbox, "stays"));
            beside.push(Beside::start(sandbox.cmd(["stop", "ada", "--grace", "1h"])));
            let is_applied = || !has_journal(&sandbox.agent("ada"));
            let is_there = || field(&sandbox, "execution.state") == state && is_applied();
            eventually("shutting_down", || is_there().then_some(()));
        }
        "recovering" => {
            turned(&sandbox, "fails");
            sandbox.pass(60);
            kill_in_hook(&sandbox, "on-recovery-start", ["tick", "ada"]);
            fs::remove_dir_all(sandbox.agent("ada").join("hooks")).unwrap();
        }
        "scheduled" | "resumed" => {
            sandbox.run(["start", "ada"]);
            edit_state(&sandbox, |agent| {
                agent["execution"]["state"] = json!(state);
                agent["status"] = json!("awake_running");
            });
        }
        other => panic!("no command leads to `{other}`"),
    }
    assert_eq!(field(&sandbox, "execution.state"), state);
    (sandbox, beside)
}

/// Lines that hooks and a turn must note when a step claims a message: `CLAIMED` in [`WALKS`].
const CLAIMED: &str = "on-state-change runnable → scheduled: claimed @scheduled
on-scheduled runnable → scheduled: - @scheduled
on-state-change scheduled → running: turn command starts @running
turn";

/// Test cases that take an agent along edges. The first line of a case has its name, the state
/// before it and its acts, which [`act`] performs; `unordered` means that several processes run the
/// hooks, so that their lines have no order. The other lines are those that hooks and turns must
/// note: hook, edge, reason, and after `@` the state that the hook saw.
const WALKS: &str = "
start | initializing | start ada
  on-startup initializing → runnable: start @initializing
  on-state-change initializing → runnable: start @runnable
a start that was killed and not repeated | initializing | killed on-startup start ada; pass 61; step
  on-state-change initializing → failed: init_timeout @failed
the first turn | runnable | turn completes
  CLAIMED
  on-state-change running → completed: completed @completed
the next turn | completed | turn completes
  on-state-change completed → runnable: ready for the next message @scheduled
  CLAIMED
  on-state-change running → completed: completed @completed
a turn that waits | runnable | turn waits
  CLAIMED
  on-state-change running → waiting: awaiting_operator_input @waiting
the message that a wait was for | waiting | turn completes
  on-state-change waiting → running: on the way to scheduled @scheduled
  on-state-change running → completed: on the way to scheduled @scheduled
  on-state-change completed → runnable: on the way to scheduled @scheduled
  CLAIMED
  on-state-change running → completed: completed @completed
a turn that is deferred | runnable | turn defers
  CLAIMED
  on-state-change running → waiting_resources: exit status 75 @waiting_resources
a claim without a free resource | runnable | no turns today; turn completes
  on-state-change runnable → scheduled: claimed @waiting_resources
  on-state-change scheduled → running: turn command starts @waiting_resources
  on-state-change running → waiting_resources: turns_per_day: 0 of 0 since 2026-01-02T00:00:00.000Z @waiting_resources
a deferred turn that is due | waiting_resources | pass 60; how completes; step
  on-state-change waiting_resources → running: turn command starts @running
  turn
  on-state-change running → completed: completed @completed
a deferred turn after the timeout | waiting_resources | pass 460; how completes; step
  on-state-change waiting_resources → failed: resource_timeout @failed
a turn that fails | runnable | turn fails
  CLAIMED
  on-state-change running → failed: exit status 1: no luck @failed
a turn that takes too long | completed | turn times out
  on-state-change completed → runnable: ready for the next message @scheduled
  CLAIMED
  on-state-change running → failed: turn.timeout was reached @failed
a turn whose tick was killed | running | kill; step
  on-state-change running → failed: its tick is gone @failed
a retry | failed | pass 60; how completes; step
  on-state-change failed → recovering: retry @recovering
  on-recovery-start recovering → runnable: retry @recovering
  on-state-change recovering → runnable: recovered @runnable
  on-recovery-complete recovering → runnable: recovered @runnable
recover | failed | recover ada
  on-state-change failed → recovering: asked for by the operator @recovering
  on-recovery-start recovering → runnable: asked for by the operator @recovering
  on-state-change recovering → runnable: recovered @runnable
  on-recovery-complete recovering → runnable: recovered @runnable
a recovery that fails | failed | broken on-recovery-start; pass 60; how completes; step
  on-state-change failed → recovering: retry @recovering
  on-recovery-start recovering → runnable: retry @recovering
  on-state-change recovering → failed: still broken @failed
  on-recovery-complete recovering → failed: still broken @failed
a recovery that was killed and is finished | recovering | step
  on-recovery-start recovering → runnable: retry @recovering
  on-state-change recovering → runnable: recovered @runnable
  on-recovery-complete recovering → runnable: recovered @runnable
a recovery that takes too long | recovering | pass 200; step
  on-state-change recovering → failed: recovery_timeout @failed
  on-recovery-complete recovering → failed: recovery_timeout @failed
a stop that ends the turn | running | stop ada --grace 1h; end | unordered
  on-shutdown running → shutting_down: - @running
  on-state-change running → shutting_down: stop @completed
  on-state-change shutting_down → completed: ended within the grace @completed
a stop of a turn that ignores SIGTERM | runnable | stop ada; start ada; run stays; forget; stop ada --grace 100ms; end | unordered
  on-shutdown running → shutting_down: - @running
  on-state-change running → shutting_down: stop @failed
  on-state-change shutting_down → failed: shutdown_timeout @failed
a stop of a recovery | recovering | stop ada --reason it rains
  on-shutdown recovering → shutting_down: it rains @recovering
  on-state-change recovering → shutting_down: stop @failed
  on-state-change shutting_down → failed: stopped while it recovered @failed
a turn that yields unasked | runnable | turn yields
  CLAIMED
  on-suspend running → suspended: its turn yielded @running
  on-state-change running → suspended: its turn yielded @suspended
a turn that is asked to yield | runnable | run listens; forget; preempt ada --grace 1d --reason a hurry; go; end
  on-preempt-request running → suspended: a hurry @running
  on-suspend running → suspended: a hurry @running
  on-state-change running → suspended: a hurry @suspended
a turn that does not yield | running | no preempt hook; preempt ada --grace 0 --reason a hurry; end
  on-state-change running → failed: forced_preemption @failed
resume | suspended | resume ada; how completes; step
  on-state-change suspended → resumed: resumed @resumed
  on-resume suspended → resumed: - @resumed
  on-state-change resumed → running: turn command starts @running
  turn
  on-state-change running → completed: completed @completed
a run that stays suspended | suspended | pass 3660; how completes; step
  on-state-change suspended → failed: suspend_timeout @failed
fail of a turn | running | fail ada --reason the wrong door; end
  on-state-change running → failed: the wrong door @failed
fail of a stop | shutting_down | fail ada --reason the wrong door; end | unordered
  on-state-change shutting_down → failed: the wrong door @failed
fail of a deferred message | waiting_resources | fail ada --reason the wrong door
  on-state-change waiting_resources → failed: the wrong door @failed
fail of a suspended run | suspended | fail ada --reason the wrong door
  on-state-change suspended → failed: the wrong door @failed
fail of a recovery | recovering | fail ada --reason the wrong door
  on-state-change recovering → failed: the wrong door @failed
  on-recovery-complete recovering → failed: the wrong door @failed
";

/// Test case of [`WALKS`], parsed.
struct Walk {
    name: &'static str,
    from: &'static str,
    acts: &'static str,
    in_order: bool,
    noted: Vec<&'static str>,
}

impl Walk {
    fn all() -> Vec<Walk> {
        let mut walks: Vec<Walk> = Vec::new();
        for line in WALKS.lines().skip(1) {
            if let Some(noted) = line.strip_prefix("  ") {
                let lines = if noted == "CLAIMED" { CLAIMED } else { noted };
                walks.last_mut().unwrap().noted.extend(lines.lines());
            } else {
                let fields: Vec<&str> = line.split(" | ").collect();
                let &[name, from, acts, ..] = &*fields else { panic!("no walk: {line}") };
                walks.push(Walk { name, from, acts, in_order: fields.len() == 3, noted: Vec::new() });
            }
        }
        walks
    }

    /// Returns the edges that the hook `on-state-change` must note in this case: from, to, cause.
    fn edges(&self) -> Vec<[String; 3]> {
        let told = self.noted.iter().filter_map(|line| line.strip_prefix("on-state-change "));
        told.map(|line| {
            let (edge, rest) = line.split_once(": ").unwrap();
            let (from, to) = edge.split_once(" → ").unwrap();
            let (cause, _) = rest.rsplit_once(" @").unwrap();
            [from, to, cause].map(str::to_owned)
        })
        .collect()
    }
}

/// Performs one act of a test case: one that the `match` names, or else a `dormouse` command.
fn act(sandbox: &Sandbox, beside: &mut Vec<Beside>, line: &str) {
    match words(line)[..] {
        ["turn", "times", "out"] => time_out(sandbox),
        ["turn", word] => tick_once(sandbox, word),
        ["run", word] => beside.push(tick_until_up(sandbox, word)),
        ["how", word] => how(sandbox, word),
        ["pass", seconds] => sandbox.pass(seconds.parse().unwrap()),
        ["step"] => drop(step(sandbox)),
        ["go"] => fs::write(sandbox.home().join("go"), "").unwrap(),
        ["end"] => beside.drain(..).for_each(|process| drop(process.end())),
        ["kill"] => beside.clear(),
        ["killed", hook, command, agent] => kill_in_hook(sandbox, hook, [command, agent]),
        ["forget"] => drop(take_noted(sandbox)),
        ["broken", hook] => fs::write(sandbox.home().join(format!("{hook}.fails")), "").unwrap(),
        ["no", "turns", "today"] => extend_policy(sandbox, "ada", "[limits]\nturns_per_day = 0\n"),
        // The hook of `preempt` would run beside that for the end of the turn, in no fixed order.
        ["no", "preempt", "hook"] => {
            fs::remove_file(sandbox.store().join("hooks/on-preempt-request")).unwrap();
        }
        ["stop", "ada", "--grace", _] => drop(sandbox.cmd(words(line)).exits(0)),
        _ => {
            let (command, reason) = line.split_once(" --reason ").unwrap_or((line, ""));
            let reason = ["--reason", reason].into_iter().filter(|_| !reason.is_empty());
            sandbox.run(words(command).into_iter().chain(reason));
        }
    }
}

/// Enqueues a message and runs one step, whose turn does what `word` says.
fn tick_once(sandbox: &Sandbox, word: &str) {
    how(sandbox, word);
    say(sandbox, "hello");
    step(sandbox);
}

/// Runs a turn that has begun when its timeout ends; a slow machine needs several attempts.
fn time_out(sandbox: &Sandbox) {
    let (store, before) = (sandbox.store(), sandbox.root().join("before"));
    copy_dir(&store, &before);
    in_time(|limit| {
        edit_policy(sandbox, "ada", |text| text.replace("\"30m\"", &format!("{limit:?}")));
        tick_once(sandbox, "runs");
        let has_begun = sandbox.home().join("up").exists();
        if !has_begun {
            take_noted(sandbox);
            fs::remove_dir_all(&store).unwrap();
            copy_dir(&before, &store);
        }
        has_begun.then_some(())
    });
}

fn copy_dir(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    copy_tree(from, to);
}

#[test]
fn the_walks_take_every_edge() {
    let all = edges();
    assert_eq!(all.len(), 23);
    let walked: BTreeSet<(String, String)> =
        Walk::all().iter().flat_map(Walk::edges).map(|[from, to, _]| (from, to)).collect();
    assert_eq!(walked, all);
}

#[test]
fn hooks_and_the_ledger_record_every_edge() {
    each_in_parallel(&Walk::all(), take);
}

fn take(walk: &Walk) {
    let name = walk.name;
    let (sandbox, mut beside) = bring(walk.from);
    listen(&sandbox);
    walk.acts.split("; ").for_each(|line| act(&sandbox, &mut beside, line));
    drop(beside);

    let lines = noted(&sandbox);
    let mut found: Vec<String> = lines.iter().map(|line| shown(line)).collect();
    let mut expected = walk.noted.clone();
    if !walk.in_order {
        found.sort();
        expected.sort_unstable();
    }
    assert_eq!(found, expected, "{name}\n{}", sandbox.reproduction());

    // The log of events must have the same edges as the test case, in the same order.
    let edge_in = |value: &Value| ["from", "to", "cause"].map(|field| text(&value[field]));
    let events = sandbox.json_lines(["events", "ada", "--kind", "state_transition"]);
    let taken = walk.edges();
    let last = &events[events.len() - taken.len()..];
    let recorded: Vec<[String; 3]> = last.iter().map(|event| edge_in(&event["data"])).collect();
    assert_eq!(recorded, taken, "{name}");
    for pair in last.windows(2) {
        assert_eq!(pair[0]["data"]["to"], pair[1]["data"]["from"], "{name}: an edge is missing");
    }
    // `state` must print the edges of the test case, newest first.
    let state = sandbox.json(["state", "ada"]);
    for (shown, event) in state["history"].as_array().unwrap().iter().zip(last.iter().rev()) {
        assert_eq!(["at", "run_id"].map(|field| &shown[field]), ["at", "run_id"].map(|field| &event[field]));
        assert_eq!(edge_in(shown), edge_in(&event["data"]));
    }
    assert_eq!(text(&state["state"]), taken.last().unwrap()[1], "{name}");
    check_hook_inputs(&sandbox, name, &lines, last);
}

/// Asserts that the input of each hook agrees with its environment, the event log and the runs.
fn check_hook_inputs(sandbox: &Sandbox, name: &str, lines: &[String], events: &[Value]) {
    let runs = sandbox.json_lines(["run", "list", "-a", "ada"]);
    let runs: BTreeMap<String, String> =
        texts(&runs, "id").into_iter().zip(texts(&runs, "message_id")).collect();
    for line in lines.iter().filter(|line| *line != "turn") {
        let heard: Value = serde_json::from_str(line).unwrap();
        let told = &heard["told"];
        assert_eq!((&heard["agent"], &heard["hook"]), (&json!("ada"), &told["hook"]), "{name}: {line}");
        assert_eq!(told["agent"], "ada", "{name}: {line}");
        let fields: BTreeSet<&str> = told.as_object().unwrap().keys().map(String::as_str).collect();
        let always = ["agent", "from", "hook", "reason", "run_id", "task_id", "to"];
        let ends_recovery = told["hook"] == "on-recovery-complete";
        let of_recovery = [&told["from"], &told["to"]].contains(&&json!("recovering"));
        let more = [ends_recovery.then_some("success"), of_recovery.then_some("failure")];
        let all: BTreeSet<&str> = always.into_iter().chain(more.into_iter().flatten()).collect();
        assert_eq!(fields, all, "{name}: {line}");
        if of_recovery {
            let failure = &told["failure"];
            assert_eq!((&failure["run_id"], &failure["message_id"]), (&told["run_id"], &told["task_id"]));
            assert!(failure["reason"].is_string() && failure["attempt"].is_u64(), "{name}: {line}");
        }
        if ends_recovery {
            assert_eq!(told["success"], json!(told["to"] == "runnable"), "{name}: {line}");
        }
        // A hook with a run in its environment has the same run in its input.
        if heard["run"] != "" {
            assert_eq!((&heard["run"], &heard["message"]), (&told["run_id"], &told["task_id"]), "{line}");
        }
        // No message was claimed before the first start.
        if told["from"] == "initializing" {
            assert!(told["run_id"].is_null() && told["task_id"].is_null(), "{name}: {line}");
        }
        if let Some(run) = told["run_id"].as_str() {
            assert_eq!(runs.get(run), Some(&text(&told["task_id"])), "{name}: {line}");
        }
        let same = |event: &&Value| ["from", "to"].iter().all(|field| event["data"][field] == told[field]);
        let event = events.iter().find(same);
        if told["hook"] == "on-state-change" {
            let about = &event.unwrap_or_else(|| panic!("{name}: no event for {line}"))["run_id"];
            assert!(about.is_null() || *about == told["run_id"], "{name}: {line}: {about}");
        }
    }
}

/// Shortens a noted line for comparison.
fn shown(line: &str) -> String {
    let Ok(heard) = serde_json::from_str::<Value>(line) else { return line.to_owned() };
    let told = &heard["told"];
    let reason = told["reason"].as_str().unwrap_or("-");
    let [hook, from, to] = ["hook", "from", "to"].map(|field| text(&told[field]));
    format!("{hook} {from} → {to}: {reason} @{}", text(&heard["seen"]))
}

#[track_caller]
fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text")).to_owned()
}

/// Returns the changed files of the agent, except its locks, which name their last holders.
fn changed(before: &BTreeMap<PathBuf, (u32, Vec<u8>, i64)>, sandbox: &Sandbox) -> Vec<PathBuf> {
    let agent = sandbox.agent("ada");
    let locks = ["lock", "run.lock"].map(|name| agent.join(name));
    changes(before, &tree(&agent)).into_iter().filter(|path| !locks.contains(path)).collect()
}

#[test]
fn state_allows_the_23_edges_and_refuses_the_other_121_pairs() {
    let edges = edges();
    each_in_parallel(&words(STATES), |from| {
        let (sandbox, _beside) = bring(from);
        listen(&sandbox);
        let before = tree(&sandbox.agent("ada"));
        let next: BTreeSet<String> =
            sandbox.json(["state", "ada"])["next"].as_array().unwrap().iter().map(text).collect();
        let legal = edges.iter().filter(|(other, _)| other == from).map(|(_, to)| to.clone());
        assert_eq!(next, legal.collect(), "{from}");
        for to in words(STATES) {
            let can = edges.contains(&((*from).to_owned(), to.to_owned()));
            let (status, answer) = if can { (0, "yes\n") } else { (4, "no\n") };
            sandbox.cmd(["state", "ada", "--can", to]).status(status).prints(answer);
        }
        assert_eq!(changed(&before, &sandbox), Vec::<PathBuf>::new(), "{from}");
        assert_eq!(noted(&sandbox), Vec::<String>::new(), "{from}");
    });
    assert_eq!(144 - edges.len(), 121);
}

/// Command, and its error message in states that refuse it. `FROM` stands for the state.
struct Refused {
    command: &'static [&'static str],
    /// States in which the command is not refused.
    own: &'static str,
    /// State to which the command would lead.
    to: &'static str,
    message: &'static str,
    /// Pairs of state and error message: in this state the message replaces `message`.
    other: &'static [(&'static str, &'static str)],
}

const BEING_STOPPED: &str = "`ada` is still being stopped";
const NOTHING_TO_RECOVER: &str = "run_… is running: there is nothing to recover";

const NOTHING_TO_FAIL: &str = "`ada` is FROM: only what runs, waits, shuts down or recovers can be failed";

const REFUSED: &[Refused] = &[
    Refused {
        command: &["start", "ada"],
        // A second `start` succeeds and changes nothing, so no state of a started agent refuses it.
        own: "initializing runnable scheduled running waiting waiting_resources suspended resumed completed \
              failed recovering",
        to: "runnable",
        message: BEING_STOPPED,
        other: &[],
    },
    Refused {
        command: &["recover", "ada"],
        own: "failed recovering waiting_resources",
        to: "recovering",
        message: "`ada` has nothing to recover",
        other: &[("running", NOTHING_TO_RECOVER), ("shutting_down", NOTHING_TO_RECOVER)],
    },
    Refused {
        command: &["resume", "ada"],
        own: "suspended",
        to: "resumed",
        message: "invalid state transition: FROM -> resumed",
        // `resume` of a stopped agent is `start`, so the error is that of `start`.
        other: &[("shutting_down", BEING_STOPPED)],
    },
    Refused {
        command: &["preempt", "ada", "--reason", "a hurry"],
        own: "running",
        to: "suspended",
        message: "no turn of `ada` runs: there is nothing to preempt",
        other: &[("shutting_down", "run_… is being ended already")],
    },
    Refused {
        command: &["fail", "ada", "--reason", "a hurry"],
        own: "running shutting_down recovering waiting_resources suspended",
        to: "failed",
        message: "invalid state transition: FROM -> failed",
        // By a timeout `initializing` may lead to `failed`, so `fail` can't call that edge invalid.
        other: &[("initializing", NOTHING_TO_FAIL)],
    },
];

#[test]
fn a_command_that_is_refused_changes_nothing_and_runs_no_hook() {
    each_in_parallel(&words(STATES), |state| {
        let (sandbox, _beside) = bring(state);
        listen(&sandbox);
        let before = tree(&sandbox.agent("ada"));
        if !["initializing", "shutting_down"].contains(state) {
            assert_eq!(sandbox.json(["start", "ada"])["changed"], false, "{state}");
            assert_eq!(changed(&before, &sandbox), Vec::<PathBuf>::new(), "{state}: start");
        }
        for refused in REFUSED.iter().filter(|refused| !words(refused.own).contains(state)) {
            let command = refused.command;
            let ran = sandbox.cmd([&["--json"], command].concat()).exits(4);
            let other = refused.other.iter().find(|(from, ..)| from == state);
            let message = other.map_or(refused.message, |(_, message)| message);
            let error = failure(&ran);
            let run = field(&sandbox, "current_run.run_id");
            let said = text(&error["message"]).replace(if run.is_empty() { "run_…" } else { &run }, "run_…");
            // `resume` of a stopped agent acts as `start`, so the target state is that of `start`.
            let to = if message == BEING_STOPPED { "runnable" } else { refused.to };
            assert_includes(&error, json!({ "kind": "invalid_state_transition", "from": state, "to": to }));
            assert_eq!(said, message.replace("FROM", state), "{state}: {command:?}");
            assert_eq!(changed(&before, &sandbox), Vec::<PathBuf>::new(), "{state}: {command:?}");
        }
        assert_eq!(noted(&sandbox), Vec::<String>::new(), "{state}");
    });
}

/// Without a turn `stop` keeps the execution state. A second `stop` only adds to the event log.
#[test]
fn a_stop_without_a_turn_keeps_the_execution_state_and_a_second_one_adds_only_events() {
    let at_rest = "initializing runnable waiting waiting_resources suspended completed failed";
    each_in_parallel(&words(at_rest), |state| {
        let (sandbox, _) = bring(state);
        listen(&sandbox);
        let execution = || sandbox.json(["get", "ada", "execution"]);
        let before = execution();
        assert_includes(&sandbox.json(["stop", "ada"]), json!({ "status": "stopped", "changed": true }));
        let after = execution();
        for part in ["state", "since", "task_id", "reason"] {
            assert_eq!(after[part], before[part], "{state}: {part}");
        }
        let events = || sandbox.json_lines(["events", "ada", "--limit", "0"]);
        let events_before = events().len();
        assert_includes(&sandbox.json(["stop", "ada"]), json!({ "status": "stopped", "changed": false }));
        assert_eq!(execution(), after, "{state}");
        let kinds = texts(&events()[events_before..], "kind");
        assert_eq!(kinds, ["control_request_admitted", "control_applied"], "{state}");
        assert_eq!(noted(&sandbox), Vec::<String>::new(), "{state}");
    });
}
