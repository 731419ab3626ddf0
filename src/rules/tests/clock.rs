//! Tests of the corrections after a fast clock: in every state, each stored time may lie in the far
//! future of the corrected clock.

use crate::model::recovery::Strategy;
use crate::model::resource::Deferred;
use crate::model::state::Spent;
use crate::rules::clock::{ahead, lease_ends};
use crate::rules::execution::statuses;

use super::*;

/// Advance of the fast clock in milliseconds: some 76 years.
const AHEAD: i64 = 2_400_000_000_000;

/// Returns the time `millis` after the present, as written by a clock that is `AHEAD` too fast.
fn then(millis: i64) -> Time {
    at(AHEAD + millis)
}

/// Name of a wrong time, the maximum delay of the agent after its correction, and the function that
/// writes the wrong time.
type Wrong = (&'static str, Span, fn(&mut Records));

const WRONG: [Wrong; 11] = [
    ("the state", secs(3600), |records| records.state.execution.since = then(0)),
    ("the backoff", secs(3600), |records| {
        records.state.retry.iter_mut().for_each(|retry| retry.not_before = then(1000));
    }),
    ("the state and its backoff", secs(1), |records| {
        records.state.execution.since = then(0);
        records.state.retry.iter_mut().for_each(|retry| retry.not_before = then(1000));
    }),
    ("the next check for a resource", secs(3600), |records| {
        records.state.held.iter_mut().for_each(|held| {
            (held.resource, held.not_before) = (Some(Resource::Workspace), Some(then(1000)));
        });
    }),
    ("the time at which a limit is back", secs(24 * 3600), |records| {
        records.state.held.iter_mut().for_each(|held| {
            (held.resource, held.not_before) = (Some(Resource::TurnsPerDay), Some(then(1000)));
        });
    }),
    ("the next try of a deferred turn", secs(3600), |records| {
        records.state.held.iter_mut().for_each(|held| {
            (held.deferred, held.not_before) = (Some(Deferred::default()), Some(then(1000)));
        });
    }),
    ("the known time of a deferral, with the state", secs(7200), |records| {
        records.state.execution.since = then(0);
        let until = Some(then(7_200_000));
        records.state.held.iter_mut().for_each(|held| {
            held.deferred = Some(Deferred { until, ..Deferred::default() });
            held.not_before = until;
        });
    }),
    ("a suspension for a time, with the state", secs(60), |records| {
        records.state.execution.since = then(0);
        records.state.held.iter_mut().for_each(|held| held.not_before = Some(then(60_000)));
    }),
    ("the first deferral", secs(3600), |records| {
        records.state.held.iter_mut().for_each(|held| held.deferred_since = Some(then(0)));
    }),
    ("the hour and the day", secs(24 * 3600), |records| {
        records.policy.limits.turns_per_day = Some(1);
        let spent = |since| Some(Spent { turns: 5, ..Spent::nothing(since) });
        (records.state.spending.hour, records.state.spending.day) = (spent(then(0)), spent(then(0)));
    }),
    ("a timer", secs(120), |records| {
        let schedule = Schedule::Every { every: secs(60), from: then(0) };
        records.timers = vec![Timer { schedule, created_at: then(0), ..timer(1, AHEAD + 60_000) }];
    }),
];

/// Returns an agent in a state, with the held run or the retry that belongs to the state.
fn standing(status: Status, state: ExecutionState) -> Records {
    let mut records = records_in(status, state);
    match state {
        ExecutionState::WaitingResources | ExecutionState::Suspended => {
            records = holding(state, (state == ExecutionState::WaitingResources).then(|| at(1000)));
            records.state.held.iter_mut().for_each(|held| held.deferred_since = Some(now()));
            records.state.status = status;
        }
        ExecutionState::Failed | ExecutionState::Recovering => {
            records.state.retry = Some(retry(&prompt(1), at(1000)));
            records.inbox.head = Some(prompt(1));
        }
        ExecutionState::Initializing => records.state.execution.reason = Some("start".to_owned()),
        ExecutionState::Runnable
        | ExecutionState::Scheduled
        | ExecutionState::Running
        | ExecutionState::Waiting
        | ExecutionState::Resumed
        | ExecutionState::Completed
        | ExecutionState::ShuttingDown => {}
    }
    records
}

#[test]
fn in_every_state_a_time_in_the_far_future_delays_the_agent_for_its_policy_span_at_most() {
    let mut repaired = 0;
    for state in ExecutionState::ALL {
        for status in statuses(*state) {
            for (what, span, write) in WRONG {
                let name = format!("{state} {status}: {what}");
                let mut records = standing(*status, *state);
                let silent = next_due(&records).is_none() && records.inbox.head.is_none();
                write(&mut records);
                let draft = taken_in(records);
                let events = draft.clone().finish().map(|transaction| transaction.events).unwrap_or_default();
                repaired += kinds(&events).iter().filter(|kind| **kind == EventKind::RecordRepaired).count();
                assert_eq!(ahead(&draft.records, now()), [], "{name}");
                if decide(&project(&draft.records, now())).moves() {
                    continue;
                }
                let due = next_due(&draft.records);
                assert!(due.is_some() || silent, "{name}: nothing ends the silence");
                // A suspension without a duration ends by its own timeout, one hour after its
                // start.
                assert!(due.is_none_or(|due| due <= now().after(span).after(secs(3601))), "{name}: {due:?}");
            }
        }
    }
    assert!(repaired > 40, "{repaired}");
}

#[test]
fn a_corrected_state_time_keeps_its_distance_to_the_due_time() {
    for (what, span, write) in
        WRONG.iter().filter(|(what, ..)| what.contains("the state and") || what.contains("with the state"))
    {
        let state = if what.contains("backoff") { ExecutionState::Failed } else { ExecutionState::Suspended };
        let mut records = standing(Status::AwakeIdle, state);
        write(&mut records);
        let draft = taken_in(records);
        let state = &draft.records.state;
        let due = state.retry.as_ref().map(|retry| retry.not_before);
        let due = due.or(state.held.as_ref().and_then(|held| held.not_before));
        assert_eq!((state.execution.since, due), (now(), Some(now().after(*span))), "{what}");
        let events = finish(draft).events;
        let told = of_kind(&events, EventKind::RecordRepaired).next().expect("an event");
        assert_eq!((word(told, "moment"), word(told, "reason")), ("execution.since", "clock_in_future"));
    }
}

#[test]
fn the_longest_spans_that_a_policy_allows_are_not_corrected() {
    for strategy in Strategy::ALL {
        for base in [1, 7200] {
            let mut records = standing(Status::AwakeIdle, ExecutionState::Failed);
            records.policy.recovery.strategy = *strategy;
            records.policy.recovery.base = secs(base);
            for failures in [1, 3, 40] {
                let pause = records.policy.recovery.delay(failures, 0.999);
                records.state.retry = Some(retry(&prompt(1), now().after(pause)));
                assert_eq!(ahead(&records, now()), [], "{strategy} {base} {failures}");
            }
        }
    }
    let mut records = standing(Status::AwakeIdle, ExecutionState::WaitingResources);
    records.policy.timeouts.resources = Limit(None);
    let furthest = now().after(records.policy.recovery.max_deferral);
    let mut corrected = |until: Time| -> Vec<Time> {
        records.state.held.iter_mut().for_each(|held| {
            held.not_before = Some(until);
            held.deferred = Some(Deferred { until: Some(until), ..Deferred::default() });
        });
        ahead(&records, now()).iter().map(|ahead| ahead.corrected).collect()
    };
    assert_eq!(corrected(furthest), [], "a turn may defer its message for as long as this");
    let expected = if at(AHEAD) > furthest { vec![furthest; 2] } else { vec![] };
    assert_eq!(corrected(at(AHEAD)), expected);
}

#[test]
fn a_repeating_timer_is_corrected_and_does_not_fire_twice_after_a_small_step_back() {
    let daily = Schedule::Cron { expression: "0 9 * * *".to_owned(), time_zone: "UTC".to_owned() };
    let fired = |next: i64, last: i64, schedule: &Schedule| {
        let schedule = schedule.clone();
        let timer = Timer { schedule, last_fired_at: Some(at(last)), ..timer(1, next) };
        ahead(&Records { timers: vec![timer], ..records() }, now()).first().map(|ahead| ahead.corrected)
    };
    let nine = 38_800_000;
    let day = 86_400_000;
    assert_eq!(fired(AHEAD, AHEAD - day, &daily), Some(at(nine)), "the next fire after the present");
    assert_eq!(fired(nine + day, nine, &daily), None, "the clock was set back by less than a day");
    let minutes = Schedule::Every { every: secs(60), from: at(-30_000) };
    assert_eq!(fired(AHEAD, AHEAD - 60_000, &minutes), Some(at(30_000)));
    assert_eq!(fired(90_000, 30_000, &minutes), None);
}

#[test]
fn a_lease_of_another_machine_ends_after_its_duration_if_that_machine_has_a_fast_clock() {
    let claimed = |millis: i64| {
        let mut run = current_run(&prompt(1));
        (run.claimed_at, run.lease_expires_at) = (at(millis), at(millis + 1_860_000));
        lease_ends(&run, now())
    };
    assert_eq!(claimed(AHEAD), Some(at(1_860_000)));
    let nearly = [claimed(60_000), claimed(0), claimed(-99_000_000)];
    assert_eq!(nearly, [None; 3], "clocks may differ by a little");
}

#[test]
fn a_resting_decision_of_a_fast_clock_is_made_again() {
    let sleeps = |moment: Time, records: Records| {
        let mut draft = draft_at(records, moment);
        let decision = decide(&project(&draft.records, moment));
        rest(&mut draft, &decision);
        (!draft.is_empty()).then(|| finish(draft))
    };
    let mut records = records();
    records.state = sleeps(then(0), records.clone()).expect("it falls asleep").state;
    assert!(records.state.resting(then(1)).is_some());
    assert!(records.state.resting(now()).is_none());
    let again = sleeps(now(), records.clone()).expect("written once more");
    assert_eq!(kinds(&again.events), [], "no event is written twice");
    records.state = again.state;
    assert!(records.state.resting(now()).is_some());
    assert_eq!(sleeps(at(1), records), None);
}

#[test]
fn an_advisory_names_a_time_that_is_too_far_ahead() {
    let told = |records: &Records| -> Vec<String> {
        let advised = advisories(records, now()).into_iter();
        let ahead = advised.filter(|advisory| advisory.kind.name() == "clock_in_future");
        ahead.map(|advisory| advisory.subject).collect()
    };
    let mut records = standing(Status::AwakeIdle, ExecutionState::Failed);
    WRONG[1].2(&mut records);
    assert_eq!(told(&records).first().map(String::as_str), Some("retry.not_before"));
    let once = Timer { created_at: then(0), ..timer(1, AHEAD + 1) };
    assert_eq!(told(&Records { timers: vec![once], ..super::records() }).len(), 1);
}
