//! Path of the state directory on this machine. Local files are found from this path: settings,
//! hooks, the git repository, the workspaces of turns. Records are reached through `Store` instead.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use serde::Deserialize;

use crate::cap_fs::accounts;
use crate::error::{Error, IoContext, Result, describe};
use crate::model::bound::MAX_SETTINGS;
use crate::model::digest;
use crate::model::place::PlaceId;

use super::authors::is_writable_by_others;
use super::{config, layout};

/// Path of a state directory that exists or is to be created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Anchor {
    path: PathBuf,
}

/// Directory in which turns work. It is identified by device and inode, so that all paths to the
/// directory mean one workspace.
#[derive(Debug, Clone)]
pub struct Workspace {
    /// Path of the directory, without symbolic links.
    pub path: PathBuf,
    /// Device and inode as a text that is unique among the directories of this machine.
    pub key: String,
}

impl Anchor {
    /// Wraps the path of a state directory, which need not exist.
    pub fn at(path: PathBuf) -> Anchor {
        Anchor { path }
    }

    /// Finds the state directory of a command: the named one, which need not exist, or the nearest
    /// `.dormouse` from the working directory upwards. Error if there is none, or it is neither the
    /// user's own nor trusted in the user's settings file `settings` (contract, command line §1).
    pub fn find(named: Option<&Path>, settings: Option<&Path>) -> Result<Anchor> {
        if let Some(named) = named {
            // `--dir` may name the state directory or its parent.
            let inside = named.join(layout::STATE_DIR);
            let root = if is_store(&inside)? { inside } else { named.to_owned() };
            return from_here(&root).map(Anchor::at);
        }
        let start = &working_directory()?;
        for dir in start.ancestors() {
            let root = dir.join(layout::STATE_DIR);
            if is_store(&root)? {
                if let Some((doubt, owner)) = whose(&root)? {
                    refuse_unlisted(&root, &doubt, owner, settings)?;
                }
                return Ok(Anchor::at(root));
            }
        }
        Err(Error::NoStore { start: start.to_owned() })
    }

    /// Returns the state directory that `init` creates for `dir`: a subdirectory, or `dir` itself
    /// if that has the name or the settings file of a state directory.
    pub fn to_make(dir: &Path) -> Result<Anchor> {
        let dir = from_here(dir)?;
        let has_marker = || dir.join(layout::CONFIG).is_file();
        let is_one = dir.file_name().is_some_and(|name| name == layout::STATE_DIR) || has_marker();
        Ok(Anchor::at(if is_one { dir } else { dir.join(layout::STATE_DIR) }))
    }

    /// Returns the local state directory for a database URL: below `state`, the directory for local
    /// state of this user's programs.
    pub fn of_database(shown: &str, state: &Path) -> Anchor {
        let name = digest::hex(&[shown.as_bytes()], 16);
        Anchor::at(state.join("dormouse").join(name).join(layout::STATE_DIR))
    }

    /// Returns the nearest state directory above this one, which commands in this directory no
    /// longer find.
    pub fn hides(&self) -> Option<PathBuf> {
        let above = self.home().ancestors().skip(1).map(|dir| dir.join(layout::STATE_DIR));
        above.into_iter().find(|root| is_store(root).unwrap_or(false))
    }

    /// Path of the state directory, for display and for programs.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Parent of the state directory.
    pub fn home(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("."))
    }

    /// True if the directory with this identity (device and inode) is at `path` now.
    pub fn is_at(path: &str, id: PlaceId) -> bool {
        std::fs::metadata(path).is_ok_and(|found| (found.dev(), found.ino()) == (id.device, id.inode))
    }

    /// Resolves a path of `agent.toml`. Relative paths begin at the state directory's parent.
    pub fn leads_to(&self, path: &str) -> PathBuf {
        self.home().join(path)
    }

    /// Returns the workspace at a path of `agent.toml`. Error if no directory is there now.
    pub fn workspace(&self, path: &str) -> io::Result<Workspace> {
        let path = std::fs::canonicalize(self.leads_to(path))?;
        let found = std::fs::metadata(&path)?;
        if !found.is_dir() {
            return Err(ErrorKind::NotADirectory.into());
        }
        Ok(Workspace { path, key: format!("{:x}-{:x}", found.dev(), found.ino()) })
    }
}

/// Working directory of this process.
///
/// # Errors
///
/// `failed` if the directory was removed.
fn working_directory() -> Result<PathBuf> {
    std::env::current_dir().map_err(|source| {
        if source.kind() != ErrorKind::NotFound {
            return Error::Io { action: "find", path: "the working directory".into(), source };
        }
        Error::failed("the working directory of this command was removed").with_hint(
            "change to an existing directory (`cd`), or name the state directory by its whole path with --dir",
        )
    })
}

/// Makes a path absolute: a relative path begins at the working directory.
fn from_here(path: &Path) -> Result<PathBuf> {
    if path.is_relative() {
        working_directory()?;
    }
    std::path::absolute(path).context("find", path)
}

/// True if a state directory is at `root`. Error if that is uncertain: a wrong `false` would make
/// the caller take a state directory further up, or advise the user to run `init`.
fn is_store(root: &Path) -> Result<bool> {
    let marker = root.join(layout::CONFIG);
    let error = match std::fs::metadata(&marker) {
        // A settings file of another type counts, too: opening the state directory reports that.
        Ok(_) => return Ok(true),
        Err(error) => error,
    };
    let is_link = || root.symlink_metadata().is_ok_and(|found| found.is_symlink());
    if error.kind() == ErrorKind::NotFound && is_link() && !root.exists() {
        let message = "a symbolic link, and the directory to which it leads is not there";
        return Err(
            Error::damaged(root, message).with_hint("mount or restore that directory, or remove the link")
        );
    }
    let is_absent = matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
        // The parent of `root` is inaccessible too, so `find` continues with the directory above.
        || error.kind() == ErrorKind::PermissionDenied && root.symlink_metadata().is_err();
    if is_absent { Ok(false) } else { Err(error).context("look at", &marker) }
}

/// Returns the reason why another user may control a state directory, if any: a foreign owner,
/// whose user id is the second value, or write permission of other users.
fn whose(root: &Path) -> Result<Option<(String, Option<u32>)>> {
    let own = rustix::process::geteuid().as_raw();
    let marker = root.join(layout::CONFIG);
    // `root` may be a symbolic link, whose owner can change the target.
    let link = root.symlink_metadata().context("look at", root)?;
    let dir = root.metadata().context("look at", root)?;
    let file = marker.symlink_metadata().context("look at", &marker)?;
    for (path, found) in [(root, &link), (root, &dir), (marker.as_path(), &file)] {
        if found.uid() != own {
            let text = format!("{} belongs to user {}, not to you ({own})", path.display(), found.uid());
            return Ok(Some((text, Some(found.uid()))));
        }
        if !found.is_symlink() && is_writable_by_others(found.mode(), own, found.gid()) {
            let mode = found.mode() & 0o7777;
            let text = format!("others may write to {} (mode {mode:o})", path.display());
            return Ok(Some((text, None)));
        }
    }
    Ok(None)
}

/// Error unless the user's settings file lists the state directory. `doubt`: reason not to trust
/// it. `owner`: its owner, if that is another user.
fn refuse_unlisted(root: &Path, doubt: &str, owner: Option<u32>, settings: Option<&Path>) -> Result<()> {
    let mut unread = String::new();
    match settings.map(|path| (path, read_settings(path))) {
        Some((path, Ok(bytes))) if is_listed(root, path, &bytes)? => return Ok(()),
        Some((_, Ok(_))) | None => {}
        Some((_, Err(error))) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {}
        Some((path, Err(error))) => {
            let (path, why) = (path.display(), describe(&error));
            unread = format!("; can't read {path}: {why}, so nothing says that you trust it");
        }
    }
    let message = format!(
        "found {}, but {doubt}: the programs that it names would be run as you{unread}",
        root.display()
    );
    let listed = settings.map(|path| {
        format!(", or list it in {}: [trust] directories = [\"{}\"]", path.display(), root.display())
    });
    let listed = listed.unwrap_or_default();
    let hint = match owner {
        None => format!("if you trust it, name it with --dir{listed}"),
        Some(owner) => format!(
            "to look at it, name it with --dir{listed}; only its owner changes it: `{} dormouse …`",
            accounts::sudo(owner)
        ),
    };
    Err(Error::refused("not_trusted", message).with_hint(hint))
}

/// Settings file of the user: `$XDG_CONFIG_HOME/dormouse/config.toml`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct UserSettings {
    #[serde(default)]
    trust: Trust,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Trust {
    /// State directories or their parents; `*` trusts every state directory.
    #[serde(default)]
    directories: Vec<String>,
}

/// True if the user's settings file, with the content `bytes`, trusts the state directory `root`.
fn is_listed(root: &Path, settings: &Path, bytes: &[u8]) -> Result<bool> {
    let UserSettings { trust } = config::parse(settings, config::utf8(settings, bytes)?)?;
    let real = root.canonicalize().context("look at", root)?;
    Ok(trust.directories.iter().any(|listed| {
        listed == "*"
            || Path::new(listed).canonicalize().is_ok_and(|listed| {
                listed == real
                    || Some(listed.as_path()) == root.parent()
                    || Some(listed.as_path()) == real.parent()
            })
    }))
}

/// Reads a settings file. Refuses everything but a plain file of limited size, and never blocks on
/// a pipe.
fn read_settings(path: &Path) -> io::Result<Vec<u8>> {
    let nonblocking = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0);
    let file = File::options().read(true).custom_flags(nonblocking).open(path)?;
    let found = file.metadata()?;
    if !found.is_file() || found.len() > MAX_SETTINGS {
        return Err(io::Error::other("not a plain file of the size of settings"));
    }
    let mut bytes = Vec::new();
    file.take(MAX_SETTINGS).read_to_end(&mut bytes)?;
    Ok(bytes)
}
