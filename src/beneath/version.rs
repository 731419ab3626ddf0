//! Identity of a file's content, for files that are only replaced as a whole.

use std::fmt;
use std::fs::File;
use std::io;
use std::str::FromStr;

use rustix::fs::Stat;
use serde_with::{DeserializeFromStr, SerializeDisplay};

/// Identity of the content of a file that is only replaced as a whole: the inode number and the
/// modification time. Its text form has 32 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, SerializeDisplay, DeserializeFromStr)]
pub struct Version {
    inode: u64,
    /// Modification time in nanoseconds since 1970.
    written: u64,
}

/// Number of characters of the text form of a version.
pub const VERSION_LENGTH: usize = 32;

impl Version {
    pub fn of(found: &Stat) -> Version {
        Version { inode: found.st_ino, written: nanoseconds(found.st_mtime, found.st_mtime_nsec) }
    }

    pub fn of_file(file: &File) -> io::Result<Version> {
        Ok(Version::of(&rustix::fs::fstat(file)?))
    }
}

/// File stamp: metadata that differ whenever the content of a file does: inode number, length, and
/// the times of modification and change. A program that resets the modification time thereby sets
/// the time of change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileStamp {
    version: Version,
    length: u64,
    changed: u64,
}

impl FileStamp {
    /// Size of a stored stamp in bytes.
    pub const LENGTH: usize = 32;

    pub fn of(found: &Stat) -> FileStamp {
        let changed = nanoseconds(found.st_ctime, found.st_ctime_nsec);
        FileStamp { version: Version::of(found), length: u64::try_from(found.st_size).unwrap_or(0), changed }
    }

    pub fn of_file(file: &File) -> io::Result<FileStamp> {
        Ok(FileStamp::of(&rustix::fs::fstat(file)?))
    }

    pub fn version(&self) -> Version {
        self.version
    }

    /// Returns the time of the last change of content, permissions or name of the file, in
    /// nanoseconds since 1970.
    pub fn changed(&self) -> u64 {
        self.changed
    }

    pub fn to_bytes(self) -> [u8; FileStamp::LENGTH] {
        let mut bytes = [0; FileStamp::LENGTH];
        let words = [self.version.inode, self.version.written, self.length, self.changed];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    pub fn from_bytes(bytes: &[u8; FileStamp::LENGTH]) -> FileStamp {
        let word =
            |at: usize| bytes[at..at + 8].iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        FileStamp {
            version: Version { inode: word(0), written: word(8) },
            length: word(16),
            changed: word(24),
        }
    }
}

/// Converts a file time to nanoseconds since 1970; an earlier time becomes 0.
pub fn nanoseconds(seconds: i64, rest: u64) -> u64 {
    u64::try_from(seconds).unwrap_or(0).saturating_mul(1_000_000_000).saturating_add(rest)
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}{:016x}", self.inode, self.written)
    }
}

impl FromStr for Version {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Version, Self::Err> {
        let number = |digits: Option<&str>| u64::from_str_radix(digits?, 16).ok();
        match (number(text.get(..16)), number(text.get(16..))) {
            (Some(inode), Some(written)) if text.len() == VERSION_LENGTH => Ok(Version { inode, written }),
            _ => Err("not the version of a file"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_read_back_from_its_text() {
        let version = Version { inode: 7, written: u64::MAX };
        assert_eq!(version.to_string().len(), VERSION_LENGTH);
        assert_eq!(version.to_string().parse(), Ok(version));
        for wrong in ["", "0", "--------------------------------", "00000000000000070000000000000000z"] {
            assert!(wrong.parse::<Version>().is_err(), "{wrong:?}");
        }
    }
}
