//! The log of a run or task while it is written: reads what has come since the last look.

use std::io::Read;
use std::os::unix::fs::MetadataExt;

use crate::beneath::Spot;
use crate::error::{Context, Result};

/// A log that may still be written.
pub struct Log {
    path: Spot,
    inode: Option<u64>,
    /// Up to which byte the log was read or skipped.
    at: u64,
}

impl Log {
    /// Reads from the start, or only the last `last` bytes.
    pub fn open(path: Spot, last: Option<u64>) -> Log {
        let found = path.look().ok().flatten();
        let length = found.map_or(0, |found| u64::try_from(found.st_size).unwrap_or(0));
        let at = last.map_or(0, |last| length.saturating_sub(last));
        Log { path, inode: None, at }
    }

    /// What has come since the last look.
    pub fn news(&mut self) -> Result<Vec<u8>> {
        let Some((mut file, _)) = self.path.open_file()? else { return Ok(Vec::new()) };
        let inode = file.metadata().context("read", &self.path)?.ino();
        let mut all = Vec::new();
        file.read_to_end(&mut all).context("read", &self.path)?;
        if self.inode.replace(inode).is_some_and(|before| before != inode) {
            // The supervisor has cut the middle out at the end: what follows the gap is new.
            const GAP: &[u8] = b"\n[dormouse: ";
            let gap = all.windows(GAP.len()).rposition(|window| window == GAP);
            self.at = gap.map_or(self.at, |gap| self.at.min(gap as u64));
        }
        let known = usize::try_from(self.at).unwrap_or(usize::MAX).min(all.len());
        self.at = all.len() as u64;
        Ok(all.split_off(known))
    }
}
