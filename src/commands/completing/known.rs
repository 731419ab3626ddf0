//! Completions of arguments: agents, ids of records, fields, settings.

use clap::CommandFactory;
use clap::builder::Command;
use serde_json::Value;

use crate::cli::Cli;
use crate::engine::lookup::LATEST;
use crate::engine::views::{self, ArchiveSearch};
use crate::error::Result;
use crate::model::id::AgentName;
use crate::model::message::{Message, MessageStatus, OriginKind, Settlement};
use crate::model::record::OpenRecord;
use crate::model::state::State;
use crate::model::task::Task;
use crate::model::time::Time;
use crate::model::timer::Timer;
use crate::model::trigger::Trigger;
use crate::model::wait::Wait;
use crate::model::work::WorkItem;
use crate::model::zone;
use crate::process;
use crate::report::summary;
use crate::rules::admission::is_open_to_outside;
use crate::store::{Agent, Rejected, Snapshot};

use super::LineContext;

/// Maximum number of agents, if the command line names none, and of ids per agent that are offered.
const MOST_AGENTS: usize = 32;
const MOST_IDS: usize = 100;

/// Word that completes an argument, and its description.
type Candidate = (String, String);

/// Source of the completions of an argument.
#[derive(Clone, Copy)]
pub(super) enum Lookup {
    /// Words that depend only on the state directory and the agents on the command line.
    Words(fn(&LineContext, &str) -> Result<Vec<Candidate>>),
    /// Words in the records of the named agents, or of all agents if they are few.
    Records(fn(&Search<'_, '_>) -> Result<Vec<Candidate>>),
    /// Ids in the records of the named agents, or of all agents if they are few; and `latest`.
    Ids(fn(&Search<'_, '_>) -> Result<Vec<Candidate>>),
}

impl Lookup {
    /// Returns the source of completions for an argument, if any. `path`: words of the command.
    pub fn of(path: &[&str], arg: &str) -> Option<Lookup> {
        use Lookup::{Ids, Records, Words};
        Some(match (path, arg) {
            (["create"], "agent") => return None,
            (_, "agent" | "agents" | "word" | "words" | "parent" | "delegate") => Words(|line, typed| {
                let names = line.session()?.store()?.agents_beginning(typed)?;
                Ok(bare(names.iter().map(AgentName::as_str), typed))
            }),
            (["queue", "dead"], "ack") => Records(|search| Ok(search.attention())),
            (["queue", "rejected"], "accept" | "drop") => Records(|search| {
                let rejected = search.seen.rejected(search.state)?.into_iter();
                let candidate = |one: Rejected| (one.name().into_owned(), one.reason.unwrap_or_default());
                Ok(search.begun(rejected.map(candidate)))
            }),
            (["queue", "requeue"], "id") => {
                Ids(|search| search.ended(|end| end.status != MessageStatus::Processed))
            }
            (["queue", "drop"], "id") => Ids(|search| search.queued_and(|end| end.dead_letter)),
            (["queue", _], "id") => Ids(|search| search.queued_and(|_| true)),
            (["await"], "message") => Ids(|search| search.queued()),
            (["run", _], "id") => Ids(|search| search.runs()),
            (["task", "status" | "output"], "id") => Ids(|search| search.open_and_ended(task)),
            (["task", _], "id") => Ids(|search| search.open(task)),
            (["wait"], "resource") => Records(|search| search.open(task)),
            (["timer", "add"], "tz") => Words(|_, typed| Ok(bare(zone::names(), typed))),
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
            (["get"], "field") => Words(fields),
            (["man"], "page") => Words(|_, typed| {
                let mut pages = Vec::new();
                add_pages(&Cli::command(), "", &mut pages);
                pages.retain(|(page, _)| page.starts_with(typed));
                Ok(pages)
            }),
            (["create"], "profile") => {
                Words(|line, typed| Ok(bare(line.session()?.store()?.local().profiles(), typed)))
            }
            (["safe-point"], "signal") => {
                Words(|_, typed| Ok(bare(process::SIGNALS.iter().map(|(name, _)| *name), typed)))
            }
            (["enqueue" | "ask"], "origin") => Words(|_, typed| {
                let open = OriginKind::ALL.iter().filter(|origin| is_open_to_outside(**origin));
                Ok(bare(open.map(|origin| origin.name()), typed))
            }),
            _ => return None,
        })
    }

    /// Returns the completions that begin with the typed text.
    pub fn beginning(self, line: &LineContext, typed: &str) -> Result<Vec<Candidate>> {
        let mut found = Vec::new();
        let look = match self {
            Lookup::Words(words) => return words(line, typed),
            Lookup::Records(look) => look,
            Lookup::Ids(look) => {
                found = bare([LATEST].into_iter(), typed);
                look
            }
        };
        let session = line.session()?;
        let store = session.store()?;
        let now = session.clock.now();
        let mut names = if line.agents.is_empty() { store.agents()? } else { line.agents.clone() };
        if line.agents.is_empty() && names.len() > MOST_AGENTS {
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

/// Search for words that begin with `typed` in the records of one agent.
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

    fn attention(&self) -> Vec<Candidate> {
        let newest = self.state.attention.iter().flat_map(|mark| &mark.newest);
        self.begun(newest.filter_map(|one| {
            let id = one.about.ids().into_iter().next()?;
            Some((id, format!("{}: {}", one.subject.words(), one.reason)))
        }))
    }

    /// Returns the queued messages by the ids in their file names, without reading other files.
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

    /// Returns recently ended messages with their status.
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

/// Returns the words that begin with `typed`, without descriptions.
fn bare(words: impl Iterator<Item: Into<String>>, typed: &str) -> Vec<Candidate> {
    let words = words.map(Into::<String>::into).filter(|word| word.starts_with(typed));
    words.map(|word| (word, String::new())).collect()
}

/// Adds the names of the manual pages: one page for each command.
fn add_pages(command: &Command, above: &str, pages: &mut Vec<Candidate>) {
    for child in command.get_subcommands().filter(|child| !child.is_hide_set()) {
        let page = format!("{above}{}", child.get_name());
        add_pages(child, &format!("{page}-"), pages);
        pages.push((page, child.get_about().map(ToString::to_string).unwrap_or_default()));
    }
}

/// Returns the fields of an agent's summary that `get` can show, with their current values.
fn fields(line: &LineContext, typed: &str) -> Result<Vec<Candidate>> {
    let Some(name) = line.agents.first() else { return Ok(Vec::new()) };
    let session = line.session()?;
    let store = session.store()?;
    let agent = store.agent(name)?;
    let facts = views::facts(&agent, session.clock.now(), ArchiveSearch::Counted, false)?;
    let mut found = Vec::new();
    add_fields(&summary::summary(&facts), "", &mut found);
    found.retain(|(path, _)| path.starts_with(typed));
    Ok(found)
}

fn add_fields(value: &Value, above: &str, found: &mut Vec<Candidate>) {
    for (name, field) in value.as_object().into_iter().flatten() {
        let path = format!("{above}{name}");
        let what = match field {
            Value::Object(_) | Value::Array(_) | Value::Null => String::new(),
            Value::Bool(_) | Value::Number(_) | Value::String(_) => summary::for_people(name, field),
        };
        found.push((path.clone(), what));
        add_fields(field, &format!("{path}."), found);
    }
}
