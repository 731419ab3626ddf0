//! Keys that act on agents: each runs the command of the same name in its own process.

use std::ffi::OsString;

use serde_json::Value;

use crate::engine::session::Session;
use crate::engine::views::last_dead;
use crate::error::Result;
use crate::model::id::AgentName;
use crate::model::json;
use crate::process::jobs::{EndedJob, JobEnd};
use crate::store::Store;

/// Command that a key runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    Tick,
    Start,
    Stop,
    Preempt,
    Recover,
    Requeue,
}

impl Act {
    pub fn of(key: char) -> Option<Act> {
        let keys = [
            ('t', Act::Tick),
            ('s', Act::Start),
            ('S', Act::Stop),
            ('p', Act::Preempt),
            ('r', Act::Recover),
            ('R', Act::Requeue),
        ];
        keys.into_iter().find(|(known, _)| *known == key).map(|(_, act)| act)
    }

    pub fn name(self) -> &'static str {
        match self {
            Act::Tick => "tick",
            Act::Start => "start",
            Act::Stop => "stop",
            Act::Preempt => "preempt",
            Act::Recover => "recover",
            Act::Requeue => "requeue",
        }
    }

    /// Returns the irreversible effect of a command, for which a confirmation is needed.
    pub fn doubt(self) -> Option<&'static str> {
        match self {
            Act::Stop => Some("this ends its turn and its tasks"),
            Act::Preempt => Some("its turn is asked to yield, and ended if it does not"),
            Act::Recover => Some("an interrupted turn is given up, and a backoff ends"),
            Act::Requeue => Some("its last dead letter runs again"),
            Act::Tick | Act::Start => None,
        }
    }

    /// Returns the command line; `None` if there is nothing to requeue.
    pub fn command(
        self,
        session: &Session,
        store: &Store,
        agent: &AgentName,
    ) -> Result<Option<Vec<OsString>>> {
        let patience = session.patience().to_string();
        let mut command: Vec<OsString> = vec!["--dir".into(), store.anchor().path().into()];
        let mut say = |words: &[&str]| command.extend(words.iter().map(OsString::from));
        say(&["--json", "--lock-timeout", &patience]);
        match self {
            Act::Tick | Act::Start | Act::Stop | Act::Preempt | Act::Recover => {
                say(&[self.name(), agent.as_str()]);
            }
            Act::Requeue => {
                let Some(id) = last_dead(&store.agent(agent)?)? else { return Ok(None) };
                say(&["queue", "requeue", &id.to_string(), "-a", agent.as_str()]);
            }
        }
        Ok(Some(command))
    }
}

/// Describes the result of a command.
pub fn result_text(ended: &EndedJob<(Act, AgentName)>) -> String {
    let (act, name) = &ended.of;
    let lines = String::from_utf8_lossy(&ended.lines);
    let last = lines.lines().last().and_then(|line| json::value(line.as_bytes()).ok()).unwrap_or_default();
    let word = |field: &Value| field.as_str().map(str::to_owned);
    let of = |fields: &[&str]| fields.iter().filter_map(|field| word(&last[*field])).collect::<Vec<_>>();
    let error = &last["error"];
    let result = match (word(&error["message"]), ended.end) {
        (Some(message), _) => match word(&error["hint"]) {
            Some(hint) => format!("{message} ({hint})"),
            None => message,
        },
        (None, JobEnd::Exit(code)) => {
            let said = of(&["action", "decision", "reason", "terminal", "brief", "status"]).join(", ");
            match (said.is_empty(), code) {
                (false, _) => said,
                (true, 0) => "done".to_owned(),
                (true, code) => format!("exit status {code}"),
            }
        }
        (None, JobEnd::Signal(signal)) => format!("ended by signal {signal}"),
        (None, JobEnd::Unknown) => "ended".to_owned(),
    };
    format!("{} {name}: {result}", act.name())
}
