//! `gc` of an agent whose records are in a database: deletes expired months there, and the
//! directories of runs and tasks on this machine.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::rc::Rc;

use crate::error::{Error, Result};
use crate::model::id::MessageId;
use crate::model::message::Message;
use crate::model::record::Record;
use crate::model::retention::{Keep, Retention};
use crate::model::state::State;
use crate::model::time::Time;

use super::super::dir::gc::{self, Subjects};
use super::super::dir::record::decode_at;
use super::super::dir::sweep::Sweeping;
use super::super::dir::witness::named;
use super::super::dir::{self, Collected, DroppedMonth, layout, months};
use super::super::elsewhere::{ENDED, Op, ReadView};
use super::remote::Remote;
use super::seen::RemoteSnapshot;
use super::{Agent, AgentTxn};

/// About how many messages one question is.
const AT_ONCE: usize = 256;

/// Expired history that was found without a lock. Finding it may take long.
#[derive(Debug)]
pub enum Expired {
    Dir(dir::Collection),
    Remote {
        retention: Retention,
        now: Time,
        /// The revision that was read.
        seen_at: u64,
        months: Vec<ExpiredMonth>,
    },
}

/// A month that is kept no longer.
#[derive(Debug, Default)]
pub struct ExpiredMonth {
    name: String,
    /// Length of its lines.
    bytes: u64,
    about: Subjects,
    /// The messages that ended in it, of which nothing else says so.
    untold: Vec<MessageId>,
}

impl ExpiredMonth {
    fn told(&self) -> DroppedMonth {
        DroppedMonth { month: self.name.clone(), bytes: self.bytes }
    }

    /// The pieces that remove it. What has ended must not run again because it came back, so that
    /// stays.
    fn removed(&self, seen_at: u64) -> Option<Vec<Op>> {
        let (from, until) = months::begins_at(&self.name).zip(months::over_at(&self.name))?;
        let stays = |id: &MessageId| {
            let text = String::from_utf8_lossy(&gc::ended_line(*id)).into_owned();
            Op::Ended { kind: ENDED, id: Some(id.to_string()), at: from, text }
        };
        let mut pieces: Vec<Op> = self.untold.iter().map(stays).collect();
        pieces.push(Op::Forgotten { from, until, seen_at });
        Some(pieces)
    }
}

impl Agent<'_> {
    /// Returns the history that `collect` would remove. Writes nothing.
    pub fn would_collect(&self, retention: Retention, now: Time) -> Result<Collected> {
        let Some(remote) = self.remote() else { return self.local().would_collect(retention, now) };
        let how = Sweeping { retention, now, removes: false, is_leased: false };
        self.see(remote, |sight, state| {
            let mut months = old_months(remote, &*sight, retention.archive, now)?;
            let seen = RemoteSnapshot::of(remote, Rc::clone(&sight));
            leave_needed(&mut months, &*sight, &seen, &state)?;
            let swept = self.local().sweep_all(&seen, &state, how)?;
            Ok(Collected::of(swept, months.iter().map(ExpiredMonth::told).collect()))
        })
    }

    /// Reads what can be collected. To be done without a lock.
    pub fn collection(&self, retention: Retention, now: Time) -> Result<Expired> {
        let Some(remote) = self.remote() else {
            return Ok(Expired::Dir(self.local().collection(retention, now)?));
        };
        self.see(remote, |sight, state| {
            let months = old_months(remote, &*sight, retention.archive, now)?;
            Ok(Expired::Remote { retention, now, seen_at: state.revision, months })
        })
    }
}

impl AgentTxn<'_> {
    /// Collects all that may go before the next commit. What has to go with it, or after it, goes
    /// then.
    pub fn collect(&self, collection: &mut Expired, state: &State, is_leased: bool) -> Result<Collected> {
        let (retention, now, seen_at, months) = match collection {
            Expired::Dir(collection) => return self.local().collect(collection, state, is_leased),
            Expired::Remote { retention, now, seen_at, months } => (*retention, *now, *seen_at, months),
        };
        let Some((seen, hold)) = self.seen_remote().zip(self.hold()) else {
            return Err(Error::failed("the records have gone elsewhere"));
        };
        leave_needed(months, &*hold.now()?, &seen, state)?;
        let how = Sweeping { retention, now, removes: true, is_leased };
        let swept = self.agent().local().sweep_all(&seen, state, how)?;
        self.change_along(months.iter().filter_map(|month| month.removed(seen_at)).flatten().collect());
        Ok(Collected::of(swept, months.iter().map(ExpiredMonth::told).collect()))
    }

    /// Removes what could not go before the commit.
    pub fn remove_collected(&self, collection: &Expired) -> Result<()> {
        match collection {
            Expired::Dir(collection) => self.local().remove_collected(collection),
            Expired::Remote { .. } => Ok(()),
        }
    }
}

/// The months that are kept no longer. A month stays in which a dead letter lies that no person has
/// requeued or dropped.
fn old_months(remote: &Remote, sight: &dyn ReadView, keep: Keep, now: Time) -> Result<Vec<ExpiredMonth>> {
    let Keep(Some(span)) = keep else { return Ok(Vec::new()) };
    let first_kept = months::first_recent(now).min(now.before(span).month());
    let Some(first_kept) = months::begins_at(&first_kept) else { return Ok(Vec::new()) };
    let place = remote.place(format_args!("{}/{}", layout::ARCHIVE, Message::KIND));
    let decoded = |line: &str| decode_at::<Message>(&place, 0, line.as_bytes());
    let is_dead = |line: &str| -> Result<Option<Message>> {
        // A look at the text spares most lines the parsing.
        let message = line.contains("\"dead_letter\":true").then(|| decoded(line)).transpose()?;
        Ok(message.filter(|message| message.settlement.as_ref().is_some_and(|end| end.dead_letter)))
    };
    let mut found: BTreeMap<String, ExpiredMonth> = BTreeMap::new();
    let mut dead = HashMap::new();
    sight.before(first_kept, &mut |piece| {
        let (Op::Ended { at, text, .. } | Op::Event { at, text, .. }) = &piece else { return Ok(()) };
        let month = found.entry(at.month()).or_default();
        month.bytes += text.len() as u64;
        month.about.note(text.trim_ascii_end().as_bytes());
        if let Op::Ended { kind: Message::KIND, .. } = piece
            && let Some(message) = is_dead(text)?
        {
            dead.insert(message.id.to_string(), (at.month(), text.clone()));
        }
        Ok(())
    })?;
    // The last word about a message is the last line that it has.
    let ids: Vec<String> = dead.keys().cloned().collect();
    let mut met = HashSet::new();
    for some in ids.chunks(AT_ONCE) {
        sight.ended(&[Message::KIND], Some(some), &mut |line| {
            let id = decoded(line)?.id.to_string();
            if let Some((month, text)) = dead.get(&id)
                && met.insert(id)
                && text == line
            {
                found.remove(month);
            }
            Ok(true)
        })?;
    }
    for (name, month) in &mut found {
        month.name.clone_from(name);
        month.untold = untold(sight, &month.about)?;
    }
    Ok(found.into_values().collect())
}

/// The messages of which no line says yet that they ended in a month that is gone.
fn untold(sight: &dyn ReadView, about: &Subjects) -> Result<Vec<MessageId>> {
    let mut untold = about.ended.clone();
    let ids: Vec<String> = untold.iter().map(MessageId::to_string).collect();
    for some in ids.chunks(AT_ONCE) {
        sight.ended(&[ENDED], Some(some), &mut |line| {
            let mut told = Subjects::default();
            told.note(line.trim_ascii_end().as_bytes());
            untold.retain(|id| !told.ended.contains(id));
            Ok(true)
        })?;
    }
    Ok(untold.into_iter().collect())
}

/// Leaves out the months that an open record is about.
fn leave_needed(
    months: &mut Vec<ExpiredMonth>,
    sight: &dyn ReadView,
    seen: &RemoteSnapshot<'_>,
    state: &State,
) -> Result<()> {
    if months.is_empty() {
        return Ok(());
    }
    let queued: Vec<_> = sight.messages(usize::MAX)?.iter().map(|key| key.id).collect();
    let named = named(seen, state, usize::MAX)?.unwrap_or_default();
    months.retain(|month| !month.about.are_needed(&queued, &named));
    Ok(())
}
