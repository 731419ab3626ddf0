//! Sync of a clone with its remote: fetch, push, trees of commits, and checking out a commit. No
//! call here resets anything in the work tree.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek};
use std::path::{Path, PathBuf};

use super::index::{OwnIndex, index_lines};
use super::{GitCall, GitResult, Repository, hint_about, paper, refuse};
use crate::error::{Error, IoContext, Result};
use crate::model::tree::{Blob, Tree};

/// The remote branch with which a clone syncs.
#[derive(Debug, Clone)]
pub struct RemoteBranch {
    pub remote: String,
    /// Branch of the remote.
    pub branch: String,
    /// Path of the state directory in the repository: empty, or with `/` at its end.
    pub prefix: String,
    pub git_dir: PathBuf,
    pub(super) index: PathBuf,
    /// Ref with the last known commit of that branch.
    known: String,
    ssh: Option<&'static str>,
}

/// Result of a push.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pushed {
    Accepted,
    /// Another clone has pushed first.
    Overtaken,
}

/// Merge of two commits by git.
pub struct Merge {
    /// Id of the whole tree, with git's marks in conflicting files.
    pub tree: String,
    /// Paths in the repository that git could not merge.
    pub conflicts: Vec<String>,
}

/// A path with different contents in two commits.
#[derive(Debug, Clone)]
pub struct PathChange {
    /// Path in the repository.
    pub path: String,
    pub before: Option<Blob>,
    pub after: Option<Blob>,
}

const MAKE_ONE: &str = "make it with `git remote add`, or name another one";

impl Repository<'_> {
    /// Returns the branch with which this clone syncs: that of the named remote, else of the
    /// branch's, else of `origin`, else of the only one.
    pub fn line(&self, remote: Option<&str>) -> Result<RemoteBranch> {
        let Some(here) = self.one_if_any(&["symbolic-ref", "--quiet", "--short", "HEAD"])? else {
            let message =
                "HEAD is detached: no branch is checked out, so there is none to exchange".to_owned();
            return Err(refuse(message, "check one out with `git switch BRANCH`"));
        };
        let of_exchange = r"^(remote|branch)\.|^core\.(sshcommand|autocrlf)$";
        let said = self.one_if_any(&["config", "-z", "--get-regexp", of_exchange])?.unwrap_or_default();
        let settings: BTreeMap<&str, &str> =
            said.split('\0').filter_map(|setting| setting.split_once('\n')).collect();
        self.refuse_other_bytes(settings.get("core.autocrlf").copied())?;
        let of_remotes = settings.keys().filter_map(|key| key.strip_prefix("remote.")?.rsplit_once('.'));
        let mut remotes: Vec<&str> = of_remotes.map(|(name, _)| name).collect();
        remotes.dedup();
        let setting =
            |name: &str| settings.get(&*format!("branch.{here}.{name}")).map(|value| (*value).to_owned());
        let own = setting("remote").filter(|name| remotes.contains(&name.as_str()));
        let named = match (remote, &own, remotes.as_slice()) {
            (Some(name), _, _) if !remotes.contains(&name) => {
                return Err(refuse(format!("there is no remote `{name}`"), MAKE_ONE));
            }
            (Some(name), _, _) => name.to_owned(),
            (None, Some(own), _) => own.clone(),
            (None, None, found) if found.contains(&"origin") => "origin".to_owned(),
            (None, None, [only]) => (*only).to_owned(),
            (None, None, []) => return Err(refuse("the repository has no remote".to_owned(), MAKE_ONE)),
            (None, None, _) => {
                let message = format!("which remote: {}?", remotes.join(", "));
                return Err(refuse(message, "name one of them"));
            }
        };
        let there = setting("merge").filter(|_| own.as_ref() == Some(&named));
        let branch = there.and_then(|name| name.strip_prefix("refs/heads/").map(str::to_owned));
        let branch = branch.unwrap_or(here);
        let words = ["rev-parse", "--show-prefix", "--absolute-git-dir", "--git-path", "index"];
        let said = self.ask(&words, "see `git status`")?;
        let mut lines = said.split('\n');
        let prefix = lines.next().unwrap_or_default().to_owned();
        let mut place = || self.state_dir.join(lines.next().unwrap_or_default());
        let (git_dir, index) = (place(), place());
        // A setting of the user may ask for a passphrase. By default ssh must not ask, because no
        // person may be present to answer.
        let is_said = ["GIT_SSH_COMMAND", "GIT_SSH"].iter().any(|name| std::env::var_os(name).is_some())
            || settings.contains_key("core.sshcommand");
        let ssh = (!is_said).then_some("ssh -o BatchMode=yes");
        let known = format!("refs/dormouse/{named}/{branch}");
        Ok(RemoteBranch { remote: named, branch, prefix, git_dir, index, known, ssh })
    }

    /// Error when git converts line ends in this clone, because files could then not be compared
    /// with committed ones.
    fn refuse_other_bytes(&self, autocrlf: Option<&str>) -> Result<()> {
        if autocrlf.is_none_or(|setting| setting == "false") {
            return Ok(());
        }
        let said = self.ask(&["check-attr", "text", "--", "dormouse.toml"], "see `git status`")?;
        if said.trim_end().ends_with(": unset") {
            return Ok(());
        }
        let message = format!(
            "core.autocrlf is set in this clone, and nothing keeps git from changing the ends of lines in {}",
            self.state_dir.display()
        );
        Err(refuse(
            message,
            "`git config core.autocrlf false` and check its files out anew, or `dormouse doctor --repair` where they are right",
        ))
    }

    /// Returns the commit that is checked out, if there is any.
    pub fn head(&self) -> Result<Option<String>> {
        self.commit_of("HEAD")
    }

    /// Returns the last known commit of the remote branch.
    pub fn known(&self, line: &RemoteBranch) -> Result<Option<String>> {
        self.commit_of(&line.known)
    }

    fn commit_of(&self, name: &str) -> Result<Option<String>> {
        self.one_if_any(&["rev-parse", "--quiet", "--verify", &format!("{name}^{{commit}}")])
    }

    /// Returns git's answer if the object exists. A failure of git is an error.
    fn one_if_any(&self, words: &[&str]) -> Result<Option<String>> {
        let said = self.run(words)?;
        if said.status.code() == Some(1) {
            return Ok(None);
        }
        self.done(&said)?;
        Ok(Some(said.stdout.trim_end().to_owned()))
    }

    /// Fetches the branch. Returns its commit; `None` if the remote does not have the branch yet.
    pub fn fetch(&self, line: &RemoteBranch) -> Result<Option<String>> {
        let refspec = format!("+refs/heads/{}:{}", line.branch, line.known);
        let words = [
            "fetch",
            "--quiet",
            "--no-tags",
            "--no-recurse-submodules",
            "--no-auto-maintenance",
            "--no-write-fetch-head",
            &line.remote,
            &refspec,
        ];
        let said = self.call(&words, &GitCall { ssh: line.ssh, ..GitCall::default() })?;
        if said.is_success() {
            return self.known(line);
        }
        if said.stderr.contains("couldn't find remote ref") {
            return Ok(None);
        }
        Err(self.unreachable("fetch from", line, &said))
    }

    /// Pushes a commit to the branch, if the branch is still at the commit's parent.
    pub fn push(&self, line: &RemoteBranch, commit: &str) -> Result<Pushed> {
        let refspec = format!("{commit}:refs/heads/{}", line.branch);
        let words = ["push", "--porcelain", "--no-recurse-submodules", &line.remote, &refspec];
        let said = self.call(&words, &GitCall { ssh: line.ssh, ..GitCall::default() })?;
        if said.is_success() {
            self.ask(&["update-ref", &line.known, commit], "see why git can't write its refs")?;
            return Ok(Pushed::Accepted);
        }
        const OVERTAKEN: &[&str] = &[
            "(fetch first)",
            "(non-fast-forward)",
            "cannot lock ref",
            "incorrect old value",
            "failed to update ref",
            "reference already exists",
        ];
        if OVERTAKEN.iter().any(|words| said.stdout.contains(words)) {
            return Ok(Pushed::Overtaken);
        }
        Err(self.unreachable("push to", line, &said))
    }

    fn unreachable(&self, what: &str, line: &RemoteBranch, said: &GitResult) -> Error {
        let reason = said.stdout.lines().find_map(|line| line.strip_prefix("!\t"));
        let words = said.stderr.lines().map(str::trim).filter(|line| !line.is_empty());
        let first = reason.map(str::to_owned).or(words.clone().next().map(str::to_owned)).unwrap_or_default();
        let first = first.trim_start_matches("fatal: ").trim_start_matches("error: ").replace('\t', " ");
        let message = format!("can't {what} {}, branch {}: {first}", line.remote, line.branch);
        let hint = "nothing here has changed but for commits of its own; try again when the remote answers";
        refuse(message, hint_about(&first, hint))
    }

    /// Returns the files of the state directory in a commit.
    pub fn tree(&self, line: &RemoteBranch, commit: &str) -> Result<Tree> {
        let mut words = vec!["ls-tree", "-r", "-z", "--full-tree", commit, "--"];
        // An empty prefix is no valid path.
        words.extend(Some(line.prefix.as_str()).filter(|prefix| !prefix.is_empty()));
        let said = self.run(&words)?;
        self.done(&said)?;
        let mut tree = Tree::new();
        for entry in said.bytes.split(|byte| *byte == 0).filter(|entry| !entry.is_empty()) {
            let Ok(entry) = std::str::from_utf8(entry) else {
                let found = String::from_utf8_lossy(entry).into_owned();
                return Err(Error::damaged(found, "no file of a state directory has such a name"));
            };
            let Some((head, path)) = entry.split_once('\t') else { continue };
            let mut words = head.split(' ');
            let (mode, id) = (words.next().unwrap_or_default(), words.nth(1).unwrap_or_default());
            if let Some(path) = path.strip_prefix(&line.prefix) {
                tree.insert(path.to_owned(), Blob { mode: mode.to_owned(), id: id.to_owned() });
            }
        }
        Ok(tree)
    }

    /// Returns the contents of these objects in order. Each is read when it is asked for, because
    /// all together may be large.
    pub fn contents(&self, ids: &[&str]) -> Result<GitObjects> {
        if ids.is_empty() {
            return Ok(GitObjects { answer: BufReader::new(paper()?), left: 0 });
        }
        let asked = ids.iter().map(|id| format!("{id}\n")).collect::<String>();
        let call = GitCall { stdin: Some(asked.as_bytes()), ..GitCall::default() };
        let (said, mut answer) = self.answer(&["cat-file", "--batch"], &call)?;
        self.done(&said)?;
        answer.rewind().context("read", Path::new("what git said"))?;
        Ok(GitObjects { answer: BufReader::new(answer), left: ids.len() })
    }

    /// Returns the content of a file of the state directory in a commit.
    pub fn content_at(&self, line: &RemoteBranch, commit: &str, path: &str) -> Result<Option<Vec<u8>>> {
        let said = self.run(&["cat-file", "blob", &format!("{commit}:{}{path}", line.prefix)])?;
        const NOT_THERE: &[&str] = &[" does not exist in ", " exists on disk, but not in "];
        if !said.is_success() && NOT_THERE.iter().any(|words| said.stderr.contains(words)) {
            return Ok(None);
        }
        self.done(&said)?;
        Ok(Some(said.bytes))
    }

    /// Stores bytes as an object.
    pub fn keep(&self, bytes: &[u8]) -> Result<Blob> {
        let words = ["hash-object", "-w", "--no-filters", "--stdin"];
        let said = self.call(&words, &GitCall { stdin: Some(bytes), ..GitCall::default() })?;
        self.done(&said)?;
        Ok(Blob { mode: "100644".to_owned(), id: said.stdout.trim_end().to_owned() })
    }

    /// Returns the merge base of two commits.
    pub fn base(&self, ours: &str, theirs: &str) -> Result<Option<String>> {
        let bases = self.one_if_any(&["merge-base", ours, theirs])?;
        Ok(bases.and_then(|bases| bases.lines().next().map(str::to_owned)))
    }

    /// Merges two commits by git, without a work tree. In the state directory git merges only
    /// texts; records are merged by this program.
    pub fn merge(&self, ours: &str, theirs: &str) -> Result<Merge> {
        // Called in the state directory, git would name conflicts by their path from there.
        let up = self.ask(&["rev-parse", "--show-cdup"], "see `git status`")?;
        let up = Some(up.trim_end()).filter(|up| !up.is_empty()).unwrap_or(".");
        let words = [
            "-C",
            up,
            "-c",
            "merge.dormouse.driver=false",
            "-c",
            "merge.directoryRenames=false",
            "merge-tree",
            "--write-tree",
            "--name-only",
            "--no-messages",
            "-z",
            ours,
            theirs,
        ];
        let said = self.run(&words)?;
        // 1: some paths are in conflict.
        if !said.is_success() && said.status.code() != Some(1) {
            self.done(&said)?;
        }
        let mut words = said.stdout.split('\0').filter(|word| !word.is_empty());
        let tree = words.next().unwrap_or_default().trim_end().to_owned();
        Ok(Merge { tree, conflicts: words.map(str::to_owned).collect() })
    }

    /// Creates a commit of a tree with these files in the state directory and everything else as in
    /// `tree`.
    pub fn commit_tree(
        &self,
        line: &RemoteBranch,
        tree: &str,
        changes: &BTreeMap<String, Option<Blob>>,
        parents: &[&str],
        subject: &str,
    ) -> Result<String> {
        let own = OwnIndex::empty(line);
        let index = own.call();
        self.done(&self.call(&["read-tree", tree], &index)?)?;
        let changes = changes.iter().map(|(path, blob)| (format!("{}{path}", line.prefix), blob.as_ref()));
        let lines = index_lines(changes);
        let call = GitCall { stdin: Some(&lines), ..own.call() };
        self.done(&self.call(&["update-index", "-z", "--index-info"], &call)?)?;
        let written = self.call(&["write-tree"], &index)?;
        self.done(&written)?;
        let mut words = vec!["commit-tree", written.stdout.trim_end(), "-m", subject];
        for parent in parents {
            words.extend(["-p", parent]);
        }
        let is_signed = self.settings.sign
            && self.run(&["config", "--type=bool", "--get", "commit.gpgSign"])?.stdout.trim_end() == "true";
        if is_signed {
            words.push("-S");
        }
        let said = self.run(&words)?;
        self.done(&said)?;
        Ok(said.stdout.trim_end().to_owned())
    }

    /// Returns the differences of two commits, in the whole repository.
    pub fn differences(&self, before: Option<&str>, after: &str) -> Result<Vec<PathChange>> {
        const NOTHING: &str = "4b825dc642cb6eb9a060e54bf8d69288fbee4904";
        let words = ["diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev", "--no-commit-id"];
        let said = self.run(&[&words[..], &[before.unwrap_or(NOTHING), after]].concat())?;
        self.done(&said)?;
        Ok(raw_changes(&said.stdout))
    }

    pub(super) fn done(&self, said: &GitResult) -> Result<()> {
        if said.is_success() {
            return Ok(());
        }
        let first = said.stderr.lines().find(|line| !line.trim().is_empty()).unwrap_or("it gives no reason");
        let message = format!("git in {}: {}", self.state_dir.display(), first.trim_start_matches("fatal: "));
        Err(refuse(message, hint_about(first, "see `git status`")))
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
    let mut words = text.split('\0');
    while let (Some(head), Some(path)) = (words.next().filter(|head| !head.is_empty()), words.next()) {
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

/// Contents of objects, in the format of `git cat-file --batch`.
pub struct GitObjects {
    answer: BufReader<File>,
    left: usize,
}

impl Iterator for GitObjects {
    type Item = Result<Vec<u8>>;

    fn next(&mut self) -> Option<Result<Vec<u8>>> {
        self.left = self.left.checked_sub(1)?;
        let one = self.one().map_err(|_| {
            refuse("git does not give the contents of its objects".to_owned(), "see `git fsck`")
        });
        Some(one)
    }
}

impl GitObjects {
    /// Reads a line that ends with the length, the content, and a line end.
    fn one(&mut self) -> io::Result<Vec<u8>> {
        let mut head = String::new();
        self.answer.read_line(&mut head)?;
        let length = head.trim_end().rsplit(' ').next().and_then(|word| word.parse().ok());
        let mut bytes = vec![0; length.ok_or(io::ErrorKind::InvalidData)?];
        self.answer.read_exact(&mut bytes)?;
        self.answer.read_exact(&mut [0])?;
        Ok(bytes)
    }
}
