//! Context of a turn: earlier messages and briefs (contract, turns).

use crate::error::Result;
use crate::model::message::Message;
use crate::model::records::Records;
use crate::model::state::State;
use crate::model::time::Time;
use crate::report::context::{self, History};
use crate::store::Snapshot;

use super::session::Session;

/// Returns the context of a turn. Must be called under the lock of its claim.
pub fn past(session: &Session, seen: &Snapshot<'_>, records: &Records, message: &Message) -> Result<History> {
    let state = &records.state;
    Ok(History {
        briefs: seen.recent(session.clock.now(), context::BRIEFS, |_| true)?,
        reduced: reduced(seen, state, session.clock.now())?,
        reduced_count: state.counters.reduced_since_turn,
        interjected: interjected(session, seen, message)?,
        plan: match state.focus {
            Some(item) => seen.plan(item)?,
            None => None,
        },
    })
}

/// Returns the messages that were handed over to earlier runs of a message.
fn interjected(session: &Session, seen: &Snapshot<'_>, message: &Message) -> Result<Vec<Message>> {
    if message.interjected.is_empty() {
        return Ok(Vec::new());
    }
    let was_said = |other: &Message| message.interjected.contains(&other.id);
    seen.recent(session.clock.now(), context::INTERJECTED, was_said)
}

/// Returns the messages that were reduced since the last completed turn, newest first, up to the
/// maximum for the context of a turn.
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
