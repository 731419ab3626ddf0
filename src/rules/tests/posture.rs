//! Tests of the posture: every combination of facts, and the ids and the reason of each posture.

use crate::rules::posture::{PostureReport, posture};

use super::*;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fact {
    Stopped,
    Run,
    Message,
    CurrentRunnable,
    QueuedRunnable,
    TaskWait,
    ExternalWait,
    OperatorWait,
    NeedsInput,
    BlockedItem,
    TimerWait,
    SystemWait,
    MissingResource,
}

use Fact::{
    BlockedItem, CurrentRunnable, ExternalWait, Message, MissingResource, NeedsInput, OperatorWait,
    QueuedRunnable, Run, Stopped, SystemWait, TaskWait, TimerWait,
};

/// Rows of contract, semantics §3: facts each of which suffices for the posture, and the posture.
const TABLE: [(&[Fact], &str); 9] = [
    (&[Stopped], "archived"),
    (&[Run], "active_turn"),
    (&[Message], "has_queued_input"),
    (&[CurrentRunnable, QueuedRunnable], "has_runnable_work"),
    (&[TaskWait], "waiting_for_task"),
    (&[ExternalWait], "waiting_for_external"),
    (&[OperatorWait, NeedsInput], "waiting_for_operator"),
    (&[BlockedItem, TimerWait, SystemWait, MissingResource], "blocked"),
    (&[], "idle"),
];

fn having(facts: &[Fact]) -> Records {
    let mut records = records();
    for fact in facts {
        match fact {
            Stopped => records.state.status = Status::Stopped,
            Run => records.state.current_run = Some(current_run(&prompt(1))),
            Message => records.inbox.head = Some(prompt(2)),
            QueuedRunnable => records.works.push(work(3)),
            CurrentRunnable => {
                records.state.focus = Some(work_id(4));
                records.works.push(work(4));
            }
            NeedsInput => {
                records.works.push(WorkItem { plan_status: PlanStatus::NeedsInput, ..work(5) });
            }
            BlockedItem => {
                records.works.push(WorkItem { blocked_by: Some("a decision".to_owned()), ..work(6) });
            }
            TaskWait => records.waits.push(wait(7, WaitKind::Task)),
            ExternalWait => records.waits.push(wait(8, WaitKind::External)),
            OperatorWait => records.waits.push(wait(9, WaitKind::Operator)),
            TimerWait => records.waits.push(wait(10, WaitKind::Timer)),
            SystemWait => records.waits.push(wait(11, WaitKind::System)),
            MissingResource => {
                records.state.execution.state = ExecutionState::WaitingResources;
                records.state.held = Some(held(&prompt(12), None));
            }
        }
    }
    records
}

#[test]
fn the_posture_is_the_first_row_that_holds_in_all_8192_combinations() {
    let mut seen = [0u32; TABLE.len()];
    let all: Vec<Fact> = TABLE.iter().flat_map(|(facts, _)| *facts).copied().collect();
    assert_eq!(all.len(), 13);
    for facts in subsets(&all) {
        let holds = |enough: &[Fact]| enough.is_empty() || enough.iter().any(|fact| facts.contains(fact));
        let row = TABLE.iter().position(|(enough, _)| holds(enough)).expect("the last row");
        seen[row] += 1;
        assert_eq!(posture(&having(&facts)).posture.name(), TABLE[row].1, "{facts:?}");
    }
    assert_eq!(seen.iter().sum::<u32>(), 8192);
    assert!(seen.iter().all(|count| *count > 0), "a row that never held: {seen:?}");
}

#[test]
fn the_postures_are_listed_in_order_of_precedence() {
    let listed: Vec<&str> = Posture::ALL.iter().map(|posture| posture.name()).collect();
    assert_eq!(listed, TABLE.map(|(_, posture)| posture));
}

fn report(posture: Posture, reason: &str) -> PostureReport {
    PostureReport {
        posture,
        reason: reason.to_owned(),
        run_id: None,
        message_id: None,
        work_item_id: None,
        task_id: None,
        wait_id: None,
    }
}

#[test]
fn each_posture_names_the_record_that_decided() {
    let item = |number, report| PostureReport { work_item_id: Some(work_id(number)), ..report };
    let said = |number, report| PostureReport { message_id: Some(message_id(number)), ..report };
    let waits = |number, report| PostureReport { wait_id: Some(wait_id(number)), ..report };
    let run = |reason| PostureReport { run_id: Some(run_id(1)), ..report(Posture::ActiveTurn, reason) };
    let interrupted = run("interrupted: its tick is gone; attempt 1 is next");
    let task = PostureReport { task_id: Some(task_id(1)), ..report(Posture::WaitingForTask, "reason 7") };
    let runnable = |number| {
        item(number, report(Posture::HasRunnableWork, &format!("can continue with: objective {number}")))
    };
    let input = report(Posture::HasQueuedInput, "next is a message from you");
    let needs_input = report(Posture::WaitingForOperator, "needs input: objective 5");
    let rows = [
        (vec![Stopped], report(Posture::Archived, "the agent is stopped")),
        (vec![Run], said(1, interrupted)),
        (vec![Message], said(2, input)),
        (vec![QueuedRunnable], runnable(3)),
        (vec![QueuedRunnable, CurrentRunnable], runnable(4)),
        (vec![TaskWait], waits(7, task)),
        (vec![ExternalWait], waits(8, report(Posture::WaitingForExternal, "reason 8"))),
        (vec![OperatorWait], waits(9, report(Posture::WaitingForOperator, "reason 9"))),
        (vec![NeedsInput], item(5, needs_input)),
        (vec![BlockedItem], item(6, report(Posture::Blocked, "blocked by: a decision"))),
        (vec![TimerWait], waits(10, report(Posture::Blocked, "reason 10"))),
        (vec![SystemWait], waits(11, report(Posture::Blocked, "reason 11"))),
        (vec![MissingResource], said(12, report(Posture::Blocked, "missing: a free slot"))),
        (vec![], report(Posture::Idle, "nothing to do")),
    ];
    for (facts, expected) in rows {
        assert_eq!(posture(&having(&facts)), expected, "{facts:?}");
    }
    let live = Records { lease: LeaseState::Held, ..having(&[Run]) };
    assert_eq!(posture(&live), said(1, run("a turn runs, attempt 1")));
}

#[test]
fn a_wait_on_an_open_item_counts_and_names_the_item() {
    let rows = [
        (WaitKind::Task, Posture::WaitingForTask, Some(task_id(1))),
        (WaitKind::External, Posture::WaitingForExternal, None),
        (WaitKind::Operator, Posture::WaitingForOperator, None),
        (WaitKind::Timer, Posture::Blocked, None),
        (WaitKind::System, Posture::Blocked, None),
    ];
    for (kind, expected, task) in rows {
        let records = Records { works: vec![work(1)], waits: vec![wait_on(2, kind, 1)], ..records() };
        let expected = PostureReport {
            wait_id: Some(wait_id(2)),
            work_item_id: Some(work_id(1)),
            task_id: task,
            ..report(expected, "reason 2")
        };
        assert_eq!(posture(&records), expected, "{kind}");
    }
}

#[test]
fn ended_waits_and_waits_on_items_that_are_not_open_do_not_count() {
    let check = |wait: Wait, works: Vec<WorkItem>| {
        let records = Records { waits: vec![wait.clone()], works, ..records() };
        assert_eq!(posture(&records).posture, Posture::Idle, "{wait:?} {:?}", records.works);
    };
    for kind in WaitKind::ALL {
        for status in [WaitStatus::Resolved, WaitStatus::Cancelled, WaitStatus::Expired] {
            check(Wait { status, ..wait(1, *kind) }, Vec::new());
        }
        check(wait_on(1, *kind, 1), vec![WorkItem { state: WorkState::Completed, ..work(1) }]);
        check(wait_on(1, *kind, 1), Vec::new());
    }
}

#[test]
fn a_never_started_agent_is_idle_with_the_reason_not_started_yet() {
    let records = with(|records| records.state.status = Status::Booting);
    assert_eq!(posture(&records), report(Posture::Idle, "not started yet"));
}

#[test]
fn a_completed_item_neither_runs_nor_needs_input_nor_blocks() {
    let mut records = records();
    records.state.focus = Some(work_id(1));
    records.works.push(WorkItem {
        state: WorkState::Completed,
        plan_status: PlanStatus::NeedsInput,
        blocked_by: Some("nothing any more".to_owned()),
        ..work(1)
    });
    assert_eq!(posture(&records), report(Posture::Idle, "nothing to do"));
}

#[test]
fn the_posture_names_the_oldest_active_wait_of_a_kind() {
    let mut records = records();
    records.waits.push(Wait { status: WaitStatus::Resolved, ..wait(1, WaitKind::External) });
    records.waits.push(wait(2, WaitKind::External));
    records.waits.push(wait(3, WaitKind::External));
    assert_eq!(posture(&records).wait_id, Some(wait_id(2)));
}

#[test]
fn neither_sleep_nor_timers_nor_running_tasks_change_the_posture() {
    let mut records = having(&[QueuedRunnable]);
    records.state.status = Status::Asleep;
    assert_eq!(posture(&records).posture, Posture::HasRunnableWork);
    records.inbox.head = Some(message(1, MessageKind::WebhookEvent));
    assert_eq!(posture(&records).posture, Posture::HasQueuedInput);
    let (timers, tasks) = (vec![timer(1, 1000)], vec![task(1, TaskStatus::Running)]);
    assert_eq!(posture(&Records { timers, tasks, ..super::records() }).posture, Posture::Idle);
}
