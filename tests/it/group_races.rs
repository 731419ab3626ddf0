//! Tests what a member of `[sharing] group` is told about a message or hint whose agent is renamed,
//! removed or moved during the delivery.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::sync::Mutex;

use crate::harness::{Ran, each_in_parallel, one_in};
use crate::paused::Held;
use crate::setup::{failure, names};
use crate::sharing::{OWNER, SENDER, Shared, shared};
use crate::strace::{self, Call};

/// Commands of a member: their arguments, their standard input, and their number of inbox files.
const DELIVERIES: [(&[&str], &str, usize); 3] = [
    (&["enqueue", "a", "x"], "", 1),
    (&["wake", "a"], "", 1),
    (&["enqueue", "a", "--batch"], "{\"text\": \"x\"}\n{\"text\": \"y\"}\n", 2),
];

/// Commands with which the owner takes the agent away from its path, and with which a new agent or
/// the same agent is put there.
const DEPARTURES: [&[&str]; 6] = [
    &["rename a b"],
    &["rename a b", "create a -- true"],
    &["rm a --force -o out.tar"],
    &["rm a --force -o out.tar", "create a -- true"],
    &["export a --move there -o out.tar"],
    &["export a --move there -o out.tar", "import out.tar"],
];

/// Returns the command line of a command with `--json`, in which the state directory is named.
fn line(shared: &Shared, user: u32, args: &[&str]) -> Vec<OsString> {
    let state = shared.state();
    let named = ["--json", "-C", state.to_str().unwrap()];
    shared.line_of(user, &shared.program(), &[&named, args].concat())
}

/// Returns a user's calls on the paths of the agent, a sample of them.
fn some_calls(user: u32, args: &[&str], stdin: &str) -> Vec<Call> {
    let shared = shared().unwrap();
    let mut calls = strace::record_line(&shared.sandbox, &[], &line(&shared, user, args), stdin).calls;
    calls.retain(|call| call.rest.contains("/agents/a"));
    one_in(6, calls)
}

/// Returns the names of all messages and hints in the inboxes and in the exported stream.
fn arrived(shared: &Shared) -> BTreeSet<String> {
    let agents = shared.state().join("agents");
    let mut all: BTreeSet<String> = BTreeSet::new();
    for agent in names(&agents) {
        all.extend(names(&agents.join(agent).join("inbox")));
    }
    let stream = fs::read(shared.sandbox.project().join("out.tar")).unwrap_or_default();
    let stream = String::from_utf8_lossy(&stream).into_owned();
    all.extend(stream.split("/inbox/").skip(1).map(|rest| rest.split('\0').next().unwrap().to_owned()));
    all.retain(|name| name.ends_with(".json") && !name.starts_with('.'));
    all
}

/// Checks the answer to a delivery of `count` inbox files: after a success all have arrived, and a
/// refusal tells whether some may have arrived. Returns the kind of the error.
#[track_caller]
fn check(shared: &Shared, ran: &Ran, count: usize, what: &str) -> String {
    let arrived = arrived(shared);
    if ran.code() == 0 {
        assert_eq!(arrived.len(), count, "{what}: {ran} {arrived:?}");
        return "success".to_owned();
    }
    let error = failure(ran);
    let (kind, message) = (error["kind"].as_str().unwrap(), error["message"].as_str().unwrap());
    match kind {
        "no_agent" => assert!(ran.code() == 3 && arrived.is_empty(), "{what}: {ran} {arrived:?}"),
        "moved" | "agent_replaced" => {
            assert!(ran.code() == 4, "{what}: {ran}");
            let hint = error["hint"].as_str().unwrap();
            assert!(hint.contains("ask the owner") && hint.contains("--dedupe-key"), "{what}: {ran}");
            let may_have_arrived = message.ends_with("a message may have reached it");
            assert!(may_have_arrived || message.ends_with("no message has reached it"), "{what}: {ran}");
            assert!(may_have_arrived || arrived.is_empty(), "{what}: {ran} {arrived:?}");
        }
        _ => panic!("{what}: {ran}"),
    }
    kind.to_owned()
}

/// Calls `run` with each case on several threads, and returns the kinds of errors that it returned.
fn kinds<T: Sync>(cases: &[T], run: impl Fn(&T) -> String + Sync) -> BTreeSet<String> {
    let kinds = Mutex::new(BTreeSet::new());
    each_in_parallel(cases, |case| {
        let kind = run(case);
        kinds.lock().unwrap().insert(kind);
    });
    kinds.into_inner().unwrap()
}

fn owner_does(shared: &Shared, command: &str) {
    shared.dormouse(OWNER, &command.split(' ').collect::<Vec<_>>()).exits(0);
}

/// Lets the agent depart while a member's command is held at one of its calls.
#[test]
fn a_member_learns_of_the_departure_of_an_agent_during_a_delivery() {
    needs!("strace");
    if shared().is_none() {
        return;
    }
    let mut cases = Vec::new();
    for delivery in DELIVERIES {
        let calls = some_calls(SENDER, delivery.0, delivery.1);
        cases.extend(
            calls.iter().flat_map(|call| DEPARTURES.map(|departure| (delivery, call.clone(), departure))),
        );
    }
    let kinds = kinds(&cases, |((args, stdin, count), call, departure)| {
        let shared = shared().unwrap();
        let member = Held::line(&shared.sandbox, &[], line(&shared, SENDER, args), stdin, call);
        departure.iter().for_each(|command| owner_does(&shared, command));
        let ran = member.go_on();
        check(&shared, &ran, *count, &format!("{args:?} held at {call} during {departure:?}"))
    });
    assert!(
        ["success", "no_agent", "moved", "agent_replaced"].iter().all(|kind| kinds.contains(*kind)),
        "{kinds:?}"
    );
}

/// Delivers messages of a member while the departure of the agent is held at one of its calls.
#[test]
fn a_message_of_a_member_that_was_accepted_departs_with_the_agent() {
    needs!("strace");
    if shared().is_none() {
        return;
    }
    let mut cases = Vec::new();
    for departure in ["rename a b", "rm a --force -o out.tar", "export a --move there -o out.tar"] {
        let words: Vec<&str> = departure.split(' ').collect();
        for call in some_calls(OWNER, &words, "") {
            cases.extend(DELIVERIES.map(|delivery| (words.clone(), call.clone(), delivery)));
        }
    }
    let kinds = kinds(&cases, |(departure, call, (args, stdin, count))| {
        let shared = shared().unwrap();
        let owner = Held::line(&shared.sandbox, &[], line(&shared, OWNER, departure), "", call);
        let input = shared.state().join("../input");
        fs::write(&input, stdin).unwrap();
        let state = shared.state();
        let script = format!(
            "{} --json -C {} {} < input",
            shared.program().display(),
            state.display(),
            args.join(" ")
        );
        let ran = shared.run_as(SENDER, Path::new("sh"), &["-c", &script]);
        owner.go_on().exits(0);
        check(&shared, &ran, *count, &format!("{args:?} while {departure:?} is held at {call}"))
    });
    assert!(["success", "moved"].iter().all(|kind| kinds.contains(*kind)), "{kinds:?}");
}
