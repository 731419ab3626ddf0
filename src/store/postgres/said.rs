//! What a producer has put into an inbox, in the name of the producer.

use std::path::Path;

use crate::model::message::{Message, WakeHint};

use super::super::dir::record::{decode, encode};

/// The text of a message. `by`: the role of the producer who put it there, if one did.
///
/// A text that is none of a message stays as it is, and so does one that says it interjects:
/// nothing takes that for the message that its row says it is.
pub fn message(text: String, by: Option<&str>) -> String {
    let said = by.and_then(|by| decode::<Message>(Path::new(""), text.as_bytes()).ok()?.said_by(by).ok());
    said.map_or(text, |said| into_text(encode(&said)))
}

/// The same for a hint.
pub fn hint(text: String, by: Option<&str>) -> String {
    let said = by.and_then(|by| Some(decode::<WakeHint>(Path::new(""), text.as_bytes()).ok()?.said_by(by)));
    said.map_or(text, |said| into_text(encode(&said)))
}

/// Encoded JSON is always UTF-8. The other case can't happen, and gives what nothing takes for a
/// record.
fn into_text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_default()
}
