//! Tests of a turn's closure: every combination of facts, against the table in docs/CONTRACT.md.

use crate::rules::closure::{ClosureFacts, derive};

use super::*;

use SchedulingState::{Runnable, WaitingExternal, WaitingOperator, WaitingSystem, WaitingTask, WaitingTimer};

/// Wait that the closure names.
#[derive(Debug, Clone, Copy)]
enum About {
    Nothing,
    Own(OwnWait),
    CurrentItem,
    OtherItem,
}

type OwnWait = fn(&AgentWaits) -> Option<WaitId>;

const OWN_OPERATOR: OwnWait = |waits| waits.operator;
const OWN_EXTERNAL: OwnWait = |waits| waits.external;
const OWN_TIMER: OwnWait = |waits| waits.timer;
const OWN_TASK: OwnWait = |waits| waits.task;
const OWN_SYSTEM: OwnWait = |waits| waits.system;

type Holds = fn(&ClosureFacts) -> bool;
type Row = (&'static str, Holds, &'static str, Option<&'static str>, About);

fn item(facts: &ClosureFacts, state: SchedulingState) -> bool {
    facts.current_work.is_some_and(|work| work.state == state)
}

fn own(facts: &ClosureFacts, which: OwnWait) -> bool {
    which(&facts.agent_waits).is_some()
}

fn has_failed(facts: &ClosureFacts) -> bool {
    !matches!(facts.terminal, None | Some(Terminal::Completed))
}

fn other(facts: &ClosureFacts, state: SchedulingState) -> bool {
    facts.waiting_work.is_some_and(|work| work.state == state)
}

const OPERATOR_INPUT: Option<&str> = Some("awaiting_operator_input");
const EXTERNAL_CHANGE: Option<&str> = Some("awaiting_external_change");
const TIMER: Option<&str> = Some("awaiting_timer");
const TASK_RESULT: Option<&str> = Some("awaiting_task_result");

/// Rows of contract, semantics §6: number, condition, outcome, waiting reason, and the named wait.
const TABLE: [Row; 22] = [
    ("1", |facts| facts.runtime_error, "failed", None, About::Nothing),
    ("2", |facts| facts.turn_in_progress, "waiting", EXTERNAL_CHANGE, About::Nothing),
    ("3", |facts| has_failed(facts), "failed", None, About::Nothing),
    ("4", |facts| facts.turn_unaccounted, "waiting", EXTERNAL_CHANGE, About::Nothing),
    ("5 continue_active", |facts| item(facts, Runnable), "continuable", None, About::Nothing),
    ("5 activate_queued", |facts| facts.queued_work_runnable, "continuable", None, About::Nothing),
    ("6 own", |facts| own(facts, OWN_OPERATOR), "waiting", OPERATOR_INPUT, About::Own(OWN_OPERATOR)),
    ("6 item", |facts| item(facts, WaitingOperator), "waiting", OPERATOR_INPUT, About::CurrentItem),
    ("7", |facts| own(facts, OWN_EXTERNAL), "waiting", EXTERNAL_CHANGE, About::Own(OWN_EXTERNAL)),
    ("8", |facts| own(facts, OWN_TIMER), "waiting", TIMER, About::Own(OWN_TIMER)),
    ("9", |facts| own(facts, OWN_TASK), "waiting", TASK_RESULT, About::Own(OWN_TASK)),
    ("10 task", |facts| item(facts, WaitingTask), "waiting", TASK_RESULT, About::CurrentItem),
    ("10 external", |facts| item(facts, WaitingExternal), "waiting", EXTERNAL_CHANGE, About::CurrentItem),
    ("10 timer", |facts| item(facts, WaitingTimer), "waiting", TIMER, About::CurrentItem),
    ("11 own", |facts| own(facts, OWN_SYSTEM), "waiting", None, About::Own(OWN_SYSTEM)),
    ("11 item", |facts| item(facts, WaitingSystem), "waiting", None, About::CurrentItem),
    ("12 operator", |facts| other(facts, WaitingOperator), "waiting", OPERATOR_INPUT, About::OtherItem),
    ("12 external", |facts| other(facts, WaitingExternal), "waiting", EXTERNAL_CHANGE, About::OtherItem),
    ("12 timer", |facts| other(facts, WaitingTimer), "waiting", TIMER, About::OtherItem),
    ("12 task", |facts| other(facts, WaitingTask), "waiting", TASK_RESULT, About::OtherItem),
    ("12 system", |facts| other(facts, WaitingSystem), "waiting", None, About::OtherItem),
    ("13", |_| true, "completed", None, About::Nothing),
];

/// Returns the facts of an agent whose last turn completed, without open records.
fn quiet() -> ClosureFacts {
    ClosureFacts {
        runtime_error: false,
        turn_in_progress: false,
        turn_unaccounted: false,
        terminal: Some(Terminal::Completed),
        current_work: None,
        waiting_work: None,
        queued_work_runnable: false,
        agent_waits: AgentWaits::default(),
        active_tasks: 0,
        active_timers: 0,
        runtime_posture: RuntimePosture::Awake,
    }
}

fn agent_waits(kinds: &[u32]) -> AgentWaits {
    let own = |number| kinds.contains(&number).then(|| wait_id(number));
    AgentWaits { operator: own(1), external: own(2), timer: own(3), task: own(4), system: own(5) }
}

fn work(number: u32, state: SchedulingState, wait: Option<u32>) -> WorkFact {
    let wait_id = wait.map(wait_id);
    WorkFact { id: work_id(number), revision: 1, state, ticked: false, wait_id, task_id: None }
}

/// Returns every combination of the facts that a closure depends on.
fn all_facts() -> impl Iterator<Item = ClosureFacts> {
    let works: Vec<_> = SchedulingState::ALL.iter().map(|state| work(1, *state, Some(6))).collect();
    let others = [WaitingOperator, WaitingExternal, WaitingTimer, WaitingTask, WaitingSystem]
        .map(|state| work(2, state, Some(7)));
    let waits: Vec<AgentWaits> = subsets(&[1, 2, 3, 4, 5]).map(|kinds| agent_waits(&kinds)).collect();
    let mut all = Vec::new();
    for bits in 0..16 {
        for terminal in optional(Terminal::ALL) {
            for current_work in optional(&works) {
                for agent_waits in &waits {
                    all.extend(optional(&others).into_iter().map(|waiting_work| ClosureFacts {
                        runtime_error: bits & 1 != 0,
                        turn_in_progress: bits & 2 != 0,
                        turn_unaccounted: bits & 4 != 0,
                        queued_work_runnable: bits & 8 != 0,
                        waiting_work,
                        terminal,
                        current_work,
                        agent_waits: *agent_waits,
                        ..quiet()
                    }));
                }
            }
        }
    }
    all.into_iter()
}

#[test]
fn the_closure_is_the_first_row_that_holds_in_all_221184_combinations() {
    let mut seen = [0u32; TABLE.len()];
    for facts in all_facts() {
        let row = TABLE.iter().position(|(_, holds, ..)| holds(&facts)).expect("the last row");
        let (number, _, outcome, reason, about) = TABLE[row];
        seen[row] += 1;
        let closure = derive(&facts);
        let (wait, item) = match about {
            About::Nothing => (None, None),
            About::Own(which) => (which(&facts.agent_waits), None),
            About::CurrentItem => (facts.current_work.and_then(|work| work.wait_id), Some(work_id(1))),
            About::OtherItem => (facts.waiting_work.and_then(|work| work.wait_id), Some(work_id(2))),
        };
        let reached = (closure.outcome.name(), closure.waiting_reason.map(WaitingReason::name));
        assert_eq!(reached, (outcome, reason), "row {number}: {facts:?}");
        assert_eq!((closure.wait_id, closure.work_item_id), (wait, item), "row {number}: {facts:?}");
    }
    assert_eq!(seen.iter().sum::<u32>(), 221_184);
    assert!(seen.iter().all(|count| *count > 0), "a row that never held: {seen:?}");
}

#[test]
fn the_evidence_has_the_value_of_each_fact() {
    let one = ClosureFacts {
        terminal: None,
        current_work: Some(work(1, WaitingTask, None)),
        agent_waits: agent_waits(&[2, 5]),
        active_tasks: 2,
        active_timers: 1,
        ..quiet()
    };
    let other = ClosureFacts {
        runtime_error: true,
        turn_in_progress: true,
        turn_unaccounted: true,
        terminal: Some(Terminal::TimedOut),
        waiting_work: Some(work(2, WaitingSystem, None)),
        queued_work_runnable: true,
        agent_waits: agent_waits(&[1, 3, 4]),
        ..quiet()
    };
    let rows = [
        (
            one,
            "runtime_error=false turn_in_progress=false terminal=none turn_unaccounted=false \
             current_work=waiting_task queued_work_runnable=false waiting_work=none \
             operator_wait=false external_wait=true timer_wait=false task_wait=false system_wait=true \
             active_tasks=2 active_timers=1",
        ),
        (
            other,
            "runtime_error=true turn_in_progress=true terminal=timed_out turn_unaccounted=true \
             current_work=none queued_work_runnable=true waiting_work=waiting_system \
             operator_wait=true external_wait=false timer_wait=true task_wait=true system_wait=false \
             active_tasks=0 active_timers=0",
        ),
    ];
    for (facts, expected) in rows {
        assert_eq!(derive(&facts).evidence, self::facts(expected));
    }
}

#[test]
fn a_closure_lists_all_facts_in_one_order_and_three_of_them_decide_nothing() {
    let expected = "runtime_error turn_in_progress terminal turn_unaccounted current_work \
                    queued_work_runnable waiting_work operator_wait external_wait timer_wait task_wait \
                    system_wait active_tasks active_timers";
    for facts in all_facts().step_by(11) {
        let mut awake = derive(&facts);
        assert_eq!(awake.runtime_posture, RuntimePosture::Awake);
        let names: Vec<&str> =
            awake.evidence.iter().map(|fact| fact.split_once('=').map_or("", |(name, _)| name)).collect();
        assert_eq!(names, self::facts(expected), "{facts:?}");
        // Tasks and timers without a wait, and the posture, are recorded alone.
        let asleep = ClosureFacts {
            active_tasks: 2,
            active_timers: 1,
            runtime_posture: RuntimePosture::Sleeping,
            ..facts
        };
        awake
            .evidence
            .splice(12.., self::facts("active_tasks=2 active_timers=1").into_iter().map(str::to_owned));
        assert_eq!(derive(&asleep), Closure { runtime_posture: RuntimePosture::Sleeping, ..awake });
    }
}
