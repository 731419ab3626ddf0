//! Tests of steps that find nothing to do: the resting status, and the resting decision, which is
//! recorded once.

use crate::model::attention::{Attention, AttentionSubject};
use crate::rules::stall::questions;
use crate::rules::transition::rest::decided;

use super::*;

fn decision(action: StepAction, kind: DecisionKind, reason: &str) -> Decision {
    Decision { action, report: DecisionReport::new(kind, reason) }
}

fn resting(kind: DecisionKind, reason: &str) -> Decision {
    decision(StepAction::Rest, kind, reason)
}

fn for_task() -> Decision {
    let mut decision = resting(DecisionKind::WaitForTask, "agent_task_wait");
    decision.report.task_id = Some(task_id(1));
    decision
}

fn sleep() -> Decision {
    resting(DecisionKind::Sleep, "no_pending_scheduler_facts")
}

fn stay_idle() -> Decision {
    resting(DecisionKind::StayIdle, "already_asleep")
}

fn in_progress() -> DecisionReport {
    let report = DecisionReport::new(DecisionKind::Noop, Decision::TURN_IN_PROGRESS);
    DecisionReport { run_id: Some(run_id(1)), ..report }
}

fn status_after(decision: &Decision, status: Status, state: ExecutionState) -> Status {
    applied(records_in(status, state), |draft| rest(draft, decision)).state.status
}

#[test]
fn an_agent_that_rests_is_asleep_or_awaits_its_task() {
    let others = [
        resting(DecisionKind::WaitForOperator, "agent_operator_wait"),
        resting(DecisionKind::WaitForExternalChange, "agent_external_wait"),
        resting(DecisionKind::WaitForTimer, "active_timers"),
        resting(DecisionKind::WaitForOperator, "work_item_needs_input"),
        resting(DecisionKind::WaitForExternalChange, "work_item_external_wait"),
        resting(DecisionKind::WaitForTimer, "work_item_timer_wait"),
        sleep(),
    ];
    for decision in others {
        for state in [ExecutionState::Waiting, ExecutionState::Completed, ExecutionState::Runnable] {
            let found = status_after(&decision, Status::AwakeIdle, state);
            assert_eq!(found, Status::Asleep, "{decision:?} in {state}");
        }
    }
    for decision in [for_task(), resting(DecisionKind::WaitForTask, "work_item_task_wait")] {
        let found = status_after(&decision, Status::AwakeIdle, ExecutionState::Waiting);
        assert_eq!(found, Status::AwaitingTask, "{decision:?}");
        // `awaiting_task` is allowed in `waiting` only.
        for state in [ExecutionState::Completed, ExecutionState::Runnable] {
            let found = status_after(&decision, Status::AwakeIdle, state);
            assert_eq!(found, Status::Asleep, "{decision:?} in {state}");
        }
    }
}

/// Returns an agent that has waits of these kinds. Its task 1 has this status.
fn waiting(status: Status, kinds: &[WaitKind], task_status: TaskStatus) -> Records {
    let mut records = records_in(status, ExecutionState::Waiting);
    records.waits = kinds.iter().zip(1..).map(|(kind, number)| wait(number, *kind)).collect();
    records.tasks = vec![task(1, task_status)];
    records
}

/// Tries every combination of the waits, the status of the task and the status before, against
/// contract, execution §3.
#[test]
fn an_agent_awaits_its_task_exactly_while_it_waits_for_a_task_that_has_not_ended() {
    use WaitKind::{External, Operator, System, Task, Timer};
    for before in [Status::AwakeIdle, Status::Asleep, Status::AwaitingTask] {
        for kinds in subsets(&[Operator, External, Timer, Task, System]) {
            for task_status in [TaskStatus::Running, TaskStatus::Completed] {
                for with_timer in [false, true] {
                    let mut records = waiting(before, &kinds, task_status);
                    records.timers.extend(with_timer.then(|| timer(1, 1000)));
                    let decision = decide(&project(&records, now()));
                    if decision.action != StepAction::Rest {
                        continue;
                    }
                    let is_other = |kind: &WaitKind| matches!(kind, Operator | External | Timer);
                    let is_for_task = kinds.contains(&Task) && !kinds.iter().any(is_other);
                    let is_decided = is_for_task && !with_timer;
                    let awaits = is_for_task && (is_decided || task_status == TaskStatus::Running);
                    let mut draft = draft(records);
                    rest(&mut draft, &decision);
                    let expected = if awaits { Status::AwaitingTask } else { Status::Asleep };
                    let found = finish(draft).state.status;
                    assert_eq!(found, expected, "{before} {kinds:?} {task_status} {with_timer} {decision:?}");
                }
            }
        }
    }
}

#[test]
fn decisions_that_do_nothing_keep_the_status() {
    let stay = |kind, reason| decision(StepAction::Stay, kind, reason);
    let duplicate = decision(StepAction::DropHint, DecisionKind::Noop, "duplicate_wake_hint");
    let rows = [
        (stay(DecisionKind::Stop, "stopped"), Status::Stopped, ExecutionState::Completed),
        (stay(DecisionKind::Noop, "not_started"), Status::Booting, ExecutionState::Initializing),
        (stay(DecisionKind::WaitForTimer, "recovery_backoff"), Status::AwakeIdle, ExecutionState::Failed),
        (stay(DecisionKind::WaitForResources, "a slot"), Status::AwakeIdle, ExecutionState::WaitingResources),
        (duplicate, Status::AwakeIdle, ExecutionState::Completed),
        (stay(DecisionKind::Noop, "duplicate_continue_active"), Status::Asleep, ExecutionState::Completed),
        (stay_idle(), Status::Asleep, ExecutionState::Completed),
    ];
    for (decision, status, state) in rows {
        assert_eq!(status_after(&decision, status, state), status, "{decision:?}");
    }
}

#[test]
fn a_rest_is_recorded_as_a_decision_with_its_reason() {
    let transaction = applied(records(), |draft| rest(draft, &for_task()));
    assert_eq!(kinds(&transaction.events), [EventKind::SchedulerDecision]);
    let data = &transaction.events[0].data;
    assert_eq!((word(data, "decision"), word(data, "reason")), ("wait_for_task", "agent_task_wait"));
    assert_eq!(word(data, "task_id"), task_id(1).to_string());
}

#[test]
fn a_step_that_leaves_the_agent_to_another_process_records_nothing() {
    let mut draft = draft(records());
    rest(&mut draft, &Decision { action: StepAction::Leave, report: in_progress() });
    assert!(draft.is_empty());
}

/// Returns agents that rest, each for another reason.
fn restful() -> Vec<Records> {
    let mut all = vec![
        records(),
        records_in(Status::Stopped, ExecutionState::Runnable),
        records_in(Status::Booting, ExecutionState::Initializing),
    ];
    for kind in WaitKind::ALL {
        for state in [ExecutionState::Completed, ExecutionState::Waiting] {
            all.push(Records { waits: vec![wait(1, *kind)], ..records_in(Status::AwakeIdle, state) });
        }
    }
    all.push(Records {
        waits: vec![wait(1, WaitKind::Task)],
        timers: vec![timer(1, 1000)],
        ..records_in(Status::AwaitingTask, ExecutionState::Waiting)
    });
    let mut backoff = records_in(Status::AwakeIdle, ExecutionState::Failed);
    backoff.state.retry = Some(retry(&prompt(1), at(1000)));
    all.push(backoff);
    all.push(holding(ExecutionState::WaitingResources, Some(at(1000))));
    all
}

#[test]
fn the_stored_resting_decision_is_that_of_the_next_step_and_is_recorded_once() {
    for mut records in restful() {
        let mut first = draft(records.clone());
        rest(&mut first, &decide(&project(&records, now())));
        assert!(!first.is_empty());
        records.state = finish(first).state;
        let again = decide(&project(&records, now()));
        assert_eq!(records.state.resting.as_ref(), Some(&again.report));
        let mut second = draft(records.clone());
        rest(&mut second, &again);
        assert!(second.is_empty(), "{again:?} again for {:?}", records.state.status);
    }
}

#[test]
fn a_rest_for_another_reason_is_recorded_again() {
    let mut records = records();
    records.waits.push(wait(1, WaitKind::Operator));
    let rested =
        |records: &Records| applied(records.clone(), |draft| rest(draft, &decide(&project(records, now()))));
    records.state = rested(&records).state;
    records.waits = vec![wait(2, WaitKind::External)];
    let transaction = rested(&records);
    let reasons: Vec<&str> =
        of_kind(&transaction.events, EventKind::SchedulerDecision).map(|data| word(data, "reason")).collect();
    assert_eq!(reasons, ["agent_external_wait"]);
}

#[test]
fn a_rest_after_another_change_is_recorded_again() {
    let mut records = records();
    records.state = applied(records.clone(), |draft| rest(draft, &sleep())).state;
    let mut second = draft(records);
    second.event(EventKind::Advisory, None, json!({}));
    rest(&mut second, &stay_idle());
    let transaction = finish(second);
    assert_eq!(kinds(&transaction.events), [EventKind::Advisory, EventKind::SchedulerDecision]);
    assert_eq!(transaction.state.resting, Some(stay_idle().report));
}

#[test]
fn a_decision_that_changes_the_agent_is_recorded_with_its_report() {
    let mut draft = draft(records());
    let report = in_progress();
    decided(&mut draft, &report);
    let transaction = finish(draft);
    assert_eq!(transaction.events[0].kind, EventKind::SchedulerDecision);
    assert_eq!(transaction.events[0].run_id, Some(run_id(1)));
    assert_eq!(transaction.events[0].data, json!(report));
}

#[test]
fn an_advisory_has_one_event_when_it_begins() {
    let told = |records: &mut Records| -> Vec<String> {
        let mut draft = draft(records.clone());
        rest(&mut draft, &decide(&project(records, now())));
        if draft.is_empty() {
            return Vec::new();
        }
        let transaction = finish(draft);
        records.state = transaction.state;
        let events = of_kind(&transaction.events, EventKind::Advisory);
        events.map(|data| format!("{} {}", word(data, "kind"), word(data, "subject"))).collect()
    };
    let mut records = records();
    records.waits = vec![Wait { resource: Some("mail".to_owned()), ..wait(1, WaitKind::External) }];
    let weak = |number| vec![format!("external_wait_has_weak_recoverability {}", wait_id(number))];
    assert_eq!(told(&mut records), weak(1));
    assert_eq!(told(&mut records), [""; 0]);
    // A second advisory (warning about a wait) has an event that does not repeat the first.
    records.waits.push(Wait { resource: Some("mail".to_owned()), ..wait(2, WaitKind::External) });
    let blocked_by = Some("a decision".to_owned());
    records.works.push(WorkItem { blocked_by, recheck_at: Some(at(1)), ..work(1) });
    assert_eq!(told(&mut records), weak(2));
    // An advisory ends when its wait is removed. If the wait returns, the advisory has an event
    // again.
    let gone = records.waits.remove(0);
    records.state.status = Status::AwakeIdle;
    assert_eq!(told(&mut records), [""; 0]);
    records.waits.insert(0, gone);
    assert_eq!(told(&mut records), weak(1));
}

#[test]
fn one_attention_stands_for_all_questions_above_the_limit() {
    let rested = |records: &mut Records| {
        let mut draft = draft(records.clone());
        rest(&mut draft, &resting(DecisionKind::WaitForOperator, "agent_operator_wait"));
        let raised = draft.raised().len();
        *records = draft.finish_and_keep().expect("a valid draft").1;
        let told = &records.state.asked;
        let is_further = |told: &&Attention| told.about == AttentionSubject::default();
        (raised, told.len(), told.iter().filter(is_further).count())
    };
    let waits = (1..=510).map(|number| wait(number, WaitKind::Operator));
    let mut records = with(|records| records.waits.extend(waits));
    assert_eq!(rested(&mut records), (501, 501, 1));
    assert_eq!(rested(&mut records), (0, 501, 1), "nothing is asked twice");
    records.waits.drain(..5);
    assert_eq!(rested(&mut records), (5, 501, 1), "the next questions have room");
    records.waits.drain(..5);
    assert_eq!(rested(&mut records), (5, 500, 0), "all have room");
}

#[test]
fn long_questions_that_begin_alike_are_different_questions() {
    let asked = |end: &str| {
        let reason = format!("{}{end}", "which of these? ".repeat(40));
        let records = with(|records| records.waits.push(Wait { reason, ..wait(1, WaitKind::Operator) }));
        questions(&records, now()).remove(0).reason
    };
    assert_ne!(asked("the red one"), asked("the old one"));
    assert_eq!(asked("the red one"), asked("the red one"));
}
