//! What is said to the command of a task, on its way from the machine where it is said to the one
//! where the command runs.

use std::fmt::Debug;

use uuid::Uuid;

use crate::error::Result;

/// How many bytes a part has at most.
#[cfg(any(test, feature = "postgres"))]
pub const SAID: usize = 16 << 10;

/// How many parts a supervisor takes at once.
#[cfg(any(test, feature = "postgres"))]
pub const TAKEN: usize = 4;

/// How many bytes may wait for one task.
#[cfg(any(test, feature = "postgres"))]
pub const WAITING: usize = 16 << 20;

/// What is said to one task, until its supervisor has taken it.
pub trait TaskInput: Debug {
    /// Says this, behind whatever was said before, as long as the task is open and its supervisor
    /// lives: all of it or nothing. It is durable when this returns. `words` stands for it from
    /// then on.
    fn say(&self, words: Uuid, bytes: &[u8]) -> Result<Said>;

    /// How much of it the supervisor has not taken, or has taken and not written.
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

/// What has become of something that was to be said.
#[cfg_attr(
    not(any(test, feature = "postgres")),
    expect(dead_code, reason = "no store whose tasks are told something elsewhere is built in")
)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said {
    Waits,
    /// The task is over, or nobody keeps its lease alive.
    Nobody,
    /// Too much waits already.
    Full,
}

/// What is left of something that was said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rest {
    pub bytes: usize,
    /// Nobody will take it.
    pub is_refused: bool,
    /// The task is open, and somebody keeps its lease alive.
    pub is_heard: bool,
}
