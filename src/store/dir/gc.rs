//! Deletion of old months of the archive and the ledger, and lists of the messages ended in them.
//!
//! 1. The ids of the messages that ended in a month **must** be durable in `ended.jsonl` before the
//!    month's files are deleted: a message whose file comes back must not run again.
//! 2. A reader that has listed the files of a month and finds one deleted **must** notice. So the
//!    commit comes first: it raises the revision, and the reader starts over.
//! 3. A kill between two deletions leaves the rest of the month to the next `gc`.

use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::local::layout;
use crate::model::id::MessageId;

use super::record::encode_plain_line;
use super::{DirTxn, months};

/// A line of `ended.jsonl`: a message that ended in a month that was deleted.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EndedIdLine {
    schema: String,
    id: MessageId,
}

/// Line of `ended.jsonl` for a message.
pub fn ended_line(id: MessageId) -> Vec<u8> {
    encode_plain_line(&EndedIdLine { schema: "dormouse/ended/1".to_owned(), id })
}

/// True if the line is from an `ended.jsonl`, the list of messages that ended in a deleted month.
pub fn is_ended_line(line: &str) -> bool {
    line.starts_with("{\"schema\":\"dormouse/ended/")
}

impl DirTxn<'_> {
    /// Deletes the files of a month, except its `ended.jsonl`. The journal must be empty, because
    /// its lines would write the files again.
    pub(super) fn remove_month(&self, month: &str) -> Result<()> {
        let kinds = months::KINDS.iter().filter(|kind| **kind != months::ENDED);
        let archives = kinds.map(|kind| layout::month(month, kind));
        for path in archives.chain([format!("{}/{month}{}", layout::LEDGER, layout::LINES)]) {
            let cap = self.agent.local.dir.join(&path);
            cap.remove()?;
            self.agent.local.dir.join(layout::settled(&path)).remove()?;
            if path.starts_with(layout::ARCHIVE) {
                // The removal fails as long as the month has other files.
                let _ = cap.parent().remove_dir();
            }
        }
        Ok(())
    }
}
