//! `queue`: queued and ended messages, and actions on dead letters.

use std::collections::HashSet;

use serde_json::{Value, json};

use crate::cli::QueueCommand;
use crate::commands::words::{agents_behind, optional_agent, several_agents};
use crate::engine::authority;
use crate::engine::context::Context;
use crate::engine::lookup::{self, ResolvedId, matches_id};
use crate::engine::session::{Chosen, Session};
use crate::error::{Error, Result, Status};
use crate::model::id::{AgentName, MessageId};
use crate::model::message::{Message, MessageStatus};
use crate::model::refusal::Refusal;
use crate::model::state::State;
use crate::report::output::{Output, Tone};
use crate::report::text::{one_line, relative};
use crate::rules::transition::draft::Draft;
use crate::rules::transition::inbox as rules;
use crate::rules::transition::resources::drop_held;
use crate::rules::transition::settlement::drop_message;
use crate::store::{Agent, Snapshot, Store};

mod rejected;

pub fn queue(session: &mut Session, command: QueueCommand) -> Result<Status> {
    let store = session.store()?;
    match command {
        QueueCommand::List { agents, limit } => {
            let chosen = several_agents(&store, &agents)?;
            session.each_chosen(&chosen, |session, name| list(session, &store, name, limit))
        }
        QueueCommand::Dead { agents, ack: None } => {
            let chosen = several_agents(&store, &agents)?;
            session.each_chosen(&chosen, |session, name| dead(session, &store, name))
        }
        QueueCommand::Dead { mut agents, ack: Some(mut words) } => {
            if agents.words.is_empty() && agents.agent.is_empty() && !agents.all {
                agents.words = agents_behind(&store, &mut words)?;
            }
            // The output names the agent already.
            let chosen = Chosen { are_told_apart: false, ..several_agents(&store, &agents)? };
            session.each_chosen(&chosen, |session, name| acknowledge(session, &store, name, &words))
        }
        QueueCommand::Rejected(args) => rejected::rejected(session, &store, args),
        QueueCommand::Show { id, agent } => {
            show(session, &store, lookup::message(&store, optional_agent(&agent)?, &id)?)
        }
        QueueCommand::Requeue { id, agent } => {
            let found = lookup::message(&store, optional_agent(&agent)?, &id)?;
            change(session, &store, found, "requeued", |draft, message, _| rules::requeue(draft, message))
        }
        QueueCommand::Drop { id, agent, reason } => {
            let found = lookup::message(&store, optional_agent(&agent)?, &id)?;
            let reason = reason.unwrap_or_else(|| "dropped by the operator".to_owned());
            change(session, &store, found, "dropped", move |draft, message, state| {
                drop(draft, message, state, &reason)
            })
        }
    }
}

/// Returns the status of a message in the inbox.
fn queued_status(state: &State, id: MessageId) -> MessageStatus {
    let claimed = state.current_run.as_ref().map(|run| run.message_id);
    let held = state.held.as_ref().map(|held| held.message_id);
    if claimed == Some(id) || held == Some(id) { MessageStatus::Dequeued } else { MessageStatus::Queued }
}

/// True if a message is held until the operator decides about it.
fn needs_operator(state: &State, id: MessageId) -> bool {
    state.held.as_ref().is_some_and(|held| held.needs_operator && held.message_id == id)
}

fn show_object(message: &Message, status: MessageStatus) -> Value {
    let mut object = json!(message);
    object["status"] = json!(status);
    object
}

fn list(session: &mut Session, store: &Store, name: &AgentName, limit: usize) -> Result<Status> {
    let limit = if limit == 0 { usize::MAX } else { limit };
    let agent = store.agent(name)?;
    let (messages, misfits, total) = agent.look(|seen, state| {
        let total = seen.keys()?.len();
        let (mut messages, mut misfits) = (Vec::new(), Vec::new());
        for waiting in seen.first(limit.min(total))? {
            match seen.try_read(&waiting)? {
                Some(Ok(message)) => {
                    let status = queued_status(&state, message.id);
                    let is_held = needs_operator(&state, message.id);
                    messages.push((message, status, is_held));
                }
                Some(Err(misfit)) => misfits.push(misfit),
                None => {}
            }
        }
        Ok((messages, misfits, total))
    })?;
    for (message, status, is_held) in &messages {
        let mut object = show_object(message, *status);
        if *is_held {
            object["needs_operator"] = json!(true);
        }
        session.out.result(&object, |out| line(message, *status, *is_held, out));
    }
    for misfit in &misfits {
        session.out.failure(&agent.damage(misfit), None, Some(name.as_str()));
    }
    if messages.len() + misfits.len() < total {
        session.out.note(&format!("{} of {total}; --limit 0 lists all", messages.len()));
    }
    Ok(if misfits.is_empty() { Status::Done } else { Status::Damaged })
}

fn line(message: &Message, status: MessageStatus, is_held: bool, out: &Output) -> String {
    let held = if is_held { ", held for the operator" } else { "" };
    let attempt = if message.attempt > 1 { format!(", attempt {}", message.attempt) } else { String::new() };
    format!(
        "{}  {}  {status}{held}{attempt}  {} from {}  {}",
        message.id,
        message.priority,
        message.kind,
        out.safe(&one_line(&message.origin.to_string(), 40)),
        out.safe(&one_line(&message.body.to_text(), 60)),
    )
}

/// Finds a message by its id: in the inbox, else its last line in the archive.
fn find(seen: &Snapshot<'_>, id: MessageId) -> Result<Option<Message>> {
    if let Some(waiting) = seen.waiting(id)? {
        return seen.read(&waiting);
    }
    seen.ended_message(id)
}

fn show(session: &mut Session, store: &Store, found: ResolvedId<MessageId>) -> Result<Status> {
    let (message, state) =
        store.agent(&found.agent)?.look(|seen, state| Ok((find(&seen, found.id)?, state)))?;
    let message = message.ok_or(Error::NoRecord { what: "message", id: found.id.to_string() })?;
    let status =
        message.settlement.as_ref().map_or_else(|| queued_status(&state, message.id), |ended| ended.status);
    let now = session.clock.now();
    let is_held = needs_operator(&state, message.id);
    session.out.result(&show_object(&message, status), |out| {
        let mut text = format!("{}\n", line(&message, status, is_held, out));
        text.push_str(&format!(
            "created {} ({})\n",
            message.created_at.local(),
            relative(message.created_at, now)
        ));
        for failure in &message.failures {
            let failed = out.paint(Tone::Bad, failure.terminal.name());
            text.push_str(&format!("attempt {} {failed}: {}\n", failure.attempt, out.safe(&failure.reason)));
        }
        if let Some(reason) = message.settlement.as_ref().and_then(|settlement| settlement.reason.as_ref()) {
            text.push_str(&format!("{status}: {}\n", out.safe(reason)));
        }
        text.push_str(&format!("\n{}\n", out.whole(&message.body.to_text())));
        text
    });
    Ok(Status::Done)
}

fn dead(session: &mut Session, store: &Store, name: &AgentName) -> Result<Status> {
    let (letters, mark) = store.agent(name)?.look(|seen, state| {
        let mark = state.attention;
        let mut letters = Vec::new();
        let mut known = HashSet::new();
        let wanted = usize::try_from(state.counters.dead).unwrap_or(usize::MAX);
        if wanted == 0 {
            return Ok((letters, mark));
        }
        // Only the newest line about a message counts. The search ends at the number of the dead
        // letter counter.
        seen.ended(|message: Message| {
            let is_dead = message.settlement.as_ref().is_some_and(|settlement| settlement.dead_letter);
            if known.insert(message.id) && is_dead {
                letters.push(message);
            }
            letters.len() < wanted
        })?;
        Ok((letters, mark))
    })?;
    for message in letters.iter().rev() {
        let end = message.settlement.as_ref();
        let is_new = end.zip(mark.as_ref()).is_some_and(|(end, mark)| mark.covers(message.id, end.at));
        let mut object = show_object(message, MessageStatus::Aborted);
        object["acknowledged"] = json!(!is_new);
        session.out.result(&object, |out| {
            let why = end.and_then(|end| end.reason.as_deref()).unwrap_or_default();
            let sign = if is_new { "! " } else { "" };
            format!(
                "{}\n    {sign}{}",
                line(message, MessageStatus::Aborted, false, out),
                out.paint(Tone::Bad, &out.safe(&one_line(why, 120)))
            )
        });
    }
    Ok(Status::Done)
}

/// Acknowledges all marks of an agent, or those that the words name.
fn acknowledge(session: &mut Session, store: &Store, name: &AgentName, words: &[String]) -> Result<Status> {
    let agent = store.agent(name)?;
    authority::reach(Context::new(session, &agent), "acknowledge for")?;
    let done = Context::new(session, &agent).change(|draft| {
        if words.is_empty() {
            return Ok(draft.acknowledge_all());
        }
        let mut seen = 0;
        for word in words {
            let count =
                draft.acknowledge(|attention| attention.about.ids().iter().any(|id| matches_id(id, word)));
            if count == 0 {
                return Err(not_to_look_at(store, word));
            }
            seen += count;
        }
        Ok(seen)
    })?;
    let (seen, left) = (done.made, done.state.attention.as_ref().map_or(0, |mark| mark.count));
    let object = json!({ "agent": name, "action": "acknowledged", "count": seen, "left": left });
    session.out.result(&object, |_| format!("{name}  acknowledged {seen}, {left} left"));
    Ok(Status::Done)
}

/// Error for a word that names nothing that needs attention.
fn not_to_look_at(store: &Store, word: &str) -> Error {
    match word.parse() {
        Ok(name) if store.agent(&name).is_ok() => {
            Error::usage(format!("no attention `{name}`: that is an agent"))
                .with_hint(format!("for all of it: `dormouse queue dead {name} --ack`"))
        }
        Ok(_) | Err(_) => Error::NoRecord { what: "attention", id: word.to_owned() },
    }
}

fn change(
    session: &mut Session,
    store: &Store,
    found: ResolvedId<MessageId>,
    done: &str,
    rule: impl FnOnce(&mut Draft, Message, &State) -> std::result::Result<(), Refusal>,
) -> Result<Status> {
    let agent: Agent<'_> = store.agent(&found.agent)?;
    authority::reach_records(Context::new(session, &agent), "settle messages of")?;
    let desk = Context::new(session, &agent);
    let locked = agent.change(session.clock.now())?;
    let state = locked.state()?;
    let message = find(&locked.look(&state)?, found.id)?
        .ok_or(Error::NoRecord { what: "message", id: found.id.to_string() })?;
    let mut draft = desk.draft_of(&locked.look_again(), state.clone())?;
    rule(&mut draft, message, &state)?;
    desk.commit(&locked, draft)?;
    std::mem::drop(locked);
    desk.tell();
    let object = json!({ "agent": found.agent, "message_id": found.id, "action": done });
    session.out.result(&object, |_| format!("{done} {}", found.id));
    Ok(Status::Done)
}

fn drop(
    draft: &mut Draft,
    message: Message,
    state: &State,
    reason: &str,
) -> std::result::Result<(), Refusal> {
    if message.settlement.is_some() {
        return rules::drop_dead_letter(draft, message, reason);
    }
    if state.held.as_ref().is_some_and(|held| held.message_id == message.id) {
        return drop_held(draft, message, reason);
    }
    if queued_status(state, message.id) == MessageStatus::Dequeued {
        let what = format!("{} is being worked on", message.id);
        return Err(Refusal::new("message_claimed", what).hint("`dormouse stop` ends its turn"));
    }
    drop_message(draft, message, reason);
    Ok(())
}
