//! Candidates for arguments: agents, ids of records, fields, settings.

use std::ffi::OsString;

use clap::CommandFactory;
use clap::builder::Command;
use serde_json::Value;

use crate::cli::Cli;
use crate::engine::views::{self, ArchiveSearch};
use crate::error::Result;
use crate::model::id::AgentName;
use crate::model::message::{Message, MessageStatus, OriginKind, Settlement};
use crate::model::record::OpenRecord;
use crate::model::state::State;
use crate::model::task::{Task, TaskJob};
use crate::model::time::Time;
use crate::model::timer::Timer;
use crate::model::trigger::Trigger;
use crate::model::wait::Wait;
use crate::model::work::WorkItem;
use crate::model::zone;
use crate::process;
use crate::report::summary;
use crate::rules::admission::is_open_to_outside;
use crate::store::{Agent, Snapshot, Store};

use super::LineContext;

/// Limits for ids without a named agent: maximum number of agents, and of ids of each kind.
const MOST_AGENTS: usize = 32;
const MOST_IDS: usize = 100;

/// Word for the newest run in `run show`.
const LATEST: &str = "latest";

/// Candidate with its description.
type Candidate = (String, String);

/// Kind of value that an argument takes.
#[derive(Debug, Clone, Copy)]
pub enum ArgumentKind {
    Agents,
    Attention,
    /// Ended messages that can be requeued.
    Ended,
    /// Messages that can be dropped.
    Droppable,
    Fields,
    /// Messages, queued or ended.
    Messages,
    Origins,
    Pages,
    Profiles,
    Queued,
    Rejected,
    Runs,
    Signals,
    /// Tasks, open or ended.
    Tasks,
    TasksOpen,
    Timers,
    Triggers,
    Waits,
    /// Work items, open or completed.
    Works,
    WorksOpen,
    Zones,
}

impl ArgumentKind {
    /// Returns the kind of an argument, if there are candidates for it.
    pub fn of(path: &[&str], arg: &str) -> Option<ArgumentKind> {
        Some(match (path, arg) {
            (["create"], "agent") => return None,
            (_, "agent" | "agents" | "word" | "words" | "parent" | "delegate") => ArgumentKind::Agents,
            (["queue", "dead"], "ack") => ArgumentKind::Attention,
            (["queue", "rejected"], "accept" | "drop") => ArgumentKind::Rejected,
            (["queue", "requeue"], "id") => ArgumentKind::Ended,
            (["queue", "drop"], "id") => ArgumentKind::Droppable,
            (["queue", _], "id") => ArgumentKind::Messages,
            (["await"], "message") => ArgumentKind::Queued,
            (["run", _], "id") => ArgumentKind::Runs,
            (["task", "status" | "output"], "id") => ArgumentKind::Tasks,
            (["task", _], "id") | (["wait"], "resource") => ArgumentKind::TasksOpen,
            (["timer", "add"], "tz") => ArgumentKind::Zones,
            (["timer", _], "id") => ArgumentKind::Timers,
            (["trigger", _], "id") | (["wait" | "wake"], "trigger") => ArgumentKind::Triggers,
            (["wait", _], "id") | (["enqueue" | "wake" | "ask"] | ["trigger", _], "wait") => {
                ArgumentKind::Waits
            }
            (["work", "show" | "plan"], "id") => ArgumentKind::Works,
            (["work", _], "id") | (_, "work_item") => ArgumentKind::WorksOpen,
            (["get"], "field") => ArgumentKind::Fields,
            (["man"], "page") => ArgumentKind::Pages,
            (["create"], "profile") => ArgumentKind::Profiles,
            (["safe-point"], "signal") => ArgumentKind::Signals,
            (["enqueue" | "ask"], "origin") => ArgumentKind::Origins,
            _ => return None,
        })
    }

    /// Returns the candidates that begin with the typed text. `words` is the whole line, which
    /// names the directory and the agents.
    pub fn beginning(self, words: &[OsString], typed: &str) -> Result<Vec<Candidate>> {
        let begins = |word: &str| word.starts_with(typed);
        Ok(match self {
            ArgumentKind::Origins => {
                let open = OriginKind::ALL.iter().filter(|origin| is_open_to_outside(**origin));
                bare(open.map(|origin| origin.name()).filter(|name| begins(name)))
            }
            ArgumentKind::Pages => {
                let mut pages = Vec::new();
                add_pages(&Cli::command(), "", &mut pages);
                pages.retain(|(page, _)| begins(page));
                pages
            }
            ArgumentKind::Signals => {
                bare(process::SIGNALS.iter().map(|(name, _)| *name).filter(|name| begins(name)))
            }
            ArgumentKind::Zones => bare(zone::names().filter(|name| begins(name))),
            ArgumentKind::Agents => {
                let names = LineContext::of(words).session()?.store()?.agents_beginning(typed)?;
                bare(names.iter().map(AgentName::as_str))
            }
            ArgumentKind::Profiles => bare(
                LineContext::of(words).session()?.store()?.local().profiles().filter(|name| begins(name)),
            ),
            ArgumentKind::Fields => fields(&LineContext::of(words), typed)?,
            ArgumentKind::Attention
            | ArgumentKind::Ended
            | ArgumentKind::Droppable
            | ArgumentKind::Messages
            | ArgumentKind::Queued
            | ArgumentKind::Rejected
            | ArgumentKind::Runs
            | ArgumentKind::Tasks
            | ArgumentKind::TasksOpen
            | ArgumentKind::Timers
            | ArgumentKind::Triggers
            | ArgumentKind::Waits
            | ArgumentKind::Works
            | ArgumentKind::WorksOpen => self.ids(&LineContext::of(words), typed)?,
        })
    }

    /// Returns ids of the named agents, or of all agents if they are few.
    fn ids(self, line: &LineContext, typed: &str) -> Result<Vec<Candidate>> {
        let session = line.session()?;
        let store = session.store()?;
        let now = session.clock.now();
        let mut found: Vec<Candidate> = Vec::new();
        if let ArgumentKind::Runs = self {
            found.extend(Some((LATEST.to_owned(), String::new())).filter(|_| LATEST.starts_with(typed)));
        }
        for name in agents(&store, line)? {
            let looked =
                |agent: Agent<'_>| agent.look(|seen, state| self.of_agent(&seen, &state, typed, now));
            // An error of one agent must not hide the ids of the others.
            found.extend(store.agent(&name).and_then(looked).unwrap_or_default());
            if found.len() >= MOST_IDS {
                break;
            }
        }
        Ok(found)
    }

    /// Returns the ids of one agent.
    fn of_agent(self, seen: &Snapshot<'_>, state: &State, typed: &str, now: Time) -> Result<Vec<Candidate>> {
        let search = Search { seen, state, typed, now };
        Ok(match self {
            ArgumentKind::Attention => search.attention(),
            ArgumentKind::Queued => search.queued()?,
            ArgumentKind::Messages => search.queued()?.into_iter().chain(search.ended(|_| true)?).collect(),
            ArgumentKind::Droppable => {
                let dead = search.ended(|end| end.dead_letter)?;
                search.queued()?.into_iter().chain(dead).collect()
            }
            ArgumentKind::Ended => search.ended(|end| end.status != MessageStatus::Processed)?,
            ArgumentKind::Rejected => {
                let rejected = seen.rejected(state)?.into_iter();
                search.begun(rejected.map(|one| (one.name().into_owned(), one.reason.unwrap_or_default())))
            }
            ArgumentKind::Runs => search.runs()?,
            ArgumentKind::TasksOpen => search.begun(seen.open()?.into_iter().map(task)),
            ArgumentKind::Tasks => search.begun(search.open_and_ended()?.into_iter().map(task)),
            ArgumentKind::Timers => {
                let what = |timer: &Timer| format!("{} {}", timer.next_at.local(), timer.text());
                let timers = seen.open::<Timer>()?.into_iter();
                search.begun(timers.map(|timer| (timer.id.to_string(), what(&timer))))
            }
            ArgumentKind::Triggers => {
                let triggers = seen.open::<Trigger>()?.into_iter();
                search.begun(triggers.map(|trigger| (trigger.id.to_string(), trigger.scope.to_string())))
            }
            ArgumentKind::Waits => {
                let what = |wait: &Wait| format!("{}: {}", wait.kind, wait.reason);
                let waits = seen.open::<Wait>()?.into_iter();
                search.begun(waits.map(|wait| (wait.id.to_string(), what(&wait))))
            }
            ArgumentKind::WorksOpen => search.begun(seen.open()?.into_iter().map(work)),
            ArgumentKind::Works => search.begun(search.open_and_ended()?.into_iter().map(work)),
            ArgumentKind::Agents
            | ArgumentKind::Fields
            | ArgumentKind::Origins
            | ArgumentKind::Pages
            | ArgumentKind::Profiles
            | ArgumentKind::Signals
            | ArgumentKind::Zones => Vec::new(),
        })
    }
}

/// Lookup in the records of one agent.
struct Search<'a, 's> {
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

    /// Returns the queued messages. The file name has the id, so other messages are not read.
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

    /// Returns the messages that have ended recently, with their status.
    fn ended(&self, wanted: impl Fn(&Settlement) -> bool) -> Result<Vec<Candidate>> {
        let wanted = |message: &Message| message.settlement.as_ref().is_some_and(&wanted);
        let ended: Vec<Message> = self.seen.recent(self.now, MOST_IDS, wanted)?;
        let how = |end: &Settlement| if end.dead_letter { "dead letter" } else { end.status.name() };
        Ok(self.begun(ended.into_iter().map(|message| {
            let how = message.settlement.as_ref().map(how).unwrap_or_default();
            (message.id.to_string(), format!("{how}: {}", message.body.to_text()))
        })))
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

    /// Returns the open records of a kind, and those that have ended recently.
    fn open_and_ended<T: OpenRecord>(&self) -> Result<Vec<T>> {
        let mut records = self.seen.open()?;
        records.extend(self.seen.recent(self.now, MOST_IDS, |_| true)?);
        Ok(records)
    }
}

fn task(task: Task) -> Candidate {
    let what = task.summary.or_else(|| match task.job {
        TaskJob::Command { argv } => Some(argv.join(" ")),
        TaskJob::ChildAgent { child, .. } => Some(child.to_string()),
    });
    (task.id.to_string(), format!("{}: {}", task.status, what.unwrap_or_default()))
}

fn work(item: WorkItem) -> Candidate {
    (item.id.to_string(), item.objective)
}

fn bare<'a>(words: impl Iterator<Item = &'a str>) -> Vec<Candidate> {
    words.map(|word| (word.to_owned(), String::new())).collect()
}

/// Returns the named agents, or all agents if they are few.
fn agents(store: &Store, line: &LineContext) -> Result<Vec<AgentName>> {
    if !line.agents.is_empty() {
        return Ok(line.agents.clone());
    }
    let mut names = store.agents()?;
    if names.len() > MOST_AGENTS {
        names.clear();
    }
    Ok(names)
}

/// Adds the manual pages: one for each command.
fn add_pages(command: &Command, above: &str, pages: &mut Vec<Candidate>) {
    for child in command.get_subcommands().filter(|child| !child.is_hide_set()) {
        let page = format!("{above}{}", child.get_name());
        add_pages(child, &format!("{page}-"), pages);
        pages.push((page, child.get_about().map(ToString::to_string).unwrap_or_default()));
    }
}

/// Returns the fields of the agent's summary, with their present values.
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
