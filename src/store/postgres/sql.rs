//! Conversion of values to texts of SQL parameters, and back.

use crate::local::Subject;
use crate::model::digest;
use crate::model::record::Plane;

use super::wire::Value;

/// Returns an SQL condition that the column equals one of `texts`, which must not be empty, and the
/// value of its parameter. `parameter`: number of that parameter.
///
/// A comparison with a single text keeps the order of an index, unlike a comparison with an array.
pub fn one_of(column: &str, parameter: usize, texts: &[impl AsRef<str>]) -> (String, Value) {
    match texts {
        [one] => (format!("{column} = ${parameter}"), one.as_ref().into()),
        all => {
            let all = all.iter().map(|text| text.as_ref().to_owned()).collect();
            (format!("{column} = ANY (${parameter}::text[])"), Value::Texts(all))
        }
    }
}

/// Decodes UTF-8 text from the output of `encode(…, 'hex')`. `None` for invalid text.
pub fn text_of_hex(hex: &str) -> Option<String> {
    String::from_utf8(digest::bytes(hex)?).ok()
}

pub fn plane(plane: Plane) -> &'static str {
    match plane {
        Plane::Work => "work",
        Plane::Waits => "wait",
        Plane::Timers => "timer",
        Plane::Tasks => "task",
        Plane::Triggers => "trigger",
        Plane::Outbox => "outgoing",
    }
}

pub fn plane_of(word: &str) -> Option<Plane> {
    Plane::ALL.into_iter().find(|one| plane(*one) == word)
}

/// Returns the text for the column `subject` of the table `lease`.
pub fn subject(subject: Subject) -> String {
    match subject {
        Subject::Run => "run".to_owned(),
        Subject::Task(id) => id.to_string(),
    }
}
