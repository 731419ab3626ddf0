//! `schema`, `completions`, `man`: print committed, generated texts.

mod generated;

use clap::CommandFactory;
use serde_json::json;

use crate::cli::{self, Shell};
use crate::engine::session::Session;
use crate::error::{Error, Result, Status};
use crate::model::json;

use generated::{BASH, FISH, MAN, SCHEMAS, ZSH};

/// Adds the first example of the command's manual page to its help.
pub fn with_examples(help: clap::Error) -> clap::Error {
    let grammar = exemplified(cli::Cli::command(), "dormouse");
    grammar.try_get_matches_from(std::env::args_os()).err().unwrap_or(help)
}

fn exemplified(command: clap::Command, page: &str) -> clap::Command {
    let example = MAN.iter().find(|(name, _)| *name == page).and_then(|(_, text)| first_example(text));
    let command = match example {
        Some(example) => command.after_long_help(format!("Example:\n{example}")),
        None => command,
    };
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

pub fn schema(session: &mut Session, args: cli::SchemaArgs) -> Result<Status> {
    let Some(kind) = args.kind else {
        for (kind, _) in SCHEMAS {
            session.out.result(&json!({ "kind": kind }), |_| (*kind).to_owned());
        }
        return Ok(Status::Done);
    };
    let text = SCHEMAS.iter().find(|(name, _)| *name == kind).map(|(_, text)| *text);
    match text {
        // The schema is JSON of several lines already.
        Some(text) if session.out.is_json() => {
            let schema = json::value(text.as_bytes()).unwrap_or_default();
            session.out.json_line(&json!({ "kind": kind, "schema": schema }));
        }
        Some(text) => session.out.raw(text.as_bytes()),
        None => return Err(Error::NoRecord { what: "schema", id: kind }),
    }
    Ok(Status::Done)
}

pub fn completions(session: &mut Session, args: cli::CompletionsArgs) -> Result<Status> {
    let (shell, text) = match args.shell {
        Shell::Bash => ("bash", BASH),
        Shell::Zsh => ("zsh", ZSH),
        Shell::Fish => ("fish", FISH),
    };
    if session.out.is_json() {
        session.out.json_line(&json!({ "shell": shell, "text": text }));
    } else {
        session.out.raw(text.as_bytes());
    }
    Ok(Status::Done)
}

pub fn man(session: &mut Session, args: cli::ManArgs) -> Result<Status> {
    let name = match &args.page {
        None => "dormouse".to_owned(),
        Some(page) => format!("dormouse-{}", page.trim_start_matches("dormouse-").replace(' ', "-")),
    };
    match MAN.iter().find(|(page, _)| *page == name) {
        Some((page, text)) if session.out.is_json() => {
            session.out.json_line(&json!({ "page": page, "text": text }));
        }
        Some((_, text)) => session.out.raw(text.as_bytes()),
        None => return Err(Error::NoRecord { what: "manual page", id: name }),
    }
    Ok(Status::Done)
}
