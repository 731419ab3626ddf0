//! What a machine has of an agent besides its records: the directories of runs and tasks, and
//! hooks. They are local files, whatever store has the records.

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
use crate::model::json;
use crate::model::preemption::Checkpoint;

pub use log::Log;

/// Names beneath the directory of an agent.
const RUNS: &str = "runs";
const TASKS: &str = "tasks";
const TMP: &str = "tmp";
const HOOKS: &str = "hooks";
/// Names in the directory of a run or a task.
const CONTEXT: &str = "context.json";
const PROMPT: &str = "prompt.txt";
const OUTCOME: &str = "outcome.json";
const END: &str = "end.json";
/// The name of `end.json` while it is written.
const END_NEW: &str = "end.json.new";
const LEADER: &str = "leader";
const STDOUT: &str = "stdout.log";
const STDERR: &str = "stderr.log";
const HOOK_LOG: &str = "hooks.log";
/// The pipe that an interactive task reads from.
const STDIN: &str = "stdin";
/// The files in the directory of a run or a task that are needed only while its process lives.
pub const OF_PROCESSES: [&str; 3] = [LEADER, STDIN, END_NEW];
/// How the name of a checkpoint begins; its number follows.
pub const CHECKPOINT: &str = "checkpoint-";

/// How much of such a file is read, in bytes: more than a record may have.
const MOST: u64 = RECORD.most.0 * 2;

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

/// One of the two outputs of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    Stdout,
    Stderr,
}

impl Stream {
    /// What of two things is about this output.
    pub fn of<T>(self, stdout: T, stderr: T) -> T {
        match self {
            Stream::Stdout => stdout,
            Stream::Stderr => stderr,
        }
    }

    /// The name of the log.
    pub fn name(self) -> &'static str {
        match self {
            Stream::Stdout => STDOUT,
            Stream::Stderr => STDERR,
        }
    }
}

/// The name of a checkpoint's file.
pub fn name_of(checkpoint: Checkpoint) -> String {
    format!("{CHECKPOINT}{}", checkpoint.number)
}

/// The checkpoint that a file with this name is, in the directory of this run.
pub fn checkpoint_named(run_id: RunId, name: &str) -> Option<Checkpoint> {
    let checkpoint = Checkpoint { run_id, number: name.strip_prefix(CHECKPOINT)?.parse().ok()? };
    (name_of(checkpoint) == name).then_some(checkpoint)
}

impl Workdir {
    /// The local files of the agent with this directory. `shared` is the directory that this
    /// machine has for all agents.
    pub fn of(agent: &Spot, shared: &Spot) -> Workdir {
        Workdir { agent: agent.clone(), shared: shared.clone() }
    }

    pub fn run(&self, id: RunId) -> Dir {
        Dir { spot: self.agent.join(RUNS).join(id.to_string()) }
    }

    pub fn task(&self, id: TaskId) -> Dir {
        Dir { spot: self.agent.join(TASKS).join(id.to_string()) }
    }

    /// The file of a checkpoint, in the directory of the run that saved it.
    pub fn checkpoint(&self, checkpoint: Checkpoint) -> Spot {
        self.run(checkpoint.run_id).spot.join(name_of(checkpoint))
    }

    /// The directory that has the scratch directories of hooks.
    pub fn tmp(&self) -> Spot {
        self.agent.join(TMP).scratch()
    }

    /// The directories of hooks, each with the word for it. The first that has a hook counts.
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

    /// The log of one output of the process.
    pub fn stream(&self, stream: Stream) -> Spot {
        self.spot.join(stream.name())
    }

    /// Follows a log while it is written. `last`: begins with so many bytes of what is there.
    pub fn follow(&self, stream: Stream, last: Option<u64>) -> Log {
        Log::open(self.stream(stream), last)
    }

    /// The file that says which process leads.
    pub fn leader(&self) -> Spot {
        self.spot.join(LEADER)
    }

    /// The log of the hooks of a run.
    pub fn hook_log(&self) -> Spot {
        self.spot.join(HOOK_LOG)
    }

    /// The pipe of an interactive task.
    pub fn stdin(&self) -> Spot {
        self.spot.join(STDIN)
    }

    /// The file in which a turn leaves its outcome.
    pub fn outcome(&self) -> Spot {
        self.spot.join(OUTCOME)
    }

    /// Writes the context of a turn. Returns its place.
    pub fn write_context(&self, bytes: &[u8]) -> Result<Spot> {
        self.write(CONTEXT, bytes)
    }

    /// Writes the context as text. Returns its place.
    pub fn write_prompt(&self, text: &str) -> Result<Spot> {
        self.write(PROMPT, text.as_bytes())
    }

    /// Notes how the run or task ended, before that is committed. The note survives a kill; after a
    /// power cut the run or task counts as interrupted.
    pub fn note_end(&self, end: &impl Serialize) -> Result<()> {
        let mut line = serde_json::to_vec(end).unwrap_or_default();
        line.push(b'\n');
        self.write(END_NEW, &line)?.rename(&self.spot.join(END))
    }

    /// How the run or task ended, if a process has noted that.
    pub fn noted_end<T: DeserializeOwned>(&self) -> Result<Option<T>> {
        let path = self.spot.join(END);
        let Some(bytes) = path.read(MOST)? else { return Ok(None) };
        // The note is not synced: after a power cut the file may be empty, or have zeros or a part
        // of the note in it.
        if json::value(&bytes).is_err() {
            return Ok(None);
        }
        let wrong = |error: serde_json::Error| Error::damaged(path.path(), error.to_string());
        json::read(&bytes).map(Some).map_err(wrong)
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Result<Spot> {
        let spot = self.spot.join(name);
        let created = match spot.create() {
            // No directory above it is made: if an agent was removed meanwhile, no part of it is
            // made anew.
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
