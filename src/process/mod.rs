//! Child processes, which only the files here start, watch and end; and what this process has of
//! its terminal.

#[cfg(target_os = "linux")]
pub mod alarm;
pub mod foreground;
pub mod git;
pub mod hook;
pub mod host;
pub mod jobs;
pub mod keys;
pub mod limits;
pub mod machine;
#[cfg(target_os = "linux")]
pub mod notify;
pub mod program;
pub mod remains;
pub mod screen;
pub mod supervisor;
pub mod turn;

mod kernel;
mod output;
mod patience;
pub mod signals;
mod spawn;
mod table;

use std::time::Duration;

use crate::beneath::Spot;
use crate::error::Result;
use crate::model::place::PlaceId;

pub use patience::{Patience, is_past};
pub use rustix::process::Signal;

/// The variable with the id of the task that a process supervises. A supervisor outlives the turn
/// that started it. The variable alone proves nothing: `table::supervises` asks for the task's
/// lock.
pub const SUPERVISOR: &str = "DORMOUSE_SUPERVISOR";
/// The variable with the id of a run. Everything that the run's turn starts has it.
pub const RUN: &str = "DORMOUSE_RUN";

/// The variable with the identity of the state directory from which a turn, a task or a hook was
/// started. Processes of another directory are never signalled.
pub const PLACE: &str = "DORMOUSE_PLACE";

/// The variable with the id of a background task. Everything that the task starts has it.
pub const TASK: &str = "DORMOUSE_TASK";
/// The variable with the fence of the lease under which a turn or task runs, where records are
/// shared by machines.
pub const FENCE: &str = "DORMOUSE_FENCE";
/// The variable with the name of a hook. Everything that the hook starts has it.
pub const HOOK: &str = "DORMOUSE_HOOK";
/// The variable with the path of a hook's scratch directory. Unlike the name, it belongs to one run
/// of the hook.
const HOOK_SCRATCH: &str = "DORMOUSE_HOOK_SCRATCH";

/// What a service manager has put into the environment of this process, and of no other
/// (sd_notify(3)).
pub const OF_MANAGER: [&str; 3] = ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"];

/// The signals that end a command, by their names.
pub const SIGNALS: &[(&str, Signal)] = &[
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

/// A signal that can end a command, by its name with or without `SIG`.
pub fn signal_named(name: &str) -> Option<Signal> {
    let upper = name.to_ascii_uppercase();
    let wanted = upper.strip_prefix("SIG").unwrap_or(&upper);
    SIGNALS.iter().find(|(name, _)| *name == wanted).map(|(_, signal)| *signal)
}

/// The variable by which the processes of one run, task or hook are found, whatever group they have
/// moved to.
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

/// The identity of the state directory beneath which `spot` lies.
fn place_of(spot: &Spot) -> Result<PlaceId> {
    let (device, inode) = spot.numbers_of_root()?;
    Ok(PlaceId { device, inode })
}

/// How long SIGKILL may take. A process that is still there then hangs in the kernel, mostly on a
/// dead network mount, or this user may not kill it.
const KILL_TAKES: Duration = Duration::from_secs(10);

/// A run id that no other test process has, because marked processes are searched for on the whole
/// machine.
#[cfg(test)]
fn run_id() -> String {
    format!("run_{}", std::process::id())
}

#[cfg(test)]
fn mark() -> Mark {
    Mark::run(run_id())
}
