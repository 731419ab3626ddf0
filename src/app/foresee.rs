//! What the next step would decide, for `tick --dry-run`, `explain` and `next-wake`.

use crate::error::Result;
use crate::model::decision::Decision;
use crate::model::records::Lease;
use crate::model::time::Time;
use crate::rules::transition::draft::Draft;
use crate::rules::transition::inbox as arrivals;
use crate::rules::transition::turn::interrupt;
use crate::store::{Agent, Store};

use super::background;
use super::drops;
use super::load;
use super::recover::{Owner, TICK_GONE};
use super::resources::{self, decide_and_take};
use super::session::Session;

/// Decides without a lock and without changing a file.
pub fn foresee(session: &Session, store: &Store, agent: &Agent<'_>, now: Time) -> Result<(Decision, Draft)> {
    let records = load::look(agent, now)?;
    let mut draft = Draft::new(records, session.clock.stamp()?);
    let state = &draft.records.state;
    let abandoned = state.current_run.as_ref().is_some_and(|run| Owner::of(run, now) == Owner::Here);
    if abandoned && draft.records.lease == Lease::Free {
        interrupt(&mut draft, TICK_GONE)?;
    }
    if draft.records.state.current_run.is_some() {
        let (decision, _) = decide_and_take(store, agent, &mut draft, resources::Purpose::Look)?;
        return Ok((decision, draft));
    }
    background::foresee(store, agent, &mut draft)?;
    let drops = drops::waiting(agent, &draft.records.state)?;
    draft.records.inbox.drops = drops.len();
    let mut drops = drops.chunks(drops::at_once(&draft.records.policy));
    // As the step does: it takes in some, and the next ones where it would not move the agent on.
    loop {
        drops::foresee(session, agent, &mut draft, drops.next().unwrap_or_default())?;
        let mut foreseen = draft.clone();
        arrivals::take_in(&mut foreseen)?;
        let (decision, _) = decide_and_take(store, agent, &mut foreseen, resources::Purpose::Look)?;
        if decision.moves() || drops.len() == 0 {
            return Ok((decision, foreseen));
        }
    }
}
