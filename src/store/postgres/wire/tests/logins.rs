//! Tests of logins with passwords and TLS, and through PgBouncer.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use super::super::super::Url;
use super::super::{Connection, WireFault};
use super::rig::{self, LONG, server};
use super::{SHORT, open, refused, trip};

#[test]
fn a_login_with_scram_needs_the_right_password() {
    needs!("postgresql");
    let url = server().tcp_url("scram", "127.0.0.1", "");
    open(&url, Some("secret")).unwrap();
    assert_eq!(refused(&url, Some("wrong")).code(), Some("28P01"));
    assert!(matches!(refused(&url, None), WireFault::Unfit(says) if says.contains("PGPASSWORD")));
    assert_eq!(refused(&server().tcp_url("nobody_like_this", "127.0.0.1", ""), None).code(), Some("28000"));
}

#[test]
fn a_cleartext_password_is_sent_only_to_a_verified_server() {
    needs!("postgresql");
    let roots = format!("&sslrootcert={}", server().roots().display());
    // A weak hash is allowed because no data leaves this machine.
    open(&server().tcp_url("hashed", "127.0.0.1", ""), Some("secret")).unwrap();
    let says = refused(&server().tcp_url("clear", "127.0.0.1", ""), Some("secret")).to_string();
    assert!(says.contains("wants the password as it is"), "{says}");
    for mode in ["&sslmode=require", &format!("&sslmode=verify-ca{roots}")] {
        assert!(matches!(
            refused(&server().tcp_url("clear", "localhost", mode), Some("secret")),
            WireFault::Unfit(_)
        ));
    }
    open(&server().tcp_url("clear", "localhost", &roots), Some("secret")).unwrap();
}

#[test]
fn tls_is_as_strict_as_its_mode() {
    needs!("postgresql");
    let roots = server().roots();
    let own = format!("&sslrootcert={}", roots.display());
    let other = format!("&sslrootcert={}", roots.with_file_name("other.pem").display());
    let is_encrypted = |host: &str, more: &str| {
        let mut connection = open(&server().tcp_url("scram", host, more), Some("secret")).unwrap();
        let sql = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
        trip(&mut connection, sql, LONG).unwrap()[0][0].get(0) == Some("t")
    };
    assert!(!is_encrypted("localhost", ""));
    // The server checks that SCRAM is bound to its certificate.
    assert!(is_encrypted("localhost", &own));
    assert!(is_encrypted("127.0.0.1", "&sslmode=require"));
    assert!(is_encrypted("127.0.0.1", &format!("&sslmode=verify-ca{own}")));
    for (host, more) in [
        ("127.0.0.1", own.clone()),
        ("localhost", other.clone()),
        ("localhost", format!("&sslmode=verify-ca{other}")),
        ("localhost", "&sslmode=verify-full".to_owned()),
        ("localhost", "&sslrootcert=/no/such/file".to_owned()),
        ("localhost", format!("&sslrootcert={}", roots.with_file_name("names").display())),
    ] {
        let fault = refused(&server().tcp_url("scram", host, &more), Some("secret"));
        assert!(matches!(fault, WireFault::Unfit(_)), "{host}{more}: {fault:?}");
    }
}

#[test]
fn a_server_that_is_not_there_is_unreachable() {
    needs!("postgresql");
    let port = rig::free_port();
    for url in [
        format!("postgres://u@127.0.0.1:{port}/d"),
        format!("postgres://u@localhost:{port}/d"),
        format!("postgres://u@/d?host={}&port=1", server().socket_dir().display()),
        "postgres://u@no-such-host.invalid/d".to_owned(),
    ] {
        assert!(matches!(refused(&url, None), WireFault::Unreachable(_)), "{url}");
    }
    assert_eq!(refused(&server().url("s").replace("/dormouse?", "/no_such?"), None).code(), Some("3D000"));
}

#[test]
fn a_silent_server_is_unreachable_after_the_deadline() {
    // The listener never accepts, but the system's queue completes the connection.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    for more in ["", "?sslmode=require"] {
        let url = Url::parse(&format!("postgres://u@127.0.0.1:{port}/d{more}")).unwrap();
        let begun = Instant::now();
        let fault = Connection::open(&url, SHORT).err().unwrap();
        assert!(matches!(fault, WireFault::Unreachable(_)), "{fault:?}");
        assert!(begun.elapsed() >= SHORT && begun.elapsed() < Duration::from_secs(5));
    }
    let url = Url::parse(&format!("postgres://u@127.0.0.1:{port}/d?connect_timeout=300ms")).unwrap();
    let begun = Instant::now();
    assert!(Connection::open(&url, LONG).is_err());
    assert!(begun.elapsed() < Duration::from_secs(5));
}

#[test]
fn round_trips_work_through_pgbouncer() {
    needs!("postgresql");
    let server = server();
    let _alone = crate::alone::alone();
    let bouncer = rig::Bouncer::before(server);
    let url = bouncer.url("s");
    let until = Instant::now() + LONG;
    let mut first = loop {
        match open(&url, Some("secret")) {
            Ok(connection) => break connection,
            Err(fault) => assert!(Instant::now() < until, "{fault}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let by_socket = bouncer.socket_url("s");
    let mut others: Vec<Connection> = (0..4).map(|_| open(&by_socket, Some("secret")).unwrap()).collect();
    for round in 0..20 {
        for connection in others.iter_mut().chain([&mut first]) {
            let sql = format!("BEGIN; SET LOCAL lock_timeout = '1s'; SELECT {round}; COMMIT");
            let answers = trip(connection, &sql, LONG).unwrap();
            assert_eq!(answers[2][0].get(0), Some(round.to_string().as_str()));
            assert_eq!(trip(connection, "SELECT 1/0", LONG).unwrap_err().code(), Some("22012"));
        }
    }
    assert!(open(&url, Some("wrong")).is_err());
    drop(bouncer);
    let lost = trip(&mut first, "SELECT 1", LONG).unwrap_err();
    assert!(matches!(lost, WireFault::Lost { sent: false, .. }), "{lost:?}");
}
