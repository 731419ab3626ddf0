//! Input of a task's command, on its way from the machine of the sender to that of the supervisor.

use std::fmt::Debug;

use uuid::Uuid;

use crate::error::Result;

/// Maximum length of a part, in bytes.
#[cfg(any(test, feature = "postgres"))]
pub const SAID: usize = 16 << 10;

/// Maximum number of parts that a supervisor takes at once.
#[cfg(any(test, feature = "postgres"))]
pub const TAKEN: usize = 4;

/// Maximum number of bytes that wait for one task.
#[cfg(any(test, feature = "postgres"))]
pub const WAITING: usize = 16 << 20;

/// Input of one task, until its supervisor has taken it.
pub trait TaskInput: Debug {
    /// Adds input behind the earlier input, all or nothing, as long as the task is open and its
    /// supervisor lives. It is durable when this returns. `words` is its id from then on.
    fn say(&self, words: Uuid, bytes: &[u8]) -> Result<InputAnswer>;

    /// Returns the number of bytes that the supervisor has not taken, or has taken and not written.
    fn rest(&self, words: Uuid) -> Result<InputRemainder>;

    /// Takes back the input that the supervisor has not taken. Returns the number of bytes.
    fn take_back(&self, words: Uuid) -> Result<usize>;

    /// For the supervisor: returns the next parts in order, each with its number. Parts up to
    /// number `written` count as written. A part is returned until then, and to this supervisor
    /// alone. Does not wait for the server longer than a moment.
    fn hear(&self, written: i64) -> Result<Vec<(i64, Vec<u8>)>>;

    /// For the supervisor: refuses the waiting input, because the command no longer reads.
    fn refuse(&self) -> Result<()>;
}

/// Result of sending input.
#[cfg_attr(
    not(any(test, feature = "postgres")),
    expect(dead_code, reason = "no store whose tasks are told something elsewhere is built in")
)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputAnswer {
    Waits,
    /// The task has ended, or its lease has expired.
    Nobody,
    /// Too much waits already.
    Full,
}

/// Remainder of input that was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InputRemainder {
    pub bytes: usize,
    /// True if no supervisor will take it.
    pub is_refused: bool,
    /// The task is open, and its lease is alive.
    pub is_heard: bool,
}
