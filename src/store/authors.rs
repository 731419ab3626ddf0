//! Whose word a file is: the owner's of the state directory, or another user's.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::sync::OnceLock;

use rustix::process::geteuid;

use crate::beneath::Spot;
use crate::error::Result;

/// Where the names of users stand.
const ACCOUNTS: &str = "/etc/passwd";

/// The most that is read of it, in bytes.
const MAX_ACCOUNTS: u64 = 4 << 20;

/// The user whose word a file is that belongs to `uid`, if that is not the owner's. Whoever owns the state
/// directory, runs the command or is root could say everything in the owner's name anyway.
pub fn other(spot: &Spot, uid: u32) -> Result<Option<String>> {
    Ok(if is_owners(spot, uid)? { None } else { Some(name(uid)) })
}

/// Whether what belongs to `uid` is the owner's word.
pub fn is_owners(spot: &Spot, uid: u32) -> Result<bool> {
    // The state directory itself is looked at last: mostly a file is of whoever reads it.
    Ok(uid == geteuid().as_raw() || uid == 0 || uid == spot.owner_of_root()?)
}

/// A user's name, or the number of one without a name.
fn name(uid: u32) -> String {
    static NAMES: OnceLock<HashMap<u32, String>> = OnceLock::new();
    let names = NAMES.get_or_init(|| {
        let mut bytes = Vec::new();
        // Without the file each user has a number.
        let read = File::open(ACCOUNTS).and_then(|file| file.take(MAX_ACCOUNTS).read_to_end(&mut bytes));
        if read.is_ok() { names(&String::from_utf8_lossy(&bytes)) } else { HashMap::new() }
    });
    names.get(&uid).cloned().unwrap_or_else(|| uid.to_string())
}

/// The users of a file of accounts; of two with one number the first counts, as it does elsewhere.
fn names(accounts: &str) -> HashMap<u32, String> {
    let mut names = HashMap::new();
    for line in accounts.lines() {
        let mut fields = line.split(':');
        if let (Some(name), Some(uid)) = (fields.next(), fields.nth(1))
            && let Ok(uid) = uid.parse()
            && !name.is_empty()
        {
            names.entry(uid).or_insert_with(|| name.to_owned());
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_the_first_name_that_stands_there() {
        let names = names(
            "root:x:0:0:root:/root:/bin/sh\n\nci:x:1001:1001::/:\nbuild:x:1001:7::/:\n:x:5:5\n+\nnobody:x:no\n",
        );
        let name = |uid: u32| names.get(&uid).map(String::as_str);
        assert_eq!((name(0), name(1001), name(5), names.len()), (Some("root"), Some("ci"), None, 2));
    }
}
