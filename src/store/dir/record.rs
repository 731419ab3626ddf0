//! Encodes and decodes records. Decoding checks the schema, and keeps unknown fields.

use std::path::Path;
use std::str::Utf8Error;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::{Error, Result};
use crate::local::files::conflict_marker;
use crate::local::layout;
use crate::model::json;
use crate::model::record::{Extra, Record};

#[derive(Serialize)]
struct Stamped<'a, T> {
    schema: String,
    #[serde(flatten)]
    record: &'a T,
}

/// Encodes a record for a file: two spaces of indentation, keys in declaration order, a final
/// newline. Equal records give equal bytes.
pub fn encode<T: Record>(record: &T) -> Vec<u8> {
    with_newline(serde_json::to_vec_pretty(&Stamped { schema: T::schema(), record }))
}

/// Encodes a record as one line of an archive.
pub fn encode_line<T: Record>(record: &T) -> Vec<u8> {
    encode_plain_line(&Stamped { schema: T::schema(), record })
}

/// Encodes a value that has its schema among its own fields as one line.
pub fn encode_plain_line<T: Serialize>(value: &T) -> Vec<u8> {
    with_newline(serde_json::to_vec(value))
}

/// Adds a newline to encoded JSON. Encoding can't fail: records have only values that JSON can
/// express, and all keys of their maps are strings.
pub fn with_newline(encoded: serde_json::Result<Vec<u8>>) -> Vec<u8> {
    let mut bytes = encoded.unwrap_or_default();
    bytes.push(b'\n');
    bytes
}

/// Decodes a record. Errors name the path, and the line and column if they are known. A record of a
/// newer schema is refused with `newer`, whatever its content.
pub fn decode<T: Record>(path: &Path, bytes: &[u8]) -> Result<T> {
    decode_at(path, 0, bytes)
}

/// Returns the text of a record's file.
pub fn text(path: &Path, bytes: Vec<u8>) -> Result<String> {
    String::from_utf8(bytes).map_err(|error| not_text(path, 0, error.utf8_error()))
}

/// Returns the text of a line of a file. `number`: number of the line from 1; 0 if unknown.
pub fn line_text<'l>(path: &Path, number: usize, line: &'l [u8]) -> Result<&'l str> {
    std::str::from_utf8(line).map_err(|error| not_text(path, number, error))
}

fn not_text(path: &Path, line: usize, error: Utf8Error) -> Error {
    let (path, hint) = (path.to_owned(), Some(hint(path).to_owned()));
    Error::Damaged { path, line, column: error.valid_up_to() + 1, message: error.to_string(), hint }
}

/// Adds a path and a line number to an error about the line's text. `number`: from 1; 0 if unknown.
pub fn at_line(mut error: Error, place: &Path, number: usize) -> Error {
    if let Error::Damaged { path, .. } | Error::Newer { path, .. } = &mut error {
        place.clone_into(path);
    }
    if let Error::Damaged { line, .. } = &mut error
        && *line > 0
        && number > 0
    {
        *line = number;
    }
    error
}

/// Decodes a record from line `line` of a file, counted from 1; 0 for a file with a single record.
pub fn decode_at<T: Record>(path: &Path, line: usize, bytes: &[u8]) -> Result<T> {
    let mut record: T = match json::read(bytes) {
        Ok(record) => record,
        Err(error) => {
            return Err(schema_error::<T>(path, bytes).unwrap_or_else(|| damaged(path, line, bytes, &error)));
        }
    };
    match record.extra_mut().0.shift_remove("schema") {
        Some(Value::String(schema)) if schema == T::schema() => {}
        Some(Value::String(schema)) => return Err(wrong_schema::<T>(path, &schema)),
        _ => return Err(Error::damaged(path, format!("no `schema`: expected \"{}\"", T::schema()))),
    }
    // Most records have no unknown fields, so the memory of the empty map is freed.
    if record.extra_mut().0.is_empty() {
        *record.extra_mut() = Extra::new();
    }
    record.check().map_err(|reason| Error::damaged(path, reason))?;
    Ok(record)
}

/// Decodes a JSON value that has no schema to be checked.
pub fn decode_plain<T: DeserializeOwned>(path: &Path, line: usize, bytes: &[u8]) -> Result<T> {
    json::read(bytes).map_err(|error| damaged(path, line, bytes, &error))
}

/// Returns an error if the bytes are JSON with another schema than this type's.
fn schema_error<T: Record>(path: &Path, bytes: &[u8]) -> Option<Error> {
    #[derive(Deserialize)]
    struct Schema {
        schema: String,
    }
    let Schema { schema } = json::read(bytes).ok()?;
    (schema != T::schema()).then(|| wrong_schema::<T>(path, &schema))
}

fn wrong_schema<T: Record>(path: &Path, found: &str) -> Error {
    let version =
        found.strip_prefix(&format!("dormouse/{}/", T::KIND)).and_then(|version| version.parse::<u32>().ok());
    match version {
        Some(version) if version > T::VERSION => {
            Error::Newer { path: path.to_owned(), found: found.to_owned(), known: T::schema() }
        }
        _ => Error::damaged(path, format!("schema is \"{found}\": expected \"{}\"", T::schema())),
    }
}

fn damaged(path: &Path, line: usize, bytes: &[u8], error: &serde_json::Error) -> Error {
    if let Some(marker) = conflict_marker(bytes) {
        return Error::Damaged {
            path: path.to_owned(),
            line: marker,
            column: 1,
            message: "a merge conflict: git left its markers here".to_owned(),
            hint: Some(
                "one clone ticks an agent at a time; take one side whole (git checkout --ours or --theirs)"
                    .to_owned(),
            ),
        };
    }
    let text = error.to_string();
    let message = text.rsplit_once(" at line ").map_or(text.as_str(), |(message, _)| message).to_owned();
    Error::Damaged {
        path: path.to_owned(),
        line: if line > 0 { line } else { error.line() },
        column: error.column(),
        message,
        hint: Some(hint(path).to_owned()),
    }
}

/// Essential files of an agent, which no repair replaces.
pub const ESSENTIAL: &[&str] = &[layout::STATE, layout::IDENTITY, layout::POLICY];

/// Hint for an unreadable essential file.
pub const RESTORE: &str = "restore it from git, a backup or an export: without it there is no agent, so `dormouse doctor --repair` leaves it where it is";

/// Returns the hint for an unreadable record. Essential records are neither replaced nor
/// quarantined.
fn hint(path: &Path) -> &'static str {
    let is_essential =
        path.file_name().is_some_and(|name| ESSENTIAL.iter().any(|essential| name == *essential));
    if is_essential {
        RESTORE
    } else {
        "`dormouse doctor` shows the error, `dormouse doctor --repair` moves it to quarantine/"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::work::WorkItem;

    const FIELDS: &str = r#""id": "work_01900000000070008000000000000001", "agent": "ada", "objective": "o",
        "state": "open", "plan_status": "ready", "revision": 1,
        "created_at": "2026-01-02T03:04:05.000Z", "updated_at": "2026-01-02T03:04:05.000+01:00""#;

    #[test]
    fn the_position_of_the_schema_field_does_not_matter() {
        let schema = r#""schema": "dormouse/work/1""#;
        let read = |text: &str| decode::<WorkItem>(Path::new("w"), text.as_bytes());
        let expected = read(&format!("{{{FIELDS}, {schema}}}")).expect("a work item");
        for (head, tail) in [("", ""), (" ", "\n"), ("\n  ", ""), ("\n\n", " ")] {
            assert_eq!(read(&format!("{{{head}{schema},{FIELDS}{tail}}}")).expect("a work item"), expected);
        }
        let more = read(&format!("{{{schema},{FIELDS},\"more\":[1]}}")).expect("a work item");
        assert_eq!(more.extra.0.get("more"), Some(&serde_json::json!([1])));
        assert!(!more.extra.0.contains_key("schema"));
        for (text, said) in [
            (format!(r#"{{"schema":"dormouse/work/2",{FIELDS}}}"#), "dormouse/work/2"),
            (format!(r#"{{"schema":"dormouse/wait/1",{FIELDS}}}"#), "dormouse/wait/1"),
            (format!(r#"{{{schema},{FIELDS},"schema":"dormouse/work/2"}}"#), "dormouse/work/2"),
            (format!(r#"{{{schema},{FIELDS},"revision":2}}"#), "duplicate"),
            (format!(r#"{{{schema},{FIELDS}}} 1"#), "trailing"),
            (format!(r#"{{{schema}, }}"#), "trailing comma"),
            (format!(r#"{{{FIELDS}}}"#), "no `schema`"),
            (schema.to_owned(), "invalid type"),
            (String::new(), "EOF"),
        ] {
            let error = read(&text).expect_err(&text).to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
