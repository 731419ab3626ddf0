//! Page of `report`: HTML with SVG pictures of the turns of agents in a period.
//!
//! The page loads nothing from a network and has no script. The SVG `<title>` of a mark explains
//! the mark, and browsers show that title on hover; each picture also has a table. The template
//! escapes every text for HTML; text from outside is first escaped as for a terminal, so that no
//! invisible character changes the text.

mod chart;
mod lane;
mod page;

use indicatif::HumanCount;

use crate::model::id::{AgentName, MessageId, short_ids};
use crate::model::run::{Run, Terminal};
use crate::model::state::CurrentRun;
use crate::model::time::{Span, Time};
use crate::model::wait::Wait;

use super::list::ListRow;
use super::text::{escape_line, one_line};

pub use page::html;

/// Maximum length of a text from outside in the report, in columns.
const SAID: usize = 100;

/// Input of the HTML page that `report` makes.
pub struct FleetHistory {
    /// Parent directory of the state directory.
    pub home: String,
    pub since: Time,
    pub now: Time,
    pub agents: Vec<Activity>,
    /// Agents that can't be read, each with an error.
    pub unreadable: Vec<(AgentName, String)>,
}

/// Activity of one agent in the period, and its state at the end. All lists are oldest first.
pub struct Activity {
    pub line: ListRow,
    pub turns: Vec<ShownTurn>,
    pub waits: Vec<Wait>,
    pub stays: Vec<Stay>,
}

impl Activity {
    /// True if the agent had no turn, wait or message in the period.
    fn is_quiet(&self) -> bool {
        self.turns.is_empty() && self.waits.is_empty() && self.stays.is_empty()
    }

    fn needs_attention(&self) -> bool {
        self.line.needs_attention() || self.line.dead > 0 || self.line.rejected > 0
    }

    /// Returns the start of the first turn, wait or message of the agent in the period.
    fn first(&self) -> Option<Time> {
        let turn = self.turns.first().map(|turn| turn.started_at);
        let stay = self.stays.first().map(|stay| stay.arrived);
        self.waits.first().map(|wait| wait.created_at).into_iter().chain(turn).chain(stay).min()
    }
}

/// Turn as the report shows it.
pub struct ShownTurn {
    pub message_id: MessageId,
    pub started_at: Time,
    /// End of the turn; for a live turn, the time of the report.
    pub ended_at: Time,
    /// Result of the turn; `None` for a live turn.
    terminal: Option<Terminal>,
    attempt: u32,
    took: Span,
    /// Reason for the turn. `said` is the summary or error of the turn.
    why: String,
    said: String,
    tokens: u64,
    cost_usd: f64,
}

impl ShownTurn {
    pub fn live(run: &CurrentRun, now: Time) -> ShownTurn {
        ShownTurn {
            message_id: run.message_id,
            started_at: run.claimed_at,
            ended_at: now.max(run.claimed_at),
            terminal: None,
            attempt: run.attempt,
            took: now.since(run.claimed_at),
            why: in_words(run.continuation.trigger_kind.name()),
            said: String::new(),
            tokens: 0,
            cost_usd: 0.0,
        }
    }

    fn is_bad(&self) -> bool {
        self.terminal.is_some_and(Terminal::is_failure)
    }

    fn is_retry(&self) -> bool {
        self.attempt > 1
    }

    fn end(&self) -> String {
        let end = self.terminal.map_or_else(|| "running".to_owned(), |terminal| in_words(terminal.name()));
        if self.is_retry() { format!("{end}, attempt {}", self.attempt) } else { end }
    }
}

impl From<Run> for ShownTurn {
    fn from(run: Run) -> ShownTurn {
        let usage = run.usage.unwrap_or_default();
        let resumes =
            run.continuation.matched_waiting_reason.then_some(run.continuation.prior_waiting_reason);
        let answered = resumes.flatten().map(|reason| format!(", which answers {}", in_words(reason.name())));
        let said = run.reason.or(run.brief).unwrap_or_default();
        let kind = in_words(run.continuation.trigger_kind.name());
        let took = run.ended_at.since(run.started_at).as_millis();
        ShownTurn {
            message_id: run.message_id,
            started_at: run.started_at,
            ended_at: run.ended_at,
            terminal: Some(run.terminal),
            attempt: run.attempt,
            took: Span::from_millis(run.duration_ms.unwrap_or(took)),
            why: kind + &answered.unwrap_or_default(),
            said: shown(&said),
            tokens: usage.input_tokens.unwrap_or(0).saturating_add(usage.output_tokens.unwrap_or(0)),
            cost_usd: usage.cost_usd.unwrap_or(0.0).max(0.0),
        }
    }
}

/// Time that a message spent in the queue and in its turns.
pub struct Stay {
    pub arrived: Time,
    /// Time of the claim, or of a settlement without a claim.
    pub taken_up: Option<Time>,
    /// Time at which the message was settled; `None` if it is still open.
    pub left: Option<Time>,
}

impl Stay {
    /// Time from the arrival of the message to its claim, or to `now`.
    fn waited(&self, now: Time) -> Span {
        self.taken_up.unwrap_or(now).since(self.arrived)
    }
}

/// Returns a name such as `task_result` in words; "a message from you" for `operator_input`.
fn in_words(name: &str) -> String {
    if name == "operator_input" { "a message from you".to_owned() } else { name.replace('_', " ") }
}

/// Returns text from outside on one line of limited length, with invisible characters escaped.
fn shown(text: &str) -> String {
    shown_within(text, SAID)
}

fn shown_within(text: &str, columns: usize) -> String {
    escape_line(&one_line(&short_ids(text), columns)).into_owned()
}

/// Mapping from moments to horizontal positions.
#[derive(Debug, Clone, Copy)]
struct Scale {
    from: Time,
    until: Time,
}

impl Scale {
    /// Returns the distance of a moment from the left edge of a picture of `width` SVG units.
    fn x(self, at: Time, width: u64) -> u64 {
        let whole = self.until.since(self.from).as_millis().max(1);
        // The product can't overflow: a period of 10,000 years has fewer than 2^49 milliseconds.
        at.min(self.until).since(self.from).as_millis() * width / whole
    }
}

fn moment(at: Time) -> String {
    at.utc().format("%Y-%m-%d %H:%M:%S").to_string()
}

/// Formats a span in its largest one or two units.
pub fn span(span: Span) -> String {
    match span.as_millis() {
        millis @ 0..1000 => format!("{millis} ms"),
        millis @ 1000..10_000 => format!("{}.{} s", millis / 1000, millis / 100 % 10),
        _ => span.rough(),
    }
}

/// Formats a number with thin spaces between thousands.
fn number(number: u64) -> String {
    HumanCount(number).to_string().replace(',', "\u{2009}")
}
