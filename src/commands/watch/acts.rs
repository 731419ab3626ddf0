//! Keys of `watch` that act on agents, each by the command of the same name in a new process.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;

use serde_json::Value;

use crate::engine::session::Session;
use crate::engine::views::last_dead;
use crate::error::Result;
use crate::model::id::AgentName;
use crate::model::json;
use crate::process::jobs::FinishedJob;
use crate::store::Store;

/// Command that a key of the keyboard runs.
#[derive(Clone, Copy)]
pub struct Act {
    key: char,
    pub name: &'static str,
    /// Irreversible effect, for the question before the command runs; `None` asks no question.
    pub doubt: Option<&'static str>,
}

const REQUEUE: &str = "requeue";
const PREEMPT: &str = "preempt";

const ACTS: [Act; 6] = [
    Act { key: 't', name: "tick", doubt: None },
    Act { key: 's', name: "start", doubt: None },
    Act { key: 'S', name: "stop", doubt: Some("this ends its turn and its tasks") },
    Act { key: 'p', name: PREEMPT, doubt: Some("its turn is asked to yield, and ended if it does not") },
    Act { key: 'r', name: "recover", doubt: Some("an interrupted turn is given up, and a backoff ends") },
    Act { key: 'R', name: REQUEUE, doubt: Some("its last dead letter runs again") },
];

impl Act {
    pub fn of(key: char) -> Option<Act> {
        ACTS.into_iter().find(|act| act.key == key)
    }

    /// Returns the arguments of dormouse for this key; `None` if no dead letter can be requeued.
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
        if self.name == REQUEUE {
            let Some(id) = last_dead(&store.agent(agent)?)? else { return Ok(None) };
            say(&["queue", REQUEUE, &id.to_string(), "-a", agent.as_str()]);
        } else {
            say(&self.words(agent.as_str()));
        }
        Ok(Some(command))
    }

    /// Returns the command and its arguments for an agent.
    fn words(self, agent: &str) -> Vec<&str> {
        let mut words = vec![self.name, agent];
        if self.name == PREEMPT {
            words.extend(["--reason", "asked for in `dormouse watch`"]);
        }
        words
    }
}

/// Describes the result of a command that the user has run by a key of the keyboard.
pub fn result_text(ended: &FinishedJob<(Act, AgentName)>) -> String {
    let (act, name) = &ended.of;
    let lines = String::from_utf8_lossy(&ended.lines);
    let last = lines.lines().last().and_then(|line| json::value(line.as_bytes()).ok()).unwrap_or_default();
    let word = |field: &Value| field.as_str().map(str::to_owned);
    let of = |fields: &[&str]| fields.iter().filter_map(|field| word(&last[*field])).collect::<Vec<_>>();
    let error = &last["error"];
    let result = match (word(&error["message"]), ended.end.code()) {
        (Some(message), _) => match word(&error["hint"]) {
            Some(hint) => format!("{message} ({hint})"),
            None => message,
        },
        (None, Some(code)) => {
            let said = of(&["action", "decision", "reason", "terminal", "brief", "status"]).join(", ");
            match (said.is_empty(), code) {
                (false, _) => said,
                (true, 0) => "done".to_owned(),
                (true, code) => format!("exit status {code}"),
            }
        }
        (None, None) => format!("ended by signal {}", ended.end.signal().unwrap_or_default()),
    };
    format!("{} {name}: {result}", act.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::Parser;

    #[test]
    fn keys_run_commands_that_the_grammar_accepts() {
        for act in ACTS.into_iter().filter(|act| act.name != REQUEUE) {
            let line = [vec!["dormouse"], act.words("ada")].concat();
            assert!(Cli::try_parse_from(&line).is_ok(), "{line:?}");
        }
    }
}
