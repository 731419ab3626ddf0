//! Runs: each is one execution of the turn command.

use serde::{Deserialize, Serialize};

use super::closure::Closure;
use super::continuation::Continuation;
use super::id::{AgentName, MessageId, RunId, WorkId};
use super::record::{Extra, Record};
use super::time::Time;

names! {
    /// How a turn ended (contract, semantics §6).
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

/// What a turn says it used.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Usage {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_tokens: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_tokens: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

/// How the process of a turn ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "how", rename_all = "snake_case")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum Exit {
    Code {
        code: i32,
    },
    Signal {
        signal: i32,
    },
    /// The command could not be started at all.
    NotStarted {
        error: String,
    },
    /// Its tick is gone, and no other process saw the end.
    Unknown,
}

impl std::fmt::Display for Exit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Exit::Code { code } => write!(f, "exit status {code}"),
            Exit::Signal { signal } => write!(f, "signal {signal}"),
            Exit::NotStarted { error } => write!(f, "not started: {error}"),
            Exit::Unknown => write!(f, "unknown"),
        }
    }
}

/// One line of `archive/<yyyy-mm>/run.jsonl`: written when the run is settled. A live run is in `state.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Run {
    pub id: RunId,
    pub agent: AgentName,
    pub message_id: MessageId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work_item_id: Option<WorkId>,
    pub attempt: u32,
    pub started_at: Time,
    pub ended_at: Time,
    /// Wall time, measured with a clock that can't jump; absent if no process saw the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    pub terminal: Terminal,
    pub exit: Exit,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub brief: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdout_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr_bytes: Option<u64>,
    pub continuation: Continuation,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closure: Option<Closure>,
    #[serde(flatten)]
    pub extra: Extra,
}

impl Record for Run {
    const KIND: &'static str = "run";
    fn extra_mut(&mut self) -> &mut Extra {
        &mut self.extra
    }
}

/// One line of `archive/<yyyy-mm>/brief.jsonl`: what a turn said of itself.
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

impl Record for Brief {
    const KIND: &'static str = "brief";
    fn extra_mut(&mut self) -> &mut Extra {
        &mut self.extra
    }
}
