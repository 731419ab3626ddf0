//! Long backlogs: a step moves many waiting messages out of `inbox/` into directories, from which
//! later steps take them in order.
//!
//! To find the first of 100,000 names, the whole directory has to be read, and ext4 stays slow to
//! read a directory that was large once. So if the inbox has many messages, a step exchanges it for
//! an empty directory, in one call, and the former inbox becomes a bucket in the new inbox. From
//! the bucket with the next message, a step makes a few segments (small buckets); until these are
//! used up, no step reads the bucket.
//!
//! Invariants:
//!
//! 1. At every moment a message is in the inbox, in the former inbox, in a bucket or in a segment.
//! 2. A reader that finds the new inbox empty **must** find the former inbox: the new inbox is made
//!    with a bucket, an empty directory that the former inbox then replaces.
//! 3. A bucket is named after its first message. A reader that trusts the name **must** know that
//!    nothing has arrived since, because programs that opened the inbox before the exchange still
//!    put files there. The modification time shows that: a step sets it to [`CLEAN`]
//!    before the step reads the bucket, and every later arrival changes it.
//! 4. Only empty directories are removed.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;

use rustix::io::Errno;

use crate::cap_fs::{CapPath, move_file};
use crate::error::{Error, IoContext, Result};
use crate::local::files::{Disk, fault_of_file};
use crate::local::{git, layout};
use crate::model::message::InboxKey;

use super::inbox::{CLEAN, Name, SEGMENT, Scan, Segment, parse_name};
use super::view::View;

/// Marks a bucket (directory of waiting messages) as scanned, by its modification time, so that
/// readers trust that the bucket's name is the key of its first message. Called before a step reads
/// the bucket, or after the step has made the bucket.
pub fn mark_clean(bucket: &CapPath) -> Result<()> {
    // A failure to set the time is harmless, because the next step then scans the bucket again.
    bucket.set_changed(CLEAN.0).map(drop)
}

/// Moves waiting messages into directories of the inbox. The caller holds the agent's lock.
#[derive(Debug)]
pub struct Filing<'a> {
    pub view: &'a View<'a>,
    pub disk: Disk,
}

/// Number of messages in a small directory (segment) that is filled from a large one (bucket). Low,
/// because a step lists the first segment several times.
const LISTED: usize = SEGMENT / 4;

/// Maximum number of times that a step lists a directory into which files are still put.
const ROUNDS: u32 = 4;

impl Filing<'_> {
    /// True if messages have to be moved to other directories before a step reads the next message.
    pub fn is_due(scan: &Scan) -> bool {
        scan.direct.len() > SEGMENT || scan.segments.iter().any(Segment::is_dirty) || in_front(scan).is_some()
    }

    /// Moves messages, so that the next ones are directly in the inbox or in a small directory
    /// (segment). Returns a scan of the inbox after that.
    pub fn file(&self, mut scan: Scan) -> Result<Scan> {
        if scan.direct.len() > SEGMENT {
            // The inbox is not replaced by an empty directory if steps skip an immovable file: its
            // path in the list of skipped files would change.
            let is_exchanged = !scan.passes_over() && possible(self.exchange(scan.direct[0]))? == Some(true);
            if !is_exchanged {
                self.move_to_segments(layout::INBOX, &scan.direct, SEGMENT)?;
            }
            scan = scan.anew(self.view)?;
        }
        for bucket in scan.segments.iter().filter(|segment| segment.is_dirty()) {
            possible(self.sort_former_dir(&bucket.path))?;
        }
        scan = scan.anew(self.view)?;
        if let Some(bucket) = in_front(&scan) {
            possible(self.take_segments(&bucket.path))?;
            scan = scan.anew(self.view)?;
        }
        Ok(scan)
    }

    /// Moves the former inbox into the new inbox as a bucket, if a killed step has not done so.
    pub fn finish(&self) -> Result<()> {
        self.sort_former_dir(layout::FORMER)
    }

    fn inbox(&self) -> CapPath {
        self.view.agent.join(layout::INBOX)
    }

    /// Exchanges the inbox for an empty directory with a bucket that is named after the message
    /// `first`. Returns `false` if that is impossible: the file system may lack such a call, or the
    /// inbox may have an owner or permissions that can't be given to another directory.
    fn exchange(&self, first: InboxKey) -> Result<bool> {
        self.finish()?;
        let (inbox, fresh) = (self.inbox(), self.view.agent.join(layout::FORMER));
        let kept = fresh.join(layout::KEPT_NAME);
        let place =
            fresh.join(layout::bucket(first).trim_start_matches(layout::INBOX).trim_start_matches('/'));
        if fresh.exists()? {
            // An entry that `finish` could not move away has the path of the former inbox.
            return Ok(false);
        }
        fresh.make_dir()?;
        let mut is_exchanged = false;
        if fresh.copy_owner_from(&inbox)? {
            if inbox.join(layout::KEPT_NAME).exists()? {
                self.disk.stage(&kept, git::KEPT.as_bytes())?;
            }
            place.make_dir()?;
            self.disk.sync_dir(&fresh)?;
            is_exchanged = fresh.try_exchange(&inbox)?.is_ok();
        }
        if is_exchanged {
            self.disk.sync_dir(self.view.agent.cap())?;
        } else {
            place.remove_dir()?;
            kept.remove()?;
            fresh.remove_dir()?;
        }
        Ok(is_exchanged)
    }

    /// Scans a bucket (message directory) or the former inbox. Moves other entries back to the
    /// inbox, and names the directory after its first message or, without messages, removes it.
    fn sort_former_dir(&self, path: &str) -> Result<()> {
        let bucket = self.view.agent.join(path);
        let mut rounds = 0;
        let keys = loop {
            rounds += 1;
            if !bucket.is_dir()? {
                return Ok(());
            }
            mark_clean(&bucket)?;
            let (keys, strays) = self.list(path)?;
            let mut sent_back = 0;
            for stray in &strays {
                sent_back += usize::from(self.send_back(&bucket.join(stray))?);
            }
            // Stop after `ROUNDS`, because other programs may add files without end.
            if sent_back == 0 || rounds == ROUNDS {
                break keys;
            }
            // Files sent back to the inbox must be durable before this directory counts as scanned.
            self.disk.sync_dir(&self.inbox())?;
        };
        let Some(first) = keys.iter().min() else {
            // If a file has arrived in the meantime, the directory is not empty and stays.
            let _ = bucket.remove_dir();
            return Ok(());
        };
        let place = layout::bucket(*first);
        if path == place {
            return Ok(());
        }
        match bucket.try_rename(&self.view.agent.join(&place))? {
            // The new path is taken: another directory begins with a copy of the same message. This
            // directory keeps its current path.
            Err(Errno::NOTEMPTY | Errno::EXIST) => return Ok(()),
            renamed => renamed.context("rename to", &bucket)?,
        }
        self.disk.sync_dir(&self.inbox())?;
        self.disk.sync_dir(&bucket.parent())
    }

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

    /// Moves a file from a directory of messages back into the inbox, unless the inbox has a file
    /// of that name. Returns true if the file is no longer in the directory.
    fn send_back(&self, stray: &CapPath) -> Result<bool> {
        let place = self.inbox().join(stray.name());
        if stray.name() == OsStr::new(layout::KEPT_NAME) && place.exists()? {
            return stray.remove().map(|()| true);
        }
        // A step that was killed before it replaced the inbox leaves an empty directory.
        if stray.is_dir()? && stray.remove_dir().is_ok() {
            return Ok(true);
        }
        Ok(possible(stray.rename_if_free(&place))?.unwrap_or(false))
    }

    /// Moves the first messages of a large directory (bucket) into new small ones (segments).
    fn take_segments(&self, path: &str) -> Result<()> {
        let (mut keys, _) = self.list(path)?;
        if keys.len() > SEGMENT {
            keys.select_nth_unstable(SEGMENT);
            keys.truncate(SEGMENT);
        }
        keys.sort_unstable();
        self.move_to_segments(path, &keys, LISTED)?;
        self.sort_former_dir(path)
    }

    /// Moves messages into new directories (segments) of `size` messages each.
    fn move_to_segments(&self, from: &str, keys: &[InboxKey], size: usize) -> Result<()> {
        let segments = || keys.chunks(size).map(|keys| self.view.agent.join(layout::segment(keys[0])));
        segments().try_for_each(|segment| segment.make_dirs())?;
        // The directories are synced first, so that a moved message is durable at its new path.
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
                    // An immovable file stays; the step that reads the file reports the fault.
                    fault_of_file(error)?;
                }
            }
        }
        segments().chain([from.clone()]).try_for_each(|dir| self.disk.sync_dir(&dir))
    }
}

/// Returns `None` if the error is a fault of the file or directory itself, such as a directory that
/// can't be read: a step that reads the messages finds the same fault, and quarantines the entry.
fn possible<T>(done: Result<T>) -> Result<Option<T>> {
    done.map(Some).or_else(|error| fault_of_file(error).map(|_| None))
}

/// Returns the large directory (bucket) that has the next message, or `None` if none has it.
fn in_front(scan: &Scan) -> Option<&Segment> {
    let next = scan.segments.first().filter(|segment| segment.bucket_changed_at.is_some())?;
    scan.direct.first().is_none_or(|direct| next.from <= *direct).then_some(next)
}
