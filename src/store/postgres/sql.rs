//! Conversion of values to texts of SQL parameters, and back.

use std::fmt::Write;

use crate::model::record::Plane;

use super::super::dir::Subject;
use super::wire::Value;

/// Returns an SQL condition that the column equals one of `texts`, which must not be empty, and the
/// value of its parameter. `parameter`: number of that parameter.
///
/// A comparison with a single text keeps the order of an index, unlike a comparison with an array.
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

/// Decodes bytes from the output of `encode(…, 'hex')`. `None` for invalid digits.
pub fn bytes_of_hex(hex: &str) -> Option<Vec<u8>> {
    let digits = hex.as_bytes();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits.chunks(2).map(byte).collect()
}

/// Decodes UTF-8 text from the output of `encode(…, 'hex')`. `None` for invalid text.
pub fn text_of_hex(hex: &str) -> Option<String> {
    String::from_utf8(bytes_of_hex(hex)?).ok()
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

/// Value of the column `subject` in a row of `lease`.
pub fn subject(subject: Subject) -> String {
    match subject {
        Subject::Run => "run".to_owned(),
        Subject::Task(id) => id.to_string(),
    }
}
