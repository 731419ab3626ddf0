//! Time limits that can be switched off.

use serde::{Deserialize, Deserializer, de};

use super::time::Span;

/// Span, or no limit: `0` and `"never"` switch the limit off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit(pub Option<Span>);

impl<'de> Deserialize<'de> for Limit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Limit;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a duration such as \"30m\", or 0 or \"never\"")
            }
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Limit, E> {
                if number == 0 {
                    Ok(Limit(None))
                } else if number < 0 {
                    Err(E::custom(format!("`{number}`: a duration can't be negative")))
                } else {
                    Err(E::custom(format!("`{number}` has no unit: write \"{number}s\"")))
                }
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Limit, E> {
                if text == "never" {
                    return Ok(Limit(None));
                }
                let span: Span = text.parse().map_err(E::custom)?;
                Ok(Limit((span != Span::ZERO).then_some(span)))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}
