//! Option `tick --push`: several machines tick one repository; before a step with something to do,
//! this clone takes the agent by a push, which git accepts from only one clone, then runs the step
//! and pushes the result.
//!
//! No local record changes before the push is accepted, so a refused push leaves nothing to undo.

use crate::engine::context::Context;
use crate::engine::session::Session;
use crate::engine::step::{busy_step, preview, report_preview};
use crate::engine::sync::{RemoteSync, SyncOptions};
use crate::error::Result;
use crate::local::machine;
use crate::model::refusal::Refusal;
use crate::model::state::TickedBy;
use crate::model::time::Span;
use crate::report::step::StepReport;
use crate::rules::transition::moved::let_go;
use crate::store::{Agent, Store};

/// Time for which a clone's claim on an agent outlasts the timeout of the turn.
const MARGIN: Span = Span::from_secs(10 * 60);
/// Assumed timeout of a turn that has no timeout, for the expiry of a clone's claim on the agent.
const WITHOUT_TIMEOUT: Span = Span::from_secs(24 * 3600);

/// Fetches the changes of other clones, and pushes the changes of this clone.
pub fn begin<'s>(session: &Session, store: &'s Store, remote: &str) -> Result<RemoteSync<'s>> {
    let exchange = RemoteSync::open(store, Some(remote).filter(|remote| !remote.is_empty()))?;
    let terms = SyncOptions { message: ("dormouse tick --push", ""), begins: true, ..SyncOptions::default() };
    let found = exchange.run(session, &terms)?;
    found.print_quarantined(session);
    let _ = session.publishes_to.set(exchange.line.clone());
    Ok(exchange)
}

/// Runs one step if the agent has something to do and no other clone has taken the agent. Returns
/// true with the report if this clone has taken it, so that the caller must push the result.
pub fn step(session: &Session, agent: &Agent<'_>, exchange: &RemoteSync<'_>) -> Result<(StepReport, bool)> {
    let now = session.clock.now();
    if !preview(Context::new(session, agent), now)?.is_due() {
        return Ok((report_preview(Context::new(session, agent))?, false));
    }
    let time = agent.policy()?.turn.timeout.0.unwrap_or(WITHOUT_TIMEOUT);
    let by = TickedBy {
        id: session.clock.stamp()?.mint().simple().to_string(),
        host: machine::name(),
        since: now,
        expires_at: now.after(time).after(MARGIN),
    };
    let takes = SyncOptions {
        message: ("dormouse tick --push", ""),
        takes: Some((agent.name(), &by)),
        ..SyncOptions::default()
    };
    if exchange.run(session, &takes)?.is_taken {
        return Ok((report_preview(Context::new(session, agent))?, false));
    }
    let stepped = busy_step(Context::new(session, agent));
    let released = Context::new(session, agent).change(|draft| {
        let_go(draft, Some(&by.id));
        Ok::<(), Refusal>(())
    });
    if stepped.is_err() {
        // The caller reports the error of the step rather than that of the push.
        let _ = publish(session, exchange, (&format!("{}: its step failed", agent.name()), ""));
    }
    let report = stepped?;
    released?;
    Ok((report, true))
}

/// Pushes the result of a step.
pub fn publish(session: &Session, exchange: &RemoteSync<'_>, (subject, body): (&str, &str)) -> Result<()> {
    exchange.run(session, &SyncOptions { message: (subject, body), ..SyncOptions::default() }).map(drop)
}
