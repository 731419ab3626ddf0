//! Tests of the order of agents: urgent agents are first, and waiting makes an agent more urgent.

use crate::model::policy::SchedulingPolicy;
use crate::model::preemption::{Critical, FreeResources, Percent};
use crate::rules::priority::{Occupying, first_to_go, next_of, rank, to_make_way};

use super::*;

fn scheduling(priority: i8) -> SchedulingPolicy {
    SchedulingPolicy { priority, ..SchedulingPolicy::default() }
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
    assert_eq!(rank(&scheduling(7), None, now()).effective, 7, "an agent with nothing to do");
    assert_eq!(rank(&scheduling(7), Some(at(60_000)), now()).effective, 7, "a time in the future");
}

#[test]
fn the_more_urgent_agent_is_first_and_among_equals_the_agent_that_waited_longer() {
    // Agents in the expected order.
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

/// Returns the turns of four agents that occupy a slot.
fn turns() -> [Occupying; 4] {
    [(1, 3, 0), (2, 8, 0), (3, 8, 5), (4, -2, 9)].map(|(number, priority, claimed_at)| Occupying {
        agent: format!("agent{number}").parse().expect("a name"),
        run_id: run_id(number),
        priority,
        claimed_at: at(claimed_at),
        asked_by: None,
        leaves: false,
    })
}

#[test]
fn the_least_urgent_turn_is_preempted_and_among_equals_the_newest() {
    let eve = "eve".parse().expect("a name");
    let chosen =
        |margin: u32, turns: &[Occupying]| to_make_way(&eve, -2, margin, turns).map(|turn| turn.run_id);
    let turns = turns();
    assert_eq!(chosen(5, &turns), Some(run_id(3)));
    assert_eq!(chosen(10, &turns), Some(run_id(3)), "a difference of exactly the margin is enough");
    assert_eq!(chosen(11, &turns), None);
    let leaves = Occupying { leaves: true, ..turns[2].clone() };
    assert_eq!(chosen(5, &[turns[0].clone(), leaves.clone()]), Some(run_id(1)));
    assert_eq!(chosen(5, &[leaves]), None);
    let asked = Occupying { asked_by: Some(eve.clone()), leaves: true, ..turns[1].clone() };
    assert_eq!(chosen(5, &[turns[0].clone(), asked]), None, "a turn already makes way for this agent");
    let other =
        Occupying { asked_by: Some("joe".parse().expect("a name")), leaves: true, ..turns[1].clone() };
    assert_eq!(
        chosen(5, &[turns[0].clone(), other]),
        Some(run_id(1)),
        "the other turn makes way for another agent"
    );
    let own = Occupying { agent: eve.clone(), ..turns[1].clone() };
    assert_eq!(chosen(1, &[own]), None);
}

#[test]
fn a_machine_that_is_low_on_memory_or_disk_ends_its_least_urgent_turn_and_no_second_one() {
    let turns = turns();
    assert_eq!(first_to_go(&turns).map(|turn| turn.run_id), Some(run_id(3)));
    let leaves = Occupying { leaves: true, ..turns[0].clone() };
    assert_eq!(first_to_go(&[leaves, turns[2].clone()]), None, "a turn already ends");
    assert_eq!(first_to_go(&[]), None);
}

#[test]
fn a_machine_is_low_on_a_resource_below_the_threshold_of_the_policy() {
    let critical = Critical { memory: Some(Percent(5.0)), disk: Some(Percent(1.5)) };
    let left = |memory, disk| FreeResources { memory, disk };
    let rows = [
        (critical, left(Some(5.0), Some(1.5)), None),
        (critical, left(None, None), None),
        (
            critical,
            left(Some(4.94), Some(0.0)),
            Some("memory: 4.9% is left (preemption.critical.memory = 5%)"),
        ),
        (critical, left(None, Some(1.4)), Some("disk: 1.4% is left (preemption.critical.disk = 1.5%)")),
        (Critical::default(), left(Some(0.0), Some(0.0)), None),
    ];
    for (critical, left, expected) in rows {
        let expected = expected.map(|words| format!("the machine is low on {words}"));
        assert_eq!(critical.lacks(&left), expected, "{left:?}");
    }
}

#[test]
fn machines_that_step_the_same_agents_begin_with_different_ones() {
    // Agents in any order: name, priority, seconds of waiting.
    let agents = [("c", 0, 10_i64), ("a", 0, 30), ("late", 5, 40), ("b", 0, 20), ("d", 0, 5)];
    let next = |machines, chance| {
        let ranked = agents.iter().map(|(name, priority, waited)| {
            (*name, rank(&scheduling(*priority), Some(at(-waited * 1000)), now()))
        });
        next_of(ranked, machines, chance)
    };
    let rows = [
        // A single machine begins with the agent that waited longest.
        (1, 0.0, "a"),
        (1, 0.99, "a"),
        (2, 0.0, "a"),
        (2, 0.49, "a"),
        (2, 0.5, "b"),
        (3, 0.99, "c"),
        (4, 0.99, "d"),
        // With 100 machines and a high draw, still only the equally urgent agents are candidates.
        (100, 0.99, "d"),
        (100, 0.25, "b"),
    ];
    for (machines, chance, expected) in rows {
        assert_eq!(next(machines, chance), Some(expected), "{machines} machines, {chance}");
    }
    assert_eq!(next_of(std::iter::empty::<(&str, _)>(), 3, 0.5), None);
}
