//! The machine of twelve states, through the binary: every edge by the commands that take it, with what the
//! hooks are told of it, and every pair that is no edge.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::harness::{Sandbox, copy_tree, dormouse, each_in_parallel};
use crate::setup::{
    Beside, HOOKS, changes, edit_state, eventually, extend_policy, failure, field, has_journal, hook,
    in_time, noted, say, step, tree, words,
};

/// What a turn of `ada` does is told by a file, so that one agent can be led anywhere.
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

/// Every hook is this one: it notes what it is told, what it has in its environment, and how the
/// agent stands when it runs.
const RECORDER: &str = r#"
read -r told
printf '{"told":%s,"seen":"%s","hook":"%s","agent":"%s","run":"%s","message":"%s"}\n' \
    "$told" "$("$D" get ada execution.state)" "$DORMOUSE_HOOK" "$DORMOUSE_AGENT" \
    "${DORMOUSE_RUN-}" "${DORMOUSE_MESSAGE-}" >> "$HOME/noted"
if [ -e "$HOME/$DORMOUSE_HOOK.fails" ]; then echo "still broken" >&2; exit 1; fi
"#;

/// The states, by number.
const STATES: [&str; 12] = [
    "initializing",
    "runnable",
    "scheduled",
    "running",
    "waiting",
    "waiting_resources",
    "suspended",
    "resumed",
    "completed",
    "failed",
    "shutting_down",
    "recovering",
];

/// The edges of the contract, from its own table.
fn edges() -> BTreeSet<(String, String)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/CONTRACT.md");
    let text = fs::read_to_string(path).unwrap();
    let (_, table) = text.split_once("| # | State | May be followed by |\n").unwrap();
    let mut edges = BTreeSet::new();
    for row in table.lines().skip(1).take_while(|line| line.starts_with('|')) {
        let mut names = row.split('`').skip(1).step_by(2).map(str::to_owned);
        let from = names.next().unwrap();
        edges.extend(names.map(|to| (from.clone(), to)));
    }
    edges
}

/// What the next turn does.
fn how(sandbox: &Sandbox, word: &str) {
    fs::write(sandbox.home().join("how"), word).unwrap();
}

/// From here on hooks note what they hear; what was noted before is forgotten.
fn listen(sandbox: &Sandbox) {
    for name in HOOKS {
        hook(&sandbox.store(), name, RECORDER);
    }
    let _ = fs::remove_file(sandbox.home().join("noted"));
}

/// A turn that runs while the test goes on, until the process that is returned ends.
fn running(sandbox: &Sandbox, word: &str) -> Beside {
    sandbox.run(["start", "ada"]);
    how(sandbox, word);
    say(sandbox, "hello");
    Beside::start(sandbox.cmd(["tick", "ada"])).after_it_made(sandbox.home().join("up"))
}

/// A turn that has ended.
fn turned(sandbox: &Sandbox, word: &str) {
    sandbox.run(["start", "ada"]);
    how(sandbox, word);
    say(sandbox, "hello");
    step(sandbox);
}

/// An agent that is in this state, by the commands that bring one there, and the processes that
/// keep it there. A state that no command leaves behind is written by hand.
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
            // Committed, and with nothing left to write.
            let is_under_way = || has_journal(&sandbox.agent("ada"));
            let is_there = || field(&sandbox, "execution.state") == state && !is_under_way();
            eventually("shutting_down", || is_there().then_some(()));
        }
        "recovering" => {
            turned(&sandbox, "fails");
            hook(&sandbox.agent("ada"), "on-recovery-start", "echo > \"$HOME/begun\"; exec sleep 600");
            sandbox.pass(60);
            let tick =
                Beside::start(sandbox.cmd(["tick", "ada"])).after_it_made(sandbox.home().join("begun"));
            drop(tick);
            fs::remove_dir_all(sandbox.agent("ada").join("hooks")).unwrap();
        }
        "scheduled" | "resumed" => {
            sandbox.run(["start", "ada"]);
            edit_state(&sandbox, |agent| {
                agent["execution"]["state"] = json!(state);
                agent["status"] = json!("awake_running");
            });
        }
        other => panic!("there is no way to `{other}`"),
    }
    assert_eq!(field(&sandbox, "execution.state"), state);
    (sandbox, beside)
}

type Act = fn(&Sandbox, Vec<Beside>);

/// What is noted of a message that is claimed and its turn.
const CLAIMED: &str = "on-state-change runnable → scheduled: claimed @scheduled
on-scheduled runnable → scheduled: - @scheduled
on-state-change scheduled → running: turn command starts @running
turn";

/// How an agent is taken along edges: from a state, by commands. What is noted names every edge
/// with its cause, every hook beside it, and (after `@`) the state that the hook found.
struct Walk {
    name: &'static str,
    from: &'static str,
    act: Act,
    noted: &'static [&'static str],
    /// Whether one process alone runs the hooks: several have no order among each other.
    in_order: bool,
}

/// A walk whose hooks are run by one process, in order.
const fn walk(name: &'static str, from: &'static str, act: Act, noted: &'static [&'static str]) -> Walk {
    Walk { name, from, act, noted, in_order: true }
}

/// A walk whose hooks are run by several processes.
const fn unordered(name: &'static str, from: &'static str, act: Act, noted: &'static [&'static str]) -> Walk {
    Walk { name, from, act, noted, in_order: false }
}

impl Walk {
    /// What hooks and turns note, a line each.
    fn lines(&self) -> impl Iterator<Item = &'static str> {
        self.noted.iter().flat_map(|lines| lines.lines())
    }

    /// The edges that its hooks are told of: from, to, cause.
    fn edges(&self) -> Vec<[String; 3]> {
        let told = self.lines().filter_map(|line| line.strip_prefix("on-state-change "));
        told.map(|line| {
            let (edge, rest) = line.split_once(": ").unwrap();
            let (from, to) = edge.split_once(" → ").unwrap();
            let (cause, _) = rest.rsplit_once(" @").unwrap();
            [from, to, cause].map(str::to_owned)
        })
        .collect()
    }
}

/// One step in which the turn does this with a message of its own.
fn tick_once(sandbox: &Sandbox, word: &str) {
    how(sandbox, word);
    say(sandbox, "hello");
    step(sandbox);
}

/// The next step, when everything that was put off is due.
fn tick_later(sandbox: &Sandbox, word: &str) {
    how(sandbox, word);
    sandbox.pass(60);
    step(sandbox);
}

fn stop(sandbox: &Sandbox, grace: &str, mut beside: Vec<Beside>) {
    sandbox.cmd(["stop", "ada", "--grace", grace]).exits(0);
    beside.remove(0).end();
}

fn fail(sandbox: &Sandbox, beside: Vec<Beside>) {
    sandbox.run(["fail", "ada", "--reason", "the wrong door"]);
    beside.into_iter().for_each(|process| drop(process.end()));
}

fn copy_dir(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    copy_tree(from, to);
}

/// A turn that has begun to listen to whether it should yield. What led there is forgotten.
fn listening(sandbox: &Sandbox) -> Beside {
    how(sandbox, "listens");
    say(sandbox, "hello");
    let tick = Beside::start(sandbox.cmd(["tick", "ada"])).after_it_made(sandbox.home().join("up"));
    fs::remove_file(sandbox.home().join("noted")).unwrap();
    tick
}

const WALKS: &[Walk] = &[
    walk(
        "start",
        "initializing",
        |sandbox, _| drop(sandbox.run(["start", "ada"])),
        &[
            "on-startup initializing → runnable: start @initializing",
            "on-state-change initializing → runnable: start @runnable",
        ],
    ),
    walk(
        "a start that was killed and never made again",
        "initializing",
        |sandbox, _| {
            hook(&sandbox.agent("ada"), "on-startup", "echo > \"$HOME/begun\"; exec sleep 600");
            let start =
                Beside::start(sandbox.cmd(["start", "ada"])).after_it_made(sandbox.home().join("begun"));
            drop(start);
            sandbox.pass(61);
            step(sandbox);
        },
        &["on-state-change initializing → failed: init_timeout @failed"],
    ),
    walk(
        "the first turn",
        "runnable",
        |sandbox, _| tick_once(sandbox, "completes"),
        &[CLAIMED, "on-state-change running → completed: completed @completed"],
    ),
    walk(
        "the next turn",
        "completed",
        |sandbox, _| tick_once(sandbox, "completes"),
        &[
            "on-state-change completed → runnable: ready for the next message @scheduled",
            CLAIMED,
            "on-state-change running → completed: completed @completed",
        ],
    ),
    walk(
        "a turn that waits",
        "runnable",
        |sandbox, _| tick_once(sandbox, "waits"),
        &[CLAIMED, "on-state-change running → waiting: awaiting_operator_input @waiting"],
    ),
    walk(
        "what it waited for",
        "waiting",
        |sandbox, _| tick_once(sandbox, "completes"),
        &[
            "on-state-change waiting → running: on the way to scheduled @scheduled",
            "on-state-change running → completed: on the way to scheduled @scheduled",
            "on-state-change completed → runnable: on the way to scheduled @scheduled",
            CLAIMED,
            "on-state-change running → completed: completed @completed",
        ],
    ),
    walk(
        "not now",
        "runnable",
        |sandbox, _| tick_once(sandbox, "defers"),
        &[CLAIMED, "on-state-change running → waiting_resources: exit status 75 @waiting_resources"],
    ),
    walk(
        "a claim that lacks something",
        "runnable",
        |sandbox, _| {
            extend_policy(sandbox, "ada", "[limits]\nturns_per_day = 0\n");
            tick_once(sandbox, "completes");
        },
        &[
            "on-state-change runnable → scheduled: claimed @waiting_resources",
            "on-state-change scheduled → running: turn command starts @waiting_resources",
            "on-state-change running → waiting_resources: turns_per_day: 0 of 0 since \
             2026-01-02T00:00:00.000Z @waiting_resources",
        ],
    ),
    walk(
        "now",
        "waiting_resources",
        |sandbox, _| tick_later(sandbox, "completes"),
        &[
            "on-state-change waiting_resources → running: turn command starts @running",
            "turn",
            "on-state-change running → completed: completed @completed",
        ],
    ),
    walk(
        "never",
        "waiting_resources",
        |sandbox, _| {
            sandbox.pass(400);
            tick_later(sandbox, "completes");
        },
        &["on-state-change waiting_resources → failed: resource_timeout @failed"],
    ),
    walk(
        "a turn that fails",
        "runnable",
        |sandbox, _| tick_once(sandbox, "fails"),
        &[CLAIMED, "on-state-change running → failed: exit status 1: no luck @failed"],
    ),
    walk(
        "a turn that takes too long",
        "completed",
        |sandbox, _| {
            let (store, before) = (sandbox.store(), sandbox.root().join("before"));
            copy_dir(&store, &before);
            in_time(|limit| {
                let path = sandbox.agent("ada").join("agent.toml");
                let text = fs::read_to_string(&path).unwrap();
                fs::write(&path, text.replace("\"30m\"", &format!("{limit:?}"))).unwrap();
                tick_once(sandbox, "runs");
                let has_begun = sandbox.home().join("up").exists();
                if !has_begun {
                    fs::remove_file(sandbox.home().join("noted")).unwrap();
                    fs::remove_dir_all(&store).unwrap();
                    copy_dir(&before, &store);
                }
                has_begun.then_some(())
            });
        },
        &[
            "on-state-change completed → runnable: ready for the next message @scheduled",
            CLAIMED,
            "on-state-change running → failed: turn.timeout was reached @failed",
        ],
    ),
    walk(
        "a turn whose tick was killed",
        "running",
        |sandbox, tick| {
            drop(tick);
            step(sandbox);
        },
        &["on-state-change running → failed: its tick is gone @failed"],
    ),
    walk(
        "a retry",
        "failed",
        |sandbox, _| tick_later(sandbox, "completes"),
        &[
            "on-state-change failed → recovering: retry @recovering",
            "on-recovery-start recovering → runnable: retry @recovering",
            "on-state-change recovering → runnable: recovered @runnable",
            "on-recovery-complete recovering → runnable: recovered @runnable",
        ],
    ),
    walk(
        "recover",
        "failed",
        |sandbox, _| drop(sandbox.run(["recover", "ada"])),
        &[
            "on-state-change failed → recovering: asked for by the operator @recovering",
            "on-recovery-start recovering → runnable: asked for by the operator @recovering",
            "on-state-change recovering → runnable: recovered @runnable",
            "on-recovery-complete recovering → runnable: recovered @runnable",
        ],
    ),
    walk(
        "a recovery that fails",
        "failed",
        |sandbox, _| {
            fs::write(sandbox.home().join("on-recovery-start.fails"), "").unwrap();
            tick_later(sandbox, "completes");
        },
        &[
            "on-state-change failed → recovering: retry @recovering",
            "on-recovery-start recovering → runnable: retry @recovering",
            "on-state-change recovering → failed: still broken @failed",
            "on-recovery-complete recovering → failed: still broken @failed",
        ],
    ),
    walk(
        "a recovery that was killed goes on",
        "recovering",
        |sandbox, _| {
            step(sandbox);
        },
        &[
            "on-recovery-start recovering → runnable: retry @recovering",
            "on-state-change recovering → runnable: recovered @runnable",
            "on-recovery-complete recovering → runnable: recovered @runnable",
        ],
    ),
    walk(
        "a recovery that takes too long",
        "recovering",
        |sandbox, _| {
            sandbox.pass(200);
            step(sandbox);
        },
        &[
            "on-state-change recovering → failed: recovery_timeout @failed",
            "on-recovery-complete recovering → failed: recovery_timeout @failed",
        ],
    ),
    unordered(
        "a stop that is heard",
        "running",
        |sandbox, tick| stop(sandbox, "1h", tick),
        &[
            "on-shutdown running → shutting_down: - @running",
            "on-state-change running → shutting_down: stop @completed",
            "on-state-change shutting_down → completed: ended within the grace @completed",
        ],
    ),
    unordered(
        "a stop that is not heard",
        "runnable",
        |sandbox, _| {
            sandbox.run(["stop", "ada"]);
            let tick = running(sandbox, "stays");
            // What led there is what other walks are about.
            fs::remove_file(sandbox.home().join("noted")).unwrap();
            stop(sandbox, "100ms", vec![tick]);
        },
        &[
            "on-shutdown running → shutting_down: - @running",
            "on-state-change running → shutting_down: stop @failed",
            "on-state-change shutting_down → failed: shutdown_timeout @failed",
        ],
    ),
    walk(
        "a stop of a recovery",
        "recovering",
        |sandbox, _| drop(sandbox.run(["stop", "ada", "--reason", "it rains"])),
        &[
            "on-shutdown recovering → shutting_down: it rains @recovering",
            "on-state-change recovering → shutting_down: stop @failed",
            "on-state-change shutting_down → failed: stopped while it recovered @failed",
        ],
    ),
    walk(
        "a turn that yields unasked",
        "runnable",
        |sandbox, _| tick_once(sandbox, "yields"),
        &[
            CLAIMED,
            "on-suspend running → suspended: its turn yielded @running",
            "on-state-change running → suspended: its turn yielded @suspended",
        ],
    ),
    walk(
        "a turn that is asked to yield",
        "runnable",
        |sandbox, _| {
            let tick = listening(sandbox);
            sandbox.run(["preempt", "ada", "--reason", "a hurry", "--grace", "1d"]);
            fs::write(sandbox.home().join("go"), "").unwrap();
            tick.end();
        },
        &[
            "on-preempt-request running → suspended: a hurry @running",
            "on-suspend running → suspended: a hurry @running",
            "on-state-change running → suspended: a hurry @suspended",
        ],
    ),
    walk(
        "a turn that does not yield",
        "running",
        |sandbox, mut tick| {
            // It would run beside the end of the turn.
            fs::remove_file(sandbox.store().join("hooks/on-preempt-request")).unwrap();
            sandbox.run(["preempt", "ada", "--reason", "a hurry", "--grace", "0"]);
            tick.remove(0).end();
        },
        &["on-state-change running → failed: forced_preemption @failed"],
    ),
    walk(
        "resume",
        "suspended",
        |sandbox, _| {
            sandbox.run(["resume", "ada"]);
            how(sandbox, "completes");
            step(sandbox);
        },
        &[
            "on-state-change suspended → resumed: resumed @resumed",
            "on-resume suspended → resumed: - @resumed",
            "on-state-change resumed → running: turn command starts @running",
            "turn",
            "on-state-change running → completed: completed @completed",
        ],
    ),
    walk(
        "a run that stays suspended",
        "suspended",
        |sandbox, _| {
            sandbox.pass(3600);
            tick_later(sandbox, "completes");
        },
        &["on-state-change suspended → failed: suspend_timeout @failed"],
    ),
    walk(
        "a turn that is given up",
        "running",
        fail,
        &["on-state-change running → failed: the wrong door @failed"],
    ),
    unordered(
        "a stop that is given up",
        "shutting_down",
        fail,
        &[
            // That the stop began was before the hook was there.
            "on-state-change shutting_down → failed: the wrong door @failed",
        ],
    ),
    walk(
        "a message that is put off is given up",
        "waiting_resources",
        fail,
        &["on-state-change waiting_resources → failed: the wrong door @failed"],
    ),
    walk(
        "a suspended run is given up",
        "suspended",
        fail,
        &["on-state-change suspended → failed: the wrong door @failed"],
    ),
    walk(
        "a recovery that is given up",
        "recovering",
        fail,
        &[
            "on-state-change recovering → failed: the wrong door @failed",
            "on-recovery-complete recovering → failed: the wrong door @failed",
        ],
    ),
];

#[test]
fn every_edge_is_walked() {
    let all = edges();
    assert_eq!(all.len(), 23);
    let walked: BTreeSet<(String, String)> =
        WALKS.iter().flat_map(Walk::edges).map(|[from, to, _]| (from, to)).collect();
    assert_eq!(walked, all);
}

#[test]
fn every_edge_is_recorded_and_told_as_the_contract_has_it() {
    each_in_parallel(WALKS, take);
}

fn take(walk: &Walk) {
    let name = walk.name;
    let (sandbox, beside) = bring(walk.from);
    listen(&sandbox);
    (walk.act)(&sandbox, beside);

    let lines = noted(&sandbox);
    let mut found: Vec<String> = lines.iter().map(|line| shown(line)).collect();
    let mut expected: Vec<&str> = walk.lines().collect();
    if !walk.in_order {
        found.sort();
        expected.sort_unstable();
    }
    assert_eq!(found, expected, "{name}\n{}", sandbox.reproduction());

    // The ledger has the same edges, in the order in which they were taken.
    let events = sandbox.json_lines(["events", "ada", "--kind", "state_transition"]);
    let taken = walk.edges();
    let last = &events[events.len() - taken.len()..];
    let recorded: Vec<[String; 3]> =
        last.iter().map(|event| ["from", "to", "cause"].map(|field| text(&event["data"][field]))).collect();
    assert_eq!(recorded, taken, "{name}");
    for pair in last.windows(2) {
        assert_eq!(pair[0]["data"]["to"], pair[1]["data"]["from"], "{name}: no gap");
    }
    // So has the state that is shown, newest first.
    let state = sandbox.json(["state", "ada"]);
    for (shown, event) in state["history"].as_array().unwrap().iter().zip(last.iter().rev()) {
        assert_eq!(["at", "run_id"].map(|field| &shown[field]), ["at", "run_id"].map(|field| &event[field]));
        assert_eq!(["from", "to", "cause"].map(|field| text(&shown[field])), {
            ["from", "to", "cause"].map(|field| text(&event["data"][field]))
        });
    }
    assert_eq!(text(&state["state"]), taken.last().unwrap()[1], "{name}");
    heard(&sandbox, name, &lines, last);
}

/// What each hook was told agrees with its environment and with the ledger.
fn heard(sandbox: &Sandbox, name: &str, lines: &[String], events: &[Value]) {
    let runs: BTreeMap<String, String> = sandbox
        .json_lines(["run", "list", "-a", "ada"])
        .iter()
        .map(|run| (text(&run["id"]), text(&run["message_id"])))
        .collect();
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
        // Whoever speaks for a run is told of the same one.
        if heard["run"] != "" {
            assert_eq!((&heard["run"], &heard["message"]), (&told["run_id"], &told["task_id"]), "{line}");
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

/// A line as it is compared.
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

/// What has changed in the agent's directory, but for its locks: they say who held them last.
fn changed(before: &BTreeMap<PathBuf, (u32, Vec<u8>, i64)>, sandbox: &Sandbox) -> Vec<PathBuf> {
    let agent = sandbox.agent("ada");
    let locks = ["lock", "run.lock"].map(|name| agent.join(name));
    changes(before, &tree(&agent)).into_iter().filter(|path| !locks.contains(path)).collect()
}

#[test]
fn of_all_144_pairs_the_23_edges_can_be_taken_and_121_are_refused() {
    let edges = edges();
    each_in_parallel(&STATES, |from| {
        let (sandbox, _beside) = bring(from);
        listen(&sandbox);
        let before = tree(&sandbox.agent("ada"));
        let next: BTreeSet<String> =
            sandbox.json(["state", "ada"])["next"].as_array().unwrap().iter().map(text).collect();
        let legal = edges.iter().filter(|(other, _)| other == from).map(|(_, to)| to.clone());
        assert_eq!(next, legal.collect(), "{from}");
        for to in STATES {
            let can = edges.contains(&((*from).to_owned(), to.to_owned()));
            let (status, answer) = if can { (0, "yes\n") } else { (4, "no\n") };
            sandbox.cmd(["state", "ada", "--can", to]).status(status).prints(answer);
        }
        assert_eq!(changed(&before, &sandbox), Vec::<PathBuf>::new(), "{from}");
        assert_eq!(noted(&sandbox), Vec::<String>::new(), "{from}");
    });
    assert_eq!(144 - edges.len(), 121);
}

/// The message of a command in a state in which it is refused. `FROM` stands for the state.
struct Refused {
    command: &'static [&'static str],
    /// The states in which it is not refused.
    own: &'static str,
    /// The state to which it would lead.
    to: &'static str,
    message: &'static str,
    /// States that have another answer.
    other: &'static [(&'static str, &'static str)],
}

const BEING_STOPPED: &str = "`ada` is still being stopped";
const NOTHING_TO_RECOVER: &str = "run_… is running: there is nothing to recover";

const NOTHING_TO_FAIL: &str = "`ada` is FROM: only what runs, waits, shuts down or recovers can be failed";

const REFUSED: &[Refused] = &[
    Refused {
        command: &["start", "ada"],
        // A started agent stays as it is.
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
        // Of a stopped agent it is `start`.
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
        // It has that edge, for its timeout.
        other: &[("initializing", NOTHING_TO_FAIL)],
    },
];

#[test]
fn a_command_that_is_refused_changes_nothing_and_runs_no_hook() {
    each_in_parallel(&STATES, |state| {
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
            assert_eq!(text(&error["kind"]), "invalid_state_transition", "{state}: {command:?}");
            assert_eq!(text(&error["from"]), *state, "{state}: {command:?}");
            // `resume` of a stopped agent is `start`.
            let to = if message == BEING_STOPPED { "runnable" } else { refused.to };
            assert_eq!(text(&error["to"]), to, "{state}: {command:?}");
            assert_eq!(said, message.replace("FROM", state), "{state}: {command:?}");
            assert_eq!(changed(&before, &sandbox), Vec::<PathBuf>::new(), "{state}: {command:?}");
        }
        assert_eq!(noted(&sandbox), Vec::<String>::new(), "{state}");
    });
}

/// The gate closes beside a state that no turn is in, and leaves it. A second stop leaves its event only.
#[test]
fn a_stop_without_a_turn_leaves_the_state_and_a_second_one_leaves_its_event() {
    let at_rest =
        ["initializing", "runnable", "waiting", "waiting_resources", "suspended", "completed", "failed"];
    each_in_parallel(&at_rest, |state| {
        let (sandbox, _) = bring(state);
        listen(&sandbox);
        let execution = field(&sandbox, "execution");
        let stopped = sandbox.json(["stop", "ada"]);
        assert_eq!((&stopped["status"], &stopped["changed"]), (&json!("stopped"), &json!(true)), "{state}");
        let after: Value = serde_json::from_str(&field(&sandbox, "execution")).unwrap();
        let before: Value = serde_json::from_str(&execution).unwrap();
        for part in ["state", "since", "task_id", "reason"] {
            assert_eq!(after[part], before[part], "{state}: {part}");
        }
        let events = || sandbox.json_lines(["events", "ada", "--limit", "0"]);
        let (state_before, events_before) = (field(&sandbox, "execution"), events().len());
        let again = sandbox.json(["stop", "ada"]);
        assert_eq!((&again["status"], &again["changed"]), (&json!("stopped"), &json!(false)), "{state}");
        assert_eq!(field(&sandbox, "execution"), state_before, "{state}");
        let kinds: Vec<_> = events().drain(events_before..).map(|event| event["kind"].clone()).collect();
        assert_eq!(kinds, ["control_request_admitted", "control_applied"], "{state}");
        assert_eq!(noted(&sandbox), Vec::<String>::new(), "{state}");
    });
}
