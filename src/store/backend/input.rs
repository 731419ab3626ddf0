//! Input for a task's command, in transit from the sender's machine to the supervisor's machine.

use std::fmt::Debug;

use uuid::Uuid;

use crate::error::Result;

/// Maximum bytes of one part of a task's input.
#[cfg(any(test, feature = "postgres"))]
pub const SAID: usize = 16 << 10;

/// Maximum number of parts of a task's input that a supervisor takes at a time.
#[cfg(any(test, feature = "postgres"))]
pub const MOST_PARTS: usize = 4;

/// Maximum bytes of input that wait for one task.
#[cfg(any(test, feature = "postgres"))]
pub const WAITING: usize = 16 << 20;

/// Input of one task, until the task's supervisor has taken it.
pub trait TaskInput: Debug {
    /// Appends input, all or nothing, if the task is open and its supervisor lives. The input is
    /// durable when this returns. `words`: new id, by which the caller names this input later.
    fn append(&self, words: Uuid, bytes: &[u8]) -> Result<InputAnswer>;

    /// Returns the number of bytes of the input that the supervisor has not written yet.
    fn rest(&self, words: Uuid) -> Result<InputRemainder>;

    /// Takes back the part of the input that the supervisor has not taken. Returns its bytes.
    fn take_back(&self, words: Uuid) -> Result<usize>;

    /// For the supervisor: returns the next parts in order, each with its number. Parts up to
    /// number `written` count as written; later parts are returned in every call, to this
    /// supervisor alone. Waits only briefly for the server.
    fn next_parts(&self, written: i64) -> Result<Vec<(i64, Vec<u8>)>>;

    /// For the supervisor: refuses the waiting input, because the command no longer reads.
    fn refuse(&self) -> Result<()>;
}

/// Result of sending input to a task.
#[cfg_attr(
    not(any(test, feature = "postgres")),
    expect(dead_code, reason = "no store whose tasks are told something elsewhere is built in")
)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputAnswer {
    Waits,
    /// The task has ended, or its lease has expired.
    Ended,
    /// The input that waits already leaves no space.
    Full,
}

/// Part of sent input that was not written yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InputRemainder {
    pub bytes: usize,
    /// True if no supervisor will take the remaining bytes.
    pub is_refused: bool,
    /// True if the task is open and its lease is alive.
    pub is_heard: bool,
}
