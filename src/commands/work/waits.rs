//! Command `wait`: reasons for which an agent or a work item is blocked.

use serde_json::json;

use crate::cli::{self, WaitCommand};
use crate::commands::args::{
    answer, each_listed, ended_records, find_any, find_open, moment, open_id, optional_text, parse,
    read_record, requester, required_agent,
};
use crate::engine::authority;
use crate::engine::context::Context;
use crate::engine::lookup::{self, active_trigger, ended_task};
use crate::engine::session::Session;
use crate::error::{Result, Status};
use crate::model::action::WaitRequest;
use crate::model::trigger::Trigger;
use crate::model::wait::{Wait, WaitKind, WaitStatus};
use crate::model::work::WorkItem;
use crate::report::output::Tone;
use crate::report::text::one_line;
use crate::report::wait as shown_wait;
use crate::rules::transition::wait::{self, Set};
use crate::store::Store;

use super::{CHANGE, change};

pub fn wait(session: &Session, store: &Store, args: cli::WaitArgs) -> Result<Status> {
    match args.command {
        Some(WaitCommand::List { agents, state }) => {
            let states = wait_states(&state)?;
            each_listed(session, store, &agents, |context| list_waits(context, &states))
        }
        Some(WaitCommand::Show(wait)) => {
            let (agent, id) = find_any::<Wait>(store, &wait)?;
            say_wait(session, &read_record(&agent, id)?);
            Ok(Status::Done)
        }
        Some(WaitCommand::Cancel(wait)) => {
            let (agent, id) = find_open::<Wait>(store, &wait)?;
            change(Context::new(session, &agent), |draft| wait::cancel(draft, id))?;
            let object = json!({ "agent": agent.name(), "wait_id": id, "action": "cancelled" });
            answer(session, &object, |_| format!("cancelled {id}"))
        }
        None => set_wait(session, store, args),
    }
}

/// Returns the statuses that the arguments of `wait list --state` name.
fn wait_states(words: &[String]) -> Result<Vec<WaitStatus>> {
    let mut states = Vec::new();
    for word in words {
        match word.as_str() {
            "all" => states.extend_from_slice(WaitStatus::ALL),
            "ended" => states.extend(WaitStatus::ALL.iter().filter(|status| **status != WaitStatus::Active)),
            word => states.push(parse("--state", word)?),
        }
    }
    Ok(states)
}

/// Lists waits of the given statuses: ended waits first, each group oldest first.
fn list_waits(Context { session, agent }: Context<'_>, states: &[WaitStatus]) -> Result<Status> {
    let is_wanted = |wait: &Wait| states.contains(&wait.status);
    let waits = agent.read(|seen, _| {
        let has_ended = states.iter().any(|status| *status != WaitStatus::Active);
        let mut waits = if has_ended { ended_records::<Wait>(&seen)? } else { Vec::new() };
        waits.reverse();
        waits.extend(seen.open::<Wait>()?);
        waits.retain(is_wanted);
        Ok(waits)
    })?;
    waits.iter().for_each(|wait| say_wait(session, wait));
    Ok(Status::Done)
}

fn set_wait(session: &Session, store: &Store, args: cli::WaitArgs) -> Result<Status> {
    let agent = store.agent(&required_agent(&args.agent)?)?;
    let context = Context::new(session, &agent);
    let by = requester(context)?;
    let find = |part| lookup::open_or_archived::<WorkItem>(store, Some(agent.name().clone()), part);
    let work_item_id = args.work_item.as_deref().map(find).transpose()?.map(|(_, id)| id);
    let trigger_id = open_id::<Trigger>(&agent, args.trigger.as_deref())?;
    let time = |flag, word: Option<String>, past_ok| {
        word.map(|word| moment(flag, &word, by.since, past_ok)).transpose()
    };
    let new = WaitRequest {
        // clap ensures that the kind and the reason are given, so the defaults are unused.
        kind: args.on.unwrap_or(WaitKind::Operator),
        reason: optional_text("--reason", args.reason)?.unwrap_or_default(),
        options: args.options,
        resource: args.resource,
        work_item_id,
        whole_agent: args.whole_agent,
        within: args.within,
        at: time("--at", args.at, args.past_ok)?,
        past_ok: args.past_ok,
        recheck_after: args.recheck,
        recheck_at: time("--recheck-at", args.recheck_at, false)?,
        expires_after: args.expires,
        source: args.source,
        no_fallback: optional_text("--no-fallback", args.no_fallback)?,
        trigger_id,
    };
    let ended_task = ended_task(&agent, new.resource.as_deref())?;
    authority::reach_records(context, CHANGE)?;
    let open = context.open()?;
    // The trigger may have been revoked since it was looked up.
    let trigger = trigger_id.map(|id| active_trigger(&open.locked.records_snapshot(), id)).transpose()?;
    let Set { wait, replaces } = open.change(|draft| wait::set(draft, new, by, trigger, ended_task))?.made;
    if !wait.is_active() {
        session.out.note(&format!("{} is over already: its task had ended", wait.id));
    }
    if let Some(resource) = &wait.resource {
        for other in replaces.iter().filter(|other| other.resource.as_ref() == Some(resource)) {
            session.out.note(&format!("{} replaces {}, which waited for {resource}, too", wait.id, other.id));
        }
    }
    let mut object = shown_wait::object(&wait);
    if !replaces.is_empty() {
        object["replaces"] = replaces.iter().map(|other| json!(other.id)).collect();
    }
    answer(session, &object, |_| wait.id.to_string())
}

fn say_wait(session: &Session, wait: &Wait) {
    session.out.result(&shown_wait::object(wait), |out| {
        let owner = wait.work_item_id.map_or_else(|| "the agent".to_owned(), |id| id.to_string());
        let what = wait.resource.as_deref().map(|resource| format!(" {resource}")).unwrap_or_default();
        let ended = wait.ended_at.map(|at| {
            let cause = wait.cause.as_deref().map(|cause| format!(": {}", one_line(cause, 80)));
            format!("  {} {}{}", wait.status, at.local(), cause.unwrap_or_default())
        });
        format!(
            "{}  {}{}  of {owner}  {}{}",
            wait.id,
            out.paint(Tone::Strong, wait.kind.name()),
            out.safe(&what),
            out.safe(&one_line(&wait.reason, 80)),
            out.safe(&ended.unwrap_or_default())
        )
    });
}
