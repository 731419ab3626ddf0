//! `next-wake`: when the next step has something to do.

use serde::Serialize;

use crate::cli::{NextWake, WakeFormat};
use crate::engine::foresee::{Foreseen, at_rest, foresee};
use crate::engine::owner::given_up_at;
use crate::engine::session::{Session, agents};
use crate::error::{Result, Status};
use crate::model::decision::Decision;
use crate::model::id::AgentName;
use crate::model::time::Time;
use crate::rules::due::next_due;
use crate::store::{Agent, Store};

#[derive(Serialize)]
struct Wake {
    agents: Vec<AgentName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_wake_at: Option<Time>,
}

pub fn next_wake(session: &mut Session, args: NextWake) -> Result<Status> {
    let store = session.store()?;
    let names = agents(&store, &args.agents, args.all)?;
    let now = session.clock.now();
    let mut earliest: Option<Time> = None;
    let status = session.each_agent(&names, |session, name| {
        let due = due(session, &store, &store.agent(name)?, now)?;
        earliest = [earliest, due].into_iter().flatten().min();
        Ok(Status::Done)
    });
    let format = args.format;
    let wake = Wake { agents: names, next_wake_at: earliest };
    match earliest {
        Some(at) => session.out.result(&wake, |_| written(at, format)),
        None if session.out.is_json() => session.out.json_line(&wake),
        None => {}
    }
    Ok(status)
}

/// When the next step of an agent has something to do: at once if it would do something now.
fn due(session: &Session, store: &Store, agent: &Agent<'_>, now: Time) -> Result<Option<Time>> {
    match at_rest(store, agent, now) {
        Ok(Some((state, _))) => return Ok(state.next_due_at),
        Ok(None) => {}
        Err(error) if error.is_moved() => {
            session.out.note(&format!("{error}: nothing is due here"));
            return Ok(None);
        }
        Err(error) => return Err(error),
    }
    let Foreseen { decision, draft, has_errands, .. } = foresee(session, store, agent, now)?;
    let records = &draft.records;
    // A claim that lacks something is a step to be made once: then it is known when to look again.
    let lacks = matches!(decision, Decision::Lack { .. }) && records.state.held.is_none();
    let due = next_due(records).or(given_up_at(&records.state, now));
    Ok(if decision.moves() || lacks || has_errands { Some(now) } else { due })
}

fn written(at: Time, format: WakeFormat) -> String {
    match format {
        WakeFormat::Rfc3339 => at.to_string(),
        // Never before the moment itself: a step that comes early finds nothing.
        WakeFormat::Epoch => {
            at.as_millis().div_euclid(1000).saturating_add(i64::from(at.as_millis() % 1000 != 0)).to_string()
        }
        WakeFormat::Systemd => at.utc().format("%Y-%m-%d %H:%M:%S%.3f UTC").to_string(),
    }
}
