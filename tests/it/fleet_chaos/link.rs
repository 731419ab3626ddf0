//! A proxy between one machine and the server: it can say something else than was said, and lead to another server.
//!
//! Where machines are no hosts of their own it also is what cuts the line, has it go dead in one direction, and breaks it. A
//! line that is cut loses nothing, as packets that are sent again do: what was under way arrives when it is whole again.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use super::net::{self, Line, within};

/// Words in the statements of a machine, and what arrives instead of them.
type Instead = (String, String);

struct State {
    line: Line,
    /// There is no line any more.
    is_gone: bool,
    /// Both ends of all connections, to break them.
    ends: Vec<(TcpStream, UnixStream)>,
    /// Of the server behind it.
    socket: PathBuf,
    instead: Vec<Instead>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// A port behind which the server is.
pub struct Link {
    pub port: u16,
    listener: TcpListener,
    shared: Arc<Shared>,
}

impl Link {
    /// `socket`: of the server. It listens at the end of the wire of this host, or where all processes find it.
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

    /// Closes all connections as they are, without a word about what was under way.
    pub fn break_all(&self) {
        for (client, server) in self.shared.state.lock().unwrap().ends.drain(..) {
            drop(client.shutdown(Shutdown::Both));
            drop(server.shutdown(Shutdown::Both));
        }
    }

    /// From here on another server is behind it, and the connections to the one before are gone.
    pub fn lead_to(&self, socket: PathBuf) {
        self.shared.state.lock().unwrap().socket = socket;
        self.break_all();
    }

    /// From here on the server hears `then` wherever the machine says `from`.
    pub fn say_instead(&self, from: &str, then: &str) {
        self.shared.state.lock().unwrap().instead.push((from.to_owned(), then.to_owned()));
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // Nobody is accepted any more.
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
        self.shared.state.lock().unwrap().is_gone = true;
        self.shared.changed.notify_all();
        self.break_all();
    }
}

impl Shared {
    /// Waits until the line lets this through. `false`: it never will.
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
        // A server that is just starting anew takes nobody.
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
            // The end of a connection is a message like any other.
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

    /// What arrives of a message. Statements are in those that ask for a statement to be parsed: a name, the text, and types.
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

/// One message of a client. Its first has no type.
fn message(from: &mut impl Read, has_type: bool) -> Option<Vec<u8>> {
    let mut head = vec![0; if has_type { 5 } else { 4 }];
    from.read_exact(&mut head).ok()?;
    let length = u32::from_be_bytes(head[head.len() - 4..].try_into().ok()?) as usize;
    let mut rest = vec![0; length.checked_sub(4)?];
    from.read_exact(&mut rest).ok()?;
    head.extend(rest);
    Some(head)
}
