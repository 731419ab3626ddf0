//! Mending: what has one right answer. What can't be read is moved aside, never deleted.

use std::ffi::OsStr;

use crate::beneath::Spot;
use crate::error::Result;
use crate::model::event::Event;
use crate::model::json;

use super::super::{DirAgent, DirStore, DirTxn, files, keys, layout, lines};
use super::{Finding, Remedy};

impl DirTxn<'_> {
    /// Mends a finding of the agent, under the lock under which it was found, so that no other
    /// command has changed the place since. `false`: people must decide, or the command, which
    /// knows the rules.
    pub fn mend(&self, finding: &Finding) -> Result<bool> {
        let agent = self.agent;
        agent.store.files_only("`dormouse doctor`")?;
        match &finding.remedy {
            Remedy::None
            | Remedy::Restore
            | Remedy::Acknowledge
            | Remedy::Forward
            | Remedy::Sort
            | Remedy::Join
            | Remedy::OneTicker
            | Remedy::Consider
            | Remedy::Recount(..)
            | Remedy::AddLines(..) => return Ok(false),
            Remedy::KeepInbox => agent.keep_inbox()?,
            Remedy::FinishExchange => self.finish_exchange()?,
            Remedy::Sweep => drop(self.sweep()?),
            // Part of the dedupe keys would pass for all of them.
            Remedy::Renew if finding.place.starts_with(&*agent.dir().join(layout::DEDUPE)) => {
                keys::forget(agent.dir())?;
            }
            Remedy::Renew => agent.dir().join(finding.place.below(agent.dir().spot())).remove_tree()?,
            Remedy::Protect => protect(&finding.place)?,
            Remedy::Permit(rights) => rights.set(&finding.place)?,
            Remedy::Quarantine => {
                if !is_journal(agent, &finding.place) {
                    self.empty_journal()?;
                }
                move_aside(agent, &finding.place)?;
            }
            Remedy::QuarantineLines(lines) => {
                self.empty_journal()?;
                move_lines_aside(agent, &finding.place, lines)?;
            }
            Remedy::Untangle => {
                self.empty_journal()?;
                untangle(agent, &finding.place)?;
            }
        }
        Ok(true)
    }
}

impl DirStore {
    /// Mends a finding that is no agent's. `false`: it is for people to decide.
    pub fn mend(&self, finding: &Finding) -> Result<bool> {
        match &finding.remedy {
            Remedy::Protect => protect(&finding.place)?,
            Remedy::Permit(rights) => rights.set(&finding.place)?,
            Remedy::AddLines(name, lines) => self.add_for_git(name, lines)?,
            Remedy::Sweep => self.sweep(&finding.place)?,
            Remedy::None
            | Remedy::Restore
            | Remedy::Quarantine
            | Remedy::QuarantineLines(_)
            | Remedy::Untangle
            | Remedy::Recount(..)
            | Remedy::Renew
            | Remedy::KeepInbox
            | Remedy::Join
            | Remedy::OneTicker
            | Remedy::Consider
            | Remedy::FinishExchange
            | Remedy::Sort
            | Remedy::Forward
            | Remedy::Acknowledge => return Ok(false),
        }
        Ok(true)
    }
}

/// Takes the right to write from other users. A file that goes away meanwhile needs nothing.
fn protect(spot: &Spot) -> Result<()> {
    let Some(found) = spot.look()? else { return Ok(()) };
    let is_private = found.st_uid == found.st_gid;
    spot.set_mode(found.st_mode & 0o7777 & if is_private { !0o002 } else { !0o022 })
}

/// A place in quarantine that nothing has yet, with the old place in its name.
fn quarantine_place(agent: &DirAgent<'_>, spot: &Spot) -> Result<Spot> {
    let dir = agent.dir().join(layout::QUARANTINE);
    dir.make_dirs()?;
    let name = spot.below(agent.dir().spot()).to_string_lossy().replace('/', "__");
    files::free_place(&dir, OsStr::new(&name))
}

fn is_journal(agent: &DirAgent<'_>, path: &Spot) -> bool {
    *path == agent.dir().join(layout::JOURNAL)
}

fn move_aside(agent: &DirAgent<'_>, path: &Spot) -> Result<()> {
    let place = quarantine_place(agent, path)?;
    files::rename(path, &place)
}

/// Rewrites a file without some of its lines; the lines are in quarantine before they are gone
/// here. A file with no other lines is no file of ours, and is kept there byte for byte.
fn move_lines_aside(agent: &DirAgent<'_>, path: &Spot, aside: &[Vec<u8>]) -> Result<()> {
    let bytes = path.read(files::MAX_LINES)?.unwrap_or_default();
    let records = lines::records(&bytes).map(|(_, line)| line);
    let (moved, kept): (Vec<&[u8]>, Vec<&[u8]>) =
        records.partition(|line| aside.iter().any(|moved| moved == line));
    if moved.is_empty() {
        // It was a beginning that the journal has completed meanwhile.
        return Ok(());
    }
    if kept.is_empty() {
        return move_aside(agent, path);
    }
    agent.put_aside(&path.below(agent.dir().spot()).to_string_lossy(), &lines::join(moved))?;
    agent.replace_file(path, &lines::join(kept))
}

/// Rewrites a file with each of its lines once. Events come in their order; what the archive says
/// stays as it stands, for its last word counts.
fn untangle(agent: &DirAgent<'_>, path: &Spot) -> Result<()> {
    let bytes = path.read(files::MAX_LINES)?.unwrap_or_default();
    let mut once: Vec<&[u8]> = lines::once(&bytes).map(|(_, line)| line).collect();
    // A line that is no event has no sequence number and is sorted to the beginning.
    let seq = |line: &&[u8]| json::read::<Event>(line).map_or(0, |event| event.seq);
    once.sort_by_key(seq);
    agent.replace_file(path, &lines::join(once))
}
