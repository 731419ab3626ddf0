//! Transactions on the records of one agent under its lock, each applied as a whole or not at all.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::rc::Rc;
use std::time::Duration;

use crate::cap_fs::Version;
use crate::error::Result;
use crate::local::files::{self, fault_of_file};
use crate::local::{layout, lock, machine};
use crate::model::message::InboxKey;
use crate::model::record::Plane;
use crate::model::time::Time;

use super::super::backend::{Arrival, Op, ReadView, Txn};
use super::agent::DirAgent;
use super::backlog::Filing;
use super::changes::{Append, Write};
use super::inbox::{self, Dropped, QuarantineOutcome};
use super::journal::{self, Encoded, FoundJournal, Journal, JournalEntry, UnfinishedJournal};
use super::snapshot::DirReadView;
use super::view::View;
use super::{copying, dedupe, keys};

const TRACKED: &str = "git tracks it, so it came with a clone or goes into one";

/// Agent whose lock is held: the only way to change its records.
#[derive(Debug)]
pub struct DirTxn<'a> {
    pub(super) agent: &'a DirAgent<'a>,
    /// Version of the `state.json` that was last read or written under this lock.
    base: Cell<Option<Version>>,
    /// Last listing of the inbox, with the changes that were committed since.
    inbox: RefCell<Option<Rc<inbox::Scan>>>,
    /// Journal of committed transactions, all of them applied to the files. `None` if it was not
    /// read yet, or if a write to it has failed.
    journal: RefCell<Option<JournalPlace>>,
    held: lock::LockGuard,
}

/// Journal of committed transactions, all of them applied to the files.
#[derive(Debug)]
enum JournalPlace {
    Nothing,
    Blank,
    Open(Journal),
}

impl DirAgent<'_> {
    /// Takes the agent's lock and applies the transaction of an interrupted command.
    pub(super) fn change(&self, now: Time) -> Result<DirTxn<'_>> {
        let locked = DirTxn::new(self, self.unless_gone(self.local.lock(now))?);
        locked.finish()?;
        Ok(locked)
    }
}

impl<'a> DirTxn<'a> {
    pub(in crate::store) fn new(agent: &'a DirAgent<'a>, held: lock::LockGuard) -> DirTxn<'a> {
        DirTxn { agent, base: Cell::new(None), inbox: RefCell::default(), journal: RefCell::default(), held }
    }

    pub(super) fn view(&self) -> View<'_> {
        View::settled(&self.agent.local.dir)
    }

    /// Returns the last listing of the inbox, with the changes that were committed since. Lists the
    /// inbox at the first call.
    pub(super) fn listed(&self) -> Result<Rc<inbox::Scan>> {
        if self.inbox.borrow().is_none() {
            self.inbox.replace(Some(Rc::new(self.scan()?)));
        }
        Ok(self.inbox.borrow().clone().unwrap_or_default())
    }

    /// Reads the text of the current `state.json`.
    pub(super) fn state_text(&self) -> Result<String> {
        let found = self.agent.state_file()?;
        self.base.set(found.as_ref().map(|found| found.version));
        self.agent.state_text(found.map(|found| found.bytes))
    }

    fn file_backlog(&self, scan: inbox::Scan) -> Result<inbox::Scan> {
        if !Filing::is_due(&scan) {
            return Ok(scan);
        }
        // Moving messages changes their paths, which the journal and the cached listing contain.
        self.empty_journal()?;
        self.inbox.replace(None);
        Filing { view: &self.view(), disk: self.agent.local.disk() }.file(scan)
    }

    /// Finishes an interrupted replacement of the inbox by an empty directory: makes the former
    /// inbox a directory of the new inbox.
    pub(super) fn finish_exchange(&self) -> Result<()> {
        self.empty_journal()?;
        Filing { view: &self.view(), disk: self.agent.local.disk() }.finish()
    }

    /// Lists the inbox, after finishing an interrupted replacement of the inbox.
    pub(super) fn scan(&self) -> Result<inbox::Scan> {
        let view = self.view();
        let mut scan = inbox::scan(&view)?;
        if scan.is_unfinished {
            self.finish_exchange()?;
            scan = inbox::scan(&view)?;
        }
        Ok(scan)
    }

    /// Returns the current path of a message, or its future path if the message is new.
    fn place(&self, key: InboxKey) -> Result<String> {
        let direct = layout::message(key);
        if self.view().exists(&direct)? {
            return Ok(direct);
        }
        let found = inbox::find_in(&self.view(), &self.listed()?.segments, key)?;
        Ok(found.unwrap_or(direct))
    }

    /// Takes the journal out of its cell, after applying its lines. Until the caller puts the
    /// journal back, its state is unknown.
    fn take_journal(&self) -> Result<JournalPlace> {
        if let Some(place) = self.journal.take() {
            return Ok(place);
        }
        match Journal::look(&self.agent.local.dir, true)? {
            FoundJournal::Nothing => Ok(JournalPlace::Nothing),
            FoundJournal::Blank => Ok(JournalPlace::Blank),
            FoundJournal::Applied(journal) => Ok(JournalPlace::Open(journal)),
            FoundJournal::Open(found) => self.finish_found(found),
        }
    }

    fn finish_found(&self, found: UnfinishedJournal) -> Result<JournalPlace> {
        let dir = &self.agent.local.dir;
        if let Some(why) = self.why_not(&found)? {
            self.quarantine_journal(why)?;
            return Ok(JournalPlace::Nothing);
        }
        if found.is_torn {
            found.journal.trim()?;
        }
        if found.entries().next().is_none() {
            return Ok(JournalPlace::Open(found.journal));
        }
        found.check_paths()?;
        let disk = self.agent.local.disk();
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
        if self.agent.local.is_tracked(layout::JOURNAL) {
            return Ok(Some(TRACKED));
        }
        let state = self.agent.state_file()?;
        let continues = found.continues_state(&self.agent.local.dir.join(layout::STATE), state.as_ref())?;
        Ok((!continues).then_some("the records were put back to others since"))
    }

    /// Quarantines a journal that must not be applied, and prints the reason for the user.
    fn quarantine_journal(&self, why: &str) -> Result<()> {
        let place = self.agent.local.quarantine(&self.agent.local.dir.join(layout::JOURNAL))?;
        (self.agent.local.state_dir.opener.tell)(&format!(
            "{}: the journal of an interrupted command is not applied, because {why}; it is now {}",
            &self.agent.local.name,
            place.display()
        ));
        Ok(())
    }

    /// Syncs all committed changes and empties the journal. Must be called before a file named in
    /// the journal is changed in any other way, because after a power cut the journal would undo
    /// that change.
    pub(in crate::store) fn empty_journal(&self) -> Result<()> {
        let mut place = self.take_journal()?;
        if let JournalPlace::Open(journal) = &mut place
            && !journal.is_blank()
        {
            self.empty(journal)?;
        }
        self.journal.replace(Some(place));
        Ok(())
    }

    fn empty(&self, journal: &mut Journal) -> Result<()> {
        let disk = self.agent.local.disk();
        if let Err(error) = disk.sync_file_system(self.agent.local.dir.cap()) {
            // After a failed sync the kernel may count lost data as written, so the next command
            // must apply all journal entries again.
            let _ = journal.doubt();
            return Err(error);
        }
        journal.cut(disk)
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
            base_revision: self.agent.state_of(&found.bytes)?.revision,
            over: Some(found.version),
            writes,
            appends,
            deletes,
            number: 0,
        };
        self.carry_out(&mut entry, true)
    }

    /// Commits a journal line, and changes the files that it names. `is_last`: empties the journal
    /// after that.
    fn carry_out(&self, entry: &mut JournalEntry, is_last: bool) -> Result<()> {
        let (dir, disk) = (&self.agent.local.dir, self.agent.local.disk());
        let mut journal = self.open_journal()?;
        entry.number = journal.next_number();
        let mut line = Encoded::of(dir, entry)?;
        if !journal.accepts(entry, &line) {
            self.empty(&mut journal)?;
            entry.number = journal.next_number();
            line = Encoded::of(dir, entry)?;
        }
        journal.commit(&line, disk)?;
        let left = journal::changes([&*entry]).apply(dir, disk)?;
        self.base.set(left);
        // Without syncs the journal is not needed, and without the id of this boot its lines can't
        // be marked as applied, so both cases empty the journal at once.
        let is_over = is_last || journal.is_long() || !disk.syncs() || machine::boot().is_none();
        match left {
            Some(left) if !is_over => journal.mark(left)?,
            Some(_) | None => self.empty(&mut journal)?,
        }
        self.journal.replace(Some(JournalPlace::Open(journal)));
        Ok(())
    }

    /// Applies the changes of a commit to the cached listing of the inbox.
    fn note_in_inbox(&self, ops: &[Op], entry: &JournalEntry) {
        let mut inbox = self.inbox.borrow_mut();
        let Some(scan) = inbox.as_mut().map(Rc::make_mut) else { return };
        for op in ops {
            if let Op::MessageTaken(key) = op {
                scan.direct.retain(|other| other != key);
            } else if let Op::HintTaken(id) = op {
                scan.hints.retain(|other| other != id);
            } else if let Op::Arrived(Arrival::Message { key, .. }) = op
                && let Err(at) = scan.direct.binary_search(key)
                && entry.writes.iter().any(|write| write.path == layout::message(*key))
            {
                scan.direct.insert(at, *key);
            }
        }
    }

    /// Opens or creates the journal for writing. The caller puts it back into `self.journal`.
    fn open_journal(&self) -> Result<Journal> {
        let (dir, disk) = (&self.agent.local.dir, self.agent.local.disk());
        match self.take_journal()? {
            JournalPlace::Open(journal) => Ok(journal),
            JournalPlace::Blank => Journal::begin(dir),
            JournalPlace::Nothing => {
                let journal = Journal::begin(dir)?;
                // The name of a new journal must be as durable as its lines.
                disk.sync_dir(dir.cap())?;
                Ok(journal)
            }
        }
    }

    fn entry(&self, base_revision: u64, ops: &[Op]) -> Result<JournalEntry> {
        let (mut writes, mut deletes) = (Vec::with_capacity(ops.len()), Vec::new());
        let mut lines: Vec<(String, String)> = Vec::new();
        let mut add = |path: String, line: &str| match lines.iter_mut().find(|(other, _)| *other == path) {
            Some((_, lines)) => lines.push_str(line),
            None => lines.push((path, line.to_owned())),
        };
        for op in ops {
            match op {
                Op::State { text, .. } => writes.push(write(layout::STATE.to_owned(), text)),
                Op::Open { plane, id, text } => writes.push(write(layout::open(*plane, id), text)),
                Op::Plan { work, text } => writes.push(write(layout::plan(work), text)),
                Op::Arrived(Arrival::Message { key, text }) => writes.push(write(self.place(*key)?, text)),
                Op::Arrived(Arrival::Hint { id, text }) => writes.push(write(layout::hint(*id), text)),
                // Without a cache of dedupe keys no entry is written, because a cache with one key
                // would pass for a complete cache. The next search for a key builds it from the
                // records, with this key.
                Op::Key { .. } if !keys::has_cache(&self.agent.local.dir)? => {}
                Op::Key { key, admitted_at, text } => {
                    writes.push(write(dedupe::path(key, *admitted_at), text));
                }
                Op::MessageTaken(key) => deletes.push(self.place(*key)?),
                Op::HintTaken(id) => deletes.push(layout::hint(*id)),
                Op::Closed { plane, id } => {
                    deletes.push(layout::open(*plane, id));
                    deletes.extend((*plane == Plane::Work).then(|| layout::plan(id)));
                }
                Op::Unsaved(checkpoint) => deletes.push(layout::checkpoint(*checkpoint)),
                Op::Event { at, text, .. } => add(layout::ledger(*at), text),
                Op::Ended { kind, at, text, .. } => add(layout::archive(*at, kind), text),
                // The journal needs no entry: these values are in other files or derived.
                Op::Identity(_)
                | Op::Policy(_)
                | Op::InboxClosed(_)
                | Op::Saved { .. }
                | Op::LocalDir(_)
                | Op::KeysForgotten(_)
                | Op::TriggerKey { .. }
                | Op::Forgotten { .. } => {}
            }
        }
        // A file that changes twice is written once, with its last content.
        let mut written = HashSet::new();
        writes.reverse();
        writes.retain(|write| written.insert(write.path.clone()));
        writes.reverse();
        Ok(JournalEntry {
            schema: journal::SCHEMA.to_owned(),
            machine: machine::id().map(str::to_owned),
            base_revision,
            over: self.base.take(),
            writes,
            appends: lines
                .into_iter()
                .map(|(path, lines)| self.append(path, lines))
                .collect::<Result<_>>()?,
            deletes,
            number: 0,
        })
    }

    /// Returns an append at the end of the file. If a person's edit left the last line without a
    /// newline, the append begins with one, so that two lines are not joined.
    fn append(&self, path: String, mut content: String) -> Result<Append> {
        let full = self.agent.local.dir.join(&path);
        let (offset, ends_whole) = files::end_of(&full)?;
        if !ends_whole {
            content.insert(0, '\n');
        }
        Ok(Append { path, offset, content })
    }
}

impl Txn for DirTxn<'_> {
    fn take_wait(&self) -> Option<Duration> {
        self.held.take_wait()
    }

    /// Applies an interrupted transaction. Called first by each process that has the agent's lock.
    fn finish(&self) -> Result<()> {
        self.journal.replace(None);
        let place = self.take_journal()?;
        self.journal.replace(Some(place));
        Ok(())
    }

    fn now(&self) -> Result<Rc<dyn ReadView + '_>> {
        Ok(Rc::new(DirReadView::under(self, self.view())))
    }

    /// Moves a long backlog into directories before a step, so that taking messages stays cheap.
    fn list_inbox(&self, skipped: &[String], is_step: bool) -> Result<()> {
        let mut scan = self.scan()?;
        scan.pass_over(skipped.to_vec());
        if is_step {
            scan = self.file_backlog(scan)?;
        }
        self.inbox.replace(Some(Rc::new(scan)));
        Ok(())
    }

    fn commit(&self, base: u64, ops: &[Op]) -> Result<()> {
        let mut entry = self.entry(base, ops)?;
        for op in ops {
            if let Op::TriggerKey { trigger, digest, key } = op {
                self.agent.keep_key(*trigger, digest, key)?;
            } else if let Op::InboxClosed(false) = op {
                self.forget_taken()?;
            }
        }
        let is_last = |op: &Op| matches!(op, Op::State { is_at_rest: true, .. } | Op::Forgotten { .. });
        self.carry_out(&mut entry, ops.iter().any(is_last))?;
        self.note_in_inbox(ops, &entry);
        for op in ops {
            if let Op::Forgotten { from, .. } = op {
                self.remove_month(&from.month())?;
            } else if let Op::KeysForgotten(before) = op {
                // The change is committed, so errors are ignored: the next `KeysForgotten` retries.
                let _ = dedupe::forget_old_days(&self.view(), *before);
            }
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        self.empty_journal()
    }

    fn quarantine(&self, file: &Dropped, reason: &str) -> Result<QuarantineOutcome> {
        match self.try_to_quarantine(&file.place, reason) {
            Err(error) => fault_of_file(error).map(QuarantineOutcome::Stays),
            done => done,
        }
    }

    fn put(&self, op: Op) -> Result<()> {
        self.empty_journal()?;
        let dir = &self.agent.local.dir;
        copying::put(op, &mut |path, bytes| self.agent.local.replace_file(&dir.join(path), bytes))?;
        self.agent.local.state_dir.share([dir]).map(drop)
    }
}

fn write(path: String, text: &str) -> Write {
    Write { path, content: text.to_owned() }
}
