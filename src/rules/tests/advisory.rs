//! Warnings: each appears where its condition holds, and is absent in the nearest case where it
//! does not.

use crate::model::state::KeptOut;

use super::*;

fn kinds(records: &Records) -> Vec<&'static str> {
    advisories(records, now()).iter().map(|advisory| advisory.kind.name()).collect()
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
fn runnable_work_whose_tick_is_spent_is_worth_a_warning_where_nothing_else_comes() {
    let spent = || WorkItem { ticked: Some(Ticked { revision: 1, wakes: 0 }), ..work(1) };
    let with = |change: &dyn Fn(&mut Records)| {
        let mut records = Records { works: vec![spent()], ..records() };
        change(&mut records);
        kinds(&records)
    };
    assert_eq!(with(&|_| {}), ["idle_posture_has_runnable_work"], "whatever the status");
    assert_eq!(with(&|records| records.works[0].revision = 2), [""; 0], "it gets another tick");
    assert_eq!(with(&|records| records.state.counters.wakes = 1), [""; 0], "it gets another tick");
    assert_eq!(with(&|records| records.inbox.head = Some(prompt(1))), [""; 0]);
    assert_eq!(with(&|records| records.inbox.hints.push(hint(1))), [""; 0]);
    assert_eq!(with(&|records| records.state.pending_wake_hint = Some(hint(1))), [""; 0]);
    assert_eq!(with(&|records| records.timers.push(timer(1, 1000))), [""; 0], "something is due");
    assert_eq!(with(&|records| records.state.current_run = Some(current_run(&prompt(1)))), [""; 0]);
    assert_eq!(with(&|records| records.state.status = Status::Stopped), [""; 0], "stopped on purpose");
    let waits = with(&|records| records.waits.push(wait(1, WaitKind::Operator)));
    assert_eq!(waits, ["idle_posture_has_runnable_work"], "a wait is no reason to leave it lying");
}

#[test]
fn an_answer_that_no_turn_has_completed_for_is_worth_a_warning() {
    let lost = |kind| Wait { lost_answer: Some(message_id(7)), ..wait(1, kind) };
    for kind in [WaitKind::Operator, WaitKind::Task, WaitKind::Timer] {
        let mut records = Records { waits: vec![lost(kind)], ..records() };
        assert_eq!(kinds(&records), ["answer_lost"], "{kind}");
        records.waits[0].resolved_by = Some(message_id(8));
        assert_eq!(kinds(&records), [""; 0], "another answer is under way: {kind}");
    }
}

#[test]
fn input_that_was_set_aside_is_worth_a_warning() {
    let mut records = records();
    let kept = |number| KeptOut {
        message_id: message_id(number),
        wait_id: Some(wait_id(1)),
        work_item_id: None,
        ticked: false,
    };
    records.state.set_aside = SetAside { count: 3, newest: vec![kept(1), kept(2)] };
    let found = advisories(&records, now());
    assert_eq!(kinds(&records), ["input_set_aside"]);
    assert_eq!(found[0].subject, message_id(2).to_string());
    for named in [message_id(1).to_string(), message_id(2).to_string(), "3 said".to_owned()] {
        assert!(found[0].message.contains(&named), "{}", found[0].message);
    }
}

#[test]
fn a_wait_without_a_subject_is_worth_a_warning() {
    let rows: [(WaitKind, bool, bool); 6] = [
        (WaitKind::Operator, false, false),
        (WaitKind::Task, false, false),
        (WaitKind::Timer, false, false),
        (WaitKind::External, false, true),
        (WaitKind::System, false, true),
        // A system wait with a deadline has an end of its own.
        (WaitKind::System, true, false),
    ];
    for (kind, has_deadline, expected) in rows {
        let expires_at = has_deadline.then(|| at(1));
        let waiting = Wait { expires_at, ..wait(1, kind) };
        let records = Records { waits: vec![waiting.clone()], ..records() };
        assert_eq!(kinds(&records).contains(&"wait_without_subject"), expected, "{kind}");
        for named in [
            Wait { resource: Some(task_id(1).to_string()), ..waiting.clone() },
            Wait { source: Some("webhook".to_owned()), ..waiting.clone() },
            Wait { trigger_id: Some(TriggerId(uuid::Uuid::from_u128(1))), ..waiting },
        ] {
            let records = Records { waits: vec![named], ..records.clone() };
            assert!(!kinds(&records).contains(&"wait_without_subject"), "{kind}");
        }
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
        (wait(1, WaitKind::External), &["wait_without_subject", weak]),
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
        records.waits.push(Wait { expires_at: Some(at(1)), ..wait(1, kind) });
        assert_eq!(kinds(&records), [""; 0], "{kind}");
    }
}

#[test]
fn a_blocked_item_that_nothing_brings_back_is_worth_a_warning() {
    let blocked = WorkItem { blocked_by: Some("a decision".to_owned()), ..work(1) };
    let unmovable = "blocked_work_item_without_recheck_or_wait";
    let rows: [(WorkItem, Option<Wait>, &[&str]); 8] = [
        (blocked.clone(), None, &[unmovable]),
        (blocked.clone(), Some(wait(1, WaitKind::Operator)), &[unmovable]),
        (blocked.clone(), Some(wait_on(1, WaitKind::Operator, 2)), &[unmovable]),
        (blocked.clone(), Some(wait_on(1, WaitKind::Operator, 1)), &[]),
        (WorkItem { recheck_at: Some(at(1)), ..blocked.clone() }, None, &[]),
        (
            WorkItem { recheck_at: Some(at(-1)), recheck_consumed_at: Some(at(0)), ..blocked.clone() },
            None,
            &[unmovable],
        ),
        (
            blocked.clone(),
            Some(Wait { resolved_by: Some(message_id(7)), ..wait_on(1, WaitKind::Operator, 1) }),
            &[unmovable],
        ),
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
fn something_that_has_been_due_for_too_long_means_that_nobody_ticks() {
    // The message is one second old.
    let rows: [(Option<u64>, bool); 4] =
        [(None, false), (Some(2000), false), (Some(1000), false), (Some(999), true)];
    for (after, warned) in rows {
        let late = |records: &Records| kinds(records).contains(&"nobody_ticks");
        let mut records = records();
        let after = Limit(after.map(Span::from_millis));
        records.policy.scheduler.overdue_after = Some(after);
        records.state.execution.since = at(-5000);
        let idle = records.clone();
        records.inbox.head = Some(prompt(1));
        assert_eq!(late(&records), warned, "a message, {after:?}");
        let due = Records { timers: vec![timer(1, -1000)], ..idle.clone() };
        assert_eq!(late(&due), warned, "a timer, {after:?}");
        let mut work_added = idle.clone();
        work_added.works = vec![WorkItem { updated_at: at(-1000), ..work(1) }];
        assert_eq!(late(&work_added), warned, "work, {after:?}");
        let mut dropped = idle.clone();
        (dropped.inbox.submissions, dropped.inbox.dropped_at) = (1, Some(at(-1000)));
        assert_eq!(late(&dropped), warned, "a dropped file, {after:?}");
        assert!(!late(&idle), "nothing, {after:?}");
        // The message is as old, but a step was made since, or none was possible.
        let mut stepped = records.clone();
        stepped.state.stepped_at = Some(at(0));
        assert!(!late(&stepped), "stepped, {after:?}");
        let mut stopped = records.clone();
        stopped.state.status = Status::Stopped;
        assert!(!late(&stopped), "stopped, {after:?}");
        let mut busy = records.clone();
        busy.state.status = Status::AwakeRunning;
        busy.lease = LeaseState::Held;
        busy.state.current_run = Some(current_run(&prompt(2)));
        assert!(!late(&busy), "busy, {after:?}");
    }
}

#[test]
fn warnings_come_in_a_fixed_order() {
    let mut records = records_in(Status::Asleep, ExecutionState::Completed);
    records.policy.scheduler.overdue_after = Some(Limit(Some(secs(0))));
    records.state.execution.since = at(-5000);
    records.works = vec![work(1), WorkItem { blocked_by: Some("x".to_owned()), ..work(2) }];
    records.waits = vec![
        wait(1, WaitKind::External),
        Wait {
            resource: Some("mail".to_owned()),
            no_fallback: Some("none".to_owned()),
            lost_answer: Some(message_id(7)),
            ..wait(2, WaitKind::External)
        },
    ];
    let kept =
        KeptOut { message_id: message_id(6), wait_id: Some(wait_id(1)), work_item_id: None, ticked: false };
    records.state.set_aside = SetAside { count: 1, newest: vec![kept] };
    records.inbox.head = Some(Message { attempt: 4, ..prompt(1) });
    assert_eq!(
        kinds(&records),
        [
            "idle_posture_has_runnable_work",
            "blocked_work_item_without_recheck_or_wait",
            "idle_posture_has_queued_input",
            "message_retried_often",
            "nobody_ticks",
            "input_set_aside",
            "wait_without_subject",
            "external_wait_has_weak_recoverability",
            "answer_lost",
            "external_wait_has_no_fallback",
        ]
    );
}
