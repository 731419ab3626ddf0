//! The anchor of a store: the state directory as a place on this machine. What a machine has for itself is found from it:
//! settings, hooks, the repository of git, the directories where turns work. No record is reached through it.

use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use sha2::{Digest, Sha256};

use crate::error::{Context, Error, Result};
use crate::model::place::PlaceId;

use super::dir::authors::is_writable_by_others;
use super::dir::{config, layout};

/// Where a state directory is, or is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Anchor {
    path: PathBuf,
}

/// A directory where turns work. Its device and inode tell it from others, so that all paths that lead to it mean the
/// same workspace.
#[derive(Debug, Clone)]
pub struct Workspace {
    path: PathBuf,
    key: String,
}

impl Workspace {
    /// Its path without symbolic links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A word for it that no other directory of this machine has.
    pub fn key(&self) -> &str {
        &self.key
    }
}

impl Anchor {
    /// The state directory that has this path.
    pub fn at(path: PathBuf) -> Anchor {
        Anchor { path }
    }

    /// The state directory that a command is about: the one that is named, else the nearest `.dormouse` from `start`
    /// upwards. One that was only found has to be the user's own, or trusted in `settings`, the user's own settings
    /// file (contract, cli §1).
    pub fn find(named: Option<&Path>, start: &Path, settings: Option<&Path>) -> Result<Anchor> {
        if let Some(named) = named {
            // Both the state directory and the directory that holds it will do.
            let inside = named.join(layout::STATE_DIR);
            let root = if is_store(&inside)? { inside } else { named.to_owned() };
            return std::path::absolute(&root).context("find", &root).map(Anchor::at);
        }
        for dir in start.ancestors() {
            let root = dir.join(layout::STATE_DIR);
            if is_store(&root)? {
                return match whose(&root)? {
                    Some(doubt) if !is_trusted(&root, settings)? => Err(refused(&root, &doubt, settings)),
                    _ => Ok(Anchor::at(root)),
                };
            }
        }
        Err(Error::NoStore { start: start.to_owned() })
    }

    /// Where `init` makes a state directory: in `dir`, or as `dir` where that is the name or the place of one.
    pub fn to_make(dir: &Path) -> Result<Anchor> {
        let dir = std::path::absolute(dir).context("find", dir)?;
        let is_one = dir.file_name().is_some_and(|name| name == layout::STATE_DIR) || is_store(&dir)?;
        Ok(Anchor::at(if is_one { dir } else { dir.join(layout::STATE_DIR) }))
    }

    /// The state directory of this machine for a store elsewhere that a URL names: under `state`, where programs of this user
    /// keep what belongs to the machine.
    pub fn of_url(url: &str, state: &Path) -> Result<Anchor> {
        let digest = Sha256::digest(super::seam::shown(url)?.as_bytes());
        let name: String = digest[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Anchor::at(state.join("dormouse").join(name).join(layout::STATE_DIR)))
    }

    /// The nearest state directory further up, which commands called below [`Anchor::home`] do not find while this one
    /// is there.
    pub fn hides(&self) -> Option<PathBuf> {
        let above = self.home().ancestors().skip(1).map(|dir| dir.join(layout::STATE_DIR));
        above.into_iter().find(|root| is_store(root).unwrap_or(false))
    }

    /// Its path, for people and for programs.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The directory that holds the state directory.
    pub fn home(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("."))
    }

    /// Returns true if the state directory of this identity lies at a path now.
    pub fn is_at(path: &str, id: PlaceId) -> bool {
        std::fs::metadata(path).is_ok_and(|found| (found.dev(), found.ino()) == (id.device, id.inode))
    }

    /// Where a path of `agent.toml` leads: those that are relative begin at [`Anchor::home`].
    pub fn leads_to(&self, path: &str) -> PathBuf {
        self.home().join(path)
    }

    /// The workspace that a path of `agent.toml` leads to. Fails if there is no such directory now.
    pub fn workspace(&self, path: &str) -> io::Result<Workspace> {
        let path = std::fs::canonicalize(self.leads_to(path))?;
        let found = std::fs::metadata(&path)?;
        if !found.is_dir() {
            return Err(ErrorKind::NotADirectory.into());
        }
        Ok(Workspace { path, key: format!("{:x}-{:x}", found.dev(), found.ino()) })
    }
}

/// Whether a state directory lies there. One that is there and may not be looked into is an error, not nothing.
fn is_store(root: &Path) -> Result<bool> {
    let marker = root.join(layout::CONFIG);
    match std::fs::metadata(&marker) {
        Ok(found) => Ok(found.is_file()),
        Err(error) if error.kind() == ErrorKind::PermissionDenied && root.symlink_metadata().is_ok() => {
            Err(error).context("look at", &marker)
        }
        Err(_) => Ok(false),
    }
}

/// Why a state directory may say what another user wants, if it may: whose it is, and whether others may write in it.
fn whose(root: &Path) -> Result<Option<String>> {
    let own = rustix::process::geteuid().as_raw();
    let marker = root.join(layout::CONFIG);
    // The name itself may be a link, which is its owner's word as well.
    let link = root.symlink_metadata().context("look at", root)?;
    let dir = root.metadata().context("look at", root)?;
    let file = marker.symlink_metadata().context("look at", &marker)?;
    for (path, found) in [(root, &link), (root, &dir), (marker.as_path(), &file)] {
        if found.uid() != own {
            return Ok(Some(format!(
                "{} belongs to user {}, not to you ({own})",
                path.display(),
                found.uid()
            )));
        }
        if !found.is_symlink() && is_writable_by_others(found.mode(), own, found.gid()) {
            let mode = found.mode() & 0o7777;
            return Ok(Some(format!("others may write to {} (mode {mode:o})", path.display())));
        }
    }
    Ok(None)
}

fn refused(root: &Path, doubt: &str, settings: Option<&Path>) -> Error {
    let listed = settings.map(|path| {
        format!(", or list it in {}: [trust] directories = [\"{}\"]", path.display(), root.display())
    });
    Error::refused(
        "not_trusted",
        format!("found {}, but {doubt}: the programs that it names would be run as you", root.display()),
    )
    .with_hint(format!("if you trust it, name it with --dir{}", listed.unwrap_or_default()))
}

/// The user's own settings file: `$XDG_CONFIG_HOME/dormouse/config.toml`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    #[serde(default)]
    trust: Trust,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Trust {
    /// State directories, or the directories that hold them; `*` is every one.
    #[serde(default)]
    directories: Vec<String>,
}

fn is_trusted(root: &Path, settings: Option<&Path>) -> Result<bool> {
    let Some(path) = settings else { return Ok(false) };
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(false);
        }
        Err(error) => return Err(error).context("read", path),
    };
    let Settings { trust } = config::parse(path, config::utf8(path, &bytes)?)?;
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
