//! Text for people: escaped, painted, cut to fit, aligned.

use crate::model::time::{Span, Time};

use super::output::Tone;

/// Control characters as they would be written in a string, line breaks and tabs as they are.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() && c != '\n' && c != '\t' {
            escaped.extend(c.escape_default());
        } else {
            escaped.push(c);
        }
    }
    escaped
}

pub fn paint(colored: bool, tone: Tone, text: &str) -> String {
    if !colored {
        return text.to_owned();
    }
    let code = match tone {
        Tone::Good => "32",
        Tone::Bad => "31",
        Tone::Quiet => "2",
        Tone::Strong => "1",
    };
    format!("\x1b[{code}m{text}\x1b[0m")
}

/// The first line, cut to a number of characters.
pub fn one_line(text: &str, max: usize) -> String {
    let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default().trim();
    let more = line.chars().count() > max || text.trim().lines().count() > 1;
    if !more {
        return line.to_owned();
    }
    let mut cut: String = line.chars().take(max.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

/// Columns, each as wide as its widest cell; the last is not padded.
pub fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width =
        |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            line.push_str(cell);
            if column + 1 < row.len() {
                line.extend(std::iter::repeat_n(' ', widths[column] - cell.chars().count() + 2));
            }
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// How far a moment is from another: `in 5m`, `3h ago`.
pub fn relative(at: Time, now: Time) -> String {
    let (span, ahead) = if at > now { (at.since(now), true) } else { (now.since(at), false) };
    let rough = rough(span);
    match (span.as_millis() < 1000, ahead) {
        (true, _) => "now".to_owned(),
        (false, true) => format!("in {rough}"),
        (false, false) => format!("{rough} ago"),
    }
}

/// A span in its largest one or two units.
fn rough(span: Span) -> String {
    let secs = span.as_millis() / 1000;
    match secs {
        0..60 => format!("{secs}s"),
        60..3600 => format!("{}m", secs / 60),
        3600..86_400 => format!("{}h{:02}m", secs / 3600, secs / 60 % 60),
        _ => format!("{}d{}h", secs / 86_400, secs / 3600 % 24),
    }
}

/// A pluralised count.
pub fn count(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}
