//! Proxy between a machine and the server: it can change statements, and switch to another server.
//! Where machines are not hosts of their own, the proxy also cuts the connection, in one or both
//! directions, and breaks it. A cut connection loses no data, as TCP repeats packets: the data
//! arrive when the connection is whole again.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use super::net::{self, Line, within};

/// Words in the statements of a machine, and their replacement.
type Instead = (String, String);

struct State {
    line: Line,
    /// True if the proxy has ended.
    is_gone: bool,
    /// Both sockets of each connection, to break the connections.
    ends: Vec<(TcpStream, UnixStream)>,
    /// Unix socket of the server to which new connections lead.
    socket: PathBuf,
    instead: Vec<Instead>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// Proxy that accepts a machine's connections at `port` and forwards them to the server.
pub struct Link {
    pub port: u16,
    listener: TcpListener,
    shared: Arc<Shared>,
}

impl Link {
    /// Creates a proxy to the server at `socket`. The proxy listens in the network to which `host`
    /// is connected, or, without a host, in the network of the tests.
    pub fn to(socket: PathBuf, host: Option<&net::Host>) -> Link {
        let listener = match host {
            Some(host) => within(&host.network, || TcpListener::bind((host.server, 0)).unwrap()),
            None => TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap(),
        };
        let port = listener.local_addr().unwrap().port();
        let state =
            State { line: Line::Whole, is_gone: false, ends: Vec::new(), socket, instead: Vec::new() };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let (accepting, own) = (Arc::clone(&shared), listener.try_clone().unwrap());
        thread::spawn(move || {
            for client in own.incoming().map_while(Result::ok) {
                let serving = Arc::clone(&accepting);
                thread::spawn(move || serving.serve(client));
            }
        });
        Link { port, listener, shared }
    }

    pub fn set(&self, line: Line) {
        self.shared.state.lock().unwrap().line = line;
        self.shared.changed.notify_all();
    }

    /// Closes all connections at once, without completing the exchange of messages.
    pub fn break_all(&self) {
        for (client, server) in self.shared.state.lock().unwrap().ends.drain(..) {
            drop(client.shutdown(Shutdown::Both));
            drop(server.shutdown(Shutdown::Both));
        }
    }

    /// Connects the proxy to another server, and closes the connections to the former server.
    pub fn lead_to(&self, socket: PathBuf) {
        self.shared.state.lock().unwrap().socket = socket;
        self.break_all();
    }

    /// Replaces `from` by `then` in the statements of the machine.
    pub fn say_instead(&self, from: &str, then: &str) {
        self.shared.state.lock().unwrap().instead.push((from.to_owned(), then.to_owned()));
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // The proxy accepts no more connections.
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
        self.shared.state.lock().unwrap().is_gone = true;
        self.shared.changed.notify_all();
        self.break_all();
    }
}

impl Shared {
    /// Waits until data may pass (to the client if `is_answer`). `false`: the proxy has ended.
    fn passes(&self, is_answer: bool) -> bool {
        let holds = |state: &mut State| match state.line {
            Line::Whole => false,
            Line::Cut => !state.is_gone,
            Line::Mute => !state.is_gone && is_answer,
        };
        let state = self.changed.wait_while(self.state.lock().unwrap(), holds).unwrap();
        !state.is_gone
    }

    fn serve(self: Arc<Self>, mut client: TcpStream) {
        if !self.passes(false) {
            return;
        }
        // If the server is still starting and refuses connections, the client loses its own.
        let socket = self.state.lock().unwrap().socket.clone();
        let Ok(mut server) = UnixStream::connect(socket) else { return };
        client.set_nodelay(true).unwrap();
        let (mut answers, mut back) = (server.try_clone().unwrap(), client.try_clone().unwrap());
        let ends = (client.try_clone().unwrap(), server.try_clone().unwrap());
        self.state.lock().unwrap().ends.push(ends);
        let other = Arc::clone(&self);
        let answering = thread::spawn(move || {
            let mut bytes = vec![0; 1 << 16];
            while let Ok(count @ 1..) = answers.read(&mut bytes) {
                if !other.passes(true) || back.write_all(&bytes[..count]).is_err() {
                    break;
                }
            }
            // The end of a connection passes under the same conditions as data.
            other.passes(true);
            drop(back.shutdown(Shutdown::Both));
            drop(answers.shutdown(Shutdown::Both));
        });
        let mut has_type = false;
        while let Some(said) = message(&mut client, has_type) {
            has_type = true;
            if !self.passes(false) || server.write_all(&self.heard(said)).is_err() {
                break;
            }
        }
        self.passes(false);
        drop(server.shutdown(Shutdown::Both));
        drop(client.shutdown(Shutdown::Both));
        drop(answering.join());
    }

    /// Replaces words in the SQL statement of a client's message. Only a message of type `P`
    /// (parse) has a statement: its name, its text and the types of its parameters.
    fn heard(&self, said: Vec<u8>) -> Vec<u8> {
        let state = self.state.lock().unwrap();
        if said[0] != b'P' || state.instead.is_empty() {
            return said;
        }
        let parts: Vec<&[u8]> = said[5..].splitn(3, |byte| *byte == 0).collect();
        let mut text = str::from_utf8(parts[1]).unwrap().to_owned();
        for (from, then) in &state.instead {
            text = text.replace(from, then);
        }
        let rest = [parts[0], text.as_bytes(), parts[2]].join(&0);
        let length = u32::try_from(rest.len() + 4).unwrap();
        [b"P", &length.to_be_bytes()[..], &rest].concat()
    }
}

/// Reads a message of a client. The first message has no type byte.
fn message(from: &mut impl Read, has_type: bool) -> Option<Vec<u8>> {
    let mut head = vec![0; if has_type { 5 } else { 4 }];
    from.read_exact(&mut head).ok()?;
    let length = u32::from_be_bytes(head[head.len() - 4..].try_into().ok()?) as usize;
    let mut rest = vec![0; length.checked_sub(4)?];
    from.read_exact(&mut rest).ok()?;
    head.extend(rest);
    Some(head)
}
