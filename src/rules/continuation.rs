//! What a message means to an agent that may be waiting (contract, semantics §7).

use crate::model::closure::{Closure, ClosureOutcome, WaitingReason};
use crate::model::continuation::{Continuation, ContinuationClass, TriggerKind};
use crate::model::id::{TaskId, TriggerId, WaitId};
use crate::model::message::Message;
use crate::model::task::TaskStatus;
use crate::model::wait::{Wait, WaitKind};

/// Whose tick a system tick is. Scheduler ticks say themselves that there is something to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Said by somebody: an operator, a task, the outside, a timer, a turn.
    Said,
    /// A wake hint that was taken in.
    WakeHint,
    /// Emitted by the scheduler for runnable work or a due recheck.
    Scheduler,
}

/// A message as the continuation sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trigger<'a> {
    pub kind: TriggerKind,
    pub source: Source,
    pub contentful: bool,
    /// Of a task result: which task, and how it stood.
    pub task_id: Option<TaskId>,
    pub task_status: Option<TaskStatus>,
    pub wait_id: Option<WaitId>,
    pub trigger_id: Option<TriggerId>,
    pub resource: Option<&'a str>,
}

impl<'a> Trigger<'a> {
    /// `None` for messages that are no triggers: `control` and `task_status`.
    pub fn of(message: &'a Message) -> Option<Trigger<'a>> {
        let source = match message.idempotency_key.as_deref() {
            Some(key) if key.starts_with("wake_hint:") => Source::WakeHint,
            Some(_) => Source::Scheduler,
            None => Source::Said,
        };
        Some(Trigger {
            kind: message.trigger_kind?,
            source,
            contentful: message.body.is_contentful(),
            task_id: message.task_id,
            task_status: message.task_status,
            wait_id: message.wait_id,
            trigger_id: message.trigger_id,
            resource: message.resource.as_deref(),
        })
    }

    fn is_terminal_result(&self) -> bool {
        self.kind == TriggerKind::TaskResult && self.task_status.is_some_and(TaskStatus::is_terminal)
    }

    fn is_from_outside(&self) -> bool {
        self.kind == TriggerKind::ExternalEvent || self.source == Source::WakeHint
    }

    fn names_nothing(&self) -> bool {
        self.resource.is_none() && self.wait_id.is_none() && self.trigger_id.is_none()
    }

    /// The active wait of a kind that this names by its id.
    fn named_wait(&self, kind: WaitKind, waits: &[Wait]) -> Option<WaitId> {
        let named = waits.iter().find(|wait| wait.is_active() && self.wait_id == Some(wait.id));
        named.filter(|wait| wait.kind == kind).map(|wait| wait.id)
    }

    /// The active external wait that this names: by its id, else its trigger, else its resource,
    /// which is also the order of a hint's scope.
    fn tied_wait<'w>(&self, waits: &'w [Wait]) -> Option<&'w Wait> {
        let find = |names: &dyn Fn(&Wait) -> bool| {
            waits.iter().find(|wait| wait.is_active() && wait.kind == WaitKind::External && names(wait))
        };
        find(&|wait| self.wait_id == Some(wait.id))
            .or_else(|| find(&|wait| self.trigger_id.is_some() && self.trigger_id == wait.trigger_id))
            .or_else(|| find(&|wait| self.resource.is_some() && self.resource == wait.resource.as_deref()))
    }
}

struct Verdict {
    class: ContinuationClass,
    reentry: bool,
    matched: bool,
    resolves: Option<WaitId>,
}

impl Verdict {
    fn liveness(matched: bool) -> Verdict {
        Verdict { class: ContinuationClass::LivenessOnly, reentry: false, matched, resolves: None }
    }

    fn reentry(class: ContinuationClass) -> Verdict {
        Verdict { class, reentry: true, matched: false, resolves: None }
    }

    fn expected(resolves: Option<WaitId>) -> Verdict {
        Verdict { class: ContinuationClass::ResumeExpectedWait, reentry: true, matched: true, resolves }
    }
}

/// Relates a trigger to the closure that stands before it is applied. `waits` are all open waits.
pub fn resolve(prior: &Closure, trigger: &Trigger<'_>, waits: &[Wait]) -> Continuation {
    let verdict = if trigger.source == Source::Scheduler {
        Verdict::reentry(ContinuationClass::LocalContinuation)
    } else if prior.outcome == ClosureOutcome::Waiting {
        while_waiting(prior, trigger, waits)
    } else {
        while_free(trigger)
    };
    Continuation {
        trigger_kind: trigger.kind,
        class: verdict.class,
        model_reentry: verdict.reentry,
        prior_closure_outcome: prior.outcome,
        prior_waiting_reason: prior.waiting_reason,
        matched_waiting_reason: verdict.matched,
        resolves: verdict.resolves,
        evidence: evidence(prior, trigger, waits),
    }
}

/// The table for a prior closure that is `waiting`: first match wins.
fn while_waiting(prior: &Closure, trigger: &Trigger<'_>, waits: &[Wait]) -> Verdict {
    let reason = prior.waiting_reason;
    let waits_for = |expected| reason == Some(expected);
    let external = waits_for(WaitingReason::AwaitingExternalChange) && trigger.is_from_outside();
    let tied = trigger.tied_wait(waits);

    if trigger.kind == TriggerKind::OperatorInput && waits_for(WaitingReason::AwaitingOperatorInput) {
        return Verdict::expected(trigger.named_wait(WaitKind::Operator, waits).or(prior.wait_id));
    }
    if trigger.is_terminal_result()
        && waits_for(WaitingReason::AwaitingTaskResult)
        && let Some(resolved) = expected_result(prior, trigger, waits)
    {
        return Verdict::expected(resolved);
    }
    if trigger.kind == TriggerKind::TimerFire && waits_for(WaitingReason::AwaitingTimer) {
        return Verdict::expected(trigger.named_wait(WaitKind::Timer, waits).or(prior.wait_id));
    }
    if external && trigger.contentful && (trigger.resource.is_none() || tied.is_some()) {
        return Verdict::expected(tied.map(|wait| wait.id).or(prior.wait_id));
    }
    if external && trigger.source == Source::WakeHint && !trigger.contentful && tied.is_some() {
        return Verdict::expected(tied.map(|wait| wait.id));
    }
    if external && !trigger.contentful && trigger.names_nothing() {
        return Verdict::liveness(true);
    }
    if trigger.kind == TriggerKind::TaskResult
        && !trigger.is_terminal_result()
        && waits_for(WaitingReason::AwaitingTaskResult)
    {
        return Verdict::liveness(true);
    }
    let other_result = trigger.is_terminal_result() && !waits_for(WaitingReason::AwaitingTaskResult);
    if trigger.kind == TriggerKind::OperatorInput || other_result {
        return Verdict::reentry(ContinuationClass::ResumeOverride);
    }
    Verdict::liveness(false)
}

/// Whether this is the result that the closure waits for, and which wait it then resolves.
fn expected_result(prior: &Closure, trigger: &Trigger<'_>, waits: &[Wait]) -> Option<Option<WaitId>> {
    let waited_for =
        prior.wait_id.and_then(|id| waits.iter().find(|wait| wait.id == id)).and_then(Wait::task_id);
    match waited_for {
        None => Some(prior.wait_id),
        Some(task) if trigger.task_id == Some(task) => Some(prior.wait_id),
        Some(_) => None,
    }
}

/// The rule for a prior closure that waits for nothing.
fn while_free(trigger: &Trigger<'_>) -> Verdict {
    let reenters = match trigger.kind {
        TriggerKind::OperatorInput | TriggerKind::TimerFire | TriggerKind::InternalFollowup => true,
        TriggerKind::TaskResult => trigger.is_terminal_result(),
        TriggerKind::ExternalEvent | TriggerKind::SystemTick => trigger.contentful,
    };
    if reenters { Verdict::reentry(ContinuationClass::LocalContinuation) } else { Verdict::liveness(false) }
}

fn evidence(prior: &Closure, trigger: &Trigger<'_>, waits: &[Wait]) -> Vec<String> {
    let mut evidence = vec![
        format!("prior={}", prior.outcome),
        format!("waiting_reason={}", prior.waiting_reason.map_or("none", WaitingReason::name)),
        format!("trigger={}", trigger.kind),
        format!("contentful={}", trigger.contentful),
    ];
    if let Some(wait) = trigger.tied_wait(waits) {
        evidence.push(format!("tied_wait={}", wait.id));
    }
    if let Some(status) = trigger.task_status {
        evidence.push(format!("task_status={status}"));
    }
    if let Some(resource) = trigger.resource {
        evidence.push(format!("resource={resource}"));
    }
    evidence
}
