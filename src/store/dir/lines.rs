//! Files of lines as git merges leave them: a line may occur twice, two lines may be joined, and
//! lines may be out of order.

use std::collections::HashSet;

/// Beginning of every line that this program writes.
const BEGINNING: &[u8] = b"{\"schema\":";

/// Returns the records of a file with one record a line, each with its line number, from 1. Skips
/// blank lines, and splits a line of two records that a merge has joined.
pub fn records(bytes: &[u8]) -> impl DoubleEndedIterator<Item = (usize, &[u8])> {
    let mut found = Vec::new();
    for (at, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        let mut rest = line.trim_ascii();
        while let Some(joint) = joint(rest) {
            found.push((at + 1, &rest[..joint]));
            rest = &rest[joint..];
        }
        if !rest.is_empty() {
            found.push((at + 1, rest));
        }
    }
    found.into_iter()
}

/// Returns the offset of a line's second record; in a string its quotes would be escaped.
fn joint(line: &[u8]) -> Option<usize> {
    let mut from = 1;
    while let Some(at) = line.get(from..)?.iter().position(|byte| *byte == b'{') {
        let at = from + at;
        if line[at - 1] == b'}' && line[at..].starts_with(BEGINNING) {
            return Some(at);
        }
        from = at + 1;
    }
    None
}

/// Returns the first occurrence of each record of a file.
pub fn once(bytes: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let mut seen = HashSet::new();
    records(bytes).filter(move |(_, line)| seen.insert(*line))
}

/// True if every line is one record that differs from all lines before, as this program writes it.
pub fn is_tidy(bytes: &[u8]) -> bool {
    let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty());
    lines.count() == once(bytes).count()
}

/// Returns the content of a file with these records.
pub fn join<'a>(records: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for record in records {
        bytes.extend_from_slice(record);
        bytes.push(b'\n');
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = r#"{"schema":"dormouse/x/1","text":"a }{\"schema\": b"}"#;
    const TWO: &str = r#"{"schema":"dormouse/x/1","body":{"schema":{"schema":1}}}"#;

    #[test]
    fn two_lines_joined_by_a_merge_are_two_records() {
        let file = format!("{ONE}{TWO}\r\n\n  \n{TWO}\n{ONE}");
        let found: Vec<(usize, &str)> =
            records(file.as_bytes()).map(|(at, line)| (at, std::str::from_utf8(line).unwrap())).collect();
        assert_eq!(found, [(1, ONE), (1, TWO), (4, TWO), (5, ONE)]);
        assert_eq!(join(once(file.as_bytes()).map(|(_, line)| line)), format!("{ONE}\n{TWO}\n").into_bytes());
        assert!(!is_tidy(file.as_bytes()));
        assert!(is_tidy(format!("{ONE}\n\n{TWO}").as_bytes()) && is_tidy(b""));
    }

    #[test]
    fn an_incomplete_line_counts_as_a_record() {
        let torn = &ONE[..20];
        let file = format!("{torn}\n{torn}{ONE}\n");
        let found: Vec<usize> = records(file.as_bytes()).map(|(at, _)| at).collect();
        assert_eq!(found, [1, 2]);
    }
}
