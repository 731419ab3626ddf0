//! Metrics of `metrics`: state and history of the agents in the text format (version 0.0.4) that
//! Prometheus's textfile collector reads.
//!
//! Sums over agents are gauges. Every counter has the agent as a label, because a sum would
//! decrease when an agent is deleted, and Prometheus takes a decrease for a reset.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::{Display, Write};

use crate::model::agent::Visibility;
use crate::model::attention::AdvisoryKind;
use crate::model::id::AgentName;
use crate::model::meters::Lengths;
use crate::model::posture::Posture;
use crate::model::records::Records;
use crate::model::run::Terminal;
use crate::model::state::State;
use crate::model::time::Time;
use crate::rules::advisory::advisories;
use crate::rules::limits::dollars;
use crate::rules::posture::posture;

use super::summary::Arrivals;
use super::text::tally;

/// Metric values of one agent.
#[derive(Debug)]
pub struct Reading {
    visibility: Visibility,
    posture: Posture,
    /// Number of queued messages, and the time of the oldest.
    queued: u64,
    oldest: Option<Time>,
    rejected: u64,
    advisories: BTreeMap<AdvisoryKind, u64>,
    state: State,
}

impl Reading {
    pub fn new(visibility: Visibility, records: Records, arrivals: &Arrivals, now: Time) -> Reading {
        Reading {
            visibility,
            posture: posture(&records).posture,
            queued: arrivals.pending(&records) as u64,
            oldest: arrivals.oldest(),
            rejected: arrivals.rejected as u64,
            advisories: tally(advisories(&records, now).into_iter().map(|advisory| advisory.kind)),
            state: records.state,
        }
    }
}

/// Agents with metrics of their own. The sums over all agents include every agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Naming {
    All,
    Public,
    Hidden,
}

/// Metric values of all agents at one time.
#[derive(Debug, Default)]
pub struct Readings {
    pub readable: Vec<Reading>,
    /// Agents whose records can't be read.
    pub unreadable: Vec<AgentName>,
}

/// Value of a metric, with Prometheus labels.
struct Sample<'a> {
    /// End of the metric's name for a part of a histogram, such as `_sum`; else empty.
    suffix: &'static str,
    labels: Vec<(&'static str, Cow<'a, str>)>,
    value: f64,
}

/// Prometheus metric: name, type, help text and values.
struct Family<'a> {
    name: String,
    /// Type of the metric: gauge, counter or histogram.
    kind: &'static str,
    help: &'static str,
    samples: Vec<Sample<'a>>,
}

/// Returns the metrics in the text format of Prometheus.
pub fn text(readings: &Readings, naming: Naming, now: Time) -> String {
    let mut text = String::new();
    families(readings, naming, now).iter().for_each(|family| family.write(&mut text));
    text
}

impl Family<'_> {
    fn write(&self, text: &mut String) {
        let Family { name, kind, help, samples } = self;
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for Sample { suffix, labels, value } in samples {
            let _ = write!(text, "{name}{suffix}");
            for (at, (label, value)) in labels.iter().enumerate() {
                let _ = write!(text, "{}{label}=\"{}\"", if at == 0 { '{' } else { ',' }, escaped(value));
            }
            let _ = writeln!(text, "{} {value}", if labels.is_empty() { "" } else { "}" });
        }
    }
}

/// Escapes the value of a Prometheus label for use between quotes.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn families(readings: &Readings, naming: Naming, now: Time) -> Vec<Family<'_>> {
    let all: Vec<&Reading> = readings.readable.iter().filter(|one| one.state.moved.is_none()).collect();
    let mut families = totals(readings, &all, now);
    if naming == Naming::All {
        let unreadable = readings.unreadable.iter().map(|agent| labelled("agent", agent.as_str(), 1));
        families.push(gauge("agent_unreadable", "Agents whose records can't be read.", unreadable.collect()));
    }
    let is_named = |one: &&&Reading| match naming {
        Naming::All => true,
        Naming::Public => one.visibility == Visibility::Public,
        Naming::Hidden => false,
    };
    let named: Vec<&Reading> = all.iter().filter(is_named).copied().collect();
    let of_agents = METRICS.iter().map(|(name, help, values)| Family {
        name: format!("dormouse_agent_{name}"),
        kind: values.kind(),
        help,
        samples: named.iter().flat_map(|one| values.of(one)).collect(),
    });
    families.extend(of_agents.filter(|_| naming != Naming::Hidden));
    families
}

/// Returns the gauges of all agents together, which have no label for an agent.
fn totals<'a>(readings: &'a Readings, all: &[&'a Reading], now: Time) -> Vec<Family<'a>> {
    let (unreadable, moved) = (readings.unreadable.len(), readings.readable.len() - all.len());
    let mut families = vec![
        gauge("metrics_timestamp_seconds", "When these numbers were read.", alone(seconds(now))),
        gauge(
            "agents_unreadable",
            "How many agents have records that can't be read.",
            alone(number(unreadable as u64)),
        ),
        gauge(
            "agents_moved",
            "How many agents have moved to another store. None of the other numbers is about them.",
            alone(number(moved as u64)),
        ),
    ];
    for (name, help, values) in METRICS {
        let total = match values {
            Values::Summed(of) => {
                Some(number(all.iter().fold(0, |sum: u64, one| sum.saturating_add(of(one)))))
            }
            Values::Earliest(of) => all.iter().filter_map(|one| of(one)).min().map(seconds),
            Values::Gauge(_) | Values::Counter(_) | Values::Histogram(_) => continue,
        };
        families.push(gauge(name, help, maybe(total)));
    }
    let postures = Posture::ALL.iter().map(|posture| {
        let agents = all.iter().filter(|one| one.posture == *posture).count();
        labelled("posture", posture.name(), agents as u64)
    });
    families.push(gauge("agents", "How many agents have this posture.", postures.collect()));
    families
}

fn gauge<'a>(name: &str, help: &'static str, samples: Vec<Sample<'a>>) -> Family<'a> {
    Family { name: format!("dormouse_{name}"), kind: "gauge", help, samples }
}

/// Type of a metric, and the function that reads the metric's values from one agent.
enum Values {
    /// Gauge whose values are added for all agents together.
    Summed(fn(&Reading) -> u64),
    /// Gauge whose minimum counts for all agents together.
    Earliest(fn(&Reading) -> Option<Time>),
    Gauge(fn(&Reading) -> Vec<Sample<'_>>),
    /// A counter is written even at zero, so that Prometheus detects its first increase.
    Counter(fn(&Reading) -> Vec<Sample<'_>>),
    Histogram(fn(&Reading) -> Vec<Sample<'_>>),
}

impl Values {
    const fn kind(&self) -> &'static str {
        match self {
            Values::Summed(_) | Values::Earliest(_) | Values::Gauge(_) => "gauge",
            Values::Counter(_) => "counter",
            Values::Histogram(_) => "histogram",
        }
    }

    /// Returns the samples of an agent, with the agent as their first label.
    fn of<'a>(&self, one: &'a Reading) -> Vec<Sample<'a>> {
        let mut samples = match self {
            Values::Summed(of) => alone(number(of(one))),
            Values::Earliest(of) => maybe(of(one).map(seconds)),
            Values::Gauge(of) | Values::Counter(of) | Values::Histogram(of) => of(one),
        };
        for sample in &mut samples {
            sample.labels.insert(0, ("agent", one.state.agent.as_str().into()));
        }
        samples
    }
}

/// Metrics of each agent: name after `dormouse_agent_` (after `dormouse_` for all agents together),
/// help text, values.
const METRICS: &[(&str, &str, Values)] = &[
    ("posture", "Posture, status and state that the agent has.", Values::Gauge(posture_labels)),
    (
        "state_timestamp_seconds",
        "Since when the agent has had its state.",
        Values::Gauge(|one| alone(seconds(one.state.execution.since))),
    ),
    ("queue_messages", "Number of queued messages.", Values::Summed(|one| one.queued)),
    (
        "queue_oldest_timestamp_seconds",
        "When the oldest waiting message was admitted. Absent where none waits.",
        Values::Earliest(|one| one.oldest),
    ),
    (
        "dead_letters",
        "Dead letters, neither requeued nor dropped.",
        Values::Summed(|one| one.state.counters.dead),
    ),
    ("rejected_files", "Hand-written files that could not be admitted.", Values::Summed(|one| one.rejected)),
    (
        "attention",
        "What needs a person and is not acknowledged.",
        Values::Summed(|one| one.state.attention.as_ref().map_or(0, |mark| mark.count)),
    ),
    ("questions", "Open questions to the operator.", Values::Summed(|one| one.state.asked.len() as u64)),
    (
        "next_due_timestamp_seconds",
        "When the next step is due although nothing arrives. Absent where none is.",
        Values::Earliest(|one| one.state.next_due_at),
    ),
    (
        "turn_started_timestamp_seconds",
        "When the current turn was claimed. Absent where there is none.",
        Values::Gauge(|one| maybe(one.state.current_run.as_ref().map(|run| seconds(run.claimed_at)))),
    ),
    (
        "last_turn_timestamp_seconds",
        "When the last turn ended. Absent before the first.",
        Values::Gauge(|one| maybe(one.state.last_turn.as_ref().map(|turn| seconds(turn.ended_at)))),
    ),
    (
        "lacks",
        "The resource without which a claimed turn can't continue.",
        Values::Gauge(|one| {
            let lacks = one.state.held.as_ref().and_then(|held| held.resource);
            lacks.iter().map(|lacks| labelled("resource", lacks.name(), 1)).collect()
        }),
    ),
    (
        "advisories",
        "What looks wrong about the agent.",
        Values::Gauge(|one| {
            one.advisories.iter().map(|(kind, count)| labelled("advisory", kind.name(), *count)).collect()
        }),
    ),
    (
        "turns_total",
        "Turns, by how they ended.",
        Values::Counter(|one| {
            let count = |terminal| one.state.meters.ended.get(terminal).copied().unwrap_or_default();
            Terminal::ALL.iter().map(|end| labelled("terminal", end.name(), count(end))).collect()
        }),
    ),
    ("turn_duration_seconds", "How long turns took.", Values::Histogram(durations)),
    (
        "messages_total",
        "Messages, by what became of them.",
        Values::Counter(|one| {
            vec![
                labelled("result", "processed", one.state.counters.messages_processed),
                labelled("result", "reduced", one.state.counters.messages_reduced),
                labelled("result", "dropped", one.state.counters.messages_dropped),
            ]
        }),
    ),
    (
        "tokens_total",
        "Tokens that turns said they used.",
        Values::Counter(|one| {
            let directions =
                [("input", one.state.counters.input_tokens), ("output", one.state.counters.output_tokens)];
            directions.map(|(name, tokens)| labelled("direction", name, tokens)).into()
        }),
    ),
    (
        "cost_usd_total",
        "Dollars that turns said they cost.",
        Values::Counter(|one| alone(dollars(one.state.counters.cost_usd))),
    ),
    (
        "lock_waits_total",
        "How often a command waited for the lock of the agent.",
        Values::Counter(|one| alone(number(one.state.meters.lock.count))),
    ),
    (
        "lock_wait_seconds_total",
        "How long commands waited for the lock of the agent.",
        Values::Counter(|one| alone(number(one.state.meters.lock.sum_ms) / 1000.0)),
    ),
];

fn posture_labels(one: &Reading) -> Vec<Sample<'_>> {
    let words = [
        ("posture", one.posture.name()),
        ("status", one.state.status.name()),
        ("state", one.state.execution.state.name()),
    ];
    vec![Sample { suffix: "", labels: words.map(|(label, word)| (label, word.into())).into(), value: 1.0 }]
}

fn durations(one: &Reading) -> Vec<Sample<'_>> {
    let turns = &one.state.meters.turns;
    let bucket = |bound: &dyn Display, count| Sample {
        suffix: "_bucket",
        labels: vec![("le", bound.to_string().into())],
        value: number(count),
    };
    let mut samples: Vec<_> = Lengths::BOUNDS.iter().map(|le| bucket(le, turns.at_most(*le))).collect();
    samples.push(bucket(&"+Inf", turns.count));
    for (suffix, value) in [("_sum", number(turns.sum_ms) / 1000.0), ("_count", number(turns.count))] {
        samples.push(Sample { suffix, labels: Vec::new(), value });
    }
    samples
}

fn labelled<'a>(label: &'static str, word: &'a str, count: u64) -> Sample<'a> {
    Sample { suffix: "", labels: vec![(label, word.into())], value: number(count) }
}

/// Returns the value as a sample without labels; no sample for `None`.
fn maybe(value: Option<f64>) -> Vec<Sample<'static>> {
    value.map(|value| Sample { suffix: "", labels: Vec::new(), value }).into_iter().collect()
}

fn alone(value: f64) -> Vec<Sample<'static>> {
    maybe(Some(value))
}

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
        let bucket = Sample {
            suffix: "_bucket",
            labels: vec![("agent", "a\"} 1\nb{x=\"\\".into()), ("le", "+Inf".into())],
            value: 3.0,
        };
        let samples = alone(0.25).into_iter().chain([bucket]).collect();
        let mut text = String::new();
        Family { name: "one".to_owned(), kind: "gauge", help: "Why.", samples }.write(&mut text);
        assert_eq!(
            text,
            "# HELP one Why.\n# TYPE one gauge\none 0.25\n\
             one_bucket{agent=\"a\\\"} 1\\nb{x=\\\"\\\\\",le=\"+Inf\"} 3\n"
        );
    }
}
