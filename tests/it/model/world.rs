//! Executes each act of a test case in the program and in the model, and compares the results.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Output, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use super::Act;
use super::compare::same;
use super::database::Database;
use super::reference::commands::Command;
use super::reference::hooks::{HookBehaviour, NO_LUCK};
use super::reference::preemption::SAVED_BY_HOOK;
use super::reference::{Millis, Model, Settings, Tag};
use super::script::{Reference, line, moment, pipe, quoted, secret_file};
use super::turns::FOR_EVER;
use crate::harness::{Sandbox, dormouse, write_program};
use crate::setup::{HOOKS, changes, names, objects, tree, words};

/// Description of a difference between program and model, or of an error.
pub type Failure = String;
pub type Checked = Result<(), Failure>;

/// Maximum wait for a turn to begin or to be ended, in seconds.
const PATIENCE_S: i64 = 600;

/// Seconds by which the clock may go back from its latest time: less than a day, because the
/// contract says nothing about records that are dated further ahead.
const BACK_MAX_S: i64 = 20 * 3600;

/// Start time of each case: the day before clocks change in New York, and weeks before the end of
/// the month, because setting the clock back into another month would reorder the archive.
pub const BEGINNING: &str = "2026-03-07T17:00:00Z";

/// Start of a transcript: makes a state directory, and defines functions that find ids by texts.
const PREAMBLE: &str = r#"export HOME="$PWD/home" TZ=UTC; mkdir home; mkfifo home/up; echo no > home/no-secret
dormouse init; dormouse create ada --secret-file home/trigger-0 --shell '. "$HOME/turn"'
sed -i 's/"30m"/"600s"/' .dormouse/agents/ada/agent.toml
id() { cat .dormouse/agents/ada/*/*.json .dormouse/agents/ada/archive/*/*.jsonl 2>/dev/null |
    jq -r --arg said "$2" '., (.message | objects) | select([.objective, .reason, .summary, .correlation_id, .body.text,
        .message.correlation_id] | index($said)) | .id' | grep -m1 "^$1_"; }
trigger() { cat .dormouse/agents/ada/triggers/*.json .dormouse/agents/ada/archive/*/trigger.jsonl 2>/dev/null |
    jq -r --arg hash "$(tr -d '\n' < "home/$1" | sha256sum | cut -c -64)" 'select(.secret_sha256 == $hash) | .id'; }
"#;

const POLICY: &str = r#"
[recovery]
strategy = "exponential"
base = "1s"
max_attempts = 3
on_exhausted = "#;

/// Program of each hook: appends its input to the file `told` and, for two hooks, the agent's state
/// to `stood`, then executes the file with its name. `STATE` is a command that prints the state.
const HOOK: &str = r#"#!/bin/sh
read -r told
printf '%s\n' "$told" >> "$HOME/told"
case $DORMOUSE_HOOK in on-scheduled | on-resume)
    echo "$DORMOUSE_HOOK $(STATE | grep -o '"[a-z_]*state": *"[a-z_]*"')" >> "$HOME/stood" ;;
esac
if [ -e "$HOME/$DORMOUSE_HOOK" ]; then . "$HOME/$DORMOUSE_HOOK"; fi
"#;

// Shell commands that print the agent's state, with records in files and in a database.
const IN_FILES: &str = "cat \"$DORMOUSE_DIR/agents/ada/state.json\"";
const IN_DATABASE: &str = "dormouse get ada --json";

/// State directory that is copied for every case, with the agent if its records are files.
pub struct Template {
    sandbox: Sandbox,
    records: Records,
    on_exhausted: &'static str,
    /// Directory of hook and editor, outside of the sandbox, which may be mounted `noexec`.
    programs: TempDir,
}

/// Place where the program stores its records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Records {
    Files,
    Database,
}

/// The agent of one case, in the program and in the model.
pub struct World {
    pub sandbox: Sandbox,
    /// Schema of the records, if they are in a database.
    database: Option<Database>,
    pub model: Model,
    pub transcript: String,
    /// Current time in seconds since 1970.
    seconds: i64,
    /// Latest time that the clock has shown, in seconds since 1970.
    latest: i64,
    /// Number of times of day that were given to commands. It is added to the clock as
    /// milliseconds, so that no two changes have the same time.
    pub moments: i64,
    ids: BTreeMap<Reference, String>,
    /// Pipes through which open tasks get their exit status.
    pipes: BTreeMap<Tag, File>,
    /// Number of calls of the program.
    pub commands: usize,
}

impl Template {
    pub fn new(on_exhausted: &'static str, records: Records) -> Template {
        let sandbox = Sandbox::in_memory();
        sandbox.run(["init"]);
        sandbox.keep_contexts();
        fs::write(sandbox.home().join("no-secret"), "no\n").expect("written");
        let programs = TempDir::new().expect("a directory");
        write_program(&programs.path().join("hook"), &HOOK.replace("STATE", records.print_state()));
        let add = "printf %s \"$LINES_TO_ADD\" >>\"$1\"";
        write_program(
            &programs.path().join("edit"),
            &format!("#!/bin/sh\nsed -i 's/\"30m\"/\"{PATIENCE_S}s\"/' \"$1\"; {add}\n"),
        );
        if records == Records::Files {
            make(&sandbox);
        }
        Template { sandbox, records, on_exhausted, programs }
    }

    fn policy(&self, settings: &Settings) -> String {
        let limit = |name: &str, limit: Option<u64>| {
            limit.map(|limit| format!("{name} = {limit}\n")).unwrap_or_default()
        };
        format!(
            "{POLICY}\"{}\"\nmax_deferrals = {}\nmax_interruptions = {}\n{}\n[limits]\ndedupe_window = \"1h\"\nmax_hops = {}\n{}{}",
            self.on_exhausted,
            settings.max_deferrals,
            settings.max_interruptions,
            if settings.unmatched_runs { "\n[inbox]\nunmatched = \"run\"\n" } else { "" },
            settings.max_hops,
            limit("turns_per_hour", settings.turns_per_hour),
            limit("tokens_per_day", settings.tokens_per_day),
        )
    }
}

impl Records {
    fn print_state(self) -> &'static str {
        match self {
            Records::Files => IN_FILES,
            Records::Database => IN_DATABASE,
        }
    }
}

/// Creates the agent `ada`, whose turns run the file `turn`, with a known secret for its trigger.
fn make(sandbox: &Sandbox) {
    let secret = sandbox.home().join("trigger-0").to_string_lossy().into_owned();
    sandbox.run(["create", "ada", "--secret-file", &secret, "--shell", ". \"$HOME/turn\""]);
}

impl World {
    pub fn new(template: &Template, settings: Settings) -> World {
        let settings = Settings { stop_when_exhausted: template.on_exhausted == "stop", ..settings };
        let sandbox = template.sandbox.copy();
        make_pipe(&sandbox.home().join("up"));
        let beginning = chrono::DateTime::parse_from_rfc3339(BEGINNING).expect("a time");
        let policy = template.policy(&settings);
        let database = (template.records == Records::Database).then(|| Database::below(&sandbox));
        if database.is_some() {
            make(&sandbox);
        }
        let editor = template.programs.path().join("edit");
        sandbox.cmd(["edit", "ada"]).env("EDITOR", &editor).env("LINES_TO_ADD", &policy).exits(0);
        let mut transcript = format!("{PREAMBLE}cat >> .dormouse/agents/ada/agent.toml <<'END'{policy}END\n");
        if settings.hooks {
            let hooks = sandbox.store().join("hooks");
            fs::create_dir_all(&hooks).expect("a directory");
            let program = template.programs.path().join("hook");
            transcript.push_str(&format!(
                "cat > hook <<'END'\n{HOOK}END\nchmod +x hook; mkdir -p .dormouse/hooks\n"
            ));
            for name in HOOKS.into_iter().chain(["on-attention"]) {
                symlink(&program, hooks.join(name)).expect("a link");
                transcript.push_str(&format!("ln -s ../../hook .dormouse/hooks/{name}\n"));
            }
        }
        World {
            sandbox,
            database,
            model: Model::new(settings),
            transcript,
            seconds: beginning.timestamp(),
            latest: 0,
            moments: 0,
            ids: BTreeMap::new(),
            pipes: BTreeMap::new(),
            commands: 0,
        }
    }

    /// Returns all acts so far as a shell script.
    pub fn transcript(&self) -> &str {
        &self.transcript
    }

    pub fn act(&mut self, act: &Act) -> Checked {
        match act {
            Act::Pass(seconds) => {
                self.latest = self.latest.max(self.seconds);
                self.seconds = (self.seconds + seconds).max(self.latest - BACK_MAX_S);
                self.transcript.push_str(&format!("# The clock is moved by {seconds} s.\n"));
                Ok(())
            }
            Act::Hook(hook, does) => self.set_hook(hook, *does),
            Act::Do(command) if !self.model.has_subject(command) => Ok(()),
            Act::Do(command) => self.command(command),
            Act::Tick(turn) => self.tick(turn),
        }
    }

    pub fn now(&self) -> Millis {
        self.seconds * 1000 + self.moments
    }

    pub fn next_moment(&mut self) -> Millis {
        self.seconds += 1;
        self.moments += 1;
        self.now()
    }

    // Calls of the program under test

    pub fn start(&mut self, now: Millis, words: &[String]) -> std::process::Command {
        self.commands += 1;
        let program = dormouse();
        let path = std::env::var_os("PATH").unwrap_or_default();
        let dirs = program.parent().map(PathBuf::from).into_iter().chain(std::env::split_paths(&path));
        let path = std::env::join_paths(dirs).expect("a search path");
        let command = self.sandbox.cmd(words.iter().map(String::as_str));
        let mut command = command.env("DORMOUSE_NOW", moment(now)).env("PATH", path).into_command();
        command.stdin(Stdio::null());
        command
    }

    pub fn run(&mut self, now: Millis, words: &[String]) -> Result<Output, Failure> {
        let ran = self.start(now, words).output().expect("the program starts");
        let stderr = String::from_utf8_lossy(&ran.stderr);
        if stderr.contains("panicked") { Err(format!("{words:?}: {stderr}")) } else { Ok(ran) }
    }

    /// Runs a command, which must succeed, and returns the JSON objects that it prints.
    pub fn ask(&mut self, now: Millis, words: &[&str]) -> Result<Vec<Value>, Failure> {
        let words: Vec<String> = ["--json"].iter().chain(words).map(|word| (*word).to_owned()).collect();
        let ran = self.run(now, &words)?;
        if !ran.status.success() {
            return Err(format!("{words:?}: {}\n{}", ran.status, String::from_utf8_lossy(&ran.stderr)));
        }
        Ok(objects(&String::from_utf8_lossy(&ran.stdout)))
    }

    /// Returns the id of an open or archived record, which it finds by the record's name.
    pub fn id(&mut self, reference: &Reference) -> Result<String, Failure> {
        if let Some(id) = self.ids.get(reference) {
            return Ok(id.clone());
        }
        // The record of a trigger has no name, but a hash of its secret, by which it is found.
        let said = match reference.prefix {
            "trig" => json!(self.hash_of_secret(&reference.said)),
            _ => json!(reference.said),
        };
        let says = |record: &Value| {
            let fields = words(
                "/objective /reason /summary /correlation_id /body/text /message/correlation_id \
                 /secret_sha256",
            );
            fields.iter().any(|field| record.pointer(field) == Some(&said))
        };
        let begins = format!("{}_", reference.prefix);
        // The record of a timer contains the message that it delays, so both are searched.
        let records = self.records();
        let all = records.iter().flat_map(|record| [Some(record), record.get("message")]).flatten();
        let found = all.into_iter().find_map(|record| {
            let id = record["id"].as_str()?.to_owned();
            (id.starts_with(&begins) && says(record)).then_some(id)
        });
        let id = found.ok_or_else(|| format!("there is no record of {reference:?}"))?;
        self.ids.insert(reference.clone(), id.clone());
        Ok(id)
    }

    fn hash_of_secret(&self, secret: &Tag) -> String {
        let secret = fs::read_to_string(self.secret(secret)).unwrap_or_default();
        let hash = Sha256::digest(secret.trim_end());
        hash.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn secret(&self, secret: &Tag) -> PathBuf {
        self.sandbox.home().join(secret_file(secret))
    }

    /// Returns all records: the open ones, and those in the lines of the archive.
    fn records(&self) -> Vec<Value> {
        let agent = self.dir();
        let mut records = Vec::new();
        for dir in ["work", "waits", "timers", "tasks", "triggers", "inbox"] {
            for name in names(&agent.join(dir)).iter().filter(|name| name.ends_with(".json")) {
                let text = fs::read_to_string(agent.join(dir).join(name)).unwrap_or_default();
                records.extend(serde_json::from_str(&text));
            }
        }
        for kind in ["work", "wait", "timer", "task", "trigger", "message"] {
            records.extend(self.archived(kind));
        }
        records
    }

    pub fn is_in_database(&self) -> bool {
        self.database.is_some()
    }

    /// Returns the shell command by which a turn prints the agent's state.
    pub fn print_state(&self) -> &'static str {
        if self.is_in_database() { IN_DATABASE } else { IN_FILES }
    }

    /// Returns the agent's directory. Records in a database are first written to a directory.
    pub fn dir(&self) -> PathBuf {
        match &self.database {
            None => self.sandbox.agent("ada"),
            Some(database) => database.as_files(&self.sandbox.root().join("as-files")),
        }
    }

    pub fn archived(&self, kind: &str) -> Vec<Value> {
        let archive = self.dir().join("archive");
        let months = names(&archive);
        let texts = months.iter().map(|month| archive.join(month).join(format!("{kind}.jsonl")));
        let texts: Vec<String> = texts.map(|path| fs::read_to_string(path).unwrap_or_default()).collect();
        texts
            .iter()
            .flat_map(|text| text.lines())
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect()
    }

    // Acts of a test case: commands, time and steps

    fn command(&mut self, command: &Command) -> Checked {
        let now = self.next_moment();
        let line = line(&self.model, now, command);
        let mut words = Vec::new();
        self.note_ids(&line.references)?;
        for word in &line.words {
            let meant =
                line.references.iter().find(|found| Some(&*found.variable()) == word.strip_prefix('$'));
            words.push(match meant {
                Some(reference) => self.id(reference)?,
                None => word.replace("$HOME", &self.sandbox.home().to_string_lossy()),
            });
        }
        match command {
            Command::TaskStart { .. } => self.make_task_pipe(self.model.next_tag("task")),
            Command::TaskEnd { task, well } => self.tell_task(*task, *well)?,
            _ => {}
        }
        self.transcript.push_str(&format!("{}\n", line.shell(now)));
        let mut after = self.model.clone();
        let expected = after.command(now, command, false).err().unwrap_or(0);
        // While a task runs, its supervisor may change records, too, so changes prove nothing.
        let is_alone = self.model.tasks.is_empty();
        let before = (expected != 0 && is_alone).then(|| tree(&self.dir()));
        let ran = self.run(now, &words)?;
        if let Some(before) = before {
            // A refused command, too, writes its name into lock files, so lock files do not count.
            let mut changed = changes(&before, &tree(&self.dir()));
            changed
                .retain(|path| !path.ends_with("lock") && path.extension().is_none_or(|end| end != "lock"));
            same("the files that a refused command has changed", changed, json!([]))?;
        }
        if let (Command::TaskRun { .. }, Some(task), true) = (command, &line.makes, ran.status.success()) {
            self.note_ids(std::slice::from_ref(task))?;
            let id = self.id(task)?;
            self.transcript.push_str(&format!("dormouse task output --follow \"${}\"\n", task.variable()));
            self.ask(now, &["task", "output", "--follow", &id])?;
        }
        if let (Command::TriggerCreate { .. }, Some(trigger)) = (command, &line.makes) {
            let kept = self.secret(&trigger.said).exists();
            same("whether there is a secret", kept, expected == 0)?;
        }
        self.model = after;
        self.model.alarmed = false;
        let expected = (!std::mem::take(&mut self.model.killed)).then_some(expected);
        let code = ran.status.code();
        if code != expected {
            let stderr = String::from_utf8_lossy(&ran.stderr);
            return Err(format!("{}: status {code:?}, expected {expected:?}: {stderr}", line.shell(now)));
        }
        self.compare(true)
    }

    fn set_hook(&mut self, hook: &'static str, does: HookBehaviour) -> Checked {
        if !self.model.settings.hooks {
            return Ok(());
        }
        self.model.set_hook(hook, does);
        let path = self.sandbox.home().join(hook);
        let text = match does {
            HookBehaviour::Well => String::new(),
            HookBehaviour::Fails => format!("echo {NO_LUCK} >&2; exit 3\n"),
            HookBehaviour::Kills => format!("kill -9 $PPID; {FOR_EVER}"),
            HookBehaviour::Saves => format!("echo {} | dormouse checkpoint -\n", quoted(SAVED_BY_HOOK)),
        };
        self.transcript.push_str(&format!("cat > home/{hook} <<'END'\n{text}END\n"));
        fs::write(path, text).map_err(|error| error.to_string())
    }

    /// Adds assignments to the transcript for all ids that it has not assigned so far.
    pub fn note_ids(&mut self, references: &[Reference]) -> Checked {
        for reference in references {
            if !self.ids.contains_key(reference) {
                let variable = reference.variable();
                let look_up = match reference.prefix {
                    "trig" => format!("{variable}=$(trigger {})\n", secret_file(&reference.said)),
                    prefix => format!("{variable}=$(id {prefix} '{}')\n", reference.said),
                };
                self.id(reference)?;
                self.transcript.push_str(&look_up);
            }
        }
        Ok(())
    }

    pub fn make_task_pipe(&mut self, task: Tag) {
        let path = self.sandbox.home().join(pipe(&task));
        // A refused task has left its pipe, and the next task has the same name.
        if !path.exists() {
            make_pipe(&path);
        }
        self.transcript.push_str(&format!("mkfifo home/{0}; exec 3<>home/{0}\n", pipe(&task)));
        self.pipes.insert(task, open_pipe(&path));
    }

    fn tell_task(&mut self, task: usize, well: bool) -> Checked {
        let task = self.model.task(task).expect("a task").tag.clone();
        let code = i32::from(!well);
        self.transcript.push_str(&format!("echo {code} > home/{}\n", pipe(&task)));
        let pipe = self.pipes.get_mut(&task).ok_or("a task without a pipe")?;
        writeln!(pipe, "{code}").map_err(|error| error.to_string())
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if self.model.tasks.iter().any(|task| task.is_open()) {
            let _ = self.run(self.now(), &["stop", "ada", "--grace", "0s"].map(str::to_owned));
        }
    }
}

fn make_pipe(path: &std::path::Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe");
}

/// Opens both ends of a pipe, so that other processes can open it without waiting, and data stays
/// in the pipe.
pub fn open_pipe(path: &std::path::Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).expect("a pipe")
}

/// Waits for data in a pipe, and reads them.
pub fn await_word(pipe: &mut File) -> Checked {
    let patience = Timespec { tv_sec: PATIENCE_S, tv_nsec: 0 };
    let ready = poll(&mut [PollFd::new(pipe, PollFlags::IN)], Some(&patience));
    match ready {
        Ok(1..) => pipe.read(&mut [0; 16]).map(drop).map_err(|error| error.to_string()),
        other => Err(format!("the turn never began: {other:?}")),
    }
}
