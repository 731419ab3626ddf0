//! The records of one agent as the rules take them.

use std::path::PathBuf;

use crate::error::Result;
use crate::model::dedupe::DedupeEntry;
use crate::model::id::{MessageId, TaskId};
use crate::model::message::{Message, MessageKind, Priority};
use crate::model::policy::Policy;
use crate::model::records::{BrokenWait, Inbox, Lease, Onlookers, Records, Staleness};
use crate::model::state::State;
use crate::model::task::Task;
use crate::model::time::Time;
use crate::model::wait::Wait;
use crate::rules::admission::check_size;
use crate::rules::transition::arrival::staleness;
use crate::rules::waits::{Needed, needed};
use crate::store::inbox::{self, Scan};
use crate::store::view::View;
use crate::store::{Agent, dedupe, settled};

/// How many stale messages one transaction drops at most.
const STALE_MAX: usize = 64;

/// What a step is for, as far as loading goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To look: no file changes.
    Look,
    /// The same to say what a step would do: it looks behind what the step would drop or set aside first.
    Foresee,
    /// To change, under the lock: caches may be made anew.
    Change,
    /// The same for a step, which takes messages up: it also asks whether one has ended before.
    Step,
}

/// Loads what is open at one revision, around a `state.json` that was read from the same view.
pub fn records(
    agent: &Agent<'_>,
    view: &View<'_>,
    scan: &Scan,
    state: State,
    lease: Lease,
    now: Time,
    purpose: Purpose,
) -> Result<Records> {
    let policy = agent.policy()?;
    let open = agent.open_records(view, state)?;
    let inbox = inbox(agent, view, scan, &open.state, &policy, now, purpose)?;
    let broken_waits = broken_waits(view, scan, &open.waits, &open.tasks)?;
    Ok(Records {
        policy,
        state: open.state,
        lease,
        shortage: None,
        onlookers: Onlookers::default(),
        inbox,
        works: open.works,
        waits: open.waits,
        broken_waits,
        timers: open.timers,
        tasks: open.tasks,
    })
}

/// The waits that the other records disagree with. Costs nothing while every wait is one of an open
/// task, or of no task, and is not bound.
fn broken_waits(view: &View<'_>, scan: &Scan, waits: &[Wait], tasks: &[Task]) -> Result<Vec<BrokenWait>> {
    let mut broken = Vec::new();
    for wait in waits.iter().filter(|wait| wait.is_active()) {
        let (is_there, otherwise) = match needed(wait, tasks) {
            None => continue,
            Some(Needed::Answer(message)) => {
                (inbox::find_id(view, scan, message)?.is_some(), BrokenWait::AnswerGone(wait.id))
            }
            Some(Needed::Result(task, known)) => {
                (result_under_way(view, scan, task, known)?.is_some(), BrokenWait::TaskGone(wait.id))
            }
        };
        broken.extend((!is_there).then_some(otherwise));
    }
    Ok(broken)
}

/// The message in the inbox that says how a task ended. `known`: which it is, where a record says so;
/// those of the first version don't, and then every message is looked at.
pub fn result_under_way(
    view: &View<'_>,
    scan: &Scan,
    task: TaskId,
    known: Option<MessageId>,
) -> Result<Option<MessageId>> {
    if let Some(id) = known {
        return Ok(inbox::find_id(view, scan, id)?.map(|(key, _)| key.id));
    }
    for (key, path) in inbox::first(view, scan, usize::MAX)? {
        let Some(Ok(message)) = inbox::try_read(view, key, &path)? else { continue };
        if message.kind == MessageKind::TaskResult && message.task_id == Some(task) {
            return Ok(Some(key.id));
        }
    }
    Ok(None)
}

fn inbox(
    agent: &Agent<'_>,
    view: &View<'_>,
    scan: &Scan,
    state: &State,
    policy: &Policy,
    now: Time,
    purpose: Purpose,
) -> Result<Inbox> {
    let claimed_id = state
        .current_run
        .as_ref()
        .map(|run| run.message_id)
        .or(state.held.as_ref().map(|held| held.message_id));
    let mut interjects = scan.direct.iter().filter(|key| key.priority == Priority::Interject);
    let (hints, misfits) = inbox::read_hints(view, scan)?;
    let mut inbox = Inbox {
        hints,
        misfits,
        drops: scan.drops.len(),
        has_background: scan.has_background(),
        last_interject: interjects.next_back().map(|key| key.id),
        ..Inbox::default()
    };
    if let Some(id) = claimed_id
        && let Some((key, path)) = inbox::find_id(view, scan, id)?
    {
        match inbox::try_read(view, key, &path)? {
            Some(Ok(message)) => inbox.claimed = Some(message),
            Some(Err(misfit)) => inbox.misfits.push(misfit),
            None => {}
        }
    }
    // Mostly the first message is the head, or the first but one; only stale ones and misfits before it ask
    // for a longer look.
    let mut looked_at = 0;
    let mut count = 1 + usize::from(claimed_id.is_some());
    loop {
        let found = inbox::first(view, scan, count)?;
        for (key, path) in &found[looked_at.min(found.len())..] {
            if Some(key.id) == claimed_id {
                continue;
            }
            let message = match inbox::try_read(view, *key, path)? {
                Some(Ok(message)) => message,
                Some(Err(misfit)) => {
                    inbox.misfits.push(misfit);
                    continue;
                }
                None => continue,
            };
            // Nobody has looked at the size of what another user has put there as it stands.
            if message.origin.is_of_user()
                && message.attempt == 1
                && let Err(refusal) = check_size(&message.body, &policy.limits)
            {
                inbox.misfits.push(inbox::unfit(path, refusal.message));
                continue;
            }
            if purpose == Purpose::Step && settled::is_settled(view, message.id, now)? {
                inbox.stale.push((message, Staleness::Settled));
                continue;
            }
            let first = first_of_its_key(agent, view, &message, state, policy, now, purpose)?;
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

/// The message that this one's dedupe key stands for, if they are copies: admitted within one
/// window. One that has waited for longer than that is no copy of a later one.
pub fn first_of_its_key(
    agent: &Agent<'_>,
    view: &View<'_>,
    message: &Message,
    state: &State,
    policy: &Policy,
    now: Time,
    purpose: Purpose,
) -> Result<Option<MessageId>> {
    let Some(key) = &message.dedupe_key else { return Ok(None) };
    let window = policy.limits.dedupe_window;
    let entry = match purpose {
        Purpose::Change | Purpose::Step => agent.admitted_under(view, key, now, window, state.revision)?,
        Purpose::Look | Purpose::Foresee => dedupe::peek(view, key, now, window, state.revision)?,
    };
    let apart = |one: Time, other: Time| one.since(other).max(other.since(one));
    let is_copy = |entry: &DedupeEntry| apart(entry.admitted_at, message.created_at) < window;
    Ok(entry.filter(is_copy).map(|entry| entry.message_id))
}

/// Looks once more for the head of an inbox from which something has been taken, or to which
/// something was added that the scan does not know of.
pub fn offer_first(view: &View<'_>, scan: &Scan, inbox: &mut Inbox) -> Result<()> {
    if let Some((key, path)) = inbox::first(view, scan, 1)?.first()
        && let Some(Ok(message)) = inbox::try_read(view, *key, path)?
    {
        inbox.offer(&message);
    }
    Ok(())
}

/// The names of what steps pass over in the inbox, for whoever does not try again.
pub fn names_of(state: &State) -> impl Iterator<Item = String> {
    state.passed_over.iter().map(|one| one.file.clone())
}

/// Reads everything without a lock, at one revision.
pub fn look(agent: &Agent<'_>, now: Time) -> Result<Records> {
    agent.consistently(|view, state| {
        let lease = if state.current_run.is_some() && agent.is_leased()? { Lease::Held } else { Lease::Free };
        let mut scan = inbox::scan(view)?;
        scan.pass_over(names_of(&state));
        records(agent, view, &scan, state, lease, now, Purpose::Look)
    })
}

/// The same as the next step would find it, with the hand-written files that it would find in the inbox.
pub fn foresee(agent: &Agent<'_>, now: Time) -> Result<(Records, Vec<PathBuf>)> {
    agent.consistently(|view, state| {
        let lease = if agent.is_leased()? { Lease::Held } else { Lease::Free };
        let mut scan = inbox::scan(view)?;
        scan.pass_over(agent.passed_over(&state));
        let records = records(agent, view, &scan, state, lease, now, Purpose::Foresee)?;
        Ok((records, scan.drops))
    })
}
