//! Three-way merge of the content of one file, for git: the common base and the versions of two
//! clones.

use std::collections::HashSet;
use std::path::{Component, Path};

use serde_json::Value;

use crate::error::{Error, Result};
use crate::local::layout;
use crate::model::id::AgentName;
use crate::model::json;

use super::lines;

/// Patterns, relative to the state directory, of files for this merge driver: files that only grow,
/// and files that only the clone that ticks may write.
pub const MERGED: &[&str] = &[
    "agents/*/ledger/*.jsonl",
    "agents/*/archive/*/*.jsonl",
    "agents/*/state.json",
    "agents/*/work/*.json",
    "agents/*/waits/*.json",
    "agents/*/timers/*.json",
    "agents/*/tasks/*.json",
    "agents/*/triggers/*.json",
];

/// Parsed path in a work tree of git.
#[derive(Debug, PartialEq, Eq)]
pub struct InWorkTree {
    /// State directory, relative to the top of the work tree.
    pub root: String,
    pub agent: AgentName,
    /// File, relative to the agent's directory.
    pub file: String,
}

impl InWorkTree {
    pub fn of(path: &str) -> Result<InWorkTree> {
        let part = |part: Component<'_>| match part {
            Component::Normal(part) => part.to_str().map(str::to_owned),
            Component::Prefix(_) | Component::RootDir | Component::CurDir | Component::ParentDir => None,
        };
        let parts: Vec<String> =
            Path::new(path).components().map(part).collect::<Option<_>>().unwrap_or_default();
        let at = parts.iter().position(|part| part == layout::AGENTS);
        let found = at.and_then(|at| Some((at, parts.get(at + 1)?.parse().ok()?, parts.get(at + 2..)?)));
        let Some((at, agent, file)) = found else {
            return Err(Error::usage(format!("{path}: not a record of an agent"))
                .with_hint("PATH is that of %P, such as .dormouse/agents/ada/state.json"));
        };
        Ok(InWorkTree { root: parts[..at].join("/"), agent, file: file.join("/") })
    }
}

/// Result of a merge.
#[derive(Debug, PartialEq, Eq)]
pub enum Merged {
    /// Complete merge of both sides.
    Whole(Vec<u8>),
    /// Unchanged version of one side, for a record that only one clone may write; the other version
    /// is to be quarantined.
    Side { kept: Vec<u8>, other: Vec<u8> },
    /// Conflict that only a person can resolve.
    Conflict,
}

/// Merges a file of the state directory with the method for its path.
pub fn merge(path: &str, base: &[u8], ours: &[u8], theirs: &[u8]) -> Merged {
    if path.ends_with(".jsonl") {
        return Merged::Whole(merge_lines(base, ours, theirs));
    }
    let read = |bytes: &[u8]| json::value(bytes).ok().filter(Value::is_object);
    let (Some(our), Some(their)) = (read(ours), read(theirs)) else { return Merged::Conflict };
    let (kept, other) = if age(&their) > age(&our) { (theirs, ours) } else { (ours, theirs) };
    Merged::Side { kept: kept.to_vec(), other: other.to_vec() }
}

/// Returns a sort key for versions of a record: its revision, then the time of its last change.
pub(super) fn age(record: &Value) -> (u64, &str) {
    (record["revision"].as_u64().unwrap_or(0), moment(record))
}

/// Returns the time of the end or of the last change of a record. Its format sorts as text.
fn moment(record: &Value) -> &str {
    let places = [&record["settlement"]["at"], &record["ended_at"], &record["updated_at"], &record["at"]];
    places.iter().find_map(|place| place.as_str()).or(record["created_at"].as_str()).unwrap_or_default()
}

/// Returns every line of either side, once, without the lines that one side has removed. Each
/// side's order is kept; added lines are interleaved by their number or their time.
pub(super) fn merge_lines(base: &[u8], ours: &[u8], theirs: &[u8]) -> Vec<u8> {
    let set = |bytes| lines::once(bytes).map(|(_, line)| line).collect::<HashSet<&[u8]>>();
    let (before, our, their) = (set(base), set(ours), set(theirs));
    let stays = |line: &&[u8]| !before.contains(line) || our.contains(line) && their.contains(line);
    let side = |bytes| lines::once(bytes).map(|(_, line)| line).filter(stays).peekable();
    let (mut left, mut right) = (side(ours), side(theirs));
    let mut merged: Vec<&[u8]> = Vec::new();
    let mut seen = HashSet::new();
    loop {
        let next = match (left.peek(), right.peek()) {
            (None, None) => break,
            (Some(_), None) => left.next(),
            (None, Some(_)) => right.next(),
            (Some(one), Some(other)) if one == other => right.next().and(left.next()),
            (Some(one), Some(other)) => {
                // If one of the lines is in both files, the other goes first, to keep its order.
                let (is_common, other_is) = (their.contains(one), our.contains(other));
                let from_left = if is_common != other_is { other_is } else { order(one) <= order(other) };
                if from_left { left.next() } else { right.next() }
            }
        };
        merged.extend(next.filter(|line| seen.insert(*line)));
    }
    lines::join(merged)
}

fn order(line: &[u8]) -> (u64, String) {
    let record = json::value(line).unwrap_or_default();
    (record["seq"].as_u64().unwrap_or(0), moment(&record).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(lines: &[(u64, &str)]) -> Vec<u8> {
        let line = |(seq, id): &(u64, &str)| format!("{{\"schema\":\"x\",\"seq\":{seq},\"id\":\"{id}\"}}\n");
        lines.iter().map(line).collect::<String>().into_bytes()
    }

    fn merged(base: &[(u64, &str)], ours: &[(u64, &str)], theirs: &[(u64, &str)]) -> Vec<u8> {
        match merge("a/ledger/2026-01.jsonl", &file(base), &file(ours), &file(theirs)) {
            Merged::Whole(bytes) => bytes,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_path_from_git_names_the_agent() {
        let found = InWorkTree::of("sub/.dormouse/agents/ada/work/x.json").unwrap();
        let (root, file) = ("sub/.dormouse".to_owned(), "work/x.json".to_owned());
        assert_eq!(found, InWorkTree { root, agent: "ada".parse().unwrap(), file });
        for path in [
            "state.json",
            "/x/agents/ada/state.json",
            "../agents/ada/state.json",
            "agents/Not One/state.json",
        ] {
            assert!(InWorkTree::of(path).is_err(), "{path}");
        }
    }

    #[test]
    fn a_merge_keeps_the_lines_of_both_sides_once_and_in_order() {
        let base = [(1, "a"), (2, "b")];
        let ours = [(1, "a"), (2, "b"), (3, "o"), (5, "p")];
        let theirs = [(1, "a"), (2, "b"), (3, "t"), (4, "u"), (6, "v")];
        let all = [(1, "a"), (2, "b"), (3, "o"), (3, "t"), (4, "u"), (5, "p"), (6, "v")];
        assert_eq!(merged(&base, &ours, &theirs), file(&all));
        // Merging the result once more changes nothing.
        assert_eq!(merged(&theirs, &all, &theirs), file(&all));
        assert_eq!(merged(&[], &all, &all), file(&all));
    }

    #[test]
    fn a_merge_deletes_a_line_that_one_side_deleted() {
        let base = [(1, "a"), (2, "b"), (3, "c")];
        assert_eq!(
            merged(&base, &[(1, "a"), (3, "c")], &[(1, "a"), (2, "b"), (3, "c"), (4, "d")]),
            file(&[(1, "a"), (3, "c"), (4, "d")])
        );
        // A line that both sides have added appears once.
        assert_eq!(
            merged(&[], &[(1, "a"), (2, "b")], &[(2, "b"), (3, "c")]),
            file(&[(1, "a"), (2, "b"), (3, "c")])
        );
        // The sides may have the lines in different orders.
        assert_eq!(merged(&[], &[(1, "a"), (2, "b")], &[(2, "b"), (1, "a")]), file(&[(1, "a"), (2, "b")]));
    }

    #[test]
    fn a_merge_keeps_the_record_with_the_higher_revision_or_later_time() {
        let record = |revision: u64, at: &str| {
            format!("{{\"revision\":{revision},\"updated_at\":\"{at}\"}}").into_bytes()
        };
        let side = |kept: &[u8], other: &[u8]| Merged::Side { kept: kept.to_vec(), other: other.to_vec() };
        let (older, newer) = (record(4, "2026-01-02"), record(5, "2026-01-01"));
        assert_eq!(merge("state.json", b"", &older, &newer), side(&newer, &older));
        assert_eq!(merge("state.json", b"", &newer, &older), side(&newer, &older));
        let later = record(4, "2026-01-03");
        assert_eq!(merge("work/x.json", b"", &older, &later), side(&later, &older));
        assert_eq!(merge("state.json", b"", b"{", &later), Merged::Conflict);
    }
}
