//! One step, from loading the records to executing the decision (contract, semantics §8). Dry run
//! of the next step, for `tick --dry-run`, `tick --follow`, `explain` and `next-wake`.

use std::collections::VecDeque;
use std::time::Instant;

use crate::error::Result;
use crate::local::Subject;
use crate::model::continuation::ContinuationClass;
use crate::model::decision::{Decision, DecisionReport, StepAction};
use crate::model::id::{MessageId, RunId};
use crate::model::message::Message;
use crate::model::records::{LeaseState, Records};
use crate::model::refusal::Refusal;
use crate::model::state::State;
use crate::model::time::Time;
use crate::report::step::StepReport;
use crate::rules::due::next_due;
use crate::rules::posture::posture;
use crate::rules::step::{self, Before, BusyAction, Next, Submissions, Tried};
use crate::rules::transition::draft::Draft;
use crate::rules::transition::hints::ignore_duplicate_hint;
use crate::rules::transition::inbox as arrivals;
use crate::rules::transition::resources::lack;
use crate::rules::transition::rest::{decided, rest};
use crate::rules::transition::take_in::set_lease_right;
use crate::store::{Agent, AgentTxn, HeldLease, moved_away};

use super::context::Context;
use super::effects::{self, recover};
use super::load::{self, Loading, Purpose};
use super::owner::{TICK_GONE, away_run, given_up_at, name_holder};
use super::resources::{self, TurnResources};
use super::turn::{self, EndedTurn, settle_in_draft};
use super::{submissions, tasks};

/// Runs one step of an agent.
pub fn step(context: Context<'_>) -> Result<StepReport> {
    match quiet_step(context, Instant::now())? {
        Some(report) => Ok(report),
        None => busy_step(context),
    }
}

/// Runs a step under the agent's lock. The lock is released for effects (actions outside the
/// records), which may take seconds. After each change the step loads the records again.
pub fn busy_step(context: Context<'_>) -> Result<StepReport> {
    let Context { session, agent } = context;
    let started = Instant::now();
    let mut tried = Tried::default();
    let (mut recovered, mut overdue) = (None, None);
    // Names of invalid inbox files that can't be quarantined, which this step skips.
    let mut unmovable = Vec::<String>::new();
    loop {
        let now = session.clock.now();
        let locked = agent.change(now)?;
        let state = locked.state()?;
        let is_elsewhere = given_up_at(agent, &state, now)?.is_some();
        let Some(lease) = agent.lease(Subject::Run, now)?.filter(|_| !is_elsewhere) else {
            match step::when_busy(&state, is_elsewhere, away_run(agent, &state, now)?, now) {
                // A machine with a fast clock claimed the run, so the lease in the records would
                // expire far too late.
                BusyAction::SetLeaseRight(run_id) => {
                    let mut draft = context.draft(&locked, state)?;
                    set_lease_right(&mut draft, run_id);
                    context.commit(&locked, draft)?;
                }
                BusyAction::Leave(decision) => return report_busy(agent, &state, &decision, now, started),
            }
            continue;
        };
        if let Some(before) = step::first(&state, &mut tried) {
            let effects = effects::before(agent, &locked.records_snapshot(), &state, now, before)?;
            if !effects.is_empty() {
                drop(locked);
                recovered = context.run_effects(effects)?.or(recovered);
                continue;
            }
        }
        let seen = locked.step_snapshot(&state, &unmovable)?;
        let records = load::records(
            agent,
            &seen,
            state,
            Loading { lease: LeaseState::Free, now, purpose: Purpose::Step },
        )?;
        drop(seen);
        let draft = Draft::new(records, session.clock.stamp()?);
        let (step, grant) = resources::step(agent, draft, tried, resources::Intent::Take)?;
        overdue = step.overdue.or(overdue);
        match step.next {
            // Files are admitted before other changes: the step drops those and loads the records
            // again.
            Next::TakeIn if tried.submissions == Submissions::Some => tried.submissions = Submissions::NotYet,
            Next::TakeIn => {
                let (has_changed, left) = submissions::take_in(context, &locked, step.draft)?;
                tried.submissions = if has_changed { Submissions::Some } else { Submissions::NoMore };
                unmovable.extend(left);
            }
            Next::Quarantine => unmovable.extend(submissions::quarantine(context, &locked, step.draft)?),
            Next::DropStale => drop(context.commit(&locked, step.draft)?),
            Next::Decided(decision) => {
                let mut report = act(context, locked, step.draft, *decision, (grant, lease))?;
                context.notify();
                report.recovered_run_id = recovered;
                report.failure = report.failure.or(overdue);
                report.duration_ms = millis_since(started);
                return Ok(report);
            }
        }
    }
}

/// Returns the report of a step if there is nothing to do, else `None`. Error when the agent's pool
/// (group of agents) is ticked by other machines.
pub fn quiet_step(context: Context<'_>, started: Instant) -> Result<Option<StepReport>> {
    let agent = context.agent;
    agent.store().refuse_other_pool(agent)?;
    Ok(at_rest(agent, context.session.clock.now())?.map(|(state, resting)| {
        let mut report = report(&state, resting);
        report.duration_ms = millis_since(started);
        report
    }))
}

/// Returns the decision of the last step if it is still valid: nothing was committed, nothing has
/// arrived and nothing is due. Costs one small read and one listing of the inbox. Error when the
/// agent was exported with `--move`.
pub fn at_rest(agent: &Agent<'_>, now: Time) -> Result<Option<(State, DecisionReport)>> {
    let state = agent.peek()?;
    if let Some(moved) = &state.moved {
        return Err(moved_away(agent, moved));
    }
    let Some(resting) = state.resting(now).cloned() else { return Ok(None) };
    // `tasks: true` skips the expensive search for due tasks, which comes last in this function.
    let comes_first = step::first(&state, &mut Tried { tasks: true, ..Tried::default() }).is_some();
    let is_due = state.next_due_at.is_some_and(|due| due <= now);
    if comes_first || is_due || !agent.is_quiet(&state)? {
        return Ok(None);
    }
    let open = if state.open_tasks > 0 { agent.unchecked_snapshot().open()? } else { Vec::new() };
    let nothing_is_due = tasks::due(agent, open, &state, now)?.is_empty();
    Ok(nothing_is_due.then_some((state, resting)))
}

/// Returns the report of a step that does nothing, because another process runs the agent.
fn report_busy(
    agent: &Agent<'_>,
    state: &State,
    decision: &Decision,
    now: Time,
    started: Instant,
) -> Result<StepReport> {
    let mut report = report(state, decision.report.clone());
    name_holder(agent, &mut report.decision)?;
    report.next_due_at = report.next_due_at.or(given_up_at(agent, state, now)?);
    report.duration_ms = millis_since(started);
    Ok(report)
}

/// Executes a decision, which contains all facts on which the execution depends. The lease of the
/// agent's runs is released as soon as no run needs it.
fn act(
    context: Context<'_>,
    locked: AgentTxn<'_>,
    mut draft: Draft,
    decision: Decision,
    (grant, lease): (TurnResources, HeldLease),
) -> Result<StepReport> {
    let decision_report = decision.report.clone();
    match decision.action {
        StepAction::StartTurn { message_id, continuation } => {
            let message = take(&draft.records, message_id)?;
            decided(&mut draft, &decision_report);
            let ended = turn::run(context, locked, draft, (message, continuation), lease)?;
            drop(grant);
            after_turn(context, ended, decision_report)
        }
        StepAction::Hold { message_id, continuation, shortage } => {
            lease.release_along();
            let message = take(&draft.records, message_id)?;
            lack(&mut draft, &message, continuation, &shortage, &decision_report)?;
            let priority = i32::from(draft.records.policy.scheduler.priority);
            let report = commit(context, &locked, draft, decision_report)?;
            drop(locked);
            resources::ask_to_yield(context, priority, shortage.resource);
            Ok(report)
        }
        StepAction::Recover => {
            decided(&mut draft, &decision_report);
            let (records, failure) = recover(context, locked, draft, &decision_report.reason, Some(&lease))?;
            Ok(StepReport { failure, ..report_on(&records, decision_report) })
        }
        StepAction::Reduce { message_id, continuation } => {
            lease.release_along();
            let message = take(&draft.records, message_id)?;
            decided(&mut draft, &decision_report);
            arrivals::reduce(&mut draft, message, continuation);
            let mut records = context.commit(&locked, draft)?;
            records.inbox.head = None;
            load::offer_first(&locked.current_snapshot(), &mut records.inbox)?;
            Ok(report_on(&records, decision_report))
        }
        StepAction::EmitTick(tick) => {
            lease.release_along();
            decided(&mut draft, &decision_report);
            arrivals::emit_tick(&mut draft, &tick);
            commit(context, &locked, draft, decision_report)
        }
        StepAction::DropHint => {
            lease.release_along();
            decided(&mut draft, &decision_report);
            ignore_duplicate_hint(&mut draft);
            commit(context, &locked, draft, decision_report)
        }
        StepAction::Leave | StepAction::Stay | StepAction::Rest => {
            lease.release_along();
            rest(&mut draft, &decision);
            let retention = draft.records.policy.retention;
            let report = commit(context, &locked, draft, decision_report)?;
            context.sweep(locked, retention);
            Ok(report)
        }
    }
}

fn commit(
    context: Context<'_>,
    locked: &AgentTxn<'_>,
    draft: Draft,
    decision: DecisionReport,
) -> Result<StepReport> {
    Ok(report_on(&context.commit(locked, draft)?, decision))
}

/// Returns the loaded message with the `id` that a decision names.
fn take(records: &Records, id: MessageId) -> Result<Message, Refusal> {
    let inbox = &records.inbox;
    let found = inbox.head.iter().chain(&inbox.claimed).find(|message| message.id == id);
    found.cloned().ok_or_else(|| Refusal::new("no_message", format!("{id} is no longer in the inbox")))
}

/// Runs the effects that follow the end of a turn, and returns the report of the step.
fn after_turn(context: Context<'_>, ended: EndedTurn, decision: DecisionReport) -> Result<StepReport> {
    let EndedTurn { run_id, attempt, settled, records, run, cancelled_by } = ended;
    let session = context.session;
    // The hooks of these effects must run before `cancelled_by` is set: afterwards no hook runs.
    context.run_effects(effects::after_turn(&records, run))?;
    session.cancelled_by.set(session.cancelled_by.get().or(cancelled_by));
    let last = records.state.last_turn.as_ref().filter(|turn| turn.run_id == run_id);
    let mut report = StepReport {
        closure: settled.closure,
        terminal: Some(settled.terminal),
        terminal_reason: settled.reason,
        brief: last.and_then(|turn| turn.brief.clone()),
        attempt: Some(attempt),
        ..report_on(&records, decision)
    };
    report.decision.run_id = Some(run_id);
    Ok(report)
}

/// Returns a report with the posture of the agent after the step.
fn report_on(records: &Records, decision: DecisionReport) -> StepReport {
    StepReport { posture: Some(posture(records).posture), ..report(&records.state, decision) }
}

fn report(state: &State, decision: DecisionReport) -> StepReport {
    let continuation = decision.continuation.as_ref();
    StepReport {
        agent: state.agent.clone(),
        model_reentry: continuation.is_some_and(|continuation| continuation.model_reentry),
        liveness_only: continuation
            .is_some_and(|continuation| continuation.class == ContinuationClass::LivenessOnly),
        decision,
        closure: None,
        terminal: None,
        terminal_reason: None,
        brief: None,
        attempt: None,
        status: state.status,
        execution_state: state.execution.state,
        posture: None,
        next_due_at: state.next_due_at,
        recovered_run_id: None,
        attention: Vec::new(),
        failure: None,
        deferred: state.held.as_ref().and_then(|held| held.deferred.clone()),
        duration_ms: 0,
    }
}

fn millis_since(started: Instant) -> u64 {
    u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// Expected next step of an agent.
pub struct NextStep {
    /// Time at which a step has something to do; `now` if already; `None` if nothing is planned.
    pub due: Option<Time>,
    /// True if the last step found nothing to do, and nothing is due or has changed since.
    pub is_at_rest: bool,
    /// True if another process or machine runs the agent. Its death would change no file.
    pub is_beside: bool,
    /// True if the agent has tasks that have not ended. The death of a supervisor changes no file.
    pub has_tasks: bool,
}

/// Returns the expected next step, without a lock and without changing a file.
pub fn forecast(context: Context<'_>, now: Time) -> Result<NextStep> {
    let agent = context.agent;
    if let Some((state, _)) = at_rest(agent, now)? {
        let has_tasks = state.open_tasks > 0;
        return Ok(NextStep { due: state.next_due_at, is_at_rest: true, is_beside: false, has_tasks });
    }
    let expected = preview(context, now)?;
    let records = &expected.draft.records;
    let given_up_at = given_up_at(agent, &records.state, now)?;
    Ok(NextStep {
        due: if expected.is_due() { Some(now) } else { next_due(records).or(given_up_at) },
        is_at_rest: false,
        is_beside: records.lease == LeaseState::Held || given_up_at.is_some(),
        has_tasks: records.state.open_tasks > 0,
    })
}

/// Makes a dry run of a step, and returns its report.
pub fn report_preview(context: Context<'_>) -> Result<StepReport> {
    let agent = context.agent;
    context.store().refuse_other_pool(agent)?;
    let started = Instant::now();
    let now = context.session.clock.now();
    let Preview { decision, draft, recovered, overdue, .. } = preview(context, now)?;
    if let Some(moved) = &draft.records.state.moved {
        return Err(moved_away(agent, moved));
    }
    let mut report = report_busy(agent, &draft.records.state, &decision, now, started)?;
    report.posture = Some(posture(&draft.records).posture);
    report.recovered_run_id = recovered;
    report.failure = overdue;
    Ok(report)
}

/// Result of a dry run.
pub struct Preview {
    pub decision: Decision,
    /// Records from which the decision was made, with the changes that the step would commit.
    pub draft: Draft,
    /// Run of a dead tick that the step would settle before its decision.
    pub recovered: Option<RunId>,
    /// Reason for a failure, if a start, a recovery or a held run has exceeded its timeout.
    pub overdue: Option<String>,
    /// True if the step would change records or act outside of them.
    pub has_effects: bool,
}

impl Preview {
    /// True if a step has something to do now.
    pub fn is_due(&self) -> bool {
        // A message that lacks a resource is due once: a step has to record that it is held.
        let lacks = matches!(self.decision.action, StepAction::Hold { .. })
            && self.draft.records.state.held.is_none();
        self.decision.moves() || lacks || self.has_effects
    }
}

/// Runs a step on a copy of the records, without a lock and without changing a file.
pub fn preview(context: Context<'_>, now: Time) -> Result<Preview> {
    let agent = context.agent;
    let (records, waiting) = load::preview(agent, now)?;
    let mut waiting = VecDeque::from(waiting);
    let mut stamp = context.session.clock.stamp()?;
    stamp.now = now;
    let mut draft = Draft::new(records, stamp);
    let mut tried = Tried::default();
    let (mut recovered, mut overdue, mut has_effects) = (None, None, false);
    loop {
        draft.look_ahead();
        let state = &draft.records.state;
        let is_elsewhere = given_up_at(agent, state, now)?.is_some();
        if draft.records.lease == LeaseState::Held || is_elsewhere {
            match step::when_busy(state, is_elsewhere, draft.records.away.clone(), now) {
                BusyAction::SetLeaseRight(run_id) => has_effects |= set_lease_right(&mut draft, run_id),
                BusyAction::Leave(decision) => {
                    return Ok(Preview { decision: *decision, draft, recovered, overdue, has_effects });
                }
            }
            continue;
        }
        if let Some(before) = step::first(state, &mut tried) {
            match before {
                Before::Tell => has_effects = true,
                Before::Settle(run_id) => {
                    let noted = agent.local().run(run_id).read_end()?;
                    let seen = agent.snapshot();
                    settle_in_draft(context, &seen, &mut draft, (run_id, noted), TICK_GONE)?;
                    recovered = Some(run_id);
                }
                // For an agent at rest, an undelivered message alone makes no step due.
                Before::Deliver => has_effects |= state.resting.is_none(),
                Before::LookAfterTasks => has_effects |= tasks::preview(agent, &mut draft)?,
            }
            continue;
        }
        // Dropped files must be admitted before other changes of the step, so a copy is kept.
        let untouched = (draft.records.inbox.submissions > 0).then(|| draft.clone());
        let (step, _) = resources::step(agent, draft, tried, resources::Intent::Look)?;
        draft = step.draft;
        overdue = step.overdue.or(overdue);
        match step.next {
            Next::TakeIn => {
                tried.submissions = Submissions::Some;
                draft = untouched.unwrap_or(draft);
                submissions::preview(context, &mut draft, &mut waiting)?;
            }
            Next::Quarantine => draft.records.inbox.malformed.clear(),
            Next::DropStale => {}
            Next::Decided(decision) => {
                if !decision.moves() {
                    draft.ask();
                }
                draft.look_ahead();
                has_effects |= !draft.is_empty();
                return Ok(Preview { decision: *decision, draft, recovered, overdue, has_effects });
            }
        }
        has_effects = true;
    }
}
