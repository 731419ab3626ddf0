//! What is wrong with a state directory, without changing anything: `doctor` tells it and mends what has one right answer, and an
//! import refuses an agent that has any of it (contract, store §6).

mod agent;
mod history;
mod inbox;
mod queued;

use crate::beneath::Spot;
use crate::error::Error;
use crate::model::id::AgentName;
use crate::store::dir::layout;
use crate::store::dir::sharing::Rights;

pub use agent::{agent, quick, state_directory};

/// What mends a finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remedy {
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
    /// What came too late for the stream of an agent that was moved away: a person brings it there, or removes it.
    Forward,
}

impl Remedy {
    /// Whether the records are in order as they are.
    pub fn is_warning(&self) -> bool {
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
            | Remedy::Acknowledge
            | Remedy::Forward => true,
            Remedy::None
            | Remedy::Quarantine
            | Remedy::QuarantineLines(_)
            | Remedy::Protect
            | Remedy::Recount(_) => false,
        }
    }

    pub fn describe(&self) -> &'static str {
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
            Remedy::Forward => "say it again where the agent is now, and remove it here",
        }
    }
}

/// One thing that is wrong.
#[derive(Debug, Clone)]
pub struct Finding {
    pub agent: Option<AgentName>,
    pub path: Spot,
    pub kind: &'static str,
    pub message: String,
    pub remedy: Remedy,
}

/// What a merge of two clones leaves where `dormouse merge-driver` has not made it.
pub const MERGED_LINES: &str = "merged_lines";
pub const ENDED_TWICE: &str = "ended_twice";

impl Finding {
    /// Whether a merge has left it.
    pub fn is_of_merge(&self) -> bool {
        [MERGED_LINES, ENDED_TWICE].contains(&self.kind)
    }

    /// A record that can't be read, in the words of the error that says so.
    pub fn unreadable(agent: &AgentName, path: Spot, error: &Error, remedy: Remedy) -> Finding {
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
