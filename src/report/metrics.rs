//! Metrics of `metrics`: state and history of the agents in the text format (version 0.0.4) that
//! Prometheus's textfile collector reads.
//!
//! Sums over agents are gauges. Every counter has the agent as a label, because a sum would
//! decrease when an agent is deleted, and Prometheus takes a decrease for a reset.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::{Value, json};

use crate::model::agent::{Status, Visibility};
use crate::model::attention::AdvisoryKind;
use crate::model::execution::ExecutionState;
use crate::model::id::AgentName;
use crate::model::meters::{Lengths, Meters};
use crate::model::names;
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

/// Metric values of one agent.
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
    questions: u64,
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
            attention: state.attention.as_ref().map_or(0, |mark| mark.count),
            questions: state.asked.len() as u64,
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

/// Agents with metrics of their own. The sums include every agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Naming {
    All,
    Public,
    Nobody,
}

/// Metric values of all agents at one time.
#[derive(Debug, Default)]
pub struct Readings {
    pub readable: Vec<Reading>,
    /// Agents whose records can't be read.
    pub unreadable: Vec<AgentName>,
}

names! {
    "metric type" Kind {
        Gauge = "gauge",
        Counter = "counter",
        Histogram = "histogram",
    }
}

type Labels<'a> = [(&'a str, &'a str)];
/// Value of a label, and a function that returns an agent's count for that value.
type Counted = (&'static str, fn(&Reading) -> u64);

/// Receiver of the numbers, grouped by metric name.
trait Sheet {
    fn begin(&mut self, name: &str, kind: Kind, help: &str);
    /// Adds a number to the metric of the last `begin`. `suffix`: part of a histogram.
    fn number(&mut self, suffix: &str, labels: &Labels<'_>, value: f64);
}

/// Returns the metrics in the text format of Prometheus.
pub fn text(readings: &Readings, naming: Naming, now: Time) -> String {
    let mut sheet = Text::default();
    write(&mut sheet, readings, naming, now);
    sheet.text
}

/// Returns the metrics as JSON objects, one for each number.
pub fn objects(readings: &Readings, naming: Naming, now: Time) -> Vec<Value> {
    let mut sheet = Objects { name: String::new(), kind: Kind::Gauge, objects: Vec::new() };
    write(&mut sheet, readings, naming, now);
    sheet.objects
}

#[derive(Default)]
struct Text {
    name: String,
    text: String,
}

impl Sheet for Text {
    fn begin(&mut self, name: &str, kind: Kind, help: &str) {
        name.clone_into(&mut self.name);
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

/// Escapes the value of a label for use between quotes.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

struct Objects {
    name: String,
    kind: Kind,
    objects: Vec<Value>,
}

impl Sheet for Objects {
    fn begin(&mut self, name: &str, kind: Kind, _: &str) {
        (self.name, self.kind) = (name.to_owned(), kind);
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
        let mut families = Families { sheet, named: &named };
        write_state(&mut families);
        write_history(&mut families);
    }
}

/// Value of a gauge: a number, which is summed over agents, or a time, whose minimum is taken.
#[derive(Clone, Copy)]
enum GaugeValue {
    Number(fn(&Reading) -> u64),
    Earliest(fn(&Reading) -> Option<Time>),
}

impl GaugeValue {
    fn of(self, readings: &[&Reading]) -> Option<f64> {
        match self {
            GaugeValue::Number(of) => {
                Some(number(readings.iter().fold(0, |sum: u64, one| sum.saturating_add(of(one)))))
            }
            GaugeValue::Earliest(of) => readings.iter().filter_map(|one| of(one)).min().map(seconds),
        }
    }
}

/// Gauges of all agents together and of each agent: suffix of the name, help text, value.
const GAUGES: [(&str, &str, GaugeValue); 7] = [
    ("queue_messages", "Number of queued messages.", GaugeValue::Number(|one| one.queued)),
    (
        "queue_oldest_timestamp_seconds",
        "When the oldest waiting message was admitted. Absent where none waits.",
        GaugeValue::Earliest(|one| one.oldest),
    ),
    (
        "dead_letters",
        "Dead letters, neither requeued nor dropped.",
        GaugeValue::Number(|one| one.counters.dead),
    ),
    (
        "rejected_files",
        "Hand-written files that could not be admitted.",
        GaugeValue::Number(|one| one.rejected),
    ),
    ("attention", "What needs a person and is not acknowledged.", GaugeValue::Number(|one| one.attention)),
    ("questions", "Open questions to the operator.", GaugeValue::Number(|one| one.questions)),
    (
        "next_due_timestamp_seconds",
        "When the next step is due although nothing arrives. Absent where none is.",
        GaugeValue::Earliest(|one| one.next_due_at),
    ),
];

/// Writes the sums over all agents, which have no label for an agent.
fn write_all(sheet: &mut impl Sheet, readings: &Readings, all: &[&Reading], now: Time) {
    let mut gauge = |name: &str, help: &str, value: Option<f64>| {
        sheet.begin(name, Kind::Gauge, help);
        if let Some(value) = value {
            sheet.number("", &[], value);
        }
    };
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
    for (name, help, value) in GAUGES {
        gauge(&format!("dormouse_{name}"), help, value.of(all));
    }
    sheet.begin("dormouse_agents", Kind::Gauge, "How many agents have this posture.");
    for posture in Posture::ALL {
        let count = all.iter().filter(|one| one.posture == *posture).count();
        sheet.number("", &[("posture", posture.name())], number(count as u64));
    }
}

/// Writes the numbers of each agent, one metric family after the other.
struct Families<'a, S> {
    sheet: &'a mut S,
    named: &'a [&'a Reading],
}

/// Callback for the numbers of one family and agent: a histogram suffix, the labels besides the
/// agent, and a value.
type Emit<'a> = dyn FnMut(&str, &Labels<'_>, f64) + 'a;

impl<S: Sheet> Families<'_, S> {
    fn each(&mut self, name: &str, kind: Kind, help: &str, numbers: impl Fn(&Reading, &mut Emit<'_>)) {
        self.sheet.begin(name, kind, help);
        for one in self.named {
            numbers(one, &mut |suffix, labels, value| {
                let labels: Vec<_> =
                    std::iter::once(("agent", one.agent.as_str())).chain(labels.iter().copied()).collect();
                self.sheet.number(suffix, &labels, value);
            });
        }
    }

    /// Writes a metric family with at most one number for each agent.
    fn gauge(&mut self, name: &str, help: &str, value: impl Fn(&Reading) -> Option<f64>) {
        self.each(name, Kind::Gauge, help, |one, put| {
            if let Some(value) = value(one) {
                put("", &[], value);
            }
        });
    }

    /// Writes a counter with one number for each label value.
    fn counters(&mut self, name: &str, help: &str, label: &str, values: &[Counted]) {
        self.each(name, Kind::Counter, help, |one, put| {
            values.iter().for_each(|(word, value)| put("", &[(label, word)], number(value(one))));
        });
    }

    fn counter(&mut self, name: &str, help: &str, value: impl Fn(&Reading) -> f64) {
        self.each(name, Kind::Counter, help, |one, put| put("", &[], value(one)));
    }
}

/// Writes the current state of each agent.
fn write_state(families: &mut Families<'_, impl Sheet>) {
    families.each(
        "dormouse_agent_posture",
        Kind::Gauge,
        "How the agent stands: 1 for the words that hold.",
        |one, put| {
            let (posture, status) = (one.posture.name(), one.status.name());
            put("", &[("posture", posture), ("status", status), ("state", one.execution.name())], 1.0);
        },
    );
    families.gauge(
        "dormouse_agent_state_timestamp_seconds",
        "Since when the agent has had its state.",
        |one| Some(seconds(one.since)),
    );
    for (name, help, value) in GAUGES {
        families.gauge(&format!("dormouse_agent_{name}"), help, |one| value.of(&[one]));
    }
    families.gauge(
        "dormouse_agent_turn_started_timestamp_seconds",
        "When the current turn was claimed. Absent where there is none.",
        |one| one.turn_started_at.map(seconds),
    );
    families.gauge(
        "dormouse_agent_last_turn_timestamp_seconds",
        "When the last turn ended. Absent before the first.",
        |one| one.last_turn_at.map(seconds),
    );
    families.each(
        "dormouse_agent_lacks",
        Kind::Gauge,
        "The resource without which a claimed turn can't continue.",
        |one, put| {
            if let Some(resource) = one.lacks {
                put("", &[("resource", resource.name())], 1.0);
            }
        },
    );
    families.each(
        "dormouse_agent_advisories",
        Kind::Gauge,
        "What looks wrong about the agent.",
        |one, put| {
            one.advisories
                .iter()
                .for_each(|(kind, count)| put("", &[("advisory", kind.name())], number(*count)));
        },
    );
}

/// Writes the history of each agent. A counter is written even at zero, so that Prometheus detects
/// its first increase.
fn write_history(families: &mut Families<'_, impl Sheet>) {
    families.each("dormouse_agent_turns_total", Kind::Counter, "Turns, by how they ended.", |one, put| {
        for terminal in Terminal::ALL {
            let count = one.meters.ended.get(terminal).copied().unwrap_or_default();
            put("", &[("terminal", terminal.name())], number(count));
        }
    });
    families.each(
        "dormouse_agent_turn_duration_seconds",
        Kind::Histogram,
        "How long turns took.",
        |one, put| {
            let turns = &one.meters.turns;
            for bound in Lengths::BOUNDS {
                put("_bucket", &[("le", &bound.to_string())], number(turns.at_most(bound)));
            }
            put("_bucket", &[("le", "+Inf")], number(turns.count));
            put("_sum", &[], number(turns.sum_ms) / 1000.0);
            put("_count", &[], number(turns.count));
        },
    );
    families.counters(
        "dormouse_agent_messages_total",
        "Messages, by what became of them.",
        "result",
        &[
            ("processed", |one| one.counters.messages_processed),
            ("reduced", |one| one.counters.messages_reduced),
            ("dropped", |one| one.counters.messages_dropped),
        ],
    );
    families.counters(
        "dormouse_agent_tokens_total",
        "Tokens that turns said they used.",
        "direction",
        &[("input", |one| one.counters.input_tokens), ("output", |one| one.counters.output_tokens)],
    );
    families.counter("dormouse_agent_cost_usd_total", "Dollars that turns said they cost.", |one| {
        dollars(one.counters.cost_usd)
    });
    families.counter(
        "dormouse_agent_lock_waits_total",
        "How often a command waited for the lock of the agent.",
        |one| number(one.meters.lock.count),
    );
    families.counter(
        "dormouse_agent_lock_wait_seconds_total",
        "How long commands waited for the lock of the agent.",
        |one| number(one.meters.lock.sum_ms) / 1000.0,
    );
}

/// Converts a moment to seconds since 1970.
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
