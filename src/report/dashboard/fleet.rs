//! Overview of `watch`: one row for each agent.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line as Row, Span as Piece};
use ratatui::widgets::{Row as Cells, Table, TableState};

use crate::model::attention::Attention;
use crate::model::id::AgentName;
use crate::model::posture::Posture;
use crate::model::time::Time;
use crate::report::output::Tone;
use crate::report::text::{count, relative};

use super::agents::{AgentRow, Counts, Fleet};
use super::screen::{Paint, draw_note, fit, note_height};

/// Number of lines around the rows: title, column names, and last line.
const FRAME_LINES: u16 = 3;

/// Number of agent rows on a screen of this height.
pub fn visible_rows(height: u16) -> usize {
    usize::from(height.saturating_sub(FRAME_LINES + note_height(height))).max(1)
}

/// Titles of the columns, most important first, each with its fixed width; `None` for the columns
/// that share the remaining width: agent and note.
const COLUMNS: [(&str, Option<usize>); 8] = [
    ("", Some(1)),
    ("AGENT", None),
    ("POSTURE", Some(20)),
    ("QUEUE", Some(5)),
    ("TURN", Some(6)),
    ("LAST TURN", Some(11)),
    ("DUE", Some(11)),
    ("NOTE", None),
];

/// Minimum width of the agent column if the screen is wide enough, in columns of the screen.
const NAME: usize = 12;

/// Returns the columns that fit on a screen of this width.
fn fitting(width: usize) -> &'static [(&'static str, Option<usize>)] {
    match width {
        ..50 => &COLUMNS[..3],
        50..74 => &COLUMNS[..5],
        74..100 => &COLUMNS[..7],
        100.. => &COLUMNS,
    }
}

/// Draws the overview.
pub(super) fn draw(
    frame: &mut Frame<'_>,
    (head, body): (Rect, Rect),
    (fleet, above, chosen): (&Fleet, usize, usize),
    now: Time,
    paint: Paint,
) {
    let (filter, of) = (fleet.filter(), fleet.len());
    let rows: Vec<_> = fleet.from(above).take(visible_rows(frame.area().height)).collect();
    let width = usize::from(head.width);
    let row = head_row(&fleet.counts(), filter, paint, width);
    let place = format!("{}-{} of {of}", above + 1, above + rows.len());
    let has_room = row.width() + place.len() + 2 <= width;
    frame.render_widget(row, head);
    let room = note_height(frame.area().height);
    let [table, note] = Layout::vertical([Constraint::Fill(1), Constraint::Length(room)]).areas(body);
    if rows.is_empty() {
        let nothing = if filter.is_empty() {
            "no agents yet: dormouse create NAME --template script"
        } else {
            "no agent like that: Esc shows all"
        };
        frame.render_widget(Row::styled(fit(nothing, width), paint.of(Tone::Quiet)), table);
        return;
    }
    let columns = fitting(width);
    let fixed: usize = columns.iter().filter_map(|(_, width)| *width).sum();
    let left = width.saturating_sub(fixed + columns.len() - 1);
    // The agent column takes at most two thirds, so that the note has a third.
    let most = if columns.len() == COLUMNS.len() { left * 2 / 3 } else { left };
    let longest = rows.iter().map(|(name, _)| name.as_str().len()).max().unwrap_or(0);
    let agent = longest.max(NAME).min(most);
    let mut shared = [agent, left - agent].into_iter();
    let widths = columns.iter().filter_map(|(_, width)| width.or_else(|| shared.next()));
    let widths = widths.map(|width| Constraint::Length(u16::try_from(width).unwrap_or(u16::MAX)));
    let header = columns.iter().map(|(title, _)| *title).collect::<Cells>().style(paint.of(Tone::Quiet));
    let lines = rows.iter().map(|(name, known)| {
        let cells = cells(name, known, (agent, left - agent), now, paint).into_iter();
        cells.take(columns.len()).map(|(text, style)| Piece::styled(text, style)).collect::<Cells>()
    });
    let lines = Table::new(lines, widths).header(header).column_spacing(1);
    let lines = lines.row_highlight_style(Style::reset().reversed());
    let mut selected = TableState::new().with_selected(chosen.checked_sub(above));
    frame.render_stateful_widget(lines, table, &mut selected);
    if rows.len() < of {
        // The range of shown agents is in the head line if it fits, else above the last column.
        let place_row = if has_room { head } else { Rect { height: 1, ..table } };
        frame.render_widget(Row::styled(place, paint.of(Tone::Quiet)).right_aligned(), place_row);
    }
    if let Some((_, known)) = fleet.from(chosen).next() {
        let style = if known.needs_attention() { paint.of(Tone::Bad) } else { paint.of(Tone::Quiet) };
        draw_note(frame, note, &words(known, now), style);
    }
}

fn head_row(counts: &Counts, filter: &str, paint: Paint, width: usize) -> Row<'static> {
    let Counts { agents, unread, at_work, pending, to_look_at } = counts;
    let mut pieces = vec![Piece::styled(count(*agents as u64, "agent", "agents"), paint.of(Tone::Strong))];
    let at_work_style = if *at_work > 0 { paint.of(Tone::Good) } else { Style::new() };
    pieces.push(Piece::styled(format!("  {at_work} at work"), at_work_style));
    let wrong = if *to_look_at > 0 { paint.of(Tone::Bad) } else { Style::new() };
    pieces.push(Piece::styled(format!("  {to_look_at} to look at"), wrong));
    if width >= 60 {
        pieces.push(Piece::raw(format!("  {}", count(*pending as u64, "message", "messages"))));
    }
    if *unread > 0 {
        pieces.push(Piece::styled(format!("  {unread} not read yet"), paint.of(Tone::Quiet)));
    }
    if !filter.is_empty() {
        pieces.push(Piece::styled(fit(&format!("  with: {filter}"), width / 3), paint.late()));
    }
    Row::from(pieces)
}

/// Returns the text and the style of each column. `agent` and `note` are the widths of the columns
/// with text from outside, to which it is cut.
fn cells(
    name: &AgentName,
    known: &AgentRow,
    (agent, note): (usize, usize),
    now: Time,
    paint: Paint,
) -> Vec<(String, Style)> {
    let is_wrong = known.needs_attention();
    let or_bad = |tone: Option<Tone>| paint.of(if is_wrong { Some(Tone::Bad) } else { tone });
    let moment = |at: Option<Time>| at.map(|at| relative(at, now)).unwrap_or_default();
    let mark = if is_wrong { "!" } else { "" };
    let mut cells = vec![(mark.to_owned(), or_bad(None)), (fit(name.as_str(), agent), or_bad(None))];
    match known {
        AgentRow::Unread => cells.push(("…".to_owned(), paint.of(Tone::Quiet))),
        AgentRow::Broken(_) => cells.push(("can't be read".to_owned(), paint.of(Tone::Bad))),
        AgentRow::Read(line) => {
            let pending = if line.pending > 0 { line.pending.to_string() } else { String::new() };
            let lasted = line.turn_since.map(|since| now.since(since).rough()).unwrap_or_default();
            let is_late = line.due.is_some_and(|at| at <= now);
            cells.extend([
                (line.posture.words().to_owned(), posture_style(line.posture, paint)),
                (pending, Style::new()),
                (lasted, paint.of(Tone::Good)),
                (moment(line.last_turn_at), Style::new()),
                (moment(line.due.map(|at| at.max(now))), if is_late { paint.late() } else { Style::new() }),
            ]);
        }
    }
    cells.resize_with(COLUMNS.len() - 1, Default::default);
    cells.push((fit(&words(known, now), note), or_bad(Some(Tone::Quiet))));
    cells
}

fn posture_style(posture: Posture, paint: Paint) -> Style {
    match posture {
        Posture::ActiveTurn => paint.of(Tone::Good),
        Posture::Archived | Posture::Idle => paint.of(Tone::Quiet),
        Posture::HasQueuedInput
        | Posture::HasRunnableWork
        | Posture::WaitingForTask
        | Posture::WaitingForExternal
        | Posture::WaitingForOperator
        | Posture::Blocked => Style::new(),
    }
}

fn words(known: &AgentRow, now: Time) -> String {
    match known {
        AgentRow::Unread => String::new(),
        AgentRow::Read(line) => line.questions().next().map_or_else(|| line.words(now), Attention::to_string),
        AgentRow::Broken(why) => why.clone(),
    }
}
