//! Values and names as parts of SQL statements.

use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::error::{Error, Result};
use crate::model::record::Plane;
use crate::model::time::Time;

use super::super::dir::Subject;
use super::wire::literal;

/// Quotes a name as an SQL identifier.
pub fn name(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Quotes a text as an SQL literal.
///
/// # Errors
///
/// The text contains a NUL character, which PostgreSQL can't store.
pub fn text(text: &str) -> Result<String> {
    if text.contains('\0') {
        return Err(Error::refused("unfit", "a text with a zero character can't be kept in PostgreSQL"));
    }
    Ok(literal(text))
}

/// SQL condition: the column equals one of these texts, of which there is at least one.
pub fn one_of(column: &str, texts: &[impl AsRef<str>]) -> Result<String> {
    Ok(match texts {
        [one] => format!("{column} = {}", text(one.as_ref())?),
        all => format!("{column} = ANY ({})", self::texts(all)?),
    })
}

/// SQL array of texts.
pub fn texts(texts: &[impl AsRef<str>]) -> Result<String> {
    let texts = texts.iter().map(|one| text(one.as_ref())).collect::<Result<Vec<_>>>()?;
    Ok(format!("ARRAY[{}]::text[]", texts.join(",")))
}

pub fn optional(given: Option<&str>) -> Result<String> {
    given.map_or_else(|| Ok("NULL".to_owned()), text)
}

/// SQL literal of type `bytea`.
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

/// Decodes bytes from the output of `encode(…, 'hex')`. `None` if they are no hexadecimal digits.
pub fn bytes_of_hex(hex: &str) -> Option<Vec<u8>> {
    let digits = hex.as_bytes();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits.chunks(2).map(byte).collect()
}

/// Decodes UTF-8 text from the output of `encode(…, 'hex')`.
pub fn text_of_hex(hex: &str) -> Option<String> {
    String::from_utf8(bytes_of_hex(hex)?).ok()
}

/// SHA-256 of a dedupe key as an SQL literal, which the index uses instead of the key.
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

/// Lower bound for ids: greater than each id created before `at`, and at most each one from `at`
/// on.
pub fn least_id_of(at: Time) -> String {
    let millis = u128::from(u64::try_from(at.as_millis()).unwrap_or(0));
    uuid(Uuid::from_u128(millis << 80))
}

/// Value of the column `subject` of a lease.
pub fn subject(subject: Subject) -> String {
    match subject {
        Subject::Run => "run".to_owned(),
        Subject::Task(id) => id.to_string(),
    }
}

/// SQL expression for the current time of the server's clock, in milliseconds since 1970.
pub const SERVER_NOW: &str = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint";
