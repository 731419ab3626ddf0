//! A long backlog: how a step moves many waiting messages out of `inbox/`, and brings them back in
//! order.
//!
//! To find the first of 100,000 names a directory has to be read whole, and ext4 stays slow to read
//! a directory that was large once. So when many messages lie in the inbox, a step exchanges it for
//! an empty one, in one call, and the former inbox becomes a pile in the new one. From the pile
//! that has the next message a step takes as many as make a few segments; until these are used up,
//! no step reads the pile.
//!
//! Invariants:
//!
//! 1. At every moment a message is in the inbox, in the former inbox, in a pile or in a segment.
//! 2. A reader that finds the new inbox empty **must** find the former one: the new inbox comes
//!    with a pile, an empty directory, whose place the former inbox takes.
//! 3. A pile is named after its first message. A reader that trusts the name **must** know that
//!    nothing has come since, because programs that have opened the inbox before the exchange still
//!    put files there. The time of change says so: a step sets it to [`LOOKED_THROUGH`] before it
//!    reads the pile, and every later arrival sets it to another time.
//! 4. Only empty directories are removed.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;

use rustix::io::Errno;

use crate::beneath::{Spot, move_file};
use crate::error::{Error, IoContext, Result};
use crate::model::message::InboxKey;

use super::files::{Disk, fault_of_file};
use super::inbox::{LOOKED_THROUGH, Name, SEGMENT, Scan, Segment, parse_name};
use super::view::View;
use super::{git, layout};

/// Marks a pile as looked through: its name is that of its first message. For a step that is about
/// to read the pile, or has just made it.
pub fn say_looked_through(pile: &Spot) -> Result<()> {
    // Where the time can't be set, the next step looks through the pile once more.
    pile.set_changed(LOOKED_THROUGH.0).map(drop)
}

/// Files messages, under the agent's lock.
#[derive(Debug)]
pub struct Filing<'a> {
    pub view: &'a View<'a>,
    pub disk: Disk,
}

/// Number of messages in a segment that is made from a pile. It is small because a step lists the
/// first segment several times.
const LISTED: usize = SEGMENT / 4;

/// Maximum number of times that a pile is read while files are still arriving in it.
const ROUNDS: u32 = 4;

/// The messages in a pile.
struct BucketContents {
    /// Where the pile is now, from the agent's directory.
    path: String,
    /// In no order.
    keys: Vec<InboxKey>,
}

impl Filing<'_> {
    /// True if messages have to be filed before the next one can be read.
    pub fn is_due(scan: &Scan) -> bool {
        scan.direct.len() > SEGMENT
            || scan.segments.iter().any(Segment::is_stirred)
            || in_front(scan).is_some()
    }

    /// Brings the next messages into the inbox itself or into a segment. Returns the inbox as it is
    /// then.
    pub fn file(&self, mut scan: Scan) -> Result<Scan> {
        if scan.direct.len() > SEGMENT {
            // A file that can't be moved would be in the way of an exchange, and steps remember it
            // by its place.
            let is_exchanged = !scan.passes_over() && possible(self.exchange(scan.direct[0]))? == Some(true);
            if !is_exchanged {
                self.move_to_segments(layout::INBOX, &scan.direct, SEGMENT)?;
            }
            scan = scan.anew(self.view)?;
        }
        let mut known = None;
        for pile in scan.segments.iter().filter(|segment| segment.is_stirred()) {
            // The former inbox has taken the place of another pile.
            if known.as_ref().is_none_or(|known: &BucketContents| known.path != pile.path) {
                known = possible(self.look_through(&pile.path))?.flatten();
            }
        }
        scan = scan.anew(self.view)?;
        if let Some(pile) = in_front(&scan) {
            let known = known.filter(|known| known.path == pile.path);
            let listed = match known {
                Some(known) => Some(known),
                None => possible(self.list(&pile.path))?
                    .map(|(keys, _)| BucketContents { path: pile.path.clone(), keys }),
            };
            listed.map_or(Ok(None), |contents| possible(self.take_segments(contents)))?;
            scan = scan.anew(self.view)?;
        }
        Ok(scan)
    }

    /// Makes a pile of the former inbox, if a step was killed before it had done so.
    pub fn finish(&self) -> Result<()> {
        self.look_through(layout::FORMER).map(drop)
    }

    fn inbox(&self) -> Spot {
        self.view.agent.join(layout::INBOX)
    }

    /// Exchanges the inbox for an empty one. Returns `false` where that can't be done: the file
    /// system may have no such call, or the inbox may have an owner or rights that can't be given
    /// to another directory.
    fn exchange(&self, first: InboxKey) -> Result<bool> {
        self.finish()?;
        let (inbox, fresh) = (self.inbox(), self.view.agent.join(layout::FORMER));
        let kept = fresh.join(layout::KEPT_NAME);
        let place = fresh.join(layout::pile(first).trim_start_matches(layout::INBOX).trim_start_matches('/'));
        if fresh.exists()? {
            // Another file has the name.
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

    /// Reads a pile or the former inbox, sends back what is no message, and names it after its
    /// first message. Returns the messages in it; `None` if it has none left.
    fn look_through(&self, path: &str) -> Result<Option<BucketContents>> {
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
            // Programs that go on putting files there are not waited for.
            if sent_back == 0 || rounds == ROUNDS {
                break keys;
            }
            // They must have left the pile for good before it counts as looked through again.
            self.disk.sync_dir(&self.inbox())?;
        };
        let Some(first) = keys.iter().min() else {
            // If another file has come right now, the directory stays.
            let _ = pile.remove_dir();
            return Ok(None);
        };
        let place = layout::pile(*first);
        if path == place {
            return Ok(Some(BucketContents { path: place, keys }));
        }
        match pile.try_rename(&self.view.agent.join(&place))? {
            // Another pile begins with a copy of the same message. This pile then stays where it
            // is, if that is a place for a pile.
            Err(Errno::NOTEMPTY | Errno::EXIST) => {
                return Ok(Some(BucketContents { path: path.to_owned(), keys }));
            }
            renamed => renamed.context("rename to", &pile)?,
        }
        self.disk.sync_dir(&self.inbox())?;
        self.disk.sync_dir(&pile.parent())?;
        Ok(Some(BucketContents { path: place, keys }))
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

    /// Puts a file from a pile back into the inbox, unless a file there has its name. Returns
    /// whether it is gone from the pile.
    fn send_back(&self, stray: &Spot) -> Result<bool> {
        let place = self.inbox().join(stray.name());
        if stray.name() == OsStr::new(layout::KEPT_NAME) && place.exists()? {
            return stray.remove().map(|()| true);
        }
        // The place for a pile, in an inbox that was made and never exchanged.
        if stray.is_dir()? && stray.remove_dir().is_ok() {
            return Ok(true);
        }
        Ok(possible(stray.rename_if_free(&place))?.unwrap_or(false))
    }

    /// Takes the first messages out of a pile and makes segments of them.
    fn take_segments(&self, contents: BucketContents) -> Result<()> {
        let BucketContents { path, mut keys } = contents;
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
        // The directories come first: a message that has left its place must have arrived
        // somewhere.
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
                    // A file that can't be moved stays; a step that reads it finds what is wrong
                    // with it.
                    fault_of_file(error)?;
                }
            }
        }
        segments().chain([from.clone()]).try_for_each(|dir| self.disk.sync_dir(&dir))
    }
}

/// `None` if the fault lies in the file or directory itself, such as a directory that can't be
/// read: a step that reads the messages finds the same fault, and sets it aside.
fn possible<T>(done: Result<T>) -> Result<Option<T>> {
    done.map(Some).or_else(|error| fault_of_file(error).map(|_| None))
}

/// The pile that has the next message, if a pile has it.
fn in_front(scan: &Scan) -> Option<&Segment> {
    let next = scan.segments.first().filter(|segment| segment.pile.is_some())?;
    scan.direct.first().is_none_or(|direct| next.from <= *direct).then_some(next)
}
