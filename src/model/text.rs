//! Values that records store as text.

use std::fmt;

use serde::{Deserializer, de};

/// Reads a value from its text without copying it.
pub fn read<'de, D: Deserializer<'de>, T, E: fmt::Display>(
    deserializer: D,
    parse: impl FnOnce(&str) -> Result<T, E>,
) -> Result<T, D::Error> {
    read_as("a string", deserializer, parse)
}

/// Reads a value like [`read`]. `expected` describes it in the error for a value of another type.
pub fn read_as<'de, D: Deserializer<'de>, T, E: fmt::Display>(
    expected: &'static str,
    deserializer: D,
    parse: impl FnOnce(&str) -> Result<T, E>,
) -> Result<T, D::Error> {
    deserializer.deserialize_str(Reader { expected, parse })
}

/// Reads a setting that is a number or a text. `expected` describes it in the error for a value of
/// another type.
pub fn setting<'de, D: Deserializer<'de>, T>(
    expected: &'static str,
    deserializer: D,
    number: impl FnOnce(i64) -> Result<T, String>,
    parse: impl FnOnce(&str) -> Result<T, String>,
) -> Result<T, D::Error> {
    deserializer.deserialize_any(SettingReader { expected, number, parse })
}

/// Returns ASCII bytes as text.
pub fn ascii(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or_default()
}

struct Reader<P> {
    expected: &'static str,
    parse: P,
}

impl<T, E: fmt::Display, P: FnOnce(&str) -> Result<T, E>> de::Visitor<'_> for Reader<P> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_str<F: de::Error>(self, text: &str) -> Result<T, F> {
        (self.parse)(text).map_err(F::custom)
    }
}

struct SettingReader<N, P> {
    expected: &'static str,
    number: N,
    parse: P,
}

impl<T, N, P> de::Visitor<'_> for SettingReader<N, P>
where
    N: FnOnce(i64) -> Result<T, String>,
    P: FnOnce(&str) -> Result<T, String>,
{
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<T, E> {
        (self.number)(number).map_err(E::custom)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        (self.parse)(text).map_err(E::custom)
    }
}
