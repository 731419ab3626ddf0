//! A small model of one agent: its records, and the effect of each command and each step on them.
//!
//! The model is written from docs/CONTRACT.md alone, never from the program's code. Each file is
//! one section of the contract, in its order and its words, so that a reader can compare the two.
//!
//! Records have no ids here. Each record has a name, which is also its text ("work 3", "wait 5").
//! Records are ordered by the time of their creation, and within one millisecond by a number.

// Semantics
pub mod advisories; // §15
pub mod closure; // §6
pub mod continuation; // §7
pub mod hints; // §10
pub mod lifecycle; // §14
pub mod messages; // §9
pub mod posture; // §2, §3
pub mod step; // §8
pub mod tasks; // §12
pub mod timers; // §11
pub mod triggers; // §13
pub mod waits; // §5
pub mod work; // §4

// Execution
pub mod clock; // §4
pub mod hooks; // §5
pub mod preemption; // §6
pub mod recovery; // §7, §9
pub mod resources; // §8
pub mod states; // §1, §2, §3, §4
pub mod stop; // §10

pub mod attention; // People §1
pub mod commands;

use std::collections::BTreeMap;

use attention::Mark;
use hints::Hint;
use hooks::{HookBehaviour, HookCall};
use messages::{Message, SetAside};
use preemption::{Held, Run};
use recovery::Retry;
use resources::Spending;
use tasks::Task;
use timers::Timer;
use triggers::Trigger;
use waits::Wait;
use work::Work;

/// Milliseconds since 1970.
pub type Millis = i64;
/// Creation time of a record, and its number among the records of that millisecond.
pub type Born = (Millis, u32);
/// Name of a record, which is also its text.
pub type Tag = String;
/// Word of the contract, such as a status or a decision.
pub type Word = &'static str;

// Exit statuses
pub const REFUSED: i32 = 4;
pub const NOT_FOUND: i32 = 3;

// Settings of the agent that are the same in every case. Times are in milliseconds.
pub const MAX_ATTEMPTS: u32 = 3;
pub const BACKOFF: Millis = 1000;
pub const DEDUPE_WINDOW: Millis = 3_600_000;
pub const RESOURCES_TIMEOUT: Millis = 300_000;
pub const SUSPEND_TIMEOUT: Millis = 3_600_000;
pub const RECOVERY_TIMEOUT: Millis = 120_000;
pub const MAX_DELAY: Millis = 3_600_000;
pub const MAX_DEFERRAL: Millis = 35 * 86_400_000;
pub const CHAIN_PAUSE: Millis = 60_000;
pub const MAX_SECTION: Millis = 600_000;

/// Settings of the agent that differ from case to case.
#[derive(Debug, Clone, Copy, Default)]
pub struct Settings {
    pub stop_when_exhausted: bool,
    /// True if every hook is installed.
    pub hooks: bool,
    pub turns_per_hour: Option<u64>,
    pub tokens_per_day: Option<u64>,
    pub max_hops: u32,
    pub max_deferrals: u32,
    pub max_interruptions: u32,
    /// `[inbox] unmatched = "run"`.
    pub unmatched_runs: bool,
}

/// The agent, with all its records.
#[derive(Debug, Clone, Default)]
pub struct Model {
    pub settings: Settings,
    pub status: Word,
    pub execution: Word,
    /// Time at which the agent entered its execution state.
    pub since: Millis,
    pub run: Option<Run>,
    pub held: Option<Held>,
    pub retry: Option<Retry>,
    pub queue: Vec<Message>,
    pub works: Vec<Work>,
    pub focus: Option<Tag>,
    pub waits: Vec<Wait>,
    pub timers: Vec<Timer>,
    pub tasks: Vec<Task>,
    pub triggers: Vec<Trigger>,
    /// Hints that no step has taken in.
    pub hints: Vec<Hint>,
    /// Hint that a step has taken in, and that becomes a `system_tick`.
    pub pending_hint: Option<Hint>,
    /// Names of all messages that were enqueued or delivered.
    pub enqueued: Vec<Tag>,
    /// Messages that have ended, each with its last status.
    pub ended: Vec<(Message, Word)>,
    /// Messages that were taken in without a turn since the last turn that completed.
    pub reduced: Vec<SetAside>,
    /// Dedupe keys that were used, each with its trigger (`None`: the operator) and its time.
    pub keys: Vec<((Option<Tag>, usize), Millis)>,
    pub last_terminal: Option<Word>,
    /// The message of the last turn.
    pub last_message: Option<Born>,
    pub spending: Spending,
    /// Behaviour of each hook; a hook without an entry succeeds.
    pub doing: BTreeMap<Word, HookBehaviour>,
    /// Calls of hooks since the last comparison.
    pub told: Vec<HookCall>,
    /// True if a hook has killed the command that ran it.
    pub killed: bool,
    /// Names of the messages that safe points have printed since the last comparison.
    pub handed: Vec<Tag>,
    /// Attentions that are not acknowledged.
    pub marks: Vec<Mark>,
    /// True if an attention, a failed recovery or a timeout makes the current `tick` exit with 7.
    pub alarmed: bool,
    names: u32,
    /// Time of the current transaction, and the number of records that it has made.
    pub clock: Born,
}

pub fn ms(seconds: i64) -> Millis {
    seconds * 1000
}

impl Model {
    pub fn new(settings: Settings) -> Model {
        Model {
            settings,
            status: "booting",
            execution: "initializing",
            triggers: vec![Trigger::default_one()],
            ..Model::default()
        }
    }

    /// Returns the name of the record that the next command makes.
    pub fn next_tag(&self, kind: &str) -> Tag {
        format!("{kind} {}", self.names + 1)
    }

    pub fn name(&mut self, kind: &str) -> Tag {
        let tag = self.next_tag(kind);
        self.names += 1;
        tag
    }

    pub fn born(&mut self) -> Born {
        self.clock.1 += 1;
        self.clock
    }

    // Records of a command. A command names its record by a number, which is taken modulo the
    // number of records of that kind.

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
}

pub fn resource_name(number: usize) -> String {
    format!("res:{number}")
}
