//! In whose name a file speaks: the owner's of the state directory, or another user's.

use rustix::process::geteuid;

use crate::beneath::Spot;
use crate::beneath::accounts::name;

/// True if users other than the owner may write to a file or directory with these rights. Many
/// systems give each user a group with the user's own number and no other members; that group does
/// not count.
pub fn is_writable_by_others(mode: u32, user: u32, group: u32) -> bool {
    mode & 0o002 != 0 || mode & 0o020 != 0 && user != group
}

/// The user in whose name a file of `uid` speaks; `None`: it speaks in the owner's name.
pub fn other(spot: &Spot, uid: u32) -> Option<String> {
    (!is_owners(spot, uid)).then(|| name(uid))
}

/// True if a file of `uid` speaks in the owner's name: it belongs to the owner of the state
/// directory, or to root, who could give it to the owner.
pub fn is_owners(spot: &Spot, uid: u32) -> bool {
    uid == 0 || uid == spot.owner_of_root()
}

/// The user who runs this command, if that is neither the owner of the state directory in which
/// `spot` is nor root.
pub fn guest(spot: &Spot) -> Option<String> {
    let user = geteuid().as_raw();
    (user != 0 && user != spot.owner_of_root()).then(|| name(user))
}
