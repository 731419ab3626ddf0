//! Activity of an agent in a period, read for `report`.

use std::collections::{HashMap, HashSet};

use crate::error::Result;
use crate::model::id::MessageId;
use crate::model::message::{Message, MessageKind};
use crate::model::record::Record;
use crate::model::time::Time;
use crate::model::wait::Wait;
use crate::report::timeline::{Activity, Pause, ShownTurn, Stay};
use crate::store::{Agent, Snapshot};

use super::summaries;

/// Returns the activity of an agent since `since`, and its state at `now`. Takes no lock. Ended
/// records are read only from the month of `since` on.
pub fn doings(agent: &Agent<'_>, since: Time, now: Time) -> Result<Activity> {
    let line = summaries::line(agent, None, now)?;
    agent.look(|seen, state| {
        let mut turns: Vec<ShownTurn> = seen.runs_since(since)?.into_iter().map(ShownTurn::from).collect();
        turns.extend(state.current_run.as_ref().map(|run| ShownTurn::live(run, now)));
        turns.retain(|turn| turn.ended_at >= since);
        turns.sort_by_key(|turn| turn.started_at);
        let mut waits = seen.open::<Wait>()?;
        ended_since(&seen, since, |wait: &Wait| wait.ended_at, |wait| waits.push(wait))?;
        let mut known = HashSet::new();
        let mut pauses: Vec<Pause> = waits
            .into_iter()
            .filter(|wait| known.insert(wait.id))
            .map(|wait| Pause::new(wait, now))
            .collect();
        pauses.retain(|pause| pause.until >= since);
        pauses.sort_by_key(|pause| (pause.since, pause.until));
        let mut taken_up: HashMap<MessageId, Time> = HashMap::new();
        for turn in turns.iter().rev() {
            taken_up.insert(turn.message_id, turn.started_at);
        }
        let mut stays = Vec::new();
        let mut told = HashSet::new();
        let ended = |message: &Message| message.settlement.as_ref().map(|end| end.at);
        ended_since(&seen, since, ended, |message| {
            let left = ended(&message);
            // The next step takes up the scheduler's own messages at once; their waits would hide
            // those of other messages.
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
        Ok(Activity { line: line.clone(), turns, pauses, stays })
    })
}

/// Returns the ended records of a kind, newest first, from the month of `since` on. Some may have
/// ended before `since`.
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
