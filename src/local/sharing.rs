//! Permissions of the group that `[sharing]` in `dormouse.toml` names, whose members may put files
//! into the inboxes.
//!
//! On the path to an inbox a member can read `dormouse.toml` and nothing else. In an inbox a member
//! can add files, but not touch those of other users: the directory is sticky, and the group has no
//! permissions on the owner's files.

use rustix::fs::FileType;
use rustix::process::{getegid, geteuid, getgroups};

use crate::cap_fs::{self, CapPath, accounts};
use crate::error::{Error, Result};
use crate::model::id::AgentName;

use super::StateDir;
use super::layout::{self, AgentDir};

/// Mode bit with which the group may pass through a directory on the path to an inbox.
const WAY: u32 = 0o010;
/// Mode bit with which the group may read the settings file `dormouse.toml`.
const SETTINGS: u32 = 0o040;
/// Mode bits of an inbox: the group may list the inbox and add files, which then belong to the
/// group. Only the user who made a file and the owner of the inbox can remove the file.
const INBOX: u32 = 0o3070;

/// Mode and group of a file or directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rights {
    /// Lowest twelve bits of a mode.
    pub mode: u32,
    /// Id of the group that owns the file or directory; `None` leaves its group unchanged.
    pub group: Option<u32>,
}

impl Rights {
    /// Sets this mode and group on a file or directory.
    pub fn set(self, cap: &CapPath) -> Result<()> {
        // The group is set first, so that no other group gets permissions meanwhile.
        self.group.map_or(Ok(()), |group| cap.set_group(group))?;
        cap.set_mode(self.mode)
    }
}

/// File or directory whose mode or group differs from the settings.
#[derive(Debug)]
pub struct WrongRights {
    pub cap: CapPath,
    /// Mode that was found.
    pub mode: u32,
    pub wanted: Rights,
}

impl StateDir {
    /// True if the settings name a group that shares the inboxes.
    pub fn is_shared(&self) -> bool {
        self.config.sharing.group.is_some()
    }

    /// Returns the id of the group in the settings.
    ///
    /// # Errors
    ///
    /// `damaged`, with the path of the settings, if this machine has no such group.
    pub fn sharing_group(&self) -> Result<Option<u32>> {
        let Some(group) = &self.config.sharing.group else { return Ok(None) };
        accounts::group(group).map(Some).ok_or_else(|| {
            Error::damaged(
                self.cap().join(layout::CONFIG).path().to_owned(),
                format!("sharing.group: this machine has no group `{group}`"),
            )
            .with_hint("make it (`groupadd`), name another one, or take the key out")
        })
    }

    /// Returns the reason why the user of this command can share nothing with the group, if any: an
    /// owner must be in the group to give the inboxes to the group and to read its members' files.
    pub fn not_in_group(&self) -> Result<Option<Error>> {
        let (Some(number), Some(group)) = (self.sharing_group()?, &self.config.sharing.group) else {
            return Ok(None);
        };
        let is_in_it = geteuid().is_root()
            || getegid().as_raw() == number
            || getgroups().is_ok_and(|groups| groups.iter().any(|one| one.as_raw() == number));
        let refusal = || {
            let message = format!(
                "{}: sharing.group: you are not in the group `{group}`: you can neither give it the inboxes nor \
                 read what its members put there",
                self.cap().join(layout::CONFIG).display()
            );
            let hint = "have yourself added to it (`usermod -aG`) and log in again, or take the key out";
            Error::refused("not_in_group", message).with_hint(hint)
        };
        Ok((!is_in_it).then(refusal))
    }

    /// Gives the group of the settings access to the inboxes of these agents. Returns the number of
    /// changed files and directories. Error `not_in_group` for a user outside the group.
    pub fn share<'a>(&self, agents: impl IntoIterator<Item = &'a AgentDir>) -> Result<usize> {
        if !self.is_shared() {
            return Ok(0);
        }
        let mut wrong = self.unshared()?;
        for agent in agents {
            wrong.extend(self.unshared_in(agent)?);
        }
        if let Some(refusal) = self.not_in_group()?.filter(|_| !wrong.is_empty()) {
            return Err(refusal);
        }
        wrong.iter().try_for_each(|wrong| wrong.wanted.set(&wrong.cap))?;
        Ok(wrong.len())
    }

    /// Shares all agents like `share`. Changes nothing for a group member, who owns none of them.
    pub fn share_all(&self) -> Result<usize> {
        if self.guest.is_some() || !self.is_shared() {
            return Ok(0);
        }
        let agents = self.agent_dirs("")?;
        self.share(&agents.iter().map(|name| AgentDir::new(&self.root, name)).collect::<Vec<_>>())
    }

    /// Returns the files and directories of the state directory, without its agents, whose
    /// permissions differ from the settings.
    pub fn unshared(&self) -> Result<Vec<WrongRights>> {
        let group = self.sharing_group()?;
        let (root, agents) = (self.cap(), self.cap().join(layout::AGENTS));
        let settings = root.join(layout::CONFIG);
        let way = differing(&root, WAY, group)?;
        let was_shared = group.is_none() && way.is_some();
        let file = if was_shared { closed(&settings)? } else { differing(&settings, SETTINGS, group)? };
        let found = [way, differing(&agents, WAY, group)?, file];
        let mut wrong: Vec<WrongRights> = found.into_iter().flatten().collect();
        if group.is_some() {
            wrong.extend(open_in(&root, |name| matches!(name, layout::AGENTS | layout::CONFIG))?);
            // A name that begins with a dot is of an agent in creation, and is left out, too.
            let is_agent = |name: &str| name.starts_with('.') || name.parse::<AgentName>().is_ok();
            wrong.extend(open_in(&agents, is_agent)?);
        }
        Ok(wrong)
    }

    /// Returns the files and directories of an agent, its inbox included, whose permissions differ
    /// from the settings.
    pub fn unshared_in(&self, agent: &AgentDir) -> Result<Vec<WrongRights>> {
        if agent.join(layout::TAKEN).exists()? {
            // The agent was exported with `--move`: its inbox accepts no more messages.
            return Ok(Vec::new());
        }
        let group = self.sharing_group()?;
        let inbox = agent.join(layout::INBOX);
        let found = [differing(agent.cap(), WAY, group)?, differing(&inbox, INBOX, group)?];
        let mut wrong: Vec<WrongRights> = found.into_iter().flatten().collect();
        if group.is_some() {
            wrong.extend(open_in(agent.cap(), |name| name == layout::INBOX)?);
            wrong.extend(closed(&inbox.join(layout::REJECTED))?);
        }
        Ok(wrong)
    }
}

/// Returns the files in a directory on the path to an inbox that other users could open by name,
/// although only the owner should. `is_theirs`: true for files that members should read.
fn open_in(dir: &CapPath, is_theirs: impl Fn(&str) -> bool) -> Result<Vec<WrongRights>> {
    let entries = dir.entries()?;
    let owners = entries.iter().filter(|entry| !entry.name.to_str().is_some_and(&is_theirs));
    let found = owners.map(|entry| closed(&dir.join(&entry.name)).transpose());
    found.flatten().collect()
}

/// Returns the file or directory if users other than its owner have permissions.
fn closed(cap: &CapPath) -> Result<Option<WrongRights>> {
    unlike(cap, None, |mode| if mode & 0o077 == 0 { mode } else { mode & 0o700 })
}

/// Returns the file or directory if its permissions differ from the settings. Without a group, only
/// a mode that sharing alone sets is wrong: such a mode is left from earlier sharing.
fn differing(cap: &CapPath, bits: u32, group: Option<u32>) -> Result<Option<WrongRights>> {
    unlike(cap, group, |mode| {
        let was_shared = match bits {
            WAY => mode & 0o077 == WAY,
            INBOX => mode & 0o3000 == INBOX & 0o3000,
            _ => false,
        };
        match group {
            Some(_) => mode & 0o700 | bits,
            None if was_shared => mode & 0o700,
            None => mode,
        }
    })
}

/// Returns the file or directory if its mode is not that which `wanted` returns for it, or its
/// group is not `group`. A symbolic link has no permissions of its own and is never followed.
fn unlike(cap: &CapPath, group: Option<u32>, wanted: impl Fn(u32) -> u32) -> Result<Option<WrongRights>> {
    let Some(found) = cap.look()?.filter(|found| cap_fs::kind(found) != FileType::Symlink) else {
        return Ok(None);
    };
    let mode = found.st_mode & 0o7777;
    let wanted = Rights { mode: wanted(mode), group };
    let fits = mode == wanted.mode && group.is_none_or(|group| group == found.st_gid);
    Ok((!fits).then(|| WrongRights { cap: cap.clone(), mode, wanted }))
}
