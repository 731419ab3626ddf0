//! Lookup of a record by a part of its id, in one agent or in all, and checks of ids in messages.

use crate::error::{Error, Result, list_of};
use crate::model::continuation::TriggerKind;
use crate::model::id::{AgentName, MessageId, RunId, TaskId, TriggerId, WaitId, WorkId};
use crate::model::message::{Message, Settlement};
use crate::model::record::{OpenRecord, Plane};
use crate::model::state::State;
use crate::model::task::Task;
use crate::model::trigger::Trigger;
use crate::model::wait::Wait;
use crate::model::work::WorkItem;
use crate::rules::authority::may_name;
use crate::store::{Agent, Snapshot, Store};

use super::load;

/// Word for the newest record, which a user can write in place of an id.
pub const LATEST: &str = "latest";

/// Returns the agent and the only id that contains `part`, among the ids that `ids` lists for an
/// agent, or the newest id for [`LATEST`]. Accepts agent and id in the wrong order.
fn find<'s, Id: std::fmt::Display + Ord + Copy>(
    store: &'s Store,
    agent: Option<AgentName>,
    what: &'static str,
    part: &str,
    ids: impl Fn(&Agent<'_>) -> Result<Vec<Id>>,
) -> Result<(Agent<'s>, Id)> {
    let of_agent = |(name, id): (AgentName, Id)| Ok((store.agent(&name)?, id));
    let wrong = match find_in(store, agent.as_ref(), what, part, &ids) {
        Err(error @ (Error::Usage { .. } | Error::NoRecord { .. } | Error::NoAgent { .. })) => error,
        found => return found.and_then(of_agent),
    };
    let is_agent = |name: &AgentName| store.agent(name).is_ok();
    let Some(meant) = part.parse().ok().filter(is_agent) else { return Err(wrong) };
    let of = match agent {
        Some(other) if !is_agent(&other) => {
            return find_in(store, Some(&meant), what, other.as_str(), &ids).and_then(of_agent);
        }
        Some(agent) => agent,
        None => meant,
    };
    let list = list_of(what).unwrap_or_default();
    Err(Error::usage(format!("no {what} `{part}`: that is an agent"))
        .with_hint(format!("`dormouse {list} {of}` shows the ids")))
}

fn find_in<Id: std::fmt::Display + Ord + Copy>(
    store: &Store,
    agent: Option<&AgentName>,
    what: &'static str,
    part: &str,
    ids: &impl Fn(&Agent<'_>) -> Result<Vec<Id>>,
) -> Result<(AgentName, Id)> {
    if part.len() < 4 {
        let message =
            format!("`{part}` is too short for an id: give at least four digits of it, or `latest`");
        return Err(Error::usage(message));
    }
    let names = match agent {
        Some(name) => vec![name.clone()],
        None => store.agents()?,
    };
    let mut found: Vec<(AgentName, Id)> = Vec::new();
    for name in names {
        let mut matching: Vec<Id> = match store.agent(&name).and_then(|agent| ids(&agent)) {
            Err(error) if agent.is_none() && error.has_left() => continue,
            listed => listed?,
        };
        matching.retain(|id| part == LATEST || matches_id(&id.to_string(), part));
        matching.sort();
        matching.dedup();
        found.extend(matching.into_iter().map(|id| (name.clone(), id)));
    }
    if part == LATEST {
        let newest = found.into_iter().max_by_key(|(_, id)| *id);
        return newest.ok_or(Error::NoRecord { what, id: part.to_owned() });
    }
    match found.len() {
        0 => Err(Error::NoRecord { what, id: part.to_owned() }),
        1 => Ok(found.remove(0)),
        several => {
            let some: Vec<String> = found.iter().take(5).map(|(_, id)| id.to_string()).collect();
            let message = format!("`{part}` could be any of {several}: {}", some.join(", "));
            Err(Error::refused("ambiguous_id", message).with_hint("give more of the id"))
        }
    }
}

/// Opens an agent. Returns `None` if the agent does not exist.
pub fn existing<'s>(store: &'s Store, name: &AgentName) -> Result<Option<Agent<'s>>> {
    match store.agent(name) {
        Ok(agent) => Ok(Some(agent)),
        Err(Error::NoAgent { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the settlement (end) of a message, if it has ended and is not in the inbox again.
pub fn settled(agent: &Agent<'_>, id: MessageId) -> Result<Option<Settlement>> {
    agent.read(|seen, _| {
        if seen.waiting(id)?.is_some() {
            return Ok(None);
        }
        Ok(seen.ended_one::<Message>(id)?.and_then(|message| message.settlement))
    })
}

/// Returns a message by its id: from the inbox, else its newest version in the archive.
pub fn waiting_or_ended(seen: &Snapshot<'_>, id: MessageId) -> Result<Option<Message>> {
    if let Some(waiting) = seen.waiting(id)? {
        return seen.read(&waiting);
    }
    seen.ended_one::<Message>(id)
}

/// Looks up a message by `part` of its id. Returns its agent and its id. `what`: noun in errors.
pub fn message<'s>(
    store: &'s Store,
    agent: Option<AgentName>,
    what: &'static str,
    part: &str,
) -> Result<(Agent<'s>, MessageId)> {
    find(store, agent, what, part, |agent| {
        agent.read(|seen, _| {
            let mut ids: Vec<MessageId> = seen.keys()?.into_iter().map(|key| key.id).collect();
            if let Ok(id) = part.parse::<MessageId>() {
                ids.retain(|other| *other == id);
                if ids.is_empty() {
                    ids.extend(seen.ended_one::<Message>(id)?.map(|message| message.id));
                }
                return Ok(ids);
            }
            seen.ended(|message: Message| {
                ids.push(message.id);
                true
            })?;
            Ok(ids)
        })
    })
}

/// Looks up a record of type `T` that has not ended, by `part` of its id.
pub fn open<'s, T: OpenRecord>(
    store: &'s Store,
    agent: Option<AgentName>,
    part: &str,
) -> Result<(Agent<'s>, T::Id)> {
    find(store, agent, nouns::<T>().1, part, |agent| agent.read(|seen, _| seen.open_ids::<T>()))
}

/// Looks up a record of type `T`, ended or not, by `part` of its id.
pub fn open_or_archived<'s, T: OpenRecord>(
    store: &'s Store,
    agent: Option<AgentName>,
    part: &str,
) -> Result<(Agent<'s>, T::Id)> {
    find(store, agent, nouns::<T>().0, part, |agent| {
        agent.read(|seen, _| {
            let mut ids = seen.open_ids::<T>()?;
            // Users mostly mean an open record, so ended ones are read only if none matches.
            if !ids.iter().any(|id| matches_id(&id.to_string(), part)) {
                seen.ended(|record: T| {
                    ids.push(record.id());
                    true
                })?;
            }
            Ok(ids)
        })
    })
}

/// Looks up a run, live or settled, by `part` of its id.
pub fn run<'s>(store: &'s Store, agent: Option<AgentName>, part: &str) -> Result<(Agent<'s>, RunId)> {
    find(store, agent, "run", part, |agent| {
        agent.read(|seen, state| {
            let live = state.current_run.map(|run| run.run_id);
            if let Ok(id) = part.parse::<RunId>() {
                let is_known = live == Some(id) || seen.is_run(id)?;
                return Ok(is_known.then_some(id).into_iter().collect());
            }
            if part == LATEST {
                return Ok(live.or(state.last_turn.map(|turn| turn.run_id)).into_iter().collect());
            }
            let mut ids = seen.run_ids()?;
            ids.extend(live);
            Ok(ids)
        })
    })
}

/// True if `part` has at least four digits and the id contains it; its prefix may be left out.
pub fn matches_id(id: &str, part: &str) -> bool {
    let (prefix, digits) = id.split_at(id.find('_').map_or(0, |at| at + 1));
    let part = part.strip_prefix(prefix).unwrap_or(part);
    part.len() >= 4 && digits.contains(part)
}

/// Returns the ended task whose id is `resource`. Its `result_id` is kept only if the result
/// message is in the inbox and no step has claimed it, because a claimed message ends no new wait.
pub fn ended_task(agent: &Agent<'_>, resource: Option<&str>) -> Result<Option<Task>> {
    let Some(id) = resource.and_then(|word| word.parse::<TaskId>().ok()) else { return Ok(None) };
    agent.read(|seen, state| {
        if seen.is_open::<Task>(id)? {
            return Ok(None);
        }
        let Some(task) = seen.ended_one::<Task>(id)? else {
            return Ok(None);
        };
        let result_id = match load::result_under_way(&seen, id, task.result_id)? {
            Some(result) if is_claimed(&seen, &state, result)? => None,
            result => result,
        };
        Ok(Some(Task { result_id, ..task }))
    })
}

/// True if a step has taken up a message that is still in the inbox.
fn is_claimed(seen: &Snapshot<'_>, state: &State, id: MessageId) -> Result<bool> {
    if state.claimed_message() == Some(id) {
        return Ok(true);
    }
    let Some(waiting) = seen.waiting(id)? else { return Ok(false) };
    // A step stores the continuation in a message's file when it takes up the message.
    let Some(Ok(message)) = seen.try_read(&waiting)? else { return Ok(false) };
    Ok(message.continuation.is_some())
}

/// Error when a message names a work item or wait that is missing or has ended, or an operator wait
/// that it can't answer. `trigger`: trigger kind of the message; `None` for a wake hint.
pub fn check_named(
    seen: &Snapshot<'_>,
    (work, wait): (Option<WorkId>, Option<WaitId>),
    trigger: Option<TriggerKind>,
) -> Result<()> {
    if let Some(id) = work
        && !seen.is_open::<WorkItem>(id)?
    {
        return Err(Error::NoRecord { what: nouns::<WorkItem>().1, id: id.to_string() });
    }
    let Some(id) = wait else { return Ok(()) };
    match seen.open_one::<Wait>(id)? {
        Some(wait) => Ok(may_name(&wait, trigger)?),
        None => Err(Error::NoRecord { what: nouns::<Wait>().1, id: id.to_string() }),
    }
}

/// Returns the nouns for errors about a record of type `T`, and about one that has not ended.
pub const fn nouns<T: OpenRecord>() -> (&'static str, &'static str) {
    match T::PLANE {
        Plane::Work => ("work item", "open work item"),
        Plane::Waits => ("wait", "active wait"),
        Plane::Timers => ("timer", "active timer"),
        Plane::Tasks => ("task", "open task"),
        Plane::Triggers => ("trigger", "active trigger"),
        Plane::Outbox => ("message", "undelivered message"),
    }
}

/// Returns a trigger. Error when it does not exist or is not active.
pub fn active_trigger(seen: &Snapshot<'_>, id: TriggerId) -> Result<Trigger> {
    let found = seen.open_one::<Trigger>(id)?.filter(Trigger::is_active);
    found.ok_or_else(|| Error::NoRecord { what: nouns::<Trigger>().1, id: id.to_string() })
}
