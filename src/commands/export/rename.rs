//! Command `rename`: gives an agent another name (contract, command line §2).
//!
//! One call renames the agent's directory, or its row in a database. Before that the agent is
//! marked as moved, and it keeps the mark until other agents are updated: no command changes the
//! agent, and no step runs. After an interruption, a repeated `rename` continues. The records keep
//! the former name in storage; a reader gets them with the new name.

use std::time::Duration;

use serde::Serialize;

use crate::cli;
use crate::engine::authority::{self, refuse_from_inside};
use crate::engine::context::Context;
use crate::engine::lookup::existing;
use crate::engine::session::Session;
use crate::error::{Error, Result, Status};
use crate::model::agent::FormerName;
use crate::model::id::AgentName;
use crate::model::moved::{Leave, Moved};
use crate::model::record::is_default;
use crate::model::state::State;
use crate::model::trigger::{Trigger, TriggerStatus};
use crate::report::text::count;
use crate::rules::authority as rights;
use crate::rules::transition::moved;
use crate::store::{Agent, AgentTxn, Store, moved_away};

use super::{MoveRequest, about_to_leave, change_moved};

/// Result of `rename`.
#[derive(Debug, Serialize)]
struct RenameReport {
    agent: AgentName,
    former_name: AgentName,
    /// Agents whose parent is the renamed agent.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    children: Vec<AgentName>,
    /// Number of active triggers with deliveries. Their URLs change with the name of the agent.
    #[serde(skip_serializing_if = "is_default")]
    triggers: usize,
}

/// Former and new name of the agent that is renamed.
struct NamePair {
    former: AgentName,
    name: AgentName,
}

pub fn rename(session: &Session, args: cli::RenameArgs) -> Result<Status> {
    let store = session.store()?;
    let names = NamePair { former: args.agent, name: args.new };
    if names.former == names.name {
        return Err(Error::in_word("NEW", format!("`{}` is its name already", names.name)));
    }
    session.is_about(&names.former);
    let mark = match begun(&store, &names)? {
        Some(mark) => {
            refuse_to_others(session, &store.agent(&names.name)?)?;
            mark
        }
        None => {
            let agent = store.agent(&names.former)?;
            refuse_to_others(session, &agent)?;
            begin(session, &agent, &names)?
        }
    };
    let report = finish(session, &store, &names, &mark)?;
    session.out.result(&report, |_| format!("{}  is {} now", report.former_name, report.agent));
    say_what_follows(session, &report);
    Ok(Status::Done)
}

fn refuse_to_others(session: &Session, agent: &Agent<'_>) -> Result<()> {
    refuse_from_inside(Context::new(session, agent), "rename")?;
    authority::reach(Context::new(session, agent), "rename")
}

/// Returns the `moved` mark of an agent that has its new name, if its rename is incomplete.
fn begun(store: &Store, names: &NamePair) -> Result<Option<Moved>> {
    let Some(agent) = existing(store, &names.name)? else { return Ok(None) };
    let Some(mark) = agent.peek()?.moved else { return Ok(None) };
    let had = agent.identity()?.former_names.pop();
    let is_ours = mark.by == Leave::Rename
        && mark.to == names.name.as_str()
        && had.is_some_and(|had| had.name == names.former && had.until == mark.at);
    Ok(is_ours.then_some(mark))
}

/// Marks and renames the agent. Removes the mark on failure.
fn begin(session: &Session, agent: &Agent<'_>, names: &NamePair) -> Result<Moved> {
    let locked = agent.change(session.clock.now())?;
    let state = locked.any_state()?;
    let mut identity = agent.identity()?;
    // A move, or a rename that has changed the name but is incomplete, excludes another rename.
    let is_named = state.agent == *agent.name();
    if let Some(before) = state.moved.as_ref().filter(|before| before.by != Leave::Rename || !is_named) {
        return Err(moved_away(agent, before));
    }
    agent.store().refuse_name(&names.name)?;
    let mark = mark(session, agent, &locked, state, names)?;
    // An interrupted rename may have written the identity already.
    identity.former_names.retain(|had| had.name != names.former);
    identity.former_names.push(FormerName { name: names.former.clone(), until: mark.at });
    identity.name.clone_from(&names.name);
    let renamed = locked.replace_identity(&identity).and_then(|()| locked.rename(&names.name));
    let Err(error) = renamed else { return Ok(mark) };
    identity.name.clone_from(&names.former);
    identity.former_names.pop();
    let stays = locked
        .replace_identity(&identity)
        .and_then(|()| locked.any_state())
        .and_then(|state| change_moved(session, agent, &locked, state, |draft| moved::arrive(draft, None)));
    if let Err(other) = stays {
        session.out.note(&format!("{} is still marked for renaming: {other}", agent.name()));
    }
    Err(error)
}

/// Marks the agent for its new name. Refused while a turn runs or a task is open.
fn mark(
    session: &Session,
    agent: &Agent<'_>,
    locked: &AgentTxn<'_>,
    state: State,
    names: &NamePair,
) -> Result<Moved> {
    let going = MoveRequest { by: Leave::Rename, to: names.name.to_string() };
    let context = Context::new(session, agent);
    let draft = match &state.moved {
        None => about_to_leave(session, agent, locked, &going)?,
        Some(before) if before.to == going.to => return Ok(before.clone()),
        Some(_) => {
            let mut draft = context.draft_of(&locked.records_snapshot(), state)?;
            moved::mark(&mut draft, going.by, going.to);
            draft
        }
    };
    let marked = context.commit(locked, draft)?.state.moved;
    marked.ok_or_else(|| Error::busy(agent.settings(), "`dormouse rename`".to_owned(), Duration::ZERO))
}

/// Updates agents that refer to the renamed agent, and removes its `moved` mark.
fn finish(session: &Session, store: &Store, names: &NamePair, mark: &Moved) -> Result<RenameReport> {
    let renamed = store.agent(&names.name)?;
    renamed.take_local_dir_of(&names.former)?;
    let children = update_others(session, store, names)?;
    let locked = renamed.change(session.clock.now())?;
    let state = locked.any_state()?;
    if state.moved.as_ref() == Some(mark) {
        let both = Some((&names.former, &names.name));
        change_moved(session, &renamed, &locked, state, |draft| moved::arrive(draft, both))?;
    }
    drop(locked);
    // Every agent has a default trigger, so only triggers with deliveries are worth a report.
    let is_called = |trigger: &Trigger| trigger.status == TriggerStatus::Active && trigger.delivery_count > 0;
    let triggers = renamed.triggers()?.iter().filter(|trigger| is_called(trigger)).count();
    let (agent, former_name) = (names.name.clone(), names.former.clone());
    Ok(RenameReport { agent, former_name, children, triggers })
}

/// Changes the name in `parent`, `owner` and `stopped_by` of other agents. Returns the children.
fn update_others(session: &Session, store: &Store, names: &NamePair) -> Result<Vec<AgentName>> {
    let mut children = Vec::new();
    for name in store.agents()? {
        let told = store.agent(&name).and_then(|agent| update_one(session, &agent, names));
        match told {
            Ok(true) => children.push(name),
            Ok(false) | Err(Error::NoAgent { .. }) => {}
            Err(error @ Error::Damaged { .. }) => {
                session.out.note(&format!("{name} may still name `{}` as its parent: {error}", names.former))
            }
            Err(error) => return Err(error),
        }
    }
    Ok(children)
}

/// Replaces the former name in `parent`, `owner` and `stopped_by` of another agent. Returns true if
/// that agent is a child of the renamed agent.
fn update_one(session: &Session, agent: &Agent<'_>, names: &NamePair) -> Result<bool> {
    let NamePair { former, name } = names;
    let is = |other: &Option<AgentName>, name: &AgentName| other.as_ref() == Some(name);
    let identity = agent.identity()?;
    let names_it = is(&identity.parent, former) || is(&identity.owner, former);
    if names_it {
        let locked = agent.change(session.clock.now())?;
        let mut identity = agent.identity()?;
        for other in [&mut identity.parent, &mut identity.owner] {
            if is(other, former) {
                *other = Some(name.clone());
            }
        }
        locked.replace_identity(&identity)?;
    }
    if agent.peek()?.stopped_by == Some(rights::agent(former)) {
        let locked = agent.change(session.clock.now())?;
        let state = locked.any_state()?;
        change_moved(session, agent, &locked, state, |draft| moved::follow_name(draft, former, name))?;
    }
    Ok(names_it || is(&identity.parent, name))
}

/// Reports the children, whose `parent` has changed, and triggers, whose URLs have changed.
fn say_what_follows(session: &Session, report: &RenameReport) {
    let agent = &report.agent;
    for child in &report.children {
        session.out.note(&format!("{child}: its parent is `{agent}` now"));
    }
    if report.triggers > 0 {
        let triggers = count(report.triggers as u64, "trigger", "triggers");
        session.out.note(&format!(
            "{agent}: {triggers}: over HTTP at /agents/{agent}/triggers/ID now, with the same ids and secrets"
        ));
    }
}
