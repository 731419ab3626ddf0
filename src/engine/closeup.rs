//! Detail view of one agent for `watch`: open records, last events, and the output of its turn.

use std::collections::{HashSet, VecDeque};
use std::os::fd::BorrowedFd;

use crate::error::Result;
use crate::model::id::{MessageId, RunId};
use crate::model::message::Message;
use crate::model::time::Time;
use crate::model::timer::Timer;
use crate::model::wait::Wait;
use crate::model::work::WorkItem;
use crate::report::dashboard::AgentDetail;
use crate::report::log;
use crate::store::{Agent, RecordWatch};

use super::summaries;
use super::tail::OutputTail;

/// Maximum number of records of a kind.
const SHOWN: usize = 20;

/// Maximum of earlier output that is read, in bytes, and of lines that are kept.
const SAID: u64 = 16 << 10;
const LINES: usize = 200;

/// Reads the detail view of one agent, without a lock.
pub fn close_up(agent: &Agent<'_>, now: Time) -> Result<AgentDetail> {
    let line = summaries::line(agent, None, now)?;
    agent.look(|seen, state| {
        let seen = seen.without_passed_over(&state);
        let claimed = state.current_run.as_ref().map(|run| run.message_id);
        let current = match claimed.map(|id| seen.waiting(id)).transpose()?.flatten() {
            Some(waiting) => seen.try_read(&waiting)?.and_then(std::result::Result::ok),
            None => None,
        };
        let mut queue = Vec::new();
        for waiting in seen.first(SHOWN)?.iter().filter(|waiting| Some(waiting.key.id) != claimed) {
            // Files that are no messages are counted with the rejected files.
            queue.extend(seen.try_read(waiting)?.and_then(std::result::Result::ok));
        }
        Ok(AgentDetail {
            line: line.clone(),
            execution: state.execution.clone(),
            run: state.current_run.as_ref().map(|run| run.run_id),
            current,
            last_turn: state.last_turn.clone(),
            queue,
            waits: seen.open::<Wait>()?,
            timers: seen.open::<Timer>()?,
            work: seen.open::<WorkItem>()?,
            events: seen.last_events(SHOWN, |event| log::words(event).is_some())?,
        })
    })
}

/// Returns the message that was dead-lettered last.
pub fn last_dead(agent: &Agent<'_>) -> Result<Option<MessageId>> {
    agent.look(|seen, state| {
        let (mut known, mut found) = (HashSet::new(), None);
        if state.counters.dead == 0 {
            return Ok(None);
        }
        seen.ended(|message: Message| {
            // The newest archive line of a message has its present state.
            let is_dead = message.settlement.as_ref().is_some_and(|end| end.dead_letter);
            found = Some(message.id).filter(|id| known.insert(*id) && is_dead);
            found.is_none()
        })?;
        Ok(found)
    })
}

/// Last output lines of a run.
pub struct LastOutput {
    run: RunId,
    tail: OutputTail,
    watch: RecordWatch,
    lines: VecDeque<String>,
}

impl LastOutput {
    pub fn of(agent: &Agent<'_>, run: RunId) -> LastOutput {
        let tail = OutputTail::of(agent, run, Some(SAID));
        LastOutput { run, tail, watch: RecordWatch::new(), lines: VecDeque::new() }
    }

    pub fn run(&self) -> RunId {
        self.run
    }

    /// Returns descriptors that are readable when the run has written more.
    pub fn readable(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.watch.readable()
    }

    /// True if the run has written more since the last call.
    pub fn has_news(&mut self) -> bool {
        self.watch.has_news()
    }

    /// Reads the output since the last call. `is_live`: the run may write more.
    pub fn look(&mut self, agent: &Agent<'_>, is_live: bool) -> Result<()> {
        if is_live {
            self.watch.follow_output(&agent.workdir().run(self.run));
        }
        for (_, line) in self.tail.news(!is_live)? {
            if self.lines.len() == LINES {
                self.lines.pop_front();
            }
            self.lines.push_back(line);
        }
        Ok(())
    }

    /// Returns the last lines, and those without a line end yet.
    pub fn lines(&self) -> impl DoubleEndedIterator<Item = &str> {
        let unfinished: Vec<&str> = self.tail.unfinished().collect();
        self.lines.iter().map(String::as_str).chain(unfinished)
    }
}
