//! Limits below which a machine counts as low on memory or disk (contract, execution §6).

use serde::{Deserialize, Deserializer, de};

/// Minimum of free memory and disk while a turn runs. Without limits nothing is measured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Critical {
    /// Available memory, as a share of all memory.
    pub memory: Option<Percent>,
    /// Free space of the file system of the state directory, as a share of its size.
    pub disk: Option<Percent>,
}

/// Percentage, written like `"5%"`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Percent(pub f64);

impl std::fmt::Display for Percent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}%", self.0)
    }
}

impl<'de> Deserialize<'de> for Percent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let number = text.strip_suffix('%').and_then(|number| number.trim_end().parse::<f64>().ok());
        let percent = number.filter(|number| (0.0..=100.0).contains(number));
        percent
            .map(Percent)
            .ok_or_else(|| de::Error::custom(format!("`{text}` is no percentage such as \"5%\"")))
    }
}

schema! { Percent: { "type": "string", "pattern": "^[0-9.]+ *%$", "examples": ["5%"] } }
