//! Tests of the continuation of a message: every trigger after every closure, against the table in
//! docs/CONTRACT.md.

use crate::rules::continuation::resolve;
use crate::rules::waits::satisfied;

use super::*;

use ClosureOutcome::{Completed, Waiting};
use ContinuationClass::{LivenessOnly, LocalContinuation, ResumeExpectedWait, ResumeOverride};
use WaitingReason::{AwaitingExternalChange, AwaitingOperatorInput, AwaitingTaskResult, AwaitingTimer};

const RESOURCE: &str = "github:org/repo#12";
const OTHER_RESOURCE: &str = "github:org/repo#13";

static GITHUB: Origin = Origin { kind: OriginKind::Webhook, id: None };

/// Returns the waits of the tests, by number: 1 operator, 2 external with a resource and a trigger,
/// 3 timer, 4 for task 1, 5 external on item 1, 6 external and ended, 7 system with a resource,
/// 8 external and bound to a message, 10 operator on item 2, 12 external with a channel as source.
fn waits() -> Vec<Wait> {
    let external = |number, resource: &str| Wait {
        resource: Some(resource.to_owned()),
        ..wait(number, WaitKind::External)
    };
    vec![
        wait(1, WaitKind::Operator),
        Wait { trigger_id: Some(trigger_id(1)), ..external(2, RESOURCE) },
        wait(3, WaitKind::Timer),
        wait(4, WaitKind::Task),
        Wait { work_item_id: Some(work_id(1)), ..external(5, "mail:inbox") },
        Wait { status: WaitStatus::Resolved, ..external(6, "mail:outbox") },
        Wait { resource: Some("disk".to_owned()), ..wait(7, WaitKind::System) },
        Wait { resolved_by: Some(message_id(7)), ..external(8, "mail:bound") },
        wait_on(10, WaitKind::Operator, 2),
        Wait { source: Some("channel".to_owned()), ..wait(12, WaitKind::External) },
    ]
}

fn trigger(kind: TriggerKind) -> TurnTrigger<'static> {
    TurnTrigger {
        kind,
        source: TriggerSource::Said,
        contentful: true,
        task_id: None,
        task_status: None,
        wait_id: None,
        work_item_id: None,
        trigger_id: None,
        resource: None,
        origin: &GITHUB,
    }
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

/// Records that a trigger names: wait, trigger, resource, work item.
type Names = (Option<u32>, Option<u32>, Option<&'static str>, Option<u32>);

const NAMES: [Names; 21] = [
    (None, None, None, None),
    (Some(2), None, None, None),
    (Some(5), None, None, None),
    (Some(1), None, None, None),
    (Some(3), None, None, None),
    (Some(4), None, None, None),
    (Some(6), None, None, None),
    (Some(8), None, None, None),
    (Some(9), None, None, None),
    (Some(12), None, None, None),
    (Some(5), None, Some(OTHER_RESOURCE), None),
    (None, Some(1), None, None),
    (None, Some(1), Some(OTHER_RESOURCE), None),
    (None, Some(2), None, None),
    (None, None, Some(RESOURCE), None),
    (None, None, Some("mail:inbox"), Some(1)),
    (None, None, Some("disk"), None),
    (None, None, Some("mail:outbox"), None),
    (None, None, Some("mail:bound"), None),
    (None, None, Some(OTHER_RESOURCE), None),
    (None, None, None, Some(2)),
];

struct Case {
    prior: Closure,
    trigger: TurnTrigger<'static>,
    /// True if the trigger satisfies any wait.
    ends: bool,
}

impl Case {
    fn waits_for(&self, reason: WaitingReason) -> bool {
        self.prior.outcome == Waiting && self.prior.waiting_reason == Some(reason)
    }
    fn is(&self, kind: TriggerKind) -> bool {
        self.trigger.kind == kind
    }
    /// True for an outside event or a wake hint, if the agent awaits an external change.
    fn is_awaited_change(&self) -> bool {
        let is_outside =
            self.is(TriggerKind::ExternalEvent) || self.trigger.source == TriggerSource::WakeHint;
        is_outside && self.waits_for(AwaitingExternalChange)
    }
    fn terminal(&self) -> bool {
        self.is(TriggerKind::TaskResult) && self.trigger.task_status.is_some_and(TaskStatus::is_terminal)
    }
    fn names_nothing(&self) -> bool {
        // Trigger 2 does not count, because no wait names it.
        let trigger = self.trigger.trigger_id.filter(|id| *id == trigger_id(1));
        (self.trigger.wait_id, trigger, self.trigger.resource) == (None, None, None)
    }
    /// True if an active external wait has the named resource.
    fn resource_is_awaited(&self) -> bool {
        [Some(RESOURCE), Some("mail:inbox")].contains(&self.trigger.resource)
    }
    /// True for a message of the scheduler about a deadline of a wait that no longer waits.
    fn is_moot(&self) -> bool {
        let deadline = matches!(
            self.trigger.source,
            TriggerSource::Scheduler(SchedulerTick::Expiry | SchedulerTick::Recheck)
        );
        // Wait 6 has ended, wait 8 is bound to a message, and no wait has the number 9.
        let lasts = [1, 2, 3, 4, 5, 12].map(|number| Some(wait_id(number))).contains(&self.trigger.wait_id);
        deadline && !lasts
    }
    fn is_input(&self) -> bool {
        self.trigger.contentful
            && !matches!(self.trigger.source, TriggerSource::Scheduler(_))
            && (self.terminal() || !self.is(TriggerKind::TaskResult))
    }
}

/// Expected class, true if a turn starts, and true if the trigger matches the awaited reason.
type Verdict = (ContinuationClass, bool, bool);

const EXPECTED: Verdict = (ResumeExpectedWait, true, true);
const OVERRIDE: Verdict = (ResumeOverride, true, false);
const LOCAL: Verdict = (LocalContinuation, true, false);
const LIVENESS: Verdict = (LivenessOnly, false, false);
const LIVENESS_MATCHED: Verdict = (LivenessOnly, false, true);

type Row = (&'static str, Verdict, fn(&Case) -> bool);

/// Rows of contract, semantics §7: number, verdict, condition.
const TABLE: [Row; 16] = [
    ("scheduler, moot", LIVENESS, Case::is_moot),
    ("scheduler", LOCAL, |case| matches!(case.trigger.source, TriggerSource::Scheduler(_))),
    ("1", EXPECTED, |case| case.is(TriggerKind::OperatorInput) && case.waits_for(AwaitingOperatorInput)),
    ("2", EXPECTED, |case| {
        case.terminal() && case.waits_for(AwaitingTaskResult) && case.trigger.task_id == Some(task_id(1))
    }),
    ("3", EXPECTED, |case| case.is(TriggerKind::TimerFire) && case.waits_for(AwaitingTimer)),
    ("4", EXPECTED, |case| {
        let is_about_it = case.trigger.resource.is_none() || case.resource_is_awaited();
        case.is_awaited_change() && case.trigger.contentful && is_about_it
    }),
    ("5", EXPECTED, |case| case.is_awaited_change() && !case.trigger.contentful && case.ends),
    ("6", LIVENESS_MATCHED, |case| {
        case.is_awaited_change() && !case.trigger.contentful && case.names_nothing()
    }),
    ("7", LIVENESS_MATCHED, |case| {
        case.is(TriggerKind::TaskResult) && !case.terminal() && case.waits_for(AwaitingTaskResult)
    }),
    ("8", OVERRIDE, |case| case.prior.outcome == Waiting && case.is(TriggerKind::OperatorInput)),
    ("9", OVERRIDE, |case| case.prior.outcome == Waiting && case.terminal()),
    ("10", LIVENESS, |case| case.prior.outcome == Waiting),
    ("free: task results", LOCAL, Case::terminal),
    ("free: operator input, timer fires, follow-ups", LOCAL, |case| {
        use TriggerKind::{InternalFollowup, OperatorInput, TimerFire};
        matches!(case.trigger.kind, OperatorInput | TimerFire | InternalFollowup)
    }),
    ("free: contentful events and ticks", LOCAL, |case| {
        let kind = case.trigger.kind;
        case.trigger.contentful && matches!(kind, TriggerKind::ExternalEvent | TriggerKind::SystemTick)
    }),
    ("free: the rest", LIVENESS, |_| true),
];

/// Returns the verdict of a row, changed by the rules outside the table: a trigger that ends a wait
/// starts a turn in any case, and so does input if the policy says so.
fn expected(case: &Case, verdict: Verdict, unmatched: Unmatched) -> Verdict {
    let must_run = case.ends || unmatched == Unmatched::Run && case.is_input();
    match (verdict.1, must_run, case.prior.outcome == Waiting) {
        (true, ..) | (false, false, _) => verdict,
        (false, true, true) => OVERRIDE,
        (false, true, false) => LOCAL,
    }
}

fn priors() -> Vec<Closure> {
    let mut priors = Vec::new();
    for outcome in ClosureOutcome::ALL {
        if *outcome != Waiting {
            priors.push(closure(*outcome, None, None));
            continue;
        }
        priors.push(closure(Waiting, None, None));
        priors.push(closure(Waiting, None, Some(wait_id(7))));
        for reason in WaitingReason::ALL {
            priors.push(closure(Waiting, Some(*reason), None));
            priors.push(waiting(*reason));
        }
        // A closure may name a wait of a work item (wait 5), and not of the agent.
        priors.push(closure(Waiting, Some(AwaitingExternalChange), Some(wait_id(5))));
    }
    priors
}

fn sources(kind: TriggerKind) -> Vec<TriggerSource> {
    let ticks = [SchedulerTick::Other, SchedulerTick::Expiry, SchedulerTick::Recheck];
    let of_ticks = ticks.map(TriggerSource::Scheduler).into_iter().chain([TriggerSource::WakeHint]);
    let of_kind = of_ticks.filter(|_| kind == TriggerKind::SystemTick);
    std::iter::once(TriggerSource::Said).chain(of_kind).collect()
}

fn cases() -> Vec<Case> {
    let waits = waits();
    let statuses = |task| optional(TaskStatus::ALL).into_iter().map(move |status| (task, status));
    let results: Vec<(Option<u32>, Option<TaskStatus>)> =
        optional(&[1, 7]).into_iter().flat_map(statuses).collect();
    let mut cases = Vec::new();
    for prior in priors() {
        for kind in TriggerKind::ALL {
            // Triggers of other kinds do not depend on the task.
            let about_tasks = if *kind == TriggerKind::TaskResult {
                &results[..]
            } else {
                &[(None, None), (Some(1), Some(TaskStatus::Completed))]
            };
            for source in sources(*kind) {
                for contentful in [false, true] {
                    for (wait, by_trigger, resource, item) in NAMES {
                        for (task, task_status) in about_tasks {
                            let trigger = TurnTrigger {
                                kind: *kind,
                                source,
                                contentful,
                                task_id: task.map(task_id),
                                task_status: *task_status,
                                wait_id: wait.map(wait_id),
                                work_item_id: item.map(work_id),
                                trigger_id: by_trigger.map(trigger_id),
                                resource,
                                origin: &GITHUB,
                            };
                            let ends = !satisfied(&trigger.message(), &waits).is_empty();
                            cases.push(Case { prior: prior.clone(), trigger, ends });
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
        let row = TABLE.iter().position(|(.., holds)| holds(&case)).expect("the last row");
        seen[row] += 1;
        let (number, verdict, _) = TABLE[row];
        let Case { prior, trigger, .. } = &case;
        for unmatched in [Unmatched::Reduce, Unmatched::Run] {
            let message = trigger.message();
            let found = resolve(prior, &message, &waits, unmatched).expect("a continuation");
            let (class, model_reentry, matched_waiting_reason) = expected(&case, verdict, unmatched);
            let expected = Continuation {
                trigger_kind: trigger.kind,
                class,
                model_reentry,
                prior_closure_outcome: prior.outcome,
                prior_waiting_reason: prior.waiting_reason,
                matched_waiting_reason,
                // The tests of `satisfied` say which waits these are.
                resolves: satisfied(&message, &waits),
                evidence: found.evidence.clone(),
            };
            let case = format!("row {number}, {unmatched:?}: {trigger:?} after {prior:?}");
            assert_eq!(found, expected, "{case}");
            let is_waiting = |id: &WaitId| waits.iter().any(|wait| wait.id == *id && wait.is_waiting());
            assert!(found.resolves.iter().all(is_waiting), "a wait that is over ends again: {case}");
        }
    }
    assert!(seen.iter().all(|count| *count > 0), "a row that never held: {seen:?}");
}

#[test]
fn the_evidence_lists_the_facts_that_decided() {
    let hint = TurnTrigger {
        source: TriggerSource::WakeHint,
        contentful: false,
        resource: Some(RESOURCE),
        ..trigger(TriggerKind::SystemTick)
    };
    let evidence = |prior: &Closure, said: &TurnTrigger<'_>, waits: &[Wait]| {
        resolve(prior, &said.message(), waits, Unmatched::Reduce).expect("a continuation").evidence
    };
    let found = evidence(&waiting(AwaitingExternalChange), &hint, &waits());
    let expected = "prior=waiting waiting_reason=awaiting_external_change trigger=system_tick \
                    contentful=false";
    let about = format!("resolves={} resource={RESOURCE}", wait_id(2));
    assert_eq!(found, facts(&format!("{expected} {about}")));
    let failed = TurnTrigger { task_status: Some(TaskStatus::Failed), ..trigger(TriggerKind::TaskResult) };
    let found = evidence(&closure(Completed, None, None), &failed, &[]);
    let expected =
        "prior=completed waiting_reason=none trigger=task_result contentful=true task_status=failed";
    assert_eq!(found, facts(expected));
}

#[test]
fn control_and_task_status_are_no_triggers_and_every_other_kind_is() {
    for kind in MessageKind::ALL {
        let (.., expected) = provenance(*kind);
        let message = message(1, *kind);
        let found = resolve(&closure(Completed, None, None), &message, &[], Unmatched::Reduce);
        assert_eq!(found.map(|found| found.trigger_kind), expected, "{kind}");
        let named = Message { wait_id: Some(wait_id(2)), ..message };
        let is_nothing = satisfied(&named, &waits()).is_empty() && !named.is_input();
        assert!(expected.is_some() || is_nothing, "{kind} ends the wait that it names, or is input");
        assert_eq!(crate::rules::admission::trigger_kind(*kind), expected, "{kind}");
    }
}

#[test]
fn a_message_is_contentful_by_text_that_is_not_blank_or_by_any_json() {
    let rows = [
        (text(""), false),
        (text(" \n\t\u{2003}"), false),
        (text("x"), true),
        (text("  x "), true),
        (Body::from(json!(null)), true),
        (Body::from(json!("")), true),
        (Body::from(json!({})), true),
    ];
    for (body, contentful) in rows {
        let message = Message { body: body.clone(), ..message(1, MessageKind::WebhookEvent) };
        assert_eq!(message.is_contentful(), contentful, "{body:?}");
    }
}

#[test]
fn the_source_of_a_tick_is_read_from_its_key() {
    let other = TriggerSource::Scheduler(SchedulerTick::Other);
    let [expiry, recheck] = [EXPIRY_KEY, RECHECK_KEY].map(|key| format!("{key}wait_1:1"));
    let rows = [
        (None, TriggerSource::Said),
        (Some("wake_hint:source:cron:msg_1"), TriggerSource::WakeHint),
        (Some("work_queue:continue_active:work_1:1"), other),
        (Some("work_queue:queued_available:work_1:1"), other),
        (Some("work_queue:system_wait:work_1:1"), other),
        (Some("system_wait:wait_1"), other),
        (Some("reduced_input:msg_1"), other),
        (Some("wait:healed:wait_1"), other),
        (Some(&expiry), TriggerSource::Scheduler(SchedulerTick::Expiry)),
        (Some(&recheck), TriggerSource::Scheduler(SchedulerTick::Recheck)),
        // dormouse's first version wrote this key after the end of the wait, so a turn must run.
        (Some("wait:expired:wait_1:1"), other),
    ];
    for (key, source) in rows {
        let message =
            Message { idempotency_key: key.map(str::to_owned), ..message(1, MessageKind::SystemTick) };
        let found = match message.scheduler_tick() {
            Some(tick) => TriggerSource::Scheduler(tick),
            None if message.is_wake_hint() => TriggerSource::WakeHint,
            None => TriggerSource::Said,
        };
        assert_eq!(found, source, "{key:?}");
    }
}
