//! Who goes first: the more urgent, but nobody waits for ever.

use crate::model::policy::{Policy, SchedulingPolicy};
use crate::rules::priority::rank;

use super::{at, now};

fn scheduling(priority: i8) -> SchedulingPolicy {
    SchedulingPolicy { priority }
}

#[test]
fn waiting_makes_an_agent_one_step_more_urgent_each_whole_minute() {
    let rows = [
        (0, 0, 0),
        (0, 59_999, 0),
        (0, 60_000, -1),
        (0, 119_999, -1),
        (20, 60_000, 19),
        (20, 39 * 60_000 - 1, -18),
        (20, 39 * 60_000, -19),
        (-19, 60_000, -19),
        (0, i64::MAX / 4, -19),
    ];
    for (priority, waited, effective) in rows {
        let found = rank(&scheduling(priority), Some(at(-waited)), now());
        assert_eq!(found.effective, effective, "{priority} after {waited} ms");
    }
    assert_eq!(rank(&scheduling(7), None, now()).effective, 7, "nothing to do");
    assert_eq!(rank(&scheduling(7), Some(at(60_000)), now()).effective, 7, "not yet");
}

#[test]
fn the_more_urgent_goes_first_and_among_equals_the_one_that_waited_longer() {
    // In the order in which they go.
    let line = [
        rank(&scheduling(20), Some(at(-40 * 60_000)), now()),
        rank(&scheduling(-19), Some(at(-60_000)), now()),
        rank(&scheduling(-19), Some(at(-1)), now()),
        rank(&scheduling(-19), None, now()),
        rank(&scheduling(1), Some(at(-60_000)), now()),
        rank(&scheduling(0), Some(at(-1)), now()),
        rank(&scheduling(0), None, now()),
        rank(&scheduling(20), Some(at(-1)), now()),
    ];
    assert!(line.windows(2).all(|two| two[0] < two[1]), "{line:?}");
}

#[test]
fn a_priority_is_between_minus_19_and_20_and_0_unless_set() {
    let policy = |text: &str| toml::from_str::<Policy>(text).expect("it can be read");
    assert_eq!(policy("").scheduler.priority, 0);
    for (priority, is_one) in [(-20, false), (-19, true), (20, true), (21, false)] {
        let checked = policy(&format!("[scheduler]\npriority = {priority}\n")).check();
        assert_eq!(checked.is_ok(), is_one, "{priority}: {checked:?}");
    }
}
