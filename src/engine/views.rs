//! Views of an agent for people and scripts: summary, list row, detail, metrics, and activity in a
//! period. Each view is read without a lock, at one revision.

use std::collections::{HashMap, HashSet, VecDeque};

use crate::error::{Error, Result};
use crate::model::agent::Identity;
use crate::model::id::{AgentName, MessageId, RunId, TaskId};
use crate::model::message::{Message, MessageKind};
use crate::model::record::Record;
use crate::model::records::Records;
use crate::model::state::State;
use crate::model::time::Time;
use crate::model::wait::Wait;
use crate::model::work::WorkItem;
use crate::report::dashboard::AgentDetail;
use crate::report::list::ListRow;
use crate::report::log;
use crate::report::metrics::{Reading, Readings};
use crate::report::summary::{Arrivals, ChildAgent, Facts};
use crate::report::timeline::{Activity, ShownTurn, Stay};
use crate::store::{Agent, RecordWatch, Snapshot, Store};

use super::follow::OutputTail;
use super::{environment, load};

/// Reads the facts for an agent's summary, without a lock. `all_children`: also all children, which
/// costs a read of every agent of the store.
pub fn facts<'s>(agent: &Agent<'s>, now: Time, all_children: bool) -> Result<Facts<'s>> {
    let store = agent.store();
    let (records, arrivals) = look(agent, now, true)?;
    let at_work = records.tasks.iter().filter_map(|task| Some(child(store, task.child()?, Some(task.id))));
    let all = if all_children { Some(children_of(store, agent.name())?) } else { None };
    Ok(Facts {
        identity: agent.identity()?,
        triggers: agent.triggers()?,
        at_work: at_work.collect(),
        children: all.map(|names| names.iter().map(|name| child(store, name, None)).collect()),
        ingress: &store.local().config.ingress,
        cwd: store.anchor().leads_to(&records.policy.turn.workdir),
        workspace: environment::workspace_path(store, &records.policy),
        records,
        arrivals,
        now,
    })
}

/// Returns an agent's row in a list. `identity` is `None` if the row does not show it.
pub fn line(agent: &Agent<'_>, identity: Option<Identity>, now: Time) -> Result<ListRow> {
    let (records, arrivals) = look(agent, now, false)?;
    Ok(ListRow::new(&records, &arrivals, identity, now))
}

/// Returns the metrics of agents. For an unreadable agent calls `failed` with the error, and
/// continues.
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
            // The agent was removed after the names were listed, so it is omitted.
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
    let (records, arrivals) = look(agent, now, false)?;
    Ok(Reading::new(agent.identity()?.visibility, records, &arrivals, now))
}

/// Loads records and inbox at one revision. `names_reduced`: also searches the archive for the ids
/// of messages that were settled without a turn.
fn look(agent: &Agent<'_>, now: Time, names_reduced: bool) -> Result<(Records, Arrivals)> {
    agent.read(|seen, state| {
        let seen = seen.without_passed_over(&state);
        let mut queued = seen.keys()?;
        let claimed = state.current_run.as_ref().map(|run| run.message_id);
        queued.retain(|key| Some(key.id) != claimed);
        let reduced = if names_reduced { load::reduced(&seen, &state, now)? } else { Vec::new() };
        let reduced = reduced.iter().rev().map(|message| message.id).collect();
        let rejected = seen.count_rejected(&state)?;
        let records = load::load_snapshot(agent, &seen, state, now)?;
        Ok((records, Arrivals { queued, rejected, reduced }))
    })
}

fn child(store: &Store, name: &AgentName, task_id: Option<TaskId>) -> ChildAgent {
    let state = store.agent(name).and_then(|agent| agent.peek()).ok();
    ChildAgent { task_id, agent: name.clone(), status: state.map(|state| state.status) }
}

/// Returns the names of all children of an agent. Expensive, because the identity of every agent in
/// the store is read.
pub fn children_of(store: &Store, parent: &AgentName) -> Result<Vec<AgentName>> {
    let mut names = store.agents()?;
    // An unreadable agent does not count as a child.
    let identity = |name: &AgentName| store.agent(name).and_then(|agent| agent.identity());
    names.retain(|name| identity(name).is_ok_and(|identity| identity.parent.as_ref() == Some(parent)));
    Ok(names)
}

/// Maximum number of messages, and of events, in the detail view.
const SHOWN: usize = 20;

/// Maximum bytes of earlier output that `LastOutput` reads, and maximum of lines that it keeps.
const OUTPUT_MAX: u64 = 16 << 10;
const LINES: usize = 200;

/// Reads the detail view of an agent, without a lock.
pub fn detail(agent: &Agent<'_>, now: Time) -> Result<AgentDetail> {
    let line = line(agent, None, now)?;
    agent.read(|seen, state| {
        let seen = seen.without_passed_over(&state);
        let claimed = state.current_run.as_ref().map(|run| run.message_id);
        let current = claimed.map(|id| seen.waiting(id)).transpose()?.flatten();
        let current = current.map_or(Ok(None), |waiting| seen.try_read(&waiting))?.and_then(Result::ok);
        let mut queue = Vec::new();
        for waiting in seen.first(SHOWN)?.iter().filter(|waiting| Some(waiting.key.id) != claimed) {
            // An unreadable file is left out, because it is counted with the rejected files.
            queue.extend(seen.try_read(waiting)?.and_then(std::result::Result::ok));
        }
        Ok(AgentDetail {
            line: line.clone(),
            current,
            queue,
            waits: seen.open::<Wait>()?,
            work: seen.open::<WorkItem>()?,
            events: seen.last_events(SHOWN, |event| log::words(event).is_some())?,
            state,
        })
    })
}

/// Returns the newest dead letter (message whose last attempt has failed), if there is one.
pub fn last_dead(agent: &Agent<'_>) -> Result<Option<MessageId>> {
    let letters = agent.read(|seen, state| dead_letters(&seen, &state, 1))?;
    Ok(letters.first().map(|message| message.id))
}

/// Returns the dead letters, newest first, at most `most` of them. The search of the archive ends
/// when as many are found as `state.counters` counts.
pub fn dead_letters(seen: &Snapshot<'_>, state: &State, most: u64) -> Result<Vec<Message>> {
    let wanted = usize::try_from(state.counters.dead.min(most)).unwrap_or(usize::MAX);
    let (mut known, mut letters) = (HashSet::new(), Vec::new());
    if wanted > 0 {
        seen.ended(|message: Message| {
            // The newest archive line of a message has its present state; older lines are ignored.
            let is_dead = message.settlement.as_ref().is_some_and(|end| end.dead_letter);
            if known.insert(message.id) && is_dead {
                letters.push(message);
            }
            letters.len() < wanted
        })?;
    }
    Ok(letters)
}

/// Last output lines of a run, kept up to date by `look`.
pub struct LastOutput {
    pub run: RunId,
    /// Reports output that the run has written since the last `look`.
    pub watch: RecordWatch,
    tail: OutputTail,
    lines: VecDeque<String>,
}

impl LastOutput {
    pub fn of(agent: &Agent<'_>, run: RunId) -> LastOutput {
        let tail = OutputTail::of(agent, run, Some(OUTPUT_MAX));
        LastOutput { run, tail, watch: RecordWatch::new(), lines: VecDeque::new() }
    }

    /// Reads the output since the last call. `is_live`: the run may write more output.
    pub fn look(&mut self, agent: &Agent<'_>, is_live: bool) -> Result<()> {
        if is_live {
            self.watch.follow_output(&agent.local().run(self.run));
        }
        for (_, line) in self.tail.news(!is_live)? {
            if self.lines.len() == LINES {
                self.lines.pop_front();
            }
            self.lines.push_back(line);
        }
        Ok(())
    }

    /// Returns the last lines, including incomplete lines at the end.
    pub fn lines(&self) -> impl DoubleEndedIterator<Item = &str> {
        let unfinished: Vec<&str> = self.tail.unfinished().collect();
        self.lines.iter().map(String::as_str).chain(unfinished)
    }
}

/// Returns turns, waits and waiting messages of an agent since `since`, and its row of `list` at
/// `now`. Takes no lock. Reads ended records only from the month of `since` on.
pub fn activity(agent: &Agent<'_>, since: Time, now: Time) -> Result<Activity> {
    let line = line(agent, None, now)?;
    agent.read(|seen, state| {
        let mut turns: Vec<ShownTurn> = seen.runs_since(since)?.into_iter().map(ShownTurn::from).collect();
        turns.extend(state.current_run.as_ref().map(|run| ShownTurn::live(run, now)));
        turns.retain(|turn| turn.ended_at >= since);
        turns.sort_by_key(|turn| turn.started_at);
        let mut waits = seen.open::<Wait>()?;
        ended_since(&seen, since, |wait: &Wait| wait.ended_at, |wait| waits.push(wait))?;
        let mut known = HashSet::new();
        waits.retain(|wait| known.insert(wait.id) && wait.ended_at.is_none_or(|at| at >= since));
        waits.sort_by_key(|wait| wait.created_at);
        let mut taken_up: HashMap<MessageId, Time> = HashMap::new();
        for turn in turns.iter().rev() {
            taken_up.insert(turn.message_id, turn.started_at);
        }
        let mut stays = Vec::new();
        let mut told = HashSet::new();
        let ended = |message: &Message| message.settlement.as_ref().map(|end| end.at);
        ended_since(&seen, since, ended, |message| {
            let left = ended(&message);
            // The next step takes up the scheduler's own messages at once. These short waits are
            // left out, because they would hide the waits of other messages.
            if message.kind != MessageKind::SystemTick && told.insert(message.id) {
                let taken = taken_up.get(&message.id).copied().or(left);
                stays.push(Stay { arrived: message.created_at, taken_up: taken, left });
            }
        })?;
        for key in seen.keys()?.into_iter().filter(|key| !told.contains(&key.id)) {
            let arrived = key.id.minted_at().unwrap_or(now);
            stays.push(Stay { arrived, taken_up: taken_up.get(&key.id).copied(), left: None });
        }
        stays.retain(|stay| stay.left.is_none_or(|left| left >= since));
        stays.sort_by_key(|stay| (stay.arrived, stay.left));
        Ok(Activity { line: line.clone(), turns, waits, stays })
    })
}

/// Calls `each` for the ended records of a kind, newest first, from the month of `since` on. Some
/// of these records may have ended before `since`.
fn ended_since<T: Record>(
    seen: &Snapshot<'_>,
    since: Time,
    ended_at: impl Fn(&T) -> Option<Time>,
    mut each: impl FnMut(T),
) -> Result<()> {
    let first_month = since.month();
    seen.ended(|record: T| {
        let goes_on = ended_at(&record).is_none_or(|at| at.month() >= first_month);
        if goes_on {
            each(record);
        }
        goes_on
    })
}
