//! Which file imports which: files that import each other in a circle can only be understood all at once.

use std::collections::{BTreeMap, BTreeSet};

use super::{Source, assert_none, shipped};

#[test]
fn no_circle_has_more_than_two_files() {
    let sources = shipped();
    let modules: BTreeMap<String, &Source> =
        sources.iter().map(|source| (module(&source.path), source)).collect();
    let imports: BTreeMap<&str, BTreeSet<&str>> =
        modules.iter().map(|(name, source)| (name.as_str(), imported(name, source, &modules))).collect();
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        imports.keys().map(|name| (*name, reach(name, &imports))).collect();
    let circles: BTreeSet<Vec<&str>> = reached
        .iter()
        .map(|(name, from)| from.iter().copied().filter(|other| reached[other].contains(name)).collect())
        .filter(|circle: &Vec<&str>| circle.len() > 2)
        .collect();
    let shown = circles.iter().map(|circle| circle.join(", ")).collect();
    assert_none(
        shown,
        "files that import each other in a circle; each of more than two hides what they are made of",
    );
}

/// The path of a module, as `commands::doctor`.
fn module(path: &str) -> String {
    let name = path.trim_start_matches("src/").trim_end_matches(".rs").trim_end_matches("/mod");
    name.replace('/', "::")
}

/// The files that a file names in its imports.
fn imported<'m>(name: &str, source: &Source, modules: &'m BTreeMap<String, &Source>) -> BTreeSet<&'m str> {
    let code = source.code();
    let statements = code.split(';').filter_map(|statement| {
        let (_, tree) = statement.rsplit_once("use ")?;
        (tree.contains("::")).then(|| tree.split_whitespace().collect::<String>())
    });
    let paths = statements.flat_map(|tree| leaves(&tree)).filter_map(|path| absolute(name, &path));
    paths.filter_map(|path| file_of(path, modules)).filter(|other| *other != name).collect()
}

/// The single paths of a tree: `a::{b, c::d}` has `a::b` and `a::c::d`.
fn leaves(tree: &str) -> Vec<String> {
    let Some((before, rest)) = tree.split_once('{') else { return vec![tree.to_owned()] };
    let inner = rest.strip_suffix('}').unwrap_or(rest);
    let (mut depth, mut parts) = (0, vec![String::new()]);
    for c in inner.chars() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if c == ',' && depth == 0 {
            parts.push(String::new());
        } else if let Some(part) = parts.last_mut() {
            part.push(c);
        }
    }
    parts.iter().flat_map(|part| leaves(part)).map(|leaf| format!("{before}{leaf}")).collect()
}

/// A path from the root of the crate; nothing for what is another crate's.
fn absolute(name: &str, path: &str) -> Option<Vec<String>> {
    let mut parts: Vec<&str> = path.split("::").collect();
    let mut base: Vec<&str> = Vec::new();
    match parts[0] {
        "crate" => drop(parts.remove(0)),
        "super" | "self" => {
            base = name.split("::").collect();
            while ["super", "self"].contains(&parts[0]) {
                if parts.remove(0) == "super" {
                    base.pop();
                }
            }
        }
        _ => return None,
    }
    Some(base.into_iter().chain(parts).map(str::to_owned).collect())
}

/// The file in which a path ends.
fn file_of<'m>(mut path: Vec<String>, modules: &'m BTreeMap<String, &Source>) -> Option<&'m str> {
    while !path.is_empty() {
        if let Some((name, _)) = modules.get_key_value(&path.join("::")) {
            return Some(name);
        }
        path.pop();
    }
    None
}

/// All that a file comes to by imports, itself among them.
fn reach<'m>(name: &'m str, imports: &BTreeMap<&'m str, BTreeSet<&'m str>>) -> BTreeSet<&'m str> {
    let (mut seen, mut left) = (BTreeSet::from([name]), vec![name]);
    while let Some(next) = left.pop() {
        left.extend(imports[next].iter().copied().filter(|other| seen.insert(other)));
    }
    seen
}

#[test]
fn imports_are_read_as_they_are_written() {
    assert_eq!(
        leaves("crate::a::{self,b::{c,d},e}"),
        ["crate::a::self", "crate::a::b::c", "crate::a::b::d", "crate::a::e"]
    );
    assert_eq!(absolute("engine::step", "super::desk::Desk").unwrap(), ["engine", "desk", "Desk"]);
    assert_eq!(absolute("engine::step", "std::fs"), None);
}
