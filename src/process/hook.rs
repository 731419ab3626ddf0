//! Runs one hook: a program of the user that runs like a turn and reads the event from stdin.

use std::ffi::OsString;
use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::leftover::LeftoverProcesses;
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

/// Hook to run.
pub struct HookSpec {
    pub name: &'static str,
    pub program: PathBuf,
    pub workdir: PathBuf,
    /// Complete environment, except the variables that identify the hook and its processes.
    pub env: Vec<(OsString, OsString)>,
    /// Input on stdin.
    pub document: Vec<u8>,
    /// New directory of this hook alone, whose path marks its processes.
    pub scratch: CapPath,
    /// File to which the hook's output is appended.
    pub log: Option<CapPath>,
    pub timeout: Option<Duration>,
}

/// True if the path names an executable file, or a link to one.
pub fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// Runs a hook until none of its processes is left. Returns the hook's result and output.
pub fn run(hook: &HookSpec, monitor: &mut dyn Monitor) -> Result<(TurnResult, String)> {
    let file = |name: &str| hook.scratch.join(name);
    let mut env = hook.env.clone();
    env.push((HOOK.into(), hook.name.into()));
    let document = file("document.json");
    document.create()?.write_all(&hook.document).context("write", &document)?;
    let spec = TurnSpec {
        argv: vec![hook.program.clone().into()],
        workdir: hook.workdir.clone(),
        env,
        mark: ProcessMark::hook(&hook.scratch),
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
    for fault in ended.faults() {
        output.extend_from_slice(format!("\n[dormouse: {fault}]\n").as_bytes());
    }
    if let Some(log) = hook.log.as_ref().filter(|_| !output.is_empty()) {
        let (mut file, _) = log.create_in_place()?;
        file.seek(SeekFrom::End(0)).and_then(|_| file.write_all(&output)).context("write", log)?;
    }
    Ok((ended, String::from_utf8_lossy(&output).into_owned()))
}

/// Ends processes of a hook whose dormouse command was killed. `scratch`: the hook's directory.
pub fn end_leftover(scratch: &CapPath) -> Result<()> {
    LeftoverProcesses::find(&ProcessMark::hook(scratch), &scratch.join(LEADER))?.end(KILL_GRACE).map(drop)
}
