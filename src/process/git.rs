//! `tick --commit`: git, called as a person would.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::error::{Context, Error, Result};

/// Commits everything below the state directory, if there is anything to commit. Whatever else is
/// staged in the repository stays as it is.
pub fn commit_all(home: &Path, state_dir: &Path, subject: &str, body: &str) -> Result<()> {
    let dir = state_dir.as_os_str();
    checked(home, Command::new("git").arg("add").arg("--all").arg("--").arg(dir))?;
    let staged = git(home, Command::new("git").args(["diff", "--cached", "--quiet", "--"]).arg(dir))?;
    if staged.status.success() {
        return Ok(());
    }
    let mut commit = Command::new("git");
    commit.args(["commit", "--quiet", "--message", subject]);
    if !body.is_empty() {
        commit.args(["--message", body]);
    }
    checked(home, commit.arg("--").arg(dir))
}

fn git(home: &Path, command: &mut Command) -> Result<Output> {
    command.current_dir(home).stdin(Stdio::null()).output().context("run git in", home)
}

fn checked(home: &Path, command: &mut Command) -> Result<()> {
    let output = git(home, command)?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(Error::Failed {
        message: format!("git in {}: {}", home.display(), said.trim()),
        hint: Some("the step is done and recorded; only its git commit is missing".to_owned()),
    })
}
