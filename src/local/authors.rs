//! Authorship of files: the owner of the state directory, or another user.

use rustix::process::geteuid;

use crate::cap_fs::CapPath;
use crate::cap_fs::accounts::name;

/// True if users other than the owner may write to a file or directory with this mode. Many systems
/// give each user a group with the user's own number and no other members; that group does not
/// count.
pub fn is_writable_by_others(mode: u32, user: u32, group: u32) -> bool {
    mode & 0o002 != 0 || mode & 0o020 != 0 && user != group
}

/// Returns the author of a file of `uid`; `None` if that is the owner of the state directory.
pub fn other(cap: &CapPath, uid: u32) -> Option<String> {
    (!is_owners(cap, uid)).then(|| name(uid))
}

/// True if the owner counts as the author of a file of `uid`: it belongs to the owner of the state
/// directory, or to root, who could give it to the owner.
pub fn is_owners(cap: &CapPath, uid: u32) -> bool {
    uid == 0 || uid == cap.owner_of_root()
}

/// Returns the user who runs this command. `None` if that is root or the owner of the state
/// directory that contains `cap`.
pub fn guest(cap: &CapPath) -> Option<String> {
    let user = geteuid().as_raw();
    (user != 0 && user != cap.owner_of_root()).then(|| name(user))
}
