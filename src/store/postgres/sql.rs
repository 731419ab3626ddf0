//! Values as texts of SQL parameters, and the other way around.

use std::fmt::Write;

use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::model::record::Plane;
use crate::model::time::Time;

use super::super::dir::Subject;
use super::wire::Value;

/// SQL condition: the column equals one of these texts, of which there is at least one, and the
/// value of its parameter, which has this number.
///
/// Unlike a comparison with an array, the one with a single text keeps the order of an index.
pub fn one_of(column: &str, parameter: usize, texts: &[impl AsRef<str>]) -> (String, Value) {
    match texts {
        [one] => (format!("{column} = ${parameter}"), one.as_ref().into()),
        all => {
            let all = all.iter().map(|text| text.as_ref().to_owned()).collect();
            (format!("{column} = ANY (${parameter}::text[])"), Value::Texts(all))
        }
    }
}

/// Encodes bytes for `decode(…, 'hex')`.
pub fn hex(bytes: &[u8]) -> String {
    let mut digits = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        // Writing to a `String` can't fail.
        let _ = write!(digits, "{byte:02x}");
    }
    digits
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

/// SHA-256 of a dedupe key in hexadecimal digits, which the index uses instead of the key.
pub fn digest(key: &str) -> String {
    hex(&Sha256::digest(key.as_bytes()))
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
pub fn least_id_of(at: Time) -> Uuid {
    let millis = u128::from(u64::try_from(at.as_millis()).unwrap_or(0));
    Uuid::from_u128(millis << 80)
}

/// Value of the column `subject` of a lease.
pub fn subject(subject: Subject) -> String {
    match subject {
        Subject::Run => "run".to_owned(),
        Subject::Task(id) => id.to_string(),
    }
}
