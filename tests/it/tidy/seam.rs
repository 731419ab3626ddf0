//! Tests that the interface of the store takes and returns no paths: the items that
//! `src/store/mod.rs` lists name agents, ids, records and times.

use std::collections::BTreeSet;

use super::{Source, assert_none, has_word, shipped};

/// Types that represent a file or a path.
const OF_FILES: &[&str] = &["Path", "PathBuf", "OsStr", "OsString", "Spot", "Root", "Entry", "View", "Scan"];

#[test]
fn the_interface_of_the_store_contains_no_path_type() {
    let sources = shipped();
    let seam = sources.iter().find(|source| source.path == "src/store/mod.rs").unwrap();
    let mut names = listed(&seam.code());
    assert!(names.contains("Store") && names.contains("moved_away"), "{names:?}");
    let rooms = ["src/store/dir/", "src/store/seam/"];
    let behind = sources.iter().filter(|source| rooms.iter().any(|room| source.path.starts_with(room)));
    let stream = sources.iter().find(|source| source.path == "src/store/stream.rs").unwrap();
    names.extend(["Meta", "StreamReader", "StreamWriter"].map(str::to_owned));
    let found = behind.chain([stream]).flat_map(|source| crossing(source, &names)).collect();
    assert_none(
        found,
        "what `src/store/mod.rs` lists shows no path: where a person is told a place, the store gives its text",
    );
}

/// Returns the names that `src/store/mod.rs` re-exports from its modules `dir` and `seam`.
fn listed(code: &str) -> BTreeSet<String> {
    let after = |word| code.split(word).skip(1);
    let lists = after("pub use dir::").chain(after("pub use seam::"));
    let lists = lists.filter_map(|rest| rest.split(';').next());
    let words = |list: &str| {
        list.split(|c: char| !(c.is_alphanumeric() || c == '_')).map(str::to_owned).collect::<Vec<_>>()
    };
    lists.flat_map(words).filter(|word| !word.is_empty()).collect()
}

/// Returns the public parts of types and functions in `names` that show a path: `path:line: text`.
fn crossing(source: &Source, names: &BTreeSet<String>) -> Vec<String> {
    let code = source.code();
    let mut found = Vec::new();
    // `is_ours`: inside an item of `names`. Variants of an enum are public without `pub`, so each
    // line of an enum is checked.
    let (mut is_ours, mut is_enum, mut signature) = (false, false, String::new());
    for (at, line) in code.lines().enumerate() {
        if !line.starts_with(' ') && !line.trim().is_empty() && !line.starts_with([')', '}']) {
            is_ours = subject(line).is_some_and(|name| names.contains(name));
            is_enum = line.contains("enum ");
        }
        let line = line.trim();
        if is_ours && (line.starts_with("pub ") || is_enum) || !signature.is_empty() {
            signature.push_str(line);
            signature.push(' ');
        }
        let is_whole = signature.ends_with("{ ") || signature.ends_with("; ") || signature.ends_with("} ");
        let is_field = signature.ends_with(", ") && !signature.contains("fn ") || is_enum;
        if is_whole || is_field {
            if OF_FILES.iter().any(|word| has_word(&signature, word)) {
                found.push(format!("{}:{}: {}", source.path, at + 1, signature.trim()));
            }
            signature.clear();
        }
    }
    found
}

/// Returns the name of the item that begins at the left margin, for example `Store` for `impl
/// Store`. Returns `None` for `impl Trait for Type`, and for a private item.
fn subject(line: &str) -> Option<&str> {
    let (_, rest) = ["impl", "struct ", "enum ", "fn "].iter().find_map(|word| line.split_once(word))?;
    if line.starts_with("impl") && line.contains(" for ")
        || !line.starts_with("impl") && !line.starts_with("pub ")
    {
        return None;
    }
    let rest = match rest.strip_prefix('<') {
        Some(generics) if line.starts_with("impl") => generics.split_once("> ")?.1,
        _ => rest.trim_start(),
    };
    let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
    Some(&rest[..end])
}

#[test]
fn the_detector_finds_path_types_in_public_items_only() {
    let text = "impl<'s> Store<'s> {\n    pub fn a(\n        &self,\n        path: &Path,\n    ) -> Spot {\n    }\n    fn b(&Path) {\n    }\n}\n\
                impl From<Path> for Store {\n    pub fn c(&Path) {}\n}\npub struct Store {\n    pub path: PathBuf,\n    own: PathBuf,\n}\n\
                pub struct Other {\n    pub path: PathBuf,\n}\npub enum Kind {\n    At(Spot),\n}\npub fn made(at: &Path) -> u8 {\n}\n";
    let source = Source { path: "x.rs".to_owned(), text: text.to_owned() };
    let names = ["Store", "Kind", "made"].map(str::to_owned).into();
    let expected = [
        "x.rs:5: pub fn a( &self, path: &Path, ) -> Spot {",
        "x.rs:14: pub path: PathBuf,",
        "x.rs:21: At(Spot),",
        "x.rs:23: pub fn made(at: &Path) -> u8 {",
    ];
    assert_eq!(crossing(&source, &names), expected);
}
