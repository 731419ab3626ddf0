//! The lock, and what is changed under it.

use std::time::Instant;

use super::*;
use crate::error::Status;
use crate::model::record::Plane;

#[test]
fn an_agent_has_one_lock() {
    let fresh = Fresh::made();
    let (store, other) = (fresh.open(), fresh.open());
    let agent = create(&store, "a");
    let theirs = agent_of(&other, "a");
    let mine = hold(&agent);
    assert!(theirs.hold(Duration::ZERO).unwrap().is_none());
    let since = Instant::now();
    assert!(theirs.hold(Duration::from_millis(200)).unwrap().is_none());
    assert!(since.elapsed() >= Duration::from_millis(190));
    // Nothing else waits for it.
    theirs.arrive(&[message(1)]).unwrap();
    assert_eq!(theirs.see().unwrap().messages(1).unwrap().len(), 1);
    assert!(create(&other, "b").hold(Duration::ZERO).unwrap().is_some());
    drop(mine);
    assert!(theirs.hold(Duration::ZERO).unwrap().is_some());
}

#[test]
fn whoever_waited_sees_what_was_changed_meanwhile() {
    let fresh = Fresh::made();
    let store = fresh.open();
    let agent = create(&store, "a");
    let mine = hold(&agent);
    let (seen, waited) = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let theirs = agent_of(&fresh.open(), "a");
            let theirs = hold(&theirs);
            let seen = theirs.now().unwrap();
            (seen.state().unwrap() + &seen.open(Plane::Work).unwrap().concat(), theirs.waited())
        });
        std::thread::sleep(Duration::from_millis(300));
        let open = Piece::Open { plane: Plane::Work, id: "w".into(), text: "5".into() };
        mine.commit(1, &[state(2), open]).unwrap();
        drop(mine);
        waiting.join().unwrap()
    });
    assert_eq!(seen, "{\"revision\":2}\n5");
    assert!(waited >= Duration::from_millis(200), "{waited:?}");
}

#[test]
fn a_change_of_another_revision_is_refused() {
    let fresh = Fresh::made();
    let (store, other) = (fresh.open(), fresh.open());
    let agent = create(&store, "a");
    let theirs = agent_of(&other, "a");
    let mine = hold(&agent);
    assert_eq!(mine.commit(0, &[state(1)]).unwrap_err().kind(), "stale_revision");
    mine.commit(1, &[state(2)]).unwrap();
    // A change ends the transaction; another may come between.
    hold(&theirs).commit(2, &[state(3)]).unwrap();
    let error = mine.commit(2, &[state(3), event(9)]).unwrap_err();
    assert_eq!((error.kind(), error.exit_status()), ("stale_revision", Status::Refused));
    mine.commit(3, &[state(4)]).unwrap();
    assert_eq!(mine.now().unwrap().state().unwrap(), "{\"revision\":4}\n");
    drop(mine);
    assert_eq!((theirs.version(), fresh.count("event")), (Some(4), 1));
}

#[test]
fn a_change_takes_place_whole_or_not_at_all() {
    let fresh = Fresh::made();
    let store = fresh.open();
    let agent = create(&store, "a");
    let mine = hold(&agent);
    // The second line of this number can't be written.
    assert!(mine.commit(1, &[state(2), event(2), ended(1), event(1), event(1)]).is_err());
    mine.commit(1, &[state(2), event(2)]).unwrap();
    drop(mine);
    assert_eq!((agent.version(), fresh.count("event"), fresh.count("archive")), (Some(2), 2, 0));
}

#[test]
fn arrivals_under_way_are_neither_lost_nor_waited_for() {
    let fresh = Fresh::made();
    let store = fresh.open();
    let agent = create(&store, "a");
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
            let mut pieces = vec![state(revision)];
            for key in seen.messages(3).unwrap() {
                pieces.extend([Piece::Taken(key), ended(key.id.0.as_u128())]);
            }
            mine.commit(revision - 1, &pieces).unwrap();
        }
    });
    let ended = all_ended(&agent, "message");
    let left = agent.see().unwrap().messages(usize::MAX).unwrap();
    assert_eq!(ended.len() + left.len(), 180);
    assert_eq!(ended.iter().collect::<std::collections::BTreeSet<_>>().len(), ended.len());
}

#[test]
fn a_message_comes_back_to_another_place() {
    let fresh = Fresh::made();
    let store = fresh.open();
    let agent = create(&store, "a");
    agent.arrive(&[message(1), Arrival::Hint { id: id(1), text: "1".into() }]).unwrap();
    let mine = hold(&agent);
    let back = Arrival::Message { key: key(Priority::Interject, 1), text: "2".into() };
    mine.commit(1, &[state(2), Piece::Arrived(back), Piece::Heard(id(1))]).unwrap();
    let seen = mine.now().unwrap();
    assert_eq!(seen.messages(9).unwrap(), [key(Priority::Interject, 1)]);
    assert!(seen.hints().unwrap().is_empty());
}

#[test]
fn old_keys_are_forgotten_under_the_lock() {
    let fresh = Fresh::made();
    let store = fresh.open();
    let agent = create(&store, "a");
    let mine = hold(&agent);
    let key = |key: &str, millis| Piece::Key { key: key.into(), admitted_at: at(millis), text: "1".into() };
    mine.commit(1, &[state(2), key("old", 1), key("new", 2)]).unwrap();
    mine.forget_keys(at(2)).unwrap();
    let seen = mine.now().unwrap();
    assert_eq!(seen.key("old").unwrap(), None);
    assert!(seen.key("new").unwrap().is_some());
    drop(mine);
    assert_eq!(fresh.count("dedupe"), 1);
}

#[test]
fn settings_and_identity_are_replaced_and_an_agent_is_removed() {
    let fresh = Fresh::made();
    let store = fresh.open();
    let agent = create(&store, "a");
    create(&store, "b");
    agent.arrive(&[message(1)]).unwrap();
    let mine = hold(&agent);
    mine.replace_policy("x = 'ä'\n").unwrap();
    mine.replace_identity("{\"name\":\"c\"}\n").unwrap();
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
        agent.see().unwrap_err(),
        agent.arrive(&[message(2)]).unwrap_err(),
        agent.hold(PATIENCE).unwrap_err(),
    ] {
        assert!(error.has_left(), "{error}");
    }
}
