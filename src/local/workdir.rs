//! Directory of a run or a task. Every store keeps it on the machine that runs the agent.

mod stale;

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::cap_fs::CapPath;
use crate::error::{Error, IoContext, Result};
use crate::model::bound::RECORD;
use crate::model::id::RunId;
use crate::model::json;
use crate::model::preemption::Checkpoint;

/// Names in the directory of a run or a task.
pub const CONTEXT: &str = "context.json";
pub const PROMPT: &str = "prompt.txt";
const OUTCOME: &str = "outcome.json";
const END: &str = "end.json";
/// Temporary name of `end.json`, which notes the end of a run or task, while it is written.
const END_NEW: &str = "end.json.new";
const LEADER: &str = "leader";
const STDOUT: &str = "stdout.log";
const STDERR: &str = "stderr.log";
const HOOK_LOG: &str = "hooks.log";
/// Name of the pipe from which an interactive task reads.
const STDIN: &str = "stdin";
/// Files of a run or task that are needed only while its process lives.
pub const PROCESS_FILES: [&str; 3] = [LEADER, STDIN, END_NEW];
/// Prefix of the name of a checkpoint (saved progress of a turn), before its number.
pub const CHECKPOINT: &str = "checkpoint-";

/// Maximum size of a file in bytes, larger than any record.
const MOST: u64 = RECORD.most.0 * 2;

/// Directory of a run or a task.
#[derive(Debug, Clone)]
pub struct Dir {
    pub cap: CapPath,
}

/// One of the two outputs of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    Stdout,
    Stderr,
}

impl Stream {
    /// Returns the file name of this output's log.
    pub fn name(self) -> &'static str {
        match self {
            Stream::Stdout => STDOUT,
            Stream::Stderr => STDERR,
        }
    }
}

/// Returns the file name of a checkpoint (saved progress of a turn).
pub fn name_of(checkpoint: Checkpoint) -> String {
    format!("{CHECKPOINT}{}", checkpoint.number)
}

/// Returns the checkpoint (saved progress) of this run in a file of this name; `None` for others.
pub fn parse_checkpoint(run_id: RunId, name: &str) -> Option<Checkpoint> {
    let checkpoint = Checkpoint { run_id, number: name.strip_prefix(CHECKPOINT)?.parse().ok()? };
    (name_of(checkpoint) == name).then_some(checkpoint)
}

impl Dir {
    pub fn exists(&self) -> bool {
        self.cap.is_dir().is_ok_and(|is_dir| is_dir)
    }

    /// Returns the log of one output of the process.
    pub fn stream(&self, stream: Stream) -> CapPath {
        self.cap.join(stream.name())
    }

    /// Returns a reader of a growing log, from its last `last` bytes, or else from the start.
    pub fn follow(&self, stream: Stream, last: Option<u64>) -> GrowingLog {
        let path = self.stream(stream);
        let length = path.look().ok().flatten().map_or(0, |found| u64::try_from(found.st_size).unwrap_or(0));
        let at = last.map_or(0, |last| length.saturating_sub(last));
        GrowingLog { path, inode: None, at }
    }

    /// Returns the file that records the leader of the process group.
    pub fn leader(&self) -> CapPath {
        self.cap.join(LEADER)
    }

    /// Returns the log of the hooks of a run.
    pub fn hook_log(&self) -> CapPath {
        self.cap.join(HOOK_LOG)
    }

    /// Returns the pipe from which an interactive task reads.
    pub fn stdin(&self) -> CapPath {
        self.cap.join(STDIN)
    }

    /// Returns the file into which a turn writes its outcome.
    pub fn outcome(&self) -> CapPath {
        self.cap.join(OUTCOME)
    }

    /// Notes the end of the run or task in a file, before it is committed. The note survives a
    /// kill, but not a power cut, after which the run or task counts as interrupted.
    pub fn write_end(&self, end: &impl Serialize) -> Result<()> {
        let mut line = serde_json::to_vec(end).unwrap_or_default();
        line.push(b'\n');
        self.write(END_NEW, &line)?.rename(&self.cap.join(END))
    }

    /// Returns the noted end; `None` without a note or JSON. Error for JSON of another structure.
    pub fn read_end<T: DeserializeOwned>(&self) -> Result<Option<T>> {
        let path = self.cap.join(END);
        let Some(bytes) = path.read(MOST)? else { return Ok(None) };
        // `write_end` does not sync: a power cut may leave an empty or partial file, or zeros.
        if json::value(&bytes).is_err() {
            return Ok(None);
        }
        let wrong = |error: serde_json::Error| Error::damaged(path.path(), error.to_string());
        json::read(&bytes).map(Some).map_err(wrong)
    }

    /// Replaces a file of this directory, without a sync. Returns its path. No file after an error.
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<CapPath> {
        let cap = self.cap.join(name);
        let created = match cap.create() {
            // Only this directory is made, without its parent, so that no removed agent reappears.
            Err(error) if error.is_not_found() => self.cap.make_dir().and_then(|_| cap.create()),
            created => created,
        };
        let written = created?.write_all(bytes).context("write", &cap);
        if written.is_err() {
            let _ = cap.remove();
        }
        written.map(|()| cap)
    }
}

/// Maximum number of bytes of a log that are read at once.
const MAX_NEWS: u64 = 256 << 20;

/// Log that a process may still write.
pub struct GrowingLog {
    path: CapPath,
    inode: Option<u64>,
    /// Offset of the first byte that was neither read nor skipped.
    at: u64,
}

impl GrowingLog {
    /// Returns the log's bytes since the last call; none without a log. Error above `MAX_NEWS`.
    pub fn news(&mut self) -> Result<Vec<u8>> {
        let Some((mut file, length)) = self.path.open_file()? else { return Ok(Vec::new()) };
        if length.saturating_sub(self.at) > MAX_NEWS {
            return Err(self.path.too_large(length, MAX_NEWS));
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

    /// Returns the offset of the first unread byte after the log was shortened at the end of the
    /// process: everything after the removed middle counts as unread.
    fn at_gap(&self, mut file: &File) -> Result<u64> {
        const GAP: &[u8] = b"\n[dormouse: ";
        let mut all = Vec::new();
        file.read_to_end(&mut all).context("read", &self.path)?;
        let gap = all.windows(GAP.len()).rposition(|window| window == GAP);
        Ok(gap.map_or(self.at, |gap| self.at.min(gap as u64)))
    }
}
