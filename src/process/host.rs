//! Identity of this machine and of its boot.

use std::env::{current_exe, join_paths, split_paths};
use std::ffi::{OsStr, OsString};
use std::sync::OnceLock;

pub fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Returns the id of the current boot of the machine; empty if the system has none.
pub fn boot_id() -> &'static str {
    static BOOT: OnceLock<String> = OnceLock::new();
    BOOT.get_or_init(|| {
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        text.trim().to_owned()
    })
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
    fn the_host_has_a_name_and_one_boot() {
        assert!(!hostname().is_empty());
        assert_eq!(boot_id(), boot_id());
        assert!(!boot_id().contains('\n'));
    }
}
