//! `schema`, `completions` and `man`, which print generated texts, and `check-outcome`.

mod generated;
mod help;

use serde_json::json;

use crate::cli::{self, Shell};
use crate::engine::outcome::{Wrong, check};
use crate::engine::session::Session;
use crate::error::{Error, Result, Status};
use crate::model::bound::Bound;
use crate::model::json;
use crate::model::policy::Limits;

use generated::{BASH, FISH, MAN, SCHEMAS, ZSH};

use super::args::{answer, answer_verbatim, bytes, optional_agent};

#[cfg(test)]
pub use help::malformed_word;
pub use help::refuse_usage;

/// Adds the first example of each command's manual page to its long help, below the purpose.
fn exemplified(mut command: clap::Command, page: &str) -> clap::Command {
    let example = MAN.iter().find(|(name, _)| *name == page).and_then(|(_, text)| first_example(text));
    let about = command.get_long_about().or(command.get_about()).map(ToString::to_string);
    if let (Some(example), Some(about)) = (example, about) {
        let (purpose, details) = about.split_once("\n\n").unwrap_or((&about, ""));
        let about = format!("{purpose}\n\nExample:\n{example}\n{details}");
        command = command.long_about(about.trim_end().to_owned());
    }
    command.mut_subcommands(|child| {
        let page = format!("{page}-{}", child.get_name());
        exemplified(child, &page)
    })
}

/// Returns the first example of a manual page as plain text, indented.
fn first_example(page: &str) -> Option<String> {
    let (_, examples) = page.split_once(".SH EXAMPLES\n")?;
    let (_, example) = examples.split_once(".EX\n")?;
    let (example, _) = example.split_once(".EE")?;
    let plain = |line: &str| {
        line.replace("\\-", "-")
            .replace("\\(aq", "'")
            .replace("\\(dq", "\"")
            .replace("\\e", "\\")
            .replace("\\&", "")
    };
    Some(example.lines().map(|line| format!("  {}\n", plain(line))).collect())
}

pub fn schema(session: &Session, args: cli::SchemaArgs) -> Result<Status> {
    let Some(kind) = args.kind else {
        for (kind, _) in SCHEMAS {
            session.out.result(&json!({ "kind": kind }), |_| (*kind).to_owned());
        }
        return Ok(Status::Done);
    };
    let Some((_, text)) = SCHEMAS.iter().find(|(name, _)| *name == kind) else {
        return Err(Error::NoRecord { what: "schema", id: kind });
    };
    // With --json, the schema is a JSON value instead of formatted text.
    let schema = json::value(text.as_bytes()).unwrap_or_default();
    answer_verbatim(session, &json!({ "kind": kind, "schema": schema }), text)
}

pub fn completions(session: &Session, args: cli::CompletionsArgs) -> Result<Status> {
    let (shell, text) = match args.shell {
        Shell::Bash => ("bash", BASH),
        Shell::Zsh => ("zsh", ZSH),
        Shell::Fish => ("fish", FISH),
    };
    answer_verbatim(session, &json!({ "shell": shell, "text": text }), text)
}

pub fn man(session: &Session, args: cli::ManArgs) -> Result<Status> {
    let name = match &args.page {
        None => "dormouse".to_owned(),
        Some(page) => format!("dormouse-{}", page.trim_start_matches("dormouse-").replace(' ', "-")),
    };
    match MAN.iter().find(|(page, _)| *page == name) {
        Some((page, text)) => answer_verbatim(session, &json!({ "page": page, "text": text }), text),
        None => Err(Error::NoRecord { what: "manual page", id: name }),
    }
}

pub fn check_outcome(session: &Session, args: cli::CheckOutcomeArgs) -> Result<Status> {
    let limits = match optional_agent(&args.agent)? {
        Some(name) => session.store()?.agent(&name)?.policy()?.limits,
        None => Limits::default(),
    };
    let name = if args.file == "-" { "stdin" } else { &args.file };
    let found = bytes(&args.file, &Bound::outcome(limits.max_outcome))?;
    let (outcome, notes) = check(&found, &limits).map_err(|Wrong { line, column, why }| Error::Damaged {
        path: name.into(),
        line,
        column,
        message: why,
        hint: Some("`dormouse schema outcome` prints what an outcome may have".to_owned()),
    })?;
    let actions = outcome.actions.len();
    let object =
        json!({ "path": name, "actions": actions, "deferred": outcome.deferred.is_some(), "notes": notes });
    answer(session, &object, |out| {
        let plural = if actions == 1 { "action" } else { "actions" };
        let notes: String = notes.iter().map(|note| format!("\n  {note}")).collect();
        format!("{}: an outcome with {actions} {plural}{notes}", out.safe(name))
    })
}
