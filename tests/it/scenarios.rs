//! Defines the situations in which tests kill commands, fail their system calls and cut the power,
//! and checks the state directory afterwards.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde_json::Value;

use crate::checker::{self, Found};
use crate::harness::{Ran, Sandbox, dormouse};
use crate::setup::{self, edit_file, hook, words};
use crate::strace::{self, Call, Harm};

/// Turn that succeeds. Its last act is to add its message and run to the file `turns`.
const TURN: &str = r#"echo working; echo "$DORMOUSE_MESSAGE $DORMOUSE_RUN" >> "$HOME/turns""#;
/// Turn that adds the same line as [`TURN`], and fails.
const FAILING_TURN: &str = r#"echo working; echo "$DORMOUSE_MESSAGE $DORMOUSE_RUN" >> "$HOME/turns"; false"#;

/// Name of the agent in all scenarios.
pub const AGENT: &str = "ada";

/// Command that is run in a prepared state directory.
pub struct Scenario {
    pub name: &'static str,
    pub prepare: fn() -> Sandbox,
    /// Command line with placeholders: ITEM, WAIT, TIMER and DEAD stand for the id of the only such
    /// record, UNTIL_GO for that constant.
    pub command: &'static str,
    pub stdin: &'static str,
    /// Exit statuses of the repeated command after an interrupted first call.
    pub again: &'static [i32],
    /// Distance between the system calls that a test interrupts. 1 means every call.
    pub every: usize,
    /// True if the effect of the command must survive a power cut, not only a kill.
    pub is_durable: bool,
}

impl Scenario {
    const fn again(self, again: &'static [i32]) -> Scenario {
        Scenario { again, ..self }
    }

    const fn every(self, every: usize) -> Scenario {
        Scenario { every, ..self }
    }

    const fn stdin(self, stdin: &'static str) -> Scenario {
        Scenario { stdin, ..self }
    }

    const fn not_durable(self) -> Scenario {
        Scenario { is_durable: false, ..self }
    }

    pub fn args(&self, sandbox: &Sandbox) -> Vec<String> {
        words_about(sandbox, self.command)
    }
}

/// Returns the state directory and the arguments of each scenario.
pub fn prepared() -> Vec<(Sandbox, Vec<String>)> {
    let prepare = |scenario: &Scenario| {
        let template = (scenario.prepare)();
        let args = scenario.args(&template);
        (template, args)
    };
    SCENARIOS.iter().map(prepare).collect()
}

/// Script of a task that runs until the file `go` exists, or its working directory is removed.
const UNTIL_GO: &str = "until test -e go || ! test -e \"$HOME\"; do sleep 0.05; done";

/// Base of all scenarios: a step of an agent with one message, interrupted at every system call.
const TICK: Scenario = Scenario {
    name: "",
    prepare: queued,
    command: "tick ada",
    stdin: "",
    again: &[0],
    every: 1,
    is_durable: true,
};

/// Scenario of a step of an agent, in the state directory that `prepare` makes.
pub const fn tick(name: &'static str, prepare: fn() -> Sandbox) -> Scenario {
    Scenario { name, prepare, ..TICK }
}

pub const fn command(name: &'static str, command: &'static str, prepare: fn() -> Sandbox) -> Scenario {
    Scenario { name, prepare, command, ..TICK }
}

/// Scenarios in which one process does all the work.
pub const SCENARIOS: &[Scenario] = &[
    command("enqueue", "enqueue ada hello", started),
    command("enqueue, in a clone without empty directories", "enqueue ada hello", cloned),
    command("enqueue --dedupe-key, first", "enqueue ada hello --dedupe-key k", started),
    command("enqueue --dedupe-key, again", "enqueue ada hello --dedupe-key k", || {
        after(started(), &["enqueue ada hello --dedupe-key k"])
    }),
    command("enqueue --dedupe-key, in a clone with keys", "enqueue ada hello --dedupe-key m", || {
        let sandbox =
            after(started(), &["enqueue ada hello --dedupe-key k", "enqueue ada hello --dedupe-key l"]);
        forget_what_git_ignores(&sandbox);
        sandbox
    }),
    command("enqueue --batch", "enqueue ada --batch", started)
        .stdin("{\"text\":\"one\"}\n{\"text\":\"two\"}\n{\"text\":\"three\"}\n"),
    command("wake", "wake ada look", started),
    command("start", "start ada", || created(TURN, "")).again(&[0, 4]),
    command("stop, idle", "stop ada", queued),
    command("stop, an abandoned run", "stop ada", || killed_before_the_note(queued())),
    tick("tick: claim, turn, settle", queued),
    tick("tick: claim, turn, settle, without syncs", || {
        let sandbox = queued();
        edit_file(&sandbox.store().join("dormouse.toml"), |text| {
            text.replace("durability = \"full\"", "durability = \"process\"")
        });
        sandbox
    })
    .not_durable(),
    tick("tick: a second turn in the same month", || {
        after(queued(), &["enqueue ada again --dedupe-key k", "tick ada"])
    }),
    tick("tick: a turn that fails", || failing(2)).again(&[0, 7]),
    tick("tick: a turn that fails for the last time", || failing(1)).again(&[0, 7]),
    tick("tick: a dead letter with a hook on-attention", || {
        let sandbox = failing(1);
        hook(&sandbox.store(), "on-attention", r#"cat >> "$HOME/told""#);
        sandbox
    })
    .again(&[0, 7])
    .every(2)
    .not_durable(),
    tick("tick: reduce", || after(started(), &["enqueue ada note --kind control"])),
    tick("tick: a wake hint becomes a tick", || after(started(), &["wake ada look"])),
    tick("tick: hand-written files, a good one and a bad one", || {
        let sandbox = started();
        let inbox = sandbox.agent(AGENT).join("inbox");
        fs::write(inbox.join("good.json"), "{\"text\":\"hello\"}\n").unwrap();
        fs::write(inbox.join("bad.json"), "{\"text\":").unwrap();
        sandbox
    })
    .again(&[0, 7]),
    tick("tick: recovery, the turn ended and no record says so", || killed_before_the_note(queued())),
    tick("tick: recovery, the turn never began", || killed_before_it_began(queued())),
    tick("tick: recovery, the turn's end was noted", || killed_after_the_note(queued())),
    tick("tick: recovery, the settlement was committed and not applied", || {
        killed_at(queued(), |call| call.rest.contains("/ledger/") && call.act() == "open")
    }),
    tick("tick: sleep", started),
    // The step makes over a thousand similar renames; interrupting each takes too long.
    tick("tick: a backlog is filed", || {
        let sandbox = started();
        // A single batch of more than 1024 messages would be stored as a directory, which
        // leaves nothing for the step to file.
        for _ in 0..2 {
            let batch: String = (0..550).map(|at| format!("{{\"text\":\"{at}\"}}\n")).collect();
            let ran = sandbox.cmd(words("enqueue ada --batch")).stdin(batch).output();
            assert_eq!(ran.stdout.lines().count(), 550, "{ran}");
        }
        sandbox.run(words("wake ada"));
        sandbox
    })
    .every(61),
    command("queue requeue", "queue requeue DEAD", dead).again(&[0, 4]),
    command("recover, a failed agent", "recover ada", || {
        let sandbox = failing(2);
        assert_eq!(sandbox.cmd(words("tick ada")).output().code(), 7);
        sandbox
    })
    .again(&[0, 4]),
    command("recover, an abandoned run", "recover ada", || killed_before_the_note(queued())).again(&[0, 4]),
    command("work add", "work add objective -a ada --plan prose --pick", started),
    command("work complete, with a plan and a wait", "work complete ITEM --result done", || {
        after(
            started(),
            &["work add objective -a ada --plan prose --pick", "wait -a ada --on external --reason why"],
        )
    })
    .again(&[0, 4]),
    command("wait, in the place of another", "wait -a ada --on operator --reason why", || {
        after(started(), &["work add objective -a ada --pick", "wait -a ada --on external --reason why"])
    }),
    command("timer add", "timer add -a ada --in 1h look", started),
    command("enqueue --in", "enqueue ada later --in 1h --dedupe-key k", started),
    tick("tick: timers fire", || {
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
    }),
    command(
        "work update, with a new plan",
        "work update ITEM --objective other --todo one --plan prose",
        with_item,
    ),
    command("work plan", "work plan ITEM -", with_item).stdin("# Another plan\n"),
    command("work block", "work block ITEM --reason why --recheck 1h", with_item),
    command("work unblock", "work unblock ITEM --reason because", || {
        after(with_item(), &["work block ITEM --reason why --recheck 1h"])
    })
    .again(&[0, 4]),
    command(
        "work pick --clear-blocker, with a wait",
        "work pick ITEM --clear-blocker --reason because",
        || {
            after(
                with_item(),
                &[
                    "work block ITEM --reason why --recheck 1h",
                    "wait -a ada --on external --reason why --work-item ITEM",
                ],
            )
        },
    ),
    command("wait cancel", "wait cancel WAIT", || {
        after(started(), &["wait -a ada --on external --reason why"])
    })
    .again(&[0, 3]),
    command("timer cancel, a message that was put off", "timer cancel TIMER", || {
        after(started(), &["enqueue ada later --in 1h --dedupe-key k"])
    })
    .again(&[0, 3]),
    tick("tick: a recheck, an expiry and a reminder are due", || {
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
    }),
    tick("tick: an outcome with actions, one of them for another agent", answering),
    tick("tick: the outbox of a settlement that was killed before it delivered", || {
        let in_bobs = |call: &Call| call.act() == "open" && call.rest.contains("/agents/bob/tmp/");
        killed_at(answering(), in_bobs)
    }),
    // The turn calls `dormouse`, and the disk model does not see the writes of that process.
    tick("tick: a turn that yields", yielding).again(&[0, 7]).not_durable(),
    command("yield, with a checkpoint", "yield --checkpoint -", || {
        killed_before_it_began(queued()).inside(AGENT)
    })
    .stdin("halfway\n"),
    command("yield, with another checkpoint", "yield --checkpoint -", || {
        let sandbox = killed_before_it_began(queued()).inside(AGENT);
        sandbox.cmd(words("yield --checkpoint -")).stdin("not yet\n").exits(0);
        sandbox
    })
    .stdin("halfway\n"),
    command("safe-point, with something to hand over", "safe-point", || {
        let sandbox = killed_before_it_began(queued());
        sandbox.run(words("enqueue ada hurry --priority interject"));
        sandbox.run(words("enqueue ada more --priority interject --dedupe-key k"));
        sandbox.inside(AGENT)
    }),
    command("non-preemptible begin", "non-preemptible begin --deadline 5s", || {
        killed_before_it_began(queued()).inside(AGENT)
    }),
    command("resume", "resume ada", suspended),
    tick("tick: a suspended run is resumed", || after(suspended(), &["resume ada"])).again(&[0, 7]),
    // The interrupted first call may have failed the run, which a second call can't.
    command("fail, an abandoned run", "fail ada --reason enough", || killed_before_the_note(queued()))
        .again(&[0, 4]),
    command("gc", "gc ada", || {
        let sandbox = created(&format!("echo said; {TURN}"), "");
        sandbox.run(words("start ada"));
        for text in ["old", "new", "newest"] {
            sandbox.run(["enqueue", AGENT, text]);
            sandbox.run(words("tick ada --until-idle"));
            sandbox.pass(60 * 24 * 3600);
        }
        sandbox
    }),
];

/// Returns an agent with a message whose turn yields at first, and then checks its checkpoint.
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

/// Runs commands that must succeed, and returns the sandbox.
pub fn after(sandbox: Sandbox, lines: &[&str]) -> Sandbox {
    for line in lines {
        sandbox.run(words_about(&sandbox, line));
    }
    sandbox
}

/// Returns an agent with a message whose turns fail.
fn failing(max_attempts: u32) -> Sandbox {
    let policy = format!("[recovery]\nmax_attempts = {max_attempts}\n");
    after(created(FAILING_TURN, &policy), &["start ada", "enqueue ada hello"])
}

/// Returns the arguments of a command line, with its placeholders replaced ([`Scenario::command`]).
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

/// Returns an agent with a work item that has a plan.
fn with_item() -> Sandbox {
    after(started(), &["work add objective -a ada --plan prose"])
}

/// Text of all records that turns of [`answering`] create.
const ANSWERED: &str = "from an outcome";

/// Returns an agent whose turns write an outcome file with an action of each kind, unless the
/// message comes from such an action. One action sends a message to a second agent.
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

/// Returns an agent that was never started. `policy` is appended to its `agent.toml`.
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
        // Git drops empty directories. The call fails for others, which are kept.
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
    // A requeued message starts at its first attempt, so checks must not see the turns before.
    fs::remove_file(sandbox.home().join("turns")).unwrap();
    sandbox
}

/// Kills a tick before its turn has begun.
fn killed_before_it_began(sandbox: Sandbox) -> Sandbox {
    killed_at(sandbox, |call| call.act() == "mkdir" && call.rest.contains("/runs/"))
}

/// Kills a tick before it has recorded the end of its turn.
fn killed_before_the_note(sandbox: Sandbox) -> Sandbox {
    killed_at(sandbox, |call| call.act() == "open" && call.rest.contains("/end.json.new\""))
}

/// Kills a tick after the end of its turn was recorded, and before the tick settles the run.
pub fn killed_after_the_note(sandbox: Sandbox) -> Sandbox {
    killed_after(sandbox, Call::is_about_end_note, Call::is_about_journal)
}

/// Kills a tick at its first system call that satisfies `at`.
fn killed_at(sandbox: Sandbox, at: fn(&Call) -> bool) -> Sandbox {
    killed_after(sandbox, |_| true, at)
}

/// Kills a tick at the first call that satisfies `at`, counted from the first that satisfies
/// `from`.
fn killed_after(sandbox: Sandbox, from: fn(&Call) -> bool, at: fn(&Call) -> bool) -> Sandbox {
    let calls = strace::record(&sandbox.copy(), &["tick", AGENT], "").calls;
    let call = calls.into_iter().skip_while(|call| !from(call)).find(at).unwrap();
    let harmed = strace::harm(&sandbox, &["tick", AGENT], "", &call, Harm::Kill);
    assert_eq!(harmed.hit.len(), 1, "{}", harmed.ran);
    sandbox
}

/// Scenario that was interrupted. A failed check prints the commands that reproduce the case.
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

/// Records of the agent before the interrupted command.
pub struct Before {
    pub found: Found,
}

impl Before {
    pub fn of(sandbox: &Sandbox) -> Before {
        Before { found: checker::look(&sandbox.agent(AGENT)) }
    }
}

/// Returns the ids that a command has printed as complete lines.
pub fn acknowledged(ran: &Ran) -> BTreeSet<String> {
    let whole = ran.stdout.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
    let is_id = |line: &&str| ["msg_", "work_", "wait_", "timer_"].iter().any(|kind| line.starts_with(kind));
    whole.filter(is_id).map(str::to_owned).collect()
}

/// Returns the runs whose turn has a recorded end, in the run directory, archive or journal.
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

/// Returns, for each message, the runs whose turn has reached the end of its script, in order.
pub fn turns(sandbox: &Sandbox) -> BTreeMap<String, Vec<String>> {
    let mut turns: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in fs::read_to_string(sandbox.home().join("turns")).unwrap_or_default().lines() {
        let (id, run) = line.split_once(' ').unwrap();
        turns.entry(id.to_owned()).or_default().push(run.to_owned());
    }
    turns
}

/// Ticks once per hour until two ticks in a row find nothing to do, or the inbox has a backlog.
pub fn settle(case: &Case<'_>, sandbox: &Sandbox) {
    // The recovery of a turn kills the processes inside of the turn, also a tick of this test.
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
    case.must(false, sandbox, "30 ticks, and the agent still has work");
}

fn has_backlog(sandbox: &Sandbox) -> bool {
    let inbox = sandbox.agent(AGENT).join("inbox");
    let names = setup::names(&inbox);
    names.len() + names.iter().map(|name| setup::names(&inbox.join(name)).len()).sum::<usize>() > 100
}

/// Checks that no record is damaged or lost, and that no run has executed its turn twice.
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

/// Checks that a dead letter counts as an attention, and that any hook `on-attention` was called.
fn dead_letters_are_told(case: &Case<'_>, sandbox: &Sandbox, found: &Found) {
    let is_dead = |message: &Value| message["settlement"]["dead_letter"] == true;
    if !found.archived.values().any(|lines| lines.last().is_some_and(is_dead)) {
        return;
    }
    let agent = sandbox.json(["get", AGENT]);
    case.must(agent["attention"]["count"].as_u64() > Some(0), sandbox, format!("no mark: {agent}"));
    if sandbox.store().join("hooks/on-attention").exists() {
        case.must(sandbox.home().join("told").exists(), sandbox, "the hook `on-attention` was not called");
        let untold = agent["attention"]["newest"].as_array().into_iter().flatten();
        case.must(
            untold.clone().all(|one| one["pending"].is_null()),
            sandbox,
            "the hook is still to be called",
        );
    }
}

/// Checks that each action of an outcome file is done exactly once if its turn has completed, and
/// never otherwise. One action reaches the second agent.
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

/// True if a hint is pending or was admitted. Admitted hints leave no trace but the wake counter.
fn taken_in(found: &Found, id: &str) -> bool {
    let is_pending = found.state["pending_wake_hint"]["id"] == id;
    is_pending || found.state["counters"]["wakes"].as_u64().unwrap_or(0) > 0
}
