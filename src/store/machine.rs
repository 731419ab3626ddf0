//! Which machine this is, as far as that can be known.

use std::fs;

use sha2::{Digest, Sha256};

/// Tells this machine from others, if it has a name of that sort: many containers have none. The system's own
/// name is nobody's business, so this is its hash.
pub fn id() -> Option<String> {
    let own = fs::read("/etc/machine-id").ok()?;
    let own = own.trim_ascii();
    if own.is_empty() {
        return None;
    }
    let hash = Sha256::new().chain_update("dormouse ").chain_update(own).finalize();
    Some(hash.iter().take(16).map(|byte| format!("{byte:02x}")).collect())
}
