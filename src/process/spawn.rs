//! Start of child processes: their limit of open files, their end when this process dies, and for a
//! turn its process group and the record of the group's leader.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, OnceLock};

use rustix::fs::{Access, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use signal_hook::consts::SIGXFSZ;

use super::leftover::leader;
use super::signals::{ignored, is_in};
use super::turn::{Stdin, TurnSpec};
use super::{PLACE, host, program};
use crate::error::{Error, IoContext, Result, describe, is_shortage};

/// Limit of open files that this process was started with.
static OPEN_FILES: OnceLock<Rlimit> = OnceLock::new();

/// Raises the limit of open files of this process as far as allowed; the commands that it starts
/// get the original limit. Makes a write beyond the limit of file sizes fail with an error instead
/// of a kill by SIGXFSZ. Must be called once, at the start.
pub fn raise_limits() {
    let found = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: found.maximum, maximum: found.maximum };
    // On an error, the process runs with the original limit.
    if found.current != found.maximum && setrlimit(Resource::Nofile, raised).is_ok() {
        let _ = OPEN_FILES.set(found);
    }
    // Without a limit of file sizes, the system never sends SIGXFSZ.
    if getrlimit(Resource::Fsize).current.is_some() && !is_in(ignored(), SIGXFSZ) {
        // With a handler, the write fails. Children inherit ignored signals, but no handlers.
        let _ = signal_hook::flag::register(SIGXFSZ, Arc::default());
    }
}

/// Takes stdin from this process, so that children do not inherit it.
pub fn take_stdin() -> Result<File> {
    let this = Path::new("this process");
    let stdin = io::stdin().as_fd().try_clone_to_owned().context("keep the stdin of", this)?;
    rustix::stdio::dup2_stdin(null()?).context("replace the stdin of", this)?;
    Ok(File::from(stdin))
}

/// Opens /dev/null for reading and writing.
pub fn null() -> Result<File> {
    let path = Path::new("/dev/null");
    File::options().read(true).write(true).open(path).context("open", path)
}

/// Starts a turn. Inner error: reason why the command can't start, with the program or directory.
pub fn spawn(spec: &TurnSpec) -> Result<Result<Child, String>> {
    let Some((program, arguments)) = spec.argv.split_first() else {
        return Ok(Err("the command is empty".to_owned()));
    };
    let stdin = match &spec.stdin {
        Stdin::Null => Stdio::null(),
        Stdin::File(cap) => cap.open_file()?.ok_or_else(|| Error::gone("open", cap))?.0.into(),
        Stdin::Pipe(cap) => {
            let end = cap.open_pipe(OFlags::RDONLY)?.context("open", cap)?;
            // The open must not wait for a writer, but the command must wait for its input.
            rustix::fs::fcntl_setfl(&end, OFlags::empty()).context("open", cap)?;
            end.into()
        }
    };
    let mut leader = spec.leader.create()?;
    let place = spec.leader.id_of_root()?.to_string();
    let head = format!("{}\n{place}\n", host::boot_id());
    leader.write_all(head.as_bytes()).context("write", &spec.leader)?;
    let mut command = Command::new(program);
    command.args(arguments).current_dir(&spec.workdir);
    command.env_clear().envs(spec.env.iter().map(|(name, value)| (name, value)));
    command.env(spec.mark.name, &spec.mark.id).env(PLACE, place);
    command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    // In this order, a child whose parent is killed either ends or has recorded itself as leader.
    tie(&mut command, Signal::KILL);
    in_child(&mut command, move || write_leader(&leader));
    restore_limits(&mut command);
    match command.spawn() {
        Ok(child) => Ok(Ok(child)),
        Err(error) => spawn_failure(spec, error).map(Err),
    }
}

/// Sets a command's limit of open files to the limit at the start of this process, because programs
/// that use `select` fail with more than 1,024 open files.
pub fn restore_limits(command: &mut Command) {
    if let Some(found) = OPEN_FILES.get() {
        in_child(command, || setrlimit(Resource::Nofile, *found));
    }
}

/// Makes the kernel send a signal to a command when this process ends for any reason.
pub fn tie(command: &mut Command, signal: Signal) {
    let parent = rustix::process::getpid();
    in_child(command, move || {
        rustix::process::set_parent_process_death_signal(Some(signal))?;
        // The parent may have ended before the child requested the signal.
        if rustix::process::getppid() == Some(parent) { Ok(()) } else { Err(Errno::SRCH) }
    });
}

/// Makes `act` run in the child before exec. `act` may only make async-signal-safe system calls on
/// its own stack, and must allocate nothing.
fn in_child(command: &mut Command, act: impl Fn() -> rustix::io::Result<()> + Send + Sync + 'static) {
    // SAFETY: the closures in this file make only async-signal-safe calls and allocate nothing.
    #[expect(unsafe_code, reason = "the standard library can't know what the closure does")]
    unsafe {
        command.pre_exec(move || Ok(act()?))
    };
}

/// Records this child as leader of the turn's process group. Runs in the child before exec.
fn write_leader(leader: &File) -> rustix::io::Result<()> {
    let stat = rustix::fs::open(c"/proc/self/stat", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut line = [0; 2048];
    let length = rustix::io::read(&stat, &mut line)?;
    let written = rustix::io::write(leader, &line[..length])?;
    if written == length { Ok(()) } else { Err(Errno::NOSPC) }
}

/// Returns the reason for which a command can't start, or the error if this process has failed. The
/// child records itself as group leader after it has changed the directory and before exec, so the
/// record tells if the directory or the program is at fault.
fn spawn_failure(spec: &TurnSpec, error: io::Error) -> Result<String> {
    let name = spec.argv.first().map(Path::new).unwrap_or(Path::new(""));
    let failed = |source| Error::Io { action: "start a turn in", path: spec.workdir.clone(), source };
    if is_machine_fault(&error) {
        return Err(failed(error));
    }
    if error.raw_os_error().is_none() || leader(&spec.leader)?.is_some() {
        let path = spec.env.iter().find(|(name, _)| name == "PATH").map(|(_, path)| path.as_os_str());
        let fault = program::fault(&spec.argv, &spec.workdir, path).map(|why| format!(": {why}"));
        return Ok(format!("program {}: {}{}", name.display(), describe(&error), fault.unwrap_or_default()));
    }
    match rustix::fs::access(spec.workdir.join("."), Access::EXEC_OK) {
        Err(errno) => Ok(format!("directory {}: {}", spec.workdir.display(), describe(&errno.into()))),
        Ok(()) => Err(failed(error)),
    }
}

/// True if the state of the machine prevents the start of a command: the machine lacks resources,
/// can't read the disk, or the program is being written.
fn is_machine_fault(error: &io::Error) -> bool {
    is_shortage(error) || matches!(Errno::from_io_error(error), Some(Errno::IO | Errno::TXTBSY))
}
