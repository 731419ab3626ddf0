//! State directories for the benchmark, with agents, backlogs and histories.

use std::cell::Cell;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::run::bare;

/// Text of every message.
pub const TEXT: &str = "look at what has come in and say what is to be done";

/// Directory of the benchmark's files, and the compiled reference program benches/floor.
pub struct World {
    dir: PathBuf,
    pub floor: PathBuf,
}

impl World {
    /// Creates an empty directory with the compiled reference program benches/floor.
    pub fn make() -> World {
        let place = std::env::var_os("DORMOUSE_BENCH_DIR").map(PathBuf::from);
        let dir = place.unwrap_or_else(|| env!("CARGO_TARGET_TMPDIR").into()).join("steps");
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).expect("a place");
        let floor = dir.join("floor");
        let built = Command::new(std::env::var_os("RUSTC").unwrap_or("rustc".into()))
            .args([
                "--edition=2024",
                "-O",
                "-Cpanic=abort",
                "-Cstrip=symbols",
                "-Clto=fat",
                "-Ccodegen-units=1",
            ])
            .args(["-Ctarget-feature=+crt-static", "-Crelocation-model=static", "-o"])
            .arg(&floor)
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/benches/floor/floor.rs"))
            .status();
        assert!(built.is_ok_and(|status| status.success()), "the floor can't be built");
        World { dir, floor }
    }

    pub fn floor(&self, mode: &str) -> Command {
        let mut command = bare(&self.floor);
        command.arg(mode);
        command
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    pub fn store(&self, name: &str) -> Store {
        let store = Store { dir: self.path(name), serial: Cell::new(0) };
        fs::create_dir(&store.dir).expect("a new directory");
        let made = bare(env!("CARGO_BIN_EXE_dormouse")).arg("init").arg(&store.dir).output();
        assert!(made.is_ok_and(|made| made.status.success()), "no state directory");
        store
    }

    /// Waits until prepared files are on the disk, so that no measurement includes their writing.
    pub fn rest(&self) {
        assert!(bare(program("sync")).status().is_ok_and(|status| status.success()));
    }

    pub fn clear(&self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// A state directory.
pub struct Store {
    dir: PathBuf,
    serial: Cell<u32>,
}

impl Store {
    pub fn dormouse(&self, args: &[&str]) -> Command {
        let mut command = bare(env!("CARGO_BIN_EXE_dormouse"));
        command.arg("-C").arg(&self.dir).args(args);
        command
    }

    pub fn must(&self, args: &[&str]) {
        let output = self.dormouse(args).output().expect("it starts");
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    pub fn root(&self) -> PathBuf {
        self.dir.join(".dormouse")
    }

    /// Creates and starts an agent whose turn is `true`. Returns the agent when it is asleep.
    pub fn agent(&self, name: &str) -> Agent<'_> {
        self.must(&["create", name, "--", "true"]);
        self.must(&["start", name]);
        let agent = Agent { store: self, name: name.to_owned() };
        agent.settle();
        agent
    }

    /// Creates `count` agents with the records of the sleeping agent `of`.
    pub fn copies(&self, of: &Agent<'_>, count: usize) {
        let subdirs: Vec<PathBuf> = entries(&of.dir()).into_iter().filter(|path| path.is_dir()).collect();
        let named = format!("\"{}\"", of.name);
        let contents = ["state.json", "identity.json", "agent.toml"]
            .map(|name| (name, fs::read_to_string(of.path(name)).expect("a record")));
        for number in 0..count {
            let name = format!("copy-{number:05}");
            let dir = self.root().join("agents").join(&name);
            fs::create_dir(&dir).expect("a new agent");
            for subdir in &subdirs {
                fs::create_dir(dir.join(subdir.file_name().expect("a name"))).expect("a directory");
            }
            for (file, content) in &contents {
                fs::write(dir.join(file), content.replace(&named, &format!("\"{name}\""))).expect("a record");
            }
        }
    }

    fn next(&self) -> u32 {
        self.serial.set(self.serial.get() + 1);
        self.serial.get()
    }
}

pub struct Agent<'s> {
    pub store: &'s Store,
    pub name: String,
}

impl Agent<'_> {
    pub fn dir(&self) -> PathBuf {
        self.store.root().join("agents").join(&self.name)
    }

    pub fn path(&self, relative: &str) -> PathBuf {
        self.dir().join(relative)
    }

    pub fn tick(&self) -> Command {
        self.store.dormouse(&["tick", &self.name])
    }

    pub fn enqueue(&self) -> Command {
        self.store.dormouse(&["enqueue", &self.name, TEXT])
    }

    /// Ticks the agent until it is idle, and once more, so that the idle state is recorded.
    pub fn settle(&self) {
        self.store.must(&["tick", "--until-idle", &self.name]);
        self.store.must(&["tick", &self.name]);
    }

    /// Returns the `.json` files of the agent's inbox, which are its messages.
    pub fn inbox(&self) -> Vec<PathBuf> {
        let is_message = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "json");
        entries(&self.path("inbox")).into_iter().filter(is_message).collect()
    }

    /// Returns the path of a message in the agent's inbox.
    pub fn message(&self) -> PathBuf {
        self.inbox().pop().expect("a message")
    }

    /// Returns the number of the agent's files, and the disk space with directories, in bytes.
    pub fn takes(&self) -> (u64, u64) {
        let mut taken = (0, 0);
        for entry in walkdir::WalkDir::new(self.dir()) {
            let metadata = entry.expect("an entry").metadata().expect("a file");
            taken.0 += u64::from(metadata.is_file());
            taken.1 += metadata.blocks() * 512;
        }
        taken
    }

    pub fn empty_inbox(&self) {
        for path in self.inbox() {
            fs::remove_file(path).expect("a message that goes");
        }
    }

    /// Removes the newest message of the inbox, so that the inbox keeps its length.
    pub fn take_back(&self) {
        self.take_last("inbox");
    }

    pub fn fill(&self, count: usize) {
        (0..count).for_each(|_| self.store.must(&["enqueue", &self.name, TEXT]));
    }

    /// Returns a command of benches/floor that stores a message file in the agent's inbox durably.
    pub fn floor_store(&self, world: &World, bytes: &str) -> Command {
        let name = format!("2-msg_0{:031x}.json", self.store.next());
        let mut command = world.floor("store");
        command.arg(self.path("tmp").join(&name)).arg(self.path("inbox").join(&name)).arg(bytes);
        command
    }

    /// Adds `count` copies of the agent's last processed message to its archive and ledger.
    pub fn invent_history(&self, count: usize) {
        let (line, id) = self.last_archived("message");
        let ledger = fs::read_to_string(newest(&self.path("ledger"))).expect("a ledger");
        let events: Vec<&str> = ledger.lines().filter(|line| line.contains("_id\":\"")).collect();
        self.repeat("archive", "message", &line, &id, count);
        for event in &events {
            self.repeat("ledger", "", event, &id, count);
        }
    }

    /// Creates a work item, a wait, a timer and a task, and ends each.
    fn end_one_of_each(&self) {
        let a = &self.name;
        self.store.must(&["work", "add", "-a", a, "something that gets done"]);
        let added = |dir: &str| entries(&self.path(dir)).into_iter().filter(|path| path.is_file()).max();
        let id = |dir: &str| {
            let path = added(dir).expect("a record");
            path.file_stem().expect("an id").to_string_lossy().into_owned()
        };
        let item = id("work");
        let wait = ["wait", "-a", a, "--on", "system", "--reason", "a reason", "--recheck", "300d"];
        self.store.must(&[&wait[..], &["--work-item", &item]].concat());
        self.store.must(&["work", "complete", &item]);
        self.store.must(&["timer", "add", "-a", a, "--in", "300d", TEXT]);
        self.store.must(&["timer", "cancel", &id("timers")]);
        self.store.must(&["task", "start", "-a", a, "--", program("true").to_str().expect("a path")]);
        let task = entries(&self.path("tasks")).into_iter().find(|path| path.is_dir()).expect("a task");
        let task = task.file_name().expect("an id").to_string_lossy().into_owned();
        self.store.must(&["task", "output", &task, "--follow"]);
        self.settle();
    }

    /// Adds `count` ended work items, waits, timers and tasks to the agent's archive.
    pub fn invent_past(&self, count: usize) {
        self.end_one_of_each();
        for kind in ["work", "wait", "timer", "task"] {
            let (line, id) = self.last_archived(kind);
            self.repeat("archive", kind, &line, &id, count);
        }
    }

    /// Returns the last line of the newest archive file of a kind, and the id in that line.
    fn last_archived(&self, kind: &str) -> (String, String) {
        let path = newest(&self.path("archive")).join(format!("{kind}.jsonl"));
        let archive = fs::read_to_string(path).expect("an archive");
        let last = archive.lines().last().expect("a record");
        (last.to_owned(), id_in(last))
    }

    /// Appends `count` copies of a line, each with another id, to files of twelve past months.
    fn repeat(&self, dir: &str, kind: &str, line: &str, id: &str, count: usize) {
        const MONTHS: usize = 12;
        for month in 0..MONTHS {
            let name = format!("2025-{:02}", month + 1);
            let path = match kind {
                "" => format!("{dir}/{name}.jsonl"),
                kind => format!("{dir}/{name}/{kind}.jsonl"),
            };
            let path = self.path(&path);
            fs::create_dir_all(path.parent().expect("a directory")).expect("a month");
            let mut lines = appender(&path);
            for number in month * count / MONTHS..(month + 1) * count / MONTHS {
                writeln!(lines, "{}", line.replace(id, &numbered(id, number))).expect("a line");
            }
        }
    }

    /// Creates `count` work items, each with a wait on it, and `count` timers.
    pub fn open(&self, count: usize) {
        let a = &self.name;
        self.store.must(&["work", "add", "-a", a, "something to do", "--pick"]);
        self.store.must(&["wait", "-a", a, "--on", "external", "--reason", "a reason", "--recheck", "300d"]);
        self.store.must(&["timer", "add", "-a", a, "--in", "300d", TEXT]);
        self.settle();
        let item = id_in(&fs::read_to_string(newest(&self.path("work"))).expect("a record"));
        for dir in ["work", "waits", "timers"] {
            let path = newest(&self.path(dir));
            let record = fs::read_to_string(&path).expect("a record");
            let (name, id) = (path.to_string_lossy(), id_in(&record));
            for number in 1..count {
                let other = record.replace(&id, &numbered(&id, number));
                let other = other.replace(&item, &numbered(&item, number));
                fs::write(name.replace(&id, &numbered(&id, number)), other).expect("a record");
            }
        }
    }

    /// Removes the record that was added last to a directory.
    pub fn take_last(&self, dir: &str) {
        let path = entries(&self.path(dir)).into_iter().max().expect("a record");
        fs::remove_file(path).expect("it goes");
    }
}

/// Returns the 32 digits of the first id in a record.
fn id_in(record: &str) -> String {
    let (_, rest) = record.split_once("\"id\":").expect("an id");
    rest.split('_').nth(1).and_then(|rest| rest.get(..32)).expect("an id").to_owned()
}

/// Returns a valid id that replaces `id`. The ids of ascending numbers are in ascending order.
fn numbered(id: &str, number: usize) -> String {
    format!("0{number:011x}7000{}", &id[16..])
}

fn newest(dir: &Path) -> PathBuf {
    entries(dir).into_iter().max().expect("an entry")
}

fn appender(path: &Path) -> BufWriter<File> {
    BufWriter::new(File::options().create(true).append(true).open(path).expect("a file"))
}

pub fn entries(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).expect("a directory");
    entries.map(|entry| entry.expect("an entry").path()).collect()
}

/// Writes a file of `count` lines for `enqueue --batch`.
pub fn batch(world: &World, count: usize) -> PathBuf {
    let path = world.path("batch.jsonl");
    let mut lines = BufWriter::new(File::create(&path).expect("a file"));
    for number in 0..count {
        writeln!(lines, "{{\"text\":\"{TEXT}\",\"correlation_id\":\"{number}\"}}").expect("a line");
    }
    path
}

/// Creates an SQLite database in the journal mode `mode`, with a table of `count` rows.
pub fn database(world: &World, sqlite: &Path, mode: &str, count: usize) -> PathBuf {
    let path = world.path(&format!("{mode}-{count}.db"));
    let statement = format!(
        "PRAGMA journal_mode={mode}; \
         CREATE TABLE queue (id INTEGER PRIMARY KEY, claimed INTEGER DEFAULT 0, body TEXT); \
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count}) \
         INSERT INTO queue (body) SELECT '{{\"text\":\"{TEXT}\"}}' FROM n;"
    );
    let made = bare(sqlite).arg(&path).arg(statement).output();
    assert!(made.is_ok_and(|made| made.status.success()), "no database");
    path
}

/// Returns the path of a program in PATH, so that no timed start searches PATH for the program.
pub fn program(name: &str) -> PathBuf {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&paths).map(|dir| dir.join(name)).find(|path| path.is_file());
    found.unwrap_or_else(|| name.into())
}
