//! World of the stress test: its disk, a git repository with a clone, agents, and all processes.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, RwLock};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tempfile::TempDir;

use super::base::{Base, STORM, WEST};
use super::history::{Ended, Handicap, History, What};
use crate::checker::{self, Found};
use crate::harness::dormouse;
use crate::setup;

/// Agents that exist from the beginning.
pub const AGENTS: [&str; 4] = ["ada", "bob", "cy", "dan"];

/// Agent that is moved between two stores, and that may never be active in both.
pub const TRAVELLER: &str = "eli";

/// Maximum duration of a command in seconds, even on a busy machine.
const LONGEST_S: i64 = 90;

const SETTINGS: &str = "\n[scheduler]\nmax_running = 4\n";

const POLICY: &str = r#"
[recovery]
strategy = "jittered"
base = "20ms"
max_delay = "100ms"
max_attempts = 5
max_interruptions = 1000
max_deferrals = 1000
[timeouts]
suspend = "2s"
resources = "10s"
"#;

/// Temporary directory of the stress test, with its disk, and state that its threads share.
pub struct World {
    root: TempDir,
    /// The program, or a variant without one of its safeguards, which `unguarded.sh` builds.
    program: PathBuf,
    pub history: History,
    /// Database with the records; `None` if the records are files.
    pub base: Option<Base>,
    /// True if the stress test has its own disk, which it can fill.
    pub has_disk: bool,
    pub is_over: AtomicBool,
    /// Read-locked by threads that write files themselves. The thread that fills the disk locks it
    /// for writing.
    pub room: RwLock<()>,
    /// Maximum memory of a process of the program, in KiB.
    pub memory: AtomicUsize,
    /// Commands in a copy of the state directory that have ended a process of the original.
    pub disturbed: Mutex<Vec<String>>,
    /// Number of copied runs that commands in a copy of the state directory were called to end.
    pub copied: AtomicUsize,
}

impl World {
    /// Mounts the disk for the calling thread and for the threads and processes that it starts. No
    /// other process sees the disk, which is gone once they have ended.
    pub fn new(base: Option<Base>) -> World {
        let root = tempfile::Builder::new().prefix("dormouse-storm-").tempdir().unwrap();
        for dir in ["disk", "home", "out"] {
            fs::create_dir(root.path().join(dir)).unwrap();
        }
        let has_disk = mount(&root.path().join("disk"), "2g");
        let turn = include_str!("turn.sh");
        fs::write(root.path().join("turn.sh"), turn).unwrap();
        let world = World {
            history: History::new(&root.path().join("out/history")),
            root,
            base,
            program: std::env::var_os("DORMOUSE_STORM_PROGRAM").map_or_else(dormouse, PathBuf::from),
            has_disk,
            is_over: AtomicBool::new(false),
            room: RwLock::new(()),
            memory: AtomicUsize::new(0),
            disturbed: Mutex::default(),
            copied: AtomicUsize::new(0),
        };
        fs::create_dir(world.project()).unwrap();
        world.set_up();
        world
    }

    fn set_up(&self) {
        let program = self.program.to_str().unwrap();
        self.must("git", &self.project(), &["init", "-q", "-b", "main"]);
        self.init(&self.project());
        append(&self.store().join("dormouse.toml"), SETTINGS);
        let policy = self.root().join("agent.toml");
        let turn = self.root().join("turn.sh");
        fs::write(&policy, format!("[turn]\ncommand = [\"sh\", {turn:?}]\ntimeout = \"30s\"\n{POLICY}"))
            .unwrap();
        for agent in AGENTS {
            self.must(program, &self.project(), &["create", agent, "--from", policy.to_str().unwrap()]);
            self.must(program, &self.project(), &["start", agent]);
        }
        if self.base.is_some() {
            fs::create_dir(self.clone()).unwrap();
            self.init(&self.clone());
            append(&self.clone().join(".dormouse/dormouse.toml"), SETTINGS);
        } else {
            self.clone_project();
        }
        for place in [self.away(), self.east(), self.west()] {
            fs::create_dir(&place).unwrap();
            self.init(&place);
        }
        let secret = self.out("secret").display().to_string();
        let words = ["create", TRAVELLER, "--from", policy.to_str().unwrap(), "--secret-file", &secret];
        self.must(program, &self.east(), &words);
        self.must(program, &self.east(), &["start", TRAVELLER]);
    }

    /// Creates a state directory in `place`. If the records are in a database, `place` becomes one
    /// machine that uses this database.
    fn init(&self, place: &Path) {
        let program = self.program.to_str().unwrap();
        self.must(program, place, &["init"]);
        if let Some((base, schema)) = self.schema(place) {
            let settings = place.join(".dormouse/dormouse.toml");
            let text = fs::read_to_string(&settings).unwrap();
            let url = base.url(schema);
            fs::write(&settings, text.replace("[store]\n", &format!("[store]\nurl = \"{url}\"\n"))).unwrap();
            self.must(program, place, &["init", &url]);
        }
    }

    fn clone_project(&self) {
        self.must("git", &self.project(), &["add", "-A"]);
        self.must("git", &self.project(), &["commit", "-q", "-m", "before the storm"]);
        self.must("git", self.root(), &["clone", "-q", "--bare", "disk/project", "disk/origin.git"]);
        self.must("git", &self.project(), &["remote", "add", "origin", "../origin.git"]);
        self.must("git", &self.project(), &["push", "-q", "-u", "origin", "main"]);
        self.must("git", self.root(), &["clone", "-q", "disk/origin.git", "disk/clone"]);
    }

    /// Returns the database schema with the records of `place`; `None` if its records are files.
    fn schema(&self, place: &Path) -> Option<(&Base, &'static str)> {
        let base = self.base.as_ref()?;
        let is_either = place == self.project() || place == self.clone();
        let schema = if is_either { Some(STORM) } else { (place == self.west()).then_some(WEST) };
        schema.map(|schema| (base, schema))
    }

    /// Reads the records of an agent in the store of `place`.
    pub fn look(&self, place: &Path, agent: &str) -> Found {
        match self.schema(place) {
            Some((base, schema)) => base.look(schema, agent, &self.out("look")),
            None => checker::look(&place.join(".dormouse/agents").join(agent)),
        }
    }

    /// Returns the number of pending messages of an agent.
    pub fn waiting(&self, place: &Path, agent: &str) -> usize {
        match self.schema(place) {
            Some((base, schema)) => base.waiting(schema, agent),
            None => setup::names(&place.join(".dormouse/agents").join(agent).join("inbox")).len(),
        }
    }

    /// Returns the id of one trigger of an agent, if the agent has any.
    pub fn trigger(&self, place: &Path, agent: &str) -> Option<String> {
        match self.schema(place) {
            Some((base, schema)) => base.trigger(schema, agent),
            None => setup::names(&place.join(".dormouse/agents").join(agent).join("triggers")).pop(),
        }
        .map(|name| name.trim_end_matches(".json").to_owned())
    }

    pub fn root(&self) -> &Path {
        self.root.path()
    }

    pub fn project(&self) -> PathBuf {
        self.disk().join("project")
    }

    /// Returns the second clone, in which agents only get messages. With a database: the directory
    /// of the second machine.
    pub fn clone(&self) -> PathBuf {
        self.disk().join("clone")
    }

    /// Returns the directory into which copies of agents are imported.
    pub fn away(&self) -> PathBuf {
        self.root().join("away")
    }

    /// Returns one of the two stores of the moved agent, which begins and ends in this one.
    pub fn east(&self) -> PathBuf {
        self.disk().join("east")
    }

    pub fn west(&self) -> PathBuf {
        self.disk().join("west")
    }

    pub fn store(&self) -> PathBuf {
        self.project().join(".dormouse")
    }

    pub fn out(&self, name: &str) -> PathBuf {
        self.root().join("out").join(name)
    }

    /// Returns the names of all agents, including those that the stress test created.
    pub fn agents(&self) -> Vec<String> {
        if let Some(base) = &self.base {
            return base.agents(STORM);
        }
        let mut names = setup::names(&self.store().join("agents"));
        names.retain(|name| !name.starts_with('.'));
        names
    }

    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Returns the environment variable by which the processes of this stress test are recognised.
    fn mark(&self) -> String {
        format!("STORM_OUT={}", self.root().join("out").display())
    }

    fn environment(&self, command: &mut Command) {
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", self.root().join("home")).env("TZ", "UTC").env("GIT_CONFIG_NOSYSTEM", "1");
        for (at, (key, value)) in [
            ("user.name", "storm"),
            ("user.email", "storm@localhost"),
            ("gc.auto", "0"),
            ("maintenance.auto", "false"),
        ]
        .iter()
        .enumerate()
        {
            command.env(format!("GIT_CONFIG_KEY_{at}"), key).env(format!("GIT_CONFIG_VALUE_{at}"), value);
        }
        command.env("GIT_CONFIG_COUNT", "4");
    }

    /// Runs a program that the stress test does not disturb. Returns its success and its output.
    pub fn aside(&self, program: &str, place: &Path, words: &[&str]) -> (bool, String) {
        let mut command = Command::new(program);
        self.environment(&mut command);
        let output = command.args(words).current_dir(place).stdin(Stdio::null()).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&said).into_owned())
    }

    #[track_caller]
    fn must(&self, program: &str, place: &Path, words: &[&str]) {
        let (succeeded, said) = self.aside(program, place, words);
        assert!(succeeded, "{program} {words:?}: {said}");
    }

    /// Runs `dormouse` as a process that the stress test may kill. Returns its end and its stdout.
    pub fn call(
        &self,
        actor: &str,
        place: &Path,
        words: &[&str],
        handicap: &Handicap,
        stdin: &str,
    ) -> (Ended, String) {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let call = self.history.begin(actor, &words, handicap);
        let mut command = Command::new(&self.program);
        if handicap.is_limit() {
            command = Command::new("prlimit");
            command.args(handicap.files.map(|most| format!("--nofile={most}")));
            command.args(handicap.bytes.map(|most| format!("--fsize={most}")));
            command.arg(&self.program);
        }
        self.environment(&mut command);
        let (name, value) =
            self.mark().split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned())).unwrap();
        command.env(name, value).env("STORM_DORMOUSE", &self.program);
        if handicap.clock != 0 {
            let then = chrono::Utc::now() + chrono::Duration::seconds(handicap.clock);
            command.env("DORMOUSE_NOW", then.format("%Y-%m-%dT%H:%M:%S%.3fZ").to_string());
        }
        // Processes that outlive the command may keep its output open, so the output goes to files
        // and not to pipes.
        let [input, out, err] = [(); 3].map(|()| tempfile::tempfile().unwrap());
        input.write_all_at(stdin.as_bytes(), 0).unwrap();
        command.stdin(input).stdout(out.try_clone().unwrap()).stderr(err.try_clone().unwrap());
        let mut child = command.args(&words).current_dir(place).spawn().unwrap();
        let pid = child.id() as i32;
        let ended = wait(&mut child);
        let (stdout, stderr) = (text(&out), text(&err));
        let answer = stdout.clone();
        self.history.note(What::End { call, pid, ended, stdout, stderr });
        (ended, answer)
    }

    /// Returns the processes of the stress test, with their maximum memory in KiB.
    pub fn processes(&self) -> Vec<Process> {
        let mark = self.mark().into_bytes();
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let Some(pid) =
                entry.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw)
            else {
                continue;
            };
            // The handle is opened before the process is checked, so that it can't refer to another
            // process that gets the same pid.
            let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else { continue };
            let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
            if !environment.split(|byte| *byte == 0).any(|variable| variable == mark) {
                continue;
            }
            let words = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let name = String::from_utf8_lossy(&words).replace('\0', " ").chars().take(160).collect();
            let status = fs::read_to_string(entry.path().join("status")).unwrap_or_default();
            let peak = status
                .lines()
                .find_map(|line| line.strip_prefix("VmHWM:")?.trim().split(' ').next()?.parse().ok());
            found.push(Process { pid, handle, name, peak: peak.unwrap_or(0) });
        }
        found
    }

    pub fn send(&self, process: &Process, signal: Signal) {
        // The kill is recorded first, because the end of the process may be recorded at once.
        let (pid, name) = (process.pid.as_raw_nonzero().get(), process.name.clone());
        self.history.note(What::Kill { pid, signal: signal.as_raw(), name });
        let _ = pidfd_send_signal(&process.handle, signal);
    }

    /// Keeps the directory of a failed stress test, with a copy of its disk. Returns its path.
    pub fn keep(mut self) -> PathBuf {
        for process in self.processes() {
            let _ = pidfd_send_signal(&process.handle, Signal::KILL);
        }
        self.root.disable_cleanup(true);
        if self.has_disk {
            let copied = Command::new("cp").arg("-a").arg(self.disk()).arg(self.root().join("kept")).status();
            assert!(copied.unwrap().success());
        }
        self.root().to_owned()
    }

    pub fn disk(&self) -> PathBuf {
        self.root().join("disk")
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if self.has_disk {
            // A directory on which a disk is mounted can't be removed.
            let _ = Command::new("umount").arg("--lazy").arg(self.disk()).status();
        }
    }
}

/// Process of the stress test, with its maximum memory in KiB.
pub struct Process {
    pub pid: Pid,
    handle: rustix::fd::OwnedFd,
    pub name: String,
    pub peak: usize,
}

fn append(path: &Path, text: &str) {
    let mut file = File::options().append(true).open(path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

/// Returns the first 256 KiB of a command's output.
fn text(file: &File) -> String {
    let mut bytes = vec![0; 256 * 1024];
    let length = file.read_at(&mut bytes, 0).unwrap();
    String::from_utf8_lossy(&bytes[..length]).into_owned()
}

fn wait(child: &mut Child) -> Ended {
    let pid = Pid::from_raw(child.id() as i32).unwrap();
    let handle = pidfd_open(pid, PidfdFlags::empty()).unwrap();
    let limit = Timespec { tv_sec: LONGEST_S, tv_nsec: 0 };
    let mut ready = [PollFd::new(&handle, PollFlags::IN)];
    let ended = loop {
        match poll(&mut ready, Some(&limit)) {
            Err(rustix::io::Errno::INTR) => {}
            other => break other.unwrap() > 0,
        }
    };
    if !ended {
        child.kill().unwrap();
    }
    let status = child.wait().unwrap();
    match (ended, status.code(), status.signal()) {
        (false, ..) => Ended::Overlong,
        (true, Some(code), _) => Ended::Status(code),
        (true, None, signal) => Ended::Signal(signal.unwrap_or(0)),
    }
}

/// Mounts a disk at `place` for the calling thread, and for the threads and processes that it
/// starts. Returns `false` without root privileges.
pub fn mount(place: &Path, size: &str) -> bool {
    // SAFETY: the system call changes the calling thread alone, and no memory.
    if unsafe { libc::unshare(libc::CLONE_NEWNS) } != 0 {
        return false;
    }
    let run = |words: &[&str]| {
        Command::new("mount").args(words).arg(place).status().is_ok_and(|status| status.success())
    };
    let is_private =
        Command::new("mount").args(["--make-rprivate", "/"]).status().is_ok_and(|status| status.success());
    is_private && run(&["-t", "tmpfs", "-o", &format!("size={size},mode=0700"), "storm"])
}

/// Sleeps for `ms` milliseconds, or until the stress test is over.
pub fn pause(world: &World, ms: u64) {
    let mut left = ms;
    while left > 0 && !world.is_over() {
        let now = left.min(50);
        std::thread::sleep(Duration::from_millis(now));
        left -= now;
    }
}
