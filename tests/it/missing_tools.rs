//! Tests whose tools the machine lacks: left out, and listed when all tests have ended.
//!
//! The unit tests of the program use this file, too.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// The tests that were left out, by reason.
static LEFT_OUT: Mutex<BTreeMap<String, BTreeSet<String>>> = Mutex::new(BTreeMap::new());

/// Returns from the calling test, as passed, if the machine lacks one of these tools.
macro_rules! needs {
    ($($tool:literal),+ $(; $passed:expr)?) => {
        if !$crate::missing_tools::has(&[$($tool),+]) {
            return $($passed)?;
        }
    };
}

/// True if the machine has all of these tools. If it lacks one, the calling test is listed as left
/// out; with `CI` or `DORMOUSE_TEST_ALL` set, the test fails.
#[track_caller]
pub fn has(tools: &[&str]) -> bool {
    let missing: Vec<&str> = tools.iter().copied().filter(|tool| !is_installed(tool)).collect();
    if missing.is_empty() {
        return true;
    }
    let must = ["CI", "DORMOUSE_TEST_ALL"].iter().any(|name| std::env::var_os(name).is_some());
    assert!(!must, "this test needs {}: docs/TESTING.md lists the packages", missing.join(", "));
    leave_out(&format!("needs {}", missing.join(", ")));
    false
}

/// Lists the calling test as left out. The list is printed when the process ends, because libtest
/// hides what a passed test prints.
pub fn leave_out(reason: &str) {
    let mut left_out = LEFT_OUT.lock().unwrap_or_else(PoisonError::into_inner);
    if left_out.is_empty() {
        // SAFETY: the function lives as long as the process and does not unwind.
        unsafe { libc::atexit(list) };
    }
    let thread = std::thread::current();
    let test = thread.name().unwrap_or_default();
    left_out.entry(reason.to_owned()).or_default().insert(test.to_owned());
}

extern "C" fn list() {
    let left_out = LEFT_OUT.lock().unwrap_or_else(PoisonError::into_inner);
    let mut text = String::from("left out (CI=1 or DORMOUSE_TEST_ALL=1 makes a missing tool a failure):\n");
    for (reason, tests) in &*left_out {
        let mut modules = BTreeMap::new();
        for test in tests {
            *modules.entry(test.rsplit_once("::").map_or("", |(module, _)| module)).or_insert(0) += 1;
        }
        let modules: Vec<String> = modules.iter().map(|(name, count)| format!("{name} {count}")).collect();
        text += &format!("    {reason}: {}\n", modules.join(", "));
    }
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// True if the machine has a tool. `postgresql` means the programs of a server and `openssl`, which
/// makes the server's certificates.
fn is_installed(tool: &str) -> bool {
    if tool == "postgresql" {
        let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
        return is_installed("openssl")
            && versions.into_iter().any(|one| one.path().join("bin/initdb").exists());
    }
    find(tool).is_some()
}

/// Path of a program, in a directory of `PATH` or where Debian keeps the programs of
/// administrators.
pub fn find(tool: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs = std::env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(PathBuf::from));
    dirs.map(|dir| dir.join(tool)).find(|path| path.is_file())
}
