//! Transactions on the records of one agent under its lock, each applied as a whole or not at all.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::ffi::OsStr;
use std::rc::Rc;

use crate::beneath::Version;
use crate::error::{Error, Result};
use crate::model::message::{InboxKey, Message};
use crate::model::state::State;
use crate::model::task::Task;
use crate::model::time::{Span, Time};
use crate::model::timer::Timer;
use crate::model::transaction::{Delete, Put, Transaction};
use crate::model::trigger::Trigger;
use crate::model::wait::Wait;
use crate::model::work::WorkItem;

use super::agent::DirAgent;
use super::backlog::Filing;
use super::changes::{Append, Write};
use super::journal::{self, Encoded, FoundJournal, Journal, JournalEntry, UnfinishedJournal};
use super::record::{encode, encode_plain_line};
use super::snapshot::DirReadView;
use super::view::View;
use super::{archive, dedupe, files, inbox, keys, layout, lock, machine};

const TRACKED: &str = "git tracks it, so it came with a clone or goes into one";

/// Agent whose lock is held: the only way to change its records.
#[derive(Debug)]
pub struct DirTxn<'a> {
    pub(super) agent: &'a DirAgent<'a>,
    /// Revision that was read under this lock, and the version of its `state.json`.
    base: Cell<Option<(u64, Version)>>,
    /// Segments of the inbox, once they are listed. Only a process that holds the lock makes and
    /// removes segments.
    segments: RefCell<Option<Vec<inbox::Segment>>>,
    /// Last listing of the inbox, with the changes that were committed since.
    inbox: RefCell<Option<Rc<inbox::Scan>>>,
    /// True if the next view caches the open records that are read.
    caches: Cell<bool>,
    journal: RefCell<JournalPlace>,
    pub(super) held: lock::LockGuard,
}

/// State of the journal file, whose lines are all applied.
#[derive(Debug)]
enum JournalPlace {
    /// The journal was not read yet, or a write to it has failed.
    Unknown,
    Nothing,
    Blank,
    Open(Journal),
}

impl<'a> DirTxn<'a> {
    pub(super) fn new(agent: &'a DirAgent<'a>, held: lock::LockGuard) -> DirTxn<'a> {
        DirTxn {
            agent,
            base: Cell::new(None),
            segments: RefCell::default(),
            inbox: RefCell::default(),
            caches: Cell::new(false),
            journal: RefCell::new(JournalPlace::Unknown),
            held,
        }
    }

    pub(super) fn view(&self) -> View<'_> {
        View::settled(&self.agent.dir)
    }

    /// Lists the inbox again, without these names. `is_step`: files a long backlog first, so that
    /// taking messages from it stays cheap, and makes the next view cache the open records.
    pub(in crate::store) fn list_inbox(&self, passed_over: Vec<String>, is_step: bool) -> Result<()> {
        let mut scan = self.scan()?;
        scan.pass_over(passed_over);
        if is_step {
            scan = self.file_backlog(scan)?;
            self.caches.set(true);
        }
        self.inbox.replace(Some(Rc::new(scan)));
        Ok(())
    }

    /// Returns a view of the current records.
    pub(in crate::store) fn now(&self) -> DirReadView<'_> {
        let view = self.view();
        let view = if self.caches.take() { view.remembering(self.agent.store.disk) } else { view };
        DirReadView::under(self, view)
    }

    /// Returns the last listing of the inbox, with the changes that were committed since. Lists the
    /// inbox at the first call.
    pub(super) fn listed(&self) -> Result<Rc<inbox::Scan>> {
        if self.inbox.borrow().is_none() {
            self.inbox.replace(Some(Rc::new(self.scan()?)));
        }
        Ok(self.inbox.borrow().clone().unwrap_or_default())
    }

    /// Removes the dedupe keys that are older than the window.
    pub(in crate::store) fn forget_old_keys(&self, now: Time, window: Span) -> Result<()> {
        dedupe::forget_old_days(&self.view(), now, window)
    }

    /// Replaces `agent.toml` by these settings.
    pub(in crate::store) fn replace_policy(&self, settings: &str) -> Result<()> {
        self.agent.replace_file(&self.agent.dir.join(layout::POLICY), settings.as_bytes())?;
        self.agent.store.share([&self.agent.dir]).map(drop)
    }

    /// Reads the current `state.json`, even of an agent that was moved away.
    pub(in crate::store) fn any_state(&self) -> Result<State> {
        let found = self.agent.state_file()?;
        let state = self.agent.state_of(found.as_ref())?;
        self.base.set(found.map(|found| (state.revision, found.stamp.version())));
        Ok(state)
    }

    fn file_backlog(&self, scan: inbox::Scan) -> Result<inbox::Scan> {
        if !Filing::is_due(&scan) {
            return Ok(scan);
        }
        // Journal entries have the paths of messages, and filing changes these paths.
        self.empty_journal()?;
        self.segments.replace(None);
        let view = self.view();
        let scan = Filing { view: &view, disk: self.agent.store.disk }.file(scan)?;
        self.segments.replace(Some(scan.segments.clone()));
        Ok(scan)
    }

    /// Finishes an interrupted exchange of the inbox: makes the former inbox a bucket in the new
    /// inbox.
    pub(super) fn finish_exchange(&self) -> Result<()> {
        self.empty_journal()?;
        Filing { view: &self.view(), disk: self.agent.store.disk }.finish()
    }

    /// Lists the inbox, after finishing an exchange of the inbox that was interrupted.
    pub(super) fn scan(&self) -> Result<inbox::Scan> {
        let view = self.view();
        let mut scan = inbox::scan(&view)?;
        if scan.is_unfinished {
            self.finish_exchange()?;
            scan = inbox::scan(&view)?;
        }
        self.segments.replace(Some(scan.segments.clone()));
        Ok(scan)
    }

    /// Returns the current path of a message, or its future path if the message is new.
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

    /// Applies the committed transactions of interrupted commands. Every process that takes the
    /// lock calls this first.
    pub(in crate::store) fn finish_journal(&self) -> Result<()> {
        self.journal.replace(JournalPlace::Unknown);
        let place = match Journal::look(&self.agent.dir, true)? {
            FoundJournal::Nothing => JournalPlace::Nothing,
            FoundJournal::Blank => JournalPlace::Blank,
            FoundJournal::Applied(journal) => JournalPlace::Open(journal),
            FoundJournal::Open(found) => self.finish(found)?,
        };
        self.journal.replace(place);
        Ok(())
    }

    fn finish(&self, found: UnfinishedJournal) -> Result<JournalPlace> {
        let dir = &self.agent.dir;
        if let Some(why) = self.why_not(&found)? {
            self.set_journal_aside(why)?;
            return Ok(JournalPlace::Nothing);
        }
        if found.is_torn {
            found.journal.trim()?;
        }
        if found.entries().next().is_none() {
            return Ok(JournalPlace::Open(found.journal));
        }
        found.check_paths()?;
        let disk = self.agent.store.disk;
        // All lines must be durable before a file that a line changes is durable.
        found.journal.sync_again(disk)?;
        journal::changes(found.entries()).apply(dir, disk)?;
        let mut journal = found.journal;
        self.empty(&mut journal)?;
        Ok(JournalPlace::Open(journal))
    }

    /// Returns the reason not to apply a journal, or `None` if it is to be applied.
    fn why_not(&self, found: &UnfinishedJournal) -> Result<Option<&'static str>> {
        if found.is_of_another_machine() {
            return Ok(Some("it was written on another machine"));
        }
        if found.entries().next().is_none() {
            return Ok(None);
        }
        if self.agent.is_tracked(layout::JOURNAL) {
            return Ok(Some(TRACKED));
        }
        let state = self.agent.state_file()?;
        let goes_on = found.goes_on_from(&self.agent.dir.join(layout::STATE), state.as_ref())?;
        Ok((!goes_on).then_some("the records were put back to others since"))
    }

    /// Quarantines a journal that must not be applied, and prints the reason for the user.
    fn set_journal_aside(&self, why: &str) -> Result<()> {
        let dir = &self.agent.dir;
        let quarantine = dir.join(layout::QUARANTINE);
        quarantine.make_dirs()?;
        let place = files::free_place(&quarantine, OsStr::new(layout::JOURNAL))?;
        files::rename(&dir.join(layout::JOURNAL), &place)?;
        (self.agent.store.opener.tell)(&format!(
            "{}: the journal of an interrupted command is not applied, because {why}; it is now {}",
            self.agent.name(),
            place.display()
        ));
        Ok(())
    }

    /// Syncs all committed changes and empties the journal. Must be called before a file named in
    /// the journal is changed in any other way, because after a power cut the journal would undo
    /// that change.
    pub(in crate::store) fn empty_journal(&self) -> Result<()> {
        if matches!(*self.journal.borrow(), JournalPlace::Unknown) {
            self.finish_journal()?;
        }
        let mut place = self.journal.replace(JournalPlace::Unknown);
        if let JournalPlace::Open(journal) = &mut place
            && !journal.is_blank()
        {
            self.empty(journal)?;
        }
        self.journal.replace(place);
        Ok(())
    }

    fn empty(&self, journal: &mut Journal) -> Result<()> {
        let disk = self.agent.store.disk;
        if let Err(error) = disk.sync_file_system(self.agent.dir.spot()) {
            // The kernel takes pages that it failed to write for clean, so the next command must
            // apply all lines again.
            let _ = journal.doubt();
            return Err(error);
        }
        journal.cut(disk)
    }

    /// Commits a transaction as a whole or not at all, and returns the new state. Refused if the
    /// transaction was made from another revision.
    ///
    /// After an error it is unknown if the transaction was committed, so nothing more is committed
    /// under this lock.
    pub(in crate::store) fn commit(&self, transaction: Transaction) -> Result<State> {
        let base = self.base.take().filter(|(revision, _)| *revision == transaction.base_revision);
        let Some((_, over)) = base else {
            return Err(Error::refused(
                "stale_revision",
                format!(
                    "the records of `{}` have moved on from revision {}",
                    self.agent.name(),
                    transaction.base_revision
                ),
            )
            .with_hint("try again"));
        };
        let mut state = transaction.state.clone();
        let mut entry = self.entry(&transaction, &mut state, over)?;
        self.carry_out(&mut entry, state.revision, state.is_at_rest())?;
        self.note_in_inbox(&transaction, &entry);
        Ok(state)
    }

    /// Replaces records, `state.json` among them, by those of another clone, all or none.
    pub(super) fn replace(
        &self,
        writes: Vec<Write>,
        appends: Vec<Append>,
        deletes: Vec<String>,
    ) -> Result<()> {
        let Some(found) = self.agent.state_file()? else { return Ok(()) };
        let mut entry = JournalEntry {
            schema: journal::SCHEMA.to_owned(),
            machine: machine::id().map(str::to_owned),
            base_revision: self.agent.state_of(Some(&found))?.revision,
            over: Some(found.stamp.version()),
            writes,
            appends,
            deletes,
            number: 0,
        };
        self.carry_out(&mut entry, 0, true)
    }

    /// Commits a journal line, and changes the files that it names. `is_last`: empties the journal
    /// after that.
    fn carry_out(&self, entry: &mut JournalEntry, revision: u64, is_last: bool) -> Result<()> {
        let (dir, disk) = (&self.agent.dir, self.agent.store.disk);
        let mut journal = self.take_journal()?;
        entry.number = journal.next_number();
        let mut line = Encoded::of(dir, entry)?;
        if !journal.goes_on(entry, &line) {
            self.empty(&mut journal)?;
            entry.number = journal.next_number();
            line = Encoded::of(dir, entry)?;
        }
        journal.commit(&line, disk)?;
        let left = journal::changes([&*entry]).apply(dir, disk)?;
        self.base.set(left.map(|left| (revision, left)));
        // The journal is not needed where nothing is synced, and can't be marked where a boot has
        // no id.
        let is_over = is_last || journal.is_long() || !disk.syncs() || machine::boot().is_none();
        match left {
            Some(left) if !is_over => journal.mark(left)?,
            Some(_) | None => self.empty(&mut journal)?,
        }
        self.journal.replace(JournalPlace::Open(journal));
        Ok(())
    }

    /// Adds a committed transaction to the listing of the inbox.
    fn note_in_inbox(&self, transaction: &Transaction, entry: &JournalEntry) {
        let mut inbox = self.inbox.borrow_mut();
        let Some(scan) = inbox.as_mut().map(Rc::make_mut) else { return };
        for delete in &transaction.deletes {
            match delete {
                Delete::Message(key) => scan.direct.retain(|other| other != key),
                Delete::Hint(id) => scan.hints.retain(|other| other != id),
                Delete::Wait(_)
                | Delete::Work(_)
                | Delete::Timer(_)
                | Delete::Task(_)
                | Delete::Trigger(_)
                | Delete::Outgoing(_)
                | Delete::Checkpoint(_) => {}
            }
        }
        for put in &transaction.puts {
            if let Put::Message(message) = put
                && let Err(at) = scan.direct.binary_search(&message.key())
                && entry.writes.iter().any(|write| write.path == layout::message(message.key()))
            {
                scan.direct.insert(at, message.key());
            }
        }
    }

    /// Takes the journal out of its cell, for writing. Until the caller puts it back, its state is
    /// unknown.
    fn take_journal(&self) -> Result<Journal> {
        if matches!(*self.journal.borrow(), JournalPlace::Unknown) {
            self.finish_journal()?;
        }
        let (dir, disk) = (&self.agent.dir, self.agent.store.disk);
        match self.journal.replace(JournalPlace::Unknown) {
            JournalPlace::Open(journal) => Ok(journal),
            JournalPlace::Blank => Journal::begin(dir),
            JournalPlace::Nothing | JournalPlace::Unknown => {
                let journal = Journal::begin(dir)?;
                // The name of a new journal must be as durable as its lines.
                disk.sync_dir(dir.spot())?;
                Ok(journal)
            }
        }
    }

    fn entry(&self, transaction: &Transaction, state: &mut State, over: Version) -> Result<JournalEntry> {
        let mut writes = Vec::with_capacity(transaction.puts.len() + 1);
        let mut written = HashSet::new();
        // Without a cache no entry is written, because a cache with one key would pass for a
        // complete cache. The next search for a key builds the cache from the records, this key
        // included.
        let has_cache = keys::has_cache(&self.agent.dir)?;
        // Reverse order: a file that changes twice is written once, with its last content.
        for put in transaction.puts.iter().rev() {
            let is_forgotten = matches!(put, Put::Dedupe(entry)
                if !has_cache || dedupe::is_outdated(&self.view(), entry)?);
            if !is_forgotten {
                writes.extend(Some(self.write(put)?).filter(|write| written.insert(write.path.clone())));
            }
        }
        // `state.json` comes last, so that a concurrent reader finds the old revision with new
        // records.
        writes.push(write(layout::STATE.to_owned(), encode(&*state)));
        let mut deletes = Vec::with_capacity(transaction.deletes.len());
        for delete in &transaction.deletes {
            deletes.extend(self.delete(*delete)?);
        }
        let mut lines: Vec<(String, Vec<u8>)> = Vec::new();
        let mut add = |path: String, line: Vec<u8>| match lines.iter_mut().find(|(other, _)| *other == path) {
            Some((_, lines)) => lines.extend_from_slice(&line),
            None => lines.push((path, line)),
        };
        for event in &transaction.events {
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
        Ok(JournalEntry {
            schema: journal::SCHEMA.to_owned(),
            machine: machine::id().map(str::to_owned),
            base_revision: transaction.base_revision,
            over: Some(over),
            writes,
            appends,
            deletes,
            number: 0,
        })
    }

    fn write(&self, put: &Put) -> Result<Write> {
        Ok(match put {
            Put::Message(message) => write(self.place(message.key())?, encode(message.as_ref())),
            Put::Hint(hint) => write(layout::hint(hint.id), encode(hint.as_ref())),
            Put::Work(item) => write(layout::open::<WorkItem>(item.id), encode(item.as_ref())),
            Put::Plan(id, text) => write(layout::plan(*id), text.clone().into_bytes()),
            Put::Wait(wait) => write(layout::open::<Wait>(wait.id), encode(wait.as_ref())),
            Put::Timer(timer) => write(layout::open::<Timer>(timer.id), encode(timer.as_ref())),
            Put::Task(task) => write(layout::open::<Task>(task.id), encode(task.as_ref())),
            Put::Trigger(trigger) => write(layout::open::<Trigger>(trigger.id), encode(trigger.as_ref())),
            Put::Outgoing(message) => write(layout::open::<Message>(message.id), encode(message.as_ref())),
            Put::Dedupe(entry) => write(dedupe::path(&entry.key, entry.admitted_at), encode(entry.as_ref())),
        })
    }

    fn delete(&self, delete: Delete) -> Result<Vec<String>> {
        Ok(match delete {
            Delete::Message(key) => vec![self.place(key)?],
            Delete::Hint(id) => vec![layout::hint(id)],
            Delete::Wait(id) => vec![layout::open::<Wait>(id)],
            Delete::Work(id) => vec![layout::open::<WorkItem>(id), layout::plan(id)],
            Delete::Timer(id) => vec![layout::open::<Timer>(id)],
            Delete::Task(id) => vec![layout::open::<Task>(id)],
            Delete::Trigger(id) => vec![layout::open::<Trigger>(id)],
            Delete::Outgoing(id) => vec![layout::open::<Message>(id)],
            Delete::Checkpoint(checkpoint) => vec![layout::checkpoint(checkpoint)],
        })
    }

    /// Returns an append at the end of the file. If a person's edit left the last line without a
    /// newline, the append begins with one, so that two lines are not joined.
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

/// Converts encoded JSON, which is always UTF-8, so the lossy case can't happen.
fn into_text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}
