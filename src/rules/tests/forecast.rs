//! Tests that the forecast for a wake hint agrees with the steps after the hint.

use crate::model::continuation::Runs;
use crate::rules::forecast::of_hint;

use super::liveness::{record, settle_down, waitings, world};
use super::transition_sequences::End;
use super::*;

/// Returns hints with every combination of names, each with and without content.
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
fn the_forecast_for_a_hint_predicts_whether_the_steps_run_a_turn() {
    for waiting in waitings() {
        for runnable in [None, Some(true)] {
            for unmatched in [Unmatched::Reduce, Unmatched::Run] {
                for hint in hints() {
                    let mut world = world(vec![record(1, waiting)], runnable, None, unmatched);
                    settle_down(&mut world, End::Well).expect("the agent rests");
                    let before = world.records.state.counters.turns;
                    let forecast = of_hint(&world.load(), &hint);
                    let id = message_id(world.name());
                    world.hints.insert(id, WakeHint { id, ..hint.clone() });
                    settle_down(&mut world, End::Well).expect("the agent rests");
                    let has_run = world.records.state.counters.turns > before;
                    let expected = if has_run { Runs::Turn } else { Runs::Nothing };
                    assert_eq!(forecast.runs, expected, "{waiting:?} {runnable:?} {unmatched:?} {hint:?}");
                }
            }
        }
    }
}

#[test]
fn the_forecast_for_a_stopped_or_new_agent_starts_no_turn() {
    for (status, execution, runs) in [
        (Status::Stopped, ExecutionState::Completed, Runs::Nothing),
        (Status::Booting, ExecutionState::Initializing, Runs::Undecided),
        (Status::AwakeIdle, ExecutionState::Runnable, Runs::Nothing),
    ] {
        assert_eq!(of_hint(&records_in(status, execution), &hint(1)).runs, runs, "{status}");
    }
}

#[test]
fn the_forecast_for_a_hint_promises_no_try_of_a_held_message() {
    for state in [ExecutionState::WaitingResources, ExecutionState::Suspended] {
        assert_eq!(of_hint(&holding(state, None), &hint(1)).runs, Runs::Undecided, "{state}");
    }
}
