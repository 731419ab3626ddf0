//! Export of an agent from a database, in the form of files in a directory.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};

use crate::error::Result;
use crate::model::id::minted_at;
use crate::model::json;
use crate::model::record::Plane;
use crate::model::time::Time;

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
    // Settings and plans have no time of their own, so they get that of the agent or of the work
    // item.
    let (mut made_at, mut items) = (0, BTreeMap::new());
    let known = RefCell::new(HashMap::new());
    let put_all = |put: &mut PutPart<'_>| {
        source.copy(view, &mut |op| match op {
            Op::File(file) => {
                known.borrow_mut().insert(PathBuf::from(file.path), (file.digest, file.written_at));
                Ok(())
            }
            Op::Identity(text) => {
                made_at = written_at(&text);
                put(layout::IDENTITY, text.as_bytes(), made_at)
            }
            Op::Policy(settings) => put(layout::POLICY, settings.text.as_bytes(), made_at),
            Op::State { text, .. } => put(layout::STATE, text.as_bytes(), written_at(&text)),
            Op::Open { plane, id, text } => {
                let at = written_at(&text);
                put(&layout::open(plane, &id), text.as_bytes(), at)?;
                if plane == Plane::Work {
                    items.insert(id, at);
                }
                Ok(())
            }
            Op::Plan { work, text } => {
                let at = items.get(&work).copied().unwrap_or(made_at);
                put(&layout::plan(&work), text.as_bytes(), at)
            }
            Op::Arrived(Arrival::Message { key, text }) => {
                put(&layout::message(key), text.as_bytes(), written_at(&text))
            }
            Op::Arrived(Arrival::Hint { id, text }) => {
                put(&layout::hint(id), text.as_bytes(), written_at(&text))
            }
            Op::Ended { kind, id: _, at, text } => {
                put(&layout::archive(at, kind), text.as_bytes(), seconds(at))
            }
            // A checkpoint file of this machine is among the exported local files already.
            Op::Saved { checkpoint, part: _, bytes } => {
                let path = layout::checkpoint(checkpoint);
                if has.contains(Path::new(&path)) {
                    return Ok(());
                }
                put(&path, &bytes, minted_at(checkpoint.run_id.0).map_or(made_at, seconds))
            }
            Op::Event { seq: _, at, text } => put(&layout::ledger(at), text.as_bytes(), seconds(at)),
            Op::Closed { .. }
            | Op::MessageTaken(_)
            | Op::HintTaken(_)
            | Op::Key { .. }
            | Op::TriggerKey { .. }
            | Op::InboxClosed(_)
            | Op::Unsaved(_)
            | Op::LocalDir(_)
            | Op::Forgotten { .. } => Ok(()),
        })
    };
    exported.add(put_all, |path, digest| {
        let known = known.borrow();
        let (same, written_at) = known.get(path)?;
        (same == digest).then_some(*written_at)
    })?;
    Ok(exported.in_order())
}

/// Takes the next part of a file: its path, the bytes, and the time of writing.
type PutPart<'p> = dyn FnMut(&str, &[u8], u64) -> Result<()> + 'p;

/// Returns the latest time in a record, in seconds since 1970, so that equal records get equal
/// times.
fn written_at(text: &str) -> u64 {
    let Ok(value) = json::value(text.as_bytes()) else { return 0 };
    let named = ["updated_at", "ended_at", "created_at", "at"].iter();
    let moments = named.filter_map(|field| Time::parse(value.get(field)?.as_str()?).ok());
    moments.map(seconds).max().unwrap_or(0)
}

fn seconds(at: Time) -> u64 {
    u64::try_from(at.as_millis() / 1000).unwrap_or(0)
}
