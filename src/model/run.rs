//! Runs: each is one execution of the turn command.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Number;

use super::closure::Closure;
use super::continuation::Continuation;
use super::id::{AgentName, MessageId, RunId, WorkId};
use super::json::tagged;
use super::record::{Extra, record};
use super::time::Time;

names! {
    /// Kind of a turn's end (contract, semantics §6).
    "terminal kind" Terminal {
        Completed = "completed",
        Failed = "failed",
        TimedOut = "timed_out",
        Aborted = "aborted",
        Interrupted = "interrupted",
        Suspended = "suspended",
        Deferred = "deferred",
    }
}

impl Terminal {
    /// True if the turn failed. An aborted, suspended or deferred turn has not failed.
    pub const fn is_failure(self) -> bool {
        match self {
            Terminal::Failed | Terminal::TimedOut | Terminal::Interrupted => true,
            Terminal::Completed | Terminal::Aborted | Terminal::Suspended | Terminal::Deferred => false,
        }
    }
}

/// Usage that a turn reports.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Usage {
    #[serde(default, deserialize_with = "whole")]
    pub input_tokens: Option<u64>,
    #[serde(default, deserialize_with = "whole")]
    pub output_tokens: Option<u64>,
    pub cost_usd: Option<f64>,
    pub model: Option<String>,
}

/// Reads a count, which may be written as `12.0`.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked")]
fn whole<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let Some(number) = Option::<Number>::deserialize(deserializer)? else { return Ok(None) };
    let is_exact = |count: &f64| count.fract() == 0.0 && (0.0..=9_007_199_254_740_992.0).contains(count);
    let count = number.as_u64().or_else(|| number.as_f64().filter(is_exact).map(|count| count as u64));
    let kind = if number.is_f64() { "floating point" } else { "integer" };
    count.map(Some).ok_or_else(|| Error::custom(format!("invalid value: {kind} `{number}`, expected u64")))
}

tagged! {
    "how", [rename_all = "snake_case"]
    /// End of the process of a turn or task.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum Exit {
        Code {
            code: i32,
        },
        Signal {
            signal: i32,
        },
        /// The command could not be started.
        NotStarted {
            error: String,
        },
        /// No process saw the end, because the tick or the supervisor died.
        Unknown {},
    }
}

impl std::fmt::Display for Exit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Exit::Code { code } => write!(f, "exit status {code}"),
            Exit::Signal { signal } => write!(f, "signal {signal}"),
            Exit::NotStarted { error } => write!(f, "not started: {error}"),
            Exit::Unknown {} => write!(f, "unknown"),
        }
    }
}

/// Record of a settled run: one line of `archive/<yyyy-mm>/run.jsonl`. Until its settlement, a run
/// is in `state.json`.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Run {
    pub id: RunId,
    pub agent: AgentName,
    pub message_id: MessageId,
    pub work_item_id: Option<WorkId>,
    pub attempt: u32,
    pub started_at: Time,
    pub ended_at: Time,
    /// Wall time by a monotonic clock, in milliseconds; absent if no process saw the end.
    pub duration_ms: Option<u64>,
    pub terminal: Terminal,
    pub exit: Exit,
    pub reason: Option<String>,
    pub brief: Option<String>,
    pub usage: Option<Usage>,
    /// Repairs that made the outcome file readable.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    pub stdout_bytes: Option<u64>,
    pub stderr_bytes: Option<u64>,
    pub continuation: Continuation,
    pub closure: Option<Closure>,
    #[serde(flatten)]
    pub extra: Extra,
}

record! { Run of agent = "run" }

/// One line of `archive/<yyyy-mm>/brief.jsonl`: a turn's own summary.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Brief {
    pub run_id: RunId,
    pub message_id: MessageId,
    pub at: Time,
    pub text: String,
    #[serde(flatten)]
    pub extra: Extra,
}

record! { Brief = "brief" }
