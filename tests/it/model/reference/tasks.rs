//! Semantics §12: tasks.

use super::messages::{Maker, Message};
use super::{Born, Model, REFUSED, Tag, Word};

#[derive(Debug, Clone)]
pub struct Task {
    pub born: Born,
    pub tag: Tag,
    pub status: Word,
    pub notify: bool,
    pub work: Option<Tag>,
    pub hops: u32,
}

impl Task {
    pub fn is_open(&self) -> bool {
        self.status == "running"
    }
}

impl Model {
    pub fn start_task(&mut self, notify: bool, inside: bool) -> Result<Tag, i32> {
        if self.status == "stopped" {
            return Err(REFUSED);
        }
        let hops = self.hops(inside)?;
        let of_turn = self.run.as_ref().filter(|_| inside).and_then(|run| run.work.clone());
        let work = of_turn.filter(|tag| self.open().iter().any(|item| item.tag == *tag));
        let tag = self.name("task");
        let born = self.born();
        self.tasks.push(Task { born, tag: tag.clone(), status: "running", notify, work, hops });
        Ok(tag)
    }

    /// Ends a task and enqueues its result. The time of the result is that of the task's start,
    /// because the supervisor process keeps the `DORMOUSE_NOW` with which the task was started.
    pub fn end_task(&mut self, tag: &Tag, status: Word) {
        let found = self.tasks.iter_mut().find(|task| task.tag == *tag && task.is_open());
        let Some(task) = found else { return };
        task.status = status;
        let task = task.clone();
        let kind = if task.notify { "task_result" } else { "task_status" };
        let message = self.own_message(kind, 2, format!("{tag}: {status}"), Maker::Sender);
        self.queue.push(Message {
            born: (task.born.0, task.born.1 + 1),
            task: Some(task.tag),
            work: task.work,
            hops: task.hops,
            ..message
        });
    }

    pub fn end_tasks(&mut self) {
        let open: Vec<Tag> =
            self.tasks.iter().filter(|task| task.is_open()).map(|task| task.tag.clone()).collect();
        for tag in open {
            self.end_task(&tag, "cancelled");
        }
    }
}
