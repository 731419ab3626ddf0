//! Gives each test a state directory of its own, and runs commands with the expected answer.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::Write;
use std::ops::Deref;
use std::os::unix::fs::{MetadataExt, lchown};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::server::durable;
use crate::setup::{edit_file, failure, processes};

/// Time of the first command of each sandbox, in seconds since 1970: 2026-01-02T03:04:05Z.
pub const START: i64 = 1_767_323_045;

/// Number of a user that no machine and no other test has.
const ORDINARY: u32 = 60_006;

/// Path of the program under test.
pub fn dormouse() -> PathBuf {
    assert_cmd::cargo::cargo_bin!("dormouse").to_path_buf()
}

/// True if the records of sandboxes are in a database.
pub fn is_elsewhere() -> bool {
    std::env::var_os("DORMOUSE_TEST_STORE").is_some_and(|store| store == "postgres")
}

/// Directory with the records of an agent, for reading. If the records are in a database,
/// they are first exported to a temporary directory.
pub struct Files {
    path: PathBuf,
    _exported: Option<TempDir>,
}

impl Files {
    #[track_caller]
    pub fn of(agent: &Path) -> Files {
        let here = Files { path: agent.to_owned(), _exported: None };
        if !is_elsewhere() || agent.join("identity.json").exists() {
            return here;
        }
        let store = agent.ancestors().nth(2).unwrap();
        let name = agent.file_name().unwrap();
        let home = store.ancestors().nth(2).unwrap().join("home");
        let dir = tempfile::tempdir().unwrap();
        let mut export = Command::new("sh");
        export.args(["-c", "\"$0\" -C \"$1\" export \"$2\" | tar -xf - -C \"$3\""]).arg(dormouse());
        let ran = export
            .args([store.as_os_str(), name, dir.path().as_os_str()])
            .env("HOME", home)
            .output()
            .unwrap();
        let path = dir.path().join("agents").join(name);
        if !path.exists() {
            eprintln!("{}", String::from_utf8_lossy(&ran.stderr));
            return here;
        }
        Files { path, _exported: Some(dir) }
    }
}

impl Deref for Files {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.path
    }
}

/// Writes a program that can be run at once.
///
/// A child process writes the file. If this process had the file open for writing, a child that
/// another test starts at that moment would inherit the descriptor, and `exec` would fail.
pub fn write_program(path: &Path, text: &str) {
    let mut child = Command::new("sh")
        .args(["-c", "cat > \"$0\" && chmod 755 \"$0\""])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .expect("a shell");
    child.stdin.take().expect("piped").write_all(text.as_bytes()).expect("read by the shell");
    assert!(child.wait().expect("a status").success(), "{}", path.display());
}

/// Copies the program under test. As after [`write_program`], the copy can be run at once.
pub fn copy_of_dormouse(to: &Path) {
    let copied = Command::new("cp").arg(dormouse()).arg(to).status().expect("cp");
    assert!(copied.success(), "{}", to.display());
}

/// Temporary directory with a project (the working directory of every command, with `.dormouse`)
/// and a home directory. If the test fails, the directory is kept.
///
/// Commands see PATH, HOME, TZ, a umask of 022 and the time, nothing else. The time starts at
/// [`START`] and advances by one second per command, unless the sandbox uses the real clock.
pub struct Sandbox {
    root: Option<TempDir>,
    /// Time of the next command in seconds since 1970; `None`: the real clock.
    clock: Option<AtomicI64>,
    /// Ids in the order in which answers have shown them. They are compared as `msg_#1`, `run_#2`.
    ids: Mutex<Vec<String>>,
    /// Command lines so far, printed to reproduce a failure.
    history: Mutex<Vec<String>>,
    /// True if the sandbox was copied. If a test fails, only the copies are kept.
    is_template: AtomicBool,
    /// Additional environment of every command: the variables of a turn.
    env: Mutex<Vec<(String, String)>>,
    /// User that runs the commands; `None`: the user of the tests.
    owner: Option<u32>,
}

impl Sandbox {
    /// Returns a project without a state directory.
    pub fn empty() -> Sandbox {
        Sandbox::in_dir(&std::env::temp_dir())
    }

    /// Returns a project without a state directory in `/dev/shm`, if the machine has that, because
    /// `fsync` costs nothing there: for tests that run thousands of commands. The file system may
    /// be mounted `noexec`, so tests can't write programs there.
    pub fn in_memory() -> Sandbox {
        let memory = Path::new("/dev/shm");
        if memory.is_dir() { Sandbox::in_dir(memory) } else { Sandbox::empty() }
    }

    fn in_dir(dir: &Path) -> Sandbox {
        // Files that turns and tests create have the same modes with every umask of the caller.
        rustix::process::umask(rustix::fs::Mode::WGRP | rustix::fs::Mode::WOTH);
        let root = tempfile::Builder::new().prefix("dormouse-").tempdir_in(dir).unwrap();
        for dir in ["project", "home"] {
            fs::create_dir(root.path().join(dir)).unwrap();
        }
        Sandbox {
            root: Some(root),
            clock: Some(AtomicI64::new(START)),
            ids: Mutex::default(),
            history: Mutex::default(),
            is_template: AtomicBool::new(false),
            env: Mutex::default(),
            owner: None,
        }
    }

    /// If the tests run as root, gives all files to an ordinary user, who also runs the commands
    /// from now on: some programs refuse to work for root.
    pub fn of_an_ordinary_user(mut self) -> Sandbox {
        if rustix::process::geteuid().is_root() {
            copy_of_dormouse(&self.root().join("dormouse"));
            self.owner = Some(ORDINARY);
            self.give_to_owner(self.root());
        }
        self
    }

    /// Gives all files below a path to the user that runs the commands.
    pub fn give_to_owner(&self, path: &Path) {
        for entry in walkdir::WalkDir::new(path) {
            lchown(entry.unwrap().path(), self.owner, self.owner).unwrap();
        }
    }

    /// Path of the program under test, or of its copy that the user of the commands may run.
    pub fn dormouse(&self) -> PathBuf {
        if self.owner.is_some() { self.root().join("dormouse") } else { dormouse() }
    }

    /// Sets the user that runs the commands of this sandbox.
    pub fn run_as_owner(&self, command: &mut Command) {
        if let Some(owner) = self.owner {
            command.uid(owner).gid(owner);
        }
    }

    /// Gives the next commands the environment of the agent's current run, as if its turn had
    /// called them.
    pub fn inside(self, agent: &str) -> Sandbox {
        let run = self.json(["get", agent])["current_run"]["run_id"].as_str().unwrap().to_owned();
        *self.env.lock().unwrap() =
            vec![("DORMOUSE_AGENT".to_owned(), agent.to_owned()), ("DORMOUSE_RUN".to_owned(), run)];
        self
    }

    /// Makes commands run outside of a turn again, after a call of [`Sandbox::inside`].
    pub fn leave(&self) {
        self.env.lock().unwrap().clear();
    }

    /// Returns a project with an initialised state directory that keeps the context of each turn,
    /// because tests read it.
    #[track_caller]
    pub fn new() -> Sandbox {
        let sandbox = Sandbox::empty();
        sandbox.run(["init"]);
        sandbox.keep_contexts();
        sandbox.keep_records_elsewhere();
        sandbox
    }

    /// With `DORMOUSE_TEST_STORE=postgres`, puts the records of a new state directory into a
    /// schema of its own on the server of the tests.
    pub fn keep_records_elsewhere(&self) {
        if is_elsewhere() {
            let (_, url) = self.new_schema();
            let store = format!("[store]\nurl = \"{url}\"\n");
            edit_file(&self.store().join("dormouse.toml"), |text| text.replace("[store]\n", &store));
        }
    }

    fn new_schema(&self) -> (String, String) {
        static SCHEMAS: AtomicU64 = AtomicU64::new(0);
        let schema = format!("sandbox_{}", SCHEMAS.fetch_add(1, Ordering::Relaxed));
        let url = durable().url(&schema);
        // Without `Sandbox::cmd`, so that the clock of the sandbox does not advance.
        let made = Command::new(dormouse()).args(["init", &url]).env("HOME", self.home()).output().unwrap();
        assert!(made.status.success(), "{made:?}");
        (schema, url)
    }

    /// Copies the records of the former sandbox into a new schema, for a copy of that sandbox.
    fn copy_records(&self, former: &str) {
        let Some(from) = self.schema() else { return };
        let (to, url) = self.new_schema();
        let tables = "agent state due inbox record plan dedupe lease archive event blob trigger_key anchor";
        let copied: String = tables
            .split(' ')
            .map(|table| {
                format!("INSERT INTO {to}.{table} OVERRIDING SYSTEM VALUE SELECT * FROM {from}.{table};")
            })
            .collect();
        // The sequences of the copy continue after the copied numbers.
        let numbers: String = [("agent", "id"), ("archive", "seq"), ("event", "seq")]
            .map(|(table, column)| {
                format!("SELECT setval(pg_get_serial_sequence('{to}.{table}', '{column}'), coalesce((SELECT max({column}) FROM {to}.{table}), 0) + 1);")
            })
            .concat();
        let here = place_of(&self.store());
        let placed: String = [("state", "body"), ("record", "body")]
            .map(|(table, column)| {
                format!("UPDATE {to}.{table} SET {column} = replace({column}::text, '\"{former}\"', '\"{here}\"')::json;")
            })
            .concat();
        durable().sql(&format!("{copied}{numbers}{placed}"));
        edit_file(&self.store().join("dormouse.toml"), |text| text.replace(&durable().url(&from), &url));
    }

    /// Returns the schema with the records, if the records are in a database.
    pub fn schema(&self) -> Option<String> {
        let settings = fs::read_to_string(self.store().join("dormouse.toml")).ok()?;
        let (_, rest) = settings.split_once("schema=")?;
        rest.split(['"', '&']).next().map(str::to_owned)
    }

    /// Keeps the contexts of turns in the run directories from now on.
    pub fn keep_contexts(&self) {
        let path = self.store().join("dormouse.toml");
        edit_file(&path, |text| format!("{text}[retention]\ncontext = \"all\"\n"));
    }

    /// Lets commands use the real clock from now on.
    pub fn with_real_clock(mut self) -> Sandbox {
        self.clock = None;
        self
    }

    /// Returns a copy of all files in another directory, with the same clock. Records name their
    /// state directory by device and inode; those of the copy name the copy. So the program does
    /// not take the copy for a clone, and its runs and tasks count as local.
    pub fn copy(&self) -> Sandbox {
        self.is_template.store(true, Ordering::Relaxed);
        let mut copy = Sandbox::in_dir(self.root().parent().unwrap());
        copy_tree(self.root(), copy.root());
        if self.store().exists() {
            replace_place(&copy.store(), &place_of(&self.store()), &place_of(&copy.store()));
        }
        if is_elsewhere() {
            copy.copy_records(&place_of(&self.store()));
        }
        copy.clock = self.clock.as_ref().map(|clock| AtomicI64::new(clock.load(Ordering::Relaxed)));
        *copy.history.lock().unwrap() = self.history.lock().unwrap().clone();
        let env = self.env.lock().unwrap().clone();
        if let [(_, agent), (_, run)] = env.as_slice() {
            copy.rename_run(agent, run);
        }
        copy
    }

    /// Gives the current run a new id. A recovery kills all processes that have the id of its run
    /// in their environment, so two copies must not share an id.
    fn rename_run(&self, agent: &str, run: &str) {
        static COPIES: AtomicU64 = AtomicU64::new(0);
        let number = (u64::from(std::process::id()) << 24) + COPIES.fetch_add(1, Ordering::Relaxed);
        let fresh = format!("{}{:012x}", &run[..run.len() - 12], number & 0xffff_ffff_ffff);
        edit_file(&self.agent(agent).join("state.json"), |text| text.replace(run, &fresh));
        // All of the journal is applied already; a step that repeats it would write the old run id.
        fs::write(self.agent(agent).join("journal.jsonl"), "").unwrap();
        let dir = self.agent(agent).join("runs");
        if dir.join(run).exists() {
            fs::rename(dir.join(run), dir.join(&fresh)).unwrap();
        }
        *self.env.lock().unwrap() =
            vec![("DORMOUSE_AGENT".to_owned(), agent.to_owned()), ("DORMOUSE_RUN".to_owned(), fresh)];
    }

    pub fn root(&self) -> &Path {
        self.root.as_ref().unwrap().path()
    }

    /// The working directory of every command.
    pub fn project(&self) -> PathBuf {
        self.root().join("project")
    }

    pub fn home(&self) -> PathBuf {
        self.root().join("home")
    }

    /// The state directory.
    pub fn store(&self) -> PathBuf {
        self.project().join(".dormouse")
    }

    pub fn agent(&self, name: &str) -> PathBuf {
        self.store().join("agents").join(name)
    }

    /// Advances the clock of the sandbox.
    pub fn pass(&self, seconds: i64) {
        if let Some(clock) = &self.clock {
            clock.fetch_add(seconds, Ordering::Relaxed);
        }
    }

    /// Returns a `dormouse` command that has not run yet.
    pub fn cmd<A: Into<OsString>>(&self, args: impl IntoIterator<Item = A>) -> Cmd<'_> {
        let args: Vec<OsString> = args.into_iter().map(Into::into).collect();
        self.program(self.dormouse(), args)
    }

    /// Returns a command of any program, with the working directory and environment of the sandbox.
    pub fn program(&self, program: impl AsRef<OsStr>, args: Vec<OsString>) -> Cmd<'_> {
        let mut command = Command::new(program.as_ref());
        command.args(&args).current_dir(self.project()).env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", self.home()).env("TZ", "UTC");
        self.run_as_owner(&mut command);
        let mut line = String::new();
        for (name, value) in self.env.lock().unwrap().iter() {
            command.env(name, value);
            line.push_str(&format!("{name}={value} "));
        }
        if let Some(clock) = &self.clock {
            let now = clock.fetch_add(1, Ordering::Relaxed);
            let now = chrono::DateTime::from_timestamp(now, 0).unwrap().format("%Y-%m-%dT%H:%M:%SZ");
            command.env("DORMOUSE_NOW", now.to_string());
            line.push_str(&format!("DORMOUSE_NOW={now} "));
        }
        let program = Path::new(program.as_ref()).file_name().unwrap_or_default();
        line.push_str(&program.to_string_lossy());
        for arg in &args {
            line.push_str(&format!(" {}", quoted(&arg.to_string_lossy())));
        }
        self.history.lock().unwrap().push(line);
        Cmd {
            sandbox: self,
            command,
            stdin: Vec::new(),
            stdout: String::new(),
            stderr: String::new(),
            status: 0,
        }
    }

    /// Runs a command that must succeed, and returns its standard output. Standard error may only
    /// have the hint that no turn will run.
    #[track_caller]
    pub fn run<A: Into<OsString>>(&self, args: impl IntoIterator<Item = A>) -> String {
        let ran = self.cmd(args).output();
        assert!(
            ran.status.code() == Some(0)
                && ran.stderr.lines().all(|line| line.contains(": no turn will run: ")),
            "{ran}\nreproduce:\n{}",
            self.reproduction()
        );
        ran.stdout
    }

    /// Runs a command with `--json`, and returns the only object that it prints.
    #[track_caller]
    pub fn json<A: Into<OsString>>(&self, args: impl IntoIterator<Item = A>) -> Value {
        let mut lines = self.json_lines(args);
        assert_eq!(lines.len(), 1, "one object was expected: {lines:?}");
        lines.remove(0)
    }

    /// Runs a command with `--json`, and returns all objects that it prints.
    #[track_caller]
    pub fn json_lines<A: Into<OsString>>(&self, args: impl IntoIterator<Item = A>) -> Vec<Value> {
        let args: Vec<OsString> =
            [OsString::from("--json")].into_iter().chain(args.into_iter().map(Into::into)).collect();
        let text = self.run(args);
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Returns the id that is shown as, for example, `msg_#1`.
    #[track_caller]
    pub fn id(&self, shown: &str) -> String {
        let (_, number) = shown.split_once('#').unwrap();
        self.ids.lock().unwrap()[number.parse::<usize>().unwrap() - 1].clone()
    }

    /// Returns the command lines so far, as a script.
    pub fn reproduction(&self) -> String {
        self.history.lock().unwrap().iter().map(|line| format!("    {line}\n")).collect()
    }

    /// Returns the text with `[SANDBOX]` in place of this directory, and with numbers in place of
    /// ids, in the order of their first appearance.
    fn shown(&self, text: &str) -> String {
        let text = text.replace(&*self.root().to_string_lossy(), "[SANDBOX]");
        let mut ids = self.ids.lock().unwrap();
        let mut shown = String::with_capacity(text.len());
        let mut rest = text.as_str();
        while let Some(at) = rest.find('_') {
            let start = rest[..at].rfind(|c: char| !c.is_ascii_lowercase()).map_or(0, |before| before + 1);
            let end = at + 33;
            let is_id = start < at
                && rest.get(at + 1..end).is_some_and(|hex| hex.bytes().all(|byte| byte.is_ascii_hexdigit()));
            if is_id {
                let id = &rest[start..end];
                let number = ids.iter().position(|known| known == id).unwrap_or_else(|| {
                    ids.push(id.to_owned());
                    ids.len() - 1
                });
                shown.push_str(&format!("{}_#{}", &rest[..at], number + 1));
                rest = &rest[end..];
            } else {
                shown.push_str(&rest[..=at]);
                rest = &rest[at + 1..];
            }
        }
        shown.push_str(rest);
        shown
    }
}

/// If the test has failed, kills its processes and keeps its files.
impl Drop for Sandbox {
    fn drop(&mut self) {
        if !thread::panicking() {
            return;
        }
        for process in processes(self) {
            let pid = process.split(' ').next().and_then(|pid| pid.parse().ok()).and_then(Pid::from_raw);
            let _ = pid.map(|pid| kill_process(pid, Signal::KILL));
        }
        if !self.is_template.load(Ordering::Relaxed)
            && let Some(root) = self.root.take()
        {
            eprintln!("kept after the failure: {}", root.keep().display());
        }
    }
}

/// Command that has not run yet, with the expected answer: by default success and no output.
#[must_use = "the command runs only when its answer is asked for"]
pub struct Cmd<'s> {
    sandbox: &'s Sandbox,
    command: Command,
    stdin: Vec<u8>,
    stdout: String,
    stderr: String,
    status: i32,
}

impl<'s> Cmd<'s> {
    pub fn stdin(mut self, text: impl Into<Vec<u8>>) -> Cmd<'s> {
        self.stdin = text.into();
        self
    }

    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Cmd<'s> {
        self.command.env(name, value);
        self
    }

    /// Applies a change to the underlying command.
    pub fn changed(mut self, change: impl FnOnce(&mut Command)) -> Cmd<'s> {
        change(&mut self.command);
        self
    }

    /// Sets the whole expected standard output; the default is none.
    pub fn stdout(mut self, text: &str) -> Cmd<'s> {
        self.stdout = text.to_owned();
        self
    }

    /// Sets the whole expected standard error; the default is none.
    pub fn stderr(mut self, text: &str) -> Cmd<'s> {
        self.stderr = text.to_owned();
        self
    }

    /// Sets the expected exit status; the default is 0.
    pub fn status(mut self, status: i32) -> Cmd<'s> {
        self.status = status;
        self
    }

    /// Returns the underlying command, for a test that starts it itself.
    pub fn into_command(self) -> Command {
        self.command
    }

    /// Runs the command and returns its answer, which is compared with nothing.
    #[track_caller]
    pub fn output(mut self) -> Ran {
        self.command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child =
            self.command.spawn().unwrap_or_else(|error| panic!("{:?}: {error}", self.command.get_program()));
        let mut pipe = child.stdin.take().unwrap();
        // A thread writes the input: a command that prints before it has read all of it would
        // otherwise wait for a reader.
        let stdin = std::mem::take(&mut self.stdin);
        let output = thread::scope(|scope| {
            // The write fails if the command does not read its input, so its result is ignored.
            scope.spawn(move || pipe.write_all(&stdin));
            child.wait_with_output().unwrap()
        });
        let ran = Ran::from(output);
        assert!(!ran.stderr.contains("panicked"), "{ran}\nreproduce:\n{}", self.sandbox.reproduction());
        ran
    }

    /// Runs the command, and compares its answer with the expected one, which has this stdout.
    #[track_caller]
    pub fn prints(self, text: &str) -> Ran {
        self.stdout(text).check()
    }

    /// Runs the command, and compares its answer with the expected one, which has this stderr.
    #[track_caller]
    pub fn complains(self, text: &str) -> Ran {
        self.stderr(text).check()
    }

    /// Runs the command and compares the exit status.
    #[track_caller]
    pub fn exits(self, status: i32) -> Ran {
        let sandbox = self.sandbox;
        let ran = self.output();
        assert_eq!(ran.code(), status, "{ran}\nreproduce:\n{}", sandbox.reproduction());
        ran
    }

    /// Runs a command whose words contain `--json`, and compares the exit status and the kind of
    /// the failure.
    #[track_caller]
    pub fn fails(self, status: i32, kind: &str) -> Ran {
        self.exits(status).fails(status, kind)
    }

    /// Runs the command for assertions about parts of its output.
    #[track_caller]
    pub fn assert(self) -> assert_cmd::assert::Assert {
        let Ran { status, stdout, stderr } = self.output();
        assert_cmd::assert::Assert::new(Output { status, stdout: stdout.into(), stderr: stderr.into() })
    }

    /// Runs the command and compares the exit status and the whole of both streams.
    #[track_caller]
    pub fn check(self) -> Ran {
        let sandbox = self.sandbox;
        let expected = (Some(self.status), self.stdout.clone(), self.stderr.clone());
        let ran = self.output();
        let found = (ran.status.code(), sandbox.shown(&ran.stdout), sandbox.shown(&ran.stderr));
        assert_eq!(found, expected, "reproduce:\n{}", sandbox.reproduction());
        ran
    }
}

/// Answer of a command.
#[derive(Debug, Clone)]
pub struct Ran {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Ran {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ran { status: output.status, stdout: text(&output.stdout), stderr: text(&output.stderr) }
    }
}

impl Ran {
    /// Returns the exit status as a shell reports it: 128 plus the number of the signal that ended
    /// the command.
    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| 128 + self.status.signal().unwrap_or(0))
    }

    /// Compares the exit status.
    #[track_caller]
    pub fn exits(self, status: i32) -> Ran {
        assert_eq!(self.code(), status, "{self}");
        self
    }

    /// Compares the exit status and the kind of the failure that the answer ends with.
    #[track_caller]
    pub fn fails(self, status: i32, kind: &str) -> Ran {
        assert_eq!((self.code(), failure(&self)["kind"].as_str()), (status, Some(kind)), "{self}");
        self
    }

    /// Asserts that standard output contains a text.
    #[track_caller]
    pub fn shows(self, part: &str) -> Ran {
        assert!(self.stdout.contains(part), "not on stdout: {part:?}: {self}");
        self
    }

    /// Asserts that standard error contains a text.
    #[track_caller]
    pub fn warns(self, part: &str) -> Ran {
        assert!(self.stderr.contains(part), "not on stderr: {part:?}: {self}");
        self
    }
}

impl std::fmt::Display for Ran {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}\nstdout: {}\nstderr: {}", self.status, self.stdout, self.stderr)
    }
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Returns device and inode of a state directory, by which records name it.
pub fn place_of(store: &Path) -> String {
    let found = fs::metadata(store).unwrap();
    format!("{}:{}", found.dev(), found.ino())
}

/// Replaces device and inode of a state directory in all of its records.
fn replace_place(store: &Path, from: &str, to: &str) {
    let Ok(agents) = fs::read_dir(store.join("agents")) else { return };
    for agent in agents.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()) {
        let mut files = vec![agent.join("state.json"), agent.join("journal.jsonl")];
        for dir in ["tasks", "runs"] {
            for entry in fs::read_dir(agent.join(dir)).into_iter().flatten() {
                let path = entry.unwrap().path();
                files.push(if path.is_dir() { path.join("leader") } else { path });
            }
        }
        files.into_iter().for_each(|file| replace_in(&file, from, to));
    }
}

/// Replaces a word in a file, and keeps the modification time. In a journal, computes the checksum
/// of each line again.
fn replace_in(file: &Path, from: &str, to: &str) {
    use sha2::{Digest, Sha256};
    let Ok(bytes) = fs::read(file) else { return };
    let Ok(text) = std::str::from_utf8(&bytes) else { return };
    if !text.contains(from) {
        return;
    }
    let replaced = text.replace(from, to);
    let is_journal = file.file_name().is_some_and(|name| name == "journal.jsonl");
    let summed = |line: &str| match (line.strip_prefix("{\"sum\":\""), line.rfind(",\"boot\":\"")) {
        (Some(rest), Some(end)) if is_journal => {
            let begin = line.len() - rest.len() + 34;
            let sum: String =
                Sha256::digest(&line[begin..end]).iter().map(|byte| format!("{byte:02x}")).collect();
            format!("{{\"sum\":\"{}\",{}", &sum[..32], &line[begin..])
        }
        _ => line.to_owned(),
    };
    let text: String = replaced.split_inclusive('\n').map(summed).collect();
    let written = fs::metadata(file).unwrap().modified().unwrap();
    fs::write(file, text).unwrap();
    File::options().append(true).open(file).unwrap().set_modified(written).unwrap();
}

/// Copies all entries of a directory, recursively, into another directory that exists.
pub fn copy_tree(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            fs::create_dir_all(&target).unwrap();
            copy_tree(&entry.path(), &target);
        } else if entry.file_type().unwrap().is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(entry.path()).unwrap(), &target).unwrap();
        } else {
            fs::copy(entry.path(), &target).unwrap();
        }
    }
}

/// Number of failed cases after which [`each_in_parallel`] starts no more.
const FAILURES: usize = 6;

/// Returns a pseudo-random sample of about one case in `usual`, the same on each call.
/// `DORMOUSE_CUTS=N` replaces `usual` (1 takes all cases), and `DORMOUSE_CUTS_SEED` draws another
/// sample.
pub fn one_in<T>(usual: u64, cases: Vec<T>) -> Vec<T> {
    let number = |name, usual| {
        std::env::var(name)
            .map_or(usual, |text| text.parse().unwrap_or_else(|_| panic!("{name} is a number")))
    };
    let (every, seed) = (number("DORMOUSE_CUTS", usual).max(1), number("DORMOUSE_CUTS_SEED", 1));
    let all = cases.len();
    let mut state = seed;
    let mut is_drawn = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33).is_multiple_of(every)
    };
    let drawn: Vec<T> = cases.into_iter().filter(|_| is_drawn()).collect();
    println!("{} of {all} cases", drawn.len());
    drawn
}

/// Calls `work` with each case, on as many threads as there are processors, and at most 8.
pub fn each_in_parallel<T: Sync>(cases: &[T], work: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    let failed = AtomicUsize::new(0);
    let threads = thread::available_parallelism().map_or(2, usize::from).min(8);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while failed.load(Ordering::Relaxed) < FAILURES {
                    let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) else { break };
                    if std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(case))).is_err() {
                        failed.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    assert_eq!(failed.load(Ordering::Relaxed), 0, "a case failed: see above");
}

#[test]
fn the_harness_replaces_ids_and_paths_with_stable_placeholders() {
    let sandbox = Sandbox::empty();
    let id = format!("msg_{}", "0123456789abcdef".repeat(2));
    let text = format!("{id} a_b {} x{id}", sandbox.root().display());
    assert_eq!(sandbox.shown(&text), "msg_#1 a_b [SANDBOX] xmsg_#2");
    assert_eq!(sandbox.id("msg_#1"), id);
}

#[test]
fn the_harness_compares_the_status_and_output_of_a_command() {
    let sandbox = Sandbox::new();
    let ran = sandbox.cmd(["create", "ada", "--json", "--", "true"]).output();
    let created: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(created["status"], "booting");
    let expected = "dormouse: no agent `bob`\nhint: there is ada\n";
    sandbox.cmd(["get", "bob", "-q"]).env("NO_COLOR", "1").status(3).complains(expected);
    sandbox.run(["start", "ada"]);
    sandbox.cmd(["enqueue", "ada", "hello"]).prints("msg_#1\n");
    assert_eq!(sandbox.json(["queue", "list", "-a", "ada"])["id"], sandbox.id("msg_#1"));
    assert!(sandbox.copy().agent("ada").is_dir());
}
