//! State directory from which the processes of a run or task were started (contract, execution §9).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_with::{DeserializeFromStr, SerializeDisplay};

/// Identity of a state directory, or of an agent's directory: its device and inode numbers. A moved
/// directory keeps both; a copy, a clone, a worktree and a restored directory have other numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, SerializeDisplay, DeserializeFromStr)]
pub struct PlaceId {
    pub device: u64,
    pub inode: u64,
}

impl PlaceId {
    /// True if both identify the same directory. Device numbers may change at a boot, so they are
    /// compared only if both were read during one boot.
    pub fn is_same(self, other: PlaceId, is_same_boot: bool) -> bool {
        self.inode == other.inode && (self.device == other.device || !is_same_boot)
    }
}

impl fmt::Display for PlaceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.device, self.inode)
    }
}

impl FromStr for PlaceId {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<PlaceId, Self::Err> {
        let numbers = text.split_once(':').and_then(|(device, inode)| {
            Some(PlaceId { device: device.parse().ok()?, inode: inode.parse().ok()? })
        });
        numbers.ok_or("not the number of a device, `:` and the number of an inode")
    }
}

/// State directory of a run or task, as stored in its record.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct StatePlace {
    pub id: PlaceId,
    /// Path of the state directory when the record was written, for people.
    pub path: String,
}

/// Place other than this state directory and machine where a run or task may still be running.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Away {
    /// Another machine on which the same state directory is used.
    Machine { host: String },
    /// Another state directory. `path`: `None` if unknown; `host`: `None` for this machine.
    Directory { path: Option<String>, host: Option<String> },
}

impl fmt::Display for Away {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Away::Machine { host } => write!(f, "on {host}"),
            Away::Directory { path, host } => {
                write!(f, "in {}", path.as_deref().unwrap_or("another state directory"))?;
                host.iter().try_for_each(|host| write!(f, " on {host}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_as_it_is_written() {
        let id = PlaceId { device: 64769, inode: u64::MAX };
        assert_eq!(id.to_string().parse(), Ok(id));
        for wrong in ["", ":", "1", "1:", ":1", "1:-1", "1:2:3", "a:1"] {
            assert!(wrong.parse::<PlaceId>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_device_number_counts_within_one_boot() {
        let one = PlaceId { device: 1, inode: 7 };
        let (renumbered, other) = (PlaceId { device: 2, inode: 7 }, PlaceId { device: 1, inode: 8 });
        assert!(one.is_same(one, true) && one.is_same(renumbered, false));
        assert!(!one.is_same(renumbered, true) && !one.is_same(other, false));
    }
}
