//! The floor of the benchmark: a static program that does only the file operations that a command
//! of dormouse needs. The benchmark compares the command's time with this program's time.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

fn main() {
    let mut args = std::env::args_os().skip(1);
    let mode = args.next().unwrap_or_default();
    let rest: Vec<OsString> = args.collect();
    match mode.to_str() {
        Some("nothing") => {}
        Some("read") => rest.iter().for_each(|path| read(path)),
        Some("store") => store(&rest),
        Some("step") => step(&rest),
        Some("files") => files(&rest),
        Some("measure") => measure(&rest),
        _ => panic!("floor: nothing, read, store, step, files or measure"),
    }
}

/// Reads a file, or lists a directory if the path ends with a slash.
fn read(path: &OsStr) {
    if path.as_bytes().ends_with(b"/") {
        let names = fs::read_dir(path).expect("a directory").count();
        std::hint::black_box(names);
    } else {
        std::hint::black_box(fs::read(path).expect("a file"));
    }
}

/// Writes BYTES durably to a new file. Arguments: TEMPORARY TARGET BYTES.
fn store(args: &[OsString]) {
    let (temporary, target, bytes) = (&args[0], &args[1], args[2].as_bytes());
    let mut file = File::create(temporary).expect("a new file");
    file.write_all(bytes).expect("write");
    file.sync_all().expect("sync");
    fs::rename(temporary, target).expect("rename");
    let dir = Path::new(target).parent().expect("a directory");
    File::open(dir).expect("a directory").sync_all().expect("sync the directory");
}

/// Does the file operations that a step with one message needs, in the directory AGENT with files
/// like an agent's: reads the settings, the state and the message; runs the program; records its
/// start and end in journal and state; appends to ledger and archive; removes the message. Only the
/// journal is synced. Arguments: AGENT MESSAGE PROGRAM.
fn step(args: &[OsString]) {
    let (agent, message) = (Path::new(&args[0]), Path::new(&args[1]));
    let (state, inbox) = (agent.join("state.json"), agent.join("inbox"));
    let look = || (fs::read(&state).expect("a state"), fs::read(message).expect("a message"));
    fs::read(agent.join("dormouse.toml")).expect("settings");
    fs::read(agent.join("agent.toml")).expect("settings");
    std::hint::black_box(fs::read_dir(inbox).expect("an inbox").count());
    let (before, body) = look();
    let journal = File::options().append(true).create(true).open(agent.join("journal")).expect("a journal");
    let commit = |lines: &[&[u8]]| {
        (&journal).write_all(&lines.concat()).expect("write");
        journal.sync_data().expect("sync");
        fs::write(agent.join("tmp/state.json"), &before).expect("write");
        fs::rename(agent.join("tmp/state.json"), &state).expect("rename");
    };
    commit(&[&before]);
    Command::new(&args[2]).status().expect("a child");
    std::hint::black_box(look());
    commit(&[&before, &body]);
    for lines in ["ledger", "archive"] {
        let mut lines = File::options().append(true).create(true).open(agent.join(lines)).expect("lines");
        lines.write_all(&body).expect("write");
    }
    fs::remove_file(message).expect("remove");
}

/// Writes COUNT files with the content BYTES and does not sync them. Arguments: DIR COUNT BYTES.
fn files(args: &[OsString]) {
    let count: usize = args[1].to_str().and_then(|count| count.parse().ok()).expect("a number");
    let dir = Path::new(&args[0]);
    for number in 0..count {
        fs::write(dir.join(format!("2-msg_{number:032x}.json")), args[2].as_bytes()).expect("write");
    }
}

/// Runs a program and prints on stderr its largest resident set in KiB, and its user and system
/// time in microseconds. This program is small, because the kernel also counts the memory that a
/// child shares with its parent before exec. Arguments: PROGRAM ARGUMENTS...
fn measure(args: &[OsString]) {
    let child = Command::new(&args[0]).args(&args[1..]).spawn().expect("a child");
    let mut usage = Usage::default();
    let mut status = 0;
    // SAFETY: `status` and `usage` have the types that wait4 fills, and outlive the call.
    let waited = unsafe { wait4(child.id() as i32, &mut status, 0, &mut usage) };
    assert!(waited > 0 && status == 0, "{args:?} failed: {status}");
    let micros = |time: [i64; 2]| time[0] * 1_000_000 + time[1];
    eprintln!("{} {} {}", usage.max_resident, micros(usage.user), micros(usage.system));
}

/// `struct rusage` of 64-bit Linux.
#[repr(C)]
#[derive(Default)]
struct Usage {
    user: [i64; 2],
    system: [i64; 2],
    max_resident: i64,
    others: [i64; 13],
}

unsafe extern "C" {
    fn wait4(pid: i32, status: *mut i32, options: i32, usage: *mut Usage) -> i32;
}
