//! Runs a step and its turn in the program and in the model. In the program the turn is a shell
//! script; the model executes the same commands directly.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::process::Output;

use serde_json::{Value, json};

use super::Turn;
use super::compare::{decision_of, same};
use super::reference::commands::{Command, SECTION_STATUS};
use super::reference::preemption::PLEASE_YIELD;
use super::reference::recovery::{End, Stopped};
use super::reference::resources::NOT_NOW;
use super::reference::{Millis, Model};
use super::script::{Line, Reference, action, line, moment, quoted};
use super::world::{Checked, Failure, World, await_word, open_pipe};
use crate::setup::{Beside, objects};

/// Delay of commands with `late`, in ms: past a grace period of 600 s, within one of 20,000 s.
const LATE: Millis = 7_200_000;

/// Shell loop of a turn that waits for a signal.
pub const FOR_EVER: &str = "while :; do :; done\n";

/// Start of each turn's script: writes the checkpoint of the message into a file.
const BEGINNING_OF_TURN: &str =
    "seen=; read -r seen < \"${DORMOUSE_CHECKPOINT:-/dev/null}\"; echo \"$seen\" > \"$HOME/seen\"\n";

/// Commands of a turn, or of a critical section, as a shell script.
#[derive(Default)]
struct Script {
    text: String,
    /// Expected exit statuses of the commands.
    codes: Vec<i32>,
    /// Records whose ids the script itself assigns to variables.
    known: BTreeSet<Reference>,
    /// Records whose ids the test must assign to variables before the script begins.
    needed: BTreeSet<Reference>,
    /// True if the script ends with an endless loop, until the tick ends the turn.
    is_forced: bool,
}

impl World {
    pub fn tick(&mut self, turn: &Turn) -> Checked {
        let now = self.next_moment();
        self.compare_decision(now)?;
        let mut after = self.model.clone();
        let decision = after.step(now);
        let claims = decision.decision == "start_model_turn";
        let attempt = after.attempt();
        let interjected = after.interjected();
        let runs = claims && after.enter_turn();
        let checkpoint = after.checkpoint().unwrap_or_default();
        let seen = self.sandbox.home().join("seen");
        let _ = fs::remove_file(&seen);
        let mut script = Script::default();
        let mut end = turn.end;
        let mut ended_by = None;
        let mut terminal = None;
        if runs {
            script = self.write_turn(now, turn, &mut after)?;
            if script.is_forced {
                end = End::Forced;
            }
            let actions = self.write_end(now, turn, end, &after)?;
            ended_by = interruption(&after, now, end);
            let tokens = if end == End::Forced { 0 } else { turn.tokens };
            terminal = after.end_turn(now, end, &actions, tokens);
        } else if claims {
            terminal = after.end_turn(now, End::Prevented, &[], 0);
        }
        let ran = match &ended_by {
            Some(line) => self.tick_ended_by(now, end, line)?,
            None => self.plain_tick(now)?,
        };
        let alarmed = std::mem::take(&mut after.alarmed);
        self.model = after;
        let stdout = String::from_utf8_lossy(&ran.stdout);
        let stderr = String::from_utf8_lossy(&ran.stderr);
        let killed = std::mem::take(&mut self.model.killed) || (runs && end == End::TickKilled);
        let expected = match terminal {
            _ if killed => None,
            Some("failed" | "interrupted") => Some(7),
            _ if alarmed => Some(7),
            _ => Some(0),
        };
        if ran.status.code() != expected || stderr.contains("panicked") {
            return Err(format!("tick: {}, expected {expected:?}: {stdout}{stderr}", ran.status));
        }
        if runs {
            self.compare_codes(&script.codes)?;
            let seen = fs::read_to_string(&seen).unwrap_or_default();
            same("the checkpoint", seen.trim_end(), checkpoint)?;
        } else {
            same("whether a turn has begun", seen.exists(), false)?;
        }
        let step =
            if killed { Value::Null } else { objects(&stdout).pop().ok_or("a step without an object")? };
        if runs {
            self.compare_interjected(&step, interjected)?;
        }
        if !killed {
            same("the step", decision_of(&step), self.expected_decision(&decision)?)?;
            if claims {
                let closure = self.model.closure();
                let found = ["/terminal", "/attempt", "/closure/outcome", "/closure/waiting_reason"];
                let found = found.map(|field| step.pointer(field));
                let expected = json!([terminal, attempt, closure.outcome, closure.reason]);
                same("terminal, attempt and closure of the turn", found, expected)?;
            }
            if ended_by.is_none() {
                let found = [&step["status"], &step["execution_state"]];
                same("the step's status", found, [self.model.status, self.model.execution])?;
            }
        }
        self.compare(ended_by.is_none())
    }

    fn plain_tick(&mut self, now: Millis) -> Result<Output, Failure> {
        self.transcript.push_str(&format!("DORMOUSE_NOW={} dormouse tick ada\n", moment(now)));
        let words = ["tick", "ada", "--json"].map(str::to_owned);
        Ok(self.start(now, &words).output().expect("the program starts"))
    }

    /// Runs a tick, and ends its turn by another command once the turn has reached its last line.
    fn tick_ended_by(&mut self, now: Millis, end: End, line: &Line) -> Result<Output, Failure> {
        self.transcript.push_str(&format!("DORMOUSE_NOW={} dormouse tick ada &\n", moment(now)));
        let mut up = open_pipe(&self.sandbox.home().join("up"));
        let words = ["tick", "ada", "--json"].map(str::to_owned);
        let tick = Beside::spawn(self.start(now, &words));
        await_word(&mut up)?;
        // The tick compares the end of the grace period with its own `DORMOUSE_NOW`.
        let later =
            if matches!(end, End::Preempted { .. }) { self.own_moment(now) } else { self.next_moment() };
        let live = self.ask(later, &["tick", "ada"])?;
        same("a second tick", [&live[0]["decision"], &live[0]["reason"]], ["noop", "turn_in_progress"])?;
        self.transcript.push_str(&format!("cat home/up; {}; wait\n", line.shell(later)));
        let words: Vec<&str> = line.words.iter().map(String::as_str).collect();
        self.ask(later, &words)?;
        let ran = tick.end();
        Ok(Output { status: ran.status, stdout: ran.stdout.into_bytes(), stderr: ran.stderr.into_bytes() })
    }

    /// Returns a new millisecond within the second of `now`.
    pub fn own_moment(&mut self, now: Millis) -> Millis {
        self.moments += 1;
        now - now.rem_euclid(1000) + self.moments.rem_euclid(1000)
    }

    /// Writes the commands of the turn, and executes them on the model.
    fn write_turn(&mut self, now: Millis, turn: &Turn, after: &mut Model) -> Result<Script, Failure> {
        let mut script = Script { text: BEGINNING_OF_TURN.to_owned(), ..Script::default() };
        for command in &turn.commands {
            self.write_command(now, command, after, &mut script);
        }
        // An open critical section would delay the command that ends the turn from outside.
        let kept_off = matches!(turn.end, End::Preempted { .. } | End::Stopped { .. } | End::Failed);
        while kept_off && after.innermost_section().is_some() {
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

    /// Writes one command of a turn, and executes it on the model.
    fn write_command(&mut self, now: Millis, command: &Command, after: &mut Model, script: &mut Script) {
        if script.is_forced || !after.has_subject(command) {
            return;
        }
        let is_late =
            matches!(command, Command::Begin { late: true, .. } | Command::SafePoint { late: true, .. });
        let own = self.own_moment(now) + if is_late { LATE } else { 0 };
        let line = line(after, own, command);
        let known = &script.known;
        let needed: Vec<_> =
            line.references.iter().filter(|found| !known.contains(*found)).cloned().collect();
        // The script can't know the id of a record that a command creates but doesn't print, such
        // as the timer of a delayed message.
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
                        // A command in the critical section may already have ended the section.
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
            script.text.push_str(&format!("{} > \"$HOME/before\"\n", self.print_state()));
        }
        match (&line.makes, command) {
            (Some(made), _) => script.text.push_str(&format!("{}=$({shell})\n", made.variable())),
            (None, Command::SafePoint { .. }) => {
                script.text.push_str(&format!("{shell} >> \"$HOME/handed\"\n"));
            }
            (None, _) => script.text.push_str(&format!("{shell} > \"$HOME/said\"\n")),
        }
        if script.is_forced || after.is_about_to_be_forced(now) {
            // The tick may end the turn at any time from here on.
            script.is_forced = true;
            script.text.push_str(FOR_EVER);
            return;
        }
        script.text.push_str("echo $? >> \"$HOME/codes\"\n");
        script.codes.push(code);
        if ended.is_err() {
            let same = format!("{} | cmp - \"$HOME/before\"", self.print_state());
            script.text.push_str(&format!("{same} || echo changed >> \"$HOME/codes\"\n"));
        }
        if let Some(made) = line.makes.filter(|_| code == 0) {
            if made.prefix == "trig" {
                // The id is the second word that `trigger create` prints.
                script.text.push_str(&format!("set -- ${0}; {0}=$2\n", made.variable()));
            }
            if matches!(command, Command::TaskRun { .. }) {
                let follow = format!("dormouse task output --follow \"${}\"", made.variable());
                script.text.push_str(&format!("{follow} > \"$HOME/said\"\n"));
            }
            script.known.insert(made);
        }
    }

    /// Appends the outcome file and the last command to a turn's script. Returns the actions in it.
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
            // An action that names a record of this turn is left out, because the test writes its
            // id into the script before the record exists.
            let ids: Result<Vec<String>, Failure> =
                references.iter().map(|reference| self.id(reference)).collect();
            let Ok(ids) = ids else { continue };
            for (reference, id) in references.iter().zip(ids) {
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
            End::NotNow => format!("echo {NOT_NOW} >&2; exit 75\n"),
            End::TickKilled => format!("kill -9 $PPID\n{FOR_EVER}"),
            End::TickEnded => format!("kill $PPID\n{FOR_EVER}"),
            End::Stopped { how: Stopped::Killed, .. } => format!("trap '' TERM\n{up}{FOR_EVER}"),
            End::Stopped { how: Stopped::Finishes, .. } => format!("trap 'exit 0' TERM\n{up}{FOR_EVER}"),
            End::Stopped { how: Stopped::Dies, .. } | End::Failed | End::Preempted { .. } => {
                format!("{up}{FOR_EVER}")
            }
            // The tick ends the turn before this point, so nothing needs to follow.
            End::Forced | End::Prevented => String::new(),
        });
        self.transcript.push_str(&format!("{text}END\n}} > home/turn\n"));
        let file = OpenOptions::new().append(true).open(self.sandbox.home().join("turn"));
        file.and_then(|mut file| file.write_all(text.as_bytes())).expect("written");
        Ok(actions)
    }
}

/// Returns the command that ends the turn from outside; `None` if the turn ends by itself.
fn interruption(model: &Model, now: Millis, end: End) -> Option<Line> {
    match end {
        End::Stopped { how, requeue } => {
            let grace = if how == Stopped::Killed { "0s" } else { "1h" };
            Some(line(model, now, &Command::Stop { requeue }).flag("--grace", grace))
        }
        End::Failed => Some(line(model, now, &Command::Fail)),
        End::Preempted { resume_after } => {
            Some(line(model, now, &Command::Preempt { grace: 0, resume_after }))
        }
        End::Well
        | End::Badly
        | End::NotNow
        | End::Prevented
        | End::TickKilled
        | End::TickEnded
        | End::Forced => None,
    }
}
