//! `check-outcome`: checks an outcome file as the settlement of a turn would.

use serde_json::json;

use crate::cli;
use crate::engine::outcome::{Wrong, check};
use crate::engine::session::Session;
use crate::error::{Error, Result, Status};
use crate::model::bound::Bound;
use crate::model::policy::Limits;

use super::words::{bytes, optional_agent};

pub fn check_outcome(session: &mut Session, args: cli::CheckOutcomeArgs) -> Result<Status> {
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
        json!({ "file": name, "actions": actions, "deferred": outcome.deferred.is_some(), "notes": notes });
    session.out.result(&object, |out| {
        let plural = if actions == 1 { "action" } else { "actions" };
        let notes: String = notes.iter().map(|note| format!("\n  {note}")).collect();
        format!("{}: an outcome with {actions} {plural}{notes}", out.safe(name))
    });
    Ok(Status::Done)
}
