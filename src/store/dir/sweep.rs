//! Deletes expired directories of runs and of tasks. Their records remain in the archive.
//!
//! A step that leaves the agent idle checks a bounded number of them, about once a day; `gc` checks
//! all. A run or task that an open record names is never deleted.

use std::collections::{HashMap, HashSet};
use std::fmt::Display;
use std::hash::Hash;
use std::rc::Rc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::cap_fs::CapPath;
use crate::error::Result;
use crate::model::id::{RunId, TaskId, minted_at};
use crate::model::json;
use crate::model::record::{Plane, Record};
use crate::model::retention::{Keep, Retention};
use crate::model::run::Run;
use crate::model::settings::Durability;
use crate::model::state::State;
use crate::model::task::Task;
use crate::model::time::{Span, Time};
use crate::workdir::CHECKPOINT;

use super::super::backend::ReadView;
use super::evidence::{self, last_versions};
use super::files::{self, Disk};
use super::record::encode_plain_line;
use super::{DirAgent, DirTxn, layout, lock};

/// Maximum number of directories that one step checks, and of those that it removes.
const AT_ONCE: usize = 256;

/// Minimum time between the sweeps of steps.
const DAY: Span = Span::from_secs(24 * 3600);

/// Result of a sweep, or of its dry run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Swept {
    /// Number of directories of runs.
    pub runs: usize,
    /// Number of directories of tasks.
    pub tasks: usize,
    /// Total size of the removed directories.
    pub bytes: u64,
}

/// Progress of the last sweep of a step. If the file is lost, everything is measured again.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Progress {
    /// Time of the next sweep.
    next_at: Option<Time>,
    /// Last directory that was measured, of runs and of tasks, whose ids share one order.
    measured: Option<RunId>,
    /// Total size of the measured directories, in bytes.
    bytes: u64,
    /// Last directory that was checked and is past only the shorter retention period of its kind.
    kept: Option<RunId>,
}

impl Progress {
    fn of(cap: &CapPath) -> Progress {
        let bytes = files::read(cap).ok().flatten().unwrap_or_default();
        json::read(&bytes).unwrap_or_default()
    }
}

/// Directory of a run or a task that is not open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Item {
    Run(RunId),
    Task(TaskId),
}

impl Item {
    /// Returns the id, which sorts by time in both cases.
    fn uuid(self) -> Uuid {
        match self {
            Item::Run(RunId(uuid)) | Item::Task(TaskId(uuid)) => uuid,
        }
    }

    /// Returns the position in the common order of runs and tasks.
    fn place(self) -> RunId {
        RunId(self.uuid())
    }

    fn dir(self, agent: &DirAgent<'_>) -> CapPath {
        match self {
            Item::Run(id) => agent.workdir().run(id).cap_path().clone(),
            Item::Task(id) => agent.workdir().task(id).cap_path().clone(),
        }
    }
}

/// Parameters of a sweep.
#[derive(Debug, Clone, Copy)]
pub struct Sweeping {
    /// Retention periods.
    pub retention: Retention,
    pub now: Time,
    /// True if expired directories are removed; otherwise they are only counted.
    pub removes: bool,
    /// True if the caller holds the agent's lease: then no tick works in the directory of a settled
    /// run.
    pub is_leased: bool,
}

impl DirTxn<'_> {
    /// Removes a bounded number of expired directories, if a sweep is due: called by a step that
    /// leaves the agent idle and holds the lease. `read`: reads the records and the state.
    pub(in crate::store) fn sweep_some<'v>(
        &self,
        retention: Retention,
        now: Time,
        read: impl FnOnce() -> Result<(Rc<dyn ReadView + 'v>, State)>,
    ) -> Result<()> {
        let agent = self.agent;
        let progress = Progress::of(&agent.dir.join(layout::SWEEP));
        // A time too far ahead was set by a wrong clock.
        if progress.next_at.is_some_and(|at| now < at && at <= now.after(DAY)) {
            return Ok(());
        }
        let how = Sweeping { retention, now, removes: true, is_leased: true };
        let (view, state) = read()?;
        let swept = Sweep::new(agent, (&*view, &state), how, AT_ONCE, progress).run();
        if swept.is_err() {
            // Every step of today would meet this error again, so the next attempt is tomorrow.
            let progress = Progress { next_at: Some(now.after(DAY)), ..Progress::default() };
            note(agent, &progress)?;
        }
        swept.map(drop)
    }
}

impl DirAgent<'_> {
    /// Sweeps all directories at once. The caller must hold the lock to remove anything.
    pub(in crate::store) fn sweep_all(
        &self,
        view: &dyn ReadView,
        state: &State,
        how: Sweeping,
    ) -> Result<Swept> {
        Sweep::new(self, (view, state), how, usize::MAX, Progress::default()).run()
    }

    /// Makes the next step that leaves the agent idle sweep, because a run has left large files.
    pub fn sweep_soon(&self) -> Result<()> {
        self.dir.join(layout::SWEEP).remove()
    }
}

/// Returns the ids of runs and tasks that open records contain in any field: the state, work items,
/// waits, timers, tasks and messages in the inbox. `None` if there are more than `most` messages.
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
    agent: &'a DirAgent<'a>,
    view: &'a dyn ReadView,
    state: &'a State,
    how: Sweeping,
    /// Maximum number of directories that are checked, and of those that are removed.
    most: usize,
    progress: Progress,
    swept: Swept,
    /// Ids that open records contain, once they were read; the inner `None` means too many records
    /// to read.
    named: Option<Option<HashSet<Uuid>>>,
    is_noted: bool,
}

impl<'a> Sweep<'a> {
    fn new(
        agent: &'a DirAgent<'a>,
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

    /// Measures new directories, and clears directories that a killed command has not cleared.
    /// Returns true if more are left.
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

    /// Clears the directories of settled runs that no command has cleared yet.
    fn clear(&self, items: &[Item]) -> Result<()> {
        let mut uncleared = Vec::new();
        for item in items {
            if let Item::Run(id) = item
                && self.agent.workdir().run(*id).is_uncleared()?
            {
                uncleared.push(*id);
            }
        }
        for run in self.last_versions(&uncleared, |run: Run| (run.id, run))?.values() {
            self.agent.workdir().run(run.id).clear(run, self.how.retention.keeps_context(run.terminal))?;
        }
        Ok(())
    }

    fn last_versions<T: Record, Id>(&self, ids: &[Id], of: impl Fn(T) -> (Id, T)) -> Result<HashMap<Id, T>>
    where
        Id: Eq + Hash + Display,
    {
        last_versions(self.view, &self.agent.dir.join(layout::ARCHIVE), ids, of)
    }

    /// Returns directories past their retention, at most as many as are removed at once.
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

    /// Removes the oldest directories until the rest is within the limit. Returns true if more have
    /// to be removed.
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
            // If the command is killed from here on, more is removed than was recorded, and the
            // next sweep measures everything again.
            self.agent.sweep_soon()?;
            self.is_noted = true;
        }
        let Item::Task(id) = item else { return dir.remove_tree().map(|()| true) };
        // No command needs the lock file of an ended task. It stays if a process holds it all the
        // same.
        let cap = self.agent.dir.join(layout::task_lock(id));
        let file = cap.open_file()?;
        let is_free = file.as_ref().map_or(Ok(true), |(file, _)| lock::try_hold(file, cap.path()))?;
        if is_free {
            dir.remove_tree()?;
            cap.remove()?;
        }
        Ok(is_free)
    }

    /// True if an open record names the run or task.
    fn is_named(&mut self, item: Item) -> Result<bool> {
        if self.named.is_none() {
            self.named = Some(named(self.view, self.state, self.most)?);
        }
        let named = self.named.iter().flatten().next();
        if named.is_none_or(|named| named.contains(&item.uuid())) {
            return Ok(true);
        }
        // The requeue of a dead letter needs the run's checkpoint.
        Ok(self.state.counters.dead > 0 && has_checkpoint(&item.dir(self.agent))?)
    }
}

fn note(agent: &DirAgent<'_>, progress: &Progress) -> Result<()> {
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
