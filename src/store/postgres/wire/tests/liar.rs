//! Server that sends the bytes that a test wants.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::JoinHandle;

/// Builds a message of a server.
pub fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let mut message = vec![tag];
    message.extend((u32::try_from(body.len()).unwrap() + 4).to_be_bytes());
    message.extend(body);
    message
}

pub fn status(name: &str, value: &str) -> Vec<u8> {
    message(b'S', format!("{name}\0{value}\0").as_bytes())
}

/// Messages of a correct server after the client's startup message, with these parameters.
pub fn greeting(version: &str, quotes: &str, encoding: &str) -> Vec<u8> {
    [
        message(b'R', &[0; 4]),
        status("server_version", version),
        status("standard_conforming_strings", quotes),
        status("server_encoding", encoding),
        message(b'K', &[0; 8]),
        ready(),
    ]
    .concat()
}

pub fn good_greeting() -> Vec<u8> {
    greeting("15.6 (Debian 15.6-0+deb12u1)", "on", "UTF8")
}

pub fn ready() -> Vec<u8> {
    message(b'Z', b"I")
}

/// Row description with one column.
pub fn header() -> Vec<u8> {
    message(b'T', b"\0\x01a\0\0\0\0\0\0\0\0\0\0\x19\xff\xff\xff\xff\xff\xff\0\0")
}

pub fn row(text: &[u8]) -> Vec<u8> {
    let mut body = vec![0, 1];
    body.extend(u32::try_from(text.len()).unwrap().to_be_bytes());
    body.extend(text);
    message(b'D', &body)
}

pub fn complete(tag: &str) -> Vec<u8> {
    message(b'C', format!("{tag}\0").as_bytes())
}

/// Answer of a correct server to `SELECT 'x'`.
pub fn good_answer() -> Vec<u8> {
    [begun(), header(), row(b"x"), complete("SELECT 1"), ready()].concat()
}

/// Messages with which a correct server begins its answer to a statement.
pub fn begun() -> Vec<u8> {
    [message(b'1', &[]), message(b'2', &[])].concat()
}

/// Serves one connection: reads the startup message, and then runs `script`.
pub fn serve(script: impl FnOnce(&mut TcpStream) + Send + 'static) -> (String, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let thread = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut length = [0; 4];
        stream.read_exact(&mut length).unwrap();
        let mut hello = vec![0; u32::from_be_bytes(length) as usize - 4];
        stream.read_exact(&mut hello).unwrap();
        script(&mut stream);
    });
    (format!("postgres://u@127.0.0.1:{port}/d"), thread)
}

/// Reads one message of the client.
pub fn hear(stream: &mut TcpStream) -> Vec<u8> {
    let mut header = [0; 5];
    if stream.read_exact(&mut header).is_err() {
        return Vec::new();
    }
    let length = u32::from_be_bytes(header[1..].try_into().unwrap());
    let mut body = vec![0; length as usize - 4];
    let _ = stream.read_exact(&mut body);
    body
}

/// Reads the messages of a round trip. Returns the length of the first one.
pub fn hear_trip(stream: &mut TcpStream) -> usize {
    let length = hear(stream).len();
    let mut tag = [0];
    while stream.peek(&mut tag).is_ok_and(|read| read == 1) {
        hear(stream);
        if tag == [b'S'] {
            break;
        }
    }
    length
}

/// Serves one connection: completes the login, reads a query, and sends these bytes.
pub fn answering(answer: Vec<u8>) -> (String, JoinHandle<()>) {
    serve(move |stream| {
        stream.write_all(&good_greeting()).unwrap();
        hear_trip(stream);
        let _ = stream.write_all(&answer);
    })
}
