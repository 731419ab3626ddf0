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
    if draft.records.state.current_run.is_none() {
        background::foresee(store, agent, &mut draft)?;
        drops::foresee(session, agent, &mut draft)?;
        arrivals::take_in(&mut draft)?;
    }
    let (decision, _) = decide_and_take(store, agent, &mut draft, resources::Purpose::Look)?;
    Ok((decision, draft))
}
