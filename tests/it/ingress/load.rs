//! Many deliveries at once, and handlers that are killed: what was acknowledged is there, once.
//!
//! `DORMOUSE_DELIVERIES=10000` sends so many.

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
use crate::setup::{edit_file, started};

const CONNECTIONS: usize = 32;

/// An agent whose triggers take all that comes.
fn prepared() -> (Sandbox, Hook) {
    let sandbox = started("true").with_real_clock();
    let hook = hook(&sandbox, &[]);
    edit_file(&sandbox.store().join("dormouse.toml"), |text| {
        format!("{text}[ingress]\nper_minute = 4000000000\n")
    });
    (sandbox, hook)
}

/// Sends as many deliveries as are asked for, over all connections at once, and each until it is acknowledged, as a
/// sender does; every third is sent once more after that. `send` gets a number that is another each time, and the
/// request.
fn each_is_there_once(sandbox: &Sandbox, hook: &Hook, send: impl Fn(usize, &str) -> Answered + Sync) {
    let count: usize = std::env::var("DORMOUSE_DELIVERIES").map_or(320, |count| count.parse().unwrap());
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
    let mut there: Vec<(usize, String)> = queued(sandbox)
        .iter()
        .map(|message| {
            let text = message["body"]["text"].as_str().unwrap();
            (text.trim_start_matches("number ").parse().unwrap(), message["id"].as_str().unwrap().to_owned())
        })
        .collect();
    there.sort();
    assert_eq!(there, acknowledged);
    assert_eq!(there.len(), count);
    eprintln!("{count} deliveries took {} requests", sent.into_inner());
    assert_eq!(sandbox.cmd(["doctor"]).output().code(), 0);
}

#[test]
fn on_connections_whose_handlers_are_killed() {
    let (sandbox, hook) = prepared();
    each_is_there_once(&sandbox, &hook, |number, request| {
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
fn through_a_server_whose_handlers_are_killed() {
    let (sandbox, hook) = prepared();
    let Some(Server { port, path, children, .. }) = &lighttpd(&sandbox) else { return };
    let server = children[0].id();
    let handlers = || {
        let children = fs::read_to_string(format!("/proc/{server}/task/{server}/children")).unwrap();
        children.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().unwrap())).collect::<Vec<_>>()
    };
    // `None`: it has ended meanwhile, and its number may be somebody else's.
    let kill = |pid: Pid| {
        let handle = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        handlers().contains(&pid).then(|| pidfd_send_signal(&handle, Signal::KILL).ok()).flatten()
    };
    let mut killed = 0;
    thread::scope(|scope| {
        let (goes_on, is_over) = mpsc::channel::<()>();
        let killer = scope.spawn(move || {
            let mut killed = 0;
            for round in 0_usize.. {
                let pause = Duration::from_micros(((round * 7919) % 12_000) as u64);
                if is_over.recv_timeout(pause) == Err(RecvTimeoutError::Disconnected) {
                    break;
                }
                killed += usize::from(handlers().get(round % CONNECTIONS).copied().and_then(kill).is_some());
            }
            killed
        });
        let hook = Hook { path: format!("{path}{}", hook.path), id: hook.id, secret: hook.secret };
        each_is_there_once(&sandbox, &hook, |_, request| {
            let mut text = String::new();
            if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", *port)) {
                let _ = stream.write_all(request.as_bytes());
                let _ = stream.read_to_string(&mut text);
            }
            parse(&text)
        });
        drop(goes_on);
        killed = killer.join().unwrap();
    });
    eprintln!("{killed} handlers were killed");
    assert!(killed > 0, "no handler was killed");
}
