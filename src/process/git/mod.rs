//! Calls git for `tick --commit`, and in [`exchange`] for `sync` and `tick --push`. Programs that a
//! repository configures (hooks, a file system monitor) run only if the settings allow them.

pub mod exchange;
pub mod index;

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::fs::{Access, MemfdFlags};
use rustix::process::{Pid, Signal};

use super::patience::wait_for;
use super::{spawn, table};
use crate::error::{Error, IoContext, Result, describe};
use crate::model::settings::GitSettings;

/// Pause before the next call of git after another process has blocked git.
const PAUSE: Duration = Duration::from_millis(20);
/// Maximum time for which `is_tracked` waits while another process blocks git.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time between SIGTERM, after which git removes its lock files, and SIGKILL.
const GRACE: Duration = Duration::from_secs(2);
const SEE_STATUS: &str = "see `git status`";

/// Messages of git about interference: another git process holds a lock, or a file was removed
/// after git had found it.
const INTERFERENCE: &[&str] =
    &["index.lock", "cannot lock ref", "No such file or directory", "unable to index", NO_REASON];
/// Text for an empty message of git. `git commit` prints nothing if another git process has just
/// committed the staged files.
const NO_REASON: &str = "it gives no reason";

/// Variables that describe one repository to git's hooks and aliases: those that `git rev-parse
/// --local-env-vars` lists in any version, and `GIT_QUARANTINE_PATH`, which a push sets for hooks.
/// Any command in another repository must not inherit them.
const LOCAL: &[&str] = &[
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_CONFIG",
    "GIT_CONFIG_PARAMETERS",
    "GIT_DIR",
    "GIT_GRAFT_FILE",
    "GIT_IMPLICIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_INTERNAL_SUPER_PREFIX",
    "GIT_NAMESPACE",
    "GIT_NO_REPLACE_OBJECTS",
    "GIT_OBJECT_DIRECTORY",
    "GIT_PREFIX",
    "GIT_QUARANTINE_PATH",
    "GIT_REPLACE_REF_BASE",
    "GIT_SHALLOW_FILE",
    "GIT_WORK_TREE",
];

/// Variables that describe the commit of a git that runs this program as a hook. If a turn
/// inherited them, its own commits would get the date of that commit.
const ONE_COMMIT: &[&str] = &["GIT_AUTHOR_DATE", "GIT_REFLOG_ACTION"];

/// Variable by which users pass settings to git. git lists the variable as local to a repository,
/// but this program's own git calls keep it, because users set `safe.directory` by it.
const SETTINGS: &str = "GIT_CONFIG_COUNT";

/// True if a variable describes one repository or one commit of the git that runs this program, so
/// that no turn, hook or task may inherit the variable.
pub fn is_caller_var(name: &OsStr) -> bool {
    LOCAL.iter().chain(ONE_COMMIT).any(|other| name == *other) || name == SETTINGS
}

/// Files in git's directory that exist during an unfinished operation, and the operation's name.
const UNFINISHED: &[(&str, &str)] = &[
    ("MERGE_HEAD", "a merge"),
    ("rebase-merge", "a rebase"),
    ("rebase-apply", "a rebase"),
    ("CHERRY_PICK_HEAD", "a cherry-pick"),
    ("REVERT_HEAD", "a revert"),
];

/// Git repository that contains a state directory.
#[derive(Debug)]
pub struct Repository<'a> {
    state_dir: &'a Path,
    settings: GitSettings,
    /// Maximum time for which other processes may block git.
    patience: Duration,
}

/// True if git tracks a file. False if git can't run.
pub fn is_tracked(path: &Path) -> bool {
    let (Some(dir), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str())) else {
        return false;
    };
    let repository = Repository::of(dir, GitSettings::default(), PATIENCE);
    repository.run(&["ls-files", "--error-unmatch", "--", name]).is_ok_and(|result| result.is_success())
}

impl<'a> Repository<'a> {
    /// Returns the repository of a state directory without calling git.
    pub fn of(state_dir: &'a Path, settings: GitSettings, patience: Duration) -> Repository<'a> {
        Repository { state_dir, settings, patience }
    }

    /// Error when a commit can't be made now. Called before a step, because a step without its
    /// commit could not be undone. Waits while another git process locks the index.
    pub fn check(&self) -> Result<()> {
        let args =
            ["--is-inside-work-tree", "--absolute-git-dir", "--git-path", "objects", "--git-path", "index"];
        let hint = "the state directory must be in a git repository: make one with `git init`";
        let result = self.ask(&[&["rev-parse"], &args[..]].concat(), hint)?;
        let mut lines = result.lines();
        if lines.next() != Some("true") {
            let message = format!("{} is not in the work tree of a repository", self.state_dir.display());
            return Err(refuse(message, hint));
        }
        // git answers with paths from its working directory, which is the state directory.
        let mut place = || self.state_dir.join(lines.next().unwrap_or_default());
        let (git_dir, objects, index) = (place(), place(), place());
        for (name, what) in UNFINISHED {
            if git_dir.join(name).symlink_metadata().is_ok() {
                let message = format!("the repository is in the middle of {what}: {}", git_dir.display());
                return Err(refuse(message, "finish it or abort it, as `git status` says"));
            }
        }
        for dir in [&git_dir, &objects] {
            rustix::fs::access(dir, Access::WRITE_OK).context("write into", dir)?;
        }
        self.wait_for_index(&index)?;
        for identity in ["GIT_AUTHOR_IDENT", "GIT_COMMITTER_IDENT"] {
            let hint = "set it with `git config user.name` and `git config user.email`";
            self.ask(&["var", identity], hint)?;
        }
        let unmerged = self.ask(&["ls-files", "--unmerged", "--", "."], SEE_STATUS)?;
        if let Some(path) = unmerged.split('\n').find_map(|line| line.split_once('\t')) {
            return Err(Error::damaged(
                self.state_dir.join(path.1),
                "it has a merge conflict that is not resolved",
            )
            .with_hint("take one side whole (git checkout --ours or --theirs), then `git add` it"));
        }
        let marker = "dormouse.toml";
        if self.run(&["check-ignore", "--quiet", "--no-index", "--", marker])?.is_success() {
            let by = self.run(&["check-ignore", "--verbose", "--no-index", "--", marker])?.text();
            let by = by.split('\t').next().unwrap_or_default();
            return Err(refuse(
                format!("git ignores {}: {by}", self.state_dir.display()),
                "take that line out, or leave out --commit",
            ));
        }
        Ok(())
    }

    /// Waits until no git process has locked the index.
    fn wait_for_index(&self, index: &Path) -> Result<()> {
        let (lock, start) = (index.with_added_extension("lock"), Instant::now());
        while lock.symlink_metadata().is_ok() {
            if start.elapsed() >= self.patience {
                let holder = "another git, or one that was killed (then remove the file)".to_owned();
                return Err(Error::busy(lock, holder, start.elapsed()));
            }
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// Calls `act` again while another process blocks git.
    fn retry_while_blocked<T>(&self, mut act: impl FnMut() -> Result<T>) -> Result<T> {
        let start = Instant::now();
        loop {
            match act() {
                Err(Error::Failed { message, .. })
                    if INTERFERENCE.iter().any(|other| message.contains(other))
                        && start.elapsed() < self.patience =>
                {
                    std::thread::sleep(PAUSE);
                }
                done => return done,
            }
        }
    }

    /// Commits everything below the state directory, if anything has changed. Other staged files of
    /// the repository are not changed. Retries while other processes block the commit. Returns
    /// git's message about unreadable files, which are left out.
    pub fn commit(&self, subject: &str, body: &str) -> Result<Option<String>> {
        self.retry_while_blocked(|| {
            let done = |result: &GitResult| {
                let cause = Some(result.stderr.trim()).filter(|cause| !cause.is_empty()).unwrap_or(NO_REASON);
                let message = format!("git in {}: {cause}", self.state_dir.display());
                let hint = "the step is done and recorded; only its git commit is missing";
                if result.is_success() { Ok(()) } else { Err(refuse(message, hint)) }
            };
            let added = self.run(&["add", "--all", "--ignore-errors", "--", "."])?;
            // A file in a shared inbox that its owner can't read must not prevent the commit of the
            // other files.
            let is_closed = added.stderr.contains("Permission denied") && !added.stderr.contains("fatal:");
            if !is_closed {
                done(&added)?;
            }
            if !self.run(&["diff", "--cached", "--quiet", "--", "."])?.is_success() {
                done(&self.run(&[&commit_args(subject, body)[..], &["--", "."]].concat())?)?;
            }
            Ok(is_closed.then(|| added.stderr.trim().to_owned()))
        })
    }

    /// Configures git in this clone to merge files that match one of the patterns, relative to the
    /// state directory, by `PROGRAM merge-driver`. Returns true if anything was changed.
    pub fn merge_by(&self, program: &Path, patterns: &[&str]) -> Result<bool> {
        let args = ["rev-parse", "--show-prefix", "--git-path", "info/attributes"];
        let result = self.ask(&args, "a merge driver is a git repository's: make one with `git init`")?;
        let mut lines = result.lines();
        let (prefix, attributes) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
        let attributes = self.state_dir.join(attributes);
        let program = program.to_string_lossy().replace('%', "%%").replace('\'', "'\\''");
        let driver = format!("'{program}' merge-driver %O %A %B %P");
        let is_known = self.run(&["config", "--local", "merge.dormouse.driver"])?.text().trim_end() == driver;
        if !is_known {
            let hint = "make git's configuration file writable";
            let name = "a state directory of dormouse";
            self.ask(&["config", "--local", "merge.dormouse.name", name], hint)?;
            self.ask(&["config", "--local", "merge.dormouse.driver", &driver], hint)?;
        }
        let mut text = match std::fs::read_to_string(&attributes) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            read => read.context("read", &attributes)?,
        };
        let before = text.len();
        for pattern in patterns {
            let line = format!("\"{}{pattern}\" merge=dormouse", escaped(prefix));
            if !text.lines().any(|known| known == line) {
                let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
                text.push_str(&format!("{end}{line}\n"));
            }
        }
        let is_new = text.len() > before;
        if is_new {
            if let Some(dir) = attributes.parent() {
                std::fs::create_dir_all(dir).context("make directory", dir)?;
            }
            let staged = attributes.with_extension(format!("new-{}", std::process::id()));
            std::fs::write(&staged, text).context("write", &staged)?;
            std::fs::rename(&staged, &attributes).context("rename to", &attributes)?;
        }
        Ok(!is_known || is_new)
    }

    /// Returns git's output. If git fails, the error has the first line of git's message, and
    /// `hint`.
    fn ask(&self, args: &[&str], hint: &str) -> Result<String> {
        Ok(self.checked(self.run(args)?, hint)?.text())
    }

    /// Calls git with options. Fails if git fails.
    fn must(&self, args: &[&str], with: &GitCall<'_>) -> Result<GitResult> {
        self.checked(self.call(args, with)?, SEE_STATUS)
    }

    /// Returns git's result, or an error with `hint` if git has failed.
    fn checked(&self, result: GitResult, hint: &str) -> Result<GitResult> {
        if result.is_success() {
            return Ok(result);
        }
        // Only the first line of git's message is shown: further lines are advice for other cases.
        let message = format!("git in {}: {}", self.state_dir.display(), result.reason());
        Err(refuse(message, hint_about(result.reason(), hint)))
    }

    /// Calls git with the state directory as working directory. Arguments name that directory `.`,
    /// because its name may have characters that are special to git.
    fn run(&self, args: &[&str]) -> Result<GitResult> {
        self.call(args, &GitCall::default())
    }

    /// Calls git with options, and returns its result with the output in memory.
    fn call(&self, args: &[&str], with: &GitCall<'_>) -> Result<GitResult> {
        let (mut result, answer) = self.answer(args, with)?;
        result.stdout = read(answer)?;
        Ok(result)
    }

    /// Calls git with options. Returns the output as a file in memory, positioned at the beginning,
    /// because the output may be large.
    fn answer(&self, args: &[&str], with: &GitCall<'_>) -> Result<(GitResult, File)> {
        let mut command = Command::new("git");
        // Signing may ask for a passphrase, and no person may be present.
        command.current_dir(self.state_dir).args(["-c", "commit.gpgSign=false"]);
        command.stdin(match with.stdin {
            Some(bytes) => Stdio::from(paper_with(bytes)?),
            None => Stdio::null(),
        });
        // Messages of git are compared, so they must be in English. git must not ask questions,
        // because no person is present to answer.
        command.env("LC_ALL", "C").env("GIT_TERMINAL_PROMPT", "0");
        for name in LOCAL {
            command.env_remove(name);
        }
        if let Some(index) = with.index {
            command.env("GIT_INDEX_FILE", index);
        }
        if let Some(ssh) = with.ssh {
            command.env("GIT_SSH_COMMAND", ssh);
        }
        if !self.settings.hooks {
            command.args(["-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false"]);
        }
        let (stdout, stderr) = (paper()?, paper()?);
        let pen = |paper: &File| paper.try_clone().context("write to", Path::new("memory"));
        command.args(args).stdout(pen(&stdout)?).stderr(pen(&stderr)?).process_group(0);
        spawn::restore_limits(&mut command);
        let child = command.spawn().map_err(|error| {
            let message = format!("can't run git in {}: {}", self.state_dir.display(), describe(&error));
            refuse(message, "install git, or put its directory into the PATH")
        })?;
        let status = self.wait(child, args)?;
        let stderr = String::from_utf8_lossy(&read(stderr)?).into_owned();
        Ok((GitResult { status, stdout: Vec::new(), stderr }, stdout))
    }

    /// Waits for git for at most `git.timeout`, and then ends git.
    fn wait(&self, mut child: Child, args: &[&str]) -> Result<ExitStatus> {
        let pid = Pid::from_child(&child);
        let git = Path::new("git");
        let ended = table::open(pid).context("watch", git)?;
        let is_over =
            |time| wait_for(&ended, PollFlags::IN, Instant::now().checked_add(time)).context("wait for", git);
        if is_over(self.settings.timeout.as_std())? {
            return child.wait().context("wait for", git);
        }
        for signal in [Signal::TERM, Signal::KILL] {
            // git leads its group and is not reaped yet, so no other process can have git's pid.
            let _ = rustix::process::kill_process_group(pid, signal);
            is_over(GRACE)?;
        }
        let _ = child.try_wait();
        let message = format!(
            "`git {}` in {} took longer than git.timeout = {}",
            args[0],
            self.state_dir.display(),
            self.settings.timeout
        );
        Err(refuse(message, "check why git hangs, or raise git.timeout in dormouse.toml"))
    }
}

/// Escapes a path for the quotes of a gitattributes file, so that it matches only this path.
fn escaped(path: &str) -> String {
    let mut pattern = String::with_capacity(path.len());
    for c in path.chars() {
        match c {
            // The backslash is doubled: one level for the pattern, and one for the quotes.
            '*' | '?' | '[' => pattern.push_str("\\\\"),
            '\\' => pattern.push_str("\\\\\\"),
            '"' => pattern.push('\\'),
            _ => {}
        }
        pattern.push(c);
    }
    pattern
}

/// Options of a call of git.
#[derive(Default)]
struct GitCall<'a> {
    stdin: Option<&'a [u8]>,
    /// Index file that replaces the clone's index.
    index: Option<&'a Path>,
    /// ssh command, if neither the user nor the repository sets one.
    ssh: Option<&'a str>,
}

/// Result of one call of git.
struct GitResult {
    status: ExitStatus,
    stdout: Vec<u8>,
    stderr: String,
}

impl GitResult {
    fn is_success(&self) -> bool {
        self.status.success()
    }

    /// Returns the content of stdout as text.
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Returns the first line of git's error message.
    fn reason(&self) -> &str {
        let first = self.stderr.lines().find(|line| !line.trim().is_empty()).unwrap_or(NO_REASON);
        first.trim_start_matches("fatal: ").trim_start_matches("error: ")
    }
}

/// Returns the arguments of `git commit`.
fn commit_args<'w>(subject: &'w str, body: &'w str) -> Vec<&'w str> {
    let mut args = vec!["commit", "--quiet", "--message", subject];
    if !body.is_empty() {
        args.extend(["--message", body]);
    }
    args
}

/// Creates a file in memory for git's output. A pipe would have to be read to its end, and a
/// leftover process of git could hold the pipe open.
fn paper() -> Result<File> {
    let file = rustix::fs::memfd_create("git", MemfdFlags::CLOEXEC);
    file.map(File::from).context("make", Path::new("a file in memory"))
}

/// Creates a file in memory with this content, positioned at the beginning.
fn paper_with(bytes: &[u8]) -> Result<File> {
    let mut paper = paper()?;
    let written = paper.write_all(bytes).and_then(|()| paper.rewind());
    written.context("write to", Path::new("memory"))?;
    Ok(paper)
}

fn read(mut paper: File) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = paper.rewind().and_then(|()| paper.read_to_end(&mut bytes));
    read.context("read", Path::new("what git said"))?;
    Ok(bytes)
}

/// Returns `hint`, or advice about the lock file if `reason` is git's message about a lock.
fn hint_about<'h>(reason: &str, hint: &'h str) -> &'h str {
    let is_locked = reason.contains(".lock': File exists");
    if is_locked { "another git is at work, or one was killed: then remove that file" } else { hint }
}

fn refuse(message: String, hint: &str) -> Error {
    Error::failed(message).with_hint(hint.to_owned())
}
