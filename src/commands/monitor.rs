//! `usage`, `metrics` and `report`: consumption of turns, numbers for monitoring systems, and a
//! page with the history.

use std::io::{self, IsTerminal, Write};
use std::path::Path;

use serde_json::json;

use crate::cli::{self, UsageBy};
use crate::engine::context::Context;
use crate::engine::new_file::Replacement;
use crate::engine::session::{Session, agents};
use crate::engine::views::{activity, readings};
use crate::error::{Error, IoContext, Result, Status};
use crate::model::id::AgentName;
use crate::model::run::Run;
use crate::report::metrics::{self, Naming};
use crate::report::progress::Unit;
use crate::report::text::{count, relative};
use crate::report::timeline::{FleetHistory, html};
use crate::report::usage::{Budget, UsageTable};
use crate::rules::limits::left;
use crate::store::Store;

use super::args::{answer_verbatim, several_agents, time_or_ago};

pub fn usage(session: &Session, store: &Store, args: cli::UsageArgs) -> Result<Status> {
    let now = session.clock.now();
    let since = time_or_ago("--since", &args.since, now)?;
    let chosen = several_agents(store, &args.agents)?;
    let (group, group_of): (_, fn(&AgentName, &Run) -> String) = match args.by {
        UsageBy::Agent => ("agent", |agent, _| agent.to_string()),
        UsageBy::Day => {
            ("day", |_, run| run.ended_at.local_second().chars().take("yyyy-mm-dd".len()).collect())
        }
        UsageBy::Model => {
            ("model", |_, run| run.usage.as_ref().and_then(|usage| usage.model.clone()).unwrap_or_default())
        }
    };
    let mut table = UsageTable { group, ..UsageTable::default() };
    let status = session.each_agent(store, &chosen.names, chosen.are_all, |Context { agent, .. }| {
        let name = agent.name();
        let policy = agent.policy()?;
        let (state, runs) = agent.read(|seen, state| Ok((state, seen.runs_since(since)?)))?;
        if args.by == UsageBy::Agent {
            table.rows.entry(name.to_string()).or_default();
            let budget = Budget::new(&policy.limits, left(&state, &policy.limits, now));
            if budget.left != Default::default() {
                table.budgets.insert(name.to_string(), budget);
            }
        }
        for run in runs.iter().filter(|run| run.ended_at >= since) {
            table.rows.entry(group_of(name, run)).or_default().add(run);
            table.total.add(run);
        }
        Ok(Status::Done)
    });
    if session.out.is_json() {
        for mut object in table.objects() {
            (object["since"], object["until"]) = (json!(since), json!(now));
            session.out.json_line(&object);
        }
        session.out.json_line(&json!({ "since": since, "until": now, "total": table.total }));
    } else if table.rows.is_empty() {
        if status == Status::Done {
            session.out.note(&format!("no turn has ended since {}", since.local()));
        }
    } else {
        let text = table.text(&session.out);
        session.out.line(&format!("turns that ended since {} ({})", since.local(), relative(since, now)));
        session.out.line(&text);
    }
    Ok(status)
}

pub fn metrics(session: &Session, store: &Store, args: cli::MetricsArgs) -> Result<Status> {
    let names = store.agents()?;
    let now = session.clock.now();
    let mut status = Status::Done;
    let readings = readings(store, &names, now, |name, error| {
        session.out.failure(&error, Some(name.as_str()), Some(name.as_str()));
        status = status.graver(error.exit_status());
    });
    let text = metrics::text(&readings, Naming::All, now);
    let Some(path) = &args.output else {
        return answer_verbatim(session, &json!({ "text": text }), &text).map(|_| status);
    };
    // The file is readable for all users, because the metrics collector often has its own user.
    replace(path, 0o644, &text)?;
    if session.out.is_json() {
        let (path, agents) = (path.to_string_lossy(), names.len());
        session.out.json_line(&json!({ "path": path, "agents": agents, "bytes": text.len() }));
    }
    Ok(status)
}

pub fn report(session: &Session, store: &Store, args: cli::ReportArgs) -> Result<Status> {
    let now = session.clock.now();
    let since = time_or_ago("--since", &args.since, now)?.min(now);
    let to_stdout = args.output == Path::new("-");
    if to_stdout && (session.out.is_json() || io::stdout().is_terminal()) {
        return Err(Error::usage("--output -: the page would go to a terminal, or stand beside --json")
            .with_hint("name a file: --output report.html"));
    }
    let named = &args.agents.agents;
    let mut names = agents(store, named, named.is_empty())?;
    names.sort();
    let home = store.anchor().home().to_string_lossy().into_owned();
    let mut history = FleetHistory { home, since, now, agents: Vec::new(), unreadable: Vec::new() };
    let mut status = Status::Done;
    let mut progress = session.out.progress(Unit::Agents, Some(names.len() as u64));
    for name in &names {
        match store.agent(name).and_then(|agent| activity(&agent, since, now)) {
            Ok(activity) => history.agents.push(activity),
            // An agent that the user named must exist, or no report is written.
            Err(error @ Error::NoAgent { .. }) if !named.is_empty() => return Err(error),
            // The agent was deleted after the names were listed, so the report does not need it.
            Err(Error::NoAgent { .. }) => {}
            Err(error) => {
                session.out.failure(&error, Some(name.as_str()), Some(name.as_str()));
                status = status.graver(error.exit_status());
                history.unreadable.push((name.clone(), error.to_string()));
            }
        }
        progress.advance(1);
    }
    drop(progress);
    let page = html(&history)?;
    if to_stdout {
        session.out.raw(page.as_bytes());
        return Ok(status);
    }
    replace(&args.output, 0o666, &page)?;
    let object = json!({
        "path": args.output.to_string_lossy(),
        "agents": history.agents.len(),
        "since": since,
        "until": now,
        "bytes": page.len(),
    });
    session.out.result(&object, |out| {
        let agents = count(history.agents.len() as u64, "agent", "agents");
        format!("wrote {}: {agents} since {}", out.safe(&args.output.to_string_lossy()), since.local())
    });
    Ok(status)
}

/// Replaces the content of a file atomically.
fn replace(path: &Path, mode: u32, text: &str) -> Result<()> {
    let new = Replacement::begin(path, mode)?;
    new.file().write_all(text.as_bytes()).context("write", path)?;
    new.place()
}
