//! `checkpoint`, `yield` and `non-preemptible`: requests of a turn (contract, execution §6).

pub mod safe_point;

use std::ffi::OsString;
use std::fs::File;

use serde_json::json;

use crate::cli::{self, AgentFlag, SectionCommand};
use crate::commands::words::{bytes, parse, parse_optional};
use crate::engine::context::Context;
use crate::engine::session::Session;
use crate::error::{Error, Result, Status};
use crate::model::bound::CHECKPOINT;
use crate::model::id::{AgentName, RunId};
use crate::model::preemption::{Checkpoint, Section};
use crate::model::refusal::Refusal;
use crate::model::state::{CurrentRun, State};
use crate::model::submission::CalledBy;
use crate::model::time::Span;
use crate::process::turn::Nobody;
use crate::process::{Signal, foreground};
use crate::rules::transition::draft::Draft;
use crate::rules::transition::preemption as rules;
use crate::store::{Agent, Store};

/// Returns the agent and run of the turn that calls this command.
pub fn own_run(session: &Session, store: &Store, named: &AgentFlag) -> Result<(AgentName, RunId)> {
    let named: Option<AgentName> = named.agent.as_deref().map(|name| parse("--agent", name)).transpose()?;
    if let Some(caller) = session.caller(store)?
        && let CalledBy::Turn { run_id, .. } = caller.by
        && named.is_none_or(|named| named == caller.agent)
    {
        return Ok((caller.agent, run_id));
    }
    Err(Error::refused("not_in_turn", "this is not called from inside a turn of that agent")
        .with_hint("a turn finds DORMOUSE_AGENT and DORMOUSE_RUN in its environment: pass them on"))
}

pub fn current(state: &State, run_id: RunId) -> Result<&CurrentRun> {
    let run = state.current_run.as_ref().filter(|run| run.run_id == run_id);
    run.ok_or_else(|| {
        Error::refused(
            "run_not_current",
            format!("{run_id} is no longer the current run of `{}`", state.agent),
        )
        .with_hint("exit: it was settled without this turn")
    })
}

pub fn checkpoint(session: &mut Session, args: cli::CheckpointArgs) -> Result<Status> {
    let store = session.store()?;
    let (name, run_id) = own_run(session, &store, &args.agent)?;
    let bytes = checkpoint_bytes(&args.file, args.allow_empty)?;
    let agent = store.agent(&name)?;
    let (_, saved) =
        save(session, &agent, run_id, Some(&bytes), |draft| rules::save(draft, run_id).map(Some))?;
    let path = saved.map(|saved| agent.workdir().checkpoint(saved).to_string_lossy().into_owned());
    if session.out.is_json() {
        let object = json!({ "agent": name, "run_id": run_id, "checkpoint": path, "bytes": bytes.len() });
        session.out.json_line(&object);
    } else {
        // The id is for scripts; the output of a turn should not contain it.
        session.out.detail(&format!("saved {}", path.unwrap_or_default()));
    }
    Ok(Status::Done)
}

/// Reads a checkpoint. An empty one is refused by default, because a failed command usually leaves
/// it.
fn checkpoint_bytes(word: &str, allow_empty: bool) -> Result<Vec<u8>> {
    let bytes = bytes(word, &CHECKPOINT)?;
    if bytes.is_empty() && !allow_empty {
        let from = if word == "-" { "stdin" } else { word };
        return Err(Error::refused("empty_checkpoint", format!("{from} is empty: no checkpoint was saved"))
            .with_hint("if that is meant, say --allow-empty"));
    }
    Ok(bytes)
}

pub fn give_way(session: &mut Session, args: cli::YieldArgs) -> Result<Status> {
    let store = session.store()?;
    let (name, run_id) = own_run(session, &store, &args.agent)?;
    let pause = parse_optional("--for", args.resume_after.as_deref())?;
    let bytes =
        args.checkpoint.as_deref().map(|word| checkpoint_bytes(word, args.allow_empty)).transpose()?;
    let agent = store.agent(&name)?;
    let (state, saved) = save(session, &agent, run_id, bytes.as_deref(), |draft| {
        rules::give_way(draft, run_id, bytes.is_some(), pause)
    })?;
    let becomes = match current(&state, run_id)? {
        run if run.stopping.is_some() => "aborted",
        run if run.condemned.is_some() => "failed",
        _ => "suspended",
    };
    let object = json!({
        "agent": name,
        "run_id": run_id,
        "checkpoint": saved.map(|saved| agent.workdir().checkpoint(saved).to_string_lossy().into_owned()),
        "bytes": bytes.as_ref().map(Vec::len),
        "becomes": becomes,
    });
    session.out.result(&object, |_| format!("{run_id}  is {becomes} when this turn exits"));
    Ok(Status::Done)
}

/// Saves a checkpoint and commits its name. The file is written before the commit; without the
/// commit it has no effect.
fn save(
    session: &Session,
    agent: &Agent<'_>,
    run_id: RunId,
    bytes: Option<&[u8]>,
    rule: impl FnOnce(&mut Draft) -> std::result::Result<Option<Checkpoint>, Refusal>,
) -> Result<(State, Option<Checkpoint>)> {
    let staged = bytes.map(|bytes| agent.local().stage_checkpoint(run_id, bytes)).transpose()?;
    let mut open = Context::new(session, agent).open()?;
    let named = rule(&mut open.draft)?;
    let saved = named.zip(staged);
    let is_new = saved.is_some();
    if let Some((place, staged)) = saved {
        agent.local().save_checkpoint(place, staged)?;
        open.locked.keep_checkpoint(place, bytes.unwrap_or_default());
    }
    let state = Context::new(session, agent).commit(&open.locked, open.draft)?.state;
    if let Some(place) = named.filter(|_| is_new) {
        // A leftover checkpoint does no harm.
        let _ = agent.local().remove_older(place);
    }
    Ok((state, named))
}

pub fn non_preemptible(session: &mut Session, args: cli::NonPreemptibleArgs) -> Result<Status> {
    let store = session.store()?;
    match args.command {
        Some(SectionCommand::Begin { agent, deadline }) => {
            let time = parse("--deadline", &deadline)?;
            let (name, run_id) = own_run(session, &store, &agent)?;
            let agent = store.agent(&name)?;
            let section = Context::new(session, &agent)
                .change(|draft| rules::open_section(draft, run_id, time, false))?;
            let section = section.made;
            show(session, &name, run_id, section, "open");
            Ok(Status::Done)
        }
        Some(SectionCommand::End { agent }) => {
            let (name, run_id) = own_run(session, &store, &agent)?;
            let section = close(session, &store.agent(&name)?, run_id, None)?;
            show(session, &name, run_id, section, "closed");
            Ok(Status::Done)
        }
        None => {
            let time = parse("--deadline", args.deadline.as_deref().unwrap_or_default())?;
            let (name, run_id) = own_run(session, &store, &args.agent)?;
            let agent = store.agent(&name)?;
            let (section, held) = open_for_command(session, &agent, run_id, time)?;
            let status = within(session, &agent, run_id, section, &args.argv);
            // A leftover file is deleted later, with those of killed commands.
            let _ = agent.local().remove_section(run_id, section.number);
            drop(held);
            status
        }
    }
}

/// Runs a command inside a section.
fn within(
    session: &Session,
    agent: &Agent<'_>,
    run_id: RunId,
    section: Section,
    argv: &[OsString],
) -> Result<Status> {
    let ending = foreground::EndOptions { orphaned: Some(Signal::KILL), ..foreground::EndOptions::default() };
    let ran = foreground::run(argv, &mut Nobody, &ending);
    // The caller needs the exit status of the command. An unclosed section ends with this process.
    let _ = close(session, agent, run_id, Some(section.number));
    let ran = ran?;
    if let Some(trouble) = &ran.trouble {
        session.out.note(trouble);
    }
    Ok(Status::OfCommand(ran.status))
}

/// Opens a section that ends with this process. The returned file is its lock.
fn open_for_command(
    session: &Session,
    agent: &Agent<'_>,
    run_id: RunId,
    time: Span,
) -> Result<(Section, File)> {
    let mut open = Context::new(session, agent).open()?;
    let section = rules::open_section(&mut open.draft, run_id, time, true)?;
    let held = agent.ready_local()?.hold_section(run_id, section.number)?;
    open.commit()?;
    Ok((section, held))
}

fn close(session: &Session, agent: &Agent<'_>, run_id: RunId, number: Option<u32>) -> Result<Section> {
    Ok(Context::new(session, agent).change(|draft| rules::close_section(draft, run_id, number))?.made)
}

/// Prints the section for scripts, and no text: the output of a turn should not contain it.
fn show(session: &mut Session, agent: &AgentName, run_id: RunId, section: Section, what: &str) {
    let object = json!({
        "agent": agent,
        "run_id": run_id,
        "section": section.number,
        "until": section.until,
        "state": what,
    });
    if session.out.is_json() {
        session.out.json_line(&object);
    } else {
        session.out.detail(&format!(
            "section {} is {what}, respected until {}",
            section.number,
            section.until.local()
        ));
    }
}
