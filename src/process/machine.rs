//! Free memory and disk of this machine.

use std::fs;
use std::path::Path;

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
    fn what_the_kernel_tells_of_memory_is_read() {
        let text = "MemTotal:  1000 kB\nMemFree:  100 kB\nMemAvailable:   250 kB\n";
        assert_eq!(of_meminfo(text), Some(25.0));
        for garbled in
            ["", "MemTotal: 1000 kB", "MemTotal: 0 kB\nMemAvailable: 0 kB", "MemAvailable: x\nMemTotal: 1"]
        {
            assert_eq!(of_meminfo(garbled), None, "{garbled}");
        }
    }

    #[test]
    fn the_disk_has_a_size() {
        assert!(free_disk(Path::new("/")).is_some_and(|free| (0.0..=100.0).contains(&free)));
        assert_eq!(free_disk(Path::new("/nowhere")), None);
    }
}
