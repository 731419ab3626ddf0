//! Markdown table of the benchmark's results, one row per result.

use std::time::Duration;

use super::run::{Times, ratio};

/// Limit that a result of the benchmark should not exceed.
#[derive(Clone, Copy)]
pub enum Target {
    AtMost(f64),
    /// No limit: the benchmark result is only shown.
    None,
}

#[derive(Default)]
pub struct Table {
    missed: usize,
}

impl Table {
    pub fn begin() -> Table {
        println!("| target | what | beside | median | min | figure | at most | |");
        println!("|---|---|---|---|---|---|---|---|");
        Table::default()
    }

    /// Prints a row with the ratio of the medians of two series. `number`: number of the target.
    pub fn ratio(&mut self, number: u8, one: &Times, other: &Times, target: Target) {
        let medians = ratio(one.median(), other.median());
        let minima = ratio(one.min(), other.min());
        let pair = |a, b| format!("{} / {}", micros(a), micros(b));
        self.row(
            number,
            &one.name,
            &other.name,
            &pair(one.median(), other.median()),
            &pair(one.min(), other.min()),
            &format!("{medians:.2} ({minima:.2})"),
            medians,
            target,
            "",
        );
    }

    /// Prints a row for one measured value (`figure`) with its unit.
    pub fn figure(&mut self, number: u8, what: &str, figure: f64, unit: &str, target: Target) {
        let text = format!("{figure:.1} {unit}");
        self.row(number, what, "", "", "", &text, figure, target, unit);
    }

    #[allow(clippy::too_many_arguments)]
    fn row(
        &mut self,
        number: u8,
        what: &str,
        beside: &str,
        median: &str,
        min: &str,
        text: &str,
        figure: f64,
        target: Target,
        unit: &str,
    ) {
        let (limit, verdict) = match target {
            Target::None => (String::new(), ""),
            Target::AtMost(limit) if figure <= limit => (format!("{limit} {unit}"), "reached"),
            Target::AtMost(limit) => {
                self.missed += 1;
                (format!("{limit} {unit}"), "missed")
            }
        };
        let limit = limit.trim_end();
        println!("| {number} | {what} | {beside} | {median} | {min} | {text} | {limit} | {verdict} |");
    }

    pub fn end(self) {
        println!("\nTimes in microseconds, the two things compared by a slash; figures are ratios of the");
        println!("medians, in brackets of the minima, where no unit is given. Missed: {}.", self.missed);
    }
}

fn micros(duration: Duration) -> String {
    format!("{}", duration.as_micros())
}
