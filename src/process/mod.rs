//! Start, monitoring and end of child processes; terminal of this process.

pub mod alarm;
pub mod foreground;
pub mod git;
pub mod hook;
pub mod host;
pub mod jobs;
pub mod keys;
pub mod leftover;
pub mod notify;
pub mod program;
pub mod screen;
pub mod signals;
pub mod spawn;
pub mod supervisor;
pub mod turn;

mod output;
mod patience;
mod table;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub use patience::{Patience, is_past, wait_until};
pub use rustix::process::Signal;

/// Variable with the id of the task that a process supervises. A supervisor outlives the turn that
/// started it. The variable alone proves nothing, so `table::supervises` also checks that the
/// process holds the task's lock.
pub const SUPERVISOR: &str = "DORMOUSE_SUPERVISOR";
/// Variable with the id of a run. All processes of the run's turn inherit it.
pub const RUN: &str = "DORMOUSE_RUN";

/// Variable with the identity of the state directory from which a turn, task or hook was started.
/// This program never signals processes of another directory.
pub const PLACE: &str = "DORMOUSE_PLACE";

/// Variable with the id of a background task. All processes of the task inherit it.
pub const TASK: &str = "DORMOUSE_TASK";
/// Variable with the fencing token of the lease under which a turn or task runs, if several
/// machines share the records.
pub const FENCE: &str = "DORMOUSE_FENCE";
/// Variable with the name of a hook. All processes of the hook inherit it.
pub const HOOK: &str = "DORMOUSE_HOOK";
/// Variable with the path of a hook's scratch directory. Unlike the hook's name, the path
/// identifies one run of the hook.
const HOOK_SCRATCH: &str = "DORMOUSE_HOOK_SCRATCH";

/// Variables by which a service manager addresses only this process (sd_notify(3)).
pub const MANAGER_VARS: [&str; 3] = ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"];

/// Signals that may end a command, by name.
const SIGNALS: &[(&str, Signal)] = &[
    ("HUP", Signal::HUP),
    ("INT", Signal::INT),
    ("QUIT", Signal::QUIT),
    ("TERM", Signal::TERM),
    ("USR1", Signal::USR1),
    ("USR2", Signal::USR2),
    ("ALRM", Signal::ALARM),
    ("ABRT", Signal::ABORT),
    ("KILL", Signal::KILL),
];

/// Returns a signal that may end a command, by its name with or without `SIG`.
pub fn signal_named(name: &str) -> Option<Signal> {
    let upper = name.to_ascii_uppercase();
    let wanted = upper.strip_prefix("SIG").unwrap_or(&upper);
    SIGNALS.iter().find(|(name, _)| *name == wanted).map(|(_, signal)| *signal)
}

/// Variable that marks all processes of one run, task or hook, in any process group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessMark {
    name: &'static str,
    id: String,
}

impl ProcessMark {
    pub fn run(id: impl ToString) -> ProcessMark {
        ProcessMark { name: RUN, id: id.to_string() }
    }

    pub fn task(id: impl ToString) -> ProcessMark {
        ProcessMark { name: TASK, id: id.to_string() }
    }

    pub fn hook(scratch: &std::path::Path) -> ProcessMark {
        ProcessMark { name: HOOK_SCRATCH, id: scratch.to_string_lossy().into_owned() }
    }
}

/// Maximum time until SIGKILL takes effect. A process that exists longer is blocked in the kernel,
/// usually on a dead network mount, or this user may not kill it.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);
