//! Limits that the system sets: this process raises its own, and the commands that it starts get
//! the original ones.

use std::sync::{Arc, OnceLock};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use signal_hook::consts::SIGXFSZ;

use super::signals::{ignored, is_in};

/// Limit of open files that this process was started with.
static OPEN_FILES: OnceLock<Rlimit> = OnceLock::new();

/// Raises the limit of open files of this process as far as allowed, and makes a write beyond the
/// limit of file sizes fail with an error instead of killing the process by SIGXFSZ. Must be called
/// once, at the start.
pub fn make_room() {
    let found = getrlimit(Resource::Nofile);
    let widened = Rlimit { current: found.maximum, maximum: found.maximum };
    // If the limit can't be raised, the process runs with the lower one.
    if found.current != found.maximum && setrlimit(Resource::Nofile, widened).is_ok() {
        let _ = OPEN_FILES.set(found);
    }
    // Without such a limit the signal never comes.
    if getrlimit(Resource::Fsize).current.is_some() && !is_in(ignored(), SIGXFSZ) {
        // With a handler the write fails. Unlike an ignored signal, a handler is not passed on to
        // children.
        let _ = signal_hook::flag::register(SIGXFSZ, Arc::default());
    }
}

/// Returns the limit of open files that this process was started with, if it was changed.
pub fn open_files() -> Option<Rlimit> {
    OPEN_FILES.get().cloned()
}
