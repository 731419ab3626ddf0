//! One agent's records: read without a lock, changed under one, whole or not at all.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::ffi::OsStr;
use std::path::Path;
use std::time::Instant;

use uuid::Uuid;

use crate::beneath::Spot;
use crate::error::{Error, Result};
use crate::model::agent::Identity;
use crate::model::bound::RECORD;
use crate::model::dedupe::DedupeEntry;
use crate::model::id::AgentName;
use crate::model::message::{InboxKey, Message, WakeHint};
use crate::model::policy::Policy;
use crate::model::state::State;
use crate::model::task::Task;
use crate::model::time::{Span, Time};
use crate::model::timer::Timer;
use crate::model::transaction::{Delete, Put, Transaction};
use crate::model::trigger::Trigger;
use crate::model::wait::Wait;
use crate::model::work::WorkItem;

use super::backlog::Filing;
use super::batch::Batch;
use super::files;
use super::journal::{self, Append, Found, Journal, Write};
use super::layout::{self, AgentDir};
use super::record::{decode, encode, encode_plain_line};
use super::view::View;
use super::{Store, archive, config, dedupe, inbox, lock, machine};

/// How many events may ride in `state.json` before they go to the ledger.
const RIDING_MAX: usize = 64;

/// How often a reader starts over at least because the records move on under it, however little
/// patience it has.
const READ_ATTEMPTS: u32 = 100;

/// The open records of an agent, but for its inbox.
#[derive(Debug, Clone)]
pub struct Open {
    pub state: State,
    pub works: Vec<WorkItem>,
    pub waits: Vec<Wait>,
    pub timers: Vec<Timer>,
    pub tasks: Vec<Task>,
}

/// Tells one `state.json` from the next: each is a file of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version {
    inode: u64,
    changed: (i64, u64),
}

/// An agent of an open store.
#[derive(Debug)]
pub struct Agent<'s> {
    pub(super) store: &'s Store,
    name: AgentName,
    pub(super) dir: AgentDir,
}

impl<'s> Agent<'s> {
    pub(super) fn new(store: &'s Store, name: AgentName, dir: AgentDir) -> Agent<'s> {
        Agent { store, name, dir }
    }

    pub fn name(&self) -> &AgentName {
        &self.name
    }

    pub fn dir(&self) -> &AgentDir {
        &self.dir
    }

    pub fn store(&self) -> &'s Store {
        self.store
    }

    pub fn policy(&self) -> Result<Policy> {
        config::policy(&self.dir.join(layout::POLICY), &self.store.config)
    }

    /// `agent.toml` as it is written.
    pub fn policy_text(&self) -> Result<String> {
        let path = self.dir.join(layout::POLICY);
        let bytes = path.read(config::MAX_SETTINGS)?.ok_or_else(|| missing(&path))?;
        config::utf8(&path, &bytes).map(str::to_owned)
    }

    pub fn identity(&self) -> Result<Identity> {
        let path = self.dir.join(layout::IDENTITY);
        let Some(bytes) = files::read(&path)? else { return Err(missing(&path)) };
        decode(&path, &bytes)
    }

    pub fn triggers(&self) -> Result<Vec<Trigger>> {
        View::settled(&self.dir).records(layout::TRIGGERS)
    }

    /// `state.json` as it is, without finishing an interrupted transaction: the one read of a step
    /// that finds nothing to do.
    pub fn peek(&self) -> Result<State> {
        let path = self.dir.join(layout::STATE);
        let Some(bytes) = files::read(&path)? else { return Err(missing(&path)) };
        let state: State = decode(&path, &bytes)?;
        self.check_owner(&state)?;
        Ok(state)
    }

    /// Which `state.json` it is, at the cost of a look. Nothing if there is none to be seen.
    pub fn version(&self) -> Option<Version> {
        let found = self.dir.join(layout::STATE).look().ok()??;
        Some(Version { inode: found.st_ino, changed: (found.st_mtime, found.st_mtime_nsec) })
    }

    /// Whether nothing has arrived that a step could take up, and no transaction was interrupted.
    pub fn is_quiet(&self, state: &State) -> Result<bool> {
        let no_journal = !self.dir.join(layout::JOURNAL).exists()?;
        Ok(no_journal && inbox::is_empty(&View::settled(&self.dir), &self.passed_over(state))?)
    }

    /// Reads without a lock whatever `read` takes from one revision: `state.json` first and again
    /// last, and once more from the start if it has moved on. Or is about to: of a transaction that is
    /// being carried out `state.json` changes after the other files.
    pub fn consistently<T>(&self, read: impl Fn(&View<'_>, State) -> Result<T>) -> Result<T> {
        let start = Instant::now();
        let mut attempts = 0;
        loop {
            let before = self.peek()?;
            let mut view = View::open(&self.dir)?;
            view.at_revision(before.revision);
            let revision = before.revision;
            let state = if view.has_journal() { self.state_in(&view)? } else { before };
            let found = read(&view, state);
            // In this order: a journal that is not there yet, or not any more, shows in the revision.
            if !view.is_overtaken_at(revision)? && self.peek()?.revision == revision {
                return found;
            }
            attempts += 1;
            let waited = start.elapsed();
            if attempts >= READ_ATTEMPTS && waited >= self.store.opener.patience {
                let holder = "a writer that never rests".to_owned();
                return Err(Error::busy(self.dir.join(layout::STATE).path(), holder, waited));
            }
        }
    }

    fn state_in(&self, view: &View<'_>) -> Result<State> {
        let state: State =
            view.record(layout::STATE)?.ok_or_else(|| missing(&self.dir.join(layout::STATE)))?;
        self.check_owner(&state)?;
        Ok(state)
    }

    fn check_owner(&self, state: &State) -> Result<()> {
        if state.agent == self.name {
            return Ok(());
        }
        let message =
            format!("the record of agent `{}` lies in the directory of `{}`", state.agent, self.name);
        Err(Error::damaged(self.dir.join(layout::STATE).path(), message))
    }

    /// Reads every open record but the inbox.
    pub fn open_records(&self, view: &View<'_>, state: State) -> Result<Open> {
        // The directory keeps the output of every task that there ever was: it isn't listed for nothing.
        let tasks = if state.open_tasks > 0 { view.records(layout::TASKS)? } else { Vec::new() };
        Ok(Open {
            works: view.records(layout::WORK)?,
            waits: view.records(layout::WAITS)?,
            timers: view.records(layout::TIMERS)?,
            tasks,
            state,
        })
    }

    /// Puts a message into the inbox: one new file, no lock. It is there for good when this returns.
    pub fn arrive(&self, message: &Message) -> Result<()> {
        self.put_arrival(&layout::message(message.key()), &encode(message))
    }

    /// The same for a wake hint.
    pub fn arrive_hint(&self, hint: &WakeHint) -> Result<()> {
        self.put_arrival(&layout::hint(hint.id), &encode(hint))
    }

    fn put_arrival(&self, path: &str, bytes: &[u8]) -> Result<()> {
        RECORD.check(bytes.len() as u64)?;
        let staged = self.staging(path.rsplit('/').next().unwrap_or(path));
        self.store.disk.replace_unlocked(&staged, &self.dir.join(path), bytes)
    }

    /// Begins to put many messages into the inbox. The name is one that nobody else has.
    pub fn batch(&self, name: Uuid) -> Result<Batch<'_>> {
        Batch::begin(self, self.store.disk, name)
    }

    /// Puts a file that is no record of its own in place, whole: a ledger without its broken lines.
    pub fn replace_file(&self, spot: &Spot, bytes: &[u8]) -> Result<()> {
        self.store.disk.replace(&self.dir.join(layout::TMP).join("replacement"), spot, bytes)
    }

    /// The message that a dedupe key stands for, if one was admitted under it within the window.
    /// Only for whoever holds the lock: the cache is made anew where it is missing.
    pub fn admitted_under(
        &self,
        view: &View<'_>,
        key: &str,
        now: Time,
        window: Span,
        revision: u64,
    ) -> Result<Option<DedupeEntry>> {
        dedupe::find(view, key, now, window, revision, self.store.disk)
    }

    /// Takes the agent's lock, and finishes a transaction that was interrupted.
    pub fn lock(&self, now: Time) -> Result<Locked<'_>> {
        let path = self.dir.join(layout::LOCK);
        self.locked(lock::acquire(&path, &self.store.holder(now), self.store.opener.patience)?)
    }

    /// The same for whoever can't wait. `None`: somebody else has it.
    pub fn try_lock(&self, now: Time) -> Result<Option<Locked<'_>>> {
        let held = lock::try_acquire(&self.dir.join(layout::LOCK), Some(&self.store.holder(now)))?;
        held.map(|held| self.locked(held)).transpose()
    }

    /// The same for whoever looks what is wrong: a transaction that can't be finished stays as it is.
    pub fn lock_damaged(&self, now: Time) -> Result<Locked<'_>> {
        let path = self.dir.join(layout::LOCK);
        let held = lock::acquire(&path, &self.store.holder(now), self.store.opener.patience)?;
        let locked = Locked::new(self, held);
        // Why not is found by whoever looks.
        let _ = locked.finish_journal();
        Ok(locked)
    }

    fn locked(&self, held: lock::Held) -> Result<Locked<'_>> {
        let locked = Locked::new(self, held);
        locked.finish_journal()?;
        Ok(locked)
    }
}

fn missing(path: &Path) -> Error {
    Error::Damaged {
        path: path.to_owned(),
        line: 0,
        column: 0,
        message: "missing: every agent has one".to_owned(),
        hint: Some("bring it back from git or a backup; nothing is made up in its place".to_owned()),
    }
}

/// An agent whose lock is held: the only way to change its records.
#[derive(Debug)]
pub struct Locked<'a> {
    pub agent: &'a Agent<'a>,
    /// The revision that was read under this lock.
    revision: Cell<Option<u64>>,
    /// The segments of the inbox, once they are known: only who holds the lock makes and removes any.
    segments: RefCell<Option<Vec<inbox::Segment>>>,
    _held: lock::Held,
}

impl<'a> Locked<'a> {
    fn new(agent: &'a Agent<'a>, held: lock::Held) -> Locked<'a> {
        Locked { agent, revision: Cell::new(None), segments: RefCell::default(), _held: held }
    }

    pub fn view(&self) -> View<'_> {
        View::settled(&self.agent.dir)
    }

    /// The current `state.json`.
    pub fn state(&self) -> Result<State> {
        let state = self.agent.peek()?;
        self.revision.set(Some(state.revision));
        Ok(state)
    }

    /// Files a long backlog, so that taking from it stays cheap.
    pub fn file_backlog(&self, scan: inbox::Scan) -> Result<inbox::Scan> {
        if !Filing::is_due(&scan) {
            return Ok(scan);
        }
        self.segments.replace(None);
        let view = self.view();
        let scan = Filing { view: &view, disk: self.agent.store.disk }.file(scan)?;
        self.segments.replace(Some(scan.segments.clone()));
        Ok(scan)
    }

    /// Puts what was the inbox before a step was killed into its place.
    pub fn finish_exchange(&self) -> Result<()> {
        Filing { view: &self.view(), disk: self.agent.store.disk }.finish()
    }

    /// Lists the inbox. One whose exchange was interrupted is put right first.
    pub fn scan(&self) -> Result<inbox::Scan> {
        let view = self.view();
        let mut scan = inbox::scan(&view)?;
        if scan.is_unfinished {
            self.finish_exchange()?;
            scan = inbox::scan(&view)?;
        }
        self.segments.replace(Some(scan.segments.clone()));
        Ok(scan)
    }

    /// Where a message lies, or is to lie.
    fn place(&self, key: InboxKey) -> Result<String> {
        let direct = layout::message(key);
        if self.view().exists(&direct)? {
            return Ok(direct);
        }
        if self.segments.borrow().is_none() {
            self.scan()?;
        }
        let found = inbox::find_in(&self.view(), self.segments.borrow().as_deref().unwrap_or_default(), key)?;
        Ok(found.unwrap_or(direct))
    }

    /// Finishes a transaction that was interrupted. Whoever takes the lock has done so.
    pub fn finish_journal(&self) -> Result<()> {
        let dir = &self.agent.dir;
        let journal = match Journal::find(dir)? {
            Found::Nothing => return Ok(()),
            Found::Foreign => return self.set_journal_aside("it was written on another machine"),
            Found::Ours(_) if self.agent.is_tracked(layout::JOURNAL) => {
                return self.set_journal_aside("git tracks it, so it came with a clone or goes into one");
            }
            Found::Ours(journal) => journal,
        };
        if journal.counts_at(self.agent.peek()?.revision) {
            // Whoever was killed may not have made its name durable; nothing of it may be that before.
            self.agent.store.disk.sync_dir(dir.spot())?;
            journal.apply(dir, self.agent.store.disk)
        } else {
            dir.join(layout::JOURNAL).remove()
        }
    }

    /// What a journal from elsewhere was about has happened there, or not at all.
    fn set_journal_aside(&self, why: &str) -> Result<()> {
        let dir = &self.agent.dir;
        let quarantine = dir.join(layout::QUARANTINE);
        quarantine.make_dirs()?;
        let place = files::free_place(&quarantine, OsStr::new(layout::JOURNAL))?;
        files::rename(&dir.join(layout::JOURNAL), &place)?;
        (self.agent.store.opener.tell)(&format!(
            "{}: the journal of an interrupted command is not applied, because {why}; it is now {}",
            self.agent.name,
            place.display()
        ));
        Ok(())
    }

    /// Commits a transaction, whole or not at all, and returns the state as it now is. One that was
    /// made from another revision is refused.
    pub fn commit(&self, transaction: Transaction) -> Result<State> {
        if self.revision.get() != Some(transaction.base_revision) {
            return Err(Error::Refused {
                kind: "stale_revision",
                message: format!(
                    "the records of `{}` have moved on from revision {}",
                    self.agent.name, transaction.base_revision
                ),
                hint: Some("try again".to_owned()),
            });
        }
        let mut state = transaction.state.clone();
        let dir = &self.agent.dir;
        let disk = self.agent.store.disk;
        let touches_state_alone =
            transaction.puts.is_empty() && transaction.deletes.is_empty() && transaction.archived.is_empty();
        if touches_state_alone && state.events.len() + transaction.events.len() <= RIDING_MAX {
            state.events.extend(transaction.events);
            disk.replace(
                &dir.join(layout::TMP).join(layout::STATE),
                &dir.join(layout::STATE),
                &encode(&state),
            )?;
        } else {
            let riding = std::mem::take(&mut state.events);
            let journal = self.journal(&transaction, &state, riding)?;
            journal.commit(dir, disk)?;
            journal.apply(dir, disk)?;
            for delete in &transaction.deletes {
                if let Delete::Checkpoint(checkpoint) = delete {
                    // A settled run of which nothing else was left has no directory any more.
                    let _ = dir.run_dir(checkpoint.run_id).remove_dir();
                }
            }
        }
        self.revision.set(Some(state.revision));
        Ok(state)
    }

    fn journal(
        &self,
        transaction: &Transaction,
        state: &State,
        riding: Vec<crate::model::event::Event>,
    ) -> Result<Journal> {
        let mut writes = Vec::with_capacity(transaction.puts.len() + 1);
        let mut written = HashSet::new();
        // A cache with one key would pass for the whole: where there is none, whoever looks for a key
        // makes it from the records, this one's among them.
        let has_cache = self.agent.dir.join(layout::DEDUPE).exists()?;
        // From the last: what changes twice in one transaction is written once, as it is in the end.
        for put in transaction.puts.iter().rev() {
            let is_forgotten = matches!(put, Put::Dedupe(entry)
                if !has_cache || dedupe::is_outdated(&self.view(), entry)?);
            if !is_forgotten {
                writes.extend(Some(self.write(put)?).filter(|write| written.insert(write.path.clone())));
            }
        }
        // Last, so that whoever reads in between finds the old revision beside what is new.
        writes.push(write(layout::STATE.to_owned(), encode(state)));
        let mut deletes = Vec::with_capacity(transaction.deletes.len());
        for delete in &transaction.deletes {
            deletes.extend(self.delete(*delete)?);
        }
        let mut lines: Vec<(String, Vec<u8>)> = Vec::new();
        let mut add = |path: String, line: Vec<u8>| match lines.iter_mut().find(|(other, _)| *other == path) {
            Some((_, lines)) => lines.extend_from_slice(&line),
            None => lines.push((path, line)),
        };
        for event in riding.iter().chain(&transaction.events) {
            add(layout::ledger(event.at), encode_plain_line(event));
        }
        for archived in &transaction.archived {
            let (path, line) = archive::line(archived);
            add(path, line);
        }
        let mut appends = Vec::with_capacity(lines.len());
        for (path, content) in lines {
            appends.push(self.append(path, content)?);
        }
        Ok(Journal {
            schema: journal::SCHEMA.to_owned(),
            machine: machine::id(),
            base_revision: transaction.base_revision,
            writes,
            appends,
            deletes,
        })
    }

    fn write(&self, put: &Put) -> Result<Write> {
        Ok(match put {
            Put::Message(message) => write(self.place(message.key())?, encode(message.as_ref())),
            Put::Work(item) => write(layout::work(item.id), encode(item.as_ref())),
            Put::Plan(id, text) => write(layout::plan(*id), text.clone().into_bytes()),
            Put::Wait(wait) => write(layout::wait(wait.id), encode(wait.as_ref())),
            Put::Timer(timer) => write(layout::timer(timer.id), encode(timer.as_ref())),
            Put::Task(task) => write(layout::task(task.id), encode(task.as_ref())),
            Put::Dedupe(entry) => write(dedupe::path(&entry.key, entry.admitted_at), encode(entry.as_ref())),
        })
    }

    fn delete(&self, delete: Delete) -> Result<Vec<String>> {
        Ok(match delete {
            Delete::Message(key) => vec![self.place(key)?],
            Delete::Hint(id) => vec![layout::hint(id)],
            Delete::Wait(id) => vec![layout::wait(id)],
            Delete::Work(id) => vec![layout::work(id), layout::plan(id)],
            Delete::Timer(id) => vec![layout::timer(id)],
            Delete::Task(id) => vec![layout::task(id)],
            Delete::Checkpoint(checkpoint) => vec![layout::checkpoint(checkpoint)],
        })
    }

    /// An append at the end of the file as it is now. A last line without its end (somebody edited
    /// the file) is ended first, so that no two lines become one.
    fn append(&self, path: String, content: Vec<u8>) -> Result<Append> {
        let full = self.agent.dir.join(&path);
        let (offset, ends_whole) = files::end_of(&full)?;
        let mut text = into_text(content);
        if !ends_whole {
            text.insert(0, '\n');
        }
        Ok(Append { path, offset, content: text })
    }
}

fn write(path: String, content: Vec<u8>) -> Write {
    Write { path, content: into_text(content) }
}

/// Encoded JSON is UTF-8; the fallback loses nothing that was ever there.
fn into_text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}
