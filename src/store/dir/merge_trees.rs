//! Three-way merge of the files of two clones of a state directory.
//!
//! Messages and lines of all clones merge. If both clones have changed an agent's `state.json`, the
//! records of one clone are kept together, since they were written together, and the records that
//! the other clone has changed are put into `quarantine/`.

mod merge_agent;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::error::{Error, Result};
use crate::local::layout;
use crate::model::id::AgentName;
use crate::model::tree::{Blob, Tree};

use merge_agent::merge_agent;

pub use crate::local::layout::CONFIG;

/// Functions by which a merge reads git objects, and finds out if this clone steps an agent.
pub struct MergeContext<'m> {
    /// Returns the content of a git object.
    pub read: &'m dyn Fn(&Blob) -> Result<Vec<u8>>,
    /// Texts as git merges them, without those that git can't merge.
    pub texts: &'m Tree,
    /// True if this clone has recorded, under the id in `ticked_by`, that it alone steps the agent.
    pub is_own: &'m dyn Fn(&AgentName, &str) -> Result<bool>,
}

/// File of the merged state directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MergedFile {
    As(Blob),
    Made(Vec<u8>),
}

/// Result of a merge of the files of two clones.
#[derive(Debug, Default)]
pub struct MergedTrees {
    pub files: BTreeMap<String, MergedFile>,
    /// Paths of texts that only a person can merge.
    pub conflicts: Vec<String>,
    /// Paths of records that were quarantined, because the version of the other clone was kept.
    pub quarantined: Vec<String>,
}

type Files<'t> = BTreeMap<&'t str, &'t Blob>;

/// Error when the remote clone has files that no clone of this program pushes: links, records of
/// one machine, names that lead out of the state directory. Files that this clone has too are
/// accepted.
pub fn refuse_foreign(ours: &Tree, theirs: &Tree) -> Result<()> {
    for (path, blob) in theirs.iter().filter(|(path, blob)| ours.get(*path) != Some(*blob)) {
        let parts: Vec<&str> = path.split('/').collect();
        let is_plain = parts.iter().all(|part| !matches!(*part, "" | "." | "..") && *part != ".git");
        let is_agents =
            parts[0] != layout::AGENTS || parts.len() == 1 || parts[1].parse::<AgentName>().is_ok();
        let message = if !blob.is_file() {
            "the remote has a link or another repository in the place of a file"
        } else if !is_plain || !is_agents {
            "the remote has a file name that no file of a state directory has"
        } else if is_in_another_place(path, ours) {
            "the remote has a file in the place of a directory, or a directory in the place of a file"
        } else if is_of_one_machine(&parts) {
            "the remote has a file that belongs to one machine, and never to git"
        } else {
            continue;
        };
        return Err(Error::damaged(Path::new(path).to_owned(), message.to_owned())
            .with_hint("nothing has changed here: correct it in the clone that it comes from"));
    }
    Ok(())
}

/// True if a path is a directory in this clone, or has a file of this clone as a parent.
fn is_in_another_place(path: &str, ours: &Tree) -> bool {
    let below = format!("{path}/");
    let is_dir = ours.range(below.clone()..).next().is_some_and(|(other, _)| other.starts_with(&below));
    let mut above = path.match_indices('/').map(|(at, _)| &path[..at]);
    is_dir || above.any(|dir| ours.contains_key(dir))
}

/// True for paths that `.gitignore` keeps out of git and for keys of signatures, neither of which
/// may come from another clone.
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

/// Corrects the common base for a clone in which a sync was killed while it applied a commit. The
/// files that this clone has from the commit are no changes of its own.
pub fn correct_base(base: &mut Tree, ours: &Tree, applied: &Tree) {
    let paths: BTreeSet<&String> = [&*base, ours, applied].into_iter().flat_map(Tree::keys).collect();
    let changed: Vec<String> =
        paths.into_iter().filter(|path| ours.get(*path) != base.get(*path)).cloned().collect();
    let is_applied = |path: &&String| ours.get(*path) == applied.get(*path);
    let agents: BTreeSet<_> = changed.iter().filter(is_applied).map(|path| agent_of(path)).collect();
    for path in changed.iter().filter(|path| agents.contains(&agent_of(path))) {
        match applied.get(path) {
            Some(blob) => base.insert(path.clone(), blob.clone()),
            None => base.remove(path),
        };
    }
}

/// Merges the files of two clones. The caller has called [`refuse_foreign`], so no file of one
/// clone is in the place of a directory of the other.
pub fn merge_trees([base, ours, theirs]: [&Tree; 3], context: &MergeContext<'_>) -> Result<MergedTrees> {
    let mut merged = MergedTrees::default();
    let (mut common, mut agents) = (BTreeSet::new(), BTreeSet::new());
    for path in [base, ours, theirs].into_iter().flat_map(Tree::keys) {
        match agent_of(path) {
            Some(name) => agents.insert(name),
            None => common.insert(path),
        };
    }
    for path in common {
        text(path, [base, ours, theirs].map(|tree| tree.get(path)), context, &mut merged);
    }
    for name in agents {
        let prefix = format!("{}/{name}/", layout::AGENTS);
        let [base, ours, theirs] = [base, ours, theirs].map(|tree| below(tree, &prefix));
        // The version of a clone that changed the agent wins, even over a removal by the other.
        if ours == base || ours == theirs || (ours.is_empty() && theirs != base) {
            merged.take_all(&prefix, &theirs);
        } else if theirs == base || theirs.is_empty() {
            merged.take_all(&prefix, &ours);
        } else {
            let name = name.parse().map_err(|error| Error::in_word("AGENT", error))?;
            merge_agent(prefix, name, [base, ours, theirs], context, &mut merged)?;
        }
    }
    Ok(merged)
}

/// Returns the name of the agent whose directory contains the file.
pub fn agent_of(path: &str) -> Option<&str> {
    let (name, _) = path.strip_prefix(layout::AGENTS)?.strip_prefix('/')?.split_once('/')?;
    name.parse::<AgentName>().is_ok().then_some(name)
}

/// Directory of an agent, relative to the state directory, without a final `/`.
pub fn dir_of(agent: &AgentName) -> String {
    format!("{}/{agent}", layout::AGENTS)
}

/// Path of an agent's `state.json`.
pub fn state_of(agent: &AgentName) -> String {
    format!("{}/{}", dir_of(agent), layout::STATE)
}

fn below<'t>(tree: &'t Tree, prefix: &str) -> Files<'t> {
    let from = tree.range(prefix.to_owned()..);
    from.map_while(|(path, blob)| Some((path.strip_prefix(prefix)?, blob))).collect()
}

/// Returns the changed version, or the common one, unless the clones made two different changes.
fn one_change<T: PartialEq>([base, ours, theirs]: [T; 3]) -> Option<T> {
    if ours == base || ours == theirs { Some(theirs) } else { (theirs == base).then_some(ours) }
}

/// Merges a text that people write: takes the change of one clone, or has git merge two changes.
fn text(path: &str, sides: [Option<&Blob>; 3], context: &MergeContext<'_>, merged: &mut MergedTrees) {
    let found = match one_change(sides) {
        Some(found) => found.cloned(),
        None => context.texts.get(path).cloned().or_else(|| {
            merged.conflicts.push(path.to_owned());
            sides[1].cloned()
        }),
    };
    merged.files.extend(found.map(|blob| (path.to_owned(), MergedFile::As(blob))));
}

impl MergedTrees {
    fn take_all(&mut self, prefix: &str, files: &Files<'_>) {
        self.files.extend(
            files.iter().map(|(path, blob)| (format!("{prefix}{path}"), MergedFile::As((*blob).clone()))),
        );
    }
}
