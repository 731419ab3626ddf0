//! Mending: what has one right answer. What can't be read is moved aside, never deleted.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::error::{Context, Error, Result};
use crate::model::event::EventKind;
use crate::model::records::Lease;
use crate::rules::transition::draft::Draft;
use crate::store::{Agent, Store, files, inbox};

use super::super::load::{self, Purpose};
use super::super::session::Session;
use super::check::count_dead;
use super::{Finding, QUARANTINE, Remedy};

/// Mends a finding. `false`: it is for people to decide.
pub fn repair(session: &Session, store: &Store, finding: &Finding) -> Result<bool> {
    match (&finding.remedy, &finding.agent) {
        (Remedy::None, _) => return Ok(false),
        (Remedy::Protect, _) => protect(&finding.path)?,
        (Remedy::Quarantine | Remedy::QuarantineLines(_) | Remedy::Recount(_), None) => return Ok(false),
        (Remedy::Quarantine, Some(name)) => {
            let agent = store.agent(name)?;
            // Under the lock, but for a broken journal: that keeps everybody from it.
            let _locked = agent.lock(session.clock.now());
            move_aside(&agent, &finding.path)?;
        }
        (Remedy::QuarantineLines(lines), Some(name)) => {
            let agent = store.agent(name)?;
            let _locked = agent.lock(session.clock.now())?;
            move_lines_aside(&agent, &finding.path, lines)?;
        }
        (Remedy::Recount(_), Some(name)) => recount(session, &store.agent(name)?)?,
    }
    if let Some(name) = &finding.agent {
        // The repair stands whether or not the ledger can be written.
        if let Err(error) = note(session, &store.agent(name)?, finding) {
            session.out.note(&format!("{name}: the repair is not in the ledger: {error}"));
        }
    }
    Ok(true)
}

fn protect(path: &Path) -> Result<()> {
    let found = std::fs::metadata(path).context("look at", path)?;
    let mode = found.permissions().mode() & 0o7777 & !0o002;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).context("change the mode of", path)
}

/// A place in quarantine that nothing has yet, with the old place in its name.
fn quarantine_place(agent: &Agent<'_>, path: &Path) -> Result<PathBuf> {
    let dir = agent.dir().join(QUARANTINE);
    files::make_dir(&dir)?;
    let relative = path.strip_prefix(agent.dir().path()).unwrap_or(path);
    let name = relative.to_string_lossy().replace('/', "__");
    let free = (0u32..).map(|number| if number == 0 { name.clone() } else { format!("{name}.{number}") });
    let mut places = free.map(|name| dir.join(name));
    let place = places.find(|place| std::fs::symlink_metadata(place).is_err());
    place.ok_or_else(|| Error::damaged(dir, "full"))
}

fn move_aside(agent: &Agent<'_>, path: &Path) -> Result<()> {
    let place = quarantine_place(agent, path)?;
    files::rename(path, &place)
}

/// Rewrites a file without some of its lines; the lines are in quarantine before they are gone here.
fn move_lines_aside(agent: &Agent<'_>, path: &Path, lines: &[usize]) -> Result<()> {
    let bytes = files::read(path)?.unwrap_or_default();
    let (mut kept, mut moved) = (Vec::with_capacity(bytes.len()), Vec::new());
    for (at, line) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
        if lines.contains(&(at + 1)) { moved.extend_from_slice(line) } else { kept.extend_from_slice(line) }
    }
    agent.replace_file(&quarantine_place(agent, path)?, &moved)?;
    agent.replace_file(path, &kept)
}

fn draft_of<'a>(session: &Session, agent: &'a Agent<'a>) -> Result<(Draft, crate::store::Locked<'a>)> {
    let now = session.clock.now();
    let locked = agent.lock(now)?;
    let scan = inbox::Scan::default();
    let records =
        load::records(agent, &locked.view(), &scan, locked.state()?, Lease::Free, now, Purpose::Look)?;
    Ok((Draft::new(records, session.clock.stamp()?), locked))
}

fn recount(session: &Session, agent: &Agent<'_>) -> Result<()> {
    let (mut draft, locked) = draft_of(session, agent)?;
    let dead = count_dead(&locked.view())?;
    let before = draft.records.state.counters.dead;
    draft.records.state.counters.dead = dead;
    draft.event(
        EventKind::RecordRepaired,
        None,
        json!({ "counter": "dead", "before": before, "after": dead }),
    );
    locked.commit(draft.finish()?)?;
    Ok(())
}

fn note(session: &Session, agent: &Agent<'_>, finding: &Finding) -> Result<()> {
    let (mut draft, locked) = draft_of(session, agent)?;
    let data = json!({
        "path": finding.path.strip_prefix(agent.dir().path()).unwrap_or(&finding.path).display().to_string(),
        "kind": finding.kind,
        "message": finding.message,
        "repair": finding.remedy.describe(),
    });
    draft.event(EventKind::RecordRepaired, None, data);
    locked.commit(draft.finish()?)?;
    Ok(())
}
