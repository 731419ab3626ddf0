//! `tick --commit`: git, called as a person would.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::error::{Context, Error, Result};

/// How long others may keep git from its work, and how soon it is tried again.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(20);

/// What git says where others came in between: somebody else is at the repository, or a file that it
/// has found has gone before it was read.
const BESIDE_OTHERS: &[&str] =
    &["index.lock", "cannot lock ref", "No such file or directory", "unable to index"];

/// Commits everything below the state directory, if there is anything to commit. Whatever else is
/// staged in the repository stays as it is. Where others are at work on either it is tried again.
pub fn commit_all(home: &Path, state_dir: &Path, subject: &str, body: &str) -> Result<()> {
    let start = Instant::now();
    loop {
        let output = try_to_commit(home, state_dir, subject, body)?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        // It says nothing where somebody else has just committed what was staged.
        let is_lasting = !said.is_empty() && !BESIDE_OTHERS.iter().any(|words| said.contains(words));
        if is_lasting || start.elapsed() >= PATIENCE {
            return Err(Error::Failed {
                message: format!("git in {}: {}", home.display(), said.trim()),
                hint: Some("the step is done and recorded; only its git commit is missing".to_owned()),
            });
        }
        std::thread::sleep(PAUSE);
    }
}

/// What git said last: that it was done, or why not.
fn try_to_commit(home: &Path, state_dir: &Path, subject: &str, body: &str) -> Result<Output> {
    let dir = state_dir.as_os_str();
    let added = git(home, Command::new("git").args(["add", "--all", "--"]).arg(dir))?;
    if !added.status.success() {
        return Ok(added);
    }
    let staged = git(home, Command::new("git").args(["diff", "--cached", "--quiet", "--"]).arg(dir))?;
    if staged.status.success() {
        return Ok(staged);
    }
    let mut commit = Command::new("git");
    commit.args(["commit", "--quiet", "--message", subject]);
    if !body.is_empty() {
        commit.args(["--message", body]);
    }
    git(home, commit.arg("--").arg(dir))
}

fn git(home: &Path, command: &mut Command) -> Result<Output> {
    // It is heard what it says: in one language.
    command.current_dir(home).env("LC_ALL", "C").stdin(Stdio::null()).output().context("run git in", home)
}
