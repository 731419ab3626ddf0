//! Decides which files of an agent's directory are exported, and which belong to this machine
//! (docs/FORMAT.md §7).

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::cap_fs::{CapPath, Entry};
use crate::error::Result;
use crate::model::bound::MAX_SETTINGS;

use super::files::{MAX_LINES, MAX_RECORD};
use super::layout;
use super::workdir;

/// Maximum bytes of an exported file: a tar header has eleven octal digits for the size.
pub const MAX_FILE: u64 = (8 << 30) - 1;

/// Kind of a file in an agent's directory. `most`: maximum bytes of a file of this kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// Records, settings and files of JSON lines, which must be plain files.
    Records { most: u64 },
    /// Output of turns and tasks, hook executables, and rejected or quarantined files.
    Evidence,
    /// Local files of this machine: locks, journals, caches, temporary files.
    Local,
    /// Files that no part of this program makes.
    Unknown,
}

/// Returns the kind of the file at a path relative to the agent's directory, or of the files below
/// it if the path is a directory.
pub fn place(path: &Path) -> FileKind {
    let parts: Vec<&[u8]> = path.iter().map(OsStr::as_bytes).collect();
    let is_hidden = |parts: &[&[u8]]| parts.iter().any(|part| part.starts_with(b"."));
    let Some((top, rest)) = parts.split_first() else { return FileKind::Unknown };
    let Ok(top) = std::str::from_utf8(top) else { return FileKind::Unknown };
    let records = |most| if is_hidden(rest) { FileKind::Local } else { FileKind::Records { most } };
    match (top, rest) {
        (layout::POLICY, []) => records(MAX_SETTINGS),
        (layout::IDENTITY | layout::STATE, []) => records(MAX_RECORD),
        (layout::INBOX, [rejected, ..]) if *rejected == layout::REJECTED.as_bytes() => FileKind::Evidence,
        (layout::TASKS, [name]) if name.ends_with(b".lock") => FileKind::Local,
        (layout::TASKS | layout::RUNS, [_, name])
            if workdir::PROCESS_FILES.iter().any(|own| own.as_bytes() == *name) =>
        {
            FileKind::Local
        }
        (layout::TASKS, [_, _, ..]) | (layout::RUNS, [_, ..]) => FileKind::Evidence,
        (layout::RUNS | layout::HOOKS | layout::QUARANTINE, _) => FileKind::Evidence,
        (
            layout::INBOX
            | layout::WORK
            | layout::WAITS
            | layout::TIMERS
            | layout::TASKS
            | layout::TRIGGERS
            | layout::OUTBOX,
            _,
        ) => records(MAX_RECORD),
        (layout::LEDGER | layout::ARCHIVE, _) => records(MAX_LINES),
        (layout::LOCK | layout::RUN_LOCK | layout::JOURNAL | layout::TAKEN, _) => FileKind::Local,
        (layout::TMP | layout::CACHE | layout::FORMER, _) => FileKind::Local,
        (top, _) if top.starts_with('.') => FileKind::Local,
        _ => FileKind::Unknown,
    }
}

impl FileKind {
    /// Maximum bytes of a file of this kind; `None` if such files are not exported.
    pub fn most(self) -> Option<u64> {
        match self {
            FileKind::Records { most } => Some(most),
            FileKind::Evidence => Some(MAX_FILE),
            FileKind::Local | FileKind::Unknown => None,
        }
    }
}

/// True if an export contains the time of the last write of a file. Records contain times
/// themselves, and their export must be the same from a directory and from a database.
pub fn keeps_time(path: &Path) -> bool {
    match place(path) {
        FileKind::Records { .. } => {
            let name = path.file_name().and_then(OsStr::to_str);
            path.starts_with(layout::INBOX) && !name.is_some_and(layout::is_arrival)
        }
        // Only checkpoints (saved progress) may be deleted; their time is not exported.
        FileKind::Evidence => !path.to_str().is_some_and(layout::may_delete),
        FileKind::Local | FileKind::Unknown => false,
    }
}

/// Calls `each` with the entries below a directory, with the path of each relative to `dir`. `each`
/// returns true to continue with the entries inside a directory.
pub fn walk(dir: &CapPath, below: &Path, each: &mut dyn FnMut(&Path, &Entry) -> Result<bool>) -> Result<()> {
    for entry in dir.join(below).entries()? {
        let path = below.join(&entry.name);
        if each(&path, &entry)? && entry.is_dir {
            walk(dir, &path, each)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_caches_and_temporary_files_are_not_exported() {
        for local in [
            "lock",
            "run.lock",
            "journal.jsonl",
            "tmp/x",
            "tmp",
            "cache/dedupe/2026-01-01/x.json",
            "inbox.moved",
            "inbox/.new-x",
            "inbox/.gitkeep",
            "work/.x.json",
            "tasks/task_1.lock",
            "tasks/task_1/stdin",
            "runs/run_1/leader",
            ".hidden",
        ] {
            assert_eq!(place(Path::new(local)), FileKind::Local, "{local}");
        }
    }

    #[test]
    fn only_records_and_evidence_are_exported() {
        for record in
            ["agent.toml", "state.json", "inbox", "inbox/x", "inbox/from-2-x/y", "archive/2026-01/run.jsonl"]
        {
            assert!(matches!(place(Path::new(record)), FileKind::Records { .. }), "{record}");
        }
        for evidence in [
            "inbox/rejected/x",
            "runs/run_1/.cache/x",
            "tasks/task_1/stdout.log",
            "hooks/on-startup",
            "quarantine/x",
        ] {
            assert_eq!(place(Path::new(evidence)), FileKind::Evidence, "{evidence}");
        }
        for timed in ["runs/run_1/stdout.log", "hooks/on-startup", "inbox/rejected/x", "inbox/dropped.txt"] {
            assert!(keeps_time(Path::new(timed)), "{timed}");
        }
        let id = "0190000000007000800000000000000a";
        for untimed in [
            "state.json".to_owned(),
            "ledger/2026-01.jsonl".to_owned(),
            format!("inbox/2-msg_{id}.json"),
            format!("inbox/w-msg_{id}.json"),
            format!("runs/run_{id}/checkpoint-1"),
            "lock".to_owned(),
        ] {
            assert!(!keeps_time(Path::new(&untimed)), "{untimed}");
        }
        for unknown in ["README", "agent.toml/x", "state.json/x", "", "agents/x"] {
            assert_eq!(place(Path::new(unknown)), FileKind::Unknown, "{unknown}");
        }
    }
}
