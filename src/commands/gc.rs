//! `gc`: what is kept no longer goes, and old months are packed (contract, store §4 and §6).

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
use crate::model::transaction::Archived;
use crate::report::text::{bytes, count};
use crate::store::dir::gc::{Dropping, Old};
use crate::store::dir::sweep::{Sweeping, Swept};
use crate::store::{Agent, Subject};

use super::words::parse_optional;

/// What was done for an agent, or would be.
#[derive(Debug, Serialize)]
struct Report {
    agent: AgentName,
    dry_run: bool,
    #[serde(flatten)]
    swept: Swept,
    packed: Vec<PackedFile>,
    dropped: Vec<DroppedMonth>,
    /// What was on the disk and is not any more; before anything is packed that is not known of it.
    freed_bytes: u64,
}

#[derive(Debug, Serialize)]
struct PackedFile {
    path: String,
    bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    packed_bytes: Option<u64>,
}

#[derive(Debug, Serialize)]
struct DroppedMonth {
    month: String,
    bytes: u64,
}

impl Report {
    fn is_nothing(&self) -> bool {
        self.swept == Swept::default() && self.packed.is_empty() && self.dropped.is_empty()
    }

    fn text(&self) -> String {
        let mut parts = Vec::new();
        let Swept { runs, tasks, .. } = self.swept;
        if runs > 0 {
            parts.push(count(runs as u64, "run", "runs"));
        }
        if tasks > 0 {
            parts.push(count(tasks as u64, "task", "tasks"));
        }
        if !self.dropped.is_empty() {
            parts.push(count(self.dropped.len() as u64, "month", "months"));
        }
        let mut said = Vec::new();
        if !parts.is_empty() {
            said.push(format!(
                "{} {}",
                if self.dry_run { "would remove" } else { "removed" },
                parts.join(", ")
            ));
        }
        if !self.packed.is_empty() {
            let files = count(self.packed.len() as u64, "file", "files");
            let size = bytes(self.packed.iter().map(|file| file.bytes).sum());
            said.push(format!("{} {files} of {size}", if self.dry_run { "would pack" } else { "packed" }));
        }
        if said.is_empty() {
            return format!("{}  nothing to do", self.agent);
        }
        let freed = if self.dry_run { String::new() } else { format!(": {} freed", bytes(self.freed_bytes)) };
        format!("{}  {}{freed}", self.agent, said.join(", "))
    }
}

pub fn gc(session: &mut Session, args: cli::Gc) -> Result<Status> {
    let store = session.store()?;
    let keep = parse_optional("--keep", args.keep.as_deref())?.map(|span| Keep(Some(span)));
    let names = authority::governed(session, &store, &args.agents, args.agents.is_empty())?;
    Ok(session.each_agent(&names, |session, name| {
        let agent = store.agent(name)?;
        authority::reach(session, &store, &agent, "gc")?;
        let mut retention = agent.policy()?.retention;
        if let Some(keep) = keep {
            (retention.runs, retention.failed_runs, retention.tasks) = (keep, keep, keep);
        }
        let report = if args.dry_run {
            would_do(session, &agent, retention)?
        } else {
            collect(session, &agent, retention)?
        };
        session.out.result(&report, |_| report.text());
        session.out.flush();
        Ok(Status::Done)
    }))
}

/// What would be done. Nothing is written.
fn would_do(session: &Session, agent: &Agent<'_>, retention: Retention) -> Result<Report> {
    let now = session.clock.now();
    agent.look(|seen, state| {
        let dropped = agent.to_drop(&seen, retention.archive, now, false)?;
        let mut packed = agent.to_pack(&seen, now)?;
        packed.retain(|old| !dropped.iter().any(|month| month.has(old)));
        let how = Sweeping { retention, now, removes: false, is_leased: false };
        let (swept, _) = agent.sweep_all(&seen, &state, how)?;
        Ok(report(agent, true, swept, &dropped, packed.iter().map(|old| (old, None)).collect()))
    })
}

/// Does it. What takes long is done before the lock is taken: reading and packing.
fn collect(session: &Session, agent: &Agent<'_>, retention: Retention) -> Result<Report> {
    let now = session.clock.now();
    let (mut dropping, old) = agent.look(|seen, _| {
        let dropping = agent.to_drop(&seen, retention.archive, now, true)?;
        let mut old = agent.to_pack(&seen, now)?;
        old.retain(|old| !dropping.iter().any(|month| month.has(old)));
        Ok((dropping, old))
    })?;
    let mut staged = Vec::with_capacity(old.len());
    for old in old {
        staged.push(agent.look(|seen, _| agent.stage_packed(&seen, old.clone()))?);
    }
    let lease = agent.lease(Subject::Run, now)?;
    let desk = Desk::new(session, agent);
    let mut open = desk.open()?;
    let (locked, state) = (&open.locked, open.draft.records.state.clone());
    // What it names would be put back by it.
    locked.empty_journal()?;
    let mut kept = Vec::new();
    for (at, month) in dropping.iter().enumerate() {
        if !locked.place_ended(month, &state)? {
            kept.push(at);
        }
    }
    kept.into_iter().rev().for_each(|at| drop(dropping.remove(at)));
    let mut placed = Vec::with_capacity(staged.len());
    for packed in staged {
        if locked.place_packed(&packed)? {
            placed.push(packed);
        }
    }
    let how = Sweeping { retention, now, removes: true, is_leased: lease.is_some() };
    let (swept, to_move) = agent.sweep_all(&locked.look_past_inbox(), &state, how)?;
    to_move.iter().for_each(|run| open.draft.archive(Archived::Run(Box::new(run.clone()))));
    let packed = placed.iter().map(|staged| (&staged.old, Some(staged.bytes()))).collect();
    let report = report(agent, false, swept, &dropping, packed);
    if !report.is_nothing() {
        open.draft.event(
            EventKind::Collected,
            None,
            json!({ "runs": swept.runs, "tasks": swept.tasks, "packed": report.packed, "dropped": report.dropped }),
        );
        // Only then what was packed goes: whoever reads meanwhile sees by the revision that it was overtaken.
        desk.commit(locked, open.draft)?;
    }
    locked.empty_journal()?;
    to_move.iter().try_for_each(|run| agent.remove_run(run.id))?;
    placed.iter().try_for_each(|staged| locked.remove_packed(staged))?;
    dropping.iter().try_for_each(|month| locked.remove_month(month))?;
    drop(open.locked);
    drop(lease);
    desk.tell();
    Ok(report)
}

fn report(
    agent: &Agent<'_>,
    dry_run: bool,
    swept: Swept,
    dropped: &[Dropping],
    packed: Vec<(&Old, Option<u64>)>,
) -> Report {
    let saved: u64 = packed.iter().filter_map(|(old, after)| Some(old.bytes.saturating_sub((*after)?))).sum();
    let dropped_bytes: u64 = dropped.iter().map(|month| month.bytes).sum();
    Report {
        agent: agent.name().clone(),
        dry_run,
        swept,
        packed: packed
            .into_iter()
            .map(|(old, packed_bytes)| PackedFile { path: old.path.clone(), bytes: old.bytes, packed_bytes })
            .collect(),
        dropped: dropped
            .iter()
            .map(|month| DroppedMonth { month: month.month.clone(), bytes: month.bytes })
            .collect(),
        freed_bytes: swept.bytes + dropped_bytes + saved,
    }
}
