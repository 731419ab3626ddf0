//! Limits below which a machine counts as low on memory or disk (contract, execution §6).

use std::str::FromStr;

use serde::Deserialize;
use serde_with::DeserializeFromStr;

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
#[derive(Debug, Clone, Copy, PartialEq, DeserializeFromStr)]
pub struct Percent(pub f64);

impl std::fmt::Display for Percent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}%", self.0)
    }
}

impl FromStr for Percent {
    type Err = String;

    fn from_str(text: &str) -> Result<Percent, String> {
        let number = text.strip_suffix('%').and_then(|number| number.trim_end().parse::<f64>().ok());
        let percent = number.filter(|number| (0.0..=100.0).contains(number));
        percent.map(Percent).ok_or_else(|| format!("`{text}` is no percentage such as \"5%\""))
    }
}

schema! { Percent: { "type": "string", "pattern": "^[0-9.]+ *%$", "examples": ["5%"] } }
