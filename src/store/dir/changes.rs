//! File changes of a transaction, as values, and their application.
//!
//! Changes can be applied twice with the same result: contents are whole files, lines have a
//! recorded offset, and a file to delete may be gone already. Nothing is synced here: the journal
//! keeps all changes until the files are durable.

use std::collections::HashSet;
use std::os::unix::fs::FileExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::cap_fs::{CapPath, Version};
use crate::error::{Error, IoContext, Result};
use crate::local::files::{self, Disk};
use crate::local::layout::{self, AgentDir};

use super::keys;

/// File and its new content. The path is relative to the agent's directory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Write {
    pub path: String,
    pub content: String,
}

/// Lines to append to a file that was `offset` bytes long.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Append {
    pub path: String,
    pub offset: u64,
    pub content: String,
}

/// Changes of one transaction, or of several consecutive transactions together.
#[derive(Debug, Default)]
pub struct Changes<'e> {
    /// Files to write. A transaction writes a file once, and a later one replaces its content.
    writes: Vec<&'e Write>,
    /// Lines to append, in the order in which they were committed.
    appends: Vec<&'e Append>,
    /// Paths to delete; none of them is also written.
    deletes: Vec<&'e str>,
}

impl<'e> Changes<'e> {
    /// Adds the changes of a later transaction. Within one transaction deletes come after writes.
    pub fn and(self, writes: &'e [Write], appends: &'e [Append], deletes: &'e [String]) -> Changes<'e> {
        let deleted: HashSet<&str> = deletes.iter().map(String::as_str).collect();
        let written: HashSet<&str> = writes.iter().map(|write| write.path.as_str()).collect();
        let mut all = self;
        all.writes.retain(|write| !written.contains(&*write.path) && !deleted.contains(&*write.path));
        all.writes.extend(writes.iter().filter(|write| !deleted.contains(&*write.path)));
        all.deletes.retain(|path| !written.contains(path) && !deleted.contains(path));
        all.deletes.extend(deletes.iter().map(String::as_str));
        all.appends.extend(appends);
        all
    }

    /// Applies the changes to the files, `state.json` last, so that a concurrent reader finds the
    /// old revision with the new records. Returns the version of the new `state.json`, if the
    /// changes write it.
    pub fn apply(&self, agent: &AgentDir, disk: Disk) -> Result<Option<Version>> {
        let (state, others): (Vec<&Write>, Vec<&Write>) =
            self.writes.iter().partition(|write| write.path == layout::STATE);
        for write in others {
            // Without a cache of dedupe keys no entry is written: a cache with one key would pass
            // for a complete cache.
            let is_key = write.path.starts_with(layout::DEDUPE);
            if is_key && !keys::has_cache(agent)? {
                continue;
            }
            match put(agent, write, disk) {
                Err(error) if is_key && error.is_of_file() => keys::forget(agent)?,
                put => drop(put?),
            }
        }
        for append in &self.appends {
            add_lines(&agent.join(&append.path), append)?;
        }
        for path in &self.deletes {
            agent.join(path).remove()?;
            remove_empty_dir(agent, path);
        }
        state.last().map(|write| put(agent, write, disk)).transpose()
    }
}

/// Replaces a file as a whole. The temporary name is always the same, because only the holder of
/// the agent's lock calls this.
fn put(agent: &AgentDir, write: &Write, disk: Disk) -> Result<Version> {
    let staged = agent.join(layout::TMP).join("apply");
    let put = || {
        let file = disk.stage_unsynced(&staged, write.content.as_bytes())?;
        let version = Version::of_file(&file).context("look at", &staged)?;
        files::replace(&staged, &agent.join(&write.path)).map(|()| version)
    };
    files::or_remove(&staged, put())
}

/// Removes the directory of a deleted file if it is empty and no longer needed: a directory of
/// messages in the inbox, or the directory of a settled run that had only a checkpoint left.
fn remove_empty_dir(agent: &AgentDir, deleted: &str) {
    let path = Path::new(deleted);
    let may_go = [layout::INBOX, layout::RUNS].iter().any(|dir| path.starts_with(dir));
    if may_go && path.components().count() == 3 {
        let _ = agent.join(path).parent().remove_dir();
    }
}

/// Adds lines to a file at their offset, unless the file has them. If a git merge has put other
/// lines there, these stay, and the missing lines are added after them.
fn add_lines(cap: &CapPath, append: &Append) -> Result<()> {
    let (file, length) = files::open_or_create(cap)?;
    let beyond = usize::try_from(length.saturating_sub(append.offset)).unwrap_or(usize::MAX);
    let mut there = vec![0; append.content.len().min(beyond)];
    file.read_exact_at(&mut there, append.offset).context("read", cap)?;
    if length >= append.offset && is_free(&there, append.content.as_bytes()) {
        if there != append.content.as_bytes() {
            file.write_all_at(append.content.as_bytes(), append.offset).context("append to", cap)?;
        }
        return Ok(());
    }
    let whole = cap.read(files::MAX_LINES)?.unwrap_or_default();
    let missing = lacking(&whole, append.content.as_bytes());
    file.write_all_at(&missing, whole.len() as u64).context("append to", cap)
}

/// Applies an append to file content in memory.
pub fn add_to(bytes: &mut Vec<u8>, append: &Append) {
    let content = append.content.as_bytes();
    let offset = usize::try_from(append.offset).unwrap_or(usize::MAX);
    match bytes.get_mut(offset..) {
        Some(there) if is_free(there, content) => {
            let end = bytes.len().max(offset + content.len());
            bytes.resize(end, 0);
            bytes[offset..offset + content.len()].copy_from_slice(content);
        }
        Some(_) | None => {
            let missing = lacking(bytes, content);
            bytes.extend_from_slice(&missing);
        }
    }
}

/// True if `content` can be written over `there`, because each byte there is equal or zero: after a
/// power cut, unsynced bytes of an append may be missing or zeros.
fn is_free(there: &[u8], content: &[u8]) -> bool {
    there.iter().zip(content).all(|(there, new)| there == new || *there == 0)
}

/// Returns the lines of `content` that a file lacks, to be added at its end.
fn lacking(whole: &[u8], content: &[u8]) -> Vec<u8> {
    let known: HashSet<&[u8]> = whole.split(|byte| *byte == b'\n').collect();
    let mut missing = Vec::new();
    if whole.last().is_some_and(|last| *last != b'\n') {
        missing.push(b'\n');
    }
    for line in content.split(|byte| *byte == b'\n').filter(|line| !line.is_empty() && !known.contains(line))
    {
        missing.extend_from_slice(line);
        missing.push(b'\n');
    }
    missing
}

/// Error for a file that a transaction would make larger than any reader accepts.
pub fn too_large(cap: &CapPath, bytes: usize, most: u64) -> Error {
    Error::refused(
        "transaction_too_large",
        format!("{} would have {bytes} bytes, and no reader takes more than {most}", cap.display()),
    )
    .with_hint("nothing was changed; put the large parts into files of their own")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn append(offset: u64, content: &str) -> Append {
        Append { path: "ledger/2026-07.jsonl".to_owned(), offset, content: content.to_owned() }
    }

    #[test]
    fn adding_lines_twice_adds_them_once_and_keeps_other_lines() {
        let rows: [(&str, u64, &str, &str); 9] = [
            ("", 0, "one\n", "one\n"),
            ("zero\n", 5, "one\n", "zero\none\n"),
            ("zero\none\n", 5, "one\n", "zero\none\n"),
            ("zero\non", 5, "one\n", "zero\none\n"),
            ("zero\n\0\0\0\0", 5, "one\n", "zero\none\n"),
            ("zero\n\0\0\0\0two\n", 5, "one\n", "zero\none\ntwo\n"),
            // In these rows, another program has changed the file before the append.
            ("zero\nsix\n", 5, "one\n", "zero\nsix\none\n"),
            ("zero\nsix\none\n", 5, "one\n", "zero\nsix\none\n"),
            ("no", 5, "one\n", "no\none\n"),
        ];
        for (before, offset, content, after) in rows {
            let mut bytes = before.as_bytes().to_vec();
            add_to(&mut bytes, &append(offset, content));
            assert_eq!(String::from_utf8_lossy(&bytes), after, "{before:?}");
            let dir = tempfile::tempdir().unwrap();
            let cap = crate::cap_fs::at(dir.path()).join("lines");
            std::fs::write(&*cap, before).unwrap();
            for _ in 0..2 {
                add_lines(&cap, &append(offset, content)).unwrap();
                assert_eq!(std::fs::read_to_string(&*cap).unwrap(), after, "{before:?}");
            }
        }
    }

    #[test]
    fn the_last_of_several_changes_to_a_file_wins() {
        let write = |path: &str, content: &str| Write { path: path.to_owned(), content: content.to_owned() };
        let first = [write("work/a", "1"), write("work/b", "1"), write("state.json", "1")];
        let second = [write("work/c", "2"), write("work/a", "2"), write("state.json", "2")];
        let gone = ["work/b".to_owned(), "work/c".to_owned()];
        let early = ["work/c".to_owned()];
        let both = Changes::default().and(&first, &[], &early).and(&second, &[], &gone);
        let left: Vec<(&str, &str)> =
            both.writes.iter().map(|write| (&*write.path, &*write.content)).collect();
        assert_eq!(left, [("work/a", "2"), ("state.json", "2")]);
        assert_eq!(both.deletes, ["work/b", "work/c"]);
    }
}
