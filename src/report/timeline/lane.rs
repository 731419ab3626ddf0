//! Timeline of one agent: turns, retries and waits.
//!
//! Turns that begin in one column are drawn as one mark, which limits the size of a timeline.

use serde_json::{Value, json};

use super::{Scale, ShownTurn, in_words, moment, shown, span};
use crate::model::run::Terminal;
use crate::model::time::Time;
use crate::model::wait::Wait;
use crate::report::text::count;

/// Width of a timeline in SVG units; the height is 26. The template has the same numbers.
pub const WIDTH: u64 = 2000;

/// Maximum number of marks (turns or waits as drawn) in one report. Each takes about 200 bytes.
const MARKS: usize = 9000;

/// Possible numbers of columns of a timeline, largest first.
const COLUMNS: [u64; 9] = [250, 125, 100, 80, 50, 40, 25, 20, 10];

/// Minimum width of a drawn turn or wait in SVG units, so that a short one is visible.
const LEAST: u64 = WIDTH / COLUMNS[0];

/// Returns a rectangle as an SVG path with a CSS class.
fn shape(class: &str, x: u64, width: u64, top: u64, bottom: u64) -> Value {
    json!({ "class": class, "path": format!("M{x} {top}h{width}V{bottom}H{x}z") })
}

/// Returns the largest number of columns with which all timelines have at most `MARKS` marks, or 1.
pub fn columns<'a>(all: impl Iterator<Item = (&'a [ShownTurn], &'a [Wait])> + Clone, scale: Scale) -> u64 {
    let marks = |columns: u64| {
        let of_one = |(turns, waits): (&[ShownTurn], &[Wait])| {
            groups(turns, |turn| turn.started_at, scale, columns).len()
                + groups(waits, |wait| wait.created_at, scale, columns).len()
        };
        all.clone().map(of_one).sum::<usize>()
    };
    COLUMNS.into_iter().find(|columns| marks(*columns) <= MARKS).unwrap_or(1)
}

/// Groups turns or waits that start in one column, from left to right.
fn groups<T>(all: &[T], begin: impl Fn(&T) -> Time, scale: Scale, columns: u64) -> Vec<&[T]> {
    all.chunk_by(|one, next| scale.x(begin(one), columns) == scale.x(begin(next), columns)).collect()
}

/// Returns the marks of an agent, waits first. Each mark is a group of rectangles with a tooltip.
pub fn marks(turns: &[ShownTurn], waits: &[Wait], scale: Scale, columns: u64) -> Vec<Value> {
    let left = |at| scale.x(at, WIDTH).min(WIDTH - LEAST);
    let wide = |x: u64, until| scale.x(until, WIDTH).saturating_sub(x).max(LEAST);
    let waits = groups(waits, |wait| wait.created_at, scale, columns).into_iter().filter_map(|group| {
        let first = group.first()?;
        let until = group.iter().map(|wait| end_of(wait, scale)).max()?;
        let x = left(first.created_at);
        let shapes = [shape("w", x, wide(x, until), 22, 26)];
        Some(json!({ "shapes": shapes, "title": of_waits(group, first, scale) }))
    });
    let turns = groups(turns, |turn| turn.started_at, scale, columns).into_iter().filter_map(|group| {
        let first = group.first()?;
        let until = group.iter().map(|turn| turn.ended_at).max()?;
        let x = left(first.started_at);
        Some(json!({ "shapes": shapes(group, x, wide(x, until)), "title": of_turns(group, first) }))
    });
    waits.chain(turns).collect()
}

/// Returns the rectangles of a group of turns. Failed turns have another colour and height.
fn shapes(group: &[ShownTurn], x: u64, width: u64) -> Vec<Value> {
    let class = match group {
        [turn, ..] if turn.terminal.is_none() => "l",
        // A single turn that was stopped, deferred or suspended has a colour of its own.
        [turn] if turn.terminal != Some(Terminal::Completed) && !turn.is_bad() => "c",
        _ => "g",
    };
    let bad = group.iter().filter(|turn| turn.is_bad()).count();
    let mut shapes = Vec::new();
    let share = u64::try_from(bad * 14 / group.len().max(1)).unwrap_or(14);
    if bad < group.len() {
        shapes.push(shape(class, x, width, 6, 20));
    }
    if bad > 0 {
        shapes.push(shape("b", x, width, 3, 6 + share.max(3)));
    }
    if group.iter().any(ShownTurn::is_retry) {
        shapes.push(shape("r", x, width, 0, 2));
    }
    shapes
}

fn of_turns(group: &[ShownTurn], first: &ShownTurn) -> String {
    if group.len() == 1 {
        let said = if first.said.is_empty() { String::new() } else { format!(": {}", first.said) };
        let at = moment(first.started_at);
        return format!("{at}, {}, {}, for {}{said}", first.end(), span(first.took), first.why);
    }
    let last = group.last().map_or(first.started_at, |turn| turn.started_at);
    let bad = group.iter().filter(|turn| turn.is_bad()).count();
    let retries = group.iter().filter(|turn| turn.is_retry()).count();
    let mut title = format!("{} turns, {} to {}", group.len(), moment(first.started_at), moment(last));
    if bad > 0 {
        title.push_str(&format!(", {bad} failed"));
    }
    if retries > 0 {
        title.push_str(&format!(", {}", count(retries as u64, "retry", "retries")));
    }
    title
}

/// Returns the end of a wait; for an active wait, the end of the period.
fn end_of(wait: &Wait, scale: Scale) -> Time {
    wait.ended_at.unwrap_or(scale.until)
}

fn of_waits(group: &[Wait], first: &Wait, scale: Scale) -> String {
    if group.len() == 1 {
        let (kind, status) = (in_words(first.kind.name()), first.status);
        let lasted = span(end_of(first, scale).since(first.created_at));
        return format!(
            "waits for {kind} since {}, {lasted}, {status}: {}",
            moment(first.created_at),
            shown(&first.reason)
        );
    }
    format!("{} waits from {} on", group.len(), moment(first.created_at))
}
