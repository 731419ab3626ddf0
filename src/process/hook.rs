//! One hook: a program of the people's own, run like a turn, and told what happens on its stdin.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::remains::Remains;
use super::table::Process;
use super::turn::{self, Ended, Overseer, Stdin, TurnSpec};
use super::{HOOK, Mark};
use crate::beneath::Spot;
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
    pub tmp: Spot,
    /// Where what it says is appended.
    pub log: Option<Spot>,
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
    run_in(hook, &scratch.spot, overseer)
}

/// A directory for the files of one hook, locked for as long as it runs: so others can tell what
/// somebody has left who was killed, whatever container they look from. It goes with its owner, and
/// its name never comes again: who has found it as it went takes no later one for it.
struct Scratch {
    spot: Spot,
    _lock: File,
}

impl Scratch {
    fn make(tmp: &Spot) -> Result<Scratch> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let this = rustix::process::getpid();
        let start = Process::read(this).map_or(0, |process| process.start);
        loop {
            let number = MADE.fetch_add(1, Ordering::Relaxed);
            let spot = tmp.join(format!("{SCRATCH}{this}-{start}-{number}"));
            spot.make_dirs()?;
            // Until it is locked it looks abandoned, and may be taken for that.
            let Some(lock) = spot.open_dir()? else { continue };
            let locked = match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::WOULDBLOCK) => continue,
                locked => locked.context("lock", &spot),
            };
            // From here on it goes with its owner, also where it can't be locked.
            let scratch = Scratch { spot, _lock: lock };
            locked?;
            if rustix::fs::fstat(&scratch._lock).context("look at", &scratch.spot)?.st_nlink > 0 {
                return Ok(scratch);
            }
        }
    }

    /// One whose owner is gone.
    fn abandoned(spot: Spot) -> Option<Scratch> {
        let lock = spot.open_dir().ok()??;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).ok()?;
        Some(Scratch { spot, _lock: lock })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What can't be removed is in the way of nobody.
        let _ = self.spot.remove_tree();
    }
}

/// Ends what is left of hooks whose command was killed, and removes it.
pub fn end_abandoned(tmp: &Spot) -> Result<()> {
    for entry in tmp.entries()? {
        let is_one = entry.name.as_encoded_bytes().starts_with(SCRATCH.as_bytes());
        if let Some(scratch) = is_one.then(|| Scratch::abandoned(tmp.join(entry.name))).flatten() {
            Remains::find(&Mark::hook(&scratch.spot), &scratch.spot.join(LEADER))?.end(KILL_GRACE)?;
        }
    }
    Ok(())
}

fn run_in(hook: &HookSpec, scratch: &Spot, overseer: &mut dyn Overseer) -> Result<(Ended, String)> {
    let file = |name: &str| scratch.join(name);
    let mut env = hook.env.clone();
    env.push((HOOK.into(), hook.name.into()));
    let document = file("document.json");
    document.create()?.write_all(&hook.document).context("write", &document)?;
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
        // A log has a line of ours between its head and its tail.
        said.extend(path.read(MAX_OUTPUT * 2)?.unwrap_or_default());
    }
    if let Some(log) = hook.log.as_ref().filter(|_| !said.is_empty()) {
        append(log, &said)?;
    }
    Ok((ended, String::from_utf8_lossy(&said).into_owned()))
}

fn append(log: &Spot, said: &[u8]) -> Result<()> {
    let Some((mut file, _)) = log.open_in_place(true)? else { return Ok(()) };
    file.seek(SeekFrom::End(0)).and_then(|_| file.write_all(said)).context("write", log)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::beneath::at;

    #[test]
    fn what_somebody_holds_is_not_abandoned_whatever_its_name_says() {
        let dir = tempfile::tempdir().unwrap();
        let tmp = at(dir.path());
        let held = Scratch::make(&tmp).unwrap();
        // Elsewhere its process may not be seen at all.
        let renamed = tmp.join("hook-1-1");
        held.spot.rename(&renamed).unwrap();
        end_abandoned(&tmp).unwrap();
        assert!(renamed.exists().unwrap());
        drop(held);
        end_abandoned(&tmp).unwrap();
        assert_eq!(tmp.entries().unwrap(), []);
    }

    #[test]
    fn who_comes_as_a_hook_ends_finds_no_later_one() {
        let dir = tempfile::tempdir().unwrap();
        let tmp = at(dir.path());
        let first = Scratch::make(&tmp).unwrap();
        let (spot, opened) = (first.spot.clone(), first.spot.open_dir().unwrap().unwrap());
        drop(first);
        // The lock is to be had now, and what is done in its name must not befall the next hook.
        flock(&opened, FlockOperation::NonBlockingLockExclusive).unwrap();
        let second = Scratch::make(&tmp).unwrap();
        assert_ne!(second.spot.path(), spot.path());
        drop(Scratch { spot, _lock: opened });
        assert!(second.spot.exists().unwrap());
    }
}
