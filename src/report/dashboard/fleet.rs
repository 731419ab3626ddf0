//! Overview of `watch`: one row for each agent.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line as Row, Span as Piece};
use ratatui::widgets::{Cell, Row as Cells, Table};

use crate::model::attention::Attention;
use crate::model::id::AgentName;
use crate::model::posture::Posture;
use crate::model::time::Time;
use crate::report::text::{count, relative};

use super::agents::{AgentRow, Counts, Fleet};
use super::screen::{Paint, draw_note, fit, note_height};

/// Number of lines around the rows: title, column names, and last line.
const FRAME_LINES: u16 = 3;

/// Number of agent rows on a screen of this height.
pub fn visible_rows(height: u16) -> usize {
    usize::from(height.saturating_sub(FRAME_LINES + note_height(height))).max(1)
}

/// Column of the overview.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Column {
    Mark,
    Agent,
    Posture,
    Queue,
    Turn,
    Last,
    Due,
    Note,
}

impl Column {
    /// Title of the column, and its fixed width; `None` if the column shares the remaining width.
    const fn layout(self) -> (&'static str, Option<usize>) {
        match self {
            Column::Mark => ("", Some(1)),
            Column::Agent => ("AGENT", None),
            Column::Posture => ("POSTURE", Some(20)),
            Column::Queue => ("QUEUE", Some(5)),
            Column::Turn => ("TURN", Some(6)),
            Column::Last => ("LAST TURN", Some(11)),
            Column::Due => ("DUE", Some(11)),
            Column::Note => ("NOTE", None),
        }
    }

    /// Returns the columns that fit on a screen of this width.
    fn of(width: usize) -> &'static [Column] {
        use Column::*;
        match width {
            ..50 => &[Mark, Agent, Posture],
            50..74 => &[Mark, Agent, Posture, Queue, Turn],
            74..100 => &[Mark, Agent, Posture, Queue, Turn, Last, Due],
            100.. => &[Mark, Agent, Posture, Queue, Turn, Last, Due, Note],
        }
    }
}

/// Returns the width of each column. `longest`: width of the longest agent name.
fn widths(columns: &[Column], width: usize, longest: usize) -> Vec<usize> {
    let fixed: usize = columns.iter().filter_map(|column| column.layout().1).sum();
    let left = width.saturating_sub(fixed + columns.len() - 1);
    // The agent column takes at most two thirds, so that the note has a third.
    let most = if columns.contains(&Column::Note) { left * 2 / 3 } else { left };
    let agent = longest.max("AGENT".len()).min(most);
    let of = |column: &Column| match column.layout().1 {
        Some(width) => width,
        None if *column == Column::Agent => agent,
        None => left - agent,
    };
    columns.iter().map(of).collect()
}

/// Draws the overview. Returns the number of agents above the first row.
pub(super) fn draw(
    frame: &mut Frame<'_>,
    (head, body): (Rect, Rect),
    (fleet, above, chosen): (&Fleet, usize, usize),
    now: Time,
    paint: Paint,
) -> usize {
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
        frame.render_widget(Row::styled(fit(nothing, width), paint.quiet()), table);
        return 0;
    }
    let columns = Column::of(width);
    let longest = rows.iter().map(|(name, _)| name.as_str().len()).max().unwrap_or(0);
    let widths = widths(columns, width, longest.max(12));
    let header = Cells::new(columns.iter().map(|column| column.layout().0)).style(paint.quiet());
    let lines = rows.iter().enumerate().map(|(at, (name, known))| {
        let is_plain = above + at == chosen;
        let paint = Paint { is_plain, ..paint };
        let columns = columns.iter().zip(&widths);
        let cells = columns.map(|(column, width)| {
            let (text, style) = cell(*column, name, known, now, paint);
            let is_outside = matches!(column, Column::Agent | Column::Note);
            Cell::new(Piece::styled(if is_outside { fit(&text, *width) } else { text }, style))
        });
        let style = if is_plain { Style::new().add_modifier(Modifier::REVERSED) } else { Style::new() };
        Cells::new(cells).style(style)
    });
    let widths = widths.iter().map(|width| Constraint::Length(u16::try_from(*width).unwrap_or(u16::MAX)));
    frame.render_widget(Table::new(lines, widths).header(header).column_spacing(1), table);
    if rows.len() < of {
        // The range of shown agents is in the head line if it fits, else above the last column.
        let place_row = if has_room { head } else { Rect { height: 1, ..table } };
        frame.render_widget(Row::styled(place, paint.quiet()).right_aligned(), place_row);
    }
    if let Some((_, known)) = fleet.from(chosen).next() {
        let style = if known.needs_attention() { paint.bad() } else { paint.quiet() };
        draw_note(frame, note, &words(known, now), style);
    }
    above
}

fn head_row(counts: &Counts, filter: &str, paint: Paint, width: usize) -> Row<'static> {
    let Counts { agents, unread, at_work, pending, to_look_at } = counts;
    let mut pieces = vec![Piece::styled(count(*agents as u64, "agent", "agents"), paint.head())];
    let at_work_style = if *at_work > 0 { paint.live() } else { Style::new() };
    pieces.push(Piece::styled(format!("  {at_work} at work"), at_work_style));
    let wrong = if *to_look_at > 0 { paint.bad() } else { Style::new() };
    pieces.push(Piece::styled(format!("  {to_look_at} to look at"), wrong));
    if width >= 60 {
        pieces.push(Piece::raw(format!("  {}", count(*pending as u64, "message", "messages"))));
    }
    if *unread > 0 {
        pieces.push(Piece::styled(format!("  {unread} not read yet"), paint.quiet()));
    }
    if !filter.is_empty() {
        pieces.push(Piece::styled(fit(&format!("  with: {filter}"), width / 3), paint.late()));
    }
    Row::from(pieces)
}

/// Returns the style of a cell, and its text, which is unescaped and of any width.
fn cell(column: Column, name: &AgentName, known: &AgentRow, now: Time, paint: Paint) -> (String, Style) {
    let wrong = known.needs_attention();
    let plain = Style::new();
    let moment = |at: Option<Time>| at.map(|at| relative(at, now)).unwrap_or_default();
    match (column, known) {
        (Column::Mark, _) => (if wrong { "!" } else { "" }.to_owned(), paint.bad()),
        (Column::Agent, _) => (name.to_string(), if wrong { paint.bad() } else { plain }),
        (Column::Note, known) => (words(known, now), if wrong { paint.bad() } else { paint.quiet() }),
        (Column::Posture, AgentRow::Unread) => ("…".to_owned(), paint.quiet()),
        (Column::Posture, AgentRow::Broken(_)) => ("can't be read".to_owned(), paint.bad()),
        (_, AgentRow::Unread | AgentRow::Broken(_)) => (String::new(), plain),
        (Column::Posture, AgentRow::Read(line)) => {
            (line.posture.words().to_owned(), posture_style(line.posture, paint))
        }
        (Column::Queue, AgentRow::Read(line)) => {
            (if line.pending > 0 { line.pending.to_string() } else { String::new() }, plain)
        }
        (Column::Turn, AgentRow::Read(line)) => {
            (line.turn_since.map(|since| now.since(since).rough()).unwrap_or_default(), paint.live())
        }
        (Column::Last, AgentRow::Read(line)) => (moment(line.last_turn_at), plain),
        (Column::Due, AgentRow::Read(line)) => {
            let is_late = line.due.is_some_and(|at| at <= now);
            (moment(line.due.map(|at| at.max(now))), if is_late { paint.late() } else { plain })
        }
    }
}

fn posture_style(posture: Posture, paint: Paint) -> Style {
    match posture {
        Posture::ActiveTurn => paint.live(),
        Posture::Archived | Posture::Idle => paint.quiet(),
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
