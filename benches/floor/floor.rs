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
        Some("measure") => measure(&rest),
        _ => panic!("floor: nothing, read, store, step or measure"),
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

/// TEMPORARY TARGET BYTES PROGRAM: a file, a child, a file.
fn step(args: &[OsString]) {
    store(args);
    Command::new(&args[3]).status().expect("a child");
    store(args);
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
