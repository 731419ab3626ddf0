//! Names and paths of the state directory: all of them are defined here (FORMAT §1).

use std::fmt::Display;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use crate::cap_fs::{CapPath, Root};
use crate::model::id::{AgentName, MessageId, RunId, TaskId, TimerId, TriggerId, WaitId, WorkId};
use crate::model::message::InboxKey;
use crate::model::preemption::Checkpoint;
use crate::model::record::Plane;
use crate::model::time::Time;

use super::workdir;

/// Name of a state directory.
pub const STATE_DIR: &str = ".dormouse";
/// Name of the settings file, which makes a directory a state directory.
pub const CONFIG: &str = "dormouse.toml";
pub const AGENTS: &str = "agents";
pub const HOOKS: &str = "hooks";
/// Directories of lock files that all agents share: one for each workspace or parallel turn.
pub const WORKSPACES: &str = "workspaces";
pub const SLOTS: &str = "slots";

pub const STATE: &str = "state.json";
pub const IDENTITY: &str = "identity.json";
pub const POLICY: &str = "agent.toml";
pub const JOURNAL: &str = "journal.jsonl";
pub const LOCK: &str = "lock";
pub const RUN_LOCK: &str = "run.lock";
pub const INBOX: &str = "inbox";
/// Name of a replaced inbox, until its messages are moved into the new inbox.
pub const FORMER: &str = "inbox.old";
/// File that lists the inbox files in the archive of `export --move`.
pub const TAKEN: &str = "inbox.moved";
pub const REJECTED: &str = "rejected";
/// File that keeps git from taking an emptied inbox for a renamed one.
pub const KEPT: &str = "inbox/.gitkeep";
pub const KEPT_NAME: &str = ".gitkeep";
/// Prefix of the name of an inbox directory (bucket); the key of its first message follows.
const BUCKET: &str = "from-";
pub const WORK: &str = "work";
pub const WAITS: &str = "waits";
pub const TIMERS: &str = "timers";
pub const TASKS: &str = "tasks";
pub const TRIGGERS: &str = "triggers";
/// Directory of the messages to other agents that are not delivered yet.
pub const OUTBOX: &str = "outbox";
/// Directory of signature keys, which a `.gitignore` in the directory keeps out of git.
pub const KEYS: &str = "keys";
pub const RUNS: &str = "runs";
pub const LEDGER: &str = "ledger";
pub const ARCHIVE: &str = "archive";
/// Suffix of a file with one JSON record in each line.
pub const LINES: &str = ".jsonl";
pub const TMP: &str = "tmp";
/// Directory for files that could not be read, that a merge has replaced by another version, or
/// that belong to another agent.
pub const QUARANTINE: &str = "quarantine";
/// Lock file of the processes that run hooks for transitions.
pub const NOTIFY_LOCK: &str = "tmp/notify.lock";
pub const CACHE: &str = "cache";
pub const DEDUPE: &str = "cache/dedupe";
/// File with the time of the next deletion of expired directories, and their measured size.
pub const SWEEP: &str = "cache/sweep.json";

/// File with the ids of the claims by which this git clone alone steps the agent.
pub const TICKED_BY: &str = "cache/ticked-by";

/// Directories that `create` makes. After `git clone` empty ones are missing: a command that needs
/// such a directory makes it again.
pub const AGENT_DIRS: &[&str] =
    &[INBOX, WORK, WAITS, TIMERS, TASKS, TRIGGERS, RUNS, LEDGER, ARCHIVE, HOOKS, TMP, CACHE];

/// Directory of one agent. Paths inside it are relative, so that a journal can name them.
#[derive(Debug, Clone)]
pub struct AgentDir {
    cap: CapPath,
}

impl AgentDir {
    pub fn new(root: &Arc<Root>, agent: &AgentName) -> AgentDir {
        // A command must not create parts of an agent that was removed meanwhile.
        AgentDir { cap: root.cap().join(AGENTS).join(agent.as_str()).existing() }
    }

    /// Returns the directory of an agent that has a hidden name while it is created or deleted.
    pub fn at(cap: CapPath) -> AgentDir {
        AgentDir { cap }
    }

    pub fn path(&self) -> &Path {
        self.cap.path()
    }

    pub fn cap(&self) -> &CapPath {
        &self.cap
    }

    pub fn join(&self, relative: impl AsRef<Path>) -> CapPath {
        let relative = relative.as_ref();
        // A lost dedupe key admits a message twice, so an unreadable key file must be an error.
        let scratch = [CACHE, TMP].into_iter().filter(|_| !relative.starts_with(DEDUPE));
        for scratch in scratch {
            if let Ok(below) = relative.strip_prefix(scratch) {
                let scratch = self.cap.join(scratch).scratch();
                return if below.as_os_str().is_empty() { scratch } else { scratch.join(below) };
            }
        }
        self.cap.join(relative)
    }
}

pub fn message(key: InboxKey) -> String {
    format!("{INBOX}/{key}.json")
}

pub fn hint(id: MessageId) -> String {
    format!("{INBOX}/w-{id}.json")
}

/// Path of a segment: an inbox directory with a limited number of messages, named after the first.
pub fn segment(first: InboxKey) -> String {
    format!("{INBOX}/{first}")
}

/// Path of a bucket: an inbox directory with any number of messages, named after the first.
pub fn bucket(first: InboxKey) -> String {
    format!("{INBOX}/{BUCKET}{first}")
}

/// Returns the key of the first message, from the name of a message directory (bucket).
pub fn parse_bucket(name: &str) -> Option<InboxKey> {
    InboxKey::parse(name.strip_prefix(BUCKET)?)
}

/// Directory of the records of a kind that have not ended.
pub fn plane(plane: Plane) -> &'static str {
    match plane {
        Plane::Work => WORK,
        Plane::Waits => WAITS,
        Plane::Timers => TIMERS,
        Plane::Tasks => TASKS,
        Plane::Triggers => TRIGGERS,
        Plane::Outbox => OUTBOX,
    }
}

/// Path of a record that has not ended.
pub fn open(kind: Plane, id: impl Display) -> String {
    format!("{}/{id}.json", plane(kind))
}

/// Returns the id of the record at a path in the directory of its kind.
pub fn id_at(path: &str) -> &str {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.strip_suffix(".json").unwrap_or(name)
}

pub fn plan(id: impl Display) -> String {
    format!("{WORK}/{id}.plan.md")
}

/// File that counts the recent uses of a trigger.
pub fn uses(id: TriggerId) -> String {
    format!("cache/uses/{id}")
}

/// File with the signature key of a trigger. Its name contains the hash of the key, so that a
/// record names exactly one file.
pub fn key(id: TriggerId, hash: &str) -> String {
    format!("{KEYS}/{}", key_name(id, hash))
}

pub fn key_name(id: TriggerId, hash: &str) -> String {
    format!("{id}.{hash}")
}

/// Lock file in `tmp/` of a command in a critical section, which protects a run from being ended.
pub fn section(run: RunId, number: u32) -> String {
    format!("section-{run}-{number}")
}

pub fn task_lock(id: TaskId) -> String {
    format!("{TASKS}/{id}.lock")
}

/// Path of a checkpoint (saved progress), in the directory of the run that saved it.
pub fn checkpoint(checkpoint: Checkpoint) -> String {
    format!("{RUNS}/{}/{}", checkpoint.run_id, workdir::name_of(checkpoint))
}

pub fn ledger(at: Time) -> String {
    format!("{LEDGER}/{}.jsonl", at.month())
}

pub fn archive(at: Time, kind: &str) -> String {
    month(&at.month(), kind)
}

/// Archive file of one kind and one month.
pub fn month(name: &str, kind: &str) -> String {
    format!("{ARCHIVE}/{name}/{kind}{LINES}")
}

/// Path of the cache of ended message ids in `source`, a file of the archive or of the event log.
pub fn settled(source: &str) -> String {
    format!("cache/settled/{}", source.replace('/', "-"))
}

/// True if a transaction may write the file at this path, relative to the agent's directory.
pub fn may_write(path: &str) -> bool {
    match path.split('/').collect::<Vec<_>>().as_slice() {
        [STATE] => true,
        [INBOX, name] => is_arrival(name),
        [INBOX, dir, name] => {
            InboxKey::parse(dir).or_else(|| parse_bucket(dir)).is_some() && is_arrival(name)
        }
        [WORK, name] => is_named::<WorkId>(name, ".json") || is_named::<WorkId>(name, ".plan.md"),
        [WAITS, name] => is_named::<WaitId>(name, ".json"),
        [TIMERS, name] => is_named::<TimerId>(name, ".json"),
        [TASKS, name] => is_named::<TaskId>(name, ".json"),
        [TRIGGERS, name] => is_named::<TriggerId>(name, ".json"),
        [OUTBOX, name] => is_named::<MessageId>(name, ".json"),
        ["cache", "dedupe", day, name] => is_plain(day) && name.strip_suffix(".json").is_some_and(is_plain),
        _ => false,
    }
}

/// True if a transaction may add lines to the file at this path.
pub fn may_append(path: &str) -> bool {
    match path.split('/').collect::<Vec<_>>().as_slice() {
        [LEDGER, name] => name.strip_suffix(".jsonl").is_some_and(is_plain),
        [ARCHIVE, month, name] => is_plain(month) && name.strip_suffix(".jsonl").is_some_and(is_plain),
        _ => false,
    }
}

/// True if a transaction may delete the file at this path.
pub fn may_delete(path: &str) -> bool {
    match path.split('/').collect::<Vec<_>>().as_slice() {
        [STATE] => false,
        [RUNS, id, name] => id.parse().is_ok_and(|run| workdir::parse_checkpoint(run, name).is_some()),
        _ => may_write(path),
    }
}

/// True if the name of a file of an inbox is valid for a message or a hint.
pub fn is_arrival(name: &str) -> bool {
    let Some(stem) = name.strip_suffix(".json") else { return false };
    InboxKey::parse(stem).is_some()
        || stem.strip_prefix("w-").is_some_and(|id| id.parse::<MessageId>().is_ok())
}

fn is_named<Id: FromStr>(name: &str, ending: &str) -> bool {
    name.strip_suffix(ending).is_some_and(|id| id.parse::<Id>().is_ok())
}

/// True if a part of a path has only letters, digits, `-` and `_`, as months and hashes have.
fn is_plain(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

/// Path of the file of a dedupe key, in the directory of the day on which the key was admitted, so
/// that a whole day can be removed. `hash`: hash of the key.
pub fn dedupe(admitted_at: Time, hash: &str) -> String {
    format!("{DEDUPE}/{}/{hash}.json", admitted_at.day())
}
