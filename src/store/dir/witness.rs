//! References of records to the directories of runs and tasks, in any store.

use std::collections::{HashMap, HashSet};

use uuid::Uuid;

use crate::error::Result;
use crate::model::id::{RunId, TaskId};
use crate::model::run::Run;
use crate::model::state::State;
use crate::model::task::Task;

use super::view::View;
use super::{evidence, inbox, layout};

/// Source of an agent's records for the question which runs and tasks they name.
pub trait ReferenceScan {
    fn open_tasks(&self) -> Result<HashSet<TaskId>>;

    /// The records of those of the runs that have ended.
    fn runs_among(&self, ids: &HashSet<RunId>) -> Result<HashMap<RunId, Run>>;

    /// The records of those of the tasks that have ended.
    fn tasks_among(&self, ids: &HashSet<TaskId>) -> Result<HashMap<TaskId, Task>>;

    /// Calls `each` with the texts of work items, waits, timers and tasks that are open, and of the
    /// messages in the inbox. Returns `false` if there are more messages than `most`; then these
    /// are left out.
    fn each_open(&self, most: usize, each: &mut dyn FnMut(&[u8])) -> Result<bool>;
}

impl ReferenceScan for View<'_> {
    fn open_tasks(&self) -> Result<HashSet<TaskId>> {
        let mut open = HashSet::new();
        self.agent.join(layout::TASKS).each_entry(|name, is_dir| {
            let name = std::str::from_utf8(name).ok().filter(|_| !is_dir);
            open.extend(name.and_then(|name| name.strip_suffix(".json")?.parse::<TaskId>().ok()));
            true
        })?;
        Ok(open)
    }

    fn runs_among(&self, ids: &HashSet<RunId>) -> Result<HashMap<RunId, Run>> {
        evidence::runs_among(self, ids)
    }

    fn tasks_among(&self, ids: &HashSet<TaskId>) -> Result<HashMap<TaskId, Task>> {
        evidence::tasks_among(self, ids)
    }

    fn each_open(&self, most: usize, each: &mut dyn FnMut(&[u8])) -> Result<bool> {
        for dir in [layout::WORK, layout::WAITS, layout::TIMERS, layout::TASKS] {
            for path in self.record_paths(dir)? {
                each(&self.bytes(&path)?.unwrap_or_default());
            }
        }
        let queued = inbox::first(self, &inbox::scan(self)?, most.saturating_add(1))?;
        if queued.len() > most {
            return Ok(false);
        }
        for (_, path) in queued {
            each(&self.bytes(&path)?.unwrap_or_default());
        }
        Ok(true)
    }
}

/// The runs and tasks that open records name, in whatever field: the state, work items, waits,
/// timers, tasks and what is in the inbox. `None`: there are more messages than `most`.
pub fn named(witness: &dyn ReferenceScan, state: &State, most: usize) -> Result<Option<HashSet<Uuid>>> {
    let mut named = HashSet::new();
    note_ids(&serde_json::to_vec(state).unwrap_or_default(), &mut named);
    let are_all = witness.each_open(most, &mut |text| note_ids(text, &mut named))?;
    Ok(are_all.then_some(named))
}

/// Notes every id of a run or a task that a text has in it.
fn note_ids(text: &[u8], named: &mut HashSet<Uuid>) {
    for prefix in [&b"run_"[..], b"task_"] {
        let found = text.windows(prefix.len()).enumerate().filter(|(_, window)| *window == prefix);
        named.extend(found.filter_map(|(at, _)| {
            let digits = text.get(at + prefix.len()..at + prefix.len() + 32)?;
            Uuid::try_parse_ascii(digits).ok()
        }));
    }
}
