//! One agent's records under its lock: changed whole or not at all.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::ffi::OsStr;
use std::rc::Rc;

use crate::beneath::Version;
use crate::error::{Error, Result};
use crate::model::event::Event;
use crate::model::message::InboxKey;
use crate::model::state::State;
use crate::model::task::Task;
use crate::model::time::{Span, Time};
use crate::model::timer::Timer;
use crate::model::transaction::{Delete, Put, Transaction};
use crate::model::trigger::Trigger;
use crate::model::wait::Wait;
use crate::model::work::WorkItem;

use super::agent::Agent;
use super::backlog::Filing;
use super::changes::{Append, Write};
use super::journal::{self, Encoded, Entry, Found, Journal, Unfinished};
use super::old_journal::Old;
use super::record::{encode, encode_plain_line};
use super::snapshot::Snapshot;
use super::view::View;
use super::{archive, aside, dedupe, files, inbox, layout, lock, machine};

const TRACKED: &str = "git tracks it, so it came with a clone or goes into one";

/// An agent whose lock is held: the only way to change its records.
#[derive(Debug)]
pub struct Change<'a> {
    pub(super) agent: &'a Agent<'a>,
    /// The revision that was read under this lock, and which `state.json` it stands in.
    base: Cell<Option<(u64, Version)>>,
    /// The segments of the inbox, once they are known: only who holds the lock makes and removes any.
    segments: RefCell<Option<Vec<inbox::Segment>>>,
    /// The inbox as it was looked at last, with what was committed since.
    inbox: RefCell<Option<Rc<inbox::Scan>>>,
    journal: RefCell<Place>,
    pub(super) held: lock::Guard,
}

/// What is known of the journal. All of it is applied.
#[derive(Debug)]
enum Place {
    /// It was not looked at, or something went wrong with it.
    Unknown,
    Nothing,
    Blank,
    Open(Journal),
}

impl<'a> Change<'a> {
    pub(super) fn new(agent: &'a Agent<'a>, held: lock::Guard) -> Change<'a> {
        Change {
            agent,
            base: Cell::new(None),
            segments: RefCell::default(),
            inbox: RefCell::default(),
            journal: RefCell::new(Place::Unknown),
            held,
        }
    }

    pub(super) fn view(&self) -> View<'_> {
        View::settled(&self.agent.dir)
    }

    /// The records as they are under this lock, without what steps pass over in the inbox.
    pub fn look(&self, state: &State) -> Result<Snapshot<'_>> {
        let mut scan = self.scan()?;
        scan.pass_over(aside::all_passed_over(state));
        self.inbox.replace(Some(Rc::new(scan)));
        self.look_again()
    }

    /// The same for a step, for which a long backlog is filed, so that taking from it stays cheap. It tries again
    /// what has changed since it was passed over; `stuck` is what it has tried.
    pub fn look_for_step(&self, state: &State, stuck: &[String]) -> Result<Snapshot<'_>> {
        let mut scan = self.scan()?;
        scan.pass_over(self.agent.passed_over(state).into_iter().chain(stuck.iter().cloned()));
        self.inbox.replace(Some(Rc::new(self.file_backlog(scan)?)));
        Ok(self.look_again()?.remembering())
    }

    /// The records as they are now. The inbox is not listed again: it is as it was, with what was committed since.
    pub fn look_again(&self) -> Result<Snapshot<'_>> {
        if self.inbox.borrow().is_none() {
            self.inbox.replace(Some(Rc::new(self.scan()?)));
        }
        let scan = self.inbox.borrow().clone().unwrap_or_default();
        Ok(Snapshot::with_inbox(self.agent, self.view(), scan))
    }

    /// The same as if nothing were in the inbox, for a change that has nothing to do with it.
    pub fn look_past_inbox(&self) -> Snapshot<'_> {
        Snapshot::with_inbox(self.agent, self.view(), Rc::default())
    }

    /// Forgets the dedupe keys that no window reaches any more.
    pub fn forget_old_keys(&self, now: Time, window: Span) -> Result<()> {
        dedupe::forget_old_days(&self.view(), now, window)
    }

    /// The current `state.json`, for a change: refused for an agent that was moved away.
    pub fn state(&self) -> Result<State> {
        let state = self.any_state()?;
        match &state.moved {
            Some(moved) => Err(super::moved::moved_away(self.agent.name(), moved)),
            None => Ok(state),
        }
    }

    /// The same wherever the agent is.
    pub fn any_state(&self) -> Result<State> {
        let found = self.agent.state_file()?;
        let state = self.agent.state_of(found.as_ref())?;
        self.base.set(found.map(|found| (state.revision, found.imprint.version())));
        Ok(state)
    }

    fn file_backlog(&self, scan: inbox::Scan) -> Result<inbox::Scan> {
        if !Filing::is_due(&scan) {
            return Ok(scan);
        }
        // The journal names messages by where they lie.
        self.empty_journal()?;
        self.segments.replace(None);
        let view = self.view();
        let scan = Filing { view: &view, disk: self.agent.store.disk }.file(scan)?;
        self.segments.replace(Some(scan.segments.clone()));
        Ok(scan)
    }

    /// Puts what was the inbox before a step was killed into its place.
    pub fn finish_exchange(&self) -> Result<()> {
        self.empty_journal()?;
        Filing { view: &self.view(), disk: self.agent.store.disk }.finish()
    }

    /// Lists the inbox. One whose exchange was interrupted is put right first.
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

    /// Applies what interrupted commands have committed. Whoever takes the lock has done so.
    pub fn finish_journal(&self) -> Result<()> {
        self.journal.replace(Place::Unknown);
        self.finish_old_journal()?;
        let place = match Journal::look(&self.agent.dir, true)? {
            Found::Nothing => Place::Nothing,
            Found::Blank => Place::Blank,
            Found::Applied(journal) => Place::Open(journal),
            Found::Open(found) => self.finish(found)?,
        };
        self.journal.replace(place);
        Ok(())
    }

    fn finish(&self, found: Unfinished) -> Result<Place> {
        let dir = &self.agent.dir;
        if let Some(why) = self.why_not(&found)? {
            self.set_journal_aside(layout::JOURNAL, why)?;
            return Ok(Place::Nothing);
        }
        if found.is_torn {
            found.journal.trim()?;
        }
        if found.entries().next().is_none() {
            return Ok(Place::Open(found.journal));
        }
        found.check_paths()?;
        let disk = self.agent.store.disk;
        // Nothing of it may be durable before all of it is.
        found.journal.sync_again(disk)?;
        journal::changes(found.entries()).apply(dir, disk)?;
        let mut journal = found.journal;
        self.empty(&mut journal)?;
        Ok(Place::Open(journal))
    }

    /// Why a journal is not applied, if it is not.
    fn why_not(&self, found: &Unfinished) -> Result<Option<&'static str>> {
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

    /// The journal of one transaction, which a version before this one has left.
    fn finish_old_journal(&self) -> Result<()> {
        let (dir, disk) = (&self.agent.dir, self.agent.store.disk);
        let old = match Old::find(dir)? {
            Old::Nothing => return Ok(()),
            Old::Foreign => {
                return self.set_journal_aside(layout::OLD_JOURNAL, "it was written on another machine");
            }
            Old::Ours(_) if self.agent.is_tracked(layout::OLD_JOURNAL) => {
                return self.set_journal_aside(layout::OLD_JOURNAL, TRACKED);
            }
            old @ Old::Ours(_) => old,
        };
        let state = self.agent.state_file()?;
        if let Some(entry) = old.at(dir, self.agent.state_of(state.as_ref())?.revision)? {
            // Whoever was killed may not have made its name durable; nothing of it may be that before.
            disk.sync_dir(dir.spot())?;
            journal::changes([&entry]).apply(dir, disk)?;
            disk.sync_file_system(dir.spot())?;
        }
        dir.join(layout::OLD_JOURNAL).remove()
    }

    /// What such a journal was about has happened elsewhere, or is no more.
    fn set_journal_aside(&self, name: &str, why: &str) -> Result<()> {
        let dir = &self.agent.dir;
        let quarantine = dir.join(layout::QUARANTINE);
        quarantine.make_dirs()?;
        let place = files::free_place(&quarantine, OsStr::new(name))?;
        files::rename(&dir.join(name), &place)?;
        (self.agent.store.opener.tell)(&format!(
            "{}: the journal of an interrupted command is not applied, because {why}; it is now {}",
            self.agent.name(),
            place.display()
        ));
        Ok(())
    }

    /// Makes the disk have all that was committed, and empties the journal. To be called before anything that the journal may name is
    /// changed beside it: its lines would change that back after a power cut.
    pub fn empty_journal(&self) -> Result<()> {
        if matches!(*self.journal.borrow(), Place::Unknown) {
            self.finish_journal()?;
        }
        let mut place = self.journal.replace(Place::Unknown);
        if let Place::Open(journal) = &mut place
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
            // What could not be written passes for clean now. All of it is written again by the next command.
            let _ = journal.doubt();
            return Err(error);
        }
        journal.cut(disk)
    }

    /// Commits a transaction, whole or not at all, and returns the state as it now is. One that was
    /// made from another revision is refused.
    ///
    /// Where this fails nobody knows how far it came: nothing more is committed under this lock.
    pub fn commit(&self, transaction: Transaction) -> Result<State> {
        let base = self.base.take().filter(|(revision, _)| *revision == transaction.base_revision);
        let Some((_, over)) = base else {
            return Err(Error::Refused {
                kind: "stale_revision",
                message: format!(
                    "the records of `{}` have moved on from revision {}",
                    self.agent.name(),
                    transaction.base_revision
                ),
                hint: Some("try again".to_owned()),
            });
        };
        let mut state = transaction.state.clone();
        let mut entry = self.entry(&transaction, &mut state, over)?;
        self.carry_out(&mut entry, state.revision, state.is_at_rest())?;
        self.note_in_inbox(&transaction, &entry);
        Ok(state)
    }

    /// Replaces records, `state.json` among them, by those of another clone: whole or not at all.
    pub(super) fn replace(
        &self,
        writes: Vec<Write>,
        appends: Vec<Append>,
        deletes: Vec<String>,
    ) -> Result<()> {
        let Some(found) = self.agent.state_file()? else { return Ok(()) };
        let mut entry = Entry {
            schema: journal::SCHEMA.to_owned(),
            machine: machine::id().map(str::to_owned),
            base_revision: self.agent.state_of(Some(&found))?.revision,
            over: Some(found.imprint.version()),
            writes,
            appends,
            deletes,
            number: 0,
        };
        self.carry_out(&mut entry, 0, true)
    }

    /// Commits a line, and does what it says. `is_last`: the journal is emptied then.
    fn carry_out(&self, entry: &mut Entry, revision: u64, is_last: bool) -> Result<()> {
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
        // Where nothing is synced a journal has nothing to remember, and where a boot has no name no mark counts.
        let is_over = is_last || journal.is_long() || !disk.syncs() || machine::boot().is_none();
        match left {
            Some(left) if !is_over => journal.mark(left)?,
            Some(_) | None => self.empty(&mut journal)?,
        }
        self.journal.replace(Place::Open(journal));
        Ok(())
    }

    /// Brings the inbox as it was looked at up to date.
    fn note_in_inbox(&self, transaction: &Transaction, entry: &Entry) {
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

    /// The journal, to be written to. It is unknown until it is put back.
    fn take_journal(&self) -> Result<Journal> {
        if matches!(*self.journal.borrow(), Place::Unknown) {
            self.finish_journal()?;
        }
        let (dir, disk) = (&self.agent.dir, self.agent.store.disk);
        match self.journal.replace(Place::Unknown) {
            Place::Open(journal) => Ok(journal),
            Place::Blank => Journal::begin(dir),
            Place::Nothing | Place::Unknown => {
                let journal = Journal::begin(dir)?;
                // Its name must be as durable as its lines.
                disk.sync_dir(dir.spot())?;
                Ok(journal)
            }
        }
    }

    fn entry(&self, transaction: &Transaction, state: &mut State, over: Version) -> Result<Entry> {
        // Versions before this one kept some events in `state.json`.
        let riding: Vec<Event> = aside::take_riding(state);
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
        Ok(Entry {
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
