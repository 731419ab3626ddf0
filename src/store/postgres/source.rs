//! Messages and hints of producers, with the producer as their source.

use std::path::Path;

use crate::model::message::{Message, WakeHint};

use super::super::dir::record::{decode, encode};

/// Returns the text of a message with its producer as the source. `by`: role of that producer.
///
/// Returns an invalid message, or a message that claims to interject, unchanged: readers reject
/// both.
pub fn message(text: String, by: Option<&str>) -> String {
    let sourced = by.and_then(|by| decode::<Message>(Path::new(""), text.as_bytes()).ok()?.said_by(by).ok());
    sourced.map_or(text, |sourced| String::from_utf8(encode(&sourced)).unwrap_or_default())
}

/// Returns the text of a hint with its producer as the source, like [`message`].
pub fn hint(text: String, by: Option<&str>) -> String {
    let sourced =
        by.and_then(|by| Some(decode::<WakeHint>(Path::new(""), text.as_bytes()).ok()?.said_by(by)));
    sourced.map_or(text, |sourced| String::from_utf8(encode(&sourced)).unwrap_or_default())
}
