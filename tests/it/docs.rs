//! Tests the project's documents: runs the sessions in them, compares their lists with the code,
//! and checks that everything that they name exists.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use walkdir::WalkDir;

use crate::harness::{Sandbox, dormouse};

pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

pub fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns the files that git tracks, or without git those in the project's directories.
fn tracked() -> Vec<String> {
    let listed = Command::new("git").args(["ls-files", "-z"]).current_dir(root()).output();
    let listed = listed.ok().filter(|output| output.status.success() && !output.stdout.is_empty());
    match listed {
        Some(output) => {
            let text = String::from_utf8(output.stdout).unwrap();
            let names = text.split_terminator('\0').map(str::to_owned);
            names.filter(|name| root().join(name).is_file()).collect()
        }
        None => {
            let below = ["src", "tests", "docs", "man", "examples", "completions", "schemas"]
                .map(|dir| WalkDir::new(root().join(dir)));
            let entries = below.into_iter().chain([WalkDir::new(root()).max_depth(1)]).flatten();
            let files = entries.filter_map(Result::ok).filter(|entry| entry.file_type().is_file());
            let relative = |path: &Path| path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
            files.map(|entry| relative(entry.path())).collect()
        }
    }
}

pub fn documents() -> Vec<String> {
    tracked().into_iter().filter(|path| path.ends_with(".md")).collect()
}

/// Fenced code block of a Markdown page.
pub struct Block {
    pub language: String,
    /// Line number of the opening fence in the page.
    pub line: usize,
    lines: Vec<String>,
}

/// Command in a fenced block as it is typed, in one or more lines, and the output shown below it.
pub struct Typed {
    pub command: String,
    pub shown: Vec<String>,
}

impl Block {
    /// Returns the commands of a `console` block, whose lines begin with `$ ` and `> `, or of an
    /// `sh` block, where a line that ends in `\` continues in the next line.
    pub fn commands(&self) -> Vec<Typed> {
        let (mut commands, mut is_continued) = (Vec::<Typed>::new(), false);
        for line in &self.lines {
            let is_session = self.language == "console";
            let begins = if is_session { line.strip_prefix("$ ") } else { Some(line.as_str()) };
            let more = if is_session {
                line.strip_prefix("> ")
            } else {
                Some(line.as_str()).filter(|_| is_continued)
            };
            is_continued = !is_session && line.ends_with('\\');
            match (commands.last_mut(), begins, more) {
                (Some(last), _, Some(more)) => last.command += &format!("\n{more}"),
                (_, Some(command), _) => {
                    commands.push(Typed { command: command.to_owned(), shown: Vec::new() });
                }
                (Some(last), None, None) => last.shown.push(line.clone()),
                (None, None, _) => panic!("block at line {}: `{line}` is no command", self.line),
            }
        }
        commands
    }
}

pub fn blocks(text: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut open: Option<Block> = None;
    for (at, line) in text.lines().enumerate() {
        match (&mut open, line.strip_prefix("```")) {
            (None, Some(language)) => {
                open = Some(Block { language: language.to_owned(), line: at + 1, lines: Vec::new() });
            }
            (Some(_), Some("")) => blocks.extend(open.take()),
            (Some(block), _) => block.lines.push(line.to_owned()),
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "a fenced block has no end");
    blocks
}

/// Runs all console sessions of a document in one directory, from top to bottom. Only `sleep` lets
/// time pass.
#[test]
fn console_sessions_print_the_output_that_the_pages_show() {
    needs!("jq");
    let mut ran = 0;
    for document in documents() {
        let sandbox = Sandbox::empty();
        for block in blocks(&read(&document)).iter().filter(|block| block.language == "console") {
            ran += 1;
            run_session(&sandbox, &document, block);
        }
    }
    assert!(ran >= 3, "only {ran} console sessions were found");
}

fn run_session(sandbox: &Sandbox, document: &str, block: &Block) {
    let place = format!("{document}, block at line {}", block.line);
    for Typed { command, shown } in block.commands() {
        if let Some(seconds) = command.strip_prefix("sleep ") {
            sandbox.pass(seconds.parse().unwrap());
            continue;
        }
        let bin = dormouse().parent().unwrap().display().to_string();
        let path = format!("{bin}:{}", std::env::var("PATH").unwrap_or_default());
        let ran = sandbox.program("sh", vec!["-c".into(), (&command).into()]).env("PATH", path).output();
        sandbox.pass(-1);
        assert_eq!(ran.code(), 0, "{place}: {command}\n{ran}");
        assert_eq!(ran.stderr, "", "{place}: {command}");
        let found: Vec<&str> = ran.stdout.lines().collect();
        let both = format!("shown:\n{}\nfound:\n{}", shown.join("\n"), ran.stdout);
        assert!(agree(&shown, &found), "{place}: {command}\n{both}");
    }
}

/// True if lines match patterns. The pattern `…` stands for any lines.
fn agree(expected: &[String], found: &[&str]) -> bool {
    match expected.split_first() {
        None => found.is_empty(),
        Some((first, rest)) if first == "…" => {
            (0..=found.len()).any(|skipped| agree(rest, &found[skipped..]))
        }
        Some((first, rest)) => {
            found.first().is_some_and(|line| matches(first, line)) && agree(rest, &found[1..])
        }
    }
}

/// True if a line matches a pattern, in which `…` stands for any text.
fn matches(pattern: &str, line: &str) -> bool {
    match pattern.split_once('…') {
        None => pattern == line,
        Some((before, after)) => {
            let Some(rest) = line.strip_prefix(before) else { return false };
            let mut ends = rest.char_indices().map(|(at, _)| at).chain([rest.len()]);
            ends.any(|at| matches(after, &rest[at..]))
        }
    }
}

#[test]
fn dots_in_a_pattern_match_any_text_or_lines() {
    for (pattern, line) in [("a … c", "a b c"), ("…", ""), ("msg_…", "msg_12"), ("ab", "ab")] {
        assert!(matches(pattern, line), "{pattern}: {line}");
    }
    for (pattern, line) in [("a … c", "a b d"), ("ab", "abc"), ("…x", "y")] {
        assert!(!matches(pattern, line), "{pattern}: {line}");
    }
    assert!(agree(&["…".to_owned(), "b".to_owned()], &["x", "y", "b"]));
    assert!(!agree(&["…".to_owned(), "b".to_owned()], &["x", "b", "y"]));
}

/// Returns the number that a function of `Status` returns for each variant, from its source.
fn of_statuses(function: &str) -> Vec<(String, u8)> {
    let source = read("src/error.rs");
    let (_, rest) = source.split_once(&format!("fn {function}(self")).unwrap();
    let body = rest.split("\n    }\n").next().unwrap();
    let arms = body.lines().filter_map(|line| line.trim().trim_end_matches(',').split_once(" => "));
    let numbered = arms.filter_map(|(names, number)| Some((names, number.parse().ok()?)));
    numbered
        .flat_map(|(names, number)| names.split(" | ").map(move |name| (name.to_owned(), number)))
        .collect()
}

/// Returns the statuses that a manual page lists in its section EXIT STATUS.
fn man_statuses(page: &str) -> BTreeSet<u8> {
    let (_, rest) = page.split_once(".SH \"EXIT STATUS\"\n").unwrap();
    let section = rest.split("\n.SH ").next().unwrap();
    section.lines().filter_map(|line| line.strip_prefix(".B ")?.trim().parse().ok()).collect()
}

#[test]
fn exit_statuses_agree_everywhere() {
    let statuses: BTreeSet<u8> = of_statuses("code").into_iter().map(|(_, number)| number).collect();
    assert!(statuses.contains(&0) && statuses.contains(&10), "{statuses:?}");
    let readme = read("README.md");
    let (_, table) = readme.split_once("| Status | Means |\n").unwrap();
    let rows = table.lines().take_while(|line| line.starts_with('|'));
    let listed: BTreeSet<u8> = rows.filter_map(|row| row.split('|').nth(1)?.trim().parse().ok()).collect();
    assert_eq!(listed, statuses, "README.md");
    assert_eq!(man_statuses(&read("man/dormouse.1")), statuses, "man/dormouse.1");
    for path in tracked().iter().filter(|path| path.starts_with("man/") && path.ends_with(".1")) {
        let listed = man_statuses(&read(path));
        assert!(listed.is_subset(&statuses) && listed.contains(&0), "{path}: {listed:?}");
    }
}

/// The pages list exit statuses in the order of `Status::graver`, the gravest first.
#[test]
fn pages_list_exit_statuses_in_the_order_of_the_code() {
    let numbers: BTreeMap<String, u8> = of_statuses("code").into_iter().collect();
    let graver = of_statuses("graver").into_iter();
    let mut order: Vec<(u8, u8)> =
        graver.filter_map(|(name, gravity)| Some((gravity, *numbers.get(&name)?))).collect();
    order.sort_unstable_by(|one, other| other.cmp(one));
    order.retain(|(_, status)| ![0, 10].contains(status));
    let order: Vec<String> = order.iter().map(|(_, status)| status.to_string()).collect();
    let order = order.join(", ");
    for document in ["man/dormouse.1", "docs/CONTRACT.md"] {
        assert!(read(document).contains(&order), "{document} does not say: {order}");
    }
}

#[test]
fn links_to_files_and_headings_of_the_project_are_valid() {
    for document in documents() {
        let text = read(&document);
        let dir = root().join(&document).parent().unwrap().to_owned();
        for target in link_targets(&text) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (path, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let file = if path.is_empty() { root().join(&document) } else { dir.join(path) };
            assert!(file.exists(), "{document}: there is no file {target}");
            if !anchor.is_empty() {
                let headings = anchors(&fs::read_to_string(&file).unwrap());
                assert!(headings.contains(anchor), "{document}: {target} names no heading");
            }
        }
    }
}

fn link_targets(text: &str) -> Vec<String> {
    let mut targets = Vec::new();
    let mut in_block = false;
    for line in text.lines() {
        in_block ^= line.starts_with("```");
        if !in_block {
            let parts = line.split("](").skip(1);
            targets.extend(parts.filter_map(|part| Some(part.split_once(')')?.0.to_owned())));
        }
    }
    targets
}

/// Returns the anchors that GitHub makes for the headings of a page.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let anchor = |line: &str| -> String {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let kept = title.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(anchor).collect()
}

/// Returns the commands that have a manual page, such as `queue-list`.
fn manual_pages() -> Vec<String> {
    let command = |path: &String| Some(path.strip_prefix("man/dormouse-")?.strip_suffix(".1")?.to_owned());
    tracked().iter().filter_map(command).collect()
}

#[test]
fn pages_name_only_commands_that_exist() {
    let commands = manual_pages();
    for page in ["README.md", "docs/GUIDE.md", "docs/OPERATION.md"] {
        let text = read(page);
        for part in text.split("`dormouse ").skip(1) {
            let word = part.split('`').next().unwrap().split_whitespace().next().unwrap();
            assert!(commands.iter().any(|command| command == word), "{page}: there is no `dormouse {word}`");
        }
    }
}

/// Returns all commands, such as `queue list`, without those that have subcommands, except `wait`.
fn commands() -> Vec<String> {
    let names = manual_pages();
    let is_above =
        |group: &str, name: &str| name.strip_prefix(group).is_some_and(|rest| rest.starts_with('-'));
    let has_subcommands = |name: &String| names.iter().any(|other| is_above(name, other));
    let leaves = names.iter().filter(|name| !has_subcommands(name) || *name == "wait");
    let spelled = |name: &String| match names.iter().find(|group| is_above(group, name)) {
        Some(group) => format!("{group} {}", &name[group.len() + 1..]),
        None => name.clone(),
    };
    leaves.map(spelled).collect()
}

/// Returns the commands in docs/JSON.md: those in the first cells of its tables, where `show` after
/// `queue list` means `queue show`, and those in its headings.
fn commands_with_fields() -> BTreeSet<String> {
    let page = read("docs/JSON.md");
    let mut found = BTreeSet::new();
    for line in page.lines().filter(|line| line.starts_with("| `") || line.starts_with("## ")) {
        let cell = line.trim_start_matches("| ").split(" | ").next().unwrap();
        let mut group = String::new();
        for (at, word) in cell.split('`').enumerate().filter(|(at, _)| at % 2 == 1) {
            match word.split_once(' ') {
                Some((first, _)) => group = first.to_owned(),
                None if at > 1 && !group.is_empty() => drop(found.insert(format!("{group} {word}"))),
                None => {}
            }
            found.insert(word.to_owned());
        }
    }
    found
}

#[test]
fn pictures_have_a_script_and_are_small() {
    let script = read("docs/images/make.sh");
    let pages = read("README.md") + &read("docs/GUIDE.md");
    for picture in ["watch.svg", "report.png"] {
        let path = root().join("docs/images").join(picture);
        assert!(script.contains(&format!("\"$here/{picture}\"")), "nothing makes {picture}");
        assert!(fs::metadata(&path).unwrap().len() < 150_000, "{picture} is large");
        assert!(pages.contains(&format!("images/{picture})")), "{picture} is shown nowhere");
    }
    assert!(read("CONTRIBUTING.md").contains("docs/images/make.sh"));
}

/// Each command is listed in docs/JSON.md and in the lists of commands that other tests run.
#[test]
fn every_command_is_in_json_md_and_in_the_pair_and_fuzz_tests() {
    // These commands are missing in WRITERS and READERS: they read no agent, wait for others, or
    // need a terminal, an editor or an ended run, which some test situations lack.
    const NO_PAIRS: &str = "await,check-outcome,completions,edit,man,merge-driver,run show,schema,watch";
    // Only git calls `merge-driver`, with temporary files.
    const NO_FUZZ: &str = "merge-driver";
    let is_in = |list: &str, command: &str| list.split(',').any(|listed| listed == command);
    let fields = commands_with_fields();
    let lists = read("tests/it/command_lists.rs");
    let (pairs, fuzzed) = lists.split_once("pub const FUZZED").unwrap();
    let is_called = |list: &str, command: &str| {
        let mut lines = list.lines().map(|line| line.trim_start().trim_start_matches(['(', '"', '@']));
        lines.any(|line| {
            line.strip_prefix(command).is_some_and(|rest| rest.starts_with([' ', '"']))
                || line.strip_prefix(&command.replacen(' ', " -a kim ", 1)).is_some()
        })
    };
    let mut missing = Vec::new();
    for command in commands() {
        if !fields.contains(&command) {
            missing.push(format!("`{command}` has no row in docs/JSON.md"));
        }
        if !is_in(NO_PAIRS, &command) && !is_called(pairs, &command) {
            missing.push(format!("`{command}` is not in WRITERS or READERS of tests/it/command_lists.rs"));
        }
        if !is_in(NO_FUZZ, &command) && !is_called(fuzzed, &command) {
            missing.push(format!("`{command}` is not in FUZZED of tests/it/command_lists.rs"));
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

/// No file names a path of a developer's machine, a tool of the development, or an issue number.
#[test]
fn no_file_names_developer_paths_development_tools_or_issues() {
    // The forbidden words are split, so that the test does not find them in this file.
    let parts =
        [["/ro", "ot/"], ["/home", "/user"], ["regis", "try host"], ["sub", "agent"], ["as an ", "AI"]];
    let mut words: Vec<String> = parts.iter().map(|parts| parts.concat()).collect();
    // Files must not name the parent directory of this checkout, unless it is as short as `/tmp`.
    let above = root().parent().unwrap().to_owned();
    if above.components().count() > 2 {
        words.push(format!("{}/", above.display()));
    }
    for path in tracked() {
        if path == "Cargo.lock" || path.starts_with("LICENSE") {
            continue;
        }
        let Ok(text) = fs::read_to_string(root().join(&path)) else { continue };
        for (at, line) in text.lines().enumerate() {
            let place = format!("{path}:{}", at + 1);
            for word in &words {
                assert!(!line.contains(word.as_str()), "{place} says `{word}`");
            }
            let comment = path.ends_with(".md")
                || line.trim_start().starts_with("//")
                || line.trim_start().starts_with('#');
            assert!(!comment || !names_an_issue(line), "{place} names an issue by its number: {line}");
        }
    }
}

/// True if a line has a number after a word like `issue`; `github:org/repo#12` is no issue.
fn names_an_issue(line: &str) -> bool {
    let words: Vec<String> = line.to_lowercase().split_whitespace().map(str::to_owned).collect();
    words.windows(2).any(|pair| {
        let number = pair[1].trim_matches(|c: char| !c.is_ascii_alphanumeric() && c != '#');
        let digits = number.trim_start_matches('#');
        let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        let verb = ["issue", "issues", "pr", "fixes", "closes"]
            .contains(&pair[0].trim_matches(|c: char| !c.is_alphanumeric()));
        is_number && verb
    })
}

#[test]
fn names_an_issue_distinguishes_issues_from_resources() {
    assert!(names_an_issue("// see issue #12") && names_an_issue("Fixes #3.") && names_an_issue("(issue 7)"));
    assert!(!names_an_issue("for example `github:org/repo#12`") && !names_an_issue("the issue is old"));
}

#[test]
fn generated_files_are_equal_to_the_output_of_the_program() {
    let sandbox = Sandbox::empty();
    for (shell, file) in [("bash", "dormouse.bash"), ("zsh", "_dormouse"), ("fish", "dormouse.fish")] {
        assert_eq!(sandbox.run(["completions", shell]), read(&format!("completions/{file}")));
    }
    assert_eq!(sandbox.run(["man", "queue list"]), read("man/dormouse-queue-list.1"));
    assert_eq!(sandbox.run(["man"]), read("man/dormouse.1"));
    assert_eq!(sandbox.run(["schema", "message"]), read("schemas/message.json"));
}
