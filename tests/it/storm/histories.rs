//! Tests of the test oracle, which must object to each event history with a fault.

use super::history::{Ended, Event, Handicap, What};
use super::oracle::{Ending, Evidence, Message, Records, Run, judge};

const ONE: &str = "msg_00000000000070008000000000000001";
const TWO: &str = "msg_00000000000070008000000000000002";
const PROBE: &str = "msg_00000000000070008000000000000003";

/// Change that puts a fault into a correct history.
type Harm = fn(&mut Evidence);

/// Returns a correct history: two messages and a probe, which is a message that tests if the agent
/// still works. Each has its own turn; the first message took two attempts.
fn weathered() -> Evidence {
    let mut evidence = Evidence::default();
    said(&mut evidence, 0, ONE);
    said(&mut evidence, 1, TWO);
    note(&mut evidence, What::Dropped { agent: "ada".into(), name: "bad.json".into(), text: None });
    note(&mut evidence, What::Calm);
    said(&mut evidence, 2, PROBE);
    note(&mut evidence, What::Probe { agent: "ada".into(), id: PROBE.into() });
    let mut records = Records::default();
    records.rejected.insert("bad.json".into());
    for (id, runs) in [(ONE, &["run_1a", "run_1b"][..]), (TWO, &["run_2"]), (PROBE, &["run_3"])] {
        for run in runs {
            let is_last = Some(run) == runs.last();
            let terminal = if is_last { "completed" } else { "failed" };
            records.runs.insert((*run).into(), Run { message: id.into(), terminal: terminal.into() });
            evidence.turns.extend(["start", "end"].map(|what| format!("{what} ada {id} {run} 1 4711")));
        }
        let ending = ended("processed", runs.last().copied());
        let text = format!("text of {id}");
        records.messages.insert(id.into(), Message { text, endings: vec![ending], ..Message::default() });
    }
    evidence.records.insert("ada".into(), records);
    evidence
}

fn note(evidence: &mut Evidence, what: What) {
    let at = evidence.history.len() as u64 * 10;
    evidence.history.push(Event { at, what });
}

/// Adds an `enqueue` that has printed this id.
fn said(evidence: &mut Evidence, call: usize, id: &str) {
    called(evidence, call, &["enqueue", "ada", "text"], Ended::Status(0), &format!("{id}\n"), "");
}

fn called(evidence: &mut Evidence, call: usize, words: &[&str], ended: Ended, stdout: &str, stderr: &str) {
    let words = words.iter().map(|word| (*word).to_owned()).collect();
    note(evidence, What::Begin { call, actor: "producer".into(), words, handicap: Handicap::default() });
    let (stdout, stderr) = (stdout.to_owned(), stderr.to_owned());
    note(evidence, What::End { call, pid: 100 + call as i32, ended, stdout, stderr });
}

fn ended(status: &str, run: Option<&str>) -> Ending {
    Ending { status: status.into(), reason: String::new(), run: run.map(str::to_owned) }
}

fn ada(evidence: &mut Evidence) -> &mut Records {
    evidence.records.get_mut("ada").unwrap()
}

fn message<'e>(evidence: &'e mut Evidence, id: &str) -> &'e mut Message {
    ada(evidence).messages.get_mut(id).unwrap()
}

/// Adds the start of a turn after all other turns.
fn begins(evidence: &mut Evidence, id: &str, run: &str) {
    evidence.turns.push(format!("start ada {id} {run} 2 4712"));
}

const HARMS: &[(&str, Harm)] = &[
    ("in a copy has ended a process", |e| e.disturbed.push("stop ada".into())),
    ("is lost", |e| drop(ada(e).messages.remove(TWO))),
    ("has not ended once", |e| message(e, TWO).is_open = true),
    ("has not ended once", |e| message(e, TWO).endings.clear()),
    ("has not ended once", |e| message(e, TWO).endings.push(ended("processed", Some("run_2")))),
    ("has not ended once", |e| message(e, TWO).endings.push(ended("aborted", None))),
    ("has not ended once", |e| message(e, TWO).endings = vec![ended("dropped", None)]),
    ("there is no such run", |e| message(e, TWO).endings = vec![ended("processed", Some("run_9"))]),
    ("there is no such run", |e| message(e, TWO).endings = vec![ended("processed", Some("run_1b"))]),
    ("ran again (run_2b) after run_2 had completed", |e| begins(e, TWO, "run_2b")),
    ("its turn never began", |e| e.turns.retain(|line| !line.starts_with(&format!("start ada {TWO}")))),
    ("its turn never ended", |e| e.turns.retain(|line| !line.starts_with(&format!("end ada {TWO}")))),
    ("run_1a went on beside", |e| e.turns.swap(1, 2)),
    ("something of an earlier turn", |e| e.turns.push(format!("overlap ada {ONE} run_1b 2 4711"))),
    ("ada is wedged", |e| {
        e.turns.retain(|line| !line.contains(PROBE));
        ada(e).runs.remove("run_3");
    }),
    ("was not asked whether it is wedged", |e| {
        e.records.insert("bob".into(), Records::default());
    }),
    ("bad.json was dropped", |e| ada(e).rejected.clear()),
    ("good.json was dropped", |e| {
        note(e, What::Dropped { agent: "ada".into(), name: "good.json".into(), text: Some("good".into()) });
    }),
    ("good.json was put aside", |e| ada(e).rejected.extend(["good.json".into()])),
    ("both were worked on", |e| {
        [ONE, TWO].iter().for_each(|id| message(e, id).dedupe_key = Some("k".into()));
    }),
    ("arrived 0 times", |e| e.turns.push("sent ada run_2".into())),
    ("litter: ada/tmp/x", |e| e.litter.push("ada/tmp/x".into())),
    ("a process is left", |e| e.left.push("sleep 100".into())),
    ("KiB of memory", |e| e.memory = 1 << 20),
    ("a gap in the ledger", |e| ada(e).complaints.push("a gap in the ledger".into())),
    ("Signal(11)", |e| called(e, 7, &["get", "ada"], Ended::Signal(11), "", "")),
    // The recorded signal went to process 106, and does not explain the end of process 107.
    ("Signal(9)", |e| {
        note(e, What::Kill { pid: 106, signal: 9, name: "dormouse".into() });
        called(e, 7, &["get", "ada"], Ended::Signal(9), "", "");
    }),
    ("Overlong", |e| called(e, 7, &["get", "ada"], Ended::Overlong, "", "")),
    ("Status(6)", |e| called(e, 7, &["get", "ada"], Ended::Status(6), "", "")),
    ("Status(6)", |e| called(e, 7, &["doctor"], Ended::Status(6), "", "")),
    ("Status(1)", |e| called(e, 7, &["tick", "ada"], Ended::Status(1), "", "")),
    ("Status(101)", |e| called(e, 7, &["tick", "ada"], Ended::Status(101), "", "")),
    ("panicked", |e| called(e, 7, &["tick", "ada"], Ended::Status(0), "", "thread 'main' panicked at")),
];

#[test]
fn the_oracle_objects_to_each_harm() {
    assert_eq!(judge(&weathered()), Vec::<String>::new());
    for (at, (expected, harm)) in HARMS.iter().enumerate() {
        let mut evidence = weathered();
        harm(&mut evidence);
        let wrong = judge(&evidence);
        assert!(wrong.iter().any(|objection| objection.contains(expected)), "{at}: {expected}: {wrong:?}");
    }
}

/// The test oracle must not object to the disturbances that a stress test makes on purpose.
#[test]
fn the_oracle_accepts_the_disturbances_of_a_storm() {
    let weathers: &[Harm] = &[
        |e| {
            note(e, What::Kill { pid: 107, signal: 9, name: "dormouse".into() });
            called(e, 7, &["enqueue", "ada", "x"], Ended::Signal(9), "", "");
        },
        |e| {
            note(e, What::Disk { is_full: true });
            called(e, 7, &["enqueue", "ada", "x"], Ended::Status(1), "", "no room");
            note(e, What::Disk { is_full: false });
        },
        // The periods overlap: the server is up again before the disk has space.
        |e| {
            note(e, What::Server { is_away: true });
            note(e, What::Disk { is_full: true });
            note(e, What::Server { is_away: false });
            called(e, 7, &["enqueue", "ada", "x"], Ended::Status(1), "", "no room");
            note(e, What::Disk { is_full: false });
            note(e, What::Server { is_away: true });
            called(e, 8, &["tick", "ada"], Ended::Status(1), "", "nobody answers");
            note(e, What::Server { is_away: false });
        },
        // A killed turn can't note its end, so the oracle must not demand that note.
        |e| {
            let line = e.turns.iter().position(|line| line.starts_with("end") && line.contains("run_1a"));
            e.turns.remove(line.unwrap());
        },
        |e| {
            let record = message(e, ONE);
            record.endings.insert(0, ended("aborted", Some("run_1a")));
        },
        |e| {
            let late = Ending { status: "dropped".into(), reason: "ttl_expired".into(), run: None };
            let id = "msg_00000000000070008000000000000009";
            ada(e).messages.insert(id.into(), Message { endings: vec![late], ..Message::default() });
        },
    ];
    for (at, weather) in weathers.iter().enumerate() {
        let mut evidence = weathered();
        weather(&mut evidence);
        assert_eq!(judge(&evidence), Vec::<String>::new(), "{at}");
    }
}
