//! Deletion of months past their retention period, and the ids that remain of them.
//!
//! 1. The ids of the messages that ended in a month **must** be durable in `ended.jsonl` before the
//!    month's files are deleted: a message whose file comes back must not run again.
//! 2. A reader that has listed the files of a month and finds one deleted **must** notice. So a
//!    commit comes first: it raises the revision, and the reader starts over.
//! 3. A kill between two deletions leaves the rest of the month to the next `gc`.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::model::id::MessageId;

use super::record::encode_plain_line;
use super::{DirTxn, archive, files, layout, lines, months};

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

/// True if a line of the archive is a line of `ended.jsonl`.
pub fn is_ended_line(line: &str) -> bool {
    line.starts_with("{\"schema\":\"dormouse/ended/")
}

impl DirTxn<'_> {
    /// Adds messages to the `ended.jsonl` of a month, durably.
    pub(in crate::store) fn note_ended(&self, month: &str, ended: &[MessageId]) -> Result<()> {
        let spot = self.agent.dir.join(layout::month(month, months::ENDED));
        let noted = spot.read(files::MAX_LINES)?.unwrap_or_default();
        let mut lines: Vec<&[u8]> = lines::once(&noted).map(|(_, line)| line).collect();
        let known: HashSet<&[u8]> = lines.iter().copied().collect();
        let new: Vec<Vec<u8>> = ended.iter().copied().map(ended_line).collect();
        let count = lines.len();
        lines.extend(new.iter().map(|line| line.trim_ascii()).filter(|line| !known.contains(line)));
        if lines.len() > count {
            spot.parent().make_dirs()?;
            self.agent.replace_file(&spot, &lines::join(lines))?;
        }
        Ok(())
    }

    /// Deletes the files of a month, but for its `ended.jsonl`. The caller has committed since
    /// [`DirTxn::note_ended`].
    pub(in crate::store) fn remove_month(&self, month: &str) -> Result<()> {
        let kinds = archive::KINDS.iter().filter(|kind| **kind != months::ENDED);
        let archives = kinds.map(|kind| layout::month(month, kind));
        for path in archives.chain([format!("{}/{month}{}", layout::LEDGER, layout::LINES)]) {
            let spot = self.agent.dir.join(&path);
            spot.remove()?;
            self.agent.dir.join(layout::settled(&path)).remove()?;
            if path.starts_with(layout::ARCHIVE) {
                // The removal fails as long as the month has other files.
                let _ = spot.parent().remove_dir();
            }
        }
        Ok(())
    }
}
