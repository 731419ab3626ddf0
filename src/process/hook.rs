//! One hook: a program of the people's own, run like a turn, and told what happens on its stdin.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Pid;

use super::remains::Remains;
use super::table::Process;
use super::turn::{self, Ended, Overseer, Stdin, TurnSpec};
use super::{HOOK, Mark};
use crate::error::{Context, Result};

/// Of each stream, in bytes.
const MAX_OUTPUT: u64 = 64 << 10;
/// Between SIGTERM and SIGKILL.
const KILL_GRACE: Duration = Duration::from_secs(5);
const LEADER: &str = "leader";

/// A hook to be run.
pub struct HookSpec {
    pub name: &'static str,
    pub program: PathBuf,
    pub workdir: PathBuf,
    /// The whole environment, but for the name of the hook.
    pub env: Vec<(OsString, OsString)>,
    pub document: Vec<u8>,
    /// Where a directory is made for its files, and removed again.
    pub tmp: PathBuf,
    /// Where what it says is appended.
    pub log: Option<PathBuf>,
    pub timeout: Option<Duration>,
}

/// Whether there is a hook: a file that somebody may execute, or a link to one.
pub fn is_there(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// Runs a hook until no process of it is left. Returns how it ended and all that it said. Where
/// somebody was killed while he ran one, what is left of that one goes first.
pub fn run(hook: &HookSpec, overseer: &mut dyn Overseer) -> Result<(Ended, String)> {
    end_abandoned(&hook.tmp)?;
    let scratch = hook.tmp.join(scratch_name());
    let ran = run_in(hook, &scratch, overseer);
    // What is left of it is in the way of nobody.
    let _ = fs::remove_dir_all(&scratch);
    ran
}

/// Names this process for good, so that others can tell whether it is still there.
fn scratch_name() -> String {
    let this = rustix::process::getpid();
    format!("hook-{this}-{}", Process::read(this).map_or(0, |process| process.start))
}

/// Whether whoever made a scratch directory is gone; nothing for what is none.
fn is_abandoned(name: &str) -> Option<bool> {
    let (pid, start) = name.strip_prefix("hook-")?.split_once('-')?;
    let (pid, start): (Pid, u64) = (Pid::from_raw(pid.parse().ok()?)?, start.parse().ok()?);
    Some(Process::read(pid).is_none_or(|process| process.start != start || process.zombie))
}

fn end_abandoned(tmp: &Path) -> Result<()> {
    let entries = match fs::read_dir(tmp) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.context("list", tmp)?,
    };
    for entry in entries {
        let scratch = entry.context("list", tmp)?.path();
        let name = scratch.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if is_abandoned(name) == Some(true) {
            Remains::find(&Mark::hook(&scratch), &scratch.join(LEADER))?.end(KILL_GRACE)?;
            // Somebody else may be at it as well.
            let _ = fs::remove_dir_all(&scratch);
        }
    }
    Ok(())
}

fn run_in(hook: &HookSpec, scratch: &Path, overseer: &mut dyn Overseer) -> Result<(Ended, String)> {
    fs::create_dir_all(scratch).context("create", scratch)?;
    let file = |name: &str| scratch.join(name);
    let mut env = hook.env.clone();
    env.push((HOOK.into(), hook.name.into()));
    let document = file("document.json");
    fs::write(&document, &hook.document).context("write", &document)?;
    let spec = TurnSpec {
        argv: vec![hook.program.clone().into()],
        workdir: hook.workdir.clone(),
        env,
        mark: Mark::hook(scratch),
        stdin: Stdin::File(document),
        stdout: file("stdout"),
        stderr: file("stderr"),
        leader: file(LEADER),
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

fn append(log: &Path, said: &[u8]) -> io::Result<()> {
    let mut file: File = File::options().append(true).create(true).mode(0o600).open(log)?;
    file.write_all(said)
}
