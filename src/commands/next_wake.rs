//! `next-wake`: time at which the next step has something to do.

use serde::Serialize;

use crate::cli::{NextWakeArgs, WakeFormat};
use crate::engine::context::Context;
use crate::engine::preview::forecast;
use crate::engine::session::{Session, agents};
use crate::error::{Result, Status};
use crate::model::id::AgentName;
use crate::model::time::Time;
use crate::store::Agent;

#[derive(Serialize)]
struct WakeTime {
    agents: Vec<AgentName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_wake_at: Option<Time>,
}

pub fn next_wake(session: &mut Session, args: NextWakeArgs) -> Result<Status> {
    let store = session.store()?;
    let now = session.clock.now();
    let known = if args.all { store.due(now)? } else { None };
    // The single time of the text output can come from the store; JSON lists every agent.
    let names = if known.is_none() || session.out.is_json() {
        agents(&store, &args.agents, args.all)?
    } else {
        Vec::new()
    };
    let mut earliest = known.as_ref().and_then(|known| known.next);
    let named: Option<Vec<AgentName>> = known.map(|known| known.names().cloned().collect());
    let status = session.each_agent(named.as_ref().unwrap_or(&names), args.all, |session, name| {
        let due = due(session, &store.agent(name)?, now)?;
        earliest = [earliest, due].into_iter().flatten().min();
        Ok(Status::Done)
    });
    let format = args.format;
    let wake = WakeTime { agents: names, next_wake_at: earliest };
    match earliest {
        Some(at) => session.out.result(&wake, |_| written(at, format)),
        None if session.out.is_json() => session.out.json_line(&wake),
        None => {}
    }
    Ok(status)
}

/// Returns the due time of an agent's next step: now if a step would do something at once.
fn due(session: &Session, agent: &Agent<'_>, now: Time) -> Result<Option<Time>> {
    match forecast(Context::new(session, agent), now) {
        Ok(expected) => Ok(expected.due),
        Err(error) if error.is_moved() => {
            session.out.note(&format!("{error}: nothing is due here"));
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn written(at: Time, format: WakeFormat) -> String {
    match format {
        WakeFormat::Rfc3339 => at.to_string(),
        // Rounded up, because a step before the due time finds nothing.
        WakeFormat::Epoch => {
            at.as_millis().div_euclid(1000).saturating_add(i64::from(at.as_millis() % 1000 != 0)).to_string()
        }
        WakeFormat::Systemd => at.utc().format("%Y-%m-%d %H:%M:%S%.3f UTC").to_string(),
    }
}
