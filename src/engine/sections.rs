//! Sections in which a command runs. Each ends with the process that runs the command.

use crate::error::Result;
use crate::model::preemption::Section;
use crate::model::state::{CurrentRun, State};
use crate::model::time::Time;
use crate::rules::transition::draft::Draft;
use crate::rules::transition::preemption as rules;
use crate::store::Agent;

use super::context::Context;
use super::owner::away;
use super::session::Session;

/// True if the process that ran the command of a section is gone. False if that can't be read, or
/// is on another machine.
fn is_abandoned(agent: &Agent<'_>, run: &CurrentRun, section: &Section, now: Time) -> bool {
    section.of_command
        && away(agent, run, now).is_ok_and(|away| away.is_none())
        && agent
            .ready_local()
            .is_ok_and(|local| matches!(local.is_section_held(run.run_id, section.number), Ok(false)))
}

/// Closes abandoned sections in a draft.
pub fn close_abandoned(agent: &Agent<'_>, draft: &mut Draft) {
    let now = draft.now();
    rules::close_abandoned(draft, |run, section| is_abandoned(agent, run, section, now));
}

/// True if a run has sections that end with a process, which changes no record.
pub fn end_unseen(run: &CurrentRun) -> bool {
    run.sections.iter().any(|section| section.of_command)
}

/// Commits the end of abandoned sections, if there are any and the agent's lock is free. Returns
/// the state after that.
pub fn settled(session: &Session, agent: &Agent<'_>, state: State) -> Result<State> {
    let now = session.clock.now();
    let Some(run) = &state.current_run else { return Ok(state) };
    if !run.sections.iter().any(|section| is_abandoned(agent, run, section, now)) {
        return Ok(state);
    }
    // Opening the records closes the sections.
    let opened = Context::new(session, agent).try_open()?;
    opened.map_or(Ok(state), |open| open.commit())
}
