//! Two clones of a state directory, and what they had in common: which files the merged one has.
//!
//! Arrivals and lines of all clones merge. Of an agent whose `state.json` both have changed one
//! clone is believed: its records are kept together, for they were written together, and what the
//! other one has changed of them is put into `quarantine/`.

mod both;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::error::{Error, Result};
use crate::model::id::AgentName;
use crate::model::state::State;
use crate::model::tree::{Blob, Tree};

use both::Both;

use super::layout;
use super::record::{decode, encode};

/// Questions of a merge to its caller.
pub trait Around {
    fn read(&mut self, blob: &Blob) -> Result<Vec<u8>>;

    /// A text as git merges it; `None`: it can't.
    fn merged_text(&self, path: &str) -> Option<Blob>;

    /// True if this clone has taken the agent under this id, to step it alone.
    fn is_own(&self, agent: &AgentName, id: &str) -> Result<bool>;
}

/// A file of the merged state directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MergedFile {
    As(Blob),
    Made(Vec<u8>),
}

/// Result of a merge.
#[derive(Debug, Default)]
pub struct Converged {
    pub files: BTreeMap<String, MergedFile>,
    /// Texts that only a person can merge.
    pub conflicts: Vec<String>,
    /// Records of which the version of one clone was put into `quarantine/`.
    pub aside: Vec<String>,
}

type Files<'t> = BTreeMap<&'t str, &'t Blob>;

/// Refuses what no clone of ours pushes: links, records of one machine, and names that lead out of
/// the state directory. What was there before stays.
pub fn refuse_foreign(ours: &Tree, theirs: &Tree) -> Result<()> {
    for (path, blob) in theirs.iter().filter(|(path, blob)| ours.get(*path) != Some(*blob)) {
        let parts: Vec<&str> = path.split('/').collect();
        let is_plain = parts.iter().all(|part| !matches!(*part, "" | "." | "..") && *part != ".git");
        let is_agents =
            parts[0] != layout::AGENTS || parts.len() == 1 || parts[1].parse::<AgentName>().is_ok();
        let message = if !blob.is_file() {
            "what came from the remote is a link or another repository in the place of a file"
        } else if !is_plain || !is_agents {
            "what came from the remote has a name that no file of a state directory has"
        } else if is_in_another_place(path, ours) {
            "what came from the remote is a file in the place of a directory, or a directory in that of a file"
        } else if is_of_one_machine(&parts) {
            "what came from the remote is a file that belongs to one machine, and never to git"
        } else {
            continue;
        };
        return Err(Error::damaged(Path::new(path).to_owned(), message.to_owned())
            .with_hint("nothing has changed here: put it right in the clone that it comes from"));
    }
    Ok(())
}

/// True if a file would be in the place of a directory, or beneath a file.
fn is_in_another_place(path: &str, ours: &Tree) -> bool {
    let below = format!("{path}/");
    let is_dir = ours.range(below.clone()..).next().is_some_and(|(other, _)| other.starts_with(&below));
    let mut above = path.match_indices('/').map(|(at, _)| &path[..at]);
    is_dir || above.any(|dir| ours.contains_key(dir))
}

/// True for paths that `.gitignore` keeps out of git and for keys of signatures: no other clone may
/// bring them.
fn is_of_one_machine(parts: &[&str]) -> bool {
    match parts {
        [layout::SLOTS | layout::WORKSPACES, ..] => true,
        [layout::AGENTS, _, name, rest @ ..] => match *name {
            layout::LOCK | layout::RUN_LOCK | layout::JOURNAL | layout::TMP | layout::KEYS | "cache" => true,
            layout::TASKS => rest.len() > 1 || rest.first().is_some_and(|name| name.ends_with(".lock")),
            layout::RUNS => {
                rest.get(1).is_some_and(|name| matches!(*name, "leader" | "end.json" | "end.json.new"))
            }
            _ => false,
        },
        _ => false,
    }
}

/// Merges the files of two clones.
pub fn converge(base: &Tree, ours: &Tree, theirs: &Tree, around: &mut dyn Around) -> Result<Converged> {
    let mut merged = Converged::default();
    let (mut common, agents) = (BTreeSet::new(), agents([base, ours, theirs], &mut BTreeSet::new()));
    for tree in [base, ours, theirs] {
        common.extend(tree.keys().filter(|path| agent_of(path).is_none()).cloned());
    }
    for path in common {
        text(&path, [base.get(&path), ours.get(&path), theirs.get(&path)], around, &mut merged);
    }
    for name in agents {
        let prefix = format!("{}/{name}/", layout::AGENTS);
        let [base, ours, theirs] = [base, ours, theirs].map(|tree| below(tree, &prefix));
        // An agent that one clone has removed and another one has changed goes on, whole.
        if ours == base || ours == theirs || ours.is_empty() {
            merged.take_all(&prefix, &theirs);
        } else if theirs == base || theirs.is_empty() {
            merged.take_all(&prefix, &ours);
        } else {
            let name = name.parse().map_err(|error| Error::in_word("AGENT", error))?;
            Both::new(prefix, name, [base, ours, theirs]).merge(around, &mut merged)?;
        }
    }
    let mut before: Option<&String> = None;
    for path in merged.files.keys() {
        if let Some(file) =
            before.filter(|file| path.strip_prefix(file.as_str()).is_some_and(|rest| rest.starts_with('/')))
        {
            return Err(Error::damaged(
                Path::new(file).to_owned(),
                "one clone has a file here, and another a directory",
            )
            .with_hint("nothing has changed here: a person has to say which of them is right"));
        }
        before = Some(path);
    }
    Ok(merged)
}

fn agents(trees: [&Tree; 3], found: &mut BTreeSet<String>) -> BTreeSet<String> {
    for tree in trees {
        found.extend(tree.keys().filter_map(|path| agent_of(path)).map(str::to_owned));
    }
    std::mem::take(found)
}

/// The agent in whose directory a file lies.
pub fn agent_of(path: &str) -> Option<&str> {
    let (name, _) = path.strip_prefix(layout::AGENTS)?.strip_prefix('/')?.split_once('/')?;
    name.parse::<AgentName>().is_ok().then_some(name)
}

/// Directory of an agent. The path of each of its files begins with this and a `/`.
pub fn dir_of(agent: &AgentName) -> String {
    format!("{}/{agent}", layout::AGENTS)
}

/// The name of an agent's `state.json`.
pub fn state_of(agent: &AgentName) -> String {
    format!("{}/{}", dir_of(agent), layout::STATE)
}

/// True if it is the name of the settings of all agents.
pub fn is_settings(path: &str) -> bool {
    path == layout::CONFIG
}

/// Reads a `state.json`. `place` is what errors name.
pub fn read_state(place: &Path, bytes: &[u8]) -> Result<State> {
    decode(place, bytes)
}

pub fn write_state(state: &State) -> Vec<u8> {
    encode(state)
}

fn below<'t>(tree: &'t Tree, prefix: &str) -> Files<'t> {
    let from = tree.range(prefix.to_owned()..);
    from.map_while(|(path, blob)| Some((path.strip_prefix(prefix)?, blob))).collect()
}

/// A text that people write: a change of one clone is taken, and git merges two.
fn text(path: &str, [base, ours, theirs]: [Option<&Blob>; 3], around: &dyn Around, merged: &mut Converged) {
    let found = if ours == base || ours == theirs {
        theirs.cloned()
    } else if theirs == base {
        ours.cloned()
    } else if let Some(text) = around.merged_text(path) {
        Some(text)
    } else {
        merged.conflicts.push(path.to_owned());
        ours.cloned()
    };
    merged.files.extend(found.map(|blob| (path.to_owned(), MergedFile::As(blob))));
}

impl Converged {
    fn take_all(&mut self, prefix: &str, files: &Files<'_>) {
        self.files.extend(
            files.iter().map(|(path, blob)| (format!("{prefix}{path}"), MergedFile::As((*blob).clone()))),
        );
    }
}
