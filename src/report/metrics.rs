//! `metrics`: how the agents stand and what they have done, in the text format of Prometheus (version 0.0.4), which its
//! textfile collector reads.
//!
//! Sums over agents are gauges, and every counter has its agent as a label: a sum would go down when an agent goes,
//! and a counter that goes down is taken for one that has begun anew.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::{Value, json};

use crate::model::advisory::AdvisoryKind;
use crate::model::agent::{Status, Visibility};
use crate::model::execution::ExecutionState;
use crate::model::id::AgentName;
use crate::model::meters::{Lengths, Meters};
use crate::model::posture::Posture;
use crate::model::records::Records;
use crate::model::resource::Resource;
use crate::model::run::Terminal;
use crate::model::state::Counters;
use crate::model::time::Time;
use crate::rules::advisory::advisories;
use crate::rules::limits::dollars;
use crate::rules::posture::posture;

use super::summary::Arrivals;

/// What is read of one agent.
#[derive(Debug)]
pub struct Reading {
    agent: AgentName,
    visibility: Visibility,
    is_moved: bool,
    posture: Posture,
    status: Status,
    execution: ExecutionState,
    since: Time,
    queued: u64,
    oldest: Option<Time>,
    rejected: u64,
    attention: u64,
    lacks: Option<Resource>,
    next_due_at: Option<Time>,
    turn_started_at: Option<Time>,
    last_turn_at: Option<Time>,
    advisories: BTreeMap<AdvisoryKind, u64>,
    counters: Counters,
    meters: Meters,
}

impl Reading {
    pub fn new(visibility: Visibility, records: Records, arrivals: &Arrivals, now: Time) -> Reading {
        let mut kinds: BTreeMap<AdvisoryKind, u64> = BTreeMap::new();
        for advisory in advisories(&records, now) {
            *kinds.entry(advisory.kind).or_default() += 1;
        }
        let posture = posture(&records).posture;
        let state = records.state;
        Reading {
            agent: state.agent,
            visibility,
            is_moved: state.moved.is_some(),
            posture,
            status: state.status,
            execution: state.execution.state,
            since: state.execution.since,
            queued: (arrivals.queued.len() + records.inbox.drops) as u64,
            oldest: arrivals.queued.iter().filter_map(|key| key.id.minted_at()).min(),
            rejected: arrivals.rejected as u64,
            attention: state.attention.map_or(0, |mark| mark.count),
            lacks: state.held.and_then(|held| held.resource),
            next_due_at: state.next_due_at,
            turn_started_at: state.current_run.map(|run| run.claimed_at),
            last_turn_at: state.last_turn.map(|turn| turn.ended_at),
            advisories: kinds,
            counters: state.counters,
            meters: state.meters,
        }
    }
}

/// Which agents are named. All are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Naming {
    All,
    Public,
    Nobody,
}

/// All that was read at one time.
#[derive(Debug, Default)]
pub struct Readings {
    pub readable: Vec<Reading>,
    /// The agents whose records can't be read.
    pub unreadable: Vec<AgentName>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Gauge,
    Counter,
    Histogram,
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Kind::Gauge => "gauge",
            Kind::Counter => "counter",
            Kind::Histogram => "histogram",
        }
    }
}

type Labels<'a> = [(&'a str, &'a str)];
/// A value of a label, and the number of an agent that belongs to it.
type Counted = (&'static str, fn(&Reading) -> f64);

/// Gets the numbers one after the other, all of a name together.
trait Sheet {
    fn begin(&mut self, name: &'static str, kind: Kind, help: &str);
    /// A number of the name that was begun last. `suffix`: which part of a histogram it is.
    fn number(&mut self, suffix: &str, labels: &Labels<'_>, value: f64);
}

/// The text that Prometheus reads.
pub fn text(readings: &Readings, naming: Naming, now: Time) -> String {
    let mut sheet = Text::default();
    write(&mut sheet, readings, naming, now);
    sheet.text
}

/// The same as objects, one for each number.
pub fn objects(readings: &Readings, naming: Naming, now: Time) -> Vec<Value> {
    let mut sheet = Objects { name: "", kind: Kind::Gauge, objects: Vec::new() };
    write(&mut sheet, readings, naming, now);
    sheet.objects
}

#[derive(Default)]
struct Text {
    name: &'static str,
    text: String,
}

impl Sheet for Text {
    fn begin(&mut self, name: &'static str, kind: Kind, help: &str) {
        self.name = name;
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {}", kind.name());
    }

    fn number(&mut self, suffix: &str, labels: &Labels<'_>, value: f64) {
        let _ = write!(self.text, "{}{suffix}", self.name);
        for (at, (label, value)) in labels.iter().enumerate() {
            let _ = write!(self.text, "{}{label}=\"{}\"", if at == 0 { '{' } else { ',' }, escaped(value));
        }
        let end = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.text, "{end} {value}");
    }
}

/// The value of a label, as it stands between quotes: it can't end before its end.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

struct Objects {
    name: &'static str,
    kind: Kind,
    objects: Vec<Value>,
}

impl Sheet for Objects {
    fn begin(&mut self, name: &'static str, kind: Kind, _: &str) {
        (self.name, self.kind) = (name, kind);
    }

    fn number(&mut self, suffix: &str, labels: &Labels<'_>, value: f64) {
        let labels: serde_json::Map<String, Value> =
            labels.iter().map(|(label, value)| ((*label).to_owned(), json!(value))).collect();
        let name = format!("{}{suffix}", self.name);
        self.objects
            .push(json!({ "metric": name, "type": self.kind.name(), "labels": labels, "value": value }));
    }
}

fn write(sheet: &mut impl Sheet, readings: &Readings, naming: Naming, now: Time) {
    let here = |reading: &&Reading| !reading.is_moved;
    let all: Vec<&Reading> = readings.readable.iter().filter(here).collect();
    write_all(sheet, readings, &all, now);
    let is_named = |reading: &&&Reading| match naming {
        Naming::All => true,
        Naming::Public => reading.visibility == Visibility::Public,
        Naming::Nobody => false,
    };
    let named: Vec<&Reading> = all.iter().filter(is_named).copied().collect();
    if naming == Naming::All {
        sheet.begin("dormouse_agent_unreadable", Kind::Gauge, "Agents whose records can't be read.");
        for agent in &readings.unreadable {
            sheet.number("", &[("agent", agent.as_str())], 1.0);
        }
    }
    if naming != Naming::Nobody {
        write_standing(sheet, &named);
        write_history(sheet, &named);
    }
}

/// What is so of all agents together, and names none of them.
fn write_all(sheet: &mut impl Sheet, readings: &Readings, all: &[&Reading], now: Time) {
    let mut gauge = |name, help, value: Option<f64>| {
        sheet.begin(name, Kind::Gauge, help);
        if let Some(value) = value {
            sheet.number("", &[], value);
        }
    };
    let sum = |of: fn(&Reading) -> u64| {
        Some(number(all.iter().fold(0, |sum: u64, one| sum.saturating_add(of(one)))))
    };
    let first = |of: fn(&Reading) -> Option<Time>| all.iter().filter_map(|one| of(one)).min().map(seconds);
    gauge("dormouse_metrics_timestamp_seconds", "When these numbers were read.", Some(seconds(now)));
    gauge(
        "dormouse_agents_unreadable",
        "How many agents have records that can't be read.",
        Some(number(readings.unreadable.len() as u64)),
    );
    gauge(
        "dormouse_agents_moved",
        "How many agents have moved to another store. None of the other numbers is about them.",
        Some(number((readings.readable.len() - all.len()) as u64)),
    );
    gauge("dormouse_queue_messages", "How many messages wait.", sum(|one| one.queued));
    gauge(
        "dormouse_queue_oldest_timestamp_seconds",
        "When the oldest waiting message was admitted. Absent where none waits.",
        first(|one| one.oldest),
    );
    gauge(
        "dormouse_dead_letters",
        "Dead letters, neither requeued nor dropped.",
        sum(|one| one.counters.dead),
    );
    gauge(
        "dormouse_rejected_files",
        "Hand-written files that could not be admitted.",
        sum(|one| one.rejected),
    );
    gauge("dormouse_attention", "What needs a person and is not acknowledged.", sum(|one| one.attention));
    gauge(
        "dormouse_next_due_timestamp_seconds",
        "When the next step is due although nothing arrives. Absent where none is.",
        first(|one| one.next_due_at),
    );
    sheet.begin("dormouse_agents", Kind::Gauge, "How many agents have this posture.");
    for posture in Posture::ALL {
        let count = all.iter().filter(|one| one.posture == *posture).count();
        sheet.number("", &[("posture", posture.name())], number(count as u64));
    }
}

/// How each agent stands.
fn write_standing(sheet: &mut impl Sheet, named: &[&Reading]) {
    sheet.begin("dormouse_agent_posture", Kind::Gauge, "How the agent stands: 1 for the words that hold.");
    for one in named {
        sheet.number(
            "",
            &[
                ("agent", one.agent.as_str()),
                ("posture", one.posture.name()),
                ("status", one.status.name()),
                ("state", one.execution.name()),
            ],
            1.0,
        );
    }
    let mut gauge = |name, help, value: fn(&Reading) -> Option<f64>| {
        sheet.begin(name, Kind::Gauge, help);
        for one in named {
            if let Some(value) = value(one) {
                sheet.number("", &[("agent", one.agent.as_str())], value);
            }
        }
    };
    gauge("dormouse_agent_state_timestamp_seconds", "Since when the agent has had its state.", |one| {
        Some(seconds(one.since))
    });
    gauge("dormouse_agent_queue_messages", "How many messages wait.", |one| Some(number(one.queued)));
    gauge(
        "dormouse_agent_queue_oldest_timestamp_seconds",
        "When the oldest waiting message was admitted. Absent where none waits.",
        |one| one.oldest.map(seconds),
    );
    gauge("dormouse_agent_dead_letters", "Dead letters, neither requeued nor dropped.", |one| {
        Some(number(one.counters.dead))
    });
    gauge("dormouse_agent_rejected_files", "Hand-written files that could not be admitted.", |one| {
        Some(number(one.rejected))
    });
    gauge("dormouse_agent_attention", "What needs a person and is not acknowledged.", |one| {
        Some(number(one.attention))
    });
    gauge(
        "dormouse_agent_next_due_timestamp_seconds",
        "When the next step is due although nothing arrives. Absent where none is.",
        |one| one.next_due_at.map(seconds),
    );
    gauge(
        "dormouse_agent_turn_started_timestamp_seconds",
        "When the current turn was claimed. Absent where there is none.",
        |one| one.turn_started_at.map(seconds),
    );
    gauge(
        "dormouse_agent_last_turn_timestamp_seconds",
        "When the last turn ended. Absent before the first.",
        |one| one.last_turn_at.map(seconds),
    );
    sheet.begin(
        "dormouse_agent_lacks",
        Kind::Gauge,
        "The resource without which a claimed turn can't go on.",
    );
    for one in named {
        if let Some(resource) = one.lacks {
            sheet.number("", &[("agent", one.agent.as_str()), ("resource", resource.name())], 1.0);
        }
    }
    sheet.begin("dormouse_agent_advisories", Kind::Gauge, "What looks wrong about the agent.");
    for one in named {
        for (kind, count) in &one.advisories {
            let labels = [("agent", one.agent.as_str()), ("advisory", kind.name())];
            sheet.number("", &labels, number(*count));
        }
    }
}

/// What each agent has done. A count that is still zero is there too, so that its first step up is seen.
fn write_history(sheet: &mut impl Sheet, named: &[&Reading]) {
    sheet.begin("dormouse_agent_turns_total", Kind::Counter, "Turns, by how they ended.");
    for one in named {
        for terminal in Terminal::ALL {
            let count = one.meters.ended.get(terminal).copied().unwrap_or_default();
            let labels = [("agent", one.agent.as_str()), ("terminal", terminal.name())];
            sheet.number("", &labels, number(count));
        }
    }
    sheet.begin("dormouse_agent_turn_duration_seconds", Kind::Histogram, "How long turns took.");
    for one in named {
        let agent = ("agent", one.agent.as_str());
        let turns = &one.meters.turns;
        for bound in Lengths::BOUNDS {
            sheet.number("_bucket", &[agent, ("le", &bound.to_string())], number(turns.at_most(bound)));
        }
        sheet.number("_bucket", &[agent, ("le", "+Inf")], number(turns.count));
        sheet.number("_sum", &[agent], number(turns.sum_ms) / 1000.0);
        sheet.number("_count", &[agent], number(turns.count));
    }
    let mut counter = |name, help, label, values: &[Counted]| {
        sheet.begin(name, Kind::Counter, help);
        for one in named {
            for (word, value) in values {
                let labels = [("agent", one.agent.as_str()), (label, *word)];
                let shown = if label.is_empty() { &labels[..1] } else { &labels[..] };
                sheet.number("", shown, value(one));
            }
        }
    };
    counter(
        "dormouse_agent_messages_total",
        "Messages, by what became of them.",
        "result",
        &[
            ("processed", |one| number(one.counters.messages_processed)),
            ("reduced", |one| number(one.counters.messages_reduced)),
            ("dropped", |one| number(one.counters.messages_dropped)),
        ],
    );
    counter(
        "dormouse_agent_tokens_total",
        "Tokens that turns said they used.",
        "direction",
        &[
            ("input", |one| number(one.counters.input_tokens)),
            ("output", |one| number(one.counters.output_tokens)),
        ],
    );
    let alone = |value: fn(&Reading) -> f64| [("", value)];
    counter(
        "dormouse_agent_cost_usd_total",
        "Dollars that turns said they cost.",
        "",
        &alone(|one| dollars(one.counters.cost_usd)),
    );
    counter(
        "dormouse_agent_lock_waits_total",
        "How often a command waited for the lock of the agent.",
        "",
        &alone(|one| number(one.meters.lock.count)),
    );
    counter(
        "dormouse_agent_lock_wait_seconds_total",
        "How long commands waited for the lock of the agent.",
        "",
        &alone(|one| number(one.meters.lock.sum_ms) / 1000.0),
    );
}

/// A moment as Prometheus counts: seconds since 1970.
fn seconds(at: Time) -> f64 {
    at.as_millis() as f64 / 1000.0
}

fn number(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_value_of_a_label_stays_within_its_quotes() {
        let mut sheet = Text::default();
        sheet.begin("one", Kind::Gauge, "Why.");
        sheet.number("", &[], 0.25);
        sheet.number("_bucket", &[("agent", "a\"} 1\nb{x=\"\\"), ("le", "+Inf")], 3.0);
        assert_eq!(
            sheet.text,
            "# HELP one Why.\n# TYPE one gauge\none 0.25\n\
             one_bucket{agent=\"a\\\"} 1\\nb{x=\\\"\\\\\",le=\"+Inf\"} 3\n"
        );
    }
}
