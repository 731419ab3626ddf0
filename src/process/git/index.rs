//! Work tree and index of a clone: committing them, and checking out another commit. The index
//! changes only for the state directory and for files that are checked out already, and nothing in
//! the work tree is reset.

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::exchange::{PathChange, RemoteBranch, raw_changes};
use super::lock::IndexLock;
use super::{BESIDE_OTHERS, GitCall, GitResult, PAUSE, Repository, hint_about, refuse};
use crate::error::{Error, IoContext, Result};
use crate::model::tree::Blob;

impl Repository<'_> {
    /// Commits the files of the state directory on top of the checked-out commit, and returns the
    /// new one. `each` is called with a function that adds one directory or file, so that the
    /// caller can hold a lock meanwhile. The index and the work tree elsewhere are not changed.
    pub fn snapshot(
        &self,
        line: &RemoteBranch,
        (subject, body): (&str, &str),
        mut take_up: impl FnMut(&dyn Fn(&[&str]) -> Result<()>, &[String]) -> Result<()>,
    ) -> Result<Option<String>> {
        let start = std::time::Instant::now();
        loop {
            match self.try_snapshot(line, (subject, body), &mut take_up) {
                // Processes of a killed sync may run for a moment.
                Err(Error::Failed { message, .. })
                    if BESIDE_OTHERS.iter().any(|other| message.contains(other))
                        && start.elapsed() < self.patience =>
                {
                    std::thread::sleep(PAUSE);
                }
                tried => return tried,
            }
        }
    }

    fn try_snapshot(
        &self,
        line: &RemoteBranch,
        (subject, body): (&str, &str),
        take_up: &mut impl FnMut(&dyn Fn(&[&str]) -> Result<()>, &[String]) -> Result<()>,
    ) -> Result<Option<String>> {
        let head = self.head()?;
        let own = OwnIndex::copy(line)?;
        let index = own.call();
        let touched = self.touched(line, &index)?;
        if touched.is_empty() && head.is_some() {
            return Ok(head);
        }
        // Files staged outside the state directory are not part of this commit.
        let tree = head.as_deref().unwrap_or("--empty");
        let words: &[&str] =
            if head.is_some() { &["read-tree", "--reset", tree] } else { &["read-tree", tree] };
        self.done(&self.call(words, &index)?)?;
        take_up(
            &|paths| {
                let words = ["add", "--all", "--ignore-errors", "--"];
                let said = self.call(&[&words[..], paths].concat(), &index)?;
                // A file that another user has put into a shared inbox and its owner can't read is
                // left out.
                if said.stderr.contains("Permission denied") { Ok(()) } else { self.done(&said) }
            },
            &touched,
        )?;
        let words = ["diff-index", "--cached", "--quiet", tree];
        if let Some(head) = &head
            && self.call(&words, &index)?.is_success()
        {
            self.align_index(line, head)?;
            return Ok(Some(head.clone()));
        }
        let mut words = vec!["commit", "--quiet", "--message", subject];
        if !body.is_empty() {
            words.extend(["--message", body]);
        }
        let said = self.call(&words, &index)?;
        let first = said.stderr.lines().find(|line| !line.trim().is_empty());
        if let Some(first) =
            first.filter(|_| !said.is_success() && (self.settings.hooks || self.settings.sign))
        {
            let message = format!("git commit in {}: {first}", self.state_dir.display());
            let hint = "the repository's hooks and signing run because [git] in dormouse.toml says so: see why they refuse";
            return Err(refuse(message, hint_about(first, hint)));
        }
        self.done(&said)?;
        let now = self.head()?;
        if let Some(now) = &now {
            self.align_index(line, now)?;
        }
        Ok(now)
    }

    /// Sets the clone's index to the committed state directory, even if a sync was killed in
    /// between. A person's next commit would otherwise revert the sync.
    fn align_index(&self, line: &RemoteBranch, commit: &str) -> Result<()> {
        let words =
            ["diff-index", "--cached", "-z", "--raw", "--no-renames", "--no-abbrev", commit, "--", "."];
        let said = self.run(&words)?;
        self.done(&said)?;
        let mut changes = raw_changes(&said.stdout);
        changes.iter_mut().for_each(|change| change.after = change.before.take());
        if changes.is_empty() { Ok(()) } else { self.set_index(line, &changes) }
    }

    /// Returns the paths in the state directory whose work tree differs from an index, or whose
    /// index differs from the checked-out commit, without ignored files.
    fn touched(&self, line: &RemoteBranch, index: &GitCall<'_>) -> Result<Vec<String>> {
        let words = ["status", "--porcelain", "-z", "--untracked-files=all", "--no-renames", "--", "."];
        let said = self.call(&words, index)?;
        self.done(&said)?;
        let paths = said.stdout.split('\0').filter_map(|entry| entry.get(3..)?.strip_prefix(&line.prefix));
        Ok(paths.map(str::to_owned).collect())
    }

    /// Error when uncommitted changes outside the state directory block a commit. Changes no file.
    pub fn check_out_dry(
        &self,
        line: &RemoteBranch,
        changes: &[PathChange],
        from: &str,
        to: &str,
    ) -> Result<()> {
        let said = self.would_check_out(line, changes, from, to)?;
        if said.is_success() {
            return Ok(());
        }
        let there = self.there_already(line, changes, from, to)?;
        if there.is_empty() {
            return self.not_in_the_way(&said);
        }
        self.set_index(line, &there)?;
        self.not_in_the_way(&self.would_check_out(line, changes, from, to)?)
    }

    /// Returns files outside the state directory that already have the content of the commit but
    /// not its index entry, because git was killed in between.
    fn there_already(
        &self,
        line: &RemoteBranch,
        changes: &[PathChange],
        from: &str,
        to: &str,
    ) -> Result<Vec<PathChange>> {
        let own = OwnIndex::copy(line)?;
        let index = own.call();
        let names = |words: &[&str]| -> Result<BTreeSet<String>> {
            let said = self.call(words, &index)?;
            self.done(&said)?;
            Ok(said.stdout.split('\0').map(str::to_owned).collect())
        };
        let staged = names(&["diff-index", "--cached", "-z", "--name-only", "--no-renames", from])?;
        names(&["read-tree", to])?;
        let _ = self.call(&["update-index", "-q", "--refresh"], &index)?;
        let different = names(&["diff-files", "-z", "--name-only"])?;
        let is_there = |change: &&PathChange| {
            let is_outside = change.after.is_some() && !line.is_inside(&change.path);
            is_outside && !staged.contains(&change.path) && !different.contains(&change.path)
        };
        Ok(changes.iter().filter(is_there).cloned().collect())
    }

    fn would_check_out(
        &self,
        line: &RemoteBranch,
        changes: &[PathChange],
        from: &str,
        to: &str,
    ) -> Result<GitResult> {
        let own = OwnIndex::copy(line)?;
        let inside = index_lines(own_changes(line, changes));
        let call = GitCall { stdin: Some(&inside), ..own.call() };
        self.done(&self.call(&["update-index", "-z", "--index-info"], &call)?)?;
        let index = own.call();
        let _ = self.call(&["update-index", "-q", "--refresh"], &index)?;
        self.call(&["read-tree", "-m", "-u", "-n", from, to], &index)
    }

    /// Checks out a commit. The files of the state directory are already in place; git updates all
    /// others, or fails before it has changed one. Returns false if another commit was made
    /// meanwhile.
    pub fn check_out(
        &self,
        line: &RemoteBranch,
        changes: &[PathChange],
        from: &str,
        to: &str,
    ) -> Result<bool> {
        let inside: Vec<PathChange> =
            changes.iter().filter(|change| line.is_inside(&change.path)).cloned().collect();
        self.set_index(line, &inside)?;
        if inside.len() < changes.len() {
            let _ = self.run(&["update-index", "-q", "--refresh"])?;
            self.not_in_the_way(&self.run(&["read-tree", "-m", "-u", from, to])?)?;
        }
        let said = self.run(&["update-ref", "-m", "dormouse: exchanged", "HEAD", to, from])?;
        if !said.is_success() && self.head()?.as_deref() != Some(from) {
            return Ok(false);
        }
        self.done(&said)?;
        Ok(true)
    }

    fn not_in_the_way(&self, said: &GitResult) -> Result<()> {
        if said.is_success() {
            return Ok(());
        }
        let first = said.stderr.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
        Err(Error::refused(
            "uncommitted_changes",
            format!("what is not committed here is in the way: {}", first.trim_start_matches("error: ")),
        )
        .with_hint("commit or move it, then do this again; nothing has changed"))
    }

    /// Sets entries of the clone's index: in a copy that replaces it, so that no killed git leaves
    /// the lock.
    fn set_index(&self, line: &RemoteBranch, changes: &[PathChange]) -> Result<()> {
        let lines = index_lines(changes.iter().map(|change| (change.path.clone(), change.after.as_ref())));
        let aside = OwnIndex::path(line, ".lock");
        let _lock = IndexLock::take(&line.index, &aside, self.patience)?;
        let own = OwnIndex::copy(line)?;
        let call = GitCall { stdin: Some(&lines), ..own.call() };
        self.done(&self.call(&["update-index", "-z", "--index-info"], &call)?)?;
        std::fs::rename(&own.path, &line.index).context("rename to", &line.index)
    }
}

/// An index beside the clone's own, removed when dropped. Each process has its own, because
/// processes of a killed sync may still write to theirs.
pub(super) struct OwnIndex {
    path: PathBuf,
}

impl OwnIndex {
    const NAME: &'static str = "dormouse-index.";

    fn path(line: &RemoteBranch, ending: &str) -> PathBuf {
        line.git_dir.join(format!("{}{}{ending}", OwnIndex::NAME, std::process::id()))
    }

    pub(super) fn empty(line: &RemoteBranch) -> OwnIndex {
        let path = OwnIndex::path(line, "");
        let _ = std::fs::remove_file(&path);
        OwnIndex { path }
    }

    /// Copies the clone's index, which knows the files that have not changed since it was written.
    fn copy(line: &RemoteBranch) -> Result<OwnIndex> {
        for entry in std::fs::read_dir(&line.git_dir).context("read directory", &line.git_dir)?.flatten() {
            if entry.file_name().to_string_lossy().starts_with(OwnIndex::NAME) {
                let _ = std::fs::remove_file(entry.path());
            }
        }
        let own = OwnIndex::empty(line);
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

impl Drop for OwnIndex {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn own_changes<'a>(
    line: &'a RemoteBranch,
    changes: &'a [PathChange],
) -> impl Iterator<Item = (String, Option<&'a Blob>)> {
    let inside = changes.iter().filter(|change| line.is_inside(&change.path));
    inside.map(|change| (change.path.clone(), change.after.as_ref()))
}

/// Returns the input of `git update-index -z --index-info`.
pub(super) fn index_lines<'a>(changes: impl Iterator<Item = (String, Option<&'a Blob>)>) -> Vec<u8> {
    let line = |(path, blob): (String, Option<&Blob>)| match blob {
        Some(blob) => format!("{} {}\t{path}\0", blob.mode, blob.id),
        None => format!("0 0000000000000000000000000000000000000000\t{path}\0"),
    };
    changes.map(line).collect::<String>().into_bytes()
}
