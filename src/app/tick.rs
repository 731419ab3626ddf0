//! `tick`: one step, from the records to the act (contract, semantics §8).

use std::time::Instant;

use crate::cli;
use crate::error::{Result, Status};
use crate::model::agent::Status as AgentStatus;
use crate::model::continuation::ContinuationClass;
use crate::model::decision::{Decision, DecisionReport, DuplicateTick};
use crate::model::execution::ExecutionState;
use crate::model::id::{AgentName, MessageId};
use crate::model::message::Message;
use crate::model::records::{Lease, Records};
use crate::model::refusal::Refusal;
use crate::model::resource::Resource;
use crate::model::state::State;
use crate::model::time::Time;
use crate::report::step::{self, StepReport};
use crate::rules::posture::posture;
use crate::rules::transition::draft::Draft;
use crate::rules::transition::inbox as arrivals;
use crate::rules::transition::resources::lack;
use crate::rules::transition::rest::{decided, rest};
use crate::rules::transition::turn::claim;
use crate::store::inbox::Scan;
use crate::store::view::View;
use crate::store::{Agent, Locked, Store};

use super::attention;
use super::authority;
use super::background;
use super::committing::{self, Before};
use super::delegate::tell_parent;
use super::drops;
use super::foresee::foresee;
use super::hooks;
use super::leased::{Leased, lease, repair_lease};
use super::litter;
use super::load::{self, Purpose};
use super::many;
use super::outbox;
use super::preempt;
use super::recover::{Recovery, carry_out, given_up_at, settle_abandoned};
use super::resources::{self, Hold, decide_and_take};
use super::session::Session;
use super::telling;
use super::turn::{self, Turn};

pub fn tick(session: &mut Session, args: cli::Tick) -> Result<Status> {
    let store = session.store()?;
    let mut names = authority::governed(session, &store, &args.agents, args.all)?;
    let is_free = args.dry_run || authority::inside(session, &store)?.is_none();
    let refused =
        if is_free { Status::Done } else { authority::leave_out_others(session, &store, &mut names) };
    let mut moved = false;
    let status = if args.jobs > 1 && names.len() > 1 && !args.dry_run {
        many::in_parallel(session, &store, &names, &args, &mut moved)
    } else if args.all {
        many::in_line(session, &store, names, &args, &mut moved)
    } else {
        many::one_by_one(session, &store, &names, &args, &mut moved)
    };
    // What the others have not reported: a child's step may tell of its parent.
    let status = if session.raised.borrow().is_empty() { status } else { status.graver(Status::TurnFailed) };
    let status = status.graver(refused);
    if args.exit_code && !moved && status == Status::Done {
        return Ok(Status::NothingDone);
    }
    Ok(status)
}

/// The steps of one agent: one, or as many as it takes.
pub fn steps(
    session: &mut Session,
    store: &Store,
    name: &AgentName,
    args: &cli::Tick,
) -> Result<(Status, bool)> {
    let agent = store.agent(name)?;
    let repository = args.commit.then(|| committing::repository(store));
    let mut status = Status::Done;
    let mut moved = false;
    let most = if args.until_idle { args.max_steps } else { 1 };
    for _ in 0..most {
        let mut before = None;
        let mut report = if args.dry_run {
            would_do(session, store, &agent)?
        } else if let Some(report) = quiet_step(session, store, &agent, Instant::now())? {
            report
        } else {
            before = repository.as_ref().map(|repository| Before::step(repository, &agent)).transpose()?;
            busy_step(session, store, &agent)?
        };
        report.attention = session.raised.take();
        if report.failed() || !report.attention.is_empty() {
            status = status.graver(Status::TurnFailed);
        }
        let did = report.did_something();
        moved |= did;
        if did && !args.dry_run {
            tell_parent(session, store, &agent);
        }
        session.out.result(&report, |out| step::text(&report, out));
        if let Some(error) = session.lacked.take() {
            session.out.failure(&error, Some(name.as_str()), Some(name.as_str()));
            status = status.graver(error.exit_status());
        }
        session.out.flush();
        if let Some(continuation) = &report.decision.continuation {
            session.out.detail(&format!(
                "{name}: {}: {}",
                continuation.class,
                continuation.evidence.join(", ")
            ));
        }
        // What was done is said by now, whatever git says.
        if let Some(before) = before {
            before.commit(&agent, &report)?;
        }
        if !did || session.cancelled_by.get().is_some() {
            break;
        }
    }
    Ok((status, moved))
}

/// One step.
pub fn step(session: &mut Session, store: &Store, agent: &Agent<'_>) -> Result<StepReport> {
    match quiet_step(session, store, agent, Instant::now())? {
        Some(report) => Ok(report),
        None => busy_step(session, store, agent),
    }
}

/// A step that has more to do than to look.
fn busy_step(session: &mut Session, store: &Store, agent: &Agent<'_>) -> Result<StepReport> {
    let started = Instant::now();
    let mut recovered = None;
    let mut tried_outbox = false;
    let mut looked_after_tasks = false;
    let mut told_abandoned = false;
    let mut takes_in_drops = true;
    // What this step can't get out of the way: it does not try twice.
    let mut stuck = Vec::<String>::new();
    loop {
        let now = session.clock.now();
        let locked = agent.lock(now)?;
        let state = locked.state()?;
        let lease = match lease(agent, &state, now, false)? {
            Leased::Live if repair_lease(session, agent, &locked, &state, now)? => continue,
            Leased::Live => return live_report(&state, now, started),
            Leased::Ours(lease) => lease,
        };
        if state.is_to_be_told() && !told_abandoned {
            told_abandoned = true;
            // The process that made these changes was killed before it had told of them.
            drop(locked);
            attention::tell_abandoned(session, store, agent);
            telling::tell_abandoned(session, store, agent);
            continue;
        }
        if let Some(run) = &state.current_run {
            // The lock is let go meanwhile: ending what is left of a run may take seconds.
            drop(locked);
            if settle_abandoned(session, store, agent, &lease, run.run_id)? {
                recovered = Some(run.run_id);
            }
            continue;
        }
        if !state.outbox.is_empty() && !tried_outbox {
            tried_outbox = true;
            // A step that was killed before it had delivered everything left this behind.
            drop(locked);
            outbox::deliver(session, store, agent, &state.outbox)?;
            continue;
        }
        if !looked_after_tasks {
            looked_after_tasks = true;
            let due = background::due(store, agent, &locked.view(), &state, now)?;
            if !due.is_empty() {
                // Without the lock, for the same reason.
                drop(locked);
                background::look_after(session, store, agent, &due);
                continue;
            }
        }
        let mut scan = locked.scan()?;
        scan.pass_over(agent.passed_over(&state).into_iter().chain(stuck.iter().cloned()));
        let mut may_take_more = !scan.drops.is_empty();
        if may_take_more && takes_in_drops {
            takes_in_drops = false;
            let taken = drops::take_in(session, agent, &locked, &state, &scan)?;
            stuck.extend(taken.stuck);
            if taken.any {
                continue;
            }
            may_take_more = false;
        }
        locked.file_backlog(&mut scan)?;
        let records = load::records(agent, &locked.view(), &scan, state, Lease::Free, now, Purpose::Step)?;
        if !records.inbox.misfits.is_empty() {
            stuck.extend(drops::set_aside(session, agent, &locked, records)?);
            continue;
        }
        let more_stale = records.inbox.head.is_none() && !records.inbox.stale.is_empty();
        let mut draft = Draft::new(records, session.clock.stamp()?);
        let before = draft.records.state.execution.state;
        arrivals::take_in(&mut draft)?;
        let execution = &draft.records.state.execution;
        // What lasted too long: nothing else fails while it is taken in.
        let overdue = (execution.state != before && execution.state == ExecutionState::Failed)
            .then(|| execution.reason.clone().unwrap_or_default());
        // Behind a closed gate nothing is taken in: there is nothing more to look for then.
        if more_stale && draft.records.inbox.stale.is_empty() {
            hooks::commit(session, &locked, draft)?;
            continue;
        }
        let (decision, grant) = decide_and_take(store, agent, &mut draft, resources::Purpose::Take)?;
        if may_take_more && !decision.moves() {
            // The files that were left for later are what there is to do.
            takes_in_drops = true;
            continue;
        }
        let hold = Hold { lease, grant };
        let mut report = act(session, store, agent, (locked, scan), draft, decision, hold)?;
        hooks::tell(session, store, agent);
        report.recovered_run_id = recovered;
        report.failure = report.failure.or(overdue);
        report.duration_ms = millis_since(started);
        return Ok(report);
    }
}

/// The step of an agent that rests: one small read and one look into the inbox. What the last step
/// found still holds while nothing was committed, nothing arrived and nothing is due.
pub fn quiet_step(
    session: &Session,
    store: &Store,
    agent: &Agent<'_>,
    started: Instant,
) -> Result<Option<StepReport>> {
    let state = agent.peek()?;
    let now = session.clock.now();
    let Some(resting) = state.resting(now).cloned() else { return Ok(None) };
    let due = state.next_due_at.is_some_and(|due| due <= now);
    if due || state.current_run.is_some() || state.is_to_be_told() || !agent.is_quiet(&state)? {
        return Ok(None);
    }
    if !background::due(store, agent, &View::settled(agent.dir()), &state, now)?.is_empty() {
        return Ok(None);
    }
    let mut report = report(&state, resting);
    report.duration_ms = millis_since(started);
    Ok(Some(report))
}

fn live_report(state: &State, now: Time, started: Instant) -> Result<StepReport> {
    let run_id = state.current_run.as_ref().map(|run| run.run_id);
    let mut report = report(state, Decision::TurnInProgress { run_id }.report());
    report.next_due_at = report.next_due_at.or(given_up_at(state, now));
    report.duration_ms = millis_since(started);
    Ok(report)
}

/// Carries out a decision. It decides nothing itself.
fn act(
    session: &mut Session,
    store: &Store,
    agent: &Agent<'_>,
    (locked, mut scan): (Locked<'_>, Scan),
    mut draft: Draft,
    decision: Decision,
    hold: Hold,
) -> Result<StepReport> {
    let decision_report = decision.report();
    match decision {
        Decision::StartTurn { message_id, continuation, .. }
        | Decision::Resume { message_id, continuation, .. } => {
            let message = take(&draft.records, message_id)?;
            decided(&mut draft, &decision_report);
            draft.records.onlookers = hooks::onlookers(store, agent, &draft.records.state);
            let mut claimed = claim(&mut draft, message, continuation, turn::claimant())?;
            turn::look_for_checkpoint(session, agent, &mut draft, &mut claimed);
            let records = draft.records.clone();
            hooks::commit(session, &locked, draft)?;
            drop(locked);
            hooks::tell(session, store, agent);
            let turn = Turn { store, agent, claimed: &claimed, records: &records };
            run_turn(session, &turn, decision_report, hold)
        }
        Decision::Lack { message_id, continuation, shortage } => {
            let message = take(&draft.records, message_id)?;
            lack(&mut draft, &message, continuation, &shortage, &decision_report)?;
            let priority = i32::from(draft.records.policy.scheduler.priority);
            let report = commit(session, &locked, draft, decision_report)?;
            drop(locked);
            if shortage.resource == Resource::Slot {
                preempt::ask_for_slot(session, store, agent, priority);
            }
            Ok(report)
        }
        Decision::StartRecovery { .. } => {
            decided(&mut draft, &decision_report);
            let Recovery { records, failure } =
                carry_out(session, store, agent, locked, draft, &decision_report.reason)?;
            let posture = posture(&records).posture;
            let report = report(&records.state, decision_report);
            Ok(StepReport { scheduling_posture: Some(posture), failure, ..report })
        }
        Decision::Reduce { message_id, continuation, .. } => {
            let message = take(&draft.records, message_id)?;
            decided(&mut draft, &decision_report);
            let key = message.key();
            arrivals::reduce(&mut draft, message, continuation);
            let mut records = draft.records.clone();
            records.state = hooks::commit(session, &locked, draft)?;
            scan.direct.retain(|other| *other != key);
            records.inbox.head = None;
            load::offer_first(&locked.view(), &scan, &mut records.inbox)?;
            let posture = posture(&records).posture;
            Ok(StepReport { scheduling_posture: Some(posture), ..report(&records.state, decision_report) })
        }
        Decision::EmitTick(tick) => {
            decided(&mut draft, &decision_report);
            arrivals::emit_tick(&mut draft, &tick);
            commit(session, &locked, draft, decision_report)
        }
        Decision::Duplicate(DuplicateTick::WakeHint) => {
            decided(&mut draft, &decision_report);
            arrivals::ignore_duplicate_hint(&mut draft);
            commit(session, &locked, draft, decision_report)
        }
        Decision::Stop
        | Decision::NotStarted
        | Decision::TurnInProgress { .. }
        | Decision::RecoveryBackoff { .. }
        | Decision::WaitForResources { .. }
        | Decision::Duplicate(DuplicateTick::ContinueActive { .. } | DuplicateTick::QueuedAvailable { .. })
        | Decision::Rest(_)
        | Decision::StayIdle
        | Decision::Sleep => {
            rest(&mut draft, &decision);
            let report = commit(session, &locked, draft, decision_report)?;
            litter::sweep(agent, locked);
            Ok(report)
        }
    }
}

fn commit(
    session: &Session,
    locked: &Locked<'_>,
    draft: Draft,
    decision: DecisionReport,
) -> Result<StepReport> {
    let posture = posture(&draft.records).posture;
    let state = if draft.is_empty() { draft.records.state } else { hooks::commit(session, locked, draft)? };
    Ok(StepReport { scheduling_posture: Some(posture), ..report(&state, decision) })
}

/// The message that a decision is about: it was read for this very step.
fn take(records: &Records, id: MessageId) -> Result<Message, Refusal> {
    let inbox = &records.inbox;
    let found = inbox.head.iter().chain(&inbox.claimed).find(|message| message.id == id);
    found.cloned().ok_or_else(|| Refusal::new("no_message", format!("{id} is no longer in the inbox")))
}

/// Runs a claimed turn without the lock, and settles it.
fn run_turn(
    session: &mut Session,
    turn: &Turn<'_>,
    decision: DecisionReport,
    hold: Hold,
) -> Result<StepReport> {
    let Turn { store, agent, claimed, .. } = *turn;
    let run_id = claimed.run.run_id;
    let attempt = claimed.run.attempt;
    let end = turn::run(session, turn)?;
    let cancelled_by = end.cancelled_by;
    let (settled, after) = turn::settle(session, store, agent, run_id, end, hold.lease)?;
    drop(hold.grant);
    if !after.state.outbox.is_empty() {
        outbox::deliver(session, store, agent, &after.state.outbox)?;
    }
    // What a stopped agent has asked for with its last word is not begun: its stop ends it.
    if after.state.status != AgentStatus::Stopped {
        background::begin_queued(session, store, agent, &after.tasks);
    }
    background::end_if_stopped(session, store, agent, &after.state);
    // Who is told to end runs no hook any more: this is told of first.
    hooks::tell(session, store, agent);
    session.cancelled_by.set(session.cancelled_by.get().or(cancelled_by));
    let brief = after
        .state
        .last_turn
        .as_ref()
        .filter(|turn| turn.run_id == run_id)
        .and_then(|turn| turn.brief.clone());
    let mut report = StepReport {
        closure: settled.closure,
        terminal: Some(settled.terminal),
        terminal_reason: settled.reason,
        brief,
        attempt: Some(attempt),
        scheduling_posture: Some(posture(&after).posture),
        ..report(&after.state, decision)
    };
    report.decision.run_id = Some(run_id);
    Ok(report)
}

fn report(state: &State, decision: DecisionReport) -> StepReport {
    let reentry = decision.continuation.as_ref().is_some_and(|continuation| continuation.model_reentry);
    let liveness = decision
        .continuation
        .as_ref()
        .is_some_and(|continuation| continuation.class == ContinuationClass::LivenessOnly);
    StepReport {
        agent: state.agent.clone(),
        decision,
        model_reentry: reentry,
        liveness_only: liveness,
        closure: None,
        terminal: None,
        terminal_reason: None,
        brief: None,
        attempt: None,
        status: state.status,
        execution_state: state.execution.state,
        scheduling_posture: None,
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

/// What a step would do: everything but the commit and the act.
fn would_do(session: &Session, store: &Store, agent: &Agent<'_>) -> Result<StepReport> {
    let started = Instant::now();
    let now = session.clock.now();
    let (decision, draft) = foresee(session, store, agent, now)?;
    let mut report = report(&draft.records.state, decision.report());
    report.next_due_at = report.next_due_at.or(given_up_at(&draft.records.state, now));
    report.scheduling_posture = Some(posture(&draft.records).posture);
    report.duration_ms = millis_since(started);
    Ok(report)
}
