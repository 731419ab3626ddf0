//! Whole commands whose line to the database breaks at each of their trips, before the server has it and after: each ends
//! as it would have, and what there is at the end is the same.
//!
//! CI takes some of the trips; `DORMOUSE_FLEET=1 cargo test --test it fleet_cuts` takes all.

use serde_json::Value;

use crate::cutting::{Cut, Proxy};
use crate::fleet::Machine;
use crate::harness::each_in_parallel;
use crate::server::durable;
use crate::setup::objects;

/// What is done over the line that breaks. The turn calls commands over it, too.
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

/// Does it all, and returns what there is at the end, and how many trips it took.
fn done(schema: &str, cut: Option<Cut>) -> (Vec<String>, usize) {
    let direct = Machine::new(&durable().url(schema), None);
    direct.run(["init"]);
    let proxy = Proxy::before(durable().socket(), cut);
    let url =
        format!("postgres://dormouse@127.0.0.1:{}/dormouse?schema={schema}&sslmode=disable", proxy.port);
    let machine = Machine::new(&url, None);
    for words in COMMANDS {
        let ran = machine.cmd(words.iter().copied()).output();
        // A hint that is taken up with the messages is nobody's to miss.
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
fn a_line_that_breaks_at_any_flight_changes_nothing_of_what_comes_of_it() {
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

/// Each flight is a while of waiting, and a part of what a fleet asks of its server.
#[test]
fn a_message_and_a_step_with_a_turn_are_a_few_flights() {
    needs!("postgresql");
    let direct = Machine::new(&durable().url("few_flights"), None).with_ada("true");
    let proxy = Proxy::before(durable().socket(), None);
    let url =
        format!("postgres://dormouse@127.0.0.1:{}/dormouse?schema=few_flights&sslmode=disable", proxy.port);
    let machine = Machine::new(&url, None);
    let trips = |args: &[&str]| {
        let before = proxy.trips();
        machine.run(args.iter().copied());
        proxy.trips() - before
    };
    // On a machine that is very slow a lease is kept alive meanwhile, and what came along is not fresh any more.
    let message = (0..3).map(|_| trips(&["enqueue", "ada", "one"])).min();
    assert_eq!(message, Some(1), "the message, and what its agent makes of it");
    let step = (0..3).map(|_| trips(&["tick", "ada"])).min();
    assert_eq!(step, Some(5), "one for the agent, two for the claim, and two for the settlement");
    // The first step of a day that comes to rest also looks for what is kept no longer.
    for args in [["tick", "ada"].as_slice(), &["enqueue", "ada", "one"], &["tick", "ada"]] {
        trips(args);
    }
    assert_eq!(trips(&["tick", "ada"]), 3, "what comes to rest needs no lease");
    assert_eq!(trips(&["tick", "ada"]), 1, "and what rests is looked at");
    assert_eq!(direct.json(["get", "ada"])["counters"]["messages_processed"], 4);
}

/// A producer may call one function, and hears of each message that it is there.
#[test]
fn a_producer_whose_line_breaks_says_everything_once() {
    needs!("postgresql");
    let server = durable();
    server
        .sql("DO $$ BEGIN CREATE ROLE cut_producer LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$");
    let said = |schema: &str, cut: Option<Cut>| {
        let owner = Machine::new(&server.url(schema), None).with_ada("echo done");
        owner.run(["init", "--grant", "producer=cut_producer", "-q"]);
        let proxy = Proxy::before(server.socket(), cut);
        let url = format!(
            "postgres://cut_producer@127.0.0.1:{}/dormouse?schema={schema}&sslmode=disable",
            proxy.port
        );
        let producer = Machine::new(&url, None);
        let id = producer.run(["enqueue", "ada", "one"]);
        producer.run(["wake", "ada"]);
        let batch = producer
            .cmd(["enqueue", "ada", "--batch"])
            .stdin("{\"text\":\"2\"}\n{\"text\":\"3\"}\n")
            .output();
        assert_eq!((batch.code(), batch.stdout.lines().count()), (0, 2), "{cut:?}: {batch}");
        assert_eq!(owner.json(["queue", "show", id.trim()])["status"], "queued", "{cut:?}");
        assert_eq!(
            server.sql(&format!("SELECT count(*), count(by) FROM {schema}.inbox")),
            ["4|4"],
            "{cut:?}"
        );
        proxy.trips()
    };
    let trips = said("cuts_said", None);
    assert_eq!(trips, 9);
    for number in 1..=trips {
        said(&format!("cuts_said_before_{number}"), Some(Cut::Before(number)));
        said(&format!("cuts_said_after_{number}"), Some(Cut::After(number)));
    }
}
