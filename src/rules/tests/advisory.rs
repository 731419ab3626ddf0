//! Tests of the warnings about an agent: each appears where its condition is true, and is absent in
//! the nearest case where the condition is false.

use crate::model::state::KeptOut;

use super::*;

fn kinds(records: &Records) -> Vec<&'static str> {
    advisories(records, now()).iter().map(|advisory| advisory.kind.name()).collect()
}

fn of_wait(wait: Wait) -> Vec<&'static str> {
    kinds(&Records { waits: vec![wait], ..records() })
}

fn resting() -> [Records; 2] {
    [
        records_in(Status::Asleep, ExecutionState::Completed),
        records_in(Status::AwaitingTask, ExecutionState::Waiting),
    ]
}

#[test]
fn an_agent_with_nothing_to_do_has_no_advisory() {
    assert_eq!(kinds(&records()), [""; 0]);
}

#[test]
fn runnable_work_and_queued_input_of_an_agent_that_rests_are_worth_a_warning() {
    let works = vec![
        work(1),
        WorkItem { state: WorkState::Completed, ..work(2) },
        WorkItem { blocked_by: Some("x".to_owned()), recheck_at: Some(at(1)), ..work(3) },
    ];
    for records in resting() {
        let with_work = Records { works: works.clone(), ..records.clone() };
        let mut with_input = records;
        with_input.inbox.head = Some(prompt(1));
        let rows =
            [(with_work, "idle_posture_has_runnable_work"), (with_input, "idle_posture_has_queued_input")];
        for (mut records, expected) in rows {
            assert_eq!(kinds(&records), [expected]);
            records.state.status = Status::AwakeIdle;
            assert_eq!(kinds(&records), [""; 0]);
        }
    }
}

#[test]
fn runnable_work_that_had_its_tick_is_worth_a_warning_unless_something_else_is_due() {
    let ticked = || WorkItem { ticked: Some(Ticked { revision: 1, wakes: 0 }), ..work(1) };
    let with = |change: &dyn Fn(&mut Records)| {
        let mut records = Records { works: vec![ticked()], ..records() };
        change(&mut records);
        kinds(&records)
    };
    assert_eq!(with(&|_| {}), ["idle_posture_has_runnable_work"], "whatever the status");
    for (works, expected) in
        [(ticked(), "its turn has changed nothing"), (work(1), "the next tick takes it up")]
    {
        let mut records = Records { works: vec![works], ..records() };
        records.state.status = Status::Asleep;
        let found = advisories(&records, now()).remove(0).message;
        assert!(found.contains(expected), "{found}");
    }
    assert_eq!(with(&|records| records.works[0].revision = 2), [""; 0], "it gets another tick");
    assert_eq!(with(&|records| records.state.counters.wakes = 1), [""; 0], "it gets another tick");
    assert_eq!(with(&|records| records.inbox.head = Some(prompt(1))), [""; 0]);
    assert_eq!(with(&|records| records.inbox.hints.push(hint(1))), [""; 0]);
    assert_eq!(with(&|records| records.state.pending_wake_hint = Some(hint(1))), [""; 0]);
    assert_eq!(with(&|records| records.timers.push(timer(1, 1000))), [""; 0], "a timer is due");
    assert_eq!(with(&|records| records.state.current_run = Some(current_run(&prompt(1)))), [""; 0]);
    assert_eq!(with(&|records| records.state.status = Status::Stopped), [""; 0], "stopped by the operator");
    let waits = with(&|records| records.waits.push(wait(1, WaitKind::Operator)));
    assert_eq!(waits, ["idle_posture_has_runnable_work"], "a wait of the agent does not end the silence");
}

#[test]
fn an_answer_whose_turn_did_not_complete_is_worth_a_warning() {
    let lost = |kind| Wait { lost_answer: Some(message_id(7)), ..wait(1, kind) };
    for kind in [WaitKind::Operator, WaitKind::Task, WaitKind::Timer] {
        let mut records = Records { waits: vec![lost(kind)], ..records() };
        assert_eq!(kinds(&records), ["answer_lost"], "{kind}");
        records.waits[0].resolved_by = Some(message_id(8));
        assert_eq!(kinds(&records), [""; 0], "the wait is bound to another answer: {kind}");
    }
}

fn kept_out(number: u32) -> KeptOut {
    let message_id = message_id(number);
    KeptOut { message_id, wait_id: Some(wait_id(1)), work_item_id: None, ticked: false }
}

#[test]
fn input_that_was_set_aside_is_worth_a_warning() {
    let records = with(|records| {
        records.state.set_aside = SetAside { count: 3, newest: vec![kept_out(1), kept_out(2)] };
    });
    let found = advisories(&records, now());
    assert_eq!(kinds(&records), ["input_set_aside"]);
    assert_eq!(found[0].subject, message_id(2).to_string());
    for named in [message_id(1).to_string(), message_id(2).to_string(), "3 said".to_owned()] {
        assert!(found[0].message.contains(&named), "{}", found[0].message);
    }
}

#[test]
fn a_wait_without_a_subject_is_worth_a_warning() {
    let rows = [
        (WaitKind::Operator, false, false),
        (WaitKind::Task, false, false),
        (WaitKind::Timer, false, false),
        (WaitKind::External, false, true),
        (WaitKind::System, false, true),
        // A system wait with a deadline ends at that time, so it needs no subject.
        (WaitKind::System, true, false),
    ];
    for (kind, has_deadline, expected) in rows {
        let warned = |wait: Wait| of_wait(wait).contains(&"wait_without_subject");
        let waiting = Wait { expires_at: has_deadline.then(|| at(1)), ..wait(1, kind) };
        assert_eq!(warned(waiting.clone()), expected, "{kind}");
        for named in [
            Wait { resource: Some(task_id(1).to_string()), ..waiting.clone() },
            Wait { source: Some("webhook".to_owned()), ..waiting.clone() },
            Wait { trigger_id: Some(trigger_id(1)), ..waiting },
        ] {
            assert!(!warned(named), "{kind}");
        }
    }
}

#[test]
fn only_an_external_wait_needs_a_fallback_or_a_known_source() {
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
        assert_eq!(of_wait(wait.clone()), expected, "{wait:?}");
    }
    for kind in [WaitKind::Operator, WaitKind::Task, WaitKind::Timer, WaitKind::System] {
        assert_eq!(of_wait(Wait { expires_at: Some(at(1)), ..wait(1, kind) }), [""; 0], "{kind}");
    }
}

#[test]
fn a_blocked_item_without_a_recheck_or_an_active_wait_is_worth_a_warning() {
    let blocked = WorkItem { blocked_by: Some("a decision".to_owned()), ..work(1) };
    let consumed = WorkItem { recheck_at: Some(at(-1)), recheck_consumed_at: Some(at(0)), ..blocked.clone() };
    let on_item = |item| wait_on(1, WaitKind::Operator, item);
    let bound = Wait { resolved_by: Some(message_id(7)), ..on_item(1) };
    let rows = [
        (blocked.clone(), None, true),
        (blocked.clone(), Some(wait(1, WaitKind::Operator)), true),
        (blocked.clone(), Some(on_item(2)), true),
        (blocked.clone(), Some(on_item(1)), false),
        (WorkItem { recheck_at: Some(at(1)), ..blocked.clone() }, None, false),
        (consumed, None, true),
        (blocked.clone(), Some(bound), true),
        (WorkItem { state: WorkState::Completed, ..blocked }, None, false),
    ];
    for (item, wait, is_warned) in rows {
        let records = Records { works: vec![item.clone()], waits: wait.into_iter().collect(), ..records() };
        let expected = is_warned.then_some("blocked_work_item_without_recheck_or_wait");
        assert_eq!(kinds(&records), Vec::from_iter(expected), "{item:?}");
    }
}

#[test]
fn a_message_past_its_third_attempt_is_worth_a_warning() {
    for (attempt, expected) in [(1, false), (3, false), (4, true), (5, true)] {
        let records = queued(Message { attempt, ..prompt(1) });
        assert_eq!(kinds(&records) == ["message_retried_often"], expected, "attempt {attempt}");
    }
}

#[test]
fn input_work_or_a_timer_overdue_for_too_long_is_worth_a_warning() {
    type Change = fn(&mut Records);
    // Each of these has been due for one second.
    let due: [(&str, Change); 4] = [
        ("a message", |records| records.inbox.head = Some(prompt(1))),
        ("a timer", |records| records.timers = vec![timer(1, -1000)]),
        ("work", |records| records.works = vec![WorkItem { updated_at: at(-1000), ..work(1) }]),
        ("a dropped file", |records| {
            (records.inbox.submissions, records.inbox.dropped_at) = (1, Some(at(-1000)));
        }),
    ];
    // No warning: a step was made after the message arrived, or no step was possible.
    let excused: [(&str, Change); 3] = [
        ("stepped", |records| records.state.stepped_at = Some(at(0))),
        ("stopped", |records| records.state.status = Status::Stopped),
        ("busy", |records| {
            (records.state.status, records.lease) = (Status::AwakeRunning, LeaseState::Held);
            records.state.current_run = Some(current_run(&prompt(2)));
        }),
    ];
    for (after, warned) in [(None, false), (Some(2000), false), (Some(1000), false), (Some(999), true)] {
        let late = |changes: &[Change]| {
            let mut records = records();
            records.policy.scheduler.overdue_after = Some(Limit(after.map(Span::from_millis)));
            records.state.execution.since = at(-5000);
            changes.iter().for_each(|change| change(&mut records));
            kinds(&records).contains(&"nobody_ticks")
        };
        assert!(!late(&[]), "nothing, {after:?}");
        for (name, change) in due {
            assert_eq!(late(&[change]), warned, "{name}, {after:?}");
        }
        for (name, change) in excused {
            assert!(!late(&[due[0].1, change]), "{name}, {after:?}");
        }
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
    records.state.set_aside = SetAside { count: 1, newest: vec![kept_out(6)] };
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
