//! The words of the source: how comments begin and how wide they are, and that a type name means one thing.

use std::collections::{BTreeMap, BTreeSet};

use super::{Source, shipped};

/// Doc comments that begin with one of these words describe a thing by a riddle instead of by its noun.
const RIDDLES: [&str; 5] = ["What", "How", "Whether", "The same", "Of"];

/// Columns that a line with a comment has at most.
const COLUMNS: usize = 100;

/// Number of doc comments of each layer that still begin with a riddle. A commit that rewrites some
/// lowers the number of its layer; no commit raises one.
const UNWRITTEN: &[(&str, usize)] = &[];

/// Type names that still stand in more than one file. A commit that renames one removes it from this list.
const AMBIGUOUS: &[&str] = &[
    "About",
    "Admitted",
    "Agent",
    "Answer",
    "Arriving",
    "Batch",
    "Brought",
    "Call",
    "Change",
    "Claimant",
    "Contents",
    "Deadline",
    "Due",
    "End",
    "Ended",
    "Ending",
    "Entry",
    "Err",
    "Failure",
    "Fault",
    "Field",
    "Found",
    "Grant",
    "Granted",
    "Guard",
    "Head",
    "Held",
    "Hold",
    "Hook",
    "Input",
    "Kept",
    "Lease",
    "Leased",
    "Left",
    "Line",
    "Listener",
    "Log",
    "Mark",
    "Misfit",
    "Named",
    "New",
    "Open",
    "Part",
    "Past",
    "Place",
    "Pool",
    "Process",
    "Proof",
    "Ran",
    "Records",
    "Request",
    "Rest",
    "Rung",
    "Said",
    "Scratch",
    "Seen",
    "Session",
    "Settings",
    "Settlement",
    "Sign",
    "Snapshot",
    "Source",
    "Status",
    "Step",
    "Store",
    "Stream",
    "Tail",
    "Taken",
    "Trigger",
    "Trouble",
    "Unfinished",
    "Value",
    "Verdict",
    "Watch",
];

/// Layer of a file: its directory below `src`, with one more level in the store.
fn layer(source: &Source) -> String {
    let parts: Vec<&str> = source.path.trim_start_matches("src/").split('/').collect();
    match parts.as_slice() {
        ["store", dir, _, ..] => format!("store/{dir}"),
        ["store", _] => "store".to_owned(),
        [dir, _, ..] => (*dir).to_owned(),
        _ => "main".to_owned(),
    }
}

#[test]
fn no_doc_comment_is_a_riddle() {
    let mut found: BTreeMap<String, usize> = BTreeMap::new();
    for source in shipped() {
        let mut was_doc = false;
        for line in source.text.lines().map(str::trim_start) {
            let doc = line.strip_prefix("///").or_else(|| line.strip_prefix("//!")).map(str::trim_start);
            let begins = |word: &str| {
                let rest = doc.and_then(|doc| doc.strip_prefix(word));
                rest.is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
            };
            if !was_doc && RIDDLES.iter().any(|word| begins(word)) {
                *found.entry(layer(&source)).or_default() += 1;
            }
            was_doc = doc.is_some();
        }
    }
    let found: Vec<(&str, usize)> = found.iter().map(|(layer, count)| (layer.as_str(), *count)).collect();
    assert_eq!(found, UNWRITTEN, "lower the numbers in UNWRITTEN; none may rise");
}

#[test]
fn no_comment_is_wider_than_a_hundred_columns() {
    let mut wide = Vec::new();
    for source in shipped() {
        let lines = source.text.lines().enumerate();
        let comments = lines.filter(|(_, line)| line.trim_start().starts_with("//"));
        let wider = comments.filter(|(_, line)| line.chars().count() > COLUMNS);
        wide.extend(wider.map(|(number, _)| format!("{}:{}", source.path, number + 1)));
    }
    assert_eq!(wide, [""; 0]);
}

#[test]
fn a_type_name_means_one_thing() {
    let mut files: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for source in shipped() {
        for line in source.code().lines() {
            let mut words = line.split_whitespace().skip_while(|word| word.starts_with("pub"));
            let is_associated = line.starts_with("    type ");
            let defines =
                words.next().is_some_and(|word| ["struct", "enum", "trait", "type", "union"].contains(&word));
            if let Some(name) =
                words.next().filter(|name| defines && !is_associated && !name.starts_with('$'))
            {
                let end = name.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(name.len());
                files.entry(name[..end].to_owned()).or_default().insert(source.path.clone());
            }
        }
    }
    let twice: Vec<&str> =
        files.iter().filter(|(_, files)| files.len() > 1).map(|(name, _)| name.as_str()).collect();
    let new: Vec<_> =
        twice.iter().filter(|name| !AMBIGUOUS.contains(name)).map(|name| (name, &files[*name])).collect();
    assert!(new.is_empty(), "these names mean several things: {new:#?}");
    let mended: Vec<_> = AMBIGUOUS.iter().filter(|name| !twice.contains(name)).collect();
    assert!(mended.is_empty(), "remove from AMBIGUOUS: {mended:?}");
}
