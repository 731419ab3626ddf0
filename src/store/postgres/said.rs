//! Messages and hints of producers, with the producer as their source.

use std::path::Path;

use crate::model::message::{Message, WakeHint};

use super::super::dir::record::{decode, encode};

/// Returns the text of a message with its producer as the source. `by`: role of the producer that
/// inserted the message, if it was a producer.
///
/// Returns a text unchanged if it is no message, or if it claims to interject: readers reject both.
pub fn message(text: String, by: Option<&str>) -> String {
    let said = by.and_then(|by| decode::<Message>(Path::new(""), text.as_bytes()).ok()?.said_by(by).ok());
    said.map_or(text, |said| into_text(encode(&said)))
}

/// Returns the text of a hint with its producer as the source, like [`message`].
pub fn hint(text: String, by: Option<&str>) -> String {
    let said = by.and_then(|by| Some(decode::<WakeHint>(Path::new(""), text.as_bytes()).ok()?.said_by(by)));
    said.map_or(text, |said| into_text(encode(&said)))
}

/// Encoded JSON is always UTF-8. Otherwise this returns an empty text, which no reader accepts.
fn into_text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_default()
}
