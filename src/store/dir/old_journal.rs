//! The journal of versions before this one: a file of its own for one transaction, `journal.json`.

use crate::error::Result;

use super::files;
use super::journal::Entry;
use super::layout::{self, AgentDir};
use super::record::decode_plain;

/// Journals of the first schema do not say on which machine they were written.
const SCHEMAS: [&str; 2] = ["dormouse/journal/1", "dormouse/journal/2"];

/// What was found in its place.
pub enum Old {
    Nothing,
    Ours(Entry),
    /// A journal that came from another machine.
    Foreign,
}

impl Old {
    pub fn find(agent: &AgentDir) -> Result<Old> {
        let spot = agent.join(layout::OLD_JOURNAL);
        let Some(bytes) = spot.read(files::MAX_JOURNAL)? else { return Ok(Old::Nothing) };
        let entry: Entry = decode_plain(&spot, 0, &bytes)?;
        entry.check(&spot, &SCHEMAS)?;
        if entry.is_of_another_machine() {
            return Ok(Old::Foreign);
        }
        Ok(Old::Ours(entry))
    }

    /// Whether it can be read and names only files that transactions write.
    pub fn check(agent: &AgentDir) -> Result<()> {
        match Old::find(agent)? {
            Old::Ours(entry) => entry.check_paths(&agent.join(layout::OLD_JOURNAL)),
            Old::Foreign | Old::Nothing => Ok(()),
        }
    }

    /// The transaction, if it has to be applied beside a `state.json` of this revision. A journal that names
    /// a file that no transaction writes is damage.
    pub fn at(self, agent: &AgentDir, revision: u64) -> Result<Option<Entry>> {
        match self {
            Old::Ours(entry) => {
                entry.check_paths(&agent.join(layout::OLD_JOURNAL))?;
                Ok(entry.counts_at(revision).then_some(entry))
            }
            Old::Foreign | Old::Nothing => Ok(None),
        }
    }
}
