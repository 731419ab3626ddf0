//! Policy: the settings of `agent.toml`, and all their defaults.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, de};
use smart_default::SmartDefault;

use super::id::Malformed;
use super::inbox::InboxPolicy;
use super::pool::Pool;
use super::preemption::Critical;
use super::record::ensure;
use super::recovery::RecoveryPolicy;
use super::retention::Retention;
use super::text;
use super::time::Span;

/// Settings of `agent.toml`, with a default for each absent setting.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Policy {
    /// Table `[profiles.NAME]` of `dormouse.toml` that gives the agent its defaults.
    pub profile: Option<String>,
    pub description: Option<String>,
    pub turn: TurnPolicy,
    pub workspace: WorkspacePolicy,
    pub scheduler: SchedulingPolicy,
    pub timeouts: Timeouts,
    pub recovery: RecoveryPolicy,
    pub limits: Limits,
    pub inbox: InboxPolicy,
    pub authority: Authority,
    pub preemption: PreemptionPolicy,
    pub retention: Retention,
}

/// Command as argv, or, with `shell = true`, as one string.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum CommandSpec {
    Argv(Vec<String>),
    Line(String),
}

names! {
    /// Content of the standard input of a turn.
    #[derive(Default)]
    "stdin form" StdinForm {
        #[default]
        Context = "context",
        Prompt = "prompt",
        None = "none",
    }
}

#[derive(Debug, Clone, PartialEq, SmartDefault, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TurnPolicy {
    pub command: Option<CommandSpec>,
    pub shell: bool,
    /// Working directory of the turn, relative to the directory that holds the state directory.
    #[default = "."]
    pub workdir: String,
    #[default(Limit::secs(30 * 60))]
    pub timeout: Limit,
    pub stdin: StdinForm,
    /// Path of the agent's own prompt template for `stdin = "prompt"`, relative to the directory
    /// that holds the state directory.
    pub prompt: Option<String>,
    pub env: BTreeMap<String, String>,
    /// Environment variables that a turn inherits; absent: all.
    pub inherit_env: Option<Vec<String>>,
    /// Maximum number of stored bytes of stdout, and as many of stderr.
    #[default(Size(10 << 20))]
    pub max_output: Size,
    /// Treatment of a turn whose machine can't reach its database for the whole lease.
    pub on_disconnect: OnDisconnect,
}

names! {
    /// Policy for a turn whose lease can't be renewed, because the database can't be reached.
    #[derive(Default)]
    "end of a turn without its database" OnDisconnect {
        /// When the database can't be reached, the turn ends before another machine may start one.
        #[default]
        End = "end",
        /// Without the database, the turn continues. It is settled if no other machine took over.
        Finish = "finish",
    }
}

names! {
    /// Condition under which agents may work in one workspace at the same time: never, or if all of
    /// these agents share the workspace.
    "workspace mode" WorkspaceMode {
        Exclusive = "exclusive",
        Shared = "shared",
    }
}

#[derive(Debug, Clone, PartialEq, SmartDefault, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct WorkspacePolicy {
    /// Workspace directory, relative to the directory that holds the state directory.
    #[default = "."]
    pub path: String,
    /// `None`: there is no `[workspace]` table, and the agent occupies no workspace.
    #[serde(default = "exclusive")]
    pub mode: Option<WorkspaceMode>,
}

const fn exclusive() -> Option<WorkspaceMode> {
    Some(WorkspaceMode::Exclusive)
}

/// Priority of the agent in a tick of many agents, and the pool of machines that tick the agent.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SchedulingPolicy {
    /// Priority from -19, the most urgent, to 20.
    pub priority: i8,
    /// Pool of the machines that tick the agent, if several machines share a database.
    pub pool: Pool,
    /// Time after which a due step that did not run shows that no process ticks the agent. Absent:
    /// the setting of `dormouse.toml`. The time affects only reports.
    pub overdue_after: Option<Limit>,
}

impl SchedulingPolicy {
    pub const MOST_URGENT: i8 = -19;
    pub const LEAST_URGENT: i8 = 20;
    /// Policy for an agent that is stopped or not started, with the lowest priority.
    pub const LEAST: SchedulingPolicy = SchedulingPolicy {
        priority: SchedulingPolicy::LEAST_URGENT,
        pool: Pool::COMMON,
        overdue_after: None,
    };
    /// Default of `overdue_after`.
    pub const OVERDUE_AFTER: Limit = Limit::secs(600);
}

names! {
    /// Agents that an agent's turns and tasks may create, start, stop, recover and tick.
    #[derive(Default)]
    "reach of an agent" Reach {
        #[default]
        Children = "children",
        All = "all",
    }
}

/// Rights of the agent's turns and tasks over other agents.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Authority {
    /// Agents that the lifecycle commands may change: the agent's children, or all agents.
    pub lifecycle: Reach,
}

names! {
    /// Processes of a turn that get SIGTERM first. After the grace, all live processes are killed.
    #[derive(Default)]
    "first to be told" EndOrder {
        #[default]
        Leader = "leader",
        Group = "group",
    }
}

/// Limits for a turn that is asked to yield or is ended.
#[derive(Debug, Clone, Copy, PartialEq, SmartDefault, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PreemptionPolicy {
    /// Grace period of a request to yield that names no grace period of its own.
    #[default(Span::from_secs(30))]
    pub grace: Span,
    /// Maximum time for which nested critical sections protect a turn, despite their deadlines.
    #[default(Span::from_secs(10 * 60))]
    pub max_section: Span,
    pub signal: EndOrder,
    pub critical: Critical,
}

#[derive(Debug, Clone, PartialEq, SmartDefault, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Timeouts {
    #[default(Limit::secs(60))]
    pub init: Limit,
    #[default(Limit::secs(300))]
    pub resources: Limit,
    #[default(Limit::secs(3600))]
    pub suspend: Limit,
    #[default(Limit::secs(120))]
    pub recovery: Limit,
    /// Timeout of a stop. It can't be switched off.
    #[default(Span::from_secs(30))]
    #[serde(deserialize_with = "shutdown")]
    pub shutdown: Span,
    /// Timeout of one hook. Absent: `on-startup` and `on-recovery-start` have the timeout of the
    /// state in which they run, and every other hook has [`HOOK`].
    pub hook: Option<Limit>,
}

/// Default timeout of a hook.
const HOOK: Limit = Limit::secs(30);

impl Timeouts {
    /// Returns the timeout of a hook: the shorter of `hook` and `of_state`, which is the timeout of
    /// the agent's state that lasts until the hook has ended; without both, [`HOOK`].
    pub fn of_hook(&self, of_state: Option<Limit>) -> Limit {
        match (self.hook, of_state) {
            (None, None) => HOOK,
            (None, Some(limit)) | (Some(limit), None) => limit,
            (Some(own), Some(limit)) => Limit(own.0.into_iter().chain(limit.0).min()),
        }
    }
}

/// Parses the timeout of a stop, which can't be switched off, because a stop must end.
fn shutdown<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Span, D::Error> {
    let limit = Limit::deserialize(deserializer)?;
    limit.0.ok_or_else(|| de::Error::custom("timeouts.shutdown can't be switched off"))
}

/// Span, or no limit: `0` and `"never"` switch the limit off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit(pub Option<Span>);

impl Limit {
    const fn secs(secs: u64) -> Limit {
        Limit(Some(Span::from_secs(secs)))
    }
}

impl<'de> Deserialize<'de> for Limit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = |number: i64| match number {
            0 => Ok(Limit(None)),
            ..0 => Err(format!("`{number}`: a duration can't be negative")),
            1.. => Err(format!("`{number}` has no unit: write \"{number}s\"")),
        };
        text::setting("a duration such as \"30m\", or 0 or \"never\"", deserializer, number, |text| {
            if text == "never" {
                return Ok(Limit(None));
            }
            let span: Span = text.parse().map_err(|error: Malformed| error.to_string())?;
            Ok(Limit((span != Span::ZERO).then_some(span)))
        })
    }
}

/// Number of bytes, written as a plain number or with `KiB`, `MiB` or `GiB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

/// Maximum value of `limits.max_effects`. All effects of an outcome are in one line of the journal,
/// where one byte may take six as an escape.
pub const MAX_EFFECTS: Size = Size(32 << 20);

/// Maximum value of `limits.max_outcome`. A whole outcome is stored with the end of its turn.
const MAX_OUTCOME: Size = Size(8 << 20);

impl std::fmt::Display for Size {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (unit, bits) in [("GiB", 30), ("MiB", 20), ("KiB", 10)] {
            if self.0 != 0 && self.0.trailing_zeros() >= bits {
                return write!(f, "{} {unit}", self.0 >> bits);
            }
        }
        write!(f, "{} bytes", self.0)
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expected = "a number of bytes such as 65536 or \"1 MiB\"";
        let number =
            |number| u64::try_from(number).map(Size).map_err(|_| "a size can't be negative".to_owned());
        text::setting(expected, deserializer, number, |text| {
            let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
            let bits = match text[digits.len()..].trim() {
                "" | "B" => Some(0),
                "KiB" => Some(10),
                "MiB" => Some(20),
                "GiB" => Some(30),
                _ => None,
            };
            let number = digits.trim().parse::<u64>().ok();
            let bytes = number.zip(bits).and_then(|(number, bits)| number.checked_mul(1 << bits));
            bytes.map(Size).ok_or_else(|| format!("invalid value: string {text:?}, expected {expected}"))
        })
    }
}

#[derive(Debug, Clone, PartialEq, SmartDefault, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Limits {
    /// Maximum size of a message's body.
    #[default(Size(1 << 20))]
    pub max_message: Size,
    /// Maximum size of a turn's outcome file.
    #[default(Size(4 << 20))]
    pub max_outcome: Size,
    /// Maximum total size of the messages and records that one outcome creates.
    #[default(Size(8 << 20))]
    pub max_effects: Size,
    /// Maximum number of actions in one outcome.
    #[default = 1000]
    pub max_actions: u64,
    /// Maximum number of open work items. A lower setting closes no open item.
    #[default = 1000]
    pub max_open_work: u64,
    /// Maximum number of files that one step admits as messages before the step decides. Other
    /// programs put these files into the inbox.
    #[default = 100]
    pub max_drops_per_step: u64,
    /// Maximum length of a chain of turns that each cause the next without a pause.
    #[default = 20]
    pub max_hops: u32,
    /// Time after which a consequence of a turn, such as a timer, starts a new chain of turns.
    #[default(Span::from_secs(60))]
    pub chain_pause: Span,
    /// Time for which a message prevents a second message with its `dedupe_key`.
    #[default(Span::from_secs(24 * 3600))]
    pub dedupe_window: Span,
    /// Maximum number of turns per calendar hour in UTC; absent: unlimited.
    pub turns_per_hour: Option<u64>,
    pub turns_per_day: Option<u64>,
    /// Maximum cost in US dollars per calendar day in UTC, as turns report it; absent: unlimited.
    pub cost_per_day: Option<f64>,
    /// Maximum number of tokens per calendar day in UTC, input and output together.
    pub tokens_per_day: Option<u64>,
}

impl Policy {
    /// Checks the settings, alone and against each other. `Err`: name and fault of a setting.
    pub fn check(&self) -> Result<(), String> {
        const EMPTY: &str = "turn.command is empty: name the program to run";
        let fault = match &self.turn.command {
            Some(CommandSpec::Argv(argv)) if argv.first().is_none_or(String::is_empty) => Some(EMPTY),
            Some(CommandSpec::Argv(_)) if self.turn.shell => {
                Some("turn.shell = true takes turn.command as one string, not as a list")
            }
            Some(CommandSpec::Line(_)) if !self.turn.shell => {
                Some("turn.command is one string: write it as a list, or set turn.shell = true")
            }
            Some(CommandSpec::Line(line)) if line.trim().is_empty() => Some(EMPTY),
            Some(CommandSpec::Argv(_) | CommandSpec::Line(_)) | None => None,
        };
        ensure(fault.is_none(), fault.unwrap_or_default())?;
        let Policy { recovery, scheduler, limits, .. } = self;
        ensure((0.0..=1.0).contains(&recovery.jitter), "recovery.jitter is a share between 0 and 1")?;
        ensure(recovery.max_attempts > 0, "recovery.max_attempts must be at least 1")?;
        let urgencies = SchedulingPolicy::MOST_URGENT..=SchedulingPolicy::LEAST_URGENT;
        let is_urgency = urgencies.contains(&scheduler.priority);
        ensure(is_urgency, "scheduler.priority is a number from -19, the most urgent, to 20")?;
        let (outcome, effects) = (limits.max_outcome, limits.max_effects);
        ensure(outcome <= MAX_OUTCOME, &format!("limits.max_outcome can't be more than {MAX_OUTCOME}"))?;
        ensure(effects <= MAX_EFFECTS, &format!("limits.max_effects can't be more than {MAX_EFFECTS}"))?;
        ensure(limits.max_drops_per_step > 0, "limits.max_drops_per_step must be at least 1")?;
        let is_amount = limits.cost_per_day.is_none_or(|limit| limit.is_finite() && limit >= 0.0);
        ensure(is_amount, "limits.cost_per_day can't be negative or infinite")?;
        let window = limits.dedupe_window;
        let outlasts = self.retention.archive.0.is_none_or(|kept| kept >= window);
        let fault = format!("retention.archive can't be less than limits.dedupe_window ({window})");
        ensure(outlasts, &fault)
    }
}
