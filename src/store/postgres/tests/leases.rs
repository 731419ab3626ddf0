//! Tests of leases and their fencing tokens.

use super::super::super::backend::{Beat, Claim, Lease};
use super::*;
use crate::error::Status;
use crate::local::{LeaseClaimant, Subject};
use crate::model::time::Span;

pub fn claimant(anchor: &str, lasts: Span) -> LeaseClaimant {
    LeaseClaimant { host: "host".into(), anchor: anchor.into(), pid: 1, lasts }
}

pub const MINUTE: Span = Span::from_secs(60);

/// Takes the lease of the current run for the machine `anchor`, unless another machine has it.
pub fn lease_of(agent: &Rc<dyn RemoteRecords + '_>, anchor: &str) -> Option<Box<dyn Lease>> {
    agent.lease(Subject::Run, &|| Ok(claimant(anchor, MINUTE))).unwrap()
}

/// True if another machine than `anchor` has the lease of the current run.
fn is_leased(agent: &Rc<dyn RemoteRecords + '_>, anchor: &str) -> bool {
    agent.is_leased(Subject::Run, &|| Ok(claimant(anchor, MINUTE))).unwrap() == Some(true)
}

#[test]
fn only_one_process_has_a_lease_at_a_time() {
    needs!("postgresql");
    let (_fresh, [_store, _other], [mine, theirs]) = in_two_stores();
    assert!(!is_leased(&theirs, "three"));
    let lease = lease_of(&mine, "one").expect("free");
    assert_eq!(lease.fence(), Some(1));
    assert!(is_leased(&theirs, "three"));
    assert!(!is_leased(&theirs, "one"), "its local lock tells of that one");
    assert!(lease_of(&theirs, "two").is_none());
    assert_eq!(lease.beat(), Beat::Held { revision: 1 });
    lease.release().unwrap();
    assert!(!is_leased(&theirs, "three"));
    let lease = lease_of(&theirs, "two").expect("free");
    assert_eq!(lease.fence(), Some(2), "a fence never comes again");
    // Dropping a lease keeps its row, because another process of this machine may use it.
    drop(lease);
    assert!(is_leased(&mine, "three"));
}

#[test]
fn a_lease_that_runs_out_is_taken_over_and_its_owner_is_fenced() {
    needs!("postgresql");
    let (_fresh, [_store, _other], [mine, theirs]) = in_two_stores();
    let short = Span::from_millis(200);
    let lease = mine.lease(Subject::Run, &|| Ok(claimant("one", short))).unwrap().expect("free");
    assert!(lease_of(&theirs, "two").is_none());
    std::thread::sleep(Duration::from_millis(250));
    // No other machine has taken over the expired lease, so a heartbeat renews it.
    assert_eq!(lease.beat(), Beat::Held { revision: 1 });
    hold(&mine).commit(1, &[state(2)]).unwrap();
    std::thread::sleep(Duration::from_millis(250));
    let taken = lease_of(&theirs, "two").expect("run out");
    assert_eq!(taken.fence(), Some(2));
    assert_eq!(lease.beat(), Beat::Lost);
    let error = hold(&mine).commit(2, &[state(3)]).unwrap_err();
    assert_eq!((error.kind(), error.exit_status()), ("fenced", Status::Busy));
    assert!(error.hint().unwrap().contains("output is kept"));
    assert_eq!(revision(&mine), 2);
    hold(&theirs).commit(2, &[state(3)]).unwrap();
    drop(lease);
    assert!(is_leased(&theirs, "three"), "a lost lease gives nothing back");
    hold(&mine).commit(3, &[state(4)]).unwrap();
}

#[test]
fn the_same_machine_takes_over_at_once() {
    needs!("postgresql");
    let (_fresh, [_store, _other], [mine, theirs]) = in_two_stores();
    let lease = lease_of(&mine, "one").expect("free");
    let again = lease_of(&theirs, "one").expect("the same machine");
    assert_eq!((again.fence(), lease.beat()), (Some(2), Beat::Lost));
}

#[test]
fn under_the_lock_a_lease_is_written_with_the_change() {
    needs!("postgresql");
    let (fresh, [_store, _other], [mine, theirs]) = in_two_stores();
    let lock = hold(&mine);
    let lease = lease_of(&mine, "one").expect("free");
    assert!(!is_leased(&theirs, "three"));
    lock.commit(1, &[state(2)]).unwrap();
    assert!(is_leased(&theirs, "three"));
    drop(lock);
    assert_eq!((lease.fence(), lease.beat()), (Some(1), Beat::Held { revision: 2 }));
    assert!(lease_of(&theirs, "two").is_none());
    {
        let task = "task_01890000000070008000000000000001".parse().unwrap();
        let lock = hold(&theirs);
        assert!(lease_of(&theirs, "two").is_none());
        let task = theirs.lease(Subject::Task(task), &|| Ok(claimant("two", MINUTE))).unwrap().expect("free");
        assert_eq!(task.fence(), Some(2));
        // Without a change, the lease is written when the lock is released.
        drop(lock);
        assert_eq!((task.beat(), fresh.count("lease")), (Beat::Held { revision: 2 }, 2));
    }
    lease.release().unwrap();
    assert_eq!(fresh.count("lease"), 1);
    let lock = hold(&mine);
    drop(lease_of(&mine, "one").expect("free"));
    drop(lock);
    assert_eq!((fresh.count("lease"), fresh.run("SELECT fence FROM @.state")), (1, vec!["2".to_owned()]));
}

#[test]
fn a_lease_is_released_together_with_a_change() {
    needs!("postgresql");
    let (fresh, [_store, _other], [mine, theirs]) = in_two_stores();
    let lease = lease_of(&mine, "one").expect("free");
    // Without the agent's lock, or if the next change fails, the following calls delete no lease.
    lease.release_along();
    hold(&mine).commit(1, &[state(2)]).unwrap();
    let lock = hold(&mine);
    lease.release_along();
    assert_eq!(lock.commit(1, &[state(2)]).unwrap_err().kind(), "stale_revision");
    drop(lock);
    assert_eq!((fresh.count("lease"), lease.beat()), (1, Beat::Held { revision: 2 }));
    let lock = hold(&mine);
    lease.release_along();
    lock.commit(2, &[state(3)]).unwrap();
    assert_eq!(fresh.count("lease"), 0);
    let taken = lease_of(&theirs, "two").expect("given back");
    // A second release of the old lease must neither delete the new lease nor refuse later changes.
    lease.release().unwrap();
    assert_eq!((fresh.count("lease"), taken.beat()), (1, Beat::Held { revision: 3 }));
    lock.commit(3, &[state(4)]).unwrap();
}

#[test]
fn a_failed_beat_reports_the_remaining_time_of_the_lease() {
    needs!("postgresql");
    let fresh = Fresh::made();
    let proxy = proxy::Proxy::start(None);
    let store = Postgres::open(proxy.url(&fresh), Duration::from_millis(500));
    create(&fresh.open(), "a");
    let mine = agent_of(&store, "a");
    let lease = lease_of(&mine, "one").expect("free");
    proxy.stop();
    let Beat::Unreachable { left } = lease.beat() else { panic!("it can't be reached") };
    assert!(left > Duration::from_secs(40) && left <= Duration::from_secs(45), "{left:?}");
}

#[test]
fn a_command_of_a_turn_that_was_taken_over_changes_nothing() {
    needs!("postgresql");
    let fresh = Fresh::made();
    let (ticker, command, other) = (fresh.open(), fresh.open(), fresh.open());
    let (ticking, theirs) = (create(&ticker, "a"), agent_of(&other, "a"));
    create(&ticker, "b");
    let lease = lease_of(&ticking, "one").expect("free");
    // A process that the turn started acts in the name of the lease without having taken it.
    command.claim(Claim {
        agent: name("a"),
        subject: Subject::Run,
        fence: lease.fence().unwrap(),
        run: None,
    });
    let (mine, another) = (agent_of(&command, "a"), agent_of(&command, "b"));
    assert!(!mine.is_fenced().unwrap());
    hold(&mine).commit(1, &[state(2)]).unwrap();
    mine.arrive(&[message(1)]).unwrap();
    // The machine was suspended for longer than its lease, and another machine took over.
    fresh.run("UPDATE @.lease SET expires_at = 0");
    let taken = lease_of(&theirs, "two").expect("run out");
    assert!(mine.is_fenced().unwrap());
    let locked = |change: fn(&dyn RemoteTxn) -> crate::error::Result<()>| change(&*hold(&mine));
    let refused = [
        locked(|hold| hold.commit(2, &[state(3)])),
        locked(|hold| hold.put(Op::Policy(Settings::of("x".to_owned())))),
        locked(|hold| hold.put(Op::Identity("{}".to_owned()))),
        locked(|hold| hold.remove()),
        mine.arrive(&[message(2)]).map(drop),
    ];
    for error in refused.map(Result::unwrap_err) {
        assert_eq!((error.kind(), error.exit_status()), ("fenced", Status::Busy));
    }
    assert_eq!((revision(&mine), fresh.count("inbox"), fresh.count("agent")), (2, 1, 2));
    // The lost lease on `a` restricts no change of `b`, and the new owner can change `a`.
    another.arrive(&[message(3)]).unwrap();
    hold(&theirs).commit(2, &[state(3)]).unwrap();
    taken.release().unwrap();
    assert!(mine.is_fenced().unwrap(), "a lease that was given back is nobody's");
}

/// After a failover that loses leases, leases of two machines may have equal fencing tokens.
#[test]
fn a_lease_with_an_equal_fence_on_another_machine_is_distinct() {
    needs!("postgresql");
    let fresh = Fresh::made();
    let (store, command) = (fresh.open(), fresh.open());
    let agent = create(&store, "a");
    let lease = lease_of(&agent, "one").expect("free");
    fresh.run("UPDATE @.lease SET anchor = 'two'");
    assert_eq!(lease.beat(), Beat::Lost);
    let error = hold(&agent).commit(1, &[state(2)]).unwrap_err();
    assert_eq!(error.kind(), "fenced");
    // A command with the fencing token of the lease is refused, because the state lacks its run id.
    let run = "run_00000000000070008000000000000001".parse().ok();
    command.claim(Claim { agent: name("a"), subject: Subject::Run, fence: lease.fence().unwrap(), run });
    let mine = agent_of(&command, "a");
    assert!(mine.is_fenced().unwrap());
    for refused in [hold(&mine).commit(1, &[state(2)]), mine.arrive(&[message(1)]).map(drop)] {
        assert_eq!(refused.unwrap_err().kind(), "fenced");
    }
    lease.release().unwrap();
    assert_eq!(fresh.count("lease"), 1, "it is the other machine's");
}

#[test]
fn an_invalid_fence_is_reported_as_damage() {
    needs!("postgresql");
    let (fresh, _store, agent) = in_a_store();
    for number in [i64::MAX, -5] {
        fresh.run(&format!("UPDATE @.state SET fence = {number}"));
        let lock = hold(&agent);
        let under_the_lock = agent.lease(Subject::Run, &|| Ok(claimant("one", MINUTE))).unwrap_err();
        drop(lock);
        let alone = agent.lease(Subject::Run, &|| Ok(claimant("one", MINUTE))).unwrap_err();
        for error in [under_the_lock, alone] {
            assert_eq!((error.kind(), error.exit_status()), ("damaged", Status::Damaged), "{error}");
        }
        assert_eq!(fresh.count("lease"), 0);
    }
}

/// Tokens keep rising, because external systems may remember the highest one that they received.
#[test]
fn an_agent_that_replaces_another_continues_its_fences() {
    needs!("postgresql");
    let fresh = Fresh::made();
    let store = fresh.open();
    let lease = |agent: &str| {
        let lease = lease_of(&agent_of(&store, agent), "one").expect("free");
        let fence = lease.fence().unwrap();
        lease.release().unwrap();
        fence
    };
    create(&store, "a");
    assert_eq!([lease("a"), lease("a"), lease("a")], [1, 2, 3]);
    // The old agent is closed as by a renaming, which then creates the new agent.
    hold(&agent_of(&store, "a")).commit(1, &[state(2), Op::InboxClosed(true)]).unwrap();
    create(&store, "b");
    assert_eq!([lease("b"), lease("b")], [4, 5]);
    // Another agent is created with the name of a removed one.
    hold(&agent_of(&store, "b")).remove().unwrap();
    create(&store, "b");
    assert_eq!(lease("b"), 6);
    create(&store, "c");
    assert_eq!(lease("c"), 6, "an agent of its own");
}
