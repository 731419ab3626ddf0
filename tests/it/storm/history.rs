//! Event history of the stress test, for the test oracle: one event on each line.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::setup::split_mix;

/// End of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    Status(i32),
    Signal(i32),
    /// The command did not end in time, and the stress test killed it.
    Overlong,
}

/// Restrictions of a command: a wrong clock, or limits on open files and the sizes of files.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handicap {
    /// Error of the command's clock, in seconds.
    pub clock: i64,
    /// Maximum number of open files.
    pub files: Option<u32>,
    /// Maximum size of a file that the command writes.
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
    /// Start of a command.
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
    /// Signal to a process of the stress test.
    Kill {
        pid: i32,
        signal: i32,
        name: String,
    },
    /// Change of the disk: full, or with space again.
    Disk {
        is_full: bool,
    },
    /// Change of the database server: killed, or up again.
    Server {
        is_away: bool,
    },
    /// File that the stress test put into an inbox. `text`: text of the file, if it is a message.
    Dropped {
        agent: String,
        name: String,
        text: Option<String>,
    },
    /// End of a merge, after which both clones have all changes.
    Merged,
    /// Merge that git could not complete because of concurrent processes.
    Unmerged {
        why: String,
    },
    /// Removal of a git lock whose owner was killed.
    Unlocked {
        path: String,
    },
    /// End of all disturbances.
    Calm,
    /// Message to an idle agent, which must get a turn.
    Probe {
        agent: String,
        id: String,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Time since the start of the stress test, in milliseconds.
    pub at: u64,
    #[serde(flatten)]
    pub what: What,
}

/// Collects events of many threads, in memory, and in a file that remains if the stress test hangs.
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
        // The time is read under the lock, so that events are in order of time.
        let event = Event { at: self.began.elapsed().as_millis() as u64, what };
        let line = serde_json::to_string(&event).unwrap();
        kept.1.write_all(format!("{line}\n").as_bytes()).unwrap();
        kept.0.push(event);
    }

    /// Records the start of a command. Returns the number of the call.
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

/// Random numbers of one thread: the same numbers for the same seed.
pub struct Luck(u64);

impl Luck {
    pub fn new(seed: u64, actor: &str) -> Luck {
        let of_actor =
            actor.bytes().fold(seed, |all, byte| all.wrapping_mul(0x100_0000_01b3) ^ u64::from(byte));
        Luck(of_actor)
    }

    /// Returns a number below `end`.
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
