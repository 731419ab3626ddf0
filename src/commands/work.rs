//! Command `work`: work items; the commands `wait` and `timer` have files of their own.

mod timer;
mod waits;

use serde_json::{Value, json};

use crate::cli::{CommandGroup, RecordArg, WorkCommand};
use crate::engine::authority;
use crate::engine::context::Context;
use crate::engine::session::Session;
use crate::error::{Error, Result, Status};
use crate::model::action::WorkRequest;
use crate::model::bound::{PLAN, SHORT_TEXT};
use crate::model::id::WorkId;
use crate::model::refusal::Refusal;
use crate::model::wait::Wait;
use crate::model::work::{SchedulingState, Todo, WorkItem, WorkState};
use crate::report::output::Output;
use crate::report::text::one_line;
use crate::rules::transition::draft::Draft;
use crate::rules::transition::work::{self, WorkChange};
use crate::rules::work::{WaitsByItem, readiness, scheduling_state};
use crate::store::Store;

pub use waits::wait;

use super::args::{
    agent_and_text, answer, each_listed, ended_records, find_any, no_record, open_or_ended, optional_text,
    short_text, text,
};

pub use timer::timer;

/// Words for the refusal of a turn that changes records other than its own agent's or a child's.
const CHANGE: &str = "change the records of";

/// Changes the records of one agent by a rule, and returns the result of that rule.
fn change<T>(context: Context<'_>, rule: impl FnOnce(&mut Draft) -> Result<T, Refusal>) -> Result<T> {
    authority::reach_records(context, CHANGE)?;
    Ok(context.change(rule)?.made)
}

pub fn work(session: &Session, store: &Store, args: CommandGroup<WorkCommand>) -> Result<Status> {
    match args.command {
        WorkCommand::Add { objective, plan_status, todo, plan, blocked_by, recheck, pick } => {
            let (name, said) = agent_and_text(objective)?;
            let agent = store.agent(&name)?;
            let new = WorkRequest {
                objective: text("TEXT", said.as_deref(), &SHORT_TEXT)?,
                plan_status,
                todo: steps(&todo)?,
                plan: plan.map(|word| plan_text("--plan", &word)).transpose()?,
                blocked_by: optional_text("--blocked-by", blocked_by)?,
                recheck_after: recheck,
                pick,
            };
            let rule = |draft: &mut Draft| work::add(draft, new).map(|item| changed(draft, item));
            show_changed(session, change(Context::new(session, &agent), rule)?)
        }
        WorkCommand::List { agents, state, scheduling_state } => {
            let state = state.unwrap_or(WorkState::Open);
            each_listed(session, store, &agents, |context| list_work(context, state, scheduling_state))
        }
        WorkCommand::Show(item) => show_work(session, store, &item),
        WorkCommand::Update { item, objective, plan_status, todo, plan } => {
            let change = WorkChange {
                objective: optional_text("--objective", objective)?,
                plan_status,
                todo: Some(steps(&todo)?).filter(|todo| !todo.is_empty()),
                plan: plan.map(|word| plan_text("--plan", &word)).transpose()?,
            };
            change_work(session, store, &item, |draft, id| work::update(draft, id, change))
        }
        WorkCommand::Pick { item, clear_blocker, reason } => {
            let reason = optional_text("--reason", reason.filter(|_| clear_blocker))?;
            change_work(session, store, &item, |draft, id| work::pick(draft, id, reason))
        }
        WorkCommand::Block { item, reason, recheck } => {
            let reason = short_text("--reason", &reason)?;
            change_work(session, store, &item, |draft, id| work::block(draft, id, reason, recheck))
        }
        WorkCommand::Unblock { item, reason } => {
            let reason = short_text("--reason", &reason)?;
            change_work(session, store, &item, |draft, id| work::unblock(draft, id, &reason))
        }
        WorkCommand::Complete { item, result } => {
            complete_work(session, store, &item, optional_text("--result", result)?)
        }
        WorkCommand::Plan { id, agent, text } => plan(session, store, &RecordArg { id, agent }, text),
    }
}

/// Parses the steps of a todo list. The prefix `[x]` marks a completed step.
fn steps(words: &[String]) -> Result<Vec<Todo>> {
    let step = |word: &String| {
        let word = short_text("--todo", word)?;
        let done = word.strip_prefix("[x] ");
        let text = done.or(word.strip_prefix("[ ] ")).unwrap_or(&word).to_owned();
        Ok(Todo { text, done: done.is_some() })
    };
    words.iter().map(step).collect()
}

fn change_work(
    session: &Session,
    store: &Store,
    item: &RecordArg,
    rule: impl FnOnce(&mut Draft, WorkId) -> Result<WorkItem, Refusal>,
) -> Result<Status> {
    let (agent, id) = find_any::<WorkItem>(store, item)?;
    let rule = |draft: &mut Draft| rule(draft, id).map(|item| changed(draft, item));
    show_changed(session, change(Context::new(session, &agent), rule)?)
}

fn complete_work(
    session: &Session,
    store: &Store,
    item: &RecordArg,
    result: Option<String>,
) -> Result<Status> {
    let (agent, id) = find_any::<WorkItem>(store, item)?;
    let context = Context::new(session, &agent);
    authority::reach_records(context, CHANGE)?;
    let mut open = context.open()?;
    let plan = open.locked.records_snapshot().plan(id)?;
    let done = work::complete(&mut open.draft, id, result, plan)?;
    let changed = changed(&open.draft, done);
    open.commit()?;
    show_changed(session, changed)
}

/// Reads a plan. Refuses an empty one from stdin or a file, usually the result of a failed command.
fn plan_text(name: &str, word: &str) -> Result<String> {
    let plan = text(name, Some(word), &PLAN)?;
    if plan.trim().is_empty() && (word == "-" || word.starts_with('@')) {
        return Err(Error::refused("empty_plan", format!("{name} `{word}` is empty: no plan was saved"))
            .with_hint("if this is intended, give '' as the text"));
    }
    Ok(plan)
}

fn plan(session: &Session, store: &Store, item: &RecordArg, word: Option<String>) -> Result<Status> {
    if let Some(word) = word {
        let plan = plan_text("TEXT", &word)?;
        let change = WorkChange { plan: Some(plan), ..WorkChange::default() };
        return change_work(session, store, item, |draft, id| work::update(draft, id, change));
    }
    let (agent, id) = find_any::<WorkItem>(store, item)?;
    let plan = agent.read(|seen, _| match seen.plan(id)? {
        Some(plan) => Ok(Some(plan)),
        None => Ok(seen.ended_one::<WorkItem>(id)?.and_then(|item| item.plan)),
    })?;
    let plan = plan.ok_or_else(|| Error::NoRecord { what: "plan of work item", id: id.to_string() })?;
    let object = json!({ "id": id, "plan": plan });
    answer(session, &object, |out| out.whole(&plan))
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

fn show_changed(session: &Session, (id, object): (WorkId, Value)) -> Result<Status> {
    answer(session, &object, |_| id.to_string())
}

fn list_work(
    Context { session, agent }: Context<'_>,
    state: WorkState,
    wanted: Option<SchedulingState>,
) -> Result<Status> {
    let (items, waits, focus) = agent.read(|seen, agent_state| {
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
    let is_wanted = |item: &&WorkItem| wanted.is_none_or(|wanted| scheduling_state(item, &waits) == wanted);
    for item in items.iter().filter(is_wanted) {
        session.out.result(&work_object(item, &waits, focus), |out| work_line(item, &waits, focus, out));
    }
    Ok(Status::Done)
}

fn show_work(session: &Session, store: &Store, item: &RecordArg) -> Result<Status> {
    let (agent, id) = find_any::<WorkItem>(store, item)?;
    let (item, waits, focus, plan) = agent.read(|seen, state| {
        Ok((open_or_ended::<WorkItem>(&seen, id)?, seen.open::<Wait>()?, state.focus, seen.plan(id)?))
    })?;
    let item = item.ok_or_else(|| no_record::<WorkItem>(id))?;
    let waits = WaitsByItem::of(&waits);
    answer(session, &work_object(&item, &waits, focus), |out| {
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
    })
}
