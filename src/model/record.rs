//! What every stored record has in common.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// Fields that this version does not know. They survive a read and a write.
pub type Extra = Map<String, Value>;

/// A record with a published schema: `dormouse/<kind>/<version>`.
pub trait Record: Serialize + DeserializeOwned {
    const KIND: &'static str;
    const VERSION: u32 = 1;

    fn extra_mut(&mut self) -> &mut Extra;

    /// The id, of a record that lies under it in a directory of its kind.
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

/// More changes than any record can have seen: a number beyond it was not counted.
pub const MOST_REVISIONS: u64 = 1 << 53;
