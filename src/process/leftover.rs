//! Finds and ends leftover processes of a turn or task whose tick or supervisor died or hangs.

use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::{Pid, pidfd_send_signal};

use super::patience::poll;
use super::table::{self, Environment, ProcessStat, cannot_kill, process_path};
use super::{KILL_TIMEOUT, PLACE, Patience, ProcessMark, Signal, host};
use crate::cap_fs::CapPath;
use crate::error::{IoContext, Result};
use crate::model::policy::EndOrder;

/// Maximum number of processes with an open descriptor (pidfd), because a fork bomb starts more
/// processes than there are descriptors. Other processes are found after the first ones have ended.
const MAX_PINNED: usize = 256;

/// Processes of a run (or of a task or hook), as the last search found them. A process belongs to
/// the run if
///
/// 1. the process leads the recorded group: its pid, start time, boot and state directory are
///    those of the record; or
/// 2. the process is in that group while the leader exists, even as a zombie (until the leader is
///    reaped, no other group can have its number); or
/// 3. the process was started with the mark of this run (`DORMOUSE_RUN`) from this state directory
///    (`DORMOUSE_PLACE`), whatever its current group is; or
/// 4. the parent of the process belongs to the run.
///
/// A copy of a state directory has runs of equal ids, so a process that was started from another
/// directory belongs to no run of this directory.
///
/// Supervisors of background tasks that the run started, and their descendants, do not belong to
/// the run, and neither does this process. Zombies count as ended. A process is not found if it has
/// left the group, dropped the environment and lost its parents while no tick adopted orphans.
#[derive(Debug)]
pub struct LeftoverProcesses {
    mark: ProcessMark,
    place: String,
    leader: Option<ProcessStat>,
    pins: Vec<Pinned>,
    /// True if only the leader of the process group has received SIGTERM.
    leading: bool,
}

/// Signal that ended the processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndedBy {
    /// There was no process to end.
    Nothing,
    Term,
    Kill,
}

impl LeftoverProcesses {
    /// Searches for the processes. `leader_file` records the leader of the process group. Without a
    /// valid one, processes belong to the run only by their environment or parent.
    pub fn find(mark: &ProcessMark, leader_file: &CapPath) -> Result<LeftoverProcesses> {
        let (place, leader) = (leader_file.id_of_root()?.to_string(), leader(leader_file)?);
        let mut found =
            LeftoverProcesses { mark: mark.clone(), place, leader, pins: Vec::new(), leading: false };
        found.rescan()?;
        Ok(found)
    }

    pub fn is_gone(&self) -> bool {
        self.pins.is_empty()
    }

    /// Sends a signal to every found process that still exists. An error is returned after all
    /// processes were tried.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        self.pins.iter().map(|pin| pin.send(signal)).fold(Ok(()), Result::and)
    }

    /// Sends SIGTERM, waits for the grace period, and sends SIGKILL until no process is left.
    /// Processes that are started meanwhile to clean up get no signal in the grace period. Error
    /// when a process does not end.
    pub fn end(mut self, term_grace: Duration) -> Result<EndedBy> {
        self.ask(EndOrder::Group)?;
        self.end_by(&mut Patience::of(term_grace))
    }

    /// Sends SIGTERM to all processes, or only to the leader if it exists and `first` requires
    /// that. SIGCONT follows, because a stopped process would not handle SIGTERM.
    pub fn ask(&mut self, first: EndOrder) -> Result<()> {
        self.leading = first == EndOrder::Leader && self.has_leader();
        self.pins.iter().filter(|pin| !self.leading || self.is_leader(pin)).try_for_each(Pinned::ask)
    }

    fn has_leader(&self) -> bool {
        self.pins.iter().any(|pin| self.is_leader(pin))
    }

    fn is_leader(&self, pin: &Pinned) -> bool {
        self.leader.is_some_and(|leader| leader.pid == pin.pid)
    }

    /// Sends SIGTERM to all processes but the leader. The leader has already received SIGTERM, and
    /// many programs act differently on a second one.
    fn terminate_followers(&mut self) -> Result<()> {
        self.leading = false;
        self.rescan()?;
        self.pins.iter().filter(|pin| !self.is_leader(pin)).try_for_each(Pinned::ask)
    }

    /// Waits for the processes that got SIGTERM. The other processes get SIGTERM when the leader
    /// has ended or half of the time is over. After the time, the remaining processes get SIGKILL.
    pub fn end_by(mut self, patience: &mut Patience) -> Result<EndedBy> {
        if self.is_gone() {
            return Ok(EndedBy::Nothing);
        }
        while let Some(next) = patience.next() {
            self.wait(next)?;
            if self.is_gone() && self.have_all_gone()? {
                return Ok(EndedBy::Term);
            }
            if self.leading && (!self.has_leader() || patience.is_half_over()) {
                self.terminate_followers()?;
            }
        }
        if self.have_all_gone()? {
            return Ok(EndedBy::Term);
        }
        let mut patience = Patience::of(KILL_TIMEOUT);
        while let Some(next) = patience.next() {
            self.signal(Signal::KILL)?;
            self.wait(next)?;
            if self.have_all_gone()? {
                return Ok(EndedBy::Kill);
            }
        }
        Err(cannot_kill(self.pins.first().map_or(Pid::INIT, |pin| pin.pid), &self.mark.id))
    }

    /// Searches again. Returns true if all processes have ended, including processes that were
    /// started since the last search.
    fn have_all_gone(&mut self) -> Result<bool> {
        self.rescan()?;
        Ok(self.is_gone())
    }

    /// Waits until all processes of the last search have ended, or the time `until`. If only the
    /// leader has received SIGTERM, the end of the leader suffices.
    fn wait(&mut self, until: Instant) -> Result<()> {
        while let Some(first) = self.pins.first().map(|pin| pin.pid) {
            let mut fds: Vec<PollFd> =
                self.pins.iter().map(|pin| PollFd::new(&pin.handle, PollFlags::IN)).collect();
            poll(&mut fds, Some(until)).context("wait for", &process_path(first))?;
            let mut there = fds.iter().map(|fd| fd.revents().is_empty()).collect::<Vec<_>>().into_iter();
            self.pins.retain(|_| there.next().unwrap_or(true));
            if Instant::now() >= until || (self.leading && !self.has_leader()) {
                break;
            }
        }
        Ok(())
    }

    fn rescan(&mut self) -> Result<()> {
        self.pins.clear();
        for process in self.members()? {
            self.pins.extend(Pinned::of(&process)?);
            if self.pins.len() == MAX_PINNED {
                break;
            }
        }
        Ok(())
    }

    fn members(&self) -> Result<Vec<ProcessStat>> {
        let all = table::all()?;
        let leader = self.leader.filter(|leader| all.iter().any(|process| leader.is_same(process)));
        // A process that is older than the leader is not its descendant, so it is skipped.
        let oldest = self.leader.map_or(0, |leader| leader.start);
        let mut ours = HashSet::new();
        // The turn is at first the parent of its tasks' supervisors, which must survive the turn.
        let mut supervisors = HashSet::new();
        for process in all.iter().filter(|process| process.start >= oldest) {
            let environment = Environment::of(process.pid);
            let is_ours = environment.is(self.mark.name, &self.mark.id) && environment.is(PLACE, &self.place);
            if table::supervises(process.pid) {
                supervisors.insert(process.pid.as_raw_pid());
            } else if is_ours || leader.is_some_and(|leader| leader.pid.as_raw_pid() == process.group) {
                ours.insert(process.pid.as_raw_pid());
            }
        }
        with_descendants(&all, &mut ours, &supervisors);
        let this = rustix::process::getpid();
        let is_left = |process: &ProcessStat| {
            ours.contains(&process.pid.as_raw_pid()) && !process.zombie && process.pid != this
        };
        Ok(all.into_iter().filter(is_left).collect())
    }
}

/// Process with a handle that never refers to another process.
#[derive(Debug)]
struct Pinned {
    pid: Pid,
    handle: OwnedFd,
}

impl Pinned {
    /// Opens a handle; `None` if the process has ended. The process is read again after the
    /// opening, because another process may have received the pid before.
    fn of(process: &ProcessStat) -> Result<Option<Pinned>> {
        let pid = process.pid;
        match table::open(pid) {
            Ok(handle) => {
                let still = ProcessStat::read(pid).is_some_and(|now| now.is_same(process) && !now.zombie);
                Ok(still.then_some(Pinned { pid, handle }))
            }
            Err(Errno::SRCH) => Ok(None),
            Err(errno) => Err(errno).context("watch", &process_path(pid)),
        }
    }

    /// Sends SIGTERM, then SIGCONT, because a stopped process would not handle SIGTERM.
    fn ask(&self) -> Result<()> {
        self.send(Signal::TERM).and_then(|()| self.send(Signal::CONT))
    }

    fn send(&self, signal: Signal) -> Result<()> {
        match pidfd_send_signal(&self.handle, signal) {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(errno) => Err(errno).context("signal", &process_path(self.pid)),
        }
    }
}

/// Sends SIGTERM to one process. If it has ended, another process with its pid gets no signal.
pub fn ask(process: &ProcessStat) {
    if let Ok(Some(pin)) = Pinned::of(process) {
        // After an error, the process is killed at the end of the grace period.
        let _ = pin.ask();
    }
}

/// Adds all descendants of `pids`, except the processes in `own` and their descendants.
fn with_descendants(all: &[ProcessStat], pids: &mut HashSet<i32>, own: &HashSet<i32>) {
    let mut before = usize::MAX;
    while before != pids.len() {
        before = pids.len();
        for process in all {
            if pids.contains(&process.parent) && !own.contains(&process.pid.as_raw_pid()) {
                pids.insert(process.pid.as_raw_pid());
            }
        }
    }
}

/// Maximum size of the file that records the leader of a process group, in bytes.
const MAX_LEADER: u64 = 64 << 10;

/// Reads the leader of a turn's process group from the file in which the leader recorded itself.
/// `None` if the turn did not start, if the machine was rebooted since, or if the turn was started
/// from another state directory.
pub fn leader(cap: &CapPath) -> Result<Option<ProcessStat>> {
    let Some(text) = cap.read(MAX_LEADER)? else { return Ok(None) };
    // A line without a line end is incomplete: a number in it may be cut, so it is not read.
    let mut lines = text.split_inclusive(|byte| *byte == b'\n').filter_map(|line| line.strip_suffix(b"\n"));
    let mut next = || lines.next().unwrap_or_default();
    let (boot, place, line) = (next(), next(), next());
    let is_ours = boot == host::boot_id().as_bytes() && place == cap.id_of_root()?.to_string().as_bytes();
    Ok(ProcessStat::parse(line).filter(|_| is_ours))
}

#[cfg(test)]
mod tests {
    use crate::cap_fs::at;
    use std::fs;
    use std::io::Read;
    use std::os::unix::process::{CommandExt, ExitStatusExt};
    use std::process::{Child, Command, Stdio};

    use tempfile::TempDir;

    use super::super::RUN;
    use super::super::tests::{mark, run_id};
    use super::*;
    use crate::alone::{Alone, alone};

    /// Time limit that no operation of these tests reaches, even on a busy machine.
    const LONG: Duration = Duration::from_secs(600);
    const SHORT: Duration = Duration::from_millis(200);
    const TASK: &str = "task_01890a5dac96774bbcceb302099a8057";

    /// Child that leads a group like the leader of a turn. Dropping this value ends the group.
    struct Turn {
        child: Child,
        leader: CapPath,
        _dir: TempDir,
        _alone: Alone,
    }

    impl Turn {
        /// Starts the script and waits until the script reports that it is ready.
        fn start(run: Option<String>, script: &str) -> Turn {
            let alone = alone();
            let dir = tempfile::tempdir().unwrap();
            let mut command = Command::new("sh");
            command.args(["-c", script]).env_remove(RUN).process_group(0);
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
            let place = at(dir.path()).id_of_root().unwrap().to_string();
            command.envs(run.map(|run| (RUN, run))).env(PLACE, &place);
            let mut child = command.spawn().unwrap();
            child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
            let leader = at(dir.path()).join("leader");
            let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
            fs::write(leader.path(), format!("{}\n{place}\n{stat}", host::boot_id())).unwrap();
            Turn { child, leader, _dir: dir, _alone: alone }
        }

        fn found(&self) -> Vec<Pid> {
            LeftoverProcesses::find(&mark(), &self.leader).unwrap().pins.iter().map(|pin| pin.pid).collect()
        }

        fn pid(&self) -> Pid {
            Pid::from_child(&self.child)
        }

        fn end(&self, grace: Duration) -> EndedBy {
            LeftoverProcesses::find(&mark(), &self.leader).unwrap().end(grace).unwrap()
        }

        /// Changes the recorded start time, as if another process had received the pid.
        fn forge_start(&self, start: u64) {
            let text = fs::read_to_string(self.leader.path()).unwrap();
            let (front, fields) = text.rsplit_once(')').unwrap();
            let mut fields: Vec<String> = fields.split(' ').map(str::to_owned).collect();
            fields[20] = start.to_string();
            fs::write(self.leader.path(), format!("{front}){}", fields.join(" "))).unwrap();
        }
    }

    impl Drop for Turn {
        fn drop(&mut self) {
            let _ = rustix::process::kill_process_group(self.pid(), Signal::KILL);
            let _ = self.child.wait();
        }
    }

    #[test]
    fn the_recorded_leader_and_its_process_group_are_found() {
        let turn = Turn::start(None, "sleep 600 & echo; wait");
        assert_eq!(turn.found().len(), 2);
        assert!(turn.found().contains(&turn.pid()));
    }

    #[test]
    fn a_process_with_a_reused_pid_is_not_ended() {
        let mut turn = Turn::start(Some(format!("{}2", run_id())), "sleep 600 & echo; wait");
        for start in [1, u64::MAX] {
            turn.forge_start(start);
            assert_eq!(turn.found(), []);
            assert_eq!(turn.end(LONG), EndedBy::Nothing);
            assert_eq!(turn.child.try_wait().unwrap(), None);
        }
    }

    #[test]
    fn a_process_of_another_state_directory_is_not_found() {
        let turn = Turn::start(Some(run_id()), "sleep 600 & echo; wait");
        // A copied state directory has the same leader record, but has not started the turn.
        let copied = tempfile::tempdir().unwrap();
        let leader = at(copied.path()).join("leader");
        fs::copy(turn.leader.path(), leader.path()).unwrap();
        assert_eq!(super::leader(&leader).unwrap(), None);
        assert!(LeftoverProcesses::find(&mark(), &leader).unwrap().is_gone());
        assert_eq!(turn.found().len(), 2);
    }

    #[test]
    fn without_a_leader_file_processes_are_found_by_environment() {
        let turn = Turn::start(Some(run_id()), "sleep 600 & echo; wait");
        for text in ["", "garbled", "\n\n\n"] {
            fs::write(turn.leader.path(), text).unwrap();
            assert_eq!(turn.found().len(), 2);
        }
        fs::remove_file(turn.leader.path()).unwrap();
        assert_eq!(turn.found().len(), 2);
        let other = LeftoverProcesses::find(&ProcessMark::run(&run_id()[..4]), &turn.leader).unwrap();
        assert!(other.is_gone());
    }

    #[test]
    fn a_process_that_left_the_group_or_the_environment_is_found() {
        let turn = Turn::start(
            Some(run_id()),
            "setsid sh -c 'echo; exec sleep 600' & env -i /usr/bin/setsid -w /bin/sleep 600 & exec sleep 600",
        );
        // The first process reports that the script is ready, and the second one may start later.
        while turn.found().len() < 3 {
            std::thread::yield_now();
        }
        assert_eq!(turn.end(LONG), EndedBy::Term);
        assert_eq!(turn.found(), []);
    }

    #[test]
    fn a_supervisor_and_its_descendants_are_not_leftover_processes() {
        let dir = tempfile::tempdir().unwrap();
        let lock = dir.path().join(format!("{TASK}.lock"));
        let script = format!(
            "exec 8<&0; env -u DORMOUSE_RUN DORMOUSE_SUPERVISOR={TASK} \
             sh -c 'exec 9>{}; flock 9; setsid cat <&8 9>&- & echo; wait' & wait",
            lock.display()
        );
        let turn = Turn::start(Some(run_id()), &script);
        // The supervisor's child, which ends with its input, is in the turn's group until `setsid`
        // has run.
        while turn.found() != [turn.pid()] {
            std::thread::yield_now();
        }
    }

    #[test]
    fn the_variable_without_the_lock_does_not_mark_a_supervisor() {
        let dir = tempfile::tempdir().unwrap();
        let lock = dir.path().join(format!("{TASK}.lock"));
        for value in ["1", "", TASK] {
            // A supervisor holds the lock of its task, but here another process holds the lock.
            let script = format!(
                "exec 9>{lock}; DORMOUSE_SUPERVISOR='{value}' setsid sleep 600 & exec 9>&-; echo; wait",
                lock = lock.display()
            );
            let locked = fs::File::create(&lock).unwrap();
            rustix::fs::flock(&locked, rustix::fs::FlockOperation::LockExclusive).unwrap();
            let turn = Turn::start(Some(run_id()), &script);
            while turn.found().len() != 2 {
                std::thread::yield_now();
            }
            turn.end(LONG);
        }
    }

    #[test]
    fn a_zombie_counts_as_ended() {
        let turn = Turn::start(Some(run_id()), "echo");
        let leader = table::open(turn.pid()).unwrap();
        let mut fds = [PollFd::new(&leader, PollFlags::IN)];
        rustix::event::poll(&mut fds, None).unwrap();
        assert_eq!(turn.found(), []);
        assert_eq!(turn.end(LONG), EndedBy::Nothing);
    }

    #[test]
    fn sigterm_ends_even_a_stopped_process() {
        let mut turn = Turn::start(Some(run_id()), "echo; exec sleep 600");
        LeftoverProcesses::find(&mark(), &turn.leader).unwrap().signal(Signal::STOP).unwrap();
        assert_eq!(turn.end(LONG), EndedBy::Term);
        assert_eq!(turn.child.wait().unwrap().signal(), Some(Signal::TERM.as_raw()));
    }

    #[test]
    fn a_process_that_ignores_sigterm_is_killed() {
        let mut turn = Turn::start(Some(run_id()), "trap '' TERM; sleep 600 & echo; while :; do wait; done");
        assert_eq!(turn.end(SHORT), EndedBy::Kill);
        assert_eq!(turn.found(), []);
        assert_eq!(turn.child.wait().unwrap().signal(), Some(Signal::KILL.as_raw()));
    }

    #[test]
    fn a_process_gets_time_to_clean_up_after_sigterm() {
        let mut turn =
            Turn::start(Some(run_id()), "trap 'sleep 0.2; exit 7' TERM; echo; while :; do sleep 0.1; done");
        assert_eq!(turn.end(LONG), EndedBy::Term);
        assert_eq!(turn.child.wait().unwrap().code(), Some(7));
    }
}
