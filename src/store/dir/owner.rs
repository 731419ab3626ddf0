//! Identity under which this machine owns leases in a store that machines share.
//!
//! A process that has the local lock of a run knows that the former owner of the lease is dead, if
//! that owner held the same lock. So the identity belongs to the directory in which the locks lie.
//! It is drawn when it is first needed, and holds for one boot, one pid namespace, and one device
//! and inode: what a machine image brings along belongs to another owner.

use crate::beneath::Spot;
use crate::error::{IoContext, Result};
use crate::model::digest::hex;

use super::files::Disk;
use super::machine;

/// Prefix of the file's name; a digest of the place to which the identity belongs follows.
const OWNER: &str = "owner-";
/// The length of an identity, in hexadecimal digits.
const DIGITS: usize = 32;
/// The most that is read of the file, in bytes.
const MOST: u64 = 4 << 10;
/// After how many seconds without use by a new boot a former identity is removed: its machine is
/// gone.
const FORMER: i64 = 30 * 24 * 3600;

/// Returns the identity of the owner whose locks lie in the state directory `root`, and draws one
/// if there is none.
pub(super) fn owner(root: &Spot, disk: Disk) -> Result<String> {
    let file = root.join(format!("{OWNER}{}", here(root)?));
    if let Some(known) = known(&file)? {
        return Ok(known);
    }
    let mut drawn = [0; DIGITS / 2];
    machine::random(&mut drawn).context("draw", &file)?;
    let text: String = drawn.iter().map(|byte| format!("{byte:02x}")).collect();
    let staged = root.join(format!("{OWNER}.new-{}", std::process::id()));
    disk.stage_unsynced(&staged, format!("{text}\n").as_bytes())?;
    // A power cut may have left an empty file.
    if file.exists()? {
        staged.rename(&file)?;
    } else if !staged.rename_if_free(&file)? {
        staged.remove()?;
    }
    remove_former(root, &file);
    // Another process may have been faster.
    Ok(known(&file)?.unwrap_or(text))
}

fn known(file: &Spot) -> Result<Option<String>> {
    let bytes = file.read(MOST)?.unwrap_or_default();
    let text = String::from_utf8_lossy(bytes.trim_ascii()).into_owned();
    Ok(Some(text).filter(|text| text.len() == DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit())))
}

/// Digest of the place from which this process sees the locks.
fn here(root: &Spot) -> Result<String> {
    let (device, inode) = root.numbers_of_root()?;
    let numbers = format!("{device}:{inode}");
    let (boot, namespace) = (machine::boot().unwrap_or("none"), machine::pid_namespace());
    Ok(hex(&[boot.as_bytes(), b" ", namespace.as_bytes(), b" ", numbers.as_bytes()], 16))
}

/// Removes the identities of boots and containers that are long gone. One that can't be removed
/// does no harm.
fn remove_former(root: &Spot, current: &Spot) {
    let written = |spot: &Spot| spot.look().ok().flatten().map(|found| found.st_mtime);
    let (Some(now), Ok(entries)) = (written(current), root.entries()) else { return };
    for entry in entries {
        let spot = root.join(&entry.name);
        let is_one = entry.name.as_encoded_bytes().starts_with(OWNER.as_bytes()) && spot != *current;
        if is_one && written(&spot).is_some_and(|then| now - then > FORMER) {
            let _ = spot.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::beneath::at;
    use crate::model::settings::Durability;

    #[test]
    fn an_owner_is_one_for_its_directory_and_another_for_a_copy() {
        let (dir, copied) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let disk = Disk::new(Durability::Process);
        let first = owner(&at(dir.path()), disk).unwrap();
        assert_eq!(owner(&at(dir.path()), disk).unwrap(), first);
        // An image brings the file along.
        for entry in std::fs::read_dir(dir.path()).unwrap() {
            let entry = entry.unwrap();
            std::fs::copy(entry.path(), copied.path().join(entry.file_name())).unwrap();
        }
        let second = owner(&at(copied.path()), disk).unwrap();
        assert_ne!(second, first);
        assert_eq!(owner(&at(copied.path()), disk).unwrap(), second);
    }

    #[test]
    fn an_empty_file_is_no_identity_and_a_former_one_goes() {
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
