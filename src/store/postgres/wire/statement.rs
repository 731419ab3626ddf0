//! Statements with parameters, and the answers of a server.

use std::borrow::Cow;
use std::error::Error;
use std::ops::Range;

use bytes::{BufMut, Bytes, BytesMut};
use postgres_protocol::message::frontend::{self, BindError};
use postgres_protocol::types::{ArrayDimension, array_to_sql};
use postgres_protocol::{IsNull, Oid};

/// Length of the message that ends a round trip, in bytes.
pub(super) const SYNC: usize = 5;

const TEXT: Oid = 25;
const TEXTS: Oid = 1009;

/// SQL expression for the server's current time, in milliseconds since 1970.
const SERVER_NOW: &str = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint";

/// Completes a text of SQL: replaces `@now` by the server's current time in milliseconds since
/// 1970, and any other `@` by the schema, a quoted identifier.
pub(super) fn complete(sql: &str, schema: &str) -> String {
    sql.replace("@now", SERVER_NOW).replace('@', schema)
}

/// SQL statement in which `$1` is the first parameter, `@` is the schema of the connection's URL,
/// and `@now` is the server's current time in milliseconds since 1970.
#[derive(Debug, Clone)]
pub struct Statement {
    sql: Cow<'static, str>,
    values: Vec<Value>,
}

impl Statement {
    pub fn new(sql: impl Into<Cow<'static, str>>) -> Statement {
        Statement { sql: sql.into(), values: Vec::new() }
    }

    /// Adds a parameter after the others.
    pub fn with(mut self, value: impl Into<Value>) -> Statement {
        self.values.push(value.into());
        self
    }

    /// Appends the messages that execute the statement. Error if a text contains NUL.
    pub(super) fn write(&self, schema: &str, buffer: &mut BytesMut) -> Result<(), String> {
        let (types, formats): (Vec<Oid>, Vec<i16>) = self.values.iter().map(Value::encoding).unzip();
        let bound = |error| match error {
            BindError::Conversion(error) => error.to_string(),
            BindError::Serialization(error) => error.to_string(),
        };
        frontend::parse("", &complete(&self.sql, schema), types, buffer)
            .map_err(|error| error.to_string())?;
        frontend::bind("", "", formats, &self.values, Value::write, [], buffer).map_err(bound)?;
        frontend::describe(b'P', "", buffer).map_err(|error| error.to_string())?;
        frontend::execute("", 0, buffer).map_err(|error| error.to_string())
    }
}

/// Parameter. The server converts a text to the type that the statement needs.
#[derive(Debug, Clone)]
pub enum Value {
    Null,
    Text(String),
    /// Array of texts.
    Texts(Vec<String>),
    /// Array of rows, all with an equal number of texts.
    Table(Vec<Vec<Option<String>>>),
}

/// Reason for which a parameter can't be encoded.
type EncodeError = Box<dyn Error + Send + Sync>;

impl Value {
    /// Returns the type, 0 if the statement determines it, and the format: 0 text, 1 binary.
    fn encoding(&self) -> (Oid, i16) {
        match self {
            Value::Null | Value::Text(_) => (0, 0),
            Value::Texts(_) | Value::Table(_) => (TEXTS, 1),
        }
    }

    fn write(&self, buffer: &mut BytesMut) -> Result<IsNull, EncodeError> {
        match self {
            Value::Null => return Ok(IsNull::Yes),
            Value::Text(text) => return write_text(text, buffer),
            Value::Texts(texts) => {
                array_to_sql(
                    dimensions([texts.len()])?,
                    TEXT,
                    texts,
                    |text, buffer| write_text(text, buffer),
                    buffer,
                )?;
            }
            Value::Table(rows) => {
                let sizes = [rows.len(), rows.first().map_or(0, Vec::len)];
                let write = |text: &Option<String>, buffer: &mut BytesMut| match text {
                    Some(text) => write_text(text, buffer),
                    None => Ok(IsNull::Yes),
                };
                array_to_sql(dimensions(sizes)?, TEXT, rows.iter().flatten(), write, buffer)?;
            }
        }
        Ok(IsNull::No)
    }
}

/// Returns the dimensions of an array. An array without elements has no dimensions.
fn dimensions<const N: usize>(sizes: [usize; N]) -> Result<Vec<ArrayDimension>, EncodeError> {
    let sizes = if sizes.contains(&0) { &[][..] } else { &sizes[..] };
    sizes.iter().map(|size| Ok(ArrayDimension { len: i32::try_from(*size)?, lower_bound: 1 })).collect()
}

fn write_text(text: &str, buffer: &mut BytesMut) -> Result<IsNull, EncodeError> {
    if text.contains('\0') {
        return Err("a text with a zero character can't be kept in PostgreSQL".into());
    }
    buffer.put_slice(text.as_bytes());
    Ok(IsNull::No)
}

macro_rules! shown_as_text {
    ($($type:ty),*) => {$(
        impl From<$type> for Value {
            fn from(value: $type) -> Value {
                Value::Text(value.to_string())
            }
        }
    )*};
}

shown_as_text!(&str, &String, bool, i64, u32, u64, u128, usize, uuid::Uuid);

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::Text(text)
    }
}

impl From<Vec<String>> for Value {
    fn from(texts: Vec<String>) -> Value {
        Value::Texts(texts)
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Value {
        value.map_or(Value::Null, Into::into)
    }
}

/// Row of an answer, with the texts of its columns.
#[derive(Debug)]
pub struct Row {
    pub(super) bytes: Bytes,
    pub(super) columns: Vec<Option<Range<usize>>>,
}

impl Row {
    /// Returns the text of a column, counted from 0. `None` for NULL or a nonexistent column.
    pub fn get(&self, at: usize) -> Option<&str> {
        let range = self.columns.get(at)?.clone()?;
        // The parser of rows has already checked the encoding, so no error is possible.
        std::str::from_utf8(self.bytes.get(range)?).ok()
    }

    /// Returns an owned copy of the text of a column; `None` as for [`Row::get`].
    pub fn text(&self, at: usize) -> Option<String> {
        self.get(at).map(str::to_owned)
    }

    /// Parses the text of a column; `None` also for an invalid text.
    pub fn number<T: std::str::FromStr>(&self, at: usize) -> Option<T> {
        self.get(at)?.parse().ok()
    }

    /// True if a boolean column is true; false also for NULL.
    pub fn is(&self, at: usize) -> bool {
        self.get(at) == Some("t")
    }
}
