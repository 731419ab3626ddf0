//! A long backlog: how what has gathered in the inbox goes out of the way, and comes back in order.
//!
//! To find the first of 100,000 names a directory has to be read whole, and one of ext4 that was large once
//! stays slow to read for good. So when many messages lie in the inbox it is exchanged for an empty one, in
//! one call, and what was the inbox becomes a pile in the new one. From the pile that has the next message a
//! step takes as many as make a few segments; until these are used up, no step reads the pile.
//!
//! Invariants:
//!
//! 1. A message is in the inbox, in what was the inbox, in a pile or in a segment at every moment.
//! 2. What was the inbox **must** be found by whoever finds the new one empty: the new one comes with a pile,
//!    an empty directory, whose place it takes.
//! 3. A pile is named after its first message, and who trusts the name **must** know that nothing has come
//!    since: programs that have opened the inbox before the exchange still put files there. The time of change
//!    says so. It is set to [`LOOKED_THROUGH`] before the pile is read, and whatever comes from then on sets
//!    it to another one.
//! 4. Nothing is removed but empty directories.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;

use rustix::io::Errno;

use crate::beneath::{Spot, move_file};
use crate::error::{Context, Error, Result};
use crate::model::message::InboxKey;

use super::files::{Disk, fault_of_file};
use super::inbox::{LOOKED_THROUGH, Name, SEGMENT, Scan, Segment, parse_name};
use super::view::View;
use super::{git, layout};

/// Says of a pile that all that is in it is known from its name: for whoever reads it next, or has made it.
pub fn say_looked_through(pile: &Spot) -> Result<()> {
    // Where it may not be said, whoever comes next looks through it once more.
    pile.set_changed(LOOKED_THROUGH.0).map(drop)
}

/// Who files, under the agent's lock.
#[derive(Debug)]
pub struct Filing<'a> {
    pub view: &'a View<'a>,
    pub disk: Disk,
}

/// How many messages a segment has that comes from a pile: a step lists the first one several times.
const LISTED: usize = SEGMENT / 4;

/// How often a pile is read at most until nothing comes into it meanwhile.
const ROUNDS: u32 = 4;

/// What lies in a pile.
struct Contents {
    /// Where it is now, from the agent's directory.
    path: String,
    /// In no order.
    keys: Vec<InboxKey>,
}

impl Filing<'_> {
    /// Whether there is something to be filed.
    pub fn is_due(scan: &Scan) -> bool {
        scan.direct.len() > SEGMENT
            || scan.segments.iter().any(Segment::is_stirred)
            || in_front(scan).is_some()
    }

    /// Sees to it that the next messages lie in the inbox itself or in a segment. Returns what it comes to.
    pub fn file(&self, mut scan: Scan) -> Result<Scan> {
        if scan.direct.len() > SEGMENT {
            // What can't be moved would be in the way, and is remembered by its place.
            let is_exchanged = !scan.passes_over() && possible(self.exchange(scan.direct[0]))? == Some(true);
            if !is_exchanged {
                self.move_to_segments(layout::INBOX, &scan.direct, SEGMENT)?;
            }
            scan = scan.anew(self.view)?;
        }
        let mut known = None;
        for pile in scan.segments.iter().filter(|segment| segment.is_stirred()) {
            // What was the inbox has taken the place of another one.
            if known.as_ref().is_none_or(|known: &Contents| known.path != pile.path) {
                known = possible(self.look_through(&pile.path))?.flatten();
            }
        }
        scan = scan.anew(self.view)?;
        if let Some(pile) = in_front(&scan) {
            let known = known.filter(|known| known.path == pile.path);
            let listed = match known {
                Some(known) => Some(known),
                None => possible(self.list(&pile.path))?
                    .map(|(keys, _)| Contents { path: pile.path.clone(), keys }),
            };
            listed.map_or(Ok(None), |contents| possible(self.take_segments(contents)))?;
            scan = scan.anew(self.view)?;
        }
        Ok(scan)
    }

    /// Makes a pile of what was the inbox before a step was killed.
    pub fn finish(&self) -> Result<()> {
        self.look_through(layout::FORMER).map(drop)
    }

    fn inbox(&self) -> Spot {
        self.view.agent.join(layout::INBOX)
    }

    /// Exchanges the inbox for an empty one. `false` where that can't be done: it may be a file system that
    /// has no such call, or the inbox has an owner or rights that can't be given to another directory.
    fn exchange(&self, first: InboxKey) -> Result<bool> {
        self.finish()?;
        let (inbox, fresh) = (self.inbox(), self.view.agent.join(layout::FORMER));
        let kept = fresh.join(layout::KEPT_NAME);
        let place = fresh.join(layout::pile(first).trim_start_matches(layout::INBOX).trim_start_matches('/'));
        if fresh.exists()? {
            // Something else has the name.
            return Ok(false);
        }
        fresh.make_dir()?;
        let mut is_exchanged = false;
        if fresh.take_after(&inbox)? {
            if inbox.join(layout::KEPT_NAME).exists()? {
                self.disk.stage(&kept, git::KEPT.as_bytes())?;
            }
            place.make_dir()?;
            self.disk.sync_dir(&fresh)?;
            is_exchanged = fresh.try_exchange(&inbox)?.is_ok();
        }
        if is_exchanged {
            self.disk.sync_dir(self.view.agent.spot())?;
        } else {
            place.remove_dir()?;
            kept.remove()?;
            fresh.remove_dir()?;
        }
        Ok(is_exchanged)
    }

    /// Reads a pile, or what was the inbox, sends back what is no message, and names it after its first
    /// message. Returns what lies in it; nothing if it is used up.
    fn look_through(&self, path: &str) -> Result<Option<Contents>> {
        let pile = self.view.agent.join(path);
        let mut rounds = 0;
        let keys = loop {
            rounds += 1;
            if !pile.is_dir()? {
                return Ok(None);
            }
            say_looked_through(&pile)?;
            let (keys, strays) = self.list(path)?;
            let mut sent_back = 0;
            for stray in &strays {
                sent_back += usize::from(self.send_back(&pile.join(stray))?);
            }
            // Whoever goes on to put things there is not waited for.
            if sent_back == 0 || rounds == ROUNDS {
                break keys;
            }
            // Before the pile counts as looked through once more, they must have left it for good.
            self.disk.sync_dir(&self.inbox())?;
        };
        let Some(first) = keys.iter().min() else {
            // Something else that has come right now keeps it.
            let _ = pile.remove_dir();
            return Ok(None);
        };
        let place = layout::pile(*first);
        if path == place {
            return Ok(Some(Contents { path: place, keys }));
        }
        match pile.try_rename(&self.view.agent.join(&place))? {
            // Another one begins with a copy of the same message: it stays where it is, if that is a place.
            Err(Errno::NOTEMPTY | Errno::EXIST) => return Ok(Some(Contents { path: path.to_owned(), keys })),
            renamed => renamed.context("rename to", &pile)?,
        }
        self.disk.sync_dir(&self.inbox())?;
        self.disk.sync_dir(&pile.parent())?;
        Ok(Some(Contents { path: place, keys }))
    }

    /// The messages in a pile, and the names of what else is there.
    fn list(&self, path: &str) -> Result<(Vec<InboxKey>, Vec<OsString>)> {
        let (mut keys, mut strays) = (Vec::new(), Vec::new());
        self.view.agent.join(path).each_entry(|name, is_dir| {
            match parse_name(name, is_dir) {
                Name::Message(key) => keys.push(key),
                Name::Hint(_) | Name::Segment(_) | Name::Drop | Name::Rejected | Name::Other => {
                    strays.push(OsString::from_vec(name.to_vec()));
                }
            }
            true
        })?;
        Ok((keys, strays))
    }

    /// Puts something from a pile back into the inbox, unless something has its name there. Returns whether
    /// it is gone from the pile.
    fn send_back(&self, stray: &Spot) -> Result<bool> {
        let place = self.inbox().join(stray.name());
        if stray.name() == OsStr::new(layout::KEPT_NAME) && place.exists()? {
            return stray.remove().map(|()| true);
        }
        // The place of a pile in an inbox that was made and not exchanged.
        if stray.is_dir()? && stray.remove_dir().is_ok() {
            return Ok(true);
        }
        Ok(possible(stray.rename_if_free(&place))?.unwrap_or(false))
    }

    /// Takes the first messages out of a pile and makes segments of them.
    fn take_segments(&self, contents: Contents) -> Result<()> {
        let Contents { path, mut keys } = contents;
        if keys.len() > SEGMENT {
            keys.select_nth_unstable(SEGMENT);
            keys.truncate(SEGMENT);
        }
        keys.sort_unstable();
        self.move_to_segments(&path, &keys, LISTED)?;
        self.look_through(&path).map(drop)
    }

    /// Moves messages into segments of so many each.
    fn move_to_segments(&self, from: &str, keys: &[InboxKey], size: usize) -> Result<()> {
        let segments = || keys.chunks(size).map(|keys| self.view.agent.join(layout::segment(keys[0])));
        segments().try_for_each(|segment| segment.make_dirs())?;
        // The directories come first: a message that has left its place must have arrived somewhere.
        self.disk.sync_dir(&self.inbox())?;
        let from = self.view.agent.join(from);
        let Some(source) = from.open_dir()? else { return Ok(()) };
        for (keys, segment) in keys.chunks(size).zip(segments()) {
            let Some(target) = segment.open_dir()? else { return Err(Error::gone("open", &segment)) };
            for key in keys {
                let name = OsString::from(format!("{key}.json"));
                let moved = move_file(&source, &target, &name);
                if moved != Err(Errno::NOENT)
                    && let Err(error) = moved.context("move", &from.join(&name))
                {
                    // What can't be moved stays, and whoever reads it finds what is wrong with it.
                    fault_of_file(error)?;
                }
            }
        }
        segments().chain([from.clone()]).try_for_each(|dir| self.disk.sync_dir(&dir))
    }
}

/// Nothing where what lies there is at fault, as a directory that can't be read: whoever reads the messages
/// finds the same, and sets it aside.
fn possible<T>(done: Result<T>) -> Result<Option<T>> {
    done.map(Some).or_else(|error| fault_of_file(error).map(|_| None))
}

/// The pile that has the next message, if a pile has it.
fn in_front(scan: &Scan) -> Option<&Segment> {
    let next = scan.segments.first().filter(|segment| segment.pile.is_some())?;
    scan.direct.first().is_none_or(|direct| next.from <= *direct).then_some(next)
}
