//! Locks that the kernel holds: they end with the process that took them, however it ends.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use crate::error::{Context, Error, Result};
use crate::model::time::Time;

/// Who holds a lock. Written into the lock file for whoever has to wait; nothing depends on it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Holder {
    pub pid: u32,
    pub command: String,
    pub host: String,
    pub since: Time,
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "`{}` (pid {} on {}, since {})", self.command, self.pid, self.host, self.since)
    }
}

/// A held lock. Dropping it releases it; the file stays, so that there is never a second one.
#[derive(Debug)]
pub struct Held {
    file: File,
}

fn open(path: &Path) -> Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(OFlags::NOFOLLOW.bits() as i32)
        .open(path)
        .context("open lock", path)
}

/// Takes the lock if it is free; `None` if somebody holds it.
pub fn try_acquire(path: &Path, holder: Option<&Holder>) -> Result<Option<Held>> {
    let file = open(path)?;
    match fs2::FileExt::try_lock_exclusive(&file) {
        Ok(()) => {
            if let Some(holder) = holder {
                sign(&file, holder);
            }
            Ok(Some(Held { file }))
        }
        Err(error) if error.raw_os_error() == fs2::lock_contended_error().raw_os_error() => Ok(None),
        Err(error) => Err(error).context("lock", path),
    }
}

impl Held {
    /// The same lock once more, for a process that is to hold it after us. It is released when both
    /// have let go of it.
    pub fn share(&self, path: &Path) -> Result<File> {
        self.file.try_clone().context("share lock", path)
    }
}

/// Takes over a lock that was shared with this process when it was started.
pub fn inherited(path: &Path, file: File, holder: &Holder) -> Result<Held> {
    let there = std::fs::symlink_metadata(path).context("look at lock", path)?;
    let here = file.metadata().context("look at lock", path)?;
    if (there.dev(), there.ino()) != (here.dev(), here.ino()) {
        return Err(Error::usage(format!("{} was not handed over as stdin", path.display())));
    }
    fs2::FileExt::try_lock_exclusive(&file).context("lock", path)?;
    sign(&file, holder);
    Ok(Held { file })
}

/// Locks an open file or directory that nobody else uses yet.
pub fn hold(file: &File, path: &Path) -> Result<()> {
    fs2::FileExt::try_lock_exclusive(file).context("lock", path)
}

/// Whether somebody holds the lock, without making the file.
pub fn is_held(path: &Path) -> Result<bool> {
    match OpenOptions::new().read(true).custom_flags(OFlags::NOFOLLOW.bits() as i32).open(path) {
        Ok(file) => Ok(fs2::FileExt::try_lock_shared(&file).is_err()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error).context("open lock", path),
    }
}

/// Takes the lock, waiting at most `patience` for it. Then the error says who holds it.
pub fn acquire(path: &Path, holder: &Holder, patience: Duration) -> Result<Held> {
    let start = Instant::now();
    // Transactions last milliseconds: look again soon at first, then more and more rarely.
    let mut pause = Duration::from_micros(200);
    loop {
        if let Some(held) = try_acquire(path, Some(holder))? {
            return Ok(held);
        }
        let waited = start.elapsed();
        if waited >= patience {
            let waited_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
            return Err(Error::Busy { path: path.to_owned(), holder: describe_holder(path), waited_ms });
        }
        std::thread::sleep(pause.min(patience - waited));
        pause = (pause * 2).min(Duration::from_millis(5));
    }
}

fn sign(mut file: &File, holder: &Holder) {
    // For people only: a lock that can't be signed is held all the same.
    let Ok(mut line) = serde_json::to_vec(holder) else { return };
    line.push(b'\n');
    let _ = file.rewind();
    let _ = file.write_all(&line);
    let _ = file.set_len(line.len() as u64);
}

/// What the lock file says of its holder.
pub fn describe_holder(path: &Path) -> String {
    let mut text = String::new();
    let read = File::open(path).and_then(|mut file| file.read_to_string(&mut text));
    match read.ok().and_then(|_| serde_json::from_str::<Holder>(text.trim()).ok()) {
        Some(holder) => holder.to_string(),
        None => "another process".to_owned(),
    }
}
