//! Tests of counters at the end of their range: they stay there, or the record is refused. No
//! change panics or wraps.

use crate::model::state::Outbox;

use super::*;

/// Returns counters at their maximum. For the number of events that is the largest number which a
/// reader of the state accepts.
fn highest() -> Counters {
    let mut counters = json!(Counters::default());
    for (name, count) in counters.as_object_mut().expect("an object") {
        if count.is_u64() {
            *count = json!(if name == "events" { 1u64 << 53 } else { u64::MAX });
        }
    }
    serde_json::from_value(counters).expect("counters")
}

fn full(mut records: Records) -> Records {
    records.state.counters = highest();
    records.state.recovery_failures = u32::MAX;
    records.state.set_aside.count = u64::MAX;
    records
}

#[test]
fn the_counters_of_a_turn_stay_at_their_maximum() {
    for code in [0, 1, 75] {
        let mut records = full(running(&prompt(1)));
        let mut run = current_run(&prompt(1));
        (run.attempt, run.hops) = (u32::MAX, u32::MAX);
        run.setbacks = Setbacks { interruptions: u32::MAX, deferrals: u32::MAX, suspensions: u32::MAX };
        records.state.current_run = Some(run);
        let (_, transaction) = settled(records, exited(code));
        let counters = transaction.state.counters;
        assert_eq!((counters.turns, counters.dead), (u64::MAX, u64::MAX), "{code}");
    }
}

#[test]
fn the_counters_of_hints_timers_and_messages_stay_at_their_maximum() {
    let mut records = full(records());
    let mut ticking = timer(1, -3000);
    ticking.schedule = Schedule::Every { every: secs(1), from: at(-3000) };
    (ticking.fired, ticking.missed) = (u64::MAX, u64::MAX);
    records.timers.push(ticking);
    records.inbox.hints = [1, 2].map(|number| WakeHint { count: u32::MAX, ..hint(number) }).into();
    let mut draft = taken_in(records);
    reduce(&mut draft, message(3, MessageKind::Control), None);
    let pending = draft.records.state.pending_wake_hint.as_ref().map(|hint| hint.count);
    assert_eq!(pending, Some(u32::MAX), "two hints of one scope");
    let timer = &draft.records.timers[0];
    assert_eq!((timer.fired, timer.missed), (u64::MAX, u64::MAX));
    let counters = finish(draft).state.counters;
    assert_eq!((counters.wakes, counters.messages_reduced), (u64::MAX, u64::MAX));
}

#[test]
fn the_number_of_checks_for_a_resource_stays_at_its_maximum() {
    let mut records = full(holding(ExecutionState::WaitingResources, Some(at(0))));
    records.state.held.iter_mut().for_each(|held| {
        (held.looks, held.resource) = (u32::MAX, Some(shortage().resource));
    });
    let draft = lacking(records, &shortage(), at(0));
    assert_eq!(finish(draft).state.held.map(|held| held.looks), Some(u32::MAX));
}

#[test]
fn the_size_of_the_outbox_stays_at_its_maximum() {
    let most = Outbox { messages: u64::MAX, bytes: u64::MAX };
    let mut outbox = most;
    outbox.add(&prompt(1));
    assert_eq!(outbox, most);
}

#[test]
fn a_state_with_a_number_that_can_not_grow_is_refused_when_it_is_read() {
    let most = 1 << 53;
    for (revision, events, is_refused) in [
        (most, most, None),
        (most + 1, 0, Some("`revision` is larger than dormouse ever writes")),
        (0, most + 1, Some("`counters.events` is larger than dormouse ever writes")),
    ] {
        let mut state = records().state;
        (state.revision, state.counters.events) = (revision, events);
        assert_eq!(state.check().err().as_deref(), is_refused, "{revision} {events}");
    }
}
