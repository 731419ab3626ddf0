//! `doctor`: look at every record, say what is wrong, and mend what has one right answer (contract,
//! store §6).

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde::Serialize;
use serde_json::json;

use crate::cli;
use crate::engine::authority;
use crate::engine::checks;
use crate::engine::desk::Desk;
use crate::engine::installed;
use crate::engine::load;
use crate::engine::merging;
use crate::engine::session::{Session, agents};
use crate::error::{Error, Result, Status};
use crate::model::event::EventKind;
use crate::model::id::AgentName;
use crate::model::outbox::Outbox;
use crate::process::hook;
use crate::report::output::Tone;
use crate::report::text::count;
use crate::rules::overdue::{Overdue, overdue};
use crate::rules::transition::draft::Draft;
use crate::store::{Agent, AsFiles, Change, Finding, Remedy};

/// The commands that end a state in which nobody ticks.
const TICK: &str =
    "`dormouse tick --all` makes the steps, `dormouse service` says how a machine makes them by itself";

#[derive(Serialize)]
struct FindingReport<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    agent: Option<&'a AgentName>,
    path: String,
    kind: &'a str,
    message: &'a str,
    repair: &'a str,
    repaired: bool,
    /// The records are in order as they are.
    warning: bool,
}

pub fn doctor(session: &mut Session, args: cli::Doctor) -> Result<Status> {
    let store = session.store()?;
    if args.repair && args.agents.is_empty() {
        authority::outside(session, &store, "repair")?;
    }
    if args.merge_driver {
        authority::outside(session, &store, "register a merge driver for")?;
    }
    if args.merge_driver && merging::register(&store)? {
        session
            .out
            .note("git merges the files of this state directory by `dormouse merge-driver`, in this clone");
    }
    let mut seen = Seen::default();
    let names = if args.quick {
        for finding in checks::quick(&store, session.clock.now())? {
            seen.tell(session, &finding, Ok(false));
        }
        Vec::new()
    } else if args.agents.is_empty() {
        for finding in store.look_around(session.clock.now(), false)? {
            let mended = if args.repair { store.local().mend(&finding) } else { Ok(false) };
            seen.tell(session, &finding, mended);
        }
        agents(&store, &[], true)?
    } else {
        agents(&store, &args.agents, false)?
    };
    let mut status = session.each_agent(&names, args.agents.is_empty(), |session, name| {
        let agent = store.agent(name)?;
        if args.repair {
            authority::reach(session, &store, &agent, "repair")?;
        }
        look_at(session, &agent, args.repair, &mut seen)?;
        Ok(Status::Done)
    });
    // A database is asked for its pools instead, with the rest that is wrong with it as a whole.
    if let Some(late) = Overdue::of_all(seen.late.iter()).filter(|_| !store.is_remote()) {
        let agents = count(seen.late.len() as u64, "agent", "agents");
        let message = format!("{agents}: {}; {TICK}", late.describe(session.clock.now()));
        seen.tell(session, &store.local().concern("nobody_ticks", message), Ok(false));
    }
    let Seen { checked, open, warnings, has_merged, idle_hooks, late: _ } = seen;
    for path in idle_hooks {
        let path = path.display();
        session.out.note(&format!("{path} is no program, so it is never run: `chmod +x` makes it one"));
    }
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
        let found = if open == 0 { out.paint(Tone::Good, "nothing wrong") } else { format!("{open} open") };
        let warned = match warnings {
            0 => String::new(),
            some => format!(", {}", count(some as u64, "warning", "warnings")),
        };
        format!(
            "{} in {}: {found}{warned}",
            count(checked as u64, "record", "records"),
            count(names.len() as u64, "agent", "agents")
        )
    });
    Ok(status)
}

/// What was looked at, and how much of what was found is still wrong.
#[derive(Default)]
struct Seen {
    checked: usize,
    open: usize,
    /// What is no damage, and for a person to look at.
    warnings: usize,
    /// Whether a merge has left something that our own merge driver would not have.
    has_merged: bool,
    /// Files that have the name of a hook and are never run.
    idle_hooks: BTreeSet<PathBuf>,
    /// Agents for which a step has been due for too long.
    late: Vec<Overdue>,
}

impl Seen {
    /// Says what was found and whether it is mended. A failure to mend it is said, and it stays
    /// open.
    fn tell(&mut self, session: &mut Session, finding: &Finding, mended: Result<bool>) {
        let repaired = mended.unwrap_or_else(|error| {
            session.out.note(&format!("{}: {error}", finding.place()));
            false
        });
        self.has_merged |= finding.is_of_merge();
        let kind = if finding.remedy.is_warning() { &mut self.warnings } else { &mut self.open };
        *kind += usize::from(!repaired);
        say(session, finding, repaired);
    }
}

/// Looks at one agent and mends what is to be mended, under one lock. The results are printed when
/// the lock is free again, so that a slow reader of the output keeps no command waiting.
fn look_at(session: &mut Session, agent: &Agent<'_>, mends: bool, seen: &mut Seen) -> Result<()> {
    let (locked, mut notes) = match agent.change_damaged(session.clock.now()) {
        Ok(locked) => (Some(locked), Vec::new()),
        Err(error @ (Error::Busy { .. } | Error::NoAgent { .. })) => return Err(error),
        // Where no lock can be had nothing can be mended. Looking is what is left.
        Err(error) => (None, vec![error.to_string()]),
    };
    // Nothing is changed of an agent that was moved away, so that its stream can be written again.
    let mends = mends && !agent.peek().is_ok_and(|state| state.moved.is_some());
    seen.idle_hooks.extend(installed::no_programs(agent));
    let now = session.clock.now();
    // An agent that can't be read is a finding of its own.
    let records = if agent.store().is_remote() { None } else { load::look(agent, now).ok() };
    seen.late.extend(records.as_ref().and_then(|records| overdue(records, now)));
    // Records elsewhere are looked at as files of this machine.
    let files = match &locked {
        Some(locked) => locked.as_files()?,
        None => agent.as_files(session.clock.now())?,
    };
    let mut found = checks::agent(files.as_ref().map_or(agent, AsFiles::agent));
    if let (Some(locked), None) = (&locked, &files) {
        found.litter(locked.local());
    }
    // Records that can't be read are a finding already.
    let _ = checks::elsewhere(&mut found, agent, session.clock.now());
    let checked = found.checked;
    let findings: Vec<Finding> = match &files {
        Some(files) => found.findings.into_iter().map(|finding| files.named(finding)).collect(),
        None => found.findings,
    };
    let mut mended = Vec::with_capacity(findings.len());
    for finding in findings {
        let done = match locked.as_ref().filter(|_| mends) {
            Some(locked) => {
                let done = mend(session, agent, locked, &finding);
                // The repair stands whether or not the ledger can be written.
                if let Ok(true) = done
                    && let Err(error) = note(session, agent, locked, &finding)
                {
                    notes.push(format!("{}: the repair is not in the ledger: {error}", agent.name()));
                }
                done
            }
            None => Ok(false),
        };
        mended.push((finding, done));
    }
    drop(locked);
    notes.iter().filter(|_| mends).for_each(|note| session.out.note(note));
    seen.checked += checked;
    for (finding, done) in mended {
        seen.tell(session, &finding, done);
    }
    Ok(())
}

fn say(session: &mut Session, finding: &Finding, repaired: bool) {
    let report = FindingReport {
        agent: finding.agent.as_ref(),
        path: finding.place(),
        kind: finding.kind,
        message: &finding.message,
        repair: finding.remedy.describe(),
        repaired,
        warning: finding.remedy.is_warning(),
    };
    session.out.result(&report, |out| {
        let done = if repaired { out.paint(Tone::Good, "repaired: ") } else { String::new() };
        let remedy = out.paint(Tone::Quiet, &format!(" [{}]", finding.remedy.describe()));
        format!("{done}{}: {}: {}{remedy}", out.safe(&report.path), finding.kind, out.safe(&finding.message))
    });
}

/// Mends a finding under the lock under which it was found. `false`: it is for people to decide.
fn mend(session: &Session, agent: &Agent<'_>, locked: &Change<'_>, finding: &Finding) -> Result<bool> {
    if let Remedy::Recount(dead, outbox) = finding.remedy {
        return recount(session, agent, locked, dead, outbox).map(|()| true);
    }
    if agent.store().is_remote() {
        // The rest is about files.
        return Ok(false);
    }
    let is_mended = locked.local().mend(finding)?;
    if finding.remedy == Remedy::Sweep {
        hook::end_abandoned(&agent.workdir().tmp())?;
    }
    Ok(is_mended)
}

fn draft_of(session: &Session, agent: &Agent<'_>, locked: &Change<'_>) -> Result<Draft> {
    // Nothing is committed while the journal can't be read: it may have a transaction that comes
    // before.
    locked.finish_journal()?;
    Desk::new(session, agent).draft_of(&locked.look_past_inbox(), locked.state()?)
}

fn recount(
    session: &Session,
    agent: &Agent<'_>,
    locked: &Change<'_>,
    dead: u64,
    outbox: Outbox,
) -> Result<()> {
    let mut draft = draft_of(session, agent, locked)?;
    let state = &mut draft.records.state;
    let dead_before = std::mem::replace(&mut state.counters.dead, dead);
    let outbox_before = std::mem::replace(&mut state.outbox, outbox);
    for (counter, before, after) in
        [("dead", dead_before, dead), ("outbox", outbox_before.messages, outbox.messages)]
    {
        if before != after {
            let data = json!({ "counter": counter, "before": before, "after": after });
            draft.event(EventKind::RecordRepaired, None, data);
        }
    }
    Desk::new(session, agent).commit(locked, draft).map(drop)
}

/// Records what was mended.
fn note(session: &Session, agent: &Agent<'_>, locked: &Change<'_>, finding: &Finding) -> Result<()> {
    let mut draft = draft_of(session, agent, locked)?;
    let data = json!({
        "path": finding.place_in(agent.local()),
        "kind": finding.kind,
        "message": finding.message,
        "repair": finding.remedy.describe(),
    });
    draft.event(EventKind::RecordRepaired, None, data);
    Desk::new(session, agent).commit(locked, draft).map(drop)
}
