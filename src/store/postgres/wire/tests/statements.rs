//! Tests of round trips against a real server.

use std::time::{Duration, Instant};

use super::super::{Connection, WireFault, bytes_literal, literal};
use super::rig::{self, LONG, server};
use super::{SHORT, open};

fn connected() -> Connection {
    open(&server().url("s"), None).unwrap()
}

#[test]
fn a_flight_has_one_answer_for_each_statement() {
    needs!("postgresql");
    let mut connection = connected();
    assert!((140_000..1_000_000).contains(&connection.server_version()));
    let answers = connection
        .flight(
            "BEGIN; CREATE TEMP TABLE t (a int, b text) ON COMMIT DROP; \
             INSERT INTO t VALUES (1, 'x'), (2, NULL), (3, ''); SELECT a, b FROM t ORDER BY a; \
             UPDATE t SET b = 'y' WHERE a < 3; SELECT 1 WHERE false; COMMIT",
            LONG,
        )
        .unwrap();
    let affected: Vec<u64> = answers.iter().map(|answer| answer.affected).collect();
    assert_eq!(affected, [0, 0, 3, 3, 2, 0, 0]);
    let rows = &answers[3].rows;
    assert_eq!(rows.len(), 3);
    assert_eq!((rows[0].get(0), rows[0].get(1), rows[0].get(2)), (Some("1"), Some("x"), None));
    assert_eq!((rows[1].get(1), rows[2].get(1), rows[2].columns()), (None, Some(""), 2));
    assert!(!connection.is_in_transaction());
    assert!(connection.flight("", LONG).unwrap().is_empty());
}

#[test]
fn what_is_refused_leaves_the_connection_usable() {
    needs!("postgresql");
    let mut connection = connected();
    let refused = connection.flight("SELECT 1; SELECT 1/0; SELECT 2", LONG).unwrap_err();
    assert_eq!(refused.code(), Some("22012"), "{refused}");
    assert!(connection.is_usable() && !connection.is_in_transaction());
    let refused = connection.flight("BEGIN; SELECT nothing_like_this; COMMIT", LONG).unwrap_err();
    assert_eq!(refused.code(), Some("42703"));
    assert!(connection.is_in_transaction());
    connection.flight("ROLLBACK", LONG).unwrap();
    assert_eq!(connection.flight("SELECT 5", LONG).unwrap()[0].rows[0].get(0), Some("5"));
    let Err(WireFault::Server { detail, hint, .. }) =
        connection.flight("DO $$ BEGIN RAISE 'm' USING DETAIL = 'd', HINT = 'h'; END $$", LONG)
    else {
        panic!("a raised error")
    };
    assert_eq!((detail.as_deref(), hint.as_deref()), (Some("d"), Some("h")));
}

#[test]
fn literals_come_back_as_they_went() {
    needs!("postgresql");
    let mut connection = connected();
    for text in ["", "'", "''; DROP TABLE x; --", "\\", "\\'", "a\\nb\n\t", "ü€😀", "$1 %s", "'\\x00'::bytea"]
    {
        let answers = connection
            .flight(&format!("SELECT {0}, {0}::json IS NULL WHERE false; SELECT {0}", literal(text)), LONG);
        let answers = match answers {
            Ok(answers) => answers,
            // Some of these texts are no JSON.
            Err(WireFault::Server { .. }) => {
                connection.flight(&format!("SELECT 1; SELECT {}", literal(text)), LONG).unwrap()
            }
            Err(fault) => panic!("{fault}"),
        };
        assert_eq!(answers[1].rows[0].get(0), Some(text));
    }
    let bytes: Vec<u8> = (0..=255).collect();
    let sql = format!("SELECT length({0}), encode({0}, 'hex')", bytes_literal(&bytes));
    let answers = connection.flight(&sql, LONG).unwrap();
    assert_eq!(answers[0].rows[0].get(0), Some("256"));
    assert!(answers[0].rows[0].get(1).unwrap().starts_with("000102"));
    assert!(matches!(connection.flight(&literal("a\0b"), LONG), Err(WireFault::NotSent(_))));
    assert!(connection.is_usable());
}

#[test]
fn megabytes_go_both_ways() {
    needs!("postgresql");
    let roots = server().roots();
    let tls = server().tcp_url("trusted", "localhost", &format!("&sslrootcert={}", roots.display()));
    for url in [server().url("s"), tls] {
        let mut connection = open(&url, None).unwrap();
        let text = "0123456789abcdef'".repeat(500_000);
        let answers = connection.flight(&format!("SELECT {0}; SELECT {0}", literal(&text)), LONG).unwrap();
        assert!(answers.iter().all(|answer| answer.rows[0].get(0) == Some(&*text)), "{url}");
        let answers =
            connection.flight("SELECT i, repeat('x', 20) FROM generate_series(1, 200000) i", LONG).unwrap();
        assert_eq!((answers[0].affected, answers[0].rows[199_999].get(0)), (200_000, Some("200000")));
    }
}

#[test]
fn notifications_are_heard() {
    needs!("postgresql");
    let (mut hearing, mut telling) = (connected(), connected());
    hearing.flight("LISTEN heard; LISTEN heard_2", LONG).unwrap();
    assert_eq!(hearing.notified(Duration::ZERO).unwrap(), [""; 0]);
    let begun = Instant::now();
    assert_eq!(hearing.notified(SHORT).unwrap(), [""; 0]);
    assert!(begun.elapsed() >= SHORT);
    telling.flight("NOTIFY heard; NOTIFY heard; NOTIFY heard_2; NOTIFY other", LONG).unwrap();
    let mut told = hearing.notified(LONG).unwrap();
    while told.len() < 2 {
        told.extend(hearing.notified(LONG).unwrap());
    }
    assert_eq!(told, ["heard", "heard_2"]);
    // A notification that arrives with an answer is stored.
    hearing.flight("NOTIFY heard", LONG).unwrap();
    assert_eq!(hearing.notified(LONG).unwrap(), ["heard"]);
}

#[test]
fn a_flight_ends_at_its_deadline() {
    needs!("postgresql");
    let mut connection = connected();
    let begun = Instant::now();
    let lost = connection.flight("SELECT pg_sleep(20)", SHORT).unwrap_err();
    assert!(matches!(lost, WireFault::Lost { sent: true, .. }), "{lost:?}");
    assert!(begun.elapsed() < Duration::from_secs(5) && !connection.is_usable());
    assert!(matches!(connection.flight("SELECT 1", LONG), Err(WireFault::NotSent(_))));
}

#[test]
fn a_connection_that_was_ended_meanwhile_has_sent_nothing() {
    needs!("postgresql");
    let mut connection = connected();
    let answers = connection.flight("SELECT pg_backend_pid()", LONG).unwrap();
    let pid = answers[0].rows[0].get(0).unwrap();
    rig::superuser_sql(&format!("SELECT pg_terminate_backend({pid}, 10000)"));
    let lost = connection.flight("SELECT 1", LONG).unwrap_err();
    assert!(matches!(&lost, WireFault::Lost { sent: false, why } if why.contains("57P01")), "{lost:?}");
    // If the connection breaks during a round trip, the outcome is unknown.
    let mut connection = connected();
    let lost = connection.flight("SELECT pg_terminate_backend(pg_backend_pid())", LONG).unwrap_err();
    assert!(matches!(&lost, WireFault::Lost { sent: true, why } if why.contains("57P01")), "{lost:?}");
}
