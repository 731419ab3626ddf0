//! What every stored record has in common.

use std::fmt::Display;
use std::hash::Hash;
use std::str::FromStr;

use serde::Serialize;
use serde::de::DeserializeOwned;

pub use super::json::Extra;

/// A record with a published schema: `dormouse/<kind>/<version>`.
pub trait Record: Serialize + DeserializeOwned {
    const KIND: &'static str;
    const VERSION: u32 = 1;

    fn extra_mut(&mut self) -> &mut Extra;

    /// The id under which the record lies in the directory of its kind; `None` for records without
    /// one.
    fn file_id(&self) -> Option<String> {
        None
    }

    /// What the types can't say: `Err` names the field and what is wrong with it.
    fn check(&self) -> Result<(), String> {
        Ok(())
    }

    /// The value of the `schema` field.
    fn schema() -> String {
        format!("dormouse/{}/{}", Self::KIND, Self::VERSION)
    }
}

/// Where the open records of a kind are kept together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Plane {
    Work,
    Waits,
    Timers,
    Tasks,
    Triggers,
    /// Messages to other agents that are still to be delivered.
    Outbox,
}

impl Plane {
    /// Every place.
    pub const ALL: [Plane; 6] =
        [Plane::Work, Plane::Waits, Plane::Timers, Plane::Tasks, Plane::Triggers, Plane::Outbox];
}

/// A record that an agent has open until it ends; then the archive has it.
pub trait Kept: Record {
    type Id: Copy + Ord + Hash + Display + FromStr;
    const PLANE: Plane;

    fn id(&self) -> Self::Id;
}

/// The number of bytes that a record has as a file, which is a little less than the file that has
/// its schema as well. In a file each value of a list has a line of its own, so a body may become
/// many times as long as it was said.
pub fn size(record: &impl Serialize) -> u64 {
    // Records have nothing that JSON can't express.
    serde_json::to_vec_pretty(record).map_or(0, |bytes| bytes.len() as u64)
}

/// More changes than a record can ever see. A revision beyond that is damage.
pub const MOST_REVISIONS: u64 = 1 << 53;
