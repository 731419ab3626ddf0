//! Screen contents of `watch`.

mod agents;
mod detail;
mod fleet;
mod screen;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line as Row, Text};
use ratatui::widgets::Paragraph;

use crate::model::id::AgentName;
use crate::model::time::Time;
use crate::report::output::Tone;

pub use agents::{AgentRow, Fleet};
pub use detail::AgentDetail;
pub use fleet::visible_rows;
use screen::{Paint, draw_note, fit, note_height};

/// Minimum size of the screen, in columns and rows.
const LEAST: (u16, u16) = (20, 5);

/// Contents of the screen.
pub struct ScreenContents<'a> {
    pub now: Time,
    pub colored: bool,
    /// Error because of which the shown state is outdated.
    pub trouble: Option<&'a str>,
    pub view: ScreenView<'a>,
    /// Text of the last line. Without a text the line names the keys.
    pub foot: Option<String>,
    /// True if the last line waits for the user's answer, or for more letters of a search text.
    pub is_asking: bool,
}

pub enum ScreenView<'a> {
    Fleet {
        fleet: &'a Fleet,
        /// Number of shown agents above the first row.
        above: usize,
        /// Index of the selected agent among the shown agents.
        chosen: usize,
    },
    One {
        name: &'a AgentName,
        /// State of the agent, or the reason for which the state can't be read.
        seen: Result<&'a AgentDetail, &'a str>,
        /// Lines of output of the agent's current or last turn.
        said: Vec<&'a str>,
        /// Number of lines above the top of the view.
        from: usize,
    },
}

/// Draws the screen. Returns the number of lines above the top of the detail view, limited to the
/// existing lines.
pub fn draw(frame: &mut Frame<'_>, shown: &ScreenContents<'_>) -> usize {
    let paint = Paint { colored: shown.colored };
    let area = frame.area();
    if area.width < LEAST.0 || area.height < LEAST.1 {
        frame.render_widget(Paragraph::new("too small"), area);
        return 0;
    }
    let [head, body, foot] =
        Layout::vertical([Constraint::Length(1), Constraint::Fill(1), Constraint::Length(1)]).areas(area);
    let width = usize::from(area.width);
    let above = match &shown.view {
        ScreenView::Fleet { fleet, above, chosen } => {
            fleet::draw(frame, (head, body), (fleet, *above, *chosen), shown.now, paint);
            0
        }
        ScreenView::One { name, seen, said, from } => {
            let question = seen.ok().and_then(|seen| seen.line.questions().next());
            let room = question.map_or(0, |_| note_height(area.height));
            let [body, note] = Layout::vertical([Constraint::Fill(1), Constraint::Length(room)]).areas(body);
            let rows = match seen {
                Ok(seen) => detail::rows(seen, said, shown.now, paint, (width, body.height.into())),
                Err(why) => vec![Row::styled(fit(why, width), paint.of(Tone::Bad))],
            };
            frame.render_widget(Row::styled(fit(name.as_str(), width), paint.of(Tone::Strong)), head);
            if let Some(question) = question {
                draw_note(frame, note, &question.to_string(), paint.of(Tone::Bad));
            }
            scrolled(frame, body, rows, *from)
        }
    };
    if let Some(trouble) = shown.trouble {
        let text = format!("{:<width$}", fit(trouble, width));
        frame.render_widget(Row::styled(text, paint.of(Tone::Bad)), head);
    }
    frame.render_widget(foot_row(shown, paint, width), foot);
    above
}

/// Draws lines from the offset `from`, limited so that the screen is filled. Returns the offset.
fn scrolled(frame: &mut Frame<'_>, area: Rect, rows: Vec<Row<'_>>, from: usize) -> usize {
    let from = from.min(rows.len().saturating_sub(usize::from(area.height)));
    let rows = rows.into_iter().skip(from).take(usize::from(area.height));
    frame.render_widget(Text::from_iter(rows), area);
    from
}

/// Key hints in the last line of the overview and of the detail view, as many as fit.
const OF_FLEET: &[&str] = &["q quit", "Enter", "/ find"];
const OF_ONE: &[&str] = &["q quit", "Esc back"];
/// Key hints of both views, which follow the hints of the shown view.
const ACTS: &[&str] = &["t tick", "s start", "S stop", "p preempt", "r recover", "R requeue"];

fn foot_row(shown: &ScreenContents<'_>, paint: Paint, width: usize) -> Row<'static> {
    let keys = match &shown.view {
        ScreenView::Fleet { .. } => OF_FLEET,
        ScreenView::One { .. } => OF_ONE,
    };
    match &shown.foot {
        Some(question) if shown.is_asking => Row::styled(fit(question, width), paint.of(Tone::Strong)),
        Some(message) => Row::raw(fit(message, width)),
        None => {
            let hints: Vec<&str> = keys.iter().chain(ACTS).copied().collect();
            let fitting = (0..=hints.len()).rev().map(|count| hints[..count].join("  "));
            let text = fitting.into_iter().find(|text| text.len() <= width).unwrap_or_default();
            Row::styled(text, paint.of(Tone::Quiet))
        }
    }
}
