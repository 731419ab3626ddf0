//! Warnings: each appears where its condition holds, and is absent right beside it.

use crate::model::agent::Status;
use crate::model::execution::ExecutionState;
use crate::model::message::Message;
use crate::model::policy::Limit;
use crate::model::records::Records;
use crate::model::wait::{Wait, WaitKind, WaitStatus};
use crate::model::work::{WorkItem, WorkState};
use crate::rules::advisory::advisories;

use super::{at, current_run, now, prompt, records, records_in, secs, wait, wait_on, work};

fn kinds(records: &Records) -> Vec<&'static str> {
    advisories(records, now()).iter().map(|advisory| advisory.kind).collect()
}

fn resting() -> [Records; 2] {
    [
        records_in(Status::Asleep, ExecutionState::Completed),
        records_in(Status::AwaitingTask, ExecutionState::Waiting),
    ]
}

#[test]
fn nothing_to_warn_of_is_no_warning() {
    assert_eq!(kinds(&records()), [""; 0]);
}

#[test]
fn runnable_work_of_an_agent_that_rests_is_worth_a_warning() {
    for mut records in resting() {
        records.works = vec![
            work(1),
            WorkItem { state: WorkState::Completed, ..work(2) },
            WorkItem { blocked_by: Some("x".to_owned()), recheck_at: Some(at(1)), ..work(3) },
        ];
        assert_eq!(kinds(&records), ["idle_posture_has_runnable_work"]);
        records.state.status = Status::AwakeIdle;
        assert_eq!(kinds(&records), [""; 0]);
    }
}

#[test]
fn queued_input_of_an_agent_that_rests_is_worth_a_warning() {
    for mut records in resting() {
        records.inbox.head = Some(prompt(1));
        assert_eq!(kinds(&records), ["idle_posture_has_queued_input"]);
        records.state.status = Status::AwakeIdle;
        assert_eq!(kinds(&records), [""; 0]);
    }
}

#[test]
fn an_external_wait_that_nothing_would_end_is_worth_a_warning() {
    let named = Wait { resource: Some("mail".to_owned()), ..wait(1, WaitKind::External) };
    let weak = "external_wait_has_weak_recoverability";
    let none = "external_wait_has_no_fallback";
    let no_fallback = Some("nobody answers for them".to_owned());
    let rows: [(Wait, &[&str]); 8] = [
        (named.clone(), &[weak]),
        (Wait { no_fallback: no_fallback.clone(), ..named.clone() }, &[none]),
        (Wait { recheck_at: Some(at(1)), ..named.clone() }, &[]),
        (Wait { expires_at: Some(at(1)), ..named.clone() }, &[]),
        (Wait { source: Some("github".to_owned()), ..named.clone() }, &[]),
        (Wait { recheck_at: Some(at(1)), no_fallback, ..named.clone() }, &[]),
        (Wait { status: WaitStatus::Resolved, ..named }, &[]),
        (wait(1, WaitKind::External), &[weak, "wait_without_subject"]),
    ];
    for (wait, expected) in rows {
        let mut records = records();
        records.waits.push(wait.clone());
        assert_eq!(kinds(&records), expected, "{wait:?}");
    }
}

#[test]
fn waits_of_other_kinds_need_no_fallback() {
    for kind in [WaitKind::Operator, WaitKind::Task, WaitKind::Timer, WaitKind::System] {
        let mut records = records();
        records.waits.push(wait(1, kind));
        assert_eq!(kinds(&records), [""; 0], "{kind}");
    }
}

#[test]
fn a_blocked_item_that_nothing_brings_back_is_worth_a_warning() {
    let blocked = WorkItem { blocked_by: Some("a decision".to_owned()), ..work(1) };
    let stuck = "blocked_work_item_without_recheck_or_wait";
    let rows: [(WorkItem, Option<Wait>, &[&str]); 6] = [
        (blocked.clone(), None, &[stuck]),
        (blocked.clone(), Some(wait(1, WaitKind::Operator)), &[stuck]),
        (blocked.clone(), Some(wait_on(1, WaitKind::Operator, 2)), &[stuck]),
        (blocked.clone(), Some(wait_on(1, WaitKind::Operator, 1)), &[]),
        (WorkItem { recheck_at: Some(at(1)), ..blocked.clone() }, None, &[]),
        (WorkItem { state: WorkState::Completed, ..blocked }, None, &[]),
    ];
    for (item, wait, expected) in rows {
        let mut records = records();
        records.works.push(item.clone());
        records.waits.extend(wait);
        assert_eq!(kinds(&records), expected, "{item:?}");
    }
}

#[test]
fn a_message_past_its_third_attempt_is_worth_a_warning() {
    for (attempt, expected) in [(1, false), (3, false), (4, true), (5, true)] {
        let mut records = records();
        records.inbox.head = Some(Message { attempt, ..prompt(1) });
        assert_eq!(kinds(&records) == ["message_retried_often"], expected, "attempt {attempt}");
    }
}

#[test]
fn input_older_than_the_expected_interval_means_that_nobody_ticks() {
    // The message is one second old.
    let rows: [(Option<u64>, bool); 4] =
        [(None, false), (Some(2000), false), (Some(1000), false), (Some(999), true)];
    for (expected, warned) in rows {
        let mut records = records();
        records.policy.expect.tick_every = Limit(expected.map(crate::model::time::Span::from_millis));
        records.inbox.head = Some(prompt(1));
        assert_eq!(kinds(&records) == ["nobody_ticks"], warned, "every {expected:?} ms");
        records.state.status = Status::Stopped;
        assert_eq!(kinds(&records), [""; 0], "stopped, every {expected:?} ms");
        records.state.status = Status::AwakeRunning;
        records.state.current_run = Some(current_run(&prompt(2)));
        assert_eq!(kinds(&records), [""; 0], "busy, every {expected:?} ms");
    }
}

#[test]
fn warnings_come_in_a_fixed_order() {
    let mut records = records_in(Status::Asleep, ExecutionState::Completed);
    records.policy.expect.tick_every = Limit(Some(secs(0)));
    records.works = vec![work(1), WorkItem { blocked_by: Some("x".to_owned()), ..work(2) }];
    records.waits = vec![
        wait(1, WaitKind::External),
        Wait {
            resource: Some("mail".to_owned()),
            no_fallback: Some("none".to_owned()),
            ..wait(2, WaitKind::External)
        },
    ];
    records.inbox.head = Some(Message { attempt: 4, ..prompt(1) });
    assert_eq!(
        kinds(&records),
        [
            "idle_posture_has_runnable_work",
            "blocked_work_item_without_recheck_or_wait",
            "idle_posture_has_queued_input",
            "external_wait_has_weak_recoverability",
            "wait_without_subject",
            "external_wait_has_no_fallback",
            "message_retried_often",
            "nobody_ticks",
        ]
    );
}
