//! `gc`: deletes what is past its retention (contract, store §4 and §6).

use serde::Serialize;
use serde_json::json;

use crate::cli;
use crate::engine::authority;
use crate::engine::context::Context;
use crate::engine::session::Session;
use crate::error::{Result, Status};
use crate::model::event::EventKind;
use crate::model::id::AgentName;
use crate::model::retention::{Keep, Retention};
use crate::report::text::{bytes, count};
use crate::store::{Agent, Collected, Subject, Swept};

use super::words::parse_optional;

/// Result for an agent; with --dry-run, the forecast.
#[derive(Debug, Serialize)]
struct GcReport {
    agent: AgentName,
    dry_run: bool,
    #[serde(flatten)]
    collected: Collected,
}

impl GcReport {
    fn text(&self) -> String {
        let mut parts = Vec::new();
        let Collected { swept: Swept { runs, tasks, .. }, dropped, freed_bytes } = &self.collected;
        let (runs, tasks) = (*runs, *tasks);
        if runs > 0 {
            parts.push(count(runs as u64, "run", "runs"));
        }
        if tasks > 0 {
            parts.push(count(tasks as u64, "task", "tasks"));
        }
        if !dropped.is_empty() {
            parts.push(count(dropped.len() as u64, "month", "months"));
        }
        match (parts.is_empty(), self.dry_run) {
            (true, _) => format!("{}  nothing to do", self.agent),
            (false, true) => format!("{}  would remove {}", self.agent, parts.join(", ")),
            (false, false) => {
                format!("{}  removed {}: {} freed", self.agent, parts.join(", "), bytes(*freed_bytes))
            }
        }
    }
}

pub fn gc(session: &mut Session, args: cli::GcArgs) -> Result<Status> {
    let store = session.store()?;
    let keep = parse_optional("--keep", args.keep.as_deref())?.map(|span| Keep(Some(span)));
    if args.agents.is_empty() {
        authority::outside(session, &store, "collect the garbage of")?;
    }
    let names = authority::governed(session, &store, &args.agents, args.agents.is_empty())?;
    Ok(session.each_agent(&names, args.agents.is_empty(), |session, name| {
        let agent = store.agent(name)?;
        authority::reach(Context::new(session, &agent), "gc")?;
        let mut retention = agent.policy()?.retention;
        if let Some(keep) = keep {
            (retention.runs, retention.failed_runs, retention.tasks) = (keep, keep, keep);
        }
        let collected = if args.dry_run {
            agent.would_collect(retention, session.clock.now())?
        } else {
            collect(session, &agent, retention)?
        };
        let report = GcReport { agent: name.clone(), dry_run: args.dry_run, collected };
        session.out.result(&report, |_| report.text());
        session.out.flush();
        Ok(Status::Done)
    }))
}

/// Deletes. Reads the months before it takes the lock, because that may take long.
fn collect(session: &Session, agent: &Agent<'_>, retention: Retention) -> Result<Collected> {
    let now = session.clock.now();
    let mut collection = agent.collection(retention, now)?;
    let lease = agent.lease(Subject::Run, now)?;
    let desk = Context::new(session, agent);
    let mut open = desk.open()?;
    let locked = &open.locked;
    let collected = locked.collect(&mut collection, &open.draft.records.state, lease.is_some())?;
    if !collected.is_nothing() {
        let Collected { swept: Swept { runs, tasks, .. }, dropped, .. } = &collected;
        let data = json!({ "runs": runs, "tasks": tasks, "dropped": dropped });
        open.draft.event(EventKind::Collected, None, data);
        desk.commit(locked, open.draft)?;
    }
    locked.remove_collected(&collection)?;
    drop(open.locked);
    drop(lease);
    desk.tell();
    Ok(collected)
}
