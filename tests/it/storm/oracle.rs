//! Test oracle: checks the records after a stress test against the history of its events.

use std::collections::{BTreeMap, BTreeSet};

use super::history::{Ended, Event, Handicap, What};
use super::world::TRAVELLER;

/// Final status of a message, from the archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ending {
    pub status: String,
    pub reason: String,
    pub run: Option<String>,
}

/// Message, as the records show it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Message {
    pub text: String,
    pub dedupe_key: Option<String>,
    /// All ends in the order of the archive. A requeued message has several.
    pub endings: Vec<Ending>,
    /// True if the message is in the inbox or delayed.
    pub is_open: bool,
}

/// Run, as the records show it: its message and its end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Run {
    pub message: String,
    pub terminal: String,
}

#[derive(Debug, Clone, Default)]
pub struct Records {
    pub messages: BTreeMap<String, Message>,
    pub runs: BTreeMap<String, Run>,
    /// Dropped files that a step rejected or `doctor` quarantined.
    pub rejected: BTreeSet<String>,
    /// Faults of the records that are visible without the history.
    pub complaints: Vec<String>,
}

/// Evidence that a stress test leaves for the test oracle.
#[derive(Debug, Clone, Default)]
pub struct Evidence {
    pub history: Vec<Event>,
    /// Lines that the script of the turns has written, in order.
    pub turns: Vec<String>,
    pub records: BTreeMap<String, Records>,
    /// Stale files in the state directory.
    pub litter: Vec<String>,
    /// Processes that were left running.
    pub left: Vec<String>,
    /// Number of times that the moved agent has arrived in a store.
    pub moves: usize,
    /// Maximum memory of a process of the program, in KiB.
    pub memory: usize,
    /// Commands in a copy of the state directory that have ended a process of the original.
    pub disturbed: Vec<String>,
}

/// Parts of a line that the script of the turns has written.
#[derive(Debug, Clone, Copy)]
struct Note<'e> {
    what: &'e str,
    agent: &'e str,
    message: &'e str,
    run: &'e str,
}

/// Maximum allowed memory of a command, in KiB.
const MEMORY: usize = 64 * 1024;

/// Reasons for which a message may be dropped although no command asked for that.
const DROPPED: [&str; 4] = ["ttl_expired", "duplicate", "already_settled", "delegation_cancelled"];

/// Returns all faults in the evidence: an empty list if the stress test lost nothing.
pub fn judge(evidence: &Evidence) -> Vec<String> {
    let notes: Vec<Note<'_>> = evidence.turns.iter().filter_map(|line| Note::of(line)).collect();
    let mut wrong = Vec::new();
    for (agent, records) in &evidence.records {
        wrong.extend(records.complaints.iter().map(|complaint| format!("{agent}: {complaint}")));
    }
    wrong.extend(calls(&evidence.history));
    wrong.extend(lost(evidence));
    wrong.extend(dropped_files(evidence));
    wrong.extend(put_aside(evidence));
    wrong.extend(endings(evidence));
    wrong.extend(keys(evidence));
    wrong.extend(completions(evidence, &notes));
    wrong.extend(overlaps(&notes));
    wrong.extend(sent(evidence));
    wrong.extend(wedged(evidence, &notes));
    wrong.extend(evidence.litter.iter().map(|path| format!("litter: {path}")));
    wrong.extend(evidence.left.iter().map(|process| format!("a process is left: {process}")));
    let disturbing = |words| format!("`dormouse {words}` in a copy has ended a process of the original");
    wrong.extend(evidence.disturbed.iter().map(disturbing));
    if evidence.memory > MEMORY {
        wrong.push(format!("a command has used {} KiB of memory", evidence.memory));
    }
    wrong
}

impl Note<'_> {
    fn of(line: &str) -> Option<Note<'_>> {
        let mut words = line.split(' ');
        let what = words.next().filter(|word| ["start", "end", "overlap"].contains(word))?;
        Some(Note { what, agent: words.next()?, message: words.next()?, run: words.next()? })
    }
}

/// Returns all message ids in a text.
fn ids(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices("msg_").filter_map(|(at, _)| text.get(at..at + 36))
}

struct Call<'e> {
    words: &'e [String],
    handicap: &'e Handicap,
    begun: u64,
    ended: u64,
    pid: i32,
    end: Ended,
    stdout: &'e str,
    stderr: &'e str,
}

impl Call<'_> {
    fn line(&self) -> String {
        format!("`dormouse {}` (begun at {} ms, {:?})", self.words.join(" "), self.begun, self.handicap)
    }
}

fn called(history: &[Event]) -> Vec<Call<'_>> {
    let mut begun = BTreeMap::new();
    let mut calls = Vec::new();
    for event in history {
        match &event.what {
            What::Begin { call, words, handicap, .. } => {
                begun.insert(*call, (event.at, words, handicap));
            }
            What::End { call, pid, ended: end, stdout, stderr } => {
                let Some((at, words, handicap)) = begun.remove(call) else { continue };
                let (ended, pid, end) = (event.at, *pid, *end);
                calls.push(Call { words, handicap, begun: at, ended, pid, end, stdout, stderr });
            }
            _ => {}
        }
    }
    calls
}

/// Returns the allowed exit statuses of a command during the stress test, or after it (`is_calm`).
fn answers(words: &[String], is_calm: bool) -> &'static [i32] {
    let says = |word: &str| words.iter().any(|other| other == word);
    match words.first().map(String::as_str) {
        // The moved agent may be in the other store, or in neither.
        Some("enqueue") if says(TRAVELLER) => &[0, 3, 4, 5],
        Some("export") if says("--move") => &[0, 4, 5, 6],
        Some("import") if !says("--as") => &[0, 4, 5, 6],
        Some("tick") => &[0, 5, 7],
        // The agent may be stopped, or the timeout of `ask` may pass.
        Some("ask") => &[0, 4, 5, 7, 8],
        // `doctor` fails with 6 for a malformed file that no step has yet taken from the inbox.
        Some("doctor") if !is_calm => &[0, 5, 6],
        Some("enqueue" | "wake" | "list" | "get" | "explain" | "events" | "next-wake" | "doctor") => &[0, 5],
        // A dropped file may be one that `export` refuses, and git may be in an operation.
        Some("export" | "import") => &[0, 5, 6],
        Some("sync") if !is_calm => &[0, 1, 4, 5, 6],
        Some("queue") if !is_calm => &[0, 3, 4, 5, 6],
        // The record that the command names may be gone, or be in another state.
        _ => &[0, 3, 4, 5],
    }
}

/// Checks that every command ended in time, with a documented exit status or by a signal of the
/// stress test, and without a panic. A failure must have a reason: no space, a limit, or a killed
/// process that the command needed.
fn calls(history: &[Event]) -> Vec<String> {
    let kills: BTreeSet<(i32, i32)> = history
        .iter()
        .filter_map(|event| match &event.what {
            What::Kill { pid, signal, .. } => Some((*pid, *signal)),
            _ => None,
        })
        .collect();
    // A signal to the command, or to a process that it needs, above all a child, explains why the
    // command failed.
    let struck = |call: &Call<'_>| {
        let has_children = ["tick", "task", "ask"].contains(&call.words[0].as_str());
        history.iter().any(|event| match event.what {
            What::Kill { pid, .. } => {
                (has_children || pid == call.pid) && (call.begun..=call.ended).contains(&event.at)
            }
            _ => false,
        })
    };
    let calm = history.iter().find(|event| event.what == What::Calm).map_or(u64::MAX, |event| event.at);
    let floods = floods(history);
    let mut wrong = Vec::new();
    for call in called(history) {
        let is_flooded = floods.iter().any(|(from, to)| *from <= call.ended && call.begun <= *to);
        let may_fail = is_flooded || call.handicap.is_limit() || struck(&call);
        let is_right = match call.end {
            Ended::Overlong => false,
            Ended::Signal(signal) => kills.contains(&(call.pid, signal)),
            Ended::Status(status) => {
                answers(call.words, call.begun >= calm).contains(&status) || (status == 1 && may_fail)
            }
        };
        if !is_right || call.stderr.contains("panicked") {
            wrong.push(format!(
                "{} ended with {:?}: {} {}",
                call.line(),
                call.end,
                call.stdout.trim(),
                call.stderr.trim()
            ));
        }
    }
    wrong
}

/// Returns the periods during which the disk was full or the database server down.
fn floods(history: &[Event]) -> Vec<(u64, u64)> {
    let mut floods = Vec::new();
    let (mut full, mut away) = (None, None);
    for event in history {
        let (is_trouble, since) = match &event.what {
            What::Disk { is_full } => (*is_full, &mut full),
            What::Server { is_away } => (*is_away, &mut away),
            _ => continue,
        };
        match since.take() {
            _ if is_trouble => *since = Some(event.at),
            Some(from) => floods.push((from, event.at)),
            None => {}
        }
    }
    floods
}

/// Returns the message ids that commands have printed, each with its agent. Such a message may
/// never be lost.
pub fn acknowledged(history: &[Event]) -> BTreeMap<String, String> {
    let mut said = BTreeMap::new();
    for call in &called(history) {
        let agent = match call.words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
            ["enqueue", agent, ..] => *agent,
            ["trigger", "deliver", _, "-a", agent, ..] => *agent,
            _ => continue,
        };
        said.extend(ids(call.stdout).map(|id| (id.to_owned(), agent.to_owned())));
    }
    said
}

fn lost(evidence: &Evidence) -> Vec<String> {
    let is_kept = |id: &String, agent: &String| {
        evidence.records.get(agent).is_some_and(|records| records.messages.contains_key(id))
    };
    let said = acknowledged(&evidence.history);
    said.iter()
        .filter(|(id, agent)| !is_kept(id, agent))
        .map(|(id, agent)| format!("{agent}: {id} is lost"))
        .collect()
}

/// Checks that each dropped file became one message, or was rejected because it is no message.
fn dropped_files(evidence: &Evidence) -> Vec<String> {
    let mut wrong = Vec::new();
    // After `queue rejected` has accepted or dropped a file, it is no longer rejected.
    let calls = called(&evidence.history);
    let decided: Vec<&Call<'_>> =
        calls.iter().filter(|call| call.words.iter().take(2).eq(["queue", "rejected"].iter())).collect();
    for event in &evidence.history {
        let What::Dropped { agent, name, text } = &event.what else { continue };
        let Some(records) = evidence.records.get(agent) else {
            wrong.push(format!("{agent} is gone, with {name}"));
            continue;
        };
        if text.is_none() && decided.iter().any(|call| call.words.last() == Some(name)) {
            continue;
        }
        let is_rejected = records.rejected.contains(name);
        let messages = text
            .as_ref()
            .map(|text| records.messages.values().filter(|message| message.text == *text).count());
        if is_rejected != messages.is_none() || messages.is_some_and(|messages| messages != 1) {
            wrong.push(format!(
                "{agent}: {name} was dropped; rejected: {is_rejected}, messages: {messages:?}"
            ));
        }
    }
    wrong
}

/// Checks that only files that are no messages were rejected or quarantined.
fn put_aside(evidence: &Evidence) -> Vec<String> {
    let bad = |agent: &String, file: &String| {
        evidence.history.iter().any(|event| {
            matches!(&event.what, What::Dropped { agent: to, name, text: None } if to == agent && name == file)
        })
    };
    let aside = evidence.records.iter().flat_map(|(agent, records)| {
        records.rejected.iter().filter(move |file| !bad(agent, file)).map(move |file| (agent, file))
    });
    aside.map(|(agent, file)| format!("{agent}: {file} was put aside")).collect()
}

/// Checks that every message has ended, and was completed at most once.
fn endings(evidence: &Evidence) -> Vec<String> {
    let mut wrong = Vec::new();
    for (agent, records) in &evidence.records {
        for (id, message) in &records.messages {
            let is_over = |ending: &&Ending| ["processed", "interjected"].contains(&ending.status.as_str());
            let over = message.endings.iter().filter(is_over).count();
            let last = message.endings.last();
            let is_right = !message.is_open
                && over <= 1
                && last.is_some_and(|last| match last.status.as_str() {
                    "processed" | "interjected" => true,
                    "aborted" => over == 0,
                    "dropped" => {
                        over == 0
                            && (DROPPED.contains(&last.reason.as_str()) || last.reason.contains("operator"))
                    }
                    _ => false,
                });
            if !is_right {
                wrong.push(format!(
                    "{agent}: {id} ({}) has not ended once: {:?}",
                    message.text, message.endings
                ));
            }
            // An interjected message ends with the run of another message, not with its own.
            let run = last.filter(|last| last.status == "processed").and_then(|last| last.run.as_ref());
            if let Some(run) = run
                && records.runs.get(run).is_none_or(|run| run.message != *id)
            {
                wrong.push(format!("{agent}: {id} was processed by {run}, and there is no such run"));
            }
        }
    }
    wrong
}

/// Checks that only one message of each dedupe key was processed.
fn keys(evidence: &Evidence) -> Vec<String> {
    let mut wrong = Vec::new();
    for (agent, records) in &evidence.records {
        let mut seen: BTreeMap<&str, &str> = BTreeMap::new();
        for (id, message) in &records.messages {
            let is_worked_on = message.endings.iter().any(|ending| ending.status == "processed");
            let Some(key) = message.dedupe_key.as_deref().filter(|_| is_worked_on) else { continue };
            if let Some(other) = seen.insert(key, id) {
                wrong
                    .push(format!("{agent}: {other} and {id} have the key `{key}`, and both were worked on"));
            }
        }
    }
    wrong
}

/// Checks that a completed run has begun and ended, and that no later run of its message began.
fn completions(evidence: &Evidence, notes: &[Note<'_>]) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut by_message: BTreeMap<&str, Vec<&Note<'_>>> = BTreeMap::new();
    for note in notes {
        by_message.entry(note.message).or_default().push(note);
    }
    for (agent, records) in &evidence.records {
        for (id, run) in records.runs.iter().filter(|(_, run)| run.terminal == "completed") {
            let of_message = by_message.get(run.message.as_str()).map_or(&[][..], Vec::as_slice);
            let Some(began) = of_message.iter().position(|note| note.what == "start" && note.run == id)
            else {
                wrong.push(format!("{agent}: {id} has completed, and its turn never began"));
                continue;
            };
            if !of_message.iter().any(|note| note.what == "end" && note.run == id) {
                wrong.push(format!("{agent}: {id} has completed, and its turn never ended"));
            }
            for later in of_message[began..].iter().filter(|note| note.what == "start" && note.run != id) {
                wrong.push(format!(
                    "{agent}: {} ran again ({}) after {id} had completed",
                    run.message, later.run
                ));
            }
        }
    }
    wrong
}

/// Checks that no turn of an agent begins while another turn of the agent runs.
fn overlaps(notes: &[Note<'_>]) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut begun: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for note in notes {
        let of_agent = begun.entry(note.agent).or_default();
        match note.what {
            "overlap" => wrong
                .push(format!("{}: something of an earlier turn was there beside {}", note.agent, note.run)),
            "start" => of_agent.push(note.run),
            // A killed turn writes no end, so each end must belong to the turn that began last.
            _ if of_agent.last() != Some(&note.run) => {
                wrong.push(format!("{}: {} went on beside {:?}", note.agent, note.run, of_agent.last()));
            }
            _ => {}
        }
    }
    wrong
}

/// Checks that a message that a completed turn sent to another agent has arrived once.
fn sent(evidence: &Evidence) -> Vec<String> {
    let mut wrong = Vec::new();
    let has_completed = |id: &str| {
        let run = evidence.records.values().find_map(|records| records.runs.get(id));
        run.is_some_and(|run| run.terminal == "completed")
    };
    let mut to: BTreeMap<&str, &str> = BTreeMap::new();
    for line in &evidence.turns {
        if let ["sent", agent, run] = line.split(' ').collect::<Vec<_>>()[..] {
            to.insert(run, agent);
        }
    }
    for (run, agent) in to.into_iter().filter(|(run, _)| has_completed(run)) {
        let text = format!("sent by {run}");
        let messages = evidence.records.get(agent).map(|records| &records.messages);
        let arrived =
            messages.map_or(0, |messages| messages.values().filter(|message| message.text == text).count());
        if arrived != 1 {
            wrong.push(format!("{agent}: what {run} has said to it arrived {arrived} times"));
        }
    }
    wrong
}

/// Checks that every agent began a turn for the probe message that it got after all other work.
fn wedged(evidence: &Evidence, notes: &[Note<'_>]) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut asked = BTreeSet::new();
    for event in &evidence.history {
        if let What::Probe { agent, id } = &event.what {
            asked.insert(agent.clone());
            if !notes.iter().any(|note| note.what == "start" && note.message == id) {
                wrong.push(format!("{agent} is wedged: {id} got no turn"));
            }
        }
    }
    let silent = evidence.records.keys().filter(|agent| !asked.contains(*agent));
    wrong.extend(silent.map(|agent| format!("{agent} was not asked whether it is wedged")));
    wrong
}
