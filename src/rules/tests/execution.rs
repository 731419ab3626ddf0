//! Tests of the execution states: every pair of states, every status in every state, every timeout.

use crate::rules::execution::{agrees, can, check, deadline, is_over, next, statuses};

use super::*;

/// Edges of contract, execution §1: each state, in the order of the numbers, and the next states.
const EDGES: [(&str, &[&str]); 12] = [
    ("initializing", &["runnable", "failed"]),
    ("runnable", &["scheduled"]),
    ("scheduled", &["running"]),
    ("running", &["waiting", "waiting_resources", "suspended", "completed", "failed", "shutting_down"]),
    ("waiting", &["running"]),
    ("waiting_resources", &["running", "failed"]),
    ("suspended", &["resumed", "failed"]),
    ("resumed", &["running"]),
    ("completed", &["runnable"]),
    ("failed", &["recovering"]),
    ("shutting_down", &["completed", "failed"]),
    ("recovering", &["runnable", "failed", "shutting_down"]),
];

fn pairs() -> impl Iterator<Item = (ExecutionState, ExecutionState)> {
    ExecutionState::ALL.iter().flat_map(|from| ExecutionState::ALL.iter().map(move |to| (*from, *to)))
}

#[test]
fn the_states_have_the_published_names_and_numbers() {
    let named: Vec<(&str, u8)> =
        ExecutionState::ALL.iter().map(|state| (state.name(), state.code())).collect();
    let published: Vec<(&str, u8)> = EDGES.iter().map(|(state, _)| *state).zip(0..).collect();
    assert_eq!(named, published);
}

#[test]
fn of_all_144_pairs_exactly_the_23_edges_are_allowed_and_a_refusal_names_both_states() {
    assert_eq!(pairs().count(), 144);
    let mut refused = 0;
    for (from, to) in pairs() {
        let is_edge = EDGES.iter().any(|(state, nexts)| *state == from.name() && nexts.contains(&to.name()));
        assert_eq!(can(from, to), is_edge, "{from} -> {to}");
        assert_eq!(next(from).contains(&to), is_edge, "{from} -> {to}");
        let refusal = check(from, to).err().map(|refusal| (refusal.kind, refusal.message));
        let message = format!("invalid state transition: {} -> {}", from.name(), to.name());
        assert_eq!(refusal, (!is_edge).then_some(("invalid_state_transition", message)));
        refused += u32::from(!is_edge);
    }
    assert_eq!(refused, 121);
    assert_eq!(ExecutionState::ALL.iter().map(|state| next(*state).len()).sum::<usize>(), 23);
}

/// Rows of contract, execution §3: the statuses of each state, without `stopped`, which every state
/// allows.
const STATUSES: [(&str, &[&str]); 12] = [
    ("initializing", &["booting"]),
    ("runnable", &["awake_idle", "asleep"]),
    ("completed", &["awake_idle", "asleep"]),
    ("scheduled", &["awake_running"]),
    ("running", &["awake_running"]),
    ("resumed", &["awake_running"]),
    ("shutting_down", &["awake_running"]),
    ("waiting", &["awaiting_task", "asleep", "awake_idle"]),
    ("waiting_resources", &["awake_idle", "asleep"]),
    ("suspended", &["awake_idle", "asleep"]),
    ("failed", &["awake_idle", "asleep"]),
    ("recovering", &["awake_idle", "asleep"]),
];

#[test]
fn of_all_72_pairs_of_state_and_status_exactly_those_of_the_table_agree() {
    let mut pairs = 0;
    for state in ExecutionState::ALL {
        let (_, allowed) =
            STATUSES.iter().find(|(name, _)| *name == state.name()).expect("a row for every state");
        for status in Status::ALL {
            pairs += 1;
            let expected = *status == Status::Stopped || allowed.contains(&status.name());
            assert_eq!(agrees(*state, *status), expected, "{state} beside {status}");
        }
        assert_eq!(statuses(*state).len(), allowed.len(), "{state}");
    }
    assert_eq!(pairs, 72);
}

/// Returns an agent in this state, whose start has begun if the state is `initializing`.
fn in_state(state: ExecutionState) -> State {
    State::new(agent(), Execution { state, since: now(), task_id: None, reason: Some("start".to_owned()) })
}

/// Timeouts of contract, execution §4: the state, its default in milliseconds, and the failure
/// reason.
const TIMEOUTS: [(ExecutionState, i64, &str); 5] = [
    (ExecutionState::Initializing, 60_000, "init_timeout"),
    (ExecutionState::WaitingResources, 300_000, "resource_timeout"),
    (ExecutionState::Suspended, 3_600_000, "suspend_timeout"),
    (ExecutionState::Recovering, 120_000, "recovery_timeout"),
    (ExecutionState::ShuttingDown, 30_000, "shutdown_timeout"),
];

#[test]
fn each_timeout_has_its_published_default_and_is_over_one_millisecond_after_it() {
    assert_eq!(Policy::default().turn.timeout, Limit(Some(secs(1800))));
    for (state, millis, reason) in TIMEOUTS {
        let (limit, why) = deadline(&in_state(state), &Timeouts::default()).expect("a timeout");
        assert_eq!((limit, why), (at(millis), reason), "{state}");
        let over = [-1, 0, 1].map(|later| is_over(limit, at(millis + later)));
        assert_eq!(over, [false, false, true], "{state} just before, at and just after its limit");
    }
}

#[test]
fn a_state_without_a_row_never_times_out() {
    let with_row: Vec<ExecutionState> = TIMEOUTS.iter().map(|(state, ..)| *state).collect();
    let without = ExecutionState::ALL.iter().filter(|state| !with_row.contains(state));
    assert_eq!(without.clone().count(), 7);
    for state in without {
        assert_eq!(deadline(&in_state(*state), &Timeouts::default()), None, "{state}");
    }
}

#[test]
fn each_timeout_has_its_own_key_in_the_policy() {
    let timeouts = Timeouts {
        init: Limit(Some(secs(1))),
        resources: Limit(Some(secs(2))),
        suspend: Limit(Some(secs(3))),
        recovery: Limit(Some(secs(4))),
        shutdown: secs(5),
        hook: Some(Limit(Some(secs(6)))),
    };
    for ((state, _, reason), expected) in TIMEOUTS.iter().zip(1..) {
        let limit = now().after(secs(expected));
        assert_eq!(deadline(&in_state(*state), &timeouts), Some((limit, *reason)), "{state}");
    }
}

#[test]
fn a_disabled_timeout_never_ends_its_state() {
    let none = Limit(None);
    let timeouts =
        Timeouts { init: none, resources: none, suspend: none, recovery: none, ..Timeouts::default() };
    for (state, ..) in TIMEOUTS {
        let found = deadline(&in_state(state), &timeouts).map(|(_, reason)| reason);
        let expected = (state == ExecutionState::ShuttingDown).then_some("shutdown_timeout");
        assert_eq!(found, expected, "{state}");
    }
}

fn policy(text: &str) -> Result<Policy, String> {
    let policy: Policy = toml::from_str(text).map_err(|error| error.to_string())?;
    policy.check()?;
    Ok(policy)
}

#[test]
fn zero_and_never_disable_a_timeout() {
    for off in ["0", "\"0\"", "\"0s\"", "\"never\""] {
        let text = format!(
            "[timeouts]\ninit = {off}\nresources = {off}\nsuspend = {off}\nrecovery = {off}\nhook = {off}\n\
             [turn]\ntimeout = {off}\n"
        );
        let policy = policy(&text).unwrap_or_else(|error| panic!("{off}: {error}"));
        let none = Limit(None);
        let all_off = Timeouts {
            init: none,
            resources: none,
            suspend: none,
            recovery: none,
            hook: Some(none),
            shutdown: secs(30),
        };
        assert_eq!(policy.timeouts, all_off, "{off}");
        assert_eq!(policy.turn.timeout, none, "{off}");
    }
}

#[test]
fn the_shutdown_timeout_can_not_be_disabled() {
    for off in ["0", "\"0\"", "\"0s\"", "\"never\""] {
        let refused = policy(&format!("[timeouts]\nshutdown = {off}\n"));
        assert!(refused.is_err(), "shutdown = {off} was taken");
    }
    let set = policy("[timeouts]\nshutdown = \"5s\"\n").expect("a shorter one is fine");
    assert_eq!(set.timeouts.shutdown, secs(5));
}

#[test]
fn a_hook_has_its_own_timeout_or_the_timeout_of_the_state_that_waits_for_it() {
    let limit = |seconds: Option<u64>| Limit(seconds.map(secs));
    let rows = [
        (None, None, Some(30)),
        // A hook without its own timeout gets the timeout (120 s) of the state that waits for it.
        (None, Some(Some(120)), Some(120)),
        (None, Some(None), None),
        (Some(Some(5)), None, Some(5)),
        (Some(None), None, None),
        (Some(Some(5)), Some(Some(120)), Some(5)),
        (Some(Some(500)), Some(Some(120)), Some(120)),
        (Some(None), Some(Some(120)), Some(120)),
    ];
    for (own, of_state, expected) in rows {
        let timeouts = Timeouts { hook: own.map(limit), ..Timeouts::default() };
        assert_eq!(timeouts.of_hook(of_state.map(limit)), limit(expected), "{own:?} {of_state:?}");
    }
}
