//! `merge-driver`, which git runs for a file of a state directory that two clones have changed, and its
//! registration in a clone.

use std::path::{Component, Path, PathBuf};

use crate::cli;
use crate::engine::session::Session;
use crate::error::{Context, Error, Result, Status};
use crate::model::id::AgentName;
use crate::store::dir::layout;
use crate::store::dir::merge::{Merged, merge};

pub fn merge_driver(session: &mut Session, args: cli::MergeDriver) -> Result<Status> {
    let read = |path: &Path| std::fs::read(path).context("read", path);
    let path = args.path.to_string_lossy();
    let put = |bytes: &[u8]| std::fs::write(&args.ours, bytes).context("write", &args.ours);
    match merge(&path, &read(&args.base)?, &read(&args.ours)?, &read(&args.theirs)?) {
        Merged::Whole(bytes) => put(&bytes)?,
        Merged::Side { kept, other } => {
            let (root, name, below) = place(&args.path)?;
            let top = std::env::current_dir().context("find", Path::new("the working directory"))?;
            let store = session.store_at(top.join(root))?;
            // What is not kept must be safe before it is gone.
            let aside = store.agent(&name)?.put_aside(&below, &other)?;
            put(&kept)?;
            session.out.note(&format!("{path}: the other version is in {}", aside.path().display()));
        }
        Merged::Conflict => return Err(Error::damaged(&args.path, "one of its versions is no record")),
    }
    Ok(Status::Done)
}

/// The state directory, the agent and the file that a path means, from the top of the work tree.
fn place(path: &Path) -> Result<(PathBuf, AgentName, PathBuf)> {
    let part = |part: Component<'_>| match part {
        Component::Normal(part) => part.to_str().map(str::to_owned),
        Component::Prefix(_) | Component::RootDir | Component::CurDir | Component::ParentDir => None,
    };
    let parts: Vec<String> = path.components().map(part).collect::<Option<_>>().unwrap_or_default();
    let at = parts.iter().position(|part| part == layout::AGENTS);
    let found = at.and_then(|at| Some((at, parts.get(at + 1)?.parse().ok()?, parts.get(at + 2..)?)));
    let Some((at, name, below)) = found else {
        return Err(Error::Usage {
            message: format!("{}: not a record of an agent", path.display()),
            hint: Some("PATH is that of %P, such as .dormouse/agents/ada/state.json".to_owned()),
        });
    };
    let root: PathBuf = parts[..at].iter().collect();
    Ok((root, name, below.iter().collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_from_git_names_the_agent() {
        let (root, name, below) = place(Path::new("sub/.dormouse/agents/ada/work/x.json")).unwrap();
        assert_eq!((root.as_path(), name.as_str()), (Path::new("sub/.dormouse"), "ada"));
        assert_eq!(below, Path::new("work/x.json"));
        for path in [
            "state.json",
            "/x/agents/ada/state.json",
            "../agents/ada/state.json",
            "agents/Not One/state.json",
        ] {
            assert!(place(Path::new(path)).is_err(), "{path}");
        }
    }
}
