//! Command `queue`: queued and ended messages, dead letters, and quarantined files of the inbox.

use std::ffi::OsString;

use serde_json::json;

use crate::cli::{self, CommandGroup, QueueCommand, RecordArg};
use crate::commands::args::{
    answer, each_listed, message_object, optional_agent, optional_text, several_agents,
};
use crate::engine::authority;
use crate::engine::context::Context;
use crate::engine::lookup::{self, waiting_or_ended};
use crate::engine::session::{Chosen, Session};
use crate::engine::views::dead_letters;
use crate::error::{Error, Result, Status};
use crate::model::event::EventKind;
use crate::model::id::MessageId;
use crate::model::message::{Message, MessageStatus};
use crate::model::refusal::Refusal;
use crate::model::state::State;
use crate::report::output::{Output, Tone};
use crate::report::text::{one_line, present, relative};
use crate::rules::transition::draft::Draft;
use crate::rules::transition::inbox as rules;
use crate::rules::transition::inbox::{decided_about_all_rejected, decided_about_rejected};
use crate::rules::transition::resources::drop_held;
use crate::rules::transition::settlement::drop_message;
use crate::store::{Rejected, Store};

pub fn queue(session: &Session, store: &Store, args: CommandGroup<QueueCommand>) -> Result<Status> {
    let named = |message: &RecordArg, what| {
        lookup::message(store, optional_agent(&message.agent)?, what, &message.id)
    };
    match args.command {
        QueueCommand::List { agents, limit } => {
            each_listed(session, store, &agents, |context| list(context, limit))
        }
        QueueCommand::Dead { agents, ack: false } => each_listed(session, store, &agents, dead),
        QueueCommand::Dead { agents, ack: true } => {
            // Each output line already names its agent, so no separate label is printed.
            let chosen = Chosen { are_told_apart: false, ..several_agents(store, &agents)? };
            session.each_chosen(store, &chosen, acknowledge)
        }
        QueueCommand::Rejected(args) => rejected(session, store, args),
        QueueCommand::Show(message) => {
            let (agent, id) = named(&message, "message")?;
            show(Context::new(session, &agent), id)
        }
        QueueCommand::Requeue(message) => {
            let (agent, id) = named(&message, "dead letter")?;
            change(Context::new(session, &agent), id, "requeued", rules::requeue)
        }
        QueueCommand::Drop { message, reason } => {
            let (agent, id) = named(&message, "message")?;
            let reason =
                optional_text("--reason", reason)?.unwrap_or_else(|| "dropped by the operator".into());
            let rule = |draft: &mut Draft, message| drop_one(draft, message, &reason);
            change(Context::new(session, &agent), id, "dropped", rule)
        }
    }
}

/// Returns the status of a message in the inbox: dequeued if it is claimed, else queued.
fn queued_status(state: &State, id: MessageId) -> MessageStatus {
    if state.claimed_message() == Some(id) { MessageStatus::Dequeued } else { MessageStatus::Queued }
}

/// True if the message is held until the operator decides about it.
fn needs_operator(state: &State, id: MessageId) -> bool {
    state.held.as_ref().is_some_and(|held| held.needs_operator && held.message_id == id)
}

fn list(Context { session, agent }: Context<'_>, limit: usize) -> Result<Status> {
    let limit = if limit == 0 { usize::MAX } else { limit };
    let (messages, malformed, total, state) = agent.read(|seen, state| {
        let total = seen.keys()?.len();
        let (mut messages, mut malformed) = (Vec::new(), Vec::new());
        for waiting in seen.first(limit.min(total))? {
            match seen.try_read(&waiting)? {
                Some(Ok(message)) => messages.push(message),
                Some(Err(file)) => malformed.push(file),
                None => {}
            }
        }
        Ok((messages, malformed, total, state))
    })?;
    for message in &messages {
        let (status, is_held) = (queued_status(&state, message.id), needs_operator(&state, message.id));
        let mut object = message_object(message, status);
        if is_held {
            object["needs_operator"] = json!(true);
        }
        session.out.result(&object, |out| line(message, status, is_held, out));
    }
    for file in &malformed {
        session.out.failure(&agent.damage(file), None, Some(agent.name().as_str()));
    }
    if messages.len() + malformed.len() < total {
        session.out.note(&format!("{} of {total}; --limit 0 lists all", messages.len()));
    }
    Ok(if malformed.is_empty() { Status::Done } else { Status::Damaged })
}

fn line(message: &Message, status: MessageStatus, is_held: bool, out: &Output) -> String {
    let held = if is_held { ", held for the operator" } else { "" };
    let attempt = if message.attempt > 1 { format!(", attempt {}", message.attempt) } else { String::new() };
    format!(
        "{}  {}  {status}{held}{attempt}  {}  {}",
        message.id,
        message.priority,
        out.safe(&one_line(&message.described(), 40)),
        out.safe(&one_line(&message.body.to_text(), 60)),
    )
}

fn show(Context { session, agent }: Context<'_>, id: MessageId) -> Result<Status> {
    let (message, state) = agent.read(|seen, state| Ok((waiting_or_ended(&seen, id)?, state)))?;
    let message = message.ok_or(Error::NoRecord { what: "message", id: id.to_string() })?;
    let status =
        message.settlement.as_ref().map_or_else(|| queued_status(&state, message.id), |ended| ended.status);
    let now = session.clock.now();
    let is_held = needs_operator(&state, message.id);
    session.out.quote(&message_object(&message, status), |out| {
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

fn dead(Context { session, agent }: Context<'_>) -> Result<Status> {
    let (letters, mark) =
        agent.read(|seen, state| Ok((dead_letters(&seen, &state, u64::MAX)?, state.attention)))?;
    for message in letters.iter().rev() {
        let end = message.settlement.as_ref();
        let is_new = end.zip(mark.as_ref()).is_some_and(|(end, mark)| mark.covers(message.id, end.at));
        let mut object = message_object(message, MessageStatus::Aborted);
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

/// Acknowledges all reasons for attention of an agent.
fn acknowledge(context: Context<'_>) -> Result<Status> {
    let Context { session, agent } = context;
    authority::reach(context, "acknowledge for")?;
    let done = context.change(|draft| Ok::<_, Refusal>(draft.acknowledge_all()))?;
    let object = json!({ "agent": agent.name(), "action": "acknowledged", "count": done.made });
    answer(session, &object, |_| format!("{}  acknowledged {}", agent.name(), done.made))
}

fn change(
    context: Context<'_>,
    id: MessageId,
    done: &str,
    rule: impl FnOnce(&mut Draft, Message) -> Result<(), Refusal>,
) -> Result<Status> {
    let Context { session, agent } = context;
    authority::reach_records(context, "settle messages of")?;
    let locked = agent.change(session.clock.now())?;
    let state = locked.state()?;
    let message = waiting_or_ended(&locked.snapshot(&state)?, id)?
        .ok_or(Error::NoRecord { what: "message", id: id.to_string() })?;
    let mut draft = context.draft_of(&locked.current_snapshot(), state)?;
    rule(&mut draft, message)?;
    context.commit(&locked, draft)?;
    drop(locked);
    context.notify();
    let object = json!({ "agent": agent.name(), "message_id": id, "action": done });
    answer(session, &object, |_| format!("{done} {id}"))
}

fn drop_one(draft: &mut Draft, message: Message, reason: &str) -> Result<(), Refusal> {
    if message.settlement.is_some() {
        return rules::drop_dead_letter(draft, message, reason);
    }
    let state = &draft.records.state;
    if state.held.as_ref().is_some_and(|held| held.message_id == message.id) {
        return drop_held(draft, message, reason);
    }
    if state.claimed_message() == Some(message.id) {
        let what = format!("{} is being worked on", message.id);
        return Err(Refusal::new("message_claimed", what).hint("`dormouse stop` ends its turn"));
    }
    drop_message(draft, message, reason);
    Ok(())
}

/// Maximum number of quarantined files that one transaction handles.
const TOGETHER: usize = 256;

fn rejected(session: &Session, store: &Store, mut args: cli::RejectedArgs) -> Result<Status> {
    let (event, flag, named) = match (args.accept.take(), args.drop.take()) {
        (Some(named), _) => (EventKind::RejectedAccepted, "accept", named),
        (None, Some(named)) => (EventKind::RejectedRemoved, "drop", named),
        (None, None) => return each_listed(session, store, &args.agents, list_rejected),
    };
    let all = std::mem::take(&mut args.agents.all);
    let chosen = several_agents(store, &args.agents)?;
    let ([name], false) = (&chosen.names[..], chosen.are_all) else {
        return Err(Error::usage("which agent?").with_hint("this is for one agent at a time"));
    };
    let agent = store.agent(name)?;
    if named.is_empty() != all {
        let said = if all { "names files, and --all as well" } else { "which files?" };
        return Err(Error::usage(format!("--{flag}: {said}"))
            .with_hint("name the files as `dormouse queue rejected` lists them, or say --all"));
    }
    decide(Context::new(session, &agent), event, &named)
}

fn list_rejected(Context { session, agent }: Context<'_>) -> Result<Status> {
    for entry in agent.read(|seen, state| seen.rejected(&state))? {
        let file = entry.name();
        let object = json!({
            "agent": agent.name(), "path": file, "at": entry.at, "size": entry.size, "stays": entry.stays,
            "reason": entry.reason,
        });
        session.out.result(&present(object), |out| {
            let reason = entry.reason.as_deref().unwrap_or("nothing says why");
            let stays = if entry.stays { ", stays in inbox/" } else { "" };
            format!(
                "{}  {}, {} bytes{stays}\n    {}",
                out.safe(&file),
                entry.at,
                entry.size,
                out.paint(Tone::Bad, &out.safe(&one_line(reason, 200)))
            )
        });
    }
    Ok(Status::Done)
}

/// Accepts or drops the quarantined files that `named` lists, or all if `named` is empty. `event`:
/// kind of the event that records the decision.
fn decide(context: Context<'_>, event: EventKind, named: &[OsString]) -> Result<Status> {
    let agent = context.agent;
    authority::reach(context, "decide about the files of")?;
    let chosen = agent.read(|seen, state| {
        let all = seen.rejected(&state)?;
        if named.is_empty() { Ok(all) } else { choose(&all, named) }
    })?;
    let is_accepted = event == EventKind::RejectedAccepted;
    let mut status = Status::Done;
    for some in chosen.chunks(TOGETHER) {
        let mut said = Vec::with_capacity(some.len());
        let mut open = context.open()?;
        for entry in some {
            let done = if is_accepted {
                // The next step reads the file in the inbox as it reads a new one.
                agent.local().bring_back(entry)
            } else {
                agent.local().remove_rejected(entry).map(|()| true)
            };
            if let Ok(true) = done {
                decided_about_rejected(&mut open.draft, event, &entry.name());
                agent.local().forget_rejected(&mut open.draft.records.state, &entry.name());
            }
            said.push((entry, done));
        }
        if open.locked.records_snapshot().is_none_rejected(&open.draft.records.state)? {
            decided_about_all_rejected(&mut open.draft);
        }
        open.commit()?;
        for (entry, done) in said {
            status = status.graver(report_decision(context, entry, is_accepted, done));
        }
    }
    Ok(status)
}

/// Returns the quarantined files with the names in `named`. Error if one of them does not exist.
fn choose(all: &[Rejected], named: &[OsString]) -> Result<Vec<Rejected>> {
    let find = |named: &OsString| {
        let named = named.to_string_lossy();
        let found = all.iter().find(|entry| entry.name() == named).cloned();
        found.ok_or_else(|| Error::NoRecord { what: "rejected file", id: named.into_owned() })
    };
    named.iter().map(find).collect()
}

fn report_decision(
    Context { session, agent }: Context<'_>,
    entry: &Rejected,
    is_accepted: bool,
    done: Result<bool>,
) -> Status {
    let file = entry.name();
    let word = match done {
        Ok(true) if is_accepted => "accepted",
        Ok(true) => "dropped",
        Ok(false) => "gone",
        Err(error) => {
            session.out.failure(&error, None, Some(agent.name().as_str()));
            return error.exit_status();
        }
    };
    let object = json!({ "agent": agent.name(), "path": file, "action": word });
    session.out.result(&object, |out| format!("{word} {}", out.safe(&file)));
    Status::Done
}
