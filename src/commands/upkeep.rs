//! Commands `doctor`, which checks and repairs records, and `gc`, which deletes records past their
//! retention period (`docs/FORMAT.md` §2 and §6).

use std::collections::BTreeSet;

use indicatif::BinaryBytes;
use rustix::fs::Access;
use serde::Serialize;
use serde_json::json;

use crate::cli;
use crate::engine::context::Context;
use crate::engine::session::{Session, agents};
use crate::engine::{authority, checks, hooks, load, sync};
use crate::error::{Error, IoContext, Result, Status};
use crate::local::Subject;
use crate::model::event::EventKind;
use crate::model::id::AgentName;
use crate::model::retention::{Keep, Retention};
use crate::model::state::Outbox;
use crate::report::output::Tone;
use crate::report::text::{count, present};
use crate::rules::due::{Overdue, overdue};
use crate::rules::transition::draft::Draft;
use crate::store::{AgentTxn, Collected, Finding, Remedy, Store, Swept};

/// Hint for a state directory that no process ticks.
const TICK: &str =
    "`dormouse tick --all` runs the steps, `dormouse service` prints a configuration that runs them";

pub fn doctor(session: &Session, store: &Store, args: cli::DoctorArgs) -> Result<Status> {
    let named = &args.agents.agents;
    if args.repair && named.is_empty() {
        authority::outside(session, store, "repair")?;
    }
    if args.merge_driver {
        authority::outside(session, store, "register a merge driver for")?;
    }
    if args.merge_driver && sync::register(store)? {
        let merges = "git merges the files of this state directory by `dormouse merge-driver`, in this clone";
        session.out.note(merges);
    }
    let mut totals = CheckTotals::default();
    if args.quick {
        for finding in checks::quick(store, session.clock.now())? {
            totals.report(session, &finding, Ok(false));
        }
    } else if named.is_empty() {
        for finding in store.findings(session.clock.now(), false)? {
            let repaired = if args.repair { store.local().mend(&finding) } else { Ok(false) };
            totals.report(session, &finding, repaired);
        }
    }
    let names = if args.quick { Vec::new() } else { agents(store, named, named.is_empty())? };
    let mut status = session.each_agent(store, &names, named.is_empty(), |context| {
        if args.repair {
            authority::reach(context, "repair")?;
        }
        check(context, args.repair, &mut totals)?;
        Ok(Status::Done)
    });
    if let Some(late) = Overdue::of_all(totals.late.iter()) {
        let agents = count(totals.late.len() as u64, "agent", "agents");
        let message = format!("{agents}: {}; {TICK}", late.describe(session.clock.now()));
        totals.report(session, &store.local().concern("nobody_ticks", message), Ok(false));
    }
    let CheckTotals { agents, checked, open, warnings, has_merged, idle_hooks, late: _ } = totals;
    idle_hooks.iter().for_each(|note| session.out.note(note));
    if has_merged && !args.merge_driver {
        session.out.note(
            "hint: `dormouse doctor --merge-driver` has git merge such files by itself, in the clone in which it is run",
        );
    }
    if open > 0 {
        status = status.graver(Status::Damaged);
    }
    let object = json!({ "checked": checked, "findings": open, "warnings": warnings });
    session.out.result(&object, |out| {
        let found = match open {
            0 if status == Status::Done && warnings == 0 => out.paint(Tone::Good, "nothing wrong"),
            0 if status == Status::Done => "no damage".to_owned(),
            0 => "not everything was checked".to_owned(),
            _ => format!("{open} open"),
        };
        let warned = count(warnings as u64, "warning", "warnings");
        let warned = if warnings == 0 { String::new() } else { format!(", {warned}") };
        let (records, agents) =
            (count(checked as u64, "record", "records"), count(agents, "agent", "agents"));
        format!("{records} in {agents}: {found}{warned}")
    });
    Ok(status)
}

/// Totals of `doctor` over all checked agents.
#[derive(Default)]
struct CheckTotals {
    /// Number of agents whose records were checked.
    agents: u64,
    checked: usize,
    open: usize,
    /// Number of findings that are warnings and no damage.
    warnings: usize,
    /// True if a git merge has caused a finding that the merge driver would have prevented.
    has_merged: bool,
    /// Notes about files that never run: hooks that are no programs, and unknown `on-` names.
    idle_hooks: BTreeSet<String>,
    /// Agents whose next step is overdue.
    late: Vec<Overdue>,
}

impl CheckTotals {
    /// Reports a finding. A failed repair is printed, and the finding counts as open.
    fn report(&mut self, session: &Session, finding: &Finding, repaired: Result<bool>) {
        let repaired = repaired.unwrap_or_else(|error| {
            session.out.note(&format!("{}: {error}", finding.place()));
            false
        });
        self.has_merged |= finding.is_of_merge();
        let kind = if finding.remedy.is_warning() { &mut self.warnings } else { &mut self.open };
        *kind += usize::from(!repaired);
        print_finding(session, finding, repaired);
    }
}

/// Checks one agent and repairs it under one lock. The results are printed after the lock is
/// released, so that a slow reader of the output blocks no other command.
fn check(context: Context<'_>, repairs: bool, totals: &mut CheckTotals) -> Result<()> {
    let Context { session, agent } = context;
    let dir = agent.local().tmp().parent();
    // The lock does not prove that this user may write into the agent's directory.
    let writable = || rustix::fs::access(dir.path(), Access::WRITE_OK).context("write into", dir.path());
    let locked = agent.change_damaged(session.clock.now()).and_then(|locked| writable().map(|()| locked));
    let (locked, mut notes) = match locked {
        Ok(locked) => (Some(locked), Vec::new()),
        Err(error @ (Error::Busy { .. } | Error::NoAgent { .. })) => return Err(error),
        // Without a lock no repair is possible, but the records can still be checked.
        Err(error) => {
            if let Error::Io { .. } = error {
                let message = format!("no step of {} can run: {error}", agent.name());
                let concern = agent.store().local().concern("not_writable", message);
                totals.report(session, &concern, Ok(false));
            }
            (None, vec![error.to_string()])
        }
    };
    // The records of a moved agent must stay as they are, so that its export can be repeated.
    let repairs = repairs && !agent.peek().is_ok_and(|state| state.moved.is_some());
    totals.idle_hooks.extend(hooks::idle_files(agent));
    let now = session.clock.now();
    // If the agent can't be read, `checks::agent` reports that.
    let load = || load::load_unlocked(agent, now).ok();
    let records = if agent.store().properties().is_shared { None } else { load() };
    totals.late.extend(records.as_ref().and_then(|records| overdue(records, now)));
    let files = agent.as_files()?;
    let mut found = checks::agent(&files);
    if locked.as_ref().is_some_and(|locked| locked.files().is_some()) {
        found.stale_files();
    }
    // Unreadable records are ignored, because `checks::agent` has reported them.
    let _ = checks::elsewhere(&mut found, agent, session.clock.now());
    let checked = found.checked;
    let findings: Vec<Finding> = found.findings.into_iter().map(|finding| files.named(finding)).collect();
    let mut repaired = Vec::with_capacity(findings.len());
    for finding in findings {
        let done = match locked.as_ref().filter(|_| repairs) {
            Some(locked) => {
                let done = repair(context, locked, &finding);
                // The repair is already done, so a failed ledger record is only reported.
                if let Ok(true) = done
                    && let Err(error) = note(context, locked, &finding)
                {
                    notes.push(format!("{}: the repair is not in the ledger: {error}", agent.name()));
                }
                done
            }
            None => Ok(false),
        };
        repaired.push((finding, done));
    }
    drop(locked);
    notes.iter().filter(|_| repairs).for_each(|note| session.out.note(note));
    totals.agents += 1;
    totals.checked += checked;
    for (finding, done) in repaired {
        totals.report(session, &finding, done);
    }
    Ok(())
}

fn print_finding(session: &Session, finding: &Finding, repaired: bool) {
    let (path, remedy) = (finding.place(), finding.remedy.describe());
    let object = present(json!({
        "agent": finding.agent,
        "path": path,
        "kind": finding.kind,
        "message": finding.message,
        "repair": remedy,
        "repaired": repaired,
        // True for a finding that is no damage.
        "warning": finding.remedy.is_warning(),
    }));
    session.out.result(&object, |out| {
        let done = if repaired { out.paint(Tone::Good, "repaired: ") } else { String::new() };
        let remedy = out.paint(Tone::Quiet, &format!(" [{remedy}]"));
        format!("{done}{}: {}: {}{remedy}", out.safe(&path), finding.kind, out.safe(&finding.message))
    });
}

/// Repairs a finding while its check's lock is held. Returns false if a person has to decide.
fn repair(context: Context<'_>, locked: &AgentTxn<'_>, finding: &Finding) -> Result<bool> {
    if let Remedy::Recount(dead, outbox) = finding.remedy {
        return recount(context, locked, dead, outbox).map(|()| true);
    }
    let is_mended = locked.files().map_or(Ok(false), |files| files.mend(finding))?;
    if finding.remedy == Remedy::Sweep {
        hooks::end_abandoned(&context.agent.local().tmp())?;
    }
    Ok(is_mended)
}

fn draft_of(context: Context<'_>, locked: &AgentTxn<'_>) -> Result<Draft> {
    // An unreadable journal may contain an unapplied transaction, so nothing is committed before
    // the journal is applied.
    locked.empty_journal()?;
    context.draft_of(&locked.records_snapshot(), locked.state()?)
}

fn recount(context: Context<'_>, locked: &AgentTxn<'_>, dead: u64, outbox: Outbox) -> Result<()> {
    let mut draft = draft_of(context, locked)?;
    let state = &mut draft.records.state;
    let dead_before = std::mem::replace(&mut state.counters.dead, dead);
    let outbox_before = std::mem::replace(&mut state.outbox, outbox);
    let counters = [("dead", dead_before, dead), ("outbox", outbox_before.messages, outbox.messages)];
    for (counter, before, after) in counters {
        if before != after {
            let data = json!({ "counter": counter, "before": before, "after": after });
            draft.event(EventKind::RecordRepaired, None, data);
        }
    }
    context.commit(locked, draft).map(drop)
}

/// Records the repair in the ledger.
fn note(context: Context<'_>, locked: &AgentTxn<'_>, finding: &Finding) -> Result<()> {
    let mut draft = draft_of(context, locked)?;
    let data = json!({
        "path": finding.place_in(context.agent.local()),
        "kind": finding.kind,
        "message": finding.message,
        "repair": finding.remedy.describe(),
    });
    draft.event(EventKind::RecordRepaired, None, data);
    context.commit(locked, draft).map(drop)
}

/// Result of `gc` for an agent; with --dry-run, the expected result.
#[derive(Debug, Serialize)]
struct GcReport {
    agent: AgentName,
    dry_run: bool,
    #[serde(flatten)]
    collected: Collected,
}

impl GcReport {
    fn text(&self) -> String {
        let Collected { swept: Swept { runs, tasks, .. }, dropped, freed_bytes } = &self.collected;
        let parts: Vec<String> =
            [(*runs, "run", "runs"), (*tasks, "task", "tasks"), (dropped.len(), "month", "months")]
                .into_iter()
                .filter(|(number, ..)| *number > 0)
                .map(|(number, one, many)| count(number as u64, one, many))
                .collect();
        match (parts.is_empty(), self.dry_run) {
            (true, _) => format!("{}  nothing to do", self.agent),
            (false, true) => format!("{}  would remove {}", self.agent, parts.join(", ")),
            (false, false) => {
                format!("{}  removed {}: {} freed", self.agent, parts.join(", "), BinaryBytes(*freed_bytes))
            }
        }
    }
}

pub fn gc(session: &Session, store: &Store, args: cli::GcArgs) -> Result<Status> {
    let keep = args.keep.map(|span| Keep(Some(span)));
    let named = args.agents.agents;
    if named.is_empty() {
        authority::outside(session, store, "collect the garbage of")?;
    }
    let names = authority::governed(session, store, &named, named.is_empty())?;
    Ok(session.each_agent(store, &names, named.is_empty(), |context| {
        let agent = context.agent;
        authority::reach(context, "gc")?;
        let mut retention = agent.policy()?.retention;
        if let Some(keep) = keep {
            (retention.runs, retention.failed_runs, retention.tasks) = (keep, keep, keep);
        }
        let collected = if args.dry_run {
            agent.would_collect(retention, session.clock.now())?
        } else {
            collect(context, retention)?
        };
        let report = GcReport { agent: agent.name().clone(), dry_run: args.dry_run, collected };
        session.out.result(&report, |_| report.text());
        session.out.flush();
        Ok(Status::Done)
    }))
}

/// Deletes expired history. Reads old months before taking the lock, because reading may take long.
fn collect(context: Context<'_>, retention: Retention) -> Result<Collected> {
    let Context { session, agent } = context;
    let now = session.clock.now();
    let mut collection = agent.collection(retention, now)?;
    let lease = agent.lease(Subject::Run, now)?;
    let mut open = context.open()?;
    let locked = &open.locked;
    let collected = locked.collect(&mut collection, &open.draft.records.state, lease.is_some())?;
    if !collected.is_nothing() {
        let Collected { swept: Swept { runs, tasks, .. }, dropped, .. } = &collected;
        let data = json!({ "runs": runs, "tasks": tasks, "dropped": dropped });
        open.draft.event(EventKind::Collected, None, data);
        context.commit(locked, open.draft)?;
    }
    drop(open.locked);
    drop(lease);
    context.notify();
    Ok(collected)
}
