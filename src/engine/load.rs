//! The records of one agent as the rules take them.

use super::owner::away_run;
use crate::error::Result;
use crate::model::dedupe::DedupeEntry;
use crate::model::id::{MessageId, TaskId, TriggerId};
use crate::model::message::{Message, MessageKind};
use crate::model::policy::Policy;
use crate::model::records::{BrokenWait, Inbox, Lease, Onlookers, Records, Staleness};
use crate::model::state::State;
use crate::model::task::Task;
use crate::model::time::Time;
use crate::model::timer::Timer;
use crate::model::trigger::Trigger;
use crate::model::wait::Wait;
use crate::model::work::WorkItem;
use crate::rules::admission::check_size;
use crate::rules::transition::arrival::staleness;
use crate::rules::waits::{Needed, needed};
use crate::store::{Agent, Dropped, Snapshot, Subject};

/// How many stale messages one transaction drops at most.
const STALE_MAX: usize = 64;

/// What a step is for, as far as loading goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// For a command that only looks, or that takes no message up.
    Look,
    /// For a command that foresees a step: it also needs what comes after messages that the step
    /// would drop or set aside.
    Foresee,
    /// For a step, under the lock, which takes messages up: it also asks whether a message has
    /// ended before.
    Step,
}

/// Loads what is open at one revision, around the `state` of that revision.
pub fn records(
    agent: &Agent<'_>,
    seen: &Snapshot<'_>,
    state: State,
    lease: Lease,
    now: Time,
    purpose: Purpose,
) -> Result<Records> {
    let open = open(seen, &state)?;
    around(agent, seen, (state, open), lease, now, purpose)
}

/// The open records, without the inbox.
pub struct Open {
    works: Vec<WorkItem>,
    waits: Vec<Wait>,
    timers: Vec<Timer>,
    tasks: Vec<Task>,
}

impl From<Records> for Open {
    fn from(Records { works, waits, timers, tasks, .. }: Records) -> Open {
        Open { works, waits, timers, tasks }
    }
}

pub fn open(seen: &Snapshot<'_>, state: &State) -> Result<Open> {
    // The directory also has the output of tasks that have ended, so it is listed only if a task is
    // open.
    let tasks = if state.open_tasks > 0 { seen.open()? } else { Vec::new() };
    Ok(Open { works: seen.open()?, waits: seen.open()?, timers: seen.open()?, tasks })
}

/// Loads the rest around what is open at that revision.
pub fn around(
    agent: &Agent<'_>,
    seen: &Snapshot<'_>,
    (state, open): (State, Open),
    lease: Lease,
    now: Time,
    purpose: Purpose,
) -> Result<Records> {
    let Open { works, waits, timers, tasks } = open;
    let policy = agent.policy()?;
    let inbox = inbox(seen, &state, &policy, now, purpose)?;
    let triggers = triggers(seen, &inbox, &waits)?;
    let broken_waits = broken_waits(seen, &waits, &tasks)?;
    // A run whose lease a process of this machine holds is here: a store that would have to be
    // asked is not.
    let away = if lease == Lease::Held { None } else { away_run(agent, &state, now)? };
    Ok(Records {
        away,
        policy,
        state,
        lease,
        shortage: None,
        onlookers: Onlookers::default(),
        inbox,
        works,
        waits,
        broken_waits,
        timers,
        tasks,
        triggers,
    })
}

/// The active triggers that a record names and that this change may be about.
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

/// The waits that disagree with other records. Costs nothing while every wait is for an open task
/// or for no task, is not bound, and has no recheck queued.
fn broken_waits(seen: &Snapshot<'_>, waits: &[Wait], tasks: &[Task]) -> Result<Vec<BrokenWait>> {
    let mut broken = Vec::new();
    for wait in waits.iter().filter(|wait| wait.is_active()) {
        if let Some(message) = wait.recheck_id
            && seen.waiting(message)?.is_none()
        {
            broken.push(BrokenWait::RecheckGone(message));
        }
        let (is_there, otherwise) = match needed(wait, tasks) {
            None => continue,
            Some(Needed::Answer(message)) => {
                (seen.waiting(message)?.is_some(), BrokenWait::AnswerGone(wait.id))
            }
            Some(Needed::Result(task, known)) => {
                (result_under_way(seen, task, known)?.is_some(), BrokenWait::TaskGone(wait.id))
            }
        };
        broken.extend((!is_there).then_some(otherwise));
    }
    Ok(broken)
}

/// The message in the inbox that says how a task ended. `known`: its id, if a record has it;
/// records of the first version don't, and then every message is looked at.
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
    let claimed_id = state
        .current_run
        .as_ref()
        .map(|run| run.message_id)
        .or(state.held.as_ref().map(|held| held.message_id));
    let (hints, misfits) = seen.hints()?;
    let dropped = seen.dropped()?;
    let first = dropped.first().filter(|_| purpose == Purpose::Look);
    let mut inbox = Inbox {
        hints,
        misfits,
        drops: dropped.len(),
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
            Some(Err(misfit)) => inbox.misfits.push(misfit),
            None => {}
        }
    }
    // In most cases the head is the first message, or the second; only stale messages and misfits
    // before it take a longer look.
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
                Some(Err(misfit)) => {
                    inbox.misfits.push(misfit);
                    continue;
                }
                None => continue,
            };
            // The size of a message that another user has put there was not checked before.
            if message.origin.is_of_user()
                && message.attempt == 1
                && let Err(refusal) = check_size(&message.body, &policy.limits)
            {
                inbox.misfits.push(seen.unfit(waiting, refusal.message));
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
        if found.len() < count || (count >= STALE_MAX && purpose != Purpose::Foresee) {
            return Ok(inbox);
        }
        looked_at = found.len();
        count = count.saturating_mul(STALE_MAX);
    }
}

/// The message for which this one's dedupe key stands, if they are copies: admitted within one
/// window. A message that has waited for longer than the window is no copy of a later one.
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

/// Looks once more for the head of an inbox from which something has been taken, or to which
/// something was added.
pub fn offer_first(seen: &Snapshot<'_>, inbox: &mut Inbox) -> Result<()> {
    if let Some(waiting) = seen.first(1)?.first()
        && let Some(Ok(message)) = seen.try_read(waiting)?
    {
        inbox.offer(&message);
    }
    Ok(())
}

/// Reads everything without a lock, at one revision.
pub fn look(agent: &Agent<'_>, now: Time) -> Result<Records> {
    agent.look(|seen, state| {
        let is_held = state.current_run.is_some() && agent.is_leased(Subject::Run)?;
        let lease = if is_held { Lease::Held } else { Lease::Free };
        records(agent, &seen.without_passed_over(&state), state, lease, now, Purpose::Look)
    })
}

/// The same as the next step would find it, with the hand-written files that it would find in the
/// inbox.
pub fn foresee(agent: &Agent<'_>, now: Time) -> Result<(Records, Vec<Dropped>)> {
    agent.look(|seen, state| {
        let lease = if agent.is_leased(Subject::Run)? { Lease::Held } else { Lease::Free };
        let seen = seen.without_unchanged(&state);
        Ok((records(agent, &seen, state, lease, now, Purpose::Foresee)?, seen.dropped()?))
    })
}
