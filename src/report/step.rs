//! Report of one step (contract, command line §3).

use serde::Serialize;

use crate::model::agent::Status;
use crate::model::attention::Attention;
use crate::model::closure::Closure;
use crate::model::decision::{DecisionKind, DecisionReport};
use crate::model::execution::ExecutionState;
use crate::model::id::{AgentName, RunId};
use crate::model::message::MessageKind;
use crate::model::posture::Posture;
use crate::model::resource::Deferred;
use crate::model::run::Terminal;
use crate::model::time::Time;

use super::output::{Output, Tone};
use super::text::one_line;

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Serialize)]
pub struct StepReport {
    pub agent: AgentName,
    #[serde(flatten)]
    pub decision: DecisionReport,
    pub model_reentry: bool,
    pub liveness_only: bool,
    pub closure: Option<Closure>,
    pub terminal: Option<Terminal>,
    pub terminal_reason: Option<String>,
    pub brief: Option<String>,
    pub attempt: Option<u32>,
    pub status: Status,
    pub execution_state: ExecutionState,
    pub posture: Option<Posture>,
    pub next_due_at: Option<Time>,
    /// Run that the step settled before its decision.
    pub recovered_run_id: Option<RunId>,
    /// Attentions that the step has raised.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub attention: Vec<Attention>,
    /// Error of a recovery or of a state's timeout. Errors of turns are in other fields.
    pub failure: Option<String>,
    /// Deferral of the held message, with its reason and end.
    pub deferred: Option<Deferred>,
    pub duration_ms: u64,
}

impl StepReport {
    /// True if the step changed anything.
    pub fn did_something(&self) -> bool {
        self.decision.decision.moves() || self.recovered_run_id.is_some()
    }

    /// True if a turn or a recovery failed, or a state exceeded its timeout.
    pub fn failed(&self) -> bool {
        self.failure.is_some() || self.turn_failed()
    }

    fn turn_failed(&self) -> bool {
        self.terminal.is_some_and(Terminal::is_failure)
    }
}

/// Returns the reason of a decision for people. The reason of a turn for a message is the message's
/// kind; `retry` is also the reason of a recovery after the last attempt.
pub fn reason_words(reason: &str) -> String {
    let is_name = reason.bytes().all(|byte| byte == b'_' || byte.is_ascii_lowercase());
    match (reason, reason.parse::<MessageKind>()) {
        ("retry", _) => "after a failure".to_owned(),
        ("no_pending_scheduler_facts", _) => "nothing to do".to_owned(),
        (_, Ok(kind)) => kind.words().to_owned(),
        (_, Err(_)) if is_name => reason.replace('_', " "),
        (_, Err(_)) => reason.to_owned(),
    }
}

pub fn text(step: &StepReport, out: &Output) -> String {
    let agent = out.paint(Tone::Strong, step.agent.as_str());
    let reason = reason_words(&step.decision.reason);
    let mut line = format!("{agent}  {} ({})", step.decision.decision, out.safe(&one_line(&reason, 200)));
    if step.decision.reason == "not_started" {
        line.push_str(&format!(": start it with `dormouse start {}`", step.agent));
    }
    if let Some(terminal) = step.terminal {
        let tone = if step.turn_failed() { Tone::Bad } else { Tone::Good };
        line.push_str(&format!(" → {}", out.paint(tone, terminal.name())));
        if let Some(attempt) = step.attempt.filter(|attempt| *attempt > 1) {
            line.push_str(&format!(", attempt {attempt}"));
        }
    }
    let shows = matches!(step.decision.decision, DecisionKind::WaitForResources | DecisionKind::Noop);
    if shows && !step.decision.evidence.is_empty() {
        line.push_str(&format!(": {}", out.safe(&one_line(&step.decision.evidence.join(", "), 200))));
    }
    if let Some(failure) = &step.failure {
        let failed = out.paint(Tone::Bad, "failed");
        line.push_str(&format!(" → {failed}: {}", out.safe(&one_line(failure, 200))));
    }
    if let Some(said) = step.brief.as_ref().or(step.terminal_reason.as_ref()) {
        line.push_str(&format!(": {}", out.safe(&one_line(said, 200))));
    }
    if step.terminal.is_none()
        && let Some(due) = step.next_due_at
    {
        line.push_str(&out.paint(Tone::Quiet, &format!("  next due {}", due.local())));
    }
    line
}
