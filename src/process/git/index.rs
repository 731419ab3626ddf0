//! Work tree and index of a clone: committing the state directory, and checking out another commit.
//! Index entries change only for the state directory and for files that are already checked out,
//! and nothing in the work tree is reset.

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::exchange::{PathChange, RemoteBranch, raw_changes};
use super::{GitCall, GitResult, Repository, SEE_STATUS, commit_args, hint_about, refuse};
use crate::error::{Error, IoContext, Result};

impl Repository<'_> {
    /// Commits the files of the state directory. Returns the new commit, or the old one if nothing
    /// has changed. `add` gets a function that stages paths, and the changed paths, so that it can
    /// hold a lock while it stages. Other files and index entries do not change.
    pub fn snapshot(
        &self,
        line: &RemoteBranch,
        (subject, body): (&str, &str),
        mut add: impl FnMut(&dyn Fn(&[&str]) -> Result<()>, &[String]) -> Result<()>,
    ) -> Result<Option<String>> {
        // Git processes of a killed sync may still run and block git for a moment.
        self.retry_while_blocked(|| {
            let head = self.commit_of("HEAD")?;
            let own = ScratchIndex::copy(line)?;
            let index = &own.call();
            let changed = self.changed_paths(line, index)?;
            if changed.is_empty() && head.is_some() {
                return Ok(head);
            }
            // The copied index is reset to this commit: a person may have staged other files.
            let tree = head.as_deref().unwrap_or("--empty");
            let args: &[&str] =
                if head.is_some() { &["read-tree", "--reset", tree] } else { &["read-tree", tree] };
            self.must(args, index)?;
            add(
                &|paths| {
                    let args = ["add", "--all", "--ignore-errors", "--"];
                    let result = self.call(&[&args[..], paths].concat(), index)?;
                    // An unreadable file of another user must not fail the commit.
                    let is_closed = result.stderr.contains("Permission denied");
                    if is_closed { Ok(()) } else { self.checked(result, SEE_STATUS).map(drop) }
                },
                &changed,
            )?;
            let args = ["diff-index", "--cached", "--quiet", tree];
            if let Some(head) = &head
                && self.call(&args, index)?.is_success()
            {
                self.align_index(line, head)?;
                return Ok(Some(head.clone()));
            }
            let result = self.call(&commit_args(subject, body), index)?;
            if !result.is_success() && !result.stderr.trim().is_empty() && self.settings.hooks {
                let message = format!("git commit in {}: {}", self.state_dir.display(), result.reason());
                let hint = "git.hooks in dormouse.toml turns on the repository's hooks: see why they fail";
                return Err(refuse(message, hint_about(result.reason(), hint)));
            }
            self.checked(result, SEE_STATUS)?;
            let now = self.commit_of("HEAD")?;
            if let Some(now) = &now {
                self.align_index(line, now)?;
            }
            Ok(now)
        })
    }

    /// Sets the index entries of the state directory to those of `commit`. After a killed sync,
    /// older entries would make the next commit by a person revert the sync.
    fn align_index(&self, line: &RemoteBranch, commit: &str) -> Result<()> {
        let args =
            ["diff-index", "--cached", "-z", "--raw", "--no-renames", "--no-abbrev", commit, "--", "."];
        let mut changes = raw_changes(&self.ask(&args, SEE_STATUS)?);
        changes.iter_mut().for_each(|change| change.after = change.before.take());
        if changes.is_empty() { Ok(()) } else { self.set_index(line, &changes) }
    }

    /// Returns the paths in the state directory whose file differs from its entry in `index`, or
    /// whose entry differs from the checked-out commit, without ignored files.
    fn changed_paths(&self, line: &RemoteBranch, index: &GitCall<'_>) -> Result<Vec<String>> {
        let args = ["status", "--porcelain", "-z", "--untracked-files=all", "--no-renames", "--", "."];
        let text = self.must(&args, index)?.text();
        let paths = text.split('\0').filter_map(|entry| entry.get(3..)?.strip_prefix(&line.prefix));
        Ok(paths.map(str::to_owned).collect())
    }

    /// Sets entries of the clone's index; removes the entry of a path without new content.
    fn set_index(&self, line: &RemoteBranch, changes: &[PathChange]) -> Result<()> {
        self.retry_while_blocked(|| {
            self.wait_for_index(&line.index)?;
            self.update_index(line, GitCall::default(), changes.iter().map(PathChange::entry))
        })
    }
}

/// Checkout of one commit in place of another.
pub struct Checkout<'c> {
    pub repository: &'c Repository<'c>,
    pub line: &'c RemoteBranch,
    /// Paths that differ between the commits `from` and `to`.
    pub changes: &'c [PathChange],
    pub from: &'c str,
    pub to: &'c str,
}

impl Checkout<'_> {
    /// Error if uncommitted files outside the state directory prevent a checkout. Changes no file.
    pub fn check(&self) -> Result<()> {
        let result = self.dry_run()?;
        if result.is_success() {
            return Ok(());
        }
        let there = self.already_in_work_tree()?;
        if there.is_empty() {
            return check_not_blocked(&result);
        }
        self.repository.set_index(self.line, &there)?;
        check_not_blocked(&self.dry_run()?)
    }

    /// Returns files outside the state directory that have the content of the commit `to` but not
    /// its index entry, because git was killed between the two writes.
    fn already_in_work_tree(&self) -> Result<Vec<PathChange>> {
        let own = ScratchIndex::copy(self.line)?;
        let names = |args: &[&str]| -> Result<BTreeSet<String>> {
            Ok(self.repository.must(args, &own.call())?.text().split('\0').map(str::to_owned).collect())
        };
        let staged = names(&["diff-index", "--cached", "-z", "--name-only", "--no-renames", self.from])?;
        names(&["read-tree", self.to])?;
        let _ = self.repository.call(&["update-index", "-q", "--refresh"], &own.call())?;
        let different = names(&["diff-files", "-z", "--name-only"])?;
        let is_there = |change: &&PathChange| {
            let is_outside = change.after.is_some() && !self.line.is_inside(&change.path);
            is_outside && !staged.contains(&change.path) && !different.contains(&change.path)
        };
        Ok(self.changes.iter().filter(is_there).cloned().collect())
    }

    fn dry_run(&self) -> Result<GitResult> {
        let own = ScratchIndex::copy(self.line)?;
        let inside = self.changes.iter().filter(|change| self.line.is_inside(&change.path));
        self.repository.update_index(self.line, own.call(), inside.map(PathChange::entry))?;
        let index = own.call();
        let _ = self.repository.call(&["update-index", "-q", "--refresh"], &index)?;
        self.repository.call(&["read-tree", "-m", "-u", "-n", self.from, self.to], &index)
    }

    /// Checks out the commit `to`. The files of the state directory are already in place; git
    /// updates all other files, or fails before it changes any. Returns false if another commit was
    /// made meanwhile.
    pub fn run(&self) -> Result<bool> {
        let (repository, from, to) = (self.repository, self.from, self.to);
        let inside = self.changes.iter().filter(|change| self.line.is_inside(&change.path));
        let inside: Vec<PathChange> = inside.cloned().collect();
        repository.set_index(self.line, &inside)?;
        if inside.len() < self.changes.len() {
            let _ = repository.run(&["update-index", "-q", "--refresh"])?;
            check_not_blocked(&repository.run(&["read-tree", "-m", "-u", from, to])?)?;
        }
        let result = repository.run(&["update-ref", "-m", "dormouse: synced", "HEAD", to, from])?;
        if !result.is_success() && repository.commit_of("HEAD")?.as_deref() != Some(from) {
            return Ok(false);
        }
        repository.checked(result, SEE_STATUS)?;
        Ok(true)
    }
}

fn check_not_blocked(result: &GitResult) -> Result<()> {
    if result.is_success() {
        return Ok(());
    }
    let message = format!("uncommitted changes prevent the merge: {}", result.reason());
    Err(Error::refused("uncommitted_changes", message)
        .with_hint("commit or move it, then do this again; nothing has changed"))
}

/// Temporary copy of the clone's index, removed when dropped. Each process has its own copy,
/// because processes of a killed sync may still write to their copies.
pub(super) struct ScratchIndex {
    path: PathBuf,
}

impl ScratchIndex {
    const NAME: &'static str = "dormouse-index.";

    pub(super) fn empty(line: &RemoteBranch) -> ScratchIndex {
        let path = line.git_dir.join(format!("{}{}", ScratchIndex::NAME, std::process::id()));
        let _ = std::fs::remove_file(&path);
        ScratchIndex { path }
    }

    /// Copies the clone's index, whose file times let git skip unchanged files.
    fn copy(line: &RemoteBranch) -> Result<ScratchIndex> {
        for entry in std::fs::read_dir(&line.git_dir).context("read directory", &line.git_dir)?.flatten() {
            if entry.file_name().to_string_lossy().starts_with(ScratchIndex::NAME) {
                let _ = std::fs::remove_file(entry.path());
            }
        }
        let own = ScratchIndex::empty(line);
        match std::fs::copy(&line.index, &own.path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            copied => drop(copied.context("copy", &line.index)?),
        }
        Ok(own)
    }

    pub(super) fn call(&self) -> GitCall<'_> {
        GitCall { index: Some(&self.path), ..GitCall::default() }
    }
}

impl Drop for ScratchIndex {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}
