//! Output of `usage`: consumption of turns, and remaining budgets.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};

use crate::model::policy::Limits;
use crate::model::run::{Run, Terminal};
use crate::model::time::Span;
use crate::rules::limits::{Allowance, dollars};

use super::output::{Output, Tone};
use super::text::{one_line, table};

/// Totals of several turns.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Used {
    pub turns: u64,
    pub completed: u64,
    /// Number of turns that failed, timed out or were interrupted.
    pub failed: u64,
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub cost_usd: f64,
    pub duration_ms: u64,
}

impl Used {
    pub fn add(&mut self, run: &Run) {
        self.turns += 1;
        self.completed += u64::from(run.terminal == Terminal::Completed);
        self.failed += u64::from(run.terminal.is_failure());
        self.duration_ms = self.duration_ms.saturating_add(run.duration_ms.unwrap_or(0));
        if let Some(usage) = &run.usage {
            self.input_tokens = self.input_tokens.saturating_add(usage.input_tokens.unwrap_or(0));
            self.output_tokens = self.output_tokens.saturating_add(usage.output_tokens.unwrap_or(0));
            self.cost_usd = dollars(self.cost_usd + usage.cost_usd.unwrap_or(0.0));
        }
    }
}

/// Budget of an agent, and its remainder at present.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Budget {
    pub limits: Allowance,
    pub left: Allowance,
}

impl Budget {
    pub fn new(limits: &Limits, left: Allowance) -> Budget {
        let &Limits { turns_per_hour, turns_per_day, cost_per_day, tokens_per_day, .. } = limits;
        Budget { limits: Allowance { turns_per_hour, turns_per_day, cost_per_day, tokens_per_day }, left }
    }

    /// Describes the remaining budget, exhausted parts first.
    fn words(&self, out: &Output) -> String {
        let Budget { limits, left } = self;
        let number = |left: Option<u64>, limit: Option<u64>, unit: &str| {
            left.zip(limit).map(|(left, limit)| (left == 0, format!("{left} of {limit} {unit}")))
        };
        let money = left.cost_per_day.zip(limits.cost_per_day);
        let words = [
            number(left.turns_per_hour, limits.turns_per_hour, "turns this hour"),
            number(left.turns_per_day, limits.turns_per_day, "turns today"),
            money.map(|(left, limit)| (left <= 0.0, format!("{left} of {limit} USD today"))),
            number(left.tokens_per_day, limits.tokens_per_day, "tokens today"),
        ];
        let (used_up, rest): (Vec<_>, Vec<_>) =
            words.into_iter().flatten().partition(|(used_up, _)| *used_up);
        let used_up = used_up.into_iter().map(|(_, text)| out.paint(Tone::Bad, &text));
        used_up.chain(rest.into_iter().map(|(_, text)| text)).collect::<Vec<_>>().join(", ")
    }
}

/// Totals of the turns of each group, and of all turns.
#[derive(Debug, Default)]
pub struct UsageTable {
    /// Name of the grouping: `agent`, `day` or `model`.
    pub group: &'static str,
    pub rows: BTreeMap<String, Used>,
    pub budgets: BTreeMap<String, Budget>,
    pub total: Used,
}

impl UsageTable {
    /// Returns a JSON object for each group of turns.
    pub fn objects(&self) -> impl Iterator<Item = Value> {
        self.rows.iter().map(|(name, used)| {
            let parts = [json!({ self.group: name }), json!(used), json!(self.budgets.get(name))];
            parts
                .iter()
                .filter_map(Value::as_object)
                .flatten()
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect()
        })
    }

    pub fn text(&self, out: &Output) -> String {
        let has_budgets = !self.budgets.is_empty();
        let mut head = vec![self.group, "turns", "failed", "tokens in", "out", "USD", "time"];
        head.extend(has_budgets.then_some("left"));
        let mut rows = vec![head.iter().map(|word| out.paint(Tone::Quiet, &word.to_uppercase())).collect()];
        let cells = |name: String, used: &Used, left: String| {
            let failed = match used.failed {
                0 => "0".to_owned(),
                failed => out.paint(Tone::Bad, &failed.to_string()),
            };
            let mut cells = vec![name, used.turns.to_string(), failed];
            cells.extend([used.input_tokens, used.output_tokens].map(|tokens| tokens.to_string()));
            cells.extend([used.cost_usd.to_string(), Span::from_millis(used.duration_ms).rough()]);
            cells.extend(has_budgets.then_some(left));
            cells
        };
        for (name, used) in &self.rows {
            let shown = if name.is_empty() { "-".to_owned() } else { out.safe(&one_line(name, 40)) };
            let left = self.budgets.get(name).map(|budget| budget.words(out)).unwrap_or_default();
            rows.push(cells(out.paint(Tone::Strong, &shown), used, left));
        }
        if self.rows.len() > 1 {
            rows.push(cells(out.paint(Tone::Quiet, "total"), &self.total, String::new()));
        }
        table(&rows)
    }
}
