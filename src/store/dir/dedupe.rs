//! Cache of dedupe keys. It is kept next to the records, and rebuilt from them if it is missing or
//! broken.

use crate::beneath::Spot;
use crate::error::{Error, Result};
use crate::model::dedupe::DedupeEntry;
use crate::model::digest::sha256;
use crate::model::message::{Message, MessageStatus};
use crate::model::time::{Span, Time};
use crate::model::timer::Timer;

use super::evidence;
use super::files::{self, Disk, fault_of_file};
use super::inbox;
use super::keys::{KeyWindow, is_there, whole};
use super::layout;
use super::record::encode;
use super::view::View;

const DAY: Span = Span::from_secs(24 * 3600);

/// Path of the cache entry of a key that was admitted at this time.
pub fn path(key: &str, admitted_at: Time) -> String {
    layout::dedupe(admitted_at, &sha256(key.as_bytes()))
}

/// Returns the message that was admitted under a key within the window, if any.
///
/// An entry of a later revision than the agent's shows that the records were restored (by a
/// checkout, for instance); the cache is then rebuilt from the records as they are.
pub fn find(view: &View<'_>, key: &str, window: KeyWindow, disk: Disk) -> Result<Option<DedupeEntry>> {
    let KeyWindow { now, length: window, revision } = window;
    let dir = view.agent.join(layout::DEDUPE);
    if !is_there(&dir)? {
        rebuild(view, now, window, disk)?;
    }
    let mut entry = match look_up(view, key, now, window) {
        // If an entry can't be read, the cache is rebuilt from the records.
        Err(error) if error.is_of_file() => {
            rebuild(view, now, window, disk)?;
            look_up(view, key, now, window)?
        }
        found => found?,
    };
    if entry.as_ref().is_some_and(|entry| entry.revision > revision) {
        rebuild(view, now, window, disk)?;
        entry = look_up(view, key, now, window)?;
    }
    Ok(entry)
}

/// Returns the cached message of a key, if the cache belongs to these records. Changes nothing.
pub fn peek(view: &View<'_>, key: &str, window: KeyWindow) -> Result<Option<DedupeEntry>> {
    let KeyWindow { now, length, revision } = window;
    match look_up(view, key, now, length) {
        // An unreadable cache counts as empty here; the next command that writes rebuilds it.
        Err(error) if error.is_of_file() => Ok(None),
        found => Ok(found?.filter(|entry| entry.revision <= revision)),
    }
}

fn look_up(view: &View<'_>, key: &str, now: Time, window: Span) -> Result<Option<DedupeEntry>> {
    let hash = sha256(key.as_bytes());
    // The search begins at tomorrow's day, because the clock may have been set back since.
    let mut day = now.after(DAY);
    loop {
        if let Some(entry) = view.record::<DedupeEntry>(&layout::dedupe(day, &hash))?
            && entry.key == key
            && now.since(entry.admitted_at).max(entry.admitted_at.since(now)) < window
        {
            return Ok(Some(entry));
        }
        if now.since(day) >= window {
            return Ok(None);
        }
        day = Time::from_millis(day.as_millis() - DAY.as_millis() as i64);
    }
}

/// Builds the cache from the inbox, the timers and the archive of the window. The cache appears as
/// a whole, and durable: a message whose entry was lost in a power cut would be admitted again.
fn rebuild(view: &View<'_>, now: Time, window: Span, disk: Disk) -> Result<()> {
    let staged = view.agent.join(layout::TMP).join("dedupe");
    let in_the_way = view.agent.join(layout::TMP).join("dedupe-old");
    staged.remove_tree()?;
    in_the_way.remove_tree()?;
    let dir = whole(view.agent);
    let put_in_place = || {
        if dir.exists()? {
            match files::rename(&dir, &in_the_way) {
                // A directory whose mode keeps its owner out can't be moved either.
                Err(error) if error.is_of_file() => dir.remove_tree()?,
                moved => moved?,
            }
        }
        files::rename(&staged, &dir)?;
        disk.sync_dir(&dir.parent())
    };
    let made = fill(view, &staged, now, window, disk)
        .and_then(|()| sync_tree(&staged, disk))
        .and_then(|()| put_in_place());
    if made.is_err() {
        // The old cache is stale and is removed too: without a cache, the next command creates it.
        let _ = staged.remove_tree();
        let _ = in_the_way.remove_tree();
        return made;
    }
    in_the_way.remove_tree()
}

fn fill(view: &View<'_>, staged: &Spot, now: Time, window: Span, disk: Disk) -> Result<()> {
    staged.make_dirs()?;
    let write = |message: &Message, status: MessageStatus| -> Result<()> {
        let Some(entry) = DedupeEntry::of(message, status, 0) else { return Ok(()) };
        let relative = path(&entry.key, entry.admitted_at);
        let target = staged.join(relative.trim_start_matches(layout::DEDUPE).trim_start_matches('/'));
        if target.exists()? || now.since(message.created_at) >= window {
            return Ok(());
        }
        target.parent().make_dirs()?;
        disk.stage_unsynced(&target, &encode(&entry)).map(drop)
    };
    let mut failure = None;
    evidence::archived(view, |message: Message| {
        let Some(settlement) = &message.settlement else { return true };
        if !settlement.is_of_duplicate()
            && let Err(error) = write(&message, settlement.status)
        {
            failure = Some(error);
            return false;
        }
        now.since(settlement.at) < window
    })?;
    if let Some(error) = failure {
        return Err(error);
    }
    for (key, path) in inbox::first(view, &inbox::scan(view)?, usize::MAX)? {
        match inbox::read(view, key, &path) {
            Ok(Some(message)) => write(&message, MessageStatus::Queued)?,
            Ok(None) => {}
            Err(error) => fault_of_file(error).map(drop)?,
        }
    }
    // A message that a timer holds has been admitted too, so its key is cached.
    for timer in view.records::<Timer>(layout::TIMERS)? {
        if let Some(message) = &timer.message {
            write(message, MessageStatus::Queued)?;
        }
    }
    Ok(())
}

fn sync_tree(staged: &Spot, disk: Disk) -> Result<()> {
    for day in staged.entries()? {
        let day = staged.join(&day.name);
        let mut written = disk.unsynced();
        for entry in day.entries()? {
            let spot = day.join(&entry.name);
            let (file, _) = spot.open_file()?.ok_or_else(|| Error::gone("open", &spot))?;
            written.add(file, &spot)?;
        }
        written.sync()?;
        disk.sync_dir(&day)?;
    }
    disk.sync_dir(staged)
}

/// Removes the days that ended before a moment. Called when a new day begins.
pub fn forget_old_days(view: &View<'_>, before: Time) -> Result<()> {
    let oldest = Time::from_millis(before.as_millis() - 2 * DAY.as_millis() as i64).day();
    let dir = view.agent.join(layout::DEDUPE);
    if !is_there(&dir)? {
        return Ok(());
    }
    for entry in dir.entries()? {
        let Some(name) = entry.name.to_str() else { continue };
        if entry.is_dir && name.len() == oldest.len() && name < oldest.as_str() {
            let old = dir.join(name);
            old.remove_tree()?;
        }
    }
    Ok(())
}
