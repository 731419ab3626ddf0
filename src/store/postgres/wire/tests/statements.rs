//! Tests that send statements to a real PostgreSQL server.

use std::time::{Duration, Instant};

use super::super::{Connection, Statement, Value, WireFault};
use super::rig::{self, LONG, server};
use super::{SHORT, open, trip};

fn connected() -> Connection {
    open(&server().url("s"), None).unwrap()
}

#[test]
fn a_round_trip_has_one_answer_for_each_statement() {
    needs!("postgresql");
    let mut connection = connected();
    let answers = trip(
        &mut connection,
        "BEGIN; CREATE TEMP TABLE t (a int, b text) ON COMMIT DROP; \
             INSERT INTO t VALUES (1, 'x'), (2, NULL), (3, ''); SELECT a, b FROM t ORDER BY a; \
             UPDATE t SET b = 'y' WHERE a < 3; SELECT 1 WHERE false; COMMIT",
        LONG,
    )
    .unwrap();
    let counts: Vec<usize> = answers.iter().map(|answer| answer.len()).collect();
    assert_eq!(counts, [0, 0, 0, 3, 0, 0, 0]);
    let rows = &answers[3];
    assert_eq!(rows.len(), 3);
    assert_eq!((rows[0].get(0), rows[0].get(1), rows[0].get(2)), (Some("1"), Some("x"), None));
    assert_eq!((rows[1].get(1), rows[2].get(1), rows[2].get(2)), (None, Some(""), None));
    assert!(!connection.is_in_transaction());
    assert!(connection.script("", LONG).unwrap().is_empty());
}

#[test]
fn a_refused_statement_leaves_the_connection_usable() {
    needs!("postgresql");
    let mut connection = connected();
    let refused = trip(&mut connection, "SELECT 1; SELECT 1/0; SELECT 2", LONG).unwrap_err();
    assert_eq!(refused.code(), Some("22012"), "{refused}");
    assert!(connection.is_usable() && !connection.is_in_transaction());
    let refused = trip(&mut connection, "BEGIN; SELECT nothing_like_this; COMMIT", LONG).unwrap_err();
    assert_eq!(refused.code(), Some("42703"));
    assert!(connection.is_in_transaction());
    trip(&mut connection, "ROLLBACK", LONG).unwrap();
    assert_eq!(trip(&mut connection, "SELECT 5", LONG).unwrap()[0][0].get(0), Some("5"));
    let Err(WireFault::Server { more, .. }) =
        connection.script("DO $$ BEGIN RAISE 'm' USING DETAIL = 'd', HINT = 'h'; END $$", LONG)
    else {
        panic!("a raised error")
    };
    assert_eq!(more, "; d; h");
}

#[test]
fn parameters_are_sent_and_read_back_unchanged() {
    needs!("postgresql");
    let mut connection = connected();
    let texts =
        ["", "'", "''; DROP TABLE x; --", "\\", "\\'", "a\\nb\n\t", "ü€😀", "$1 %s @", "{NULL,\"}", "NULL"];
    for text in texts {
        let asked = Statement::new("SELECT $1::text").with(text);
        let answers = connection.round_trip(&[&Statement::new("SELECT 1"), &asked], LONG).unwrap();
        assert_eq!(answers[1][0].get(0), Some(text));
    }
    let all: Vec<String> = texts.map(str::to_owned).to_vec();
    let rows = all.iter().map(|text| vec![Some(text.clone()), None, Some("1".to_owned())]);
    let asked = [
        Statement::new("SELECT v FROM unnest($1) WITH ORDINALITY v (v, n) ORDER BY n").with(all.clone()),
        Statement::new("SELECT ($1)[n][1], ($1)[n][2] FROM generate_series(1, 10) n")
            .with(Value::Table(rows.collect())),
        Statement::new("SELECT cardinality($1), cardinality($2)")
            .with(Vec::new())
            .with(Value::Table(Vec::new())),
        Statement::new("SELECT $1::bigint IS NULL, $2, $3 + 1").with(None::<i64>).with(true).with(41u64),
    ];
    let answers = connection.round_trip(&asked.iter().collect::<Vec<_>>(), LONG).unwrap();
    for answer in &answers[..2] {
        assert!(answer.iter().map(|row| row.get(0).unwrap()).eq(texts));
    }
    assert!(answers[1].iter().all(|row| row.get(1).is_none()));
    assert_eq!((answers[2][0].get(0), answers[2][0].get(1)), (Some("0"), Some("0")));
    assert_eq!([0, 1, 2].map(|at| answers[3][0].get(at)), [Some("t"), Some("true"), Some("42")]);
    for nul in [Statement::new("SELECT $1").with("a\0b"), Statement::new("SELECT 'a\0b'")] {
        assert!(matches!(connection.round_trip(&[&nul], LONG), Err(WireFault::Invalid(_))));
    }
    assert!(connection.is_usable());
    assert_eq!(trip(&mut connection, "SELECT 5", LONG).unwrap()[0][0].get(0), Some("5"));
}

#[test]
fn megabytes_are_sent_and_received() {
    needs!("postgresql");
    let roots = server().roots();
    let tls = server().tcp_url("trusted", "localhost", &format!("&sslrootcert={}", roots.display()));
    for url in [server().url("s"), tls] {
        let mut connection = open(&url, None).unwrap();
        let text = "0123456789abcdef'".repeat(500_000);
        let asked = Statement::new("SELECT $1::text").with(&text);
        let answers = connection.round_trip(&[&asked, &asked], LONG).unwrap();
        assert!(answers.iter().all(|answer| answer[0].get(0) == Some(&*text)), "{url}");
        let answers =
            trip(&mut connection, "SELECT i, repeat('x', 20) FROM generate_series(1, 200000) i", LONG)
                .unwrap();
        assert_eq!((answers[0].len(), answers[0][199_999].get(0)), (200_000, Some("200000")));
    }
}

#[test]
fn notifications_are_received() {
    needs!("postgresql");
    let (mut hearing, mut telling) = (connected(), connected());
    trip(&mut hearing, "LISTEN heard; LISTEN heard_2", LONG).unwrap();
    assert_eq!(hearing.notified(Duration::ZERO).unwrap(), [""; 0]);
    let begun = Instant::now();
    assert_eq!(hearing.notified(SHORT).unwrap(), [""; 0]);
    assert!(begun.elapsed() >= SHORT);
    trip(&mut telling, "NOTIFY heard; NOTIFY heard; NOTIFY heard_2; NOTIFY other", LONG).unwrap();
    let mut told = hearing.notified(LONG).unwrap();
    while told.len() < 2 {
        told.extend(hearing.notified(LONG).unwrap());
    }
    assert_eq!(told, ["heard", "heard_2"]);
    // A notification that arrives with an answer is kept until the next call of `notified`.
    trip(&mut hearing, "NOTIFY heard", LONG).unwrap();
    assert_eq!(hearing.notified(LONG).unwrap(), ["heard"]);
}

#[test]
fn a_round_trip_ends_at_its_deadline() {
    needs!("postgresql");
    let mut connection = connected();
    let begun = Instant::now();
    let lost = trip(&mut connection, "SELECT pg_sleep(20)", SHORT).unwrap_err();
    assert!(matches!(lost, WireFault::Lost { sent: true, .. }), "{lost:?}");
    assert!(begun.elapsed() < Duration::from_secs(5) && !connection.is_usable());
    assert!(matches!(trip(&mut connection, "SELECT 1", LONG), Err(WireFault::Lost { sent: false, .. })));
}

#[test]
fn a_statement_on_a_terminated_connection_counts_as_not_sent() {
    needs!("postgresql");
    let mut connection = connected();
    let answers = trip(&mut connection, "SELECT pg_backend_pid()", LONG).unwrap();
    let pid = answers[0][0].get(0).unwrap();
    rig::superuser_sql(&format!("SELECT pg_terminate_backend({pid}, 10000)"));
    let lost = trip(&mut connection, "SELECT 1", LONG).unwrap_err();
    assert!(matches!(&lost, WireFault::Lost { sent: false, why } if why.contains("57P01")), "{lost:?}");
    // If the connection breaks during a round trip, the outcome is unknown.
    let mut connection = connected();
    let lost = trip(&mut connection, "SELECT pg_terminate_backend(pg_backend_pid())", LONG).unwrap_err();
    assert!(matches!(&lost, WireFault::Lost { sent: true, why } if why.contains("57P01")), "{lost:?}");
}
