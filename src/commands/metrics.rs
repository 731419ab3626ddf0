//! `metrics`: numbers for monitoring systems.

use std::io::Write;

use serde_json::json;

use crate::cli::MetricsArgs;
use crate::engine::new_file::Replacement;
use crate::engine::session::Session;
use crate::engine::views::readings;
use crate::error::{IoContext, Result, Status};
use crate::report::metrics::{Naming, objects, text};

pub fn metrics(session: &mut Session, args: MetricsArgs) -> Result<Status> {
    let store = session.store()?;
    let names = store.agents()?;
    let now = session.clock.now();
    let (mut status, out) = (Status::Done, &mut session.out);
    let readings = readings(&store, &names, now, |name, error| {
        out.failure(&error, Some(name.as_str()), Some(name.as_str()));
        status = status.graver(error.exit_status());
    });
    let Some(path) = &args.output else {
        if out.is_json() {
            objects(&readings, Naming::All, now).iter().for_each(|number| out.json_line(number));
        } else {
            out.raw(text(&readings, Naming::All, now).as_bytes());
        }
        return Ok(status);
    };
    // The collector usually runs as another user.
    let new = Replacement::begin(path, 0o644)?;
    let text = text(&readings, Naming::All, now);
    new.file().write_all(text.as_bytes()).context("write", path)?;
    new.place()?;
    if out.is_json() {
        out.json_line(&json!({ "file": path.to_string_lossy(), "agents": names.len(), "bytes": text.len() }));
    }
    Ok(status)
}
