//! Time limits that can be switched off.

use serde::{Deserialize, Deserializer};

use super::id::Malformed;
use super::text;
use super::time::Span;

/// Span, or no limit: `0` and `"never"` switch the limit off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit(pub Option<Span>);

impl<'de> Deserialize<'de> for Limit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = |number: i64| match number {
            0 => Ok(Limit(None)),
            ..0 => Err(format!("`{number}`: a duration can't be negative")),
            1.. => Err(format!("`{number}` has no unit: write \"{number}s\"")),
        };
        text::setting("a duration such as \"30m\", or 0 or \"never\"", deserializer, number, |text| {
            if text == "never" {
                return Ok(Limit(None));
            }
            let span: Span = text.parse().map_err(|error: Malformed| error.to_string())?;
            Ok(Limit((span != Span::ZERO).then_some(span)))
        })
    }
}

schema! { Limit: {
    "description": "A duration, or 0 or \"never\" for none",
    "anyOf": [{ "type": "string", "examples": ["90s", "30m", "never"] }, { "const": 0 }],
} }
