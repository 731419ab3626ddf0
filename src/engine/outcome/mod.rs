//! Reader of a turn's outcome file. An outcome with an invalid part is refused as a whole.

mod blame;

use std::fmt;
use std::path::Path;

use serde_json::error::Category;

use crate::cap_fs::CapPath;
use crate::model::bound::{BRIEF, Bound};
use crate::model::json;
use crate::model::policy::Limits;
use crate::model::turn::Outcome;

/// Error in an outcome, and its position.
#[derive(Debug)]
pub struct Wrong {
    /// Line and column, both from 1; zero if the error has no position.
    pub line: usize,
    pub column: usize,
    /// Path of the invalid part, such as `$.actions[0].kind`, and the reason.
    pub why: String,
}

impl Wrong {
    /// Returns an error about the whole file.
    fn of_all(why: String) -> Wrong {
        Wrong { line: 0, column: 0, why }
    }

    /// Returns an error about the part at `path`.
    fn of_part(bytes: &[u8], path: &[blame::PathPart], why: impl fmt::Display) -> Wrong {
        let (line, column) = blame::place(bytes, path).unwrap_or_default();
        Wrong { line, column, why: format!("{}: {why}", blame::shown(path)) }
    }

    /// Returns the error message, preceded by the path of the file and the position.
    fn in_file(&self, path: &Path) -> String {
        match (self.line, self.column) {
            (0, _) => format!("outcome file {}: {}", path.display(), self.why),
            (line, column) => format!("outcome file {}:{line}:{column}: {}", path.display(), self.why),
        }
    }
}

/// Outcome, and descriptions of the repairs that made it readable.
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

/// Parses an outcome document and checks it as far as possible without records. The settlement
/// checks that the records exist which the document names.
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
        return Err(Wrong::of_part(bytes, &[blame::PathPart::field("actions")], why));
    }
    BRIEF
        .check(outcome.brief.as_ref().map_or(0, |brief| brief.len() as u64))
        .map_err(|refusal| Wrong::of_part(bytes, &[blame::PathPart::field("brief")], refusal.message))?;
    Ok((outcome, notes.into_iter().map(str::to_owned).collect()))
}

fn check_length(bytes: u64, limits: &Limits) -> std::result::Result<(), Wrong> {
    Bound::outcome(limits.max_outcome).check(bytes).map_err(|refusal| Wrong::of_all(refusal.message))
}

/// Parses an outcome document, without the checks of limits.
pub(super) fn parse(bytes: &[u8]) -> std::result::Result<Outcome, Wrong> {
    let outcome: Outcome = json::read(bytes).map_err(|error| parse_error(bytes, &error))?;
    if outcome.deferred.as_ref().is_some_and(|said| said.until.is_some() && said.after.is_some()) {
        let why = "`until` and `after` both say when: leave one out";
        return Err(Wrong::of_part(bytes, &[blame::PathPart::field("deferred")], why));
    }
    Ok(outcome)
}

/// Returns the error for bytes that could not be parsed as an outcome.
fn parse_error(bytes: &[u8], error: &serde_json::Error) -> Wrong {
    let found = match error.classify() {
        Category::Data => blame::find::<Outcome>(bytes),
        Category::Syntax | Category::Eof | Category::Io => None,
    };
    if let Some((path, why)) = found {
        return Wrong::of_part(bytes, &path, why);
    }
    // For a syntax error or a repeated field, the parser reports the position itself.
    let (text, start) = (error.to_string(), if error.is_data() { "$: " } else { "not JSON: " });
    Wrong {
        line: error.line(),
        column: error.column(),
        why: format!("{start}{}", json::without_place(&text)),
    }
}
