//! The situations in which tests kill commands, make them fail and cut their power, and what must hold
//! afterwards.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde_json::Value;

use crate::checker::{self, Found};
use crate::harness::{Ran, Sandbox, dormouse};
use crate::setup::{self, edit_file, hook, words};
use crate::strace::{self, Call, Harm};

/// Notes that it ran, outside the store, and ends well: the note is its last act.
const TURN: &str = r#"echo working; echo "$DORMOUSE_MESSAGE $DORMOUSE_RUN" >> "$HOME/turns""#;
/// The same, and fails.
const FAILING_TURN: &str = r#"echo working; echo "$DORMOUSE_MESSAGE $DORMOUSE_RUN" >> "$HOME/turns"; false"#;

/// The one agent of all scenarios.
pub const AGENT: &str = "ada";

/// A command in a situation.
pub struct Scenario {
    pub name: &'static str,
    pub prepare: fn() -> Sandbox,
    /// ITEM, WAIT, TIMER and DEAD are the ids of the only ones that there are, UNTIL_GO is that command.
    pub command: &'static str,
    pub stdin: &'static str,
    /// The exit statuses that a second try may have, after a first one that was cut.
    pub again: &'static [i32],
    /// Every how many-th point is taken. 1: all of them.
    pub every: usize,
    /// Whether it must survive a power cut as well.
    pub is_durable: bool,
}

impl Scenario {
    pub fn args(&self, sandbox: &Sandbox) -> Vec<String> {
        words_about(sandbox, self.command)
    }
}

/// The state directory and the words of each scenario.
pub fn prepared() -> Vec<(Sandbox, Vec<String>)> {
    let prepare = |scenario: &Scenario| {
        let template = (scenario.prepare)();
        let args = scenario.args(&template);
        (template, args)
    };
    SCENARIOS.iter().map(prepare).collect()
}

/// A task that lasts until its test says so, or has removed the directory that it runs in.
const UNTIL_GO: &str = "until test -e go || ! test -e \"$HOME\"; do sleep 0.05; done";

/// A step of an agent with one message, cut at every point; other scenarios name what they have of their own.
pub const TICK: Scenario = Scenario {
    name: "",
    prepare: queued,
    command: "tick ada",
    stdin: "",
    again: &[0],
    every: 1,
    is_durable: true,
};

/// Those that a single process goes through, from the first call to the last.
pub const SCENARIOS: &[Scenario] = &[
    Scenario { name: "enqueue", prepare: started, command: "enqueue ada hello", ..TICK },
    Scenario {
        name: "enqueue, in a clone without empty directories",
        prepare: cloned,
        command: "enqueue ada hello",
        ..TICK
    },
    Scenario {
        name: "enqueue --dedupe-key, first",
        prepare: started,
        command: "enqueue ada hello --dedupe-key k",
        ..TICK
    },
    Scenario {
        name: "enqueue --dedupe-key, again",
        prepare: || after(started(), &["enqueue ada hello --dedupe-key k"]),
        command: "enqueue ada hello --dedupe-key k",
        ..TICK
    },
    Scenario {
        name: "enqueue --dedupe-key, in a clone with keys",
        prepare: || {
            let sandbox =
                after(started(), &["enqueue ada hello --dedupe-key k", "enqueue ada hello --dedupe-key l"]);
            forget_what_git_ignores(&sandbox);
            sandbox
        },
        command: "enqueue ada hello --dedupe-key m",
        ..TICK
    },
    Scenario {
        name: "enqueue --batch",
        prepare: started,
        command: "enqueue ada --batch",
        stdin: "{\"text\":\"one\"}\n{\"text\":\"two\"}\n{\"text\":\"three\"}\n",
        ..TICK
    },
    Scenario { name: "wake", prepare: started, command: "wake ada look", ..TICK },
    Scenario { name: "start", prepare: || created(TURN, ""), command: "start ada", again: &[0, 4], ..TICK },
    Scenario { name: "stop, idle", command: "stop ada", ..TICK },
    Scenario {
        name: "stop, an abandoned run",
        prepare: || killed_before_the_note(queued()),
        command: "stop ada",
        ..TICK
    },
    Scenario { name: "tick: claim, turn, settle", ..TICK },
    Scenario {
        name: "tick: claim, turn, settle, without syncs",
        prepare: || {
            let sandbox = queued();
            edit_file(&sandbox.store().join("dormouse.toml"), |text| {
                text.replace("durability = \"full\"", "durability = \"process\"")
            });
            sandbox
        },
        is_durable: false,
        ..TICK
    },
    Scenario {
        name: "tick: a second turn in the same month",
        prepare: || after(queued(), &["enqueue ada again --dedupe-key k", "tick ada"]),
        ..TICK
    },
    Scenario { name: "tick: a turn that fails", prepare: || failing(2), again: &[0, 7], ..TICK },
    Scenario {
        name: "tick: a turn that fails for the last time",
        prepare: || failing(1),
        again: &[0, 7],
        ..TICK
    },
    Scenario {
        name: "tick: a dead letter that a hook is told of",
        prepare: || {
            let sandbox = failing(1);
            hook(&sandbox.store(), "on-attention", r#"cat >> "$HOME/told""#);
            sandbox
        },
        again: &[0, 7],
        every: 2,
        is_durable: false,
        ..TICK
    },
    Scenario {
        name: "tick: reduce",
        prepare: || after(started(), &["enqueue ada note --kind control"]),
        ..TICK
    },
    Scenario {
        name: "tick: a wake hint becomes a tick",
        prepare: || after(started(), &["wake ada look"]),
        ..TICK
    },
    Scenario {
        name: "tick: hand-written files, a good one and a bad one",
        prepare: || {
            let sandbox = started();
            let inbox = sandbox.agent(AGENT).join("inbox");
            fs::write(inbox.join("good.json"), "{\"text\":\"hello\"}\n").unwrap();
            fs::write(inbox.join("bad.json"), "{\"text\":").unwrap();
            sandbox
        },
        again: &[0, 7],
        ..TICK
    },
    Scenario {
        name: "tick: recovery, the turn ended and nobody noted it",
        prepare: || killed_before_the_note(queued()),
        ..TICK
    },
    Scenario {
        name: "tick: recovery, the turn never began",
        prepare: || killed_before_it_began(queued()),
        ..TICK
    },
    Scenario {
        name: "tick: recovery, the turn's end was noted",
        prepare: || killed_after_the_note(queued()),
        ..TICK
    },
    Scenario {
        name: "tick: recovery, the settlement was committed and not applied",
        prepare: || killed_at(queued(), |call| call.rest.contains("/ledger/") && call.act() == "open"),
        ..TICK
    },
    Scenario { name: "tick: sleep", prepare: started, ..TICK },
    Scenario {
        name: "tick: a backlog is filed",
        prepare: || {
            let sandbox = started();
            // Not so many at once that they come as a pile.
            for _ in 0..2 {
                let batch: String = (0..550).map(|at| format!("{{\"text\":\"{at}\"}}\n")).collect();
                let ran = sandbox.cmd(words("enqueue ada --batch")).stdin(batch).output();
                assert_eq!(ran.stdout.lines().count(), 550, "{ran}");
            }
            sandbox.run(words("wake ada"));
            sandbox
        },
        // More than a thousand renames are much of a muchness.
        every: 61,
        ..TICK
    },
    Scenario { name: "queue requeue", prepare: dead, command: "queue requeue DEAD", again: &[0, 4], ..TICK },
    Scenario {
        name: "recover, a failed agent",
        prepare: || {
            let sandbox = failing(2);
            assert_eq!(sandbox.cmd(words("tick ada")).output().code(), 7);
            sandbox
        },
        command: "recover ada",
        again: &[0, 4],
        ..TICK
    },
    Scenario {
        name: "recover, an abandoned run",
        prepare: || killed_before_the_note(queued()),
        command: "recover ada",
        again: &[0, 4],
        ..TICK
    },
    Scenario {
        name: "work add",
        prepare: started,
        command: "work add objective -a ada --plan prose --pick",
        ..TICK
    },
    Scenario {
        name: "work complete, with a plan and a wait",
        prepare: || {
            after(
                started(),
                &["work add objective -a ada --plan prose --pick", "wait -a ada --on external --reason why"],
            )
        },
        command: "work complete ITEM --result done",
        again: &[0, 4],
        ..TICK
    },
    Scenario {
        name: "wait, in the place of another",
        prepare: || {
            after(started(), &["work add objective -a ada --pick", "wait -a ada --on external --reason why"])
        },
        command: "wait -a ada --on operator --reason why",
        ..TICK
    },
    Scenario { name: "timer add", prepare: started, command: "timer add -a ada --in 1h look", ..TICK },
    Scenario {
        name: "enqueue --in",
        prepare: started,
        command: "enqueue ada later --in 1h --dedupe-key k",
        ..TICK
    },
    Scenario {
        name: "tick: timers fire",
        prepare: || {
            let sandbox = after(
                started(),
                &[
                    "timer add -a ada --in 1m look",
                    "enqueue ada later --in 1m",
                    "wait -a ada --on timer --reason why --in 1m",
                ],
            );
            sandbox.pass(600);
            sandbox
        },
        ..TICK
    },
    Scenario {
        name: "work update, with a new plan",
        prepare: with_item,
        command: "work update ITEM --objective other --todo one --plan prose",
        ..TICK
    },
    Scenario {
        name: "work plan",
        prepare: with_item,
        command: "work plan ITEM -",
        stdin: "# Another plan\n",
        ..TICK
    },
    Scenario {
        name: "work block",
        prepare: with_item,
        command: "work block ITEM --reason why --recheck 1h",
        ..TICK
    },
    Scenario {
        name: "work unblock",
        prepare: || after(with_item(), &["work block ITEM --reason why --recheck 1h"]),
        command: "work unblock ITEM --reason because",
        again: &[0, 4],
        ..TICK
    },
    Scenario {
        name: "work pick --clear-blocker, with a wait",
        prepare: || {
            after(
                with_item(),
                &[
                    "work block ITEM --reason why --recheck 1h",
                    "wait -a ada --on external --reason why --work-item ITEM",
                ],
            )
        },
        command: "work pick ITEM --clear-blocker --reason because",
        ..TICK
    },
    Scenario {
        name: "wait cancel",
        prepare: || after(started(), &["wait -a ada --on external --reason why"]),
        command: "wait cancel WAIT",
        again: &[0, 3],
        ..TICK
    },
    Scenario {
        name: "timer cancel, a message that was put off",
        prepare: || after(started(), &["enqueue ada later --in 1h --dedupe-key k"]),
        command: "timer cancel TIMER",
        again: &[0, 3],
        ..TICK
    },
    Scenario {
        name: "tick: a recheck, an expiry and a reminder are due",
        prepare: || {
            let sandbox = after(
                with_item(),
                &[
                    "work block ITEM --reason why --recheck 1m",
                    "wait -a ada --on external --whole-agent --reason why --recheck-at 2026-01-02T03:05:10Z",
                    "wait -a ada --on operator --whole-agent --reason why --expires 1m",
                ],
            );
            sandbox.pass(600);
            sandbox
        },
        ..TICK
    },
    Scenario {
        name: "tick: an outcome with actions, one of them for another agent",
        prepare: answering,
        ..TICK
    },
    Scenario {
        name: "tick: the outbox of a settlement that was killed before it delivered",
        prepare: || {
            let in_bobs = |call: &Call| call.act() == "open" && call.rest.contains("/agents/bob/tmp/");
            killed_at(answering(), in_bobs)
        },
        ..TICK
    },
    Scenario {
        name: "tick: a turn that yields",
        prepare: yielding,
        again: &[0, 7],
        // What the turn itself calls is another process, of whose operations the disk model knows nothing.
        is_durable: false,
        ..TICK
    },
    Scenario {
        name: "yield, with a checkpoint",
        prepare: || killed_before_it_began(queued()).inside(AGENT),
        command: "yield --checkpoint -",
        stdin: "halfway\n",
        ..TICK
    },
    Scenario {
        name: "yield, with another checkpoint",
        prepare: || {
            let sandbox = killed_before_it_began(queued()).inside(AGENT);
            sandbox.cmd(words("yield --checkpoint -")).stdin("not yet\n").exits(0);
            sandbox
        },
        command: "yield --checkpoint -",
        stdin: "halfway\n",
        ..TICK
    },
    Scenario {
        name: "safe-point, with something to hand over",
        prepare: || {
            let sandbox = killed_before_it_began(queued());
            sandbox.run(words("enqueue ada hurry --priority interject"));
            sandbox.run(words("enqueue ada more --priority interject --dedupe-key k"));
            sandbox.inside(AGENT)
        },
        command: "safe-point",
        ..TICK
    },
    Scenario {
        name: "non-preemptible begin",
        prepare: || killed_before_it_began(queued()).inside(AGENT),
        command: "non-preemptible begin --deadline 5s",
        ..TICK
    },
    Scenario { name: "resume", prepare: suspended, command: "resume ada", ..TICK },
    Scenario {
        name: "tick: a suspended run goes on",
        prepare: || after(suspended(), &["resume ada"]),
        again: &[0, 7],
        ..TICK
    },
    Scenario {
        name: "fail, an abandoned run",
        prepare: || killed_before_the_note(queued()),
        command: "fail ada --reason enough",
        // The first one may have come far enough.
        again: &[0, 4],
        ..TICK
    },
    Scenario {
        name: "gc",
        prepare: || {
            let sandbox = created(&format!("echo said; {TURN}"), "");
            sandbox.run(words("start ada"));
            for text in ["old", "new", "newest"] {
                sandbox.run(["enqueue", AGENT, text]);
                sandbox.run(words("tick ada --until-idle"));
                sandbox.pass(60 * 24 * 3600);
            }
            sandbox
        },
        command: "gc ada",
        ..TICK
    },
];

/// With a message whose turn yields the first time, and has a whole checkpoint when it goes on.
fn yielding() -> Sandbox {
    let turn = format!(
        r#"if [ ! -e "$HOME/yielded" ]; then
            touch "$HOME/yielded"; echo halfway | {} yield --checkpoint -; exit 1
        fi
        [ -z "$DORMOUSE_CHECKPOINT" ] || [ "$(cat "$DORMOUSE_CHECKPOINT")" = halfway ] || exit 9
        echo "$DORMOUSE_MESSAGE $DORMOUSE_RUN" >> "$HOME/turns""#,
        dormouse().display()
    );
    after(created(&turn, ""), &["start ada", "enqueue ada hello"])
}

fn suspended() -> Sandbox {
    after(yielding(), &["tick ada"])
}

/// After these commands.
pub fn after(sandbox: Sandbox, lines: &[&str]) -> Sandbox {
    for line in lines {
        sandbox.run(words_about(&sandbox, line));
    }
    sandbox
}

/// With a message whose turns fail.
fn failing(max_attempts: u32) -> Sandbox {
    let policy = format!("[recovery]\nmax_attempts = {max_attempts}\n");
    after(created(FAILING_TURN, &policy), &["start ada", "enqueue ada hello"])
}

/// The words of a command. ITEM, WAIT, TIMER and DEAD are the ids of the only ones that there are.
fn words_about(sandbox: &Sandbox, line: &str) -> Vec<String> {
    let only = |dir: &str| {
        let names = setup::names(&sandbox.agent(AGENT).join(dir));
        let records: Vec<&str> = names.iter().filter_map(|name| name.strip_suffix(".json")).collect();
        assert_eq!(records.len(), 1, "{names:?}");
        records[0].to_owned()
    };
    let word = |word| match word {
        "ITEM" => only("work"),
        "WAIT" => only("waits"),
        "TIMER" => only("timers"),
        "DEAD" => sandbox.json(["queue", "dead", "-a", AGENT])["id"].as_str().unwrap().to_owned(),
        "UNTIL_GO" => UNTIL_GO.to_owned(),
        word => word.to_owned(),
    };
    line.split(' ').map(word).collect()
}

/// With a work item that has a plan.
fn with_item() -> Sandbox {
    after(started(), &["work add objective -a ada --plan prose"])
}

/// What a turn of `answering` calls whatever it makes.
const ANSWERED: &str = "from an outcome";

/// An agent whose turns leave an outcome with an action of each kind, unless they are about what such
/// an outcome has made, and another agent that hears of it.
fn answering() -> Sandbox {
    const ANSWER: &str = r#"case $(cat "$DORMOUSE_CONTEXT") in *"from an outcome"*) ;; *)
        printf '{"brief": "all of it", "actions": [
            {"do": "work.add", "objective": "from an outcome", "plan": "prose", "pick": true},
            {"do": "wait", "kind": "external", "reason": "from an outcome", "recheck_after": "30d"},
            {"do": "timer.add", "in": "30d", "text": "from an outcome"},
            {"do": "enqueue", "agent": "ada", "text": "from an outcome"},
            {"do": "enqueue", "agent": "bob", "text": "from an outcome"}]}' > "$DORMOUSE_OUTCOME"
        esac
        echo "$DORMOUSE_MESSAGE $DORMOUSE_RUN" >> "$HOME/turns""#;
    let lines = ["create bob --shell true", "start ada bob", "enqueue ada hello"];
    after(created(ANSWER, ""), &lines)
}

/// An agent that was never started. `policy` goes to the end of its `agent.toml`.
pub fn created(turn: &str, policy: &str) -> Sandbox {
    let sandbox = Sandbox::in_memory();
    sandbox.run(["init"]);
    sandbox.run(["create", AGENT, "--shell", turn]);
    let path = sandbox.agent(AGENT).join("agent.toml");
    fs::write(&path, format!("{}\n{policy}", fs::read_to_string(&path).unwrap())).unwrap();
    sandbox
}

pub fn started() -> Sandbox {
    after(created(TURN, ""), &["start ada"])
}

pub fn queued() -> Sandbox {
    after(started(), &["enqueue ada hello"])
}

fn cloned() -> Sandbox {
    let sandbox = started();
    forget_what_git_ignores(&sandbox);
    for dir in ["inbox", "work", "waits", "timers", "tasks", "runs", "ledger", "archive", "hooks"] {
        // Git keeps no empty directories; one that is not empty stays.
        let _ = fs::remove_dir(sandbox.agent(AGENT).join(dir));
    }
    sandbox
}

pub fn forget_what_git_ignores(sandbox: &Sandbox) {
    for dir in ["tmp", "cache"] {
        fs::remove_dir_all(sandbox.agent(AGENT).join(dir)).unwrap();
    }
    let _ = fs::remove_file(sandbox.agent(AGENT).join("lock"));
}

fn dead() -> Sandbox {
    let sandbox = failing(1);
    assert_eq!(sandbox.cmd(words("tick ada")).output().code(), 7);
    // Requeued, it begins with the first attempt again.
    fs::remove_file(sandbox.home().join("turns")).unwrap();
    sandbox
}

/// After a tick that was killed before its turn began.
fn killed_before_it_began(sandbox: Sandbox) -> Sandbox {
    killed_at(sandbox, |call| call.act() == "mkdir" && call.rest.contains("/runs/"))
}

/// After a tick that was killed before it noted the end of its turn.
fn killed_before_the_note(sandbox: Sandbox) -> Sandbox {
    killed_at(sandbox, |call| call.act() == "open" && call.rest.contains("/end.json.new\""))
}

/// After a tick that was killed when it was about to settle.
pub fn killed_after_the_note(sandbox: Sandbox) -> Sandbox {
    killed_after(sandbox, Call::is_about_end_note, Call::is_about_journal)
}

/// After a tick that was killed at the first call that satisfies `at`.
fn killed_at(sandbox: Sandbox, at: fn(&Call) -> bool) -> Sandbox {
    killed_after(sandbox, |_| true, at)
}

/// The same, from the first call on that satisfies `from`.
fn killed_after(sandbox: Sandbox, from: fn(&Call) -> bool, at: fn(&Call) -> bool) -> Sandbox {
    let calls = strace::record(&sandbox.copy(), &["tick", AGENT], "").calls;
    let call = calls.into_iter().skip_while(|call| !from(call)).find(at).unwrap();
    let harmed = strace::harm(&sandbox, &["tick", AGENT], "", &call, Harm::Kill);
    assert_eq!(harmed.hit.len(), 1, "{}", harmed.ran);
    sandbox
}

/// A case that went wrong says how to get there again.
pub struct Case<'a> {
    pub scenario: &'a Scenario,
    pub what: String,
}

impl Case<'_> {
    #[track_caller]
    pub fn must(&self, holds: bool, sandbox: &Sandbox, complaint: impl std::fmt::Display) {
        assert!(
            holds,
            "{}, {}: {complaint}\nreproduce:\n{}",
            self.scenario.name,
            self.what,
            sandbox.reproduction()
        );
    }
}

/// The state of things before the harm.
pub struct Before {
    pub found: Found,
}

impl Before {
    pub fn of(sandbox: &Sandbox) -> Before {
        Before { found: checker::look(&sandbox.agent(AGENT)) }
    }
}

/// The ids that a producer has printed whole.
pub fn acknowledged(ran: &Ran) -> BTreeSet<String> {
    let whole = ran.stdout.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
    let is_id = |line: &&str| ["msg_", "work_", "wait_", "timer_"].iter().any(|kind| line.starts_with(kind));
    whole.filter(is_id).map(str::to_owned).collect()
}

/// How far a run came, as the disk tells: the end of its turn was noted, or more.
pub fn noted_ends(sandbox: &Sandbox) -> BTreeSet<String> {
    let agent = sandbox.agent(AGENT);
    let runs = agent.join("runs");
    let mut noted: BTreeSet<String> = setup::names(&runs).into_iter().collect();
    noted.retain(|run| runs.join(run).join("end.json").exists());
    let archive = agent.join("archive");
    let settled = setup::names(&archive).into_iter().map(|month| archive.join(month).join("run.jsonl"));
    let mut lines: Vec<String> = settled.flat_map(fs::read_to_string).collect();
    let journal = fs::read_to_string(agent.join("journal.jsonl")).unwrap_or_default();
    for entry in journal.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        let appends = entry["appends"].as_array().into_iter().flatten();
        let of_runs =
            appends.filter(|append| append["path"].as_str().is_some_and(|path| path.ends_with("/run.jsonl")));
        lines.extend(of_runs.map(|append| append["content"].as_str().unwrap_or_default().to_owned()));
    }
    for line in lines.iter().flat_map(|lines| lines.lines()) {
        let run: Value = serde_json::from_str(line).unwrap_or_default();
        if run["exit"]["how"] == "code" {
            noted.extend(run["id"].as_str().map(str::to_owned));
        }
    }
    noted
}

/// The runs that came to the end of the turn's script, per message, in order.
pub fn turns(sandbox: &Sandbox) -> BTreeMap<String, Vec<String>> {
    let mut turns: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in fs::read_to_string(sandbox.home().join("turns")).unwrap_or_default().lines() {
        let (id, run) = line.split_once(' ').unwrap();
        turns.entry(id.to_owned()).or_default().push(run.to_owned());
    }
    turns
}

/// Ticks, with an hour between two, until there is nothing more to do. A backlog is not worked off.
pub fn settle(case: &Case<'_>, sandbox: &Sandbox) {
    // Whoever comes later is no part of the turn: what is left of one is ended.
    sandbox.leave();
    let mut quiet = 0;
    for _ in 0..30 {
        sandbox.pass(3600);
        let ran = sandbox.cmd(["tick", AGENT, "--json", "--exit-code"]).output();
        case.must([0, 7, 10].contains(&ran.code()), sandbox, format!("a later tick: {ran}"));
        let in_progress = ran.stdout.contains("turn_in_progress");
        quiet = if ran.code() == 10 && !in_progress { quiet + 1 } else { 0 };
        if quiet == 2 || has_backlog(sandbox) {
            return;
        }
    }
    case.must(false, sandbox, "it never comes to rest");
}

fn has_backlog(sandbox: &Sandbox) -> bool {
    let inbox = sandbox.agent(AGENT).join("inbox");
    let names = setup::names(&inbox);
    names.len() + names.iter().map(|name| setup::names(&inbox.join(name)).len()).sum::<usize>() > 100
}

/// What holds in the end, whatever happened: nothing damaged, nothing lost, nothing done twice.
pub fn hold(case: &Case<'_>, sandbox: &Sandbox, before: &Before, acknowledged: &BTreeSet<String>) {
    let doctor = sandbox.cmd(["doctor"]).output();
    case.must(doctor.code() == 0, sandbox, format!("doctor: {doctor}"));
    let found = checker::look(&sandbox.agent(AGENT));
    case.must(found.complaints.is_empty(), sandbox, format!("{:#?}", found.complaints));
    case.must(!found.has_journal, sandbox, "a journal is left");
    let now: BTreeSet<String> = found.messages().union(&found.planes()).cloned().collect();
    for id in before.found.messages().union(&before.found.planes()).chain(acknowledged) {
        let kept = now.contains(id) || found.hints.contains(id) || taken_in(&found, id);
        case.must(kept, sandbox, format!("{id} is lost"));
    }
    for hint in &before.found.hints {
        case.must(found.hints.contains(hint) || taken_in(&found, hint), sandbox, "a hint is lost");
    }
    let keys = found.queued.values().chain(found.archived.values().flatten());
    let keys: BTreeSet<&str> = keys.filter_map(|message| message["dedupe_key"].as_str()).collect();
    for key in keys {
        let ran = sandbox.cmd(["enqueue", AGENT, "more", "--dedupe-key", key, "--json"]).output();
        let answer: Value = serde_json::from_str(&ran.stdout).unwrap_or_default();
        let id = answer["message_id"].as_str().unwrap_or_default();
        let known = answer["duplicate"] == true && now.contains(id);
        case.must(known, sandbox, format!("the key {key} is forgotten: {ran}"));
    }
    answers_hold(case, sandbox, &found);
    dead_letters_are_told(case, sandbox, &found);
    for (id, runs) in turns(sandbox) {
        let once: BTreeSet<&String> = runs.iter().collect();
        case.must(once.len() == runs.len(), sandbox, format!("{id} had a run twice: {runs:?}"));
    }
}

/// What died is marked, and where there is a hook that was told at least once.
fn dead_letters_are_told(case: &Case<'_>, sandbox: &Sandbox, found: &Found) {
    let is_dead = |message: &Value| message["settlement"]["dead_letter"] == true;
    if !found.archived.values().any(|lines| lines.last().is_some_and(is_dead)) {
        return;
    }
    let agent = sandbox.json(["get", AGENT]);
    case.must(agent["attention"]["count"].as_u64() > Some(0), sandbox, format!("no mark: {agent}"));
    if sandbox.store().join("hooks/on-attention").exists() {
        case.must(sandbox.home().join("told").exists(), sandbox, "nobody was told");
        let untold = agent["attention"]["newest"].as_array().into_iter().flatten();
        case.must(untold.clone().all(|one| one["pending"].is_null()), sandbox, "it is still to be told");
    }
}

/// Whatever an outcome asks for is done once, if its turn was settled as one that completed, and
/// else not at all; in the other agent, too.
fn answers_hold(case: &Case<'_>, sandbox: &Sandbox, found: &Found) {
    let answers = found.runs.values().filter(|run| run["brief"] == "all of it").count();
    let bob = sandbox.agent("bob");
    let heard = if bob.exists() { checker::look(&bob) } else { Found::default() };
    case.must(heard.complaints.is_empty(), sandbox, format!("{:#?}", heard.complaints));
    let said = |message: &&Value| message["body"]["text"] == ANSWERED;
    let of_ada = || found.queued.values().chain(found.archived.values().flatten());
    let (plain, of_timer): (Vec<_>, Vec<_>) =
        of_ada().filter(said).partition(|message| message["kind"] == "internal_followup");
    let planes = |field: &str| found.records.values().filter(|record| record[field] == ANSWERED).count();
    let timers = found.records.values().filter(|record| record["body"]["text"] == ANSWERED).count();
    let made = [planes("objective"), planes("reason"), timers, plain.len(), heard.messages().len()];
    case.must(made == [answers; 5], sandbox, format!("{answers} outcomes made {made:?}"));
    case.must(of_timer.is_empty(), sandbox, "a timer fired before its time");
}

/// A hint leaves no record of its own: the counter tells that it was taken in.
fn taken_in(found: &Found, id: &str) -> bool {
    let is_pending = found.state["pending_wake_hint"]["id"] == id;
    is_pending || found.state["counters"]["wakes"].as_u64().unwrap_or(0) > 0
}
