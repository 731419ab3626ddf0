//! Changes of open records. Each changes the working copy and writes the record.

use crate::model::id::{TaskId, TimerId, TriggerId, WaitId};
use crate::model::task::Task;
use crate::model::timer::Timer;
use crate::model::transaction::Put;
use crate::model::trigger::Trigger;
use crate::model::wait::Wait;

use super::draft::Draft;

/// Defines a method that changes an open record, writes it and returns it; `None` if no open record
/// has the id.
macro_rules! change {
    ($name:ident: $records:ident, $id:ty, $record:ident) => {
        impl Draft {
            pub fn $name(&mut self, id: $id, change: impl FnOnce(&mut $record)) -> Option<$record> {
                let record = self.records.$records.iter_mut().find(|record| record.id == id)?;
                change(record);
                let record = record.clone();
                self.put(Put::$record(Box::new(record.clone())));
                Some(record)
            }
        }
    };
}

change!(change_wait: waits, WaitId, Wait);
change!(change_timer: timers, TimerId, Timer);
change!(change_task: tasks, TaskId, Task);
change!(change_trigger: triggers, TriggerId, Trigger);
