//! Preemption: a turn is asked to yield, saves what it needs, is suspended, and goes on; or it is forced.

mod checkpoints;
#[cfg(target_os = "linux")]
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

use serde_json::Value;

use crate::harness::{Ran, Sandbox, dormouse};
use crate::setup::{self, Beside, kill as signal, names, objects, record, say, started, step, take_noted};

/// What every turn here begins with. `$D` is the program under test; `note` tells the test something,
/// `come` waits for a file that it makes, and `outside` speaks as somebody who is in no turn.
const WORDS: &str = r#"
note() { echo "$*" >> "$HOME/noted"; }
come() { until test -e "$HOME/$1"; do sleep 0.01; done; }
up() { : > "$HOME/up"; }
outside() { env -u DORMOUSE_AGENT -u DORMOUSE_RUN "$D" "$@"; }
told() { if test -n "${DORMOUSE_CHECKPOINT-}"; then note "from $(cat "$DORMOUSE_CHECKPOINT")"; else note "from nothing"; fi; }
"#;

/// The started agent `ada`, whose turns do what `turns` says.
#[track_caller]
fn agent() -> Sandbox {
    started(r#". "$HOME/turn""#)
}

/// The same agent with a message.
#[track_caller]
fn with_message() -> Sandbox {
    let sandbox = agent();
    say(&sandbox, "hello");
    sandbox
}

/// From here on a turn runs this.
fn turns(sandbox: &Sandbox, script: &str) {
    let whole = format!("D={}\n{WORDS}\n{script}\n", dormouse().display());
    fs::write(sandbox.home().join("turn"), whole).unwrap();
}

/// One step in which a turn runs that does this.
#[track_caller]
fn turn(sandbox: &Sandbox, script: &str) -> Value {
    turns(sandbox, script);
    step(sandbox)
}

/// One step at a moment of its own.
#[track_caller]
fn step_at(sandbox: &Sandbox, now: &str) -> Value {
    let ran = sandbox.cmd(["tick", "ada", "--json"]).env("DORMOUSE_NOW", now).output();
    objects(&ran.stdout).pop().unwrap_or_else(|| panic!("{ran}"))
}

/// A tick that runs beside the test, from when its turn, which does this, has called `up`.
#[track_caller]
fn running(sandbox: &Sandbox, script: &str) -> Beside {
    turns(sandbox, script);
    Beside::start(sandbox.cmd(["tick", "ada", "--json"])).after_it_made(sandbox.home().join("up"))
}

/// Puts a hook into the directory of `ada`: shell with the same words.
fn hook(sandbox: &Sandbox, name: &str, script: &str) {
    setup::hook(&sandbox.agent("ada"), name, &format!("{WORDS}\n{script}"));
}

/// Tells a turn that it may go on from `come`.
fn go(sandbox: &Sandbox, name: &str) {
    fs::write(sandbox.home().join(name), "").unwrap();
}

/// The one object of a tick that ran beside the test.
#[track_caller]
fn ended(tick: Beside) -> Value {
    let ran = tick.end();
    objects(&ran.stdout).pop().unwrap_or_else(|| panic!("{ran}"))
}

/// An agent whose first run has been suspended, with this as its checkpoint.
#[track_caller]
fn suspended(checkpoint: &str) -> Sandbox {
    let sandbox = with_message();
    let step =
        turn(&sandbox, &format!("printf '{checkpoint}' | $D yield --allow-empty --checkpoint - >/dev/null"));
    assert_eq!(step["terminal"], "suspended", "{step}");
    sandbox
}

/// The id of the run that is current.
#[track_caller]
fn current_run(sandbox: &Sandbox) -> String {
    record(sandbox, "state.json")["current_run"]["run_id"].as_str().unwrap().to_owned()
}

/// The files in which a run has saved a checkpoint.
fn checkpoints_of(sandbox: &Sandbox, run: &str) -> Vec<PathBuf> {
    let dir = sandbox.agent("ada").join("runs").join(run);
    let saved = names(&dir).into_iter().filter(|name| name.starts_with("checkpoint"));
    saved.map(|name| dir.join(name)).collect()
}

/// The events of one kind.
fn events(sandbox: &Sandbox, kind: &str) -> Vec<Value> {
    sandbox.json_lines(["events", "ada"]).into_iter().filter(|event| event["kind"] == kind).collect()
}

/// That a command was refused for this.
#[track_caller]
fn refused(ran: &Ran, kind: &str) {
    // A reason without a word is wrong usage in every state.
    assert_eq!(ran.code(), if kind == "empty_reason" { 2 } else { 4 }, "{ran}");
    assert_eq!(crate::setup::failure(ran)["kind"], kind, "{ran}");
}
