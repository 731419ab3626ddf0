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
    environment.add_filter("told", message_text);
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

/// Returns a field of a template value, if the field is present and not null.
fn field(value: &Value, name: &str) -> Option<Value> {
    value.get_attr(name).ok().filter(|found| !found.is_undefined() && !found.is_none())
}

fn word(value: &Value, name: &str) -> String {
    field(value, name).map(|found| found.to_string()).unwrap_or_default()
}

/// Renders a message: its origin, its time, its subject, and its body.
fn message_text(message: &Value) -> String {
    let origin = field(message, "origin").map(|origin| name_of(&origin)).unwrap_or_default();
    let from = if origin == "operator" { "the operator" } else { &origin };
    let mut text = format!("From {from}, {}", word(message, "created_at"));
    if let Some(resource) = field(message, "resource") {
        text.push_str(&format!(", about {}", one_word(&resource.to_string())));
    }
    text.push_str(":\n\n");
    if let Some(hint) = field(message, "hint") {
        text.push_str(&hinted(message, &hint, &origin));
        return text.trim_end_matches('\n').to_owned();
    }
    let said = field(message, "body").map(body).unwrap_or_default();
    let is_evidence = word(message, "body_is") == "evidence";
    if said.is_empty() && is_evidence {
        text.push_str("It says nothing.\n");
    } else if is_evidence {
        text.push_str(&block(&said, &format!("evidence from {origin}")));
    } else {
        text.push_str(&said);
    }
    text.trim_end_matches('\n').to_owned()
}

/// Renders a wake hint: its trigger, its count and its reason.
fn hinted(message: &Value, hint: &Value, origin: &str) -> String {
    let through = field(message, "trigger_id").map(|id| format!(" through {}", one_word(&id.to_string())));
    let count = word(hint, "count");
    let times = if count == "1" { String::new() } else { format!(", sent {} times", one_word(&count)) };
    let text = format!("A wake hint{}{times}: go and look.", through.unwrap_or_default());
    match field(hint, "reason") {
        Some(reason) => {
            let label = format!("evidence from {origin}");
            format!("{text} Its reason:\n\n{}", block(&reason.to_string(), &label))
        }
        None => text,
    }
}

/// Formats an origin as `KIND` or `KIND:ID`.
fn name_of(origin: &Value) -> String {
    let id = field(origin, "id").map(|id| format!(":{id}")).unwrap_or_default();
    one_word(&format!("{}{id}", word(origin, "kind")))
}

/// Returns the text of a message body, or its JSON if it has no text.
fn body(body: Value) -> String {
    match field(&body, "text").or_else(|| field(&body, "sent")) {
        Some(text) => text.to_string(),
        None => {
            let value = field(&body, "value").unwrap_or_default();
            serde_json::to_string(&value).unwrap_or_default()
        }
    }
}

/// Returns text from outside in a fenced block, with a label.
fn fence(text: String, label: Option<String>) -> String {
    block(&text, &label.unwrap_or_default()).trim_end_matches('\n').to_owned()
}

fn block(text: &str, label: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{fence} {}\n{text}\n{fence}\n", line(label.to_owned()).replace('`', "_"))
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
fn one_word(text: &str) -> String {
    text.chars().map(|c| if c.is_control() || c.is_whitespace() || c == '`' { '_' } else { c }).collect()
}
