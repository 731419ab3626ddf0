//! `report`: writes the history of agents as an HTML page.

use std::io::{self, IsTerminal, Write};
use std::path::Path;

use serde_json::json;

use crate::cli;
use crate::engine::new_file::Replacement;
use crate::engine::session::{Session, agents};
use crate::engine::views::activity;
use crate::error::{Error, IoContext, Result, Status};
use crate::report::progress::Unit;
use crate::report::text::count;
use crate::report::timeline::{FleetHistory, html};

use super::words::time_or_ago;

pub fn report(session: &mut Session, args: cli::ReportArgs) -> Result<Status> {
    let store = session.store()?;
    let now = session.clock.now();
    let since = time_or_ago("--since", &args.since, now)?.min(now);
    let to_stdout = args.output == Path::new("-");
    if to_stdout && (session.out.is_json() || io::stdout().is_terminal()) {
        return Err(Error::usage("--output -: the page would go to a terminal, or stand beside --json")
            .with_hint("name a file: --output report.html"));
    }
    let mut names = agents(&store, &args.agents, args.agents.is_empty())?;
    names.sort();
    let home = store.anchor().home().to_string_lossy().into_owned();
    let mut chronicle = FleetHistory { home, since, now, agents: Vec::new(), unreadable: Vec::new() };
    let mut status = Status::Done;
    let mut progress = session.out.progress(Unit::Agents, Some(names.len() as u64));
    for name in &names {
        match store.agent(name).and_then(|agent| activity(&agent, since, now)) {
            Ok(activity) => chronicle.agents.push(activity),
            // A named agent that does not exist is an error, and no page is written.
            Err(error @ Error::NoAgent { .. }) if !args.agents.is_empty() => return Err(error),
            // The agent was deleted after the names were listed.
            Err(Error::NoAgent { .. }) => {}
            Err(error) => {
                session.out.failure(&error, Some(name.as_str()), Some(name.as_str()));
                status = status.graver(error.exit_status());
                chronicle.unreadable.push((name.clone(), error.to_string()));
            }
        }
        progress.advance(1);
    }
    drop(progress);
    let page = html(&chronicle)?;
    if to_stdout {
        session.out.raw(page.as_bytes());
        return Ok(status);
    }
    let new = Replacement::begin(&args.output, 0o666)?;
    new.file().write_all(page.as_bytes()).context("write", &args.output)?;
    new.place()?;
    let object = json!({
        "path": args.output.to_string_lossy(),
        "agents": chronicle.agents.len(),
        "since": since,
        "until": now,
        "bytes": page.len(),
    });
    session.out.result(&object, |out| {
        let agents = count(chronicle.agents.len() as u64, "agent", "agents");
        format!("{}: {agents} since {}", out.safe(&args.output.to_string_lossy()), since.local())
    });
    Ok(status)
}
