//! Wrong capabilities can't be told apart by when they are answered: the work that differs lies before a pause that is
//! as much shorter as the work took, and after the pause each does the same.

use std::ffi::OsString;
use std::fs;

use super::{Hook, hook};
use crate::harness::{Sandbox, dormouse};
use crate::setup::started;

/// How long after the request all of them are answered, in milliseconds.
const ALIKE_MS: f64 = 50.0;

/// The system calls of an answer to a request, in order, each with the seconds since the one before.
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

/// The number after a word in a line.
fn number(line: &str, word: &str) -> f64 {
    let (_, rest) = line.split_once(word).unwrap_or_else(|| panic!("no {word} in {line}"));
    let digits: String = rest.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
    digits.parse().unwrap()
}

/// The pause before the answer: which call it is, and how long it is to last, in milliseconds.
fn pause(calls: &[String]) -> (usize, f64) {
    let at = calls.iter().position(|call| call.contains("clock_nanosleep(")).expect("a pause");
    let second = number(&calls[at], "tv_sec=");
    (at, second * 1e3 + number(&calls[at], "tv_nsec=") / 1e6)
}

/// How long the program was at work before a call, in milliseconds, from the first byte of the request on.
fn work(calls: &[String], before: usize) -> f64 {
    let begun = calls.iter().position(|call| call.contains("POST /agents")).expect("a request");
    let spans = calls[begun + 1..=before].iter().map(|call| number(call.trim_start(), "").to_owned());
    spans.sum::<f64>() * 1e3
}

/// What a call is, without what is another each time: addresses, and what is left of the time of a request.
fn kind(call: &str) -> String {
    let call = call.trim_start().split_once(' ').map_or("", |(_, call)| call);
    let name = call.split('(').next().unwrap_or_default();
    if ["write", "writev", "sendto"].contains(&name) { call.to_owned() } else { name.to_owned() }
}

#[test]
fn every_wrong_capability_is_answered_at_the_same_moment() {
    needs!("strace");
    let sandbox = started("true");
    sandbox.run(["create", "bob", "--", "true"]);
    let good = hook(&sandbox, &[]);
    let signed = hook(&sandbox, &["--verify", "hmac_sha256"]);
    let hinting = hook(&sandbox, &["--mode", "wake_hint", "--resource", "r"]);
    let revoked = hook(&sandbox, &[]);
    sandbox.run(["trigger", "revoke", &revoked.id]);
    let nobody = "trig_00000000000070008000000000000000";
    let at = |path: &str, secret: &str| Hook {
        path: path.to_owned(),
        id: String::new(),
        secret: secret.to_owned(),
    };
    let cases = [
        ("a wrong secret", at(&good.path, &"0".repeat(64))),
        ("another trigger's secret", at(&good.path, &signed.secret)),
        ("no signature", at(&signed.path, "wrong")),
        ("a wrong secret for hints", at(&hinting.path, "wrong")),
        ("revoked", at(&revoked.path, &revoked.secret)),
        ("unknown", at(&format!("/agents/ada/triggers/{nobody}"), &good.secret)),
        ("another agent's", at(&format!("/agents/bob/triggers/{}", good.id), &good.secret)),
        ("no agent", at(&format!("/agents/eve/triggers/{}", good.id), &good.secret)),
        ("no id", at("/agents/ada/triggers/x", &good.secret)),
    ];
    let mut after = Vec::new();
    for (what, case) in &cases {
        let request = case.request("Content-Type: application/json\r\n", "{}");
        let calls = traced(&sandbox, &request, &[]);
        let (at, pause_ms) = pause(&calls);
        // The tracer's own time between two looks at the clock is in the one and not in the other.
        let sum = work(&calls, at) + pause_ms;
        assert!((ALIKE_MS - 1.0..ALIKE_MS + 4.0).contains(&sum), "{what}: {sum} ms\n{}", calls.join("\n"));
        after.push((what, calls[at + 1..].iter().map(|call| kind(call)).collect::<Vec<_>>()));
    }
    for (what, calls) in &after {
        assert_eq!(*calls, after[0].1, "{what}: what is done after the pause");
    }
}

#[test]
fn a_slow_disk_is_not_heard_in_the_answer() {
    needs!("strace");
    let sandbox = started("true");
    let good = hook(&sandbox, &[]);
    let wrong = Hook { secret: "wrong".to_owned(), ..good };
    let request = wrong.request("Content-Type: application/json\r\n", "{}");
    let calls = traced(&sandbox, &request, &[]);
    let reads =
        calls.iter().position(|call| call.contains(&format!("{}.json", wrong.id))).expect("a look at it");
    let name = kind(&calls[reads]);
    let nth = calls[..=reads].iter().filter(|call| kind(call) == name).count();
    let slow = format!("inject={name}:delay_enter=30000:when={nth}");
    let (_, undisturbed) = pause(&calls);
    let (_, pause_ms) = pause(&traced(&sandbox, &request, &["-e", &slow]));
    assert!(pause_ms <= ALIKE_MS - 30.0, "{pause_ms} ms instead of {undisturbed}");
}
