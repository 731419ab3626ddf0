//! Tests of notifications: which processes get them, and which do not.

use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::super::super::backend::{DatabaseRole, Subscription, each_of};
use super::super::wire::{Connection, Statement};
use super::rig::{LONG, superuser_sql};
use super::*;

type Changes<'c> = &'c dyn Fn(&dyn RemoteTxn) -> crate::error::Result<()>;

/// Waits until the subscription has a notification, or `is_there` is true.
#[track_caller]
fn until(subscription: &mut dyn Subscription, is_there: impl Fn(&dyn Subscription) -> bool) {
    let end = Instant::now() + LONG;
    while !subscription.was_notified() && !is_there(subscription) {
        assert!(Instant::now() < end, "nothing is heard: {subscription:?}");
        let second = Timespec { tv_sec: 1, tv_nsec: 0 };
        let wake = subscription.readable().expect("it listens");
        poll(&mut [PollFd::from_borrowed_fd(wake, PollFlags::IN)], Some(&second)).unwrap();
    }
}

#[track_caller]
fn hears(subscription: &mut dyn Subscription) {
    until(subscription, |_| false);
}

/// Returns a subscription that has received its test notification.
#[track_caller]
fn listening(store: &Postgres, agents: &[&str]) -> Box<dyn Subscription> {
    let mut subscription = store.subscribe();
    let agents: Vec<AgentName> = agents.iter().map(|agent| name(agent)).collect();
    subscription.listen(&agents);
    assert!(
        subscription.readable().is_some() && !subscription.notifies(),
        "nothing has come yet: {subscription:?}"
    );
    until(&mut *subscription, |subscription| subscription.notifies());
    assert!(subscription.notifies() && !subscription.was_notified(), "a trial is no news");
    subscription
}

/// Opens a connection and runs the `LISTEN` statements in `channels`.
fn person(fresh: &Fresh, channels: &str) -> Connection {
    let mut connection = Connection::open(&fresh.url, LONG).unwrap();
    connection.script(channels, LONG).unwrap();
    connection
}

/// Returns the channels notified so far. The notification `last` marks the end, because
/// notifications keep their order.
#[track_caller]
fn heard(fresh: &Fresh, person: &mut Connection) -> Vec<String> {
    fresh.run("NOTIFY last");
    let (end, mut all) = (Instant::now() + LONG, Vec::new());
    while !all.contains(&"last".to_owned()) {
        assert!(Instant::now() < end);
        all.extend(person.notified(LONG).unwrap());
    }
    all.retain(|channel| channel != "last");
    all
}

#[test]
fn every_subscription_is_notified_of_changes_of_its_agents() {
    needs!("postgresql");
    let fresh = Fresh::made();
    let (store, other, third) = (fresh.open(), fresh.open(), fresh.open());
    let (a, b) = (create(&store, "a"), create(&store, "b"));
    let (mut one, mut two) = (listening(&other, &["a", "nobody"]), listening(&third, &["a", "b"]));
    assert_eq!(fresh.count("watcher"), 3);
    hold(&a).commit(1, &[state(2)]).unwrap();
    hears(&mut *one);
    hears(&mut *two);
    assert!(!one.was_notified() && !two.was_notified(), "it was told once");
    hold(&b).commit(1, &[state(2)]).unwrap();
    hears(&mut *two);
    // Each subscription ends by itself, and deletes only its own rows.
    drop(two);
    assert_eq!(fresh.count("watcher"), 1);
    hold(&a).commit(2, &[state(3)]).unwrap();
    hears(&mut *one);
    drop(one);
    assert_eq!(fresh.count("watcher"), 0);
}

#[test]
fn every_kind_of_change_is_notified_and_arrivals_are_not() {
    needs!("postgresql");
    let fresh = Fresh::made();
    let store = fresh.open();
    let (a, b) = (create(&store, "a"), create(&store, "b"));
    let mut person = person(&fresh, "LISTEN of_a; LISTEN of_b; LISTEN last");
    fresh.run("INSERT INTO @.watcher SELECT id, 'of_' || name, 9000000000000 FROM @.agent");
    b.arrive(&[message(1)]).unwrap();
    a.arrive(&[message(2)]).unwrap();
    drop(hold(&a));
    drop(a.read_view().unwrap());
    assert_eq!(heard(&fresh, &mut person), [""; 0]);
    let replaced = [Op::Identity("{}".into()), state(2)];
    let changes: [Changes<'_>; 5] = [
        &|hold| hold.commit(1, &[state(2)]),
        &|hold| hold.put(Op::Policy(Settings::of("x".to_owned()))),
        &|hold| hold.put(Op::Identity("{}".to_owned())),
        &|hold| hold.replace(2, &each_of(&replaced)),
        &|hold| hold.remove(),
    ];
    for (at, change) in changes.into_iter().enumerate() {
        change(&*hold(&a)).unwrap();
        assert_eq!(heard(&fresh, &mut person), ["of_a"], "{at}");
    }
    // A removed agent has no waiting processes, and a new agent of the same name does not inherit
    // any.
    assert_eq!(fresh.run("SELECT channel FROM @.watcher"), ["of_b"]);
    hold(&create(&store, "a")).commit(1, &[state(2)]).unwrap();
    assert_eq!(heard(&fresh, &mut person), [""; 0]);
}

#[test]
fn an_expired_watcher_row_is_ignored_and_the_next_watch_deletes_it() {
    needs!("postgresql");
    let (fresh, store, a) = in_a_store();
    create(&store, "b");
    let mut person = person(&fresh, "LISTEN of_a; LISTEN last");
    fresh.run("INSERT INTO @.watcher SELECT id, 'of_' || name, 1 FROM @.agent");
    hold(&a).commit(1, &[state(2)]).unwrap();
    assert_eq!(heard(&fresh, &mut person), [""; 0], "whoever waited is gone");
    assert_eq!(fresh.count("watcher"), 2);
    // A killed process leaves its rows in the table.
    std::mem::forget(listening(&fresh.open(), &["a"]));
    assert_eq!(fresh.run("SELECT count(*) FROM @.watcher WHERE channel LIKE 'of\\_%'"), ["0"]);
    fresh.run("UPDATE @.watcher SET until = 1");
    let subscription = listening(&fresh.open(), &["b"]);
    assert_eq!(fresh.run("SELECT a.name FROM @.watcher w JOIN @.agent a ON a.id = w.agent_id"), ["b"]);
    drop(subscription);
    assert_eq!(fresh.count("watcher"), 0);
}

#[test]
fn a_subscription_reconnects_after_a_lost_connection() {
    needs!("postgresql");
    let (fresh, _store, a) = in_a_store();
    let role = format!("{}_lost", fresh.schema);
    superuser_sql(&format!("CREATE ROLE {role} LOGIN"));
    Postgres::grant(fresh.url.clone(), PATIENCE, DatabaseRole::Ticker, &role).unwrap();
    let url = Url::parse(&rig::server().url_of(&role, &fresh.schema)).unwrap();
    let other = Postgres::open(url, PATIENCE);
    let mut subscription = listening(&other, &["a"]);
    let ended = superuser_sql(&format!(
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE usename = '{role}'"
    ));
    assert!(ended[0].iter().all(|row| row.get(0) == Some("t")) && !ended[0].is_empty());
    // Notifications may have been lost, so the subscription reports a change.
    hears(&mut *subscription);
    assert!(!subscription.notifies() && subscription.readable().is_none() && !subscription.was_notified());
    subscription.listen(&[name("a")]);
    until(&mut *subscription, |subscription| subscription.notifies());
    hold(&a).commit(1, &[state(2)]).unwrap();
    hears(&mut *subscription);
}

#[test]
fn notifications_are_received_over_tls() {
    needs!("postgresql");
    let fresh = Fresh::made();
    let a = create(&fresh.open(), "a");
    Postgres::grant(fresh.url.clone(), PATIENCE, DatabaseRole::Ticker, "trusted").unwrap();
    let more = format!("&sslrootcert={}", rig::server().roots().display());
    let url = rig::server().tcp_url("trusted", "localhost", &more);
    let url = url.replace("schema=s&", &format!("schema={}&", fresh.schema));
    let other = Postgres::open(Url::parse(&url).unwrap(), PATIENCE);
    let mut subscription = listening(&other, &["a"]);
    for revision in 1..4 {
        hold(&a).commit(revision, &[state(revision + 1)]).unwrap();
        hears(&mut *subscription);
    }
}

#[test]
fn a_role_without_write_access_gets_no_notifications_and_no_error() {
    needs!("postgresql");
    let (fresh, _store, a) = in_a_store();
    let of = |part: &str| format!("{}_{part}", fresh.schema);
    for (part, more) in
        [(DatabaseRole::Reader, ""), (DatabaseRole::Ticker, "SET default_transaction_read_only = on")]
    {
        let role = of(&format!("{part:?}").to_lowercase());
        superuser_sql(&format!("CREATE ROLE {role} LOGIN"));
        if !more.is_empty() {
            superuser_sql(&format!("ALTER ROLE {role} {more}"));
        }
        Postgres::grant(fresh.url.clone(), PATIENCE, part, &role).unwrap();
        let url = Url::parse(&rig::server().url_of(&role, &fresh.schema)).unwrap();
        let other = Postgres::open(url, PATIENCE);
        let mut subscription = other.subscribe();
        for _ in 0..2 {
            subscription.listen(&[name("a")]);
            assert!(
                !subscription.notifies() && subscription.readable().is_none() && !subscription.was_notified(),
                "{role}: {subscription:?}"
            );
        }
        assert_eq!(fresh.count("watcher"), 0);
    }
    hold(&a).commit(1, &[state(2)]).unwrap();
}

/// A pooler shares one connection among many clients, so a subscription would be left to the next
/// client.
#[test]
fn a_store_behind_a_pooler_does_not_subscribe() {
    needs!("postgresql");
    let fresh = Fresh::made();
    create(&fresh.open(), "a");
    let _alone = crate::alone::alone();
    let bouncer = rig::Bouncer::trusting(rig::server());
    let url = Url::parse(&bouncer.url(&fresh.schema)).unwrap();
    let end = Instant::now() + LONG;
    while Connection::open(&url, LONG).is_err() {
        assert!(Instant::now() < end, "PgBouncer does not answer");
        std::thread::sleep(Duration::from_millis(20));
    }
    let store = Postgres::open(url, PATIENCE);
    let mut subscription = store.subscribe();
    subscription.listen(&[name("a")]);
    assert!(!subscription.notifies() && subscription.readable().is_none(), "{subscription:?}");
    assert_eq!(fresh.count("watcher"), 0);
    // The query runs on each server connection of the pooler.
    let listens = "SELECT count(*) FROM pg_listening_channels()";
    for _ in 0..8 {
        let answer = store.shared.pool.ask_one(Statement::new(listens)).unwrap();
        assert_eq!(answer[0].get(0), Some("0"));
    }
}
