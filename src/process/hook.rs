//! Runs one hook: a program of the user that runs like a turn and reads the event from stdin.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::leftover::LeftoverProcesses;
use super::table::ProcessStat;
use super::turn::{self, Monitor, Stdin, TurnResult, TurnSpec};
use super::{HOOK, ProcessMark};
use crate::cap_fs::CapPath;
use crate::error::{IoContext, Result};
use crate::model::policy::EndOrder;

/// Maximum number of bytes that are kept of each output stream.
const MAX_OUTPUT: u64 = 64 << 10;
/// Time between SIGTERM and SIGKILL.
const KILL_GRACE: Duration = Duration::from_secs(5);
const LEADER: &str = "leader";
/// Prefix of the name of a hook's scratch directory.
const SCRATCH: &str = "hook-";

/// Hook to run.
pub struct HookSpec {
    pub name: &'static str,
    pub program: PathBuf,
    pub workdir: PathBuf,
    /// Complete environment, except the variables that identify the hook and its processes.
    pub env: Vec<(OsString, OsString)>,
    /// Input on stdin.
    pub document: Vec<u8>,
    /// Directory in which the hook's scratch directory is created.
    pub tmp: CapPath,
    /// File to which the hook's output is appended.
    pub log: Option<CapPath>,
    pub timeout: Option<Duration>,
}

/// True if the path names an executable file, or a link to one.
pub fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// Runs a hook until none of its processes is left. Returns the hook's result and output. First
/// ends leftover processes of hooks that a killed dormouse command had started.
pub fn run(hook: &HookSpec, monitor: &mut dyn Monitor) -> Result<(TurnResult, String)> {
    end_abandoned(&hook.tmp)?;
    let scratch = HookScratch::make(&hook.tmp)?;
    let file = |name: &str| scratch.cap.join(name);
    let mut env = hook.env.clone();
    env.push((HOOK.into(), hook.name.into()));
    let document = file("document.json");
    document.create()?.write_all(&hook.document).context("write", &document)?;
    let spec = TurnSpec {
        argv: vec![hook.program.clone().into()],
        workdir: hook.workdir.clone(),
        env,
        mark: ProcessMark::hook(&scratch.cap),
        stdin: Stdin::File(document),
        stdout: file("stdout"),
        stderr: file("stderr"),
        leader: file(LEADER),
        listener: None,
        max_output: MAX_OUTPUT,
        timeout: hook.timeout,
        kill_grace: KILL_GRACE,
        first: EndOrder::Group,
    };
    let ended = turn::run(&spec, monitor)?;
    let mut output = Vec::new();
    for path in [&spec.stdout, &spec.stderr] {
        // A log whose middle was cut out exceeds the limit by the line about the omitted bytes.
        output.extend(path.read(MAX_OUTPUT * 2)?.unwrap_or_default());
    }
    if let Some(log) = hook.log.as_ref().filter(|_| !output.is_empty())
        && let Some((mut file, _)) = log.open_in_place(true)?
    {
        file.seek(SeekFrom::End(0)).and_then(|_| file.write_all(&output)).context("write", log)?;
    }
    Ok((ended, String::from_utf8_lossy(&output).into_owned()))
}

/// Scratch directory of one hook. The dormouse command that runs the hook holds a lock on the
/// directory, so that other commands, even in other containers, can detect that this command was
/// killed. The directory is removed when the hook has ended. Names are never reused, so that a late
/// removal of an abandoned directory can't remove the directory of a later hook.
struct HookScratch {
    cap: CapPath,
    _lock: File,
}

impl HookScratch {
    fn make(tmp: &CapPath) -> Result<HookScratch> {
        static NEXT_NUMBER: AtomicU32 = AtomicU32::new(0);
        let this = rustix::process::getpid();
        let start = ProcessStat::read(this).map_or(0, |process| process.start);
        loop {
            let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
            let cap = tmp.join(format!("{SCRATCH}{this}-{start}-{number}"));
            cap.make_dirs()?;
            // Without the lock, the directory looks abandoned, so another command may remove it.
            let Some(lock) = cap.open_dir()? else { continue };
            let locked = match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::WOULDBLOCK) => continue,
                locked => locked.context("lock", &cap),
            };
            // Dropping `scratch` removes the directory, even if the directory could not be locked.
            let scratch = HookScratch { cap, _lock: lock };
            locked?;
            if rustix::fs::fstat(&scratch._lock).context("look at", &scratch.cap)?.st_nlink > 0 {
                return Ok(scratch);
            }
        }
    }

    /// Locks and returns a hook's scratch directory; `None` while a live command has the lock.
    fn abandoned(cap: CapPath) -> Option<HookScratch> {
        let lock = cap.open_dir().ok()??;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).ok()?;
        Some(HookScratch { cap, _lock: lock })
    }
}

impl Drop for HookScratch {
    fn drop(&mut self) {
        // A directory that can't be removed is harmless.
        let _ = self.cap.remove_tree();
    }
}

/// Ends leftover processes of hooks of killed dormouse commands, and removes their directories.
pub fn end_abandoned(tmp: &CapPath) -> Result<()> {
    for entry in tmp.entries()? {
        let is_scratch = entry.name.as_encoded_bytes().starts_with(SCRATCH.as_bytes());
        if let Some(scratch) = is_scratch.then(|| HookScratch::abandoned(tmp.join(entry.name))).flatten() {
            LeftoverProcesses::find(&ProcessMark::hook(&scratch.cap), &scratch.cap.join(LEADER))?
                .end(KILL_GRACE)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cap_fs::at;

    #[test]
    fn a_locked_hook_directory_is_not_deleted_as_abandoned() {
        let dir = tempfile::tempdir().unwrap();
        let tmp = at(dir.path());
        let held = HookScratch::make(&tmp).unwrap();
        // Only the lock counts, because a process of another container may be invisible.
        let renamed = tmp.join("hook-1-1");
        held.cap.rename(&renamed).unwrap();
        end_abandoned(&tmp).unwrap();
        assert!(renamed.exists().unwrap());
        drop(held);
        end_abandoned(&tmp).unwrap();
        assert_eq!(tmp.entries().unwrap(), []);
    }

    #[test]
    fn the_cleanup_of_a_hook_never_removes_the_directory_of_a_later_hook() {
        let dir = tempfile::tempdir().unwrap();
        let tmp = at(dir.path());
        let first = HookScratch::make(&tmp).unwrap();
        let (cap, opened) = (first.cap.clone(), first.cap.open_dir().unwrap().unwrap());
        drop(first);
        // Another command that found the directory before its removal can lock it only now. That
        // command must not remove the directory of a later hook.
        flock(&opened, FlockOperation::NonBlockingLockExclusive).unwrap();
        let second = HookScratch::make(&tmp).unwrap();
        assert_ne!(second.cap.path(), cap.path());
        drop(HookScratch { cap, _lock: opened });
        assert!(second.cap.exists().unwrap());
    }
}
