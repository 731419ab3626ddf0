//! What a message means to an agent: each row of the contract, and every trigger after every closure.

use crate::model::closure::{Closure, ClosureOutcome, WaitingReason};
use crate::model::continuation::{Continuation, ContinuationClass, TriggerKind};
use crate::model::id::{TriggerId, WaitId};
use crate::model::message::{Message, MessageKind};
use crate::model::task::TaskStatus;
use crate::model::wait::{Wait, WaitKind, WaitStatus};
use crate::rules::continuation::{Source, Trigger, resolve};

use super::{closure, message, task_id, text, wait, wait_id, wait_on};

use ClosureOutcome::{Completed, Continuable, Failed, Waiting};
use ContinuationClass::{LivenessOnly, LocalContinuation, ResumeExpectedWait, ResumeOverride};
use WaitingReason::{AwaitingExternalChange, AwaitingOperatorInput, AwaitingTaskResult, AwaitingTimer};

const RESOURCE: &str = "github:org/repo#12";
const OTHER_RESOURCE: &str = "github:org/repo#13";

fn trigger_id(number: u128) -> TriggerId {
    TriggerId(uuid::Uuid::from_u128(number))
}

/// The waits of the tests, by number: 1 operator, 2 external with a resource and a trigger,
/// 3 timer, 4 for task 1, 5 an external one on a work item, 6 an external one that has ended.
fn waits() -> Vec<Wait> {
    vec![
        wait(1, WaitKind::Operator),
        Wait {
            resource: Some(RESOURCE.to_owned()),
            trigger_id: Some(trigger_id(1)),
            ..wait(2, WaitKind::External)
        },
        wait(3, WaitKind::Timer),
        wait(4, WaitKind::Task),
        Wait { resource: Some("mail:inbox".to_owned()), ..wait_on(5, WaitKind::External, 1) },
        Wait {
            status: WaitStatus::Resolved,
            resource: Some("mail:outbox".to_owned()),
            ..wait(6, WaitKind::External)
        },
    ]
}

fn trigger(kind: TriggerKind) -> Trigger<'static> {
    Trigger {
        kind,
        source: Source::Said,
        contentful: true,
        task_id: None,
        task_status: None,
        wait_id: None,
        trigger_id: None,
        resource: None,
    }
}

fn wake_hint(contentful: bool) -> Trigger<'static> {
    Trigger { source: Source::WakeHint, contentful, ..trigger(TriggerKind::SystemTick) }
}

fn result(task: u32, status: TaskStatus) -> Trigger<'static> {
    Trigger { task_id: Some(task_id(task)), task_status: Some(status), ..trigger(TriggerKind::TaskResult) }
}

fn waiting(reason: WaitingReason) -> Closure {
    let about = match reason {
        AwaitingOperatorInput => 1,
        AwaitingExternalChange => 2,
        AwaitingTimer => 3,
        AwaitingTaskResult => 4,
    };
    closure(Waiting, Some(reason), Some(wait_id(about)))
}

fn shown(found: &Continuation) -> (ContinuationClass, bool, bool, Option<WaitId>) {
    (found.class, found.model_reentry, found.matched_waiting_reason, found.resolves)
}

#[track_caller]
fn expect(
    prior: &Closure,
    trigger: &Trigger<'_>,
    class: ContinuationClass,
    reentry: bool,
    matched: bool,
    resolves: Option<u32>,
) {
    let found = resolve(prior, trigger, &waits());
    assert_eq!(
        shown(&found),
        (class, reentry, matched, resolves.map(wait_id)),
        "{trigger:?} after {prior:?}"
    );
    assert_eq!(found.trigger_kind, trigger.kind);
    assert_eq!(found.prior_closure_outcome, prior.outcome);
    assert_eq!(found.prior_waiting_reason, prior.waiting_reason);
}

#[test]
fn row_1_operator_input_is_what_an_agent_that_awaits_the_operator_waited_for() {
    let trigger = trigger(TriggerKind::OperatorInput);
    expect(&waiting(AwaitingOperatorInput), &trigger, ResumeExpectedWait, true, true, Some(1));
}

#[test]
fn row_2_the_result_of_the_task_waited_for_resumes() {
    for status in [TaskStatus::Completed, TaskStatus::Failed, TaskStatus::Cancelled, TaskStatus::Interrupted]
    {
        let result = result(1, status);
        expect(&waiting(AwaitingTaskResult), &result, ResumeExpectedWait, true, true, Some(4));
    }
}

#[test]
fn row_2_any_task_s_result_resumes_a_wait_that_names_none() {
    let unnamed = closure(Waiting, Some(AwaitingTaskResult), None);
    expect(&unnamed, &result(7, TaskStatus::Completed), ResumeExpectedWait, true, true, None);
}

#[test]
fn row_10_the_result_of_another_task_while_one_is_awaited_is_only_taken_note_of() {
    expect(&waiting(AwaitingTaskResult), &result(7, TaskStatus::Completed), LivenessOnly, false, false, None);
}

#[test]
fn row_3_a_timer_that_fires_resumes_an_agent_that_awaits_a_timer() {
    let trigger = trigger(TriggerKind::TimerFire);
    expect(&waiting(AwaitingTimer), &trigger, ResumeExpectedWait, true, true, Some(3));
    let blank = Trigger { contentful: false, ..trigger };
    expect(&waiting(AwaitingTimer), &blank, ResumeExpectedWait, true, true, Some(3));
}

#[test]
fn row_4_a_contentful_event_that_names_no_resource_resolves_the_wait_of_the_closure() {
    for trigger in [trigger(TriggerKind::ExternalEvent), wake_hint(true)] {
        expect(&waiting(AwaitingExternalChange), &trigger, ResumeExpectedWait, true, true, Some(2));
    }
}

#[test]
fn row_4_a_contentful_event_resolves_the_wait_that_it_names_and_no_other() {
    for trigger in [trigger(TriggerKind::ExternalEvent), wake_hint(true)] {
        let own = Trigger { resource: Some(RESOURCE), ..trigger.clone() };
        expect(&waiting(AwaitingExternalChange), &own, ResumeExpectedWait, true, true, Some(2));
        let items = Trigger { resource: Some("mail:inbox"), ..trigger.clone() };
        expect(&waiting(AwaitingExternalChange), &items, ResumeExpectedWait, true, true, Some(5));
        let by_id = Trigger { wait_id: Some(wait_id(5)), ..trigger };
        expect(&waiting(AwaitingExternalChange), &by_id, ResumeExpectedWait, true, true, Some(5));
    }
}

#[test]
fn row_4_does_not_hold_for_a_resource_that_nobody_waits_for() {
    for resource in [OTHER_RESOURCE, "mail:outbox"] {
        for trigger in [trigger(TriggerKind::ExternalEvent), wake_hint(true)] {
            let other = Trigger { resource: Some(resource), ..trigger };
            expect(&waiting(AwaitingExternalChange), &other, LivenessOnly, false, false, None);
        }
    }
}

#[test]
fn row_5_a_wake_hint_without_content_resumes_the_wait_that_it_is_tied_to() {
    let rows = [
        (Trigger { wait_id: Some(wait_id(2)), ..wake_hint(false) }, 2),
        (Trigger { trigger_id: Some(trigger_id(1)), ..wake_hint(false) }, 2),
        (Trigger { resource: Some(RESOURCE), ..wake_hint(false) }, 2),
        (Trigger { resource: Some("mail:inbox"), ..wake_hint(false) }, 5),
        (Trigger { wait_id: Some(wait_id(5)), ..wake_hint(false) }, 5),
    ];
    for (tied, resolved) in rows {
        expect(&waiting(AwaitingExternalChange), &tied, ResumeExpectedWait, true, true, Some(resolved));
    }
}

#[test]
fn row_5_is_for_wake_hints_alone_and_for_active_external_waits_alone() {
    let event =
        Trigger { contentful: false, resource: Some(RESOURCE), ..trigger(TriggerKind::ExternalEvent) };
    expect(&waiting(AwaitingExternalChange), &event, LivenessOnly, false, false, None);
    for wait in [1, 3, 4, 6] {
        let other = Trigger { wait_id: Some(wait_id(wait)), ..wake_hint(false) };
        expect(&waiting(AwaitingExternalChange), &other, LivenessOnly, false, false, None);
    }
}

#[test]
fn row_6_an_event_without_content_that_names_nothing_is_liveness_and_matches() {
    let event = Trigger { contentful: false, ..trigger(TriggerKind::ExternalEvent) };
    for trigger in [event, wake_hint(false)] {
        expect(&waiting(AwaitingExternalChange), &trigger, LivenessOnly, false, true, None);
    }
}

#[test]
fn row_7_news_of_a_task_that_has_not_ended_is_liveness_and_matches() {
    for status in [TaskStatus::Queued, TaskStatus::Running, TaskStatus::Cancelling] {
        expect(&waiting(AwaitingTaskResult), &result(1, status), LivenessOnly, false, true, None);
    }
    let silent = trigger(TriggerKind::TaskResult);
    expect(&waiting(AwaitingTaskResult), &silent, LivenessOnly, false, true, None);
}

#[test]
fn row_8_operator_input_overrides_every_other_wait() {
    for reason in [AwaitingExternalChange, AwaitingTimer, AwaitingTaskResult] {
        expect(&waiting(reason), &trigger(TriggerKind::OperatorInput), ResumeOverride, true, false, None);
    }
    let system = closure(Waiting, None, Some(wait_id(9)));
    expect(&system, &trigger(TriggerKind::OperatorInput), ResumeOverride, true, false, None);
}

#[test]
fn row_9_a_task_result_overrides_every_other_wait() {
    for reason in [AwaitingOperatorInput, AwaitingExternalChange, AwaitingTimer] {
        expect(&waiting(reason), &result(1, TaskStatus::Failed), ResumeOverride, true, false, None);
    }
    expect(&closure(Waiting, None, None), &result(1, TaskStatus::Failed), ResumeOverride, true, false, None);
}

#[test]
fn row_10_anything_else_is_liveness_and_matches_nothing() {
    let rows = [
        (AwaitingOperatorInput, trigger(TriggerKind::ExternalEvent)),
        (AwaitingOperatorInput, trigger(TriggerKind::TimerFire)),
        (AwaitingOperatorInput, trigger(TriggerKind::InternalFollowup)),
        (AwaitingOperatorInput, wake_hint(true)),
        (AwaitingExternalChange, trigger(TriggerKind::TimerFire)),
        (AwaitingExternalChange, trigger(TriggerKind::InternalFollowup)),
        (AwaitingExternalChange, trigger(TriggerKind::SystemTick)),
        (AwaitingExternalChange, result(1, TaskStatus::Running)),
        (AwaitingTimer, trigger(TriggerKind::ExternalEvent)),
        (AwaitingTaskResult, trigger(TriggerKind::TimerFire)),
        (AwaitingTaskResult, Trigger { resource: Some(RESOURCE), ..wake_hint(false) }),
    ];
    for (reason, trigger) in rows {
        expect(&waiting(reason), &trigger, LivenessOnly, false, false, None);
    }
}

#[test]
fn when_nothing_is_waited_for_what_was_said_re_enters_locally_and_mere_signals_do_not() {
    let blank = |trigger: Trigger<'static>| Trigger { contentful: false, ..trigger };
    let rows = [
        (trigger(TriggerKind::OperatorInput), true),
        (blank(trigger(TriggerKind::OperatorInput)), true),
        (trigger(TriggerKind::TimerFire), true),
        (blank(trigger(TriggerKind::TimerFire)), true),
        (trigger(TriggerKind::InternalFollowup), true),
        (blank(trigger(TriggerKind::InternalFollowup)), true),
        (result(1, TaskStatus::Completed), true),
        (result(1, TaskStatus::Running), false),
        (trigger(TriggerKind::TaskResult), false),
        (trigger(TriggerKind::ExternalEvent), true),
        (blank(trigger(TriggerKind::ExternalEvent)), false),
        (trigger(TriggerKind::SystemTick), true),
        (blank(trigger(TriggerKind::SystemTick)), false),
        (wake_hint(true), true),
        (wake_hint(false), false),
        (Trigger { resource: Some(RESOURCE), ..wake_hint(false) }, false),
    ];
    for outcome in [Completed, Continuable, Failed] {
        for (trigger, reentry) in &rows {
            let class = if *reentry { LocalContinuation } else { LivenessOnly };
            expect(&closure(outcome, None, None), trigger, class, *reentry, false, None);
        }
    }
}

/// What a trigger names (wait, trigger, resource), and the active external wait that it is thereby tied to.
type Names = (Option<u32>, Option<u128>, Option<&'static str>, Option<u32>);

const NAMES: [Names; 11] = [
    (None, None, None, None),
    (Some(2), None, None, Some(2)),
    (Some(5), None, None, Some(5)),
    (Some(1), None, None, None),
    (Some(6), None, None, None),
    (None, Some(1), None, Some(2)),
    (None, Some(2), None, None),
    (None, None, Some(RESOURCE), Some(2)),
    (None, None, Some("mail:inbox"), Some(5)),
    (None, None, Some("mail:outbox"), None),
    (None, None, Some(OTHER_RESOURCE), None),
];

struct Case {
    prior: Closure,
    trigger: Trigger<'static>,
    tied: Option<u32>,
}

impl Case {
    fn waits_for(&self, reason: WaitingReason) -> bool {
        self.prior.outcome == Waiting && self.prior.waiting_reason == Some(reason)
    }
    fn is(&self, kind: TriggerKind) -> bool {
        self.trigger.kind == kind
    }
    fn event_or_hint(&self) -> bool {
        self.is(TriggerKind::ExternalEvent) || self.trigger.source == Source::WakeHint
    }
    fn terminal(&self) -> bool {
        self.is(TriggerKind::TaskResult) && self.trigger.task_status.is_some_and(TaskStatus::is_terminal)
    }
    fn names_nothing(&self) -> bool {
        (self.trigger.wait_id, self.trigger.trigger_id, self.trigger.resource) == (None, None, None)
    }
    /// The task waited for is task 1, if the closure is about wait 4.
    fn is_for_the_task(&self) -> bool {
        self.prior.wait_id != Some(wait_id(4)) || self.trigger.task_id == Some(task_id(1))
    }
}

/// Whom a row resolves.
enum Resolves {
    Nobody,
    TheClosuresWait,
    /// The one of this id if it is named, else the closure's.
    ThisIfNamedElseTheClosuresWait(u32),
    TheNamedElseTheClosuresWait,
}

type Row = (&'static str, fn(&Case) -> bool, ContinuationClass, bool, bool, Resolves);

/// Contract, semantics §7: number, condition, class, re-entry, matched.
const TABLE: [Row; 15] = [
    (
        "scheduler",
        |case| case.trigger.source == Source::Scheduler,
        LocalContinuation,
        true,
        false,
        Resolves::Nobody,
    ),
    (
        "1",
        |case| case.is(TriggerKind::OperatorInput) && case.waits_for(AwaitingOperatorInput),
        ResumeExpectedWait,
        true,
        true,
        Resolves::ThisIfNamedElseTheClosuresWait(1),
    ),
    (
        "2",
        |case| case.terminal() && case.waits_for(AwaitingTaskResult) && case.is_for_the_task(),
        ResumeExpectedWait,
        true,
        true,
        Resolves::TheClosuresWait,
    ),
    (
        "3",
        |case| case.is(TriggerKind::TimerFire) && case.waits_for(AwaitingTimer),
        ResumeExpectedWait,
        true,
        true,
        Resolves::ThisIfNamedElseTheClosuresWait(3),
    ),
    (
        "4",
        |case| {
            case.event_or_hint()
                && case.trigger.contentful
                && (case.trigger.resource.is_none() || case.tied.is_some())
                && case.waits_for(AwaitingExternalChange)
        },
        ResumeExpectedWait,
        true,
        true,
        Resolves::TheNamedElseTheClosuresWait,
    ),
    (
        "5",
        |case| {
            case.trigger.source == Source::WakeHint
                && !case.trigger.contentful
                && case.tied.is_some()
                && case.waits_for(AwaitingExternalChange)
        },
        ResumeExpectedWait,
        true,
        true,
        Resolves::TheNamedElseTheClosuresWait,
    ),
    (
        "6",
        |case| {
            case.event_or_hint()
                && !case.trigger.contentful
                && case.names_nothing()
                && case.waits_for(AwaitingExternalChange)
        },
        LivenessOnly,
        false,
        true,
        Resolves::Nobody,
    ),
    (
        "7",
        |case| case.is(TriggerKind::TaskResult) && !case.terminal() && case.waits_for(AwaitingTaskResult),
        LivenessOnly,
        false,
        true,
        Resolves::Nobody,
    ),
    (
        "8",
        |case| case.prior.outcome == Waiting && case.is(TriggerKind::OperatorInput),
        ResumeOverride,
        true,
        false,
        Resolves::Nobody,
    ),
    (
        "9",
        |case| case.prior.outcome == Waiting && case.terminal() && !case.waits_for(AwaitingTaskResult),
        ResumeOverride,
        true,
        false,
        Resolves::Nobody,
    ),
    ("10", |case| case.prior.outcome == Waiting, LivenessOnly, false, false, Resolves::Nobody),
    ("free: task results", Case::terminal, LocalContinuation, true, false, Resolves::Nobody),
    (
        "free: operator input, timer fires, follow-ups",
        |case| {
            case.is(TriggerKind::OperatorInput)
                || case.is(TriggerKind::TimerFire)
                || case.is(TriggerKind::InternalFollowup)
        },
        LocalContinuation,
        true,
        false,
        Resolves::Nobody,
    ),
    (
        "free: contentful events and ticks",
        |case| {
            case.trigger.contentful
                && (case.is(TriggerKind::ExternalEvent) || case.is(TriggerKind::SystemTick))
        },
        LocalContinuation,
        true,
        false,
        Resolves::Nobody,
    ),
    ("free: the rest", |_| true, LivenessOnly, false, false, Resolves::Nobody),
];

fn priors() -> Vec<Closure> {
    let mut priors = Vec::new();
    for outcome in ClosureOutcome::ALL {
        if *outcome != Waiting {
            priors.push(closure(*outcome, None, None));
            continue;
        }
        priors.push(closure(Waiting, None, None));
        priors.push(closure(Waiting, None, Some(wait_id(9))));
        for reason in WaitingReason::ALL {
            priors.push(closure(Waiting, Some(*reason), None));
            priors.push(waiting(*reason));
        }
        // The current item's external wait.
        priors.push(closure(Waiting, Some(AwaitingExternalChange), Some(wait_id(5))));
    }
    priors
}

fn cases() -> Vec<Case> {
    let statuses = || std::iter::once(None).chain(TaskStatus::ALL.iter().copied().map(Some));
    let mut cases = Vec::new();
    for prior in priors() {
        for kind in TriggerKind::ALL {
            let sources: &[Source] = match kind {
                TriggerKind::SystemTick => &[Source::Said, Source::WakeHint, Source::Scheduler],
                _ => &[Source::Said],
            };
            for source in sources {
                for contentful in [false, true] {
                    for (wait, by_trigger, resource, tied) in NAMES {
                        for task in [None, Some(1), Some(7)] {
                            for task_status in statuses() {
                                cases.push(Case {
                                    prior: prior.clone(),
                                    trigger: Trigger {
                                        kind: *kind,
                                        source: *source,
                                        contentful,
                                        task_id: task.map(task_id),
                                        task_status,
                                        wait_id: wait.map(wait_id),
                                        trigger_id: by_trigger.map(trigger_id),
                                        resource,
                                    },
                                    tied,
                                });
                            }
                        }
                    }
                }
            }
        }
    }
    cases
}

#[test]
fn every_trigger_after_every_closure_is_the_first_row_that_holds() {
    let waits = waits();
    let mut seen = [0u32; TABLE.len()];
    for case in cases() {
        let row = TABLE.iter().position(|(_, holds, ..)| holds(&case)).expect("the last row");
        let (number, _, class, reentry, matched, resolves) = &TABLE[row];
        seen[row] += 1;
        let resolved = match resolves {
            Resolves::Nobody => None,
            Resolves::TheClosuresWait => case.prior.wait_id,
            Resolves::ThisIfNamedElseTheClosuresWait(id) => {
                let named = case.trigger.wait_id.filter(|named| *named == wait_id(*id));
                named.or(case.prior.wait_id)
            }
            Resolves::TheNamedElseTheClosuresWait => case.tied.map(wait_id).or(case.prior.wait_id),
        };
        let found = resolve(&case.prior, &case.trigger, &waits);
        assert_eq!(
            shown(&found),
            (*class, *reentry, *matched, resolved),
            "row {number}: {:?} after {:?}",
            case.trigger,
            case.prior
        );
    }
    assert!(seen.iter().all(|count| *count > 0), "a row that never held: {seen:?}");
}

#[test]
fn whatever_the_trigger_the_verdict_is_consistent_with_itself() {
    let waits = waits();
    for Case { prior, trigger, .. } in cases() {
        let found = resolve(&prior, &trigger, &waits);
        assert_eq!(found.model_reentry, found.class != LivenessOnly, "{trigger:?} after {prior:?}");
        if found.matched_waiting_reason && found.model_reentry {
            assert_eq!(found.class, ResumeExpectedWait, "{trigger:?} after {prior:?}");
        }
        if found.resolves.is_some() {
            assert!(found.matched_waiting_reason && found.model_reentry, "{trigger:?} after {prior:?}");
        }
        if found.matched_waiting_reason {
            assert_eq!(prior.outcome, Waiting, "{trigger:?} matched where nothing is waited for");
        }
        if trigger.source == Source::Scheduler {
            assert_eq!(shown(&found), (LocalContinuation, true, false, None));
        }
    }
}

#[test]
fn what_a_trigger_names_is_looked_up_by_wait_then_by_trigger_then_by_resource() {
    // Each of the three is another active external wait; the oldest comes first.
    let external = |number| wait(number, WaitKind::External);
    let waits = [
        Wait { resource: Some(RESOURCE.to_owned()), ..external(11) },
        Wait { trigger_id: Some(trigger_id(1)), ..external(12) },
        external(13),
    ];
    let prior = closure(Waiting, Some(AwaitingExternalChange), Some(wait_id(11)));
    let by_resource = Trigger { resource: Some(RESOURCE), ..wake_hint(false) };
    let by_trigger = Trigger { trigger_id: Some(trigger_id(1)), ..by_resource.clone() };
    let by_wait = Trigger { wait_id: Some(wait_id(13)), ..by_trigger.clone() };
    let rows = [(by_resource, 11), (by_trigger, 12), (by_wait, 13)];
    for (trigger, named) in rows {
        for contentful in [false, true] {
            let trigger = Trigger { contentful, ..trigger.clone() };
            let found = resolve(&prior, &trigger, &waits);
            assert_eq!(shown(&found), (ResumeExpectedWait, true, true, Some(wait_id(named))), "{trigger:?}");
        }
    }
}

#[test]
fn the_evidence_says_what_was_looked_at() {
    let hint = Trigger { resource: Some(RESOURCE), ..wake_hint(false) };
    let found = resolve(&waiting(AwaitingExternalChange), &hint, &waits());
    let tied = format!("tied_wait={}", wait_id(2));
    assert_eq!(
        found.evidence,
        [
            "prior=waiting",
            "waiting_reason=awaiting_external_change",
            "trigger=system_tick",
            "contentful=false",
            &tied,
            "resource=github:org/repo#12",
        ]
    );
    let found = resolve(&closure(Completed, None, None), &result(1, TaskStatus::Failed), &[]);
    assert_eq!(
        found.evidence,
        [
            "prior=completed",
            "waiting_reason=none",
            "trigger=task_result",
            "contentful=true",
            "task_status=failed"
        ]
    );
}

#[test]
fn control_and_task_status_are_no_triggers_and_every_other_kind_is() {
    let expected = |kind| match kind {
        MessageKind::OperatorPrompt => Some(TriggerKind::OperatorInput),
        MessageKind::ChannelEvent | MessageKind::WebhookEvent | MessageKind::CallbackEvent => {
            Some(TriggerKind::ExternalEvent)
        }
        MessageKind::TimerTick => Some(TriggerKind::TimerFire),
        MessageKind::SystemTick => Some(TriggerKind::SystemTick),
        MessageKind::TaskResult => Some(TriggerKind::TaskResult),
        MessageKind::InternalFollowup => Some(TriggerKind::InternalFollowup),
        MessageKind::TaskStatus | MessageKind::Control => None,
    };
    for kind in MessageKind::ALL {
        let message = message(1, *kind);
        assert_eq!(Trigger::of(&message).map(|trigger| trigger.kind), expected(*kind), "{kind}");
        assert_eq!(crate::rules::admission::trigger_kind(*kind), expected(*kind), "{kind}");
    }
}

#[test]
fn a_message_is_contentful_by_text_that_is_not_blank_or_by_any_json() {
    use crate::model::message::Body;
    use serde_json::json;
    let rows = [
        (text(""), false),
        (text(" \n\t\u{2003}"), false),
        (text("x"), true),
        (text("  x "), true),
        (Body::Json { value: json!(null) }, true),
        (Body::Json { value: json!("") }, true),
        (Body::Json { value: json!({}) }, true),
    ];
    for (body, contentful) in rows {
        let message = Message { body: body.clone(), ..message(1, MessageKind::WebhookEvent) };
        assert_eq!(Trigger::of(&message).map(|trigger| trigger.contentful), Some(contentful), "{body:?}");
    }
}

#[test]
fn the_key_of_a_tick_tells_whose_it_is() {
    let rows = [
        (None, Source::Said),
        (Some("wake_hint:source:cron:msg_1"), Source::WakeHint),
        (Some("work_queue:continue_active:work_1:1"), Source::Scheduler),
        (Some("work_queue:queued_available:work_1:1"), Source::Scheduler),
        (Some("work_queue:system_wait:work_1:1"), Source::Scheduler),
    ];
    for (key, source) in rows {
        let message =
            Message { idempotency_key: key.map(str::to_owned), ..message(1, MessageKind::SystemTick) };
        assert_eq!(Trigger::of(&message).map(|trigger| trigger.source), Some(source), "{key:?}");
    }
}

#[test]
fn a_trigger_carries_what_its_message_names() {
    let message = Message {
        task_id: Some(task_id(3)),
        task_status: Some(TaskStatus::Failed),
        wait_id: Some(wait_id(4)),
        trigger_id: Some(trigger_id(5)),
        resource: Some(RESOURCE.to_owned()),
        ..message(1, MessageKind::TaskResult)
    };
    let expected = Trigger {
        kind: TriggerKind::TaskResult,
        source: Source::Said,
        contentful: true,
        task_id: Some(task_id(3)),
        task_status: Some(TaskStatus::Failed),
        wait_id: Some(wait_id(4)),
        trigger_id: Some(trigger_id(5)),
        resource: Some(RESOURCE),
    };
    assert_eq!(Trigger::of(&message), Some(expected));
}
