//! Identity under which this machine owns leases in a store that several machines share.
//!
//! A process that gets the local lock of a run knows that the former owner of the lease is dead, if
//! that owner held the same lock. So the identity belongs to the directory of the locks. The
//! identity is a random number, drawn at first need, and valid for one boot, one pid namespace, and
//! one device and inode: a copy in a machine image has another identity.

use crate::cap_fs::CapPath;
use crate::error::{IoContext, Result};
use crate::model::digest::hex;

use super::files::Disk;
use super::machine;

/// Prefix of the name of a file with this machine's identity; a digest of the boot follows.
const OWNER: &str = "owner-";
/// Length of a machine's identity, in hexadecimal digits.
const DIGITS: usize = 32;
/// Maximum bytes that are read of an identity file.
const MOST: u64 = 4 << 10;
/// Age in seconds at which an identity file of an earlier boot or container is removed.
const FORMER: i64 = 30 * 24 * 3600;

/// Returns or creates the random identity under which this machine's processes own leases.
pub fn owner(root: &CapPath, disk: Disk) -> Result<String> {
    let file = root.join(format!("{OWNER}{}", here(root)?));
    if let Some(known) = known(&file)? {
        return Ok(known);
    }
    let text = machine::random().context("draw", &file)?;
    let staged = root.join(format!("{OWNER}.new-{}", std::process::id()));
    disk.stage_unsynced(&staged, format!("{text}\n").as_bytes())?;
    // A file that exists here has no valid identity, for example after a power cut.
    if file.exists()? {
        staged.rename(&file)?;
    } else if !staged.rename_if_free(&file)? {
        staged.remove()?;
    }
    remove_former(root, &file);
    // Another process may have created the identity file first.
    Ok(known(&file)?.unwrap_or(text))
}

fn known(file: &CapPath) -> Result<Option<String>> {
    let bytes = file.read(MOST)?.unwrap_or_default();
    let text = String::from_utf8_lossy(bytes.trim_ascii()).into_owned();
    Ok(Some(text).filter(|text| text.len() == DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit())))
}

/// Digest of the boot, the pid namespace, and the device and inode of the locks' directory.
fn here(root: &CapPath) -> Result<String> {
    let numbers = root.id_of_root()?.to_string();
    let (boot, namespace) = (machine::boot().unwrap_or("none"), machine::pid_namespace());
    Ok(hex(&[boot.as_bytes(), b" ", namespace.as_bytes(), b" ", numbers.as_bytes()], 16))
}

/// Removes identity files of earlier boots and containers. A file that stays does no harm.
fn remove_former(root: &CapPath, current: &CapPath) {
    let written = |cap: &CapPath| cap.look().ok().flatten().map(|found| found.st_mtime);
    let (Some(now), Ok(entries)) = (written(current), root.entries()) else { return };
    for entry in entries {
        let cap = root.join(&entry.name);
        let is_one = entry.name.as_encoded_bytes().starts_with(OWNER.as_bytes()) && cap != *current;
        if is_one && written(&cap).is_some_and(|then| now - then > FORMER) {
            let _ = cap.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cap_fs::at;
    use crate::model::settings::Durability;

    #[test]
    fn the_owner_id_is_stable_and_a_copied_directory_gets_another_id() {
        let (dir, copied) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let disk = Disk::new(Durability::Process);
        let first = owner(&at(dir.path()), disk).unwrap();
        assert_eq!(owner(&at(dir.path()), disk).unwrap(), first);
        // The loop imitates a machine image, which contains a copy of the identity file.
        for entry in std::fs::read_dir(dir.path()).unwrap() {
            let entry = entry.unwrap();
            std::fs::copy(entry.path(), copied.path().join(entry.file_name())).unwrap();
        }
        let second = owner(&at(copied.path()), disk).unwrap();
        assert_ne!(second, first);
        assert_eq!(owner(&at(copied.path()), disk).unwrap(), second);
    }

    #[test]
    fn an_empty_owner_file_is_rewritten_and_old_owner_files_are_deleted() {
        let dir = tempfile::tempdir().unwrap();
        let (root, disk) = (at(dir.path()), Disk::new(Durability::Process));
        let file = dir.path().join(format!("{OWNER}{}", here(&root).unwrap()));
        let former = dir.path().join("owner-0123456789abcdef");
        std::fs::write(&file, "").unwrap();
        std::fs::write(&former, "").unwrap();
        let then = std::time::SystemTime::now() - std::time::Duration::from_secs(31 * 24 * 3600);
        std::fs::File::options().append(true).open(&former).unwrap().set_modified(then).unwrap();
        let drawn = owner(&root, disk).unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), format!("{drawn}\n"));
        assert!(!former.exists());
    }
}
