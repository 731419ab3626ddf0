//! Summaries of agents for `get`, `list` and `ingress`.

use crate::error::{Error, Result};
use crate::model::agent::Identity;
use crate::model::id::{AgentName, MessageId};
use crate::model::records::{LeaseState, Records};
use crate::model::state::State;
use crate::model::time::Time;
use crate::model::trigger::Trigger;
use crate::report::list::{Lineage, ListRow};
use crate::report::metrics::{Reading, Readings};
use crate::report::summary::{ActiveChild, AgentPaths, Arrivals, ChildAgent, Facts};
use crate::store::{Agent, Snapshot, Store, Subject};

use super::environment;
use super::load::{self, Purpose};
use super::past;

/// Data of the summary of one agent.
pub struct Summary {
    identity: Identity,
    records: Records,
    arrivals: Arrivals,
    triggers: Vec<Trigger>,
    at_work: Vec<ActiveChild>,
    children: Option<Vec<ChildAgent>>,
    places: AgentPaths,
    now: Time,
}

impl Summary {
    /// Reads the data without a lock. `all_children`: also reads all children, for which it must
    /// look at every agent.
    pub fn of(
        store: &Store,
        agent: &Agent<'_>,
        now: Time,
        past: ArchiveSearch,
        all_children: bool,
    ) -> Result<Summary> {
        let (records, arrivals) = look(agent, now, past)?;
        let identity = agent.identity()?;
        let triggers = agent.triggers()?;
        let at_work = children(store, &records);
        let children = if all_children { Some(self::all_children(store, agent.name())?) } else { None };
        let places = AgentPaths {
            cwd: store.anchor().leads_to(&records.policy.turn.workdir),
            workspace: environment::workspace_path(store, &records.policy),
        };
        Ok(Summary { identity, records, arrivals, triggers, at_work, children, places, now })
    }

    pub fn facts<'a>(&'a self, store: &'a Store) -> Facts<'a> {
        Facts {
            identity: &self.identity,
            records: &self.records,
            arrivals: &self.arrivals,
            triggers: &self.triggers,
            ingress: store.local().ingress(),
            at_work: &self.at_work,
            children: self.children.as_deref(),
            places: &self.places,
            now: self.now,
        }
    }
}

/// Returns the line of an agent in a list. `identity` is `None` if the line is not to show it.
pub fn line(agent: &Agent<'_>, identity: Option<Identity>, now: Time) -> Result<ListRow> {
    let (records, arrivals) = look(agent, now, ArchiveSearch::Counted)?;
    Ok(ListRow::new(&records, &arrivals, identity.map(Lineage::from), now))
}

/// Returns the metrics of agents. For an unreadable agent `failed` is called with the error, and
/// the others follow.
pub fn readings(
    store: &Store,
    names: &[AgentName],
    now: Time,
    mut failed: impl FnMut(&AgentName, Error),
) -> Readings {
    let mut readings = Readings::default();
    for name in names {
        match store.agent(name).and_then(|agent| reading(&agent, now)) {
            Ok(reading) => readings.readable.push(reading),
            // The agent was removed after the names were listed.
            Err(Error::NoAgent { .. }) => {}
            Err(error) => {
                readings.unreadable.push(name.clone());
                failed(name, error);
            }
        }
    }
    readings
}

fn reading(agent: &Agent<'_>, now: Time) -> Result<Reading> {
    let visibility = agent.identity()?.visibility;
    let (records, arrivals) = look(agent, now, ArchiveSearch::Counted)?;
    Ok(Reading::new(visibility, records, &arrivals, now))
}

/// Loads the records and all arrivals at one revision. `past`: also which messages were reduced.
fn look(agent: &Agent<'_>, now: Time, past: ArchiveSearch) -> Result<(Records, Arrivals)> {
    agent.look(|seen, state| {
        let seen = seen.without_passed_over(&state);
        let mut queued = seen.keys()?;
        let claimed = state.current_run.as_ref().map(|run| run.message_id);
        queued.retain(|key| Some(key.id) != claimed);
        let reduced = match past {
            ArchiveSearch::Counted => Vec::new(),
            ArchiveSearch::Named => reduced(&seen, &state, now)?,
        };
        let rejected = seen.count_rejected(&state)?;
        let is_held = state.current_run.is_some() && agent.is_leased(Subject::Run)?;
        let lease = if is_held { LeaseState::Held } else { LeaseState::Free };
        let records = load::records(agent, &seen, state, lease, now, Purpose::Look)?;
        Ok((records, Arrivals { queued, rejected, reduced }))
    })
}

/// Tells whether the archive is searched for reduced messages.
#[derive(Debug, Clone, Copy)]
pub enum ArchiveSearch {
    Counted,
    Named,
}

/// Returns the ids of the messages that were reduced since the last completed turn, up to the
/// maximum for the context of a turn.
fn reduced(seen: &Snapshot<'_>, state: &State, now: Time) -> Result<Vec<MessageId>> {
    let messages = past::reduced(seen, state, now)?;
    Ok(messages.iter().rev().map(|message| message.id).collect())
}

/// Returns all children of an agent, with their states.
fn all_children(store: &Store, parent: &AgentName) -> Result<Vec<ChildAgent>> {
    let status =
        |name: &AgentName| store.agent(name).and_then(|agent| agent.peek()).ok().map(|state| state.status);
    let children = children_of(store, parent)?.into_iter();
    Ok(children.map(|agent| ChildAgent { status: status(&agent), agent }).collect())
}

/// Returns the names of all children of an agent. Reads every agent's identity, so call it only if
/// the user asks for children.
pub fn children_of(store: &Store, parent: &AgentName) -> Result<Vec<AgentName>> {
    let mut names = store.agents()?;
    // An unreadable agent counts as no child.
    let identity = |name: &AgentName| store.agent(name).and_then(|agent| agent.identity());
    names.retain(|name| identity(name).is_ok_and(|identity| identity.parent.as_ref() == Some(parent)));
    Ok(names)
}

/// Returns the children at work for an agent, with their states.
fn children(store: &Store, records: &Records) -> Vec<ActiveChild> {
    let at_work = records.tasks.iter().filter_map(|task| Some((task.id, task.child()?)));
    at_work
        .map(|(task_id, child)| {
            // An unreadable agent must not hide the others.
            let status = store.agent(child).and_then(|agent| agent.peek()).ok().map(|state| state.status);
            ActiveChild { task_id, agent: child.clone(), status }
        })
        .collect()
}
