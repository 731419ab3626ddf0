//! Metrics of `metrics`: state and history of the agents in the text format (version 0.0.4) that
//! Prometheus's textfile collector reads.
//!
//! Sums over agents are gauges. Every counter has the agent as a label, because a sum would
//! decrease when an agent is deleted, and Prometheus takes a decrease for a reset.

use std::collections::BTreeMap;
use std::fmt::Write;

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
    /// Number of queued messages and of files not admitted yet, and the time of the oldest message.
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

/// Agents that get metrics of their own. The totals include the other agents, too.
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

/// Metric to which samples are added. Its help text and its type are written already.
struct Family<'t> {
    text: &'t mut String,
    name: String,
    /// Agent that the next samples are about; their first label.
    agent: Option<&'t str>,
}

impl<'t> Family<'t> {
    /// Begins a metric. `kind`: gauge, counter or histogram.
    fn begin(text: &'t mut String, name: &str, kind: &str, help: &str) -> Family<'t> {
        let name = format!("dormouse_{name}");
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        Family { text, name, agent: None }
    }

    fn add(&mut self, labels: &[(&str, &str)], value: f64) {
        self.add_part("", labels, value);
    }

    /// Adds a sample of a part of a histogram. `suffix`: end of its name, such as `_sum`.
    fn add_part(&mut self, suffix: &str, labels: &[(&str, &str)], value: f64) {
        let agent = self.agent.map(|agent| ("agent", agent));
        let labels = agent.iter().chain(labels).map(|(label, word)| format!("{label}=\"{}\"", escaped(word)));
        let labels = labels.collect::<Vec<_>>().join(",");
        let labels = if labels.is_empty() { labels } else { format!("{{{labels}}}") };
        let _ = writeln!(self.text, "{}{suffix}{labels} {value}", self.name);
    }
}

/// Escapes the value of a Prometheus label for use between quotes.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Returns the metrics in the text format of Prometheus.
pub fn text(readings: &Readings, naming: Naming, now: Time) -> String {
    let all: Vec<&Reading> = readings.readable.iter().filter(|one| one.state.moved.is_none()).collect();
    let mut text = String::new();
    totals(&mut text, readings, &all, now);
    if naming == Naming::Hidden {
        return text;
    }
    if naming == Naming::All {
        let help = "Agents whose records can't be read.";
        let mut family = Family::begin(&mut text, "agent_unreadable", "gauge", help);
        readings.unreadable.iter().for_each(|agent| family.add(&[("agent", agent.as_str())], 1.0));
    }
    let is_named = |one: &&&Reading| naming == Naming::All || one.visibility == Visibility::Public;
    for (name, kind, help, values) in METRICS {
        let mut family = Family::begin(&mut text, &format!("agent_{name}"), kind, help);
        for one in all.iter().filter(is_named) {
            family.agent = Some(one.state.agent.as_str());
            match values {
                Values::Summed(of) => family.add(&[], number(of(one))),
                Values::Earliest(of) => of(one).into_iter().for_each(|at| family.add(&[], seconds(at))),
                Values::Each(add) => add(one, &mut family),
            }
        }
    }
    text
}

/// Writes the gauges of all agents together, which have no label for an agent.
fn totals(text: &mut String, readings: &Readings, all: &[&Reading], now: Time) {
    let mut gauge = |name: &str, help: &str, value: Option<f64>| {
        let mut family = Family::begin(text, name, "gauge", help);
        value.into_iter().for_each(|value| family.add(&[], value));
    };
    let (unreadable, moved) = (readings.unreadable.len(), readings.readable.len() - all.len());
    gauge("metrics_timestamp_seconds", "When these numbers were read.", Some(seconds(now)));
    let help = "How many agents have records that can't be read.";
    gauge("agents_unreadable", help, Some(number(unreadable as u64)));
    let help = "How many agents have moved to another store. None of the other numbers is about them.";
    gauge("agents_moved", help, Some(number(moved as u64)));
    for (name, _, help, values) in METRICS {
        match values {
            Values::Summed(of) => {
                let total = all.iter().fold(0, |sum: u64, one| sum.saturating_add(of(one)));
                gauge(name, help, Some(number(total)));
            }
            Values::Earliest(of) => {
                gauge(name, help, all.iter().filter_map(|one| of(one)).min().map(seconds));
            }
            Values::Each(_) => {}
        }
    }
    let mut agents = Family::begin(text, "agents", "gauge", "How many agents have this posture.");
    for posture in Posture::ALL {
        let count = all.iter().filter(|one| one.posture == *posture).count();
        agents.add(&[("posture", posture.name())], number(count as u64));
    }
}

/// Function that reads a metric's values from one agent.
enum Values {
    /// Number. The total is the sum over all agents.
    Summed(fn(&Reading) -> u64),
    /// Time. The total is the earliest time of all agents.
    Earliest(fn(&Reading) -> Option<Time>),
    /// Samples of one agent, without a total.
    Each(fn(&Reading, &mut Family<'_>)),
}

/// Metrics of each agent: name after `dormouse_agent_` (after `dormouse_` for all agents together),
/// type, help text, values. A counter is written even at zero, so that Prometheus detects its first
/// increase.
const METRICS: &[(&str, &str, &str, Values)] = &[
    (
        "posture",
        "gauge",
        "Posture, status and state that the agent has.",
        Values::Each(|one, family| {
            let state = one.state.execution.state.name();
            let (posture, status) = (one.posture.name(), one.state.status.name());
            family.add(&[("posture", posture), ("status", status), ("state", state)], 1.0);
        }),
    ),
    (
        "state_timestamp_seconds",
        "gauge",
        "Since when the agent has had its state.",
        Values::Each(|one, family| family.add(&[], seconds(one.state.execution.since))),
    ),
    ("queue_messages", "gauge", "Number of queued messages.", Values::Summed(|one| one.queued)),
    (
        "queue_oldest_timestamp_seconds",
        "gauge",
        "When the oldest waiting message was admitted. Absent where none waits.",
        Values::Earliest(|one| one.oldest),
    ),
    (
        "dead_letters",
        "gauge",
        "Dead letters, neither requeued nor dropped.",
        Values::Summed(|one| one.state.counters.dead),
    ),
    (
        "rejected_files",
        "gauge",
        "Hand-written files that could not be admitted.",
        Values::Summed(|one| one.rejected),
    ),
    (
        "attention",
        "gauge",
        "What needs a person and is not acknowledged.",
        Values::Summed(|one| one.state.attention.as_ref().map_or(0, |mark| mark.count)),
    ),
    (
        "questions",
        "gauge",
        "Open questions to the operator.",
        Values::Summed(|one| one.state.asked.len() as u64),
    ),
    (
        "next_due_timestamp_seconds",
        "gauge",
        "When the next step is due although nothing arrives. Absent where none is.",
        Values::Earliest(|one| one.state.next_due_at),
    ),
    (
        "turn_started_timestamp_seconds",
        "gauge",
        "When the current turn was claimed. Absent where there is none.",
        Values::Each(|one, family| {
            one.state.current_run.iter().for_each(|run| family.add(&[], seconds(run.claimed_at)));
        }),
    ),
    (
        "last_turn_timestamp_seconds",
        "gauge",
        "When the last turn ended. Absent before the first.",
        Values::Each(|one, family| {
            one.state.last_turn.iter().for_each(|turn| family.add(&[], seconds(turn.ended_at)));
        }),
    ),
    (
        "lacks",
        "gauge",
        "The resource without which a claimed turn can't continue.",
        Values::Each(|one, family| {
            let lacks = one.state.held.as_ref().and_then(|held| held.resource);
            lacks.iter().for_each(|lacks| family.add(&[("resource", lacks.name())], 1.0));
        }),
    ),
    (
        "advisories",
        "gauge",
        "What looks wrong about the agent.",
        Values::Each(|one, family| {
            let advisories = one.advisories.iter();
            advisories.for_each(|(kind, count)| family.add(&[("advisory", kind.name())], number(*count)));
        }),
    ),
    (
        "turns_total",
        "counter",
        "Turns, by how they ended.",
        Values::Each(|one, family| {
            for end in Terminal::ALL {
                let count = one.state.meters.ended.get(end).copied().unwrap_or_default();
                family.add(&[("terminal", end.name())], number(count));
            }
        }),
    ),
    ("turn_duration_seconds", "histogram", "How long turns took.", Values::Each(durations)),
    (
        "messages_total",
        "counter",
        "Messages, by what became of them.",
        Values::Each(|one, family| {
            let counters = &one.state.counters;
            family.add(&[("result", "processed")], number(counters.messages_processed));
            family.add(&[("result", "reduced")], number(counters.messages_reduced));
            family.add(&[("result", "dropped")], number(counters.messages_dropped));
        }),
    ),
    (
        "tokens_total",
        "counter",
        "Tokens that turns said they used.",
        Values::Each(|one, family| {
            family.add(&[("direction", "input")], number(one.state.counters.input_tokens));
            family.add(&[("direction", "output")], number(one.state.counters.output_tokens));
        }),
    ),
    (
        "cost_usd_total",
        "counter",
        "Dollars that turns said they cost.",
        Values::Each(|one, family| family.add(&[], dollars(one.state.counters.cost_usd))),
    ),
    (
        "lock_waits_total",
        "counter",
        "How often a command waited for the lock of the agent.",
        Values::Each(|one, family| family.add(&[], number(one.state.meters.lock.count))),
    ),
    (
        "lock_wait_seconds_total",
        "counter",
        "How long commands waited for the lock of the agent.",
        Values::Each(|one, family| family.add(&[], number(one.state.meters.lock.sum_ms) / 1000.0)),
    ),
];

fn durations(one: &Reading, family: &mut Family<'_>) {
    let turns = &one.state.meters.turns;
    for le in Lengths::BOUNDS {
        family.add_part("_bucket", &[("le", &le.to_string())], number(turns.at_most(le)));
    }
    family.add_part("_bucket", &[("le", "+Inf")], number(turns.count));
    family.add_part("_sum", &[], number(turns.sum_ms) / 1000.0);
    family.add_part("_count", &[], number(turns.count));
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
        let mut text = String::new();
        let mut family = Family::begin(&mut text, "one", "gauge", "Why.");
        family.add(&[], 0.25);
        family.agent = Some("a\"} 1\nb{x=\"\\");
        family.add_part("_bucket", &[("le", "+Inf")], 3.0);
        assert_eq!(
            text,
            "# HELP dormouse_one Why.\n# TYPE dormouse_one gauge\ndormouse_one 0.25\n\
             dormouse_one_bucket{agent=\"a\\\"} 1\\nb{x=\\\"\\\\\",le=\"+Inf\"} 3\n"
        );
    }
}
