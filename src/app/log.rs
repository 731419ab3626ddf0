//! The log of a task while it is written: what has come since the last look.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use crate::error::{Context, Result};

/// A log that may still be written.
pub struct Log {
    path: PathBuf,
    inode: Option<u64>,
    /// How much of it is known.
    at: u64,
}

impl Log {
    /// From the start, or only the last so many bytes.
    pub fn open(path: PathBuf, last: Option<u64>) -> Log {
        let length = std::fs::metadata(&path).map_or(0, |found| found.len());
        let at = last.map_or(0, |last| length.saturating_sub(last));
        Log { path, inode: None, at }
    }

    /// What has come since the last look.
    pub fn news(&mut self) -> Result<Vec<u8>> {
        let mut file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error).context("open", &self.path),
        };
        let inode = file.metadata().context("read", &self.path)?.ino();
        let mut all = Vec::new();
        file.read_to_end(&mut all).context("read", &self.path)?;
        if self.inode.replace(inode).is_some_and(|before| before != inode) {
            // It was put in order at its end: what follows the gap is new.
            const GAP: &[u8] = b"\n[dormouse: ";
            let gap = all.windows(GAP.len()).rposition(|window| window == GAP);
            self.at = gap.map_or(self.at, |gap| self.at.min(gap as u64));
        }
        let known = usize::try_from(self.at).unwrap_or(usize::MAX).min(all.len());
        self.at = all.len() as u64;
        Ok(all.split_off(known))
    }
}
