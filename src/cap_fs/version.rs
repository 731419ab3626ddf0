//! Identity of a file's content, for files that are only replaced as a whole.

use std::fmt;
use std::fs::File;
use std::io;
use std::str::FromStr;

use rustix::fs::Stat;
use serde_with::{DeserializeFromStr, SerializeDisplay};

/// Identity of the content of a file that is only replaced as a whole: the inode number, and in the
/// lower half the modification time in nanoseconds since 1970. Its text form has 32 hex digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, SerializeDisplay, DeserializeFromStr)]
pub struct Version(u128);

/// Number of characters of the text form of a version.
pub const VERSION_LENGTH: usize = 32;

impl Version {
    pub fn of(found: &Stat) -> Version {
        let written = nanoseconds(found.st_mtime, found.st_mtime_nsec);
        Version(u128::from(found.st_ino) << 64 | u128::from(written))
    }

    pub fn of_file(file: &File) -> io::Result<Version> {
        Ok(Version::of(&rustix::fs::fstat(file)?))
    }
}

/// Converts a file time to nanoseconds since 1970; an earlier time becomes 0.
pub fn nanoseconds(seconds: i64, rest: u64) -> u64 {
    u64::try_from(seconds).unwrap_or(0).saturating_mul(1_000_000_000).saturating_add(rest)
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl FromStr for Version {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Version, Self::Err> {
        let version = u128::from_str_radix(text, 16).ok().filter(|_| text.len() == VERSION_LENGTH);
        version.map(Version).ok_or("not the version of a file")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_read_back_from_its_text() {
        let version = Version(7 << 64 | u128::from(u64::MAX));
        assert_eq!(version.to_string().len(), VERSION_LENGTH);
        assert_eq!(version.to_string().parse(), Ok(version));
        for wrong in ["", "0", "--------------------------------", "00000000000000070000000000000000z"] {
            assert!(wrong.parse::<Version>().is_err(), "{wrong:?}");
        }
    }
}
