//! Rules of the source: which layer may use which, and what code may be in which file.

mod budget;
mod circles;
mod pages;
mod seam;
mod words;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::setup::words;

/// Rust source file: its path below the crate, and its text.
struct Source {
    path: String,
    text: String,
}

impl Source {
    /// Returns the shipped code: without comments, without text in quotes, and without tests. Line
    /// numbers stay the same.
    fn code(&self) -> String {
        without_tests(&without_text(&self.text))
    }

    /// Returns the architectural layer: the first part of the path below `src`.
    fn layer(&self) -> &str {
        let below = self.path.trim_start_matches("src/");
        below.split_once('/').map_or_else(|| below.trim_end_matches(".rs"), |(layer, _)| layer)
    }
}

/// Returns every Rust file in a directory of the crate, sorted by path.
fn sources(dir: &str) -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths: Vec<PathBuf> = walkdir::WalkDir::new(root.join(dir))
        .into_iter()
        .map(|entry| entry.unwrap().into_path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "rs"))
        .collect();
    paths.sort();
    assert!(!paths.is_empty(), "no sources in {dir}");
    let source = |path: PathBuf| Source {
        text: fs::read_to_string(&path).unwrap(),
        path: path.strip_prefix(root).unwrap().display().to_string(),
    };
    paths.into_iter().map(source).collect()
}

/// Returns the Rust files below `src` that do not consist of tests.
fn shipped() -> Vec<Source> {
    let is_test = |source: &Source| source.path.contains("/tests/") || source.path.ends_with("/tests.rs");
    sources("src").into_iter().filter(|source| !is_test(source)).collect()
}

/// Blanks out comments and the insides of string and character literals; keeps every line break.
fn without_text(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut code = String::with_capacity(text.len());
    let mut at = 0;
    // Keeps the line breaks of a skipped range.
    let skip = |code: &mut String, from: usize, to: usize| {
        code.extend(chars[from..to.min(chars.len())].iter().filter(|c| **c == '\n'));
    };
    while at < chars.len() {
        let start = at;
        match chars[at] {
            '/' if chars.get(at + 1) == Some(&'/') => {
                while at < chars.len() && chars[at] != '\n' {
                    at += 1;
                }
            }
            '/' if chars.get(at + 1) == Some(&'*') => {
                let mut depth = 0;
                loop {
                    match (chars.get(at), chars.get(at + 1)) {
                        (Some('/'), Some('*')) => (depth, at) = (depth + 1, at + 2),
                        (Some('*'), Some('/')) => (depth, at) = (depth - 1, at + 2),
                        (Some(_), _) => at += 1,
                        (None, _) => break,
                    }
                    if depth == 0 {
                        break;
                    }
                }
                skip(&mut code, start, at);
            }
            'r' if raw_string(&chars, at).is_some() => {
                at = raw_string(&chars, at).unwrap();
                code.push_str("\"\"");
                skip(&mut code, start, at);
            }
            '"' => {
                at += 1;
                while at < chars.len() && chars[at] != '"' {
                    at += if chars[at] == '\\' { 2 } else { 1 };
                }
                at += 1;
                code.push_str("\"\"");
                skip(&mut code, start, at);
            }
            // A lifetime begins with a quote, too, but has no second quote.
            '\'' if chars.get(at + 1) == Some(&'\\') || chars.get(at + 2) == Some(&'\'') => {
                at += if chars[at + 1] == '\\' { 3 } else { 2 };
                while chars.get(at).is_some_and(|c| *c != '\'') {
                    at += 1;
                }
                at += 1;
                code.push_str("' '");
            }
            c => {
                code.push(c);
                at += 1;
            }
        }
    }
    code
}

/// Returns the end of the raw string that begins at `at`; `None` if no raw string begins there.
fn raw_string(chars: &[char], at: usize) -> Option<usize> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    if at > 0 && is_word(chars[at - 1]) && chars[at - 1] != 'b' && chars[at - 1] != 'c' {
        return None;
    }
    let hashes = chars[at + 1..].iter().take_while(|c| **c == '#').count();
    if chars.get(at + 1 + hashes) != Some(&'"') {
        return None;
    }
    let mut end = at + 2 + hashes;
    while end < chars.len() {
        if chars[end] == '"' && chars[end + 1..].iter().take(hashes).filter(|c| **c == '#').count() == hashes
        {
            return Some(end + 1 + hashes);
        }
        end += 1;
    }
    Some(end)
}

/// Blanks out every item under `#[cfg(test)]`: up to the end of its braces, or its semicolon.
fn without_tests(code: &str) -> String {
    let mut kept = String::with_capacity(code.len());
    let mut rest = code;
    while let Some(at) = rest.find("#[cfg(test)]") {
        kept.push_str(&rest[..at]);
        let (mut depth, mut end) = (0usize, rest.len());
        for (offset, c) in rest[at..].char_indices() {
            match c {
                '{' => depth += 1,
                '}' => {
                    depth = depth.saturating_sub(1);
                    if depth == 0 {
                        end = at + offset + 1;
                        break;
                    }
                }
                ';' if depth == 0 => {
                    end = at + offset + 1;
                    break;
                }
                _ => {}
            }
        }
        kept.extend(rest[at..end].chars().filter(|c| *c == '\n'));
        rest = &rest[end..];
    }
    kept.push_str(rest);
    kept
}

/// Returns every line of shipped code that `is_bad`, as `path:line: text`.
fn offences(sources: &[Source], is_bad: impl Fn(&Source, &str) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    for source in sources {
        let shown: Vec<&str> = source.text.lines().collect();
        for (at, line) in source.code().lines().enumerate() {
            if is_bad(source, line) {
                found.push(format!("{}:{}: {}", source.path, at + 1, shown[at].trim()));
            }
        }
    }
    found
}

#[track_caller]
fn assert_none(found: Vec<String>, rule: &str) {
    assert!(found.is_empty(), "{rule}:\n{}", found.join("\n"));
}

/// True if `word` occurs in a line, and not only as a part of longer words.
fn has_word(line: &str, word: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let goes_on = word.ends_with(is_word) && line[at + word.len()..].starts_with(is_word);
        !line[..at].ends_with(is_word) && !goes_on
    })
}

/// Returns the layers that each layer may use, from the table of ARCHITECTURE.md.
fn layers() -> Vec<(String, Vec<String>)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("ARCHITECTURE.md");
    let text = fs::read_to_string(path).unwrap();
    let (_, table) = text.split_once("| Layer | May use | Is |\n").expect("the table of layers");
    let rows = table.lines().skip(1).take_while(|line| line.starts_with('|'));
    let names = |cell: &str| {
        cell.split_whitespace()
            .filter_map(|word| word.strip_prefix('`')?.strip_suffix('`'))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    rows.map(|row| {
        let cells: Vec<&str> = row.split('|').collect();
        (names(cells[1]).remove(0), names(cells[2]))
    })
    .collect()
}

/// Returns the architectural layers that a file names.
fn known(source: &Source) -> Vec<String> {
    let code = source.code();
    let mut known = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        let rest = &code[at + "crate::".len()..];
        let name =
            |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
        match rest.strip_prefix('{') {
            None => known.push(name(rest)),
            Some(list) => {
                let (mut depth, mut item) = (1, String::new());
                for c in list.chars() {
                    match c {
                        '{' => depth += 1,
                        '}' => depth -= 1,
                        ',' if depth == 1 => known.push(name(std::mem::take(&mut item).trim())),
                        c if depth == 1 => item.push(c),
                        _ => {}
                    }
                    if depth == 0 {
                        break;
                    }
                }
                known.push(name(item.trim()));
            }
        }
    }
    known.retain(|name| !name.is_empty());
    known
}

#[test]
fn layers_know_only_those_below_them() {
    let mut wrong = Vec::new();
    let layers = layers();
    for source in &sources("src") {
        let layer = source.layer();
        let allowed = layers.iter().find(|(name, _)| name == layer).map(|(_, allowed)| allowed);
        let Some(allowed) = allowed else {
            wrong.push(format!("{}: `{layer}` is no layer: say in the table whom it may know", source.path));
            continue;
        };
        for name in known(source).iter().filter(|name| *name != layer && !allowed.contains(name)) {
            wrong.push(format!("{}: `{layer}` must not know `{name}`", source.path));
        }
    }
    assert_none(wrong, "the layers of ARCHITECTURE.md");
}

#[test]
fn no_command_family_imports_another() {
    let family = |path: &str| {
        let below = path.strip_prefix("src/commands/")?;
        let name = below.split_once('/').map_or(below.trim_end_matches(".rs"), |(name, _)| name);
        (!["mod", "args", "tests"].contains(&name)).then(|| name.to_owned())
    };
    let families: BTreeSet<String> =
        sources("src").iter().filter_map(|source| family(&source.path)).collect();
    let mut wrong = Vec::new();
    for source in &sources("src") {
        let Some(own) = family(&source.path) else { continue };
        let is_alone = source.path == format!("src/commands/{own}.rs");
        for line in source.code().lines().map(str::trim).filter(|line| line.starts_with("use ")) {
            let from = if is_alone {
                ["use super::", "use crate::commands::"]
            } else {
                ["use super::super::", "use crate::commands::"]
            };
            let Some(rest) = from.iter().find_map(|from| line.strip_prefix(from)) else { continue };
            let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            if name != own && families.contains(&name) {
                wrong.push(format!("{}: {line}", source.path));
            }
        }
    }
    assert_none(wrong, "what two command families share belongs to the engine");
}

#[test]
fn every_file_begins_with_a_doc_comment() {
    let mut wrong = Vec::new();
    for source in sources("src").iter().chain(&sources("tests")) {
        if !source.text.starts_with("//! ") {
            wrong.push(source.path.clone());
        }
    }
    assert_none(wrong, "the first line of a file is its `//!` sentence");
}

#[test]
fn only_transitions_assign_fields_of_a_state() {
    let fields = words(
        "status execution current_run sleeping_until pending_wake_hint moved ticked_by resting revision",
    );
    let found = offences(&shipped(), |source, line| {
        !source.path.starts_with("src/rules/transition/")
            && fields.iter().any(|field| {
                line.match_indices(&format!(".{field}")).any(|(at, found)| {
                    let rest = line[at + found.len()..].trim_start();
                    let assigned =
                        rest.starts_with('=') && !rest.starts_with("==") && !rest.starts_with("=>");
                    // Outside of `model` and `rules`, `self` is no state, although its fields may
                    // have such names.
                    let is_record = ["model", "rules"].contains(&source.layer());
                    let of_state = line[..at].ends_with("state") || is_record && line[..at].ends_with("self");
                    assigned && of_state
                })
            })
    });
    assert_none(found, "one writer: `state.json` changes in rules/transition alone");
}

#[test]
fn changes_are_committed_in_one_place() {
    let of_commits = ["finish_and_keep(", "commit(transaction", ".bring("];
    let places = ["src/engine/context.rs", "src/engine/sync.rs"];
    let found = offences(&shipped(), |source, line| {
        let is_below = ["rules", "store"].contains(&source.layer()) || places.contains(&source.path.as_str());
        !is_below && (of_commits.iter().any(|word| line.contains(word)) || line.contains("locked.commit("))
    });
    assert_none(found, "a Context commits transitions; `sync` alone brings in records that it has not made");
    let past = |source: &Source| source.path == "src/engine/sync.rs" && source.code().contains("finish");
    assert!(!shipped().iter().any(past), "`sync` makes no transition");
}

#[test]
fn only_a_context_runs_notifications_and_delivers_the_outbox() {
    let ways = ["notifications::tell", "outbox::deliver"];
    let found = offences(&shipped(), |source, line| {
        let is_owner = ["src/engine/notifications.rs", "src/commands/mod.rs"].contains(&source.path.as_str());
        !is_owner && ways.iter().any(|way| line.contains(way))
    });
    assert_none(
        found,
        "Context::tell, Context::tell_abandoned, Context::deliver and Context::tell_parent do it",
    );
}

/// Files that may start threads, which wait for hooks, signals or connections.
const WITH_THREADS: [&str; 3] = ["src/commands/ingress.rs", "src/engine/hooks.rs", "src/process/signals.rs"];

#[test]
fn threads_are_started_in_three_files() {
    let starts = ["thread::spawn", "thread::scope", "thread::Builder", "spawn_scoped", "spawn_unchecked"];
    let found = offences(&shipped(), |source, line| {
        !WITH_THREADS.contains(&source.path.as_str()) && starts.iter().any(|start| line.contains(start))
    });
    assert_none(found, "the program has one thread: what it waits for is polled");
}

/// Code outside of `process` that runs git and takes an agent's lock. `sync` holds the lock while
/// git adds the files of that agent, so that they do not change meanwhile. The store also runs git
/// under a lock, by `is_tracked`, to ask if git tracks an interrupted journal.
#[test]
fn no_other_code_holds_a_lock_while_git_runs() {
    let sources = shipped();
    let with_git = sources.into_iter().filter(|source| {
        let code = source.code();
        source.layer() != "process" && ["process::git", "Repository"].iter().any(|word| code.contains(word))
    });
    let with_git: Vec<Source> = with_git.collect();
    let locks = [".change(", ".try_change(", ".open()"];
    let found = offences(&with_git, |_, line| locks.iter().any(|lock| line.contains(lock)));
    let known = |line: &String| {
        line.starts_with("src/engine/sync.rs:") && line.contains("agent.change(session.clock.now())")
    };
    assert_eq!(found.iter().filter(|line| known(line)).count(), 1, "{found:#?}");
    assert_none(found.into_iter().filter(|line| !known(line)).collect(), "git runs without an agent's lock");
    let asks = offences(&shipped(), |_, line| line.contains("is_tracked)("));
    assert_eq!(asks.len(), 1, "{asks:#?}");
}

#[test]
fn only_transitions_make_a_state() {
    let found = offences(&shipped(), |source, line| {
        let makes = has_word(line, "State {")
            && !has_word(line, "struct State {")
            && !line.contains("impl")
            && !line.contains("->")
            // `Op::State` is an operation that contains the text of a state, and makes no `State`.
            && !line.contains("Op::State {");
        makes && !source.path.starts_with("src/rules/transition/") && source.path != "src/store/backend/op.rs"
    });
    assert_none(found, "one writer: a whole state is made in rules/transition alone");
}

#[test]
fn no_source_file_has_more_than_500_lines() {
    const MOST: usize = 500;
    let mut wrong = Vec::new();
    for source in &shipped() {
        let shipped = source.text.split("#[cfg(test)]\nmod tests {").next().unwrap();
        let lines = shipped.lines().count();
        if lines > MOST {
            wrong.push(format!("{}: {lines} lines without its tests", source.path));
        }
    }
    assert_none(wrong, "look for the second thing in a file of more than 500 lines");
}

#[test]
fn processes_are_started_in_one_place() {
    let found = offences(&shipped(), |source, line| {
        !source.path.starts_with("src/process/")
            && (line.contains("process::Command")
                || line.contains("process::Stdio")
                || line.contains("CommandExt"))
    });
    assert_none(found, "child processes are process/'s alone");
}

/// Files that may open files by path: outside of the state directory (files of the machine, the
/// user, or the programs that an agent runs), or the state directory itself.
const OF_OUTSIDE: &str = "src/commands/create/ src/commands/args.rs src/commands/export/mod.rs src/commands/sync.rs \
     src/commands/task.rs src/engine/new_file.rs src/engine/hooks.rs src/engine/sync.rs \
     src/engine/new_agent.rs src/engine/secret.rs src/engine/session.rs src/engine/turn.rs src/clock.rs \
     src/clock/local.rs src/process/ src/report/output.rs src/local/anchor.rs src/local/authors.rs src/local/git.rs \
     src/local/machine.rs src/local/init.rs src/store/postgres/wire/files.rs";

#[test]
fn the_interface_of_the_store_names_no_files() {
    let of_files = ["Spot", "View", "Scan", "layout::", "lock::", ".dir()", ".spot()"];
    let found = offences(&sources("src"), |source, line| {
        source.layer() != "store" && line.contains("store::dir")
            || source.path == "src/store/mod.rs"
                && (line.contains("pub mod dir") || of_files.iter().any(|word| line.contains(word)))
    });
    assert_none(found, "steps and commands name what `src/store/mod.rs` lists, and nothing behind it");
}

#[test]
fn only_cap_fs_opens_files_of_the_state_directory() {
    const BY_PATH: &[&str] = &[
        " fs::",
        "(fs::",
        "std::fs::",
        "File::open",
        "File::create",
        "File::options",
        "OpenOptions",
        ".symlink_metadata(",
        ".canonicalize(",
        ".read_dir(",
        ".try_exists(",
        ".read_link(",
    ];
    let found = offences(&shipped(), |source, line| {
        let is_outside = words(OF_OUTSIDE).iter().any(|place| source.path.starts_with(place));
        let is_by_path = BY_PATH.iter().any(|word| line.contains(word)) && !line.contains("use ");
        source.layer() != "cap_fs" && !is_outside && is_by_path && !line.contains("fs::File")
    });
    assert_none(found, "files beneath the state directory are opened by src/cap_fs");
}

#[test]
fn rules_do_nothing_but_compute() {
    let found = offences(&shipped(), |source, line| {
        ["rules", "model"].contains(&source.layer())
            && [
                "std::fs",
                "std::io",
                "std::net",
                "std::env",
                "std::process",
                "std::thread",
                "Instant",
                "rustix",
            ]
            .iter()
            .any(|word| has_word(line, word))
    });
    assert_none(found, "rules and records do no I/O, read no clock and start no process");
}

/// The readers of serde_json accept arrays for objects, and treat some keys in a special way.
#[test]
fn json_is_read_in_one_place() {
    let found = offences(&shipped(), |source, line| {
        let is_reader = line.contains("serde_json::from_") || line.contains("toml::from_str");
        let is_untagged = line.contains("serde(untagged)") && source.path != "src/model/policy.rs";
        // If a file has no `Deserialize`, its untagged types are only written, not read.
        let has_own_reader = is_untagged && source.text.contains("Deserialize")
            || line.contains("serde(tag = ") && !line.contains("$tag");
        let may = ["src/model/json.rs", "src/engine/outcome.rs"].contains(&source.path.as_str());
        is_reader && !may || has_own_reader && source.layer() == "model"
    });
    assert_none(found, "JSON and settings are read by model/json.rs and model/strict.rs");
}

/// The documented minimum version of Rust is the version that CI uses.
#[test]
fn the_minimum_rust_version_is_the_same_everywhere() {
    let read = |path: &str| fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
    let manifest = read("Cargo.toml");
    let line = manifest.lines().find_map(|line| line.strip_prefix("rust-version = ")).unwrap();
    let version = line.trim_matches('"');
    for (path, says) in [
        (".github/workflows/ci.yml", format!("rustup toolchain install {version} ")),
        (".github/workflows/ci.yml", format!("cargo +{version} check ")),
        ("CONTRIBUTING.md", format!("Rust {version} or newer")),
        ("README.md", format!("Rust {version} or newer")),
        ("examples/program.sh", format!("Rust {version} or newer")),
    ] {
        assert!(read(path).contains(&says), "{path} does not say `{says}`");
    }
}

#[test]
fn every_test_file_is_run() {
    let main = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/main.rs")).unwrap();
    let declared: Vec<&str> =
        main.lines().filter_map(|line| line.strip_prefix("mod ")?.strip_suffix(';')).collect();
    let mut sorted = declared.clone();
    // `missing_tools` comes first, because the other modules use its macro.
    sorted.sort_unstable_by_key(|name| (*name != "missing_tools", *name));
    assert_eq!(declared, sorted, "modules stand in order of name");
    let sources = sources("tests/it");
    let is_declared = |source: &&Source| {
        let name = source.path.trim_start_matches("tests/it/").trim_end_matches(".rs");
        match name.rsplit_once('/') {
            None => name == "main" || declared.contains(&name),
            // A module in a directory is declared by the file that has the name of that directory.
            Some((parent, name)) => sources.iter().any(|other| {
                let names = |line: &str| line.trim_start_matches("pub ").starts_with(&format!("mod {name};"));
                other.path == format!("tests/it/{parent}.rs") && other.text.lines().any(names)
            }),
        }
    };
    let wrong = sources.iter().filter(|source| !is_declared(source)).map(|source| source.path.clone());
    assert_none(wrong.collect(), "a test file that nobody names is never run");
}

#[test]
fn the_detectors_ignore_comments_strings_and_unit_tests() {
    let text = "let a = \"panic!\"; // panic!\nlet b = r#\"x \" panic!\"#; /* panic!\n */ let c = '\"'; panic!(\"{}\", '\\'');\n\
                fn f<'a>(x: &'a str) { x.unwrap() }\n#[cfg(test)]\nmod tests {\n    fn g() { if true { panic!() } }\n}\nuse crate::{a::b, c::{d, e}, f};\n";
    let source = Source { path: "src/x/y.rs".to_owned(), text: text.to_owned() };
    assert_eq!(source.code().lines().count(), text.lines().count());
    let found = offences(std::slice::from_ref(&source), |_, line| {
        has_word(line, "panic!") || line.contains(".unwrap()")
    });
    let expected = [
        "src/x/y.rs:3: */ let c = '\"'; panic!(\"{}\", '\\'');",
        "src/x/y.rs:4: fn f<'a>(x: &'a str) { x.unwrap() }",
    ];
    assert_eq!(found, expected);
    assert_eq!(known(&source), ["a", "c", "f"]);
    assert_eq!(source.layer(), "x");
    assert!(has_word("State {", "State {") && !has_word("NewState {", "State {"));
}
