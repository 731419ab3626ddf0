//! Rules for comments and names: how comments begin, their width, and that a type name has one
//! meaning.

use std::collections::{BTreeMap, BTreeSet};

use super::{Source, shipped, sources};

/// First words of doc comments that describe an item without naming it.
const RIDDLES: [&str; 8] = ["What", "How", "Whether", "The same", "Of", "Who", "Whoever", "Whose"];

/// Maximum width of a line with a comment, in columns.
const COLUMNS: usize = 100;

/// Returns every Rust file, tests included.
fn all_sources() -> impl Iterator<Item = Source> {
    ["src", "tests"].into_iter().flat_map(sources)
}

#[test]
fn no_doc_comment_begins_with_a_forbidden_word() {
    let mut riddles = Vec::new();
    for source in all_sources() {
        let mut was_doc = false;
        for (number, line) in source.text.lines().map(str::trim_start).enumerate() {
            let doc = line.strip_prefix("///").or_else(|| line.strip_prefix("//!")).map(str::trim_start);
            let begins = |word: &str| {
                let rest = doc.and_then(|doc| doc.strip_prefix(word));
                rest.is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
            };
            if !was_doc && RIDDLES.iter().any(|word| begins(word)) {
                riddles.push(format!("{}:{}: {line}", source.path, number + 1));
            }
            was_doc = doc.is_some_and(|doc| !doc.is_empty());
        }
    }
    assert_eq!(riddles, [""; 0]);
}

#[test]
fn no_comment_is_wider_than_a_hundred_columns() {
    let mut wide = Vec::new();
    for source in all_sources() {
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
            let is_associated = line.starts_with(' ') && line.trim_start().starts_with("type ");
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
    let twice: Vec<_> = files.iter().filter(|(_, files)| files.len() > 1).collect();
    assert!(twice.is_empty(), "these names mean several things: {twice:#?}");
}
