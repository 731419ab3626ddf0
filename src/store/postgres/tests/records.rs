//! Tests that records are read as they were written.

use std::path::Path;

use super::super::super::backend::{ENDED, Order, PART, parts};
use super::super::super::dir::record::decode;
use super::super::super::memory::Memory;
use super::super::due;
use super::*;
use crate::error::Status;
use crate::model::id::RunId;
use crate::model::pool::Pool;
use crate::model::preemption::Checkpoint;
use crate::model::record::Plane;

/// True if no message or hint is in the inbox. The agent's state does not matter.
fn is_quiet(agent: &Rc<dyn RemoteRecords + '_>) -> bool {
    let state = include_bytes!("../../../../tests/data/format-1/agents/ada/state.json");
    agent.is_quiet(&decode(Path::new("state.json"), state).unwrap()).unwrap()
}

#[test]
fn a_store_is_made_once() {
    needs!("postgresql");
    let fresh = Fresh::unmade();
    let error = fresh.open().agents("").unwrap_err();
    assert_eq!((error.exit_status(), error.kind()), (Status::NotFound, "no_schema"), "{error}");
    assert!(error.hint().unwrap().contains("init"), "{:?}", error.hint());
    assert!(Postgres::init(fresh.url.clone(), PATIENCE).unwrap());
    assert!(!Postgres::init(fresh.url.clone(), PATIENCE).unwrap());
    assert!(fresh.open().agents("").unwrap().is_empty());
}

#[test]
fn concurrent_inits_create_one_store() {
    needs!("postgresql");
    let fresh = Fresh::unmade();
    let made: Vec<bool> = std::thread::scope(|scope| {
        let both: Vec<_> =
            (0..4).map(|_| scope.spawn(|| Postgres::init(fresh.url.clone(), PATIENCE).unwrap())).collect();
        both.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert_eq!(made.iter().filter(|made| **made).count(), 1, "{made:?}");
    assert_eq!(fresh.count("meta"), 2);
}

#[test]
fn another_format_is_refused() {
    needs!("postgresql");
    let fresh = Fresh::made();
    for (format, word) in [("2", "newer"), ("0", "never")] {
        fresh.run(&format!("UPDATE @.meta SET value = '{format}' WHERE key = 'format'; SELECT 1"));
        let error = fresh.open().agents("").unwrap_err();
        assert_eq!(error.exit_status(), Status::Damaged, "{error}");
        assert!(error.hint().unwrap().contains(word), "{error}");
        assert!(Postgres::init(fresh.url.clone(), PATIENCE).is_err());
    }
}

#[test]
fn agents_are_made_and_found_by_name() {
    needs!("postgresql");
    let fresh = Fresh::made();
    let store = fresh.open();
    assert!(store.agent(&name("a")).unwrap().is_none());
    let agent = create(&store, "b");
    create(&store, "a");
    assert_eq!(store.agents("").unwrap(), [name("a"), name("b")]);
    assert_eq!(agent.identity().unwrap(), "{\"name\": \"a\"}\n");
    assert_eq!(agent.policy().unwrap(), "command = [\"x\"]\n");
    assert_eq!(agent.state().unwrap(), "{\"revision\":1}\n");
    assert!(is_quiet(&agent));
    let ops = [Op::Identity("{}".into()), Op::Policy(Settings::default()), state(9)];
    assert!(!store.create(&name("a"), &each_of(&ops)).unwrap());
    assert_eq!(revision(&agent_of(&store, "a")), 1);
}

#[test]
fn texts_are_kept_byte_for_byte() {
    needs!("postgresql");
    let (_fresh, _store, agent) = in_a_store();
    let big = format!("{{\"z\": 1, \"a\":\t\"{}\", \"n\": 1.50}}\n", "ä€𝄞'\\\\".repeat(100_000));
    assert!(big.len() > 1 << 20);
    let odd = "{ \"b\" : \"\\u0000 \\ud800 it''s $1 @ \\\\\", \"a\": 12345678901234567890, \"a\": 1e400 }\n";
    let plan = "a plan\0with everything: '\\x'\n";
    for (revision, text) in [(2, odd), (3, big.as_str())] {
        let hold = hold(&agent);
        let ops = [
            Op::State { revision, due: Some(at(1)), is_at_rest: false, text: text.to_owned() },
            Op::Open { plane: Plane::Work, id: "work_1".into(), text: text.to_owned() },
            Op::Plan { work: "work_1".into(), text: plan.to_owned() },
            Op::Arrived(Arrival::Message { key: key(Priority::Next, 7), text: text.to_owned() }),
            Op::Arrived(Arrival::Hint { id: id(8), text: text.to_owned() }),
            Op::Key { key: "k'\0\\".into(), admitted_at: at(2), text: text.to_owned() },
            Op::Ended { kind: "message", id: None, at: at(3), text: text.to_owned() },
            Op::Event { seq: revision, at: at(4), text: text.to_owned() },
        ];
        hold.commit(revision - 1, &ops).unwrap();
        let seen = hold.now().unwrap();
        assert!(seen.state().unwrap() == text);
        assert!(seen.open(Plane::Work).unwrap() == [("work_1".to_owned(), text.to_owned())]);
        assert!(seen.open_one(Plane::Work, "work_1").unwrap().as_deref() == Some(text));
        assert_eq!(seen.open_one(Plane::Tasks, "work_1").unwrap(), None);
        assert_eq!(seen.plan("work_1").unwrap().as_deref(), Some(plan));
        assert_eq!(seen.messages(9).unwrap(), [key(Priority::Next, 7)]);
        assert!(seen.message(key(Priority::Next, 7)).unwrap().as_deref() == Some(text));
        assert_eq!(seen.hints().unwrap(), [id(8)]);
        assert!(seen.hint(id(8)).unwrap().as_deref() == Some(text));
        assert!(seen.key("k'\0\\", always()).unwrap().as_deref() == Some(text));
        assert_eq!(seen.key("k", always()).unwrap(), None);
        drop(seen);
        drop(hold);
        assert!(all_ended(&agent, "message")[0] == text);
        assert!(agent.state().unwrap() == text);
    }
}

#[test]
fn the_inbox_is_in_processing_order() {
    needs!("postgresql");
    let (fresh, _store, agent) = in_a_store();
    let mut keys: Vec<InboxKey> = (1..=600u128)
        .map(|number| {
            key(
                [Priority::Background, Priority::Interject, Priority::Normal][number as usize % 3],
                number * 7 % 601,
            )
        })
        .collect();
    let arrival = |key: &InboxKey| Arrival::Message { key: *key, text: format!("\"{key}\"") };
    agent.arrive(&keys.iter().map(arrival).collect::<Vec<_>>()).unwrap();
    agent
        .arrive(&[
            Arrival::Hint { id: id(9), text: "1".into() },
            Arrival::Hint { id: id(3), text: "2".into() },
        ])
        .unwrap();
    assert!(!is_quiet(&agent));
    keys.sort_unstable();
    let seen = agent.read_view().unwrap();
    for count in [0, 1, 2, 255, 256, 257, 600, 700, usize::MAX] {
        assert_eq!(seen.messages(count).unwrap(), keys[..count.min(600)], "{count}");
    }
    for key in [keys[0], keys[1], keys[2], keys[300], keys[599]] {
        assert_eq!(seen.message(key).unwrap(), Some(format!("\"{key}\"")));
    }
    assert_eq!(seen.hints().unwrap(), [id(3), id(9)]);
    assert_eq!([3, 9].map(|hint| seen.hint(id(hint)).unwrap().unwrap()), ["2", "1"]);
    // The second arrival with an id is ignored.
    agent.arrive(&[Arrival::Message { key: keys[0], text: "0".into() }]).unwrap();
    assert_eq!(agent.read_view().unwrap().message(keys[0]).unwrap(), Some(format!("\"{}\"", keys[0])));
    assert_eq!(fresh.count("inbox"), 602);
}

#[test]
fn a_read_view_shows_one_revision() {
    needs!("postgresql");
    let fresh = Fresh::made();
    let (store, other) = (fresh.open(), fresh.open());
    let agent = create(&store, "a");
    agent.arrive(&[message(1), message(2), message(3), message(4)]).unwrap();
    let before = agent.read_view().unwrap();
    let theirs = agent_of(&other, "a");
    let open = |id: &str, n: u32| Op::Open { plane: Plane::Waits, id: id.into(), text: n.to_string() };
    hold(&theirs).commit(1, &[state(2), event(2), ended(1), open("b", 1), open("a", 2)]).unwrap();
    hold(&theirs).commit(2, &[state(3), event(3), ended(2), open("b", 3)]).unwrap();
    hold(&theirs)
        .commit(
            3,
            &[
                state(4),
                Op::Closed { plane: Plane::Waits, id: "a".into() },
                Op::MessageTaken(key(Priority::Normal, 4)),
            ],
        )
        .unwrap();
    assert_eq!(before.state().unwrap(), "{\"revision\":1}\n");
    assert!(before.open(Plane::Waits).unwrap().is_empty());
    let mut lines = Vec::new();
    before
        .events(Order::Since(None), &mut |line| {
            lines.push(line.to_owned());
            Ok(true)
        })
        .unwrap();
    assert_eq!(lines, ["{\"seq\":1}\n"]);
    before.ended(&["message"], None, &mut |_| panic!("nothing has ended")).unwrap();
    assert!(before.message(key(Priority::Normal, 3)).unwrap().is_some());
    // A query whose answer may have changed since revision 1 fails, so that the reader tries again.
    for error in
        [before.message(key(Priority::Normal, 4)).unwrap_err(), before.key("k", always()).unwrap_err()]
    {
        assert_eq!((error.kind(), error.exit_status()), ("changed", Status::Busy));
    }
    let now = agent.read_view().unwrap();
    assert_eq!(now.open(Plane::Waits).unwrap(), [("b".to_owned(), "3".to_owned())]);
    assert_eq!(now.message(key(Priority::Normal, 4)).unwrap(), None);
}

#[test]
fn history_lines_are_read_in_order_until_the_reader_stops() {
    needs!("postgresql");
    let (_fresh, _store, agent) = in_a_store();
    let lock = hold(&agent);
    let mut ops = vec![state(2)];
    ops.extend((2..=1300).map(event));
    ops.extend((1..=700).map(ended));
    ops.push(Op::Ended { kind: "run", id: None, at: at(-40_000_000_000), text: "0".into() });
    lock.commit(1, &ops).unwrap();
    drop(lock);
    let seen = agent.read_view().unwrap();
    let read = |order, most: usize| {
        let mut all = Vec::new();
        seen.events(order, &mut |line| {
            all.push(line.trim()[7..].trim_end_matches('}').parse::<u64>().unwrap());
            Ok(all.len() < most)
        })
        .unwrap();
        all
    };
    assert_eq!(read(Order::Since(None), usize::MAX), (1..=1300).collect::<Vec<_>>());
    assert_eq!(read(Order::Since(Some(at(1000))), usize::MAX), (1000..=1300).collect::<Vec<_>>());
    assert_eq!(read(Order::NewestFirst, 40), (1261..=1300).rev().collect::<Vec<_>>());
    let all = all_ended(&agent, "message");
    assert_eq!((all.len(), all[0].as_str()), (700, "{\"ended\":700}\n"));
    assert_eq!(all_ended(&agent, "run"), ["0"]);
    let mut found = Vec::new();
    seen.ended(&["message"], Some(&[id(77).to_string()]), &mut |line| {
        found.push(line.to_owned());
        Ok(true)
    })
    .unwrap();
    assert_eq!(found, ["{\"ended\":77}\n"]);
    let several = [id(5).to_string(), id(600).to_string(), id(9000).to_string()];
    found.clear();
    seen.ended(&["message", "run"], Some(&several), &mut |line| {
        found.push(line.to_owned());
        Ok(true)
    })
    .unwrap();
    assert_eq!(found, ["{\"ended\":600}\n", "{\"ended\":5}\n"]);
}

/// Returns short forms of the archive lines and events of an agent.
pub fn past(agent: &Rc<dyn RemoteRecords + '_>) -> Vec<String> {
    let short = |op| match op {
        Op::Ended { kind, text, .. } => Some(format!("{kind} {}", text.trim())),
        Op::Event { seq, .. } => Some(format!("event {seq}")),
        _ => None,
    };
    copied(agent).into_iter().filter_map(short).collect()
}

#[test]
fn the_deletion_of_a_period_keeps_lines_that_were_added_later() {
    needs!("postgresql");
    let memory = Memory::default();
    let fresh = Fresh::made();
    let database = fresh.open();
    let stores: [&dyn RemoteBackend; 2] = [&memory, &database];
    let [in_memory, in_database] = stores.map(|store| {
        assert!(store.create(&name("a"), &each_of(&[state(1), event(1)])).unwrap());
        let agent = store.agent(&name("a")).unwrap().expect("made");
        let lock = hold(&agent);
        let old = |kind, number: u64, text: &str| Op::Ended {
            kind,
            id: Some(id(u128::from(number)).to_string()),
            at: at(-1000 + number as i64),
            text: format!("{text}\n"),
        };
        let [ended, other, third] = [old("message", 1, "1"), old("run", 2, "2"), old(ENDED, 3, "3")];
        lock.commit(1, &[state(2), ended, other, third, event(2)]).unwrap();
        lock.commit(2, &[state(3), old("message", 4, "4"), old("message", 2000, "5")]).unwrap();
        let mut before = Vec::new();
        agent
            .read_view()
            .unwrap()
            .history(Some(at(0)), &mut |op| {
                before.push(op);
                Ok(())
            })
            .unwrap();
        before.sort_by_key(|op| format!("{op:?}"));
        assert_eq!(before, [old("message", 1, "1"), old("message", 4, "4"), old("run", 2, "2")]);
        let forgotten = Op::Forgotten { from: at(-2000), until: at(2), seen_at: 2 };
        lock.commit(3, &[state(4), forgotten]).unwrap();
        drop(lock);
        let mut past = past(&agent);
        past.sort();
        past
    });
    assert_eq!(in_database, ["ended 3", "event 2", "message 4", "message 5"]);
    assert_eq!(in_memory, in_database);
}

#[test]
fn texts_returns_only_messages_that_are_in_the_inbox() {
    needs!("postgresql");
    let fresh = Fresh::made();
    let agent = create(&fresh.open(), "a");
    let arrivals = (1..=300).map(message);
    assert!(agent.arrive(&arrivals.collect::<Vec<_>>()).unwrap());
    let keys: Vec<_> = (2..=400).map(|number| key(Priority::Normal, number)).collect();
    let mut found = 0;
    let mut count = |_, text: &str| {
        found += usize::from(text.starts_with('{'));
        Ok(())
    };
    agent.read_view().unwrap().texts(&keys, &mut count).unwrap();
    assert_eq!(found, 299);
}

/// Returns the number of pages that a query reads.
fn pages(fresh: &Fresh, query: &str) -> u64 {
    let plan = fresh.run(&format!("EXPLAIN (ANALYZE, BUFFERS, SUMMARY off) {query}"));
    let before = |line: &String| line.split(" Planning:").next().map(str::to_owned).unwrap_or_default();
    let lines: Vec<String> =
        plan.iter().take_while(|line| !line.starts_with("Planning")).map(before).collect();
    // The first line with `Buffers:` is about the whole query.
    let buffers = lines.iter().find(|line| line.contains("Buffers:")).expect("what was read");
    let counts = buffers.split_whitespace().filter_map(|word| word.split_once('='));
    counts
        .filter(|(kind, _)| matches!(*kind, "hit" | "read"))
        .map(|(_, count)| count.parse::<u64>().unwrap())
        .sum()
}

/// Creates agents of which 100 are due, and 50 others have 20,000 messages together. All agents
/// that are not due have a timer in the future.
fn fleet(agents: usize) -> Fresh {
    let fresh = Fresh::made();
    fresh.run(&format!(
        "INSERT INTO @.agent (name, identity, policy) SELECT 'a' || n, '1', '' FROM generate_series(1, {agents}) n;\
         INSERT INTO @.due SELECT n, '', CASE WHEN n <= 100 THEN n ELSE 1000000 + n END FROM generate_series(1, {agents}) n;\
         INSERT INTO @.inbox (agent_id, prio, id, body) SELECT 101 + n % 50, 2, gen_random_uuid(), '1' FROM generate_series(1, 20000) n;\
         ANALYZE @.due; ANALYZE @.inbox; ANALYZE @.agent; SELECT 1"
    ));
    fresh
}

#[test]
fn the_due_query_reads_few_pages_in_a_large_fleet() {
    needs!("postgresql");
    let most = std::env::var("DORMOUSE_FLEET").ok().and_then(|count| count.parse().ok()).unwrap_or(100_000);
    let read = [1000, most].map(|agents| {
        let fresh = fleet(agents);
        let found = fresh.open().due(Time::from_millis(1000), &[Pool::COMMON], None).unwrap().unwrap();
        assert_eq!((found.agents.len(), found.next), (150, Some(Time::from_millis(1_000_101))));
        let query = |sql: &str| sql.replace("$1", "1000").replace("$2", "ARRAY['']").replace("$3", "NULL");
        (pages(&fresh, &query(&due::agents())), pages(&fresh, &query(due::NEXT)))
    });
    // `due` finds neither the agents of other pools nor the times of their timers.
    let fresh = fleet(1000);
    fresh.run("UPDATE @.due SET pool = 'a'; UPDATE @.agent SET pool = 'a'; UPDATE @.due SET pool = 'b' WHERE agent_id = 7; SELECT 1");
    let pools = ["b", "c"].map(|word| Pool::of(&format!("scheduler.pool = \"{word}\"")));
    let found = fresh.open().due(Time::from_millis(1000), &pools, None).unwrap().unwrap();
    assert_eq!((found.agents.len(), found.next), (0, None), "its settings are of another pool");
    fresh.run("UPDATE @.agent SET pool = 'b' WHERE id = 7; SELECT 1");
    let found = fresh.open().due(Time::from_millis(0), &pools, None).unwrap().unwrap();
    assert_eq!((found.agents.len(), found.next), (0, Some(Time::from_millis(7))));
    assert!(fresh.open().due(Time::from_millis(7), &pools, None).unwrap().unwrap().names().eq([&name("a7")]));
    let [(few, next_of_few), (many, next_of_many)] = read;
    // The query uses only indexes. In larger indexes, 300 lookups may read two more pages each.
    assert!(few <= 3000 && many <= few + 2 * 300 + 100, "{few} pages, {many} pages");
    assert!(next_of_few <= 10 && next_of_many <= 10, "{next_of_few} pages, {next_of_many} pages");
}

#[test]
fn reads_of_one_agent_use_indexes() {
    needs!("postgresql");
    let fresh = Fresh::made();
    fresh.run(
        "INSERT INTO @.inbox (agent_id, prio, id, body) SELECT n % 50, 2, gen_random_uuid(), '1' FROM generate_series(1, 20000) n;\
         INSERT INTO @.archive (agent_id, kind, at, revision, body) SELECT n % 50, 'run', n, 1, '1' FROM generate_series(1, 20000) n;\
         ANALYZE @.inbox; ANALYZE @.archive; SELECT 1",
    );
    let plan = |query: &str| fresh.run(&format!("EXPLAIN (ANALYZE, BUFFERS) {query}")).join("\n");
    let body = super::super::SCHEMA.split("$load$").nth(1).unwrap();
    let (_, first) = body.split_once("RETURN QUERY").unwrap();
    let found = plan(&first.split(';').next().unwrap().replace("$1", "7"));
    assert!(found.contains("inbox_pkey"), "{found}");
    let found = plan(
        "SELECT t.seq, t.body FROM @.archive t WHERE t.kind = 'run' AND t.agent_id = 7 AND t.revision <= 9 ORDER BY t.seq DESC LIMIT 32",
    );
    assert!(
        found.contains("archive_default_pkey") && !found.contains("Seq Scan on archive_default"),
        "{found}"
    );
}

#[test]
fn a_mistyped_name_costs_the_same_among_many_agents() {
    needs!("postgresql");
    let fresh = Fresh::made();
    fresh.run(
        r#"INSERT INTO @.agent (name, identity, policy) SELECT 'a' || n, '{}', '' FROM generate_series(10001, 20000) n;
           UPDATE @.agent SET identity = '{"former_names": [{"name": "old"}]}' WHERE name = 'a15000';
           ANALYZE @.agent; SELECT 1"#,
    );
    let store = fresh.open();
    let around = store.agents_around(&name("a15000x")).unwrap();
    assert_eq!((around.len(), around.contains(&name("a15000"))), (1000, true));
    assert_eq!(store.formerly_named(&name("old")).unwrap()[0].0, name("a15000"));
    let identity = "strpos(identity::text, '\"former_names\"') > 0 AND strpos(identity::text, 'old') > 0";
    let plan =
        fresh.run(&format!("EXPLAIN SELECT name FROM @.agent WHERE {identity} ORDER BY name")).join("\n");
    assert!(plan.contains("agent_former"), "{plan}");
}

#[test]
fn a_checkpoint_of_any_size_is_kept_while_a_record_names_it() {
    needs!("postgresql");
    let memory = Memory::default();
    let fresh = Fresh::made();
    let database = fresh.open();
    let stores: [&dyn RemoteBackend; 2] = [&memory, &database];
    for store in stores {
        assert!(store.create(&name("a"), &each_of(&[state(1)])).unwrap());
        let agent = store.agent(&name("a")).unwrap().expect("made");
        let lock = hold(&agent);
        let checkpoint = |run: u128, number| Checkpoint { run_id: RunId(id(run).0), number };
        let saved = |checkpoint| {
            let mut bytes = Vec::new();
            let is_there = agent.saved(checkpoint, &mut |part| bytes.extend_from_slice(part)).unwrap();
            is_there.then_some(bytes)
        };
        let large: Vec<u8> = (0..PART * 5 / 2).map(|at| (at * 7 % 251) as u8).collect();
        let mut revision = 1;
        for bytes in [&large[..], b"", b"\0\xff\\'", &large[..PART], &large[..=PART]] {
            let mut ops = vec![Op::Unsaved(checkpoint(1, 1)), state(revision + 1)];
            ops.extend(parts(checkpoint(1, 2), bytes));
            lock.commit(revision, &ops).unwrap();
            revision += 1;
            assert!(saved(checkpoint(1, 2)).as_deref() == Some(bytes), "{} bytes", bytes.len());
            assert_eq!((saved(checkpoint(1, 1)), saved(checkpoint(2, 2))), (None, None));
        }
        let mut again = copied(&agent);
        again.retain(|op| matches!(op, Op::Saved { .. }));
        assert!(
            again.into_iter().eq(parts(checkpoint(1, 2), &large[..=PART])),
            "another store gets the same"
        );
        // The change keeps an archive line that names run 2, and deletes one that names run 3.
        let mut ops = vec![state(revision + 1)];
        for run in [2, 3] {
            ops.extend(parts(checkpoint(run, 1), b"half"));
            let text = format!("{{\"run\":\"{}\"}}\n", checkpoint(run, 1).run_id);
            let (kind, id) = ("message", Some(id(run).to_string()));
            ops.push(Op::Ended { kind, id, at: at(run as i64), text });
        }
        ops.push(Op::Forgotten { from: at(3), until: at(4), seen_at: revision + 1 });
        lock.commit(revision, &ops).unwrap();
        let are_there = [1, 2, 3].map(|run| saved(checkpoint(run, if run == 1 { 2 } else { 1 })).is_some());
        assert_eq!(are_there, [false, true, false]);
    }
}
