//! `schema`, `completions`, `man`: texts that are generated, committed, and only printed here.

use serde_json::json;

use crate::cli::{self, Shell};
use crate::error::{Error, Result, Status};

use super::generated::{BASH, FISH, MAN, SCHEMAS, ZSH};
use super::session::Session;

pub fn schema(session: &mut Session, args: cli::Schema) -> Result<Status> {
    let Some(kind) = args.kind else {
        for (kind, _) in SCHEMAS {
            session.out.result(&json!({ "kind": kind }), |_| (*kind).to_owned());
        }
        return Ok(Status::Done);
    };
    let text = SCHEMAS.iter().find(|(name, _)| *name == kind).map(|(_, text)| *text);
    match text {
        Some(text) => session.out.raw(text.as_bytes()),
        None => return Err(Error::NoRecord { what: "schema", id: kind }),
    }
    Ok(Status::Done)
}

pub fn completions(session: &mut Session, args: cli::Completions) -> Result<Status> {
    let text = match args.shell {
        Shell::Bash => BASH,
        Shell::Zsh => ZSH,
        Shell::Fish => FISH,
    };
    session.out.raw(text.as_bytes());
    Ok(Status::Done)
}

pub fn man(session: &mut Session, args: cli::Man) -> Result<Status> {
    let name = match &args.page {
        None => "dormouse".to_owned(),
        Some(page) => format!("dormouse-{}", page.trim_start_matches("dormouse-").replace(' ', "-")),
    };
    match MAN.iter().find(|(page, _)| *page == name) {
        Some((_, text)) => session.out.raw(text.as_bytes()),
        None => return Err(Error::NoRecord { what: "manual page", id: name }),
    }
    Ok(Status::Done)
}
