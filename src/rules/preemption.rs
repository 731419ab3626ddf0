//! Preemption: a run is asked to yield, and ended if it does not yield in time (contract, execution
//! §6).

use crate::model::message::{Message, OriginKind, Priority};
use crate::model::state::CurrentRun;
use crate::model::time::{Span, Time};

use super::execution::is_over;

/// Returns the reason why the turn should yield, for output at a safe point. `None`: the turn may
/// continue, as it always may while an open critical section has time left.
pub fn asks_to_yield(run: &CurrentRun, now: Time) -> Option<&str> {
    let stopped = run.stopping.as_ref().map(|stopping| stopping.reason.as_deref().unwrap_or("stopped"));
    let asked = run.preemption.as_ref().map(|request| request.reason.as_str());
    let reason = run.condemned.as_deref().or(stopped).or(run.told.as_deref()).or(asked)?;
    protected_until(run, now).is_none().then_some(reason)
}

/// Returns the time until which open critical sections protect a run; `None` without protection.
pub fn protected_until(run: &CurrentRun, now: Time) -> Option<Time> {
    run.sections.iter().map(|section| section.until).max().filter(|until| !is_over(*until, now))
}

/// Returns the time at which the processes of a run are killed if the run is stopped now: `grace`
/// after the end of its critical section, which counts for `max_section` at most.
pub fn kill_at(run: &CurrentRun, now: Time, max_section: Span, grace: Span) -> Time {
    protected_until(run, now).map_or(now, |until| until.min(now.after(max_section))).after(grace)
}

/// Returns the time after which a run that was asked to yield is forced to end: the end of the
/// grace or of the last critical section, whichever is later.
pub fn force_at(run: &CurrentRun) -> Option<Time> {
    let request = run.preemption.as_ref()?;
    run.sections.iter().map(|section| section.until).chain([request.force_at]).max()
}

/// True if a run was asked to yield and the time at which it is forced to end has passed.
pub fn is_overdue(run: &CurrentRun, now: Time) -> bool {
    force_at(run).is_some_and(|limit| is_over(limit, now))
}

/// True if a stop or a failure is ending the run; actions of its turn can't prevent that.
pub fn is_being_ended(run: &CurrentRun) -> bool {
    run.condemned.is_some() || run.stopping.is_some()
}

/// True if a run will soon release its slot (one of `scheduler.max_running`) and its workspace,
/// because it was asked to yield, has yielded, or is being ended.
pub fn ends_soon(run: &CurrentRun) -> bool {
    run.preemption.is_some() || run.yielded_at.is_some() || is_being_ended(run)
}

/// True if a run will be suspended when its turn ends, however the turn ends.
pub fn will_be_suspended(run: &CurrentRun) -> bool {
    run.yielded_at.is_some() && !is_being_ended(run)
}

/// Returns the reason of the suspension of a run that has yielded.
pub fn why_suspended(run: &CurrentRun) -> &str {
    run.preemption.as_ref().map_or("its turn yielded", |request| &request.reason)
}

/// True for an operator's message of priority `interject`, which a running turn receives.
pub fn is_interjection(message: &Message) -> bool {
    message.priority == Priority::Interject && message.origin.kind == OriginKind::Operator
}
