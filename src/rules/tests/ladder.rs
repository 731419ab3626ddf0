//! Tests of the ladder: every combination of the facts that its rungs read, each record alone, and
//! the reports of the decisions.

use crate::rules::ladder::LADDER;
use crate::rules::projection::{Backoff, Gate, HeldFact, PendingHint, Projection, QueuedMessage};

use super::*;

use SchedulingState::{
    Blocked, Completed, Runnable, WaitingExternal, WaitingOperator, WaitingSystem, WaitingTask, WaitingTimer,
};

/// Time of a fact: none, in the future, or past.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    Never,
    NotYet,
    Now,
}

/// Facts that the rungs read, reduced to the values between which a rung distinguishes.
#[derive(Debug, Clone, Copy)]
struct Facts {
    gate: Gate,
    live: bool,
    backoff: When,
    held: When,
    /// True if a claim would lack a resource.
    lacks: bool,
    /// True if the queued message runs a turn; `None` without a message.
    message: Option<bool>,
    /// True if a `system_tick` was already emitted for the pending hint; `None` without a hint.
    hint: Option<bool>,
    /// State of the current item, and true if the item has caused a `system_tick` message.
    current: Option<(SchedulingState, bool)>,
    /// State of each queued item, and true if the item has caused a `system_tick` message.
    queued: &'static [(SchedulingState, bool)],
    operator: bool,
    external: bool,
    timer_wait: bool,
    task: bool,
    system: bool,
    /// True if a step has emitted the `system_tick` message for the agent's own `system` wait.
    system_ticked: bool,
    timer: bool,
    asleep: bool,
}

/// Facts of an agent with nothing to do.
const QUIET: Facts = Facts {
    gate: Gate::Open,
    live: false,
    backoff: When::Never,
    held: When::Never,
    lacks: false,
    message: None,
    hint: None,
    current: None,
    queued: &[],
    operator: false,
    external: false,
    timer_wait: false,
    task: false,
    system: false,
    system_ticked: false,
    timer: false,
    asleep: false,
};

impl Facts {
    fn current_is(&self, state: SchedulingState) -> bool {
        self.current.is_some_and(|(current, _)| current == state)
    }
    fn queued_ticked(&self, wanted: bool) -> bool {
        self.queued.contains(&(Runnable, wanted))
    }
    /// True if `state` is that of the oldest queued item with a wait other than a `system` wait.
    fn other_is(&self, state: SchedulingState) -> bool {
        let waits = [WaitingOperator, WaitingTask, WaitingExternal, WaitingTimer];
        let first = self.queued.iter().find(|(other, _)| waits.contains(other));
        first.is_some_and(|(first, _)| *first == state)
    }
}

type Row = (u8, fn(&Facts) -> bool, &'static str, &'static str);

/// Rows of contract, semantics §8: rung, condition, decision, reason.
const TABLE: [Row; 38] = [
    (1, |f| f.gate == Gate::Stopped, "stop", "stopped"),
    (1, |f| f.gate == Gate::NotStarted, "noop", "not_started"),
    (2, |f| f.live, "noop", "turn_in_progress"),
    (3, |f| f.backoff == When::Now, "start_recovery", "retry"),
    (4, |f| f.backoff == When::NotYet, "wait_for_timer", "recovery_backoff"),
    (5, |f| f.held == When::Now && !f.lacks, "start_model_turn", "resources_available"),
    (6, |f| f.held == When::NotYet, "wait_for_resources", "a free slot"),
    (6, |f| f.held == When::Now, "wait_for_resources", "workspace"),
    (6, |f| f.message == Some(true) && f.lacks, "wait_for_resources", "workspace"),
    (7, |f| f.message == Some(true), "start_model_turn", "webhook_event"),
    (8, |f| f.message == Some(false), "reduce_message_only", "webhook_event"),
    (9, |f| f.hint == Some(false), "emit_system_tick", "wake_hint"),
    (10, |f| f.current == Some((Runnable, false)), "emit_system_tick", "continue_active"),
    (11, |f| f.queued_ticked(false), "emit_system_tick", "queued_available"),
    (12, |f| f.hint == Some(true), "noop", "duplicate_wake_hint"),
    (12, |f| f.current == Some((Runnable, true)), "noop", "duplicate_continue_active"),
    (12, |f| f.queued_ticked(true), "noop", "duplicate_queued_available"),
    (13, |f| f.operator, "wait_for_operator", "agent_operator_wait"),
    (14, |f| f.external, "wait_for_external_change", "agent_external_wait"),
    (15, |f| f.timer, "wait_for_timer", "active_timers"),
    (15, |f| f.timer_wait, "wait_for_timer", "active_timers"),
    (16, |f| f.task, "wait_for_task", "agent_task_wait"),
    (17, |f| f.current_is(WaitingOperator), "wait_for_operator", "work_item_needs_input"),
    (17, |f| f.current_is(WaitingTask), "wait_for_task", "work_item_task_wait"),
    (17, |f| f.current_is(WaitingExternal), "wait_for_external_change", "work_item_external_wait"),
    (17, |f| f.current_is(WaitingTimer), "wait_for_timer", "work_item_timer_wait"),
    (17, |f| f.other_is(WaitingOperator), "wait_for_operator", "work_item_needs_input"),
    (17, |f| f.other_is(WaitingTask), "wait_for_task", "work_item_task_wait"),
    (17, |f| f.other_is(WaitingExternal), "wait_for_external_change", "work_item_external_wait"),
    (17, |f| f.other_is(WaitingTimer), "wait_for_timer", "work_item_timer_wait"),
    (18, |f| f.system && !f.system_ticked, "emit_system_tick", "system_wait"),
    (18, |f| f.current == Some((WaitingSystem, false)), "emit_system_tick", "system_wait"),
    (18, |f| f.system || f.current_is(WaitingSystem), "wait_for_resources", "system_wait"),
    // A queued item with a `system` wait causes no `system_tick` message, unlike the current item.
    (18, |f| f.queued.iter().any(|(state, _)| *state == WaitingSystem), "wait_for_resources", "system_wait"),
    (19, |f| f.asleep, "stay_idle", "already_asleep"),
    // The last rung has three rows: for the conditions that rungs 10, 11 and 18 leave to it.
    (20, |f| f.current.is_some(), "sleep", "no_pending_scheduler_facts"),
    (20, |f| !f.queued.is_empty(), "sleep", "no_pending_scheduler_facts"),
    (20, |_| true, "sleep", "no_pending_scheduler_facts"),
];

fn work_fact(number: u32, state: SchedulingState, ticked: bool) -> WorkFact {
    let wait = wait_id(10 + number);
    WorkFact { id: work_id(number), revision: 3, state, ticked, wait_id: Some(wait), task_id: None }
}

fn projection(facts: &Facts) -> Projection {
    let own = |is: bool, number| is.then(|| wait_id(number));
    Projection {
        gate: facts.gate,
        live_run: facts.live.then(|| Some(run_id(1))),
        away: None,
        backoff: (facts.backoff != When::Never).then(|| Backoff {
            until: at(1),
            is_over: facts.backoff == When::Now,
            cause: RecoveryCause::Retry,
        }),
        held: (facts.held != When::Never).then(|| HeldFact {
            run: HeldRun { missing: "a free slot".to_owned(), ..HeldRun::new(message_id(1), continuation()) },
            about: MessageSummary::default(),
            may_go_on: facts.held == When::Now,
            cause: ResumeCause::ResourcesAvailable,
        }),
        shortage: facts.lacks.then(shortage),
        message: facts.message.map(|reenters| QueuedMessage {
            id: message_id(2),
            kind: MessageKind::WebhookEvent,
            about: MessageSummary::default(),
            continuation: Some(if reenters { continuation() } else { liveness() }),
        }),
        hint: facts.hint.map(|seen| PendingHint { key: "wake_hint:source:cron:1".to_owned(), seen }),
        current: facts.current.map(|(state, ticked)| work_fact(1, state, ticked)),
        queued: facts
            .queued
            .iter()
            .zip(2..)
            .map(|((state, ticked), number)| work_fact(number, *state, *ticked))
            .collect(),
        agent_waits: AgentWaits {
            operator: own(facts.operator, 1),
            external: own(facts.external, 2),
            timer: own(facts.timer_wait, 3),
            task: own(facts.task, 4),
            system: own(facts.system, 5),
        },
        system_wait_ticked: facts.system_ticked,
        awaited_task: facts.task.then(|| task_id(1)),
        timer: facts.timer.then(|| timer_id(1)),
        asleep: facts.asleep,
        prior_closure: closure(ClosureOutcome::Completed, None, None),
    }
}

/// Returns the number of the rung that decides.
fn rung(facts: &Projection) -> Option<u8> {
    LADDER.iter().find(|rung| (rung.holds)(facts).is_some()).map(|rung| rung.number)
}

#[test]
fn in_every_combination_of_facts_the_first_row_that_holds_decides() {
    let whens = [When::Never, When::NotYet, When::Now];
    let options = [None, Some(false), Some(true)];
    let unticked = SchedulingState::ALL.iter().map(|state| (*state, false));
    let currents: Vec<_> = unticked.chain([(Runnable, true), (WaitingSystem, true)]).collect();
    let currents = optional(&currents);
    let queues: [&[(SchedulingState, bool)]; 9] = [
        &[],
        &[(Blocked, false)],
        &[(Runnable, true)],
        &[(Blocked, false), (Runnable, true), (Runnable, false)],
        &[(WaitingSystem, false), (WaitingTimer, false)],
        &[(WaitingOperator, false), (WaitingTask, false)],
        &[(WaitingTask, false), (WaitingOperator, false)],
        &[(Blocked, false), (WaitingExternal, true)],
        &[(WaitingSystem, true)],
    ];
    let mut seen = [0u32; TABLE.len()];
    let mut check = |facts: Facts| {
        let row = TABLE.iter().position(|(_, holds, ..)| holds(&facts)).expect("the last row");
        seen[row] += 1;
        let (number, _, decision, reason) = TABLE[row];
        let projection = projection(&facts);
        let found = decide(&projection);
        assert!(
            found.kind().name() == decision && found.report.reason == reason,
            "{found:?} instead of {decision} ({reason}) for {facts:?}"
        );
        assert_eq!(rung(&projection), Some(number), "{facts:?}");
    };
    for gate in [Gate::Open, Gate::Stopped, Gate::NotStarted] {
        for live in [false, true] {
            for backoff in whens {
                for (held, lacks) in whens.iter().flat_map(|held| [(*held, false), (*held, true)]) {
                    for message in options {
                        // The first rungs ignore the facts below, so few combinations of these
                        // facts are enough if one of these rungs decides.
                        let few = gate != Gate::Open
                            || live
                            || lacks
                            || (backoff, held) != (When::Never, When::Never);
                        for hint in options {
                            for current in &currents {
                                for queued in queues {
                                    for bits in (0u32..256).step_by(if few { 127 } else { 1 }) {
                                        check(Facts {
                                            gate,
                                            live,
                                            backoff,
                                            held,
                                            lacks,
                                            message,
                                            hint,
                                            current: *current,
                                            queued,
                                            operator: bits & 1 != 0,
                                            external: bits & 2 != 0,
                                            timer_wait: bits & 4 != 0,
                                            task: bits & 8 != 0,
                                            timer: bits & 16 != 0,
                                            asleep: bits & 32 != 0,
                                            system: bits & 64 != 0,
                                            system_ticked: bits & 128 != 0,
                                        });
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
    let never: Vec<_> =
        TABLE.iter().zip(seen).filter(|(_, count)| *count == 0).map(|(row, _)| row.3).collect();
    assert!(never.is_empty(), "rows that never held: {never:?}");
}

#[test]
fn the_ladder_has_twenty_rungs_in_order() {
    let numbers: Vec<u8> = LADDER.iter().map(|rung| rung.number).collect();
    assert_eq!(numbers, (1..=20).collect::<Vec<u8>>());
}

#[test]
fn each_rung_lists_its_possible_decisions_and_reasons() {
    for (number, _, decision, reason) in TABLE {
        let rung = LADDER.iter().find(|rung| rung.number == number).expect("a rung");
        let lists = |listed: &str, word: &str| listed.split(", ").any(|one| one == word);
        assert!(lists(&rung.decision(), decision), "rung {number} does not list {decision}");
        let generic = matches!(number, 6..=8);
        assert!(generic || lists(rung.reason, reason), "rung {number} does not list {reason}");
    }
    for (number, reason) in [(3, "after_stop"), (5, "resume_suspended")] {
        let rung = LADDER.iter().find(|rung| rung.number == number).expect("a rung");
        assert!(rung.reason.contains(reason), "rung {number} does not list {reason}");
    }
}

#[test]
fn the_key_of_a_tick_names_its_subject() {
    let current = |state| Facts { current: Some((state, false)), ..QUIET };
    let queued = &[(Blocked, false), (Runnable, true), (Runnable, false)];
    let rows = [
        (current(Runnable), format!("work_queue:continue_active:{}:3", work_id(1))),
        (Facts { queued, ..QUIET }, format!("work_queue:queued_available:{}:3", work_id(4))),
        (current(WaitingSystem), format!("work_queue:system_wait:{}:3", work_id(1))),
        (Facts { system: true, ..QUIET }, format!("system_wait:{}", wait_id(5))),
        (Facts { hint: Some(false), ..QUIET }, "wake_hint:source:cron:1".to_owned()),
    ];
    for (facts, expected) in rows {
        match decide(&projection(&facts)).action {
            StepAction::EmitTick(tick) => assert_eq!(tick.key(), expected),
            other => panic!("{other:?} for {facts:?}"),
        }
    }
}

/// Returns records with a single fact, and the decision and the reason that follow from it.
fn single() -> Vec<(Records, &'static str, &'static str)> {
    let failed = |not_before| {
        let mut records = records_in(Status::AwakeIdle, ExecutionState::Failed);
        records.state.retry = Some(retry(&prompt(1), not_before));
        records
    };
    let waits = |wait: Wait| Records { waits: vec![wait], ..records() };
    let own = |kind| waits(wait(1, kind));
    let works = |item: WorkItem| Records { works: vec![item], ..records() };
    let other = |kind| Records { waits: vec![wait_on(1, kind, 1)], ..works(work(1)) };
    let focused = |mut records: Records| {
        records.state.focus = Some(work_id(1));
        records
    };
    let current = |kind| focused(other(kind));
    let beside = |mut records: Records| {
        records.inbox.head = Some(prompt(2));
        records
    };
    let claimed = with(|records| records.state.current_run = Some(current_run(&prompt(1))));
    let hinted = with(|records| records.state.pending_wake_hint = Some(hint(1)));
    let needs_input = focused(works(WorkItem { plan_status: PlanStatus::NeedsInput, ..work(1) }));
    let blocked = works(WorkItem { blocked_by: Some("a decision".to_owned()), ..work(1) });
    let ticked = waits(Wait { ticked_at: Some(at(-1)), ..wait(1, WaitKind::System) });
    let bound = waits(Wait { resolved_by: Some(message_id(7)), ..wait(1, WaitKind::Operator) });
    vec![
        (records_in(Status::Stopped, ExecutionState::Runnable), "stop", "stopped"),
        (records_in(Status::Booting, ExecutionState::Initializing), "noop", "not_started"),
        (claimed, "noop", "turn_in_progress"),
        (failed(at(0)), "start_recovery", "retry"),
        (records_in(Status::AwakeIdle, ExecutionState::Failed), "start_recovery", "after_stop"),
        (failed(at(1)), "wait_for_timer", "recovery_backoff"),
        (holding(ExecutionState::Suspended, Some(at(0))), "start_model_turn", "resume_suspended"),
        (holding(ExecutionState::WaitingResources, Some(at(0))), "start_model_turn", "resources_available"),
        (holding(ExecutionState::Suspended, None), "wait_for_resources", "a free slot"),
        (beside(holding(ExecutionState::Suspended, Some(at(0)))), "start_model_turn", "resume_suspended"),
        (beside(holding(ExecutionState::Suspended, None)), "wait_for_resources", "a free slot"),
        (queued(prompt(1)), "start_model_turn", "operator_prompt"),
        (queued(message(1, MessageKind::Control)), "reduce_message_only", "control"),
        (queued(message(1, MessageKind::TaskStatus)), "reduce_message_only", "task_status"),
        (hinted, "emit_system_tick", "wake_hint"),
        (focused(works(work(1))), "emit_system_tick", "continue_active"),
        (works(work(1)), "emit_system_tick", "queued_available"),
        (own(WaitKind::Operator), "wait_for_operator", "agent_operator_wait"),
        (own(WaitKind::External), "wait_for_external_change", "agent_external_wait"),
        (with(|records| records.timers.push(timer(1, 1000))), "wait_for_timer", "active_timers"),
        (own(WaitKind::Timer), "wait_for_timer", "active_timers"),
        (own(WaitKind::Task), "wait_for_task", "agent_task_wait"),
        (current(WaitKind::Operator), "wait_for_operator", "work_item_needs_input"),
        (needs_input, "wait_for_operator", "work_item_needs_input"),
        (current(WaitKind::Task), "wait_for_task", "work_item_task_wait"),
        (current(WaitKind::External), "wait_for_external_change", "work_item_external_wait"),
        (current(WaitKind::Timer), "wait_for_timer", "work_item_timer_wait"),
        (current(WaitKind::System), "emit_system_tick", "system_wait"),
        (records_in(Status::Asleep, ExecutionState::Completed), "stay_idle", "already_asleep"),
        (records(), "sleep", "no_pending_scheduler_facts"),
        (own(WaitKind::System), "emit_system_tick", "system_wait"),
        (ticked, "wait_for_resources", "system_wait"),
        (other(WaitKind::Operator), "wait_for_operator", "work_item_needs_input"),
        (other(WaitKind::Task), "wait_for_task", "work_item_task_wait"),
        (other(WaitKind::External), "wait_for_external_change", "work_item_external_wait"),
        (other(WaitKind::Timer), "wait_for_timer", "work_item_timer_wait"),
        (other(WaitKind::System), "wait_for_resources", "system_wait"),
        (bound, "sleep", "no_pending_scheduler_facts"),
        (blocked, "sleep", "no_pending_scheduler_facts"),
    ]
}

#[test]
fn a_single_record_leads_to_its_own_decision() {
    for (records, decision, reason) in single() {
        let found = report(&records, now());
        assert_eq!((found.decision.name(), found.reason.as_str()), (decision, reason), "{:?}", records.state);
    }
}

#[test]
fn a_report_carries_the_ids_and_the_continuation_of_its_decision() {
    let none = DecisionReport::new(DecisionKind::Noop, "");
    let of_message = |number, continuation| DecisionReport {
        message_id: Some(message_id(number)),
        continuation,
        ..none.clone()
    };
    let lacks = |number| DecisionReport { evidence: shortage().evidence, ..of_message(number, None) };
    let of_item = DecisionReport { work_item_id: Some(work_id(1)), ..none.clone() };
    let starts = Facts { message: Some(true), ..QUIET };
    let current = |state, ticked| Facts { current: Some((state, ticked)), ..QUIET };
    let mut rows = vec![
        (Facts { live: true, ..QUIET }, DecisionReport { run_id: Some(run_id(1)), ..none.clone() }),
        (Facts { held: When::Now, ..QUIET }, of_message(1, Some(continuation()))),
        (starts, of_message(2, Some(continuation()))),
        (Facts { lacks: true, ..starts }, lacks(2)),
        (Facts { lacks: true, held: When::Now, ..starts }, lacks(1)),
        (Facts { message: Some(false), ..QUIET }, of_message(2, Some(liveness()))),
        (Facts { task: true, ..QUIET }, DecisionReport { task_id: Some(task_id(1)), ..none.clone() }),
        (current(Runnable, true), of_item.clone()),
        (current(Completed, false), none.clone()),
    ];
    let states = [Runnable, WaitingSystem, WaitingOperator, WaitingExternal, WaitingTimer, WaitingTask];
    rows.extend(states.map(|state| (current(state, false), of_item.clone())));
    for (facts, expected) in rows {
        let report = decide(&projection(&facts)).report;
        let DecisionReport { decision, reason, .. } = report.clone();
        assert_eq!(report, DecisionReport { decision, reason, ..expected }, "{facts:?}");
    }
}
