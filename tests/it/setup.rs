//! Makes agents and files for the tests of commands, and reads answers.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, SystemTime};

use serde_json::Value;

use crate::harness::{Cmd, Files, Ran, Sandbox, dormouse, is_elsewhere, write_program};

/// Every hook that there is.
pub const HOOKS: [&str; 9] = [
    "on-startup",
    "on-scheduled",
    "on-preempt-request",
    "on-suspend",
    "on-resume",
    "on-shutdown",
    "on-recovery-start",
    "on-recovery-complete",
    "on-state-change",
];

/// Decisions as `decision` writes them.
pub const TURN_COMPLETED: &str = "start_model_turn (operator_prompt) completed";
pub const TURN_FAILED: &str = "start_model_turn (operator_prompt) failed";
pub const SLEEP: &str = "sleep (no_pending_scheduler_facts)";

/// The words of a line.
pub fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

/// Returns the number in an environment variable.
pub fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().unwrap())
}

/// Returns the next number of a pseudo-random sequence (SplitMix64).
pub fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Returns the lines that hooks and turns have written to `$HOME/noted`.
pub fn noted(sandbox: &Sandbox) -> Vec<String> {
    let text = fs::read_to_string(sandbox.home().join("noted")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// Returns these lines, and removes the file.
pub fn take_noted(sandbox: &Sandbox) -> Vec<String> {
    let lines = noted(sandbox);
    let _ = fs::remove_file(sandbox.home().join("noted"));
    lines
}

/// Returns the names of the agents, and of what else is in their directory.
pub fn agents(sandbox: &Sandbox) -> Vec<String> {
    names(&sandbox.store().join("agents"))
}

/// A state directory with the started agent `ada`, whose turns run this line of shell.
#[track_caller]
pub fn started(shell: &str) -> Sandbox {
    let sandbox = Sandbox::new();
    add(&sandbox, "ada", shell);
    sandbox
}

/// The same, with more lines for its policy.
#[track_caller]
pub fn started_with(shell: &str, policy: &str) -> Sandbox {
    let sandbox = started(shell);
    extend_policy(&sandbox, "ada", policy);
    sandbox
}

/// One more started agent.
#[track_caller]
pub fn add(sandbox: &Sandbox, name: &str, shell: &str) {
    sandbox.run(["create", name, "--shell", shell]);
    sandbox.run(["start", name]);
}

/// More lines for an agent's policy, where the tables of the file end.
pub fn extend_policy(sandbox: &Sandbox, name: &str, lines: &str) {
    edit_policy(sandbox, name, |text| format!("{text}{lines}"));
}

/// Another text for an agent's policy. Returns the one before.
pub fn edit_policy(sandbox: &Sandbox, name: &str, edit: impl FnOnce(&str) -> String) -> String {
    if !is_elsewhere() {
        let path = sandbox.agent(name).join("agent.toml");
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, edit(&text)).unwrap();
        return text;
    }
    let (editor, file) = (sandbox.root().join("editor"), sandbox.root().join("policy"));
    let by = |script: &str| {
        write_program(&editor, &format!("#!/bin/sh\n{script}\n"));
        let ran = sandbox.cmd(["edit", name]).env("EDITOR", &editor).env("POLICY", &file).output();
        assert_eq!(ran.status.code(), Some(0), "{ran}");
        sandbox.pass(-1);
    };
    by("cp \"$1\" \"$POLICY\"");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, edit(&text)).unwrap();
    by("cp \"$POLICY\" \"$1\"");
    text
}

/// Says something to `ada` and returns the id of the message.
#[track_caller]
pub fn say(sandbox: &Sandbox, text: &str) -> String {
    sandbox.run(["enqueue", "ada", text]).trim_end().to_owned()
}

/// Runs one step of `ada`, whatever comes of it, and returns its object.
#[track_caller]
pub fn step(sandbox: &Sandbox) -> Value {
    let ran = sandbox.cmd(["tick", "ada", "--json"]).output();
    let lines = objects(&ran.stdout);
    assert_eq!(lines.len(), 1, "{ran}");
    lines.into_iter().next().unwrap()
}

/// Says something to `ada`, runs one step and returns its object.
#[track_caller]
pub fn step_on(sandbox: &Sandbox, text: &str) -> Value {
    say(sandbox, text);
    step(sandbox)
}

/// `decision (reason)` of a step, and how its turn ended.
#[track_caller]
pub fn decision(step: &Value) -> String {
    let word = |field: &str| step[field].as_str().map(str::to_owned);
    let terminal = word("terminal").map(|terminal| format!(" {terminal}")).unwrap_or_default();
    format!("{} ({}){terminal}", word("decision").unwrap(), word("reason").unwrap())
}

/// The steps of `ada` until one finds nothing to do.
#[track_caller]
pub fn decisions(sandbox: &Sandbox) -> Vec<String> {
    let ran = sandbox.cmd(["tick", "ada", "--json", "--until-idle"]).output();
    objects(&ran.stdout).iter().map(decision).collect()
}

/// Every line of an answer, each of which must be one JSON object.
#[track_caller]
pub fn objects(stdout: &str) -> Vec<Value> {
    let object = |line: &str| match serde_json::from_str::<Value>(line) {
        Ok(value) if value.is_object() => value,
        other => panic!("not an object: {line:?}: {other:?}"),
    };
    assert!(stdout.is_empty() || stdout.ends_with('\n'), "the last line has no end: {stdout:?}");
    stdout.lines().map(object).collect()
}

/// Compares some fields of an object, each whole. `closure.reason` is a field of a field, and an absent one is null.
#[track_caller]
pub fn assert_includes(object: &Value, expected: Value) {
    let field = |path: &String| path.split('.').fold(object, |found, name| &found[name]).clone();
    let found: Value = expected.as_object().unwrap().keys().map(|path| (path.clone(), field(path))).collect();
    assert_eq!(found, expected, "{object}");
}

/// The text of one field of each object. `data.reason` is a field of a field.
#[track_caller]
pub fn texts(objects: &[Value], path: &str) -> Vec<String> {
    let field = |object: &Value| path.split('.').fold(object.clone(), |found, name| found[name].clone());
    objects.iter().map(|object| field(object).as_str().unwrap().to_owned()).collect()
}

/// The failure that an answer ends with.
#[track_caller]
pub fn failure(ran: &Ran) -> Value {
    let last = objects(&ran.stdout).pop().unwrap_or_else(|| panic!("no answer: {ran}"));
    last.get("error").unwrap_or_else(|| panic!("no failure: {ran}")).clone()
}

/// One field of the summary of `ada`.
#[track_caller]
pub fn field(sandbox: &Sandbox, path: &str) -> String {
    sandbox.run(["get", "ada", path]).trim_end().to_owned()
}

/// The JSON in a file.
#[track_caller]
pub fn json_in(path: impl AsRef<Path>) -> Value {
    let path = path.as_ref();
    let bytes = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_slice(&bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Runs a command of `ada` that prints one id, and returns that.
#[track_caller]
pub fn id(sandbox: &Sandbox, args: &[&str]) -> String {
    sandbox.run([args, &["-a", "ada"]].concat()).trim_end().to_owned()
}

/// Makes a wait of `ada`, and returns its id.
#[track_caller]
pub fn wait(sandbox: &Sandbox, kind: &str, flags: &[&str]) -> String {
    id(sandbox, &[&["wait", "--on", kind, "--reason", "why"], flags].concat())
}

/// The ids of the active waits of `ada`.
pub fn waits(sandbox: &Sandbox) -> Vec<String> {
    texts(&sandbox.json_lines(["wait", "list", "-a", "ada"]), "id")
}

/// The kinds of the advisories of `ada`.
pub fn advisories(sandbox: &Sandbox) -> Vec<String> {
    texts(sandbox.json(["get", "ada"])["advisories"].as_array().unwrap(), "kind")
}

/// The lines that turns have noted in `home/heard`.
pub fn heard(sandbox: &Sandbox) -> Vec<String> {
    let text = fs::read_to_string(sandbox.home().join("heard")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// A record of `ada`.
#[track_caller]
pub fn record(sandbox: &Sandbox, path: impl AsRef<Path>) -> Value {
    json_in(Files::of(&sandbox.agent("ada")).join(path))
}

/// Replaces a text file by what is made of it.
#[track_caller]
pub fn edit_file(path: &Path, edit: impl FnOnce(String) -> String) {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    fs::write(path, edit(text)).unwrap();
}

/// Changes `state.json` of `ada` by hand, in the way the program writes it.
#[track_caller]
pub fn edit_state(sandbox: &Sandbox, edit: impl FnOnce(&mut Value)) {
    let mut state = record(sandbox, "state.json");
    edit(&mut state);
    let text = serde_json::to_string_pretty(&state).unwrap();
    fs::write(sandbox.agent("ada").join("state.json"), format!("{text}\n")).unwrap();
}

/// The only file in a directory of `ada`.
#[track_caller]
pub fn only_file(sandbox: &Sandbox, dir: &str) -> PathBuf {
    let files = names(&sandbox.agent("ada").join(dir));
    assert_eq!(files.len(), 1, "{files:?}");
    sandbox.agent("ada").join(dir).join(&files[0])
}

/// The names in a directory, sorted; none if it is not there. Not what every inbox has for git.
pub fn names(dir: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.retain(|name| name != ".gitkeep");
    names.sort();
    names
}

/// Everything below a directory: kind and mode, content, and when it was last written.
pub fn tree(dir: &Path) -> BTreeMap<PathBuf, (u32, Vec<u8>, i64)> {
    let mut tree = BTreeMap::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        for name in names(&dir) {
            let path = dir.join(name);
            let found = fs::symlink_metadata(&path).unwrap();
            let content = if found.is_file() { fs::read(&path).unwrap() } else { Vec::new() };
            let written = if found.is_dir() { 0 } else { found.mtime() * 1_000_000_000 + found.mtime_nsec() };
            if found.is_dir() {
                dirs.push(path.clone());
            }
            tree.insert(path, (found.mode(), content, written));
        }
    }
    tree
}

/// What two trees differ in, by name.
pub fn changes(
    before: &BTreeMap<PathBuf, (u32, Vec<u8>, i64)>,
    after: &BTreeMap<PathBuf, (u32, Vec<u8>, i64)>,
) -> Vec<PathBuf> {
    let gone = before.keys().filter(|path| !after.contains_key(*path));
    let moved = after.iter().filter(|(path, found)| before.get(*path) != Some(found)).map(|(path, _)| path);
    gone.chain(moved).cloned().collect()
}

pub fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

/// The notes in a log, each of which is a line that ends with ` .` and has a line feed before it. Of a process that was killed while it
/// made its note there may be a part, up to the end of a page of memory: that is none.
pub fn notes(log: &str) -> impl Iterator<Item = &str> {
    log.lines().filter_map(|line| line.strip_suffix(" ."))
}

/// The rooms that were prepared in a directory of agents and are not in their place. From now on they are two days old.
pub fn aged_rooms(agents: &Path) -> Vec<PathBuf> {
    let names = names(agents).into_iter().filter(|name| name.starts_with(".room-"));
    let rooms: Vec<PathBuf> = names.map(|name| agents.join(name)).collect();
    for room in &rooms {
        let then = SystemTime::now() - Duration::from_secs(2 * 24 * 60 * 60);
        fs::File::open(room).and_then(|dir| dir.set_modified(then)).unwrap();
    }
    rooms
}

/// Waits until something holds: for what a process does that runs beside the test. The bound is
/// for a process that never does it, not for a slow machine: it is looks that are counted.
#[track_caller]
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    for _ in 0..60_000 {
        if let Some(found) = look() {
            return found;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("it never came to this: {what}");
}

/// Waits for a file to appear.
#[track_caller]
pub fn wait_for(path: &Path) {
    eventually(&path.display().to_string(), || path.exists().then_some(()));
}

/// Waits for a line in a file. Whoever writes it with `>>` makes the file a moment before.
#[track_caller]
pub fn wait_for_line(path: &Path) {
    let has_line = || std::fs::read_to_string(path).is_ok_and(|text| text.contains('\n')).then_some(());
    eventually(&format!("a line in {}", path.display()), has_line);
}

/// What must come to something before its time is over, and then has to be ended by that: tried with
/// more and more time, until it has come to it. Nobody knows how fast the machine is.
#[track_caller]
pub fn in_time<T>(mut attempt: impl FnMut(&str) -> Option<T>) -> T {
    let limits = ["1s", "5s", "30s", "5m"];
    limits.into_iter().find_map(&mut attempt).expect("5 minutes were not enough")
}

/// Sends a signal with the shell's own `kill`: the program of that name is not on every machine.
#[track_caller]
pub fn kill(signal: &str, pid: impl Display) {
    let pid = pid.to_string();
    let sent = Command::new("sh").args(["-c", "kill -s \"$0\" \"$1\"", signal, &pid]).status();
    assert!(sent.unwrap().success(), "SIG{signal} to {pid}");
}

/// Whether a process is there and has not ended. One that nobody has reaped yet has.
pub fn lives(pid: impl Display) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// The processes that carry this sandbox in their environment, as all do that are started in it.
pub fn processes(sandbox: &Sandbox) -> Vec<String> {
    let home = format!("HOME={}", sandbox.home().display()).into_bytes();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let environ = fs::read(entry.path().join("environ")).unwrap_or_default();
        if environ.split(|byte| *byte == 0).any(|variable| variable == home) {
            let words = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let words = String::from_utf8_lossy(&words).replace('\0', " ");
            found.push(format!("{} {words}", entry.file_name().to_string_lossy()));
        }
    }
    found
}

/// A process that runs beside the test and ends with it.
pub struct Beside(pub Child);

impl Beside {
    pub fn start(cmd: Cmd<'_>) -> Beside {
        Beside::spawn(cmd.into_command())
    }

    pub fn spawn(mut command: Command) -> Beside {
        use std::os::unix::process::CommandExt;
        use std::process::Stdio;
        let listen = || {
            for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGHUP] {
                // SAFETY: async-signal-safe, and the default is no function of ours.
                unsafe { libc::signal(signal, libc::SIG_DFL) };
            }
            Ok(())
        };
        // Whoever runs the tests in the background of a script has them ignore some signals.
        // SAFETY: the closure runs between fork and exec, makes system calls and allocates nothing.
        unsafe { command.pre_exec(listen) };
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Beside(command.spawn().unwrap())
    }

    /// Goes on once it has made a file.
    #[track_caller]
    pub fn after_it_made(self, path: impl AsRef<Path>) -> Beside {
        wait_for(path.as_ref());
        self
    }

    /// Kills it and waits for its end.
    pub fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    /// Waits for its end.
    pub fn end(mut self) -> Ran {
        use std::io::Read;
        let (mut stdout, mut stderr) = (String::new(), String::new());
        self.0.stdout.take().unwrap().read_to_string(&mut stdout).unwrap();
        self.0.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        Ran { status: self.0.wait().unwrap(), stdout, stderr }
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// git in the project of a sandbox; it must succeed.
#[track_caller]
pub fn git(sandbox: &Sandbox, args: &[&str]) -> String {
    git_in(sandbox, &sandbox.project(), args)
}

/// git in any directory.
#[track_caller]
pub fn git_in(sandbox: &Sandbox, dir: &Path, args: &[&str]) -> String {
    let ran = raw_git(sandbox, dir, args);
    assert_eq!(ran.code(), 0, "git {args:?}: {ran}");
    ran.stdout
}

/// git in any directory, whatever comes of it.
#[track_caller]
pub fn raw_git(sandbox: &Sandbox, dir: &Path, args: &[&str]) -> Ran {
    let mut all = vec!["-C".into(), dir.as_os_str().to_owned()];
    all.extend(args.iter().map(Into::into));
    sandbox.program("git", all).output()
}

/// A git repository around the project, with somebody to commit as.
#[track_caller]
pub fn make_repository(sandbox: &Sandbox) {
    fs::write(
        sandbox.home().join(".gitconfig"),
        "[user]\nname = Tester\nemail = tester@example.org\n[init]\ndefaultBranch = main\n",
    )
    .unwrap();
    git(sandbox, &["init", "--quiet"]);
}

/// Commits everything in the repository around the project.
#[track_caller]
pub fn commit_all(sandbox: &Sandbox, message: &str) {
    git(sandbox, &["add", "--all"]);
    git(sandbox, &["commit", "--quiet", "-m", message]);
}

/// A started agent `ada`, committed to a git repository around its project.
#[track_caller]
pub fn started_in_git() -> Sandbox {
    let sandbox = started("true");
    make_repository(&sandbox);
    commit_all(&sandbox, "start");
    sandbox
}

/// The program under test as a word of shell, for turns that call it.
pub fn own_name() -> String {
    format!("'{}'", dormouse().display())
}

/// Puts a hook into a `hooks` directory, as a shell script in which `$D` is the program under test. It
/// has all the time that it needs, unless the agent's own settings say otherwise.
pub fn hook(dir: &Path, name: &str, script: &str) -> PathBuf {
    let settings = dir.ancestors().map(|dir| dir.join("dormouse.toml")).find(|path| path.is_file()).unwrap();
    let text = fs::read_to_string(&settings).unwrap();
    if !text.contains("[defaults.timeouts]") {
        fs::write(&settings, format!("{text}\n[defaults.timeouts]\nhook = \"10m\"\n")).unwrap();
    }
    let path = dir.join("hooks").join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    write_program(&path, &format!("#!/bin/sh\nD='{}'\n{script}\n", dormouse().display()));
    path
}

/// Whether a transaction was begun, or committed, and is not applied.
pub fn has_journal(agent: &Path) -> bool {
    let journal = fs::read_to_string(agent.join("journal.jsonl")).unwrap_or_default();
    let is_applied = journal.ends_with('\n') && !journal.ends_with("-\"}\n");
    !journal.is_empty() && !is_applied
}

impl Beside {
    /// Starts a command, and returns it with the lines that it writes to standard output.
    pub fn with_lines(cmd: Cmd<'_>) -> (Beside, impl Iterator<Item = String> + use<>) {
        use std::io::{BufRead, BufReader};
        let mut child = Beside::start(cmd);
        let stdout = child.0.stdout.take().unwrap();
        (child, BufReader::new(stdout).lines().map(Result::unwrap))
    }
}

impl Ran {
    /// Asserts that standard error contains a text.
    #[track_caller]
    pub fn reports(self, text: &str) -> Ran {
        assert!(self.stderr.contains(text), "{text}: {self}");
        self
    }

    /// Compares the exit status and the whole of standard output.
    #[track_caller]
    pub fn printed(self, status: i32, stdout: &str) -> Ran {
        assert_eq!((self.code(), self.stdout.as_str()), (status, stdout), "{self}");
        self
    }
}

/// Opens a pseudo-terminal of this size; 0 means an unknown size. Returns the end of the test and
/// the end of the program.
pub fn pseudo_terminal(columns: u16, rows: u16) -> (fs::File, std::os::fd::OwnedFd) {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    use rustix::termios::{Winsize, tcsetwinsize};
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let name = ptsname(&ours, Vec::new()).unwrap().into_string().unwrap();
    let theirs = fs::File::options().read(true).write(true).open(name).unwrap();
    tcsetwinsize(&theirs, Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
    (ours.into(), theirs.into())
}

/// Returns the words of each command in a list that is separated by commas.
pub fn commands(list: &str) -> Vec<Vec<&str>> {
    list.split(", ").map(words).collect()
}

/// Makes a named pipe. Opening it blocks until another process opens the other end.
#[track_caller]
pub fn fifo(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success(), "{}", path.display());
}

/// Returns the seconds from one time to another, both in RFC 3339.
#[track_caller]
pub fn seconds_between(from: &str, to: &str) -> i64 {
    let at = |time: &str| chrono::DateTime::parse_from_rfc3339(time).unwrap().timestamp();
    at(to) - at(from)
}
