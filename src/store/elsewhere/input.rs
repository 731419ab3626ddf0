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
    /// Says this, behind whatever was said before, as long as the task is open and its supervisor
    /// lives: all of it or nothing. It is durable when this returns. `words` stands for it from
    /// then on.
    fn say(&self, words: Uuid, bytes: &[u8]) -> Result<Said>;

    /// Returns the number of bytes that the supervisor has not taken, or has taken and not written.
    fn rest(&self, words: Uuid) -> Result<Rest>;

    /// Takes back what the supervisor has not taken. Returns how many bytes that were.
    fn take_back(&self, words: Uuid) -> Result<usize>;

    /// For the supervisor: the next parts, in the order in which they were said, each with its
    /// number. What has a number up to `written` is written. A part is given until then, and to
    /// nobody else. Waits for no answer longer than a moment.
    fn hear(&self, written: i64) -> Result<Vec<(i64, Vec<u8>)>>;

    /// For the supervisor: the command does not read any more, so nothing that waits will be taken.
    fn refuse(&self) -> Result<()>;
}

/// Result of sending input.
#[cfg_attr(
    not(any(test, feature = "postgres")),
    expect(dead_code, reason = "no store whose tasks are told something elsewhere is built in")
)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said {
    Waits,
    /// The task has ended, or its lease has expired.
    Nobody,
    /// Too much waits already.
    Full,
}

/// Remainder of input that was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rest {
    pub bytes: usize,
    /// Nobody will take it.
    pub is_refused: bool,
    /// The task is open, and its lease is alive.
    pub is_heard: bool,
}
