//! Actions of an outcome file, applied in order in the transaction that settles the turn.

use crate::model::action::{Action, Requester};
use crate::model::bound::{Bound, OUTBOX};
use crate::model::id::{AgentName, TaskId, TriggerId};
use crate::model::refusal::Refusal;
use crate::model::state::CurrentRun;
use crate::model::submission::{CalledBy, Caller, Speaker, Submission};
use crate::model::task::Task;
use crate::model::time::Time;
use crate::model::trigger::Trigger;
use crate::model::turn::RunClaimant;
use crate::model::wait::WaitKind;

use crate::rules::admission::admit;
use crate::rules::schedule::requested_time;

use super::arrival::admit_drop;
use super::draft::Draft;
use super::task;
use super::timer;
use super::wait;
use super::work::{self, WorkChange};

/// Facts about other agents and the machine, which the agent's records do not contain.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OutcomeContext {
    /// Indexes of actions that the records of another agent forbid, each with the refusal.
    pub objections: Vec<(usize, Refusal)>,
    pub time_zone: String,
    /// Prose plans of the work items that actions of the outcome file complete.
    pub plans: Vec<(crate::model::id::WorkId, String)>,
    /// Tasks that have ended, and for which actions of the outcome file wait.
    pub ended_tasks: Vec<Task>,
    /// Active triggers that actions of the outcome file name.
    pub triggers: Vec<Trigger>,
    /// Text of the agent's `agent.toml`, if an action delegates a task; else empty.
    pub policy: String,
    /// Machine and process that start the tasks of the outcome file.
    pub at: RunClaimant,
}

/// Applies every action, or none. `Err`: JSON path of the first invalid action, and the reason.
pub fn apply(
    draft: &mut Draft,
    run: &CurrentRun,
    actions: &[Action],
    context: &OutcomeContext,
) -> Result<(), (String, Refusal)> {
    let mut trial = draft.clone();
    let mut started = None;
    for (at, action) in actions.iter().enumerate() {
        let objection = context.objections.iter().find(|(of, _)| *of == at);
        objection
            .map_or(Ok(()), |(_, refusal)| Err(refusal.clone()))
            .and_then(|()| apply_action(&mut trial, run, action.clone(), context, &mut started))
            .map_err(|refusal| (format!("$.actions[{at}]"), refusal))?;
    }
    check_size(draft, &trial).map_err(|refusal| ("$.actions".to_owned(), refusal))?;
    *draft = trial;
    Ok(())
}

/// Refuses effects of a turn that are too large to be committed or read back. The turn then fails;
/// without this check its run could not be settled at all.
fn check_size(before: &Draft, after: &Draft) -> Result<(), Refusal> {
    let made = after.made_since(before)?;
    Bound::effects(after.records.policy.limits.max_effects).check(made)?;
    let (waited, waiting) = (before.records.state.outbox, after.records.state.outbox);
    if waiting.messages > waited.messages { OUTBOX.check(waiting.bytes) } else { Ok(()) }
}

/// Returns the trigger if it was active when `context` was loaded, at the settlement of the turn.
fn active(context: &OutcomeContext, id: TriggerId) -> Result<Trigger, Refusal> {
    let found = context.triggers.iter().find(|trigger| trigger.id == id);
    found
        .cloned()
        .ok_or_else(|| Refusal::new("not_active", format!("{id} is not an active trigger of the agent")))
}

fn apply_action(
    draft: &mut Draft,
    run: &CurrentRun,
    action: Action,
    context: &OutcomeContext,
    started: &mut Option<TaskId>,
) -> Result<(), Refusal> {
    let now = draft.now();
    // A time in the past is valid if it was in the future when the turn began.
    let by = Requester { since: run.claimed_at.min(now), hops: Some(run.hops), in_turn: true };
    match action {
        Action::WorkAdd(new) => {
            work::add(draft, new)?;
        }
        Action::WorkUpdate { id, objective, plan_status, todo, plan } => {
            work::update(draft, id, WorkChange { objective, plan_status, todo, plan })?;
        }
        Action::WorkPick { id, clear_blocker } => {
            work::pick(draft, id, clear_blocker)?;
        }
        Action::WorkBlock { id, reason, recheck_after } => {
            work::block(draft, id, reason, recheck_after)?;
        }
        Action::WorkUnblock { id, reason } => {
            work::unblock(draft, id, &reason)?;
        }
        Action::WorkComplete { id, result } => {
            let plan = context.plans.iter().find(|(of, _)| *of == id).map(|(_, plan)| plan.clone());
            work::complete(draft, id, result, plan)?;
        }
        Action::Wait(mut new) => {
            if new.kind == WaitKind::Task && new.resource.is_none() {
                new.resource = started.map(|task| task.to_string());
            }
            let named = new.resource.as_deref().and_then(|word| word.parse::<TaskId>().ok());
            let ended_task = context.ended_tasks.iter().find(|task| Some(task.id) == named).cloned();
            let trigger = new.trigger_id.map(|id| active(context, id)).transpose()?;
            wait::set(draft, new, by, trigger, ended_task)?;
        }
        Action::TaskStart(new) => {
            let task = task::record(draft, new, by, context.policy.clone(), context.at.clone())?;
            *started = Some(task.id);
        }
        Action::TimerAdd(mut new) => {
            new.time_zone.get_or_insert_with(|| context.time_zone.clone());
            timer::add(draft, new, by)?;
        }
        Action::Enqueue {
            agent,
            text,
            body,
            kind,
            origin,
            priority,
            resource,
            work_item_id,
            wait_id,
            correlation_id,
            allow_empty,
            within,
            at,
            past_ok,
        } => {
            let submission = Submission {
                text,
                body,
                kind,
                origin,
                priority,
                resource,
                work_item_id,
                wait_id,
                correlation_id,
                allow_empty,
                ..Submission::default()
            };
            send(draft, run, agent, submission, requested_time(within, at, past_ok, by.since, now)?)?;
        }
    }
    Ok(())
}

/// Sends a message. A message to the agent itself goes into its inbox in this transaction, or into
/// a timer if it is for `later`; one to another agent goes to the outbox, for a later delivery.
fn send(
    draft: &mut Draft,
    run: &CurrentRun,
    to: Option<AgentName>,
    submission: Submission,
    later: Option<Time>,
) -> Result<(), Refusal> {
    let own = draft.records.state.agent.clone();
    let by = CalledBy::Turn { run_id: run.run_id, message_id: run.message_id };
    let now = draft.now();
    let is_late = later.is_some_and(|at| at > now.after(draft.records.policy.limits.chain_pause));
    let caller = Caller { agent: own.clone(), by, hops: (!is_late).then_some(run.hops) };
    let to = to.unwrap_or_else(|| own.clone());
    let limits = draft.records.policy.limits.clone();
    let message = admit(&to, submission, Speaker::Work(&caller), &limits, &mut draft.stamp)?;
    // The draft changes this agent, so a message to the agent itself needs no outbox.
    match (to == own, later) {
        (true, Some(at)) => timer::put_off(draft, message, at),
        (true, None) => admit_drop(draft, message, None),
        (false, Some(_)) => {
            return Err(Refusal::new("not_own", "only a message to the agent itself can be put off"));
        }
        (false, None) => draft.send(message),
    }
    Ok(())
}
