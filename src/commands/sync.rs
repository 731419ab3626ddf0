//! `sync`: merges the changes of this clone and of the others.

use serde_json::json;

use crate::cli;
use crate::engine::authority;
use crate::engine::session::Session;
use crate::engine::sync::{RemoteSync, SyncOptions};
use crate::error::{Result, Status};
use crate::report::text::count;

pub fn sync(session: &mut Session, args: cli::SyncArgs) -> Result<Status> {
    let store = session.store()?;
    store.local().files_only("`dormouse sync`")?;
    authority::outside(session, &store, "sync")?;
    let exchange = RemoteSync::open(&store, args.remote.as_deref())?;
    let terms = SyncOptions { message: ("dormouse sync", ""), begins: true, takes: None };
    let found = exchange.run(session, &terms)?;
    found.say_aside(session);
    let line = &exchange.line;
    let object = json!({
        "remote": line.remote,
        "branch": line.branch,
        "commit": found.commit,
        "received": found.received,
        "sent": found.sent,
        "aside": found.aside,
    });
    session.out.result(&object, |_| {
        let files = |number: usize| count(number as u64, "file", "files");
        let (received, sent) = (files(found.received), files(found.sent));
        format!("{} {}: {received} received, {sent} sent", line.remote, line.branch)
    });
    Ok(Status::Done)
}
