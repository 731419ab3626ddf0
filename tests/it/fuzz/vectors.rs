//! Fuzz test of command lines, drawn from the help texts, with values, variables, streams and
//! directories of every kind.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use super::chance::Chance;
use super::estate::NOW;
use super::judge;
use super::mutate::{SPANS, TEXTS, TIMES};
use super::records::Coverage;
use super::run::Line;
use super::{Failure, Worker};

/// Command, parsed from its help text.
pub struct Grammar {
    words: Vec<String>,
    /// Positional arguments: the name, such as `AGENT`, and true if it may be repeated.
    positionals: Vec<(String, bool)>,
    options: Vec<Flag>,
    name: &'static str,
}

struct Flag {
    long: String,
    value: Option<String>,
    /// Possible values, if the help lists them.
    possible: Vec<String>,
}

/// Returns every command, parsed from the help texts. The help does not list hidden commands, so
/// they are named here.
pub fn grammar(worker: &mut Worker) -> Vec<Grammar> {
    let mut found = Vec::new();
    // The help of a command has all global options in one line; the help of the program explains
    // them.
    let mut everywhere = String::new();
    let mut open: Vec<Vec<String>> = vec![vec!["pause".to_owned()], vec!["supervise".to_owned()], Vec::new()];
    while let Some(words) = open.pop() {
        let mut args: Vec<OsString> = words.iter().map(OsString::from).collect();
        args.push("--help".into());
        let dir = worker.root.join("project");
        let line = Line { args, env: worker.env(), dir, ..Line::default() };
        let ran = worker.place.run(&line);
        assert_eq!(ran.status.code(), Some(0), "help of {words:?}");
        let help = String::from_utf8(ran.stdout).unwrap();
        let (listed, options) = help.split_once("\nOptions:\n").unwrap();
        for below in commands_of(listed, words.is_empty()) {
            open.push(words.iter().cloned().chain([below]).collect());
        }
        if words.is_empty() {
            everywhere = options.to_owned();
        } else {
            found.push(parse(words, &(help + &everywhere)));
        }
    }
    assert!(found.len() > 60, "only {} commands in the help", found.len());
    found
}

/// Returns the commands that a help text lists: in one list, or under several headings in the help
/// of the program.
fn commands_of(help: &str, is_of_all: bool) -> Vec<String> {
    let list = help.split("\nCommands:\n").nth(1).and_then(|list| list.split("\n\n").next());
    // The example above the usage has lines that look like commands.
    let all = help.split("\nUsage:").nth(1);
    let below = if is_of_all { all } else { list }.unwrap_or_default().lines();
    let names = below.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    names
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect()
}

fn parse(words: Vec<String>, help: &str) -> Grammar {
    let usage = help.lines().find_map(|line| line.strip_prefix("Usage: ")).unwrap_or_default();
    let mut positionals = Vec::new();
    for word in usage.split_whitespace().skip(1 + words.len()) {
        let name =
            word.trim_matches(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '|' && c != '-');
        if word.starts_with(['[', '<']) && !["OPTIONS", "COMMAND"].contains(&name) && !name.starts_with('-') {
            positionals.push((name.to_owned(), word.contains("...")));
        }
    }
    let mut options: Vec<Flag> = Vec::new();
    for line in help.lines() {
        let text = line.trim_start();
        if text.starts_with('-')
            && line.starts_with("  ")
            && let Some(at) = text.find("--")
        {
            let words: Vec<&str> = text[at..].split_whitespace().collect();
            let long = words[0].trim_end_matches(',').trim_end_matches("...").to_owned();
            let value = words.get(1).filter(|word| word.starts_with(['<', '[']));
            let value = value.map(|word| word.trim_matches(|c: char| "<>[].".contains(c)).to_owned());
            options.push(Flag { long, value, possible: Vec::new() });
        } else if let (Some(values), Some(flag)) =
            (text.strip_prefix("[possible values: "), options.last_mut())
        {
            flag.possible = values.trim_end_matches(']').split(", ").map(str::to_owned).collect();
        }
    }
    // The coverage table needs a static name.
    let name: &'static str = words.join(" ").leak();
    Grammar { words, positionals, options, name }
}

/// Runs the case with this number. Returns its failure.
pub fn case(
    worker: &mut Worker,
    grammar: &[Grammar],
    number: u64,
    coverage: &mut Coverage,
) -> Option<Failure> {
    let mut chance = Chance::new(worker.seed, number);
    let command = &grammar[(number / 2 + worker.seed) as usize % grammar.len()];
    let mut line = line(worker, command, &mut chance);
    let what = surround(worker, &mut line, &mut chance);
    *coverage.entry(("command lines".to_owned(), command.name)).or_default() += 1;
    let ran = worker.place.run(&line);
    if let Some(dir) = what.gone {
        let _ = fs::remove_dir_all(dir);
    }
    let mut wrong = judge::of_its_end(&line, &ran, &worker.documented);
    let changes = worker.copy.changes();
    if !judge::may_write_elsewhere(&line) {
        wrong.extend(judge::of_the_files(&worker.copy, &changes, &[]));
    }
    worker.copy.restore(changes, &[]);
    (!wrong.is_empty()).then(|| Failure::new(worker, &line, &what.words, &wrong, &ran, command.name))
}

fn line(worker: &Worker, command: &Grammar, chance: &mut Chance) -> Line {
    let mut args: Vec<OsString> = Vec::new();
    for (name, is_many) in &command.positionals {
        if name == "COMMAND" || chance.one_in(12) {
            continue;
        }
        let times = if *is_many { 1 + chance.below(3) } else { 1 };
        for _ in 0..times {
            args.push(value(worker, name, &[], chance));
        }
    }
    let many = if chance.one_in(4) { 6 } else { 2 };
    for _ in 0..chance.below(many + 1) {
        let Some(flag) = command.options.get(chance.below(command.options.len())) else { break };
        if ["--help", "--version"].contains(&flag.long.as_str()) && !chance.one_in(10) {
            continue;
        }
        match &flag.value {
            None => args.push((&flag.long).into()),
            Some(name) => {
                let value = value(worker, name, &flag.possible, chance);
                if chance.one_in(2) {
                    args.extend([(&flag.long).into(), value]);
                } else {
                    let mut word = OsString::from(format!("{}=", flag.long));
                    word.push(value);
                    args.push(word);
                }
            }
        }
    }
    if chance.one_in(2) {
        args.push("--json".into());
    }
    if chance.one_in(8) {
        args.push(value(worker, "TEXT", &[], chance));
    }
    if chance.one_in(5) {
        chance.shuffle(&mut args);
    }
    let runs = command.positionals.iter().any(|(name, _)| name == "COMMAND");
    if (runs && !chance.one_in(4)) || chance.one_in(20) {
        args.push("--".into());
        for _ in 0..chance.below(3) + usize::from(runs) {
            args.push(if chance.one_in(2) { "true".into() } else { value(worker, "COMMAND", &[], chance) });
        }
    }
    args.splice(0..0, command.words.iter().map(OsString::from));
    let mut env = worker.env();
    env.push(("DORMOUSE_NOW".to_owned(), NOW.into()));
    Line { args, env, dir: worker.root.join("project"), ..Line::default() }
}

/// Returns a valid or invalid value for an argument of this name.
fn value(worker: &Worker, name: &str, possible: &[String], chance: &mut Chance) -> OsString {
    if chance.one_in(3) {
        return hostile(worker, chance);
    }
    if !possible.is_empty() {
        return chance.pick(possible).into();
    }
    let ids = &worker.copy.ids.all;
    match name {
        "AGENT" | "CHILD" | "agent" => {
            (*chance.pick(&["ada", "bob", "cyd", "eve", "fin", "jon", "kim", "new", "nobody"])).into()
        }
        "ID" | "task" | "RUN" => {
            let id = chance.pick(ids);
            if chance.one_in(4) { id[id.len() - 4 - chance.below(20)..].into() } else { id.into() }
        }
        "DURATION" => (*chance.pick(&["0s", "1ms", "5m", "2h", "30d"])).into(),
        "TIME" | "TIME|DURATION" => {
            (*chance.pick(&["2026-01-02T07:00:00Z", "2026-01-03 10:00", "2020-01-01T00:00:00Z", "1h"])).into()
        }
        "N" => (*chance.pick(&["0", "1", "2", "100"])).into(),
        "EXPR" => (*chance.pick(&["* * * * *", "0 0 30 2 *", "*/5 9-17 * * 1-5", "0 0 29 2 *"])).into(),
        "ZONE" => (*chance.pick(&["UTC", "Europe/Berlin", "Mars/Olympus"])).into(),
        "JSON" => (*chance.pick(&["{}", "[1,{\"a\":null}]", "\"x\"", "@outcome.json", "-"])).into(),
        "KIND[:ID]" => {
            (*chance.pick(&["operator", "webhook:ci", "channel:", "callback:a:b", "agent:bob"])).into()
        }
        "FILE" | "FILE|-" | "DIR" => (*chance
            .pick(&crate::setup::words("outcome.json - . .. .dormouse/agents/ada/agent.toml ../bin none")))
        .into(),
        "FIELD" => (*chance.pick(&["queue.pending", "identity", "execution.state", "a.b.c"])).into(),
        _ => {
            (*chance.pick(&["hello", "two words", "-", "@outcome.json", "github:org/repo#12", "TERM"])).into()
        }
    }
}

fn hostile(worker: &Worker, chance: &mut Chance) -> OsString {
    match chance.below(10) {
        0 => OsString::new(),
        1 => OsString::from_vec(vec![b'x'; *chance.pick(&[4_097, 65_537, 131_000])]),
        2 => OsString::from_vec(
            chance.pick(&[b"\xff\xfe".to_vec(), b"a\xc3\x28b".to_vec(), b"-\xff".to_vec()]).clone(),
        ),
        3 => (*chance.pick(&["-1", "-0", "1e9", "18446744073709551616", "٣", "0x10", "4294967296", "nan"]))
            .into(),
        4 => (*chance.pick(SPANS)).into(),
        5 => (*chance.pick(TIMES)).into(),
        6 => (*chance.pick(&crate::setup::words(
            "@/dev/zero @/dev/null @. @ @none /dev/full /proc/self/mem @/proc/self/environ",
        )))
        .into(),
        7 => chance.pick(&worker.copy.ids.all).into(),
        8 => (*chance.pick(&[
            "{\"a\":",
            "[[[[[[[[[[",
            "{\"text\":1}",
            "\u{1b}]0;x\u{7}",
            "$(true)",
            "`true`",
            "'",
        ]))
        .into(),
        _ => {
            // An argument can't contain NUL.
            let text: String = chance.pick(TEXTS).chars().filter(|c| *c != '\0').collect();
            text.into()
        }
    }
}

/// Description of a command's changed environment, and a directory to remove after the run.
struct Surrounded {
    words: String,
    gone: Option<PathBuf>,
}

/// Changes environment variables, streams and the working directory at random.
fn surround(worker: &Worker, line: &mut Line, chance: &mut Chance) -> Surrounded {
    let mut words = vec!["a command line".to_owned()];
    let mut gone = None;
    if chance.one_in(4) {
        let name = *chance.pick(&crate::setup::words(
            "DORMOUSE_AGENT DORMOUSE_RUN DORMOUSE_TASK DORMOUSE_NOW DORMOUSE_DIR DORMOUSE_CONTEXT \
             DORMOUSE_OUTCOME DORMOUSE_CHECKPOINT TZ COLUMNS LINES NO_COLOR CLICOLOR_FORCE HOME PATH USER \
             XDG_CONFIG_HOME XDG_RUNTIME_DIR TMPDIR LANG RUST_BACKTRACE TERM",
        ));
        line.env.retain(|(other, _)| other != name);
        if !chance.one_in(5) {
            let value = match name {
                "DORMOUSE_AGENT" if chance.one_in(2) => "kim".into(),
                "DORMOUSE_RUN" if chance.one_in(2) => worker.run_of_kim.clone().into(),
                _ => hostile(worker, chance),
            };
            line.env.push((name.to_owned(), value));
        }
        words.push(format!("with another {name}"));
    }
    if chance.one_in(4) {
        let streams = [
            "<&-",
            ">&-",
            "2>&-",
            "<&- >&- 2>&-",
            ">/dev/full",
            "2>/dev/full",
            "</dev/full",
            "<.",
            "</dev/null",
        ];
        line.redirections = (*chance.pick(&streams)).to_owned();
    } else if chance.one_in(4) {
        let inputs: [&[u8]; 6] = [
            b"hello\n",
            b"{\"text\":\"one\"}\n{\"text\":2}\n",
            b"\xff\xfe\0",
            &[b'x'; 70_000],
            &[b'['; 100_000],
            b"\n\n\n",
        ];
        line.stdin = chance.pick(&inputs).to_vec();
    }
    if chance.one_in(10) {
        let dir = worker.root.with_extension("cwd");
        fs::create_dir(&dir).unwrap();
        fs::set_permissions(&dir, PermissionsExt::from_mode(0o555)).unwrap();
        line.env.retain(|(name, _)| name != "DORMOUSE_DIR");
        line.env.push(("DORMOUSE_DIR".to_owned(), worker.root.join("project").into()));
        line.dir = if chance.one_in(3) { PathBuf::from("/") } else { dir.clone() };
        line.dir_goes = line.dir == dir && chance.one_in(2);
        if line.dir_goes {
            words.push("in a directory that is gone".to_owned());
        }
        gone = Some(dir);
    }
    let waits = ["await", "--follow", "-f", "--wait", "ask", "watch", "--push", "--until-idle"];
    let is_one = |arg: &OsString| {
        let arg = arg.to_string_lossy();
        waits.iter().any(|word| arg == *word || arg.starts_with(&format!("{word}=")))
    };
    line.may_wait = line.args.iter().any(is_one);
    Surrounded { words: words.join(", "), gone }
}
