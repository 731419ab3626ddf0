//! What an agent has done in a period: what `report` draws.

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

/// Everything of an agent that went on at `since` or later, and how it stands at `now`. Nothing is
/// locked. Of what has ended, only the months from that of `since` on are read.
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
            // What the scheduler says to itself is taken up by the next step, and would hide how
            // long others wait.
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

/// The ended records of a kind, newest first, from the month of `since` on, and some that ended
/// before it.
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
