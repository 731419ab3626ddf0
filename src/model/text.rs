//! Values that records store as text.

use std::fmt;

use serde::{Deserializer, de};

/// Reads a value from its text without copying it.
pub fn read<'de, D: Deserializer<'de>, T, E: fmt::Display>(
    deserializer: D,
    parse: impl FnOnce(&str) -> Result<T, E>,
) -> Result<T, D::Error> {
    deserializer.deserialize_str(Reader(parse))
}

/// Returns ASCII bytes as text.
pub fn ascii(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or_default()
}

struct Reader<P>(P);

impl<T, E: fmt::Display, P: FnOnce(&str) -> Result<T, E>> de::Visitor<'_> for Reader<P> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<F: de::Error>(self, text: &str) -> Result<T, F> {
        self.0(text).map_err(F::custom)
    }
}
