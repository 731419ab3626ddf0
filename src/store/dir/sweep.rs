//! Deletes expired directories of runs and of tasks. The records of these runs and tasks remain in
//! the archive.
//!
//! A step that leaves the agent idle checks a bounded number of directories, about once a day; `gc`
//! checks all. Directories of runs and tasks named in a record that has not ended stay.

use std::collections::{HashMap, HashSet};
use std::fmt::Display;
use std::hash::Hash;
use std::rc::Rc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::cap_fs::CapPath;
use crate::error::Result;
use crate::local::files::{self, Disk};
use crate::local::workdir::CHECKPOINT;
use crate::local::{LocalAgent, layout, lock};
use crate::model::id::{RunId, TaskId, minted_at};
use crate::model::json;
use crate::model::record::{Plane, Record};
use crate::model::retention::{Keep, Retention};
use crate::model::run::Run;
use crate::model::settings::Durability;
use crate::model::state::State;
use crate::model::task::Task;
use crate::model::time::{Span, Time};

use super::super::backend::ReadView;
use super::evidence::{self, last_versions};
use super::record::encode_plain_line;

/// Maximum number of run and task directories that one step measures, and that it removes.
const AT_ONCE: usize = 256;

/// Maximum pause between two steps that delete an agent's expired directories.
const DAY: Span = Span::from_secs(24 * 3600);

/// Expired directories that were removed, or that would be removed in a dry run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Swept {
    /// Number of directories of runs.
    pub runs: usize,
    /// Number of directories of tasks.
    pub tasks: usize,
    /// Total size of the run and task directories, in bytes.
    pub bytes: u64,
}

/// Progress of the daily deletion of expired run and task directories. If the file of this progress
/// is lost, the sizes of all directories are measured again.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Progress {
    /// Time from which a step deletes expired directories again.
    next_at: Option<Time>,
    /// Newest run or task whose directory size is in `bytes`. Ids of both sort together by time.
    measured: Option<RunId>,
    /// Total size of the measured directories, in bytes.
    bytes: u64,
    /// Newest run or task that is retained, although older than the shortest retention period.
    kept: Option<RunId>,
}

impl Progress {
    fn of(cap: &CapPath) -> Progress {
        let bytes = files::read(cap).ok().flatten().unwrap_or_default();
        json::read(&bytes).unwrap_or_default()
    }
}

/// Directory of an ended run or task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Item {
    Run(RunId),
    Task(TaskId),
}

impl Item {
    /// Returns the id of the run or task, which sorts by creation time.
    fn uuid(self) -> Uuid {
        match self {
            Item::Run(RunId(uuid)) | Item::Task(TaskId(uuid)) => uuid,
        }
    }

    /// Returns the id as a run id, so that runs and tasks are compared by creation time.
    fn place(self) -> RunId {
        RunId(self.uuid())
    }

    fn dir(self, agent: &LocalAgent<'_>) -> CapPath {
        match self {
            Item::Run(id) => agent.run(id).cap,
            Item::Task(id) => agent.task(id).cap,
        }
    }
}

/// Parameters of a deletion of expired directories.
#[derive(Debug, Clone, Copy)]
pub struct Sweeping {
    /// Retention periods, and maximum total size of the directories.
    pub retention: Retention,
    pub now: Time,
    /// True if expired directories are removed; otherwise they are only counted.
    pub removes: bool,
    /// True if the caller holds the agent's lease: then no tick uses the directory of a settled
    /// run, and temporary files in it can be removed.
    pub is_leased: bool,
}

impl LocalAgent<'_> {
    /// Removes a bounded number of expired directories, about once a day: called by a step that
    /// leaves the agent idle and holds its lock and lease. `read`: reads the records and the state.
    pub(in crate::store) fn sweep_some<'v>(
        &self,
        retention: Retention,
        now: Time,
        read: impl FnOnce() -> Result<(Rc<dyn ReadView + 'v>, State)>,
    ) -> Result<()> {
        let progress = Progress::of(&self.dir.join(layout::SWEEP));
        // A time more than a day ahead was set by a wrong clock and is ignored.
        if progress.next_at.is_some_and(|at| now < at && at <= now.after(DAY)) {
            return Ok(());
        }
        let how = Sweeping { retention, now, removes: true, is_leased: true };
        let (view, state) = read()?;
        let swept = Sweep::new(self, (&*view, &state), how, AT_ONCE, progress).run();
        if swept.is_err() {
            // The error would probably recur at every step, so the next attempt is in a day.
            let progress = Progress { next_at: Some(now.after(DAY)), ..Progress::default() };
            note(self, &progress)?;
        }
        swept.map(drop)
    }

    /// Removes or counts all expired directories of runs and tasks. Removal needs the agent's lock.
    pub(in crate::store) fn sweep_all(
        &self,
        view: &dyn ReadView,
        state: &State,
        how: Sweeping,
    ) -> Result<Swept> {
        Sweep::new(self, (view, state), how, usize::MAX, Progress::default()).run()
    }

    /// Makes the next step that leaves the agent idle look for directories to delete.
    pub fn sweep_soon(&self) -> Result<()> {
        self.dir.join(layout::SWEEP).remove()
    }
}

/// Returns the ids of runs and tasks in the state, in work items, waits, timers and tasks that have
/// not ended, and in queued messages. `None` if the inbox has more than `most` messages.
pub fn named(view: &dyn ReadView, state: &State, most: usize) -> Result<Option<HashSet<Uuid>>> {
    let mut named = HashSet::new();
    note_ids(&serde_json::to_vec(state).unwrap_or_default(), &mut named);
    for plane in [Plane::Work, Plane::Waits, Plane::Timers, Plane::Tasks] {
        view.open(plane)?.iter().for_each(|(_, text)| note_ids(text.as_bytes(), &mut named));
    }
    let keys = view.messages(most.saturating_add(1))?;
    if keys.len() > most {
        return Ok(None);
    }
    view.texts(&keys, &mut |_, text| {
        note_ids(text.as_bytes(), &mut named);
        Ok(())
    })?;
    Ok(Some(named))
}

/// Adds every id of a run or a task in a text to `named`.
fn note_ids(text: &[u8], named: &mut HashSet<Uuid>) {
    for prefix in [&b"run_"[..], b"task_"] {
        let found = text.windows(prefix.len()).enumerate().filter(|(_, window)| *window == prefix);
        named.extend(found.filter_map(|(at, _)| {
            let digits = text.get(at + prefix.len()..at + prefix.len() + 32)?;
            Uuid::try_parse_ascii(digits).ok()
        }));
    }
}

struct Sweep<'a> {
    agent: &'a LocalAgent<'a>,
    view: &'a dyn ReadView,
    state: &'a State,
    how: Sweeping,
    /// Maximum number of directories to measure, of directories to remove, and of messages to read.
    most: usize,
    progress: Progress,
    swept: Swept,
    /// Ids of runs and tasks in records that have not ended, once these were read; the inner `None`
    /// means too many messages to read.
    named: Option<Option<HashSet<Uuid>>>,
    is_noted: bool,
}

impl<'a> Sweep<'a> {
    fn new(
        agent: &'a LocalAgent<'a>,
        (view, state): (&'a dyn ReadView, &'a State),
        how: Sweeping,
        most: usize,
        progress: Progress,
    ) -> Sweep<'a> {
        let swept = Swept::default();
        Sweep { agent, view, state, how, most, progress, swept, named: None, is_noted: false }
    }

    fn run(mut self) -> Result<Swept> {
        let items = self.items()?;
        let mut left = self.measure(&items)?;
        let known: Vec<Item> =
            items.into_iter().filter(|item| Some(item.place()) <= self.progress.measured).collect();
        let over = self.over(&known)?;
        left |= over.len() >= self.most;
        for item in &over {
            self.remove(*item)?;
        }
        if self.progress.bytes > self.how.retention.output.0 {
            left |= self.make_room(known.iter().filter(|item| !over.contains(item)))?;
        }
        if self.how.removes {
            let Retention { runs, failed_runs, tasks, .. } = self.how.retention;
            let shortest = runs.shorter(failed_runs).shorter(tasks).0.unwrap_or(DAY);
            let pause = if left { Span::ZERO } else { shortest.min(DAY) };
            self.progress.next_at = Some(self.how.now.after(pause));
            note(self.agent, &self.progress)?;
        }
        Ok(self.swept)
    }

    /// Returns the directories of ended runs and tasks, oldest first.
    fn items(&self) -> Result<Vec<Item>> {
        let current = self.state.current_run.as_ref().map(|run| run.run_id);
        let runs = evidence::run_dirs(&self.agent.dir)?.into_iter().filter(|id| Some(*id) != current);
        let mut items: Vec<Item> = runs.map(Item::Run).collect();
        let mut tasks = Vec::new();
        self.agent.dir.join(layout::TASKS).each_entry(|name, is_dir| {
            let name = std::str::from_utf8(name).unwrap_or_default();
            tasks.extend(name.parse::<TaskId>().ok().filter(|_| is_dir));
            true
        })?;
        let open = if tasks.is_empty() { Vec::new() } else { self.view.open_ids(Plane::Tasks)? };
        items.extend(tasks.into_iter().filter(|id| !open.contains(&id.to_string())).map(Item::Task));
        items.sort_by_key(|item| item.uuid());
        Ok(items)
    }

    /// Measures directories that were not measured before, and removes temporary files of killed
    /// commands in them, under the agent's lease. Returns true if more are left to measure.
    fn measure(&mut self, items: &[Item]) -> Result<bool> {
        let new = items.iter().filter(|item| Some(item.place()) > self.progress.measured);
        let mut new: Vec<Item> = new.copied().collect();
        let left = new.len() > self.most;
        new.truncate(self.most);
        if self.how.removes && self.how.is_leased {
            self.clear(&new)?;
        }
        for item in new {
            self.progress.bytes += size(&item.dir(self.agent))?;
            self.progress.measured = Some(item.place());
        }
        Ok(left)
    }

    /// Removes leftover temporary files from the directories of settled runs.
    fn clear(&self, items: &[Item]) -> Result<()> {
        let mut uncleared = Vec::new();
        for item in items {
            if let Item::Run(id) = item
                && self.agent.run(*id).is_uncleared()?
            {
                uncleared.push(*id);
            }
        }
        for run in self.last_versions(&uncleared, |run: Run| (run.id, run))?.values() {
            self.agent.run(run.id).clear(run, self.how.retention.keeps_context(run.terminal))?;
        }
        Ok(())
    }

    fn last_versions<T: Record, Id>(&self, ids: &[Id], of: impl Fn(T) -> (Id, T)) -> Result<HashMap<Id, T>>
    where
        Id: Eq + Hash + Display,
    {
        last_versions(self.view, &self.agent.dir.join(layout::ARCHIVE), ids, of)
    }

    /// Returns directories past their retention period, at most `most` of them.
    fn over(&mut self, known: &[Item]) -> Result<Vec<Item>> {
        let Sweeping { retention, now, .. } = self.how;
        let Retention { runs, failed_runs, tasks, archive, .. } = retention;
        let mut candidates = Vec::new();
        for item in known {
            let (short, long) = match item {
                Item::Run(_) => (runs.shorter(failed_runs), runs.longer(failed_runs)),
                Item::Task(_) => (tasks, tasks),
            };
            let (short, long) = (short.shorter(archive), long.shorter(archive));
            let is_past = |keep: Keep| minted_at(item.uuid()).is_some_and(|made| keep.is_past(made, now));
            let is_known = Some(item.place()) <= self.progress.kept;
            if is_past(long) || is_past(short) && !is_known {
                candidates.push((*item, is_past(long)));
            }
            if candidates.len() >= self.most {
                break;
            }
        }
        let (mut of_runs, mut of_tasks) = (Vec::new(), Vec::new());
        for (item, _) in &candidates {
            match item {
                Item::Run(id) => of_runs.push(*id),
                Item::Task(id) => of_tasks.push(*id),
            }
        }
        let runs = self.last_versions(&of_runs, |run: Run| (run.id, run))?;
        let tasks = self.last_versions(&of_tasks, |task: Task| (task.id, task))?;
        let mut over = Vec::new();
        for (item, is_old) in candidates {
            let keep_since = match item {
                Item::Run(id) => runs.get(&id).map(|run| (retention.of_run(run.terminal), run.ended_at)),
                Item::Task(id) => {
                    tasks.get(&id).map(|task| (retention.tasks, task.ended_at.unwrap_or(task.created_at)))
                }
            };
            // A run or task without a record is deleted after the longest retention period.
            let is_over = keep_since
                .map_or(is_old, |(keep, since)| keep.shorter(retention.archive).is_past(since, now));
            if is_over && !self.is_named(item)? {
                over.push(item);
            } else if !is_over {
                self.progress.kept = self.progress.kept.max(Some(item.place()));
            }
        }
        Ok(over)
    }

    /// Removes the oldest directories until their total size is within the limit for turn output.
    /// Returns true if the size exceeds the limit after the maximum number of removals.
    fn make_room<'i>(&mut self, items: impl Iterator<Item = &'i Item>) -> Result<bool> {
        let mut removed = 0;
        for item in items {
            if self.progress.bytes <= self.how.retention.output.0 {
                return Ok(false);
            }
            if removed >= self.most {
                return Ok(true);
            }
            if !self.is_named(*item)? {
                self.remove(*item)?;
                removed += 1;
            }
        }
        Ok(false)
    }

    fn remove(&mut self, item: Item) -> Result<()> {
        let dir = item.dir(self.agent);
        let bytes = size(&dir)?;
        if !self.how.removes || self.take_away(item, &dir)? {
            self.progress.bytes = self.progress.bytes.saturating_sub(bytes);
            self.swept.bytes += bytes;
            match item {
                Item::Run(_) => self.swept.runs += 1,
                Item::Task(_) => self.swept.tasks += 1,
            }
        }
        Ok(())
    }

    fn take_away(&mut self, item: Item, dir: &CapPath) -> Result<bool> {
        if !self.is_noted {
            // If the command is killed during the removal, the recorded total size is wrong. So the
            // record is deleted first, and the next step measures all directories again.
            self.agent.sweep_soon()?;
            self.is_noted = true;
        }
        let Item::Task(id) = item else { return dir.remove_tree().map(|()| true) };
        // No command needs the lock file of an ended task. A lock that a process still holds delays
        // the removal of the task's directory.
        let cap = self.agent.dir.join(layout::task_lock(id));
        let file = cap.open_file()?;
        let is_free = file.as_ref().map_or(Ok(true), |(file, _)| lock::try_hold(file, cap.path()))?;
        if is_free {
            dir.remove_tree()?;
            cap.remove()?;
        }
        Ok(is_free)
    }

    /// True if a record that has not ended may need the directory of the run or task.
    fn is_named(&mut self, item: Item) -> Result<bool> {
        if self.named.is_none() {
            self.named = Some(named(self.view, self.state, self.most)?);
        }
        let named = self.named.iter().flatten().next();
        if named.is_none_or(|named| named.contains(&item.uuid())) {
            return Ok(true);
        }
        // The requeue of a dead letter needs the run's checkpoint, so a directory with one stays.
        Ok(self.state.counters.dead > 0 && has_checkpoint(&item.dir(self.agent))?)
    }
}

fn note(agent: &LocalAgent<'_>, progress: &Progress) -> Result<()> {
    let disk = Disk::new(Durability::Process);
    disk.replace(&agent.tmp().join("sweep"), &agent.dir.join(layout::SWEEP), &encode_plain_line(progress))
}

/// Total bytes of a directory, over all kinds of files.
fn size(dir: &CapPath) -> Result<u64> {
    let mut bytes = 0;
    for entry in dir.entries()? {
        let cap = dir.join(&entry.name);
        bytes += if entry.is_dir {
            size(&cap)?
        } else {
            cap.look()?.map_or(0, |found| u64::try_from(found.st_size).unwrap_or(0))
        };
    }
    Ok(bytes)
}

fn has_checkpoint(dir: &CapPath) -> Result<bool> {
    let mut has_any = false;
    dir.each_entry(|name, _| {
        has_any |= name.starts_with(CHECKPOINT.as_bytes());
        !has_any
    })?;
    Ok(has_any)
}
