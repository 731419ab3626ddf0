//! Tests of the client with incorrect messages, and with connections that are cut at each byte.

use std::io::Write;
use std::time::{Duration, Instant};

use super::super::WireFault;
use super::liar::*;
use super::rig::LONG;
use super::{SHORT, open, refused, trip};

#[test]
fn an_answer_may_be_cut_at_any_byte() {
    let whole = good_answer();
    for length in 0..whole.len() {
        let (url, server) = answering(whole[..length].to_vec());
        let mut connection = open(&url, None).unwrap();
        let lost = trip(&mut connection, "SELECT 'x'", LONG).unwrap_err();
        assert!(matches!(lost, WireFault::Lost { sent: true, .. }), "{length}: {lost:?}");
        assert!(!connection.is_usable());
        server.join().unwrap();
    }
    // An answer may arrive byte by byte.
    let (url, server) = serve(move |stream| {
        stream.set_nodelay(true).unwrap();
        for byte in good_greeting() {
            stream.write_all(&[byte]).unwrap();
        }
        hear_trip(stream);
        for byte in whole {
            stream.write_all(&[byte]).unwrap();
        }
    });
    let mut connection = open(&url, None).unwrap();
    assert_eq!(trip(&mut connection, "SELECT 'x'", LONG).unwrap()[0][0].get(0), Some("x"));
    server.join().unwrap();
}

#[test]
fn a_greeting_may_be_cut_at_any_byte() {
    let whole = good_greeting();
    for length in 0..whole.len() {
        let part = whole[..length].to_vec();
        let (url, server) = serve(move |stream| stream.write_all(&part).unwrap());
        let fault = refused(&url, None);
        assert!(matches!(fault, WireFault::Unreachable(_)), "{length}: {fault:?}");
        server.join().unwrap();
    }
}

#[test]
fn an_invalid_answer_loses_the_connection() {
    let long_row = [&[b'D'][..], &u32::MAX.to_be_bytes()].concat();
    for answer in [
        b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(),
        long_row,
        [&[b'D'][..], &0x7fff_ffffu32.to_be_bytes()].concat(),
        [&[b'D'][..], &3u32.to_be_bytes()].concat(),
        row(b"x"),
        [header(), header()].concat(),
        [header(), row(b"\xff")].concat(),
        [header(), message(b'D', b"\0\x02\0\0\0\x01a")].concat(),
        [header(), message(b'D', b"\0\x01\0\0\0\x09a")].concat(),
        [header(), message(b'D', b"\0\0")].concat(),
        message(b'E', b"Mno end"),
        message(b'E', b""),
        message(b'C', b"SELECT 1"),
        message(b'C', b"\xff\0"),
        message(b'Z', b""),
        message(b'Z', b"?"),
        message(b'Z', b"II"),
        message(b'R', &[0; 4]),
        message(b'R', &[0, 0, 0, 3]),
        message(b'G', &[0, 0, 0]),
        message(b'T', &[0, 9]),
        message(b'1', &[]),
        [begun(), header(), row(b"x"), ready()].concat(),
        message(b'!', &[]),
        message(b'A', b"\0\0\0\0no end"),
        status("standard_conforming_strings", "off"),
    ] {
        let (url, server) = answering(answer.clone());
        let mut connection = open(&url, None).unwrap();
        let lost = trip(&mut connection, "SELECT 'x'", LONG).unwrap_err();
        assert!(matches!(lost, WireFault::Lost { sent: true, .. }), "{answer:?}: {lost:?}");
        assert!(!connection.is_usable());
        server.join().unwrap();
    }
}

#[test]
fn an_unsuitable_server_is_refused() {
    for (greeting, says) in [
        (greeting("13.14", "on", "UTF8"), "version 14"),
        (greeting("", "on", "UTF8"), "version 14"),
        (greeting("99999999999", "on", "UTF8"), "version 14"),
        (greeting("15.6", "off", "UTF8"), "standard_conforming_strings"),
        (greeting("15.6", "on", "SQL_ASCII"), "ENCODING"),
        (message(b'R', &[0, 0, 0, 7]), "Kerberos"),
        (message(b'R', b"\0\0\0\x0aPLAIN\0\0"), "SCRAM"),
        (message(b'R', b"\0\0\0\x0a"), "protocol"),
        (message(b'R', b"\0\0\0\x0b"), "protocol"),
        (message(b'R', b"\0\0\0\x0c"), "protocol"),
        (message(b'R', b"\0\0\0\x63"), "protocol"),
        ([&[b'S'][..], &0x10_0000u32.to_be_bytes()].concat(), "1048577 bytes"),
        (b"SSH-2.0-OpenSSH_9.2\r\n".to_vec(), "protocol"),
        (row(b"x"), "protocol"),
    ] {
        let (url, server) = serve(move |stream| stream.write_all(&greeting).unwrap());
        let fault = refused(&url, Some("secret"));
        assert!(matches!(&fault, WireFault::Unfit(words) if words.contains(says)), "{says}: {fault:?}");
        server.join().unwrap();
    }
    let (url, server) = serve(|stream| {
        stream
            .write_all(&message(b'E', b"SFATAL\0VFATAL\0C57P03\0Mthe database system is starting up\0\0"))
            .unwrap();
    });
    assert!(matches!(refused(&url, None), WireFault::Unreachable(_)));
    server.join().unwrap();
}

#[test]
fn a_server_has_to_show_that_it_knows_the_password() {
    let first = |client: &[u8], iterations: &str| {
        let text = String::from_utf8_lossy(client).into_owned();
        // The nonce itself may contain `r=`.
        let (_, nonce) = text.split_once("r=").unwrap();
        message(b'R', &[b"\0\0\0\x0b", format!("r={nonce}x,s=c2FsdA==,i={iterations}").as_bytes()].concat())
    };
    for (at, says) in [
        (0, "has not shown"),
        (1, "has not shown"),
        (2, "has not shown"),
        (3, "iteration count"),
        (4, "protocol"),
        (5, "protocol"),
    ] {
        let (url, server) = serve(move |stream| {
            stream.write_all(&message(b'R', b"\0\0\0\x0aSCRAM-SHA-256\0\0")).unwrap();
            let client = hear(stream);
            let wrong = message(b'R', b"\0\0\0\x0cv=AAAA");
            let mut say = |bytes: &[u8]| drop(stream.write_all(bytes));
            match at {
                0 => say(&message(b'R', &[0; 4])),
                1 => say(&[first(&client, "4096"), message(b'R', &[0; 4])].concat()),
                2 => say(&[first(&client, "4096"), wrong].concat()),
                3 => say(&first(&client, "2000000000")),
                4 => say(&message(b'R', &[0, 0, 0, 3])),
                _ => say(&message(b'R', b"\0\0\0\x0br=other,s=c2FsdA==,i=4096")),
            }
            hear(stream);
        });
        let fault = refused(&url, Some("secret"));
        assert!(matches!(&fault, WireFault::Unfit(words) if words.contains(says)), "{at}: {fault:?}");
        server.join().unwrap();
    }
}

#[test]
fn client_and_server_can_send_megabytes_at_once() {
    let (url, server) = serve(|stream| {
        stream.write_all(&good_greeting()).unwrap();
        // The server reads nothing until it has sent all of this.
        let notice = message(b'N', &[b"SNOTICE\0M", "x".repeat(1 << 16).as_bytes(), b"\0\0"].concat());
        for _ in 0..256 {
            stream.write_all(&notice).unwrap();
        }
        assert_eq!(hear_trip(stream), (16 << 20) + 4);
        stream.write_all(&good_answer()).unwrap();
    });
    let mut connection = open(&url, None).unwrap();
    trip(&mut connection, &" ".repeat(16 << 20), LONG).unwrap();
    server.join().unwrap();
}

#[test]
fn a_statement_that_is_not_written_completely_counts_as_not_sent() {
    let (url, server) = serve(|stream| {
        stream.write_all(&good_greeting()).unwrap();
        std::thread::sleep(SHORT * 3);
    });
    let mut connection = open(&url, None).unwrap();
    let begun = Instant::now();
    // The statements are larger than the socket buffers of the system.
    let lost = trip(&mut connection, &" ".repeat(64 << 20), SHORT).unwrap_err();
    assert!(matches!(lost, WireFault::Lost { sent: false, .. }), "{lost:?}");
    assert!(begun.elapsed() < Duration::from_secs(60), "it was not left");
    server.join().unwrap();
}

#[test]
fn an_endless_answer_or_greeting_ends_at_the_deadline() {
    for greets in [true, false] {
        let (url, server) = serve(move |stream| {
            if greets {
                stream.write_all(&good_greeting()).unwrap();
                hear_trip(stream);
            }
            while stream.write_all(&message(b'N', b"Mx\0\0").repeat(1000)).is_ok() {}
        });
        let begun = Instant::now();
        if greets {
            let lost = trip(&mut open(&url, None).unwrap(), "SELECT 1", SHORT).unwrap_err();
            assert!(matches!(lost, WireFault::Lost { sent: true, .. }), "{lost:?}");
        } else {
            let fault = refused(&format!("{url}?connect_timeout=300ms"), None);
            assert!(matches!(fault, WireFault::Unreachable(_)), "{fault:?}");
        }
        assert!(begun.elapsed() < Duration::from_secs(10));
        server.join().unwrap();
    }
}

/// Each byte of a correct conversation is replaced by others: the client neither panics nor hangs.
#[test]
fn a_wrong_byte_neither_panics_nor_hangs_the_client() {
    let whole = good_answer();
    for at in 0..whole.len() {
        for wrong in [0, 1, 0x7f, 0xff] {
            let mut answer = whole.clone();
            answer[at] = wrong;
            let (url, server) = answering(answer);
            let mut connection = open(&url, None).unwrap();
            let _ = trip(&mut connection, "SELECT 'x'", LONG);
            server.join().unwrap();
        }
    }
}
