//! The limits that the system sets: this process makes room for itself, and what it starts has none of that.

use std::sync::{Arc, OnceLock};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use signal_hook::consts::SIGXFSZ;

use super::signals::{ignored, is_in};

/// How many files this process could open when it was started.
static OPEN_FILES: OnceLock<Rlimit> = OnceLock::new();

/// Lets this process open as many files as it may, and see an error where a file would grow beyond what is
/// allowed, instead of being killed by SIGXFSZ. Called once, at the start.
pub fn make_room() {
    let found = getrlimit(Resource::Nofile);
    let widened = Rlimit { current: found.maximum, maximum: found.maximum };
    // With what can't be raised it goes on as it is: that costs nothing but room.
    if found.current != found.maximum && setrlimit(Resource::Nofile, widened).is_ok() {
        let _ = OPEN_FILES.set(found);
    }
    // Mostly there is no such limit, and no signal to come.
    if getrlimit(Resource::Fsize).current.is_some() && !is_in(ignored(), SIGXFSZ) {
        // With a handler a write fails; and a handler, unlike an ignored signal, is not handed on to children.
        let _ = signal_hook::flag::register(SIGXFSZ, Arc::default());
    }
}

/// How many files this process could open when it was started, where that is not how many it can open now.
pub fn open_files() -> Option<Rlimit> {
    OPEN_FILES.get().cloned()
}
