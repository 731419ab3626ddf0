//! Tests that a broken connection loses no change and repeats none: each scenario runs
//! twice for each of its round trips. The connection breaks before the server gets the round trip,
//! and after.

use super::super::super::backend::{Beat, PART, parts};
use super::super::statements::arrive;
use super::leases::lease_of;
use super::proxy::{Cut, Proxy};
use super::*;
use crate::error::Status;
use crate::model::id::RunId;
use crate::model::preemption::Checkpoint;
use crate::model::record::Plane;

/// Runs a scenario without a loss, and then twice for each round trip, which is cut before and
/// after the server gets it. Returns the number of round trips.
fn everywhere(scenario: impl Fn(&Postgres, &Fresh), check: impl Fn(&Fresh, &str)) -> usize {
    let fresh = Fresh::made();
    let proxy = Proxy::start(None);
    let store = Postgres::open(proxy.url(&fresh), PATIENCE);
    scenario(&store, &fresh);
    drop(store);
    check(&fresh, "no cut");
    let trips = proxy.trips();
    for number in 1..=trips {
        for cut in [Cut::Before(number), Cut::After(number)] {
            let fresh = Fresh::made();
            let proxy = Proxy::start(Some(cut));
            let store = Postgres::open(proxy.url(&fresh), PATIENCE);
            scenario(&store, &fresh);
            drop(store);
            check(&fresh, &format!("{cut:?}"));
            assert!(proxy.trips() >= number, "{cut:?}");
        }
    }
    trips
}

#[test]
fn arrivals_happen_once_over_a_broken_connection() {
    needs!("postgresql");
    let trips = everywhere(
        |store, fresh| {
            create(&fresh.open(), "a");
            let agent = agent_of(store, "a");
            agent.arrive(&[message(1), message(2), Arrival::Hint { id: id(9), text: "1".into() }]).unwrap();
            agent.arrive(&[message(3)]).unwrap();
        },
        |fresh, cut| assert_eq!(fresh.count("inbox"), 4, "{cut}"),
    );
    assert_eq!(trips, 3, "one to find the agent, and one for each arrival");
}

#[test]
fn deliveries_happen_once_over_a_broken_connection() {
    needs!("postgresql");
    let trips = everywhere(
        |store, fresh| {
            hold(&create(&fresh.open(), "a")).put(Op::Policy(Settings::default())).unwrap();
            for number in 1..4 {
                assert!(store.deliver(&name("a"), &message(number), 1, 1).unwrap().is_some());
            }
        },
        |fresh, cut| assert_eq!(fresh.count("inbox"), 3, "{cut}"),
    );
    assert_eq!(trips, 3, "one for each");
}

#[test]
fn a_repeated_arrival_does_not_restore_an_ended_message() {
    needs!("postgresql");
    let fresh = Fresh::made();
    create(&fresh.open(), "a");
    let agent = agent_of(&fresh.open(), "a");
    agent.arrive(&[message(1), message(2)]).unwrap();
    let taken = [state(2), Op::MessageTaken(key(Priority::Normal, 1)), ended(1)];
    hold(&agent).commit(1, &taken).unwrap();
    let pool = super::super::pool::ConnectionPool::new(fresh.url.clone(), PATIENCE);
    let id: i64 = fresh.run("SELECT id FROM @.agent")[0].parse().unwrap();
    let arrivals = [message(1), message(2), message(3)];
    let again = arrive((Some(id), &name("a")), &arrivals, None, None, Some(false));
    pool.ask(&[again]).unwrap();
    assert_eq!(fresh.count("inbox"), 2);
}

/// The limit of a trigger's uses also holds if answers of the server are lost.
#[test]
fn trigger_uses_stay_within_the_limit_over_a_broken_connection() {
    needs!("postgresql");
    everywhere(
        |store, fresh| {
            create(&fresh.open(), "a");
            let agent = agent_of(store, "a");
            let used = (0..4).filter(|_| super::triggers::is_used(&agent, 3)).count();
            assert!((2..=3).contains(&used), "{used}");
            assert!(!super::triggers::is_used(&agent, 3));
        },
        |fresh, cut| assert_eq!(fresh.run("SELECT times FROM @.trigger_use"), ["3"], "{cut}"),
    );
}

#[test]
fn an_agent_is_created_once_over_a_broken_connection() {
    needs!("postgresql");
    everywhere(
        |store, _| {
            create(store, "a");
        },
        |fresh, cut| {
            assert_eq!(
                (fresh.count("agent"), fresh.count("state"), fresh.count("event")),
                (1, 1, 1),
                "{cut}"
            );
        },
    );
}

#[test]
fn changes_happen_once_over_a_broken_connection() {
    needs!("postgresql");
    let trips = everywhere(
        |store, fresh| {
            create(&fresh.open(), "a").arrive(&[message(1)]).unwrap();
            let agent = agent_of(store, "a");
            for revision in 2..4 {
                let open = Op::Open { plane: Plane::Work, id: format!("w{revision}"), text: "1".into() };
                let lock = hold(&agent);
                lock.commit(revision - 1, &[state(revision), event(revision), ended(revision.into()), open])
                    .unwrap();
            }
            let lock = hold(&agent);
            lock.commit(3, &[state(4), Op::MessageTaken(key(Priority::Normal, 1)), event(4)]).unwrap();
            lock.commit(4, &[state(5), event(5)]).unwrap();
            drop(lock);
            hold(&agent).put(Op::Policy(Settings::of("y".to_owned()))).unwrap();
        },
        |fresh, cut| {
            assert_eq!(fresh.run("SELECT revision FROM @.state"), ["5"], "{cut}");
            let counts = ["event", "archive", "record", "inbox"].map(|table| fresh.count(table));
            assert_eq!(counts, [5, 2, 2, 0], "{cut}");
            assert_eq!(fresh.run("SELECT policy FROM @.agent"), ["y"], "{cut}");
        },
    );
    assert_eq!(trips, 1 + 5 * 2, "one to find the agent, and two for each change");
}

/// A loss is also handled on a connection that is not new: it has served nine queries.
#[test]
fn changes_happen_once_over_a_broken_old_connection() {
    needs!("postgresql");
    let trips = everywhere(
        |store, fresh| {
            create(&fresh.open(), "a").arrive(&[message(1)]).unwrap();
            for _ in 0..9 {
                store.agents("").unwrap();
            }
            let agent = agent_of(store, "a");
            let lock = hold(&agent);
            let lease = lease_of(&agent, "one").expect("free");
            lock.commit(1, &[state(2), event(2)]).unwrap();
            drop(lock);
            let lock = hold(&agent);
            lease.release_along();
            lock.commit(2, &[state(3), Op::MessageTaken(key(Priority::Normal, 1)), event(3), ended(1)])
                .unwrap();
        },
        |fresh, cut| {
            let counts = ["event", "archive", "inbox", "lease"].map(|table| fresh.count(table));
            assert_eq!(counts, [3, 1, 0, 0], "{cut}");
            assert_eq!(fresh.run("SELECT revision || ' ' || (fence > 0) FROM @.state"), ["3 true"], "{cut}");
        },
    );
    assert_eq!(trips, 14, "two for each change");
}

/// A change that needs several round trips is atomic.
#[test]
fn a_change_of_several_round_trips_is_atomic() {
    needs!("postgresql");
    let bytes = vec![7; PART + PART / 2];
    let trips = everywhere(
        |store, fresh| {
            create(&fresh.open(), "a");
            let lock = hold(&agent_of(store, "a"));
            let mut ops: Vec<Op> = vec![event(2)];
            ops.extend(parts(Checkpoint { run_id: RunId(id(1).0), number: 1 }, &bytes));
            ops.push(state(2));
            lock.commit(1, &ops).unwrap();
        },
        |fresh, cut| {
            let found = fresh.run("SELECT string_agg(length(bytes)::text, ' ' ORDER BY part) FROM @.blob");
            assert_eq!((found[0].as_str(), fresh.count("event")), ("1048576 524288", 2), "{cut}");
            assert_eq!(fresh.run("SELECT revision FROM @.state"), ["2"], "{cut}");
        },
    );
    assert_eq!(trips, 5, "one to find the agent, one for its lock, and three for the change");
}

#[test]
fn leases_and_fences_stay_consistent_over_a_broken_connection() {
    needs!("postgresql");
    let trips = everywhere(
        |store, fresh| {
            create(&fresh.open(), "a");
            let agent = agent_of(store, "a");
            let lease = lease_of(&agent, "one").expect("free");
            assert_eq!(lease.beat(), Beat::Held { revision: 1 });
            lease.release().unwrap();
            let lock = hold(&agent);
            let lease = lease_of(&agent, "one").expect("free");
            lock.commit(1, &[state(2)]).unwrap();
            drop(lock);
            assert_eq!(lease.beat(), Beat::Held { revision: 2 });
            hold(&agent).commit(2, &[state(3)]).unwrap();
            lease.release().unwrap();
            let lease = lease_of(&agent, "one").expect("free");
            std::mem::forget(lease);
        },
        |fresh, cut| {
            assert_eq!(
                (fresh.count("lease"), fresh.run("SELECT revision FROM @.state")),
                (1, vec!["3".to_owned()]),
                "{cut}"
            );
            assert_eq!(
                fresh.run("SELECT l.fence = s.fence AND s.fence BETWEEN 3 AND 4 FROM @.lease l, @.state s"),
                ["t"],
                "{cut}"
            );
        },
    );
    assert_eq!(trips, 11, "find; lease, beat, release; claim 2, beat, settle 2, release, and one more lease");
}

/// Operations that create an agent in several round trips.
fn large(number: u128) -> Vec<Op> {
    let mut ops = vec![Op::Identity("{}".to_owned()), Op::Policy(Settings::of("x".to_owned())), state(7)];
    ops.extend((1..=3).map(|part| Op::Open {
        plane: Plane::Work,
        id: format!("work {part} of {number}"),
        text: format!("{{\"of\": \"{}\"}}\n", "x".repeat(700_000)),
    }));
    ops.extend([ended(number), Op::Arrived(message(number)), event(3), event(3), Op::InboxClosed(false)]);
    ops
}

#[test]
fn a_large_agent_is_created_once_over_a_broken_connection() {
    needs!("postgresql");
    let trips = everywhere(
        |store, _| {
            assert!(store.create(&name("a"), &each_of(&large(1))).unwrap());
            assert!(!store.create(&name("a"), &each_of(&large(2))).unwrap());
        },
        |fresh, cut| {
            let counts = ["agent", "record", "archive", "inbox", "event"].map(|table| fresh.count(table));
            assert_eq!(counts, [1, 3, 1, 1, 2], "{cut}");
        },
    );
    assert_eq!(trips, 5, "begun, two of the ops with the end, and begun and ended in vain");
}

#[test]
fn an_agent_is_replaced_once_over_a_broken_connection() {
    needs!("postgresql");
    everywhere(
        |store, fresh| {
            let before = create(&fresh.open(), "a");
            before.arrive(&[message(9)]).unwrap();
            hold(&before).commit(1, &[Op::InboxClosed(true), state(2), ended(8), event(2)]).unwrap();
            let mine = agent_of(store, "a");
            let lock = hold(&mine);
            lock.replace(2, &each_of(&large(1))).unwrap();
            assert!(lock.replace(2, &each_of(&large(2))).is_err(), "it is another revision now");
        },
        |fresh, cut| {
            let counts = ["agent", "record", "archive", "inbox", "event"].map(|table| fresh.count(table));
            assert_eq!(counts, [1, 3, 1, 1, 2], "{cut}");
            let agent = agent_of(&fresh.open(), "a");
            assert_eq!(revision(&agent), 7, "{cut}");
            assert!(agent.arrive(&[message(2)]).unwrap(), "{cut}: it is open again");
        },
    );
}

/// Ends the transaction that has an agent's lock, as a network failure does.
fn break_lock(fresh: &Fresh) {
    let ended = fresh.run(&format!(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE state = 'idle in transaction' AND query LIKE '%{}%'",
        fresh.schema
    ));
    assert_eq!(ended, ["t"]);
}

#[test]
fn a_pending_lease_of_a_broken_lock_never_overwrites_another_lease() {
    needs!("postgresql");
    let fresh = Fresh::made();
    create(&fresh.open(), "a");
    let (one, other) = (fresh.open(), fresh.open());
    let (mine, theirs) = (agent_of(&one, "a"), agent_of(&other, "a"));
    for is_committed in [true, false] {
        let lock = hold(&mine);
        let given = lease_of(&mine, "one").expect("free");
        break_lock(&fresh);
        let taken = lease_of(&theirs, "other").expect("free");
        if is_committed {
            let error = lock.commit(1, &[state(2)]).unwrap_err();
            assert_eq!(error.exit_status(), Status::Busy, "{error}");
        }
        // Dropping the lost lock must not replace the other machine's lease by the unwritten one.
        drop(lock);
        assert_eq!(given.beat(), Beat::Lost);
        assert_eq!(taken.beat(), Beat::Held { revision: 1 });
        taken.release().unwrap();
    }
}

#[test]
fn a_query_under_a_broken_lock_is_retried_unless_the_agent_changed() {
    needs!("postgresql");
    let fresh = Fresh::made();
    create(&fresh.open(), "a");
    let (one, other) = (fresh.open(), fresh.open());
    let agent = agent_of(&one, "a");
    let lock = hold(&agent);
    break_lock(&fresh);
    assert_eq!(lock.now().unwrap().key("k", always()).unwrap(), None);
    lock.commit(1, &[state(2)]).unwrap();
    drop(lock);
    let lock = hold(&agent);
    break_lock(&fresh);
    hold(&agent_of(&other, "a")).commit(2, &[state(3)]).unwrap();
    let error = lock.now().unwrap().key("k", always()).unwrap_err();
    assert_eq!((error.kind(), error.exit_status()), ("stale_revision", Status::Busy));
}
