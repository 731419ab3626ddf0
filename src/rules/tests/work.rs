//! Tests of the scheduling state of a work item: every combination of its fields and its waits.

use crate::model::work::Readiness;
use crate::rules::work::{WaitsByItem, readiness, scheduling_state, wait_kind, waiting_reason};

use super::*;

/// Row of contract, semantics §4: state and condition. The first row whose condition holds decides.
type Row = (&'static str, fn(&WorkItem, &[WaitKind]) -> bool);

const TABLE: [Row; 8] = [
    ("completed", |item, _| item.state == WorkState::Completed),
    ("waiting_task", |_, kinds| kinds.contains(&WaitKind::Task)),
    ("waiting_operator", |item, kinds| {
        kinds.contains(&WaitKind::Operator) || item.plan_status == PlanStatus::NeedsInput
    }),
    ("waiting_timer", |_, kinds| kinds.contains(&WaitKind::Timer)),
    ("waiting_external", |_, kinds| kinds.contains(&WaitKind::External)),
    ("waiting_system", |_, kinds| kinds.contains(&WaitKind::System)),
    ("blocked", |item, _| item.blocked_by.is_some()),
    ("runnable", |_, _| true),
];

#[test]
fn the_scheduling_state_is_the_first_row_that_holds_in_all_384_combinations() {
    let mut seen = [0u32; TABLE.len()];
    for state in WorkState::ALL {
        for plan_status in PlanStatus::ALL {
            for blocked_by in [None, Some("a decision".to_owned())] {
                for kinds in subsets(WaitKind::ALL) {
                    let item = WorkItem {
                        state: *state,
                        plan_status: *plan_status,
                        blocked_by: blocked_by.clone(),
                        ..work(1)
                    };
                    let waits: Vec<Wait> =
                        kinds.iter().zip(1..).map(|(kind, number)| wait_on(number, *kind, 1)).collect();
                    let row = TABLE.iter().position(|(_, holds)| holds(&item, &kinds)).expect("the last row");
                    seen[row] += 1;
                    let found = scheduling_state(&item, &WaitsByItem::of(&waits));
                    let case = format!("{item:?}, waits {kinds:?}");
                    assert_eq!(found.name(), TABLE[row].0, "{case}");
                    let backwards: Vec<Wait> = waits.into_iter().rev().collect();
                    let again = scheduling_state(&item, &WaitsByItem::of(&backwards));
                    assert_eq!(again, found, "the order of waits does not matter: {case}");
                }
            }
        }
    }
    assert_eq!(seen.iter().sum::<u32>(), 2 * 3 * 2 * 32);
    assert!(seen.iter().all(|count| *count > 0), "a row that never held: {seen:?}");
}

#[test]
fn waits_of_other_items_and_ended_waits_do_not_count() {
    for kind in WaitKind::ALL {
        let ended = WaitStatus::ALL
            .iter()
            .filter(|status| **status != WaitStatus::Active)
            .map(|status| Wait { status: *status, ..wait_on(1, *kind, 1) });
        for other in [wait(1, *kind), wait_on(1, *kind, 2)].into_iter().chain(ended) {
            let found = scheduling_state(&work(1), &WaitsByItem::of(std::slice::from_ref(&other)));
            assert_eq!(found, SchedulingState::Runnable, "{other:?}");
            assert_eq!(WaitsByItem::of(&[other]).on(work_id(1)).len(), 0);
        }
    }
}

#[test]
fn the_waits_on_an_item_are_its_active_ones_in_order() {
    let ended = Wait { status: WaitStatus::Resolved, ..wait_on(3, WaitKind::Task, 1) };
    let waits = [
        wait_on(1, WaitKind::System, 1),
        wait_on(2, WaitKind::Task, 2),
        ended,
        wait(4, WaitKind::Task),
        wait_on(5, WaitKind::Task, 1),
    ];
    let by_item = WaitsByItem::of(&waits);
    let on = |item| by_item.on(item).iter().map(|wait| wait.id).collect::<Vec<_>>();
    assert_eq!(on(work_id(1)), [wait_id(1), wait_id(5)]);
    assert_eq!(on(work_id(2)), [wait_id(2)]);
    assert_eq!(on(work_id(3)), []);
}

#[test]
fn readiness_the_kind_of_wait_and_its_reason_follow_from_the_scheduling_state() {
    use Readiness::{Blocked, WaitingForOperator};
    use WaitingReason::{AwaitingExternalChange, AwaitingOperatorInput, AwaitingTaskResult, AwaitingTimer};
    let rows = [
        (SchedulingState::Completed, Readiness::Completed, None, None),
        (SchedulingState::WaitingTask, Blocked, Some(WaitKind::Task), Some(AwaitingTaskResult)),
        (
            SchedulingState::WaitingOperator,
            WaitingForOperator,
            Some(WaitKind::Operator),
            Some(AwaitingOperatorInput),
        ),
        (SchedulingState::WaitingTimer, Blocked, Some(WaitKind::Timer), Some(AwaitingTimer)),
        (SchedulingState::WaitingExternal, Blocked, Some(WaitKind::External), Some(AwaitingExternalChange)),
        (SchedulingState::WaitingSystem, Blocked, Some(WaitKind::System), None),
        (SchedulingState::Blocked, Blocked, None, None),
        (SchedulingState::Runnable, Readiness::Runnable, None, None),
    ];
    assert_eq!(rows.map(|(state, ..)| state).as_slice(), SchedulingState::ALL);
    for (state, reduced, kind, reason) in rows {
        let found = (readiness(state), wait_kind(state), waiting_reason(state));
        assert_eq!(found, (reduced, kind, reason), "{state}");
    }
}
