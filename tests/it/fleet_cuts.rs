//! Tests that a command survives the loss of its database connection at any round trip, before or
//! after the server has the request: the command succeeds, and the records end up the same.
//!
//! CI cuts at some of the round trips; `DORMOUSE_FLEET=1 cargo test --test it fleet_cuts` cuts at
//! all.

use serde_json::Value;

use crate::connection_proxy::{Cut, Proxy};
use crate::fleet::Machine;
use crate::harness::each_in_parallel;
use crate::server::durable;
use crate::setup::objects;

/// Turn that calls commands, which use the connection that breaks.
const TURN: &str = "test -e once || { : >once; dormouse work add 'an objective' -q && dormouse timer add --in 1h later -q && \
                    dormouse enqueue ada again --dedupe-key again -q; }; echo done";

const COMMANDS: [&[&str]; 11] = [
    &["create", "ada", "--shell", TURN],
    &["start", "ada"],
    &["enqueue", "ada", "one"],
    &["enqueue", "ada", "two", "--dedupe-key", "two"],
    &["enqueue", "ada", "three", "--in", "1h"],
    &["wake", "ada", "--reason", "look"],
    &["tick", "ada"],
    &["tick", "--all", "--until-idle"],
    &["queue", "list", "-a", "ada"],
    &["export", "ada", "--output", "ada.tar", "-q"],
    &["stop", "ada"],
];

/// Runs all commands through a proxy that cuts the connection. Returns the records at the end as
/// sorted lines, and the number of round trips.
fn done(schema: &str, cut: Option<Cut>) -> (Vec<String>, usize) {
    let direct = Machine::new(&durable().url(schema), None);
    direct.run(["init"]);
    let proxy = Proxy::before(durable().socket(), cut);
    let machine = Machine::through(&proxy, "dormouse", schema);
    for words in COMMANDS {
        let ran = machine.cmd(words.iter().copied()).output();
        // A step exits with 7 if its turn fails.
        assert!(matches!(ran.code(), 0 | 7), "{cut:?}: {words:?}: {ran}");
    }
    let mut found = Vec::new();
    let mut note = |words: &[&str], fields: &[&str]| {
        let ran = direct.cmd(["--json"].iter().chain(words).copied()).exits(0);
        let shown = |object: &Value| {
            fields.iter().map(|field| object.pointer(field).cloned().unwrap_or_default()).collect::<Vec<_>>()
        };
        let mut lines: Vec<String> =
            objects(&ran.stdout).iter().map(|object| format!("{} {:?}", words[0], shown(object))).collect();
        lines.sort();
        found.append(&mut lines);
    };
    note(
        &["get", "ada"],
        &["/status", "/queue/pending", "/counters/messages_processed", "/counters/runs_completed"],
    );
    note(&["queue", "list", "-a", "ada"], &["/kind", "/status", "/body", "/attempt"]);
    note(&["work", "list", "-a", "ada"], &["/objective", "/state"]);
    note(&["timer", "list", "-a", "ada"], &["/summary"]);
    note(&["run", "list", "-a", "ada", "--limit", "0"], &["/terminal", "/attempt"]);
    note(&["events", "ada", "--limit", "0"], &["/kind", "/data/status", "/data/reason", "/data/to"]);
    direct.cmd(["doctor"]).exits(0);
    let left = durable().sql(&format!("SELECT count(*) FROM {schema}.lease"));
    assert_eq!(left, ["0"], "{cut:?}");
    (found, proxy.trips())
}

#[test]
fn a_lost_connection_at_any_round_trip_does_not_change_the_outcome() {
    needs!("postgresql");
    let (whole, trips) = done("cuts", None);
    assert!(trips > 60, "{trips}");
    let step = if std::env::var_os("DORMOUSE_FLEET").is_some() { 1 } else { 5 };
    let cuts: Vec<Cut> = (1..=trips)
        .flat_map(|number| [Cut::Before(number), Cut::After(number)])
        .enumerate()
        .filter_map(|(at, cut)| (at % step == 0).then_some(cut))
        .collect();
    each_in_parallel(&cuts, |cut| {
        let (name, number) = match cut {
            Cut::Before(number) => ("before", number),
            Cut::After(number) => ("after", number),
        };
        let (found, _) = done(&format!("cuts_{name}_{number}"), Some(*cut));
        let differs = |one: &[String], other: &[String]| {
            one.iter().filter(|line| !other.contains(line)).cloned().collect::<Vec<_>>()
        };
        assert!(
            found == whole,
            "{cut:?}: more: {:#?}, less: {:#?}",
            differs(&found, &whole),
            differs(&whole, &found)
        );
    });
}

/// Each round trip costs time, and a share of the load that all machines put on the server.
#[test]
fn a_message_and_a_step_with_a_turn_are_a_few_round_trips() {
    needs!("postgresql");
    let direct = Machine::new(&durable().url("few_flights"), None).with_ada("true");
    let proxy = Proxy::before(durable().socket(), None);
    let machine = Machine::through(&proxy, "dormouse", "few_flights");
    let trips = |args: &[&str]| {
        let before = proxy.trips();
        machine.run(args.iter().copied());
        proxy.trips() - before
    };
    // On a very slow machine a step also renews its lease and reads the records again, so the
    // smallest of three counts is compared.
    let message = (0..3).map(|_| trips(&["enqueue", "ada", "one"])).min();
    assert_eq!(message, Some(1), "one trip takes the message and updates the agent");
    let step = (0..3).map(|_| trips(&["tick", "ada"])).min();
    assert_eq!(step, Some(5), "one for the agent, two for the claim, and two for the settlement");
    // The first step of a day that comes to rest also looks for expired history.
    for args in [["tick", "ada"].as_slice(), &["enqueue", "ada", "one"], &["tick", "ada"]] {
        trips(args);
    }
    assert_eq!(trips(&["tick", "ada"]), 3, "a step that comes to rest needs no lease");
    assert_eq!(trips(&["tick", "ada"]), 1, "a step of an agent at rest only reads");
    assert_eq!(direct.json(["get", "ada"])["counters"]["messages_processed"], 4);
}

/// A role with the part `producer` may only call one function of the database. The function tells
/// a producer that repeats a request whether the message has arrived already.
#[test]
fn a_producer_with_a_lost_connection_enqueues_each_message_once() {
    needs!("postgresql");
    let server = durable();
    server
        .sql("DO $$ BEGIN CREATE ROLE cut_producer LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$");
    let said = |schema: &str, cut: Option<Cut>| {
        let owner = Machine::new(&server.url(schema), None).with_ada("echo done");
        owner.run(["init", "--grant", "producer=cut_producer", "-q"]);
        let proxy = Proxy::before(server.socket(), cut);
        let producer = Machine::through(&proxy, "cut_producer", schema);
        let id = producer.id(["enqueue", "ada", "one"]);
        producer.run(["wake", "ada"]);
        let batch = producer
            .cmd(["enqueue", "ada", "--batch"])
            .stdin("{\"text\":\"2\"}\n{\"text\":\"3\"}\n")
            .output();
        assert_eq!((batch.code(), batch.stdout.lines().count()), (0, 2), "{cut:?}: {batch}");
        assert_eq!(owner.json(["queue", "show", &id])["status"], "queued", "{cut:?}");
        let counted = server.sql(&format!("SELECT count(*), count(by) FROM {schema}.inbox"));
        assert_eq!(counted, ["4|4"], "{cut:?}");
        proxy.trips()
    };
    let trips = said("cuts_said", None);
    assert_eq!(trips, 9);
    for number in 1..=trips {
        said(&format!("cuts_said_before_{number}"), Some(Cut::Before(number)));
        said(&format!("cuts_said_after_{number}"), Some(Cut::After(number)));
    }
}
