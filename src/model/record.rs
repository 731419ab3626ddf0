//! Properties that all stored records have.

use std::fmt::Display;
use std::hash::Hash;
use std::str::FromStr;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::id::AgentName;

pub use super::json::Extra;

/// Record with the published schema `dormouse/<kind>/<version>`.
pub trait Record: Serialize + DeserializeOwned {
    const KIND: &'static str;
    const VERSION: u32 = 1;

    fn extra_mut(&mut self) -> &mut Extra;

    /// Sets the field with the agent that has the record, if there is such a field. Records from
    /// before a rename contain the former name.
    fn set_agent(&mut self, _agent: &AgentName) {}

    /// Checks constraints between fields. `Err`: text with the field and its fault.
    fn check(&self) -> Result<(), String> {
        Ok(())
    }

    /// Returns the value of the record's `schema` field.
    fn schema() -> String {
        format!("dormouse/{}/{}", Self::KIND, Self::VERSION)
    }
}

/// Directory in which the open records of one kind are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Plane {
    Work,
    Waits,
    Timers,
    Tasks,
    Triggers,
    /// Messages to other agents that have not been delivered yet.
    Outbox,
}

impl Plane {
    /// All directories of open records, in a fixed order.
    pub const ALL: [Plane; 6] =
        [Plane::Work, Plane::Waits, Plane::Timers, Plane::Tasks, Plane::Triggers, Plane::Outbox];
}

/// Record that is stored with its agent while it is open, and in the archive when it has ended.
pub trait OpenRecord: Record {
    type Id: Copy + Ord + Hash + Display + FromStr;
    const PLANE: Plane;

    fn id(&self) -> Self::Id;
}

/// Implements [`Record`] for a type with a field `extra`, and with `of agent` also a field `agent`;
/// also [`OpenRecord`] if an id type and a `Plane` (directory) are given. With `check` the type's
/// method `fault` checks its constraints.
macro_rules! record {
    ($type:ident $(of $agent:ident)? = $kind:literal $(, $id:ident in $plane:expr)? $(; $check:ident)?) => {
        impl $crate::model::record::Record for $type {
            const KIND: &'static str = $kind;

            fn extra_mut(&mut self) -> &mut $crate::model::record::Extra {
                &mut self.extra
            }
            $(
                fn set_agent(&mut self, agent: &AgentName) {
                    self.$agent.clone_from(agent);
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

/// Returns `fault` as error, unless the constraint is fulfilled.
pub fn ensure(holds: bool, fault: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(fault.to_owned()) }
}

/// True if `value` is the default that readers give to an absent field, so that it can be omitted.
pub fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Default of a flag that is true where it is absent.
pub const fn yes() -> bool {
    true
}

/// Returns the size of a record as a file, without its schema field, in bytes. In a file each
/// element of a list has its own line, so a body may be many times larger than when it was sent.
pub fn size(record: &impl Serialize) -> u64 {
    // Every record can be expressed in JSON.
    serde_json::to_vec_pretty(record).map_or(0, |bytes| bytes.len() as u64)
}

/// Maximum of revisions and of event numbers. A higher stored number shows a damaged record.
pub const MOST_REVISIONS: u64 = 1 << 53;
