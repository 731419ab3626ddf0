//! Tests preemption: a turn is asked to yield, saves a checkpoint, is suspended and later resumed,
//! or is ended by force.

mod checkpoints;
mod crash;
mod ending;
mod forced;
mod hooks;
mod interjections;
mod outside;
mod rounds;
mod safe_points;
mod sections;

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::harness::{Ran, Sandbox, dormouse};
use crate::setup::{
    self, Beside, add, assert_includes, edit_file, extend_policy, kill as signal, names, objects, record,
    say, started, step, take_noted,
};

/// Shell functions that every turn here begins with. `$D` is the program under test; `note` writes
/// a line for the test, `come` waits for a file in `$HOME` that the test makes, `up` makes the file
/// for which `running` waits, `outside` runs a command as the operator, and `told` notes the
/// checkpoint.
const WORDS: &str = r#"
note() { echo "$*" >> "$HOME/noted"; }
come() { until test -e "$HOME/$1"; do sleep 0.01; done; }
up() { : > "$HOME/up"; }
outside() { env -u DORMOUSE_AGENT -u DORMOUSE_RUN "$D" "$@"; }
told() { if test -n "${DORMOUSE_CHECKPOINT-}"; then note "from $(cat "$DORMOUSE_CHECKPOINT")"; else note "from nothing"; fi; }
"#;

/// Command of a turn in which the operator asks that turn to yield within a day.
const ASK: &str = "outside preempt ada --reason urgent --grace 1d >/dev/null";

/// Returns a sandbox with the started agent `ada`, whose turns run the script of [`turns`].
#[track_caller]
fn agent() -> Sandbox {
    started(r#". "$HOME/turn""#)
}

/// Returns a sandbox with the started agent `ada`, which has one queued message.
#[track_caller]
fn with_message() -> Sandbox {
    let sandbox = agent();
    say(&sandbox, "hello");
    sandbox
}

/// Replaces the script that turns run.
fn turns(sandbox: &Sandbox, script: &str) {
    let whole = format!("D={}\n{WORDS}\n{script}\n", dormouse().display());
    fs::write(sandbox.home().join("turn"), whole).unwrap();
}

/// Runs one step whose turn runs `script`, and returns the object of the step.
#[track_caller]
fn turn(sandbox: &Sandbox, script: &str) -> Value {
    turns(sandbox, script);
    step(sandbox)
}

/// Runs one step with the clock at `now`.
#[track_caller]
fn step_at(sandbox: &Sandbox, now: &str) -> Value {
    let ran = sandbox.cmd(["tick", "ada", "--json"]).env("DORMOUSE_NOW", now).output();
    objects(&ran.stdout).pop().unwrap_or_else(|| panic!("{ran}"))
}

/// Starts a tick whose turn runs `script`. Returns once the script has made the file `up`.
#[track_caller]
fn running(sandbox: &Sandbox, script: &str) -> Beside {
    turns(sandbox, script);
    Beside::start(sandbox.cmd(["tick", "ada", "--json"])).after_it_made(sandbox.home().join("up"))
}

/// Puts a hook into the directory of `ada`: a shell script with the functions of [`WORDS`].
fn hook(sandbox: &Sandbox, name: &str, script: &str) {
    setup::hook(&sandbox.agent("ada"), name, &format!("{WORDS}\n{script}"));
}

/// Makes a file in `$HOME` for which the script of a turn waits.
fn go(sandbox: &Sandbox, name: &str) {
    fs::write(sandbox.home().join(name), "").unwrap();
}

/// Waits for the end of a tick, and returns the object of its step.
#[track_caller]
fn ended(tick: Beside) -> Value {
    let ran = tick.end();
    objects(&ran.stdout).pop().unwrap_or_else(|| panic!("{ran}"))
}

/// Returns an agent whose first run is suspended with this checkpoint.
#[track_caller]
fn suspended(checkpoint: &str) -> Sandbox {
    let sandbox = with_message();
    let step = turn(&sandbox, &format!("printf '{checkpoint}' | $D yield --checkpoint - >/dev/null"));
    assert_eq!(step["terminal"], "suspended", "{step}");
    sandbox
}

/// Makes `bob` run a turn that occupies the workspace that `ada` needs too, until `go(…, "bob may
/// go")`.
#[track_caller]
fn occupied(sandbox: &Sandbox) -> Beside {
    add(sandbox, "bob", r#": > "$HOME/bob"; until test -e "$HOME/bob may go"; do sleep 0.01; done"#);
    for agent in ["ada", "bob"] {
        extend_policy(sandbox, agent, "\n[workspace]\npath = \".\"\nmode = \"exclusive\"\n");
    }
    sandbox.run(["enqueue", "bob", "hold it"]);
    Beside::start(sandbox.cmd(["tick", "bob"])).after_it_made(sandbox.home().join("bob"))
}

/// Changes the timeout of the turns of `ada`.
fn set_timeout(sandbox: &Sandbox, timeout: &str) {
    let policy = sandbox.agent("ada").join("agent.toml");
    edit_file(&policy, |text| text.replace("\"30m\"", &format!("\"{timeout}\"")));
}

/// Returns the id of the current run.
#[track_caller]
fn current_run(sandbox: &Sandbox) -> String {
    record(sandbox, "state.json")["current_run"]["run_id"].as_str().unwrap().to_owned()
}

/// Returns the paths of the checkpoints that a run has saved.
fn checkpoints_of(sandbox: &Sandbox, run: &str) -> Vec<PathBuf> {
    let dir = sandbox.agent("ada").join("runs").join(run);
    let saved = names(&dir).into_iter().filter(|name| name.starts_with("checkpoint"));
    saved.map(|name| dir.join(name)).collect()
}

/// Returns the checkpoints of all runs.
fn all_checkpoints(sandbox: &Sandbox) -> Vec<String> {
    let runs = names(&sandbox.agent("ada").join("runs"));
    let paths = runs.iter().flat_map(|run| checkpoints_of(sandbox, run));
    paths.map(|path| fs::read_to_string(path).unwrap()).collect()
}

/// Runs the next turn, which must complete and be given this checkpoint, and the turn of another
/// message, which must get none.
#[track_caller]
fn continues_from(sandbox: &Sandbox, checkpoint: &str, attempt: u32) {
    take_noted(sandbox);
    let stepped = turn(sandbox, "told");
    assert_includes(&stepped, json!({ "terminal": "completed", "attempt": attempt }));
    assert_eq!(take_noted(sandbox), [format!("from {checkpoint}")]);
    assert_eq!(all_checkpoints(sandbox), Vec::<String>::new(), "a completed message has no checkpoint");
    say(sandbox, "another");
    turn(sandbox, "told");
    assert_eq!(take_noted(sandbox), ["from nothing"], "the checkpoint belongs to one message");
}

/// Returns the text of a file in `$HOME`.
#[track_caller]
fn text_of(sandbox: &Sandbox, name: &str) -> String {
    fs::read_to_string(sandbox.home().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Returns the objects in a file in `$HOME`, one a line.
#[track_caller]
fn answers(sandbox: &Sandbox, name: &str) -> Vec<Value> {
    objects(&text_of(sandbox, name))
}

/// Returns the events of one kind.
fn events(sandbox: &Sandbox, kind: &str) -> Vec<Value> {
    sandbox.json_lines(["events", "ada"]).into_iter().filter(|event| event["kind"] == kind).collect()
}

/// Asserts that a command was refused with this kind of failure.
#[track_caller]
fn refused(ran: &Ran, kind: &str) {
    // An empty reason is wrong usage, whatever state the agent is in.
    assert_eq!(ran.code(), if kind == "empty_reason" { 2 } else { 4 }, "{ran}");
    assert_eq!(crate::setup::failure(ran)["kind"], kind, "{ran}");
}
