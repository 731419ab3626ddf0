//! In-memory store of the input that commands send to tasks that run on other machines.

use std::rc::Rc;

use uuid::Uuid;

use crate::error::Result;
use crate::model::id::TaskId;
use crate::model::record::Plane;

use super::super::Subject;
use super::super::backend::input::{InputAnswer, InputRemainder, MOST_PARTS, SAID, TaskInput, WAITING};
use super::MemoryAgent;

/// Part of the input of a task.
#[derive(Debug, Clone)]
pub struct InputPart {
    task: TaskId,
    number: i64,
    words: Uuid,
    is_taken: bool,
    is_refused: bool,
    bytes: Vec<u8>,
}

/// Stored parts of the input of all tasks.
#[derive(Debug, Default)]
pub struct InputParts {
    all: Vec<InputPart>,
    last: i64,
}

impl InputParts {
    /// Drops the input of an ended task that its supervisor has taken, and refuses the rest.
    pub fn end(&mut self, task: &str) {
        self.all.retain(|part| part.task.to_string() != task || !part.is_taken);
        self.all
            .iter_mut()
            .filter(|part| part.task.to_string() == task)
            .for_each(|part| part.is_refused = true);
    }
}

#[derive(Debug)]
pub struct MemoryInput {
    pub of: Rc<MemoryAgent>,
    pub task: TaskId,
}

impl MemoryInput {
    fn has_live_supervisor(&self) -> bool {
        let is_open = self.of.texts.borrow().is_open(Plane::Tasks, &self.task.to_string());
        let subject = Subject::Task(self.task);
        is_open && self.of.leases.borrow().iter().any(|(other, ..)| *other == subject)
    }

    fn each(&self, mut each: impl FnMut(&mut InputPart)) {
        let mut parts = self.of.input.borrow_mut();
        parts.all.iter_mut().filter(|part| part.task == self.task).for_each(&mut each);
    }
}

impl TaskInput for MemoryInput {
    fn append(&self, words: Uuid, bytes: &[u8]) -> Result<InputAnswer> {
        self.of.refuse_fenced()?;
        if !self.has_live_supervisor() {
            return Ok(InputAnswer::Ended);
        }
        let mut waiting = 0;
        self.each(|part| waiting += part.bytes.len());
        if waiting + bytes.len() > WAITING {
            return Ok(InputAnswer::Full);
        }
        let mut parts = self.of.input.borrow_mut();
        for bytes in bytes.chunks(SAID) {
            parts.last += 1;
            let (task, number, bytes) = (self.task, parts.last, bytes.to_vec());
            parts.all.push(InputPart { task, number, words, is_taken: false, is_refused: false, bytes });
        }
        Ok(InputAnswer::Waits)
    }

    fn rest(&self, words: Uuid) -> Result<InputRemainder> {
        let mut rest = InputRemainder { bytes: 0, is_refused: false, is_heard: self.has_live_supervisor() };
        self.each(|part| {
            if part.words == words {
                rest.bytes += part.bytes.len();
                rest.is_refused |= part.is_refused;
            }
        });
        Ok(rest)
    }

    fn take_back(&self, words: Uuid) -> Result<usize> {
        let mut left = 0;
        self.of.input.borrow_mut().all.retain(|part| {
            let goes = part.task == self.task && part.words == words && !part.is_taken;
            left += if goes { part.bytes.len() } else { 0 };
            !goes
        });
        Ok(left)
    }

    fn next_parts(&self, written: i64) -> Result<Vec<(i64, Vec<u8>)>> {
        self.of
            .input
            .borrow_mut()
            .all
            .retain(|part| part.task != self.task || !part.is_taken || part.number > written);
        let mut taken = Vec::new();
        self.each(|part| {
            if !part.is_refused && taken.len() < MOST_PARTS {
                part.is_taken = true;
                taken.push((part.number, part.bytes.clone()));
            }
        });
        Ok(taken)
    }

    fn refuse(&self) -> Result<()> {
        self.each(|part| part.is_refused |= !part.is_taken);
        Ok(())
    }
}
