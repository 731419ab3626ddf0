//! Permissions of the files of a state directory: users that can write them or reach them.

use std::collections::HashSet;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Stat};
use walkdir::{DirEntry, WalkDir};

use crate::cap_fs::{self, CapPath, accounts};
use crate::error::{Error, Result};
use crate::local::{StateDir, authors::is_writable_by_others, layout, sharing::WrongRights};

use super::super::inbox::is_own;
use super::records::Checkup;
use super::{Finding, Remedy, text_without_path};

impl StateDir {
    /// Returns findings about the state directory itself: users that can write to it, users whose
    /// access differs from the settings, and permissions that can't be set.
    pub(super) fn rights(&self) -> Result<Vec<Finding>> {
        let settings = self.cap().join(layout::CONFIG);
        let places = [self.cap(), self.cap().join(layout::AGENTS), settings.clone()];
        let mut findings: Vec<Finding> =
            places.iter().filter_map(|place| writable_by_others(place, |_| false)).collect();
        let at_settings =
            |error: &Error| Finding::new(settings.clone(), "sharing", text_without_path(error), Remedy::JOIN);
        match self.unshared() {
            Ok(wrong) => {
                findings.extend(wrong.into_iter().map(unshared));
                findings.extend(self.not_in_group()?.as_ref().map(at_settings));
            }
            Err(error @ Error::Damaged { .. }) if error.path() == Some(settings.path()) => {
                findings.push(at_settings(&error));
            }
            Err(error) => return Err(error),
        }
        let mut foreign = Foreign::in_dir(self, self.cap());
        let agents = self.cap().join(layout::AGENTS);
        let own = WalkDir::new(self.cap().path()).into_iter();
        // The files of agents are checked separately, agent by agent.
        for entry in own.filter_entry(|entry| entry.path().parent() != Some(agents.path())).flatten() {
            foreign.note(&entry);
        }
        findings.extend(foreign.findings());
        Ok(findings)
    }
}

/// Files of a directory that belong to other users than the owner of the state directory.
struct Foreign {
    dir: CapPath,
    /// User id and name of the owner of the state directory.
    owner: (u32, String),
    /// Files of others that the directory's owner can read: first path, its user id, and number.
    open: Option<(PathBuf, u32, usize)>,
    /// Files of others that the directory's owner can't read: first path, its user id, and number.
    closed: Option<(PathBuf, u32, usize)>,
}

impl Foreign {
    fn in_dir(store: &StateDir, dir: CapPath) -> Foreign {
        let owner = (dir.owner_of_root(), store.owner());
        Foreign { dir, owner, open: None, closed: None }
    }

    fn note(&mut self, entry: &DirEntry) {
        let Ok(found) = entry.metadata() else { return };
        if found.uid() == self.owner.0 {
            return;
        }
        let needed = if found.is_dir() { 0o005 } else { 0o004 };
        let is_open = found.is_symlink() || found.mode() & needed == needed;
        let kind = if is_open { &mut self.open } else { &mut self.closed };
        let (_, _, count) = kind.get_or_insert_with(|| (entry.path().to_owned(), found.uid(), 0));
        *count += 1;
    }

    fn findings(self) -> Vec<Finding> {
        let Foreign { dir, owner: (_, owner), open, closed } = self;
        let about = |(first, uid, count): (PathBuf, u32, usize), can: &str, remedy| {
            let below = first.strip_prefix(dir.path()).unwrap_or(&first).display().to_string();
            let more = match count - 1 {
                0 => "it".to_owned(),
                more => format!("it and {more} more of other users"),
            };
            let name = accounts::name(uid);
            let message = format!(
                "{below} belongs to {name}, and {owner} {can} {more}: `sudo chown -hR {owner} {}`",
                dir.display()
            );
            Finding::new(dir.clone(), "foreign_owner", message, remedy)
        };
        let open = open.map(|found| about(found, "can't change", Remedy::CONSIDER));
        let closed = closed.map(|found| about(found, "can't read", Remedy::NONE));
        closed.into_iter().chain(open).collect()
    }
}

/// Finding about permissions that differ from `[sharing]`.
fn unshared(WrongRights { cap, mode, wanted }: WrongRights) -> Finding {
    let message = match wanted.group {
        Some(group) => format!("mode {mode:o}: to be shared it has mode {:o} and group {group}", wanted.mode),
        None => format!("mode {mode:o}: it is not shared, so it has mode {:o}", wanted.mode),
    };
    Finding::new(cap, "sharing", message, Remedy::Permit(wanted))
}

/// Returns the directory directly in an inbox that contains the path, if another user has made it.
fn dir_of_other(inbox: &CapPath, path: &Path) -> Option<CapPath> {
    let name = path.strip_prefix(inbox.path()).ok()?.components().next()?;
    let dir = inbox.join(name.as_os_str());
    let found = dir.look().ok()??;
    let is_of_other = found.st_uid != inbox.owner_of_root();
    (cap_fs::kind(&found) == FileType::Directory && is_of_other).then_some(dir)
}

/// Returns a finding if users other than the owner may write to a place. `is_meant` is true for
/// places to which members of the sharing group may write.
fn writable_by_others(place: &CapPath, is_meant: impl Fn(&Stat) -> bool) -> Option<Finding> {
    let found = place.look().ok()??;
    let mode = found.st_mode & 0o7777;
    let is_open = is_writable_by_others(mode, found.st_uid, found.st_gid);
    if cap_fs::kind(&found) == FileType::Symlink || !is_open || is_meant(&found) {
        return None;
    }
    let who = if mode & 0o002 != 0 { "everybody".to_owned() } else { format!("group {}", found.st_gid) };
    let message = format!("mode {mode:o}: {who} may write here, and dormouse runs what this names");
    Some(Finding::new(place.clone(), "writable_by_others", message, Remedy::Protect))
}

impl Checkup<'_> {
    /// Reports places to which other users can write, down to the files of runs. Runs last, so that
    /// later repairs do not change the permissions that a repair of these findings sets.
    pub fn rights(&mut self) {
        let store = self.agent.local.state_dir;
        let members = store.sharing_group().ok().flatten();
        let inbox = self.path(layout::INBOX);
        let mut foreign = Foreign::in_dir(store, self.agent.local.dir.cap().clone());
        let closed = [inbox.join(layout::REJECTED), self.path(layout::QUARANTINE)];
        let mut dirs_of_others: HashSet<PathBuf> = HashSet::new();
        let mut walk = WalkDir::new(self.agent.local.dir.path()).follow_links(false).into_iter();
        while let Some(entry) = walk.next() {
            match entry {
                Ok(entry) => {
                    // Files in a directory that only the owner may enter need no check.
                    if closed.iter().any(|dir| dir.path() == entry.path())
                        && entry.metadata().is_ok_and(|found| found.mode() & 0o077 == 0)
                    {
                        walk.skip_current_dir();
                        continue;
                    }
                    // Other users put messages into the inbox, so their files there are expected.
                    if entry.path() == inbox.path() || !entry.path().starts_with(inbox.path()) {
                        foreign.note(&entry);
                    }
                    let cap = self.cap_of(entry.path());
                    // Group members may write to the inbox, and to files that they have put there.
                    let is_meant = |found: &Stat| {
                        let is_theirs = cap == inbox
                            || cap.path().starts_with(inbox.path()) && is_own(&cap).is_ok_and(|own| !own);
                        is_theirs && found.st_mode & 0o002 == 0 && members == Some(found.st_gid)
                    };
                    let Some(finding) = writable_by_others(&cap, is_meant) else { continue };
                    // A directory of another user gives one finding, whatever is in it.
                    match dir_of_other(&inbox, entry.path()) {
                        None => self.add([finding]),
                        Some(dir) if dirs_of_others.insert(dir.path().to_owned()) => {
                            let message = format!("a directory of another user; {}", finding.message);
                            self.note(dir, finding.kind, message, Remedy::Quarantine);
                        }
                        Some(_) => {}
                    }
                }
                // A file that was removed since the directory was listed needs no check.
                Err(error) if error.io_error().is_none_or(|error| error.kind() == ErrorKind::NotFound) => {}
                Err(error) => {
                    let path = self.cap_of(error.path().unwrap_or(self.agent.local.dir.path()));
                    self.note(path, "unreadable", error.to_string(), Remedy::NONE);
                }
            }
        }
        self.add(foreign.findings());
        // An unknown group is an error here too, but is already reported once for the whole state
        // directory.
        if let Ok(wrong) = store.unshared_in(&self.agent.local.dir) {
            self.add(wrong.into_iter().map(unshared));
        }
    }

    /// Converts a path below the agent's directory.
    fn cap_of(&self, path: &Path) -> CapPath {
        self.agent.local.dir.join(path.strip_prefix(self.agent.local.dir.path()).unwrap_or(path))
    }
}
