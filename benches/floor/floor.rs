//! The least that a program can do for the same effect. Built as a static binary of its own, with
//! nothing but the standard library, so that what is compared differs in the work alone.

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

/// Reads a file, or the names in a directory, which ends in a slash.
fn read(path: &OsStr) {
    if path.as_bytes().ends_with(b"/") {
        let names = fs::read_dir(path).expect("a directory").count();
        std::hint::black_box(names);
    } else {
        std::hint::black_box(fs::read(path).expect("a file"));
    }
}

/// TEMPORARY TARGET BYTES: one file, there for good.
fn store(args: &[OsString]) {
    let (temporary, target, bytes) = (&args[0], &args[1], args[2].as_bytes());
    let mut file = File::create(temporary).expect("a new file");
    file.write_all(bytes).expect("write");
    file.sync_all().expect("sync");
    fs::rename(temporary, target).expect("rename");
    let dir = Path::new(target).parent().expect("a directory");
    File::open(dir).expect("a directory").sync_all().expect("sync the directory");
}

/// AGENT MESSAGE PROGRAM: what a step of an agent with one message must do, in a directory of the same files. It
/// reads its settings, its state and the message, notes in a journal that it begins, and in the state; runs the
/// program; notes in the journal what came of it, and in the state, the ledger and the archive; and removes the
/// message. Only the journal is on the disk before it goes on.
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

/// DIR COUNT BYTES: so many plain files, and nothing said of when they are on the disk.
fn files(args: &[OsString]) {
    let count: usize = args[1].to_str().and_then(|count| count.parse().ok()).expect("a number");
    let dir = Path::new(&args[0]);
    for number in 0..count {
        fs::write(dir.join(format!("2-msg_{number:032x}.json")), args[2].as_bytes()).expect("write");
    }
}

/// PROGRAM ARGUMENTS...: runs it and says on stderr what it took: the largest resident set in
/// KiB, user and system time in microseconds. A small program does this because what a child had
/// before it became the program counts, too.
fn measure(args: &[OsString]) {
    let child = Command::new(&args[0]).args(&args[1..]).spawn().expect("a child");
    let mut usage = Usage::default();
    let mut status = 0;
    // SAFETY: both point to memory of the size that wait4 fills, which lives until it returns.
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
