//! Common properties of stored records.

use std::fmt::Display;
use std::hash::Hash;
use std::str::FromStr;

use serde::Serialize;
use serde::de::DeserializeOwned;

pub use super::json::Extra;

/// Record with a published schema: `dormouse/<kind>/<version>`.
pub trait Record: Serialize + DeserializeOwned {
    const KIND: &'static str;
    const VERSION: u32 = 1;

    fn extra_mut(&mut self) -> &mut Extra;

    /// Returns the id that names the record in the directory of its kind; `None` for records
    /// without one.
    fn file_id(&self) -> Option<String> {
        None
    }

    /// Checks constraints between fields. `Err` names the field and its fault.
    fn check(&self) -> Result<(), String> {
        Ok(())
    }

    /// Returns the value of the `schema` field.
    fn schema() -> String {
        format!("dormouse/{}/{}", Self::KIND, Self::VERSION)
    }
}

/// Directory of the open records of one kind.
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
    /// All planes.
    pub const ALL: [Plane; 6] =
        [Plane::Work, Plane::Waits, Plane::Timers, Plane::Tasks, Plane::Triggers, Plane::Outbox];
}

/// Record that is stored with its agent until it ends, and then in the archive.
pub trait OpenRecord: Record {
    type Id: Copy + Ord + Hash + Display + FromStr;
    const PLANE: Plane;

    fn id(&self) -> Self::Id;
}

/// Implements [`Record`] for a type with a field `extra`, and [`OpenRecord`] if its ids and plane
/// are given. With `check` the type has a method `fault`, which checks constraints between fields.
macro_rules! record {
    ($type:ident = $kind:literal $(, $id:ident in $plane:expr)? $(; $check:ident)?) => {
        impl $crate::model::record::Record for $type {
            const KIND: &'static str = $kind;

            fn extra_mut(&mut self) -> &mut $crate::model::record::Extra {
                &mut self.extra
            }
            $(
                fn file_id(&self) -> Option<String> {
                    let id: $id = self.id;
                    Some(id.to_string())
                }
            )?
            $(
                fn $check(&self) -> Result<(), String> {
                    self.fault()
                }
            )?
        }
        $(
            impl $crate::model::record::OpenRecord for $type {
                type Id = $id;
                const PLANE: $crate::model::record::Plane = $plane;

                fn id(&self) -> $id {
                    self.id
                }
            }
        )?
    };
}
pub(crate) use record;

/// Returns the fault if a constraint does not hold.
pub fn ensure(holds: bool, fault: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(fault.to_owned()) }
}

/// True for the value that a reader takes for an absent field.
pub fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Returns the number of bytes of a record as a file, without its schema field. In a file each
/// value of a list has its own line, so a body may become many times longer than it was sent.
pub fn size(record: &impl Serialize) -> u64 {
    // Records have no value that JSON can't express.
    serde_json::to_vec_pretty(record).map_or(0, |bytes| bytes.len() as u64)
}

/// Upper bound of revisions. A revision beyond it is damage.
pub const MOST_REVISIONS: u64 = 1 << 53;
