//! `gc` for one agent: deletes expired months, and directories of runs and tasks on this machine.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use serde::Serialize;
use uuid::Uuid;

use crate::error::Result;
use crate::model::id::{MessageId, RunId};
use crate::model::message::Message;
use crate::model::record::Record;
use crate::model::retention::{Keep, Retention};
use crate::model::state::State;
use crate::model::time::Time;

use super::super::backend::{ENDED, Op, ReadView};
use super::super::dir::record::decode_at;
use super::super::dir::sweep::{Sweeping, Swept, named};
use super::super::dir::{ended_ids, evidence, gc, months};
use super::snapshot::Snapshot;
use super::{Agent, AgentTxn};

/// Result of `gc`, or of its dry run.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub struct Collected {
    #[serde(flatten)]
    pub swept: Swept,
    pub dropped: Vec<DroppedMonth>,
    pub freed_bytes: u64,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct DroppedMonth {
    pub month: String,
    pub bytes: u64,
}

impl Collected {
    pub fn is_nothing(&self) -> bool {
        *self == Collected::default()
    }

    fn of(swept: Swept, months: &[ExpiredMonth]) -> Collected {
        let dropped = |month: &ExpiredMonth| DroppedMonth { month: month.name.clone(), bytes: month.bytes };
        let freed_bytes = swept.bytes + months.iter().map(|month| month.bytes).sum::<u64>();
        Collected { swept, dropped: months.iter().map(dropped).collect(), freed_bytes }
    }
}

/// Expired history that was found without a lock, because the search may take long.
#[derive(Debug)]
pub struct Expired {
    retention: Retention,
    now: Time,
    /// Revision at which the history was searched.
    seen_at: u64,
    months: Vec<ExpiredMonth>,
}

/// Month of history past its retention period.
#[derive(Debug, Default, Clone)]
pub struct ExpiredMonth {
    name: String,
    /// Total length of the month's lines of history, in bytes.
    bytes: u64,
    about: Subjects,
    /// Messages that ended in this month and have no archive line of kind [`ENDED`] yet.
    unreported: Vec<MessageId>,
}

/// Ids of the runs and ended messages in a month's lines. The month is kept as long as a record
/// that has not ended contains such an id.
#[derive(Debug, Default, Clone)]
struct Subjects {
    /// Ids of the messages that ended in the month of these lines.
    ended: BTreeSet<MessageId>,
    runs: HashSet<Uuid>,
}

impl Subjects {
    fn note(&mut self, line: &[u8]) {
        self.ended.extend(ended_ids::ended(line).map(|id| MessageId(Uuid::from_bytes(id))));
        self.runs.extend(evidence::id_in::<RunId>(line).map(|id| id.0));
    }

    /// True if a queued message has one of these ids, or a record that has not ended contains one.
    fn are_needed(&self, queued: &[MessageId], named: &HashSet<Uuid>) -> bool {
        let is_about = |id: &Uuid| self.runs.contains(id) || self.ended.contains(&MessageId(*id));
        queued.iter().any(|id| is_about(&id.0)) || named.iter().any(is_about)
    }
}

impl ExpiredMonth {
    /// Returns the operations that delete the month's history. They keep the ids of messages that
    /// ended in it, because a message that comes back must not run again.
    fn removed(&self, seen_at: u64) -> Option<Vec<Op>> {
        let (from, until) = months::begins_at(&self.name).zip(months::over_at(&self.name))?;
        let stays = |id: &MessageId| {
            let text = String::from_utf8_lossy(&gc::ended_line(*id)).into_owned();
            Op::Ended { kind: ENDED, id: Some(id.to_string()), at: from, text }
        };
        let mut ops: Vec<Op> = self.unreported.iter().map(stays).collect();
        ops.push(Op::Forgotten { from, until, seen_at });
        Some(ops)
    }
}

impl Agent<'_> {
    /// Returns the history that `collect` would remove. Writes nothing.
    pub fn would_collect(&self, retention: Retention, now: Time) -> Result<Collected> {
        let how = Sweeping { retention, now, removes: false, is_leased: false };
        let expired = self.collection(retention, now)?;
        self.read(|seen, state| {
            let mut months = expired.months.clone();
            leave_needed(&mut months, &seen, &state)?;
            Ok(Collected::of(self.local().sweep_all(seen.view()?, &state, how)?, &months))
        })
    }

    /// Finds expired history without a lock. `collect` keeps newer lines and months still in use.
    pub fn collection(&self, retention: Retention, now: Time) -> Result<Expired> {
        let seen_at = self.peek()?.revision;
        let months = old_months(&self.snapshot(), retention.archive, now)?;
        Ok(Expired { retention, now, seen_at, months })
    }
}

impl AgentTxn<'_> {
    /// Deletes directories of this machine, and adds the deletion of expired months to the next
    /// commit. `is_leased`: the caller holds the agent's lease.
    pub fn collect(&self, expired: &mut Expired, state: &State, is_leased: bool) -> Result<Collected> {
        // A pending transaction in the journal would restore the files that it names.
        self.empty_journal()?;
        let Expired { retention, now, seen_at, months } = expired;
        let seen = self.records_snapshot();
        leave_needed(months, &seen, state)?;
        if state.revision != *seen_at {
            // Another `gc` may have archived these ids meanwhile, and no id needs two lines.
            for month in months.iter_mut() {
                month.unreported = unreported(seen.view()?, &month.about)?;
            }
        }
        self.change_along(months.iter().filter_map(|month| month.removed(*seen_at)).flatten().collect());
        let how = Sweeping { retention: *retention, now: *now, removes: true, is_leased };
        Ok(Collected::of(self.agent().local().sweep_all(seen.view()?, state, how)?, months))
    }
}

/// Returns the months past their retention period. Leaves out a month with a dead letter that no
/// person has requeued or dropped.
fn old_months(seen: &Snapshot<'_>, keep: Keep, now: Time) -> Result<Vec<ExpiredMonth>> {
    let Keep(Some(span)) = keep else { return Ok(Vec::new()) };
    let first_kept = months::first_recent(now).min(now.before(span).month());
    let Some(first_kept) = months::begins_at(&first_kept) else { return Ok(Vec::new()) };
    let view = seen.view()?;
    let place = seen.archive::<Message>();
    let decoded = |line: &str| decode_at::<Message>(&place, 0, line.as_bytes());
    let is_dead = |line: &str| -> Result<Option<Message>> {
        // Most lines lack this text, and then need no parsing.
        let message = line.contains("\"dead_letter\":true").then(|| decoded(line)).transpose()?;
        Ok(message.filter(|message| message.settlement.as_ref().is_some_and(|end| end.dead_letter)))
    };
    let mut found: BTreeMap<String, ExpiredMonth> = BTreeMap::new();
    let mut dead = HashMap::new();
    view.history(Some(first_kept), &mut |op| {
        let (Op::Ended { at, text, .. } | Op::Event { at, text, .. }) = &op else { return Ok(()) };
        let month = found.entry(at.month()).or_default();
        month.bytes += text.len() as u64;
        month.about.note(text.trim_ascii_end().as_bytes());
        if let Op::Ended { kind: Message::KIND, .. } = op
            && let Some(message) = is_dead(text)?
        {
            dead.insert(message.id.to_string(), (at.month(), text.clone()));
        }
        Ok(())
    })?;
    // The latest line of a message has its current end, so only that line can be a dead letter.
    let ids: Vec<String> = dead.keys().cloned().collect();
    let mut met = HashSet::new();
    for some in ids.chunks(view.max_ids()) {
        view.ended(&[Message::KIND], Some(some), &mut |line| {
            let id = decoded(line)?.id.to_string();
            if let Some((month, text)) = dead.get(&id)
                && met.insert(id)
                && text.trim_ascii_end() == line.trim_ascii_end()
            {
                found.remove(month);
            }
            Ok(true)
        })?;
    }
    for (name, month) in &mut found {
        month.name.clone_from(name);
        month.unreported = unreported(view, &month.about)?;
    }
    Ok(found.into_values().collect())
}

/// Returns the ended messages that have no archive line of kind [`ENDED`] yet.
fn unreported(view: &dyn ReadView, about: &Subjects) -> Result<Vec<MessageId>> {
    let mut unreported = about.ended.clone();
    let ids: Vec<String> = unreported.iter().map(MessageId::to_string).collect();
    for some in ids.chunks(view.max_ids()) {
        view.ended(&[ENDED], Some(some), &mut |line| {
            let mut told = Subjects::default();
            told.note(line.trim_ascii_end().as_bytes());
            unreported.retain(|id| !told.ended.contains(id));
            Ok(true)
        })?;
    }
    Ok(unreported.into_iter().collect())
}

/// Removes months from this list if a record that has not ended contains one of their ids.
fn leave_needed(months: &mut Vec<ExpiredMonth>, seen: &Snapshot<'_>, state: &State) -> Result<()> {
    if months.is_empty() {
        return Ok(());
    }
    let queued: Vec<_> = seen.view()?.messages(usize::MAX)?.iter().map(|key| key.id).collect();
    let named = named(seen.view()?, state, usize::MAX)?.unwrap_or_default();
    months.retain(|month| !month.about.are_needed(&queued, &named));
    Ok(())
}
