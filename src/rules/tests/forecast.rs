//! The forecast for a hint agrees with the steps after it.

use crate::model::continuation::Runs;
use crate::rules::forecast::of_hint;

use super::liveness::{record, settle_down, waitings, world};
use super::transition_sequences::{End, World};
use super::*;

/// Returns the hints of the search: every combination of names, with and without content.
fn hints() -> Vec<WakeHint> {
    let plain = [
        hint(0),
        WakeHint { wait_id: Some(wait_id(1)), ..hint(0) },
        WakeHint { resource: Some("resource:1".to_owned()), ..hint(0) },
        WakeHint { resource: Some("elsewhere".to_owned()), ..hint(0) },
        WakeHint { source: "webhook:1".to_owned(), ..hint(0) },
        WakeHint { reason: Some("look".to_owned()), ..hint(0) },
    ];
    let contentful = plain.clone().map(|hint| WakeHint { body: Some(text("news")), ..hint });
    [plain, contentful].concat()
}

#[test]
fn the_answer_to_a_hint_agrees_with_what_the_steps_do() {
    for waiting in waitings() {
        for runnable in [None, Some(true)] {
            for unmatched in [Unmatched::Reduce, Unmatched::Run] {
                for hint in hints() {
                    let mut world = world(vec![record(1, waiting)], runnable, None, unmatched);
                    settle_down(&mut world, End::Well).expect("it comes to rest");
                    let before = world.records.state.counters.turns;
                    let forecast = of_hint(&world.load(), &hint);
                    let id = message_id(world.name());
                    world.hints.insert(id, WakeHint { id, ..hint.clone() });
                    settle_down(&mut world, End::Well).expect("it comes to rest");
                    let has_run = world.records.state.counters.turns > before;
                    let expected = if has_run { Runs::Turn } else { Runs::Nothing };
                    assert_eq!(forecast.runs, expected, "{waiting:?} {runnable:?} {unmatched:?} {hint:?}");
                }
            }
        }
    }
}

#[test]
fn a_hint_to_an_agent_that_is_stopped_or_was_never_started_is_said_to_be_one() {
    for (status, execution, runs) in [
        (Status::Stopped, ExecutionState::Completed, Runs::Nothing),
        (Status::Booting, ExecutionState::Initializing, Runs::Undecided),
        (Status::AwakeIdle, ExecutionState::Runnable, Runs::Nothing),
    ] {
        let mut world = World::new();
        world.records = records_in(status, execution);
        assert_eq!(of_hint(&world.records, &hint(1)).runs, runs, "{status}");
    }
}
