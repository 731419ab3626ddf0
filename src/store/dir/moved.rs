//! An agent that was moved away: which files of the inbox its stream has, and what happens to
//! arrivals that come later.
//!
//! The command that moves an agent commits the mark first and then lists the inbox, both under the
//! agent's lock. A command that puts something into the inbox looks for the mark afterwards. If it
//! finds no mark, the list is made later and has the arrival. If it finds the mark, the list
//! decides: what is listed is in the stream, and everything else is taken back and refused.

use std::collections::{BTreeSet, HashSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::beneath::{Number, Spot};
use crate::error::{Error, Result};
use crate::model::agent::Identity;
use crate::model::id::AgentName;
use crate::model::moved::{Leave, Moved};
use crate::model::time::Time;

use super::agent::DirAgent;
use super::change::DirTxn;
use super::layout::{self, AgentDir};
use super::{files, lock};

/// The files that were taken from an inbox: paths from there, sorted.
#[derive(Debug, Default)]
pub struct TakenInbox {
    paths: BTreeSet<PathBuf>,
}

impl TakenInbox {
    /// Those of an agent's files that are in its inbox. The given paths are from the agent's
    /// directory.
    pub(super) fn of<'p>(files: impl Iterator<Item = &'p Path>) -> TakenInbox {
        let in_inbox = files.filter_map(|path| path.strip_prefix(layout::INBOX).ok());
        TakenInbox { paths: in_inbox.map(Path::to_owned).collect() }
    }

    /// True if a file of the agent was taken; its path is from the agent's directory. All files
    /// outside of the inbox were taken.
    pub(super) fn has_of(&self, path: &Path) -> bool {
        path.strip_prefix(layout::INBOX).map_or(true, |path| self.paths.contains(path))
    }

    /// The names of the files that were taken, in whatever directory of the inbox they were.
    fn names(&self) -> HashSet<&OsStr> {
        self.paths.iter().filter_map(|path| path.file_name()).collect()
    }

    /// A line for each path; a byte that is not printable ASCII becomes `%` and two hexadecimal
    /// digits.
    fn encode(&self) -> Vec<u8> {
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

    fn decode(spot: &Spot, bytes: &[u8]) -> Result<TakenInbox> {
        let mut paths = BTreeSet::new();
        for (at, line) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
            let path = line.strip_suffix(b"\n").and_then(unescape).ok_or_else(|| Error::Damaged {
                path: spot.path().to_owned(),
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
    /// The files of the inbox that the stream of a moved agent has. `None`: they were not listed
    /// yet.
    pub(super) fn taken(&self) -> Result<Option<TakenInbox>> {
        taken_in(&self.dir)
    }

    /// Writes that list, durably. To be called under the lock.
    pub(super) fn note_taken(&self, taken: &TakenInbox) -> Result<()> {
        if self.store.is_shared() {
            // Members of the sharing group can't read the mark, so this takes away their right to
            // add files.
            self.dir.join(layout::INBOX).set_mode(0o700)?;
        }
        self.replace_file(&self.dir.join(layout::TAKEN), &taken.encode())
    }

    /// The files that came too late for the stream of a moved agent, as paths from the inbox. None
    /// for an agent that was not moved.
    pub(super) fn late(&self) -> Result<Vec<PathBuf>> {
        let mut late = Vec::new();
        let Some(taken) = self.taken()? else { return Ok(late) };
        each_file(&self.dir.join(layout::INBOX), Path::new(""), &mut |path| {
            if !taken.paths.contains(path) {
                late.push(path.to_owned());
            }
        })?;
        Ok(late)
    }

    /// Number of files that came too late for the stream of a moved agent.
    pub fn count_late(&self) -> Result<usize> {
        Ok(self.late()?.len())
    }

    /// To be called after files were put into the inbox under these names, without the lock: takes
    /// back what came too late, and refuses it. `here`: what [`DirAgent::here`] said before. A user
    /// who can't read the mark is not told of a move.
    pub(super) fn unless_left(&self, here: Number, names: &[String], now: Time) -> Result<()> {
        if self.here()? != here {
            return self.unless_replaced(names, now);
        }
        match self.peek() {
            Ok(state) if state.moved.is_some() => self.unless_moved(names, now),
            Err(error @ Error::NoAgent { .. }) => Err(error),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// The agent that had the name when these arrivals were made has made room for another one:
    /// what an import has carried over to that is there, and what went with an agent that was
    /// removed is not.
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
                self.name(),
                names.len()
            ),
        )
        .with_hint(format!("`dormouse queue list {}` says which; say the others again", self.name())))
    }

    fn unless_moved(&self, names: &[String], now: Time) -> Result<()> {
        let path = self.dir.join(layout::LOCK);
        let held = lock::acquire(&path, &self.store.holder(now), self.store.opener.patience);
        let _held = self.unless_gone(held)?;
        // The agent may be back by now, and then has what was put there.
        let Some(moved) = self.peek()?.moved else { return Ok(()) };
        // If nothing was listed yet, nothing was taken.
        let taken = self.taken()?.unwrap_or_default();
        let taken = taken.names();
        let mut late = 0;
        for name in names.iter().filter(|name| !taken.contains(OsStr::new(name))) {
            late += usize::from(self.take_back(name)?);
        }
        match late {
            0 => Ok(()),
            _ if late == names.len() => Err(moved_away(self, &moved)),
            late => Err(Error::refused(Error::MOVED, format!(
                    "`{}` was {moved} meanwhile: of {} messages the first {} went with it, the others were not \
                     admitted",
                    self.name(),
                    names.len(),
                    names.len() - late
                )).with_hint("`dormouse queue list` there says which")),
        }
    }

    /// Removes an arrival from whatever directory of the inbox it is in. `false`: a step has dealt
    /// with it.
    fn take_back(&self, name: &str) -> Result<bool> {
        let found = self.find_arrival(name)?;
        found.as_ref().map_or(Ok(()), Spot::remove)?;
        Ok(found.is_some())
    }

    /// An arrival, in whatever directory of the inbox it is.
    fn find_arrival(&self, name: &str) -> Result<Option<Spot>> {
        let inbox = self.dir.join(layout::INBOX);
        let former = self.dir.join(layout::FORMER);
        let mut dirs = vec![inbox.clone(), former];
        dirs.extend(
            inbox.entries()?.iter().filter(|entry| entry.is_dir).map(|entry| inbox.join(&entry.name)),
        );
        for dir in dirs {
            let spot = dir.join(name);
            if spot.exists()? {
                return Ok(Some(spot));
            }
        }
        Ok(None)
    }
}

impl DirTxn<'_> {
    /// The opposite of noting what was taken: an agent that did not leave after all has no such
    /// list. To be called before the mark is taken away.
    pub fn forget_taken(&self) -> Result<()> {
        self.agent.dir.join(layout::TAKEN).remove()?;
        self.agent.store.share([&self.agent.dir]).map(drop)
    }
}

/// The refusal of every change of an agent that was moved, or is about to vanish here.
pub(super) fn moved_away(agent: &DirAgent<'_>, moved: &Moved) -> Error {
    refusal(agent.name(), || agent.identity(), moved)
}

/// Returns the refusal for a moved agent whose identity may be in another store.
pub fn refusal(name: &AgentName, identity: impl FnOnce() -> Result<Identity>, moved: &Moved) -> Error {
    let hint = match moved.by {
        Leave::Move => "turn to it there; to have it back, import its stream from there here".to_owned(),
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

fn taken_in(dir: &AgentDir) -> Result<Option<TakenInbox>> {
    let spot = dir.join(layout::TAKEN);
    let bytes = spot.read(files::MAX_LINES)?;
    bytes.map(|bytes| TakenInbox::decode(&spot, &bytes)).transpose()
}

/// Calls `each` with every file of an inbox that is not hidden.
pub(super) fn each_file(inbox: &Spot, below: &Path, each: &mut impl FnMut(&Path)) -> Result<()> {
    for entry in inbox.join(below).entries()? {
        let path = below.join(&entry.name);
        let is_rejected = below.as_os_str().is_empty() && entry.name == layout::REJECTED;
        if entry.name.as_bytes().starts_with(b".") || is_rejected {
            continue;
        }
        if entry.is_dir { each_file(inbox, &path, each)? } else { each(&path) }
    }
    Ok(())
}

/// Puts what came too late for the stream of an agent, which is now at `former`, into the inbox of
/// the same agent that has come back. Of the old inbox this removes only what the stream has. If it
/// is killed at any point, it can be done again.
pub(super) fn carry_over(former: &AgentDir, back: &AgentDir) -> Result<()> {
    let Some(taken) = taken_in(former)? else { return Ok(()) };
    let from = former.join(layout::INBOX);
    carry_dir(&from, Path::new(""), &taken, &back.join(layout::INBOX))
}

fn carry_dir(from: &Spot, below: &Path, taken: &TakenInbox, to: &Spot) -> Result<()> {
    let dir = from.join(below);
    loop {
        for entry in dir.entries()? {
            let path = below.join(&entry.name);
            let spot = from.join(&path);
            let is_hidden = entry.name.as_bytes().starts_with(b".");
            if is_hidden || taken.paths.contains(&path) || path.starts_with(layout::REJECTED) {
                spot.remove_tree()?;
            } else if entry.is_dir {
                carry_dir(from, &path, taken, to)?;
            } else {
                let place = files::free_place(to, &entry.name)?;
                spot.rename_if_free(&place)?;
            }
        }
        // Files may still come until the directory is gone.
        match dir.remove_dir() {
            Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::DirectoryNotEmpty => {}
            removed => return removed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::beneath::at;

    #[test]
    fn what_was_taken_is_read_back() {
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
