//! `work`: work items. `wait` and `timer` have files of their own.

use serde_json::{Value, json};

use crate::cli::WorkCommand;
use crate::engine::authority;
use crate::engine::context::Context;
use crate::engine::lookup::{self, ResolvedId};
use crate::engine::session::Session;
use crate::error::{Error, Result, Status};
use crate::model::bound::PLAN;
use crate::model::id::{AgentName, WorkId};
use crate::model::refusal::Refusal;
use crate::model::time::{Span, Time};
use crate::model::wait::Wait;
use crate::model::work::{PlanStatus, SchedulingState, Todo, WorkItem, WorkState};
use crate::report::output::Output;
use crate::report::text::one_line;
use crate::rules::transition::draft::Draft;
use crate::rules::transition::work::{self, NewWork, WorkChange};
use crate::rules::work::{WaitsByItem, readiness, scheduling_state};
use crate::store::{Agent, Store};

use super::words::{agent_and_text, ended_records, optional_agent, parse_optional, required_agent, text};

mod timer;
mod waits;

pub use waits::wait;

pub use timer::timer;

/// Action that a turn may not take on an agent other than itself and its children.
const CHANGE: &str = "change the records of";

/// Changes the records of one agent by a rule, and returns the result of the rule.
fn change<T>(
    session: &Session,
    agent: &Agent<'_>,
    rule: impl FnOnce(&mut Draft) -> std::result::Result<T, Refusal>,
) -> Result<T> {
    authority::reach_records(Context::new(session, agent), CHANGE)?;
    Ok(Context::new(session, agent).change(rule)?.made)
}

fn moment_in(session: &Session, flag: &str, word: Option<&str>) -> Result<Option<Time>> {
    let span: Option<Span> = parse_optional(flag, word)?;
    Ok(span.map(|span| session.clock.now().after(span)))
}

pub fn work(session: &mut Session, command: WorkCommand) -> Result<Status> {
    let store = session.store()?;
    match command {
        WorkCommand::Add { objective, plan_status, todo, plan, blocked_by, recheck, pick } => {
            let (name, said) = agent_and_text(objective)?;
            let objective = said.ok_or_else(|| Error::usage("OBJECTIVE: what is to be done?"))?;
            let agent = store.agent(&name)?;
            let new = NewWork {
                objective,
                plan_status: parse_optional("--plan-status", plan_status.as_deref())?
                    .unwrap_or(PlanStatus::Ready),
                todo: todo.iter().map(|word| step(word)).collect(),
                plan: plan.map(|word| plan_text("--plan", &word)).transpose()?,
                blocked_by,
                recheck_at: moment_in(session, "--recheck", recheck.as_deref())?,
                pick,
            };
            let changed =
                change(session, &agent, |draft| work::add(draft, new).map(|item| changed(draft, item)))?;
            show_changed(session, changed)
        }
        WorkCommand::List { agent, state, scheduling_state } => {
            let agent = store.agent(&required_agent(&agent)?)?;
            let state = parse_optional("--state", state.as_deref())?.unwrap_or(WorkState::Open);
            list_work(
                session,
                &agent,
                state,
                parse_optional("--scheduling-state", scheduling_state.as_deref())?,
            )
        }
        WorkCommand::Show { id, agent } => {
            let found = find_work(&store, optional_agent(&agent)?, &id)?;
            show_work(session, &store.agent(&found.agent)?, found.id)
        }
        WorkCommand::Update { id, agent, objective, plan_status, todo, plan } => {
            let change = WorkChange {
                objective,
                plan_status: parse_optional("--plan-status", plan_status.as_deref())?,
                todo: (!todo.is_empty()).then(|| todo.iter().map(|word| step(word)).collect()),
                plan: plan.map(|word| plan_text("--plan", &word)).transpose()?,
            };
            change_work(session, &store, optional_agent(&agent)?, &id, |draft, id| {
                work::update(draft, id, change)
            })
        }
        WorkCommand::Pick { id, agent, clear_blocker, reason } => {
            let reason = reason.filter(|_| clear_blocker);
            change_work(session, &store, optional_agent(&agent)?, &id, |draft, id| {
                work::pick(draft, id, reason)
            })
        }
        WorkCommand::Block { id, agent, reason, recheck } => {
            let recheck_at = moment_in(session, "--recheck", recheck.as_deref())?;
            change_work(session, &store, optional_agent(&agent)?, &id, |draft, id| {
                work::block(draft, id, reason, recheck_at)
            })
        }
        WorkCommand::Unblock { id, agent, reason } => {
            change_work(session, &store, optional_agent(&agent)?, &id, |draft, id| {
                work::unblock(draft, id, &reason)
            })
        }
        WorkCommand::Complete { id, agent, result } => {
            complete_work(session, &store, optional_agent(&agent)?, &id, result)
        }
        WorkCommand::Plan { id, agent, text: word } => {
            plan(session, &store, optional_agent(&agent)?, &id, word)
        }
    }
}

/// Parses a step of a todo list. `[x] TEXT` is done.
fn step(word: &str) -> Todo {
    match word.strip_prefix("[x] ") {
        Some(text) => Todo { text: text.to_owned(), done: true },
        None => Todo { text: word.strip_prefix("[ ] ").unwrap_or(word).to_owned(), done: false },
    }
}

fn find_work(store: &Store, agent: Option<AgentName>, part: &str) -> Result<ResolvedId<WorkId>> {
    lookup::open_or_archived::<WorkItem>(store, agent, "work item", part)
}

fn change_work(
    session: &mut Session,
    store: &Store,
    agent: Option<AgentName>,
    part: &str,
    rule: impl FnOnce(&mut Draft, WorkId) -> std::result::Result<WorkItem, Refusal>,
) -> Result<Status> {
    let found = find_work(store, agent, part)?;
    let agent = store.agent(&found.agent)?;
    let changed = change(session, &agent, |draft| rule(draft, found.id).map(|item| changed(draft, item)))?;
    show_changed(session, changed)
}

fn complete_work(
    session: &mut Session,
    store: &Store,
    agent: Option<AgentName>,
    part: &str,
    result: Option<String>,
) -> Result<Status> {
    let found = find_work(store, agent, part)?;
    let agent = store.agent(&found.agent)?;
    authority::reach_records(Context::new(session, &agent), CHANGE)?;
    let mut open = Context::new(session, &agent).open()?;
    let plan = open.locked.look_past_inbox().plan(found.id)?;
    let item = work::complete(&mut open.draft, found.id, result, plan)?;
    let changed = changed(&open.draft, item);
    open.commit()?;
    show_changed(session, changed)
}

/// Reads a plan. An empty one from a file or stdin is refused, because a failed command usually
/// leaves it.
fn plan_text(name: &str, word: &str) -> Result<String> {
    let plan = text(name, Some(word), &PLAN)?;
    if plan.trim().is_empty() && (word == "-" || word.starts_with('@')) {
        return Err(Error::refused("empty_plan", format!("{name} `{word}` is empty: no plan was saved"))
            .with_hint("if that is meant, give '' as the text"));
    }
    Ok(plan)
}

fn plan(
    session: &mut Session,
    store: &Store,
    agent: Option<AgentName>,
    part: &str,
    word: Option<String>,
) -> Result<Status> {
    if let Some(word) = word {
        let plan = plan_text("TEXT", &word)?;
        let change = WorkChange { plan: Some(plan), ..WorkChange::default() };
        return change_work(session, store, agent, part, |draft, id| work::update(draft, id, change));
    }
    let found = find_work(store, agent, part)?;
    let plan = store.agent(&found.agent)?.look(|seen, _| {
        let open = seen.plan(found.id)?;
        let archived = || seen.ended_one::<WorkItem>(found.id);
        Ok(match open {
            Some(plan) => Some(plan),
            None => archived()?.and_then(|item| item.plan),
        })
    })?;
    let plan = plan.ok_or_else(|| Error::NoRecord { what: "plan of work item", id: found.id.to_string() })?;
    let object = json!({ "id": found.id, "plan": plan });
    session.out.result(&object, |out| out.whole(&plan));
    Ok(Status::Done)
}

/// Returns the record of an item with its scheduling state.
fn work_object(item: &WorkItem, waits: &WaitsByItem<'_>, focus: Option<WorkId>) -> Value {
    let state = scheduling_state(item, waits);
    let mut object = json!(item);
    object["scheduling_state"] = json!(state);
    object["readiness"] = json!(readiness(state));
    object["current"] = json!(focus == Some(item.id));
    object
}

fn work_line(item: &WorkItem, waits: &WaitsByItem<'_>, focus: Option<WorkId>, out: &Output) -> String {
    let mark = if focus == Some(item.id) { "→ " } else { "  " };
    let blocker =
        item.blocked_by.as_deref().map(|why| format!(" ({})", one_line(why, 40))).unwrap_or_default();
    format!(
        "{mark}{}  {}{}  {}",
        item.id,
        scheduling_state(item, waits),
        out.safe(&blocker),
        out.safe(&one_line(&item.objective, 80))
    )
}

/// Returns a changed item with its scheduling state after the change.
fn changed(draft: &Draft, item: WorkItem) -> (WorkId, Value) {
    let records = &draft.records;
    (item.id, work_object(&item, &WaitsByItem::of(&records.waits), records.state.focus))
}

fn show_changed(session: &mut Session, (id, object): (WorkId, Value)) -> Result<Status> {
    session.out.result(&object, |_| id.to_string());
    Ok(Status::Done)
}

fn list_work(
    session: &mut Session,
    agent: &Agent<'_>,
    state: WorkState,
    wanted: Option<SchedulingState>,
) -> Result<Status> {
    let (items, waits, focus) = agent.look(|seen, agent_state| {
        let items = match state {
            WorkState::Open => seen.open::<WorkItem>()?,
            WorkState::Completed => {
                let mut items = ended_records(&seen)?;
                items.reverse();
                items
            }
        };
        Ok((items, seen.open::<Wait>()?, agent_state.focus))
    })?;
    let waits = WaitsByItem::of(&waits);
    let stands = |item: &&WorkItem| wanted.is_none_or(|wanted| scheduling_state(item, &waits) == wanted);
    for item in items.iter().filter(stands) {
        session.out.result(&work_object(item, &waits, focus), |out| work_line(item, &waits, focus, out));
    }
    Ok(Status::Done)
}

fn show_work(session: &mut Session, agent: &Agent<'_>, id: WorkId) -> Result<Status> {
    let (item, waits, focus, plan) = agent.look(|seen, state| {
        let item = match seen.open_one::<WorkItem>(id)? {
            Some(item) => Some(item),
            None => seen.ended_one::<WorkItem>(id)?,
        };
        Ok((item, seen.open::<Wait>()?, state.focus, seen.plan(id)?))
    })?;
    let item = item.ok_or_else(|| Error::NoRecord { what: "work item", id: id.to_string() })?;
    let waits = WaitsByItem::of(&waits);
    session.out.result(&work_object(&item, &waits, focus), |out| {
        let mut text = format!("{}\n", work_line(&item, &waits, focus, out));
        for todo in &item.todo {
            text.push_str(&format!("  [{}] {}\n", if todo.done { "x" } else { " " }, out.safe(&todo.text)));
        }
        if let Some(result) = &item.result {
            text.push_str(&format!("result: {}\n", out.indented(result)));
        }
        if let Some(plan) = plan.as_ref().or(item.plan.as_ref()) {
            text.push_str(&format!("\n{}\n", out.whole(plan)));
        }
        text
    });
    Ok(Status::Done)
}
