//! This machine: boot, free memory and disk, and the PATH of commands.

use std::env::{current_exe, join_paths, split_paths};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::Path;

/// Returns the id of the current boot of the machine; empty if the system has none.
pub fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// Returns `path` with the directory of this program appended, so that commands find the program in
/// the short PATH of cron. `None` if a directory of `path` has a program of this name, or if the
/// directory can't be part of a PATH.
pub fn with_own_directory(path: &OsStr) -> Option<OsString> {
    let program = current_exe().ok()?;
    let (directory, name) = (program.parent()?, program.file_name()?);
    if path.is_empty() || split_paths(path).any(|listed| listed.join(name).is_file()) {
        return None;
    }
    join_paths(split_paths(path).chain([directory.to_owned()])).ok()
}

/// Returns the percentage of memory that is available to new processes; `None` if the system does
/// not report it.
pub fn available_memory() -> Option<f64> {
    of_meminfo(&fs::read_to_string("/proc/meminfo").ok()?)
}

/// Returns the percentage of a file system that users may still fill; `None` if the system does not
/// report it.
pub fn free_disk(path: &Path) -> Option<f64> {
    let found = rustix::fs::statvfs(path).ok()?;
    percent(found.f_bavail, found.f_blocks)
}

fn of_meminfo(text: &str) -> Option<f64> {
    let value = |name: &str| -> Option<u64> {
        let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
        rest.split_ascii_whitespace().next()?.parse().ok()
    };
    percent(value("MemAvailable:")?, value("MemTotal:")?)
}

fn percent(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 * 100.0 / whole as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_without_this_program_gets_its_directory_at_the_end() {
        let directory = current_exe().unwrap().parent().unwrap().to_owned();
        let longer = with_own_directory(OsStr::new("/nowhere:/nor/here")).unwrap();
        let listed: Vec<_> = split_paths(&longer).collect();
        assert_eq!(listed, ["/nowhere".into(), "/nor/here".into(), directory]);
        assert_eq!(with_own_directory(&longer), None, "it has it now");
        assert_eq!(with_own_directory(OsStr::new("")), None, "an empty one is a choice");
    }

    #[test]
    fn a_boot_has_one_id() {
        assert_eq!(boot_id(), boot_id());
        assert!(!boot_id().contains('\n'));
    }

    #[test]
    fn free_memory_is_read_from_meminfo() {
        let text = "MemTotal:  1000 kB\nMemFree:  100 kB\nMemAvailable:   250 kB\n";
        assert_eq!(of_meminfo(text), Some(25.0));
        for garbled in
            ["", "MemTotal: 1000 kB", "MemTotal: 0 kB\nMemAvailable: 0 kB", "MemAvailable: x\nMemTotal: 1"]
        {
            assert_eq!(of_meminfo(garbled), None, "{garbled}");
        }
    }

    #[test]
    fn the_free_disk_space_of_an_existing_path_is_a_percentage() {
        assert!(free_disk(Path::new("/")).is_some_and(|free| (0.0..=100.0).contains(&free)));
        assert_eq!(free_disk(Path::new("/nowhere")), None);
    }
}
