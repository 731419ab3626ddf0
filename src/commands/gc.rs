//! `gc`: deletes expired history and packs old months (contract, store §4 and §6).

use serde::Serialize;
use serde_json::json;

use crate::cli;
use crate::engine::authority;
use crate::engine::desk::Desk;
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
        let Collected { swept: Swept { runs, tasks, .. }, packed, dropped, freed_bytes } = &self.collected;
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
        let mut said = Vec::new();
        if !parts.is_empty() {
            said.push(format!(
                "{} {}",
                if self.dry_run { "would remove" } else { "removed" },
                parts.join(", ")
            ));
        }
        if !packed.is_empty() {
            let files = count(packed.len() as u64, "file", "files");
            let size = bytes(packed.iter().map(|file| file.bytes).sum());
            said.push(format!("{} {files} of {size}", if self.dry_run { "would pack" } else { "packed" }));
        }
        if said.is_empty() {
            return format!("{}  nothing to do", self.agent);
        }
        let freed = if self.dry_run { String::new() } else { format!(": {} freed", bytes(*freed_bytes)) };
        format!("{}  {}{freed}", self.agent, said.join(", "))
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
        authority::reach(session, &store, &agent, "gc")?;
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

/// Collects an agent. Reading and packing take long and run before the lock is taken.
fn collect(session: &Session, agent: &Agent<'_>, retention: Retention) -> Result<Collected> {
    let now = session.clock.now();
    let mut collection = agent.collection(retention, now)?;
    let lease = agent.lease(Subject::Run, now)?;
    let desk = Desk::new(session, agent);
    let mut open = desk.open()?;
    let locked = &open.locked;
    let collected = locked.collect(&mut collection, &open.draft.records.state, lease.is_some())?;
    if !collected.is_nothing() {
        let Collected { swept: Swept { runs, tasks, .. }, packed, dropped, .. } = &collected;
        let data = json!({ "runs": runs, "tasks": tasks, "packed": packed, "dropped": dropped });
        open.draft.event(EventKind::Collected, None, data);
        desk.commit(locked, open.draft)?;
    }
    locked.remove_collected(&collection)?;
    drop(open.locked);
    drop(lease);
    desk.tell();
    Ok(collected)
}
