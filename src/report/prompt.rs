//! Renders the context document as text, by the built-in template or the agent's (contract, turns).
//!
//! A fenced block names the origin of a text from outside and contains the text. No text can close
//! its block.

use std::path::Path;

use minijinja::value::Serde;
use minijinja::{AutoEscape, UndefinedBehavior, Value};

use crate::error::{Error, Result};
use crate::model::time::Span;

use super::context::Document;
use super::text::templates;

const OURS: &str = include_str!("prompt.md");

/// Template of a message, whose fields are the variables.
const MESSAGE: &str = include_str!("message.md");

/// Renders the document. `own`: path and text of the agent's template, if it has one. An error
/// contains the template's name and the line.
pub fn render(document: &Document<'_>, own: Option<(&Path, &str)>) -> Result<String> {
    let (name, text) = match own {
        Some((path, text)) => (path.to_string_lossy().into_owned(), text),
        None => ("prompt.md".to_owned(), OURS),
    };
    // The output is plain text for a model, even if the template's extension is that of HTML. A
    // misspelled field name is an error, but a test for the existence of a field is allowed.
    let environment = templates(AutoEscape::None, UndefinedBehavior::SemiStrict);
    let mut environment = environment.map_err(|error| at(&name, &error))?;
    environment.add_filter("told", told);
    environment.add_filter("fence", fence);
    environment.add_filter("line", line);
    environment.add_filter("clip", clip);
    environment.add_filter("body", body);
    environment.add_filter("span", |millis: u64| Span::from_millis(millis).to_string());
    let template = environment.template_from_named_str(&name, text).map_err(|error| at(&name, &error))?;
    template.render(Value::from(Serde(document))).map_err(|error| at(&name, &error))
}

/// Returns the error of a template, with the number of the line.
fn at(name: &str, error: &minijinja::Error) -> Error {
    let place = error.line().map(|line| format!(":{line}")).unwrap_or_default();
    let detail = error.detail().map(|detail| format!(": {detail}")).unwrap_or_default();
    Error::failed(format!("{name}{place}: {}{detail}", error.kind()))
        .with_hint("the template of turn.prompt can use the fields of context.json")
}

/// Renders a message: its origin, its time, its subject, and its body or the reason of its hint.
fn told(message: Value) -> Result<String, minijinja::Error> {
    let mut environment = templates(AutoEscape::None, UndefinedBehavior::Lenient)?;
    environment.add_filter("fence", fence);
    environment.add_filter("body", body);
    environment.add_filter("word", word);
    let text = environment.render_named_str("message.md", MESSAGE, message)?;
    Ok(text.trim_end_matches('\n').to_owned())
}

/// Returns the text of a message body, or its JSON if it has no text.
fn body(body: Value) -> String {
    let field = |name| body.get_attr(name).ok().filter(|found| !found.is_undefined() && !found.is_none());
    match field("text").or_else(|| field("sent")) {
        Some(text) => text.to_string(),
        None => serde_json::to_string(&field("value").unwrap_or_default()).unwrap_or_default(),
    }
}

/// Returns text from outside in a fenced block, with a label.
fn fence(text: String, label: Option<String>) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{fence} {}\n{text}\n{fence}", line(label.unwrap_or_default()).replace('`', "_"))
}

/// Returns text on one line, so that the text can't start a section of the prompt.
fn line(text: String) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Returns the start of a text, at most `bytes` long, and then `…` if the rest was cut.
fn clip(text: String, bytes: usize) -> String {
    if text.len() <= bytes {
        return text;
    }
    format!("{}…", &text[..text.floor_char_boundary(bytes)])
}

/// Returns a name from outside as one word without backticks, so that the name can neither end its
/// line nor start or end a fenced block of the prompt.
fn word(text: String) -> String {
    text.chars().map(|c| if c.is_control() || c.is_whitespace() || c == '`' { '_' } else { c }).collect()
}
