//! `doctor`: look at every record, say what is wrong, and mend what has one right answer (contract, store §6).

mod check;
mod history;
mod inbox;
mod queued;
mod repair;

use serde::Serialize;
use serde_json::json;

use crate::beneath::Spot;
use crate::cli;
use crate::engine::merging;
use crate::engine::session::{Session, agents};
use crate::error::{Error, Result, Status};
use crate::model::id::AgentName;
use crate::report::output::Tone;
use crate::report::text::count;
use crate::store::sharing::Rights;
use crate::store::{Agent, layout};

/// What mends a finding.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Remedy {
    /// People must decide.
    None,
    /// Move the file or directory to `quarantine/`.
    Quarantine,
    /// Move these lines of the file to `quarantine/`.
    QuarantineLines(Vec<Vec<u8>>),
    /// Leave each line of the file once, and events in order.
    Untangle,
    /// Take the lines out of a plain file that are packed already.
    FinishPacking,
    /// Take the right to write away from others.
    Protect,
    /// Give it the rights that `[sharing]` asks for.
    Permit(Rights),
    /// People must make the group, or be in it, or take it out of the settings.
    Join,
    /// Count the dead letters anew.
    Recount(u64),
    /// Remove what killed commands have left.
    Sweep,
    /// Put the file into the inbox that keeps it in git.
    KeepInbox,
    /// Put what was the inbox into its place.
    FinishExchange,
    /// Add these lines to a file of the state directory that git reads.
    AddLines(&'static str, Vec<String>),
    /// Files that could not be admitted: a person puts them right, or takes them away.
    Sort,
    /// The records are right: a person should look at what they say, and acknowledge it.
    Acknowledge,
}

impl Remedy {
    /// Whether the records are in order as they are.
    fn is_warning(&self) -> bool {
        match self {
            Remedy::Untangle
            | Remedy::FinishPacking
            | Remedy::Sweep
            | Remedy::KeepInbox
            | Remedy::FinishExchange
            | Remedy::AddLines(..)
            | Remedy::Permit(_)
            | Remedy::Join
            | Remedy::Sort
            | Remedy::Acknowledge => true,
            Remedy::None
            | Remedy::Quarantine
            | Remedy::QuarantineLines(_)
            | Remedy::Protect
            | Remedy::Recount(_) => false,
        }
    }

    fn describe(&self) -> &'static str {
        match self {
            Remedy::None => "by hand",
            Remedy::Quarantine => "move it to quarantine/",
            Remedy::QuarantineLines(_) => "move the lines to quarantine/",
            Remedy::Untangle => "leave one of each, in order",
            Remedy::FinishPacking => "take out what is packed",
            Remedy::Protect => "take write permission from others",
            Remedy::Permit(_) => "give it these rights",
            Remedy::Join => "make the group or join it, or take `sharing.group` out",
            Remedy::Recount(_) => "set the counter right",
            Remedy::Sweep => "remove it",
            Remedy::KeepInbox => "put it there",
            Remedy::FinishExchange => "put it into its place",
            Remedy::AddLines(..) => "add what is missing",
            Remedy::Sort => "look at it with `dormouse queue rejected`, then --accept or --drop it",
            Remedy::Acknowledge => "look at it, then `dormouse queue dead --ack`",
        }
    }
}

/// One thing that is wrong.
#[derive(Debug, Clone)]
struct Finding {
    agent: Option<AgentName>,
    path: Spot,
    kind: &'static str,
    message: String,
    remedy: Remedy,
}

#[derive(Serialize)]
struct FindingReport<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    agent: Option<&'a AgentName>,
    path: String,
    kind: &'a str,
    message: &'a str,
    repair: &'a str,
    repaired: bool,
}

pub fn doctor(session: &mut Session, args: cli::Doctor) -> Result<Status> {
    let store = session.store()?;
    if args.merge_driver && merging::register(&store)? {
        session
            .out
            .note("git merges the files of this state directory by `dormouse merge-driver`, in this clone");
    }
    let mut seen = Seen::default();
    let names = if args.agents.is_empty() {
        for finding in check::state_directory(&store)? {
            let mended = if args.repair { repair::outside(&store, &finding) } else { Ok(false) };
            seen.tell(session, &finding, mended);
        }
        agents(&store, &[], true)?
    } else {
        agents(&store, &args.agents, false)?
    };
    let mut status = session.each_agent(&names, |session, name| {
        look_at(session, &store.agent(name)?, args.repair, &mut seen)?;
        Ok(Status::Done)
    });
    let Seen { checked, open, warnings, has_merged } = seen;
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
}

impl Seen {
    /// Says what was found and whether it is mended. A failure to mend it is said, and it stays open.
    fn tell(&mut self, session: &mut Session, finding: &Finding, mended: Result<bool>) {
        let repaired = mended.unwrap_or_else(|error| {
            session.out.note(&format!("{}: {error}", finding.path.display()));
            false
        });
        self.has_merged |= matches!(finding.kind, "merged_lines" | "ended_twice");
        let kind = if finding.remedy.is_warning() { &mut self.warnings } else { &mut self.open };
        *kind += usize::from(!repaired);
        say(session, finding, repaired);
    }
}

/// Looks at one agent and mends what is to be mended, under one lock. What came of it is said when the
/// lock is free again: whoever reads that may take his time.
fn look_at(session: &mut Session, agent: &Agent<'_>, mends: bool, seen: &mut Seen) -> Result<()> {
    let (locked, mut notes) = match agent.lock_damaged(session.clock.now()) {
        Ok(locked) => (Some(locked), Vec::new()),
        Err(error @ Error::Busy { .. }) => return Err(error),
        // Where no lock can be had nothing can be mended. Looking is what is left.
        Err(error) => (None, vec![error.to_string()]),
    };
    let mut found = check::agent(agent);
    if let Some(left) = locked.as_ref().and_then(|locked| locked.litter().ok()).filter(|left| *left > 0) {
        found.findings.push(Finding {
            agent: Some(agent.name().clone()),
            path: agent.tmp(),
            kind: "litter",
            message: format!(
                "{} by killed commands",
                count(left as u64, "thing was left", "things were left")
            ),
            remedy: Remedy::Sweep,
        });
    }
    let mut mended = Vec::with_capacity(found.findings.len());
    for finding in found.findings {
        let done = match locked.as_ref().filter(|_| mends) {
            Some(locked) => {
                let done = repair::repair(session, agent, locked, &finding);
                // The repair stands whether or not the ledger can be written.
                if let Ok(true) = done
                    && let Err(error) = repair::note(session, agent, locked, &finding)
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
    seen.checked += found.checked;
    for (finding, done) in mended {
        seen.tell(session, &finding, done);
    }
    Ok(())
}

fn say(session: &mut Session, finding: &Finding, repaired: bool) {
    let report = FindingReport {
        agent: finding.agent.as_ref(),
        path: finding.path.display().to_string(),
        kind: finding.kind,
        message: &finding.message,
        repair: finding.remedy.describe(),
        repaired,
    };
    session.out.result(&report, |out| {
        let done = if repaired { out.paint(Tone::Good, "repaired: ") } else { String::new() };
        let remedy = out.paint(Tone::Quiet, &format!(" [{}]", finding.remedy.describe()));
        format!("{done}{}: {}: {}{remedy}", out.safe(&report.path), finding.kind, out.safe(&finding.message))
    });
}

impl Finding {
    /// A record that can't be read, in the words of the error that says so.
    fn unreadable(agent: &AgentName, path: Spot, error: &Error, remedy: Remedy) -> Finding {
        // What a newer version wrote is whole: it is for that version to read.
        let is_whole = matches!(error, Error::Newer { .. } | Error::Io { .. });
        let remedy = if is_whole { Remedy::None } else { remedy };
        let place =
            error.place().map(|(line, column)| format!("line {line}, column {column}: ")).unwrap_or_default();
        let message = if let Error::Damaged { message, .. } = error {
            format!("{place}{message}")
        } else {
            error.to_string()
        };
        Finding { agent: Some(agent.clone()), path, kind: error.kind(), message, remedy }
    }
}

/// The files without which there is no agent: nothing is put in their place.
const ESSENTIAL: &[&str] = &[layout::STATE, layout::IDENTITY, layout::POLICY];
