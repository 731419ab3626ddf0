//! `report`: what agents have done in a period, as one HTML page with pictures in SVG.
//!
//! The page asks nothing of a network and has no script: what a mark means stands in its `<title>`,
//! which browsers show when it is pointed at, and beside each picture stands a table. Every text
//! goes into it through the escaping of the template, and text from outside through that of
//! terminals before, so that nothing invisible changes how it is read.

mod chart;
mod page;
mod strip;

use crate::model::id::{AgentName, MessageId};
use crate::model::run::{Run, Terminal};
use crate::model::state::CurrentRun;
use crate::model::time::{Span, Time};
use crate::model::wait::{Wait, WaitKind, WaitStatus};

use super::list::Line;
use super::text::{escape_line, one_line};

pub use page::html;

/// How much of a text from outside stands in the page, in columns.
const SAID: usize = 100;

/// What is reported.
pub struct Chronicle {
    /// The directory that holds the state directory.
    pub home: String,
    pub since: Time,
    pub now: Time,
    pub agents: Vec<Doings>,
    /// Agents that can't be read, and why.
    pub unreadable: Vec<(AgentName, String)>,
}

/// What one agent has done in the period, and how it stands at its end. All lists are in order of
/// their beginning.
pub struct Doings {
    pub line: Line,
    pub turns: Vec<Turn>,
    pub pauses: Vec<Pause>,
    pub stays: Vec<Stay>,
}

impl Doings {
    /// Whether nothing of it is in the period.
    fn is_quiet(&self) -> bool {
        self.turns.is_empty() && self.pauses.is_empty() && self.stays.is_empty()
    }

    fn needs_attention(&self) -> bool {
        self.line.needs_attention() || self.line.dead > 0 || self.line.rejected > 0
    }

    /// The first moment of the period at which anything of it is known.
    fn first(&self) -> Option<Time> {
        let turn = self.turns.first().map(|turn| turn.started_at);
        let pause = self.pauses.first().map(|pause| pause.since);
        let stay = self.stays.first().map(|stay| stay.arrived);
        turn.into_iter().chain(pause).chain(stay).min()
    }
}

/// How a turn came out, as far as the pictures tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Good,
    Bad,
    /// Stopped, suspended, put off: no turn that failed.
    Cut,
    Live,
}

/// A turn.
pub struct Turn {
    pub message_id: MessageId,
    pub started_at: Time,
    /// Of a live one: now.
    pub ended_at: Time,
    /// Absent while it is live.
    terminal: Option<Terminal>,
    attempt: u32,
    took: Span,
    /// Why it ran, and what came of it.
    why: String,
    said: String,
    tokens: u64,
    cost_usd: f64,
}

impl Turn {
    pub fn live(run: &CurrentRun, now: Time) -> Turn {
        Turn {
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

    fn kind(&self) -> Kind {
        match self.terminal {
            None => Kind::Live,
            Some(Terminal::Completed) => Kind::Good,
            Some(Terminal::Failed | Terminal::TimedOut | Terminal::Interrupted) => Kind::Bad,
            Some(Terminal::Aborted | Terminal::Suspended | Terminal::Deferred) => Kind::Cut,
        }
    }

    fn is_bad(&self) -> bool {
        self.kind() == Kind::Bad
    }

    fn is_retry(&self) -> bool {
        self.attempt > 1
    }

    /// What came of it, in a word or two.
    fn end(&self) -> String {
        let end = self.terminal.map_or_else(|| "running".to_owned(), |terminal| in_words(terminal.name()));
        if self.is_retry() { format!("{end}, attempt {}", self.attempt) } else { end }
    }
}

impl From<Run> for Turn {
    fn from(run: Run) -> Turn {
        let usage = run.usage.unwrap_or_default();
        let resumes =
            run.continuation.matched_waiting_reason.then_some(run.continuation.prior_waiting_reason);
        let answered = resumes.flatten().map(|reason| format!(", which answers {}", in_words(reason.name())));
        let said = run.reason.or(run.brief).unwrap_or_default();
        Turn {
            message_id: run.message_id,
            started_at: run.started_at,
            ended_at: run.ended_at,
            terminal: Some(run.terminal),
            attempt: run.attempt,
            took: Span::from_millis(
                run.duration_ms.unwrap_or_else(|| run.ended_at.since(run.started_at).as_millis()),
            ),
            why: format!(
                "{}{}",
                in_words(run.continuation.trigger_kind.name()),
                answered.unwrap_or_default()
            ),
            said: shown(&said),
            tokens: usage.input_tokens.unwrap_or(0).saturating_add(usage.output_tokens.unwrap_or(0)),
            cost_usd: usage.cost_usd.unwrap_or(0.0).max(0.0),
        }
    }
}

/// A wait.
pub struct Pause {
    pub since: Time,
    /// Of an active one: now.
    pub until: Time,
    kind: WaitKind,
    status: WaitStatus,
    reason: String,
}

impl Pause {
    pub fn new(wait: Wait, now: Time) -> Pause {
        Pause {
            since: wait.created_at,
            until: wait.ended_at.unwrap_or(now).max(wait.created_at),
            kind: wait.kind,
            status: wait.status,
            reason: shown(&wait.reason),
        }
    }
}

/// The time of a message in the queue.
pub struct Stay {
    pub arrived: Time,
    /// When a turn began with it, or it ended without one.
    pub taken_up: Option<Time>,
    /// When it ended.
    pub left: Option<Time>,
}

impl Stay {
    /// How long it has waited for its turn.
    fn waited(&self, now: Time) -> Span {
        self.taken_up.unwrap_or(now).since(self.arrived)
    }
}

/// A word of the contract as people write it.
fn in_words(name: &str) -> String {
    name.replace('_', " ")
}

/// Text from outside, on one line and of a bounded length, in which nothing is invisible.
fn shown(text: &str) -> String {
    shown_within(text, SAID)
}

fn shown_within(text: &str, columns: usize) -> String {
    escape_line(&one_line(text, columns)).into_owned()
}

/// Where a moment is between two others.
#[derive(Debug, Clone, Copy)]
struct Scale {
    from: Time,
    until: Time,
}

impl Scale {
    /// How far from the left a moment is, if the whole is as wide as `width`.
    fn x(self, at: Time, width: u64) -> u64 {
        let whole = self.until.since(self.from).as_millis().max(1);
        let part = at.min(self.until).since(self.from).as_millis();
        u64::try_from(u128::from(part) * u128::from(width) / u128::from(whole)).unwrap_or(width)
    }
}

/// A moment to the second.
fn moment(at: Time) -> String {
    at.utc().format("%Y-%m-%d %H:%M:%S").to_string()
}

/// A span in its largest one or two units.
fn span(span: Span) -> String {
    match span.as_millis() {
        millis @ 0..1000 => format!("{millis} ms"),
        millis @ 1000..10_000 => format!("{}.{} s", millis / 1000, millis / 100 % 10),
        _ => super::text::span(span),
    }
}

/// A large number with its thousands apart.
fn number(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push('\u{2009}');
        }
        text.push(digit);
    }
    text
}
