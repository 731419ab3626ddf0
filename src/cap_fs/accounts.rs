//! Names and numbers of users and groups on this machine.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::sync::OnceLock;

/// File with the users of the machine.
const ACCOUNTS: &str = "/etc/passwd";

/// File with the groups of the machine.
const GROUPS: &str = "/etc/group";

/// Maximum number of bytes that are read of `/etc/passwd` or `/etc/group`.
const MAX_ACCOUNTS: u64 = 4 << 20;

/// Returns a user's name; for a user without a name, the number.
pub fn name(uid: u32) -> String {
    static NAMES: OnceLock<HashMap<u32, String>> = OnceLock::new();
    let names = NAMES.get_or_init(|| {
        let mut names = HashMap::new();
        // If several entries have the same user number, the first one counts, as in the C library.
        for (name, number) in entries(&text(ACCOUNTS)) {
            names.entry(number).or_insert_with(|| name.to_owned());
        }
        names
    });
    names.get(&uid).cloned().unwrap_or_else(|| uid.to_string())
}

/// Returns the prefix of a command line that runs a command as this user.
pub fn sudo(uid: u32) -> String {
    let name = name(uid);
    // sudo takes a bare number for a name, and a number after `#` for a user's number.
    if name.parse::<u32>().is_ok() { format!("sudo -u '#{name}'") } else { format!("sudo -u {name}") }
}

/// Returns the number of the group of this name. If no group has the name and the name is a decimal
/// number, returns that number.
pub fn group(name: &str) -> Option<u32> {
    let groups = text(GROUPS);
    let found = entries(&groups).find(|(known, _)| *known == name).map(|(_, number)| number);
    found.or_else(|| name.parse().ok().filter(|number| *number < u32::MAX))
}

/// Returns the text of a file; empty if the file can't be read, and then no user or group is found.
fn text(path: &str) -> String {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MAX_ACCOUNTS).read_to_end(&mut bytes));
    read.map(|_| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

/// Parses the names and numbers of users or groups.
fn entries(text: &str) -> impl Iterator<Item = (&str, u32)> {
    text.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next().filter(|name| !name.is_empty())?;
        Some((name, fields.nth(1)?.parse().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_account_lines_are_skipped() {
        let text = "root:x:0:0:root:/root:/bin/sh\n\nci:x:1001:1001::/:\nbuild:x:1001:7::/:\n:x:5:5\n+\nnobody:x:no\n";
        assert_eq!(entries(text).collect::<Vec<_>>(), [("root", 0), ("ci", 1001), ("build", 1001)]);
    }

    #[test]
    fn a_user_and_a_group_are_known_by_name_and_by_number() {
        assert_eq!((name(0).as_str(), name(4_000_000_001).as_str()), ("root", "4000000001"));
        assert_eq!(
            (group("root"), group("1234567"), group("no such group")),
            (Some(0), Some(1_234_567), None)
        );
    }
}
