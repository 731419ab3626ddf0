//! One hook: a program of the people's own, run like a turn, and told what happens on its stdin.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};

use super::remains::Remains;
use super::table::Process;
use super::turn::{self, Ended, Overseer, Stdin, TurnSpec};
use super::{HOOK, Mark};
use crate::error::{Context, Result};
use crate::model::policy::FirstTold;

/// Of each stream, in bytes.
const MAX_OUTPUT: u64 = 64 << 10;
/// Between SIGTERM and SIGKILL.
const KILL_GRACE: Duration = Duration::from_secs(5);
const LEADER: &str = "leader";
/// How the name of a hook's directory begins.
const SCRATCH: &str = "hook-";

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
    let scratch = Scratch::make(&hook.tmp)?;
    run_in(hook, &scratch.path, overseer)
}

/// A directory for the files of one hook, locked for as long as it runs: so others can tell what
/// somebody has left who was killed, whatever container they look from. It goes with its owner, and
/// its name never comes again: who has found it as it went takes no later one for it.
struct Scratch {
    path: PathBuf,
    _lock: File,
}

impl Scratch {
    fn make(tmp: &Path) -> Result<Scratch> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let this = rustix::process::getpid();
        let start = Process::read(this).map_or(0, |process| process.start);
        let name = format!("{this}-{start}-{}", MADE.fetch_add(1, Ordering::Relaxed));
        // It has its name only when it is locked, or it would look abandoned.
        let new = tmp.join(format!("new-{name}"));
        DirBuilder::new().recursive(true).mode(0o700).create(&new).context("create", &new)?;
        let path = tmp.join(format!("{SCRATCH}{name}"));
        match Scratch::name(&new, &path) {
            Ok(lock) => Ok(Scratch { path, _lock: lock }),
            Err(error) => {
                // What can't be removed is in the way of nobody.
                let _ = fs::remove_dir(&new);
                Err(error)
            }
        }
    }

    fn name(new: &Path, path: &Path) -> Result<File> {
        let lock = File::open(new).context("open", new)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).context("lock", new)?;
        fs::rename(new, path).context("rename to", path)?;
        Ok(lock)
    }

    /// One whose owner is gone.
    fn abandoned(path: PathBuf) -> Option<Scratch> {
        let lock = File::open(&path).ok()?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).ok()?;
        Some(Scratch { path, _lock: lock })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What can't be removed is in the way of nobody.
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn end_abandoned(tmp: &Path) -> Result<()> {
    let entries = match fs::read_dir(tmp) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.context("list", tmp)?,
    };
    for entry in entries {
        let path = entry.context("list", tmp)?.path();
        let is_one = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(SCRATCH));
        if let Some(scratch) = is_one.then(|| Scratch::abandoned(path)).flatten() {
            Remains::find(&Mark::hook(&scratch.path), &scratch.path.join(LEADER))?.end(KILL_GRACE)?;
        }
    }
    Ok(())
}

fn run_in(hook: &HookSpec, scratch: &Path, overseer: &mut dyn Overseer) -> Result<(Ended, String)> {
    let file = |name: &str| scratch.join(name);
    let mut env = hook.env.clone();
    env.push((HOOK.into(), hook.name.into()));
    let document = file("document.json");
    write(&document, &hook.document).context("write", &document)?;
    let spec = TurnSpec {
        argv: vec![hook.program.clone().into()],
        workdir: hook.workdir.clone(),
        env,
        mark: Mark::hook(scratch),
        stdin: Stdin::File(document),
        stdout: file("stdout"),
        stderr: file("stderr"),
        leader: file(LEADER),
        listener: None,
        max_output: MAX_OUTPUT,
        timeout: hook.timeout,
        kill_grace: KILL_GRACE,
        first: FirstTold::Group,
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

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    File::options().write(true).create(true).truncate(true).mode(0o600).open(path)?.write_all(bytes)
}

fn append(log: &Path, said: &[u8]) -> io::Result<()> {
    let mut file: File = File::options().append(true).create(true).mode(0o600).open(log)?;
    file.write_all(said)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_somebody_holds_is_not_abandoned_whatever_its_name_says() {
        let tmp = tempfile::tempdir().unwrap();
        let held = Scratch::make(tmp.path()).unwrap();
        // Elsewhere its process may not be seen at all.
        let renamed = tmp.path().join("hook-1-1");
        fs::rename(&held.path, &renamed).unwrap();
        end_abandoned(tmp.path()).unwrap();
        assert!(renamed.exists());
        drop(held);
        end_abandoned(tmp.path()).unwrap();
        assert_eq!(fs::read_dir(tmp.path()).unwrap().count(), 0);
    }

    #[test]
    fn who_comes_as_a_hook_ends_finds_no_later_one() {
        let tmp = tempfile::tempdir().unwrap();
        let first = Scratch::make(tmp.path()).unwrap();
        let (path, opened) = (first.path.clone(), File::open(&first.path).unwrap());
        drop(first);
        // The lock is to be had now, and what is done in its name must not befall the next hook.
        flock(&opened, FlockOperation::NonBlockingLockExclusive).unwrap();
        let second = Scratch::make(tmp.path()).unwrap();
        assert_ne!(second.path, path);
        drop(Scratch { path, _lock: opened });
        assert!(second.path.exists());
    }
}
