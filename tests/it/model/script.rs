//! Commands of the model as lines of shell, and as actions of an outcome file.

use serde_json::{Value, json};

use super::reference::commands::{Command, Owner};
use super::reference::messages::EnqueueArgs;
use super::reference::recovery::OPERATORS_REASON;
use super::reference::timers::Schedule;
use super::reference::{Millis, Model, Tag, resource_name};

/// A record of which a line of shell needs the id: it stands there as a variable.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reference {
    /// What its id begins with.
    pub prefix: &'static str,
    pub said: Tag,
}

impl Reference {
    /// The variable that holds the id. The numbers of names are unique, whatever they name.
    pub fn variable(&self) -> String {
        format!("{}_{}", self.prefix, self.said.rsplit(' ').next().unwrap_or_default())
    }
}

/// The words of a command line behind `dormouse`. An id is `$variable`, alone in its word.
#[derive(Debug, Default)]
pub struct Line {
    pub words: Vec<String>,
    pub references: Vec<Reference>,
    /// The record that it makes and prints the id of.
    pub makes: Option<Reference>,
    /// What it reads.
    input: Option<String>,
    /// Whether it is said from outside, wherever it is run.
    outside: bool,
}

impl Line {
    fn of(words: &[&str]) -> Line {
        Line { words: words.iter().map(|word| (*word).to_owned()).collect(), ..Line::default() }
    }

    fn flag(&mut self, name: &str, value: impl Into<String>) {
        self.words.extend([name.to_owned(), value.into()]);
    }

    fn flag_if(&mut self, name: &str, value: Option<impl Into<String>>) {
        if let Some(value) = value {
            self.flag(name, value);
        }
    }

    fn id(&mut self, prefix: &'static str, said: &Tag) {
        let reference = Reference { prefix, said: said.clone() };
        self.words.push(format!("${}", reference.variable()));
        self.references.push(reference);
    }

    fn trigger_if(&mut self, model: &Model, trigger: Option<usize>) {
        if let Some(trigger) = trigger {
            self.words.push("--trigger".to_owned());
            self.id("trig", &model.trigger(trigger).tag);
        }
    }

    fn made(mut self, prefix: &'static str, said: Tag) -> Line {
        self.makes = Some(Reference { prefix, said });
        self
    }

    /// As a shell takes it, at a moment.
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
    let at = chrono::DateTime::from_timestamp_millis(at).expect("a moment within reach");
    at.format("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
}

/// The command as it is given at this moment to an agent that stands like this.
pub fn line(model: &Model, now: Millis, command: &Command) -> Line {
    let of_work = |words: &[&str], item: usize| {
        let mut line = Line::of(words);
        if let Some(item) = model.work(item) {
            line.id("work", &item.tag);
        }
        line
    };
    match command {
        Command::Enqueue(said) => enqueue(model, now, said),
        Command::Wake { blank, source, resource, wait, trigger } => {
            let mut line = Line::of(&["wake", "ada"]);
            if !blank {
                line.words.push(model.next_tag("hint"));
            }
            line.flag_if("--source", *source);
            line.flag_if("--resource", resource.map(resource_name));
            if let Some(wait) = wait.and_then(|wait| model.wait(wait)) {
                line.words.push("--wait".to_owned());
                line.id("wait", &wait.tag);
            }
            line.trigger_if(model, *trigger);
            line
        }
        Command::TriggerCreate { mode, resource, wait, source } => {
            let said = model.next_tag("trigger");
            let mut line = Line::of(&["trigger", "create", "-a", "ada", "--mode", mode]);
            if let Some(wait) = wait.and_then(|wait| model.wait(wait)) {
                line.words.push("--wait".to_owned());
                line.id("wait", &wait.tag);
            } else {
                line.flag_if("--resource", resource.map(resource_name));
            }
            line.flag_if("--source", *source);
            line.flag("--secret-file", at_home(&said));
            line.made("trig", said)
        }
        Command::TriggerDeliver(said) => {
            let trigger = model.trigger(said.trigger);
            let mut line = Line::of(&["trigger", "deliver"]);
            line.id("trig", &trigger.tag);
            match (said.blank, trigger.mode) {
                (true, "wake_hint") => {}
                (true, _) => line.words.push(" ".to_owned()),
                (false, "wake_hint") => line.words.push(model.next_tag("hint")),
                (false, _) => line.words.push(model.next_tag("message")),
            }
            let secret = if said.right { trigger.secret.clone() } else { model.wrong_secret(trigger) };
            line.flag("--secret-file", at_home(&secret));
            line.flag_if("--dedupe-key", said.key.map(|key| format!("key:{key}")));
            line
        }
        Command::TriggerRotate(trigger) => {
            let mut line = Line::of(&["trigger", "rotate"]);
            line.id("trig", &model.trigger(*trigger).tag);
            line.flag("--secret-file", at_home(&model.next_tag("secret")));
            line
        }
        Command::TriggerRevoke(trigger) => {
            let mut line = Line::of(&["trigger", "revoke"]);
            line.id("trig", &model.trigger(*trigger).tag);
            line
        }
        Command::WorkAdd { pick, needs_input, blocked, recheck } => {
            let said = model.next_tag("work");
            let mut line = Line::of(&["work", "add", "-a", "ada", &said]);
            if *pick {
                line.words.push("--pick".to_owned());
            }
            line.flag_if("--plan-status", needs_input.then_some("needs_input"));
            line.flag_if("--blocked-by", blocked.then_some("somebody"));
            line.flag_if("--recheck", recheck.filter(|_| *blocked).map(seconds));
            line.made("work", said)
        }
        Command::WorkUpdate { item, plan_status } => {
            let mut line = of_work(&["work", "update"], *item);
            line.flag("--plan-status", *plan_status);
            line
        }
        Command::WorkPick { item, clear } => {
            let mut line = of_work(&["work", "pick"], *item);
            if *clear {
                line.words.push("--clear-blocker".to_owned());
                line.flag("--reason", "free");
            }
            line
        }
        Command::WorkBlock { item, recheck } => {
            let mut line = of_work(&["work", "block"], *item);
            line.flag("--reason", "somebody");
            line.flag_if("--recheck", recheck.map(seconds));
            line
        }
        Command::WorkUnblock(item) => {
            let mut line = of_work(&["work", "unblock"], *item);
            line.flag("--reason", "free");
            line
        }
        Command::WorkComplete(item) => of_work(&["work", "complete"], *item),
        Command::Wait { kind, owner, resource, source, trigger, task, within, recheck, expires } => {
            let said = model.next_tag("wait");
            let mut line = Line::of(&["wait", "-a", "ada", "--on", kind, "--reason", &said]);
            match owner {
                Owner::Nearest => {}
                Owner::Agent => line.words.push("--whole-agent".to_owned()),
                Owner::Item(item) => {
                    let item = of_work(&["--work-item"], *item);
                    line.words.extend(item.words);
                    line.references.extend(item.references);
                }
            }
            match (*kind, model.task(*task)) {
                ("task", Some(task)) => {
                    line.words.push("--resource".to_owned());
                    line.id("task", &task.tag);
                }
                _ => line.flag_if("--resource", resource.map(resource_name)),
            }
            line.flag_if("--source", *source);
            line.trigger_if(model, *trigger);
            line.flag_if("--in", (*kind == "timer").then(|| seconds(*within)));
            line.flag_if("--recheck", recheck.map(seconds));
            line.flag_if("--expires", expires.map(seconds));
            line.made("wait", said)
        }
        Command::WaitCancel(wait) => {
            let mut line = Line::of(&["wait", "cancel"]);
            if let Some(wait) = model.wait(*wait) {
                line.id("wait", &wait.tag);
            }
            line
        }
        Command::TimerAdd { schedule, blank, catch_up } => {
            let said = model.next_tag("timer");
            let mut line = Line::of(&["timer", "add", "-a", "ada"]);
            match schedule {
                Schedule::Once(span) if *span < 0 => {
                    line.flag("--at", moment(now + span * 1000));
                    line.words.push("--past-ok".to_owned());
                }
                Schedule::Once(span) => line.flag("--in", seconds(*span)),
                Schedule::Every(span) => line.flag("--every", seconds(*span)),
                Schedule::Daily(hour) => {
                    line.flag("--cron", format!("0 {hour} * * *"));
                    line.flag("--tz", "America/New_York");
                }
            }
            line.flag("--catch-up", *catch_up);
            if !blank {
                line.words.push(said.clone());
            }
            line.made("timer", said)
        }
        Command::TimerCancel(timer) => {
            let mut line = Line::of(&["timer", "cancel"]);
            if let Some(timer) = model.timer(*timer) {
                line.id("timer", &timer.tag);
            }
            line
        }
        Command::TaskRun { well, notify } => task(model, *notify, if *well { "true" } else { "false" }),
        Command::TaskStart { notify } => {
            let pipe = pipe(&model.next_tag("task"));
            task(model, *notify, &format!("read code < \"$HOME/{pipe}\"; exit \"$code\""))
        }
        Command::TaskEnd { task, .. } => {
            // What it is told comes through its pipe; this waits for its end.
            let mut line = Line::of(&["task", "output", "--follow"]);
            if let Some(task) = model.task(*task) {
                line.id("task", &task.tag);
            }
            line
        }
        Command::TaskStop(task) => {
            let mut line = Line::of(&["task", "stop"]);
            if let Some(task) = model.task(*task) {
                line.id("task", &task.tag);
            }
            line
        }
        Command::Drop(message) | Command::Requeue(message) => {
            let verb = if matches!(command, Command::Drop(_)) { "drop" } else { "requeue" };
            let mut line = Line::of(&["queue", verb]);
            if let Some(said) = model.message(*message) {
                line.id("msg", said);
            }
            line
        }
        Command::Acknowledge => Line::of(&["queue", "dead", "-a", "ada", "--ack"]),
        Command::Start => Line::of(&["start", "ada"]),
        Command::Stop { requeue } => {
            let mut line = Line::of(&["stop", "ada"]);
            line.words.extend(requeue.then(|| "--requeue".to_owned()));
            line
        }
        Command::Recover => Line::of(&["recover", "ada"]),
        Command::Preempt { grace, resume_after } => {
            let mut line = Line::of(&["preempt", "ada", "--reason", &model.next_tag("reason")]);
            line.flag("--grace", seconds(*grace));
            line.flag_if("--for", resume_after.map(seconds));
            line
        }
        Command::Resume => Line::of(&["resume", "ada"]),
        Command::Fail => Line::of(&["fail", "ada", "--reason", OPERATORS_REASON]),
        Command::Interject { blank, ttl } => {
            let said = model.next_tag("message");
            let mut line = Line::of(&["enqueue", "ada", if *blank { " " } else { &said }]);
            line.words.extend(blank.then(|| "--allow-empty".to_owned()));
            line.flag("--correlation-id", said.clone());
            line.flag("--priority", "interject");
            line.flag_if("--ttl", ttl.map(seconds));
            line.outside = true;
            line
        }
        Command::SafePoint { peek, .. } => {
            let mut line = Line::of(&["safe-point"]);
            line.words.extend(peek.then(|| "--peek".to_owned()));
            line
        }
        Command::Checkpoint => {
            let mut line = Line::of(&["checkpoint", "-"]);
            line.input = Some(model.next_tag("checkpoint"));
            line
        }
        Command::Yield { checkpoint, resume_after } => {
            let mut line = Line::of(&["yield"]);
            line.flag_if("--for", resume_after.map(seconds));
            if *checkpoint {
                line.flag("--checkpoint", "-");
                line.input = Some(model.next_tag("checkpoint"));
            }
            line
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
    let said = model.next_tag("message");
    let mut line = Line::of(&["enqueue", "ada", if asked.blank { " " } else { &said }]);
    line.words.extend(asked.blank.then(|| "--allow-empty".to_owned()));
    line.flag("--correlation-id", said);
    line.flag("--priority", asked.priority);
    if asked.kind != "internal_followup" {
        line.flag("--kind", asked.kind);
    }
    line.flag_if("--origin", asked.source);
    line.flag_if("--resource", asked.resource.map(resource_name));
    if let Some(wait) = asked.wait.and_then(|wait| model.wait(wait)) {
        line.words.push("--wait".to_owned());
        line.id("wait", &wait.tag);
    }
    if let Some(item) = asked.work.and_then(|item| model.work(item)) {
        line.words.push("--work-item".to_owned());
        line.id("work", &item.tag);
    }
    line.flag_if("--dedupe-key", asked.key.map(|key| format!("key:{key}")));
    line.flag_if("--ttl", asked.ttl.map(seconds));
    match asked.delay {
        Some(delay) if delay < 0 => {
            line.flag("--at", moment(now + delay * 1000));
            line.words.push("--past-ok".to_owned());
        }
        delay => line.flag_if("--in", delay.map(seconds)),
    }
    line
}

fn task(model: &Model, notify: bool, shell: &str) -> Line {
    let said = model.next_tag("task");
    let mut line = Line::of(&["task", "start", "-a", "ada", "--summary", &said]);
    line.words.extend((!notify).then(|| "--no-notify".to_owned()));
    line.words.extend(["--", "sh", "-c", shell].map(str::to_owned));
    line.made("task", said)
}

/// The file, in the home directory, that has a secret.
fn at_home(secret: &Tag) -> String {
    format!("$HOME/{}", secret_file(secret))
}

pub fn secret_file(secret: &Tag) -> String {
    secret.replace(' ', "-")
}

/// The named pipe, in the home directory, through which a task is told to end.
pub fn pipe(task: &Tag) -> String {
    task.replace(' ', "-")
}

/// The same as an action, for those commands that there is one for.
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
        Command::Wait { trigger: Some(_), .. } => return None,
        Command::Wait { kind, owner, resource, source, trigger: None, task, within, recheck, expires } => {
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
        Command::Wake { .. }
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
