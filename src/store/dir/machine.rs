//! Which machine this is, and which boot of it, as far as that can be known.

use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use crate::model::digest::hex;

/// Tells this machine from others, if it has a name of that sort: many containers have none. The system's own
/// name is nobody's business, so this is its hash.
pub fn id() -> Option<&'static str> {
    static ID: OnceLock<Option<String>> = OnceLock::new();
    ID.get_or_init(|| hash_of(Path::new("/etc/machine-id"), "dormouse ")).as_deref()
}

/// Tells this boot of the machine from all others, of this machine or any: 32 hexadecimal digits. `None` where
/// the system has no such thing.
pub fn boot() -> Option<&'static str> {
    static BOOT: OnceLock<Option<String>> = OnceLock::new();
    BOOT.get_or_init(|| hash_of(Path::new("/proc/sys/kernel/random/boot_id"), "dormouse boot ")).as_deref()
}

fn hash_of(path: &Path, purpose: &str) -> Option<String> {
    let own = fs::read(path).ok()?;
    let own = own.trim_ascii();
    (!own.is_empty()).then(|| hex(&[purpose.as_bytes(), own], 32))
}
