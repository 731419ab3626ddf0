//! `doctor`: look at every record, say what is wrong, and mend what has one right answer (contract, store §6).

mod check;
mod repair;

use std::path::PathBuf;

use serde::Serialize;
use serde_json::json;

use crate::cli;
use crate::error::{Error, Result, Status};
use crate::model::id::AgentName;
use crate::report::output::Tone;
use crate::report::text::count;
use crate::store::{Store, layout};

use super::session::{Session, agents};

/// What mends a finding.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Remedy {
    /// People must decide.
    None,
    /// Move the file or directory to `quarantine/`.
    Quarantine,
    /// Move these lines of the file, from 1, to `quarantine/`.
    QuarantineLines(Vec<usize>),
    /// Take the right to write away from everybody but owner and group.
    Protect,
    /// Count the dead letters anew.
    Recount(u64),
}

impl Remedy {
    fn describe(&self) -> &'static str {
        match self {
            Remedy::None => "by hand",
            Remedy::Quarantine => "move it to quarantine/",
            Remedy::QuarantineLines(_) => "move the lines to quarantine/",
            Remedy::Protect => "take write permission from others",
            Remedy::Recount(_) => "set the counter right",
        }
    }
}

/// One thing that is wrong.
#[derive(Debug, Clone)]
struct Finding {
    agent: Option<AgentName>,
    path: PathBuf,
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
    let mut checked = 0;
    let mut open = 0;
    let mut report = |session: &mut Session, findings: Vec<Finding>| {
        for finding in findings {
            let repaired = args.repair && mend(session, &store, &finding);
            open += usize::from(!repaired);
            say(session, &finding, repaired);
        }
    };
    let names = if args.agents.is_empty() {
        report(session, check::state_directory(&store)?);
        agents(&store, &[], true)?
    } else {
        agents(&store, &args.agents, false)?
    };
    let mut status = session.each_agent(&names, |session, name| {
        let found = check::agent(&store, name, session.clock.now())?;
        checked += found.checked;
        report(session, found.findings);
        Ok(Status::Done)
    });
    if open > 0 {
        status = status.graver(Status::Damaged);
    }
    let object = json!({ "checked": checked, "findings": open });
    session.out.result(&object, |out| {
        let found = if open == 0 { out.paint(Tone::Good, "nothing wrong") } else { format!("{open} open") };
        format!(
            "{} in {}: {found}",
            count(checked as u64, "record", "records"),
            count(names.len() as u64, "agent", "agents")
        )
    });
    Ok(status)
}

/// Mends one finding; a failure to is said, and the finding stays open.
fn mend(session: &mut Session, store: &Store, finding: &Finding) -> bool {
    match repair::repair(session, store, finding) {
        Ok(repaired) => repaired,
        Err(error) => {
            session.out.note(&format!("{}: {error}", finding.path.display()));
            false
        }
    }
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
    fn unreadable(agent: &AgentName, path: PathBuf, error: &Error, remedy: Remedy) -> Finding {
        let remedy = match error {
            // What a newer version wrote is whole: it is for that version to read.
            Error::Newer { .. } | Error::Io { .. } => Remedy::None,
            _ => remedy,
        };
        let place =
            error.place().map(|(line, column)| format!("line {line}, column {column}: ")).unwrap_or_default();
        let message = match error {
            Error::Damaged { message, .. } => format!("{place}{message}"),
            other => other.to_string(),
        };
        Finding { agent: Some(agent.clone()), path, kind: error.kind(), message, remedy }
    }
}

/// Where an agent keeps what could not be read.
const QUARANTINE: &str = "quarantine";

/// The files without which there is no agent: nothing is put in their place.
const ESSENTIAL: &[&str] = &[layout::STATE, layout::IDENTITY, layout::POLICY];
