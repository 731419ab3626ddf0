//! Fuzz test of records: mutates one file of the state directory, runs one command, and restores
//! the directory.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::chance::Chance;
use super::commands::draw;
use super::estate::{Changes, NOW, TURNS_OUTCOME};
use super::judge::{self, Touched};
use super::misplace::misplace;
use super::mutate::{self, Pool, TIMES};
use super::run::Line;
use super::tree::{self, Node, Tree};
use super::{Failure, Worker};
use crate::command_lists::FUZZED;

/// Number of cases by kind of file and command.
pub type Coverage = BTreeMap<(String, &'static str), usize>;

/// Runs the case with this number, and returns its failure. Each round of cases tries every command
/// with every kind of file, in another order.
pub fn case(worker: &mut Worker, pairs: &mut Pairs, number: u64, coverage: &mut Coverage) -> Option<Failure> {
    let mut chance = Chance::new(worker.seed, number);
    let (kind, template) = pairs.of(worker, number);
    let path = chance.pick(&worker.copy.kinds[&kind]).clone();
    *coverage.entry((kind.clone(), template)).or_default() += 1;

    let mut words = Vec::new();
    let mut changed = Vec::new();
    let mut open = Vec::new();
    let times = if chance.one_in(6) { 1 + chance.below(3) } else { 1 };
    for time in 0..times {
        let path = if time == 0 { path.clone() } else { other(worker, &path, &mut chance) };
        let done = change(worker, &path, &mut chance, &mut changed, &mut open);
        words.push(format!("{} is {done}", path.display()));
        changed.push(path);
    }
    changed.sort();
    changed.dedup();
    let touched = changed.into_iter().map(|path| Touched::now(&worker.copy, path)).collect();
    let (line, has_env) = line(worker, template, &path, &mut chance);
    let what = format!("{}{}", words.join("; "), if has_env { " (from inside a turn)" } else { "" });
    judged(worker, &line, &what, touched, template)
}

/// Runs the command on the mutated directory, checks the result, and restores the directory.
fn judged(
    worker: &mut Worker,
    line: &Line,
    what: &str,
    touched: Vec<Touched>,
    template: &str,
) -> Option<Failure> {
    let ran = worker.place.run(line);
    let mut wrong = judge::of_its_end(line, &ran, &worker.documented);
    let mut changes = worker.copy.changes();
    if !judge::may_write_elsewhere(line) {
        wrong.extend(judge::of_the_files(&worker.copy, &changes, &touched));
    }
    let mut suspects = Vec::new();
    let gone = judge::gone(&worker.copy, &changes, &touched).into_iter();
    for gone in gone.filter(|gone| {
        !judge::is_dropped_by_name(line, &gone.path) && !judge::is_expired(&worker.copy, line, &gone.path)
    }) {
        if gone.is_surely_unreadable {
            wrong.push(format!("{} can't be read, and is gone or overwritten", gone.path.display()));
        } else if gone.path != Path::new(TURNS_OUTCOME) {
            suspects.push(gone.path.clone());
        }
    }
    if !suspects.is_empty() {
        // A command may change a file that is not damaged. To find out, the mutation is made again,
        // and `doctor` checks the file.
        again(worker, changes, &touched);
        let doctor = Line { args: vec!["doctor".into(), "--json".into()], ..line.clone() };
        let said = worker.place.run(&doctor);
        changes = worker.copy.changes();
        for path in suspects.into_iter().filter(|path| judge::is_damage(&said, path)) {
            wrong.push(format!("{} is damaged, says doctor; and it is gone or overwritten", path.display()));
        }
    }
    if wrong.is_empty() {
        worker.copy.restore(changes, &touched);
        return None;
    }
    again(worker, changes, &touched);
    let failure = Failure::new(worker, line, what, &wrong, &ran, template);
    let changes = worker.copy.changes();
    worker.copy.restore(changes, &touched);
    Some(failure)
}

/// Restores the mutated directory as it was when the command began.
fn again(worker: &mut Worker, changes: Changes, touched: &[Touched]) {
    let copy = &mut worker.copy;
    copy.restore(changes, touched);
    for touched in touched {
        let tree = copy.tree_of(&touched.path);
        let place = tree.root().join(&touched.path);
        if let Ok(found) = fs::symlink_metadata(&place)
            && !(found.is_dir() && matches!(touched.node, Some(Node::Dir { .. })))
        {
            tree::remove(&place, &found);
        }
        if let Some(node) = &touched.node {
            // A mutated parent directory may have no place for the file.
            let _ = tree::put(&place, node, tree.owner());
        }
    }
}

/// Returns a random file, mostly one near this path.
fn other(worker: &Worker, path: &Path, chance: &mut Chance) -> PathBuf {
    let nodes = worker.copy.store.nodes();
    let near: Vec<&PathBuf> = nodes.keys().filter(|other| other.parent() == path.parent()).collect();
    let all: Vec<&PathBuf> = nodes.keys().collect();
    let from = if near.is_empty() || chance.one_in(2) { &all } else { &near };
    (*chance.pick(from)).clone()
}

/// Mutates one file or directory. Returns the mutation in words, and adds the other paths that it
/// changed.
fn change(
    worker: &Worker,
    path: &Path,
    chance: &mut Chance,
    changed: &mut Vec<PathBuf>,
    open: &mut Vec<File>,
) -> String {
    let tree = worker.copy.tree_of(path);
    if !is_as_it_was(tree, path) {
        return "left alone".to_owned();
    }
    let Node::File { mode, bytes } = &tree.nodes()[path] else {
        return moved(tree, path, chance, changed, open);
    };
    if path != Path::new(TURNS_OUTCOME) && chance.one_in(5) {
        return moved(tree, path, chance, changed, open);
    }
    let files = worker.copy.store.nodes().iter().filter_map(|(path, node)| match node {
        Node::File { bytes, .. } => Some((path, bytes)),
        Node::Dir { .. } | Node::Link(_) | Node::Fifo | Node::Socket => None,
    });
    let files: Vec<(&PathBuf, &Rc<Vec<u8>>)> = files.collect();
    let write = |path: &Path, bytes: Vec<u8>| {
        let place = tree.root().join(path);
        let _ = fs::remove_file(&place);
        let _ = tree::put(&place, &Node::File { mode: *mode, bytes: Rc::new(bytes) }, tree.owner());
    };
    if path != Path::new(TURNS_OUTCOME) && chance.one_in(12) {
        let is_alike = |other: &Path| other.extension() == path.extension() && other != path;
        let alike: Vec<_> = files.iter().filter(|(other, _)| is_alike(other)).collect();
        if let Some((other, content)) = alike.get(chance.below(alike.len())) {
            write(path, content.to_vec());
            write(other, bytes.to_vec());
            changed.push((*other).clone());
            return format!("exchanged with {}", other.display());
        }
    }
    let contents: Vec<&[u8]> = files.iter().map(|(_, bytes)| bytes.as_slice()).collect();
    let pool = Pool { ids: &worker.copy.ids.all, contents: &contents };
    let (mutated, words) = mutate::mutate(path, bytes, &pool, chance);
    write(path, mutated);
    words
}

/// True if the path has a file of the original type, and all its parents are directories. An
/// earlier mutation may have made one of them a link, and nothing beyond a link may be mutated.
fn is_as_it_was(tree: &Tree, path: &Path) -> bool {
    let found = |path: &Path| fs::symlink_metadata(tree.root().join(path));
    let mut above = path.ancestors().skip(1);
    let is_kind = match &tree.nodes()[path] {
        Node::Dir { .. } => found(path).is_ok_and(|found| found.is_dir()),
        Node::File { .. } => found(path).is_ok_and(|found| found.is_file()),
        Node::Link(_) | Node::Fifo | Node::Socket => found(path).is_ok(),
    };
    is_kind && above.all(|dir| found(dir).is_ok_and(|found| found.is_dir()))
}

/// Changes type, name, permissions or place of the file, and returns the change in words.
fn moved(
    tree: &Tree,
    path: &Path,
    chance: &mut Chance,
    changed: &mut Vec<PathBuf>,
    open: &mut Vec<File>,
) -> String {
    match misplace(tree, path, chance) {
        Ok(done) => {
            open.extend(done.open);
            changed.extend(done.others);
            done.words
        }
        Err(error) => format!("as it was: {error}"),
    }
}

/// Returns the command line of a template, and true if it runs as if called from a turn.
fn line(worker: &Worker, template: &str, path: &Path, chance: &mut Chance) -> (Line, bool) {
    let (words, stdin) = draw(template, path, &worker.copy.ids, chance);
    let mut args: Vec<OsString> = words.into_iter().map(OsString::from).collect();
    match chance.below(6) {
        0..3 => args.insert(0, "--json".into()),
        3 => args.insert(0, (*chance.pick(&["-v", "-q", "--color=always"])).into()),
        _ => {}
    }
    let mut env = worker.env();
    let from_inside = template.starts_with('@');
    if from_inside {
        env.push(("DORMOUSE_AGENT".to_owned(), "kim".into()));
        env.push(("DORMOUSE_RUN".to_owned(), worker.run_of_kim.clone().into()));
    }
    let others = [
        TIMES[1],
        TIMES[6],
        TIMES[3],
        "2026-01-03T00:00:00Z",
        "2027-01-01T00:00:00Z",
        "2025-01-01T00:00:00Z",
    ];
    let now = if chance.one_in(10) { *chance.pick(&others) } else { NOW };
    env.push(("DORMOUSE_NOW".to_owned(), now.into()));
    let dir = worker.root.join("project");
    (Line { args, env, dir, stdin, ..Line::default() }, from_inside)
}

/// Every kind of file with every command, in the order in which the current round tries them.
#[derive(Default)]
pub struct Pairs {
    round: Option<u64>,
    order: Vec<(String, &'static str)>,
}

impl Pairs {
    /// Returns kind of file and command for a case. Each round of cases tries every pair once.
    fn of(&mut self, worker: &Worker, number: u64) -> (String, &'static str) {
        let kinds = &worker.copy.kinds;
        let all = (kinds.len() * FUZZED.len()) as u64;
        let round = number / all;
        if self.round != Some(round) {
            self.round = Some(round);
            self.order = kinds
                .keys()
                .flat_map(|kind| FUZZED.iter().map(move |command| (kind.clone(), *command)))
                .collect();
            Chance::new(worker.seed, u64::MAX - round).shuffle(&mut self.order);
        }
        self.order[(number % all) as usize].clone()
    }
}
