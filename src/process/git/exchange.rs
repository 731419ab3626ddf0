//! Sync of a clone with its remote: fetch, push, trees of commits, and checking out a commit. No
//! function of this file resets anything in the work tree.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Seek};
use std::path::{Path, PathBuf};

use super::index::ScratchIndex;
use super::{GitCall, GitResult, Repository, SEE_STATUS, hint_about, paper, refuse};
use crate::error::{Error, IoContext, Result};
use crate::model::tree::{Blob, Tree};

/// Remote branch with which a clone syncs.
#[derive(Debug, Clone)]
pub struct RemoteBranch {
    pub remote: String,
    /// Name of the branch at the remote.
    pub branch: String,
    /// Path of the state directory in the repository: empty, or ending with `/`.
    pub prefix: String,
    pub git_dir: PathBuf,
    pub(super) index: PathBuf,
    /// Ref with the last known commit of the remote branch.
    pub known: String,
    /// Id of no object: as many zeros as an object id of this repository has digits.
    no_object: String,
    ssh: Option<&'static str>,
}

/// Path with different contents in two commits.
#[derive(Debug, Clone)]
pub struct PathChange {
    /// Path in the repository.
    pub path: String,
    pub before: Option<Blob>,
    pub after: Option<Blob>,
}

/// Ref of the commit whose files a sync has begun to apply in this work tree.
const APPLIED: &str = "refs/worktree/dormouse-applied";
const ADD_HINT: &str = "make it with `git remote add`, or name another one";

impl Repository<'_> {
    /// Returns the branch with which this clone syncs, at the named remote, else the remote of the
    /// checked-out branch, else `origin`, else the only remote.
    pub fn line(&self, remote: Option<&str>) -> Result<RemoteBranch> {
        let Some(here) = self.optional(&["symbolic-ref", "--quiet", "--short", "HEAD"])? else {
            let message = "HEAD is detached: no branch is checked out that could be synced".to_owned();
            return Err(refuse(message, "check one out with `git switch BRANCH`"));
        };
        let sync_settings = r"^(remote|branch)\.|^core\.(sshcommand|autocrlf)$";
        let result = self.optional(&["config", "-z", "--get-regexp", sync_settings])?.unwrap_or_default();
        let settings: BTreeMap<&str, &str> =
            result.split('\0').filter_map(|setting| setting.split_once('\n')).collect();
        self.refuse_other_bytes(settings.get("core.autocrlf").copied())?;
        let remote_names = settings.keys().filter_map(|key| key.strip_prefix("remote.")?.rsplit_once('.'));
        let mut remotes: Vec<&str> = remote_names.map(|(name, _)| name).collect();
        remotes.dedup();
        let setting =
            |name: &str| settings.get(&*format!("branch.{here}.{name}")).map(|value| (*value).to_owned());
        let own = setting("remote").filter(|name| remotes.contains(&name.as_str()));
        let named = match (remote, &own, remotes.as_slice()) {
            (Some(name), _, _) if !remotes.contains(&name) => {
                return Err(refuse(format!("there is no remote `{name}`"), ADD_HINT));
            }
            (Some(name), _, _) => name.to_owned(),
            (None, Some(own), _) => own.clone(),
            (None, None, found) if found.contains(&"origin") => "origin".to_owned(),
            (None, None, [only]) => (*only).to_owned(),
            (None, None, []) => return Err(refuse("the repository has no remote".to_owned(), ADD_HINT)),
            (None, None, _) => {
                let message = format!("which remote: {}?", remotes.join(", "));
                return Err(refuse(message, "name one of them"));
            }
        };
        let there = setting("merge").filter(|_| own.as_ref() == Some(&named));
        let branch = there.and_then(|name| name.strip_prefix("refs/heads/").map(str::to_owned));
        let branch = branch.unwrap_or(here);
        let args = ["--show-prefix", "--absolute-git-dir", "--git-path", "index", "--show-object-format"];
        let args = [&["rev-parse"], &args[..]].concat();
        let result = self.ask(&args, SEE_STATUS)?;
        let mut lines = result.split('\n');
        let prefix = lines.next().unwrap_or_default().to_owned();
        let mut place = || self.state_dir.join(lines.next().unwrap_or_default());
        let (git_dir, index) = (place(), place());
        let no_object = "0".repeat(if lines.next() == Some("sha256") { 64 } else { 40 });
        // ssh must not ask for a passphrase, because no person may be present. A user's own ssh
        // command is left unchanged, and may ask.
        let has_ssh = ["GIT_SSH_COMMAND", "GIT_SSH"].iter().any(|name| std::env::var_os(name).is_some())
            || settings.contains_key("core.sshcommand");
        let ssh = (!has_ssh).then_some("ssh -o BatchMode=yes");
        let known = format!("refs/dormouse/{named}/{branch}");
        Ok(RemoteBranch { remote: named, branch, prefix, git_dir, index, known, no_object, ssh })
    }

    /// Error when git converts line ends in this clone, because files can then not be compared with
    /// committed files.
    fn refuse_other_bytes(&self, autocrlf: Option<&str>) -> Result<()> {
        if autocrlf.is_none_or(|setting| setting == "false") {
            return Ok(());
        }
        let result = self.ask(&["check-attr", "text", "--", "dormouse.toml"], SEE_STATUS)?;
        if result.trim_end().ends_with(": unset") {
            return Ok(());
        }
        let message = format!(
            "core.autocrlf is set in this clone, and nothing keeps git from changing the ends of lines in {}",
            self.state_dir.display()
        );
        Err(refuse(
            message,
            "`git config core.autocrlf false` and check its files out again, or `dormouse doctor --repair` if they are right",
        ))
    }

    /// Records that the files of a commit are being applied to the state directory.
    pub fn record_applied(&self, commit: &str) -> Result<()> {
        self.ask(&["update-ref", APPLIED, commit], SEE_STATUS).map(drop)
    }

    /// Returns the commit that a killed sync has begun to apply: the recorded commit, if `head`
    /// doesn't contain it.
    pub fn incomplete_merge(&self, head: &str) -> Result<Option<String>> {
        let Some(applied) = self.commit_of(APPLIED)? else { return Ok(None) };
        let base = self.base(head, &applied)?;
        Ok(Some(applied).filter(|applied| base.as_ref() != Some(applied)))
    }

    /// Returns the commit to which a name, such as `HEAD`, refers; `None` if none exists.
    pub fn commit_of(&self, name: &str) -> Result<Option<String>> {
        self.optional(&["rev-parse", "--quiet", "--verify", &format!("{name}^{{commit}}")])
    }

    /// Returns git's answer; `None` if no such object exists. Other failures of git are errors.
    fn optional(&self, args: &[&str]) -> Result<Option<String>> {
        let result = self.run(args)?;
        if result.status.code() == Some(1) {
            return Ok(None);
        }
        Ok(Some(self.checked(result, SEE_STATUS)?.text().trim_end().to_owned()))
    }

    /// Fetches the branch. Returns its commit; `None` if the remote does not have the branch.
    pub fn fetch(&self, line: &RemoteBranch) -> Result<Option<String>> {
        let refspec = format!("+refs/heads/{}:{}", line.branch, line.known);
        let args = [
            "fetch",
            "--quiet",
            "--no-tags",
            "--no-recurse-submodules",
            "--no-auto-maintenance",
            "--no-write-fetch-head",
            &line.remote,
            &refspec,
        ];
        let result = self.call(&args, &GitCall { ssh: line.ssh, ..GitCall::default() })?;
        if result.is_success() {
            return self.commit_of(&line.known);
        }
        if result.stderr.contains("couldn't find remote ref") {
            return Ok(None);
        }
        Err(self.unreachable("fetch from", line, &result))
    }

    /// Pushes a commit to the branch. Returns false if another clone has pushed first.
    pub fn push(&self, line: &RemoteBranch, commit: &str) -> Result<bool> {
        let refspec = format!("{commit}:refs/heads/{}", line.branch);
        let args = ["push", "--porcelain", "--no-recurse-submodules", &line.remote, &refspec];
        let result = self.call(&args, &GitCall { ssh: line.ssh, ..GitCall::default() })?;
        if result.is_success() {
            self.ask(&["update-ref", &line.known, commit], "see why git can't write its refs")?;
            return Ok(true);
        }
        const OVERTAKEN: &[&str] = &[
            "(fetch first)",
            "(non-fast-forward)",
            "cannot lock ref",
            "incorrect old value",
            "failed to update ref",
            "reference already exists",
        ];
        if OVERTAKEN.iter().any(|phrase| result.text().contains(phrase)) {
            return Ok(false);
        }
        Err(self.unreachable("push to", line, &result))
    }

    fn unreachable(&self, what: &str, line: &RemoteBranch, result: &GitResult) -> Error {
        let text = result.text();
        let reason = text.lines().find_map(|line| line.strip_prefix("!\t")).unwrap_or(result.reason());
        let first = reason.replace('\t', " ");
        let message = format!("can't {what} {}, branch {}: {first}", line.remote, line.branch);
        let hint = "only commits were made here; try again when the remote answers";
        refuse(message, hint_about(&first, hint))
    }

    /// Returns the files of the state directory in a commit.
    pub fn tree(&self, line: &RemoteBranch, commit: &str) -> Result<Tree> {
        let mut args = vec!["ls-tree", "-r", "-z", "--full-tree", commit, "--"];
        // git refuses an empty path; without a path it lists the whole repository.
        args.extend(Some(line.prefix.as_str()).filter(|prefix| !prefix.is_empty()));
        let result = self.must(&args, &GitCall::default())?;
        let mut tree = Tree::new();
        for entry in result.stdout.split(|byte| *byte == 0).filter(|entry| !entry.is_empty()) {
            let Ok(entry) = std::str::from_utf8(entry) else {
                let found = String::from_utf8_lossy(entry).into_owned();
                return Err(Error::damaged(found, "no file of a state directory has such a name"));
            };
            let Some((head, path)) = entry.split_once('\t') else { continue };
            let mut fields = head.split(' ');
            let (mode, id) = (fields.next().unwrap_or_default(), fields.nth(1).unwrap_or_default());
            if let Some(path) = path.strip_prefix(&line.prefix) {
                tree.insert(path.to_owned(), Blob { mode: mode.to_owned(), id: id.to_owned() });
            }
        }
        Ok(tree)
    }

    /// Returns the contents of these objects in order. The iterator reads one object at a time,
    /// because all together may be large.
    pub fn contents(&self, ids: &[&str]) -> Result<impl Iterator<Item = Result<Vec<u8>>> + use<>> {
        let mut answer = paper()?;
        if !ids.is_empty() {
            let asked = ids.iter().map(|id| format!("{id}\n")).collect::<String>();
            let call = GitCall { stdin: Some(asked.as_bytes()), ..GitCall::default() };
            let result;
            (result, answer) = self.answer(&["cat-file", "--batch"], &call)?;
            self.checked(result, SEE_STATUS)?;
            answer.rewind().context("read", Path::new("what git said"))?;
        }
        let mut answer = BufReader::new(answer);
        let damaged =
            |_| refuse("git does not give the contents of its objects".to_owned(), "see `git fsck`");
        Ok((0..ids.len()).map(move |_| object(&mut answer).map_err(damaged)))
    }

    /// Returns the content of a file of the state directory in a commit; `None` without the file.
    pub fn content_at(&self, line: &RemoteBranch, commit: &str, path: &str) -> Result<Option<Vec<u8>>> {
        let result = self.run(&["cat-file", "blob", &format!("{commit}:{}{path}", line.prefix)])?;
        const NOT_THERE: &[&str] = &[" does not exist in ", " exists on disk, but not in "];
        if !result.is_success() && NOT_THERE.iter().any(|phrase| result.stderr.contains(phrase)) {
            return Ok(None);
        }
        Ok(Some(self.checked(result, SEE_STATUS)?.stdout))
    }

    /// Stores bytes as a git object.
    pub fn keep(&self, bytes: &[u8]) -> Result<Blob> {
        let args = ["hash-object", "-w", "--no-filters", "--stdin"];
        let result = self.must(&args, &GitCall { stdin: Some(bytes), ..GitCall::default() })?;
        Ok(Blob { mode: "100644".to_owned(), id: result.text().trim_end().to_owned() })
    }

    /// Returns the merge base of two commits; `None` if they have no common ancestor.
    pub fn base(&self, ours: &str, theirs: &str) -> Result<Option<String>> {
        self.optional(&["merge-base", ours, theirs])
    }

    /// Merges two commits by git, without a work tree. Record files that both commits have changed
    /// are conflicts, because the caller merges records. Returns the id of the merged tree, with
    /// git's conflict marks in conflicting files, and the paths of these files in the repository.
    pub fn merge(&self, ours: &str, theirs: &str) -> Result<(String, Vec<String>)> {
        // git names conflicting paths from its working directory: here the top of the repository.
        let up = self.ask(&["rev-parse", "--show-cdup"], SEE_STATUS)?;
        let up = Some(up.trim_end()).filter(|up| !up.is_empty()).unwrap_or(".");
        let settings = ["-C", up, "-c", "merge.dormouse.driver=false", "-c", "merge.directoryRenames=false"];
        let args = ["merge-tree", "--write-tree", "--name-only", "--no-messages", "-z", ours, theirs];
        let mut result = self.run(&[&settings[..], &args].concat())?;
        // Exit status 1: some paths are in conflict.
        if result.status.code() != Some(1) {
            result = self.checked(result, SEE_STATUS)?;
        }
        let text = result.text();
        let mut fields = text.split('\0').filter(|word| !word.is_empty());
        let tree = fields.next().unwrap_or_default().trim_end().to_owned();
        Ok((tree, fields.map(str::to_owned).collect()))
    }

    /// Writes a tree like `tree` but with `changes`, which are paths in the state directory.
    /// Returns the id of the new tree.
    pub fn write_tree(
        &self,
        line: &RemoteBranch,
        tree: &str,
        changes: &BTreeMap<String, Option<Blob>>,
    ) -> Result<String> {
        let own = ScratchIndex::empty(line);
        self.must(&["read-tree", tree], &own.call())?;
        let changes = changes.iter().map(|(path, blob)| (format!("{}{path}", line.prefix), blob.as_ref()));
        self.update_index(line, own.call(), changes)?;
        Ok(self.must(&["write-tree"], &own.call())?.text().trim_end().to_owned())
    }

    /// Creates a commit of a tree. Returns the commit's id.
    pub fn commit_tree(&self, tree: &str, parents: &[&str], subject: &str) -> Result<String> {
        let mut args = vec!["commit-tree", tree, "-m", subject];
        for parent in parents {
            args.extend(["-p", parent]);
        }
        Ok(self.ask(&args, SEE_STATUS)?.trim_end().to_owned())
    }

    /// Sets entries of an index; removes the entry of a path without a `Blob`. Paths begin at the
    /// top of the repository.
    pub(super) fn update_index<'b>(
        &self,
        line: &RemoteBranch,
        call: GitCall<'_>,
        changes: impl Iterator<Item = (String, Option<&'b Blob>)>,
    ) -> Result<()> {
        let entry = |(path, blob): (String, Option<&Blob>)| {
            let (mode, id) = blob.map_or(("0", &line.no_object), |blob| (&blob.mode, &blob.id));
            format!("{mode} {id}\t{path}\0")
        };
        let lines = changes.map(entry).collect::<String>();
        let call = GitCall { stdin: Some(lines.as_bytes()), ..call };
        self.must(&["update-index", "-z", "--index-info"], &call).map(drop)
    }

    /// Returns the paths that differ between two commits, in the whole repository.
    pub fn differences(&self, before: Option<&str>, after: &str) -> Result<Vec<PathChange>> {
        let empty = ["hash-object", "-t", "tree", "--stdin"];
        let before = match before {
            Some(before) => before.to_owned(),
            None => self.ask(&empty, SEE_STATUS)?.trim_end().to_owned(),
        };
        let args = ["diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev", "--no-commit-id"];
        let args = [&args[..], &[&before, after]].concat();
        Ok(raw_changes(&self.ask(&args, SEE_STATUS)?))
    }
}

impl PathChange {
    /// Returns the path and its new content as an index entry.
    pub(super) fn entry(&self) -> (String, Option<&Blob>) {
        (self.path.clone(), self.after.as_ref())
    }
}

impl RemoteBranch {
    /// True if a path of the repository is in the state directory.
    pub fn is_inside(&self, path: &str) -> bool {
        path.starts_with(&self.prefix)
    }
}

/// Parses git's output of `--raw -z`.
pub(super) fn raw_changes(text: &str) -> Vec<PathChange> {
    let mut found = Vec::new();
    let mut fields = text.split('\0');
    while let (Some(head), Some(path)) = (fields.next().filter(|head| !head.is_empty()), fields.next()) {
        let parts: Vec<&str> = head.trim_start_matches(':').split(' ').collect();
        let [mode, new_mode, id, new_id, ..] = parts.as_slice() else { continue };
        let blob = |mode: &str, id: &str| {
            (mode != "000000").then(|| Blob { mode: mode.to_owned(), id: id.to_owned() })
        };
        found.push(PathChange {
            path: path.to_owned(),
            before: blob(mode, id),
            after: blob(new_mode, new_id),
        });
    }
    found
}

/// Reads an object in the format of `git cat-file --batch`: a header line that ends with the
/// length, the content, and a line end.
fn object(answer: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut head = String::new();
    answer.read_line(&mut head)?;
    let length = head.trim_end().rsplit(' ').next().and_then(|word| word.parse().ok());
    let mut bytes = vec![0; length.ok_or(io::ErrorKind::InvalidData)?];
    answer.read_exact(&mut bytes)?;
    answer.read_exact(&mut [0])?;
    Ok(bytes)
}
