//! One hook: a program of the people's own, run like a turn, and told what happens on its stdin.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Mark;
use super::turn::{self, Ended, Overseer, Stdin, TurnSpec};
use crate::error::{Context, Result};

/// Of each stream, in bytes.
const MAX_OUTPUT: u64 = 64 << 10;
/// Between SIGTERM and SIGKILL.
const KILL_GRACE: Duration = Duration::from_secs(5);

/// A hook to be run.
pub struct HookSpec {
    pub name: &'static str,
    pub program: PathBuf,
    pub workdir: PathBuf,
    /// The whole environment, but for the name of the hook.
    pub env: Vec<(OsString, OsString)>,
    pub document: Vec<u8>,
    /// A directory that is made for its files and removed again.
    pub scratch: PathBuf,
    /// Where what it says is appended.
    pub log: Option<PathBuf>,
    pub timeout: Option<Duration>,
}

/// Whether there is a hook: a file that somebody may execute, or a link to one.
pub fn is_there(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// Runs a hook until no process of it is left. Returns how it ended and all that it said.
pub fn run(hook: &HookSpec, overseer: &mut dyn Overseer) -> Result<(Ended, String)> {
    let ran = run_in(hook, overseer);
    // What is left of it is in the way of nobody.
    let _ = fs::remove_dir_all(&hook.scratch);
    ran
}

fn run_in(hook: &HookSpec, overseer: &mut dyn Overseer) -> Result<(Ended, String)> {
    fs::create_dir_all(&hook.scratch).context("create", &hook.scratch)?;
    let file = |name: &str| hook.scratch.join(name);
    let document = file("document.json");
    fs::write(&document, &hook.document).context("write", &document)?;
    let spec = TurnSpec {
        argv: vec![hook.program.clone().into()],
        workdir: hook.workdir.clone(),
        env: hook.env.clone(),
        mark: Mark::hook(hook.name),
        stdin: Stdin::File(document),
        stdout: file("stdout"),
        stderr: file("stderr"),
        leader: file("leader"),
        max_output: MAX_OUTPUT,
        timeout: hook.timeout,
        kill_grace: KILL_GRACE,
    };
    let ended = turn::run(&spec, overseer)?;
    let mut said = Vec::new();
    for path in [&spec.stdout, &spec.stderr] {
        said.extend(fs::read(path).context("read", path)?);
    }
    if let Some(log) = hook.log.as_ref().filter(|_| !said.is_empty()) {
        append(log, &said).context("write", log)?;
    }
    Ok((ended, String::from_utf8_lossy(&said).into_owned()))
}

fn append(log: &Path, said: &[u8]) -> std::io::Result<()> {
    let mut file: File = File::options().append(true).create(true).mode(0o600).open(log)?;
    file.write_all(said)
}
