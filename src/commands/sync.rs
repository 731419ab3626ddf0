//! Command `sync`, and `merge-driver`, which git runs for a file that two clones have changed.

use std::path::Path;

use serde_json::json;

use crate::cli;
use crate::engine::authority;
use crate::engine::session::Session;
use crate::engine::sync::{RemoteSync, SyncOptions};
use crate::error::{Error, IoContext, Result, Status};
use crate::local::anchor::Anchor;
use crate::report::text::count;
use crate::store::Store;
use crate::store::git::{InWorkTree, Merged, merge};

use super::args::answer;

pub fn sync(session: &Session, store: &Store, args: cli::SyncArgs) -> Result<Status> {
    authority::outside(session, store, "sync")?;
    let exchange = RemoteSync::open(store, args.remote.as_deref())?;
    let terms = SyncOptions { message: ("dormouse sync", ""), begins: true, takes: None };
    let found = exchange.run(session, &terms)?;
    found.print_quarantined(session);
    let line = &exchange.line;
    let object = json!({
        "remote": line.remote,
        "branch": line.branch,
        "commit": found.commit,
        "received": found.received,
        "sent": found.sent,
        "quarantined": found.quarantined,
    });
    answer(session, &object, |_| {
        let files = |number: usize| count(number as u64, "file", "files");
        let (received, sent) = (files(found.received), files(found.sent));
        format!("{} {}: {received} received, {sent} sent", line.remote, line.branch)
    })
}

pub fn merge_driver(session: &Session, args: cli::MergeDriverArgs) -> Result<Status> {
    let read = |path: &Path| std::fs::read(path).context("read", path);
    let path = args.path.to_string_lossy();
    let put = |bytes: &[u8]| std::fs::write(&args.ours, bytes).context("write", &args.ours);
    match merge(&path, &read(&args.base)?, &read(&args.ours)?, &read(&args.theirs)?) {
        Merged::Whole(bytes) => put(&bytes)?,
        Merged::Side { kept, other } => {
            let InWorkTree { root, agent, file } = InWorkTree::of(&path)?;
            let top = std::env::current_dir().context("find", Path::new("the working directory"))?;
            let store = session.store_at(Anchor::at(top.join(root)))?;
            // The version that the merge does not keep is saved before `put` overwrites the file.
            let quarantined = store.agent(&agent)?.local().quarantine_text(&file, &other)?;
            put(&kept)?;
            session.out.note(&format!("{path}: the other version is in {quarantined}"));
        }
        Merged::Conflict => return Err(Error::damaged(&args.path, "one of its versions is not a record")),
    }
    Ok(Status::Done)
}
