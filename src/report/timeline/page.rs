//! Page of `report`: converts values to text and renders the template.

use std::cmp::Reverse;

use minijinja::value::Serde;
use minijinja::{AutoEscape, UndefinedBehavior};
use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::model::run::Terminal;
use crate::model::time::{Span, Time};
use crate::report::list::ListRow;
use crate::report::text::{count, escape_line, relative, tally, templates};

use super::chart::{Intervals, charts, cost, median, rows};
use super::lane::{self, marks};
use super::{Activity, FleetHistory, Scale, ShownTurn, in_words, moment, number, shown, shown_within, span};

const TEMPLATE: &str = include_str!("page.html");

/// Maximum numbers of listed turns, of all agents together and of one agent.
const LISTED: usize = 1500;
const LISTED_OF_ONE: usize = 100;

/// Maximum number of listed failures.
const FAILURES: usize = 50;

/// Maximum length of a reason for attention in columns, enough for several ids and paths.
const REASON_WIDTH: usize = 300;

/// Minimum period that a report covers, unless a shorter period was asked for.
const SHORTEST: Span = Span::from_secs(60);

/// Renders the page as HTML. The result depends only on the argument.
pub fn html(history: &FleetHistory) -> Result<String> {
    let values = minijinja::Value::from(Serde(page(history)));
    templates(AutoEscape::Html, UndefinedBehavior::Strict)
        .and_then(|templates| templates.render_named_str("page.html", TEMPLATE, values))
        .map_err(|error| Error::failed(format!("the page of the report: {error}")))
}

/// Returns the values that the page's template uses.
fn page(history: &FleetHistory) -> Value {
    let now = history.now;
    let first = history.agents.iter().filter_map(Activity::first).min().unwrap_or(history.since);
    let from = first.clamp(history.since, now.before(SHORTEST).max(history.since));
    let scale = Scale { from, until: now };
    let mut agents: Vec<&Activity> = history.agents.iter().collect();
    agents.sort_by_key(|agent| !agent.needs_attention());
    let (quiet, busy): (Vec<&Activity>, Vec<&Activity>) = agents.iter().partition(|agent| agent.is_quiet());
    let columns = lane::columns(busy.iter().map(|agent| (&agent.turns[..], &agent.waits[..])), scale);
    let parts = Intervals::of(&busy, scale, now);
    let listed = (LISTED / busy.len().max(1)).min(LISTED_OF_ONE);
    let (kinds, failures, more) = failures(&busy);
    let quiet = quiet.iter().map(|one| json!({ "name": one.line.agent, "posture": posture(&one.line) }));
    json!({
        "home": escape_line(&history.home),
        "from": moment(from),
        "until": moment(now),
        // The requested start is shown if all records are newer.
        "asked": (from > history.since).then(|| moment(history.since)),
        "version": env!("CARGO_PKG_VERSION"),
        "tiles": tiles(history),
        "alerts": alerts(history),
        "part": parts.long(),
        "charts": charts(&parts),
        "rows": rows(&parts),
        "axis": axis(scale),
        "agents": busy.iter().map(|agent| row(agent, scale, columns, listed, now)).collect::<Vec<_>>(),
        "listed": listed,
        "quiet": quiet.collect::<Vec<_>>(),
        "kinds": kinds,
        "failures": failures,
        "more_failures": if more > 0 { number(more as u64) } else { String::new() },
    })
}

/// Returns labels at equal distances, without times of day for a period of more than four days.
fn axis(scale: Scale) -> Vec<String> {
    const MOMENTS: u64 = 5;
    let whole = scale.until.since(scale.from).as_millis();
    // For a period below four minutes, the labels show seconds, so that each label is different.
    let part = if whole > 4 * 86_400_000 { 5..10 } else { 5..if whole < 240_000 { 19 } else { 16 } };
    let at = |number: u64| moment(scale.from.after(Span::from_millis(whole / (MOMENTS - 1) * number)));
    (0..MOMENTS).map(|number| at(number).get(part.clone()).unwrap_or_default().to_owned()).collect()
}

/// Returns the totals over all agents: name, value, and true for a value that is a problem.
fn tiles(history: &FleetHistory) -> Value {
    let turns = || history.agents.iter().flat_map(|agent| &agent.turns);
    let many = |of: usize| number(of as u64);
    let mut waited: Vec<Span> =
        history.agents.iter().flat_map(|agent| &agent.stays).map(|stay| stay.waited(history.now)).collect();
    waited.sort_unstable();
    let to_look_at = history.agents.iter().filter(|agent| agent.needs_attention()).count();
    let to_look_at = to_look_at + history.unreadable.len();
    let failed = turns().filter(|turn| turn.is_bad()).count();
    json!([
        ("agents", many(history.agents.len() + history.unreadable.len()), false),
        ("need attention", many(to_look_at), to_look_at > 0),
        ("turns", many(turns().count()), false),
        ("failed", many(failed), failed > 0),
        ("retries", many(turns().filter(|turn| turn.is_retry()).count()), false),
        ("messages wait now", many(history.agents.iter().map(|agent| agent.line.pending).sum()), false),
        ("median waiting time", median(&waited).map_or_else(|| "–".to_owned(), span), false),
        ("tokens", number(turns().map(|turn| turn.tokens).fold(0, u64::saturating_add)), false),
        ("cost", cost(turns().map(|turn| turn.cost_usd).sum()), false),
    ])
}

/// Lists unreadable agents, and then the agents that need attention.
fn alerts(history: &FleetHistory) -> Vec<Value> {
    let unreadable = history.unreadable.iter().map(|(name, why)| {
        json!({
            "agent": name,
            "since": "",
            "what": [format!("can't be read: {}", shown_within(why, REASON_WIDTH))],
            "act": format!("dormouse doctor {name}"),
        })
    });
    let marked = history.agents.iter().filter(|agent| agent.needs_attention()).map(|agent| {
        let line = &agent.line;
        let mark = line.attention.as_ref();
        let mut what: Vec<String> = mark
            .into_iter()
            .flat_map(|mark| mark.newest.iter().rev())
            .map(|one| shown_within(&one.to_string(), REASON_WIDTH))
            .collect();
        let more = mark.map_or(0, |mark| mark.count).saturating_sub(what.len() as u64);
        what.extend((more > 0).then(|| format!("and {more} more")));
        let late = line.nobody_ticks.as_ref().map(|late| late.describe(history.now));
        what.extend(late.map(|late| format!("no process ticks: {late}")));
        if what.is_empty() && line.dead > 0 {
            what.push(count(line.dead, "dead letter", "dead letters"));
        }
        if line.rejected > 0 {
            let files = count(line.rejected as u64, "file", "files");
            what.push(format!("{files} in its inbox could not be admitted"));
        }
        let act = match (line.rejected, line.dead) {
            (0, 0) => "get",
            (0, _) => "queue dead -a",
            (_, _) => "queue rejected -a",
        };
        let act = format!("dormouse {act} {}", line.agent);
        let since = mark.map(|mark| format!("{}, {}", relative(mark.since, history.now), moment(mark.since)));
        json!({ "agent": line.agent, "since": since.unwrap_or_default(), "what": what, "act": act })
    });
    unreadable.chain(marked).collect()
}

fn row(agent: &Activity, scale: Scale, columns: u64, listed: usize, now: Time) -> Value {
    let line = &agent.line;
    let failed = agent.turns.iter().filter(|turn| turn.is_bad()).count();
    let retries = agent.turns.iter().filter(|turn| turn.is_retry()).count();
    let words = format!(
        "{}, {failed} failed, {}, {}",
        count(agent.turns.len() as u64, "turn", "turns"),
        count(retries as u64, "retry", "retries"),
        count(agent.waits.len() as u64, "wait", "waits")
    );
    json!({
        "name": line.agent,
        "needs_attention": agent.needs_attention(),
        "posture": posture(line),
        "turns": number(agent.turns.len() as u64),
        "failed": number(failed as u64),
        "pending": line.pending,
        "tokens": number(agent.turns.iter().map(|turn| turn.tokens).fold(0, u64::saturating_add)),
        "cost": cost(agent.turns.iter().map(|turn| turn.cost_usd).sum()),
        "due": line.due.map_or_else(|| "–".to_owned(), |at| relative(at, now)),
        // Text alternative of the timeline, for readers who can't see it.
        "words": words,
        "marks": marks(&agent.turns, &agent.waits, scale, columns),
        "last": agent.turns.iter().rev().take(listed).map(|turn| listed_turn(agent, turn)).collect::<Vec<_>>(),
    })
}

fn posture(line: &ListRow) -> String {
    match &line.moved {
        Some(moved) => format!("moved to {}", shown(&moved.to)),
        None if line.reason.is_empty() => in_words(line.posture.words()),
        None => format!("{}: {}", in_words(line.posture.words()), shown(&line.reason)),
    }
}

fn listed_turn(agent: &Activity, turn: &ShownTurn) -> Value {
    json!({
        "agent": agent.line.agent,
        "at": moment(turn.started_at),
        "took": span(turn.took),
        "end": turn.end(),
        "is_bad": turn.is_bad(),
        "why": turn.why,
        "said": turn.said,
    })
}

/// Returns the number of turns by outcome, the newest failures, and the number of other failures.
fn failures(agents: &[&Activity]) -> (Vec<Value>, Vec<Value>, usize) {
    let turns = || agents.iter().flat_map(|agent| agent.turns.iter().map(move |turn| (agent, turn)));
    let kinds = tally(turns().map(|(_, turn)| turn.terminal.map_or("running", Terminal::name)));
    let mut failed: Vec<_> = turns().filter(|(_, turn)| turn.is_bad()).collect();
    failed.sort_by_key(|(_, turn)| Reverse(turn.ended_at));
    let more = failed.len().saturating_sub(FAILURES);
    let kinds =
        kinds.into_iter().map(|(name, count)| json!({ "name": in_words(name), "count": number(count) }));
    let failures = failed.into_iter().take(FAILURES).map(|(agent, turn)| listed_turn(agent, turn));
    (kinds.collect(), failures.collect(), more)
}
