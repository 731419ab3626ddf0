//! Command `rename`: gives an agent another name (contract, people §5).
//!
//! Every record contains the agent's name, so a complete copy is staged and appears by one rename
//! of its directory. Both agents are marked as moved until the old agent is deleted and other
//! agents are updated: no command changes these two agents, and no step runs. After an
//! interruption, a repeated `rename` continues.

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
use crate::model::trigger::{Trigger, TriggerStatus};
use crate::report::progress::Unit;
use crate::report::text::count;
use crate::rules::authority as rights;
use crate::rules::transition::moved;
use crate::store::{Agent, AgentImport, DirExport, Store, moved_away};

use super::{MoveRequest, change_moved, check, size_text, stay, take_under};

/// Result of `rename`.
#[serde_with::skip_serializing_none]
#[derive(Debug, Serialize)]
struct RenameReport {
    agent: AgentName,
    former_name: AgentName,
    /// Number of copied files. `None` if an earlier command has made the copy.
    files: Option<usize>,
    bytes: Option<u64>,
    /// Agents whose parent is the renamed agent.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    children: Vec<AgentName>,
    /// Number of triggers with deliveries. Their URLs change with the name of the agent.
    #[serde(skip_serializing_if = "is_default")]
    triggers: usize,
    /// Files that arrived in the inbox under the former name after the agent was copied.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    late: Vec<String>,
}

impl RenameReport {
    fn text(&self) -> String {
        let size = self.files.zip(self.bytes).map(|(files, size)| format!(", {}", size_text(files, size)));
        format!("{}  is {} now{}", self.former_name, self.agent, size.unwrap_or_default())
    }
}

/// Former and new name of the agent that is renamed.
struct NamePair {
    former: AgentName,
    name: AgentName,
}

/// Number of files that were copied to the new name, and their bytes.
type CopySize = (usize, u64);

pub fn rename(session: &mut Session, args: cli::RenameArgs) -> Result<Status> {
    let store = session.store()?;
    let names = NamePair { former: args.agent, name: args.new };
    if names.former == names.name {
        return Err(Error::in_word("NEW", format!("`{}` is its name already", names.name)));
    }
    session.is_about(&names.former);
    let (mark, size) = match begun(&store, &names.former, &names.name)? {
        Some(mark) => {
            refuse_to_others(session, &store.agent(&names.name)?)?;
            (mark, None)
        }
        None => {
            let agent = store.agent(&names.former)?;
            refuse_to_others(session, &agent)?;
            begin(session, &agent, &names)?
        }
    };
    let report = finish(session, &store, &names, &mark, size)?;
    session.out.result(&report, |_| report.text());
    say_what_follows(session, &report);
    Ok(Status::Done)
}

fn refuse_to_others(session: &Session, agent: &Agent<'_>) -> Result<()> {
    refuse_from_inside(Context::new(session, agent), "rename")?;
    authority::reach(Context::new(session, agent), "rename")
}

/// Returns the `moved` mark of the agent `name` if a rename from `former` has created that agent.
fn begun(store: &Store, former: &AgentName, name: &AgentName) -> Result<Option<Moved>> {
    let Some(agent) = existing(store, name)? else { return Ok(None) };
    let Some(mark) = agent.peek()?.moved else { return Ok(None) };
    let had = agent.identity()?.former_names.pop();
    let is_ours = mark.by == Leave::Rename
        && mark.to == name.as_str()
        && had.is_some_and(|had| had.name == *former && had.until == mark.at);
    Ok(is_ours.then_some(mark))
}

/// Sets the `moved` mark and copies the agent to its new name. Removes the mark on failure.
fn begin(session: &Session, agent: &Agent<'_>, names: &NamePair) -> Result<(Moved, Option<CopySize>)> {
    let (exported, mark) = mark(session, agent, names)?;
    match make(session, agent, names, &exported, &mark) {
        Ok(size) => Ok((mark, Some(size))),
        Err(error) => {
            if let Err(other) = stay(session, agent, &mark) {
                session.out.note(&format!("{} is still marked for renaming: {other}", agent.name()));
            }
            Err(error)
        }
    }
}

/// Marks the agent as moved and reads its records.
fn mark(session: &Session, agent: &Agent<'_>, names: &NamePair) -> Result<(DirExport, Moved)> {
    let locked = agent.change(session.clock.now())?;
    let state = locked.any_state()?;
    let going = MoveRequest { by: Leave::Rename, to: names.name.to_string() };
    match &state.moved {
        Some(before) if before.by != Leave::Rename || has_appeared(agent, before)? => {
            return Err(moved_away(agent, before));
        }
        Some(_) | None => agent.store().refuse_name(&names.name)?,
    }
    if state.moved.as_ref().is_some_and(|before| before.to != going.to) {
        change_moved(session, agent, &locked, state, |draft| {
            moved::mark(draft, Leave::Rename, names.name.to_string())
        })?;
    }
    let (exported, mark) = take_under(session, agent, &locked, Some(&going))?;
    Ok((exported, mark.ok_or_else(|| renamed_meanwhile(names))?))
}

/// True if the copy of the agent exists under the new name in `mark`.
pub(super) fn has_appeared(agent: &Agent<'_>, mark: &Moved) -> Result<bool> {
    let Ok(name) = mark.to.parse() else { return Ok(false) };
    Ok(begun(agent.store(), agent.name(), &name)?.as_ref() == Some(mark))
}

/// Copies the agent, with its `moved` mark, to the new name, and makes the copy visible.
fn make(
    session: &Session,
    agent: &Agent<'_>,
    names: &NamePair,
    exported: &DirExport,
    mark: &Moved,
) -> Result<CopySize> {
    let store = agent.store();
    let mut staged = store.stage(&names.name, &names.former)?;
    let mut progress = session.out.progress(Unit::Bytes, Some(exported.bytes()));
    exported.copy_to(staged.local_mut(), |bytes| progress.advance(bytes))?;
    drop(progress);
    staged.local().complete()?;
    note_former_name(session, agent, &staged, mark)?;
    let store_path = store.anchor().path();
    check(&staged, &names.former, store_path, "it has its name as before: mend it", " and try again")?;
    let size = staged.local().size();
    // While this lock is held, no other command can rename the agent to a different name.
    let locked = agent.change(session.clock.now())?;
    if locked.any_state()?.moved.as_ref() != Some(mark) {
        return Err(renamed_meanwhile(names));
    }
    // A concurrent `rename` with the same two names may already have made the copy.
    if !staged.place_if_free(session.clock.now())? && !has_appeared(agent, mark)? {
        store.refuse_name(&names.name)?;
    }
    Ok(size)
}

fn renamed_meanwhile(names: &NamePair) -> Error {
    Error::refused("renamed", format!("another command renames `{}` at the same time", names.former))
}

fn note_former_name(
    session: &Session,
    agent: &Agent<'_>,
    staged: &AgentImport<'_>,
    mark: &Moved,
) -> Result<()> {
    let mut had = agent.identity()?.former_names;
    had.retain(|had| had.name != *staged.agent().name());
    had.push(FormerName { name: agent.name().clone(), until: mark.at });
    let locked = staged.agent().change(session.clock.now())?;
    let mut identity = staged.agent().identity()?;
    identity.former_names = had;
    locked.replace_identity(&identity)
}

/// Deletes the agent under its former name, updates agents that refer to it, and removes the
/// `moved` mark of the renamed agent.
fn finish(
    session: &Session,
    store: &Store,
    names: &NamePair,
    mark: &Moved,
    size: Option<CopySize>,
) -> Result<RenameReport> {
    let renamed = store.agent(&names.name)?;
    let late = delete_former(session, store, names, mark, &renamed)?;
    let children = update_others(session, store, names)?;
    let locked = renamed.change(session.clock.now())?;
    let state = locked.any_state()?;
    if state.moved.as_ref() == Some(mark) {
        change_moved(session, &renamed, &locked, state, |draft| moved::arrive(draft, Some(&names.former)))?;
    }
    drop(locked);
    // Every agent has a default trigger, so only triggers with deliveries are worth a report.
    let is_called = |trigger: &Trigger| trigger.status == TriggerStatus::Active && trigger.delivery_count > 0;
    let triggers = renamed.triggers()?.iter().filter(|trigger| is_called(trigger)).count();
    Ok(RenameReport {
        agent: names.name.clone(),
        former_name: names.former.clone(),
        files: size.map(|(files, _)| files),
        bytes: size.map(|(_, bytes)| bytes),
        children,
        triggers,
        late,
    })
}

fn delete_former(
    session: &Session,
    store: &Store,
    names: &NamePair,
    mark: &Moved,
    renamed: &Agent<'_>,
) -> Result<Vec<String>> {
    let Some(gone) = existing(store, &names.former)? else { return Ok(Vec::new()) };
    let locked = match gone.change(session.clock.now()) {
        Err(Error::NoAgent { .. }) => return Ok(Vec::new()),
        locked => locked?,
    };
    // Another agent may have been created under the former name, and must not be deleted.
    if locked.any_state()?.moved.as_ref() != Some(mark) {
        return Ok(Vec::new());
    }
    locked.delete(Some(renamed))
}

/// Updates the agents whose parent, owner or stopper is the renamed agent. Returns its children.
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

/// Replaces the former name where another agent names its parent, owner or stopper. Returns true if
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

/// Prints a list of changes that the user has to make by hand.
fn say_what_follows(session: &mut Session, report: &RenameReport) {
    let RenameReport { agent, former_name, .. } = report;
    for child in &report.children {
        session.out.note(&format!("{child}: its parent is `{agent}` now"));
    }
    if report.triggers > 0 {
        let triggers = count(report.triggers as u64, "trigger", "triggers");
        session.out.note(&format!(
            "{agent}: {triggers}: over HTTP at /agents/{agent}/triggers/ID now, with the same ids and secrets"
        ));
    }
    for file in &report.late {
        session.out.alarm(&format!(
            "{agent}: {file} came into the inbox of `{former_name}` too late, and was deleted; the command that sent it reports this, too"
        ));
    }
}
