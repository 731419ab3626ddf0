//! Which state directory a command is about, and whether one that nobody has named may be trusted (contract, cli §1).

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::error::{Context, Error, Result};

use super::config;
use super::layout;
use super::sharing::is_writable_by_others;

/// See [`super::Store::find`].
pub fn find(named: Option<&Path>, start: &Path, settings: Option<&Path>) -> Result<PathBuf> {
    if let Some(named) = named {
        // Both the state directory and the directory that holds it will do.
        let inside = named.join(layout::STATE_DIR);
        let root = if is_store(&inside)? { inside } else { named.to_owned() };
        return std::path::absolute(&root).context("find", &root);
    }
    for dir in start.ancestors() {
        let root = dir.join(layout::STATE_DIR);
        if is_store(&root)? {
            return match whose(&root)? {
                Some(doubt) if !is_trusted(&root, settings)? => Err(refused(&root, &doubt, settings)),
                _ => Ok(root),
            };
        }
    }
    Err(Error::NoStore { start: start.to_owned() })
}

/// See [`super::Store::is_same`].
pub fn same_place(one: &Path, other: &Path) -> Result<bool> {
    let place = |path: &Path| {
        let path = std::path::absolute(path).context("find", path)?;
        let is_one = path.file_name().is_some_and(|name| name == layout::STATE_DIR);
        Ok::<PathBuf, Error>(if is_one { path } else { path.join(layout::STATE_DIR) })
    };
    Ok(place(one)? == place(other)?)
}

/// Whether a state directory lies there. One that is there and may not be looked into is an error, not nothing.
pub fn is_store(root: &Path) -> Result<bool> {
    let marker = root.join(layout::CONFIG);
    match std::fs::metadata(&marker) {
        Ok(found) => Ok(found.is_file()),
        Err(error) if error.kind() == ErrorKind::PermissionDenied && root.symlink_metadata().is_ok() => {
            Err(error).context("look at", &marker)
        }
        Err(_) => Ok(false),
    }
}

/// Why a state directory may say what somebody else wants, if it may: whose it is, and who else may write in it.
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
    Error::Refused {
        kind: "not_trusted",
        message: format!(
            "found {}, but {doubt}: the programs that it names would be run as you",
            root.display()
        ),
        hint: Some(format!("if you trust it, name it with --dir{}", listed.unwrap_or_default())),
    }
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
