//! Records of an agent that a command line names.

use crate::engine::lookup;
use crate::error::{Error, Result};
use crate::model::record::{Kept, Record};
use crate::store::{Agent, Snapshot};

/// Finds an open record of the agent by its id or a part of it.
pub fn open_id<T: Kept>(agent: &Agent<'_>, what: &'static str, part: Option<&str>) -> Result<Option<T::Id>> {
    let find = |part| lookup::open::<T>(agent.store(), Some(agent.name().clone()), what, part);
    part.map(|part| find(part).map(|found| found.id)).transpose()
}

/// Returns a record, open or ended.
pub fn read<T: Kept>(agent: &Agent<'_>, what: &'static str, id: T::Id) -> Result<T> {
    let found = agent.look(|seen, _| match seen.open_one::<T>(id)? {
        Some(record) => Ok(Some(record)),
        None => seen.ended_one::<T>(id),
    })?;
    found.ok_or_else(|| Error::NoRecord { what, id: id.to_string() })
}

/// Returns the ended records of a kind, newest first.
pub fn ended<T: Record>(seen: &Snapshot<'_>) -> Result<Vec<T>> {
    let mut records = Vec::new();
    seen.ended(|record: T| {
        records.push(record);
        true
    })?;
    Ok(records)
}
