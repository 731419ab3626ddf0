//! Tests of the queries that ticking machines repeat.

use crate::local::Subject;
use crate::model::id::TaskId;
use crate::model::pool::Pool;
use crate::model::record::Plane;

use super::super::super::backend::ReadView;
use super::leases::{MINUTE, claimant};
use super::proxy::Proxy;
use super::records::past;
use super::*;

/// Number of partitions of the table `archive`, including the default one.
fn parts(fresh: &Fresh) -> usize {
    fresh.run("SELECT count(*) FROM pg_inherits WHERE inhparent = '@.archive'::regclass")[0].parse().unwrap()
}

/// Drops the partition of a month.
fn drop_month(fresh: &Fresh, ahead: u32) {
    let month = format!("to_char(now() AT TIME ZONE 'UTC' + interval '{ahead} months', 'YYYY_MM')");
    fresh.run(&format!("DO $$ BEGIN EXECUTE 'DROP TABLE @.archive_' || {month}; END $$; SELECT 1"));
}

#[test]
fn the_archive_has_parts_for_this_month_and_the_next_one() {
    needs!("postgresql");
    assert_eq!(parts(&Fresh::made()), 3);
}

#[test]
fn init_creates_missing_month_partitions_of_an_existing_store() {
    needs!("postgresql");
    let fresh = Fresh::made();
    drop_month(&fresh, 0);
    drop_month(&fresh, 1);
    // A month with rows in the default partition gets no partition of its own.
    fresh.run(
        "INSERT INTO @.archive (agent_id, kind, at, revision, body) \
         SELECT 1, 'run', (extract(epoch FROM now()) * 1000)::bigint, 1, '1'; SELECT 1",
    );
    assert_eq!(parts(&fresh), 1);
    assert!(!Postgres::init(fresh.url.clone(), PATIENCE).unwrap());
    assert_eq!(parts(&fresh), 2);
    assert_eq!(fresh.count("archive"), 1);
}

/// A ticking machine creates missing partitions, so users do not have to.
#[test]
fn the_first_tick_of_a_machine_creates_missing_month_partitions() {
    needs!("postgresql");
    let fresh = Fresh::made();
    drop_month(&fresh, 1);
    let store = fresh.open();
    store.due(at(0), &[Pool::COMMON], None).unwrap();
    assert_eq!(parts(&fresh), 2, "a question is no tick");
    store.due(at(0), &[Pool::COMMON], Some(&|| Ok(claimant("one", MINUTE)))).unwrap();
    assert_eq!(parts(&fresh), 3);
    drop_month(&fresh, 1);
    store.due(at(0), &[Pool::COMMON], Some(&|| Ok(claimant("one", MINUTE)))).unwrap();
    assert_eq!(parts(&fresh), 2, "it has just done so");
}

/// The deletion of history drops the partitions of past months that no agent has lines of.
#[test]
fn empty_partitions_of_past_months_are_dropped() {
    needs!("postgresql");
    let fresh = Fresh::made();
    let june = "extract(epoch FROM timestamp '2001-06-02') * 1000";
    for (parted, month) in [("archive", "05"), ("archive", "06"), ("event", "05"), ("event", "06")] {
        let from = format!("(extract(epoch FROM timestamp '2001-{month}-01') * 1000)::bigint");
        let until = format!("{from} + 30::bigint * 86400000");
        fresh.run(&format!(
            "DO $$ BEGIN EXECUTE format('CREATE TABLE @.{parted}_2001_{month} PARTITION OF @.{parted} \
             FOR VALUES FROM (%s) TO (%s)', {from}, {until}); END $$; SELECT 1"
        ));
    }
    let agent = create(&fresh.open(), "a");
    fresh.run(&format!(
        "INSERT INTO @.event (agent_id, at, revision, body, number) SELECT id, {june}, 1, '1', 1 FROM @.agent; \
         INSERT INTO @.archive (agent_id, at, revision, body, kind) SELECT 99, {june}, 1, '1', 'run'; SELECT 1"
    ));
    let months = |parted: &str| {
        fresh.run(&format!(
            "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = '@.{parted}'::regclass \
             AND inhrelid::regclass::text ~ '_2001_' ORDER BY 1"
        ))
    };
    let months = || [months("archive"), months("event")].concat();
    let ends = |months: Vec<String>| -> Vec<String> {
        months.iter().map(|name| name.rsplit_once('.').unwrap().1.to_owned()).collect()
    };
    let lock = agent.lock(PATIENCE).unwrap().unwrap();
    let (from, until) = (Time::from_millis(991_353_600_000), Time::from_millis(993_945_600_000));
    lock.commit(1, &[state(2), Op::Forgotten { from: at(0), until: at(0), seen_at: 1 }]).unwrap();
    assert_eq!(ends(months()), ["archive_2001_06", "event_2001_06"], "June has lines");
    lock.commit(2, &[state(3), Op::Forgotten { from, until, seen_at: 2 }]).unwrap();
    assert_eq!(ends(months()), ["archive_2001_06"], "another agent has a line of June");
    fresh.run("DELETE FROM @.archive; SELECT @.drop_months()");
    assert_eq!(ends(months()), [""; 0]);
    assert_eq!(parts(&fresh), 3, "this month and the next stay, although they are empty");
    assert_eq!(past(&agent), ["event 1"]);
}

#[test]
fn the_due_query_counts_the_machines_that_tick() {
    needs!("postgresql");
    let fresh = Fresh::made();
    let store = fresh.open();
    let machines = |anchor: &str, pools: &[Pool]| {
        let by = claimant(anchor, MINUTE);
        store.due(at(0), pools, Some(&|| Ok(by.clone()))).unwrap().unwrap().machines
    };
    let gpu = Pool::of("[scheduler]\npool = \"gpu\"\n");
    assert_eq!(machines("one", &[Pool::COMMON]), 1);
    assert_eq!(machines("two", &[Pool::COMMON]), 2);
    assert_eq!(machines("three", std::slice::from_ref(&gpu)), 1);
    assert_eq!(machines("four", &[Pool::COMMON, gpu]), 4);
    fresh.run("UPDATE @.anchor SET seen_at = seen_at - 121000 WHERE id = 'one'; SELECT 1");
    assert_eq!(machines("two", &[Pool::COMMON]), 2, "one is not there any more");
}

/// Opens a store, and sends queries first, so that later queries use an old connection.
fn kept(fresh: &Fresh) -> Postgres {
    let store = fresh.open();
    for _ in 0..12 {
        store.agents("").unwrap();
    }
    store
}

/// An old connection must give the answers of a new one, although the server may reuse query plans.
#[test]
fn an_old_connection_reads_the_same_as_a_new_connection() {
    needs!("postgresql");
    let (fresh, _store, agent) = in_a_store();
    agent.arrive(&[message(7), message(8), message(9), hint(5)]).unwrap();
    let under = hold(&agent);
    let mut ops = vec![state(2), Op::Open { plane: Plane::Work, id: "work_1".into(), text: "{}\n".into() }];
    ops.extend((100..200).map(ended));
    under.commit(1, &ops).unwrap();
    drop(under);
    let all = |store: &Postgres| {
        let agent = agent_of(store, "a");
        let hold = hold(&agent);
        let both = [hold.now().unwrap(), agent.read_view().unwrap()];
        both.map(|sight| {
            let mut told = vec![sight.state().unwrap()];
            told.extend(sight.open(Plane::Work).unwrap().into_iter().map(|(_, text)| text));
            told.extend(
                sight.messages(9).unwrap().iter().map(|key| format!("{key} {:?}", sight.message(*key))),
            );
            told.extend(sight.hints().unwrap().iter().map(|id| format!("{id} {:?}", sight.hint(*id))));
            let of_ids = [id(150).to_string(), id(7).to_string(), id(160).to_string()];
            // The limits cover more lines than one query returns, some lines, and one line.
            for (kinds, ids, most) in [
                (["message"].as_slice(), None, 70),
                (&["message"], Some(of_ids.as_slice()), 9),
                (&["run", "message"], Some(&of_ids[..1]), 9),
                (&["run", "message"], None, 9),
                (&["brief"], None, 9),
            ] {
                let mut left = most;
                sight
                    .ended(kinds, ids, &mut |line| {
                        told.push(line.to_owned());
                        left -= 1;
                        Ok(left > 0)
                    })
                    .unwrap();
            }
            told
        })
    };
    let few = all(&fresh.open());
    assert_eq!(few[0], few[1]);
    let kept = kept(&fresh);
    assert_eq!(all(&kept), few);
}

/// Makes the changes of a step that starts a run, and of the run's settlement.
fn step(store: &Postgres) -> crate::error::Result<()> {
    let agent = create(store, "a");
    agent.arrive(&[message(7), message(8), message(9), hint(5), hint(6)])?;
    let lines = |revision: u64| {
        let brief =
            Op::Ended { kind: "brief", id: None, at: at(3), text: format!("{{\"made\": {revision}}}\n") };
        [event(revision * 10), ended(8), event(revision * 10 + 2), brief, ended(7), event(revision * 10 + 1)]
    };
    let due = |revision, due| Op::State {
        revision,
        due,
        is_at_rest: false,
        text: format!("{{\"revision\":{revision}}}\n"),
    };
    let under = hold(&agent);
    let lease = agent.lease(Subject::Run, &|| Ok(claimant("one", MINUTE)))?.expect("it is free");
    let mut claimed = Vec::from(lines(2));
    claimed.extend([due(2, Some(at(9))), Op::MessageTaken(key(Priority::Normal, 8)), Op::HintTaken(id(6))]);
    under.commit(1, &claimed)?;
    drop(under);
    hold(&agent).commit(2, &[due(3, Some(at(10)))])?;
    std::mem::forget(lease);
    let under = hold(&agent);
    let of_task = Subject::Task(TaskId(id(1).0));
    let lease = agent.lease(of_task, &|| Ok(claimant("one", MINUTE)))?.expect("it is free");
    under.commit(3, &[due(4, None), event(40)])?;
    drop(under);
    let under = hold(&agent);
    lease.release_along();
    under.commit(4, &[Op::MessageTaken(key(Priority::Normal, 7)), event(50), due(5, None)])
}

/// An old connection must write the rows of a new one, although the server may reuse query plans.
#[test]
fn an_old_connection_writes_the_same_as_a_new_connection() {
    needs!("postgresql");
    let written = |fresh: &Fresh| {
        ["state", "due", "inbox", "lease", "event", "archive", "record"].map(|table| {
            let (order, seq) =
                if ["event", "archive"].contains(&table) { ("t.seq", "seq") } else { ("t::text", "") };
            fresh.run(&format!(
                "SELECT to_jsonb(t) - '{seq}' - 'expires_at' FROM @.{table} t ORDER BY {order}"
            ))
        })
    };
    let (few_calls, many_calls) = (Fresh::made(), Fresh::made());
    step(&few_calls.open()).unwrap();
    let expected = written(&few_calls);
    assert_eq!(expected.each_ref().map(Vec::len), [1, 0, 2, 1, 6, 3, 0]);
    step(&kept(&many_calls)).unwrap();
    assert_eq!(written(&many_calls), expected);
}

/// One round trip takes the lock and loads the archive lines that a step needs to start a run.
#[test]
fn a_claim_loads_its_lines_in_one_round_trip() {
    needs!("postgresql");
    let fresh = Fresh::made();
    let proxy = Proxy::start(None);
    let store = Postgres::open(proxy.url(&fresh), PATIENCE);
    create(&store, "a").arrive(&[message(7), message(8)]).unwrap();
    let brief = |number: usize| Op::Ended {
        kind: "brief",
        id: None,
        at: at(0),
        text: format!("{{\"brief\":{number}}}\n"),
    };
    let agent = agent_of(&store, "a");
    for number in 0..12 {
        let revision = number as u64 + 2;
        hold(&agent).commit(revision - 1, &[state(revision), brief(number), ended(7), ended(9)]).unwrap();
    }
    let past = |sight: &dyn ReadView, kinds: &[&'static str], ids: Option<&[String]>, most: usize| {
        let mut lines = Vec::new();
        sight
            .ended(kinds, ids, &mut |line| {
                lines.push(line.trim_end().to_owned());
                Ok(lines.len() < most)
            })
            .unwrap();
        lines
    };
    let numbers =
        |from: std::ops::Range<usize>| from.rev().map(|n| format!("{{\"brief\":{n}}}")).collect::<Vec<_>>();
    let lock = hold(&agent);
    let sight = lock.now().unwrap();
    let before = proxy.trips();
    assert_eq!(past(&*sight, &["brief"], None, 5), numbers(7..12));
    assert_eq!(past(&*sight, &["message", "ended"], Some(&[id(7).to_string()]), 1), ["{\"ended\":7}"]);
    assert_eq!(past(&*sight, &["run"], Some(&[id(7).to_string()]), 9), [""; 0]);
    assert_eq!(proxy.trips(), before, "all of it came along");
    assert_eq!(past(&*sight, &["brief"], None, 99), numbers(0..12));
    assert_eq!(past(&*sight, &["message"], Some(&[id(8).to_string()]), 9), [""; 0]);
    assert_eq!(past(&*sight, &["message"], Some(&[id(9).to_string()]), 1), ["{\"ended\":9}"]);
    assert_eq!(proxy.trips(), before + 3, "what did not is asked for");
}

/// A single round trip inserts a message for an agent that was not looked up.
#[test]
fn deliver_inserts_a_message_only_if_the_agent_accepts_it() {
    needs!("postgresql");
    let fresh = Fresh::made();
    let store = fresh.open();
    create(&store, "a");
    let settings =
        |text: &str| hold(&agent_of(&store, "a")).put(Op::Policy(Settings::of(text.to_owned()))).unwrap();
    let tell = |number, size, default| store.deliver(&name("a"), &message(number), size, default).unwrap();
    assert_eq!(tell(9, 5, 5), None, "its settings are damaged");
    settings("");
    assert_eq!(tell(1, 5, 5).as_deref(), Some("{\"revision\":1}\n"));
    assert_eq!(tell(1, 5, 5).as_deref(), Some("{\"revision\":1}\n"), "it is there already");
    assert_eq!(tell(2, 6, 5), None, "larger than the machine has it by default");
    settings("[limits]\nmax_message = \"1 KiB\"\n");
    assert!(tell(3, 1024, 5).is_some());
    assert_eq!(tell(4, 1025, 5000), None);
    settings("profile = \"large\"\n");
    assert_eq!(tell(5, 1, 5), None, "only the machine's settings say");
    settings("");
    hold(&agent_of(&store, "a")).commit(1, &[state(2), Op::InboxClosed(true)]).unwrap();
    assert_eq!(tell(6, 1, 5), None, "it has moved away");
    assert_eq!(store.deliver(&name("b"), &message(7), 1, 5).unwrap(), None, "there is none");
    assert_eq!(fresh.run("SELECT right(id::text, 1) FROM @.inbox ORDER BY id"), ["1", "3"]);
}
