//! Lock for tests that start child processes: only one such test may run at a time.

use std::cell::Cell;
use std::sync::{Mutex, MutexGuard, PoisonError};

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

thread_local!(static IS_MINE: Cell<bool> = const { Cell::new(false) });

/// Guard that makes other tests that start child processes wait until its drop.
pub struct Alone {
    /// `None` if an earlier guard of this thread already holds the lock.
    turn: Option<MutexGuard<'static, ()>>,
}

/// Waits for the other tests that start child processes, because a turn ends every child of the
/// process that runs it. A thread that has a guard does not wait.
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
