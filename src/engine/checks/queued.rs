//! What waits in an inbox, as far as other records depend on it.

use std::collections::HashSet;

use crate::model::id::{MessageId, TaskId};
use crate::model::task::Task;
use crate::model::wait::Wait;
use crate::rules::waits::{Needed, needed};

/// What waits in an inbox.
pub struct Queued {
    pub messages: HashSet<MessageId>,
    /// The tasks that a queued message tells the end of.
    pub results: HashSet<TaskId>,
}

impl Queued {
    /// What is missing that alone could end an active wait.
    pub fn lacks(&self, wait: &Wait, tasks: &[Task]) -> Option<&'static str> {
        match needed(wait, tasks).filter(|_| wait.is_active())? {
            Needed::Answer(message) => {
                (!self.messages.contains(&message)).then_some("the message that it is bound to is gone")
            }
            Needed::Result(task, known) => {
                let is_there =
                    known.map_or_else(|| self.results.contains(&task), |id| self.messages.contains(&id));
                (!is_there).then_some("its task has ended, and no result of it is under way")
            }
        }
    }
}
