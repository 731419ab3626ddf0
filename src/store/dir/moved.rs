//! Agents that have left by `export --move` or `rm`: the list of the inbox files in the export, and
//! the refusal of later arrivals.
//!
//! `export --move` or `rm` first commits the mark (`moved` in `state.json`) and then lists
//! the inbox, both under the agent's lock. A command that puts a file into the inbox checks the
//! mark afterwards. If no mark is set, the list is made later and has the arrival. If the mark is
//! set, the list decides: listed files are in the stream, and all others are taken back and
//! refused.

use std::collections::{BTreeSet, HashSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::cap_fs::{CapPath, Entry};
use crate::error::{Error, Result};
use crate::local::layout::{self, AgentDir};
use crate::local::stale_files::{NEW, abandoned};
use crate::local::travel::walk;
use crate::local::{LocalAgent, StateDir, files};
use crate::model::agent::Identity;
use crate::model::id::AgentName;
use crate::model::moved::{Leave, Moved};
use crate::model::place::PlaceId;
use crate::model::time::Time;

use super::super::backend::AgentRecords;
use super::agent::DirAgent;
use super::change::DirTxn;
use super::record::decode;

/// Inbox files in the export of an agent that is marked as moved, as sorted paths in the inbox.
#[derive(Debug, Default)]
pub struct TakenInbox {
    paths: BTreeSet<PathBuf>,
}

impl TakenInbox {
    /// Selects the files of the inbox from all files of an agent. The given paths are relative to
    /// the agent's directory.
    pub(super) fn of<'p>(files: impl Iterator<Item = &'p Path>) -> TakenInbox {
        let in_inbox = files.filter_map(|path| path.strip_prefix(layout::INBOX).ok());
        TakenInbox { paths: in_inbox.map(Path::to_owned).collect() }
    }

    /// True if the export stream has a file; the path is relative to the agent's directory. The
    /// stream has all files outside of the inbox.
    pub(super) fn has_of(&self, path: &Path) -> bool {
        path.strip_prefix(layout::INBOX).map_or(true, |path| self.paths.contains(path))
    }

    /// Returns the names of the exported inbox files, without their directories in the inbox.
    fn names(&self) -> HashSet<&OsStr> {
        self.paths.iter().filter_map(|path| path.file_name()).collect()
    }

    /// Encodes the list, one path a line; a byte that is not printable ASCII becomes `%` and two
    /// hexadecimal digits.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for path in &self.paths {
            for byte in path.as_os_str().as_bytes() {
                match byte {
                    b'%' | 0..=0x1f | 0x7f.. => bytes.extend(format!("%{byte:02x}").into_bytes()),
                    plain => bytes.push(*plain),
                }
            }
            bytes.push(b'\n');
        }
        bytes
    }

    /// Reads the list of the inbox files in the export of an agent; `None` if no list was written.
    pub(super) fn read(dir: &AgentDir) -> Result<Option<TakenInbox>> {
        let cap = dir.join(layout::TAKEN);
        let bytes = cap.read(files::MAX_LINES)?;
        bytes.map(|bytes| TakenInbox::decode(&cap, &bytes)).transpose()
    }

    fn decode(cap: &CapPath, bytes: &[u8]) -> Result<TakenInbox> {
        let mut paths = BTreeSet::new();
        for (at, line) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
            let path = line.strip_suffix(b"\n").and_then(unescape).ok_or_else(|| Error::Damaged {
                path: cap.path().to_owned(),
                line: at + 1,
                column: 0,
                message: "not the path of something in the inbox".to_owned(),
                hint: Some("bring it back from a backup: it says what the agent's stream has".to_owned()),
            })?;
            paths.insert(PathBuf::from(OsString::from_vec(path)));
        }
        Ok(TakenInbox { paths })
    }
}

fn unescape(line: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(line.len());
    let mut rest = line;
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digits = std::str::from_utf8(after.get(..2)?).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = &after[2..];
    }
    (!bytes.is_empty()).then_some(bytes)
}

impl DirAgent<'_> {
    /// Completes a delivery. `put`: result of moving files with these `names` into the inbox,
    /// without the agent's lock. Removes and refuses files that arrived too late to be exported.
    /// `here`: identity of the agent's directory before the delivery.
    pub(super) fn confirm(&self, put: Result<()>, here: PlaceId, names: &[String], now: Time) -> Result<()> {
        if self.local.state_dir.guest.is_some() {
            return self.unless_departed(put, here, names.len());
        }
        let is_here = self.local.dir.cap().number()? == Some(here);
        let checked = match self.unless_gone(put) {
            // A new agent has this name now; the staged files went with the old agent.
            Err(error) if error.is_not_found() && !is_here => return self.unless_replaced(names, now),
            Err(error) => return Err(error),
            Ok(()) if !is_here => self.unless_replaced(names, now),
            Ok(()) => match self.peek() {
                Ok(state) if state.moved.is_some() => self.unless_moved(names, now),
                Err(error @ Error::NoAgent { .. }) => Err(error),
                Ok(_) | Err(_) => Ok(()),
            },
        };
        match checked {
            // After a rename the files are in the inbox of the renamed agent.
            Err(error) if !error.is_moved() && self.local.state_dir.is_renamed(&self.local.name, here)? => {
                Ok(())
            }
            checked => checked,
        }
    }

    /// Returns `done`, the result of an operation in the inbox, or for a sharing group member an
    /// error if the agent was moved, removed or replaced meanwhile. `here`: identity of its
    /// directory before that. `count`: number of messages and hints that the operation delivers.
    pub(super) fn unless_departed<T>(&self, done: Result<T>, here: PlaceId, count: usize) -> Result<T> {
        if self.local.state_dir.guest.is_none() {
            return done;
        }
        // A failed operation may have delivered all of its messages but the last.
        let may_be_there = count > usize::from(done.is_err());
        let inbox = || self.local.dir.join(layout::INBOX).glance().ok().flatten();
        let is_closed = || inbox().is_some_and(|inbox| inbox.st_mode & 0o070 == 0);
        let is_shut_out = |error: &Error| error.kind() == "not_allowed" && is_closed();
        let (kind, event) = match (self.local.dir.cap().number()?, done) {
            (None, _) if !may_be_there => return Err(self.gone()),
            (None, _) => (Error::MOVED, "was renamed or removed meanwhile"),
            (Some(there), _) if there != here => {
                ("agent_replaced", "was replaced by another agent meanwhile")
            }
            (_, Err(error)) if is_shut_out(&error) => (Error::MOVED, "was moved away"),
            (_, done) => return done,
        };
        let known = if may_be_there { "a message may have reached it" } else { "no message has reached it" };
        let hint = "ask the owner where it is; there the same `--dedupe-key` admits a message once";
        Err(Error::refused(kind, format!("`{}` {event}: {known}", self.local.name)).with_hint(hint))
    }

    /// Error unless all these arrivals are in the inbox of the new agent of this name: an import
    /// moves them from the replaced agent to the new inbox, a removal deletes them.
    fn unless_replaced(&self, names: &[String], now: Time) -> Result<()> {
        let _held = self.change(now)?;
        let mut arrived = 0;
        for name in names {
            arrived += usize::from(self.find_arrival(name)?.is_some());
        }
        if arrived == names.len() {
            return Ok(());
        }
        Err(Error::refused(
            "agent_replaced",
            format!(
                "another agent took the name `{}` meanwhile: of {} messages {arrived} are in its inbox",
                self.local.name,
                names.len()
            ),
        )
        .with_hint(format!("`dormouse queue list {}` shows which; send the others again", self.local.name)))
    }

    fn unless_moved(&self, names: &[String], now: Time) -> Result<()> {
        let _held = self.unless_gone(self.local.lock(now))?;
        // If the agent is no longer marked as moved, its inbox keeps the new files.
        let Some(moved) = self.peek()?.moved else { return Ok(()) };
        // Without a list, no inbox file was exported.
        let taken = TakenInbox::read(&self.local.dir)?.unwrap_or_default();
        let taken = taken.names();
        let mut late = 0;
        for name in names.iter().filter(|name| !taken.contains(OsStr::new(name))) {
            // A step may have taken the arrival out of the inbox already.
            let Some(arrival) = self.find_arrival(name)? else { continue };
            arrival.remove()?;
            late += 1;
        }
        match late {
            0 => Ok(()),
            _ if late == names.len() => Err(moved_away(self, &moved)),
            late => Err(Error::refused(Error::MOVED, format!(
                    "`{}` was {moved} meanwhile: of {} messages the first {} went with it, the others were not \
                     admitted",
                    self.local.name,
                    names.len(),
                    names.len() - late
                )).with_hint("`dormouse queue list` there shows which")),
        }
    }

    /// Finds a new file in the inbox, in a subdirectory, or in the inbox that a step has replaced.
    fn find_arrival(&self, name: &str) -> Result<Option<CapPath>> {
        let inbox = self.local.dir.join(layout::INBOX);
        let mut dirs = vec![inbox.clone(), self.local.dir.join(layout::FORMER)];
        dirs.extend(
            inbox.entries()?.iter().filter(|entry| entry.is_dir).map(|entry| inbox.join(&entry.name)),
        );
        for dir in dirs {
            let cap = dir.join(name);
            if cap.exists()? {
                return Ok(Some(cap));
            }
        }
        Ok(None)
    }
}

/// Returns the inbox files of an agent marked as moved that arrived too late to be exported, as
/// paths relative to the inbox. Empty for any other agent.
pub(super) fn late(agent: &AgentDir) -> Result<Vec<PathBuf>> {
    let mut late = Vec::new();
    let Some(taken) = TakenInbox::read(agent)? else { return Ok(late) };
    each_file(&agent.join(layout::INBOX), &mut |path| {
        if !taken.paths.contains(path) {
            late.push(path.to_owned());
        }
    })?;
    Ok(late)
}

impl LocalAgent<'_> {
    /// Number of inbox files that arrived too late to be exported, after the mark as moved.
    pub fn count_late(&self) -> Result<usize> {
        Ok(late(&self.dir)?.len())
    }
}

impl DirTxn<'_> {
    /// Removes the list of the exported inbox files, for an agent whose move was cancelled. Must be
    /// called before the `moved` mark is removed.
    pub(super) fn forget_taken(&self) -> Result<()> {
        self.agent.local.dir.join(layout::TAKEN).remove()?;
        self.agent.local.state_dir.share([&self.agent.local.dir]).map(drop)
    }
}

/// Error for every change of an agent that has left by `export --move`, `rm` or `rename`.
pub(super) fn moved_away(agent: &DirAgent<'_>, moved: &Moved) -> Error {
    let path = agent.local.dir.join(layout::IDENTITY);
    refusal(&agent.local.name, || decode(&path, agent.identity()?.as_bytes()), moved)
}

/// Error for a change of an agent that is marked as moved. `identity`: reads the identity of the
/// agent, which may be in another store.
pub fn refusal(name: &AgentName, identity: impl FnOnce() -> Result<Identity>, moved: &Moved) -> Error {
    let hint = match moved.by {
        Leave::Move => "use it there; to move it back, export it there and import the stream here".to_owned(),
        Leave::Remove => format!("`dormouse rm {name}` ends that; an import of its stream brings it back"),
        Leave::Rename => {
            let had = if moved.to == name.as_str() { identity().ok() } else { None };
            let former = had.and_then(|identity| identity.former_names.last().map(|had| had.name.clone()));
            let former = former.as_ref().unwrap_or(name);
            format!("try again; if it stays so, `dormouse rename {former} {}` ends that", moved.to)
        }
    };
    Error::refused(Error::MOVED, format!("`{name}` was {moved}, at {}", moved.at)).with_hint(hint)
}

/// Calls `each` with every file of an inbox that is not hidden.
pub(super) fn each_file(inbox: &CapPath, each: &mut dyn FnMut(&Path)) -> Result<()> {
    walk(inbox, Path::new(""), &mut |path, entry| {
        let is_hidden = entry.name.as_bytes().starts_with(b".") || path == Path::new(layout::REJECTED);
        if !is_hidden && !entry.is_dir {
            each(path);
        }
        Ok(!is_hidden)
    })
}

impl StateDir {
    /// Removes files of killed commands from the state directory. Files that can't be removed stay,
    /// because they block no command.
    pub fn sweep_stale(&self) {
        for left in self.stale_files().unwrap_or_default() {
            let _ = self.sweep(&left);
        }
    }

    /// Removes a stale agent directory or file. Error if a living process has locked it. Arrivals
    /// in an old copy of an agent that an import has replaced are moved to the agent.
    pub fn sweep(&self, cap: &CapPath) -> Result<()> {
        let entry = Entry { name: cap.name().to_owned(), is_dir: cap.is_dir()? };
        match abandoned(&cap.parent(), &entry) {
            Some((cap, _held)) => {
                if let Some(name) = self.name_of_staged(&cap) {
                    carry_over(&AgentDir::at(cap.clone()), &AgentDir::new(&self.root, &name))?;
                }
                cap.remove_tree()
            }
            None => Err(Error::busy(cap.path(), "its maker".to_owned(), std::time::Duration::ZERO)),
        }
    }

    /// Returns the name of the agent whose creation began at this path.
    fn name_of_staged(&self, cap: &CapPath) -> Option<AgentName> {
        let name = cap.name().to_str()?.strip_prefix(NEW)?;
        name.rsplit_once('-')?.0.parse().ok()
    }
}

/// Moves messages that arrived after the export of an agent by `export --move` or `rm` from its old
/// inbox, in the directory `former`, to the inbox of the imported agent `back`. Deletes all other
/// files of the old inbox: exported, rejected or hidden. Can be repeated after a kill.
pub(super) fn carry_over(former: &AgentDir, back: &AgentDir) -> Result<()> {
    let Some(taken) = TakenInbox::read(former)? else { return Ok(()) };
    let from = former.join(layout::INBOX);
    carry_dir(&from, Path::new(""), &taken, &back.join(layout::INBOX))
}

fn carry_dir(from: &CapPath, below: &Path, taken: &TakenInbox, to: &CapPath) -> Result<()> {
    let dir = from.join(below);
    loop {
        for entry in dir.entries()? {
            let path = below.join(&entry.name);
            let cap = from.join(&path);
            let is_hidden = entry.name.as_bytes().starts_with(b".");
            if is_hidden || taken.paths.contains(&path) || path.starts_with(layout::REJECTED) {
                cap.remove_tree()?;
            } else if entry.is_dir {
                carry_dir(from, &path, taken, to)?;
            } else {
                let place = files::free_place(to, &entry.name, "")?;
                cap.rename_if_free(&place)?;
            }
        }
        // Files may still arrive until the directory is removed.
        match dir.remove_dir() {
            Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::DirectoryNotEmpty => {}
            removed => return removed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cap_fs::at;

    #[test]
    fn the_list_of_moved_inbox_files_survives_encoding() {
        let dir = tempfile::tempdir().unwrap();
        let odd = OsString::from_vec(b"inbox/a%b\n\xff".to_vec());
        let files = [
            Path::new("inbox/2-x.json"),
            Path::new("inbox/from-2-x/2-y.json"),
            Path::new(&odd),
            Path::new("work/z"),
        ];
        let taken = TakenInbox::of(files.iter().copied());
        let bytes = taken.encode();
        assert_eq!(bytes, b"2-x.json\na%25b%0a%ff\nfrom-2-x/2-y.json\n");
        let again = TakenInbox::decode(&at(dir.path()), &bytes).unwrap();
        assert_eq!(again.paths, taken.paths);
        assert!(again.has_of(Path::new("work/other")) && !again.has_of(Path::new("inbox/2-other.json")));
        assert!(
            again.names().contains(OsStr::new("2-y.json")) && !again.names().contains(OsStr::new("from-2-x"))
        );
        for bad in [&b"x"[..], b"\n", b"%4\n", b"%zz\n"] {
            assert!(TakenInbox::decode(&at(dir.path()), bad).is_err());
        }
    }
}
