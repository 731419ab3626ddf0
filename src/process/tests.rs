//! Marks of the processes that the unit tests of several files start.

use super::ProcessMark;

/// Returns a unique run id, because a search for marked processes covers the whole machine.
pub fn run_id() -> String {
    format!("run_{}", std::process::id())
}

pub fn mark() -> ProcessMark {
    ProcessMark::run(run_id())
}
