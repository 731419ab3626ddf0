//! Rules that a command must keep on a state directory in which the fuzz test has mutated a file.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::commands::Documented;
use super::estate::{Changes, Copy};
use super::run::{Line, MEMORY_KIB, Ran};
use super::tree::{self, Node, Tree};

/// Mutated file or directory, as it was when the command began.
pub struct Touched {
    pub path: PathBuf,
    /// Type, mode and content; `None` if the mutation removed the file or directory.
    pub node: Option<Node>,
    /// True if no reader can take the file for a record of its kind.
    pub is_surely_unreadable: bool,
}

impl Touched {
    /// Returns the file or directory as it is now.
    pub fn now(copy: &Copy, path: PathBuf) -> Touched {
        let tree = copy.tree_of(&path);
        let place = tree.root().join(&path);
        let node = fs::symlink_metadata(&place).ok().and_then(|found| tree::look(&place, &found));
        let is_surely_unreadable = match (tree.nodes().get(&path), &node) {
            (Some(Node::File { bytes: old, .. }), Some(Node::File { bytes, .. })) => {
                is_no_record(&path, old, bytes)
            }
            (Some(was), Some(is)) => std::mem::discriminant(was) != std::mem::discriminant(is),
            (None, _) | (_, None) => false,
        };
        Touched { path, node, is_surely_unreadable }
    }
}

/// True if no reader can take these bytes for a record of the kind that the file had.
fn is_no_record(path: &Path, old: &[u8], bytes: &[u8]) -> bool {
    let schema = |bytes: &[u8]| {
        let value: Option<Value> = serde_json::from_slice(bytes).ok();
        value.filter(Value::is_object).map(|value| value["schema"].as_str().map(str::to_owned))
    };
    let is_json = path.extension().is_some_and(|ending| ending == "json");
    match schema(old) {
        // No reader takes a file for a record of a kind if the file lacks the schema of the kind. A
        // dropped file needs no schema, but must be a JSON object.
        Some(Some(old)) if is_json => schema(bytes).is_none_or(|new| new.as_ref() != Some(&old)),
        Some(None) if is_json => schema(bytes).is_none(),
        _ => false,
    }
}

/// Returns a sentence for each fault in the exit status, output or memory use of a command.
pub fn of_its_end(line: &Line, ran: &Ran, documented: &Documented) -> Vec<String> {
    let mut wrong = Vec::new();
    let words: Vec<String> = line.args.iter().map(|arg| arg.to_string_lossy().into_owned()).collect();
    let stderr = String::from_utf8_lossy(&ran.stderr);
    if let Some(stuck) = &ran.stuck {
        return vec![format!("it hangs: {stuck}")];
    }
    if stderr.contains("panicked at") || stderr.contains("memory allocation of") {
        wrong.push(format!("it panicked: {}", stderr.lines().take(2).collect::<Vec<_>>().join(" ")));
    }
    match (ran.status.code(), ran.status.signal()) {
        (_, Some(signal)) if !ran.was_told => wrong.push(format!("it died of signal {signal}")),
        (Some(code), _) if !documented.allows(&words, code) && !ran.was_told => {
            wrong.push(format!("exit status {code} is not in its manual page"));
        }
        _ => {}
    }
    if ran.peak_kib > MEMORY_KIB {
        wrong.push(format!("it took {} KiB of memory", ran.peak_kib));
    }
    if !line.env.iter().any(|(name, _)| name == "CLICOLOR_FORCE") {
        wrong.extend(of_its_words(&words, ran));
    }
    wrong.extend(ran.left.iter().map(|left| format!("a process that it left behind: {left}")));
    if line.redirections.is_empty()
        && words.iter().take_while(|word| *word != "--").any(|word| word == "--json")
    {
        wrong.extend(of_its_json(&words, ran));
    }
    wrong
}

/// Returns the fault of an output for people that has control or invisible characters.
fn of_its_words(words: &[String], ran: &Ran) -> Option<String> {
    let has =
        |wanted: &str| words.iter().any(|word| word == wanted || word.starts_with(&format!("{wanted}=")));
    // These commands print text of other programs or users without escapes.
    let is_raw =
        ["output", "--stdout", "--stderr", "ask", "export", "ingress", "--"].iter().any(|word| has(word));
    if is_raw || has("--json") || has("--color") {
        return None;
    }
    let is_hidden = |c: char| {
        (c.is_control() && c != '\n' && c != '\t')
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
    };
    for (name, said) in [("stdout", &ran.stdout), ("stderr", &ran.stderr)] {
        if let Some(c) = String::from_utf8_lossy(said).chars().find(|c| is_hidden(*c)) {
            return Some(format!("there is {c:?} on {name}"));
        }
    }
    None
}

fn of_its_json(words: &[String], ran: &Ran) -> Option<String> {
    let code = ran.status.code()?;
    let text = match std::str::from_utf8(&ran.stdout) {
        Ok(text) => text,
        Err(_) => return Some("with --json stdout is not UTF-8".to_owned()),
    };
    // These commands print a text instead of JSON: a page, an HTTP answer, or the output of another
    // command.
    let prints_text = ["schema", "man", "completions", "ingress", "supervise"]
        .iter()
        .any(|name| words.iter().any(|word| word == name));
    let runs =
        words.iter().any(|word| word == "--") && !words.iter().any(|word| word == "task" || word == "create");
    if prints_text
        || runs
        || words.iter().any(|word| ["--help", "-h", "--version", "-V", "help"].contains(&word.as_str()))
    {
        return None;
    }
    if !text.is_empty() && !text.ends_with('\n') {
        return Some("with --json the last line of stdout has no end".to_owned());
    }
    // `get AGENT FIELD` prints a string without quotes.
    let is_field = words.iter().any(|word| word == "get");
    let objects: Vec<Option<Value>> = text.lines().map(|line| serde_json::from_str(line).ok()).collect();
    if let Some(at) =
        objects.iter().position(|object| !object.as_ref().is_some_and(|value| value.is_object() || is_field))
    {
        return Some(format!("with --json line {} of stdout is no object", at + 1));
    }
    let says_error = objects.iter().flatten().any(|object| object.get("error").is_some());
    // These statuses report a result: a failed turn, an impossible state, or findings.
    let is_result = matches!(code, 0 | 7 | 8 | 10)
        || (code == 4 && words.iter().any(|word| word == "--can"))
        || (code == 6 && words.iter().any(|word| word == "doctor"));
    if !is_result && !says_error && !ran.was_told {
        return Some(format!("with --json and exit status {code} no object says what the error is"));
    }
    None
}

/// True if `gc` may delete this path: it is in the directory of a run or task whose end is in the
/// archive.
pub fn is_expired(copy: &Copy, line: &Line, path: &Path) -> bool {
    let mut parts = path.components().map(|part| part.as_os_str().to_string_lossy());
    let id = parts.by_ref().find(|part| *part == "runs" || *part == "tasks").and_then(|_| parts.next());
    let is_archived = |id: &str| {
        copy.store.nodes().iter().any(|(path, node)| match node {
            Node::File { bytes, .. } => {
                path.iter().any(|part| part == "archive")
                    && String::from_utf8_lossy(bytes).contains(&format!("\"id\":\"{id}\""))
            }
            _ => false,
        })
    };
    line.args.iter().any(|arg| arg == "gc") && parts.next().is_some() && id.is_some_and(|id| is_archived(&id))
}

/// Returns the faults: a file changed outside of the state directory, or a stale temporary file.
pub fn of_the_files(copy: &Copy, changes: &Changes, touched: &[Touched]) -> Vec<String> {
    let mut wrong = Vec::new();
    let is_ours = |path: &Path| touched.iter().any(|touched| touched.path == path);
    for path in &changes.around {
        if !is_ours(path) {
            wrong.push(format!("{} outside of the state directory was changed", path.display()));
        }
    }
    // If the mutation moved a directory, new files can't be told from moved files.
    let is_about_dirs = touched.iter().any(|touched| !matches!(touched.node, Some(Node::File { .. })));
    for path in changes.store.iter().filter(|_| !is_about_dirs) {
        let is_in_tmp = path.parent().is_some_and(|dir| dir.ends_with("tmp"));
        let is_known = copy.store.nodes().contains_key(path) || path.ends_with("notify.lock");
        // Files staged by a committed transaction may remain if the command could not apply it.
        let is_staged = path.ancestors().nth(2).is_some_and(|agent| {
            copy.store
                .root()
                .join(agent)
                .join("journal.jsonl")
                .symlink_metadata()
                .is_ok_and(|found| found.len() > 0)
        });
        if is_in_tmp && !is_known && !is_staged && !is_ours(path) {
            wrong.push(format!("{} was left behind", path.display()));
        }
    }
    wrong
}

/// Returns the mutated files that are neither unchanged nor moved to quarantine whole.
pub fn gone<'t>(copy: &Copy, changes: &Changes, touched: &'t [Touched]) -> Vec<&'t Touched> {
    let is_gone = |touched: &&Touched| {
        let tree = copy.tree_of(&touched.path);
        let kept =
            touched.node.as_ref().is_none_or(|node| is_kept(tree, &touched.path, node, &changes.store));
        !kept && !is_nobodys(&touched.path)
    };
    touched.iter().filter(is_gone).collect()
}

/// True if the command may write outside the state directory.
pub fn may_write_elsewhere(line: &Line) -> bool {
    const TOLD: &[&str] = &["--secret-file", "--output", "--template"];
    line.args.iter().any(|arg| {
        let word = arg.to_string_lossy();
        ["init", "report", "rm"].contains(&&*word) || TOLD.iter().any(|flag| word.starts_with(flag))
    })
}

/// True if the command was told to drop this rejected file with its reason, or to remove or rename
/// its agent.
pub fn is_dropped_by_name(line: &Line, path: &Path) -> bool {
    let agent = super::commands::agent_of(path).unwrap_or_default();
    let leaves = line.args.iter().any(|arg| arg == "rm" || arg == "rename");
    if leaves && line.args.iter().any(|arg| *arg == *agent) {
        return true;
    }
    let drops = line.args.iter().any(|arg| arg == "--drop");
    let dir = path.parent().is_some_and(|dir| dir.ends_with("inbox/rejected"));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let file = name.strip_suffix(".reason").unwrap_or(&name);
    drops && dir && line.args.iter().any(|arg| arg == file)
}

/// True if `doctor --json` reports a file as damaged.
pub fn is_damage(doctor: &Ran, path: &Path) -> bool {
    let text = String::from_utf8_lossy(&doctor.stdout);
    let findings = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut findings = findings.map(|finding| finding.get("error").cloned().unwrap_or(finding));
    findings.any(|finding| {
        let is_about = finding["path"].as_str().is_some_and(|found| Path::new(found).ends_with(path));
        is_about && ["damaged", "newer_schema", "not_allowed"].iter().any(|kind| finding["kind"] == **kind)
    })
}

/// True for files that may be overwritten or deleted without loss.
fn is_nobodys(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let is_below = |dir: &str| path.components().any(|part| part.as_os_str() == dir);
    // Caches are rebuilt, checkpoints are replaced; temporary and lock files hold no data.
    is_below("tmp")
        || is_below("cache")
        || name.starts_with("checkpoint-")
        || name == "lock"
        || name.ends_with(".lock")
}

/// True if the file is unchanged, or was moved to quarantine whole.
fn is_kept(tree: &Tree, path: &Path, node: &Node, changes: &[PathBuf]) -> bool {
    let place = tree.root().join(path);
    let now = fs::symlink_metadata(&place).ok().and_then(|found| tree::look(&place, &found));
    if now.as_ref().is_some_and(|now| is_same(node, now)) {
        return true;
    }
    let is_aside = |path: &&PathBuf| {
        path.components().any(|part| ["quarantine", "rejected"].iter().any(|dir| part.as_os_str() == *dir))
    };
    let aside: Vec<Node> = changes
        .iter()
        .filter(is_aside)
        .filter_map(|path| {
            let place = tree.root().join(path);
            tree::look(&place, &fs::symlink_metadata(&place).ok()?)
        })
        .collect();
    if aside.iter().any(|aside| is_same(node, aside)) {
        return true;
    }
    // A file of lines is kept if every line is kept somewhere.
    let (true, Node::File { bytes, .. }) = (path.extension().is_some_and(|ending| ending == "jsonl"), node)
    else {
        return false;
    };
    let files = now.iter().chain(&aside).filter_map(|node| match node {
        Node::File { bytes, .. } => Some(bytes.as_slice()),
        Node::Dir { .. } | Node::Link(_) | Node::Fifo | Node::Socket => None,
    });
    let files: Vec<&[u8]> = files.collect();
    let mut lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.all(|line| files.iter().any(|file| file.split(|byte| *byte == b'\n').any(|other| other == line)))
}

fn is_same(one: &Node, other: &Node) -> bool {
    match (one, other) {
        (Node::File { bytes: one, .. }, Node::File { bytes: other, .. }) => one == other,
        (Node::Dir { .. }, Node::Dir { .. }) => true,
        (one, other) => one == other,
    }
}
