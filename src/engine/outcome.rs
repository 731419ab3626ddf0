//! Reader of the file in which a turn requests actions. A file with an invalid part is refused.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use serde_json::json;
use serde_json::value::RawValue;

use crate::cap_fs::CapPath;
use crate::model::action::Action;
use crate::model::bound::{BRIEF, Bound};
use crate::model::json;
use crate::model::policy::Limits;
use crate::model::turn::Outcome;

/// Error in a turn's outcome file, and its position in the file.
#[derive(Debug)]
pub struct Wrong {
    /// Line and column, both from 1; zero if the error has no position.
    pub line: usize,
    pub column: usize,
    /// Path of the invalid field or action, such as `$.actions[0]`, and the reason.
    pub why: String,
}

impl Wrong {
    /// Returns an error about the whole file.
    fn of_all(why: String) -> Wrong {
        Wrong { line: 0, column: 0, why }
    }

    /// Returns an error about the field `name`.
    fn of_field(bytes: &[u8], name: &str, why: impl fmt::Display) -> Wrong {
        Wrong::of_part(bytes, fields(bytes).get(name).copied(), name, why)
    }

    /// Returns an error about `part` of the document, with the position at which the part begins.
    fn of_part(bytes: &[u8], part: Option<&RawValue>, path: &str, why: impl fmt::Display) -> Wrong {
        let begins = part.map(|part| (part.get().as_ptr() as usize).saturating_sub(bytes.as_ptr() as usize));
        let before = begins.and_then(|at| std::str::from_utf8(bytes.get(..at)?).ok());
        let line = before.map_or(0, |before| before.matches('\n').count() + 1);
        let last = before.and_then(|before| before.rsplit('\n').next());
        let column = last.map_or(0, |last| last.chars().count() + 1);
        Wrong { line, column, why: format!("$.{path}: {why}") }
    }

    /// Returns the error message, preceded by the path of the file and the position.
    fn in_file(&self, path: &Path) -> String {
        match (self.line, self.column) {
            (0, _) => format!("outcome file {}: {}", path.display(), self.why),
            (line, column) => format!("outcome file {}:{line}:{column}: {}", path.display(), self.why),
        }
    }
}

/// Outcome of a turn, and descriptions of the repairs that made the file readable.
pub type Mended = (Outcome, Vec<String>);

/// Reads the outcome file; without a file, an empty outcome. `Err`: message for people.
pub fn read(path: &CapPath, limits: &Limits) -> std::result::Result<Mended, String> {
    let wrong = |wrong: Wrong| wrong.in_file(path.path());
    if let Some(found) = path.look().map_err(|error| error.to_string())? {
        check_length(u64::try_from(found.st_size).unwrap_or(0), limits).map_err(wrong)?;
    }
    match path.read(limits.max_outcome.0).map_err(|error| error.to_string())? {
        Some(bytes) => check(&bytes, limits).map_err(wrong),
        None => Ok(Mended::default()),
    }
}

/// Parses an outcome file and checks it as far as possible without the agent's records. The
/// settlement of the run checks that the records exist that the file names.
pub fn check(bytes: &[u8], limits: &Limits) -> std::result::Result<Mended, Wrong> {
    check_length(bytes.len() as u64, limits)?;
    let text = std::str::from_utf8(bytes).map_err(|_| Wrong::of_all("not UTF-8".to_owned()))?;
    let (text, mut notes) = json::outside(text);
    if text.trim_ascii().is_empty() {
        return Ok((Outcome::default(), vec!["the outcome file is empty".to_owned()]));
    }
    let bytes = text.as_bytes();
    let outcome = parse(bytes)?;
    let usage = outcome.usage.as_ref().and_then(|_| json::value(bytes).ok());
    if usage.is_some_and(|said| {
        ["input_tokens", "output_tokens"].iter().any(|count| said["usage"][count].is_f64())
    }) {
        notes.push("a count of tokens was written with a decimal point");
    }
    let (count, most) = (outcome.actions.len(), limits.max_actions);
    if count as u64 > most {
        let why = format!("it has {count} actions, more than limits.max_actions = {most}");
        return Err(Wrong::of_field(bytes, "actions", why));
    }
    BRIEF
        .check(outcome.brief.as_ref().map_or(0, |brief| brief.len() as u64))
        .map_err(|refusal| Wrong::of_field(bytes, "brief", refusal.message))?;
    Ok((outcome, notes.into_iter().map(str::to_owned).collect()))
}

fn check_length(bytes: u64, limits: &Limits) -> std::result::Result<(), Wrong> {
    Bound::outcome(limits.max_outcome).check(bytes).map_err(|refusal| Wrong::of_all(refusal.message))
}

/// Parses an outcome file, without the checks of limits.
pub(super) fn parse(bytes: &[u8]) -> std::result::Result<Outcome, Wrong> {
    let outcome: Outcome = json::read(bytes).map_err(|error| parse_error(bytes, &error))?;
    if outcome.deferred.as_ref().is_some_and(|said| said.until.is_some() && said.after.is_some()) {
        let why = "`until` and `after` both say when: leave one out";
        return Err(Wrong::of_field(bytes, "deferred", why));
    }
    Ok(outcome)
}

/// Returns the fields of a document, not yet parsed; none if the document is no JSON object.
fn fields(bytes: &[u8]) -> BTreeMap<String, &RawValue> {
    serde_json::from_slice(bytes).unwrap_or_default()
}

/// Returns the error for an outcome file that can't be parsed. It is about the action or field that
/// is invalid by itself, or else about the whole file.
fn parse_error(bytes: &[u8], error: &serde_json::Error) -> Wrong {
    let reason = |error: &serde_json::Error| json::without_place(&error.to_string()).to_owned();
    for (name, field) in fields(bytes) {
        let is_list = name == "actions";
        let actions: Vec<&RawValue> =
            if is_list { serde_json::from_str(field.get()).unwrap_or_default() } else { Vec::new() };
        for (at, action) in actions.into_iter().enumerate() {
            if let Err(error) = json::read::<Action>(action.get().as_bytes()) {
                return Wrong::of_part(bytes, Some(action), &format!("actions[{at}]"), reason(&error));
            }
        }
        let alone = format!("{{{}:{field}}}", json!(name));
        if let Err(error) = json::read::<Outcome>(alone.as_bytes()) {
            return Wrong::of_part(bytes, Some(field), &name, reason(&error));
        }
    }
    let start = if error.is_data() { "$: " } else { "not JSON: " };
    Wrong { line: error.line(), column: error.column(), why: format!("{start}{}", reason(error)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the error in an outcome document as `LINE:COLUMN WHY`.
    fn wrong(text: &str) -> String {
        let Wrong { line, column, why } = parse(text.as_bytes()).unwrap_err();
        format!("{line}:{column} {why}")
    }

    #[test]
    fn an_error_has_the_path_and_position_of_the_invalid_field_or_action() {
        for (text, expected) in [
            ("{", "1:1 not JSON: EOF while parsing an object"),
            (r#"[1]"#, "1:1 $: invalid type: sequence, expected struct Outcome"),
            (r#"{"brief": "a", "brief": "b"}"#, "1:22 $: duplicate field `brief`"),
            (
                "{\n  \"brief\": \"ü\", \"breif\": 1}",
                "2:26 $.breif: unknown field `breif`, expected one of `brief`, `actions`, `usage`, `deferred`",
            ),
            (r#"{"usage": {"input_tokens": -1}}"#, "1:11 $.usage: invalid value: integer `-1`, expected u64"),
            (r#"{"actions": {}}"#, "1:13 $.actions: invalid type: map, expected a sequence"),
            (
                r#"{"actions": [{"do": "enqueue", "text": "a"}, {"text": "b"}]}"#,
                "1:46 $.actions[1]: missing field `do`",
            ),
            (
                "{\"actions\": [\n {\"kind\": \"extern\", \"do\": \"wait\", \"reason\": \"r\"}]}",
                "2:2 $.actions[0]: unknown wait kind `extern`: expected one of operator, task, external, timer, system",
            ),
            (
                r#"{"actions": [{"in": "soon", "do": "timer.add"}]}"#,
                "1:14 $.actions[0]: `soon` is not a duration: write 500ms, 90s, 10m, 1h30m or 2d",
            ),
        ] {
            assert_eq!(wrong(text), expected);
        }
        let unknown = wrong(r#"{"actions": [{"text": "x", "do": "enque"}]}"#);
        assert!(
            unknown.starts_with("1:14 $.actions[0]: unknown variant `enque`, expected one of `work.add`"),
            "{unknown}"
        );
    }
}
