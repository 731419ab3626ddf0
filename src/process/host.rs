//! Which machine this is, and which boot of it.

use std::sync::OnceLock;

pub fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// An id of this boot of the machine; empty if the system has none.
pub fn boot_id() -> &'static str {
    static BOOT: OnceLock<String> = OnceLock::new();
    BOOT.get_or_init(|| {
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        text.trim().to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_has_a_name_and_one_boot() {
        assert!(!hostname().is_empty());
        assert_eq!(boot_id(), boot_id());
        assert!(!boot_id().contains('\n'));
    }
}
