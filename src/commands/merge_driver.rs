//! `merge-driver`, which git runs for a file that two clones have changed, and its registration in
//! a clone.

use std::path::Path;

use crate::cli;
use crate::engine::session::Session;
use crate::error::{Error, IoContext, Result, Status};
use crate::store::anchor::Anchor;
use crate::store::git::{InWorkTree, Merged, merge};

pub fn merge_driver(session: &mut Session, args: cli::MergeDriverArgs) -> Result<Status> {
    let read = |path: &Path| std::fs::read(path).context("read", path);
    let path = args.path.to_string_lossy();
    let put = |bytes: &[u8]| std::fs::write(&args.ours, bytes).context("write", &args.ours);
    match merge(&path, &read(&args.base)?, &read(&args.ours)?, &read(&args.theirs)?) {
        Merged::Whole(bytes) => put(&bytes)?,
        Merged::Side { kept, other } => {
            let InWorkTree { root, agent, file } = InWorkTree::of(&path)?;
            let top = std::env::current_dir().context("find", Path::new("the working directory"))?;
            let store = session.store_at(Anchor::at(top.join(root)))?;
            // The other version is saved before it is overwritten.
            let aside = store.agent(&agent)?.local().put_aside(&file, &other)?;
            put(&kept)?;
            session.out.note(&format!("{path}: the other version is in {aside}"));
        }
        Merged::Conflict => return Err(Error::damaged(&args.path, "one of its versions is no record")),
    }
    Ok(Status::Done)
}
