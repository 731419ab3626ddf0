//! Tests of an agent's lock, and of changes by the holder of the lock.

use std::sync::atomic::AtomicBool;
use std::time::Instant;

use super::*;
use crate::error::Status;
use crate::model::record::Plane;

#[test]
fn an_agent_has_one_lock() {
    needs!("postgresql");
    let (_fresh, [_store, other], [agent, theirs]) = in_two_stores();
    let mine = hold(&agent);
    assert!(theirs.lock(Duration::ZERO).unwrap().is_none());
    let since = Instant::now();
    assert!(theirs.lock(Duration::from_millis(200)).unwrap().is_none());
    assert!(since.elapsed() >= Duration::from_millis(190));
    // Arrivals do not wait for the lock.
    theirs.arrive(&[message(1)]).unwrap();
    assert_eq!(theirs.read_view().unwrap().messages(1).unwrap().len(), 1);
    assert!(create(&other, "b").lock(Duration::ZERO).unwrap().is_some());
    drop(mine);
    assert!(theirs.lock(Duration::ZERO).unwrap().is_some());
}

#[test]
fn a_process_that_waited_for_the_lock_sees_the_latest_changes() {
    needs!("postgresql");
    let (fresh, _store, agent) = in_a_store();
    let mine = hold(&agent);
    let (seen, waited) = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let theirs = agent_of(&fresh.open(), "a");
            let theirs = hold(&theirs);
            let seen = theirs.now().unwrap();
            (seen.state().unwrap() + &seen.open_one(Plane::Work, "w").unwrap().unwrap(), theirs.take_wait())
        });
        std::thread::sleep(Duration::from_millis(300));
        let open = Op::Open { plane: Plane::Work, id: "w".into(), text: "5".into() };
        mine.commit(1, &[state(2), open]).unwrap();
        drop(mine);
        waiting.join().unwrap()
    });
    assert_eq!(seen, "{\"revision\":2}\n5");
    assert!(waited >= Some(Duration::from_millis(200)), "{waited:?}");
}

#[test]
fn a_change_of_another_revision_is_refused() {
    needs!("postgresql");
    let (fresh, [_store, _other], [agent, theirs]) = in_two_stores();
    let mine = hold(&agent);
    assert_eq!(mine.commit(0, &[state(1)]).unwrap_err().kind(), "stale_revision");
    mine.commit(1, &[state(2)]).unwrap();
    // A change ends the transaction, so another process may change the agent after it.
    hold(&theirs).commit(2, &[state(3)]).unwrap();
    let error = mine.commit(2, &[state(3), event(9)]).unwrap_err();
    assert_eq!((error.kind(), error.exit_status()), ("stale_revision", Status::Busy));
    mine.commit(3, &[state(4)]).unwrap();
    assert_eq!(mine.now().unwrap().state().unwrap(), "{\"revision\":4}\n");
    drop(mine);
    assert_eq!((revision(&theirs), fresh.count("event")), (4, 1));
}

#[test]
fn a_change_takes_place_whole_or_not_at_all() {
    needs!("postgresql");
    let (fresh, _store, agent) = in_a_store();
    let mine = hold(&agent);
    // The second event has invalid JSON, so the server refuses it.
    let torn = Op::Event { seq: 3, at: at(3), text: "{torn".to_owned() };
    assert!(mine.commit(1, &[state(2), event(2), ended(1), torn]).is_err());
    mine.commit(1, &[state(2), event(2)]).unwrap();
    drop(mine);
    assert_eq!((revision(&agent), fresh.count("event"), fresh.count("archive")), (2, 2, 0));
}

/// A process that closes the inbox sees each acknowledged arrival, and none arrives later.
#[test]
fn a_process_that_closes_the_inbox_sees_every_acknowledged_arrival() {
    needs!("postgresql");
    let (fresh, _store, agent) = in_a_store();
    for round in 0..10u64 {
        let (begun, goes_on) = (AtomicU32::new(0), AtomicBool::new(true));
        let (acknowledged, seen) = std::thread::scope(|scope| {
            let producers: Vec<_> = (0..3u128)
                .map(|producer| {
                    let (fresh, begun, goes_on) = (&fresh, &begun, &goes_on);
                    scope.spawn(move || {
                        let agent = agent_of(&fresh.open(), "a");
                        let mut acknowledged = Vec::new();
                        while goes_on.load(Ordering::SeqCst) {
                            let number = u128::from(begun.fetch_add(1, Ordering::SeqCst));
                            let number = (u128::from(round) * 10 + producer) * 1_000_000 + number;
                            if !agent.arrive(&[message(number)]).unwrap() {
                                break;
                            }
                            acknowledged.push(id(number));
                        }
                        acknowledged
                    })
                })
                .collect();
            while begun.load(Ordering::SeqCst) < 30 {
                std::thread::yield_now();
            }
            let mine = hold(&agent);
            let revision = 2 + round * 2;
            mine.commit(revision - 1, &[Op::InboxClosed(true), state(revision)]).unwrap();
            let seen = mine.now().unwrap().messages(usize::MAX).unwrap();
            goes_on.store(false, Ordering::SeqCst);
            let acknowledged: Vec<_> = producers.into_iter().flat_map(|one| one.join().unwrap()).collect();
            let after = mine.now().unwrap().messages(usize::MAX).unwrap();
            assert_eq!(seen, after, "nothing comes any more");
            let mut ops: Vec<Op> = seen.iter().map(|key| Op::MessageTaken(*key)).collect();
            ops.extend([Op::InboxClosed(false), state(revision + 1)]);
            mine.commit(revision, &ops).unwrap();
            (acknowledged, seen)
        });
        let mut seen: Vec<_> = seen.iter().map(|key| key.id).collect();
        seen.sort_unstable();
        let mut acknowledged = acknowledged;
        acknowledged.sort_unstable();
        assert_eq!(seen, acknowledged);
    }
    assert!(agent.arrive(&[message(1)]).unwrap(), "the inbox is open again");
}

#[test]
fn an_agent_is_copied_with_all_its_records_in_order() {
    needs!("postgresql");
    let (_fresh, _store, agent) = in_a_store();
    let mut made: Vec<Op> = (1..=150).map(ended).collect();
    // The events of a clone may have equal numbers, and numbers out of order.
    made.extend([7, 9, 8, 8].map(event));
    made.extend(
        (1..=70).map(|number| Op::Plan { work: format!("w'{number:03}"), text: format!("{number}\0") }),
    );
    made.extend((1..=70).map(|number| Op::Arrived(message(number))));
    made.push(state(2));
    hold(&agent).commit(1, &made).unwrap();
    let told = copied(&agent);
    let of = |told: &[Op], is: fn(&Op) -> bool| told.iter().filter(|op| is(op)).cloned().collect::<Vec<_>>();
    let mut events = vec![event(1)];
    events.extend([7, 9, 8, 8].map(event));
    assert_eq!(of(&told, |op| matches!(op, Op::Event { .. })), events);
    for is in [
        (|op| matches!(op, Op::Ended { .. })) as fn(&Op) -> bool,
        |op| matches!(op, Op::Plan { .. }),
        |op| matches!(op, Op::Arrived(_)),
    ] {
        assert_eq!(of(&told, is), of(&made, is));
    }
}

#[test]
fn concurrent_arrivals_are_neither_lost_nor_repeated() {
    needs!("postgresql");
    let (fresh, _store, agent) = in_a_store();
    std::thread::scope(|scope| {
        for producer in 0..3u128 {
            let fresh = &fresh;
            scope.spawn(move || {
                let agent = agent_of(&fresh.open(), "a");
                for number in 0..60 {
                    agent.arrive(&[message(producer * 1000 + number)]).unwrap();
                }
            });
        }
        for revision in 2..40 {
            let mine = hold(&agent);
            let seen = mine.now().unwrap();
            let mut ops = vec![state(revision)];
            for key in seen.messages(3).unwrap() {
                ops.extend([Op::MessageTaken(key), ended(key.id.0.as_u128())]);
            }
            mine.commit(revision - 1, &ops).unwrap();
        }
    });
    let ended = all_ended(&agent, "message");
    let left = agent.read_view().unwrap().messages(usize::MAX).unwrap();
    assert_eq!(ended.len() + left.len(), 180);
    assert_eq!(ended.iter().collect::<std::collections::BTreeSet<_>>().len(), ended.len());
}

#[test]
fn a_message_is_requeued_with_another_priority() {
    needs!("postgresql");
    let (_fresh, _store, agent) = in_a_store();
    agent.arrive(&[message(1), Arrival::Hint { id: id(1), text: "1".into() }]).unwrap();
    let mine = hold(&agent);
    let back = Arrival::Message { key: key(Priority::Interject, 1), text: "2".into() };
    mine.commit(1, &[state(2), Op::Arrived(back), Op::HintTaken(id(1))]).unwrap();
    let seen = mine.now().unwrap();
    assert_eq!(seen.messages(9).unwrap(), [key(Priority::Interject, 1)]);
    assert!(seen.hints().unwrap().is_empty());
}

#[test]
fn old_dedupe_keys_are_deleted_under_the_lock() {
    needs!("postgresql");
    let (fresh, _store, agent) = in_a_store();
    let mine = hold(&agent);
    let key = |key: &str, millis| Op::Key { key: key.into(), admitted_at: at(millis), text: "1".into() };
    mine.commit(1, &[state(2), key("old", 1), key("new", 2)]).unwrap();
    mine.commit(2, &[state(3), Op::KeysForgotten(at(2))]).unwrap();
    let seen = mine.now().unwrap();
    assert_eq!(seen.key("old", always()).unwrap(), None);
    assert!(seen.key("new", always()).unwrap().is_some());
    drop(seen);
    drop(mine);
    assert_eq!(fresh.count("dedupe"), 1);
}

#[test]
fn settings_and_identity_are_replaced_and_an_agent_is_removed() {
    needs!("postgresql");
    let (fresh, store, agent) = in_a_store();
    create(&store, "b");
    agent.arrive(&[message(1)]).unwrap();
    let mine = hold(&agent);
    mine.put(Op::Policy(Settings::of("x = 'ä'\n".to_owned()))).unwrap();
    mine.put(Op::Identity("{\"name\":\"c\"}\n".to_owned())).unwrap();
    assert_eq!(agent.policy().unwrap(), "x = 'ä'\n");
    let again = agent_of(&fresh.open(), "a");
    assert_eq!(
        (again.policy().unwrap(), again.identity().unwrap()),
        ("x = 'ä'\n".into(), "{\"name\":\"c\"}\n".into())
    );
    mine.remove().unwrap();
    drop(mine);
    assert!(store.agent(&name("a")).unwrap().is_none());
    for table in ["agent", "state", "event"] {
        assert_eq!(fresh.count(table), 1, "{table}");
    }
    assert_eq!(fresh.count("inbox"), 0);
    for error in [
        agent.state().unwrap_err(),
        agent.read_view().unwrap_err(),
        agent.arrive(&[message(2)]).unwrap_err(),
        agent.lock(PATIENCE).unwrap_err(),
    ] {
        assert!(error.has_left(), "{error}");
    }
}
