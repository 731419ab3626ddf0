//! The program and the model side by side: each act is done to both, and both must say the same.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Output, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::{Value, json};

use super::reference::{Command, Decision, End, Millis, Model, Tag};
use super::script::{Reference, action, line, moment, pipe};
use super::{Act, Turn};
use crate::harness::{Sandbox, dormouse};
use crate::setup::{Beside, names, objects};

/// What differs, or what went wrong.
pub type Failure = String;
type Checked = Result<(), Failure>;

/// How long a turn may take to begin. Only for a program that never begins it.
const PATIENCE_S: i64 = 120;

/// How far the clock goes back at most, in all: what is further in the future than a day is nobody's to know.
const BACK_MAX_S: i64 = 20 * 3600;

/// When it all begins: the day before clocks are put forward in New York, and weeks before
/// the month ends: what is kept by months comes in their order, whatever the clock does at their border.
pub const BEGINNING: &str = "2026-03-07T17:00:00Z";

/// What a transcript begins with: a state directory, and how ids are found by what records say.
const PREAMBLE: &str = r#"dormouse init; dormouse create ada --shell '. "$HOME/turn"'
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

/// A state directory with the agent, to be copied for every case.
pub fn template(on_exhausted: &str) -> Sandbox {
    let sandbox = Sandbox::in_memory();
    sandbox.run(["init"]);
    sandbox.run(["create", "ada", "--shell", ". \"$HOME/turn\""]);
    let policy = format!("{POLICY}\"{on_exhausted}\"\n\n[limits]\ndedupe_window = \"1h\"\n");
    crate::setup::extend_policy(&sandbox, "ada", &policy);
    sandbox
}

impl World {
    pub fn new(template: &Sandbox, stop_when_exhausted: bool) -> World {
        let sandbox = template.copy();
        make_pipe(&sandbox.home().join("up"));
        let beginning = chrono::DateTime::parse_from_rfc3339(BEGINNING).expect("a time");
        let on_exhausted = if stop_when_exhausted { "stop" } else { "park" };
        World {
            sandbox,
            model: Model::new(stop_when_exhausted),
            transcript: format!(
                "{PREAMBLE}cat >> .dormouse/agents/ada/agent.toml <<'END'{POLICY}\"{on_exhausted}\"\n\n\
                 [limits]\ndedupe_window = \"1h\"\nEND\n"
            ),
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
        self.transcript.push_str(&format!("DORMOUSE_NOW={} {}\n", moment(now), line.shell()));
        let ran = self.run(now, &words)?;
        if let (Command::TaskRun { .. }, Some(task), true) = (command, &line.makes, ran.status.success()) {
            self.note_ids(std::slice::from_ref(task))?;
            let id = self.id(task)?;
            self.transcript.push_str(&format!("dormouse task output --follow \"${}\"\n", task.variable()));
            self.ask(now, &["task", "output", "--follow", &id])?;
        }
        let expected = self.model.command(now, command, false).err().unwrap_or(0);
        let code = ran.status.code();
        if code != Some(expected) {
            let stderr = String::from_utf8_lossy(&ran.stderr);
            return Err(format!("{}: status {code:?}, expected {expected}: {stderr}", line.shell()));
        }
        self.compare()
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
        let runs = decision.decision == "start_model_turn";
        let attempt = after.attempt();
        let mut codes = Vec::new();
        let mut terminal = None;
        if runs {
            codes = self.write_turn(now, turn, &mut after)?;
            let actions = self.write_end(now, turn, &after)?;
            terminal = after.end_turn(now, turn.end, &actions);
        }
        let stops = runs && matches!(turn.end, End::Stopped { .. });
        let ran = if stops { self.tick_and_stop(now, turn.end)? } else { self.plain_tick(now)? };
        self.model = after;
        let stdout = String::from_utf8_lossy(&ran.stdout);
        let stderr = String::from_utf8_lossy(&ran.stderr);
        let expected = match terminal {
            _ if runs && turn.end == End::TickKilled => None,
            Some("failed" | "interrupted") => Some(7),
            _ => Some(0),
        };
        if ran.status.code() != expected || stderr.contains("panicked") {
            return Err(format!("tick: {}, expected {expected:?}: {stdout}{stderr}", ran.status));
        }
        if runs {
            self.compare_codes(&codes)?;
        }
        if expected.is_some() {
            let step = objects(&stdout).pop().ok_or("a step without an object")?;
            same("the step", &said_of(&step), &foretold(&decision))?;
            if runs {
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
            if !stops {
                let told = json!([step["status"], step["execution_state"]]);
                same("the step's status", &told, &json!([self.model.status, self.model.execution]))?;
            }
        }
        self.compare()
    }

    fn plain_tick(&mut self, now: Millis) -> Result<Output, Failure> {
        self.transcript.push_str(&format!("DORMOUSE_NOW={} dormouse tick ada\n", moment(now)));
        let words = ["tick", "ada", "--json"].map(str::to_owned);
        Ok(self.start(now, &words).output().expect("the program starts"))
    }

    /// A tick whose turn somebody stops from outside, once it has come to its end.
    fn tick_and_stop(&mut self, now: Millis, end: End) -> Result<Output, Failure> {
        let End::Stopped { killed, requeue } = end else { return Err("no stop".to_owned()) };
        self.transcript.push_str(&format!("DORMOUSE_NOW={} dormouse tick ada &\n", moment(now)));
        let mut up = open_pipe(&self.sandbox.home().join("up"));
        let words = ["tick", "ada", "--json"].map(str::to_owned);
        let tick = Beside::spawn(self.start(now, &words));
        await_word(&mut up)?;
        let later = self.next_moment();
        let live = self.ask(later, &["tick", "ada"])?;
        let told = json!([live[0]["decision"], live[0]["reason"]]);
        same("a second tick", &told, &json!(["noop", "turn_in_progress"]))?;
        let mut words = vec!["stop", "ada", "--grace", if killed { "0s" } else { "1h" }];
        words.extend(requeue.then_some("--requeue"));
        self.transcript.push_str(&format!(
            "cat home/up; DORMOUSE_NOW={} dormouse {}; wait\n",
            moment(later),
            words.join(" ")
        ));
        self.ask(later, &words)?;
        let ran = tick.end();
        Ok(Output { status: ran.status, stdout: ran.stdout.into_bytes(), stderr: ran.stderr.into_bytes() })
    }

    /// Writes what the turn does before it ends. Returns the exit statuses of its commands.
    fn write_turn(&mut self, now: Millis, turn: &Turn, after: &mut Model) -> Result<Vec<i32>, Failure> {
        let mut known = BTreeSet::new();
        let mut needed = BTreeSet::new();
        let mut text = String::new();
        let mut codes = Vec::new();
        for command in &turn.commands {
            if !after.has_subject(command) {
                continue;
            }
            self.moments += 1;
            let own = now - now.rem_euclid(1000) + self.moments.rem_euclid(1000);
            let line = line(after, own, command);
            needed.extend(line.references.iter().filter(|found| !known.contains(*found)).cloned());
            let shell = format!("DORMOUSE_NOW={} {}", moment(own), line.shell());
            if matches!(command, Command::TaskStart { .. }) {
                self.make_task_pipe(after.next_tag("task"));
            }
            let code = after.command(own, command, true).err().unwrap_or(0);
            match &line.makes {
                Some(made) => text.push_str(&format!("{}=$({shell})\n", made.variable())),
                None => text.push_str(&format!("{shell} > \"$HOME/said\"\n")),
            }
            text.push_str("echo $? >> \"$HOME/codes\"\n");
            if let Some(made) = line.makes.filter(|_| code == 0) {
                if matches!(command, Command::TaskRun { .. }) {
                    let follow = format!("dormouse task output --follow \"${}\"", made.variable());
                    text.push_str(&format!("{follow} > \"$HOME/said\"\n"));
                }
                known.insert(made);
            }
            codes.push(code);
        }
        self.note_ids(&needed.iter().cloned().collect::<Vec<_>>())?;
        let _ = fs::remove_file(self.sandbox.home().join("codes"));
        let mut header = String::new();
        self.transcript.push_str("{ ");
        for reference in needed {
            let variable = reference.variable();
            header.push_str(&format!("{variable}={}\n", self.id(&reference)?));
            self.transcript.push_str(&format!("echo {variable}=\"${variable}\"; "));
        }
        self.transcript.push_str(&format!("cat <<'END'\n{text}"));
        fs::write(self.sandbox.home().join("turn"), format!("{header}{text}")).expect("written");
        Ok(codes)
    }

    /// Adds the outcome and the end of the turn. Returns the actions that are in it.
    fn write_end(&mut self, now: Millis, turn: &Turn, after: &Model) -> Result<Vec<Command>, Failure> {
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
        if !objects.is_empty() {
            let outcome = json!({ "brief": "done", "actions": objects });
            text.push_str(&format!("cat > \"$DORMOUSE_OUTCOME\" <<EOF\n{outcome}\nEOF\n"));
        }
        text.push_str(match turn.end {
            End::Well => "exit 0\n",
            End::Badly => "exit 1\n",
            End::NotNow => "exit 75\n",
            End::TickKilled => "kill -9 $PPID\nwhile :; do :; done\n",
            End::TickEnded => "kill $PPID\nwhile :; do :; done\n",
            End::Stopped { killed: true, .. } => {
                "trap '' TERM\necho up > \"$HOME/up\"\nwhile :; do :; done\n"
            }
            End::Stopped { killed: false, .. } => "echo up > \"$HOME/up\"\nwhile :; do :; done\n",
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

    fn compare_decision(&mut self, now: Millis) -> Checked {
        let decision = self.model.foresee(now);
        let would = self.ask(now, &["tick", "ada", "--dry-run"])?;
        same("what a step would do", &said_of(&would[0]), &foretold(&decision))
    }

    /// Everything that can be seen of the agent, and what a step would do.
    fn compare(&mut self) -> Checked {
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
