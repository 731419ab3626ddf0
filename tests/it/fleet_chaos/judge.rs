//! Judge of a fleet: finds faults in the log of the turns of several machines and in their final
//! records. It reads no files, and uses no code of the program.

use std::collections::{BTreeMap, BTreeSet};

/// Kind of a line in the log to which all turns write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sign {
    Begin,
    /// The turn still runs, and may act on other systems than the database.
    Alive,
    End,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    pub sign: Sign,
    pub agent: String,
    pub run: String,
    pub message: String,
    pub fence: u64,
}

/// End of a run according to the records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    pub agent: String,
    pub run: String,
    pub message: String,
    pub terminal: String,
}

/// End of a message according to the records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settled {
    pub message: String,
    pub status: String,
    pub run: Option<String>,
}

/// Log and records of several machines, in which `judge` looks for faults.
#[derive(Debug, Clone, Default)]
pub struct Evidence {
    /// Log of the turns.
    pub log: Vec<Line>,
    /// Granted leases in the order in which the database committed them: agent and fencing token.
    pub given: Vec<(String, u64)>,
    /// Archived runs in the order in which the database committed them.
    pub ended: Vec<Ended>,
    pub settled: Vec<Settled>,
    /// Messages whose ids `enqueue` has printed.
    pub acknowledged: Vec<String>,
    /// Open runs and messages, leases and findings of `doctor` that should not exist at the end.
    pub left: Vec<String>,
}

/// Status of a run that another machine took over.
const INTERRUPTED: &str = "interrupted";

/// Returns a sentence for each fault that log and records show.
pub fn judge(evidence: &Evidence) -> Vec<String> {
    let mut wrong = Vec::new();
    one_at_a_time(evidence, &mut wrong);
    fences_grow(evidence, &mut wrong);
    runs_end_once(evidence, &mut wrong);
    messages_end_once(evidence, &mut wrong);
    wrong.extend(evidence.left.iter().map(|what| format!("is left: {what}")));
    wrong
}

/// Turn according to its log lines.
struct Turn<'e> {
    line: &'e Line,
    /// Index of the turn's first line in the log.
    began: usize,
    last: usize,
}

fn turns(log: &[Line]) -> Vec<Turn<'_>> {
    let mut turns: Vec<Turn<'_>> = Vec::new();
    for (at, line) in log.iter().enumerate() {
        match turns.iter_mut().find(|turn| turn.line.run == line.run) {
            // A killed turn writes no end line, so its last line of any kind counts as its end.
            Some(turn) => turn.last = at,
            None => turns.push(Turn { line, began: at, last: at }),
        }
    }
    turns
}

/// Returns the number of pairs of turns of one agent that overlap.
pub fn pairs(log: &[Line]) -> usize {
    let turns = turns(log);
    turns.iter().map(|turn| turns.iter().filter(|other| is_beside(turn, other)).count()).sum()
}

/// True if `turn` is older than `other`, and both overlap.
fn is_beside(turn: &Turn<'_>, other: &Turn<'_>) -> bool {
    turn.line.agent == other.line.agent
        && turn.line.fence < other.line.fence
        && turn.began < other.last
        && other.began < turn.last
}

/// Checks that no two turns of an agent overlap, unless the older one was fenced and has no effect
/// in the records.
fn one_at_a_time(evidence: &Evidence, wrong: &mut Vec<String>) {
    let turns = turns(&evidence.log);
    let is_fenced = |turn: &Turn<'_>| {
        let of_it: Vec<&Ended> = evidence.ended.iter().filter(|ended| ended.run == turn.line.run).collect();
        matches!(of_it[..], [only] if only.terminal == INTERRUPTED)
    };
    for turn in &turns {
        for other in &turns {
            if is_beside(turn, other) && !is_fenced(turn) {
                let (one, two) = (&turn.line, &other.line);
                wrong.push(format!(
                    "{}: {} (fence {}) lived beside {} (fence {}), and counts all the same",
                    one.agent, one.run, one.fence, two.run, two.fence
                ));
            }
        }
    }
}

/// Checks that each lease of an agent has a higher fencing token than the leases before, and that
/// each turn has a token of its own.
fn fences_grow(evidence: &Evidence, wrong: &mut Vec<String>) {
    let mut last: BTreeMap<&str, u64> = BTreeMap::new();
    for (agent, fence) in &evidence.given {
        let before = last.insert(agent, *fence);
        if before.is_some_and(|before| before >= *fence) {
            wrong.push(format!("{agent}: the fence {fence} was given after {}", before.unwrap_or_default()));
        }
    }
    let given: BTreeSet<(&str, u64)> =
        evidence.given.iter().map(|(agent, fence)| (agent.as_str(), *fence)).collect();
    let mut owners: BTreeMap<(&str, u64), &str> = BTreeMap::new();
    for line in &evidence.log {
        let fence = (line.agent.as_str(), line.fence);
        if !given.contains(&fence) {
            wrong.push(format!(
                "{}: {} has the fence {}, which nobody gave",
                line.agent, line.run, line.fence
            ));
        }
        let owner = owners.entry(fence).or_insert(&line.run);
        if *owner != line.run {
            wrong
                .push(format!("{}: {owner} and {} both have the fence {}", line.agent, line.run, line.fence));
        }
    }
    // Runs must be settled in the order of their fencing tokens.
    let fence_of: BTreeMap<&str, u64> =
        evidence.log.iter().map(|line| (line.run.as_str(), line.fence)).collect();
    let mut last: BTreeMap<&str, u64> = BTreeMap::new();
    for ended in evidence.ended.iter().filter(|ended| ended.terminal != INTERRUPTED) {
        let Some(fence) = fence_of.get(ended.run.as_str()) else { continue };
        let before = last.insert(&ended.agent, *fence);
        if before.is_some_and(|before| before >= *fence) {
            wrong.push(format!("{}: {} was settled after a run of a higher fence", ended.agent, ended.run));
        }
    }
}

/// Checks that each run is settled once, so that a fenced turn adds nothing.
fn runs_end_once(evidence: &Evidence, wrong: &mut Vec<String>) {
    let mut times: BTreeMap<&str, usize> = BTreeMap::new();
    for ended in &evidence.ended {
        *times.entry(&ended.run).or_default() += 1;
    }
    for (run, count) in &times {
        if *count > 1 {
            wrong.push(format!("{run} was recorded {count} times"));
        }
    }
    let unknown: BTreeSet<&str> = evidence.log.iter().map(|line| line.run.as_str()).collect();
    for run in unknown.into_iter().filter(|run| !times.contains_key(run)) {
        wrong.push(format!("{run} has no record"));
    }
}

/// Checks that each message that was acknowledged or settled ended once, by one completed run.
fn messages_end_once(evidence: &Evidence, wrong: &mut Vec<String>) {
    // An `enqueue` whose answer was lost may have stored its message.
    let known: BTreeSet<&String> =
        evidence.acknowledged.iter().chain(evidence.settled.iter().map(|settled| &settled.message)).collect();
    for id in known {
        let of_it: Vec<&Settled> = evidence.settled.iter().filter(|settled| settled.message == *id).collect();
        let [only] = of_it[..] else {
            wrong.push(format!("{id} ended {} times", of_it.len()));
            continue;
        };
        let is_by = |ended: &&Ended| Some(&ended.run) == only.run.as_ref() && ended.message == *id;
        match evidence.ended.iter().find(is_by) {
            Some(run) if run.terminal == "completed" && only.status == "processed" => {}
            Some(run) => wrong.push(format!("{id} is {} by a run that is {}", only.status, run.terminal)),
            None => wrong.push(format!("{id} is {} by no run", only.status)),
        }
        let completed = |ended: &&Ended| ended.message == *id && ended.terminal == "completed";
        if evidence.ended.iter().filter(completed).map(|ended| &ended.run).collect::<BTreeSet<_>>().len() > 1
        {
            wrong.push(format!("{id} was completed by more than one run"));
        }
        let ended = |line: &&Line| line.message == *id && Some(&line.run) == only.run.as_ref();
        if !evidence.log.iter().filter(ended).any(|line| line.sign == Sign::End) {
            wrong.push(format!("{id} is {}, and its turn never came to its end", only.status));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(sign: Sign, run: &str, fence: u64) -> Line {
        let message = if run == "run_3" { "msg_2" } else { "msg_1" };
        Line { sign, agent: "ada".into(), run: run.into(), message: message.into(), fence }
    }

    fn ended(run: &str, message: &str, terminal: &str) -> Ended {
        let (run, message, terminal) = (run.into(), message.into(), terminal.into());
        Ended { agent: "ada".into(), run, message, terminal }
    }

    fn settled(message: &str, run: &str) -> Settled {
        Settled { message: message.into(), status: "processed".into(), run: Some(run.into()) }
    }

    /// Returns evidence without faults. A machine took over the first run while its turn was alive.
    fn survived() -> Evidence {
        use Sign::{Alive, Begin, End};
        let log = [
            (Begin, "run_1", 1),
            (Alive, "run_1", 1),
            (Begin, "run_2", 3),
            (Alive, "run_1", 1),
            (End, "run_2", 3),
            (Begin, "run_3", 4),
            (End, "run_3", 4),
        ];
        Evidence {
            log: log.into_iter().map(|(sign, run, fence)| line(sign, run, fence)).collect(),
            given: [1, 2, 3, 4].map(|fence| ("ada".to_owned(), fence)).to_vec(),
            ended: vec![
                ended("run_1", "msg_1", "interrupted"),
                ended("run_2", "msg_1", "completed"),
                ended("run_3", "msg_2", "completed"),
            ],
            settled: vec![settled("msg_1", "run_2"), settled("msg_2", "run_3")],
            acknowledged: vec!["msg_1".into(), "msg_2".into()],
            left: Vec::new(),
        }
    }

    /// Text that `judge` must report, and a change that puts this fault into faultless evidence.
    type Harm = (&'static str, fn(&mut Evidence));

    const HARMS: &[Harm] = &[
        ("lived beside run_2", |e| e.ended[0].terminal = "completed".into()),
        ("lived beside run_2", |e| e.ended[0].terminal = "failed".into()),
        ("lived beside run_2", |e| e.ended.push(ended("run_1", "msg_1", "interrupted"))),
        ("lived beside run_3", |e| e.log.push(line(Sign::End, "run_2", 3))),
        ("the fence 2 was given after 3", |e| e.given.swap(1, 2)),
        ("the fence 4 was given after 4", |e| e.given.push(("ada".into(), 4))),
        ("has the fence 4, which nobody gave", |e| drop(e.given.pop())),
        ("both have the fence 4", |e| e.log[4].fence = 4),
        ("run_2 was settled after a run of a higher fence", |e| e.ended.swap(1, 2)),
        ("run_1 was recorded 2 times", |e| e.ended.push(ended("run_1", "msg_1", "interrupted"))),
        ("run_1 has no record", |e| drop(e.ended.remove(0))),
        ("msg_1 ended 0 times", |e| drop(e.settled.remove(0))),
        ("msg_1 ended 2 times", |e| e.settled.push(settled("msg_1", "run_1"))),
        ("msg_3 ended 0 times", |e| e.acknowledged.push("msg_3".into())),
        ("msg_1 is processed by a run that is interrupted", |e| e.settled[0].run = Some("run_1".into())),
        ("msg_1 is dropped by a run that is completed", |e| e.settled[0].status = "dropped".into()),
        ("msg_1 is processed by no run", |e| e.settled[0].run = None),
        ("msg_1 is processed by no run", |e| e.settled[0].run = Some("run_3".into())),
        ("msg_1 was completed by more than one run", |e| e.ended[0].terminal = "completed".into()),
        ("its turn never came to its end", |e| drop(e.log.remove(4))),
        ("is left: a lease of ada", |e| e.left.push("a lease of ada".into())),
    ];

    #[test]
    fn the_judge_of_a_fleet_objects_to_each_harm() {
        needs!("postgresql");
        assert_eq!((judge(&survived()), pairs(&survived().log)), (Vec::new(), 1));
        for (at, (expected, harm)) in HARMS.iter().enumerate() {
            let mut evidence = survived();
            harm(&mut evidence);
            let wrong = judge(&evidence);
            assert!(
                wrong.iter().any(|objection| objection.contains(expected)),
                "{at}: {expected}: {wrong:?}"
            );
        }
    }

    #[test]
    fn the_judge_accepts_overlapping_turns_of_different_agents() {
        needs!("postgresql");
        let mut evidence = survived();
        for at in [2, 4] {
            evidence.log[at].agent = "eve".into();
        }
        evidence.given.push(("eve".into(), 3));
        evidence.ended[1].agent = "eve".into();
        assert_eq!(judge(&evidence), Vec::<String>::new());
    }
}
