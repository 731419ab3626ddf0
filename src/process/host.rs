//! Which machine this is, and which boot of it.

pub fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// An id of this boot of the machine; empty if the system has none.
pub fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map(|text| text.trim().to_owned())
        .unwrap_or_default()
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
