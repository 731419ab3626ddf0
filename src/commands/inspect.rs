//! Commands `get`, `list`, `explain`, `state`, `next-wake`, and `dormouse` without a command:
//! states of agents, and the reasons for these states.

use serde_json::{Value, json};

use crate::cli::{self, AgentsArg, NextWakeArgs, WakeFormat};
use crate::engine::context::Context;
use crate::engine::hooks::{self, Installed};
use crate::engine::owner::name_holder;
use crate::engine::session::{Session, agents};
use crate::engine::step::{Preview, forecast, preview};
use crate::engine::views;
use crate::error::{Error, Result, Status};
use crate::model::agent::Status as AgentStatus;
use crate::model::event::{Event, EventKind};
use crate::model::id::AgentName;
use crate::model::state::State;
use crate::model::time::Time;
use crate::report::explain::{self, EdgeCounts};
use crate::report::list::{self, Column, ListRow};
use crate::report::output::{Output, Tone};
use crate::report::summary::{self, field, raw};
use crate::report::text::{count, one_line, present, relative, table, tally};
use crate::rules::due::Overdue;
use crate::rules::execution::{can, next};
use crate::store::{Agent, Store};

use super::args::{answer, parse, parse_optional};

/// Number of state transitions that `state` shows.
const HISTORY: usize = 10;

pub fn get(session: &Session, store: &Store, args: cli::GetArgs) -> Result<Status> {
    let agent = store.agent(&args.agent)?;
    let now = session.clock.now();
    // Children are expensive to find, so they are read only for JSON and for a field that is named.
    let all_children = match args.field.as_deref() {
        Some(path) => path.split('.').next() == Some("children"),
        None => session.out.is_json(),
    };
    let facts = views::facts(&agent, now, all_children)?;
    let Some(path) = &args.field else {
        return answer(session, &present(summary::summary(&facts)), |out| summary::text(&facts, out));
    };
    let summary = summary::summary(&facts);
    let Some(value) = field(&summary, path) else {
        let known = summary.as_object().map(|map| map.keys().cloned().collect::<Vec<_>>());
        return Err(Error::usage(format!("no field `{path}`"))
            .with_hint(format!("the fields at the top are {}", known.unwrap_or_default().join(", "))));
    };
    session.out.quote(&present(value.clone()), |out| out.whole(&raw(value)));
    Ok(Status::Done)
}

pub fn list(session: &Session, store: &Store, args: cli::ListArgs) -> Result<Status> {
    let names = store.agents()?;
    let now = session.clock.now();
    let cli::ListArgs { posture: postures, status: statuses, kind, .. } = &args;
    let sort: Option<Column> = parse_optional("--sort", args.sort.as_deref())?;
    let columns: Vec<Column> =
        args.columns.iter().map(|word| parse("--columns", word)).collect::<Result<_>>()?;
    let limit = if args.limit > 0 { args.limit } else { usize::MAX };
    // JSON rows are written in order of name as read, unless --sort or --limit needs all rows.
    let at_once = session.out.is_json() && sort.is_none() && args.limit == 0;
    let mut lines = Vec::new();
    let status = session.each_agent(store, &names, true, |Context { agent, .. }| {
        let asked = kind.is_some() || session.out.is_json();
        let identity = if asked { Some(agent.identity()?) } else { None };
        if kind.is_some_and(|kind| identity.as_ref().is_some_and(|identity| identity.kind != kind)) {
            return Ok(Status::Done);
        }
        let line = views::line(agent, identity, now)?;
        let wanted = (postures.is_empty() || postures.contains(&line.posture))
            && (statuses.is_empty() || statuses.contains(&line.status));
        if wanted && at_once {
            session.out.json_line(&line);
        } else if wanted {
            lines.push(line);
        }
        Ok(Status::Done)
    });
    lines.sort_by(|one, other| one.order(other, sort));
    let left_out = lines.len().saturating_sub(limit);
    lines.truncate(limit);
    if session.out.is_json() {
        lines.iter().for_each(|line| session.out.json_line(line));
    } else if !lines.is_empty() {
        let columns = if columns.is_empty() { Column::ALL } else { &columns };
        let text = list::text(&lines, columns, session.out.width(), &session.out, now);
        session.out.line(&text);
        // The table is too narrow for the agents' questions to the operator.
        let questions =
            lines.iter().flat_map(|line| line.questions().map(|question| (&line.agent, question)));
        for (agent, question) in questions.take(QUESTIONS) {
            session.out.note(&format!("{agent}: {question}"));
        }
        if left_out > 0 {
            session.out.note(&format!("{left_out} more; --limit 0 lists all"));
        }
    } else if names.is_empty() {
        session.out.note("no agents yet: make one with `dormouse create`");
    }
    Ok(status)
}

/// Maximum number of questions from agents to the operator that `list` shows.
const QUESTIONS: usize = 5;

pub fn explain(session: &Session, store: &Store, args: cli::ExplainArgs) -> Result<Status> {
    let agent = store.agent(&args.agent)?;
    let now = session.clock.now();
    let Preview { decision, draft, .. } = preview(Context::new(session, &agent), now)?;
    say_if_moved(session, &draft.records.state);
    let mut report = decision.report.clone();
    name_holder(&agent, &mut report)?;
    let document = explain::document(&draft.records, &report, now);
    answer(session, &document, |out| explain::text(&draft.records, &report, now, out))
}

pub fn state(session: &Session, store: &Store, args: cli::StateArgs) -> Result<Status> {
    let agent = store.agent(&args.agent)?;
    if args.hooks {
        show_hooks(Context::new(session, &agent));
        return Ok(Status::Done);
    }
    let now = session.clock.now();
    let (state, history) = agent.read(|seen, state| {
        let history = seen.last_events(HISTORY, |event| event.kind == EventKind::StateTransition)?;
        Ok((state, history))
    })?;
    say_if_moved(session, &state);
    let execution = &state.execution;
    if let Some(target) = args.can {
        let can = can(execution.state, target);
        let object = json!({ "agent": state.agent, "state": execution.state, "target": target, "can": can });
        session.out.result(&object, |_| if can { "yes".to_owned() } else { "no".to_owned() });
        return Ok(if can { Status::Done } else { Status::Refused });
    }
    if let Some(format) = args.diagram {
        let taken = if args.history { taken(&agent)? } else { EdgeCounts::new() };
        let template = match format {
            cli::Diagram::Mermaid => explain::MERMAID,
            cli::Diagram::Dot => explain::DOT,
        };
        let text = explain::diagram(template, execution.state, &taken)?;
        let object = json!({ "agent": state.agent, "state": execution.state, "diagram": text });
        return answer(session, &object, |_| text);
    }
    answer(session, &machine_object(&state, &history), |out| machine_text(&state, &history, now, out))
}

/// Counts the transitions between each pair of states, by the events that are still kept.
fn taken(agent: &Agent<'_>) -> Result<EdgeCounts> {
    agent.read(|seen, _| {
        let mut taken = EdgeCounts::new();
        seen.events(None, |event| {
            let end = |name: &str| event.data[name].as_str().and_then(|word| word.parse().ok());
            if event.kind == EventKind::StateTransition
                && let (Some(from), Some(to)) = (end("from"), end("to"))
            {
                *taken.entry((from, to)).or_default() += 1;
            }
            Ok(())
        })?;
        Ok(taken)
    })
}

/// Reports that the agent was moved away, so that its records no longer change in this store.
fn say_if_moved(session: &Session, state: &State) {
    if let Some(moved) = &state.moved {
        session.out.note(&format!("{} was {moved}, at {}: no step is made here", state.agent, moved.at));
    }
}

/// Lists the installed hooks, and the reason for each hook that is installed but does not run.
fn show_hooks(Context { session, agent }: Context<'_>) {
    let hooks = hooks::installed(agent);
    session.out.result(&json!({ "agent": agent.name(), "hooks": hooks }), |out| {
        let row = |hook: &Installed| {
            let why_not = hook.why_not.map(|why| format!("does not run: {why}")).unwrap_or_default();
            vec![
                hook.hook.to_string(),
                hook.place.to_owned(),
                out.safe(&hook.path.to_string_lossy()),
                why_not,
            ]
        };
        if hooks.is_empty() {
            return format!("{} has no hooks", agent.name());
        }
        table(&hooks.iter().map(row).collect::<Vec<_>>())
    });
}

/// Returns the JSON of `state`: execution state, possible next states and last transitions.
fn machine_object(state: &State, history: &[Event]) -> Value {
    let execution = &state.execution;
    present(json!({
        "agent": state.agent,
        "state": execution.state,
        "code": execution.state.code(),
        "since": execution.since,
        "terminal": execution.state.is_terminal(),
        "next": next(execution.state),
        "history": history.iter().map(transition).collect::<Vec<_>>(),
        "task_id": execution.task_id,
        "reason": execution.reason,
    }))
}

/// Returns the text of `state`: execution state, possible next states and last transitions.
fn machine_text(state: &State, history: &[Event], now: Time, out: &Output) -> String {
    let execution = &state.execution;
    let names: Vec<&str> = next(execution.state).iter().map(|state| state.name()).collect();
    let mut text = format!(
        "{} is {} ({}) since {} ({})\n",
        state.agent,
        out.paint(Tone::Strong, execution.state.name()),
        execution.state.code(),
        execution.since.local(),
        relative(execution.since, now),
    );
    if let Some(reason) = &execution.reason {
        text.push_str(&format!("because: {}\n", out.safe(&one_line(reason, 200))));
    }
    text.push_str(&format!("next: {}\n", names.join(", ")));
    let row = |event: &Event| {
        let word = |name: &str| out.safe(&one_line(event.data[name].as_str().unwrap_or_default(), 200));
        let cause = word("cause");
        vec![event.at.local(), format!("{} → {}", word("from"), word("to")), cause]
    };
    text.push_str(&table(&history.iter().map(row).collect::<Vec<_>>()));
    text
}

fn transition(event: &Event) -> Value {
    let Event { at, data, run_id, .. } = event;
    let (from, to, cause) = (&data["from"], &data["to"], &data["cause"]);
    present(json!({ "at": at, "from": from, "to": to, "cause": cause, "run_id": run_id }))
}

pub fn next_wake(session: &Session, store: &Store, args: NextWakeArgs) -> Result<Status> {
    let AgentsArg { agents: chosen, all } = args.agents;
    let now = session.clock.now();
    let known = if all { store.due(now, false)? } else { None };
    // Text needs only the earliest time, which the store may know; JSON also lists the agents.
    let names =
        if known.is_none() || session.out.is_json() { agents(store, &chosen, all)? } else { Vec::new() };
    let mut earliest = known.as_ref().and_then(|known| known.next);
    let named: Option<Vec<AgentName>> = known.map(|known| known.names().cloned().collect());
    let status = session.each_agent(store, named.as_ref().unwrap_or(&names), all, |context| {
        let due = due(context, now)?;
        earliest = [earliest, due].into_iter().flatten().min();
        Ok(Status::Done)
    });
    let format = args.format;
    let wake = present(json!({ "agents": names, "next_due_at": earliest }));
    match earliest {
        Some(at) => session.out.result(&wake, |_| written(at, format)),
        None if session.out.is_json() => session.out.json_line(&wake),
        None => {}
    }
    Ok(status)
}

/// Returns the due time of an agent's next step: `now` if a step would change something now.
fn due(context: Context<'_>, now: Time) -> Result<Option<Time>> {
    match forecast(context, now) {
        Ok(expected) => Ok(expected.due),
        Err(error) if error.is_moved() => {
            context.session.out.note(&format!("{error}: nothing is due here"));
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn written(at: Time, format: WakeFormat) -> String {
    match format {
        WakeFormat::Rfc3339 => at.to_string(),
        // The time is rounded up, because a step before the due time finds nothing to do.
        WakeFormat::Epoch => at.as_millis().saturating_add(999).div_euclid(1000).to_string(),
        WakeFormat::Systemd => at.utc().format("%Y-%m-%d %H:%M:%S%.3f UTC").to_string(),
    }
}

/// Maximum number of agents with an attention, and of questions per agent, in the overview.
const NAMED: usize = 5;

/// Hint for a state directory that no process ticks.
pub const TICK: &str =
    "make the steps: dormouse tick --all; dormouse service says how a machine makes them by itself";

pub fn overview(session: &Session) -> Result<Status> {
    let store = match session.store() {
        Err(Error::NoStore { .. }) => return Ok(first_steps(session)),
        found => found?,
    };
    let now = session.clock.now();
    let names = store.agents()?;
    let mut lines = Vec::new();
    let status = session.each_agent(&store, &names, true, |context| {
        lines.push(views::line(context.agent, None, now)?);
        Ok(Status::Done)
    });
    let named = |is_meant: fn(&ListRow) -> bool| -> Vec<&str> {
        lines.iter().filter(|line| is_meant(line)).map(|line| line.agent.as_str()).collect()
    };
    let unstarted = named(|line| line.status == AgentStatus::Booting);
    let pending: usize = lines.iter().map(|line| line.pending).sum();
    let attention = named(ListRow::needs_attention);
    let next_due_at = lines.iter().filter_map(|line| line.next_due_at).min();
    let late = Overdue::of_all(lines.iter().filter_map(|line| line.nobody_ticks.as_ref()));
    let object = json!({
        "dir": store.shown(),
        "agents": names.len(),
        "postures": tally(lines.iter().map(|line| line.posture)),
        "not_started": unstarted,
        "pending": pending,
        "attention": attention,
        "next_due_at": next_due_at,
        "nobody_ticks": late,
    });
    session.out.result(&object, |out| {
        let dir = out.safe(&store.shown());
        if names.is_empty() {
            return format!("no agents yet in {dir}\nmake one: dormouse create NAME --template script");
        }
        // Agents that were never started need no tick, so they are counted separately.
        let started = lines.iter().filter(|line| line.status != AgentStatus::Booting);
        let started = tally(started.map(|line| line.posture)).into_iter();
        let mut stand: Vec<String> =
            started.map(|(posture, agents)| format!("{agents} {}", posture.words())).collect();
        if !unstarted.is_empty() {
            stand.push(format!("{} not started", unstarted.len()));
        }
        let agents = count(names.len() as u64, "agent", "agents");
        let mut text = format!("{agents} in {dir}: {}\n", stand.join(", "));
        if pending > 0 {
            text.push_str(&format!("{} pending\n", count(pending as u64, "message", "messages")));
        }
        if let Some(first) = unstarted.first() {
            text.push_str(&format!("to have it run: dormouse start {first}\n"));
        }
        if let Some(at) = lines.iter().filter_map(|line| line.due).min() {
            text.push_str(&format!("the next step is due {} ({})\n", relative(at, now), at.local()));
        }
        if let Some(late) = &late {
            let said = format!("no process ticks: {}", late.describe(now));
            text.push_str(&format!("{}\n{TICK}\n", out.paint(Tone::Bad, &said)));
        }
        for line in lines.iter().filter(|line| line.status != AgentStatus::Booting) {
            for question in line.questions().take(NAMED) {
                let question = out.safe(&one_line(&question.to_string(), 300));
                text.push_str(&format!("{} {question}\n", line.agent));
            }
        }
        if !attention.is_empty() {
            let more = if attention.len() > NAMED { ", …" } else { "" };
            let named = attention.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
            text.push_str(&out.paint(Tone::Bad, &format!("to look at: {named}{more}")));
            text.push_str(&format!("\nsee why: dormouse get {}\n", attention[0]));
        }
        text.push_str("see also: dormouse list, dormouse explain AGENT, dormouse --help");
        text
    });
    Ok(status)
}

/// Prints first instructions when no state directory exists.
fn first_steps(session: &Session) -> Status {
    let steps = [
        ("dormouse init", "make a state directory here"),
        ("dormouse create ada --template script", "an agent, with a commented script"),
        ("dormouse start ada", "from now on steps run it"),
        ("dormouse ask ada hello", "send a message, and see the answer"),
    ];
    let object = json!({ "dir": null, "begin": steps.map(|(command, _)| command) });
    session.out.result(&object, |_| {
        let lines = steps.map(|(command, what)| format!("  {command:<38}  {what}"));
        format!(
            "There is no state directory here. To begin:\n\n{}\n\nSee also: dormouse --help",
            lines.join("\n")
        )
    });
    Status::Done
}
