//! Input for the command of a task on another machine: sent by a command, received by the
//! supervisor.

use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::model::id::TaskId;
use crate::model::task::Task;
use crate::process::supervisor::TaskInputPipe;
use crate::process::turn::{Monitor, MonitorDecision};
use crate::store::Agent;
use crate::store::backend::input::{InputAnswer, TaskInput};

use super::context::Context;
use super::monitor::QUERY_PAUSE;

/// Pause of `send` between two checks if the supervisor has taken the input.
const POLL_PAUSE: Duration = Duration::from_millis(100);

/// Time that a supervisor gets to take input, in addition to the lock timeout, which is the time
/// for the command to read.
const INPUT_TIMEOUT: Duration = Duration::from_secs(5);

/// Pause of a supervisor between two queries for input, and maximum time of one round, after which
/// it checks its task again.
const SOON: Duration = Duration::from_millis(100);
const AT_A_TIME: Duration = Duration::from_millis(500);

/// Sends input to a task whose supervisor is on another machine, and waits until the supervisor has
/// taken it. Error when the supervisor does not take all; the rest is then withdrawn.
pub fn send(context: Context<'_>, task: &Task, bytes: &[u8]) -> Result<()> {
    let session = context.session;
    let Some(input) = context.agent.task_input(task.id)? else { return Ok(()) };
    let words = session.clock.stamp()?.mint();
    match input.append(words, bytes)? {
        InputAnswer::Waits => {}
        InputAnswer::Ended => return Err(refusal(task, "its supervisor is gone, or the task has ended")),
        InputAnswer::Full => return Err(refusal(task, "more than that waits for it already, or would")),
    }
    let until = Instant::now().checked_add(session.patience().as_std().saturating_add(INPUT_TIMEOUT));
    loop {
        let rest = input.rest(words)?;
        if rest.bytes == 0 {
            return Ok(());
        }
        let is_late = until.is_some_and(|until| Instant::now() >= until);
        if rest.is_refused || !rest.is_heard || is_late {
            let left = input.take_back(words)?;
            let taken = bytes.len().saturating_sub(left);
            return match (left, rest.is_heard) {
                // The supervisor has taken all input, even if the pipe to the command is full.
                (0, true) => Ok(()),
                (_, true) => {
                    Err(refusal(task, &format!("it took {taken} of {} bytes and no more", bytes.len())))
                }
                (_, false) => {
                    let why = format!(
                        "it ended, or its supervisor, when it had taken {taken} of {} bytes",
                        bytes.len()
                    );
                    Err(refusal(task, &why))
                }
            };
        }
        std::thread::sleep(POLL_PAUSE);
    }
}

/// Returns the error for input that the command of a task does not read.
pub fn refusal(task: &Task, why: &str) -> Error {
    Error::refused("nobody_listens", format!("{} on {}: {why}", task.id, task.host))
        .with_hint("`dormouse task status` shows whether it still runs")
}

/// Passes input from other machines to the command of a task. If the records are files, no other
/// machine can send input.
pub struct InputReceiver<'a> {
    input: TaskInputPipe,
    agent: &'a Agent<'a>,
    id: TaskId,
    /// Input from the database; the bytes before `at` are written to the pipe.
    taken: Vec<u8>,
    at: usize,
    /// Numbers of the last part of the input that was received, and of the last that was written.
    last: i64,
    written: i64,
    next: Instant,
}

impl<'a> InputReceiver<'a> {
    pub fn new(input: TaskInputPipe, agent: &'a Agent<'a>, id: TaskId) -> InputReceiver<'a> {
        InputReceiver {
            input,
            agent,
            id,
            taken: Vec::new(),
            at: 0,
            last: 0,
            written: 0,
            next: Instant::now(),
        }
    }

    /// Takes new input, as far as the command reads it. Returns the pause before the next round.
    fn receive(&mut self, input: &dyn TaskInput) -> Duration {
        let begun = Instant::now();
        let mut has_heard = false;
        while begun.elapsed() < AT_A_TIME {
            if !self.write() {
                return SOON;
            }
            let heard = if self.input.is_read() {
                input.next_parts(self.written)
            } else {
                input.refuse().map(|()| Vec::new())
            };
            match heard {
                Ok(parts) if !parts.is_empty() => {
                    has_heard = true;
                    self.last = parts.last().map_or(self.last, |(number, _)| *number);
                    self.at = 0;
                    self.taken = parts.into_iter().flat_map(|(_, bytes)| bytes).collect();
                }
                // An error is ignored, because the next round repeats the query.
                Ok(_) | Err(_) => return if has_heard { SOON } else { QUERY_PAUSE },
            }
        }
        SOON
    }

    /// Writes the received input to the command's pipe. Returns false if the pipe is full.
    fn write(&mut self) -> bool {
        // Input for a closed pipe is discarded, like input that nobody reads.
        if let Some(count) = self.input.write(&self.taken[self.at..]) {
            self.at += count;
            if self.at < self.taken.len() {
                return false;
            }
        }
        self.taken.clear();
        self.at = 0;
        self.written = self.last;
        true
    }
}

impl Monitor for InputReceiver<'_> {
    fn ask(&mut self) -> MonitorDecision {
        self.input.close_reader();
        let Ok(Some(input)) = self.agent.task_input(self.id) else {
            return MonitorDecision::Continue { next_check: None };
        };
        if Instant::now() >= self.next {
            self.next = Instant::now() + self.receive(&*input);
        }
        MonitorDecision::Continue { next_check: Some(self.next) }
    }
}
