//! What runs for an agent is ended when its records say so: a tick watches them meanwhile.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use crate::error::Result;
use crate::model::execution::ExecutionState;
use crate::model::id::RunId;
use crate::model::state::State;
use crate::model::time::Time;
use crate::process::turn::{Fate, Overseer};
use crate::rules::preemption::force_at;
use crate::rules::transition::preemption::force;
use crate::store::Agent;
use crate::store::watch::Watch;

use super::load;
use super::session::Session;

/// How soon a run is tried to be forced again whose records somebody has locked.
const BUSY_PAUSE: Duration = Duration::from_millis(20);

/// Somebody who looks at an agent's record whenever it changes.
pub struct Overseen<'a, L> {
    agent: &'a Agent<'a>,
    watch: Watch,
    look: L,
}

impl<'a, L: FnMut(&State) -> Fate> Overseen<'a, L> {
    pub fn new(agent: &'a Agent<'a>, look: L) -> Overseen<'a, L> {
        let mut watch = Watch::new();
        watch.add(agent.dir().path());
        Overseen { agent, watch, look }
    }
}

impl<L: FnMut(&State) -> Fate> Overseer for Overseen<'_, L> {
    fn word(&self) -> Option<BorrowedFd<'_>> {
        self.watch.changes()
    }

    fn ask(&mut self) -> Fate {
        self.watch.calm();
        // A record that can't be read is no reason to end what runs: its settlement will say so.
        let fate = self.agent.peek().map_or(Fate::GoesOn { ask_again: None }, |state| (self.look)(&state));
        match fate {
            Fate::Ends => Fate::Ends,
            Fate::GoesOn { ask_again } => {
                let look_anyway = Instant::now().checked_add(self.watch.patience());
                Fate::GoesOn { ask_again: ask_again.into_iter().chain(look_anyway).min() }
            }
        }
    }
}

/// Ends a run that is settled or condemned already, or that was to yield and has not (contract, execution
/// §6). One that is stopped is ended by its stop, and if that is gone, here.
pub fn of_run<'a>(session: &'a Session, agent: &'a Agent<'a>, run_id: RunId) -> impl Overseer + 'a {
    let mut grace = Grace::default();
    Overseen::new(agent, move |state: &State| {
        let run = state.current_run.as_ref().filter(|run| run.run_id == run_id);
        // Somebody has settled it, and thought that it would not begin any more.
        let Some(run) = run.filter(|run| run.condemned.is_none()) else { return Fate::Ends };
        let shut_down =
            run.stopping.as_ref().filter(|_| state.execution.state == ExecutionState::ShuttingDown);
        let Some(over) = shut_down.map(|stopping| stopping.kill_at).or(force_at(run)) else {
            return Fate::GoesOn { ask_again: None };
        };
        let end = grace.end(over, session.clock.now());
        if end.is_none_or(|end| Instant::now() < end) {
            return Fate::GoesOn { ask_again: end };
        }
        if shut_down.is_some() {
            return Fate::Ends;
        }
        match force_under_lock(session, agent, run_id, over) {
            Ok(true) => Fate::Ends,
            // A section was opened, or somebody is at work on the records: they know better then.
            Ok(false) | Err(_) => Fate::GoesOn { ask_again: Instant::now().checked_add(BUSY_PAUSE) },
        }
    })
}

/// The end of a run's grace by a clock that can't be set: counted from when it was first seen.
#[derive(Default)]
struct Grace {
    seen: Option<(Time, Option<Instant>)>,
}

impl Grace {
    fn end(&mut self, at: Time, now: Time) -> Option<Instant> {
        if self.seen.is_none_or(|(seen, _)| seen != at) {
            let left = at.since(now).as_std();
            self.seen = Some((at, Instant::now().checked_add(left)));
        }
        self.seen.and_then(|(_, end)| end)
    }
}

/// Commits that the run is forced before any signal is sent: from then on no section is opened.
fn force_under_lock(session: &Session, agent: &Agent<'_>, run_id: RunId, over: Time) -> Result<bool> {
    let Some((mut draft, locked)) = load::try_begin(session, agent)? else { return Ok(false) };
    let forced = force(&mut draft, run_id, over);
    if !draft.is_empty() {
        locked.commit(draft.finish()?)?;
    }
    Ok(forced)
}
