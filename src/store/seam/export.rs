//! Export of an agent from a database, in the form of files in a directory.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use crate::error::Result;

use super::super::backend::ReadView;
use super::super::dir::{DirExport, copying};
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
    source.copy(view, &mut |op| copying::put(op, put))
}
