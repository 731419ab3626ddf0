//! The contract once more, as a small machine of its own: what an agent is, and what each command
//! and each step makes of it. Written from the contract's tables and from nothing else, in their
//! order and their words, so that both can be laid side by side. Comments name their sections.
//!
//! Records have no ids here. They are known by what they say ("work 3", "wait 5"), and come in the
//! order in which they were made: by the clock, and within one moment one after the other.

use std::collections::BTreeMap;

use chrono::{Days, TimeZone, Timelike};
use chrono_tz::America::New_York;

use super::hooks::{Does, Entered, Told};
use super::limits::{Shortage, Spending};
use super::preemption::{Request, Section};

/// Milliseconds since 1970.
pub type Millis = i64;
/// When something was made, and as which of that moment.
pub type Born = (Millis, u32);
/// What a record says, by which it is known.
pub type Tag = String;
/// One of the contract's own words.
pub type Word = &'static str;

/// The settings that the agent under test has.
pub const MAX_ATTEMPTS: u32 = 3;
pub const BACKOFF: Millis = 1000;
pub const DEDUPE_WINDOW: Millis = 3_600_000;
pub const RESOURCES_TIMEOUT: Millis = 300_000;
pub const SUSPEND_TIMEOUT: Millis = 3_600_000;
pub const RECOVERY_TIMEOUT: Millis = 120_000;

/// What the operator says who fails something.
pub const OPERATORS_REASON: &str = "enough of it";
pub const FORCED: &str = "forced_preemption";

pub const REFUSED: i32 = 4;
pub const NOT_FOUND: i32 = 3;

/// What differs from case to case in an agent's settings.
#[derive(Debug, Clone, Copy, Default)]
pub struct Settings {
    pub stop_when_exhausted: bool,
    /// Whether every hook is there.
    pub hooks: bool,
    pub turns_per_hour: Option<u64>,
    pub tokens_per_day: Option<u64>,
}

/// What somebody can ask for. Records are meant by their number among all of their kind that there
/// ever were; spans are in seconds.
#[derive(Debug, Clone)]
pub enum Command {
    Enqueue {
        kind: Word,
        priority: Word,
        blank: bool,
        resource: Option<usize>,
        work: Option<usize>,
        key: Option<usize>,
        ttl: Option<i64>,
        delay: Option<i64>,
    },
    Wake {
        blank: bool,
        resource: Option<usize>,
        wait: Option<usize>,
    },
    WorkAdd {
        pick: bool,
        needs_input: bool,
        blocked: bool,
        recheck: Option<i64>,
    },
    WorkUpdate {
        item: usize,
        plan_status: Word,
    },
    WorkPick {
        item: usize,
        clear: bool,
    },
    WorkBlock {
        item: usize,
        recheck: Option<i64>,
    },
    WorkUnblock(usize),
    WorkComplete(usize),
    Wait {
        kind: Word,
        owner: Owner,
        resource: Option<usize>,
        task: usize,
        within: i64,
        recheck: Option<i64>,
        expires: Option<i64>,
    },
    WaitCancel(usize),
    TimerAdd {
        schedule: Schedule,
        blank: bool,
        catch_up: Word,
    },
    TimerCancel(usize),
    /// A background command that ends before anything else happens.
    TaskRun {
        well: bool,
        notify: bool,
    },
    /// One that goes on until it is told to end.
    TaskStart {
        notify: bool,
    },
    TaskEnd {
        task: usize,
        well: bool,
    },
    TaskStop(usize),
    Drop(usize),
    Requeue(usize),
    Start,
    Stop {
        requeue: bool,
    },
    Recover,
    Preempt {
        grace: i64,
        resume_after: Option<i64>,
    },
    Resume,
    Fail,
    /// What the operator says while a turn is at work, for it to hear.
    Interject {
        blank: bool,
        ttl: Option<i64>,
    },
    SafePoint {
        late: bool,
    },
    Yield {
        checkpoint: bool,
    },
    Begin {
        deadline: i64,
        late: bool,
    },
    End,
    /// A command in a section of its own, which does all this and exits with [`SECTION_STATUS`].
    Within {
        deadline: i64,
        commands: Vec<Command>,
    },
}

/// The exit status of what runs in a section of its own.
pub const SECTION_STATUS: i32 = 5;

#[derive(Debug, Clone, Copy)]
pub enum Owner {
    Nearest,
    Agent,
    Item(usize),
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Schedule {
    /// Once, this far from now; backwards is a moment that is past.
    Once(i64),
    Every(i64),
    /// Every day at this hour in New York, whatever clocks do there.
    Daily(u32),
}

/// How a turn ends.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum End {
    Well,
    Badly,
    /// Exit status 75.
    NotNow,
    /// Somebody kills its tick, and it dies with it.
    TickKilled,
    /// Somebody ends its tick, which ends it and says so.
    TickEnded,
    /// `stop` ends it: by itself, or killed.
    Stopped {
        killed: bool,
        requeue: bool,
    },
    /// `fail` ends it.
    Failed,
    /// `preempt` without a grace ends it.
    Preempted {
        resume_after: Option<i64>,
    },
    /// It goes on until it is ended, because a request that it has got is overdue.
    Forced,
}

/// Who said a system tick, and whether it came of a hint (semantics §7).
#[derive(Debug, Clone, Copy, PartialEq)]
enum Source {
    Somebody,
    Hint,
    Scheduler,
}

#[derive(Debug, Clone)]
pub struct Message {
    pub born: Born,
    pub kind: Word,
    /// From 0, the most urgent.
    pub priority: u8,
    /// What it is known by: its correlation id, else its text.
    pub said: Tag,
    pub attempt: u32,
    contentful: bool,
    source: Source,
    resource: Option<String>,
    wait: Option<Tag>,
    work: Option<Tag>,
    task: Option<Tag>,
    expires: Option<Millis>,
    /// What its first attempt found (execution §7).
    pub(super) continuation: Option<Continuation>,
    /// What was said to its runs while they were at it.
    pub(super) interjected: Vec<Tag>,
}

#[derive(Debug, Clone)]
struct Hint {
    born: Born,
    contentful: bool,
    resource: Option<String>,
    wait: Option<Tag>,
    text: Tag,
}

#[derive(Debug, Clone)]
pub struct Work {
    pub born: Born,
    pub tag: Tag,
    pub revision: u64,
    pub done: bool,
    plan_status: Word,
    blocked: bool,
    recheck: Option<Millis>,
    /// Its tick for this revision was emitted, and no hint has come since.
    ticked: bool,
}

#[derive(Debug, Clone)]
pub struct Wait {
    pub born: Born,
    pub tag: Tag,
    pub kind: Word,
    pub status: Word,
    pub item: Option<Tag>,
    resource: Option<String>,
    task: Option<Tag>,
    wake: Option<Millis>,
    woken: bool,
    recheck: Option<Millis>,
    expires: Option<Millis>,
}

#[derive(Debug, Clone)]
pub struct Timer {
    pub born: Born,
    pub tag: Tag,
    pub next: Millis,
    pub fired: u64,
    pub missed: u64,
    pub status: Word,
    schedule: Schedule,
    catch_up: Word,
    blank: bool,
    message: Option<Message>,
}

#[derive(Debug, Clone)]
pub struct Task {
    pub born: Born,
    pub tag: Tag,
    pub status: Word,
    notify: bool,
    work: Option<Tag>,
}

#[derive(Debug, Clone)]
pub struct Run {
    pub claimed_at: Millis,
    pub(super) message: Born,
    pub(super) continuation: Continuation,
    pub(super) deferrals: u32,
    /// The hook of the state that was entered for this turn.
    pub(super) entered: Option<Entered>,
    pub(super) request: Option<Request>,
    pub(super) sections: Vec<Section>,
    pub(super) yielded: bool,
    pub checkpoint: Option<Tag>,
    work: Option<Tag>,
}

/// A run that was suspended, or lacks a resource (execution §6, §8).
#[derive(Debug, Clone)]
pub(super) struct Held {
    pub(super) message: Born,
    pub(super) missing: String,
    /// Of the agent's own limits, the one that is reached.
    pub(super) limit: Option<Word>,
    /// When it may go on, or whether a limit is back; where that is known.
    pub(super) not_before: Option<Millis>,
    pub(super) continuation: Continuation,
    pub(super) deferrals: u32,
    pub(super) checkpoint: Option<Tag>,
    pub(super) entered: Option<Entered>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Continuation {
    pub class: Word,
    pub reentry: bool,
    pub matched: bool,
    resolves: Option<Tag>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Closure {
    pub outcome: Word,
    pub reason: Option<Word>,
    wait: Option<Tag>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    pub decision: Word,
    pub reason: String,
    pub continuation: Option<Continuation>,
    about: About,
}

#[derive(Debug, Clone, PartialEq)]
enum About {
    Nothing,
    Message(Born),
    /// A claim for which an own limit leaves no room, and when it is back.
    Lack(Born, Continuation, Shortage),
    Hint,
    Work(Tag),
    /// It falls asleep, if it is awake; for a task or for something else.
    Rest {
        task: bool,
    },
}

#[derive(Debug, Clone)]
pub struct Model {
    pub status: Word,
    pub execution: Word,
    /// When that was entered.
    pub(super) since: Millis,
    pub settings: Settings,
    pub run: Option<Run>,
    pub queue: Vec<Message>,
    pub works: Vec<Work>,
    pub focus: Option<Tag>,
    pub waits: Vec<Wait>,
    pub timers: Vec<Timer>,
    pub tasks: Vec<Task>,
    /// Every message that somebody enqueued, by name.
    pub enqueued: Vec<Tag>,
    /// Every message that has ended, and how.
    pub ended: Vec<(Message, Word)>,
    pub dead: u64,
    pub last_terminal: Option<Word>,
    hints: Vec<Hint>,
    pending_hint: Option<Hint>,
    pub(super) held: Option<Held>,
    /// When the backoff is over, and which message has to wait for that.
    pub(super) retry: Option<(Millis, Born)>,
    /// The message of the last turn.
    pub(super) last_message: Option<Born>,
    /// It is not a turn that has failed last.
    pub(super) failed_to_recover: bool,
    pub(super) spending: Spending,
    /// What hooks do, and what they were told since somebody last looked.
    pub(super) doing: BTreeMap<Word, Does>,
    pub told: Vec<Told>,
    /// A hook has killed whoever ran it.
    pub killed: bool,
    /// What safe points have handed over since somebody last looked.
    pub handed: Vec<Tag>,
    keys: Vec<(usize, Millis)>,
    names: u32,
    /// The moment of the transaction that is made, and how many things it has made.
    pub(super) clock: Born,
}

pub(super) fn ms(seconds: i64) -> Millis {
    seconds * 1000
}

impl Model {
    pub fn new(settings: Settings) -> Model {
        Model {
            status: "booting",
            execution: "initializing",
            since: 0,
            settings,
            run: None,
            queue: Vec::new(),
            works: Vec::new(),
            focus: None,
            waits: Vec::new(),
            timers: Vec::new(),
            tasks: Vec::new(),
            enqueued: Vec::new(),
            ended: Vec::new(),
            dead: 0,
            last_terminal: None,
            hints: Vec::new(),
            pending_hint: None,
            held: None,
            retry: None,
            last_message: None,
            failed_to_recover: false,
            spending: Spending::default(),
            doing: BTreeMap::new(),
            told: Vec::new(),
            killed: false,
            handed: Vec::new(),
            keys: Vec::new(),
            names: 0,
            clock: (0, 0),
        }
    }

    /// The name of the record that the next command makes.
    pub fn next_tag(&self, kind: &str) -> Tag {
        format!("{kind} {}", self.names + 1)
    }

    pub(super) fn name(&mut self, kind: &str) -> Tag {
        self.names += 1;
        format!("{kind} {}", self.names)
    }

    fn born(&mut self) -> Born {
        self.clock.1 += 1;
        self.clock
    }

    // Which records a number means

    pub fn work(&self, number: usize) -> Option<&Work> {
        self.works.get(number % self.works.len().max(1))
    }

    pub fn wait(&self, number: usize) -> Option<&Wait> {
        self.waits.get(number % self.waits.len().max(1))
    }

    pub fn timer(&self, number: usize) -> Option<&Timer> {
        self.timers.get(number % self.timers.len().max(1))
    }

    pub fn task(&self, number: usize) -> Option<&Task> {
        self.tasks.get(number % self.tasks.len().max(1))
    }

    pub fn message(&self, number: usize) -> Option<&Tag> {
        self.enqueued.get(number % self.enqueued.len().max(1))
    }

    /// Whether a command means something that exists. One that does not is not run.
    pub fn has_subject(&self, command: &Command) -> bool {
        match command {
            Command::Enqueue { work, .. } => work.is_none() || !self.works.is_empty(),
            Command::Wake { wait, .. } => wait.is_none() || !self.waits.is_empty(),
            Command::WorkUpdate { .. }
            | Command::WorkPick { .. }
            | Command::WorkBlock { .. }
            | Command::WorkUnblock(_)
            | Command::WorkComplete(_) => !self.works.is_empty(),
            Command::Wait { owner: Owner::Item(_), .. } if self.works.is_empty() => false,
            Command::Wait { kind, .. } => *kind != "task" || !self.tasks.is_empty(),
            Command::WaitCancel(_) => !self.waits.is_empty(),
            // One that says nothing can't be named.
            Command::TimerCancel(timer) => self.timer(*timer).is_some_and(|timer| !timer.said().is_empty()),
            Command::TaskEnd { task, .. } => self.task(*task).is_some_and(|task| task.status == "running"),
            Command::TaskStop(_) => !self.tasks.is_empty(),
            Command::Drop(_) | Command::Requeue(_) => !self.enqueued.is_empty(),
            Command::WorkAdd { .. }
            | Command::TimerAdd { .. }
            | Command::TaskRun { .. }
            | Command::TaskStart { .. }
            | Command::Start
            | Command::Stop { .. }
            | Command::Recover
            | Command::Resume
            | Command::Fail
            | Command::Interject { .. }
            | Command::SafePoint { .. }
            | Command::Yield { .. }
            | Command::Begin { .. }
            | Command::End
            | Command::Within { .. } => true,
            // A turn is not to be ended while it is still at work.
            Command::Preempt { grace, .. } => *grace > 0 || self.is_protected(),
        }
    }

    // What is derived

    fn active<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Wait> {
        self.waits.iter().filter(move |wait| wait.status == "active" && wait.kind == kind)
    }

    fn own_wait(&self, kind: &str) -> Option<Tag> {
        let own = self.active(kind).filter(|wait| wait.item.is_none()).min_by_key(|wait| wait.born);
        own.map(|wait| wait.tag.clone())
    }

    fn wait_on(&self, item: &Work, kind: &str) -> Option<Tag> {
        let on = self.active(kind).find(|wait| wait.item.as_ref() == Some(&item.tag));
        on.map(|wait| wait.tag.clone())
    }

    /// Open items, oldest first.
    pub fn open(&self) -> Vec<&Work> {
        let mut open: Vec<&Work> = self.works.iter().filter(|item| !item.done).collect();
        open.sort_by_key(|item| item.born);
        open
    }

    fn current(&self) -> Option<&Work> {
        self.works.iter().find(|item| Some(&item.tag) == self.focus.as_ref())
    }

    /// Semantics §4.
    pub fn scheduling(&self, item: &Work) -> Word {
        let waits = |kind| self.wait_on(item, kind).is_some();
        match () {
            () if item.done => "completed",
            () if waits("task") => "waiting_task",
            () if waits("operator") || item.plan_status == "needs_input" => "waiting_operator",
            () if waits("timer") => "waiting_timer",
            () if waits("external") => "waiting_external",
            () if waits("system") => "waiting_system",
            () if item.blocked => "blocked",
            () => "runnable",
        }
    }

    fn is_runnable(&self, item: &Work) -> bool {
        self.scheduling(item) == "runnable"
    }

    /// Semantics §3.
    pub fn posture(&self, now: Millis) -> Word {
        let waits = |kind| self.active(kind).next().is_some();
        let open = self.open();
        match () {
            () if self.status == "stopped" => "archived",
            () if self.run.is_some() => "active_turn",
            () if self.head(now).is_some() => "has_queued_input",
            () if open.iter().any(|item| self.is_runnable(item)) => "has_runnable_work",
            () if waits("task") => "waiting_for_task",
            () if waits("external") => "waiting_for_external",
            () if waits("operator") || open.iter().any(|item| item.plan_status == "needs_input") => {
                "waiting_for_operator"
            }
            () if open.iter().any(|item| item.blocked) => "blocked",
            () if waits("timer") || waits("system") || self.held.is_some() => "blocked",
            () => "idle",
        }
    }

    /// Semantics §6, for an agent whose turn, if it has one, nobody runs any more.
    pub fn closure(&self) -> Closure {
        let waiting = |reason, wait| Closure { outcome: "waiting", reason: Some(reason), wait };
        let plain = |outcome| Closure { outcome, reason: None, wait: None };
        let current = self.current();
        let state = current.map(|item| self.scheduling(item));
        let on_current = |kind| current.and_then(|item| self.wait_on(item, kind));
        if self.last_terminal.is_some_and(|terminal| terminal != "completed") {
            return plain("failed");
        }
        if self.run.is_some() {
            return waiting("awaiting_external_change", None);
        }
        if self.open().iter().any(|item| self.is_runnable(item)) {
            return plain("continuable");
        }
        if let Some(wait) = self.own_wait("operator") {
            return waiting("awaiting_operator_input", Some(wait));
        }
        if state == Some("waiting_operator") {
            return waiting("awaiting_operator_input", on_current("operator"));
        }
        for (kind, reason) in [
            ("external", "awaiting_external_change"),
            ("timer", "awaiting_timer"),
            ("task", "awaiting_task_result"),
        ] {
            if let Some(wait) = self.own_wait(kind) {
                return waiting(reason, Some(wait));
            }
        }
        match state {
            Some("waiting_task") => waiting("awaiting_task_result", on_current("task")),
            Some("waiting_external") => waiting("awaiting_external_change", on_current("external")),
            Some("waiting_timer") => waiting("awaiting_timer", on_current("timer")),
            Some("waiting_system") => Closure { outcome: "waiting", reason: None, wait: None },
            _ => plain("completed"),
        }
    }

    /// Semantics §7. `None`: the message is no trigger.
    fn continuation(&self, message: &Message) -> Option<Continuation> {
        let trigger = match message.kind {
            "operator_prompt" => "operator_input",
            "channel_event" | "webhook_event" | "callback_event" => "external_event",
            "timer_tick" => "timer_fire",
            "task_status" | "control" => return None,
            same => same,
        };
        let verdict =
            |class, reentry, matched, resolves| Some(Continuation { class, reentry, matched, resolves });
        let local = || verdict("local_continuation", true, false, None);
        let liveness = |matched| verdict("liveness_only", false, matched, None);
        let expected = |wait| verdict("resume_expected_wait", true, true, wait);
        if message.source == Source::Scheduler {
            return local();
        }
        let prior = self.closure();
        if prior.outcome != "waiting" {
            return match trigger {
                "operator_input" | "timer_fire" | "internal_followup" | "task_result" => local(),
                _ if message.contentful => local(),
                _ => liveness(false),
            };
        }
        let named = |kind| {
            let wait = self.active(kind).find(|wait| Some(&wait.tag) == message.wait.as_ref());
            wait.map(|wait| wait.tag.clone())
        };
        let of_resource = || {
            let tied = |wait: &&Wait| wait.resource.is_some() && wait.resource == message.resource;
            self.active("external").filter(tied).min_by_key(|wait| wait.born).map(|wait| wait.tag.clone())
        };
        let tied = named("external").or_else(of_resource);
        let waits_for = |reason| prior.reason == Some(reason);
        let outside = (trigger == "external_event" || message.source == Source::Hint)
            && waits_for("awaiting_external_change");
        let waited_for = || {
            let wait = self.waits.iter().find(|wait| Some(&wait.tag) == prior.wait.as_ref());
            wait.and_then(|wait| wait.task.clone())
        };
        match trigger {
            "operator_input" if waits_for("awaiting_operator_input") => expected(prior.wait),
            "task_result" if waits_for("awaiting_task_result") && waited_for() == message.task => {
                expected(prior.wait)
            }
            "timer_fire" if waits_for("awaiting_timer") => expected(named("timer").or(prior.wait)),
            _ if outside && message.contentful && (message.resource.is_none() || tied.is_some()) => {
                expected(tied.or(prior.wait))
            }
            _ if outside && message.source == Source::Hint && !message.contentful && tied.is_some() => {
                expected(tied)
            }
            _ if outside && !message.contentful && message.resource.is_none() && message.wait.is_none() => {
                liveness(true)
            }
            "operator_input" => verdict("resume_override", true, false, None),
            "task_result" if !waits_for("awaiting_task_result") => {
                verdict("resume_override", true, false, None)
            }
            _ => liveness(false),
        }
    }

    // The queue (semantics §9)

    pub(super) fn claimed(&self) -> Option<Born> {
        let running = self.run.as_ref().map(|run| run.message);
        running.or(self.held.as_ref().map(|held| held.message))
    }

    pub fn is_claimed(&self, message: &Message) -> bool {
        self.claimed() == Some(message.born)
    }

    /// The queue in the order in which it is served.
    pub fn in_order(&self) -> Vec<&Message> {
        let mut queue: Vec<&Message> = self.queue.iter().collect();
        queue.sort_by_key(|message| (message.priority, message.born));
        queue
    }

    pub(super) fn is_stale(message: &Message, now: Millis) -> bool {
        message.attempt == 1 && message.expires.is_some_and(|limit| now > limit)
    }

    /// The message that is next: none that is claimed, none whose time is over.
    fn head(&self, now: Millis) -> Option<&Message> {
        let free = |message: &&Message| !self.is_claimed(message) && !Model::is_stale(message, now);
        self.in_order().into_iter().find(free)
    }

    fn take(&mut self, born: Born) -> Option<Message> {
        let at = self.queue.iter().position(|message| message.born == born)?;
        Some(self.queue.remove(at))
    }

    pub(super) fn end_message(&mut self, born: Born, status: Word) {
        if let Some(message) = self.take(born) {
            self.ended.push((message, status));
        }
    }

    /// Whether this message is a dead letter.
    fn dead_letter(&self, said: &Tag) -> Option<usize> {
        self.ended.iter().position(|(message, status)| message.said == *said && *status == "dead")
    }

    // What is due (semantics §5, §11; execution §4, §7)

    /// When a step next has something to do by itself.
    pub fn next_due(&self) -> Option<Millis> {
        if matches!(self.status, "stopped" | "booting") {
            return None;
        }
        let waits = self.waits.iter().filter(|wait| wait.status == "active").flat_map(|wait| {
            [wait.wake.filter(|_| !wait.woken), wait.recheck, wait.expires.map(|limit| limit + 1)]
                .into_iter()
                .flatten()
        });
        let rechecks = self.works.iter().filter(|item| !item.done).filter_map(|item| item.recheck);
        let timers = self.timers.iter().filter(|timer| timer.status == "active").map(|timer| timer.next);
        let retry = self.retry.map(|(until, _)| until).filter(|_| self.execution == "failed");
        let held = self.held.iter().filter_map(|held| held.not_before);
        let over = self.deadline().map(|(limit, _)| limit + 1);
        waits.chain(rechecks).chain(timers).chain(retry).chain(held).chain(over).min()
    }

    /// When the state that it is in has lasted too long, and what that is called (execution §4).
    /// What goes on by itself at a known time is not late.
    pub(super) fn deadline(&self) -> Option<(Millis, Word)> {
        let held = self.held.as_ref();
        match self.execution {
            "recovering" => Some((self.since + RECOVERY_TIMEOUT, "recovery_timeout")),
            "waiting_resources" if held?.limit.is_none() => {
                Some((self.since + RESOURCES_TIMEOUT, "resource_timeout"))
            }
            "suspended" if held?.not_before.is_none() => {
                Some((self.since + SUSPEND_TIMEOUT, "suspend_timeout"))
            }
            _ => None,
        }
    }

    /// Takes in what is due before anything is decided (semantics §8, step 3).
    fn take_in(&mut self, now: Millis) {
        match self.status {
            "booting" => return,
            "stopped" => return self.ignore_hints(),
            _ => {}
        }
        let head = self.head(now).map(|message| (message.priority, message.born));
        let stale: Vec<Born> = self
            .queue
            .iter()
            .filter(|message| Model::is_stale(message, now) && !self.is_claimed(message))
            .filter(|message| head.is_none_or(|head| (message.priority, message.born) < head))
            .map(|message| message.born)
            .collect();
        let none_was_left = head.is_none() && !stale.is_empty();
        for born in stale {
            self.end_message(born, "dropped");
        }
        self.end_overdue(now);
        self.fire_timers(now);
        self.meet_deadlines(now);
        self.remind(now);
        self.take_in_hints();
        // What has come meanwhile, from a timer, may be too late as well.
        if none_was_left {
            self.take_in(now);
        }
    }

    fn end_overdue(&mut self, now: Millis) {
        let Some((_, why)) = self.deadline().filter(|(limit, _)| now > *limit) else { return };
        let Some(held) = self.held.take() else { return self.fail_recovery(now, why) };
        self.enter("failed", Some(why));
        self.status = "awake_idle";
        self.failed_to_recover = false;
        self.retry = Some((now + BACKOFF, held.message));
        for message in self.queue.iter_mut().filter(|message| message.born == held.message) {
            message.continuation = Some(held.continuation.clone());
        }
    }

    fn fire_timers(&mut self, now: Millis) {
        let mut due: Vec<usize> = (0..self.timers.len())
            .filter(|at| self.timers[*at].status == "active" && self.timers[*at].next <= now)
            .collect();
        due.sort_by_key(|at| self.timers[*at].born);
        for at in due {
            let timer = self.timers[at].clone();
            let (mut fires, mut next) = (0u64, Some(timer.next));
            while let Some(fire) = next.filter(|fire| *fire <= now) {
                fires += 1;
                next = timer.schedule.after(timer.born.0, fire);
            }
            let wanted = match timer.catch_up {
                "all" => fires.min(100),
                "skip" if fires > 1 => 0,
                _ => 1,
            };
            for _ in 0..wanted {
                let message = timer.message.clone().unwrap_or_else(|| {
                    self.own_message("timer_tick", 2, timer.said().to_owned(), Source::Somebody)
                });
                self.queue.push(message);
            }
            let timer = &mut self.timers[at];
            timer.fired += wanted;
            timer.missed += fires - wanted;
            match next {
                Some(next) => timer.next = next,
                None => timer.status = "done",
            }
        }
    }

    fn meet_deadlines(&mut self, now: Millis) {
        let due = |at: Option<Millis>| at.is_some_and(|at| at <= now);
        let mut active: Vec<Wait> =
            self.waits.iter().filter(|wait| wait.status == "active").cloned().collect();
        active.sort_by_key(|wait| wait.born);
        for wait in active {
            if wait.expires.is_some_and(|limit| now > limit) {
                self.say_of_wait(&wait, "system_tick", &format!("expired: {}", wait.tag));
                self.end_wait(&wait.tag, "expired");
                continue;
            }
            if due(wait.wake) && !wait.woken {
                self.say_of_wait(&wait, "timer_tick", &wait.tag);
                self.wait_mut(&wait.tag).woken = true;
            }
            if due(wait.recheck) {
                self.say_of_wait(&wait, "system_tick", &format!("recheck: {}", wait.tag));
                self.wait_mut(&wait.tag).recheck = None;
            }
        }
    }

    fn say_of_wait(&mut self, wait: &Wait, kind: Word, said: &str) {
        let source = if kind == "system_tick" { Source::Scheduler } else { Source::Somebody };
        let mut message = self.own_message(kind, 2, said.to_owned(), source);
        message.wait = Some(wait.tag.clone());
        message.work = wait.item.clone();
        message.resource = wait.resource.clone();
        self.queue.push(message);
    }

    fn remind(&mut self, now: Millis) {
        let is_due =
            |item: &&mut Work| !item.done && item.blocked && item.recheck.is_some_and(|at| at <= now);
        let due = self.works.iter_mut().filter(is_due).map(|item| item.recheck = None).count();
        if due > 0 {
            let said = "recheck of blocked work:".to_owned();
            let message = self.own_message("system_tick", 3, said, Source::Scheduler);
            self.queue.push(message);
        }
    }

    fn own_message(&mut self, kind: Word, priority: u8, said: Tag, source: Source) -> Message {
        Message {
            born: self.born(),
            kind,
            priority,
            contentful: !said.is_empty(),
            said,
            attempt: 1,
            source,
            resource: None,
            wait: None,
            work: None,
            task: None,
            expires: None,
            continuation: None,
            interjected: Vec::new(),
        }
    }

    // Wake hints (semantics §10)

    fn ignore_hints(&mut self) {
        self.hints.clear();
        self.pending_hint = None;
    }

    fn take_in_hints(&mut self) {
        self.hints.sort_by_key(|hint| hint.born);
        if self.pending_hint.is_none() && !self.hints.is_empty() {
            self.pending_hint = Some(self.hints.remove(0));
            self.works.iter_mut().for_each(|item| item.ticked = false);
        }
        let Some(pending) = &mut self.pending_hint else { return };
        let scope = |hint: &Hint| (hint.wait.clone(), hint.resource.clone().filter(|_| hint.wait.is_none()));
        for hint in std::mem::take(&mut self.hints) {
            if scope(&hint) != scope(pending) {
                self.hints.push(hint);
            } else if hint.contentful {
                pending.text = hint.text;
                pending.contentful = true;
            }
        }
    }

    // The step (semantics §8)

    /// What the next step would decide, and nothing changes.
    pub fn foresee(&self, now: Millis) -> Decision {
        self.clone().before_acting(now)
    }

    fn before_acting(&mut self, now: Millis) -> Decision {
        self.clock = (now, 0);
        self.interrupt(now);
        self.take_in(now);
        self.decide(now)
    }

    fn decide(&self, now: Millis) -> Decision {
        let say = |decision, reason: &str, about| Decision {
            decision,
            reason: reason.to_owned(),
            continuation: None,
            about,
        };
        let rest =
            |decision, reason| say(decision, reason, About::Rest { task: decision == "wait_for_task" });
        match self.status {
            "stopped" => return say("stop", "stopped", About::Nothing),
            "booting" => return say("noop", "not_started", About::Nothing),
            _ => {}
        }
        let head = self.head(now);
        if matches!(self.execution, "failed" | "recovering") {
            let begun = self.execution == "recovering";
            return match self.retry {
                None => say("start_recovery", "after_stop", About::Nothing),
                Some((until, failed)) if begun || now >= until || self.is_interjected(head, failed) => {
                    say("start_recovery", "retry", About::Nothing)
                }
                Some(_) => say("wait_for_timer", "recovery_backoff", About::Nothing),
            };
        }
        let shortage = self.shortage(now);
        let lack = |message, continuation: &Continuation, shortage: Shortage| {
            let reason = shortage.limit;
            say("wait_for_resources", reason, About::Lack(message, continuation.clone(), shortage))
        };
        if let Some(held) = &self.held {
            // One that lacks a limit goes on with whatever step finds room.
            if held.limit.is_none() && held.not_before.is_none_or(|at| now < at) {
                return say("wait_for_resources", &held.missing, About::Nothing);
            }
            if let Some(shortage) = shortage {
                return lack(held.message, &held.continuation, shortage);
            }
            let reason =
                if self.execution == "suspended" { "resume_suspended" } else { "resources_available" };
            return Decision {
                continuation: Some(held.continuation.clone()),
                ..say("start_model_turn", reason, About::Message(held.message))
            };
        }
        if let Some(message) = head {
            let found = message.continuation.clone().or_else(|| self.continuation(message));
            let runs = found.as_ref().is_some_and(|found| found.reentry);
            if let (true, Some(found), Some(shortage)) = (runs, &found, shortage) {
                return lack(message.born, found, shortage);
            }
            let decision = if runs { "start_model_turn" } else { "reduce_message_only" };
            return Decision {
                continuation: found,
                ..say(decision, message.kind, About::Message(message.born))
            };
        }
        if self.pending_hint.is_some() {
            return say("emit_system_tick", "wake_hint", About::Hint);
        }
        let current = self.current();
        let queued: Vec<&Work> =
            self.open().into_iter().filter(|item| Some(&item.tag) != self.focus.as_ref()).collect();
        let about = |item: &Work| About::Work(item.tag.clone());
        if let Some(item) = current.filter(|item| self.is_runnable(item) && !item.ticked) {
            return say("emit_system_tick", "continue_active", about(item));
        }
        if let Some(item) = queued.iter().find(|item| self.is_runnable(item) && !item.ticked) {
            return say("emit_system_tick", "queued_available", about(item));
        }
        if current.is_some_and(|item| self.is_runnable(item)) {
            return say("noop", "duplicate_continue_active", About::Nothing);
        }
        if queued.iter().any(|item| self.is_runnable(item)) {
            return say("noop", "duplicate_queued_available", About::Nothing);
        }
        if self.own_wait("operator").is_some() {
            return rest("wait_for_operator", "agent_operator_wait");
        }
        if self.own_wait("external").is_some() {
            return rest("wait_for_external_change", "agent_external_wait");
        }
        if self.timers.iter().any(|timer| timer.status == "active") || self.own_wait("timer").is_some() {
            return rest("wait_for_timer", "active_timers");
        }
        if self.own_wait("task").is_some() {
            return rest("wait_for_task", "agent_task_wait");
        }
        match current.map(|item| (self.scheduling(item), item)) {
            Some(("waiting_operator", _)) => return rest("wait_for_operator", "work_item_needs_input"),
            Some(("waiting_task", _)) => return rest("wait_for_task", "work_item_task_wait"),
            Some(("waiting_external", _)) => {
                return rest("wait_for_external_change", "work_item_external_wait");
            }
            Some(("waiting_timer", _)) => return rest("wait_for_timer", "work_item_timer_wait"),
            Some(("waiting_system", item)) if !item.ticked => {
                return say("emit_system_tick", "work_item_system_wait", about(item));
            }
            _ => {}
        }
        match self.status {
            "asleep" | "awaiting_task" => say("stay_idle", "already_asleep", About::Nothing),
            _ => rest("sleep", "no_pending_scheduler_facts"),
        }
    }

    /// One step, up to where a turn runs.
    pub fn step(&mut self, now: Millis) -> Decision {
        let decision = self.before_acting(now);
        match (decision.decision, &decision.about) {
            ("start_recovery", _) => self.recover(now),
            (_, About::Lack(born, continuation, shortage)) => self.lack(*born, continuation, shortage),
            ("start_model_turn", About::Message(born)) => self.claim(now, *born, &decision),
            ("reduce_message_only", About::Message(born)) => {
                let message = self.queue.iter().find(|message| message.born == *born).cloned();
                self.end_if_over(message.and_then(|message| message.wait));
                self.end_message(*born, "processed");
                self.wake_up();
            }
            ("emit_system_tick", About::Hint) => {
                if let Some(hint) = self.pending_hint.take() {
                    let said = hint.text;
                    let mut tick = self.own_message("system_tick", 2, said, Source::Hint);
                    tick.contentful = hint.contentful;
                    tick.resource = hint.resource;
                    tick.wait = hint.wait;
                    self.queue.push(tick);
                }
                self.wake_up();
            }
            ("emit_system_tick", About::Work(item)) => {
                let mut tick = self.own_message("system_tick", 2, item.clone(), Source::Scheduler);
                tick.work = Some(item.clone());
                self.queue.push(tick);
                self.works.iter_mut().filter(|work| work.tag == *item).for_each(|work| work.ticked = true);
                self.wake_up();
            }
            (_, About::Rest { task }) if self.status == "awake_idle" => {
                let for_task = *task && self.execution == "waiting";
                self.status = if for_task { "awaiting_task" } else { "asleep" };
            }
            _ => {}
        }
        decision
    }

    pub(super) fn wake_up(&mut self) {
        if matches!(self.status, "asleep" | "awaiting_task") {
            self.status = "awake_idle";
        }
    }

    /// Only what is new ends a backoff, and after a recovery that failed only what came since.
    fn is_interjected(&self, head: Option<&Message>, failed: Born) -> bool {
        let is_new = |message: &&Message| message.priority == 0 && message.born != failed;
        let heads =
            head.filter(is_new).is_some_and(|message| message.attempt == 1 && !self.failed_to_recover);
        let last = self.in_order().into_iter().rev().find(|message| message.priority == 0);
        heads || last.filter(is_new).is_some_and(|message| message.born.0 >= self.since)
    }

    // Turns

    fn claim(&mut self, now: Millis, born: Born, decision: &Decision) {
        let Some(message) = self.queue.iter().find(|message| message.born == born).cloned() else { return };
        let Some(continuation) = decision.continuation.clone() else { return };
        let held = self.held.take();
        let deferrals = held.as_ref().filter(|held| held.limit.is_none()).map_or(0, |held| held.deferrals);
        if let Some(wait) = &continuation.resolves {
            self.end_wait(&wait.clone(), "resolved");
        }
        self.end_if_over(message.wait);
        let before = held.as_ref().and_then(|held| held.entered);
        self.run = Some(Run {
            claimed_at: now,
            message: born,
            continuation,
            deferrals,
            entered: self.enter_running().or(before),
            request: None,
            sections: Vec::new(),
            yielded: false,
            checkpoint: held.and_then(|held| held.checkpoint),
            work: message.work,
        });
        self.status = "awake_running";
    }

    /// Every way that leads to `running` (execution §1, §2). Returns what was entered for this turn.
    pub(super) fn enter_running(&mut self) -> Option<Entered> {
        let entered = match self.execution {
            "completed" => {
                self.enter("runnable", None);
                Some(Entered::Scheduled)
            }
            "runnable" => Some(Entered::Scheduled),
            "suspended" => Some(Entered::Resumed),
            _ => None,
        };
        if let Some(entered) = entered {
            self.enter(entered.state(), None);
        }
        self.enter("running", None);
        entered
    }

    /// Enters a state, along one of the edges of execution §1; why is compared where it is given.
    pub(super) fn enter(&mut self, to: Word, why: Option<&str>) {
        let from = self.execution;
        assert!(may_follow(from, to), "no edge leads from {from} to {to}");
        self.execution = to;
        self.since = self.clock.0;
        self.tell("on-state-change", from, to, why);
    }

    pub fn attempt(&self) -> u32 {
        let claimed = self.queue.iter().find(|message| self.is_claimed(message));
        claimed.map_or(0, |message| message.attempt)
    }

    /// A timer wait that is over ends with the message that says so (semantics §5).
    fn end_if_over(&mut self, named: Option<Tag>) {
        let over = self.waits.iter().any(|wait| Some(&wait.tag) == named.as_ref() && wait.woken);
        if let Some(tag) = named.filter(|_| over) {
            self.end_wait(&tag, "resolved");
        }
    }

    /// The turn ends; its actions are carried out if they all can be. Says how it ended.
    pub fn end_turn(&mut self, now: Millis, end: End, actions: &[Command], tokens: u64) -> Option<Word> {
        // What the settlement makes comes after whatever the step has made.
        self.clock = (now, 1000);
        if end == End::TickKilled {
            return None;
        }
        self.count_tokens(now, tokens);
        if let End::Stopped { killed, requeue } = end {
            self.stop();
            self.finish_stop(killed, requeue);
            self.end_tasks();
            return Some("aborted");
        }
        if let End::Preempted { resume_after } = end {
            self.ask_to_yield(now, 0, resume_after);
        }
        self.settle(now, end, actions)
    }

    fn settle(&mut self, now: Millis, end: End, actions: &[Command]) -> Option<Word> {
        let yielded = self.run.as_ref().is_some_and(|run| run.yielded);
        if end == End::Failed {
            return self.fail(now, "failed", Some(OPERATORS_REASON));
        }
        if yielded {
            self.before_suspension();
            return self.suspend(now);
        }
        match end {
            End::Well => {
                let mut after = self.clone();
                if actions.iter().any(|action| after.carry_out(now, action, true).is_err()) {
                    return self.fail(now, "failed", None);
                }
                *self = after;
                let run = self.end_run("completed")?;
                self.end_message(run.message, "processed");
                self.retry = None;
                let closure = self.closure();
                let awaited = self.waits.iter().find(|wait| Some(&wait.tag) == closure.wait.as_ref());
                let awaited = awaited.and_then(|wait| wait.task.clone());
                let runs =
                    self.tasks.iter().any(|task| Some(&task.tag) == awaited.as_ref() && task.is_open());
                let (execution, status) = match closure.outcome {
                    "waiting" if closure.reason == Some("awaiting_task_result") && runs => {
                        ("waiting", "awaiting_task")
                    }
                    "waiting" => ("waiting", "asleep"),
                    _ => ("completed", "awake_idle"),
                };
                self.enter(execution, None);
                self.status = status;
                Some("completed")
            }
            End::TickEnded => self.fail(now, "interrupted", None),
            End::Preempted { .. } | End::Forced => self.fail(now, "failed", Some(FORCED)),
            End::NotNow => {
                let run = self.end_run("deferred")?;
                let deferrals = run.deferrals + 1;
                self.enter("waiting_resources", None);
                self.status = "awake_idle";
                self.held = Some(Held {
                    message: run.message,
                    missing: "the turn asked to come back later (exit status 75)".to_owned(),
                    limit: None,
                    not_before: Some(now + backoff(deferrals)),
                    continuation: run.continuation,
                    deferrals,
                    checkpoint: run.checkpoint,
                    entered: None,
                });
                Some("deferred")
            }
            End::Badly | End::Failed | End::TickKilled | End::Stopped { .. } => {
                self.fail(now, "failed", None)
            }
        }
    }

    /// The turn is over, in this way; its message knows nothing of that so far.
    pub(super) fn end_run(&mut self, terminal: Word) -> Option<Run> {
        let run = self.run.take()?;
        self.last_terminal = Some(terminal);
        self.last_message = Some(run.message);
        self.count_turn(run.claimed_at, terminal);
        Some(run)
    }

    /// Execution §7.
    pub(super) fn fail(&mut self, now: Millis, terminal: Word, why: Option<&str>) -> Option<Word> {
        let run = self.end_run(terminal)?;
        self.enter("failed", why);
        self.failed_to_recover = false;
        self.status = "awake_idle";
        let message = self.queue.iter_mut().find(|message| message.born == run.message)?;
        if message.attempt >= MAX_ATTEMPTS {
            self.retry = Some((now, run.message));
            self.end_message(run.message, "dead");
            self.dead += 1;
            if self.settings.stop_when_exhausted {
                self.stop();
                self.end_tasks();
            }
        } else {
            self.retry = Some((now + backoff(message.attempt), run.message));
            message.attempt += 1;
            message.continuation = Some(run.continuation);
        }
        Some(terminal)
    }

    /// Execution §9: a run whose tick is gone.
    fn interrupt(&mut self, now: Millis) {
        let Some(run) = &self.run else { return };
        if run.yielded {
            self.before_suspension();
            self.suspend(now);
        } else if self.is_overdue(now) {
            self.fail(now, "failed", Some(FORCED));
        } else {
            self.fail(now, "interrupted", None);
        }
    }

    /// Semantics §14, execution §10.
    fn stop(&mut self) {
        let recovers = self.execution == "recovering";
        if self.status != "stopped" && (self.run.is_some() || recovers) {
            self.run_hook("on-shutdown", self.execution, "shutting_down");
            self.enter("shutting_down", None);
        }
        if recovers {
            self.enter("failed", None);
        }
        self.status = "stopped";
        self.ignore_hints();
    }

    fn finish_stop(&mut self, killed: bool, requeue: bool) {
        let Some(run) = self.end_run("aborted") else { return };
        if killed {
            self.enter("failed", Some("shutdown_timeout"));
        } else {
            self.enter("completed", None);
        }
        self.retry = None;
        if requeue {
            for message in self.queue.iter_mut().filter(|message| message.born == run.message) {
                message.continuation = Some(run.continuation.clone());
            }
        } else {
            self.end_message(run.message, "aborted");
        }
    }

    // Waits and work items (semantics §4, §5)

    fn wait_mut(&mut self, tag: &Tag) -> &mut Wait {
        let found = self.waits.iter_mut().find(|wait| wait.tag == *tag);
        found.unwrap_or_else(|| panic!("no {tag}"))
    }

    fn revise(&mut self, tag: &Tag) {
        for item in self.works.iter_mut().filter(|item| item.tag == *tag && !item.done) {
            item.revision += 1;
            item.ticked = false;
        }
    }

    fn end_wait(&mut self, tag: &Tag, status: Word) {
        let wait = self.wait_mut(tag);
        if wait.status == "active" {
            wait.status = status;
            if let Some(item) = wait.item.clone() {
                self.revise(&item);
            }
        }
    }

    fn cancel_waits_on(&mut self, item: &Tag) {
        let on = |wait: &&Wait| wait.status == "active" && wait.item.as_ref() == Some(item);
        let waits: Vec<Tag> = self.waits.iter().filter(on).map(|wait| wait.tag.clone()).collect();
        for wait in waits {
            self.end_wait(&wait, "cancelled");
        }
    }

    /// An open item, to be changed by a command: one revision more.
    fn change(&mut self, number: usize, change: impl FnOnce(&mut Work)) -> Result<Tag, i32> {
        let tag = self.work(number).filter(|item| !item.done).ok_or(REFUSED)?.tag.clone();
        self.revise(&tag);
        if let Some(item) = self.works.iter_mut().find(|item| item.tag == tag) {
            change(item);
        }
        Ok(tag)
    }

    // Commands

    /// One command at one moment, from outside or from inside the turn. `Err`: its exit status.
    pub fn command(&mut self, now: Millis, command: &Command, inside: bool) -> Result<(), i32> {
        self.clock = (now, 0);
        let mut after = self.clone();
        after.carry_out(now, command, inside)?;
        *self = after;
        Ok(())
    }

    fn carry_out(&mut self, now: Millis, command: &Command, inside: bool) -> Result<(), i32> {
        let later = |seconds: Option<i64>| seconds.map(|seconds| now + ms(seconds));
        match command {
            Command::Enqueue { kind, priority, blank, resource, work, key, ttl, delay } => {
                let outside = !matches!(*kind, "operator_prompt" | "control" | "internal_followup");
                if *priority == "interject" && (inside || outside) {
                    return Err(REFUSED);
                }
                let since = |at: Millis| (now - at).max(0);
                if let Some(key) = key
                    && self.keys.iter().any(|(known, at)| known == key && since(*at) < DEDUPE_WINDOW)
                {
                    return Ok(());
                }
                self.keys.extend(key.map(|key| (key, now)));
                let said = self.name("message");
                let rank = ["interject", "next", "normal", "background"].iter().position(|at| at == priority);
                let mut message =
                    self.own_message(kind, rank.unwrap_or(2) as u8, said.clone(), Source::Somebody);
                message.contentful = !blank;
                message.resource = resource.map(resource_name);
                message.work = work.and_then(|work| self.work(work)).map(|item| item.tag.clone());
                message.expires = later(*ttl);
                self.enqueued.push(said.clone());
                match delay {
                    None => self.queue.push(message),
                    Some(delay) => {
                        let schedule = Schedule::Once(*delay);
                        self.add_timer(now, said, schedule, "once", Some(message));
                    }
                }
            }
            Command::Wake { blank, resource, wait } => {
                let text = if *blank { String::new() } else { self.name("hint") };
                let wait = wait.and_then(|wait| self.wait(wait)).map(|wait| wait.tag.clone());
                let resource = resource.map(resource_name);
                let born = self.born();
                self.hints.push(Hint { born, contentful: !blank, resource, wait, text });
            }
            Command::WorkAdd { pick, needs_input, blocked, recheck } => {
                let tag = self.name("work");
                let item = Work {
                    born: self.born(),
                    tag: tag.clone(),
                    revision: 1,
                    done: false,
                    plan_status: if *needs_input { "needs_input" } else { "ready" },
                    blocked: *blocked,
                    recheck: later(*recheck).filter(|_| *blocked),
                    ticked: false,
                };
                self.works.push(item);
                if *pick {
                    self.focus = Some(tag);
                }
            }
            Command::WorkUpdate { item, plan_status } => {
                self.change(*item, |item| item.plan_status = plan_status)?;
            }
            Command::WorkPick { item, clear } => {
                let tag = self.work(*item).filter(|item| !item.done).ok_or(REFUSED)?.tag.clone();
                if *clear {
                    self.cancel_waits_on(&tag);
                }
                self.change(*item, |item| {
                    item.blocked &= !clear;
                    item.recheck = item.recheck.filter(|_| !clear);
                })?;
                self.focus = Some(tag);
            }
            Command::WorkBlock { item, recheck } => {
                self.change(*item, |item| {
                    item.blocked = true;
                    item.recheck = later(*recheck);
                })?;
            }
            Command::WorkUnblock(item) => {
                if !self.work(*item).is_some_and(|item| item.blocked) {
                    return Err(REFUSED);
                }
                self.change(*item, |item| {
                    item.blocked = false;
                    item.recheck = None;
                })?;
            }
            Command::WorkComplete(item) => {
                let tag = self.work(*item).filter(|item| !item.done).ok_or(REFUSED)?.tag.clone();
                self.cancel_waits_on(&tag);
                self.change(*item, |item| {
                    item.done = true;
                    item.blocked = false;
                    item.recheck = None;
                })?;
                self.focus = self.focus.take().filter(|focus| *focus != tag);
            }
            Command::Wait { kind, owner, resource, task, within, recheck, expires } => {
                let item = match owner {
                    Owner::Agent => None,
                    Owner::Item(item) => {
                        Some(self.work(*item).filter(|item| !item.done).ok_or(REFUSED)?.tag.clone())
                    }
                    Owner::Nearest => {
                        let of_turn = self.run.as_ref().filter(|_| inside).and_then(|run| run.work.clone());
                        let open = of_turn.filter(|tag| self.open().iter().any(|item| item.tag == *tag));
                        open.or(self.focus.clone())
                    }
                };
                let task = self.task(*task).filter(|_| *kind == "task").cloned();
                let may_end_it =
                    |task: &Task| task.notify && (task.is_open() || self.ended_in_this_turn(task, inside));
                if !task.as_ref().is_none_or(may_end_it) {
                    return Err(REFUSED);
                }
                if let Some(item) = &item {
                    self.cancel_waits_on(item);
                    self.revise(item);
                }
                let tag = self.name("wait");
                let resource = resource.map(resource_name).filter(|_| *kind != "task");
                let wait = Wait {
                    born: self.born(),
                    tag,
                    kind,
                    status: "active",
                    item,
                    resource: resource.or(task.as_ref().map(|task| task.tag.clone())),
                    task: task.map(|task| task.tag),
                    wake: (*kind == "timer").then_some(now + ms(*within)),
                    woken: false,
                    recheck: later(*recheck),
                    expires: later(*expires),
                };
                self.waits.push(wait);
            }
            Command::WaitCancel(wait) => {
                let tag =
                    self.wait(*wait).filter(|wait| wait.status == "active").ok_or(NOT_FOUND)?.tag.clone();
                self.end_wait(&tag, "cancelled");
            }
            Command::TimerAdd { schedule, blank, catch_up } => {
                let tag = self.name("timer");
                self.add_timer(now, tag, *schedule, catch_up, None);
                self.timers.iter_mut().last().into_iter().for_each(|timer| timer.blank = *blank);
            }
            Command::TimerCancel(timer) => {
                let at = timer % self.timers.len().max(1);
                let timer =
                    self.timers.get_mut(at).filter(|timer| timer.status == "active").ok_or(NOT_FOUND)?;
                timer.status = "cancelled";
                // A message that was put off goes with its timer.
                let put_off = timer.message.clone();
                self.ended.extend(put_off.map(|message| (message, "dropped")));
            }
            Command::TaskRun { well, notify } => {
                let tag = self.start_task(*notify, inside)?;
                self.end_task(&tag, if *well { "completed" } else { "failed" });
            }
            Command::TaskStart { notify } => {
                self.start_task(*notify, inside)?;
            }
            Command::TaskEnd { task, well } => {
                let tag = self.task(*task).ok_or(REFUSED)?.tag.clone();
                self.end_task(&tag, if *well { "completed" } else { "failed" });
            }
            Command::TaskStop(task) => {
                let tag = self.task(*task).ok_or(REFUSED)?.tag.clone();
                self.end_task(&tag, "cancelled");
            }
            Command::Drop(message) => {
                let said = self.message(*message).ok_or(NOT_FOUND)?.clone();
                if let Some(queued) = self.queue.iter().find(|message| message.said == said) {
                    if self.is_claimed(queued) {
                        return Err(REFUSED);
                    }
                    let born = queued.born;
                    self.end_message(born, "dropped");
                } else if let Some(at) = self.dead_letter(&said) {
                    self.ended[at].1 = "dropped";
                    self.dead -= 1;
                } else {
                    return Err(self.no_such(&said));
                }
            }
            Command::Requeue(message) => {
                let said = self.message(*message).ok_or(NOT_FOUND)?.clone();
                let may = |status| matches!(status, "aborted" | "dropped" | "dead");
                let ended =
                    self.ended.iter().position(|(message, status)| message.said == said && may(status));
                let Some(at) = ended else { return Err(self.no_such(&said)) };
                let (message, status) = self.ended.remove(at);
                self.dead -= u64::from(status == "dead");
                self.queue.push(Message { attempt: 1, expires: None, continuation: None, ..message });
            }
            Command::Start => {
                if !matches!(self.status, "booting" | "stopped") {
                    return Err(REFUSED);
                }
                if self.status == "stopped" {
                    self.ignore_hints();
                }
                self.status = "awake_idle";
                if self.execution == "initializing" {
                    self.run_hook("on-startup", "initializing", "runnable");
                    self.enter("runnable", None);
                }
            }
            Command::Stop { requeue } => {
                self.stop();
                // What is left of a run whose tick is gone ends without being killed.
                self.finish_stop(false, *requeue);
                self.end_tasks();
            }
            Command::Recover => {
                // Inside it is the turn itself that is in the way.
                if inside {
                    return Err(REFUSED);
                }
                let interrupted = self.run.is_some();
                self.interrupt(now);
                match self.execution {
                    "failed" | "recovering" => self.recover(now),
                    _ if interrupted => {}
                    _ => return Err(REFUSED),
                }
            }
            Command::Interject { blank, ttl } => {
                let message = Command::Enqueue {
                    kind: "operator_prompt",
                    priority: "interject",
                    blank: *blank,
                    resource: None,
                    work: None,
                    key: None,
                    ttl: *ttl,
                    delay: None,
                };
                self.carry_out(now, &message, false)?;
            }
            Command::Resume if self.status == "stopped" => self.carry_out(now, &Command::Start, inside)?,
            Command::Resume => self.resume(now)?,
            Command::Fail => self.fail_by_hand(now, inside)?,
            Command::Preempt { .. }
            | Command::SafePoint { .. }
            | Command::Yield { .. }
            | Command::Begin { .. }
            | Command::End
            | Command::Within { .. }
                if !inside =>
            {
                return Err(REFUSED);
            }
            Command::Preempt { grace, resume_after } => self.ask_to_yield(now, *grace, *resume_after),
            Command::SafePoint { .. } => self.safe_point(now),
            Command::Yield { checkpoint } => self.give_way(*checkpoint),
            Command::Begin { deadline, .. } => self.begin_section(now, *deadline).map(drop)?,
            Command::End => self.end_section(None)?,
            // What it does is carried out by whoever begins it.
            Command::Within { deadline, .. } => self.begin_section(now, *deadline).map(drop)?,
        }
        Ok(())
    }

    /// A message that is nowhere in the queue: put off, or ended in a way that stays.
    fn no_such(&self, said: &Tag) -> i32 {
        let put_off = |timer: &Timer| timer.message.is_some() && timer.tag == *said;
        let nowhere = !self.queue.iter().any(|message| message.said == *said)
            && !self.ended.iter().any(|(message, _)| message.said == *said)
            && self.timers.iter().any(put_off);
        if nowhere { NOT_FOUND } else { REFUSED }
    }

    fn add_timer(
        &mut self,
        now: Millis,
        tag: Tag,
        schedule: Schedule,
        catch_up: Word,
        message: Option<Message>,
    ) {
        let next = match schedule {
            Schedule::Once(seconds) => now + ms(seconds),
            repeated => repeated.after(now, now).unwrap_or(now),
        };
        let timer = Timer {
            born: self.born(),
            tag,
            next,
            fired: 0,
            missed: 0,
            status: "active",
            schedule,
            catch_up,
            blank: false,
            message,
        };
        self.timers.push(timer);
    }

    // Tasks (semantics §12)

    fn start_task(&mut self, notify: bool, inside: bool) -> Result<Tag, i32> {
        if self.status == "stopped" {
            return Err(REFUSED);
        }
        let of_turn = self.run.as_ref().filter(|_| inside).and_then(|run| run.work.clone());
        let work = of_turn.filter(|tag| self.open().iter().any(|item| item.tag == *tag));
        let tag = self.name("task");
        let born = self.born();
        self.tasks.push(Task { born, tag: tag.clone(), status: "running", notify, work });
        Ok(tag)
    }

    /// The end of a task and the message that says so. Its supervisor lives at the moment in which
    /// the task was started.
    fn end_task(&mut self, tag: &Tag, status: Word) {
        let found = self.tasks.iter_mut().find(|task| task.tag == *tag && task.is_open());
        let Some(task) = found else { return };
        task.status = status;
        let task = task.clone();
        let kind = if task.notify { "task_result" } else { "task_status" };
        let mut message = self.own_message(kind, 2, format!("{tag}: {status}"), Source::Somebody);
        message.born = (task.born.0, task.born.1 + 1);
        message.task = Some(task.tag);
        message.work = task.work;
        self.queue.push(message);
    }

    fn end_tasks(&mut self) {
        let open: Vec<Tag> =
            self.tasks.iter().filter(|task| task.is_open()).map(|task| task.tag.clone()).collect();
        for tag in open {
            self.end_task(&tag, "cancelled");
        }
    }

    /// By the clock: its supervisor's is the moment in which the task was started.
    fn ended_in_this_turn(&self, task: &Task, inside: bool) -> bool {
        self.run.as_ref().is_some_and(|run| inside && task.born.0 >= run.claimed_at)
    }
}

impl Timer {
    /// What it will say.
    pub fn said(&self) -> &str {
        if self.blank { "" } else { &self.tag }
    }
}

impl Task {
    pub fn is_open(&self) -> bool {
        self.status == "running"
    }
}

impl Schedule {
    /// The first fire after a moment (semantics §11).
    fn after(self, made: Millis, after: Millis) -> Option<Millis> {
        match self {
            Schedule::Once(_) => None,
            Schedule::Every(seconds) => {
                let periods = (after - made).max(0) / ms(seconds) + 1;
                Some(made + periods * ms(seconds))
            }
            Schedule::Daily(hour) => {
                let local = New_York.timestamp_millis_opt(after).single()?;
                let days = u64::from(local.hour() >= hour);
                let day = local.date_naive().checked_add_days(Days::new(days))?;
                let fire = New_York.from_local_datetime(&day.and_hms_opt(hour, 0, 0)?).single()?;
                Some(fire.timestamp_millis())
            }
        }
    }
}

/// The edges of execution §1.
fn may_follow(from: Word, to: Word) -> bool {
    let next: &[Word] = match from {
        "initializing" => &["runnable", "failed"],
        "runnable" => &["scheduled"],
        "scheduled" | "waiting" | "resumed" => &["running"],
        "running" => &["waiting", "waiting_resources", "suspended", "completed", "failed", "shutting_down"],
        "waiting_resources" => &["running", "failed"],
        "suspended" => &["resumed", "failed"],
        "completed" => &["runnable"],
        "failed" => &["recovering"],
        "shutting_down" => &["completed", "failed"],
        "recovering" => &["runnable", "failed", "shutting_down"],
        _ => &[],
    };
    next.contains(&to)
}

/// Exponential: 1, 2, 4 … seconds (execution §7).
fn backoff(attempt: u32) -> Millis {
    BACKOFF << (attempt - 1)
}

pub fn resource_name(number: usize) -> String {
    format!("res:{number}")
}
