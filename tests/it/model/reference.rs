//! The contract once more, as a small machine: what an agent is, and what each command and each step does to
//! it. It was written from the contract's pages and from nothing else, a file for a section, in their order
//! and their words, so that a reader can compare the two.
//!
//! Records have no ids here. They are known by what they say ("work 3", "wait 5"), and come in the order in
//! which they were made: by the clock, and within one moment one after the other.

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
use hooks::{HookBehavior, HookCall};
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
/// When something was made, and as which of that moment.
pub type Born = (Millis, u32);
/// What a record says, by which it is known.
pub type Tag = String;
/// One of the contract's own words.
pub type Word = &'static str;

pub const REFUSED: i32 = 4;
pub const NOT_FOUND: i32 = 3;

/// The settings that the agent under test has.
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

/// What differs from case to case in an agent's settings.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    pub stop_when_exhausted: bool,
    /// Whether every hook is there.
    pub hooks: bool,
    pub turns_per_hour: Option<u64>,
    pub tokens_per_day: Option<u64>,
    pub max_hops: u32,
    pub max_deferrals: u32,
    pub max_interruptions: u32,
    /// `[inbox] unmatched = "run"`.
    pub unmatched_runs: bool,
}

/// Everything that is known of the agent.
#[derive(Debug, Clone)]
pub struct Model {
    pub settings: Settings,
    pub status: Word,
    pub execution: Word,
    /// When that was entered.
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
    /// Hints that no step has taken in, and the one that is.
    pub hints: Vec<Hint>,
    pub pending_hint: Option<Hint>,
    /// Every message that somebody enqueued, by name.
    pub enqueued: Vec<Tag>,
    /// Every message that has ended, and how.
    pub ended: Vec<(Message, Word)>,
    /// What was taken in without a turn since the last turn that completed.
    pub reduced: Vec<SetAside>,
    /// The keys that were used, each the operator's or that of a trigger, and when.
    pub keys: Vec<((Option<Tag>, usize), Millis)>,
    pub last_terminal: Option<Word>,
    /// The message of the last turn.
    pub last_message: Option<Born>,
    pub spending: Spending,
    /// What hooks do, and what they were told since somebody last looked.
    pub doing: BTreeMap<Word, HookBehavior>,
    pub told: Vec<HookCall>,
    /// A hook has killed whoever ran it.
    pub killed: bool,
    /// What safe points have handed over since somebody last looked.
    pub handed: Vec<Tag>,
    /// What needs somebody, until it is acknowledged.
    pub marks: Vec<Mark>,
    /// One of them is new, or a recovery has failed: whoever steps the agent is told.
    pub alarmed: bool,
    names: u32,
    /// The moment of the transaction that is made, and how many things it has made.
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
            since: 0,
            run: None,
            held: None,
            retry: None,
            queue: Vec::new(),
            works: Vec::new(),
            focus: None,
            waits: Vec::new(),
            timers: Vec::new(),
            tasks: Vec::new(),
            triggers: vec![Trigger::default_one()],
            hints: Vec::new(),
            pending_hint: None,
            enqueued: Vec::new(),
            ended: Vec::new(),
            reduced: Vec::new(),
            keys: Vec::new(),
            last_terminal: None,
            last_message: None,
            spending: Spending::default(),
            doing: BTreeMap::new(),
            told: Vec::new(),
            killed: false,
            handed: Vec::new(),
            marks: Vec::new(),
            alarmed: false,
            names: 0,
            clock: (0, 0),
        }
    }

    /// The name of the record that the next command makes.
    pub fn next_tag(&self, kind: &str) -> Tag {
        format!("{kind} {}", self.names + 1)
    }

    pub fn name(&mut self, kind: &str) -> Tag {
        self.names += 1;
        format!("{kind} {}", self.names)
    }

    pub fn born(&mut self) -> Born {
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
}

pub fn resource_name(number: usize) -> String {
    format!("res:{number}")
}
