//! Detail view of `watch`: one agent.

use ratatui::style::Style;
use ratatui::text::{Line as Row, Span as Piece};

use crate::model::event::Event;
use crate::model::message::Message;
use crate::model::state::State;
use crate::model::time::Time;
use crate::model::wait::Wait;
use crate::model::work::{WorkItem, WorkState};
use crate::report::list::ListRow;
use crate::report::output::Tone;
use crate::report::text::{relative, relative_change};
use crate::report::{log, summary};
use crate::rules::work::{WaitsByItem, scheduling_state};

use super::screen::{Paint, fit};

/// State and open records of one agent.
pub struct AgentDetail {
    pub line: ListRow,
    pub state: State,
    /// Message of the live run.
    pub current: Option<Message>,
    /// First messages of the queue.
    pub queue: Vec<Message>,
    pub waits: Vec<Wait>,
    pub work: Vec<WorkItem>,
    /// Events for which `log::words` has a sentence, newest first.
    pub events: Vec<Event>,
}

impl AgentDetail {
    /// Returns the next time at which the view changes without an event.
    pub fn next_change(&self, now: Time) -> Option<Time> {
        let ages = self.events.first().map(|event| event.at).into_iter().chain([self.state.execution.since]);
        ages.map(|at| relative_change(at, now)).chain(self.line.next_change(now)).min()
    }
}

/// Width of the field names, in columns.
const NAMES: usize = 11;

/// Maximum number of shown waits, and of work items.
const MOST: usize = 20;

/// Lines of the detail view, and the style and width for further lines.
struct DetailLines {
    rows: Vec<Row<'static>>,
    paint: Paint,
    width: usize,
}

impl DetailLines {
    fn field(&mut self, name: &str, value: &str, style: Style) {
        self.rows.push(Row::from(vec![
            Piece::styled(format!("{name:<NAMES$}"), self.paint.of(Tone::Quiet)),
            Piece::styled(fit(value, self.width.saturating_sub(NAMES)), style),
        ]));
    }

    /// Adds a titled part unless it would be empty. `more`: number of records without a line.
    fn part(&mut self, title: &str, lines: impl IntoIterator<Item = (String, Style)>, more: usize) {
        let more = (more > 0).then(|| (format!("and {more} more"), self.paint.of(Tone::Quiet)));
        let mut lines = lines.into_iter().chain(more).peekable();
        if lines.peek().is_none() {
            return;
        }
        self.rows.push(Row::raw(""));
        self.rows.push(Row::styled(fit(title, self.width), self.paint.of(Tone::Strong)));
        let width = self.width;
        self.rows.extend(lines.map(|(text, style)| Row::styled(fit(&text, width), style)));
    }
}

/// Renders the detail view of an agent for a screen of this size. `said`: output of the agent's
/// current or last turn.
pub(super) fn rows(
    seen: &AgentDetail,
    said: &[&str],
    now: Time,
    paint: Paint,
    (width, height): (usize, usize),
) -> Vec<Row<'static>> {
    let AgentDetail { line, state, current, queue, waits, work, events } = seen;
    let mut lines = DetailLines { rows: Vec::new(), paint, width };
    for (name, value, tone) in summary::rows(line, state, now) {
        lines.field(name, &value, paint.of(tone));
    }
    if let Some(since) = line.turn_since {
        let about = current.as_ref().map(|message| format!(": {}", message.body.to_text()));
        let text = format!("for {}{}", now.since(since).rough(), about.unwrap_or_default());
        lines.field("turn", &text, paint.of(Tone::Good));
    }
    let title = if state.current_run.is_some() { "Output of the turn" } else { "Output of the last turn" };
    let plain = |text: String| (text, Style::new());
    let some = (height / 3).max(4);
    let newest = said.iter().skip(said.len().saturating_sub(some));
    lines.part(title, newest.map(|text| plain((*text).to_owned())), 0);
    let unread = line.pending.saturating_sub(queue.len());
    lines.part(&format!("Queue: {}", line.pending), queue.iter().map(|one| plain(message(one))), unread);
    let active: Vec<&Wait> = waits.iter().filter(|wait| wait.is_active()).collect();
    let shown = active.iter().take(MOST).map(|wait| plain(self::wait(wait, now)));
    lines.part(&format!("Waits: {}", active.len()), shown, 0);
    let open: Vec<&WorkItem> = work.iter().filter(|item| item.state == WorkState::Open).collect();
    let on_items = WaitsByItem::of(waits);
    let described = |item: &&WorkItem| format!("{}: {}", scheduling_state(item, &on_items), item.objective);
    let shown = open.iter().take(MOST).map(|item| plain(described(item)));
    lines.part(&format!("Work: {}", open.len()), shown, 0);
    lines.part("Last events", events.iter().filter_map(|one| event(one, now, paint)), 0);
    lines.rows
}

fn message(message: &Message) -> String {
    let attempt = if message.attempt > 1 { format!(", attempt {}", message.attempt) } else { String::new() };
    let Message { priority, kind, origin, body, .. } = message;
    format!("{priority}{attempt}  {kind} from {origin}: {}", body.to_text())
}

fn wait(wait: &Wait, now: Time) -> String {
    let about = wait.resource.as_ref().map(|resource| format!(" ({resource})")).unwrap_or_default();
    let until = wait.expires_at.or(wait.wake_at).map(|at| format!(", ends {}", relative(at, now)));
    let age = now.since(wait.created_at).rough();
    format!("{} for {age}{}{about}: {}", wait.kind, until.unwrap_or_default(), wait.reason)
}

fn event(event: &Event, now: Time, paint: Paint) -> Option<(String, Style)> {
    let (words, tone) = log::words(event)?;
    Some((format!("{:<11}  {words}", relative(event.at, now)), paint.of(tone)))
}
