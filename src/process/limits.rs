//! Limits of the system: this process raises its own, and the commands that it starts get the
//! original limits.

use std::sync::{Arc, OnceLock};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use signal_hook::consts::SIGXFSZ;

use super::signals::{ignored, is_in};

/// Limit of open files that this process was started with.
static OPEN_FILES: OnceLock<Rlimit> = OnceLock::new();

/// Raises the limit of open files of this process as far as allowed. Makes a write beyond the limit
/// of file sizes fail with an error instead of a kill by SIGXFSZ. Must be called once, at the
/// start.
pub fn raise_limits() {
    let found = getrlimit(Resource::Nofile);
    let widened = Rlimit { current: found.maximum, maximum: found.maximum };
    // On an error, the process runs with the original limit.
    if found.current != found.maximum && setrlimit(Resource::Nofile, widened).is_ok() {
        let _ = OPEN_FILES.set(found);
    }
    // Without a limit of file sizes, the system never sends SIGXFSZ.
    if getrlimit(Resource::Fsize).current.is_some() && !is_in(ignored(), SIGXFSZ) {
        // With a handler, the write fails. Unlike an ignored signal, children do not inherit the
        // handler.
        let _ = signal_hook::flag::register(SIGXFSZ, Arc::default());
    }
}

/// Returns the limit of open files at the start of this process, if `make_room` has raised it.
pub fn open_files() -> Option<Rlimit> {
    OPEN_FILES.get().cloned()
}
