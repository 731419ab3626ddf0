//! Continuation: the meaning of a message for an agent that may wait (contract, semantics §7).

use crate::model::closure::{Closure, ClosureOutcome, WaitingReason};
use crate::model::continuation::{Continuation, ContinuationClass, SchedulerTick, TriggerKind};
use crate::model::id::{TriggerId, WaitId};
use crate::model::inbox::Unmatched;
use crate::model::message::{Message, OriginKind};
use crate::model::task::TaskStatus;
use crate::model::wait::{Wait, WaitKind};

use super::waits::satisfied;

use ContinuationClass::{LivenessOnly, LocalContinuation, ResumeExpectedWait, ResumeOverride};

impl Message {
    pub fn is_terminal_result(&self) -> bool {
        let has_ended = self.task_status.is_some_and(TaskStatus::is_terminal);
        self.trigger_kind == Some(TriggerKind::TaskResult) && has_ended
    }

    /// True if the message reports the state of a task that has not ended yet.
    pub fn is_progress(&self) -> bool {
        self.trigger_kind == Some(TriggerKind::TaskResult) && !self.is_terminal_result()
    }

    pub fn is_from_outside(&self) -> bool {
        self.trigger_kind == Some(TriggerKind::ExternalEvent) || self.is_wake_hint()
    }

    /// True if the message names neither a resource nor a wait, nor a trigger that one of `waits`
    /// names. A delivery through any other trigger only shows that something arrived.
    pub fn names_nothing(&self, waits: &[Wait]) -> bool {
        let is_awaited =
            |id: TriggerId| waits.iter().any(|wait| wait.is_waiting() && wait.trigger_id == Some(id));
        self.resource.is_none() && self.wait_id.is_none() && !self.trigger_id.is_some_and(is_awaited)
    }

    /// True if the message comes from `source` of a wait: a whole origin (`webhook:github`), or a
    /// kind of origin (`webhook`), which matches every origin of that kind. A hint comes from the
    /// source that the hint names.
    pub fn comes_from(&self, source: &str) -> bool {
        if self.is_wake_hint() {
            return self.origin.id.as_deref().is_some_and(|named| meets(source, named));
        }
        meets(source, &self.origin.to_string())
    }

    /// True if the message names the resource of an active external wait.
    fn names_awaited_resource(&self, waits: &[Wait]) -> bool {
        let is_external = |wait: &&Wait| wait.is_waiting() && wait.kind == WaitKind::External;
        let mut external = waits.iter().filter(is_external);
        self.resource.is_some() && external.any(|wait| wait.resource == self.resource)
    }

    /// True if the message has content for the agent, so that a step that runs no turn sets the
    /// message aside for the next turn. False for a message about a task that still runs, for one
    /// that triggers nothing, and for a `system_tick` that is not from a wake hint.
    pub fn is_input(&self) -> bool {
        let triggers = self.trigger_kind.is_some() && self.scheduler_tick().is_none();
        triggers && self.is_contentful() && !self.is_progress()
    }
}

/// True if `source` equals `named`, or is the kind of the origin `KIND:ID` in `named`.
fn meets(source: &str, named: &str) -> bool {
    let is_of_kind = || named.split_once(':').is_some_and(|(kind, _)| kind == source);
    named == source || source.parse::<OriginKind>().is_ok() && is_of_kind()
}

/// Class of a continuation, and true if the message matches the reason for which the agent waits.
type ContinuationVerdict = (ContinuationClass, bool);

/// Derives the continuation of a message; `None` for the kinds `control` and `task_status`, which
/// trigger nothing. `prior` is the closure before the message, `waits` are all open waits,
/// `unmatched` is the policy for input that no row of the contract's table matches. A
/// `system_tick` of the scheduler starts a turn, unless its wait has ended or is bound.
pub fn resolve(
    prior: &Closure,
    message: &Message,
    waits: &[Wait],
    unmatched: Unmatched,
) -> Option<Continuation> {
    let trigger_kind = message.trigger_kind?;
    let resolves = satisfied(message, waits);
    let is_waiting = prior.outcome == ClosureOutcome::Waiting;
    let (mut class, matched) = match message.scheduler_tick() {
        Some(tick) => scheduled(tick, message.wait_id, waits),
        None if is_waiting => while_waiting(prior, message, waits, &resolves),
        None => (while_free(message, trigger_kind), false),
    };
    let must_run = !resolves.is_empty() || unmatched == Unmatched::Run && message.is_input();
    let is_overruled = class == LivenessOnly && must_run;
    if is_overruled {
        class = if is_waiting { ResumeOverride } else { LocalContinuation };
    }
    Some(Continuation {
        trigger_kind,
        class,
        model_reentry: class != LivenessOnly,
        prior_closure_outcome: prior.outcome,
        prior_waiting_reason: prior.waiting_reason,
        matched_waiting_reason: matched && !is_overruled,
        evidence: evidence(prior, message, trigger_kind, &resolves),
        resolves,
    })
}

/// Returns the verdict on a `system_tick` of the scheduler: run a turn, unless it is about the
/// expiry or recheck of a wait that has ended or was bound to another message meanwhile.
fn scheduled(tick: SchedulerTick, wait: Option<WaitId>, waits: &[Wait]) -> ContinuationVerdict {
    let still_waits = || waits.iter().any(|other| Some(other.id) == wait && other.is_waiting());
    match tick {
        SchedulerTick::Expiry | SchedulerTick::Recheck if !still_waits() => (LivenessOnly, false),
        SchedulerTick::Expiry | SchedulerTick::Recheck | SchedulerTick::Other => (LocalContinuation, false),
    }
}

/// Returns the verdict after a closure `waiting`, by the first row of the contract that matches.
fn while_waiting(
    prior: &Closure,
    message: &Message,
    waits: &[Wait],
    resolves: &[WaitId],
) -> ContinuationVerdict {
    let is_of = |kind| message.trigger_kind == Some(kind);
    let waits_for = |expected| prior.waiting_reason == Some(expected);
    let external = waits_for(WaitingReason::AwaitingExternalChange) && message.is_from_outside();
    let names_task = |wait: &Wait| wait.is_waiting() && wait.task_id() == message.task_id;
    let is_awaited = || message.task_id.is_some() && waits.iter().any(names_task);
    let is_about_awaited = || message.resource.is_none() || message.names_awaited_resource(waits);
    let contentful = message.is_contentful();
    let is_expected = [
        waits_for(WaitingReason::AwaitingOperatorInput) && is_of(TriggerKind::OperatorInput),
        waits_for(WaitingReason::AwaitingTaskResult) && message.is_terminal_result() && is_awaited(),
        waits_for(WaitingReason::AwaitingTimer) && is_of(TriggerKind::TimerFire),
        external && contentful && is_about_awaited(),
        external && !contentful && !resolves.is_empty(),
    ];
    let is_sign_of_life = external && !contentful && message.names_nothing(waits)
        || waits_for(WaitingReason::AwaitingTaskResult) && message.is_progress();
    if is_expected.contains(&true) {
        (ResumeExpectedWait, true)
    } else if is_sign_of_life {
        (LivenessOnly, true)
    } else if is_of(TriggerKind::OperatorInput) || message.is_terminal_result() {
        (ResumeOverride, false)
    } else {
        (LivenessOnly, false)
    }
}

/// Returns the class of a continuation after any closure but `waiting`.
fn while_free(message: &Message, kind: TriggerKind) -> ContinuationClass {
    let reenters = match kind {
        TriggerKind::OperatorInput | TriggerKind::TimerFire | TriggerKind::InternalFollowup => true,
        TriggerKind::TaskResult => message.is_terminal_result(),
        TriggerKind::ExternalEvent | TriggerKind::SystemTick => message.is_contentful(),
    };
    if reenters { LocalContinuation } else { LivenessOnly }
}

fn evidence(prior: &Closure, message: &Message, kind: TriggerKind, resolves: &[WaitId]) -> Vec<String> {
    let mut evidence = vec![
        format!("prior={}", prior.outcome),
        format!("waiting_reason={}", prior.waiting_reason.map_or("none", WaitingReason::name)),
        format!("trigger={kind}"),
        format!("contentful={}", message.is_contentful()),
    ];
    evidence.extend(resolves.iter().map(|wait| format!("resolves={wait}")));
    evidence.extend(message.task_status.map(|status| format!("task_status={status}")));
    evidence.extend(message.resource.as_ref().map(|resource| format!("resource={resource}")));
    evidence
}
