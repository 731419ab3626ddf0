//! Tests that the time of an answer does not reveal why a delivery was refused: a pause makes up
//! for the work before it, and the work after the pause is always the same.

use std::ffi::OsString;
use std::fs;

use super::{Hook, hook, wrong_capabilities};
use crate::harness::{Sandbox, dormouse};
use crate::setup::started;

/// Milliseconds from a request with a wrong path or secret to the end of the pause.
const ALIKE_MS: f64 = 50.0;

/// Number of times that a request is tried until no other process has delayed its answer.
const ATTEMPTS: usize = 50;

/// Returns the system calls of `ingress` for a request, each with the seconds since the call
/// before.
fn traced(sandbox: &Sandbox, request: &str, options: &[&str]) -> Vec<String> {
    let log = sandbox.root().join("calls");
    let mut line: Vec<OsString> = ["-qq", "-r", "-s", "300", "-o"].iter().map(OsString::from).collect();
    line.push(log.clone().into());
    line.extend(options.iter().map(OsString::from));
    line.extend([dormouse().into(), "ingress".into()]);
    let ran = sandbox.program("strace", line).stdin(request).output();
    assert!(ran.stdout.starts_with("HTTP/1.1 401 "), "{ran}");
    fs::read_to_string(log).unwrap().lines().map(str::to_owned).collect()
}

/// Returns the number that follows `word` in a line.
fn number(line: &str, word: &str) -> f64 {
    let (_, rest) = line.split_once(word).unwrap_or_else(|| panic!("no {word} in {line}"));
    let digits: String = rest.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
    digits.parse().unwrap()
}

/// Returns the index of the system call that delays the answer, and the delay in ms. `None` if
/// other processes have delayed `ingress` for so long that the answer is late anyway.
fn pause(calls: &[String]) -> Option<(usize, f64)> {
    let at = calls.iter().position(|call| call.contains("clock_nanosleep("))?;
    let second = number(&calls[at], "tv_sec=");
    Some((at, second * 1e3 + number(&calls[at], "tv_nsec=") / 1e6))
}

/// Returns the milliseconds from the first byte of the request to the call with index `before`.
fn work(calls: &[String], before: usize) -> f64 {
    let begun = calls.iter().position(|call| call.contains("POST /agents")).expect("a request");
    let spans = calls[begun + 1..=before].iter().map(|call| number(call.trim_start(), "").to_owned());
    spans.sum::<f64>() * 1e3
}

/// Returns the name of a call. The calls that write keep their arguments; other arguments, such as
/// addresses and timeouts, vary from run to run.
fn kind(call: &str) -> String {
    let call = call.trim_start().split_once(' ').map_or("", |(_, call)| call);
    let name = call.split('(').next().unwrap_or_default();
    if ["write", "writev", "sendto"].contains(&name) { call.to_owned() } else { name.to_owned() }
}

#[test]
fn every_wrong_capability_is_answered_at_the_same_moment() {
    needs!("strace");
    let sandbox = started("true");
    let mut after = Vec::new();
    for (what, request) in wrong_capabilities(&sandbox) {
        // The sum exceeds `ALIKE_MS` by the work that `ingress` can't measure: that of strace, and
        // that of other processes on a busy machine, so some attempts may be late.
        let is_alike = |calls: &Vec<String>| {
            let Some((at, pause_ms)) = pause(calls) else { return false };
            let sum = work(calls, at) + pause_ms;
            assert!(sum >= ALIKE_MS - 1.0, "{what}: {sum} ms\n{}", calls.join("\n"));
            sum < ALIKE_MS + 4.0
        };
        let mut attempts = (0..ATTEMPTS).map(|_| traced(&sandbox, &request, &[]));
        let calls = attempts.find(is_alike).unwrap_or_else(|| panic!("{what}: always later than the others"));
        let at = pause(&calls).map_or(0, |(at, _)| at);
        after.push((what, calls[at + 1..].iter().map(|call| kind(call)).collect::<Vec<_>>()));
    }
    for (what, calls) in &after {
        assert_eq!(*calls, after[0].1, "{what}: the calls after the pause");
    }
}

#[test]
fn a_slow_disk_does_not_change_the_time_of_the_answer() {
    needs!("strace");
    let sandbox = started("true");
    let good = hook(&sandbox, &[]);
    let request = Hook::at(&good.path, "wrong").json("{}");
    let mut attempts = (0..ATTEMPTS).map(|_| traced(&sandbox, &request, &[]));
    let paused = attempts.find_map(|calls| pause(&calls).map(|(_, pause_ms)| (calls, pause_ms)));
    let (calls, undisturbed) = paused.expect("an answer in time");
    let file = format!("{}.json", good.id);
    let reads = calls.iter().position(|call| call.contains(&file)).expect("a read of the trigger");
    let name = kind(&calls[reads]);
    let nth = calls[..=reads].iter().filter(|call| kind(call) == name).count();
    let slow = format!("inject={name}:delay_enter=30000:when={nth}");
    let pause_ms = pause(&traced(&sandbox, &request, &["-e", &slow])).map_or(0.0, |(_, pause_ms)| pause_ms);
    assert!(pause_ms <= ALIKE_MS - 30.0, "{pause_ms} ms instead of {undisturbed}");
}
