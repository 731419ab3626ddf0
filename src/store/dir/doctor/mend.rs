//! Repairs of findings with one right repair. Unreadable content is quarantined, never deleted.

use crate::cap_fs::CapPath;
use crate::error::Result;
use crate::local::{LocalAgent, StateDir, files, layout};
use crate::model::event::Event;
use crate::model::json;

use super::super::{DirTxn, lines};
use super::{Finding, Remedy};

impl DirTxn<'_> {
    /// Repairs a finding of the agent, under the same lock as the check, so that no other command
    /// has changed the file since. Returns `false` if a person must decide, or if the caller, which
    /// knows the rules of the records, must make the repair.
    pub fn mend(&self, finding: &Finding) -> Result<bool> {
        let agent = &self.agent.local;
        match &finding.remedy {
            Remedy::ByHand { .. } | Remedy::Recount(..) | Remedy::AddLines(..) => return Ok(false),
            Remedy::KeepInbox => agent.keep_inbox()?,
            Remedy::FinishExchange => self.finish_exchange()?,
            Remedy::Sweep => drop(agent.sweep()?),
            Remedy::Protect | Remedy::Permit(_) => return agent.state_dir.mend(finding),
            Remedy::Quarantine => {
                if finding.place != agent.dir.join(layout::JOURNAL) {
                    self.empty_journal()?;
                }
                agent.quarantine(&finding.place)?;
            }
            Remedy::QuarantineLines(lines) => {
                self.empty_journal()?;
                quarantine_lines(agent, &finding.place, lines)?;
            }
            Remedy::Untangle => {
                self.empty_journal()?;
                untangle(agent, &finding.place)?;
            }
        }
        Ok(true)
    }
}

impl StateDir {
    /// Repairs a finding outside the agents, or about permissions. Returns `false` if people must
    /// decide.
    pub fn mend(&self, finding: &Finding) -> Result<bool> {
        match &finding.remedy {
            Remedy::Protect => protect(&finding.place)?,
            Remedy::Permit(rights) => rights.set(&finding.place)?,
            Remedy::AddLines(name, lines) => self.add_for_git(name, lines)?,
            Remedy::Sweep => self.sweep(&finding.place)?,
            Remedy::ByHand { .. }
            | Remedy::Quarantine
            | Remedy::QuarantineLines(_)
            | Remedy::Untangle
            | Remedy::Recount(..)
            | Remedy::KeepInbox
            | Remedy::FinishExchange => return Ok(false),
        }
        Ok(true)
    }
}

/// Removes the write permission of other users. A file that is gone by now needs no repair.
fn protect(cap: &CapPath) -> Result<()> {
    let Some(found) = cap.look()? else { return Ok(()) };
    let is_private = found.st_uid == found.st_gid;
    cap.set_mode(found.st_mode & 0o7777 & if is_private { !0o002 } else { !0o022 })
}

/// Rewrites a file without some of its lines, after these were quarantined. A file with no other
/// lines is not the program's, and is quarantined byte for byte.
fn quarantine_lines(agent: &LocalAgent<'_>, path: &CapPath, aside: &[Vec<u8>]) -> Result<()> {
    let bytes = path.read(files::MAX_LINES)?.unwrap_or_default();
    let records = lines::records(&bytes).map(|(_, line)| line);
    let (moved, kept): (Vec<&[u8]>, Vec<&[u8]>) =
        records.partition(|line| aside.iter().any(|moved| moved == line));
    if moved.is_empty() {
        // Applying the journal has completed the incomplete line, so no line has to be moved.
        return Ok(());
    }
    if kept.is_empty() {
        return agent.quarantine(path).map(drop);
    }
    agent.quarantine_text(&path.below(agent.dir.cap()).to_string_lossy(), &lines::join(moved))?;
    agent.replace_file(path, &lines::join(kept))
}

/// Rewrites a file with each of its lines once. Sorts events by number; lines of the archive keep
/// their order, because the last line of a record counts.
fn untangle(agent: &LocalAgent<'_>, path: &CapPath) -> Result<()> {
    let bytes = path.read(files::MAX_LINES)?.unwrap_or_default();
    let mut once: Vec<&[u8]> = lines::once(&bytes).map(|(_, line)| line).collect();
    // A line that is no event counts as number 0, so it is sorted to the beginning.
    let seq = |line: &&[u8]| json::read::<Event>(line).map_or(0, |event| event.seq);
    once.sort_by_key(seq);
    agent.replace_file(path, &lines::join(once))
}
