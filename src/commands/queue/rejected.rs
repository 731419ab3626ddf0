//! `queue rejected`: files of an inbox that could not be admitted, until a person accepts or drops
//! them.

use std::ffi::OsString;

use serde_json::json;

use crate::cli;
use crate::commands::words::{agents_behind, required_agent};
use crate::engine::authority;
use crate::engine::context::Context;
use crate::engine::session::Session;
use crate::engine::submissions::read_submission;
use crate::error::{Error, Result, Status};
use crate::model::event::EventKind;
use crate::model::id::AgentName;
use crate::model::policy::Policy;
use crate::report::output::Tone;
use crate::report::text::one_line;
use crate::rules::transition::rejected as rules;
use crate::store::{Agent, AgentTxn, Reads, Rejected, Store};

/// Maximum number of files whose events share one transaction.
const TOGETHER: usize = 256;

/// Decision of a person about a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FileDecision {
    Accept,
    Drop,
}

pub fn rejected(session: &mut Session, store: &Store, mut args: cli::RejectedArgs) -> Result<Status> {
    let files = args.accept.as_mut().or(args.drop.as_mut());
    if let (None, None, Some(files)) = (&args.agent.word, &args.agent.agent, files) {
        let mut agents = agents_behind(store, files)?;
        args.agent.word = agents.pop();
        if !agents.is_empty() {
            return Err(Error::usage("which agent?").with_hint("this is for one agent at a time"));
        }
    }
    let name = required_agent(&args.agent)?;
    let agent = store.agent(&name)?;
    let (verdict, named) = match (args.accept, args.drop) {
        (Some(named), _) => (FileDecision::Accept, named),
        (None, Some(named)) => (FileDecision::Drop, named),
        (None, None) if args.all => {
            return Err(Error::usage("--all: say what is to be done with all of them, --accept or --drop"));
        }
        (None, None) => return list(session, &agent),
    };
    if named.is_empty() != args.all {
        let said = if args.all { "names files, and --all as well" } else { "which files?" };
        return Err(Error::usage(format!("--{}: {said}", verdict.flag()))
            .with_hint("name the files as `dormouse queue rejected` lists them, or say --all"));
    }
    decide(session, &agent, verdict, &named)
}

impl FileDecision {
    fn flag(self) -> &'static str {
        match self {
            FileDecision::Accept => "accept",
            FileDecision::Drop => "drop",
        }
    }

    fn event(self) -> EventKind {
        match self {
            FileDecision::Accept => EventKind::RejectedAccepted,
            FileDecision::Drop => EventKind::RejectedRemoved,
        }
    }
}

fn list(session: &mut Session, agent: &Agent<'_>) -> Result<Status> {
    for one in agent.look(|seen, state| seen.rejected(&state))? {
        let file = one.name();
        let mut object = json!({
            "agent": agent.name(), "file": file, "at": one.at, "size": one.size, "stays": one.stays,
        });
        if let Some(reason) = &one.reason {
            object["reason"] = json!(reason);
        }
        session.out.result(&object, |out| {
            let reason = one.reason.as_deref().unwrap_or("nothing says why");
            let stays = if one.stays { ", stays in inbox/" } else { "" };
            format!(
                "{}  {}, {} bytes{stays}\n    {}",
                out.safe(&file),
                one.at,
                one.size,
                out.paint(Tone::Bad, &out.safe(&one_line(reason, 200)))
            )
        });
    }
    Ok(Status::Done)
}

/// Accepts or drops the named files, or all.
fn decide(
    session: &mut Session,
    agent: &Agent<'_>,
    verdict: FileDecision,
    named: &[OsString],
) -> Result<Status> {
    authority::reach(Context::new(session, agent), "decide about the files of")?;
    let chosen = agent.look(|seen, state| {
        let all = seen.rejected(&state)?;
        if named.is_empty() { Ok(all) } else { choose(&all, named) }
    })?;
    let mut status = Status::Done;
    for some in chosen.chunks(TOGETHER) {
        let mut said = Vec::with_capacity(some.len());
        let mut open = Context::new(session, agent).open()?;
        for one in some {
            let done = carry_out(session, agent, &open.locked, &open.draft.records.policy, verdict, one);
            if let Ok(Done::As(_)) = &done {
                rules::decided_about_rejected(&mut open.draft, verdict.event(), &one.name());
                agent.local().forget_rejected(&mut open.draft.records.state, one);
            }
            said.push((one, done));
        }
        if open.locked.look_past_inbox().is_none_rejected(&open.draft.records.state)? {
            rules::decided_about_all_rejected(&mut open.draft);
        }
        open.commit()?;
        for (one, done) in said {
            status = status.graver(say(session, agent.name(), one, done));
        }
    }
    Ok(status)
}

/// Returns the named files as they are listed.
fn choose(all: &[Rejected], named: &[OsString]) -> Result<Vec<Rejected>> {
    let find = |named: &OsString| {
        let named = named.to_string_lossy();
        let found = all.iter().find(|one| one.name() == named).cloned();
        found.ok_or_else(|| Error::NoRecord { what: "rejected file", id: named.into_owned() })
    };
    named.iter().map(find).collect()
}

/// Result for a file.
enum Done {
    As(FileDecision),
    /// The file no longer exists.
    Gone,
    /// The file still can't be admitted.
    Refused(String),
}

fn carry_out(
    session: &Session,
    agent: &Agent<'_>,
    locked: &AgentTxn<'_>,
    policy: &Policy,
    verdict: FileDecision,
    one: &Rejected,
) -> Result<Done> {
    match verdict {
        FileDecision::Drop => locked.local().remove_rejected(one)?,
        FileDecision::Accept => match judge(session, agent, locked, policy, one)? {
            None => return Ok(Done::Gone),
            Some(Ok(())) => locked.local().bring_back(one)?,
            Some(Err(reason)) => {
                locked.local().reject_again(one, &reason)?;
                return Ok(Done::Refused(reason));
            }
        },
    }
    Ok(Done::As(verdict))
}

/// Checks if a step would admit the file now. Returns `None` if it no longer exists.
fn judge(
    session: &Session,
    agent: &Agent<'_>,
    locked: &AgentTxn<'_>,
    policy: &Policy,
    one: &Rejected,
) -> Result<Option<std::result::Result<(), String>>> {
    let seen = locked.look_past_inbox();
    Ok(match seen.read_rejected(one)? {
        Reads::Gone => None,
        Reads::Fits => Some(Ok(())),
        Reads::Not(why) => Some(Err(why)),
        Reads::Dropped(file) => {
            read_submission(Context::new(session, agent), &seen, policy, &file)?.map(|made| made.map(drop))
        }
    })
}

fn say(session: &mut Session, agent: &AgentName, one: &Rejected, done: Result<Done>) -> Status {
    let file = one.name();
    let word = match done {
        Ok(Done::As(FileDecision::Accept)) => "accepted",
        Ok(Done::As(FileDecision::Drop)) => "dropped",
        Ok(Done::Gone) => "gone",
        Ok(Done::Refused(reason)) => {
            let error = Error::refused("still_refused", format!("{file} is still no message: {reason}"))
                .with_hint("correct the file in inbox/rejected/, and accept it again");
            session.out.failure(&error, None, Some(agent.as_str()));
            return error.exit_status();
        }
        Err(error) => {
            session.out.failure(&error, None, Some(agent.as_str()));
            return error.exit_status();
        }
    };
    let object = json!({ "agent": agent, "file": file, "action": word });
    session.out.result(&object, |out| format!("{word} {}", out.safe(&file)));
    Status::Done
}
