//! Continuation of a message: each row of the contract, and every trigger after every closure.

use crate::model::message::{EXPIRY_KEY, RECHECK_KEY};
use crate::rules::continuation::{TriggerSource, TurnTrigger, resolve};
use crate::rules::waits::satisfied;

use super::*;

use ClosureOutcome::{Completed, Continuable, Failed, Waiting};
use ContinuationClass::{LivenessOnly, LocalContinuation, ResumeExpectedWait, ResumeOverride};
use WaitingReason::{AwaitingExternalChange, AwaitingOperatorInput, AwaitingTaskResult, AwaitingTimer};

const RESOURCE: &str = "github:org/repo#12";
const OTHER_RESOURCE: &str = "github:org/repo#13";

static GITHUB: Origin = Origin { kind: OriginKind::Webhook, id: None };

/// The waits of the tests, by number: 1 operator, 2 external with a resource and a trigger, 3
/// timer, 4 for task 1, 5 an external one on item 1, 6 an external one that has ended, 7 system
/// with a resource, 8 an external one that is bound, 10 for the operator on item 2, 12 external
/// from a channel.
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

fn wake_hint(contentful: bool) -> TurnTrigger<'static> {
    TurnTrigger { source: TriggerSource::WakeHint, contentful, ..trigger(TriggerKind::SystemTick) }
}

fn result(task: u32, status: TaskStatus) -> TurnTrigger<'static> {
    TurnTrigger {
        task_id: Some(task_id(task)),
        task_status: Some(status),
        ..trigger(TriggerKind::TaskResult)
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

type Shown = (ContinuationClass, bool, bool, Vec<WaitId>);

fn shown(found: &Continuation) -> Shown {
    (found.class, found.model_reentry, found.matched_waiting_reason, found.resolves.clone())
}

#[track_caller]
fn expect(prior: &Closure, trigger: &TurnTrigger<'_>, (class, reentry, matched): Verdict, resolves: &[u32]) {
    let found = resolve(prior, trigger, &waits(), Unmatched::Reduce);
    let resolves = resolves.iter().copied().map(wait_id).collect();
    assert_eq!(shown(&found), (class, reentry, matched, resolves), "{trigger:?} after {prior:?}");
    assert_eq!(found.trigger_kind, trigger.kind);
    assert_eq!(found.prior_closure_outcome, prior.outcome);
    assert_eq!(found.prior_waiting_reason, prior.waiting_reason);
}

#[test]
fn row_1_operator_input_is_what_an_agent_that_awaits_the_operator_waited_for() {
    let said = trigger(TriggerKind::OperatorInput);
    expect(&waiting(AwaitingOperatorInput), &said, EXPECTED, &[1, 10]);
    let about_one = TurnTrigger { work_item_id: Some(work_id(2)), ..said };
    expect(&waiting(AwaitingOperatorInput), &about_one, EXPECTED, &[10]);
}

#[test]
fn row_2_the_result_of_the_task_waited_for_resumes() {
    for status in [TaskStatus::Completed, TaskStatus::Failed, TaskStatus::Cancelled, TaskStatus::Interrupted]
    {
        let result = result(1, status);
        expect(&waiting(AwaitingTaskResult), &result, EXPECTED, &[4]);
    }
}

#[test]
fn row_9_the_result_of_another_task_re_enters_all_the_same() {
    let other = result(7, TaskStatus::Completed);
    expect(&waiting(AwaitingTaskResult), &other, OVERRIDE, &[]);
}

#[test]
fn row_3_a_timer_that_fires_resumes_an_agent_that_awaits_a_timer() {
    for contentful in [false, true] {
        let fire = TurnTrigger { contentful, ..trigger(TriggerKind::TimerFire) };
        expect(&waiting(AwaitingTimer), &fire, EXPECTED, &[]);
        let own = TurnTrigger { wait_id: Some(wait_id(3)), ..fire };
        expect(&waiting(AwaitingTimer), &own, EXPECTED, &[3]);
    }
}

#[test]
fn row_4_a_contentful_event_that_names_nothing_resumes_and_ends_no_wait_that_names_something() {
    for event in [trigger(TriggerKind::ExternalEvent), wake_hint(true)] {
        expect(&waiting(AwaitingExternalChange), &event, EXPECTED, &[]);
    }
}

#[test]
fn row_4_a_contentful_event_ends_the_wait_that_it_names_and_no_other() {
    for trigger in [trigger(TriggerKind::ExternalEvent), wake_hint(true)] {
        let own = TurnTrigger { resource: Some(RESOURCE), ..trigger.clone() };
        expect(&waiting(AwaitingExternalChange), &own, EXPECTED, &[2]);
        let items = TurnTrigger { resource: Some("mail:inbox"), ..trigger.clone() };
        expect(&waiting(AwaitingExternalChange), &items, EXPECTED, &[5]);
        let by_id = TurnTrigger { wait_id: Some(wait_id(5)), ..trigger };
        expect(&waiting(AwaitingExternalChange), &by_id, EXPECTED, &[5]);
    }
}

#[test]
fn row_4_does_not_hold_for_a_resource_that_nobody_waits_for() {
    for resource in [OTHER_RESOURCE, "mail:outbox", "mail:bound"] {
        for trigger in [trigger(TriggerKind::ExternalEvent), wake_hint(true)] {
            let other = TurnTrigger { resource: Some(resource), ..trigger };
            expect(&waiting(AwaitingExternalChange), &other, LIVENESS, &[]);
        }
    }
}

#[test]
fn row_5_a_signal_without_content_resumes_the_wait_that_it_satisfies() {
    for blank in [wake_hint(false), TurnTrigger { contentful: false, ..trigger(TriggerKind::ExternalEvent) }]
    {
        let rows = [
            (TurnTrigger { wait_id: Some(wait_id(2)), ..blank.clone() }, 2),
            (TurnTrigger { trigger_id: Some(trigger_id(1)), ..blank.clone() }, 2),
            (TurnTrigger { resource: Some(RESOURCE), ..blank.clone() }, 2),
            (TurnTrigger { resource: Some("mail:inbox"), ..blank.clone() }, 5),
            (TurnTrigger { resource: Some("disk"), ..blank.clone() }, 7),
            (TurnTrigger { wait_id: Some(wait_id(12)), ..blank.clone() }, 12),
        ];
        // No signal answers a question to the operator, whatever it names.
        let question = TurnTrigger { wait_id: Some(wait_id(1)), ..blank };
        expect(&waiting(AwaitingExternalChange), &question, LIVENESS, &[]);
        for (named, ended) in rows {
            expect(&waiting(AwaitingExternalChange), &named, EXPECTED, &[ended]);
        }
    }
}

#[test]
fn row_6_a_signal_without_content_that_names_nothing_is_liveness_and_matches() {
    let event = TurnTrigger { contentful: false, ..trigger(TriggerKind::ExternalEvent) };
    for trigger in [event, wake_hint(false)] {
        expect(&waiting(AwaitingExternalChange), &trigger, LIVENESS_MATCHED, &[]);
    }
}

#[test]
fn row_7_news_of_a_task_that_has_not_ended_is_liveness_and_matches() {
    for status in [TaskStatus::Queued, TaskStatus::Running, TaskStatus::Cancelling] {
        expect(&waiting(AwaitingTaskResult), &result(1, status), LIVENESS_MATCHED, &[]);
        let named = TurnTrigger { wait_id: Some(wait_id(4)), ..result(1, status) };
        expect(&waiting(AwaitingTaskResult), &named, LIVENESS_MATCHED, &[]);
    }
    expect(&waiting(AwaitingTaskResult), &trigger(TriggerKind::TaskResult), LIVENESS_MATCHED, &[]);
}

#[test]
fn row_8_operator_input_overrides_every_other_wait_and_ends_those_for_the_operator() {
    let system = closure(Waiting, None, Some(wait_id(7)));
    for prior in
        [AwaitingExternalChange, AwaitingTimer, AwaitingTaskResult].map(waiting).iter().chain([&system])
    {
        expect(prior, &trigger(TriggerKind::OperatorInput), OVERRIDE, &[1, 10]);
    }
}

#[test]
fn row_9_a_task_result_overrides_every_other_wait_and_ends_its_own() {
    for reason in [AwaitingOperatorInput, AwaitingExternalChange, AwaitingTimer] {
        expect(&waiting(reason), &result(1, TaskStatus::Failed), OVERRIDE, &[4]);
    }
    expect(&closure(Waiting, None, None), &result(1, TaskStatus::Failed), OVERRIDE, &[4]);
}

#[test]
fn row_10_anything_else_that_ends_nothing_is_liveness_and_matches_nothing() {
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
        (AwaitingTaskResult, TurnTrigger { resource: Some(OTHER_RESOURCE), ..wake_hint(false) }),
    ];
    for (reason, trigger) in rows {
        expect(&waiting(reason), &trigger, LIVENESS, &[]);
    }
}

#[test]
fn what_ends_a_wait_re_enters_where_no_row_lets_it_in() {
    let rows = [
        (TurnTrigger { resource: Some(RESOURCE), ..wake_hint(false) }, 2),
        (TurnTrigger { resource: Some(RESOURCE), ..trigger(TriggerKind::ExternalEvent) }, 2),
        (TurnTrigger { wait_id: Some(wait_id(3)), ..trigger(TriggerKind::TimerFire) }, 3),
        (TurnTrigger { wait_id: Some(wait_id(12)), ..trigger(TriggerKind::InternalFollowup) }, 12),
    ];
    for (named, ended) in rows {
        expect(&waiting(AwaitingOperatorInput), &named, OVERRIDE, &[ended]);
    }
    let blank = TurnTrigger { resource: Some(RESOURCE), ..wake_hint(false) };
    for outcome in [Completed, Continuable, Failed] {
        expect(&closure(outcome, None, None), &blank, LOCAL, &[2]);
    }
}

#[test]
fn when_nothing_is_waited_for_what_was_said_re_enters_locally_and_mere_signals_do_not() {
    let blank = |trigger: TurnTrigger<'static>| TurnTrigger { contentful: false, ..trigger };
    let rows: [(TurnTrigger<'_>, bool, &[u32]); 16] = [
        (trigger(TriggerKind::OperatorInput), true, &[1, 10]),
        (blank(trigger(TriggerKind::OperatorInput)), true, &[1, 10]),
        (trigger(TriggerKind::TimerFire), true, &[]),
        (blank(trigger(TriggerKind::TimerFire)), true, &[]),
        (trigger(TriggerKind::InternalFollowup), true, &[]),
        (blank(trigger(TriggerKind::InternalFollowup)), true, &[]),
        (result(1, TaskStatus::Completed), true, &[4]),
        (result(1, TaskStatus::Running), false, &[]),
        (trigger(TriggerKind::TaskResult), false, &[]),
        (trigger(TriggerKind::ExternalEvent), true, &[]),
        (blank(trigger(TriggerKind::ExternalEvent)), false, &[]),
        (trigger(TriggerKind::SystemTick), true, &[]),
        (blank(trigger(TriggerKind::SystemTick)), false, &[]),
        (wake_hint(true), true, &[]),
        (wake_hint(false), false, &[]),
        (TurnTrigger { resource: Some(OTHER_RESOURCE), ..wake_hint(false) }, false, &[]),
    ];
    for outcome in [Completed, Continuable, Failed] {
        for (trigger, reentry, resolves) in &rows {
            let verdict = if *reentry { LOCAL } else { LIVENESS };
            expect(&closure(outcome, None, None), trigger, verdict, resolves);
        }
    }
}

#[test]
fn the_schedulers_own_ticks_run_and_end_nothing_unless_what_they_are_about_is_over() {
    for prior in priors() {
        for tick in [SchedulerTick::Other, SchedulerTick::Expiry, SchedulerTick::Recheck] {
            for number in [1, 2, 6, 8, 9] {
                let source = TriggerSource::Scheduler(tick);
                let tick_about = TurnTrigger {
                    source,
                    wait_id: Some(wait_id(number)),
                    ..trigger(TriggerKind::SystemTick)
                };
                // 6 has ended, 8 is bound, 9 is gone.
                let runs = tick == SchedulerTick::Other || number < 6;
                expect(&prior, &tick_about, if runs { LOCAL } else { LIVENESS }, &[]);
            }
        }
    }
}

#[test]
fn input_that_no_row_lets_in_runs_at_once_where_the_policy_says_so() {
    let rows = [
        (trigger(TriggerKind::ExternalEvent), true),
        (trigger(TriggerKind::TimerFire), true),
        (trigger(TriggerKind::InternalFollowup), true),
        (wake_hint(true), true),
        // An event without content is only a signal, and a message about a running task is no
        // input.
        (TurnTrigger { contentful: false, ..trigger(TriggerKind::ExternalEvent) }, false),
        (wake_hint(false), false),
        (result(1, TaskStatus::Running), false),
    ];
    let prior = waiting(AwaitingOperatorInput);
    for (trigger, runs) in rows {
        let reduced = resolve(&prior, &trigger, &waits(), Unmatched::Reduce);
        assert_eq!(shown(&reduced), (LivenessOnly, false, false, Vec::new()), "{trigger:?}");
        let found = resolve(&prior, &trigger, &waits(), Unmatched::Run);
        let class = if runs { ResumeOverride } else { LivenessOnly };
        assert_eq!(shown(&found), (class, runs, false, Vec::new()), "{trigger:?}");
    }
}

/// Names of a trigger: wait, trigger, resource, work item.
type Names = (Option<u32>, Option<u32>, Option<&'static str>, Option<u32>);

const NAMES: [Names; 17] = [
    (None, None, None, None),
    (Some(2), None, None, None),
    (Some(5), None, None, None),
    (Some(1), None, None, None),
    (Some(4), None, None, None),
    (Some(6), None, None, None),
    (Some(8), None, None, None),
    (Some(5), None, Some(OTHER_RESOURCE), None),
    (None, Some(1), None, None),
    (None, Some(1), Some(OTHER_RESOURCE), None),
    (None, Some(2), None, None),
    (None, None, Some(RESOURCE), None),
    (None, None, Some("mail:inbox"), Some(1)),
    (None, None, Some("disk"), None),
    (None, None, Some("mail:outbox"), None),
    (None, None, Some(OTHER_RESOURCE), None),
    (None, None, None, Some(2)),
];

struct Case {
    prior: Closure,
    trigger: TurnTrigger<'static>,
    /// True if it satisfies any wait.
    ends: bool,
}

impl Case {
    fn waits_for(&self, reason: WaitingReason) -> bool {
        self.prior.outcome == Waiting && self.prior.waiting_reason == Some(reason)
    }
    fn is(&self, kind: TriggerKind) -> bool {
        self.trigger.kind == kind
    }
    /// True for an event or a hint while an external change is awaited.
    fn is_awaited_change(&self) -> bool {
        let is_outside =
            self.is(TriggerKind::ExternalEvent) || self.trigger.source == TriggerSource::WakeHint;
        is_outside && self.waits_for(AwaitingExternalChange)
    }
    fn terminal(&self) -> bool {
        self.is(TriggerKind::TaskResult) && self.trigger.task_status.is_some_and(TaskStatus::is_terminal)
    }
    fn names_nothing(&self) -> bool {
        // A trigger that no wait names does not count as named.
        let trigger = self.trigger.trigger_id.filter(|id| *id == trigger_id(1));
        (self.trigger.wait_id, trigger, self.trigger.resource) == (None, None, None)
    }
    /// True if an active external wait has the named resource.
    fn resource_is_awaited(&self) -> bool {
        [Some(RESOURCE), Some("mail:inbox")].contains(&self.trigger.resource)
    }
    /// True if the tick is about a deadline of a wait that has ended or is bound.
    fn is_moot(&self) -> bool {
        let deadline = matches!(
            self.trigger.source,
            TriggerSource::Scheduler(SchedulerTick::Expiry | SchedulerTick::Recheck)
        );
        let counts = [1, 2, 4, 5].map(|number| Some(wait_id(number))).contains(&self.trigger.wait_id);
        deadline && !counts
    }
    fn is_input(&self) -> bool {
        self.trigger.contentful
            && !matches!(self.trigger.source, TriggerSource::Scheduler(_))
            && (self.terminal() || !self.is(TriggerKind::TaskResult))
    }
}

/// Class, re-entry, matched.
type Verdict = (ContinuationClass, bool, bool);

const EXPECTED: Verdict = (ResumeExpectedWait, true, true);
const OVERRIDE: Verdict = (ResumeOverride, true, false);
const LOCAL: Verdict = (LocalContinuation, true, false);
const LIVENESS: Verdict = (LivenessOnly, false, false);
const LIVENESS_MATCHED: Verdict = (LivenessOnly, false, true);

type Row = (&'static str, fn(&Case) -> bool, Verdict);

/// Contract, semantics §7: number, condition, verdict.
const TABLE: [Row; 16] = [
    ("scheduler, moot", Case::is_moot, LIVENESS),
    ("scheduler", |case| matches!(case.trigger.source, TriggerSource::Scheduler(_)), LOCAL),
    ("1", |case| case.is(TriggerKind::OperatorInput) && case.waits_for(AwaitingOperatorInput), EXPECTED),
    (
        "2",
        |case| {
            case.terminal() && case.waits_for(AwaitingTaskResult) && case.trigger.task_id == Some(task_id(1))
        },
        EXPECTED,
    ),
    ("3", |case| case.is(TriggerKind::TimerFire) && case.waits_for(AwaitingTimer), EXPECTED),
    (
        "4",
        |case| {
            let is_about_it = case.trigger.resource.is_none() || case.resource_is_awaited();
            case.is_awaited_change() && case.trigger.contentful && is_about_it
        },
        EXPECTED,
    ),
    ("5", |case| case.is_awaited_change() && !case.trigger.contentful && case.ends, EXPECTED),
    (
        "6",
        |case| case.is_awaited_change() && !case.trigger.contentful && case.names_nothing(),
        LIVENESS_MATCHED,
    ),
    (
        "7",
        |case| case.is(TriggerKind::TaskResult) && !case.terminal() && case.waits_for(AwaitingTaskResult),
        LIVENESS_MATCHED,
    ),
    ("8", |case| case.prior.outcome == Waiting && case.is(TriggerKind::OperatorInput), OVERRIDE),
    ("9", |case| case.prior.outcome == Waiting && case.terminal(), OVERRIDE),
    ("10", |case| case.prior.outcome == Waiting, LIVENESS),
    ("free: task results", Case::terminal, LOCAL),
    (
        "free: operator input, timer fires, follow-ups",
        |case| {
            use TriggerKind::{InternalFollowup, OperatorInput, TimerFire};
            matches!(case.trigger.kind, OperatorInput | TimerFire | InternalFollowup)
        },
        LOCAL,
    ),
    (
        "free: contentful events and ticks",
        |case| {
            let kind = case.trigger.kind;
            case.trigger.contentful && matches!(kind, TriggerKind::ExternalEvent | TriggerKind::SystemTick)
        },
        LOCAL,
    ),
    ("free: the rest", |_| true, LIVENESS),
];

/// Returns the row's verdict, unless the trigger must run all the same.
fn expected(case: &Case, (.., verdict): &Row, unmatched: Unmatched) -> Verdict {
    let must_run = case.ends || unmatched == Unmatched::Run && case.is_input();
    match (verdict.1, must_run, case.prior.outcome == Waiting) {
        (true, ..) | (false, false, _) => *verdict,
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
        // External wait of an item.
        priors.push(closure(Waiting, Some(AwaitingExternalChange), Some(wait_id(5))));
    }
    priors
}

fn sources(kind: TriggerKind) -> &'static [TriggerSource] {
    match kind {
        TriggerKind::SystemTick => &[
            TriggerSource::Said,
            TriggerSource::WakeHint,
            TriggerSource::Scheduler(SchedulerTick::Other),
            TriggerSource::Scheduler(SchedulerTick::Expiry),
            TriggerSource::Scheduler(SchedulerTick::Recheck),
        ],
        TriggerKind::OperatorInput
        | TriggerKind::TaskResult
        | TriggerKind::ExternalEvent
        | TriggerKind::TimerFire
        | TriggerKind::InternalFollowup => &[TriggerSource::Said],
    }
}

fn cases() -> Vec<Case> {
    let waits = waits();
    let statuses = || std::iter::once(None).chain(TaskStatus::ALL.iter().copied().map(Some));
    let results: Vec<(Option<u32>, Option<TaskStatus>)> = [None, Some(1), Some(7)]
        .into_iter()
        .flat_map(|task| statuses().map(move |one| (task, one)))
        .collect();
    let mut cases = Vec::new();
    for prior in priors() {
        for kind in TriggerKind::ALL {
            // Other kinds do not depend on the task.
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
                                source: *source,
                                contentful,
                                task_id: task.map(task_id),
                                task_status: *task_status,
                                wait_id: wait.map(wait_id),
                                work_item_id: item.map(work_id),
                                trigger_id: by_trigger.map(trigger_id),
                                resource,
                                origin: &GITHUB,
                            };
                            let ends = !satisfied(&trigger, &waits).is_empty();
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
        let row = TABLE.iter().position(|(_, holds, ..)| holds(&case)).expect("the last row");
        seen[row] += 1;
        let (number, ..) = &TABLE[row];
        let Case { prior, trigger, .. } = &case;
        for unmatched in [Unmatched::Reduce, Unmatched::Run] {
            let found = resolve(prior, trigger, &waits, unmatched);
            let (class, reentry, matched) = expected(&case, &TABLE[row], unmatched);
            let resolves = satisfied(trigger, &waits);
            assert_eq!(
                shown(&found),
                (class, reentry, matched, resolves),
                "row {number}, {unmatched:?}: {trigger:?} after {prior:?}"
            );
        }
    }
    assert!(seen.iter().all(|count| *count > 0), "a row that never held: {seen:?}");
}

#[test]
fn whatever_the_trigger_the_verdict_is_consistent_with_itself() {
    let waits = waits();
    for Case { prior, trigger, ends } in cases() {
        let found = resolve(&prior, &trigger, &waits, Unmatched::Reduce);
        let case = format!("{trigger:?} after {prior:?}");
        assert_eq!(found.model_reentry, found.class != LivenessOnly, "{case}");
        if found.matched_waiting_reason && found.model_reentry {
            assert_eq!(found.class, ResumeExpectedWait, "{case}");
        }
        if found.matched_waiting_reason {
            assert_eq!(prior.outcome, Waiting, "matched where nothing is waited for: {case}");
        }
        assert_eq!(!found.resolves.is_empty(), ends, "{case}");
        assert!(!ends || found.model_reentry, "what ends a wait re-enters: {case}");
        let counts = |id: &WaitId| waits.iter().any(|wait| wait.id == *id && wait.is_waiting());
        assert!(found.resolves.iter().all(counts), "only what counts ends: {case}");
    }
}

#[test]
fn the_evidence_says_what_was_looked_at() {
    let hint = TurnTrigger { resource: Some(RESOURCE), ..wake_hint(false) };
    let found = resolve(&waiting(AwaitingExternalChange), &hint, &waits(), Unmatched::Reduce);
    let resolves = format!("resolves={}", wait_id(2));
    assert_eq!(
        found.evidence,
        [
            "prior=waiting",
            "waiting_reason=awaiting_external_change",
            "trigger=system_tick",
            "contentful=false",
            &resolves,
            "resource=github:org/repo#12",
        ]
    );
    let failed = result(1, TaskStatus::Failed);
    let found = resolve(&closure(Completed, None, None), &failed, &[], Unmatched::Reduce);
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
        assert_eq!(TurnTrigger::of(&message).map(|trigger| trigger.kind), expected(*kind), "{kind}");
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
        (Body::from(json!(null)), true),
        (Body::from(json!("")), true),
        (Body::from(json!({})), true),
    ];
    for (body, contentful) in rows {
        let message = Message { body: body.clone(), ..message(1, MessageKind::WebhookEvent) };
        assert_eq!(TurnTrigger::of(&message).map(|trigger| trigger.contentful), Some(contentful), "{body:?}");
    }
}

#[test]
fn the_key_of_a_tick_tells_whose_it_is() {
    let [expiry, recheck] = [EXPIRY_KEY, RECHECK_KEY].map(|key| format!("{key}wait_1:1"));
    let rows = [
        (None, TriggerSource::Said),
        (Some("wake_hint:source:cron:msg_1"), TriggerSource::WakeHint),
        (Some("work_queue:continue_active:work_1:1"), TriggerSource::Scheduler(SchedulerTick::Other)),
        (Some("work_queue:queued_available:work_1:1"), TriggerSource::Scheduler(SchedulerTick::Other)),
        (Some("work_queue:system_wait:work_1:1"), TriggerSource::Scheduler(SchedulerTick::Other)),
        (Some("system_wait:wait_1"), TriggerSource::Scheduler(SchedulerTick::Other)),
        (Some("reduced_input:msg_1"), TriggerSource::Scheduler(SchedulerTick::Other)),
        (Some("wait:healed:wait_1"), TriggerSource::Scheduler(SchedulerTick::Other)),
        (Some(&expiry), TriggerSource::Scheduler(SchedulerTick::Expiry)),
        (Some(&recheck), TriggerSource::Scheduler(SchedulerTick::Recheck)),
        // Keys of the first version, whose waits had ended before the tick.
        (Some("wait:expired:wait_1:1"), TriggerSource::Scheduler(SchedulerTick::Other)),
    ];
    for (key, source) in rows {
        let message =
            Message { idempotency_key: key.map(str::to_owned), ..message(1, MessageKind::SystemTick) };
        assert_eq!(TurnTrigger::of(&message).map(|trigger| trigger.source), Some(source), "{key:?}");
    }
}

#[test]
fn a_trigger_carries_what_its_message_names() {
    let message = Message {
        task_id: Some(task_id(3)),
        task_status: Some(TaskStatus::Failed),
        wait_id: Some(wait_id(4)),
        work_item_id: Some(work_id(6)),
        trigger_id: Some(trigger_id(5)),
        resource: Some(RESOURCE.to_owned()),
        ..message(1, MessageKind::TaskResult)
    };
    let expected = TurnTrigger {
        kind: TriggerKind::TaskResult,
        source: TriggerSource::Said,
        contentful: true,
        task_id: Some(task_id(3)),
        task_status: Some(TaskStatus::Failed),
        wait_id: Some(wait_id(4)),
        work_item_id: Some(work_id(6)),
        trigger_id: Some(trigger_id(5)),
        resource: Some(RESOURCE),
        origin: &message.origin,
    };
    assert_eq!(TurnTrigger::of(&message), Some(expected));
}
