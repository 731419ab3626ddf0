//! Child processes: the only place that starts, watches and ends them.

pub mod foreground;
pub mod git;
pub mod hook;
pub mod host;
pub mod jobs;
pub mod limits;
pub mod remains;
pub mod supervisor;
pub mod turn;

mod kernel;
mod output;
mod patience;
pub mod signals;
mod spawn;
mod table;

use std::time::Duration;

pub use patience::Patience;
pub use rustix::process::Signal;

/// In the environment of a background task's supervisor, which outlives the turn that started it.
pub const SUPERVISOR: &str = "DORMOUSE_SUPERVISOR";
/// In the environment of everything that a turn starts, with the id of its run.
pub const RUN: &str = "DORMOUSE_RUN";

/// In the environment of everything that a background task starts, with its id.
pub const TASK: &str = "DORMOUSE_TASK";
/// In the environment of everything that a hook starts, with its name.
pub const HOOK: &str = "DORMOUSE_HOOK";
/// In the same, with what no other hook has: the path of its scratch directory.
const HOOK_SCRATCH: &str = "DORMOUSE_HOOK_SCRATCH";

/// A signal that can end a command, by its name with or without `SIG`.
pub fn signal_named(name: &str) -> Option<Signal> {
    let upper = name.to_ascii_uppercase();
    let signal = match upper.strip_prefix("SIG").unwrap_or(&upper) {
        "HUP" => Signal::HUP,
        "INT" => Signal::INT,
        "QUIT" => Signal::QUIT,
        "TERM" => Signal::TERM,
        "USR1" => Signal::USR1,
        "USR2" => Signal::USR2,
        "ALRM" => Signal::ALARM,
        "ABRT" => Signal::ABORT,
        "KILL" => Signal::KILL,
        _ => return None,
    };
    Some(signal)
}

/// What the processes of one run, task or hook carry in their environment, wherever they go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    name: &'static str,
    id: String,
}

impl Mark {
    pub fn run(id: impl ToString) -> Mark {
        Mark { name: RUN, id: id.to_string() }
    }

    pub fn task(id: impl ToString) -> Mark {
        Mark { name: TASK, id: id.to_string() }
    }

    pub fn hook(scratch: &std::path::Path) -> Mark {
        Mark { name: HOOK_SCRATCH, id: scratch.to_string_lossy().into_owned() }
    }
}

/// How long SIGKILL may take. A process that is still there then sits in the kernel, mostly on a
/// dead network mount, or isn't ours to kill.
const KILL_TAKES: Duration = Duration::from_secs(10);

/// A turn ends every child of its process, so tests that start children must not overlap.
#[cfg(test)]
fn alone() -> std::sync::MutexGuard<'static, ()> {
    static ONE_AT_A_TIME: std::sync::Mutex<()> = std::sync::Mutex::new(());
    ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Of this test process alone: a run of that id is looked for on the whole machine.
#[cfg(test)]
fn run_id() -> String {
    format!("run_{}", std::process::id())
}

#[cfg(test)]
fn mark() -> Mark {
    Mark::run(run_id())
}
