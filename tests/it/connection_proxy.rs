//! Proxy before a PostgreSQL server: counts the round trips of clients, and cuts one connection.
//!
//! The unit tests of the store use this file too.

#![allow(dead_code, reason = "the unit tests and the tests of commands need different parts")]

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Round trip, counted from 1, at which the proxy cuts the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// The request of the round trip with this number never reaches the server.
    Before(usize),
    /// The request of the round trip with this number reaches the server; its answer is lost.
    After(usize),
}

pub struct Proxy {
    pub port: u16,
    trips: Arc<AtomicUsize>,
    is_stopped: Arc<AtomicBool>,
}

/// Reads one message of the protocol; the first message of a client has no type byte.
fn message(from: &mut impl Read, typed: bool) -> Option<Vec<u8>> {
    let mut head = vec![0; if typed { 5 } else { 4 }];
    from.read_exact(&mut head).ok()?;
    let length = u32::from_be_bytes(head[head.len() - 4..].try_into().ok()?) as usize;
    let mut rest = vec![0; length - 4];
    from.read_exact(&mut rest).ok()?;
    head.extend(rest);
    Some(head)
}

impl Proxy {
    /// Starts a proxy on a free port. `socket` is the Unix socket of the server.
    pub fn before(socket: PathBuf, cut: Option<Cut>) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (trips, is_stopped) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let proxy = Proxy { port, trips: Arc::clone(&trips), is_stopped: Arc::clone(&is_stopped) };
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let client = client.unwrap();
                if is_stopped.load(Ordering::SeqCst) {
                    return;
                }
                let (trips, is_stopped) = (Arc::clone(&trips), Arc::clone(&is_stopped));
                let socket = socket.clone();
                std::thread::spawn(move || serve(client, &socket, cut, &trips, &is_stopped));
            }
        });
        proxy
    }

    /// Number of round trips of all clients so far.
    pub fn trips(&self) -> usize {
        self.trips.load(Ordering::SeqCst)
    }

    /// Cuts each connection at its next round trip, and refuses new ones.
    pub fn stop(&self) {
        self.is_stopped.store(true, Ordering::SeqCst);
        drop(TcpStream::connect(("127.0.0.1", self.port)));
    }
}

fn serve(
    mut client: TcpStream,
    socket: &Path,
    cut: Option<Cut>,
    trips: &AtomicUsize,
    is_stopped: &AtomicBool,
) {
    let mut server = UnixStream::connect(socket).unwrap();
    client.set_nodelay(true).unwrap();
    let is_mute = Arc::new(AtomicBool::new(false));
    let (mut answers, mut back, mute) =
        (server.try_clone().unwrap(), client.try_clone().unwrap(), Arc::clone(&is_mute));
    let answering = std::thread::spawn(move || {
        while let Some(answer) = message(&mut answers, true) {
            if mute.load(Ordering::SeqCst) {
                // `ReadyForQuery` ends the answer, so the server has done the request: now the
                // client's connection is closed.
                if answer[0] == b'Z' {
                    break;
                }
            } else if back.write_all(&answer).is_err() {
                break;
            }
        }
        drop(back.shutdown(Shutdown::Both));
        drop(answers.shutdown(Shutdown::Both));
    });
    let (mut typed, mut request) = (false, Vec::new());
    while let Some(sent) = message(&mut client, typed) {
        request.extend_from_slice(&sent);
        // The messages of a request are passed on together, after its last message.
        if typed && matches!(sent[0], b'P' | b'B' | b'D' | b'E') {
            continue;
        }
        if typed && matches!(sent[0], b'Q' | b'S') {
            let number = trips.fetch_add(1, Ordering::SeqCst) + 1;
            if is_stopped.load(Ordering::SeqCst) || cut == Some(Cut::Before(number)) {
                break;
            }
            if cut == Some(Cut::After(number)) {
                is_mute.store(true, Ordering::SeqCst);
            }
        }
        typed = true;
        if server.write_all(&std::mem::take(&mut request)).is_err() {
            break;
        }
    }
    if !is_mute.load(Ordering::SeqCst) {
        drop(server.shutdown(Shutdown::Both));
        drop(client.shutdown(Shutdown::Both));
    }
    drop(answering.join());
}
