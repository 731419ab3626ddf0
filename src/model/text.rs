//! Reader of settings that may be a number or a text.

use std::fmt;

use serde::{Deserializer, de};

/// Reads a setting that may be a number or a text. `expected` describes the setting in the error
/// for another type.
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

impl<T, N, P> de::Visitor<'_> for Reader<N, P>
where
    N: FnOnce(i64) -> Result<T, String>,
    P: FnOnce(&str) -> Result<T, String>,
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
