//! `tick --push`: one repository that several machines tick. Before a step that has something to
//! do, this clone takes the agent by a push, which only one of several clones that try is heard
//! with; then it steps, and pushes what came of it.
//!
//! Nothing in the records here is changed before that push was heard: a push that is refused leaves
//! nothing to undo.

use crate::engine::desk::Desk;
use crate::engine::exchange::{Exchange, Terms};
use crate::engine::foresee::foresee;
use crate::engine::session::Session;
use crate::engine::step::{busy_step, would_do};
use crate::error::Result;
use crate::model::refusal::Refusal;
use crate::model::state::TickedBy;
use crate::model::time::Span;
use crate::process::host;
use crate::report::step::StepReport;
use crate::rules::transition::taken::let_go;
use crate::store::{Agent, Store};

/// How long a clone has an agent beyond the time of its turn: for what comes before the turn and
/// after it.
const MARGIN: Span = Span::from_secs(10 * 60);
/// Of a turn without a timeout.
const WITHOUT_TIMEOUT: Span = Span::from_secs(24 * 3600);

/// Fetches what the other clones have done, and lets them have what this one has.
pub fn begin<'s>(session: &Session, store: &'s Store, remote: &str) -> Result<Exchange<'s>> {
    let exchange = Exchange::open(store, Some(remote).filter(|remote| !remote.is_empty()))?;
    let terms = Terms { message: ("dormouse tick --push", ""), begins: true, ..Terms::default() };
    let found = exchange.run(session, &terms)?;
    found.say_aside(session);
    session.publishes_to.replace(Some(exchange.line.clone()));
    Ok(exchange)
}

/// What came of a step.
pub struct Stepped {
    pub report: StepReport,
    /// Whether this clone had the agent: then there is something for the others to hear.
    pub has_taken: bool,
}

/// One step, if there is anything to do and no other clone is at it.
pub fn step(
    session: &mut Session,
    store: &Store,
    agent: &Agent<'_>,
    exchange: &Exchange<'_>,
) -> Result<Stepped> {
    let now = session.clock.now();
    if !foresee(session, store, agent, now)?.is_due() {
        return Ok(Stepped { report: would_do(session, store, agent)?, has_taken: false });
    }
    let time = agent.policy()?.turn.timeout.0.unwrap_or(WITHOUT_TIMEOUT);
    let by = TickedBy {
        id: session.clock.stamp()?.mint().simple().to_string(),
        host: host::hostname(),
        since: now,
        expires_at: now.after(time).after(MARGIN),
    };
    let takes =
        Terms { message: ("dormouse tick --push", ""), takes: Some((agent.name(), &by)), ..Terms::default() };
    if exchange.run(session, &takes)?.is_taken {
        return Ok(Stepped { report: would_do(session, store, agent)?, has_taken: false });
    }
    let stepped = busy_step(session, store, agent);
    let released = Desk::new(session, agent).change(|draft| {
        let_go(draft, Some(&by.id));
        Ok::<(), Refusal>(())
    });
    if stepped.is_err() {
        // Its own error is the one worth telling.
        let _ = publish(session, exchange, (&format!("{}: its step failed", agent.name()), ""));
    }
    let report = stepped?;
    released?;
    Ok(Stepped { report, has_taken: true })
}

/// Lets the other clones have what came of a step.
pub fn publish(session: &Session, exchange: &Exchange<'_>, (subject, body): (&str, &str)) -> Result<()> {
    exchange.run(session, &Terms { message: (subject, body), ..Terms::default() }).map(drop)
}
