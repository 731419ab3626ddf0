//! Cache of dedupe keys. It is kept next to the records, and rebuilt from them if it is missing or
//! broken.

use std::collections::HashMap;
use std::path::Path;

use crate::cap_fs::CapPath;
use crate::error::Result;
use crate::local::files::{self, Disk};
use crate::local::layout;
use crate::model::dedupe::DedupeEntry;
use crate::model::digest::sha256;
use crate::model::message::{Message, MessageStatus};
use crate::model::record::Plane;
use crate::model::time::{Span, Time};
use crate::model::timer::Timer;

use super::super::backend::ReadView;
use super::evidence::each_ended;
use super::inbox::{IsOwnName, check_message};
use super::keys::{self, KeyWindow};
use super::record::{decode, encode};
use super::view::View;

const DAY: Span = Span::from_secs(24 * 3600);

/// Path of the cache entry of a dedupe key, under which a message was admitted at this time.
pub fn path(key: &str, admitted_at: Time) -> String {
    layout::dedupe(admitted_at, &sha256(key.as_bytes()))
}

/// Returns the message that was admitted under a dedupe key within the window, if any.
///
/// A cache entry of a later revision than the agent's shows that the records were restored (by a
/// checkout, for instance); the cache is then rebuilt from the records as they are.
pub fn find(
    records: &dyn ReadView,
    view: &View<'_>,
    key: &str,
    window: KeyWindow,
    disk: Disk,
) -> Result<Option<DedupeEntry>> {
    let KeyWindow { now, length, revision } = window;
    if keys::has_cache(view.agent)? {
        match look_up(view, key, now, length) {
            // If an entry can't be read, the cache is rebuilt from the records.
            Err(error) if error.is_of_file() => {}
            Ok(Some(entry)) if entry.revision > revision => {}
            found => return found,
        }
    }
    rebuild(records, view, window, disk)?;
    look_up(view, key, now, length)
}

/// Returns the cached message of a key, unless its entry is newer than the records. Writes nothing.
pub fn peek(view: &View<'_>, key: &str, window: KeyWindow) -> Result<Option<DedupeEntry>> {
    let KeyWindow { now, length, revision } = window;
    match look_up(view, key, now, length) {
        // An unreadable cache counts as empty, because the next command that writes rebuilds it.
        Err(error) if error.is_of_file() => Ok(None),
        found => Ok(found?.filter(|entry| entry.revision <= revision)),
    }
}

fn look_up(view: &View<'_>, key: &str, now: Time, window: Span) -> Result<Option<DedupeEntry>> {
    let hash = sha256(key.as_bytes());
    // The first day is tomorrow, because the clock may have been set back since the admission.
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
fn rebuild(records: &dyn ReadView, view: &View<'_>, window: KeyWindow, disk: Disk) -> Result<()> {
    let staged = view.agent.join(layout::TMP).join("dedupe");
    let in_the_way = view.agent.join(layout::TMP).join("dedupe-old");
    staged.remove_tree()?;
    in_the_way.remove_tree()?;
    let dir = keys::whole(view.agent);
    let put_in_place = || {
        if dir.exists()? {
            match files::rename(&dir, &in_the_way) {
                // The directory may forbid a rename; `remove_tree` changes its permissions first.
                Err(error) if error.is_of_file() => dir.remove_tree()?,
                moved => moved?,
            }
        }
        files::rename(&staged, &dir)?;
        disk.sync_dir(&dir.parent())
    };
    let made = fill(records, view, &staged, window, disk)
        .and_then(|()| disk.sync_file_system(&staged))
        .and_then(|()| put_in_place());
    if made.is_err() {
        // The new and the old cache are removed, so that the next command rebuilds the cache.
        let _ = staged.remove_tree();
        let _ = in_the_way.remove_tree();
        return made;
    }
    in_the_way.remove_tree()
}

fn fill(records: &dyn ReadView, view: &View<'_>, dir: &CapPath, window: KeyWindow, disk: Disk) -> Result<()> {
    dir.make_dirs()?;
    let archive = view.agent.join(layout::ARCHIVE);
    for entry in entries(records, (&|name| view.is_own(name), &archive), window.now, window.length)? {
        let relative = path(&entry.key, entry.admitted_at);
        let target = dir.join(relative.trim_start_matches(layout::DEDUPE).trim_start_matches('/'));
        target.parent().make_dirs()?;
        disk.stage_unsynced(&target, &encode(&entry))?;
    }
    Ok(())
}

/// Returns an entry for each dedupe key under which a message was admitted within the window. The
/// entry names the last admitted of the ended messages, or a queued message if none has ended: a
/// step drops a queued duplicate of an ended message. `archive`: path of the archive for errors.
pub fn entries(
    records: &dyn ReadView,
    (is_own, archive): (IsOwnName<'_>, &Path),
    now: Time,
    window: Span,
) -> Result<impl Iterator<Item = DedupeEntry>> {
    let mut found: HashMap<String, DedupeEntry> = HashMap::new();
    let mut note = |message: &Message, status: MessageStatus| {
        let Some(entry) = DedupeEntry::of(message, status, 0) else { return };
        let is_queued = status == MessageStatus::Queued;
        let counts = found.get(&entry.key).is_none_or(|noted| {
            let is_same = noted.message_id == entry.message_id;
            if is_same { is_queued } else { !is_queued && noted.admitted_at < entry.admitted_at }
        });
        if counts && now.since(entry.admitted_at) < window {
            found.insert(entry.key.clone(), entry);
        }
    };
    each_ended(records, archive, None, |message: Message| {
        let Some(end) = &message.settlement else { return true };
        if !end.is_of_duplicate() {
            note(&message, end.status);
        }
        now.since(end.at) < window
    })?;
    for key in records.messages(usize::MAX)? {
        let text = records.message(key)?.unwrap_or_default();
        // Messages that are unreadable or another agent's are skipped: a step quarantines them.
        let message = decode::<Message>(Path::new(layout::INBOX), text.as_bytes()).ok();
        let message = message.filter(|message| check_message(message, key, is_own).is_ok());
        message.iter().for_each(|message| note(message, MessageStatus::Queued));
    }
    // A message that a timer holds has been admitted too, so its key counts.
    for (id, text) in records.open(Plane::Timers)? {
        let timer: Timer = decode(Path::new(&layout::open(Plane::Timers, &id)), text.as_bytes())?;
        timer.message.iter().for_each(|message| note(message, MessageStatus::Queued));
    }
    Ok(found.into_values())
}

/// Removes the dedupe keys of days that ended before a moment. Called after each commit that admits
/// a dedupe key.
pub fn forget_old_days(view: &View<'_>, before: Time) -> Result<()> {
    let oldest = Time::from_millis(before.as_millis() - 2 * DAY.as_millis() as i64).day();
    let dir = view.agent.join(layout::DEDUPE);
    if !keys::has_cache(view.agent)? {
        return Ok(());
    }
    for entry in dir.entries()? {
        let Some(name) = entry.name.to_str() else { continue };
        if entry.is_dir && name.len() == oldest.len() && name < oldest.as_str() {
            dir.join(name).remove_tree()?;
        }
    }
    Ok(())
}
