//! Who may write to the files of a state directory, and who may come to them.

use std::io::ErrorKind;
use std::path::Path;

use rustix::fs::{FileType, Stat};
use walkdir::WalkDir;

use crate::beneath::{self, Spot};
use crate::error::{Error, Result};
use crate::model::id::AgentName;

use super::super::authors::is_writable_by_others;
use super::super::inbox::is_own;
use super::super::sharing::Misfit;
use super::super::{Store, layout};
use super::records::Checkup;
use super::{Finding, Remedy};

impl Store {
    /// Who may write to the state directory itself; who may come to it and should not, or should and may not, and why
    /// that can't be put right.
    pub(super) fn rights(&self) -> Result<Vec<Finding>> {
        let settings = self.spot().join(layout::CONFIG);
        let places = [self.spot(), self.spot().join(layout::AGENTS), settings.clone()];
        let mut findings: Vec<Finding> =
            places.iter().filter_map(|place| writable_by_others(None, place, |_| false)).collect();
        let at_settings = |error: &Error| {
            let message =
                if let Error::Damaged { message, .. } = error { message.clone() } else { error.to_string() };
            Finding {
                agent: None,
                place: settings.clone(),
                shown: None,
                kind: "sharing",
                message,
                remedy: Remedy::Join,
            }
        };
        match self.unshared() {
            Ok(misfits) => {
                findings.extend(misfits.into_iter().map(|misfit| unshared(None, misfit)));
                findings.extend(self.not_in_group()?.as_ref().map(at_settings));
            }
            Err(error @ Error::Damaged { .. }) if error.path() == Some(settings.path()) => {
                findings.push(at_settings(&error));
            }
            Err(error) => return Err(error),
        }
        Ok(findings)
    }
}

/// Other rights than `[sharing]` asks for.
fn unshared(agent: Option<&AgentName>, Misfit { spot, mode, wanted }: Misfit) -> Finding {
    let message = match wanted.group {
        Some(group) => format!("mode {mode:o}: to be shared it has mode {:o} and group {group}", wanted.mode),
        None => format!("mode {mode:o}: it is shared with nobody, so it has mode {:o}", wanted.mode),
    };
    Finding {
        agent: agent.cloned(),
        place: spot,
        shown: None,
        kind: "sharing",
        message,
        remedy: Remedy::Permit(wanted),
    }
}

/// What others than the owner may write. `is_meant` knows what members of the sharing group may write.
fn writable_by_others(
    agent: Option<&AgentName>,
    place: &Spot,
    is_meant: impl Fn(&Stat) -> bool,
) -> Option<Finding> {
    let found = place.look().ok()??;
    let mode = found.st_mode & 0o7777;
    let is_open = is_writable_by_others(mode, found.st_uid, found.st_gid);
    if beneath::kind(&found) == FileType::Symlink || !is_open || is_meant(&found) {
        return None;
    }
    let who = if mode & 0o002 != 0 { "everybody".to_owned() } else { format!("group {}", found.st_gid) };
    Some(Finding {
        agent: agent.cloned(),
        place: place.clone(),
        shown: None,
        kind: "writable_by_others",
        message: format!("mode {mode:o}: {who} may write here, and dormouse runs what this names"),
        remedy: Remedy::Protect,
    })
}

impl Checkup<'_> {
    /// What others can write, down to the files of runs. Last, so that their rights are what is left of all repairs.
    pub fn rights(&mut self) {
        let store = self.agent.store();
        let members = store.sharing_group().ok().flatten();
        let inbox = self.path(layout::INBOX);
        for entry in WalkDir::new(self.agent.dir().path()).follow_links(false) {
            match entry {
                Ok(entry) => {
                    let spot = self.spot_of(entry.path());
                    // The inbox, and in it what members have made for the group.
                    let is_meant = |found: &Stat| {
                        let is_theirs = spot == inbox
                            || spot.path().starts_with(inbox.path()) && is_own(&spot).is_ok_and(|own| !own);
                        is_theirs && found.st_mode & 0o002 == 0 && members == Some(found.st_gid)
                    };
                    let finding = writable_by_others(Some(self.agent.name()), &spot, is_meant);
                    self.findings.extend(finding);
                }
                // A file that goes away meanwhile can't be written to any more.
                Err(error) if error.io_error().is_none_or(|error| error.kind() == ErrorKind::NotFound) => {}
                Err(error) => {
                    let path = self.spot_of(error.path().unwrap_or(self.agent.dir().path()));
                    self.note(path, "unreadable", error.to_string(), Remedy::None);
                }
            }
        }
        // A group that the machine does not have is a finding of the state directory.
        if let Ok(misfits) = store.unshared_in(self.agent.dir()) {
            self.findings.extend(misfits.into_iter().map(|misfit| unshared(Some(self.agent.name()), misfit)));
        }
    }

    /// The place of a path that was met below the agent's directory.
    fn spot_of(&self, path: &Path) -> Spot {
        self.agent.dir().join(path.strip_prefix(self.agent.dir().path()).unwrap_or(path))
    }
}
