//! Tests of triggers: the keys of their signatures, and the limits of their uses.

use std::num::NonZeroU32;
use std::sync::atomic::AtomicU32;

use super::*;
use crate::model::digest::sha256;
use crate::model::id::TriggerId;
use crate::model::record::Plane;

const TRIGGER: TriggerId = TriggerId(Uuid::from_u128(7));

fn open() -> Op {
    Op::Open { plane: Plane::Triggers, id: TRIGGER.to_string(), text: "{}\n".to_owned() }
}

fn kept(key: &str) -> Op {
    Op::TriggerKey { trigger: TRIGGER, digest: sha256(key.as_bytes()), key: key.as_bytes().to_vec() }
}

fn has(agent: &Rc<dyn RemoteRecords + '_>, key: &str) -> bool {
    let digest = sha256(key.as_bytes());
    let found = agent.trigger_key(TRIGGER, &digest).unwrap();
    assert_eq!(agent.has_trigger_key(TRIGGER, &digest).unwrap(), found.is_some());
    assert!(found.as_ref().is_none_or(|found| found == key.as_bytes()));
    found.is_some()
}

#[test]
fn a_trigger_key_is_written_and_deleted_with_its_trigger() {
    needs!("postgresql");
    let (fresh, _store, agent) = in_a_store();
    let mine = hold(&agent);
    // A change that fails writes no key.
    mine.commit(0, &[state(9), kept("lost")]).unwrap_err();
    assert!(!has(&agent, "lost"));
    mine.commit(1, &[state(2), open(), kept("first")]).unwrap();
    assert!(has(&agent, "first"));
    mine.commit(2, &[state(3), open(), kept("second")]).unwrap();
    assert!(!has(&agent, "first") && has(&agent, "second"));
    let told = copied(&agent);
    assert!(told.contains(&open()));
    assert!(!told.iter().any(|op| matches!(op, Op::TriggerKey { .. })), "none is in a stream");
    // The key is deleted with its trigger, and with the contents of the agent.
    mine.commit(3, &[state(4), Op::Closed { plane: Plane::Triggers, id: TRIGGER.to_string() }]).unwrap();
    assert_eq!(fresh.count("trigger_key"), 0);
    mine.commit(4, &[state(5), open(), kept("third")]).unwrap();
    mine.now().unwrap();
    mine.replace(5, &each_of(&[state(6), open()])).unwrap();
    assert_eq!(fresh.count("trigger_key"), 0);
    mine.commit(6, &[state(7), open(), kept("fourth")]).unwrap();
    mine.remove().unwrap();
    assert_eq!(fresh.count("trigger_key"), 0);
}

#[test]
fn a_renamed_agent_keeps_its_keys_and_its_former_name_is_unknown() {
    needs!("postgresql");
    let fresh = Fresh::made();
    let store = fresh.open();
    let (former, other) = (create(&store, "a"), create(&store, "b"));
    let mine = hold(&former);
    mine.commit(1, &[state(2), open(), kept("first")]).unwrap();
    mine.rename(&name("b")).unwrap_err();
    mine.rename(&name("c")).unwrap();
    drop(mine);
    assert!(has(&agent_of(&store, "c"), "first") && !has(&other, "first"));
    // A process that has found the agent by its former name can neither read nor change it.
    assert!(former.read_view().unwrap_err().has_left());
    assert!(former.lock(PATIENCE).unwrap_err().has_left());
    assert!(store.agent(&name("a")).unwrap().is_none());
    assert_eq!(fresh.count("trigger_key"), 1);
}

fn most(count: u32) -> NonZeroU32 {
    NonZeroU32::new(count).unwrap()
}

pub fn is_used(agent: &Rc<dyn RemoteRecords + '_>, limit: u32) -> bool {
    // The server's clock counts, so the time in the argument is ignored.
    match agent.use_trigger(TRIGGER, most(limit), at(0)).unwrap() {
        Ok(()) => true,
        Err(pause) => {
            assert!((1..=60_000).contains(&pause.as_millis()), "{pause}");
            false
        }
    }
}

#[test]
fn uses_are_counted_for_a_minute_over_all_machines() {
    needs!("postgresql");
    let (fresh, [_store, _other], [agent, theirs]) = in_two_stores();
    // The use of a trigger does not wait for the agent's lock.
    let mine = hold(&agent);
    assert!(is_used(&theirs, 2) && is_used(&agent, 2));
    assert!(!is_used(&theirs, 2) && !is_used(&agent, 2));
    drop(mine);
    // The limit is an argument of each use, and is not stored with the count.
    assert!(is_used(&theirs, 3) && !is_used(&agent, 2) && !is_used(&theirs, 3));
    let begun = |seconds: i64| {
        fresh.run(&format!("UPDATE @.trigger_use SET since = since - {seconds} * 1000"));
    };
    begun(30);
    assert!(!is_used(&agent, 3));
    begun(31);
    assert!(is_used(&agent, 1) && !is_used(&agent, 1));
    // A stored minute that begins in the future is from a wrong clock and must not block uses.
    begun(-3600);
    assert!(is_used(&agent, 1) && !is_used(&agent, 1));
    // Rows with values that only a manual change can write must cause no error.
    for row in ["since = 9223372036854775807", "since = -9223372036854775808", "times = 9223372036854775807"]
    {
        fresh.run(&format!("UPDATE @.trigger_use SET {row}"));
        is_used(&agent, 1);
    }
    begun(61);
    assert!(is_used(&agent, 1));
    // The change that deletes the trigger must also delete its count of uses.
    let mine = hold(&agent);
    mine.commit(1, &[state(2), open()]).unwrap();
    mine.commit(2, &[state(3), Op::Closed { plane: Plane::Triggers, id: TRIGGER.to_string() }]).unwrap();
    assert_eq!(fresh.count("trigger_use"), 0);
    // Uses of a moved agent's trigger are permitted without limit: the delivery is refused anyway.
    mine.commit(3, &[state(4), Op::InboxClosed(true)]).unwrap();
    assert!(is_used(&agent, 1) && is_used(&agent, 1));
    assert_eq!(fresh.count("trigger_use"), 0);
    mine.remove().unwrap();
    assert!(theirs.use_trigger(TRIGGER, most(1), at(0)).unwrap_err().has_left());
}

#[test]
fn concurrent_uses_of_a_trigger_stay_within_its_limit() {
    needs!("postgresql");
    let fresh = Fresh::made();
    create(&fresh.open(), "a");
    let (used, refused) = (AtomicU32::new(0), AtomicU32::new(0));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let agent = agent_of(&fresh.open(), "a");
                for _ in 0..15 {
                    let which = if is_used(&agent, 25) { &used } else { &refused };
                    which.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
    });
    assert_eq!((used.into_inner(), refused.into_inner()), (25, 35));
}
