//! Search for the invalid part of a JSON document, and for its position in the text.
//!
//! The reader of tagged objects does not report which field caused an error. So the document is
//! reduced as long as the reader reports the same error; the part that remains is the invalid part.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::model::json;

/// Path component: a field of an object or an element of an array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathPart {
    Field(String),
    Element(usize),
}

impl PathPart {
    pub fn field(name: &str) -> PathPart {
        PathPart::Field(name.to_owned())
    }
}

/// Field that determines how the other fields of its object are read.
const TAG: &str = "do";

/// Returns the path of the part because of which the document is not a `T`, and the error.
///
/// `None` if the document is no JSON, or if its parsed value is a valid `T`.
pub fn find<T: for<'de> Deserialize<'de>>(bytes: &[u8]) -> Option<(Vec<PathPart>, String)> {
    let mut document = json::value(bytes).ok()?;
    let wrong = |document: &Value| {
        let text = document.to_string();
        json::read::<T>(text.as_bytes()).err().map(|error| json::without_place(&error.to_string()).to_owned())
    };
    let why = wrong(&document)?;
    let mut path = Vec::new();
    while let Some(step) =
        step_down(&mut document, &path, |trial| wrong(trial).as_deref() == Some(&why), &why)
    {
        path.push(step);
    }
    Some((path, why))
}

/// Returns the next path component towards the invalid part, and reduces the document to that
/// component. `None` if the part at `path` is itself invalid.
fn step_down(
    document: &mut Value,
    path: &[PathPart],
    is_still_wrong: impl Fn(&Value) -> bool,
    why: &str,
) -> Option<PathPart> {
    match part(document, path)?.take() {
        Value::Object(fields) => {
            let mut has = |trial: Map<String, Value>| {
                if let Some(part) = part(document, path) {
                    *part = Value::Object(trial);
                }
                is_still_wrong(document)
            };
            // If the missing field belongs to this object, adding the field changes the error.
            let missing = why.strip_prefix("missing field `").and_then(|rest| rest.split('`').next());
            if let Some(missing) = missing.filter(|missing| !fields.contains_key(*missing)) {
                let mut trial = fields.clone();
                trial.insert(missing.to_owned(), Value::Null);
                if !has(trial) {
                    return None;
                }
            }
            let (tag, others): (Vec<_>, Vec<_>) = fields.into_iter().partition(|(name, _)| name == TAG);
            let fields: Vec<(String, Value)> = tag.into_iter().chain(others).collect();
            let first = |count: usize| fields.iter().take(count).cloned().collect::<Map<_, _>>();
            let count = least(fields.len(), |count| has(first(count)));
            has(first(count));
            Some(PathPart::Field(fields.get(count.checked_sub(1)?)?.0.clone()))
        }
        Value::Array(elements) => {
            let mut has = |count: usize| {
                if let Some(part) = part(document, path) {
                    *part = Value::Array(elements.iter().take(count).cloned().collect());
                }
                is_still_wrong(document)
            };
            let count = least(elements.len(), &mut has);
            has(count);
            count.checked_sub(1).map(PathPart::Element)
        }
        whole @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => {
            *part(document, path)? = whole;
            None
        }
    }
}

/// Returns the least count for which `holds` returns true, by bisection. `holds` must return true
/// for `most`, and be monotone.
fn least(most: usize, mut holds: impl FnMut(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, most);
    while low < high {
        let middle = low.midpoint(high);
        if holds(middle) { high = middle } else { low = middle + 1 }
    }
    high
}

fn part<'a>(document: &'a mut Value, path: &[PathPart]) -> Option<&'a mut Value> {
    path.iter().try_fold(document, |value, step| match step {
        PathPart::Field(name) => value.get_mut(name),
        PathPart::Element(at) => value.get_mut(at),
    })
}

/// Returns the path as text, for instance `$.actions[0].kind`.
pub fn shown(path: &[PathPart]) -> String {
    let mut text = "$".to_owned();
    for step in path {
        match step {
            PathPart::Field(name) => text.push_str(&format!(".{name}")),
            PathPart::Element(at) => text.push_str(&format!("[{at}]")),
        }
    }
    text
}

/// Returns line and column, both from 1, where the part at `path` begins. Columns count characters.
/// `None` if the text does not have the part.
pub fn place(bytes: &[u8], path: &[PathPart]) -> Option<(usize, usize)> {
    let text = std::str::from_utf8(bytes).ok()?;
    let mut here: &RawValue = serde_json::from_str(text).ok()?;
    for step in path {
        here = match step {
            PathPart::Field(name) => {
                serde_json::from_str::<BTreeMap<String, &RawValue>>(here.get()).ok()?.remove(name)?
            }
            PathPart::Element(at) => *serde_json::from_str::<Vec<&RawValue>>(here.get()).ok()?.get(*at)?,
        };
    }
    let offset = (here.get().as_ptr() as usize).checked_sub(text.as_ptr() as usize)?;
    let before = text.get(..offset)?;
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next()?.chars().count() + 1;
    Some((line, column))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::model::turn::Outcome;

    /// Returns the error in an outcome document as `LINE:COLUMN PATH: WHY`.
    fn blamed(text: &str) -> String {
        let (path, why) = find::<Outcome>(text.as_bytes()).unwrap();
        let (line, column) = place(text.as_bytes(), &path).unwrap();
        format!("{line}:{column} {}: {why}", shown(&path))
    }

    #[test]
    fn find_reports_the_path_and_position_of_the_invalid_part() {
        for (text, expected) in [
            (r#"[1]"#, "1:1 $: invalid type: sequence, expected struct Outcome"),
            (r#""x""#, "1:1 $: invalid type: string \"x\", expected struct Outcome"),
            (
                "{\n  \"brief\": \"ü\", \"breif\": 1}",
                "2:26 $.breif: unknown field `breif`, expected one of `brief`, `actions`, `usage`, `deferred`",
            ),
            (
                r#"{"usage": {"input_tokens": -1}}"#,
                "1:28 $.usage.input_tokens: invalid value: integer `-1`, expected u64",
            ),
            (
                r#"{"actions": [{"do": "enqueue", "text": "a"}, {"text": "b"}]}"#,
                "1:46 $.actions[1]: missing field `do`",
            ),
            (r#"{"actions": [{"reason": "r", "do": "wait"}]}"#, "1:14 $.actions[0]: missing field `kind`"),
            (
                r#"{"actions": [{"kind": "timer", "do": "wait"}]}"#,
                "1:14 $.actions[0]: missing field `reason`",
            ),
            (
                r#"{"actions": [{"do": "wait", "reason": "r", "kind": "extern"}]}"#,
                "1:52 $.actions[0].kind: unknown wait kind `extern`: expected one of operator, task, external, timer, system",
            ),
            (
                r#"{"actions": [{"objective": "o", "todo": [{"text": "a"}, {"txt": "b"}], "do": "work.add"}]}"#,
                "1:57 $.actions[0].todo[1]: missing field `text`",
            ),
            (
                r#"{"actions": [{"in": "soon", "do": "timer.add"}]}"#,
                "1:21 $.actions[0].in: `soon` is not a duration: write 500ms, 90s, 10m, 1h30m or 2d",
            ),
        ] {
            assert_eq!(blamed(text), expected);
        }
        assert_eq!(find::<Outcome>(b"{}"), None);
        assert_eq!(find::<Outcome>(b"{"), None);
    }

    #[test]
    fn the_error_for_an_unknown_action_lists_the_known_actions() {
        let said = blamed("{\"actions\": [\n {\"text\": \"x\", \"do\": \"enque\"}]}");
        assert!(
            said.starts_with("2:22 $.actions[0].do: unknown variant `enque`, expected one of `work.add`"),
            "{said}"
        );
    }

    #[test]
    fn a_large_document_is_searched_in_a_few_readings() {
        let todo = vec![r#"{"text": "a"}"#; 50_000].join(",");
        let text =
            format!(r#"{{"actions": [{{"do": "work.add", "objective": "o", "todo": [{todo}, {{}}]}}]}}"#);
        assert!(blamed(&text).contains("$.actions[0].todo[50000]: missing field `text`"));
        assert!(find::<Counted>(text.as_bytes()).is_some());
        // Bisection halves the part of a list that may be invalid, so few parses suffice.
        assert!(READINGS.get() < 60, "{}", READINGS.get());
    }

    thread_local! {
        static READINGS: Cell<usize> = const { Cell::new(0) };
    }

    /// An outcome that counts how often it is parsed.
    struct Counted;

    impl<'de> Deserialize<'de> for Counted {
        fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Counted, D::Error> {
            READINGS.set(READINGS.get() + 1);
            Outcome::deserialize(deserializer).map(|_| Counted)
        }
    }
}
