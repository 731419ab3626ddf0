//! Values that records and settings contain as text.

use std::fmt;

use serde::{Deserializer, de};

/// Reads a value from text without copying the text. `expected` describes the value in the error
/// for another type.
pub fn read<'de, D: Deserializer<'de>, T, E: fmt::Display>(
    expected: &'static str,
    deserializer: D,
    parse: impl FnOnce(&str) -> Result<T, E>,
) -> Result<T, D::Error> {
    let number = |number| Err(format!("invalid type: integer `{number}`, expected {expected}"));
    deserializer.deserialize_str(Reader { expected, number, parse })
}

/// Reads a setting that may be a number or a text, like [`read`].
pub fn setting<'de, D: Deserializer<'de>, T>(
    expected: &'static str,
    deserializer: D,
    number: impl FnOnce(i64) -> Result<T, String>,
    parse: impl FnOnce(&str) -> Result<T, String>,
) -> Result<T, D::Error> {
    deserializer.deserialize_any(Reader { expected, number, parse })
}

struct Reader<N, P> {
    expected: &'static str,
    number: N,
    parse: P,
}

impl<T, E, N, P> de::Visitor<'_> for Reader<N, P>
where
    E: fmt::Display,
    N: FnOnce(i64) -> Result<T, String>,
    P: FnOnce(&str) -> Result<T, E>,
{
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_i64<F: de::Error>(self, number: i64) -> Result<T, F> {
        (self.number)(number).map_err(F::custom)
    }

    fn visit_str<F: de::Error>(self, text: &str) -> Result<T, F> {
        (self.parse)(text).map_err(F::custom)
    }
}
