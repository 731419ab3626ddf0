//! `tick`: one step, from the records to the act (contract, semantics §8).

use std::time::Instant;

use crate::cli;
use crate::error::{Result, Status};
use crate::model::continuation::Continuation;
use crate::model::decision::{Decision, DecisionReport, DuplicateTick};
use crate::model::id::{AgentName, MessageId, RunId};
use crate::model::message::Message;
use crate::model::records::{Lease, Records};
use crate::model::refusal::Refusal;
use crate::model::state::State;
use crate::model::time::Time;
use crate::process::{git, jobs};
use crate::report::step::{self, StepReport};
use crate::rules::decide::decide;
use crate::rules::posture::posture;
use crate::rules::projection::project;
use crate::rules::transition::draft::Draft;
use crate::rules::transition::inbox as arrivals;
use crate::rules::transition::recovery::recover;
use crate::rules::transition::rest::{decided, rest};
use crate::rules::transition::turn::{Claimed, claim};
use crate::store::view::View;
use crate::store::{Agent, Locked, Store, lock};

use super::background;
use super::delegate::tell_parent;
use super::drops;
use super::load::{self, Purpose};
use super::recover::{Owner, settle_abandoned};
use super::session::{Session, agents};
use super::turn::{self, Turn};

pub fn tick(session: &mut Session, args: cli::Tick) -> Result<Status> {
    let store = session.store()?;
    let names = agents(&store, &args.agents, args.all)?;
    let mut moved = false;
    let status = if args.jobs > 1 && names.len() > 1 && !args.dry_run {
        in_parallel(session, &store, &names, &args, &mut moved)?
    } else {
        session.each_agent(&names, |session, name| {
            let (status, did) = steps(session, &store, name, &args)?;
            moved |= did;
            Ok(status)
        })
    };
    if args.exit_code && !moved && status == Status::Done {
        return Ok(Status::NothingDone);
    }
    Ok(status)
}

/// The steps of one agent: one, or as many as it takes.
fn steps(session: &mut Session, store: &Store, name: &AgentName, args: &cli::Tick) -> Result<(Status, bool)> {
    let agent = store.agent(name)?;
    let mut status = Status::Done;
    let mut moved = false;
    let most = if args.until_idle { args.max_steps } else { 1 };
    for _ in 0..most {
        let before = revision(&agent, args)?;
        let report =
            if args.dry_run { would_do(session, store, &agent)? } else { step(session, store, &agent)? };
        if report.turn_failed() {
            status = status.graver(Status::TurnFailed);
        }
        let did = report.did_something();
        moved |= did;
        if did && !args.dry_run {
            tell_parent(session, store, &agent)?;
        }
        // Falling asleep does nothing and is recorded all the same.
        if revision(&agent, args)? != before {
            commit_to_git(store, &report)?;
        }
        session.out.result(&report, |out| step::text(&report, out));
        session.out.flush();
        if let Some(continuation) = &report.decision.continuation {
            session.out.detail(&format!(
                "{name}: {}: {}",
                continuation.class,
                continuation.evidence.join(", ")
            ));
        }
        if !did {
            break;
        }
    }
    Ok((status, moved))
}

/// Where the records are, for whoever commits each step to git.
fn revision(agent: &Agent<'_>, args: &cli::Tick) -> Result<Option<u64>> {
    args.commit.then(|| Ok(agent.peek()?.revision)).transpose()
}

/// Each agent in a process of its own: a turn's stray processes are then never another turn's.
fn in_parallel(
    session: &mut Session,
    store: &Store,
    names: &[AgentName],
    args: &cli::Tick,
    moved: &mut bool,
) -> Result<Status> {
    let mut status = Status::Done;
    let mut busy = Vec::new();
    for name in names {
        // Agents with nothing to do need no process.
        match store.agent(name).and_then(|agent| quiet_step(session, store, &agent, Instant::now())) {
            Ok(Some(report)) => session.out.result(&report, |out| step::text(&report, out)),
            Ok(None) | Err(_) => busy.push(name),
        }
    }
    session.out.flush();
    let commands = busy.iter().map(|name| own_command(session, store, name, args)).collect::<Vec<_>>();
    let out = &mut session.out;
    jobs::run(commands, args.jobs, |lines, code| {
        out.raw(lines);
        out.flush();
        let reached = match code {
            Some(0) => Status::Done,
            Some(10) => return,
            Some(3) => Status::NotFound,
            Some(4) => Status::Refused,
            Some(5) => Status::Busy,
            Some(6) => Status::Damaged,
            Some(7) => Status::TurnFailed,
            Some(_) | None => Status::Failed,
        };
        *moved = true;
        status = status.graver(reached);
    })?;
    Ok(status)
}

/// The command line of one agent's own tick.
fn own_command(session: &Session, store: &Store, name: &AgentName, args: &cli::Tick) -> Vec<String> {
    let mut command: Vec<String> =
        ["tick", name.as_str(), "--exit-code", "--dir"].iter().map(|word| (*word).to_owned()).collect();
    command.push(store.root().display().to_string());
    command.push("--lock-timeout".to_owned());
    command.push(session.patience().to_string());
    if args.until_idle {
        command.extend(["--until-idle".to_owned(), "--max-steps".to_owned(), args.max_steps.to_string()]);
    }
    if args.commit {
        command.push("--commit".to_owned());
    }
    if session.out.is_json() {
        command.push("--json".to_owned());
    }
    if session.out.is_quiet() {
        command.push("--quiet".to_owned());
    }
    if session.out.is_verbose() {
        command.push("--verbose".to_owned());
    }
    command
        .extend(["--color".to_owned(), if session.out.is_colored() { "always" } else { "never" }.to_owned()]);
    command
}

/// One step.
pub fn step(session: &mut Session, store: &Store, agent: &Agent<'_>) -> Result<StepReport> {
    let started = Instant::now();
    if let Some(report) = quiet_step(session, store, agent, started)? {
        return Ok(report);
    }
    let mut recovered = None;
    let mut tried_outbox = false;
    let mut looked_after_tasks = false;
    loop {
        let now = session.clock.now();
        let locked = agent.lock(now)?;
        let state = locked.state()?;
        let lease = match lease(agent, &state, now, false)? {
            Leased::Live => return live_report(&state, started),
            Leased::Ours(lease) => lease,
        };
        if let Some(run) = &state.current_run {
            // The lock is let go meanwhile: ending what is left of a run may take seconds.
            recovered = Some(run.run_id);
            drop(locked);
            settle_abandoned(session, store, agent, &lease, run.run_id)?;
            continue;
        }
        if !state.outbox.is_empty() && !tried_outbox {
            tried_outbox = true;
            // A step that was killed before it had delivered everything left this behind.
            drop(locked);
            turn::deliver(session, store, agent, &state.outbox)?;
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
        if !scan.drops.is_empty() {
            drops::take_in(session, agent, &locked, &state, &scan)?;
            continue;
        }
        locked.file_backlog(&mut scan)?;
        let records = load::records(agent, &locked.view(), &scan, state, Lease::Free, now, Purpose::Change)?;
        let more_stale = records.inbox.head.is_none() && !records.inbox.stale.is_empty();
        let mut draft = Draft::new(records, session.clock.stamp()?);
        arrivals::take_in(&mut draft)?;
        // Behind a closed gate nothing is taken in: there is nothing more to look for then.
        if more_stale && draft.records.inbox.stale.is_empty() {
            locked.commit(draft.finish()?)?;
            continue;
        }
        let decision = decide(&project(&draft.records, now));
        let mut report = act(session, store, agent, locked, draft, decision, lease)?;
        report.recovered_run_id = recovered;
        report.duration_ms = millis_since(started);
        return Ok(report);
    }
}

/// Who has the lease of a run.
enum Leased {
    /// A tick on this machine holds it, or one on another may still.
    Live,
    Ours(lock::Held),
}

fn lease(agent: &Agent<'_>, state: &State, now: Time, force: bool) -> Result<Leased> {
    let owner = state.current_run.as_ref().map(|run| Owner::of(run, now));
    match (agent.lease(now)?, owner) {
        (None, _) => Ok(Leased::Live),
        (Some(_), Some(Owner::Elsewhere)) if !force => Ok(Leased::Live),
        (Some(lease), _) => Ok(Leased::Ours(lease)),
    }
}

/// The step of an agent that rests: one small read and one look into the inbox. What the last step
/// found still holds while nothing was committed, nothing arrived and nothing is due.
fn quiet_step(
    session: &Session,
    store: &Store,
    agent: &Agent<'_>,
    started: Instant,
) -> Result<Option<StepReport>> {
    let state = agent.peek()?;
    let Some(resting) = state.resting.clone() else { return Ok(None) };
    let due = state.next_due_at.is_some_and(|due| due <= session.clock.now());
    if due || state.current_run.is_some() || !agent.is_quiet()? {
        return Ok(None);
    }
    let now = session.clock.now();
    if !background::due(store, agent, &View::settled(agent.dir()), &state, now)?.is_empty() {
        return Ok(None);
    }
    let mut report = report(&state, resting);
    report.duration_ms = millis_since(started);
    Ok(Some(report))
}

fn live_report(state: &State, started: Instant) -> Result<StepReport> {
    let run_id = state.current_run.as_ref().map(|run| run.run_id);
    let mut report = report(state, Decision::TurnInProgress { run_id }.report());
    report.duration_ms = millis_since(started);
    Ok(report)
}

/// Carries out a decision. It decides nothing itself.
fn act(
    session: &mut Session,
    store: &Store,
    agent: &Agent<'_>,
    locked: Locked<'_>,
    mut draft: Draft,
    decision: Decision,
    lease: lock::Held,
) -> Result<StepReport> {
    let decision_report = decision.report();
    match decision {
        Decision::StartTurn { message_id, continuation, .. }
        | Decision::Resume { message_id, continuation, .. } => {
            let message = take(&draft.records, message_id)?;
            decided(&mut draft, &decision_report);
            let claimed = claim(&mut draft, message, continuation, turn::claimant())?;
            let records = draft.records.clone();
            locked.commit(draft.finish()?)?;
            drop(locked);
            run_turn(session, store, agent, claimed, records, decision_report, lease)
        }
        Decision::StartRecovery { .. } => {
            decided(&mut draft, &decision_report);
            recover(&mut draft, &decision_report.reason)?;
            commit(&locked, draft, decision_report)
        }
        Decision::Reduce { message_id, continuation, .. } => {
            let message = take(&draft.records, message_id)?;
            decided(&mut draft, &decision_report);
            arrivals::reduce(&mut draft, message, continuation);
            commit(&locked, draft, decision_report)
        }
        Decision::EmitTick(tick) => {
            decided(&mut draft, &decision_report);
            arrivals::emit_tick(&mut draft, &tick);
            commit(&locked, draft, decision_report)
        }
        Decision::Duplicate(DuplicateTick::WakeHint) => {
            decided(&mut draft, &decision_report);
            arrivals::ignore_duplicate_hint(&mut draft);
            commit(&locked, draft, decision_report)
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
            commit(&locked, draft, decision_report)
        }
    }
}

fn commit(locked: &Locked<'_>, draft: Draft, decision: DecisionReport) -> Result<StepReport> {
    let posture = posture(&draft.records).posture;
    let state = if draft.is_empty() { draft.records.state } else { locked.commit(draft.finish()?)? };
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
    store: &Store,
    agent: &Agent<'_>,
    claimed: Claimed,
    records: Records,
    decision: DecisionReport,
    lease: lock::Held,
) -> Result<StepReport> {
    let run_id = claimed.run.run_id;
    let attempt = claimed.run.attempt;
    let end = turn::run(session, &Turn { store, agent, claimed: &claimed, records: &records })?;
    let (settled, after) = turn::settle(session, store, agent, run_id, end, lease)?;
    if !after.state.outbox.is_empty() {
        turn::deliver(session, store, agent, &after.state.outbox)?;
    }
    background::begin_queued(session, store, agent, &after.tasks);
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
    let liveness = decision.continuation.as_ref().is_some_and(is_liveness_only);
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
        duration_ms: 0,
    }
}

fn is_liveness_only(continuation: &Continuation) -> bool {
    continuation.class == crate::model::continuation::ContinuationClass::LivenessOnly
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
    report.scheduling_posture = Some(posture(&draft.records).posture);
    report.duration_ms = millis_since(started);
    Ok(report)
}

/// Decides without a lock and without changing a file.
pub fn foresee(session: &Session, store: &Store, agent: &Agent<'_>, now: Time) -> Result<(Decision, Draft)> {
    let records = load::look(agent, now)?;
    let mut draft = Draft::new(records, session.clock.stamp()?);
    let state = &draft.records.state;
    let abandoned = state.current_run.as_ref().is_some_and(|run| Owner::of(run, now) == Owner::Here);
    if abandoned && draft.records.lease == Lease::Free {
        crate::rules::transition::turn::interrupt(&mut draft, super::recover::TICK_GONE)?;
    }
    if draft.records.state.current_run.is_none() {
        background::foresee(store, agent, &mut draft)?;
        drops::foresee(session, agent, &mut draft)?;
        arrivals::take_in(&mut draft)?;
    }
    let decision = decide(&project(&draft.records, now));
    Ok((decision, draft))
}

/// One git commit of the state directory, with the decision as its message.
fn commit_to_git(store: &Store, report: &StepReport) -> Result<()> {
    let decision = &report.decision;
    let subject = format!("{}: {} ({})", report.agent, decision.decision, decision.reason);
    let run: Option<RunId> = decision.run_id;
    let body = [
        run.map(|run| format!("Run: {run}")),
        decision.message_id.map(|id| format!("Message: {id}")),
        report.terminal.map(|terminal| format!("Terminal: {terminal}")),
    ];
    let body: Vec<String> = body.into_iter().flatten().collect();
    git::commit_all(store.home(), store.root(), &subject, &body.join("\n"))
}
