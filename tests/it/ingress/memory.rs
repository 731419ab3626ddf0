//! Tests that one request takes at most 16 MiB of memory, whatever its body.

use std::fs;
use std::io::{Read, Write, pipe};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Stdio};
use std::thread;
use std::time::Duration;

use super::{Answered, Hook, hook, on, parse};
use crate::harness::Sandbox;
use crate::setup::started;

/// Maximum memory of a request beyond that of a short one: 16 MiB minus the 8 MiB that a release
/// build takes for a short request. A debug build has larger code, so only the difference can be
/// tested.
const MAX_KIB: u64 = (16 - 8) << 10;

/// Returns the peak resident memory of a process.
fn peak_kib(child: &Child) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}

/// Sends a request over a connection, and returns the answer and the peak memory in KiB. The test
/// first fills the buffer for the answer, so that the program can't end before the measurement.
fn on_a_connection(sandbox: &Sandbox, request: &[u8]) -> (Answered, u64) {
    let (mut ours, mut theirs) = UnixStream::pair().unwrap();
    let full = fill(&mut theirs);
    let child = on(sandbox, theirs);
    let mut writer = ours.try_clone().unwrap();
    let request = request.to_vec();
    let sender = thread::spawn(move || drop(writer.write_all(&request)));
    let measured = measure(child, &mut ours, full);
    drop(ours);
    sender.join().unwrap();
    measured
}

/// Waits until the peak memory has stayed the same for 300 ms. Then reads the answer, which follows
/// `full` other bytes.
fn measure(mut child: Child, from: &mut impl Read, full: usize) -> (Answered, u64) {
    let (mut peak, mut unchanged) = (0, 0);
    while unchanged < 30 {
        let now = peak_kib(&child).expect("`ingress` runs");
        unchanged = if now == peak { unchanged + 1 } else { 0 };
        peak = now;
        thread::sleep(Duration::from_millis(10));
    }
    let mut said = Vec::new();
    from.read_to_end(&mut said).unwrap();
    child.wait().unwrap();
    (parse(std::str::from_utf8(&said[full..]).unwrap()), peak)
}

/// Fills the buffer of a pipe or a connection. Returns the number of bytes.
fn fill(writer: &mut (impl Write + AsFd)) -> usize {
    rustix::io::ioctl_fionbio(&*writer, true).unwrap();
    let mut bytes = 0;
    while let Ok(more) = writer.write(&[0; 4096]) {
        bytes += more;
    }
    rustix::io::ioctl_fionbio(&*writer, false).unwrap();
    bytes
}

/// Sends a request by CGI, where the answer goes to a pipe, and returns the answer and the peak
/// memory.
fn by_cgi(sandbox: &Sandbox, request: &[u8]) -> (Answered, u64) {
    let at = request.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap();
    let head = std::str::from_utf8(&request[..at]).unwrap();
    let (line, headers) = head.split_once("\r\n").unwrap();
    let words: Vec<&str> = line.split(' ').collect();
    let body = sandbox.root().join("body");
    fs::write(&body, &request[at + 4..]).unwrap();
    let mut command = sandbox.cmd(["ingress"]).into_command();
    command.env("GATEWAY_INTERFACE", "CGI/1.1").env("REQUEST_METHOD", words[0]).env("PATH_INFO", words[1]);
    for (name, value) in headers.lines().map(|header| header.split_once(": ").unwrap()) {
        let name = name.to_uppercase().replace('-', "_");
        let prefix = if name.starts_with("CONTENT_") { "" } else { "HTTP_" };
        command.env(format!("{prefix}{name}"), value);
    }
    let (mut reader, mut writer) = pipe().unwrap();
    let full = fill(&mut writer);
    command.stdin(fs::File::open(&body).unwrap()).stdout(writer).stderr(Stdio::null());
    let child = command.spawn().unwrap();
    drop(command);
    measure(child, &mut reader, full)
}

#[test]
fn no_request_uses_much_memory() {
    let sandbox = started("true").with_real_clock();
    let hook = hook(&sandbox, &[]);
    let text = |body: &str| hook.request("Content-Type: text/plain\r\n", body);
    let list = |item: &str, count: usize| hook.json(&format!("[{}0]", item.repeat(count)));
    let string = |length: usize| format!("\"{}\",", "x".repeat(length));
    let fields: String = (0..16_600).map(|n| format!("\"key {n:012}\":[],")).collect();
    let most = 4 << 20;
    let rows = [
        (413, text(&"x".repeat(most))),
        (413, text(&"x".repeat(most + 1))),
        (202, text(&"x".repeat((1 << 20) - 1))),
        (401, Hook::at(&hook.path, "x").json(&"x".repeat(most))),
        // Strings, numbers, objects and keys, just below and above the limits of a JSON body.
        (413, hook.json(&format!("\"{}\"", "\\n".repeat(most / 2 - 1)))),
        (413, list(&string(70), 49_990)),
        (202, list(&string(15), 49_990)),
        (202, list("{\"\":0},", 12_490)),
        (413, list("{\"\":0},", 12_500)),
        (202, list("[0],", 16_660)),
        (413, list("[0],", 16_670)),
        (202, hook.json(&format!("{{{}}}", fields.trim_end_matches(',')))),
        (400, hook.json(&"[".repeat(24_990))),
        (400, hook.json(&format!("{}0{}", "{\"\":".repeat(4_000), "}".repeat(4_000)))),
    ];
    for (way, ask) in
        [("connection", on_a_connection as fn(&Sandbox, &[u8]) -> (Answered, u64)), ("CGI", by_cgi)]
    {
        let (_, short) = ask(&sandbox, text("hello").as_bytes());
        for (status, request) in &rows {
            let (answer, peak) = ask(&sandbox, request.as_bytes());
            let shown: String = request[request.find("\r\n\r\n").unwrap() + 4..].chars().take(40).collect();
            assert_eq!(answer.status, *status, "{way}: {shown}: {answer:?}");
            let more = peak.saturating_sub(short);
            assert!(more <= MAX_KIB, "{way}: {shown}: {more} KiB more than a short request");
        }
    }
}
