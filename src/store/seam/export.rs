//! Export of an agent from a database, in the form of files in a directory.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use crate::error::Result;

use super::super::backend::{Arrival, Op, ReadView};
use super::super::dir::{DirExport, layout};
use super::source::RecordSource;

/// Adds one revision of the records to an export of local files.
pub fn with_records(
    mut exported: DirExport,
    source: &RecordSource<'_>,
    view: &dyn ReadView,
) -> Result<DirExport> {
    let has: HashSet<PathBuf> = exported.paths().map(Path::to_owned).collect();
    exported.add(|put| {
        each_part(source, view, &mut |path, bytes| {
            // A checkpoint file of this machine is among the exported local files already.
            if has.contains(Path::new(path)) { Ok(()) } else { put(path, bytes) }
        })
    })?;
    Ok(exported.in_order())
}

/// Calls `put` with each file of one revision of the records, or with the next part of a file: its
/// path in the agent's directory, and the bytes.
pub fn each_part(
    source: &RecordSource<'_>,
    view: &dyn ReadView,
    put: &mut dyn FnMut(&str, &[u8]) -> Result<()>,
) -> Result<()> {
    source.copy(view, &mut |op| match op {
        Op::Identity(text) => put(layout::IDENTITY, text.as_bytes()),
        Op::Policy(settings) => put(layout::POLICY, settings.text.as_bytes()),
        Op::State { text, .. } => put(layout::STATE, text.as_bytes()),
        Op::Open { plane, id, text } => put(&layout::open(plane, &id), text.as_bytes()),
        Op::Plan { work, text } => put(&layout::plan(&work), text.as_bytes()),
        Op::Arrived(Arrival::Message { key, text }) => put(&layout::message(key), text.as_bytes()),
        Op::Arrived(Arrival::Hint { id, text }) => put(&layout::hint(id), text.as_bytes()),
        Op::Ended { kind, id: _, at, text } => put(&layout::archive(at, kind), text.as_bytes()),
        Op::Saved { checkpoint, part: _, bytes } => put(&layout::checkpoint(checkpoint), &bytes),
        Op::Event { seq: _, at, text } => put(&layout::ledger(at), text.as_bytes()),
        Op::Closed { .. }
        | Op::MessageTaken(_)
        | Op::HintTaken(_)
        | Op::Key { .. }
        | Op::KeysForgotten(_)
        | Op::TriggerKey { .. }
        | Op::InboxClosed(_)
        | Op::Unsaved(_)
        | Op::LocalDir(_)
        | Op::Forgotten { .. } => Ok(()),
    })
}
