//! Tests that each acknowledged delivery is queued exactly once, with many concurrent deliveries
//! and killed handlers.
//!
//! `DORMOUSE_DELIVERIES` is the number of deliveries (320).

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::servers::{Server, lighttpd};
use super::{Answered, Hook, connect, hook, parse, queued};
use crate::harness::Sandbox;
use crate::setup::{edit_file, number, started};

const CONNECTIONS: usize = 32;

/// Returns a sandbox and a trigger of `ada` without a limit on deliveries per minute.
fn prepared() -> (Sandbox, Hook) {
    let sandbox = started("true").with_real_clock();
    let hook = hook(&sandbox, &[]);
    edit_file(&sandbox.store().join("dormouse.toml"), |text| {
        format!("{text}[ingress]\nper_minute = 4000000000\n")
    });
    (sandbox, hook)
}

/// Sends all deliveries over concurrent connections, repeating each until it is acknowledged; every
/// third is sent once more after that. Asserts that each is queued once. `send` gets the number of
/// the request, counted over all connections, and its text.
fn each_is_queued_once(sandbox: &Sandbox, hook: &Hook, send: impl Fn(usize, &str) -> Answered + Sync) {
    let count = number("DORMOUSE_DELIVERIES", 320) as usize;
    let (next, sent, acknowledged) = (AtomicUsize::new(0), AtomicUsize::new(0), Mutex::new(Vec::new()));
    let deliver = |number: usize| {
        let headers =
            format!("Content-Type: text/plain\r\nConnection: close\r\nIdempotency-Key: {number}\r\n");
        let request = hook.request(&headers, &format!("number {number}"));
        loop {
            let answer = send(sent.fetch_add(1, Ordering::SeqCst), &request);
            if answer.status == 202 {
                return answer.body;
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..CONNECTIONS {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::SeqCst);
                    if number >= count {
                        return;
                    }
                    let id = deliver(number)["message_id"].as_str().unwrap().to_owned();
                    if number % 3 == 0 {
                        let again = deliver(number);
                        assert_eq!(
                            (again["message_id"].as_str(), &again["duplicate"]),
                            (Some(&*id), &true.into())
                        );
                    }
                    acknowledged.lock().unwrap().push((number, id));
                }
            });
        }
    });
    let mut acknowledged = acknowledged.into_inner().unwrap();
    acknowledged.sort();
    let mut found: Vec<(usize, String)> = queued(sandbox)
        .iter()
        .map(|message| {
            let text = message["body"]["text"].as_str().unwrap();
            (text.trim_start_matches("number ").parse().unwrap(), message["id"].as_str().unwrap().to_owned())
        })
        .collect();
    found.sort();
    assert_eq!(found, acknowledged);
    assert_eq!(found.len(), count);
    eprintln!("{count} deliveries took {} requests", sent.into_inner());
    assert_eq!(sandbox.cmd(["doctor"]).output().code(), 0);
}

#[test]
fn each_delivery_is_queued_once_if_handlers_of_connections_are_killed() {
    let (sandbox, hook) = prepared();
    each_is_queued_once(&sandbox, &hook, |number, request| {
        let (mut child, mut stream) = connect(&sandbox);
        let _ = stream.write_all(request.as_bytes());
        if number % 5 == 0 {
            thread::sleep(Duration::from_micros(((number * 7919) % 12_000) as u64));
            let _ = child.kill();
        }
        let mut text = String::new();
        let _ = stream.read_to_string(&mut text);
        child.wait().unwrap();
        parse(&text)
    });
}

#[test]
fn each_delivery_is_queued_once_if_handlers_of_a_server_are_killed() {
    let (sandbox, hook) = prepared();
    let Some(Server { port, path, children, .. }) = &lighttpd(&sandbox) else { return };
    let server = children[0].id();
    let handlers = || {
        let children = fs::read_to_string(format!("/proc/{server}/task/{server}/children")).unwrap();
        children.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().unwrap())).collect::<Vec<_>>()
    };
    // Returns `None` if the process has ended meanwhile: another process may have its pid by now.
    let kill = |pid: Pid| {
        let handle = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        handlers().contains(&pid).then(|| pidfd_send_signal(&handle, Signal::KILL).ok()).flatten()
    };
    let mut killed = 0;
    thread::scope(|scope| {
        let (stop, stopped) = mpsc::channel::<()>();
        let killer = scope.spawn(move || {
            let mut killed = 0;
            for round in 0_usize.. {
                let pause = Duration::from_micros(((round * 7919) % 12_000) as u64);
                if stopped.recv_timeout(pause) == Err(RecvTimeoutError::Disconnected) {
                    break;
                }
                killed += usize::from(handlers().get(round % CONNECTIONS).copied().and_then(kill).is_some());
            }
            killed
        });
        let hook = Hook { path: format!("{path}{}", hook.path), id: hook.id, secret: hook.secret };
        each_is_queued_once(&sandbox, &hook, |_, request| {
            let mut text = String::new();
            if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", *port)) {
                let _ = stream.write_all(request.as_bytes());
                let _ = stream.read_to_string(&mut text);
            }
            parse(&text)
        });
        drop(stop);
        killed = killer.join().unwrap();
    });
    eprintln!("{killed} handlers were killed");
    assert!(killed > 0, "no handler was killed");
}
