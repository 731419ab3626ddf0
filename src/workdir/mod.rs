//! What a machine has of an agent beside its records: the directories of runs and tasks, and hooks. They are local
//! files, whatever store has the records.

mod leavings;
mod log;

use std::io::Write;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::beneath::Spot;
use crate::error::{Context, Error, Result};
use crate::model::bound::RECORD;
use crate::model::id::{RunId, TaskId};
use crate::model::preemption::Checkpoint;

pub use log::Log;

/// Beneath the directory of an agent.
const RUNS: &str = "runs";
const TASKS: &str = "tasks";
const TMP: &str = "tmp";
const HOOKS: &str = "hooks";
/// In the directory of a run or a task.
const CONTEXT: &str = "context.json";
const PROMPT: &str = "prompt.txt";
const OUTCOME: &str = "outcome.json";
const END: &str = "end.json";
/// While it is written.
const END_NEW: &str = "end.json.new";
const LEADER: &str = "leader";
const STDOUT: &str = "stdout.log";
const STDERR: &str = "stderr.log";
const HOOK_LOG: &str = "hooks.log";
/// The pipe that an interactive task reads from.
const STDIN: &str = "stdin";
/// Where versions before have put the record of a settled run.
const RECORD_OF_BEFORE: &str = "run.json";
/// What lies in the directory of a run or a task as long as its process lives, and is of no use elsewhere.
pub const OF_PROCESSES: [&str; 3] = [LEADER, STDIN, END_NEW];
/// Before the number of a checkpoint.
pub const CHECKPOINT: &str = "checkpoint-";

/// How much is read of such a file, in bytes: what a record may have when it is read.
const MOST: u64 = RECORD.most.0 * 2;

/// How much is read of what a process has said, in bytes.
const MOST_SAID: u64 = 256 << 20;

/// What a machine has of one agent.
#[derive(Debug, Clone)]
pub struct Workdir {
    agent: Spot,
    shared: Spot,
}

/// The directory of a run or a task.
#[derive(Debug, Clone)]
pub struct Dir {
    spot: Spot,
}

/// Which of its two outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    Stdout,
    Stderr,
}

impl Stream {
    /// The name of its file.
    pub fn name(self) -> &'static str {
        match self {
            Stream::Stdout => STDOUT,
            Stream::Stderr => STDERR,
        }
    }
}

impl Workdir {
    /// Of the agent that has this directory here. `shared`: the directory of this machine that has all agents.
    pub fn of(agent: &Spot, shared: &Spot) -> Workdir {
        Workdir { agent: agent.clone(), shared: shared.clone() }
    }

    pub fn run(&self, id: RunId) -> Dir {
        Dir { spot: self.agent.join(RUNS).join(id.to_string()) }
    }

    pub fn task(&self, id: TaskId) -> Dir {
        Dir { spot: self.agent.join(TASKS).join(id.to_string()) }
    }

    /// A checkpoint, in the directory of the run that has saved it.
    pub fn checkpoint(&self, checkpoint: Checkpoint) -> Spot {
        self.run(checkpoint.run_id).spot.join(format!("{CHECKPOINT}{}", checkpoint.number))
    }

    /// Where hooks have their scratch directories.
    pub fn tmp(&self) -> Spot {
        self.agent.join(TMP)
    }

    /// Where hooks lie, by what such a place is called: the first that has one counts.
    pub fn hooks(&self) -> [(&'static str, PathBuf); 2] {
        [("agent", &self.agent), ("shared", &self.shared)].map(|(name, spot)| (name, spot.path().join(HOOKS)))
    }
}

impl Dir {
    pub fn path(&self) -> &Path {
        self.spot.path()
    }

    pub fn spot(&self) -> &Spot {
        &self.spot
    }

    pub fn make(&self) -> Result<()> {
        self.spot.make_dirs()
    }

    pub fn exists(&self) -> bool {
        self.spot.is_dir().is_ok_and(|is_dir| is_dir)
    }

    /// Where a process writes what it says.
    pub fn stream(&self, stream: Stream) -> Spot {
        self.spot.join(stream.name())
    }

    /// What a process has said; nothing where there is none of it.
    pub fn read(&self, stream: Stream) -> Result<Option<Vec<u8>>> {
        self.stream(stream).read(MOST_SAID)
    }

    /// Follows what a process says. `last`: begins with so many bytes of what is there.
    pub fn follow(&self, stream: Stream, last: Option<u64>) -> Log {
        Log::open(self.stream(stream), last)
    }

    /// Which process leads.
    pub fn leader(&self) -> Spot {
        self.spot.join(LEADER)
    }

    /// What the hooks of a run have said.
    pub fn hook_log(&self) -> Spot {
        self.spot.join(HOOK_LOG)
    }

    /// The pipe of an interactive task.
    pub fn stdin(&self) -> Spot {
        self.spot.join(STDIN)
    }

    /// What a turn leaves for its settlement.
    pub fn outcome(&self) -> Spot {
        self.spot.join(OUTCOME)
    }

    /// What a turn is told. Returns where it is.
    pub fn write_context(&self, bytes: &[u8]) -> Result<Spot> {
        self.write(CONTEXT, bytes)
    }

    /// The same as text.
    pub fn write_prompt(&self, text: &str) -> Result<Spot> {
        self.write(PROMPT, text.as_bytes())
    }

    /// Notes how it ended, before that is committed. The note survives a kill; after a power cut the run or task
    /// counts as interrupted.
    pub fn note_end(&self, end: &impl Serialize) -> Result<()> {
        let mut line = serde_json::to_vec(end).unwrap_or_default();
        line.push(b'\n');
        self.write(END_NEW, &line)?.rename(&self.spot.join(END))
    }

    /// How it ended, if a process has seen that and it was not committed.
    pub fn noted_end<T: DeserializeOwned>(&self) -> Result<Option<T>> {
        let path = self.spot.join(END);
        let Some(bytes) = path.read(MOST)? else { return Ok(None) };
        // It is not synced: a power cut may leave the name with nothing, zeros or a part behind it.
        let Ok(value) = serde_json::from_slice::<serde_json::Value>(&bytes) else { return Ok(None) };
        let wrong = |error: serde_json::Error| Error::damaged(path.path(), error.to_string());
        serde_json::from_value(value).map(Some).map_err(wrong)
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Result<Spot> {
        let spot = self.spot.join(name);
        let created = match spot.create() {
            // Nothing above it is made: an agent that was removed meanwhile is not made anew.
            Err(error) if error.is_not_found() => self.spot.make_dir().and_then(|_| spot.create()),
            created => created,
        };
        let written = created?.write_all(bytes).context("write", &spot);
        if written.is_err() {
            let _ = spot.remove();
        }
        written.map(|()| spot)
    }
}
