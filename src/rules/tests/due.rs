//! Tests of the next due time of an agent: each source alone, the first of two sources, and no due
//! time of a stopped agent.

use super::*;

type Source = (&'static str, i64, fn(&mut Records, i64));

/// Rows: source of a due time, milliseconds from that time until a step is due, and the function
/// that sets the time to `millis` after the present.
const SOURCES: [Source; 8] = [
    ("a timer wait's wake_at", 0, |records, millis| {
        records.waits.push(Wait { wake_at: Some(at(millis)), ..wait(1, WaitKind::Timer) });
    }),
    ("a wait's recheck_at", 0, |records, millis| {
        records.waits.push(Wait { recheck_at: Some(at(millis)), ..wait(2, WaitKind::External) });
    }),
    ("a wait's expires_at", 1, |records, millis| {
        records.waits.push(Wait { expires_at: Some(at(millis)), ..wait(3, WaitKind::Operator) });
    }),
    ("a work item's recheck_at", 0, |records, millis| {
        records.works.push(WorkItem { recheck_at: Some(at(millis)), ..work(1) });
    }),
    ("a timer", 0, |records, millis| records.timers.push(timer(1, millis))),
    ("the end of a backoff", 0, |records, millis| {
        records.state.execution.state = ExecutionState::Failed;
        records.state.retry = Some(retry(&prompt(1), at(millis)));
    }),
    ("the end of a held run's pause", 0, |records, millis| {
        records.state.held = Some(held(&prompt(1), Some(at(millis))));
    }),
    ("a state's timeout, which is over one millisecond after its limit", 1, |records, millis| {
        records.state.execution.state = ExecutionState::WaitingResources;
        records.state.execution.since = at(millis - 300_000);
    }),
];

#[test]
fn an_agent_without_a_time_is_never_due() {
    let plain =
        Records { works: vec![work(1)], waits: vec![wait(1, WaitKind::External)], ..queued(prompt(1)) };
    let with_run = with(|records| records.state.current_run = Some(current_run(&prompt(1))));
    // The end of a backoff counts only in the state `failed`.
    let with_retry = with(|records| records.state.retry = Some(retry(&prompt(1), at(5))));
    for records in [plain, with_run, with_retry] {
        assert_eq!(next_due(&records), None);
    }
}

#[test]
fn each_source_is_due_at_its_time_in_the_future_or_in_the_past() {
    for (name, later, put) in SOURCES {
        for millis in [-60_000, 0, 60_000] {
            let records = with(|records| put(records, millis));
            assert_eq!(next_due(&records), Some(at(millis + later)), "{name}");
        }
    }
}

#[test]
fn of_any_two_sources_the_earlier_one_is_due() {
    for (one, later_one, put_one) in SOURCES {
        for (two, later_two, put_two) in SOURCES {
            let states = |name: &str| name.contains("backoff") || name.contains("timeout");
            if one == two || (states(one) && states(two)) {
                continue;
            }
            let due = |at_one, at_two| {
                next_due(&with(|records| {
                    put_one(records, at_one);
                    put_two(records, at_two);
                }))
            };
            assert_eq!(due(20_000, 10_000), Some(at(10_000 + later_two)), "{two} before {one}");
            assert_eq!(due(10_000, 20_000), Some(at(10_000 + later_one)), "{one} before {two}");
        }
    }
}

#[test]
fn a_start_that_was_begun_is_due_when_its_time_is_over() {
    for (reason, due) in [(None, None), (Some("start".to_owned()), Some(at(60_001)))] {
        let mut records = records_in(Status::Booting, ExecutionState::Initializing);
        records.state.execution.since = at(0);
        records.state.execution.reason = reason;
        assert_eq!(next_due(&records), due);
    }
}

#[test]
fn a_stopped_or_booting_agent_is_never_due() {
    for (name, _, put) in SOURCES {
        for status in Status::ALL {
            let mut records = records();
            put(&mut records, 1000);
            records.state.status = *status;
            if *status == Status::Booting {
                records.state.execution.state = ExecutionState::Initializing;
            }
            let closed = matches!(status, Status::Stopped | Status::Booting);
            assert_eq!(next_due(&records).is_none(), closed, "{name}, {status}");
        }
    }
}

#[test]
fn ended_consumed_and_disabled_times_are_not_due() {
    for status in [WaitStatus::Resolved, WaitStatus::Cancelled, WaitStatus::Expired] {
        let mut records = records();
        records.waits.push(Wait { status, recheck_at: Some(at(1)), ..wait(1, WaitKind::Timer) });
        assert_eq!(next_due(&records), None, "{status}");
    }
    let mut consumed = records();
    consumed.works.push(WorkItem { recheck_at: Some(at(1)), recheck_consumed_at: Some(at(2)), ..work(1) });
    assert_eq!(next_due(&consumed), None);

    let dated = Wait {
        wake_at: Some(at(1)),
        recheck_at: Some(at(2)),
        expires_at: Some(at(3)),
        ..wait(1, WaitKind::Timer)
    };
    let mut records = records();
    for (told, due) in [
        (dated.clone(), Some(at(1))),
        (Wait { woken_at: Some(at(1)), ..dated.clone() }, Some(at(2))),
        (Wait { woken_at: Some(at(1)), recheck_at: None, ..dated.clone() }, Some(at(4))),
        (
            Wait { woken_at: Some(at(1)), recheck_at: None, expiry_told_at: Some(at(4)), ..dated.clone() },
            None,
        ),
        // A wait that is bound to a message has no due times until that message has ended.
        (Wait { resolved_by: Some(message_id(7)), ..dated }, None),
    ] {
        records.waits = vec![told.clone()];
        assert_eq!(next_due(&records), due, "{told:?}");
    }

    // `sleeping_until` is derived from other due times, so it is not a due time of its own.
    let mut asleep = super::records();
    asleep.state.sleeping_until = Some(at(1));
    assert_eq!(next_due(&asleep), None);

    let mut no_limit = super::records();
    no_limit.policy.timeouts.suspend = Limit(None);
    no_limit.state.execution.state = ExecutionState::Suspended;
    assert_eq!(next_due(&no_limit), None);
}
