//! Mending: what has one right answer. What can't be read is moved aside, never deleted.

use std::ffi::OsStr;

use serde_json::json;

use crate::beneath::Spot;
use crate::engine::checks::{Finding, Remedy};
use crate::engine::desk::Desk;
use crate::engine::session::Session;
use crate::error::Result;
use crate::model::event::{Event, EventKind};
use crate::process::hook;
use crate::rules::transition::draft::Draft;
use crate::store::dir::{files, layout, lines};
use crate::store::{Agent, Change, Store};

/// Mends a finding of an agent, under the lock under which it was found: nobody has mended it since, or
/// put something else in its place. `false`: it is for people to decide.
pub fn repair(session: &Session, agent: &Agent<'_>, locked: &Change<'_>, finding: &Finding) -> Result<bool> {
    match &finding.remedy {
        Remedy::None
        | Remedy::Acknowledge
        | Remedy::Forward
        | Remedy::Sort
        | Remedy::Join
        | Remedy::AddLines(..) => {
            return Ok(false);
        }
        Remedy::KeepInbox => agent.keep_inbox()?,
        Remedy::FinishExchange => locked.finish_exchange()?,
        Remedy::Sweep => {
            locked.sweep()?;
            hook::end_abandoned(&agent.tmp())?;
        }
        Remedy::Protect => protect(&finding.path)?,
        Remedy::Permit(rights) => rights.set(&finding.path)?,
        Remedy::FinishPacking => {
            locked.empty_journal()?;
            locked.forget_packed_lines(&finding.path)?;
        }
        Remedy::Quarantine => {
            if !is_journal(agent, &finding.path) {
                locked.empty_journal()?;
            }
            move_aside(agent, &finding.path)?;
        }
        Remedy::QuarantineLines(lines) => {
            locked.empty_journal()?;
            move_lines_aside(agent, &finding.path, lines)?;
        }
        Remedy::Untangle => {
            locked.empty_journal()?;
            untangle(agent, &finding.path)?;
        }
        Remedy::Recount(dead) => recount(session, agent, locked, *dead)?,
    }
    Ok(true)
}

/// Mends a finding that is no agent's. `false`: it is for people to decide.
pub fn outside(store: &Store, finding: &Finding) -> Result<bool> {
    match &finding.remedy {
        Remedy::Protect => protect(&finding.path)?,
        Remedy::Permit(rights) => rights.set(&finding.path)?,
        Remedy::AddLines(name, lines) => store.add_for_git(name, lines)?,
        Remedy::Sweep => store.sweep(&finding.path)?,
        Remedy::None
        | Remedy::Quarantine
        | Remedy::QuarantineLines(_)
        | Remedy::Untangle
        | Remedy::FinishPacking
        | Remedy::Recount(_)
        | Remedy::KeepInbox
        | Remedy::Join
        | Remedy::FinishExchange
        | Remedy::Sort
        | Remedy::Forward
        | Remedy::Acknowledge => return Ok(false),
    }
    Ok(true)
}

/// Takes the right to write from others. What goes away meanwhile is nobody's to write any more.
pub fn protect(spot: &Spot) -> Result<()> {
    let Some(found) = spot.look()? else { return Ok(()) };
    let is_private = found.st_uid == found.st_gid;
    spot.set_mode(found.st_mode & 0o7777 & if is_private { !0o002 } else { !0o022 })
}

/// A place in quarantine that nothing has yet, with the old place in its name.
fn quarantine_place(agent: &Agent<'_>, spot: &Spot) -> Result<Spot> {
    let dir = agent.dir().join(layout::QUARANTINE);
    dir.make_dirs()?;
    let name = spot.below(agent.dir().spot()).to_string_lossy().replace('/', "__");
    files::free_place(&dir, OsStr::new(&name))
}

fn is_journal(agent: &Agent<'_>, path: &Spot) -> bool {
    [layout::JOURNAL, layout::OLD_JOURNAL].iter().any(|name| *path == agent.dir().join(name))
}

fn move_aside(agent: &Agent<'_>, path: &Spot) -> Result<()> {
    let place = quarantine_place(agent, path)?;
    files::rename(path, &place)
}

/// Rewrites a file without some of its lines; the lines are in quarantine before they are gone here.
fn move_lines_aside(agent: &Agent<'_>, path: &Spot, aside: &[Vec<u8>]) -> Result<()> {
    let bytes = path.read(files::MAX_LINES)?.unwrap_or_default();
    let records = lines::records(&bytes).map(|(_, line)| line);
    let (moved, kept): (Vec<&[u8]>, Vec<&[u8]>) =
        records.partition(|line| aside.iter().any(|moved| moved == line));
    if moved.is_empty() {
        // It was a beginning that the journal has completed meanwhile.
        return Ok(());
    }
    agent.put_aside(path.below(agent.dir().spot()), &lines::join(moved))?;
    agent.replace_file(path, &lines::join(kept))
}

/// Rewrites a file with each of its lines once. Events come in their order; what the archive says stays as
/// it stands, for its last word counts.
fn untangle(agent: &Agent<'_>, path: &Spot) -> Result<()> {
    let bytes = path.read(files::MAX_LINES)?.unwrap_or_default();
    let mut once: Vec<&[u8]> = lines::once(&bytes).map(|(_, line)| line).collect();
    // What is no event has no order, and stays where it is among the first.
    let seq = |line: &&[u8]| serde_json::from_slice::<Event>(line).map_or(0, |event| event.seq);
    once.sort_by_key(seq);
    agent.replace_file(path, &lines::join(once))
}

fn draft_of(session: &Session, agent: &Agent<'_>, locked: &Change<'_>) -> Result<Draft> {
    // A transaction whose journal can't be read is not to be gone past.
    locked.finish_journal()?;
    Desk::new(session, agent).draft_of(&locked.look_past_inbox(), locked.state()?)
}

fn recount(session: &Session, agent: &Agent<'_>, locked: &Change<'_>, dead: u64) -> Result<()> {
    let mut draft = draft_of(session, agent, locked)?;
    let before = draft.records.state.counters.dead;
    draft.records.state.counters.dead = dead;
    draft.event(
        EventKind::RecordRepaired,
        None,
        json!({ "counter": "dead", "before": before, "after": dead }),
    );
    Desk::new(session, agent).commit(locked, draft).map(drop)
}

/// Records what was mended.
pub fn note(session: &Session, agent: &Agent<'_>, locked: &Change<'_>, finding: &Finding) -> Result<()> {
    let mut draft = draft_of(session, agent, locked)?;
    let data = json!({
        "path": finding.path.below(agent.dir().spot()).display().to_string(),
        "kind": finding.kind,
        "message": finding.message,
        "repair": finding.remedy.describe(),
    });
    draft.event(EventKind::RecordRepaired, None, data);
    Desk::new(session, agent).commit(locked, draft).map(drop)
}
