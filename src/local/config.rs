//! Reading, overlaying and checking of `dormouse.toml` and `agent.toml`. Errors have the line and
//! column of the fault.

use std::path::Path;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use toml::Table;

use crate::error::{Error, Result};
use crate::model::policy::Policy;
use crate::model::retention::Retention;
use crate::model::settings::{FORMAT, StoreConfig};
use crate::model::strict::{Strict, from_toml};

/// Parses the bytes of `dormouse.toml`. Error `newer_schema` for another format.
pub fn store_config(path: &Path, bytes: &[u8]) -> Result<StoreConfig> {
    #[derive(Deserialize)]
    struct Format {
        format: u32,
    }
    let text = utf8(path, bytes)?;
    // A newer format may have settings that this version does not know, so the format is checked
    // first.
    if let Ok(Format { format }) = from_toml(text)
        && format != FORMAT
    {
        return Err(Error::Newer {
            path: path.to_owned(),
            found: format!("format {format}"),
            known: format!("format {FORMAT}"),
        });
    }
    parse(path, text).map_err(|error| error.with_hint(MEND))
}

/// Hint for an error in `dormouse.toml`.
const MEND: &str = "edit this file: `dormouse man` explains each setting";

/// Parses the bytes of an `agent.toml` over the profile (a table of `dormouse.toml`) that it names
/// and the defaults. Errors name `path`, or `dormouse.toml` for a fault in a profile or a default.
pub fn policy_from(path: &Path, bytes: &[u8], config: &StoreConfig) -> Result<Policy> {
    let text = utf8(path, bytes)?;
    // A parse without defaults comes first, so that errors have a line and column of the file.
    let mut policy: Policy = parse(path, text)?;
    let by_default = config.defaults.get("profile").and_then(toml::Value::as_str);
    let named = |name: &str| profile(path, name, config).map(|table| (name.to_owned(), table));
    let profile = policy.profile.as_deref().or(by_default).map(named).transpose()?;
    let kept = &config.retention;
    if !config.defaults.is_empty() || !kept.is_empty() || profile.is_some() {
        let mut merged = Table::new();
        if !kept.is_empty() {
            // The table is parsed alone first, because in the merged settings an error would be
            // attributed to `[defaults]`.
            from_settings::<Retention>(path, "[retention]", kept.clone())?;
            merged.insert("retention".to_owned(), toml::Value::Table(kept.clone()));
        }
        overlay(&mut merged, config.defaults.clone());
        if let Some((name, table)) = profile {
            // The profile is parsed alone first: errors then name its table, not `[defaults]`.
            from_settings::<Policy>(path, &format!("[profiles.{name}]"), table.clone())?;
            overlay(&mut merged, table.clone());
        }
        overlay(&mut merged, parse(path, text)?);
        policy = from_settings(path, "[defaults]", merged)?;
    }
    policy.scheduler.overdue_after.get_or_insert(config.scheduler.overdue_after);
    policy.check().map_err(|reason| Error::damaged(path, reason))?;
    Ok(policy)
}

/// Returns the table `[profiles.NAME]` of `dormouse.toml`. `path`: settings that name the profile.
fn profile<'c>(path: &Path, name: &str, config: &'c StoreConfig) -> Result<&'c Table> {
    config.profiles.get(name).ok_or_else(|| {
        let known: Vec<&str> = config.profiles.keys().map(String::as_str).collect();
        let hint = match known.as_slice() {
            [] => format!("there is none: write a table [profiles.{name}] into dormouse.toml"),
            known => format!("there is {}", known.join(", ")),
        };
        Error::damaged(path.to_owned(), format!("no profile `{name}` in dormouse.toml")).with_hint(hint)
    })
}

/// Reads a table of `dormouse.toml` that applies to the policy at `path`. `name`: name of the table
/// in errors.
fn from_settings<T: DeserializeOwned>(path: &Path, name: &str, table: Table) -> Result<T> {
    T::deserialize(Strict(table)).map_err(|error| {
        let above = path.ancestors().nth(3).unwrap_or(path);
        let message = format!("{name}: {}", error.message());
        Error::damaged(above.join(super::layout::CONFIG), message).with_hint(MEND)
    })
}

/// Overlays `over` on `under`, key by key; the values of `over` win.
fn overlay(under: &mut Table, over: Table) {
    for (key, value) in over {
        match (under.get_mut(&key), value) {
            (Some(toml::Value::Table(under)), toml::Value::Table(over)) => overlay(under, over),
            (_, value) => {
                under.insert(key, value);
            }
        }
    }
}

pub fn utf8<'a>(path: &Path, bytes: &'a [u8]) -> Result<&'a str> {
    std::str::from_utf8(bytes).map_err(|_| Error::damaged(path, "not UTF-8"))
}

pub fn parse<T: DeserializeOwned>(path: &Path, text: &str) -> Result<T> {
    from_toml(text).map_err(|error| {
        if let Some(line) = super::files::conflict_marker(text.as_bytes()) {
            let message = "a merge conflict: git left its markers here".to_owned();
            return Error::Damaged { path: path.to_owned(), line, column: 1, message, hint: None };
        }
        let before = error.span().and_then(|span| text.get(..span.start));
        let line = before.map_or(0, |before| before.matches('\n').count() + 1);
        let column = before.map_or(0, |before| before.chars().rev().take_while(|c| *c != '\n').count() + 1);
        let message = error.message().to_owned();
        Error::Damaged { path: path.to_owned(), line, column, message, hint: None }
    })
}
