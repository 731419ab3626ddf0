//! Tests of the pages for contributors: they are short, and the files, tests and crates that
//! ARCHITECTURE.md names exist.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::{assert_none, sources};

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// Returns the words in backquotes.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| !line.starts_with("```")).flat_map(|line| line.split('`').skip(1).step_by(2))
}

#[test]
fn pages_are_short() {
    let words = read("docs/CONTRACT.md").split_whitespace().count();
    assert!(words <= 15_000, "docs/CONTRACT.md has {words} words: flags and layouts belong to other pages");
    let lines = read("CONTRIBUTING.md").lines().count();
    assert!(lines <= 60, "CONTRIBUTING.md has {lines} lines");
    let text = read("ARCHITECTURE.md");
    assert!(text.len() <= 12_288, "ARCHITECTURE.md has {} bytes", text.len());
    let (_, rooms) = text.split_once("| To change… | Go to |\n").unwrap();
    let rows = rooms.lines().skip(1).take_while(|line| line.starts_with('|')).count();
    assert!(rows <= 25, "{rows} rooms");
}

#[test]
fn files_and_tests_that_architecture_md_names_exist() {
    let text = read("ARCHITECTURE.md");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let of_paths = |word: &&str| ["src/", "tests/", "man/", "docs/"].iter().any(|dir| word.starts_with(dir));
    let gone = quoted(&text).filter(of_paths).filter(|path| !root.join(path).exists());
    assert_none(gone.map(str::to_owned).collect(), "ARCHITECTURE.md names files that do not exist");
    let (_, invariants) = text.split_once("| Invariant | Held by |\n").unwrap();
    let rows = invariants.lines().skip(1).take_while(|line| line.starts_with('|'));
    let tests = sources("tests/it");
    let is_test = |name: &str| tests.iter().any(|source| source.text.contains(&format!("fn {name}() {{")));
    let held = rows.flat_map(|row| quoted(row.split('|').nth(2).unwrap_or_default()));
    let none = held.filter(|word| word.contains('_') && !word.contains('/') && !is_test(word));
    assert_none(none.map(str::to_owned).collect(), "ARCHITECTURE.md names tests that do not exist");
}

#[test]
fn every_crate_has_its_reason() {
    let manifest = read("Cargo.toml");
    let (_, rest) = manifest.split_once("\n[dependencies]\n").unwrap();
    let names = |text: &str| -> BTreeSet<String> {
        let lines = text.lines().take_while(|line| !line.starts_with('['));
        lines.filter_map(|line| Some(line.split_once(" = ")?.0.to_owned())).collect()
    };
    let text = read("ARCHITECTURE.md");
    let (_, table) = text.split_once("| Crate | For |\n").unwrap();
    let rows = table.lines().skip(1).take_while(|line| line.starts_with('|'));
    let cells = rows.filter_map(|row| row.split('|').nth(1));
    let listed: BTreeSet<String> = cells.flat_map(quoted).map(str::to_owned).collect();
    assert_eq!(listed, names(rest), "the crates of ARCHITECTURE.md and of Cargo.toml");
}
