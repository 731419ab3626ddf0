//! Writes commands of a test case as lines of shell, or as actions that a turn requests by a file.

use serde_json::{Value, json};

use super::reference::commands::{Command, Owner};
use super::reference::messages::EnqueueArgs;
use super::reference::recovery::OPERATORS_REASON;
use super::reference::timers::Schedule;
use super::reference::waits::WaitArgs;
use super::reference::{Millis, Model, Tag, resource_name};

/// A record whose id a shell command needs. The command has a variable in place of the id.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reference {
    /// Prefix of the id, such as `msg`.
    pub prefix: &'static str,
    pub said: Tag,
}

impl Reference {
    pub fn of_wait(said: &Tag) -> Reference {
        Reference { prefix: "wait", said: said.clone() }
    }

    /// Returns the shell variable for the id. No two records of the model have the same number.
    pub fn variable(&self) -> String {
        format!("{}_{}", self.prefix, self.said.rsplit(' ').next().unwrap_or_default())
    }
}

/// A command line without the word `dormouse`. An id is written as the word `$variable`.
#[derive(Debug, Default)]
pub struct Line {
    pub words: Vec<String>,
    pub references: Vec<Reference>,
    /// The record that the command creates. The command prints the id of that record.
    pub makes: Option<Reference>,
    /// Text on stdin.
    input: Option<String>,
    /// True if the operator gives the command, even if a turn of the agent runs it.
    outside: bool,
}

impl Line {
    fn of(words: &[&str]) -> Line {
        Line { words: words.iter().map(|word| (*word).to_owned()).collect(), ..Line::default() }
    }

    fn word_if(mut self, condition: bool, word: &str) -> Line {
        self.words.extend(condition.then(|| word.to_owned()));
        self
    }

    pub fn flag(mut self, name: &str, value: impl Into<String>) -> Line {
        self.words.extend([name.to_owned(), value.into()]);
        self
    }

    fn flag_if(self, name: &str, value: Option<impl Into<String>>) -> Line {
        match value {
            Some(value) => self.flag(name, value),
            None => self,
        }
    }

    /// Adds the id of the record with the name `said` as a variable; adds nothing without a name.
    fn id(mut self, prefix: &'static str, said: Option<&Tag>) -> Line {
        if let Some(said) = said {
            let reference = Reference { prefix, said: said.clone() };
            self.words.push(format!("${}", reference.variable()));
            self.references.push(reference);
        }
        self
    }

    fn flag_id(self, name: &str, prefix: &'static str, said: Option<&Tag>) -> Line {
        self.word_if(said.is_some(), name).id(prefix, said)
    }

    /// Adds a time `span` seconds from now; a negative span gives a past time.
    fn due(self, now: Millis, span: i64) -> Line {
        if span < 0 {
            self.flag("--at", moment(now + span * 1000)).word_if(true, "--past-ok")
        } else {
            self.flag("--in", seconds(span))
        }
    }

    fn makes(self, prefix: &'static str, said: Tag) -> Line {
        Line { makes: Some(Reference { prefix, said }), ..self }
    }

    /// Returns the command for a shell, to be executed at the time `at`.
    pub fn shell(&self, at: Millis) -> String {
        let words = self.words.iter().map(|word| match word.strip_prefix('$') {
            Some(variable) => format!("\"${variable}\""),
            None => quoted(word),
        });
        let input = self.input.iter().map(|input| format!("echo {} | ", quoted(input)));
        let outside = if self.outside { "env -u DORMOUSE_RUN " } else { "" };
        let words = words.collect::<Vec<_>>().join(" ");
        format!("{}{outside}DORMOUSE_NOW={} dormouse {words}", input.collect::<String>(), moment(at))
    }
}

pub fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

fn seconds(span: i64) -> String {
    format!("{span}s")
}

pub fn moment(at: Millis) -> String {
    let at = chrono::DateTime::from_timestamp_millis(at).expect("a time that chrono can represent");
    at.format("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
}

/// Returns the command line of a command that is executed now for the agent of the model.
pub fn line(model: &Model, now: Millis, command: &Command) -> Line {
    let work = |item: usize| model.work(item).map(|item| &item.tag);
    let wait = |wait: usize| model.wait(wait).map(|wait| &wait.tag);
    let timer = |timer: usize| model.timer(timer).map(|timer| &timer.tag);
    let task = |task: usize| model.task(task).map(|task| &task.tag);
    let trigger = |trigger: usize| Some(&model.trigger(trigger).tag);
    match command {
        Command::Enqueue(asked) => enqueue(model, now, asked),
        Command::Wake(asked) => Line::of(&["wake", "ada"])
            .word_if(!asked.blank, &model.next_tag("hint"))
            .flag_if("--source", asked.source)
            .flag_if("--resource", asked.resource.map(resource_name))
            .flag_id("--wait", "wait", asked.wait.and_then(wait))
            .flag_id("--trigger", "trig", asked.trigger.and_then(trigger)),
        Command::TriggerCreate { mode, resource, wait: of_wait, source } => {
            let said = model.next_tag("trigger");
            let of_wait = of_wait.and_then(wait);
            let resource = resource.filter(|_| of_wait.is_none());
            Line::of(&["trigger", "create", "-a", "ada", "--mode", mode])
                .flag_id("--wait", "wait", of_wait)
                .flag_if("--resource", resource.map(resource_name))
                .flag_if("--source", *source)
                .flag("--secret-file", at_home(&said))
                .makes("trig", said)
        }
        Command::TriggerDeliver(said) => {
            let of = model.trigger(said.trigger);
            let is_hint = of.mode == "wake_hint";
            let text = match (said.blank, is_hint) {
                (true, _) => " ".to_owned(),
                (false, true) => model.next_tag("hint"),
                (false, false) => model.next_tag("message"),
            };
            let secret = if said.right { of.secret.clone() } else { model.wrong_secret(of) };
            Line::of(&["trigger", "deliver"])
                .id("trig", Some(&of.tag))
                .word_if(!(said.blank && is_hint), &text)
                .flag("--secret-file", at_home(&secret))
                .flag_if("--dedupe-key", said.key.map(|key| format!("key:{key}")))
        }
        Command::TriggerRotate(rotated) => Line::of(&["trigger", "rotate"])
            .id("trig", trigger(*rotated))
            .flag("--secret-file", at_home(&model.next_tag("secret"))),
        Command::TriggerRevoke(revoked) => Line::of(&["trigger", "revoke"]).id("trig", trigger(*revoked)),
        Command::WorkAdd { pick, needs_input, blocked, recheck } => {
            let said = model.next_tag("work");
            Line::of(&["work", "add", "-a", "ada", &said])
                .word_if(*pick, "--pick")
                .flag_if("--plan-status", needs_input.then_some("needs_input"))
                .flag_if("--blocked-by", blocked.then_some("somebody"))
                .flag_if("--recheck", recheck.filter(|_| *blocked).map(seconds))
                .makes("work", said)
        }
        Command::WorkUpdate { item, plan_status } => {
            Line::of(&["work", "update"]).id("work", work(*item)).flag("--plan-status", *plan_status)
        }
        Command::WorkPick { item, clear } => Line::of(&["work", "pick"])
            .id("work", work(*item))
            .word_if(*clear, "--clear-blocker")
            .flag_if("--reason", clear.then_some("free")),
        Command::WorkBlock { item, recheck } => Line::of(&["work", "block"])
            .id("work", work(*item))
            .flag("--reason", "somebody")
            .flag_if("--recheck", recheck.map(seconds)),
        Command::WorkUnblock(item) => {
            Line::of(&["work", "unblock"]).id("work", work(*item)).flag("--reason", "free")
        }
        Command::WorkComplete(item) => Line::of(&["work", "complete"]).id("work", work(*item)),
        Command::Wait(asked) => {
            let said = model.next_tag("wait");
            let owner = match asked.owner {
                Owner::Item(item) => work(item),
                Owner::Nearest | Owner::Agent => None,
            };
            let task = task(asked.task).filter(|_| asked.kind == "task");
            let resource = asked.resource.filter(|_| task.is_none());
            Line::of(&["wait", "-a", "ada", "--on", asked.kind, "--reason", &said])
                .word_if(matches!(asked.owner, Owner::Agent), "--whole-agent")
                .flag_id("--work-item", "work", owner)
                .flag_id("--resource", "task", task)
                .flag_if("--resource", resource.map(resource_name))
                .flag_if("--source", asked.source)
                .flag_id("--trigger", "trig", asked.trigger.and_then(trigger))
                .flag_if("--in", (asked.kind == "timer").then(|| seconds(asked.within)))
                .flag_if("--recheck", asked.recheck.map(seconds))
                .flag_if("--expires", asked.expires.map(seconds))
                .makes("wait", said)
        }
        Command::WaitCancel(cancelled) => Line::of(&["wait", "cancel"]).id("wait", wait(*cancelled)),
        Command::TimerAdd { schedule, blank, catch_up } => {
            let said = model.next_tag("timer");
            let line = Line::of(&["timer", "add", "-a", "ada"]);
            let line = match schedule {
                Schedule::Once(span) => line.due(now, *span),
                Schedule::Every(span) => line.flag("--every", seconds(*span)),
                Schedule::Daily(hour) => {
                    line.flag("--cron", format!("0 {hour} * * *")).flag("--tz", "America/New_York")
                }
            };
            line.flag("--catch-up", *catch_up).word_if(!blank, &said).makes("timer", said)
        }
        Command::TimerCancel(cancelled) => Line::of(&["timer", "cancel"]).id("timer", timer(*cancelled)),
        Command::TaskRun { well, notify } => start_task(model, *notify, if *well { "true" } else { "false" }),
        Command::TaskStart { notify } => {
            let pipe = pipe(&model.next_tag("task"));
            start_task(model, *notify, &format!("read code < \"$HOME/{pipe}\"; exit \"$code\""))
        }
        // The test ends the task through a pipe; this command waits until the task has ended.
        Command::TaskEnd { task: ended, .. } => {
            Line::of(&["task", "output", "--follow"]).id("task", task(*ended))
        }
        Command::TaskStop(stopped) => Line::of(&["task", "stop"]).id("task", task(*stopped)),
        Command::Drop(message) => Line::of(&["queue", "drop"]).id("msg", model.message(*message)),
        Command::Requeue(message) => Line::of(&["queue", "requeue"]).id("msg", model.message(*message)),
        Command::Acknowledge => Line::of(&["queue", "dead", "-a", "ada", "--ack"]),
        Command::Start => Line::of(&["start", "ada"]),
        Command::Stop { requeue } => Line::of(&["stop", "ada"]).word_if(*requeue, "--requeue"),
        Command::Recover => Line::of(&["recover", "ada"]),
        Command::Preempt { grace, resume_after } => {
            Line::of(&["preempt", "ada", "--reason", &model.next_tag("reason")])
                .flag("--grace", seconds(*grace))
                .flag_if("--for", resume_after.map(seconds))
        }
        Command::Resume => Line::of(&["resume", "ada"]),
        Command::Fail => Line::of(&["fail", "ada", "--reason", OPERATORS_REASON]),
        Command::Interject { blank, ttl } => {
            let line = enqueue_text(model, *blank)
                .flag("--priority", "interject")
                .flag_if("--ttl", ttl.map(seconds));
            Line { outside: true, ..line }
        }
        Command::SafePoint { peek, .. } => Line::of(&["safe-point"]).word_if(*peek, "--peek"),
        Command::Checkpoint => {
            Line { input: Some(model.next_tag("checkpoint")), ..Line::of(&["checkpoint", "-"]) }
        }
        Command::Yield { checkpoint, resume_after } => {
            let line = Line::of(&["yield"])
                .flag_if("--for", resume_after.map(seconds))
                .flag_if("--checkpoint", checkpoint.then_some("-"));
            Line { input: checkpoint.then(|| model.next_tag("checkpoint")), ..line }
        }
        Command::Begin { deadline, .. } => {
            Line::of(&["non-preemptible", "begin", "--deadline", &seconds(*deadline)])
        }
        Command::End => Line::of(&["non-preemptible", "end"]),
        Command::Within { deadline, .. } => {
            Line::of(&["non-preemptible", "--deadline", &seconds(*deadline), "--", "sh", "-c"])
        }
    }
}

fn enqueue(model: &Model, now: Millis, asked: &EnqueueArgs) -> Line {
    let wait = asked.wait.and_then(|wait| model.wait(wait)).map(|wait| &wait.tag);
    let item = asked.work.and_then(|item| model.work(item)).map(|item| &item.tag);
    let line = enqueue_text(model, asked.blank)
        .flag("--priority", asked.priority)
        .flag_if("--kind", Some(asked.kind).filter(|kind| *kind != "internal_followup"))
        .flag_if("--origin", asked.source)
        .flag_if("--resource", asked.resource.map(resource_name))
        .flag_id("--wait", "wait", wait)
        .flag_id("--work-item", "work", item)
        .flag_if("--dedupe-key", asked.key.map(|key| format!("key:{key}")))
        .flag_if("--ttl", asked.ttl.map(seconds));
    match asked.delay {
        Some(delay) => line.due(now, delay),
        None => line,
    }
}

/// Returns a line that enqueues the name of the message as its text, or a blank text.
fn enqueue_text(model: &Model, blank: bool) -> Line {
    let said = model.next_tag("message");
    Line::of(&["enqueue", "ada", if blank { " " } else { &said }])
        .word_if(blank, "--allow-empty")
        .flag("--correlation-id", said)
}

fn start_task(model: &Model, notify: bool, shell: &str) -> Line {
    let said = model.next_tag("task");
    let line = Line::of(&["task", "start", "-a", "ada", "--summary", &said]);
    let mut line = line.word_if(!notify, "--no-notify").makes("task", said);
    line.words.extend(["--", "sh", "-c", shell].map(str::to_owned));
    line
}

/// Returns the path of the file with a secret, below the home directory.
fn at_home(secret: &Tag) -> String {
    format!("$HOME/{}", secret_file(secret))
}

pub fn secret_file(secret: &Tag) -> String {
    secret.replace(' ', "-")
}

/// Returns the name of the pipe, in the home directory, through which a task gets its exit status.
pub fn pipe(task: &Tag) -> String {
    task.replace(' ', "-")
}

/// Returns a command as an action for the outcome file of a turn; `None` if no such action exists.
pub fn action(model: &Model, now: Millis, command: &Command) -> Option<(Value, Vec<Reference>)> {
    let mut references = Vec::new();
    let mut id = |prefix, said: &Tag| {
        let reference = Reference { prefix, said: said.clone() };
        let variable = format!("${}", reference.variable());
        references.push(reference);
        variable
    };
    let span = |span: &Option<i64>| span.map(seconds);
    let action = match command {
        Command::Enqueue(EnqueueArgs { priority, blank, resource, work, delay, .. }) => {
            let said = model.next_tag("message");
            let item = work.and_then(|item| model.work(item)).map(|item| id("work", &item.tag));
            json!({
                "do": "enqueue", "text": if *blank { " " } else { &said }, "correlation_id": said,
                "allow_empty": blank.then_some(true), "priority": priority, "resource": resource.map(resource_name), "work_item_id": item,
                "in": delay.filter(|delay| *delay >= 0).map(seconds),
                "at": delay.filter(|delay| *delay < 0).map(|delay| moment(now + delay * 1000)),
            })
        }
        Command::WorkAdd { pick, needs_input, blocked, recheck } => json!({
            "do": "work.add", "objective": model.next_tag("work"), "pick": pick,
            "plan_status": needs_input.then_some("needs_input"),
            "blocked_by": blocked.then_some("somebody"),
            "recheck_after": span(&recheck.filter(|_| *blocked)),
        }),
        Command::WorkUpdate { item, plan_status } => {
            json!({ "do": "work.update", "id": id("work", &model.work(*item)?.tag), "plan_status": plan_status })
        }
        Command::WorkPick { item, clear } => json!({
            "do": "work.pick", "id": id("work", &model.work(*item)?.tag), "clear_blocker": clear.then_some("free"),
        }),
        Command::WorkBlock { item, recheck } => json!({
            "do": "work.block", "id": id("work", &model.work(*item)?.tag), "reason": "somebody",
            "recheck_after": span(recheck),
        }),
        Command::WorkUnblock(item) => {
            json!({ "do": "work.unblock", "id": id("work", &model.work(*item)?.tag), "reason": "free" })
        }
        Command::WorkComplete(item) => {
            json!({ "do": "work.complete", "id": id("work", &model.work(*item)?.tag) })
        }
        Command::Wait(WaitArgs { trigger: Some(_), .. }) => return None,
        Command::Wait(WaitArgs { kind, owner, resource, source, task, within, recheck, expires, .. }) => {
            let item = match owner {
                Owner::Item(item) => Some(id("work", &model.work(*item)?.tag)),
                Owner::Nearest | Owner::Agent => None,
            };
            let resource = match *kind {
                "task" => Some(id("task", &model.task(*task)?.tag)),
                _ => resource.map(resource_name),
            };
            json!({
                "do": "wait", "kind": kind, "reason": model.next_tag("wait"), "resource": resource,
                "source": source, "work_item_id": item, "whole_agent": matches!(owner, Owner::Agent).then_some(true),
                "in": (*kind == "timer").then(|| seconds(*within)),
                "recheck_after": span(recheck), "expires_after": span(expires),
            })
        }
        Command::TimerAdd { schedule, blank, catch_up } => {
            let mut action = json!({ "do": "timer.add", "catch_up": catch_up });
            if !blank {
                action["text"] = json!(model.next_tag("timer"));
            }
            match schedule {
                Schedule::Once(span) if *span < 0 => {
                    action["at"] = json!(moment(now + span * 1000));
                    action["past_ok"] = json!(true);
                }
                Schedule::Once(span) => action["in"] = json!(seconds(*span)),
                Schedule::Every(span) => action["every"] = json!(seconds(*span)),
                Schedule::Daily(hour) => {
                    action["cron"] = json!(format!("0 {hour} * * *"));
                    action["time_zone"] = json!("America/New_York");
                }
            }
            action
        }
        Command::Wake(_)
        | Command::TriggerCreate { .. }
        | Command::TriggerDeliver(_)
        | Command::TriggerRotate(_)
        | Command::TriggerRevoke(_)
        | Command::WaitCancel(_)
        | Command::TimerCancel(_)
        | Command::TaskRun { .. }
        | Command::TaskStart { .. }
        | Command::TaskEnd { .. }
        | Command::TaskStop(_)
        | Command::Drop(_)
        | Command::Requeue(_)
        | Command::Acknowledge
        | Command::Start
        | Command::Stop { .. }
        | Command::Recover
        | Command::Preempt { .. }
        | Command::Resume
        | Command::Fail
        | Command::Interject { .. }
        | Command::SafePoint { .. }
        | Command::Checkpoint
        | Command::Yield { .. }
        | Command::Begin { .. }
        | Command::End
        | Command::Within { .. } => return None,
    };
    let fields = action.as_object()?.clone().into_iter().filter(|(_, value)| !value.is_null());
    Some((Value::Object(fields.collect()), references))
}
