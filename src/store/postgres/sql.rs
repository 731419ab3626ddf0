//! Values and names as parts of statements.

use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::error::{Error, Result};
use crate::model::record::Plane;
use crate::model::time::Time;

use super::super::dir::Subject;
use super::wire::literal;

/// A name in quotes.
pub fn name(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A text in quotes.
///
/// # Errors
///
/// A text of PostgreSQL can't have a zero character.
pub fn text(text: &str) -> Result<String> {
    if text.contains('\0') {
        return Err(Error::refused("unfit", "a text with a zero character can't be kept in PostgreSQL"));
    }
    Ok(literal(text))
}

/// The condition that a column has one of these texts. At least one is given.
pub fn one_of(column: &str, texts: &[impl AsRef<str>]) -> Result<String> {
    Ok(match texts {
        [one] => format!("{column} = {}", text(one.as_ref())?),
        all => format!("{column} = ANY ({})", self::texts(all)?),
    })
}

/// An array of texts.
pub fn texts(texts: &[impl AsRef<str>]) -> Result<String> {
    let texts = texts.iter().map(|one| text(one.as_ref())).collect::<Result<Vec<_>>>()?;
    Ok(format!("ARRAY[{}]::text[]", texts.join(",")))
}

pub fn optional(given: Option<&str>) -> Result<String> {
    given.map_or_else(|| Ok("NULL".to_owned()), text)
}

/// Bytes as PostgreSQL takes them.
pub fn bytes(bytes: &[u8]) -> String {
    use std::fmt::Write;
    let mut written = String::with_capacity(bytes.len() * 2 + 12);
    written.push_str("'\\x");
    for byte in bytes {
        let _ = write!(written, "{byte:02x}");
    }
    written.push_str("'::bytea");
    written
}

/// Bytes as `encode(…, 'hex')` gives them.
pub fn bytes_of_hex(hex: &str) -> Option<Vec<u8>> {
    let digits = hex.as_bytes();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits.chunks(2).map(byte).collect()
}

/// The text of such bytes.
pub fn text_of_hex(hex: &str) -> Option<String> {
    String::from_utf8(bytes_of_hex(hex)?).ok()
}

/// What stands for a dedupe key in an index.
pub fn digest(key: &str) -> String {
    bytes(&Sha256::digest(key.as_bytes()))
}

pub fn uuid(id: Uuid) -> String {
    format!("'{}'", id.hyphenated())
}

pub fn plane(plane: Plane) -> &'static str {
    match plane {
        Plane::Work => "work",
        Plane::Waits => "wait",
        Plane::Timers => "timer",
        Plane::Tasks => "task",
        Plane::Triggers => "trigger",
        Plane::Outbox => "outgoing",
    }
}

pub fn plane_of(word: &str) -> Option<Plane> {
    Plane::ALL.into_iter().find(|one| plane(*one) == word)
}

/// An id that is less than all that are made from a moment on, and not less than those of before.
pub fn least_id_of(at: Time) -> String {
    let millis = u128::from(u64::try_from(at.as_millis()).unwrap_or(0));
    uuid(Uuid::from_u128(millis << 80))
}

/// The word for what a lease is of.
pub fn subject(subject: Subject) -> String {
    match subject {
        Subject::Run => "run".to_owned(),
        Subject::Task(id) => id.to_string(),
    }
}

/// The moment by the server's clock, in milliseconds.
pub const SERVER_NOW: &str = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint";
