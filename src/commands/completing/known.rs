//! Completions of arguments: agents, and ids of records.

use crate::engine::lookup::LATEST;
use crate::engine::session::Session;
use crate::error::Result;
use crate::model::id::AgentName;
use crate::model::message::{Message, MessageStatus, Settlement};
use crate::model::record::OpenRecord;
use crate::model::state::State;
use crate::model::task::Task;
use crate::model::time::Time;
use crate::model::timer::Timer;
use crate::model::trigger::Trigger;
use crate::model::wait::Wait;
use crate::model::work::WorkItem;
use crate::store::{Agent, Snapshot};

/// Maximum number of agents for which ids are offered without a named agent; ids per agent.
const MOST_AGENTS: usize = 32;
const MOST_IDS: usize = 100;

/// Word that completes an argument, and its description.
type Candidate = (String, String);

/// Source of the completions of an argument.
#[derive(Clone, Copy)]
pub(super) enum Lookup {
    Agents,
    /// Ids of records of the named agents, or of all if there are at most `MOST_AGENTS`; `latest`.
    Ids(fn(&Search<'_, '_>) -> Result<Vec<Candidate>>),
}

impl Lookup {
    /// Returns the source of completions for an argument, if any. `path`: words of the command.
    pub fn of(path: &[&str], arg: &str) -> Option<Lookup> {
        use Lookup::{Agents, Ids};
        Some(match (path, arg) {
            (["create"], "agent") => return None,
            (_, "agent" | "agents" | "word" | "words" | "parent" | "delegate") => Agents,
            (["queue", "requeue"], "id") => {
                Ids(|search| search.ended(|end| end.status != MessageStatus::Processed))
            }
            (["queue", "drop"], "id") => Ids(|search| search.queued_and(|end| end.dead_letter)),
            (["queue", _], "id") => Ids(|search| search.queued_and(|_| true)),
            (["await"], "message") => Ids(|search| search.queued()),
            (["run", _], "id") => Ids(|search| search.runs()),
            (["task", "status" | "output"], "id") => Ids(|search| search.open_and_ended(task)),
            (["task", _], "id") => Ids(|search| search.open(task)),
            (["timer", _], "id") => Ids(|search| {
                search.open(|timer: Timer| {
                    (timer.id.to_string(), format!("{} {}", timer.next_at.local(), timer.text()))
                })
            }),
            (["trigger", _], "id") | (["wait" | "wake"], "trigger") => Ids(|search| {
                search.open(|trigger: Trigger| (trigger.id.to_string(), trigger.scope.to_string()))
            }),
            (["wait", _], "id") | (["enqueue" | "wake" | "ask"] | ["trigger", _], "wait") => Ids(|search| {
                search.open(|wait: Wait| (wait.id.to_string(), format!("{}: {}", wait.kind, wait.reason)))
            }),
            (["work", "show" | "plan"], "id") => Ids(|search| search.open_and_ended(work)),
            (["work", _], "id") | (_, "work_item") => Ids(|search| search.open(work)),
            _ => return None,
        })
    }

    /// Returns the completions that begin with the typed text. `named`: agents on the command line.
    pub fn beginning(self, session: &Session, named: Vec<AgentName>, typed: &str) -> Result<Vec<Candidate>> {
        let store = session.store()?;
        let Lookup::Ids(look) = self else {
            let names = store.agents_beginning(typed)?.into_iter();
            return Ok(names.map(|name| (name.to_string(), String::new())).collect());
        };
        let latest = LATEST.starts_with(typed).then(|| (LATEST.to_owned(), String::new()));
        let mut found: Vec<Candidate> = latest.into_iter().collect();
        let now = session.clock.now();
        let are_all = named.is_empty();
        let mut names = if are_all { store.agents()? } else { named };
        if are_all && names.len() > MOST_AGENTS {
            names.clear();
        }
        for name in names {
            let looked = |agent: Agent<'_>| {
                agent.read(|seen, state| look(&Search { seen: &seen, state: &state, typed, now }))
            };
            // An error of one agent must not hide the ids of the others.
            found.extend(store.agent(&name).and_then(looked).unwrap_or_default());
            if found.len() >= MOST_IDS {
                break;
            }
        }
        Ok(found)
    }
}

/// Search for ids that begin with `typed` in the records of one agent.
pub(super) struct Search<'a, 's> {
    seen: &'a Snapshot<'s>,
    state: &'a State,
    typed: &'a str,
    now: Time,
}

impl Search<'_, '_> {
    fn begun(&self, words: impl Iterator<Item = Candidate>) -> Vec<Candidate> {
        words.filter(|(word, _)| word.starts_with(self.typed)).take(MOST_IDS).collect()
    }

    /// Returns the first queued messages whose ids begin with the typed text. Reads no other files.
    fn queued(&self) -> Result<Vec<Candidate>> {
        let mut found = Vec::new();
        for waiting in self.seen.first(MOST_IDS)? {
            let id = waiting.key.id.to_string();
            if id.starts_with(self.typed)
                && let Some(Ok(message)) = self.seen.try_read(&waiting)?
            {
                found.push((id, message.body.to_text()));
            }
        }
        Ok(found)
    }

    /// Returns ended messages of this month and last month that `wanted` accepts, newest first.
    fn ended(&self, wanted: fn(&Settlement) -> bool) -> Result<Vec<Candidate>> {
        let wanted = |message: &Message| message.settlement.as_ref().is_some_and(wanted);
        let ended: Vec<Message> = self.seen.recent(self.now, MOST_IDS, wanted)?;
        let how = |end: &Settlement| if end.dead_letter { "dead letter" } else { end.status.name() };
        Ok(self.begun(ended.into_iter().map(|message| {
            let how = message.settlement.as_ref().map(how).unwrap_or_default();
            (message.id.to_string(), format!("{how}: {}", message.body.to_text()))
        })))
    }

    /// Returns the queued messages, and the recently ended messages that `wanted` accepts.
    fn queued_and(&self, wanted: fn(&Settlement) -> bool) -> Result<Vec<Candidate>> {
        Ok(self.queued()?.into_iter().chain(self.ended(wanted)?).collect())
    }

    fn runs(&self) -> Result<Vec<Candidate>> {
        let live = self.state.current_run.iter().map(|run| (run.run_id.to_string(), "running".to_owned()));
        let (settled, _) = self.seen.runs(MOST_IDS)?;
        let said = |text: Option<String>| text.map(|text| format!(": {text}")).unwrap_or_default();
        let settled = settled.into_iter().map(|run| {
            (run.id.to_string(), format!("{}{}", run.terminal.name(), said(run.brief.or(run.reason))))
        });
        Ok(self.begun(live.chain(settled)))
    }

    fn open<T: OpenRecord>(&self, candidate: fn(T) -> Candidate) -> Result<Vec<Candidate>> {
        Ok(self.begun(self.seen.open()?.into_iter().map(candidate)))
    }

    /// Returns ids of open and recently ended records of a kind that complete the typed text.
    fn open_and_ended<T: OpenRecord>(&self, candidate: fn(T) -> Candidate) -> Result<Vec<Candidate>> {
        let mut records = self.seen.open()?;
        records.extend(self.seen.recent(self.now, MOST_IDS, |_| true)?);
        Ok(self.begun(records.into_iter().map(candidate)))
    }
}

fn task(task: Task) -> Candidate {
    (task.id.to_string(), format!("{}: {}", task.status, task.purpose()))
}

fn work(item: WorkItem) -> Candidate {
    (item.id.to_string(), item.objective)
}
