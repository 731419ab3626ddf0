//! The program and the model side by side: each act is done to both, and both must say the same.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::hooks::{Does, NO_LUCK, Told};
use super::preemption::{PLEASE_YIELD, SAVED_BY_HOOK};
use super::reference::{Command, Decision, End, Millis, Model, SECTION_STATUS, Settings, Tag};
use super::script::{Line, Reference, action, line, moment, pipe, quoted};
use super::{Act, Turn};
use crate::harness::{Sandbox, dormouse};
use crate::setup::{Beside, HOOKS, changes, extend_policy, names, objects, tree};

/// What differs, or what went wrong.
pub type Failure = String;
type Checked = Result<(), Failure>;

/// How long a turn may take to begin, and to end. Only for a program that never begins or ends it.
const PATIENCE_S: i64 = 600;

/// How far the clock goes back at most, in all: what is further in the future than a day is nobody's to know.
const BACK_MAX_S: i64 = 20 * 3600;

/// When it all begins: the day before clocks are put forward in New York, and weeks before
/// the month ends: what is kept by months comes in their order, whatever the clock does at their border.
pub const BEGINNING: &str = "2026-03-07T17:00:00Z";

/// What a transcript begins with: a state directory, and how ids are found by what records say.
const PREAMBLE: &str = r#"dormouse init; dormouse create ada --shell '. "$HOME/turn"'
sed -i 's/"30m"/"600s"/' .dormouse/agents/ada/agent.toml
export HOME="$PWD/home" TZ=UTC; mkdir home; mkfifo home/up
id() { cat .dormouse/agents/ada/*/*.json .dormouse/agents/ada/archive/*/*.jsonl 2>/dev/null |
    jq -r --arg said "$2" '., (.message | objects) | select([.objective, .reason, .summary, .correlation_id, .body.text,
        .message.correlation_id] | index($said)) | .id' | grep -m1 "^$1_"; }
"#;

const POLICY: &str = r#"
[recovery]
strategy = "exponential"
base = "1s"
max_attempts = 3
on_exhausted = "#;

/// What a hook does: it notes what it is told, and then whatever the file of its name says.
const HOOK: &str = r#"#!/bin/sh
read -r told
printf '%s\n' "$told" >> "$HOME/told"
if [ -e "$HOME/$DORMOUSE_HOOK" ]; then . "$HOME/$DORMOUSE_HOOK"; fi
"#;

/// How much later than the others the commands of a turn are that are late: beyond any grace.
const LATE: Millis = 7_200_000;

/// What a turn does that is to be ended.
const FOR_EVER: &str = "while :; do :; done\n";

/// What a turn notes when it begins: the checkpoint from which it goes on.
const BEGINNING_OF_TURN: &str =
    "seen=; read -r seen < \"${DORMOUSE_CHECKPOINT:-/dev/null}\"; echo \"$seen\" > \"$HOME/seen\"\n";

/// A state directory with the agent, to be copied for every case, and the hooks of all of them.
pub struct Template {
    sandbox: Sandbox,
    on_exhausted: &'static str,
    /// Where programs can be: the copies lie where they can't.
    programs: TempDir,
}

/// The commands of a turn, or of a section of it, as they are written.
#[derive(Default)]
struct Script {
    text: String,
    /// Their exit statuses.
    codes: Vec<i32>,
    /// The records whose ids are in variables.
    known: BTreeSet<Reference>,
    needed: BTreeSet<Reference>,
    /// It ends with waiting for its tick to end it.
    is_forced: bool,
}

pub struct World {
    sandbox: Sandbox,
    model: Model,
    transcript: String,
    seconds: i64,
    /// The furthest that the clock has been.
    latest: i64,
    /// How many moments there were. Each is a millisecond of its own, whatever the seconds do.
    moments: i64,
    ids: BTreeMap<Reference, String>,
    /// The ends of the pipes through which open tasks are told to end.
    pipes: BTreeMap<Tag, File>,
    pub commands: usize,
}

impl Template {
    pub fn new(on_exhausted: &'static str) -> Template {
        let sandbox = Sandbox::in_memory();
        sandbox.run(["init"]);
        sandbox.run(["create", "ada", "--shell", ". \"$HOME/turn\""]);
        let policy = sandbox.agent("ada").join("agent.toml");
        let text = fs::read_to_string(&policy).expect("a policy");
        fs::write(&policy, text.replace("\"30m\"", &format!("\"{PATIENCE_S}s\""))).expect("written");
        let programs = TempDir::new().expect("a directory");
        let hook = programs.path().join("hook");
        fs::write(&hook, HOOK).expect("written");
        fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).expect("a program");
        Template { sandbox, on_exhausted, programs }
    }

    fn policy(&self, settings: &Settings) -> String {
        let limit = |name: &str, limit: Option<u64>| {
            limit.map(|limit| format!("{name} = {limit}\n")).unwrap_or_default()
        };
        format!(
            "{POLICY}\"{}\"\n\n[limits]\ndedupe_window = \"1h\"\n{}{}",
            self.on_exhausted,
            limit("turns_per_hour", settings.turns_per_hour),
            limit("tokens_per_day", settings.tokens_per_day),
        )
    }
}

impl World {
    pub fn new(template: &Template, settings: Settings) -> World {
        let settings = Settings { stop_when_exhausted: template.on_exhausted == "stop", ..settings };
        let sandbox = template.sandbox.copy();
        make_pipe(&sandbox.home().join("up"));
        let beginning = chrono::DateTime::parse_from_rfc3339(BEGINNING).expect("a time");
        let policy = template.policy(&settings);
        extend_policy(&sandbox, "ada", &policy);
        let mut transcript = format!("{PREAMBLE}cat >> .dormouse/agents/ada/agent.toml <<'END'{policy}END\n");
        if settings.hooks {
            let hooks = sandbox.store().join("hooks");
            fs::create_dir_all(&hooks).expect("a directory");
            let program = template.programs.path().join("hook");
            transcript.push_str(&format!(
                "cat > hook <<'END'\n{HOOK}END\nchmod +x hook; mkdir -p .dormouse/hooks\n"
            ));
            for name in HOOKS {
                symlink(&program, hooks.join(name)).expect("a link");
                transcript.push_str(&format!("ln -s ../../hook .dormouse/hooks/{name}\n"));
            }
        }
        World {
            sandbox,
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

    /// Everything that was done, as a shell would do it again.
    pub fn transcript(&self) -> &str {
        &self.transcript
    }

    pub fn act(&mut self, act: &Act) -> Checked {
        match act {
            Act::Pass(seconds) => {
                self.latest = self.latest.max(self.seconds);
                self.seconds = (self.seconds + seconds).max(self.latest - BACK_MAX_S);
                Ok(())
            }
            Act::Hook(hook, does) => self.set_hook(hook, *does),
            Act::Do(command) if !self.model.has_subject(command) => Ok(()),
            Act::Do(command) => self.command(command),
            Act::Tick(turn) => self.tick(turn),
        }
    }

    fn now(&self) -> Millis {
        self.seconds * 1000 + self.moments
    }

    fn next_moment(&mut self) -> Millis {
        self.seconds += 1;
        self.moments += 1;
        self.now()
    }

    // The program

    fn start(&mut self, now: Millis, words: &[String]) -> std::process::Command {
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

    fn run(&mut self, now: Millis, words: &[String]) -> Result<Output, Failure> {
        let ran = self.start(now, words).output().expect("the program starts");
        let stderr = String::from_utf8_lossy(&ran.stderr);
        if stderr.contains("panicked") { Err(format!("{words:?}: {stderr}")) } else { Ok(ran) }
    }

    /// The objects that a command prints, which must succeed.
    fn ask(&mut self, now: Millis, words: &[&str]) -> Result<Vec<Value>, Failure> {
        let words: Vec<String> = ["--json"].iter().chain(words).map(|word| (*word).to_owned()).collect();
        let ran = self.run(now, &words)?;
        if !ran.status.success() {
            return Err(format!("{words:?}: {}\n{}", ran.status, String::from_utf8_lossy(&ran.stderr)));
        }
        Ok(objects(&String::from_utf8_lossy(&ran.stdout)))
    }

    /// The id of a record by what it says, wherever it is by now.
    fn id(&mut self, reference: &Reference) -> Result<String, Failure> {
        if let Some(id) = self.ids.get(reference) {
            return Ok(id.clone());
        }
        let said = json!(reference.said);
        let says = |record: &Value| {
            let fields = [
                "/objective",
                "/reason",
                "/summary",
                "/correlation_id",
                "/body/text",
                "/message/correlation_id",
            ];
            fields.iter().any(|field| record.pointer(field) == Some(&said))
        };
        let begins = format!("{}_", reference.prefix);
        // A message that is put off lies in its timer.
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

    /// Every record on disk: open ones, and the lines of the archive.
    fn records(&self) -> Vec<Value> {
        let agent = self.sandbox.agent("ada");
        let mut records = Vec::new();
        for dir in ["work", "waits", "timers", "tasks", "inbox"] {
            for name in names(&agent.join(dir)).iter().filter(|name| name.ends_with(".json")) {
                let text = fs::read_to_string(agent.join(dir).join(name)).unwrap_or_default();
                records.extend(serde_json::from_str(&text));
            }
        }
        for kind in ["work", "wait", "timer", "task", "message"] {
            records.extend(self.archived(kind));
        }
        records
    }

    fn archived(&self, kind: &str) -> Vec<Value> {
        let archive = self.sandbox.agent("ada").join("archive");
        let months = names(&archive);
        let texts = months.iter().map(|month| archive.join(month).join(format!("{kind}.jsonl")));
        let texts: Vec<String> = texts.map(|path| fs::read_to_string(path).unwrap_or_default()).collect();
        texts
            .iter()
            .flat_map(|text| text.lines())
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect()
    }

    // Acts

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
                None => word.clone(),
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
        // A supervisor of a task may be at work beside it.
        let is_alone = self.model.tasks.is_empty();
        let agent = self.sandbox.agent("ada");
        let before = (expected != 0 && is_alone).then(|| tree(&agent));
        let ran = self.run(now, &words)?;
        if let Some(before) = before {
            // A lock file says who has it, or had it last.
            let mut changed = changes(&before, &tree(&agent));
            changed
                .retain(|path| !path.ends_with("lock") && path.extension().is_none_or(|end| end != "lock"));
            same("what a refused command has changed", &json!(changed), &json!([]))?;
        }
        if let (Command::TaskRun { .. }, Some(task), true) = (command, &line.makes, ran.status.success()) {
            self.note_ids(std::slice::from_ref(task))?;
            let id = self.id(task)?;
            self.transcript.push_str(&format!("dormouse task output --follow \"${}\"\n", task.variable()));
            self.ask(now, &["task", "output", "--follow", &id])?;
        }
        self.model = after;
        let expected = (!std::mem::take(&mut self.model.killed)).then_some(expected);
        let code = ran.status.code();
        if code != expected {
            let stderr = String::from_utf8_lossy(&ran.stderr);
            return Err(format!("{}: status {code:?}, expected {expected:?}: {stderr}", line.shell(now)));
        }
        self.compare(true)
    }

    fn set_hook(&mut self, hook: &'static str, does: Does) -> Checked {
        if !self.model.settings.hooks {
            return Ok(());
        }
        self.model.set_hook(hook, does);
        let path = self.sandbox.home().join(hook);
        let text = match does {
            Does::Well => String::new(),
            Does::Fails => format!("echo {NO_LUCK} >&2; exit 3\n"),
            Does::Kills => format!("kill -9 $PPID; {FOR_EVER}"),
            Does::Saves => format!("echo {} | dormouse yield --checkpoint -\n", quoted(SAVED_BY_HOOK)),
        };
        self.transcript.push_str(&format!("cat > home/{hook} <<'END'\n{text}END\n"));
        fs::write(path, text).map_err(|error| error.to_string())
    }

    /// Ids that the transcript has not named so far.
    fn note_ids(&mut self, references: &[Reference]) -> Checked {
        for reference in references {
            if !self.ids.contains_key(reference) {
                let variable = reference.variable();
                let look_up = format!("{variable}=$(id {} '{}')\n", reference.prefix, reference.said);
                self.id(reference)?;
                self.transcript.push_str(&look_up);
            }
        }
        Ok(())
    }

    fn make_task_pipe(&mut self, task: Tag) {
        let path = self.sandbox.home().join(pipe(&task));
        // One that was refused has left its name to the next.
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

    fn tick(&mut self, turn: &Turn) -> Checked {
        let now = self.next_moment();
        self.compare_decision(now)?;
        let mut after = self.model.clone();
        let decision = after.step(now);
        let claims = decision.decision == "start_model_turn";
        let attempt = after.attempt();
        let interjected = after.interjected();
        let runs = claims && after.enter_turn();
        let checkpoint = after.run.as_ref().and_then(|run| run.checkpoint.clone()).unwrap_or_default();
        let seen = self.sandbox.home().join("seen");
        let _ = fs::remove_file(&seen);
        let mut script = Script::default();
        let mut end = turn.end;
        let mut beside = None;
        let mut terminal = None;
        if runs {
            script = self.write_turn(now, turn, &mut after)?;
            if script.is_forced {
                end = End::Forced;
            }
            let actions = self.write_end(now, turn, end, &after)?;
            beside = interruption(&after, now, end);
            let tokens = if end == End::Forced { 0 } else { turn.tokens };
            terminal = after.end_turn(now, end, &actions, tokens);
        } else if claims {
            terminal = after.end_turn(now, End::Badly, &[], 0);
        }
        let ran = match &beside {
            Some(line) => self.tick_beside(now, end, line)?,
            None => self.plain_tick(now)?,
        };
        self.model = after;
        let stdout = String::from_utf8_lossy(&ran.stdout);
        let stderr = String::from_utf8_lossy(&ran.stderr);
        let killed = std::mem::take(&mut self.model.killed) || (runs && end == End::TickKilled);
        let expected = match terminal {
            _ if killed => None,
            Some("failed" | "interrupted") => Some(7),
            _ => Some(0),
        };
        if ran.status.code() != expected || stderr.contains("panicked") {
            return Err(format!("tick: {}, expected {expected:?}: {stdout}{stderr}", ran.status));
        }
        if runs {
            self.compare_codes(&script.codes)?;
            let seen = fs::read_to_string(&seen).unwrap_or_default();
            same("the checkpoint", &json!(seen.trim_end()), &json!(checkpoint))?;
        } else {
            same("whether a turn has begun", &json!(seen.exists()), &json!(false))?;
        }
        let step =
            if killed { Value::Null } else { objects(&stdout).pop().ok_or("a step without an object")? };
        if runs {
            self.compare_interjected(&step, interjected)?;
        }
        if !killed {
            same("the step", &said_of(&step), &foretold(&decision))?;
            if claims {
                let closure = after_turn(&self.model);
                let told = json!({
                    "terminal": step["terminal"], "attempt": step["attempt"],
                    "outcome": step["closure"]["outcome"], "waiting_reason": step["closure"]["waiting_reason"],
                });
                let expected = json!({
                    "terminal": terminal, "attempt": attempt,
                    "outcome": closure.0, "waiting_reason": closure.1,
                });
                same("the turn", &told, &expected)?;
            }
            if beside.is_none() {
                let told = json!([step["status"], step["execution_state"]]);
                same("the step's status", &told, &json!([self.model.status, self.model.execution]))?;
            }
        }
        self.compare(beside.is_none())
    }

    fn plain_tick(&mut self, now: Millis) -> Result<Output, Failure> {
        self.transcript.push_str(&format!("DORMOUSE_NOW={} dormouse tick ada\n", moment(now)));
        let words = ["tick", "ada", "--json"].map(str::to_owned);
        Ok(self.start(now, &words).output().expect("the program starts"))
    }

    /// A tick whose turn somebody ends from outside, once it has come to its end.
    fn tick_beside(&mut self, now: Millis, end: End, line: &Line) -> Result<Output, Failure> {
        self.transcript.push_str(&format!("DORMOUSE_NOW={} dormouse tick ada &\n", moment(now)));
        let mut up = open_pipe(&self.sandbox.home().join("up"));
        let words = ["tick", "ada", "--json"].map(str::to_owned);
        let tick = Beside::spawn(self.start(now, &words));
        await_word(&mut up)?;
        // The tick counts what is left of a grace from its own moment.
        let later =
            if matches!(end, End::Preempted { .. }) { self.own_moment(now) } else { self.next_moment() };
        let live = self.ask(later, &["tick", "ada"])?;
        let told = json!([live[0]["decision"], live[0]["reason"]]);
        same("a second tick", &told, &json!(["noop", "turn_in_progress"]))?;
        self.transcript.push_str(&format!("cat home/up; {}; wait\n", line.shell(later)));
        let words: Vec<&str> = line.words.iter().map(String::as_str).collect();
        self.ask(later, &words)?;
        let ran = tick.end();
        Ok(Output { status: ran.status, stdout: ran.stdout.into_bytes(), stderr: ran.stderr.into_bytes() })
    }

    /// A moment of its own within the second of another one.
    fn own_moment(&mut self, now: Millis) -> Millis {
        self.moments += 1;
        now - now.rem_euclid(1000) + self.moments.rem_euclid(1000)
    }

    /// Writes what the turn does before it ends.
    fn write_turn(&mut self, now: Millis, turn: &Turn, after: &mut Model) -> Result<Script, Failure> {
        let mut script = Script { text: BEGINNING_OF_TURN.to_owned(), ..Script::default() };
        for command in &turn.commands {
            self.write_command(now, command, after, &mut script);
        }
        // A section would keep off what is to end it.
        while matches!(turn.end, End::Preempted { .. }) && after.innermost_section().is_some() {
            self.write_command(now, &Command::End, after, &mut script);
            if script.is_forced {
                break;
            }
        }
        self.note_ids(&script.needed.iter().cloned().collect::<Vec<_>>())?;
        for file in ["codes", "handed"] {
            let _ = fs::remove_file(self.sandbox.home().join(file));
        }
        let mut header = String::new();
        self.transcript.push_str("{ ");
        for reference in &script.needed {
            let variable = reference.variable();
            header.push_str(&format!("{variable}={}\n", self.id(reference)?));
            self.transcript.push_str(&format!("echo {variable}=\"${variable}\"; "));
        }
        self.transcript.push_str(&format!("cat <<'END'\n{}", script.text));
        fs::write(self.sandbox.home().join("turn"), format!("{header}{}", script.text)).expect("written");
        Ok(script)
    }

    /// Writes one command of a turn, and does it to the model.
    fn write_command(&mut self, now: Millis, command: &Command, after: &mut Model, script: &mut Script) {
        if script.is_forced || !after.has_subject(command) {
            return;
        }
        let is_late =
            matches!(command, Command::Begin { late: true, .. } | Command::SafePoint { late: true });
        let own = self.own_moment(now) + if is_late { LATE } else { 0 };
        let line = line(after, own, command);
        let known = &script.known;
        let needed: Vec<_> =
            line.references.iter().filter(|found| !known.contains(*found)).cloned().collect();
        // What a command makes besides what it prints has no name in the turn: the timer of a message
        // that is put off.
        if needed.iter().any(|reference| self.id(reference).is_err()) {
            return;
        }
        script.needed.extend(needed);
        let mut shell = line.shell(own);
        if matches!(command, Command::TaskStart { .. }) {
            self.make_task_pipe(after.next_tag("task"));
        }
        let ended = after.command(own, command, true);
        let mut code = ended.err().unwrap_or(0);
        match command {
            Command::SafePoint { .. } if after.asks_to_yield(own) => code = PLEASE_YIELD,
            Command::Within { commands, .. } => {
                let mut within = Script::default();
                if let Ok(number) = ended.and(after.innermost_section().ok_or(code)) {
                    for command in commands {
                        self.write_command(now, command, after, &mut within);
                    }
                    if !within.is_forced {
                        // Something within may have ended it before.
                        let _ = after.end_section(Some(number));
                    }
                    code = SECTION_STATUS;
                }
                within.text.push_str(&format!("exit {SECTION_STATUS}\n"));
                shell.push_str(&format!(" {}", quoted(&within.text)));
                script.codes.extend(within.codes);
                script.is_forced = within.is_forced;
            }
            _ => {}
        }
        if ended.is_err() {
            script.text.push_str("cp \"$DORMOUSE_DIR/agents/ada/state.json\" \"$HOME/before\"\n");
        }
        match (&line.makes, command) {
            (Some(made), _) => script.text.push_str(&format!("{}=$({shell})\n", made.variable())),
            (None, Command::SafePoint { .. }) => {
                script.text.push_str(&format!("{shell} >> \"$HOME/handed\"\n"));
            }
            (None, _) => script.text.push_str(&format!("{shell} > \"$HOME/said\"\n")),
        }
        if script.is_forced || after.is_about_to_be_forced(now) {
            // From here on it may be ended at any time.
            script.is_forced = true;
            script.text.push_str(FOR_EVER);
            return;
        }
        script.text.push_str("echo $? >> \"$HOME/codes\"\n");
        script.codes.push(code);
        if ended.is_err() {
            script.text.push_str(
                "cmp \"$DORMOUSE_DIR/agents/ada/state.json\" \"$HOME/before\" || echo changed >> \"$HOME/codes\"\n",
            );
        }
        if let Some(made) = line.makes.filter(|_| code == 0) {
            if matches!(command, Command::TaskRun { .. }) {
                let follow = format!("dormouse task output --follow \"${}\"", made.variable());
                script.text.push_str(&format!("{follow} > \"$HOME/said\"\n"));
            }
            script.known.insert(made);
        }
    }

    /// Adds the outcome and the end of the turn. Returns the actions that are in it.
    fn write_end(
        &mut self,
        now: Millis,
        turn: &Turn,
        end: End,
        after: &Model,
    ) -> Result<Vec<Command>, Failure> {
        let mut trial = after.clone();
        let mut actions = Vec::new();
        let mut objects = Vec::new();
        let mut header = String::new();
        for command in &turn.actions {
            if !trial.has_subject(command) {
                continue;
            }
            let Some((object, references)) = action(&trial, now, command) else { continue };
            // Ids are given in full: what this very outcome makes can't be named, and what the turn
            // has just made is not known yet to whoever writes this.
            let mut ids = Vec::new();
            for reference in &references {
                ids.extend(self.id(reference).map(|id| (reference, id)));
            }
            if ids.len() < references.len() {
                continue;
            }
            for (reference, id) in ids {
                header.push_str(&format!("{}={id}\n", reference.variable()));
            }
            objects.push(object);
            actions.push(command.clone());
            if trial.command(now, command, true).is_err() {
                break;
            }
        }
        let mut text = header;
        if !objects.is_empty() || turn.tokens > 0 {
            let usage = json!({ "input_tokens": turn.tokens });
            let outcome = json!({ "brief": "done", "actions": objects, "usage": usage });
            text.push_str(&format!("cat > \"$DORMOUSE_OUTCOME\" <<EOF\n{outcome}\nEOF\n"));
        }
        let up = "echo up > \"$HOME/up\"\n";
        text.push_str(&match end {
            End::Well => "exit 0\n".to_owned(),
            End::Badly => "exit 1\n".to_owned(),
            End::NotNow => "exit 75\n".to_owned(),
            End::TickKilled => format!("kill -9 $PPID\n{FOR_EVER}"),
            End::TickEnded => format!("kill $PPID\n{FOR_EVER}"),
            End::Stopped { killed: true, .. } => format!("trap '' TERM\n{up}{FOR_EVER}"),
            End::Stopped { killed: false, .. } | End::Failed | End::Preempted { .. } => {
                format!("{up}{FOR_EVER}")
            }
            // It does not come to this.
            End::Forced => String::new(),
        });
        self.transcript.push_str(&format!("{text}END\n}} > home/turn\n"));
        let file = OpenOptions::new().append(true).open(self.sandbox.home().join("turn"));
        file.and_then(|mut file| file.write_all(text.as_bytes())).expect("written");
        Ok(actions)
    }

    // What both say

    fn compare_codes(&self, expected: &[i32]) -> Checked {
        let codes = fs::read_to_string(self.sandbox.home().join("codes")).unwrap_or_default();
        let codes: Vec<i32> = codes.lines().filter_map(|code| code.parse().ok()).collect();
        same("the exit statuses inside the turn", &json!(codes), &json!(expected))
    }

    /// What a safe point has handed over, and what a turn is told of what earlier ones were handed.
    fn compare_interjected(&mut self, step: &Value, earlier: Vec<Tag>) -> Checked {
        let handed = fs::read_to_string(self.sandbox.home().join("handed")).unwrap_or_default();
        let handed: Vec<Value> = objects(&handed).iter().map(|said| said["correlation_id"].clone()).collect();
        same("what is handed over", &json!(handed), &json!(std::mem::take(&mut self.model.handed)))?;
        let agent = self.sandbox.agent("ada");
        let run = match step["run_id"].as_str() {
            Some(run) => run.to_owned(),
            None => read_json(&agent.join("state.json"))["current_run"]["run_id"]
                .as_str()
                .unwrap_or("")
                .to_owned(),
        };
        let context = read_json(&agent.join("runs").join(run).join("context.json"));
        let told = context["interjected"].as_array().cloned().unwrap_or_default();
        let mut told: Vec<String> = told.iter().map(known_by).collect();
        let mut expected = earlier;
        told.sort();
        expected.sort();
        same("what a turn is told of what was interjected", &json!(told), &json!(expected))
    }

    /// What hooks were told since the last look: of transitions, and of everything else, each in order.
    /// `in_order`: by one process.
    fn compare_hooks(&mut self, in_order: bool) -> Checked {
        let path = self.sandbox.home().join("told");
        let text = fs::read_to_string(&path).unwrap_or_default();
        let _ = fs::remove_file(&path);
        let told = objects(&text);
        let expected = std::mem::take(&mut self.model.told);
        for of_transitions in [true, false] {
            let is_meant = |hook: &str| (hook == "on-state-change") == of_transitions;
            let shown = |told: &Value| json!([told["hook"], told["from"], told["to"], told["success"]]);
            let expected_shown = |told: &&Told| json!([told.hook, told.from, told.to, told.success]);
            let mut expected: Vec<&Told> = expected.iter().filter(|told| is_meant(told.hook)).collect();
            let mut told: Vec<&Value> =
                told.iter().filter(|told| is_meant(told["hook"].as_str().unwrap_or_default())).collect();
            if !in_order {
                expected.sort_by_key(|told| expected_shown(told).to_string());
                told.sort_by_key(|told| shown(told).to_string());
            }
            let found: Vec<Value> = told.iter().map(|told| shown(told)).collect();
            let foreseen: Vec<Value> = expected.iter().map(expected_shown).collect();
            same("what hooks are told", &json!(found), &json!(foreseen))?;
            for (found, expected) in told.iter().zip(expected) {
                if expected.reason.is_some() {
                    let what = format!("the reason that {} is told", expected.hook);
                    same(&what, &found["reason"], &json!(expected.reason))?;
                }
            }
        }
        Ok(())
    }

    /// What holds at any time, whatever has been done.
    fn compare_invariants(&self) -> Checked {
        let agent = self.sandbox.agent("ada");
        let state = read_json(&agent.join("state.json"));
        let held = &state["held"]["message_id"];
        let execution = state["execution"]["state"].as_str().unwrap_or_default();
        let holds = matches!(execution, "suspended" | "waiting_resources");
        same("whether a run is held", &json!(held.is_string()), &json!(holds))?;
        if let Some(held) = held.as_str() {
            same("a run beside a held one", &state["current_run"], &Value::Null)?;
            let claimed = names(&agent.join("inbox")).iter().any(|name| name.contains(held));
            same("whether the message of a held run is there", &json!(claimed), &json!(true))?;
        }
        Ok(())
    }

    fn compare_decision(&mut self, now: Millis) -> Checked {
        let decision = self.model.foresee(now);
        let would = self.ask(now, &["tick", "ada", "--dry-run"])?;
        same("what a step would do", &said_of(&would[0]), &foretold(&decision))
    }

    /// Everything that can be seen of the agent, and what a step would do.
    fn compare(&mut self, in_order: bool) -> Checked {
        self.compare_hooks(in_order)?;
        self.compare_invariants()?;
        // A moment of its own: what comes due now has no fellows in any other.
        self.moments += 1;
        let now = self.now();
        let summary = self.ask(now, &["get", "ada"])?.remove(0);
        let works = self.ask(now, &["work", "list", "-a", "ada"])?;
        let queue = self.ask(now, &["queue", "list", "-a", "ada", "--limit", "0"])?;
        let list = |name: &str| summary[name].as_array().cloned().unwrap_or_default();
        let each = |records: &[Value], fields: &[&str]| -> Value {
            let shown =
                |record: &Value| -> Value { fields.iter().map(|field| record[*field].clone()).collect() };
            records.iter().map(shown).collect()
        };
        let found = json!({
            "status": summary["status"],
            "execution": summary["execution"]["state"],
            "posture": summary["scheduling_posture"]["posture"],
            "outcome": summary["closure"]["outcome"],
            "waiting_reason": summary["closure"]["waiting_reason"],
            "next_due_at": summary["next_due_at"],
            "last_turn": summary["last_turn"]["terminal"],
            "dead": summary["queue"]["dead"],
            "work": each(&works, &["objective", "scheduling_state", "revision", "current"]),
            "waits": each(&list("active_waits"), &["reason", "kind"]),
            "tasks": each(&list("active_tasks"), &["summary", "status"]),
            "timers": list("active_timers").iter().map(|timer| {
                let said = [&timer["body"]["text"], &timer["message"]["correlation_id"]];
                let said = said.into_iter().find_map(Value::as_str).unwrap_or_default();
                json!([said, timer["next_at"], timer["fired"], timer["missed"]])
            }).collect::<Value>(),
            "queue": queue.iter().map(|message| {
                json!([message["kind"], message["priority"], known_by(message), message["status"], message["attempt"]])
            }).collect::<Value>(),
        });
        same("the agent", &found, &shown(&self.model, now))?;
        self.compare_decision(now)
    }

    /// What must hold at the end of every case, and that both agree on what is over.
    pub fn finish(&mut self) -> Checked {
        let now = self.next_moment();
        // Something that needs the lock: then what the supervisor of a task has committed last is on disk.
        self.run(now, &["start", "ada"].map(str::to_owned))?;
        let findings = self.ask(now, &["doctor"])?;
        same("what doctor finds", &findings[findings.len() - 1]["findings"], &json!(0))?;
        let events = self.ask(now, &["events", "ada"])?;
        let numbers: Vec<u64> = events.iter().filter_map(|event| event["seq"].as_u64()).collect();
        same(
            "the numbers of events",
            &json!(numbers),
            &json!((1..=numbers.len() as u64).collect::<Vec<_>>()),
        )?;
        self.compare_messages()?;
        compare_interjections(&events)?;
        let mut waits = self.model.waits.clone();
        waits.retain(|wait| wait.status != "active");
        let waits: BTreeMap<_, _> = waits.iter().map(|wait| (wait.tag.clone(), wait.status)).collect();
        let tasks = self.model.tasks.iter().filter(|task| !task.is_open());
        let tasks: BTreeMap<_, _> = tasks.map(|task| (task.tag.clone(), task.status)).collect();
        let works = self.model.works.iter().filter(|item| item.done);
        let works: BTreeMap<_, _> = works.map(|item| (item.tag.clone(), "completed")).collect();
        for (kind, name, status, expected) in [
            ("wait", "reason", "status", waits),
            ("task", "summary", "status", tasks),
            ("work", "objective", "state", works),
        ] {
            // A terminal record is written once and never again: no name comes twice.
            let mut ended: Vec<[Value; 2]> = self
                .archived(kind)
                .iter()
                .map(|record| [record[name].clone(), record[status].clone()])
                .collect();
            ended.sort_by_key(|[name, _]| name.to_string());
            let mut expected: Vec<[Value; 2]> =
                expected.into_iter().map(|(name, status)| [json!(name), json!(status)]).collect();
            expected.sort_by_key(|[name, _]| name.to_string());
            same(&format!("what has ended: {kind}"), &json!(ended), &json!(expected))?;
        }
        Ok(())
    }

    /// Each message has ended in the way that the model says, and none is lost.
    fn compare_messages(&self) -> Checked {
        let pending: BTreeSet<String> = names(&self.sandbox.agent("ada").join("inbox")).into_iter().collect();
        let mut newest = BTreeMap::new();
        for message in self.archived("message") {
            let id = message["id"].as_str().unwrap_or_default().to_owned();
            let settlement = &message["settlement"];
            let status =
                if settlement["dead_letter"] == true { &json!("dead") } else { &settlement["status"] };
            if status == "queued" || pending.iter().any(|name| name.contains(&id)) {
                newest.remove(&id);
            } else {
                newest.insert(id, json!([message["kind"], known_by(&message), status]).to_string());
            }
        }
        let mut found: Vec<String> = newest.into_values().collect();
        let of_model = self.model.ended.iter();
        let mut expected: Vec<String> = of_model
            .map(|(message, status)| json!([message.kind, message.said, status]).to_string())
            .collect();
        found.sort();
        expected.sort();
        same("what became of messages", &json!(found), &json!(expected))
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if self.model.tasks.iter().any(|task| task.is_open()) {
            let _ = self.run(self.now(), &["stop", "ada", "--grace", "0s"].map(str::to_owned));
        }
    }
}

/// What was interjected is never the message of a run after that.
fn compare_interjections(events: &[Value]) -> Checked {
    let mut interjected = BTreeSet::new();
    for event in events {
        let message = event["data"]["message_id"].as_str().unwrap_or_default();
        match event["kind"].as_str() {
            Some("message_settled") if event["data"]["status"] == "interjected" => {
                same(
                    "an interjection once more",
                    &json!(interjected.insert(message.to_owned())),
                    &json!(true),
                )?;
            }
            Some("run_settled" | "run_interrupted") => {
                same("an interjection that has run", &json!(interjected.contains(message)), &json!(false))?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// What somebody does to a turn from outside, if that is how it ends.
fn interruption(model: &Model, now: Millis, end: End) -> Option<Line> {
    match end {
        End::Stopped { killed, requeue } => {
            let mut stop = line(model, now, &Command::Stop { requeue });
            stop.words.extend(["--grace", if killed { "0s" } else { "1h" }].map(str::to_owned));
            Some(stop)
        }
        End::Failed => Some(line(model, now, &Command::Fail)),
        End::Preempted { resume_after } => {
            Some(line(model, now, &Command::Preempt { grace: 0, resume_after }))
        }
        End::Well | End::Badly | End::NotNow | End::TickKilled | End::TickEnded | End::Forced => None,
    }
}

fn read_json(path: &Path) -> Value {
    fs::read(path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default()
}

/// A message by what it is known by: a task's result up to how it stood, a reminder by its first line.
fn known_by(message: &Value) -> String {
    if let Some(name) = message["correlation_id"].as_str() {
        return name.to_owned();
    }
    let text = message["body"]["text"].as_str().unwrap_or_default();
    let line = text.lines().next().unwrap_or_default();
    if message["task_id"].is_null() { line } else { line.split(" (").next().unwrap_or_default() }.to_owned()
}

/// The model as a summary shows it.
fn shown(model: &Model, now: Millis) -> Value {
    let mut waits: Vec<_> = model.waits.iter().filter(|wait| wait.status == "active").collect();
    waits.sort_by_key(|wait| wait.born);
    let mut tasks: Vec<_> = model.tasks.iter().filter(|task| task.is_open()).collect();
    tasks.sort_by_key(|task| task.born);
    let mut timers: Vec<_> = model.timers.iter().filter(|timer| timer.status == "active").collect();
    timers.sort_by_key(|timer| timer.born);
    let closure = model.closure();
    let priorities = ["interject", "next", "normal", "background"];
    json!({
        "status": model.status,
        "execution": model.execution,
        "posture": model.posture(now),
        "outcome": closure.outcome,
        "waiting_reason": closure.reason,
        "next_due_at": model.next_due().map(moment),
        "last_turn": model.last_terminal,
        "dead": model.dead,
        "work": model.open().iter().map(|item| {
            json!([item.tag, model.scheduling(item), item.revision, model.focus.as_ref() == Some(&item.tag)])
        }).collect::<Value>(),
        "waits": waits.iter().map(|wait| json!([wait.tag, wait.kind])).collect::<Value>(),
        "tasks": tasks.iter().map(|task| json!([task.tag, task.status])).collect::<Value>(),
        "timers": timers.iter().map(|timer| {
            json!([timer.said(), moment(timer.next), timer.fired, timer.missed])
        }).collect::<Value>(),
        "queue": model.in_order().iter().map(|message| {
            let status = if model.is_claimed(message) { "dequeued" } else { "queued" };
            json!([message.kind, priorities[usize::from(message.priority)], message.said, status, message.attempt])
        }).collect::<Value>(),
    })
}

/// A decision as the model tells it, and as the program does.
fn foretold(decision: &Decision) -> Value {
    let found = decision.continuation.as_ref();
    let found = found.map(|found| json!([found.class, found.reentry, found.matched]));
    json!([decision.decision, decision.reason, found])
}

fn said_of(step: &Value) -> Value {
    let found = step.get("continuation");
    let found =
        found.map(|found| json!([found["class"], found["model_reentry"], found["matched_waiting_reason"]]));
    json!([step["decision"], step["reason"], found])
}

fn after_turn(model: &Model) -> (&'static str, Option<&'static str>) {
    let closure = model.closure();
    (closure.outcome, closure.reason)
}

fn same(what: &str, found: &Value, expected: &Value) -> Checked {
    if found == expected {
        return Ok(());
    }
    let lines = |value: &Value| match value {
        Value::Object(fields) => {
            fields.iter().map(|(name, field)| format!("  {name}: {field}\n")).collect::<Vec<_>>()
        }
        other => vec![format!("  {other}\n")],
    };
    let (found, expected) = (lines(found), lines(expected));
    let mut text = format!("{what}\n");
    for (found, expected) in found.iter().zip(&expected).filter(|(found, expected)| found != expected) {
        text.push_str(&format!("  the program says{found}  the model says  {expected}"));
    }
    Err(text)
}

fn make_pipe(path: &std::path::Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe");
}

/// Both ends: whoever opens it next need not wait, and what is written stays in it.
fn open_pipe(path: &std::path::Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).expect("a pipe")
}

/// Waits for somebody to say something through a pipe.
fn await_word(pipe: &mut File) -> Checked {
    let patience = Timespec { tv_sec: PATIENCE_S, tv_nsec: 0 };
    let ready = poll(&mut [PollFd::new(pipe, PollFlags::IN)], Some(&patience));
    match ready {
        Ok(1..) => pipe.read(&mut [0; 16]).map(drop).map_err(|error| error.to_string()),
        other => Err(format!("the turn never began: {other:?}")),
    }
}
