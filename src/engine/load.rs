//! Loading an agent's records for the rules, and the history for the context of a turn.

use crate::error::Result;
use crate::local::Subject;
use crate::model::dedupe::DedupeEntry;
use crate::model::id::{MessageId, TaskId, TriggerId};
use crate::model::message::{Message, MessageKind};
use crate::model::policy::Policy;
use crate::model::records::{BrokenWait, Inbox, InstalledHooks, LeaseState, Records, Staleness};
use crate::model::state::State;
use crate::model::task::Task;
use crate::model::time::Time;
use crate::model::trigger::Trigger;
use crate::model::wait::Wait;
use crate::report::context::{self, History};
use crate::rules::admission::check_size;
use crate::rules::transition::arrival::staleness;
use crate::rules::waits::broken;
use crate::store::{Agent, Dropped, Snapshot};

use super::owner::away;

/// Maximum number of messages that one transaction drops as expired, duplicate or already settled.
const STALE_MAX: usize = 64;

/// Reason for loading an agent's records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// A command that only reads, or that does not take up messages.
    Look,
    /// A dry run of a step, which also needs the messages behind those that the step would drop or
    /// quarantine.
    Preview,
    /// A step under the agent's lock, which takes up messages. For a step, loading also checks if a
    /// message has already ended.
    Step,
}

/// Parameters for loading an agent's records.
#[derive(Debug, Clone, Copy)]
pub struct Loading {
    /// State of the lease of the current run. `Free` for a caller that holds the lease itself, or
    /// that does not care.
    pub lease: LeaseState,
    pub now: Time,
    pub purpose: Purpose,
}

/// Loads the records that have not ended, all of one revision. `state`: state of that revision.
pub fn records(
    agent: &Agent<'_>,
    seen: &Snapshot<'_>,
    state: State,
    Loading { lease, now, purpose }: Loading,
) -> Result<Records> {
    let (works, waits, timers) = (seen.open()?, seen.open()?, seen.open()?);
    // Listing the directory is slow, because it also has the output of ended tasks.
    let tasks = if state.open_tasks > 0 { seen.open()? } else { Vec::new() };
    let policy = agent.policy()?;
    let inbox = inbox(seen, &state, &policy, now, purpose)?;
    let triggers = triggers(seen, &inbox, &waits)?;
    let broken_waits = broken_waits(seen, &waits, &tasks)?;
    // A run whose lease a process of this machine holds is not away, so a query to the database is
    // saved.
    let away = match &state.current_run {
        Some(run) if lease == LeaseState::Free => away(agent, run, now)?,
        Some(_) | None => None,
    };
    Ok(Records {
        away,
        policy,
        state,
        lease,
        shortage: None,
        installed_hooks: InstalledHooks::default(),
        inbox,
        works,
        waits,
        broken_waits,
        timers,
        tasks,
        triggers,
    })
}

/// Returns the active triggers that waits, wake hints and the loaded messages name.
fn triggers(seen: &Snapshot<'_>, inbox: &Inbox, waits: &[Wait]) -> Result<Vec<Trigger>> {
    let messages = inbox.stale.iter().map(|(message, _)| message).chain(&inbox.head).chain(&inbox.claimed);
    let named = waits.iter().map(|wait| wait.trigger_id);
    let named = named.chain(messages.map(|message| message.trigger_id));
    let mut ids: Vec<TriggerId> =
        named.chain(inbox.hints.iter().map(|hint| hint.trigger_id)).flatten().collect();
    ids.sort();
    ids.dedup();
    let found = ids.into_iter().map(|id| seen.open_one::<Trigger>(id));
    found
        .filter_map(Result::transpose)
        .filter(|found| found.as_ref().map_or(true, Trigger::is_active))
        .collect()
}

/// Returns the waits that other records contradict, for example because their task has ended.
fn broken_waits(seen: &Snapshot<'_>, waits: &[Wait], tasks: &[Task]) -> Result<Vec<BrokenWait>> {
    let is_queued = |message| Ok(seen.waiting(message)?.is_some());
    let has_result = |task, known| Ok(result_under_way(seen, task, known)?.is_some());
    let broken: Result<Vec<_>> =
        waits.iter().map(|wait| broken(wait, tasks, is_queued, has_result)).collect();
    Ok(broken?.concat())
}

/// Returns the message in the inbox that has the result of a task. `known`: id of the message from
/// the task's record; without it every message is read.
pub fn result_under_way(
    seen: &Snapshot<'_>,
    task: TaskId,
    known: Option<MessageId>,
) -> Result<Option<MessageId>> {
    if let Some(id) = known {
        return Ok(seen.waiting(id)?.map(|waiting| waiting.key.id));
    }
    for waiting in seen.first(usize::MAX)? {
        let Some(Ok(message)) = seen.try_read(&waiting)? else { continue };
        if message.kind == MessageKind::TaskResult && message.task_id == Some(task) {
            return Ok(Some(message.id));
        }
    }
    Ok(None)
}

fn inbox(seen: &Snapshot<'_>, state: &State, policy: &Policy, now: Time, purpose: Purpose) -> Result<Inbox> {
    let claimed_id = state.claimed_message();
    let (hints, malformed) = seen.hints()?;
    let dropped = seen.dropped()?;
    let first = dropped.first().filter(|_| purpose == Purpose::Look);
    let mut inbox = Inbox {
        hints,
        malformed,
        submissions: dropped.len(),
        dropped_at: first.map(|file| seen.dropped_at(file)).transpose()?.flatten(),
        has_background: seen.has_background()?,
        last_interject: seen.last_interject()?,
        ..Inbox::default()
    };
    if let Some(id) = claimed_id
        && let Some(waiting) = seen.waiting(id)?
    {
        match seen.try_read(&waiting)? {
            Some(Ok(message)) => inbox.claimed = Some(message),
            Some(Err(file)) => inbox.malformed.push(file),
            None => {}
        }
    }
    // The next message to run is usually the first or second. More messages are read only behind
    // expired, duplicate, settled or malformed ones.
    let mut looked_at = 0;
    let mut count = 1 + usize::from(claimed_id.is_some());
    loop {
        let found = seen.first(count)?;
        for waiting in &found[looked_at.min(found.len())..] {
            if Some(waiting.key.id) == claimed_id {
                continue;
            }
            let message = match seen.try_read(waiting)? {
                Some(Ok(message)) => message,
                Some(Err(file)) => {
                    inbox.malformed.push(file);
                    continue;
                }
                None => continue,
            };
            // A user of the sharing group has written the file, so its size was not checked before.
            if message.origin.is_of_user()
                && message.attempt == 1
                && let Err(refusal) = check_size(&message.body, &policy.limits)
            {
                inbox.malformed.push(seen.unfit(waiting, refusal.message));
                continue;
            }
            if purpose == Purpose::Step && seen.is_settled(message.id, now)? {
                inbox.stale.push((message, Staleness::Settled));
                continue;
            }
            let first = first_of_its_key(seen, &message, state, policy, now)?;
            match staleness(&message, first, now) {
                Some(why) => inbox.stale.push((message, why)),
                None => {
                    inbox.head = Some(message);
                    return Ok(inbox);
                }
            }
        }
        if found.len() < count || (count >= STALE_MAX && purpose != Purpose::Preview) {
            return Ok(inbox);
        }
        looked_at = found.len();
        count = count.saturating_mul(STALE_MAX);
    }
}

/// Returns the earlier message with the same dedupe key, if it was admitted within `dedupe_window`.
pub fn first_of_its_key(
    seen: &Snapshot<'_>,
    message: &Message,
    state: &State,
    policy: &Policy,
    now: Time,
) -> Result<Option<MessageId>> {
    let Some(key) = &message.dedupe_key else { return Ok(None) };
    let window = policy.limits.dedupe_window;
    let entry = seen.admitted_under(key, now, window, state.revision)?;
    let apart = |one: Time, other: Time| one.since(other).max(other.since(one));
    let is_copy = |entry: &DedupeEntry| apart(entry.admitted_at, message.created_at) < window;
    Ok(entry.filter(is_copy).map(|entry| entry.message_id))
}

/// Makes the first message in the inbox the next message (`inbox.head`), if it precedes that.
pub fn offer_first(seen: &Snapshot<'_>, inbox: &mut Inbox) -> Result<()> {
    if let Some(waiting) = seen.first(1)?.first()
        && let Some(Ok(message)) = seen.try_read(waiting)?
    {
        inbox.offer(&message);
    }
    Ok(())
}

/// Loads all records at one revision, without a lock.
pub fn load_unlocked(agent: &Agent<'_>, now: Time) -> Result<Records> {
    agent.read(|seen, state| load_snapshot(agent, &seen.without_passed_over(&state), state, now))
}

/// Loads the records from a snapshot that was taken without the agent's lock.
pub fn load_snapshot(agent: &Agent<'_>, seen: &Snapshot<'_>, state: State, now: Time) -> Result<Records> {
    let is_held = state.current_run.is_some() && agent.is_leased(Subject::Run)?;
    let lease = if is_held { LeaseState::Held } else { LeaseState::Free };
    records(agent, seen, state, Loading { lease, now, purpose: Purpose::Look })
}

/// Loads all records at one revision for a dry run, and lists inbox files that are no messages yet.
pub fn preview(agent: &Agent<'_>, now: Time) -> Result<(Records, Vec<Dropped>)> {
    agent.read(|seen, state| {
        let lease = if agent.is_leased(Subject::Run)? { LeaseState::Held } else { LeaseState::Free };
        let seen = seen.without_unchanged(&state);
        let at = Loading { lease, now, purpose: Purpose::Preview };
        Ok((records(agent, &seen, state, at)?, seen.dropped()?))
    })
}

/// Returns recent messages, the briefs (summaries) of recent turns, and the current plan, for the
/// context of a turn. Must be called under the lock under which the message is claimed.
pub fn history(seen: &Snapshot<'_>, records: &Records, message: &Message, now: Time) -> Result<History> {
    let state = &records.state;
    let interjected = if message.interjected.is_empty() {
        Vec::new()
    } else {
        let was_handed_over = |other: &Message| message.interjected.contains(&other.id);
        seen.recent(now, context::INTERJECTED, was_handed_over)?
    };
    Ok(History {
        briefs: seen.recent(now, context::BRIEFS, |_| true)?,
        reduced: reduced(seen, state, now)?,
        reduced_count: state.counters.reduced_since_turn,
        interjected,
        plan: state.focus.map_or(Ok(None), |item| seen.plan(item))?,
    })
}

/// Returns the messages that were settled without a turn since the last completed turn, newest
/// first, at most as many as the context of a turn shows.
pub fn reduced(seen: &Snapshot<'_>, state: &State, now: Time) -> Result<Vec<Message>> {
    let count =
        usize::try_from(state.counters.reduced_since_turn).unwrap_or(usize::MAX).min(context::REDUCED);
    if count == 0 {
        return Ok(Vec::new());
    }
    seen.recent(now, count, |message: &Message| {
        message.settlement.as_ref().is_some_and(|settlement| settlement.is_reduced())
    })
}
