//! Continuation: the meaning of a message for an agent that may wait (contract, semantics §7).

use crate::model::closure::{Closure, ClosureOutcome, WaitingReason};
use crate::model::continuation::{Continuation, ContinuationClass, SchedulerTick, TriggerKind};
use crate::model::id::{TaskId, TriggerId, WaitId, WorkId};
use crate::model::inbox::Unmatched;
use crate::model::message::{Message, Origin, OriginKind};
use crate::model::task::TaskStatus;
use crate::model::wait::{Wait, WaitKind};

use super::waits::satisfied;

use ContinuationClass::{LivenessOnly, LocalContinuation, ResumeExpectedWait, ResumeOverride};

/// Source of a message. A message of the scheduler always starts a turn while its reason holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TriggerSource {
    /// Message from an operator, a task, an outside system, a timer or a turn.
    Said,
    /// Wake hint that a step has taken in.
    WakeHint,
    Scheduler(SchedulerTick),
}

/// Properties of a message that determine its continuation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnTrigger<'a> {
    pub kind: TriggerKind,
    pub source: TriggerSource,
    pub contentful: bool,
    /// Task that a task result reports.
    pub task_id: Option<TaskId>,
    pub task_status: Option<TaskStatus>,
    pub wait_id: Option<WaitId>,
    pub work_item_id: Option<WorkId>,
    pub trigger_id: Option<TriggerId>,
    pub resource: Option<&'a str>,
    pub origin: &'a Origin,
}

impl<'a> TurnTrigger<'a> {
    /// Returns the trigger of a message; `None` for the kinds `control` and `task_status`, which
    /// trigger nothing.
    pub fn of(message: &'a Message) -> Option<TurnTrigger<'a>> {
        let source = match message.scheduler_tick() {
            Some(tick) => TriggerSource::Scheduler(tick),
            None if message.is_wake_hint() => TriggerSource::WakeHint,
            None => TriggerSource::Said,
        };
        Some(TurnTrigger {
            kind: message.trigger_kind?,
            source,
            contentful: message.is_contentful(),
            task_id: message.task_id,
            task_status: message.task_status,
            wait_id: message.wait_id,
            work_item_id: message.work_item_id,
            trigger_id: message.trigger_id,
            resource: message.resource.as_deref(),
            origin: &message.origin,
        })
    }

    pub fn is_terminal_result(&self) -> bool {
        self.kind == TriggerKind::TaskResult && self.task_status.is_some_and(TaskStatus::is_terminal)
    }

    pub fn is_from_outside(&self) -> bool {
        self.kind == TriggerKind::ExternalEvent || self.source == TriggerSource::WakeHint
    }

    /// Returns a copy that keeps the trigger id only if a wait names that trigger. A delivery
    /// through any other trigger only shows that something arrived.
    pub fn among(&self, waits: &[Wait]) -> TurnTrigger<'a> {
        let is_awaited =
            |id: &TriggerId| waits.iter().any(|wait| wait.is_waiting() && wait.trigger_id == Some(*id));
        TurnTrigger { trigger_id: self.trigger_id.filter(is_awaited), ..self.clone() }
    }

    pub fn names_nothing(&self) -> bool {
        self.resource.is_none() && self.wait_id.is_none() && self.trigger_id.is_none()
    }

    /// True if the message comes from `source` of a wait: a whole origin (`webhook:github`), or a
    /// kind of origin (`webhook`), which matches every origin of that kind. A hint comes from the
    /// source that the hint names.
    pub fn comes_from(&self, source: &str) -> bool {
        match self.source {
            TriggerSource::Said => meets(source, &self.origin.to_string()),
            TriggerSource::WakeHint => self.origin.id.as_deref().is_some_and(|named| meets(source, named)),
            TriggerSource::Scheduler(_) => false,
        }
    }

    /// True if the trigger names the resource of an active external wait.
    fn names_awaited_resource(&self, waits: &[Wait]) -> bool {
        let is_external = |wait: &&Wait| wait.is_waiting() && wait.kind == WaitKind::External;
        let mut external = waits.iter().filter(is_external);
        self.resource.is_some() && external.any(|wait| wait.resource.as_deref() == self.resource)
    }

    /// True if the trigger reports the state of a task that has not ended yet.
    pub fn is_progress(&self) -> bool {
        self.kind == TriggerKind::TaskResult && !self.is_terminal_result()
    }

    /// True if the trigger has content for the agent, so that a step that runs no turn sets the
    /// message aside for the next turn. A message about a task that still runs has none.
    pub fn is_input(&self) -> bool {
        self.contentful && !self.is_progress() && !matches!(self.source, TriggerSource::Scheduler(_))
    }
}

/// True if `source` equals `named`, or is the kind of the origin `KIND:ID` in `named`.
fn meets(source: &str, named: &str) -> bool {
    let is_of_kind = || named.split_once(':').is_some_and(|(kind, _)| kind == source);
    named == source || source.parse::<OriginKind>().is_ok() && is_of_kind()
}

/// Class of a continuation, and true if the trigger matches the reason for which the agent waits.
type ContinuationVerdict = (ContinuationClass, bool);

/// Derives the continuation of a trigger. `prior` is the closure before the trigger, `waits` are
/// all open waits, `unmatched` is the policy for input that no row of the contract's table matches.
pub fn resolve(
    prior: &Closure,
    trigger: &TurnTrigger<'_>,
    waits: &[Wait],
    unmatched: Unmatched,
) -> Continuation {
    let trigger = &trigger.among(waits);
    let resolves = satisfied(trigger, waits);
    let is_waiting = prior.outcome == ClosureOutcome::Waiting;
    let (mut class, matched) = match trigger.source {
        TriggerSource::Scheduler(tick) => scheduled(tick, trigger.wait_id, waits),
        TriggerSource::Said | TriggerSource::WakeHint if is_waiting => {
            while_waiting(prior, trigger, waits, &resolves)
        }
        TriggerSource::Said | TriggerSource::WakeHint => (while_free(trigger), false),
    };
    let must_run = !resolves.is_empty() || unmatched == Unmatched::Run && trigger.is_input();
    let is_overruled = class == LivenessOnly && must_run;
    if is_overruled {
        class = if is_waiting { ResumeOverride } else { LocalContinuation };
    }
    Continuation {
        trigger_kind: trigger.kind,
        class,
        model_reentry: class != LivenessOnly,
        prior_closure_outcome: prior.outcome,
        prior_waiting_reason: prior.waiting_reason,
        matched_waiting_reason: matched && !is_overruled,
        evidence: evidence(prior, trigger, &resolves),
        resolves,
    }
}

/// Returns the verdict on a message of the scheduler: run a turn, unless the message is about a
/// wait that has ended meanwhile.
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
    trigger: &TurnTrigger<'_>,
    waits: &[Wait],
    resolves: &[WaitId],
) -> ContinuationVerdict {
    let waits_for = |expected| prior.waiting_reason == Some(expected);
    let external = waits_for(WaitingReason::AwaitingExternalChange) && trigger.is_from_outside();
    let names_task = |wait: &Wait| wait.is_waiting() && wait.task_id() == trigger.task_id;
    let is_awaited = || trigger.task_id.is_some() && waits.iter().any(names_task);
    let is_about_awaited = || trigger.resource.is_none() || trigger.names_awaited_resource(waits);
    let is_expected = [
        waits_for(WaitingReason::AwaitingOperatorInput) && trigger.kind == TriggerKind::OperatorInput,
        waits_for(WaitingReason::AwaitingTaskResult) && trigger.is_terminal_result() && is_awaited(),
        waits_for(WaitingReason::AwaitingTimer) && trigger.kind == TriggerKind::TimerFire,
        external && trigger.contentful && is_about_awaited(),
        external && !trigger.contentful && !resolves.is_empty(),
    ];
    let is_sign_of_life = external && !trigger.contentful && trigger.names_nothing()
        || waits_for(WaitingReason::AwaitingTaskResult) && trigger.is_progress();
    if is_expected.contains(&true) {
        (ResumeExpectedWait, true)
    } else if is_sign_of_life {
        (LivenessOnly, true)
    } else if trigger.kind == TriggerKind::OperatorInput || trigger.is_terminal_result() {
        (ResumeOverride, false)
    } else {
        (LivenessOnly, false)
    }
}

/// Applies the rule for a prior closure other than `waiting`.
fn while_free(trigger: &TurnTrigger<'_>) -> ContinuationClass {
    let reenters = match trigger.kind {
        TriggerKind::OperatorInput | TriggerKind::TimerFire | TriggerKind::InternalFollowup => true,
        TriggerKind::TaskResult => trigger.is_terminal_result(),
        TriggerKind::ExternalEvent | TriggerKind::SystemTick => trigger.contentful,
    };
    if reenters { LocalContinuation } else { LivenessOnly }
}

fn evidence(prior: &Closure, trigger: &TurnTrigger<'_>, resolves: &[WaitId]) -> Vec<String> {
    let mut evidence = vec![
        format!("prior={}", prior.outcome),
        format!("waiting_reason={}", prior.waiting_reason.map_or("none", WaitingReason::name)),
        format!("trigger={}", trigger.kind),
        format!("contentful={}", trigger.contentful),
    ];
    evidence.extend(resolves.iter().map(|wait| format!("resolves={wait}")));
    if let Some(status) = trigger.task_status {
        evidence.push(format!("task_status={status}"));
    }
    if let Some(resource) = trigger.resource {
        evidence.push(format!("resource={resource}"));
    }
    evidence
}
