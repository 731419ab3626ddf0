//! What happened in a storm, an event a line, for the oracle.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::setup::split_mix;

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    Status(i32),
    Signal(i32),
    /// It was still there when its time was over, and the storm has ended it.
    Overlong,
}

/// What was done to a command, besides calling it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handicap {
    /// How far its clock is ahead, in seconds.
    pub clock: i64,
    /// How many files it may have open.
    pub files: Option<u32>,
    /// How long a file may become that it writes.
    pub bytes: Option<u32>,
}

impl Handicap {
    pub fn is_limit(&self) -> bool {
        self.files.is_some() || self.bytes.is_some()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// A command was called.
    Begin {
        call: usize,
        actor: String,
        words: Vec<String>,
        handicap: Handicap,
    },
    End {
        call: usize,
        pid: i32,
        ended: Ended,
        stdout: String,
        stderr: String,
    },
    /// A signal was sent to a process of the storm, whoever had started it.
    Kill {
        pid: i32,
        signal: i32,
        name: String,
    },
    /// The disk is full from here on, or has room again.
    Disk {
        is_full: bool,
    },
    /// The server of the database is killed, or is there again.
    Server {
        is_away: bool,
    },
    /// A file was put into an inbox by hand. `text` is what it says, if it is a message.
    Dropped {
        agent: String,
        name: String,
        text: Option<String>,
    },
    /// The two clones have what each of them had.
    Merged,
    /// Git was kept from that by what happened beside it.
    Unmerged {
        why: String,
    },
    /// A lock of git's was taken away, as whoever held it was killed.
    Unlocked {
        path: String,
    },
    /// From here on nothing is killed or lacking.
    Calm,
    /// A message to an agent at rest, which must be answered with a turn.
    Probe {
        agent: String,
        id: String,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Milliseconds since the storm began.
    pub at: u64,
    #[serde(flatten)]
    pub what: What,
}

/// Gathers events of many threads, in memory and in a file that outlives a storm that hangs.
pub struct History {
    began: Instant,
    kept: Mutex<(Vec<Event>, File)>,
}

impl History {
    pub fn new(path: &Path) -> History {
        History { began: Instant::now(), kept: Mutex::new((Vec::new(), File::create(path).unwrap())) }
    }

    pub fn note(&self, what: What) {
        let mut kept = self.kept.lock().unwrap();
        // Looked at under the lock, so that events stand in order of time.
        let event = Event { at: self.began.elapsed().as_millis() as u64, what };
        let line = serde_json::to_string(&event).unwrap();
        kept.1.write_all(format!("{line}\n").as_bytes()).unwrap();
        kept.0.push(event);
    }

    /// Begins a call and gives it its number.
    pub fn begin(&self, actor: &str, words: &[String], handicap: &Handicap) -> usize {
        static CALLS: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        let call = CALLS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let (actor, words, handicap) = (actor.to_owned(), words.to_vec(), handicap.clone());
        self.note(What::Begin { call, actor, words, handicap });
        call
    }

    pub fn events(&self) -> Vec<Event> {
        self.kept.lock().unwrap().0.clone()
    }
}

/// Draws the acts of one actor: the same ones for the same seed.
pub struct Luck(u64);

impl Luck {
    pub fn new(seed: u64, actor: &str) -> Luck {
        let of_actor =
            actor.bytes().fold(seed, |all, byte| all.wrapping_mul(0x100_0000_01b3) ^ u64::from(byte));
        Luck(of_actor)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        split_mix(&mut self.0) % end
    }

    pub fn one_in(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }

    pub fn of<'a, T: ?Sized>(&mut self, choices: &[&'a T]) -> &'a T {
        choices[self.below(choices.len() as u64) as usize]
    }
}
