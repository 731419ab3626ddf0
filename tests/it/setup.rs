//! Helpers of the command tests: they create agents and files, run commands and read their output.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

use serde_json::Value;

use crate::harness::{Cmd, Files, Ran, Sandbox, dormouse, is_elsewhere, write_program};

/// Names of all hooks of an agent.
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

/// Decisions of steps, in the form that [`decision`] returns.
pub const TURN_COMPLETED: &str = "start_model_turn (operator_prompt) completed";
pub const TURN_FAILED: &str = "start_model_turn (operator_prompt) failed";
pub const SLEEP: &str = "sleep (no_pending_scheduler_facts)";

/// Splits a line into its words.
pub fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

/// Returns the number in the environment variable `name`, or `otherwise` if it is not set.
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

/// Returns the JSON objects, one a line, that hooks have written to `$HOME/noted`.
pub fn noted_objects(sandbox: &Sandbox) -> Vec<Value> {
    objects(&fs::read_to_string(sandbox.home().join("noted")).unwrap_or_default())
}

/// Returns the lines of `$HOME/noted` and removes the file.
pub fn take_noted(sandbox: &Sandbox) -> Vec<String> {
    let lines = noted(sandbox);
    let _ = fs::remove_file(sandbox.home().join("noted"));
    lines
}

/// Returns the names in the directory `agents` of the state directory, including stale files.
pub fn agents(sandbox: &Sandbox) -> Vec<String> {
    names(&sandbox.store().join("agents"))
}

/// Returns a state directory with a started agent `ada` whose turns run the shell script `shell`.
#[track_caller]
pub fn started(shell: &str) -> Sandbox {
    let sandbox = Sandbox::new();
    add(&sandbox, "ada", shell);
    sandbox
}

/// Makes an agent as [`started`] does, and appends lines to its policy.
#[track_caller]
pub fn started_with(shell: &str, policy: &str) -> Sandbox {
    let sandbox = started(shell);
    extend_policy(&sandbox, "ada", policy);
    sandbox
}

/// Creates an agent whose turns run the shell script `shell`, and starts the agent.
#[track_caller]
pub fn add(sandbox: &Sandbox, name: &str, shell: &str) {
    sandbox.run(["create", name, "--shell", shell]);
    sandbox.run(["start", name]);
}

/// Appends lines to an agent's policy. They belong to the last table of that TOML file.
pub fn extend_policy(sandbox: &Sandbox, name: &str, lines: &str) {
    edit_policy(sandbox, name, |text| format!("{text}{lines}"));
}

/// Replaces the text of an agent's policy by `edit(text)`, and returns the old text.
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

/// Sends a message to `ada` and returns its id.
#[track_caller]
pub fn say(sandbox: &Sandbox, text: &str) -> String {
    sandbox.run(["enqueue", "ada", text]).trim_end().to_owned()
}

/// Runs one step of `ada`, with any exit status, and returns its JSON object.
#[track_caller]
pub fn step(sandbox: &Sandbox) -> Value {
    let ran = sandbox.cmd(["tick", "ada", "--json"]).output();
    let lines = objects(&ran.stdout);
    assert_eq!(lines.len(), 1, "{ran}");
    lines.into_iter().next().unwrap()
}

/// Sends a message to `ada`, runs one step and returns its JSON object.
#[track_caller]
pub fn step_on(sandbox: &Sandbox, text: &str) -> Value {
    say(sandbox, text);
    step(sandbox)
}

/// Returns `decision (reason)` of a step, with the result of its turn if it ran one.
#[track_caller]
pub fn decision(step: &Value) -> String {
    let word = |field: &str| step[field].as_str().map(str::to_owned);
    let terminal = word("terminal").map(|terminal| format!(" {terminal}")).unwrap_or_default();
    format!("{} ({}){terminal}", word("decision").unwrap(), word("reason").unwrap())
}

/// Runs steps of `ada` until one finds nothing to do, and returns their decisions.
#[track_caller]
pub fn decisions(sandbox: &Sandbox) -> Vec<String> {
    let ran = sandbox.cmd(["tick", "ada", "--json", "--until-idle"]).output();
    objects(&ran.stdout).iter().map(decision).collect()
}

/// Parses output that has one JSON object on each line.
#[track_caller]
pub fn objects(stdout: &str) -> Vec<Value> {
    let object = |line: &str| match serde_json::from_str::<Value>(line) {
        Ok(value) if value.is_object() => value,
        other => panic!("not an object: {line:?}: {other:?}"),
    };
    assert!(stdout.is_empty() || stdout.ends_with('\n'), "the last line has no end: {stdout:?}");
    stdout.lines().map(object).collect()
}

/// Returns the JSON object of a text that has one line.
#[track_caller]
pub fn only_object(text: &str) -> Value {
    assert_eq!(text.lines().count(), 1, "{text}");
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Compares the named fields of an object. A path such as `closure.reason` names a nested field;
/// an absent field equals null.
#[track_caller]
pub fn assert_includes(object: &Value, expected: Value) {
    let field = |path: &String| path.split('.').fold(object, |found, name| &found[name]).clone();
    let found: Value = expected.as_object().unwrap().keys().map(|path| (path.clone(), field(path))).collect();
    assert_eq!(found, expected, "{object}");
}

/// Returns the text of one field of each object. A path such as `data.reason` names a nested field.
#[track_caller]
pub fn texts(objects: &[Value], path: &str) -> Vec<String> {
    let field = |object: &Value| path.split('.').fold(object.clone(), |found, name| found[name].clone());
    objects.iter().map(|object| field(object).as_str().unwrap().to_owned()).collect()
}

/// Returns the `error` of the last JSON object that a command has printed.
#[track_caller]
pub fn failure(ran: &Ran) -> Value {
    let last = objects(&ran.stdout).pop().unwrap_or_else(|| panic!("no answer: {ran}"));
    last.get("error").unwrap_or_else(|| panic!("no failure: {ran}")).clone()
}

/// Returns one field of `dormouse get ada`.
#[track_caller]
pub fn field(sandbox: &Sandbox, path: &str) -> String {
    field_of(sandbox, "ada", path)
}

/// Returns one field of `dormouse get NAME`.
#[track_caller]
pub fn field_of(sandbox: &Sandbox, name: &str, path: &str) -> String {
    sandbox.run(["get", name, path]).trim_end().to_owned()
}

/// Parses the JSON in a file.
#[track_caller]
pub fn json_in(path: impl AsRef<Path>) -> Value {
    let path = path.as_ref();
    let bytes = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_slice(&bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Runs a command for `ada` that prints an id, and returns the id.
#[track_caller]
pub fn id(sandbox: &Sandbox, args: &[&str]) -> String {
    sandbox.run([args, &["-a", "ada"]].concat()).trim_end().to_owned()
}

/// Creates a wait of `ada` and returns its id.
#[track_caller]
pub fn wait(sandbox: &Sandbox, kind: &str, flags: &[&str]) -> String {
    id(sandbox, &[&["wait", "--on", kind, "--reason", "why"], flags].concat())
}

/// Returns the ids of the active waits of `ada`.
pub fn waits(sandbox: &Sandbox) -> Vec<String> {
    texts(&sandbox.json_lines(["wait", "list", "-a", "ada"]), "id")
}

/// Returns the kinds of the advisories of `ada`.
pub fn advisories(sandbox: &Sandbox) -> Vec<String> {
    texts(sandbox.json(["get", "ada"])["advisories"].as_array().unwrap(), "kind")
}

/// Returns the lines that turns have written to `$HOME/heard`.
pub fn heard(sandbox: &Sandbox) -> Vec<String> {
    let text = fs::read_to_string(sandbox.home().join("heard")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// Parses a record of `ada`, at a path inside of the agent's directory.
#[track_caller]
pub fn record(sandbox: &Sandbox, path: impl AsRef<Path>) -> Value {
    json_in(Files::of(&sandbox.agent("ada")).join(path))
}

/// Replaces the text of a file by `edit(text)`.
#[track_caller]
pub fn edit_file(path: &Path, edit: impl FnOnce(String) -> String) {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    fs::write(path, edit(text)).unwrap();
}

/// Edits `state.json` of `ada` and writes it in the form that the program writes.
#[track_caller]
pub fn edit_state(sandbox: &Sandbox, edit: impl FnOnce(&mut Value)) {
    let mut state = record(sandbox, "state.json");
    edit(&mut state);
    let text = serde_json::to_string_pretty(&state).unwrap();
    fs::write(sandbox.agent("ada").join("state.json"), format!("{text}\n")).unwrap();
}

/// Returns the path of the only file in a directory of `ada`.
#[track_caller]
pub fn only_file(sandbox: &Sandbox, dir: &str) -> PathBuf {
    let files = names(&sandbox.agent("ada").join(dir));
    assert_eq!(files.len(), 1, "{files:?}");
    sandbox.agent("ada").join(dir).join(&files[0])
}

/// Returns the sorted names in a directory without `.gitkeep`, or none if the directory is absent.
pub fn names(dir: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.retain(|name| name != ".gitkeep");
    names.sort();
    names
}

/// Type and mode, content, and modification time in ns since 1970, of every file below a directory.
/// A directory has no content, and 0 as its time.
pub type Tree = BTreeMap<PathBuf, (u32, Vec<u8>, i64)>;

/// Reads all files below a directory.
pub fn tree(dir: &Path) -> Tree {
    let mut tree = BTreeMap::new();
    for path in names(dir).into_iter().map(|name| dir.join(name)) {
        let found = fs::symlink_metadata(&path).unwrap();
        let content = if found.is_file() { fs::read(&path).unwrap() } else { Vec::new() };
        let written = if found.is_dir() { 0 } else { found.mtime() * 1_000_000_000 + found.mtime_nsec() };
        if found.is_dir() {
            tree.append(&mut self::tree(&path));
        }
        tree.insert(path, (found.mode(), content, written));
    }
    tree
}

/// Returns the paths that differ between two trees: first removed files, then new and changed ones.
pub fn changes(before: &Tree, after: &Tree) -> Vec<PathBuf> {
    let gone = before.keys().filter(|path| !after.contains_key(*path));
    let moved = after.iter().filter(|(path, found)| before.get(*path) != Some(found)).map(|(path, _)| path);
    gone.chain(moved).cloned().collect()
}

pub fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

/// Returns the complete notes of a log. A note is a line that ends with ` .`, and begins after a
/// line feed. A process that was killed while writing can leave the first part of a note.
pub fn notes(log: &str) -> impl Iterator<Item = &str> {
    log.lines().filter_map(|line| line.strip_suffix(" ."))
}

/// Returns the directories of agents whose creation was interrupted before the rename to the final
/// name, and sets their modification time back by two days.
pub fn aged_rooms(agents: &Path) -> Vec<PathBuf> {
    let names = names(agents).into_iter().filter(|name| name.starts_with(".room-"));
    let rooms: Vec<PathBuf> = names.map(|name| agents.join(name)).collect();
    for room in &rooms {
        let then = SystemTime::now() - Duration::from_secs(2 * 24 * 60 * 60);
        fs::File::open(room).and_then(|dir| dir.set_modified(then)).unwrap();
    }
    rooms
}

/// Waits until `look` returns a value, for an effect of a process that runs at the same time. The
/// number of attempts is limited, not the time, so that a slow machine fails no test.
#[track_caller]
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    for _ in 0..60_000 {
        if let Some(found) = look() {
            return found;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{what}: no such state after 60000 looks");
}

/// Waits until a file exists.
#[track_caller]
pub fn wait_for(path: &Path) {
    eventually(&path.display().to_string(), || path.exists().then_some(()));
}

/// Waits until a file has a line. A shell that writes a line with `>>` creates the file earlier.
#[track_caller]
pub fn wait_for_line(path: &Path) {
    let has_line = || std::fs::read_to_string(path).is_ok_and(|text| text.contains('\n')).then_some(());
    eventually(&format!("a line in {}", path.display()), has_line);
}

/// Tries a command that a timeout ends, with longer and longer timeouts, until `attempt` returns a
/// value. A test can't know how much a slow machine does within a given timeout.
#[track_caller]
pub fn in_time<T>(mut attempt: impl FnMut(&str) -> Option<T>) -> T {
    let limits = ["1s", "5s", "30s", "5m"];
    limits.into_iter().find_map(&mut attempt).expect("5 minutes were not enough")
}

/// Sends a signal with the `kill` of the shell: not every machine has a program `kill`.
#[track_caller]
pub fn kill(signal: &str, pid: impl Display) {
    let pid = pid.to_string();
    let sent = Command::new("sh").args(["-c", "kill -s \"$0\" \"$1\"", signal, &pid]).status();
    assert!(sent.unwrap().success(), "SIG{signal} to {pid}");
}

/// True if a process exists and is no zombie.
pub fn lives(pid: impl Display) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// Returns pid and arguments of the processes of a sandbox, which all have its `HOME`.
pub fn processes(sandbox: &Sandbox) -> Vec<String> {
    let home = format!("HOME={}", sandbox.home().display()).into_bytes();
    let with_arguments = |entry: fs::DirEntry| {
        let environ = fs::read(entry.path().join("environ")).unwrap_or_default();
        environ.split(|byte| *byte == 0).any(|variable| variable == home).then(|| {
            let words = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let words = String::from_utf8_lossy(&words).replace('\0', " ");
            format!("{} {words}", entry.file_name().to_string_lossy())
        })
    };
    fs::read_dir("/proc").unwrap().flatten().filter_map(with_arguments).collect()
}

/// Process that runs at the same time as the test, and is killed when this value is dropped.
pub struct Beside(pub Child);

impl Beside {
    pub fn start(cmd: Cmd<'_>) -> Beside {
        Beside::spawn(cmd.into_command())
    }

    pub fn spawn(mut command: Command) -> Beside {
        let listen = || {
            for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGHUP] {
                // SAFETY: async-signal-safe, and the default is no function of ours.
                unsafe { libc::signal(signal, libc::SIG_DFL) };
            }
            Ok(())
        };
        // The child must not ignore signals that a script in the background makes the tests ignore.
        // SAFETY: the closure runs between fork and exec, makes system calls and allocates nothing.
        unsafe { command.pre_exec(listen) };
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Beside(command.spawn().unwrap())
    }

    /// Returns once the process has created the file `path`.
    #[track_caller]
    pub fn after_it_made(self, path: impl AsRef<Path>) -> Beside {
        wait_for(path.as_ref());
        self
    }

    /// Kills the process and waits until it has ended.
    pub fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    /// Waits until the process has ended, and returns its output.
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

/// Runs git in the project of a sandbox. The command must succeed.
#[track_caller]
pub fn git(sandbox: &Sandbox, args: &[&str]) -> String {
    git_in(sandbox, &sandbox.project(), args)
}

/// Runs git in a directory. The command must succeed.
#[track_caller]
pub fn git_in(sandbox: &Sandbox, dir: &Path, args: &[&str]) -> String {
    let ran = raw_git(sandbox, dir, args);
    assert_eq!(ran.code(), 0, "git {args:?}: {ran}");
    ran.stdout
}

/// Runs git in a directory, with any exit status.
#[track_caller]
pub fn raw_git(sandbox: &Sandbox, dir: &Path, args: &[&str]) -> Ran {
    let mut all = vec!["-C".into(), dir.as_os_str().to_owned()];
    all.extend(args.iter().map(Into::into));
    sandbox.program("git", all).output()
}

/// Creates a git repository around the project, and a user for its commits.
#[track_caller]
pub fn make_repository(sandbox: &Sandbox) {
    fs::write(
        sandbox.home().join(".gitconfig"),
        "[user]\nname = Tester\nemail = tester@example.org\n[init]\ndefaultBranch = main\n",
    )
    .unwrap();
    git(sandbox, &["init", "--quiet"]);
}

/// Commits all files of the project.
#[track_caller]
pub fn commit_all(sandbox: &Sandbox, message: &str) {
    git(sandbox, &["add", "--all"]);
    git(sandbox, &["commit", "--quiet", "-m", message]);
}

/// Returns a started agent `ada` that is committed to a git repository around its project.
#[track_caller]
pub fn started_in_git() -> Sandbox {
    let sandbox = started("true");
    make_repository(&sandbox);
    commit_all(&sandbox, "start");
    sandbox
}

/// Returns the path of the program under test, quoted for a shell.
pub fn own_name() -> String {
    format!("'{}'", dormouse().display())
}

/// Installs a shell script as a hook in the directory `hooks` of `dir`; `$D` is the program under
/// test. Hooks get a timeout of 10 minutes, unless the settings have a table of timeouts.
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

/// True if the agent's journal has a transaction that was begun or committed, but not applied.
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

/// Starts a tick of `ada`, and waits until its turn has made the file `running`.
#[track_caller]
pub fn tick_until_running(sandbox: &Sandbox) -> Beside {
    Beside::start(sandbox.cmd(["tick", "ada"])).after_it_made(sandbox.project().join("running"))
}

impl Ran {
    /// Asserts the exit status and the complete standard output.
    #[track_caller]
    pub fn printed(self, status: i32, stdout: &str) -> Ran {
        assert_eq!((self.code(), self.stdout.as_str()), (status, stdout), "{self}");
        self
    }
}

/// Opens a pseudo-terminal of this size; 0 means an unknown size. Returns the master side, for the
/// test, and the slave side, for the program.
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
