//! The figures, a Markdown row each.

use std::time::Duration;

use super::run::{Times, ratio};

/// What a figure is held to.
#[derive(Clone, Copy)]
pub enum Target {
    AtMost(f64),
    /// Nothing was promised: the figure is for reading.
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

    /// One thing beside another: the figure is the ratio of the medians, and of the minima.
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

    /// A figure by itself.
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
