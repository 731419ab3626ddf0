//! Charts of the reported period: totals of all agents in intervals of equal length.

use serde_json::{Value, json};

use crate::model::time::{Span, Time};
use crate::report::text::count;
use crate::rules::limits::dollars;

use super::{Activity, Scale, Stay, number, span};

/// Width and height of a chart in SVG units. The template has the same numbers.
const WIDTH: u64 = 1000;
const HEIGHT: u64 = 100;

/// Possible lengths of the intervals of a chart, in minutes.
const PARTS: [u64; 13] = [1, 2, 5, 10, 15, 30, 60, 180, 360, 720, 1440, 10_080, 40_320];

/// Maximum number of intervals in a chart, besides an incomplete first one.
const MOST: u64 = 50;

/// Totals of all agents in one interval of the reported period.
#[derive(Debug, Default)]
struct Interval {
    turns: u64,
    bad: u64,
    retries: u64,
    /// Waiting times of messages taken up in this interval; in the last, also of the waiting ones.
    waited: Vec<Span>,
    /// Highest number of messages of all agents that had not ended, at one moment of the interval.
    deepest: u64,
    tokens: u64,
    cost_usd: f64,
}

impl Interval {
    /// Median of the waiting times; zero without waiting times.
    fn median(&self) -> Span {
        median(&self.waited).unwrap_or_default()
    }

    fn longest(&self) -> Span {
        self.waited.last().copied().unwrap_or_default()
    }
}

/// Intervals of equal length that cover the reported period, with their totals, oldest first.
pub struct Intervals {
    first: Time,
    long: Span,
    parts: Vec<Interval>,
}

impl Intervals {
    pub fn of(agents: &[&Activity], scale: Scale, now: Time) -> Intervals {
        let minutes = scale.until.since(scale.from).as_millis() / 60_000;
        let part = PARTS.into_iter().find(|part| minutes / part < MOST).unwrap_or(minutes / MOST + 1);
        let long = Span::from_secs(60).times(part);
        let millis = i64::try_from(long.as_millis()).unwrap_or(i64::MAX);
        let first = Time::from_millis(scale.from.as_millis().div_euclid(millis) * millis);
        let count = usize::try_from(scale.until.since(first).as_millis() / long.as_millis()).unwrap_or(0);
        let mut parts = Intervals { first, long, parts: Vec::new() };
        parts.parts.resize_with(count + 1, Interval::default);
        for turn in agents.iter().flat_map(|agent| &agent.turns) {
            let part = parts.at(turn.started_at);
            part.turns += 1;
            part.bad += u64::from(turn.is_bad());
            part.retries += u64::from(turn.is_retry());
            let ended = parts.at(turn.ended_at);
            ended.tokens = ended.tokens.saturating_add(turn.tokens);
            ended.cost_usd += turn.cost_usd;
        }
        let stays: Vec<&Stay> = agents.iter().flat_map(|agent| &agent.stays).collect();
        for stay in &stays {
            parts.at(stay.taken_up.unwrap_or(now)).waited.push(stay.waited(now));
        }
        parts.fill_queue(&stays);
        parts.parts.iter_mut().for_each(|part| part.waited.sort_unstable());
        parts
    }

    /// Returns the interval that contains a moment; before the period, the first interval.
    fn at(&mut self, at: Time) -> &mut Interval {
        let part = usize::try_from(at.since(self.first).as_millis() / self.long.as_millis());
        let last = self.parts.len() - 1;
        &mut self.parts[part.unwrap_or(last).min(last)]
    }

    /// Sets the maximum queue depth of each interval.
    fn fill_queue(&mut self, stays: &[&Stay]) {
        // At one moment, departures are counted before arrivals, because -1 is less than 1.
        let arrived = stays.iter().map(|stay| (stay.arrived, 1));
        let left = stays.iter().filter_map(|stay| Some((stay.left?, -1)));
        let mut steps: Vec<(Time, i64)> = arrived.chain(left).collect();
        steps.sort_unstable();
        let mut steps = steps.into_iter().peekable();
        let mut depth = 0i64;
        for number in 0..self.parts.len() {
            let end = self.begin(number + 1);
            let mut deepest = depth;
            while let Some((_, step)) = steps.next_if(|(at, _)| *at < end) {
                depth += step;
                deepest = deepest.max(depth);
            }
            self.parts[number].deepest = u64::try_from(deepest).unwrap_or(0);
        }
    }

    fn begin(&self, number: usize) -> Time {
        self.first.after(self.long.times(number as u64))
    }

    fn name(&self, number: usize) -> String {
        let form = if self.long >= Span::from_secs(86_400) { "%Y-%m-%d" } else { "%Y-%m-%d %H:%M" };
        self.begin(number).utc().format(form).to_string()
    }

    /// Length of an interval in words: minutes, whole hours or whole days.
    pub fn long(&self) -> String {
        let long = span(self.long);
        let whole = |of: char, rest: &str| long.strip_suffix(rest).filter(|whole| whole.ends_with(of));
        whole('h', "00m").or(whole('d', "0h")).unwrap_or(&long).to_owned()
    }
}

/// Returns one table row for each nonempty interval, with the interval's totals.
pub fn rows(parts: &Intervals) -> Vec<Value> {
    let is_empty =
        |part: &Interval| part.turns == 0 && part.waited.is_empty() && part.deepest == 0 && part.tokens == 0;
    let row = |(at, part): (usize, &Interval)| {
        json!({
            "name": parts.name(at),
            "turns": number(part.turns),
            "bad": number(part.bad),
            "retries": number(part.retries),
            "median": median(&part.waited).map(span).unwrap_or_default(),
            "longest": part.waited.last().copied().map(span).unwrap_or_default(),
            "deepest": number(part.deepest),
            "tokens": number(part.tokens),
            "cost": cost(part.cost_usd),
        })
    };
    parts.parts.iter().enumerate().filter(|(_, part)| !is_empty(part)).map(row).collect()
}

/// Formats a cost in dollars: with cents, or below a dollar with all digits.
pub fn cost(usd: f64) -> String {
    match dollars(usd) {
        none if none <= 0.0 => "0".to_owned(),
        little if little < 1.0 => format!("${little}"),
        much => format!("${much:.2}"),
    }
}

pub fn median(sorted: &[Span]) -> Option<Span> {
    sorted.get(sorted.len() / 2).copied()
}

/// Definition of one chart.
struct ChartKind {
    title: &'static str,
    /// Caption that explains the value of a bar.
    note: &'static str,
    /// CSS classes of the whole bar and of the lower part of the bar.
    classes: (&'static str, &'static str),
    /// Value of an interval for the whole bar, and for the lower part of the bar.
    values: fn(&Interval) -> (u64, u64),
    /// Returns the tooltip of a bar.
    words: fn(&Interval) -> String,
    /// Formats the value of the highest bar.
    most: fn(u64) -> String,
}

const CHARTS: [ChartKind; 5] = [
    ChartKind {
        title: "Turns",
        note: "Turns that began; the red part of them failed.",
        classes: ("g", "b"),
        values: |part| (part.turns, part.bad),
        words: |part| {
            let (turns, retries) =
                (count(part.turns, "turn", "turns"), count(part.retries, "retry", "retries"));
            format!("{turns}, {} failed, {retries}", part.bad)
        },
        most: number,
    },
    ChartKind {
        title: "Waiting time of messages",
        note: "From the arrival of a message until a step took it up: half of them waited no longer than the darker part.",
        classes: ("q", "d"),
        values: |part| (part.longest().as_millis(), part.median().as_millis()),
        words: |part| {
            let (median, longest) = (span(part.median()), span(part.longest()));
            let messages = count(part.waited.len() as u64, "message", "messages");
            format!("{messages}, median {median}, longest {longest}")
        },
        most: |most| span(Span::from_millis(most)),
    },
    ChartKind {
        title: "Messages in the queues",
        note: "The most messages that had not ended, at one moment.",
        classes: ("q", "q"),
        values: |part| (part.deepest, 0),
        words: |part| format!("at most {}", count(part.deepest, "message", "messages")),
        most: number,
    },
    ChartKind {
        title: "Tokens",
        note: "Input and output tokens that turns reported.",
        classes: ("t", "t"),
        values: |part| (part.tokens, 0),
        words: |part| format!("{} tokens", number(part.tokens)),
        most: number,
    },
    ChartKind {
        title: "Cost",
        note: "US dollars that turns reported.",
        classes: ("t", "t"),
        // Bars have integer heights, so costs are compared in millionths of a dollar.
        values: |part| ((part.cost_usd * 1e6).round() as u64, 0),
        words: |part| cost(part.cost_usd),
        most: |micros| cost(micros as f64 / 1e6),
    },
];

/// Returns the charts that have at least one bar.
pub fn charts(parts: &Intervals) -> Vec<Value> {
    CHARTS.iter().filter_map(|kind| kind.draw(parts)).collect()
}

impl ChartKind {
    /// Returns the chart with a bar for each interval whose value is above zero.
    fn draw(&self, parts: &Intervals) -> Option<Value> {
        let ChartKind { title, note, classes: (class, low_class), values, words, most: most_words } = self;
        let parts_of = parts.parts.iter().enumerate();
        let most = parts.parts.iter().map(|part| values(part).0).max().filter(|most| *most > 0)?;
        let count = parts.parts.len() as u64;
        // A value above zero has a height of at least 1, so that its bar is visible.
        let high = |value: u64| {
            let high = u128::from(value) * u128::from(HEIGHT) / u128::from(most);
            u64::try_from(high).unwrap_or(HEIGHT).max(u64::from(value > 0))
        };
        let bars = parts_of.filter(|(_, part)| values(part).0 > 0).map(|(number, part)| {
            let (value, low) = values(part);
            json!({
                "x": number as u64 * WIDTH / count,
                "high": high(value),
                "low": high(low),
                "title": format!("{}: {}", parts.name(number), words(part)),
            })
        });
        Some(json!({
            "title": title,
            "note": note,
            "class": class,
            "low_class": low_class,
            "most": most_words(most),
            "width": (WIDTH / count).saturating_sub(2).max(1),
            "bars": bars.collect::<Vec<_>>(),
        }))
    }
}
