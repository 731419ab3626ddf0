//! Reader of a run's or task's log while it is written.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;

use crate::beneath::Spot;
use crate::error::{IoContext, Result};

/// Maximum number of bytes of a log that are read at once.
const MOST_SAID: u64 = 256 << 20;

/// Log that a process may still write.
pub struct GrowingLog {
    path: Spot,
    inode: Option<u64>,
    /// Offset of the first byte that was neither read nor skipped.
    at: u64,
}

impl GrowingLog {
    /// Returns a reader from the start of the log, or from its last `last` bytes.
    pub fn open(path: Spot, last: Option<u64>) -> GrowingLog {
        let found = path.look().ok().flatten();
        let length = found.map_or(0, |found| u64::try_from(found.st_size).unwrap_or(0));
        let at = last.map_or(0, |last| length.saturating_sub(last));
        GrowingLog { path, inode: None, at }
    }

    /// Returns the bytes of the log since the last call.
    pub fn news(&mut self) -> Result<Vec<u8>> {
        let Some((mut file, length)) = self.path.open_file()? else { return Ok(Vec::new()) };
        if length.saturating_sub(self.at) > MOST_SAID {
            return Err(self.path.too_large(length, MOST_SAID));
        }
        let inode = file.metadata().context("read", &self.path)?.ino();
        if self.inode.replace(inode).is_some_and(|before| before != inode) {
            self.at = self.at_gap(&file)?;
        }
        self.at = self.at.min(length);
        file.seek(SeekFrom::Start(self.at)).context("read", &self.path)?;
        let mut news = Vec::new();
        file.read_to_end(&mut news).context("read", &self.path)?;
        self.at += news.len() as u64;
        Ok(news)
    }

    /// Returns the offset of the gap. At the end of the process, the supervisor has removed the
    /// middle of the log, so all bytes after the gap are new.
    fn at_gap(&self, mut file: &File) -> Result<u64> {
        const GAP: &[u8] = b"\n[dormouse: ";
        let mut all = Vec::new();
        file.read_to_end(&mut all).context("read", &self.path)?;
        let gap = all.windows(GAP.len()).rposition(|window| window == GAP);
        Ok(gap.map_or(self.at, |gap| self.at.min(gap as u64)))
    }
}
