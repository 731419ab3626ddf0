//! `next-wake`: when the next step has something to do.

use serde::Serialize;

use crate::cli::{NextWake, WakeFormat};
use crate::error::{Result, Status};
use crate::model::decision::Decision;
use crate::model::id::AgentName;
use crate::model::time::Time;
use crate::store::view::View;
use crate::store::{Agent, Store};

use super::background;
use super::foresee::foresee;
use super::recover::given_up_at;
use super::session::{Session, agents};

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
    let state = agent.peek()?;
    if state.is_to_be_told() {
        return Ok(Some(now));
    }
    let rests = state.resting(now).is_some()
        && agent.is_quiet(&state)?
        && state.next_due_at.is_none_or(|due| due > now)
        && background::due(store, agent, &View::settled(agent.dir()), &state, now)?.is_empty();
    if rests {
        return Ok(state.next_due_at);
    }
    let (decision, draft) = foresee(session, store, agent, now)?;
    // A claim that lacks something is a step to be made once: then it is known when to look again.
    let lacks = matches!(decision, Decision::Lack { .. }) && draft.records.state.held.is_none();
    let records = &draft.records;
    // So is whatever the step finds before it decides: a run whose tick is gone, a state that has lasted
    // too long, a message whose time is over.
    let takes_in = !draft.is_empty();
    let due = crate::rules::due::next_due(records).or(given_up_at(&records.state, now));
    Ok(if decision.moves() || lacks || takes_in { Some(now) } else { due })
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
