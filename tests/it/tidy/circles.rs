//! Test of import circles, whose files can only be understood all at once. A path through a module
//! that re-exports an item counts as an import of the file that defines the item.

use std::collections::{BTreeMap, BTreeSet};

use super::{Source, assert_none, shipped};

#[test]
fn no_import_cycle_has_more_than_two_files() {
    let circles = circles(&shipped());
    let shown = circles.iter().map(|circle| circle.iter().map(String::as_str).collect::<Vec<_>>().join(", "));
    assert_none(shown.collect(), "more than two files import each other in a circle");
}

/// Returns the import circles of more than two files, each as the paths of its modules.
fn circles(sources: &[Source]) -> BTreeSet<BTreeSet<String>> {
    let mut crate_ = Modules::default();
    sources.iter().for_each(|source| crate_.add(&module(&source.path), &module(&source.path), source.code()));
    let imports = crate_.imports();
    let reached: BTreeMap<&String, BTreeSet<&String>> =
        imports.keys().map(|name| (name, reach(name, &imports))).collect();
    let circle_of = |(name, from): (&&String, &BTreeSet<&String>)| {
        let circle = from.iter().filter(|other| reached[*other].contains(*name));
        circle.map(|name| (*name).clone()).collect::<BTreeSet<_>>()
    };
    reached.iter().map(circle_of).filter(|circle| circle.len() > 2).collect()
}

/// Module: its file, its imports by their names in it, and its code without the imports.
struct Module {
    file: String,
    imports: BTreeMap<String, Vec<String>>,
    code: String,
}

/// All modules by path, including modules inside a file.
#[derive(Default)]
struct Modules(BTreeMap<String, Module>);

impl Modules {
    fn add(&mut self, name: &str, file: &str, mut code: String) {
        while let Some((start, inner, end)) = inline_module(&code) {
            let head: String = code[start..inner].to_owned();
            let own = head.trim_start_matches("mod ").trim_end_matches('{').trim();
            self.add(&joined(name, own), file, code[inner..end - 1].to_owned());
            code.replace_range(start..end, "");
        }
        let (mut imports, mut rest) = (BTreeMap::new(), String::new());
        for statement in code.split_inclusive(';') {
            match statement
                .rsplit_once("use ")
                .filter(|(before, _)| before.ends_with(['\n', ' ', ')']) || before.is_empty())
            {
                Some((before, tree)) if tree.ends_with(';') && !tree.contains(['=', '(']) => {
                    rest.push_str(before);
                    let tree = tree.trim_end_matches(';').replace(" as ", "@");
                    for leaf in leaves(&tree.split_whitespace().collect::<String>()) {
                        let (path, alias) = leaf.split_once('@').unwrap_or((&leaf, ""));
                        let path = path.trim_end_matches("::self");
                        let last = path.rsplit("::").next().unwrap_or(path);
                        let own = if alias.is_empty() { last } else { alias };
                        imports.insert(own.to_owned(), path.split("::").map(str::to_owned).collect());
                    }
                }
                _ => rest.push_str(statement),
            }
        }
        self.0.insert(name.to_owned(), Module { file: file.to_owned(), imports, code: rest });
    }

    /// Returns the files that each file uses: by an import whose name occurs in its code, or by a
    /// path.
    fn imports(&self) -> BTreeMap<String, BTreeSet<String>> {
        let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (name, module) in &self.0 {
            let used = found.entry(module.file.clone()).or_default();
            let mut paths = paths(&module.code);
            // A single word may be a variable with the name of a module.
            paths.retain(|path| path.len() > 1 || module.imports.contains_key(&path[0]));
            used.extend(paths.iter().filter_map(|path| self.defining(name, path, 0)));
            let traits = module.imports.get("_").into_iter();
            used.extend(traits.filter_map(|path| self.defining(name, path, 0)));
            used.remove(&module.file);
        }
        found
    }

    /// Returns the file that defines the target of a path in a module; `None` for items of other
    /// crates.
    fn defining(&self, name: &str, path: &[String], depth: usize) -> Option<String> {
        let (first, rest) = path.split_first().filter(|_| depth < 20)?;
        let mut at = name.to_owned();
        let mut left = match first.as_str() {
            "crate" => {
                at.clear();
                rest
            }
            "super" => {
                at = at.rsplit_once("::").map_or("", |(above, _)| above).to_owned();
                return self.below(&at, rest, depth);
            }
            "self" => rest,
            first if self.0.contains_key(&joined(name, first)) => path,
            first => {
                let import = self.0.get(name)?.imports.get(first)?;
                let whole: Vec<String> = import.iter().chain(rest).cloned().collect();
                return (import[0] != *first).then(|| self.defining(name, &whole, depth + 1))?;
            }
        };
        if left.first().is_some_and(|next| next == "super") {
            left = &left[1..];
            at = at.rsplit_once("::").map_or("", |(above, _)| above).to_owned();
        }
        self.below(&at, left, depth)
    }

    /// Follows the rest of a path from a module, through re-exports.
    fn below(&self, at: &str, left: &[String], depth: usize) -> Option<String> {
        let Some((next, rest)) = left.split_first() else { return Some(self.0.get(at)?.file.clone()) };
        if next == "super" {
            return self.below(at.rsplit_once("::").map_or("", |(above, _)| above), rest, depth);
        }
        if self.0.contains_key(&joined(at, next)) {
            return self.below(&joined(at, next), rest, depth);
        }
        let module = self.0.get(at)?;
        match module.imports.get(next) {
            Some(_) => self.defining(at, left, depth + 1),
            None => Some(module.file.clone()),
        }
    }
}

/// Returns the path of a file's module, for example `commands::doctor`; empty for `main.rs`.
fn module(path: &str) -> String {
    let name = path.trim_start_matches("src/").trim_end_matches(".rs").trim_end_matches("/mod");
    if name == "main" { String::new() } else { name.replace('/', "::") }
}

fn joined(above: &str, name: &str) -> String {
    if above.is_empty() { name.to_owned() } else { format!("{above}::{name}") }
}

/// Returns the first inline module of this code: offsets of its start, its body, and its end.
fn inline_module(code: &str) -> Option<(usize, usize, usize)> {
    let start = code.match_indices("mod ").map(|(at, _)| at).find(|at| {
        let name = code[at + 4..].trim_start_matches(|c: char| c.is_alphanumeric() || c == '_');
        name.starts_with(" {") && !code[..*at].ends_with(|c: char| c.is_alphanumeric() || c == '_')
    })?;
    let inner = start + code[start..].find('{')? + 1;
    let mut depth = 1;
    let end = code[inner..].char_indices().find(|(_, c)| {
        depth += i32::from(*c == '{') - i32::from(*c == '}');
        depth == 0
    })?;
    Some((start, inner, inner + end.0 + 1))
}

/// Returns all words of a code that may name an item, each with the path that follows it.
fn paths(code: &str) -> BTreeSet<Vec<String>> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let (mut found, mut path, mut word) = (BTreeSet::new(), Vec::new(), String::new());
    for c in code.chars().filter(|c| !c.is_whitespace() || *c == ' ' || *c == '\n').chain([' ']) {
        if is_word(c) || c == ':' {
            word.push(c);
            continue;
        }
        path.extend(
            word.split("::").filter(|part| !part.is_empty()).map(|part| part.trim_matches(':').to_owned()),
        );
        if !path.is_empty() {
            found.insert(std::mem::take(&mut path));
        }
        word.clear();
    }
    found
}

/// Returns the single paths of an import tree: `a::{b, c::d}` has `a::b` and `a::c::d`.
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

/// Returns all files that a file reaches by imports, including itself.
fn reach<'m>(name: &'m String, imports: &'m BTreeMap<String, BTreeSet<String>>) -> BTreeSet<&'m String> {
    let (mut seen, mut left) = (BTreeSet::from([name]), vec![name]);
    while let Some(next) = left.pop() {
        left.extend(imports[next].iter().filter(|other| seen.insert(other)));
    }
    seen
}

#[test]
fn the_import_parser_resolves_lists_and_reexports() {
    let expected = ["crate::a::self", "crate::a::b::c", "crate::a::b::d", "crate::a::e"];
    assert_eq!(leaves("crate::a::{self,b::{c,d},e}"), expected);
    let file = |path: &str, text: &str| Source { path: path.to_owned(), text: text.to_owned() };
    let through = [
        file("src/main.rs", "mod a;\nmod d;\n"),
        file(
            "src/a/mod.rs",
            "mod b;\nmod c;\npub mod e {\n    pub use super::c::g;\n}\npub use b::B;\npub(crate) use c::C as K;\n",
        ),
        file("src/a/b.rs", "use super::K;\npub struct B(K);\n"),
        file("src/a/c.rs", "pub struct C;\npub fn g() {\n    crate::d::f();\n}\n"),
        file("src/d.rs", "use std::fmt;\npub fn f() -> crate::a::B {\n    crate::a::e::g()\n}\n"),
    ];
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    assert_eq!(circles(&through), BTreeSet::from([names(&["a::b", "a::c", "d"])]));
    assert_eq!(circles(&through[..3]), BTreeSet::new());
}
