//! Formatting of text for people: escaping, cutting, alignment.

use std::borrow::Cow;
use std::collections::BTreeMap;

use minijinja::syntax::SyntaxConfig;
use minijinja::{AutoEscape, Environment, UndefinedBehavior};
use serde_json::Value;
use unicode_properties::{GeneralCategory, UnicodeGeneralCategory};
use unicode_width::UnicodeWidthChar;

use crate::model::time::{Span, Time};

use super::output::Tone;

/// Returns the minijinja environment of all templates. A line with a block alone produces no line.
pub fn templates<'t>(
    escape: AutoEscape,
    undefined: UndefinedBehavior,
) -> Result<Environment<'t>, minijinja::Error> {
    let mut templates = Environment::new();
    let syntax =
        SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).keep_trailing_newline(true).build();
    templates.set_syntax(syntax?);
    templates.set_auto_escape_callback(move |_| escape.clone());
    templates.set_undefined_behavior(undefined);
    Ok(templates)
}

/// Escapes outside text: control characters, bidirectional marks and invisible characters become
/// escapes of string literals (`\u{202e}`). Line breaks and tabs are kept.
pub fn escape(text: &str) -> Cow<'_, str> {
    escape_but(text, |c| matches!(c, '\n' | '\t') || is_plain(c))
}

/// Escapes outside text for use within a line or a column, line breaks and tabs included.
pub fn escape_line(text: &str) -> Cow<'_, str> {
    escape_but(text, is_plain)
}

/// Escapes outside text of several lines, indented so that no line looks like output of dormouse.
pub fn escape_indented(text: &str) -> String {
    escape(text.trim_end()).replace('\n', "\n    ")
}

/// Escapes a composed text that contains outside text. Colour sequences of `paint` are kept.
pub fn escape_painted(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\x1b') {
        let ours = SEQUENCES.iter().find(|sequence| rest[at..].starts_with(**sequence));
        let end = at + ours.map_or(1, |sequence| sequence.len());
        shown.push_str(&escape(&rest[..at]));
        match ours {
            Some(sequence) => shown.push_str(sequence),
            None => shown.push_str(&escape(&rest[at..end])),
        }
        rest = &rest[end..];
    }
    shown.push_str(&escape(rest));
    shown
}

/// Formats JSON for use in a text. Characters that `escape` replaces become JSON escapes, so that
/// the JSON value does not change.
pub fn json(value: &Value) -> String {
    let text = value.to_string();
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if is_plain(c) {
            escaped.push(c);
        } else {
            escaped.extend(c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")));
        }
    }
    escaped
}

/// Removes null fields from an object, and from the objects in its fields.
pub fn present(mut object: Value) -> Value {
    if let Value::Object(fields) = &mut object {
        fields.retain(|_, field| !field.is_null());
        fields.values_mut().for_each(|field| *field = present(field.take()));
    }
    object
}

fn escape_but(text: &str, is_left: impl Fn(char) -> bool) -> Cow<'_, str> {
    if text.chars().all(&is_left) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() * 2);
    for c in text.chars() {
        if is_left(c) { escaped.push(c) } else { escaped.extend(c.escape_default()) }
    }
    Cow::Owned(escaped)
}

/// True if a character is visible and does not affect its neighbours. False for control and format
/// characters (bidirectional marks, joiners, byte order marks), line separators, invisible letters.
fn is_plain(c: char) -> bool {
    // ASCII, the most frequent case, needs no table lookup.
    if c.is_ascii() {
        return !c.is_ascii_control();
    }
    !is_invisible_letter(c)
        && !matches!(
            c.general_category(),
            GeneralCategory::Control
                | GeneralCategory::Format
                | GeneralCategory::LineSeparator
                | GeneralCategory::ParagraphSeparator
        )
}

/// True for Default_Ignorable_Code_Point of Unicode, except format characters. Variation selectors
/// (U+FE00 to U+FE0F) are allowed, because they modify the character before them.
const fn is_invisible_letter(c: char) -> bool {
    matches!(
        c,
        '\u{34f}'
            | '\u{115f}'..='\u{1160}'
            | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{2065}'
            | '\u{3164}'
            | '\u{ffa0}'
            | '\u{fff0}'..='\u{fff8}'
            | '\u{e0000}'..='\u{e0fff}'
    )
}

/// Decodes a stream in chunks, which may cut characters.
#[derive(Debug, Default)]
pub struct Characters {
    cut: Vec<u8>,
}

impl Characters {
    /// Returns the characters that this chunk completes. `ended`: true for the last chunk.
    pub fn take(&mut self, bytes: &[u8], ended: bool) -> String {
        let mut all = std::mem::take(&mut self.cut);
        all.extend_from_slice(bytes);
        if !ended
            && let Some(rest) = all.utf8_chunks().last().map(|chunk| chunk.invalid())
            && std::str::from_utf8(rest).is_err_and(|error| error.error_len().is_none())
        {
            self.cut = all.split_off(all.len() - rest.len());
        }
        String::from_utf8_lossy(&all).into_owned()
    }
}

const RESET: &str = "\x1b[0m";

/// Escape sequences that `paint` writes around a text.
const SEQUENCES: [&str; 5] =
    [RESET, sequence(Tone::Good), sequence(Tone::Bad), sequence(Tone::Quiet), sequence(Tone::Strong)];

const fn sequence(tone: Tone) -> &'static str {
    match tone {
        Tone::Good => "\x1b[32m",
        Tone::Bad => "\x1b[31m",
        Tone::Quiet => "\x1b[2m",
        Tone::Strong => "\x1b[1m",
    }
}

pub fn paint(colored: bool, tone: Tone, text: &str) -> String {
    if colored { format!("{}{text}{RESET}", sequence(tone)) } else { text.to_owned() }
}

/// Width of a text on a terminal, in columns. The colour sequences of `paint` have no width.
pub fn text_width(text: &str) -> usize {
    let of_text: usize = text.chars().map(|c| c.width().unwrap_or(0)).sum();
    // Only the first character of a colour sequence, the escape character, counts as width 0.
    let of_colours: usize =
        SEQUENCES.iter().map(|sequence| text.matches(sequence).count() * (sequence.len() - 1)).sum();
    of_text - of_colours
}

/// Maximum number of characters of a line per column, because combining characters take no column.
const CHARS_PER_COLUMN: usize = 4;

/// Returns the first nonblank line, cut to `max` columns. A `…` stands for all text that is cut.
pub fn one_line(text: &str, max: usize) -> String {
    let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default().trim();
    let fits = |line: &str| text_width(line) <= max && line.chars().count() <= max * CHARS_PER_COLUMN;
    if fits(line) && text.trim().lines().count() <= 1 {
        return line.to_owned();
    }
    let mut cut = String::new();
    let mut left = max.saturating_sub(1);
    for c in line.chars().take(left * CHARS_PER_COLUMN) {
        let Some(still_left) = left.checked_sub(c.width().unwrap_or(0)) else { break };
        left = still_left;
        cut.push(c);
    }
    cut.push('…');
    cut
}

/// Aligns columns, each as wide as its widest cell. The last column is not padded.
pub fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widest =
        |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| text_width(cell)).max();
    let widths: Vec<usize> = (0..columns).map(|column| widest(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            line.push_str(cell);
            line.extend(std::iter::repeat_n(' ', widths[column] - text_width(cell) + 2));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Formats the distance of a moment from `now`: `in 5m`, `3h ago`, or `now` within a second.
pub fn relative(at: Time, now: Time) -> String {
    let (span, ahead) = if at > now { (at.since(now), true) } else { (now.since(at), false) };
    let rough = span.rough();
    match (span.as_millis() < 1000, ahead) {
        (true, _) => "now".to_owned(),
        (false, true) => format!("in {rough}"),
        (false, false) => format!("{rough} ago"),
    }
}

/// Formats the time of a planned event: `in 5m`, or `is due`.
pub fn due(at: Time, now: Time) -> String {
    let in_a_second = now.after(Span::from_millis(1000));
    if at <= now { "is due".to_owned() } else { relative(at.max(in_a_second), now) }
}

/// Formats the time since an event: `since 5m ago`, or `just now`.
pub fn since(at: Time, now: Time) -> String {
    let text = relative(at, now);
    if text == "now" { format!("just {text}") } else { format!("since {text}") }
}

/// Returns the next moment at which [`relative`] may have another text for `at`.
pub fn relative_change(at: Time, now: Time) -> Time {
    let age = if at > now { at.since(now) } else { now.since(at) }.as_millis();
    let unit = match age / 1000 {
        0..60 => 1000,
        60..86_400 => 60_000,
        86_400.. => 3_600_000,
    };
    let left = if at > now { age % unit } else { unit - age % unit };
    now.after(Span::from_millis(left.max(1)))
}

/// Formats a number with its noun in the singular or plural.
pub fn count(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

/// Counts equal items.
pub fn tally<T: Ord>(items: impl Iterator<Item = T>) -> BTreeMap<T, u64> {
    let mut counts = BTreeMap::new();
    items.for_each(|item| *counts.entry(item).or_default() += 1);
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invisible_and_control_characters_are_escaped_and_others_are_kept() {
        for c in '\0'..=char::MAX {
            let text = c.to_string();
            let named = matches!(c,
                '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}');
            let line_break = matches!(c, '\n' | '\t');
            let escaped = escape(&text) != text;
            assert!(escaped || !named, "{c:?} is shown");
            assert!(escaped || !c.is_control() || line_break, "{c:?} is shown");
            assert_eq!(escape_line(&text) != text, escaped || line_break, "{c:?}");
            assert!(!escaped || escape(&escape(&text)) == escape(&text), "{c:?}: once is enough");
        }
        for plain in [
            "naïve",
            "e\u{301}",
            "日本語",
            "한글",
            "नमस्ते",
            "→ “…” ½",
            "👍🏽",
            "⚠\u{fe0f}",
            "a\nb\tc",
            "\\u{1b}",
        ] {
            assert_eq!(escape(plain), plain);
        }
        assert_eq!(escape("👩\u{200d}💻"), "👩\\u{200d}💻");
        assert_eq!(escape_line("a\nb\tc\r"), "a\\nb\\tc\\r");
        assert_eq!(escape_indented("a\nb\u{202e}\n"), "a\n    b\\u{202e}");
    }

    #[test]
    fn escaped_json_is_still_the_same_value() {
        let value = serde_json::json!({ "a\u{202e}": ["\u{e0041}\u{7f}\n\u{0}", "👩\u{200d}💻", 1.5] });
        assert_eq!(serde_json::from_str::<Value>(&json(&value)).unwrap(), value);
        assert_eq!(json(&value), r#"{"a\u202e":["\udb40\udc41\u007f\n\u0000","👩\u200d💻",1.5]}"#);
    }

    #[test]
    fn own_colour_sequences_are_kept_and_others_are_escaped() {
        let painted = paint(true, Tone::Bad, "a\x1b[31");
        assert_eq!(
            escape_painted(&format!("{painted}\x1b[4mb\x1b")),
            "\x1b[31ma\\u{1b}[31\x1b[0m\\u{1b}[4mb\\u{1b}"
        );
        assert_eq!(paint(false, Tone::Good, "a"), "a");
    }

    #[test]
    fn a_character_split_across_chunks_is_decoded() {
        let text = "aü€👍\u{202e}z";
        for size in 1..6 {
            let mut characters = Characters::default();
            let mut said: String =
                text.as_bytes().chunks(size).map(|piece| characters.take(piece, false)).collect();
            said.push_str(&characters.take(&[], true));
            assert_eq!(said, text, "in pieces of {size}");
        }
        let mut characters = Characters::default();
        assert_eq!(characters.take(b"a\xff\xe2\x80", false), "a\u{fffd}");
        assert_eq!(characters.take(b"x", false), "\u{fffd}x", "what never becomes one is shown as broken");
        assert_eq!(characters.take(b"\xe2", true), "\u{fffd}");
    }

    #[test]
    fn table_columns_align_with_wide_and_coloured_text() {
        let rows =
            [["ada", "1"], ["検索", "2"], ["e\u{301}a", "3"]].map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(table(&rows), "ada   1\n検索  2\ne\u{301}a    3\n");
        let painted =
            [vec![paint(true, Tone::Bad, "a"), "1".to_owned()], vec!["bcd".to_owned(), "2".to_owned()]];
        assert_eq!(table(&painted), "\x1b[31ma\x1b[0m    1\nbcd  2\n");
    }

    #[test]
    fn a_line_is_cut_by_display_width_and_zero_width_marks_are_limited() {
        assert_eq!(one_line("\n  hello  \n", 5), "hello");
        assert_eq!(one_line("hello!", 5), "hell…");
        assert_eq!(one_line("hello\nthere", 9), "hello…");
        assert_eq!(one_line("日本語だ", 8), "日本語だ");
        assert_eq!(one_line("日本語だ!", 8), "日本語…");
        let tower = format!("a{}", "\u{301}".repeat(1000));
        assert!(one_line(&tower, 5).chars().count() < 25);
    }
}
