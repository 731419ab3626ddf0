//! Lock of the tests that start children, because only one at a time may.

use std::cell::Cell;
use std::sync::{Mutex, MutexGuard, PoisonError};

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

thread_local!(static IS_MINE: Cell<bool> = const { Cell::new(false) });

/// While this lives, other tests that start children wait.
pub struct Alone {
    /// `None` if the thread had the lock before, and releases it later.
    turn: Option<MutexGuard<'static, ()>>,
}

/// Waits for the other tests that start children, because a turn ends every child of the process
/// that runs it. Reentrant for one thread.
pub fn alone() -> Alone {
    if IS_MINE.replace(true) {
        return Alone { turn: None };
    }
    Alone { turn: Some(ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)) }
}

impl Drop for Alone {
    fn drop(&mut self) {
        IS_MINE.set(self.turn.is_none());
    }
}
