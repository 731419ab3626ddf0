//! Runs the command of one turn until none of its processes is left.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions, getpid, pidfd_send_signal, set_child_subreaper};

pub use super::output::Captured;

use super::leftover;
use super::output::OutputLog;
use super::patience::{is_past, poll};
use super::signals::Signals;
use super::spawn::spawn;
use super::table::{self, cannot_kill, process_path};
use super::{KILL_TIMEOUT, Patience, ProcessMark, Signal};
use crate::cap_fs::CapPath;
use crate::error::{IoContext, Result};
use crate::model::policy::EndOrder;
use crate::model::run::Exit;

/// Grace period for processes that are left when the first process of the turn, the group leader,
/// has ended by itself. The next step waits, so the time only suffices to remove a temporary file.
const LEFTOVER_GRACE: Duration = Duration::from_millis(500);
/// Maximum number of reads from the pipes of a turn that has ended. No pipe holds more, so bytes
/// after these reads were written after the end.
const DRAIN_READS: usize = 64;
const BUFFER: usize = 64 * 1024;
/// Maximum number of processes that one poll waits for, because a fork bomb starts more processes
/// than there are descriptors.
const MAX_WATCHED: usize = 64;

/// Command of a turn, and the conditions under which it runs.
pub struct TurnSpec {
    /// Program and arguments. The program is looked up in the PATH of `env`, or, if it contains a
    /// slash, relative to `workdir`.
    pub argv: Vec<OsString>,
    pub workdir: PathBuf,
    /// Complete environment of the turn, except the variables that identify its processes.
    pub env: Vec<(OsString, OsString)>,
    pub mark: ProcessMark,
    pub stdin: Stdin,
    /// Log file of stdout. Without output the file is not created.
    pub stdout: CapPath,
    pub stderr: CapPath,
    /// File that records the leader of the process group, so that leftover processes can be found.
    pub leader: CapPath,
    /// Creates a listener for each of stdout and stderr, which receives the output immediately.
    pub listener: Option<fn() -> ChunkListener>,
    /// Limit of each log, in bytes.
    pub max_output: u64,
    pub timeout: Option<Duration>,
    /// Time between SIGTERM and SIGKILL.
    pub kill_grace: Duration,
    /// Processes that receive SIGTERM first: all, or only the leader of the process group.
    pub first: EndOrder,
}

/// Monitor that decides whether a turn is ended early.
pub trait Monitor {
    /// Returns the pause between two calls of `ask`; `None` for only one call, at the start.
    fn pause(&self) -> Option<Duration> {
        None
    }

    /// True if the turn must end.
    fn ask(&mut self) -> bool;

    /// True if the turn must end after its timeout. If not, `late` is called again after the pause.
    fn late(&mut self) -> bool {
        true
    }

    /// Called when this process has received a signal, before the turn is ended because of that.
    fn signalled(&mut self, _signal: i32) {}
}

/// Monitor that never ends a turn.
pub struct NoMonitor;

impl Monitor for NoMonitor {
    fn ask(&mut self) -> bool {
        false
    }
}

#[derive(Debug, Clone)]
pub enum Stdin {
    Null,
    File(CapPath),
    /// Named pipe whose other end is already open.
    Pipe(CapPath),
}

/// Result of a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnResult {
    pub exit: Exit,
    pub timed_out: bool,
    /// Signal that this process received before all processes of the turn had ended.
    pub cancelled_by: Option<i32>,
    /// True if the leader of the process group ended before it was told to end.
    pub by_itself: bool,
    /// Time from the start of the turn until none of its processes was left.
    pub duration: Duration,
    pub stdout: Captured,
    pub stderr: Captured,
}

impl TurnResult {
    /// Errors because of which a part of the output is not in its log.
    pub fn faults(&self) -> impl Iterator<Item = &String> {
        [&self.stdout.fault, &self.stderr.fault].into_iter().flatten()
    }

    /// Returns the result of a turn whose command did not start.
    pub fn not_started(error: String, cancelled_by: Option<i32>, duration: Duration) -> TurnResult {
        TurnResult {
            exit: Exit::NotStarted { error },
            timed_out: false,
            cancelled_by,
            by_itself: false,
            duration,
            stdout: Captured::default(),
            stderr: Captured::default(),
        }
    }
}

/// Runs one turn and returns when none of its processes is left, except supervisors of background
/// tasks. Every other child of this process counts as part of the turn, so no second turn can run
/// at the same time. An error is a failure of this process. The turn has then ended, too, unless
/// the error reports a process that does not end.
pub fn run(spec: &TurnSpec, monitor: &mut dyn Monitor) -> Result<TurnResult> {
    let started = Instant::now();
    let signals = Signals::catch()?;
    let orphans = Subreaper::begin()?;
    let child = match spawn(spec)? {
        Ok(child) => child,
        Err(error) => return Ok(TurnResult::not_started(error, signals.release(), started.elapsed())),
    };
    let mut live = RunningTurn::new(child, spec, &signals)?;
    let is_cut = live.watch(spec.timeout.and_then(|timeout| started.checked_add(timeout)), monitor)?;
    let by_itself = live.leader_ended && !is_cut && live.cancelled_by.is_none();
    if let Some(signal) = live.cancelled_by {
        monitor.signalled(signal);
    }
    if is_cut || live.cancelled_by.is_some() {
        live.end(spec.kill_grace)?;
    } else if !live.left()?.is_empty() {
        live.end(spec.kill_grace.min(LEFTOVER_GRACE))?;
    }
    live.drain()?;
    let (timed_out, cancelled_by) = (live.timed_out, live.cancelled_by);
    let (exit, stdout, stderr) = live.close()?;
    drop(orphans);
    let cancelled_by = cancelled_by.or(signals.release());
    Ok(TurnResult { exit, timed_out, cancelled_by, by_itself, duration: started.elapsed(), stdout, stderr })
}

/// Makes descendants that lose their parent children of this process, until dropped. After the end
/// of the leader, every process of the turn is therefore a descendant of this process.
struct Subreaper;

impl Subreaper {
    fn begin() -> Result<Subreaper> {
        set_child_subreaper(Some(getpid())).context("adopt the orphans of", Path::new("this process"))?;
        Ok(Subreaper)
    }
}

impl Drop for Subreaper {
    fn drop(&mut self) {
        // The error is ignored: this call can't fail, because the call in `begin` has succeeded.
        let _ = set_child_subreaper(None);
    }
}

/// Callback that receives the output of one stream (stdout or stderr) in chunks.
pub type ChunkListener = Box<dyn FnMut(&[u8])>;

/// Running turn. The leader is reaped last: while it is a zombie, no other process can have its pid
/// and no other group its number, so signals to the group reach only the turn.
struct RunningTurn<'a> {
    spec: &'a TurnSpec,
    child: Child,
    group: Pid,
    leader: OwnedFd,
    leader_ended: bool,
    /// True if the turn is ended because its timeout has passed.
    timed_out: bool,
    stdout: StreamPump,
    stderr: StreamPump,
    signals: &'a Signals,
    cancelled_by: Option<i32>,
    buffer: Vec<u8>,
    closed: bool,
}

impl<'a> RunningTurn<'a> {
    fn new(mut child: Child, spec: &'a TurnSpec, signals: &'a Signals) -> Result<Self> {
        let group = Pid::from_child(&child);
        let leader = match table::open(group) {
            Ok(leader) => leader,
            Err(errno) => {
                let _ = rustix::process::kill_process_group(group, Signal::KILL);
                let _ = child.wait();
                return Err(errno).context("watch", &process_path(group));
            }
        };
        let pump = |pipe, log| StreamPump {
            pipe,
            log: OutputLog::new(log, spec.max_output),
            listener: spec.listener.map(|make| make()),
        };
        Ok(RunningTurn {
            stdout: pump(child.stdout.take().map(OwnedFd::from), &spec.stdout),
            stderr: pump(child.stderr.take().map(OwnedFd::from), &spec.stderr),
            spec,
            child,
            group,
            leader,
            leader_ended: false,
            timed_out: false,
            signals,
            cancelled_by: None,
            buffer: Vec::with_capacity(BUFFER),
            closed: false,
        })
    }

    /// Waits until the group leader has ended, or the timeout, the monitor or a signal requires its
    /// end. Returns true if the timeout or the monitor requires it.
    fn watch(&mut self, mut until: Option<Instant>, monitor: &mut dyn Monitor) -> Result<bool> {
        let after_pause = |monitor: &dyn Monitor| monitor.pause().map(|pause| Instant::now() + pause);
        let mut next_check = Some(Instant::now());
        loop {
            if is_past(next_check) {
                if monitor.ask() {
                    return Ok(true);
                }
                next_check = after_pause(monitor);
            }
            self.pump(&[], until.into_iter().chain(next_check).min())?;
            if self.leader_ended || self.cancelled_by.is_some() {
                return Ok(false);
            }
            if is_past(until) {
                self.timed_out = monitor.late();
                if self.timed_out {
                    return Ok(true);
                }
                until = after_pause(monitor);
            }
        }
    }

    /// Ends the whole turn: SIGTERM, the grace, SIGKILL. SIGTERM is sent to the leader first, or to
    /// the whole group at once, as `spec.first` requires. The rest of the group receives SIGTERM
    /// when the leader has ended or half of the grace period has passed; a process outside the
    /// group receives SIGTERM once it is a child of this process. Processes that these start to
    /// clean up are left alone until the grace period is over.
    fn end(&mut self, grace: Duration) -> Result<()> {
        let mut patience = Patience::of(grace);
        let mut leading = self.spec.first == EndOrder::Leader && !self.leader_ended;
        if leading {
            let _ = pidfd_send_signal(&self.leader, Signal::TERM);
            let _ = pidfd_send_signal(&self.leader, Signal::CONT);
        } else {
            self.signal_group(Signal::TERM);
            self.signal_group(Signal::CONT);
        }
        let mut terminated = Vec::new();
        while let Some(next) = patience.next() {
            let left = self.left()?;
            if self.leader_ended && left.is_empty() {
                return Ok(());
            }
            if leading && (self.leader_ended || patience.is_half_over()) {
                leading = false;
                self.terminate_followers()?;
            }
            if leading {
                self.pump(&[], Some(next))?;
                continue;
            }
            for orphan in &left {
                let is_in_group = rustix::process::getpgid(Some(*orphan)) == Ok(self.group);
                if !is_in_group && !terminated.contains(orphan) {
                    signal_child(*orphan, Signal::TERM);
                    signal_child(*orphan, Signal::CONT);
                    terminated.push(*orphan);
                }
            }
            self.pump(&handles(&left), Some(next))?;
        }
        self.kill()
    }

    /// Sends SIGTERM to the group without its leader. The leader has already received SIGTERM, and
    /// many programs act differently on a second one.
    fn terminate_followers(&self) -> Result<()> {
        for process in table::all()? {
            if process.group == self.group.as_raw_pid() && process.pid != self.group {
                leftover::ask(&process);
            }
        }
        Ok(())
    }

    /// Kills the processes of the turn by generations: the children of a killed process become
    /// children of this process, and are killed next.
    fn kill(&mut self) -> Result<()> {
        let mut patience = Patience::of(KILL_TIMEOUT);
        loop {
            self.signal_group(Signal::KILL);
            let left = self.left()?;
            if self.leader_ended && left.is_empty() {
                return Ok(());
            }
            let Some(next) = patience.next() else {
                return Err(cannot_kill(left.first().copied().unwrap_or(self.group), &self.spec.mark.id));
            };
            left.iter().for_each(|orphan| signal_child(*orphan, Signal::KILL));
            self.pump(&handles(&left), Some(next))?;
        }
    }

    /// Returns running children of this process without group leader and supervisors; reaps others.
    fn left(&self) -> Result<Vec<Pid>> {
        loop {
            let mut children = table::children()?;
            children.retain(|child| *child != self.group);
            let before = children.len();
            children.retain(|child| {
                matches!(rustix::process::waitpid(Some(*child), WaitOptions::NOHANG), Ok(None))
            });
            // The children of a child that has just ended are now children of this process, so the
            // list is read again.
            if children.len() == before {
                children.retain(|child| !table::supervises(*child));
                return Ok(children);
            }
        }
    }

    fn signal_group(&self, signal: Signal) {
        // An error is ignored, because `left` still lists children that the signal did not reach.
        let _ = rustix::process::kill_process_group(self.group, signal);
    }

    /// Waits for output, for a signal or for the end of a process, at most until `until`, and reads
    /// the output. Returns true after output or the end of a stream.
    fn pump(&mut self, others: &[OwnedFd], until: Option<Instant>) -> Result<bool> {
        let leader = Some(&self.leader).filter(|_| !self.leader_ended);
        let sources = [leader, self.stdout.pipe.as_ref(), self.stderr.pipe.as_ref()];
        let mut fds = vec![PollFd::new(self.signals, PollFlags::IN)];
        fds.extend(sources.into_iter().flatten().chain(others).map(|fd| PollFd::new(fd, PollFlags::IN)));
        poll(&mut fds, until).context("wait for", &process_path(self.group))?;
        let mut ready = fds.iter().map(|fd| !fd.revents().is_empty());
        let signalled = ready.next().unwrap_or(false);
        let [ended, stdout, stderr] = sources.map(|source| source.is_some() && ready.next().unwrap_or(false));
        self.leader_ended |= ended;
        if signalled {
            self.cancelled_by = self.cancelled_by.or(self.signals.caught());
        }
        for (stream, ready) in [(&mut self.stdout, stdout), (&mut self.stderr, stderr)] {
            if ready {
                stream.read(&mut self.buffer);
            }
        }
        Ok(stdout || stderr)
    }

    /// Reads the rest of the pipes. A supervisor may hold a pipe open and continue to write, so the
    /// number of reads is limited and the end of the pipes not awaited.
    fn drain(&mut self) -> Result<()> {
        let now = Some(Instant::now());
        for _ in 0..DRAIN_READS {
            let both_ended = self.stdout.pipe.is_none() && self.stderr.pipe.is_none();
            if both_ended || !self.pump(&[], now)? {
                break;
            }
        }
        Ok(())
    }

    /// Reaps the group leader. Returns its exit status, and the summaries of stdout and stderr.
    fn close(mut self) -> Result<(Exit, Captured, Captured)> {
        let status = self.child.wait().context("see the end of", &process_path(self.group))?;
        self.closed = true;
        let exit = match (status.code(), status.signal()) {
            (Some(code), _) => Exit::Code { code },
            (None, Some(signal)) => Exit::Signal { signal },
            (None, None) => Exit::Unknown {},
        };
        Ok((exit, self.stdout.log.finish(), self.stderr.log.finish()))
    }
}

/// Kills the turn, and waits for nothing, if an error has prevented the regular end of the turn.
impl Drop for RunningTurn<'_> {
    fn drop(&mut self) {
        if !self.closed {
            self.signal_group(Signal::KILL);
            for orphan in self.left().unwrap_or_default() {
                signal_child(orphan, Signal::KILL);
            }
        }
    }
}

struct StreamPump {
    pipe: Option<OwnedFd>,
    log: OutputLog,
    listener: Option<ChunkListener>,
}

impl StreamPump {
    /// Reads output into the log. Blocks until the pipe has output or is closed.
    fn read(&mut self, buffer: &mut Vec<u8>) {
        let Some(pipe) = &self.pipe else { return };
        buffer.clear();
        match rustix::io::read(pipe, spare_capacity(buffer)) {
            Ok(0) => self.pipe = None,
            Ok(_) => {
                self.listener.iter_mut().for_each(|listener| listener(buffer));
                self.log.take(buffer);
            }
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(errno) => {
                self.pipe = None;
                self.log.fail(errno);
            }
        }
    }
}

/// Signals a child by its pid. An unreaped child's pid can't belong to another process.
fn signal_child(child: Pid, signal: Signal) {
    let _ = rustix::process::kill_process(child, signal);
}

fn handles(children: &[Pid]) -> Vec<OwnedFd> {
    children.iter().take(MAX_WATCHED).filter_map(|child| table::open(*child).ok()).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::process::{Command, Stdio};

    use tempfile::TempDir;

    use crate::cap_fs::at;

    use super::super::table::ProcessStat;
    use super::super::tests::{mark, run_id};
    use super::super::{PLACE, RUN, leftover::LeftoverProcesses, signals};
    use super::*;
    use crate::alone::alone;

    /// Time limit that no operation of these tests reaches, even on a busy machine.
    const LONG: Duration = Duration::from_secs(600);

    fn spec(dir: &Path, argv: &[&str]) -> TurnSpec {
        TurnSpec {
            argv: argv.iter().map(OsString::from).collect(),
            workdir: dir.to_owned(),
            env: vec![("PATH".into(), "/usr/bin:/bin".into())],
            mark: mark(),
            stdin: Stdin::Null,
            stdout: at(dir).join("stdout.log"),
            stderr: at(dir).join("stderr.log"),
            leader: at(dir).join("leader"),
            listener: None,
            max_output: 1 << 20,
            timeout: Some(LONG),
            kill_grace: LONG,
            first: EndOrder::Group,
        }
    }

    fn sh(dir: &TempDir, script: &str) -> TurnSpec {
        spec(dir.path(), &["sh", "-c", script])
    }

    fn tempdir() -> TempDir {
        tempfile::tempdir().unwrap()
    }

    /// Runs a turn and checks that none of its processes is left.
    fn ended(spec: &TurnSpec) -> TurnResult {
        let _alone = alone();
        let ended = run(spec, &mut NoMonitor).unwrap();
        assert_eq!(table::children().unwrap(), Vec::<Pid>::new());
        ended
    }

    fn code(code: i32) -> Exit {
        Exit::Code { code }
    }

    fn signal(signal: Signal) -> Exit {
        Exit::Signal { signal: signal.as_raw() }
    }

    fn error(ended: &TurnResult) -> &str {
        match &ended.exit {
            Exit::NotStarted { error } => error,
            other => panic!("{other}"),
        }
    }

    fn pid_in(path: &Path) -> Pid {
        Pid::from_raw(fs::read_to_string(path).unwrap().trim().parse().unwrap()).unwrap()
    }

    #[test]
    fn a_turn_has_its_streams_environment_and_directory() {
        let dir = tempdir();
        fs::write(dir.path().join("in"), "hello\n").unwrap();
        let mut spec = sh(&dir, "cat; pwd; env | sort | grep -v '^_=\\|^PWD=\\|SHLVL'; echo oops >&2");
        let stdin = at(dir.path()).join("in");
        spec.stdin = Stdin::File(stdin);
        let ended = ended(&spec);
        let here = dir.path().canonicalize().unwrap();
        let place = spec.leader.id_of_root().unwrap();
        let said =
            format!("hello\n{}\n{PLACE}={place}\n{RUN}={}\nPATH=/usr/bin:/bin\n", here.display(), run_id());
        assert_eq!(fs::read_to_string(spec.stdout.path()).unwrap(), said);
        assert_eq!(fs::read_to_string(spec.stderr.path()).unwrap(), "oops\n");
        assert_eq!((ended.exit, ended.timed_out, ended.cancelled_by), (code(0), false, None));
        assert_eq!((ended.stdout.bytes, ended.stdout.left_out), (said.len() as u64, 0));
        assert_eq!(ended.stdout.last_line.as_deref(), Some("PATH=/usr/bin:/bin"));
        assert_eq!(ended.stderr.last_line.as_deref(), Some("oops"));
    }

    #[test]
    fn the_exit_status_or_signal_of_a_turn_is_reported() {
        let dir = tempdir();
        assert_eq!(ended(&spec(dir.path(), &["true"])).exit, code(0));
        assert_eq!(ended(&sh(&dir, "exit 75")).exit, code(75));
        assert_eq!(ended(&sh(&dir, "kill -9 $$")).exit, signal(Signal::KILL));
        assert_eq!(ended(&sh(&dir, "kill -PIPE $$")).exit, signal(Signal::PIPE));
    }

    #[test]
    fn a_command_that_cannot_be_started_is_an_outcome() {
        let dir = tempdir();
        let here = dir.path();
        fs::write(here.join("plain"), "").unwrap();
        fs::write(here.join("lost"), "#!/no/such/interpreter\n").unwrap();
        fs::set_permissions(here.join("lost"), fs::Permissions::from_mode(0o755)).unwrap();
        let not_found = "no such file or directory";
        let tell = |argv: &[&str]| error(&ended(&spec(here, argv))).to_owned();
        let lost = format!("program no-such-program: {not_found}: no-such-program is not in the PATH");
        assert_eq!(tell(&["no-such-program"]), lost);
        let cure = "./plain is not executable: `chmod +x ./plain`";
        assert_eq!(tell(&["./plain"]), format!("program ./plain: permission denied: {cure}"));
        let cure =
            "./lost asks for /no/such/interpreter, which is not there: install it, or change its first line";
        assert_eq!(tell(&["./lost"]), format!("program ./lost: {not_found}: {cure}"));
        assert_eq!(tell(&[]), "the command is empty");
        assert!(tell(&["a\0b"]).starts_with("program a"));
        let mut spec = spec(here, &["true"]);
        spec.workdir = here.join("gone");
        assert_eq!(error(&ended(&spec)), format!("directory {}/gone: {not_found}", here.display()));
        spec.workdir = here.join("plain");
        assert_eq!(error(&ended(&spec)), format!("directory {}/plain: not a directory", here.display()));
    }

    #[test]
    fn a_program_is_looked_up_in_the_path_of_the_turn() {
        let dir = tempdir();
        fs::create_dir(dir.path().join("bin")).unwrap();
        let program = dir.path().join("bin/only-here");
        fs::write(&program, "#!/bin/sh\nexit 3\n").unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let mut spec = spec(dir.path(), &["only-here"]);
        spec.env = vec![("PATH".into(), dir.path().join("bin").into())];
        assert_eq!(ended(&spec).exit, code(3));
        spec.argv = vec!["./bin/only-here".into()];
        assert_eq!(ended(&spec).exit, code(3));
    }

    #[test]
    fn files_that_cannot_be_used_are_errors_with_their_path() {
        let _alone = alone();
        let dir = tempdir();
        let gone = at(dir.path()).join("gone/file");
        for is_leader in [true, false] {
            let mut spec = spec(dir.path(), &["true"]);
            if is_leader {
                spec.leader = gone.clone();
            } else {
                spec.stdin = Stdin::File(gone.clone());
            }
            assert_eq!(run(&spec, &mut NoMonitor).unwrap_err().path(), Some(gone.path()));
        }
        let logged = TurnSpec { stdout: gone.clone(), ..spec(dir.path(), &["sh", "-c", "echo out; exit 4"]) };
        let ended = ended(&logged);
        assert_eq!((ended.exit, ended.stdout.last_line.as_deref()), (code(4), Some("out")));
        assert!(ended.stdout.fault.unwrap().contains("gone/file"));
    }

    #[test]
    fn a_log_that_cannot_be_written_does_not_end_the_turn() {
        let _alone = alone();
        let dir = tempdir();
        let us = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--ignored", "process::turn::tests::helper_has_no_room_for_a_log"])
            .env("TURN_IN", dir.path())
            .output()
            .unwrap();
        assert!(us.status.success(), "{us:?}");
    }

    #[test]
    #[ignore = "is run by the test above, in a process of its own"]
    fn helper_has_no_room_for_a_log() {
        let Some(dir) = std::env::var_os("TURN_IN") else { return };
        let limit = rustix::process::Rlimit { current: Some(4096), maximum: Some(4096) };
        rustix::process::setrlimit(rustix::process::Resource::Fsize, limit).unwrap();
        // SAFETY: no other code of this process depends on the handling of SIGXFSZ.
        unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
        let spec = spec(Path::new(&dir), &["sh", "-c", "seq 5000; echo last; exit 3"]);
        let ended = ended(&spec);
        assert_eq!((ended.exit, ended.by_itself), (code(3), true));
        assert_eq!((ended.stdout.bytes, ended.stdout.last_line.as_deref()), (23_898, Some("last")));
        let fault = ended.stdout.fault.unwrap();
        assert!(fault.contains("stdout.log") && fault.contains("large"), "{fault}");
    }

    #[test]
    fn the_leader_file_is_written_before_the_command_starts() {
        let dir = tempdir();
        let spec = sh(&dir, "cat leader; exec cat /proc/self/stat");
        ended(&spec);
        let said = fs::read_to_string(spec.stdout.path()).unwrap();
        let lines: Vec<&str> = said.lines().collect();
        let recorded = ProcessStat::parse(lines[2].as_bytes()).unwrap();
        let place = spec.leader.id_of_root().unwrap().to_string();
        assert_eq!(lines[..2], [super::super::host::boot_id(), place]);
        assert_eq!(recorded.group, recorded.pid.as_raw_pid());
        assert!(recorded.is_same(&ProcessStat::parse(lines[3].as_bytes()).unwrap()));
        assert_eq!(leftover::leader(&spec.leader).unwrap(), Some(recorded));
    }

    #[test]
    fn a_leader_file_that_is_cut_or_from_another_boot_is_ignored() {
        let dir = tempdir();
        let path = at(dir.path()).join("leader");
        assert_eq!(leftover::leader(&path).unwrap(), None);
        let stat = fs::read_to_string("/proc/self/stat").unwrap();
        let boot = super::super::host::boot_id();
        let place = path.id_of_root().unwrap();
        let cut = &stat[..stat.len() - 1];
        for text in [
            String::new(),
            stat.clone(),
            format!("x\n{place}\n{stat}"),
            format!("{boot}\n1:1\n{stat}"),
            format!("{boot}\n{stat}"),
            format!("{boot}\n{place}\n{cut}"),
            format!("{boot}\n{place}\n"),
        ] {
            fs::write(path.path(), &text).unwrap();
            assert_eq!(leftover::leader(&path).unwrap(), None, "{text}");
        }
        fs::write(path.path(), format!("{boot}\n{place}\n{stat}")).unwrap();
        assert!(leftover::leader(&path).unwrap().is_some());
    }

    #[test]
    fn a_turn_gets_sigterm_after_its_timeout() {
        let dir = tempdir();
        let mut spec = sh(&dir, "trap 'echo bye; exit 9' TERM; echo up; while :; do sleep 600 & wait; done");
        spec.timeout = Some(Duration::from_millis(300));
        let ended = ended(&spec);
        assert!(ended.timed_out);
        assert!(ended.duration >= Duration::from_millis(300));
        // On a busy machine, the turn may be ended before the script has installed the trap.
        if ended.stdout.last_line.is_some() {
            assert_eq!((ended.exit, ended.stdout.last_line.as_deref()), (code(9), Some("bye")));
        }
    }

    #[test]
    fn a_turn_that_ignores_sigterm_is_killed() {
        let dir = tempdir();
        for script in ["trap '' TERM; sleep 600; sleep 600", "kill -STOP $$; exec sleep 600"] {
            let mut spec = sh(&dir, script);
            spec.timeout = Some(Duration::from_millis(100));
            spec.kill_grace = Duration::from_millis(200);
            let ended = ended(&spec);
            assert!(ended.timed_out);
            assert!(matches!(ended.exit, Exit::Signal { .. }), "{script}: {}", ended.exit);
        }
    }

    #[test]
    fn a_turn_that_closes_its_output_streams_continues() {
        let dir = tempdir();
        let ended = ended(&sh(&dir, "exec >&- 2>&-; sleep 0.1; exit 4"));
        assert_eq!((ended.exit, ended.stdout.bytes), (code(4), 0));
    }

    #[test]
    fn a_signal_to_dormouse_ends_the_turn() {
        let dir = tempdir();
        let ignored = signals::ignored();
        for (name, told) in [("TERM", Signal::TERM), ("INT", Signal::INT), ("HUP", Signal::HUP)] {
            let told = told.as_raw();
            // A script starts background jobs with some signals ignored, which then end no turn.
            let (then, cancelled_by, exit) = if signals::is_in(ignored, told) {
                ("exit 3", None, code(3))
            } else {
                ("exec sleep 600", Some(told), signal(Signal::TERM))
            };
            let ended = ended(&sh(&dir, &format!("kill -{name} $PPID; {then}")));
            assert_eq!((ended.cancelled_by, ended.timed_out, ended.exit), (cancelled_by, false, exit));
        }
    }

    #[test]
    fn background_processes_end_with_the_turn() {
        let dir = tempdir();
        for script in [
            "sleep 600 & exit 5",
            "(trap '' TERM; sleep 600; sleep 600) & exit 5",
            "(kill -STOP $(exec sh -c 'echo $PPID'); sleep 600) & exit 5",
            "setsid sleep 600 & exit 5",
            "setsid sh -c 'sleep 600 & sleep 600; :' & exit 5",
            "env -i /usr/bin/setsid -f /bin/sleep 600; exit 5",
            "setsid sh -c \"trap '' TERM; env -i setsid -f sleep 600; sleep 600; :\" & sleep 0.1; exit 5",
            "DORMOUSE_SUPERVISOR=1 setsid -f sleep 600; exit 5",
            "exec 9>task_01890a5dac96774bbcceb302099a8057.lock; \
             DORMOUSE_SUPERVISOR=task_01890a5dac96774bbcceb302099a8057 setsid -f sleep 600; exit 5",
        ] {
            let ended = ended(&sh(&dir, script));
            assert_eq!((ended.exit, ended.timed_out), (code(5), false), "{script}");
        }
    }

    #[test]
    fn a_chain_of_short_lived_processes_is_ended() {
        let dir = tempdir();
        let script = dir.path().join("again");
        fs::write(&script, "#!/bin/sh\ntrap '' TERM\nsetsid ./again &\n").unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(ended(&sh(&dir, "./again; exit 6")).exit, code(6));
    }

    #[test]
    fn a_supervisor_outlives_the_turn() {
        let _alone = alone();
        let dir = tempdir();
        let task = "task_01890a5dac96774bbcceb302099a8057";
        let script = format!(
            "exec 9>{task}.lock; DORMOUSE_SUPERVISOR={task} setsid -f sh -c 'flock 9; echo $$ >pid.new; \
             mv pid.new pid; yes'; exec 9>&-; until test -e pid; do :; done; sleep 600 & exit 0"
        );
        let ended = run(&sh(&dir, &script), &mut NoMonitor).unwrap();
        let supervisor = pid_in(&dir.path().join("pid"));
        let left = table::children().unwrap();
        rustix::process::kill_process_group(supervisor, Signal::KILL).unwrap();
        rustix::process::waitpid(Some(supervisor), WaitOptions::empty()).unwrap();
        assert_eq!(left, [supervisor]);
        assert_eq!(ended.exit, code(0));
    }

    #[test]
    fn the_log_of_a_turn_keeps_the_head_and_tail_of_long_output() {
        let dir = tempdir();
        let mut spec = sh(&dir, "seq 1 200000; echo done");
        spec.max_output = 1000;
        let ended = ended(&spec);
        let text = fs::read_to_string(spec.stdout.path()).unwrap();
        let all: String = (1..=200_000).map(|n| format!("{n}\n")).collect::<String>() + "done\n";
        let left_out = all.len() as u64 - 1000;
        let note = format!("\n[dormouse: {left_out} bytes left out]\n");
        assert_eq!(text, format!("{}{note}{}", &all[..500], &all[all.len() - 500..]));
        assert_eq!((ended.stdout.bytes, ended.stdout.left_out), (all.len() as u64, left_out));
        assert_eq!(ended.stdout.last_line.as_deref(), Some("done"));
    }

    #[test]
    fn the_leader_of_a_turn_dies_if_dormouse_is_killed() {
        let _alone = alone();
        let dir = tempdir();
        let mut us = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--ignored", "process::turn::tests::helper_runs_a_turn"])
            .env("TURN_IN", dir.path())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let ready = dir.path().join("ready");
        while !ready.exists() {
            assert!(us.try_wait().unwrap().is_none());
            std::thread::yield_now();
        }
        let leader = leftover::leader(&at(dir.path()).join("leader")).unwrap().unwrap();
        let handle = table::open(leader.pid).unwrap();
        let run = &ProcessMark::run(format!("run_{}", us.id()));
        us.kill().unwrap();
        us.wait().unwrap();
        let mut fds = [PollFd::new(&handle, PollFlags::IN)];
        assert_eq!(rustix::event::poll(&mut fds, None), Ok(1));
        // The leader's children run on until `LeftoverProcesses` finds and ends them.
        let find = || LeftoverProcesses::find(run, &at(dir.path()).join("leader")).unwrap();
        assert!(!find().is_gone());
        find().end(Duration::from_millis(100)).unwrap();
        assert!(find().is_gone());
    }

    #[test]
    #[ignore = "is run by the test above, in a process of its own"]
    fn helper_runs_a_turn() {
        let Some(dir) = std::env::var_os("TURN_IN") else { return };
        let spec = spec(Path::new(&dir), &["sh", "-c", "trap '' TERM; (>ready; sleep 600); sleep 600"]);
        let _ = run(&spec, &mut NoMonitor);
    }
}
