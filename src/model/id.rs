//! Identifiers: a prefix for the kind of record, and a UUIDv7 in 32 hex digits, so that ids sort by
//! time.

use std::fmt;
use std::str::FromStr;

use serde_with::{DeserializeFromStr, SerializeDisplay};
use uuid::Uuid;

use super::time::Time;

/// Error when a text does not have the shape of an identifier or name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(pub String);

fn parse_uuid(prefix: &str, text: &str) -> Result<Uuid, Malformed> {
    let malformed = || Malformed(format!("`{text}` is not an id like `{prefix}` and 32 hex digits"));
    let hex = text.strip_prefix(prefix).ok_or_else(malformed)?;
    if hex.len() != 32 || !hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
        return Err(malformed());
    }
    Uuid::try_parse(hex).map_err(|_| malformed())
}

macro_rules! ids {
    ($($(#[$meta:meta])* $type:ident = $prefix:literal),+ $(,)?) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, SerializeDisplay, DeserializeFromStr)]
        pub struct $type(pub Uuid);

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}{}", $prefix, self.0.simple())
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $type {
            type Err = Malformed;
            fn from_str(text: &str) -> Result<Self, Malformed> {
                parse_uuid($prefix, text).map($type)
            }
        }

        #[cfg(test)]
        $crate::model::schema! { $type: { "type": "string", "pattern": concat!("^", $prefix, "[0-9a-f]{32}$") } }
    )+};
}

ids! {
    MessageId = "msg_",
    RunId = "run_",
    WorkId = "work_",
    WaitId = "wait_",
    TimerId = "timer_",
    TaskId = "task_",
    TriggerId = "trig_",
    EventId = "evt_",
}

impl MessageId {
    /// Returns the time at which the id was made, with a precision of milliseconds.
    pub fn minted_at(&self) -> Option<Time> {
        minted_at(self.0)
    }
}

/// Returns the time at which a UUIDv7 was made, with a precision of milliseconds.
pub fn minted_at(id: Uuid) -> Option<Time> {
    let (seconds, nanos) = id.get_timestamp()?.to_unix();
    let millis = i64::try_from(seconds).ok()?.saturating_mul(1000);
    Some(Time::from_millis(millis.saturating_add(i64::from(nanos / 1_000_000))))
}

/// Prefixes of ids that people see in the short form. Trigger ids stay whole for use in URLs.
const SHORT_IDS: [&str; 7] = ["msg_", "run_", "work_", "wait_", "timer_", "task_", "evt_"];

/// Shortens the ids in a text to the last eight of their 32 digits, which commands take as well.
/// An id that is the whole text, or part of a path, stays as it is.
pub fn short_ids(text: &str) -> String {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let is_part = |c: char| c.is_ascii_alphanumeric() || "./-_".contains(c);
    let (mut short, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find('_') {
        let (before, after) = rest.split_at(at + 1);
        short.push_str(before);
        let start = SHORT_IDS.iter().find_map(|prefix| short.strip_suffix(prefix));
        let end = after.get(..32).filter(|digits| digits.bytes().all(is_digit)).map(|_| &after[32..]);
        let stands_alone = |(start, end): (&str, &str)| {
            let is_whole = start.is_empty() && end.trim_end().is_empty();
            let goes_on = end.starts_with(is_part) && !end.starts_with(". ") && end != ".";
            !is_whole && !start.ends_with(is_part) && !goes_on
        };
        rest = if start.zip(end).is_some_and(stands_alone) { &after[24..] } else { after };
    }
    short.push_str(rest);
    short
}

/// Maximum length of an agent's name, in bytes.
pub const AGENT_NAME_MAX: usize = 64;

/// Name of an agent, which is also the name of its directory. No other text from outside becomes
/// part of a path, so the allowed characters are restricted.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, SerializeDisplay, DeserializeFromStr)]
pub struct AgentName(String);

impl AgentName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for AgentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for AgentName {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Self, Malformed> {
        let first = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        let rest = |b: u8| first(b) || matches!(b, b'.' | b'_' | b'-');
        let valid = text.len() <= AGENT_NAME_MAX
            && text.bytes().next().is_some_and(first)
            && text.bytes().all(rest)
            && !text.contains("..");
        if valid {
            Ok(AgentName(text.to_owned()))
        } else {
            Err(Malformed(format!(
                "`{}` is not an agent name: 1 to {AGENT_NAME_MAX} of a-z 0-9 . _ -, first a letter or digit, no `..`",
                text.escape_debug()
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_shortened_where_people_read_them() {
        let id = format!("msg_{}{}", "0198c9f0".repeat(3), "89abcdef");
        for (text, short) in [
            ("{} is queued", "msg_89abcdef is queued"),
            ("a {}, b ({})", "a msg_89abcdef, b (msg_89abcdef)"),
            ("see {}.", "see msg_89abcdef."),
            ("see {}. Then", "see msg_89abcdef. Then"),
            ("{}", "{}"),
            ("{}\n", "{}\n"),
            ("inbox/2-{}.json", "inbox/2-{}.json"),
            ("runs/{}/stdout", "runs/{}/stdout"),
            ("{}0 x_y msg_1 é_", "{}0 x_y msg_1 é_"),
        ] {
            assert_eq!(short_ids(&text.replace("{}", &id)), short.replace("{}", &id), "{text}");
        }
        let trigger = id.replace("msg", "trig");
        assert_eq!(short_ids(&format!("x {trigger}")), format!("x {trigger}"));
    }
}
