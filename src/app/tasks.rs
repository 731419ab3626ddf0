//! `task`: background work, from its start to its result (contract, semantics §12).

use std::ffi::OsString;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::cli::TaskCommand;
use crate::error::{Error, Result, Status};
use crate::model::id::{AgentName, TaskId, WorkId};
use crate::model::run::Exit;
use crate::model::state::State;
use crate::model::task::{Task, TaskJob, TaskStatus};
use crate::model::time::Span;
use crate::process::remains::Remains;
use crate::process::{Mark, TASK, host, supervisor};
use crate::report::output::{Output, Tone};
use crate::report::text::one_line;
use crate::rules::transition::draft::Draft;
use crate::rules::transition::task::{self as rules, End, NewTask};
use crate::store::view::View;
use crate::store::{Agent, Store, evidence, layout, lock};

use super::load::begin;
use super::log::Log;
use super::lookup::{self, Found};
use super::session::{Session, plane_agent, required_agent};
use super::turn::claimant;
use super::words::{parse, parse_optional, text};

/// Why a task counts as interrupted.
const SUPERVISOR_GONE: &str = "its supervisor is gone";
/// Between SIGTERM and SIGKILL, where nobody says otherwise.
pub const KILL_GRACE: Duration = Duration::from_secs(5);
/// How long a supervisor has to begin, beyond its wait for the agent's lock.
const BEGINS_IN: Duration = Duration::from_secs(10);
/// How long a supervisor may take to settle a task whose processes are gone, before we do.
const SETTLES_IN: Duration = Duration::from_secs(10);
/// How often `task output --follow` looks for something new.
const FOLLOW_PAUSE: Duration = Duration::from_millis(100);

pub fn task(session: &mut Session, command: TaskCommand) -> Result<Status> {
    let store = session.store()?;
    match command {
        TaskCommand::Start { agent, summary, work_item, no_notify, interactive, timeout, command } => {
            let agent = store.agent(&required_agent(&agent)?)?;
            let named: Option<WorkId> = match &work_item {
                Some(part) => Some(
                    lookup::open(&store, Some(agent.name().clone()), "open work item", part, layout::WORK)?
                        .id,
                ),
                None => None,
            };
            let caller = session.caller(&store)?;
            let new = NewTask {
                argv: command,
                summary,
                work_item_id: named,
                notify: !no_notify,
                interactive,
                timeout: parse_optional("--timeout", timeout.as_deref())?,
                from_turn: caller.is_some_and(|caller| caller.agent == *agent.name()),
                at: claimant(),
            };
            start(session, &store, &agent, new)
        }
        TaskCommand::List { agent, ended } => list(session, &store.agent(&required_agent(&agent)?)?, ended),
        TaskCommand::Status { id, agent } => {
            let found = find(&store, plane_agent(&agent)?, &id)?;
            let task = read(&store.agent(&found.agent)?, found.id)?;
            show(session, &task);
            Ok(Status::Done)
        }
        TaskCommand::Output { id, agent, stderr, follow, bytes } => {
            let found = find(&store, plane_agent(&agent)?, &id)?;
            let log = if stderr { layout::STDERR } else { layout::STDOUT };
            output(session, &store.agent(&found.agent)?, found.id, log, follow, bytes)
        }
        TaskCommand::Input { id, agent, text } => {
            let found = find(&store, plane_agent(&agent)?, &id)?;
            input(session, &store.agent(&found.agent)?, found.id, text.as_deref())
        }
        TaskCommand::Stop { id, agent, grace } => {
            let grace: Span = parse("--grace", &grace)?;
            let found = find(&store, plane_agent(&agent)?, &id)?;
            stop(session, &store.agent(&found.agent)?, found.id, grace)
        }
    }
}

fn find(store: &Store, agent: Option<AgentName>, part: &str) -> Result<Found<TaskId>> {
    lookup::open_or_archived(store, agent, "task", part, layout::TASKS, |task: &Task| task.id)
}

/// A task as it stands, or as it ended.
fn read(agent: &Agent<'_>, id: TaskId) -> Result<Task> {
    let found = agent.consistently(|view, _| match view.record::<Task>(&layout::task(id))? {
        Some(task) => Ok(Some(task)),
        None => evidence::archived_record(view, |task: &Task| task.id == id),
    })?;
    found.ok_or_else(|| Error::NoRecord { what: "task", id: id.to_string() })
}

fn line(task: &Task, out: &Output) -> String {
    let status = match task.status {
        TaskStatus::Completed => out.paint(Tone::Good, task.status.name()),
        TaskStatus::Failed | TaskStatus::Interrupted => out.paint(Tone::Bad, task.status.name()),
        TaskStatus::Queued | TaskStatus::Running | TaskStatus::Cancelling | TaskStatus::Cancelled => {
            task.status.to_string()
        }
    };
    let what = match (&task.summary, &task.job) {
        (Some(summary), _) => summary.clone(),
        (None, TaskJob::Command { argv }) => argv.join(" "),
        (None, TaskJob::ChildAgent { child }) => child.to_string(),
    };
    let why = task.reason.clone().or(task.exit.as_ref().map(Exit::to_string));
    let why = why.map(|why| format!(" ({why})")).unwrap_or_default();
    format!("{}  {status}{}  {}", task.id, out.safe(&why), out.safe(&one_line(&what, 80)))
}

fn show(session: &mut Session, task: &Task) {
    session.out.result(task, |out| line(task, out));
}

fn list(session: &mut Session, agent: &Agent<'_>, ended: bool) -> Result<Status> {
    let tasks = agent.consistently(|view, _| {
        if !ended {
            return view.records::<Task>(layout::TASKS);
        }
        let mut tasks = Vec::new();
        evidence::archived(view, |task: Task| {
            tasks.push(task);
            true
        })?;
        Ok(tasks)
    })?;
    for task in &tasks {
        show(session, task);
    }
    Ok(Status::Done)
}

fn start(session: &mut Session, store: &Store, agent: &Agent<'_>, new: NewTask) -> Result<Status> {
    let (mut draft, locked) = begin(session, agent)?;
    let task = rules::start(&mut draft, new)?;
    agent.make_task_dir(task.id)?;
    let path = agent.dir().join(layout::task_lock(task.id));
    // Held from before the record is there to be found: nobody ever takes the task for abandoned.
    let Some(held) = agent.task_lock(task.id, session.clock.now())? else {
        return Err(Error::Busy { holder: lock::describe_holder(&path), path, waited_ms: 0 });
    };
    locked.commit(draft.finish()?)?;
    drop(locked);
    let arguments = [
        OsString::from("--dir"),
        store.root().as_os_str().to_owned(),
        "supervise".into(),
        agent.name().as_str().into(),
        task.id.to_string().into(),
    ];
    let patience = session.patience().as_std().saturating_add(BEGINS_IN);
    let begun = held
        .share(&path)
        .and_then(|lock| supervisor::start(&arguments, store.root(), &task.id.to_string(), lock, patience));
    let trouble = match begun {
        Ok(Ok(())) => {
            drop(held);
            let task = read(agent, task.id)?;
            session.out.result(&task, |_| task.id.to_string());
            return Ok(Status::Done);
        }
        Ok(Err(why)) => Error::Failed { message: format!("{} has not begun: {why}", task.id), hint: None },
        Err(error) => error,
    };
    settle(session, agent, task.id, &held, &format!("it has not begun: {trouble}"))?;
    Err(trouble)
}

/// Ends a task that nobody looks after but us: first what is left of its processes, then the
/// record, with its result. One whose end was noted ends as it was seen to.
fn settle(
    session: &Session,
    agent: &Agent<'_>,
    id: TaskId,
    _held: &lock::Held,
    why: &str,
) -> Result<Option<Task>> {
    remains(agent, id)?.end(KILL_GRACE)?;
    finish(session, agent, id, unseen(agent, id, why)?)
}

fn unseen(agent: &Agent<'_>, id: TaskId, why: &str) -> Result<End> {
    Ok(match agent.noted_task_end(id)? {
        Some(seen) => End::Seen(seen),
        None => End::Lost(why.to_owned()),
    })
}

fn remains(agent: &Agent<'_>, id: TaskId) -> Result<Remains> {
    Remains::find(&Mark::task(id), &agent.dir().task_dir(id).join(layout::LEADER))
}

/// Commits the end of a task, unless somebody else has.
pub fn finish(session: &Session, agent: &Agent<'_>, id: TaskId, end: End) -> Result<Option<Task>> {
    let (mut draft, locked) = begin(session, agent)?;
    let ended = rules::finish(&mut draft, id, end)?;
    if ended.is_some() {
        locked.commit(draft.finish()?)?;
    }
    Ok(ended)
}

/// Whether its supervisor is, or was, on this machine.
fn is_here(task: &Task) -> bool {
    task.host == host::hostname() || task.boot_id == host::boot_id()
}

/// The open tasks of this machine that nobody looks after. Costs nothing where no task is open.
pub fn abandoned(agent: &Agent<'_>, view: &View<'_>, state: &State) -> Result<Vec<TaskId>> {
    if state.open_tasks == 0 {
        return Ok(Vec::new());
    }
    let mut abandoned = Vec::new();
    for task in view.records::<Task>(layout::TASKS)? {
        let has_supervisor = match task.job {
            TaskJob::Command { .. } => true,
            TaskJob::ChildAgent { .. } => false,
        };
        if has_supervisor && !task.status.is_terminal() && is_here(&task) && !agent.is_supervised(task.id)? {
            abandoned.push(task.id);
        }
    }
    Ok(abandoned)
}

/// Ends abandoned tasks. One that resists is left for the next step: it must not keep the agent
/// from its other work.
pub fn settle_abandoned(session: &Session, agent: &Agent<'_>, ids: &[TaskId]) {
    for id in ids {
        let settled = agent.task_lock(*id, session.clock.now()).and_then(|held| match held {
            Some(held) => settle(session, agent, *id, &held, SUPERVISOR_GONE).map(drop),
            None => Ok(()),
        });
        if let Err(error) = settled {
            session.out.note(&format!("{}: {id}: {error}", agent.name()));
        }
    }
}

/// What the next step will make of abandoned tasks.
pub fn foresee_abandoned(agent: &Agent<'_>, draft: &mut Draft) -> Result<()> {
    for id in abandoned(agent, &View::open(agent.dir())?, &draft.records.state)? {
        let end = unseen(agent, id, SUPERVISOR_GONE)?;
        rules::finish(draft, id, end)?;
    }
    Ok(())
}

fn stop(session: &mut Session, agent: &Agent<'_>, id: TaskId, grace: Span) -> Result<Status> {
    let task = read(agent, id)?;
    if !task.status.is_terminal() {
        refuse_elsewhere(&task)?;
        if own_task() == Some(id) {
            return Err(Error::Refused {
                kind: "own_task",
                message: format!("this is {id} itself: it can't stop itself"),
                hint: Some("end the command; that ends the task".to_owned()),
            });
        }
        cancel(session, agent, &[id])?;
        end(session, agent, &[id], grace.as_std())?;
    }
    let task = read(agent, id)?;
    show(session, &task);
    Ok(Status::Done)
}

fn refuse_elsewhere(task: &Task) -> Result<()> {
    if is_here(task) {
        return Ok(());
    }
    Err(Error::Refused {
        kind: "task_on_another_host",
        message: format!("{} runs on {}", task.id, task.host),
        hint: Some("go there".to_owned()),
    })
}

/// The task inside which this command is called.
fn own_task() -> Option<TaskId> {
    std::env::var(TASK).ok()?.parse().ok()
}

/// A task can't stop its own agent: the stop would wait for the task, and the task for the stop.
pub fn refuse_own_task(agent: &Agent<'_>) -> Result<()> {
    let Some(id) = own_task() else { return Ok(()) };
    let is_open = agent.consistently(|view, _| Ok(view.exists(&layout::task(id))))?;
    if !is_open {
        return Ok(());
    }
    Err(Error::Refused {
        kind: "own_task",
        message: format!("this is a task of `{}` itself: it can't stop its own agent", agent.name()),
        hint: Some("end the command; whoever is outside can stop the agent then".to_owned()),
    })
}

/// Marks those of the tasks that are still open, in one transaction.
fn cancel(session: &Session, agent: &Agent<'_>, ids: &[TaskId]) -> Result<()> {
    let (mut draft, locked) = begin(session, agent)?;
    for id in ids {
        if draft.records.tasks.iter().any(|task| task.id == *id) {
            rules::cancel(&mut draft, *id)?;
        }
    }
    if !draft.is_empty() {
        locked.commit(draft.finish()?)?;
    }
    Ok(())
}

/// Ends every task of a stopped agent, and returns which. Their results are kept.
pub fn stop_all(session: &Session, agent: &Agent<'_>, grace: Span) -> Result<Vec<TaskId>> {
    let open = agent.consistently(|view, _| view.records::<Task>(layout::TASKS))?;
    let (here, elsewhere): (Vec<Task>, Vec<Task>) = open.into_iter().partition(is_here);
    for task in &elsewhere {
        session.out.note(&format!("{}: {} goes on: it runs on {}", agent.name(), task.id, task.host));
    }
    let ids: Vec<TaskId> = here.iter().map(|task| task.id).collect();
    if !ids.is_empty() {
        cancel(session, agent, &ids)?;
        end(session, agent, &ids, grace.as_std())?;
    }
    Ok(ids)
}

/// Ends the processes of tasks that are marked, all at once, and sees to it that each is settled:
/// by its supervisor, or where that takes too long by us.
fn end(session: &Session, agent: &Agent<'_>, ids: &[TaskId], grace: Duration) -> Result<()> {
    let until = Instant::now().checked_add(grace);
    let found = ids.iter().map(|id| remains(agent, *id)).collect::<Result<Vec<_>>>()?;
    found.iter().try_for_each(Remains::ask)?;
    for remains in found {
        remains.end_by(until)?;
    }
    ids.iter().try_for_each(|id| see_settled(session, agent, *id, grace))
}

fn see_settled(session: &Session, agent: &Agent<'_>, id: TaskId, grace: Duration) -> Result<()> {
    let until = Instant::now() + SETTLES_IN;
    let mut looks = 0;
    while agent.consistently(|view, _| Ok(view.exists(&layout::task(id))))? {
        if let Some(held) = agent.task_lock(id, session.clock.now())? {
            settle(session, agent, id, &held, SUPERVISOR_GONE)?;
            return Ok(());
        }
        if Instant::now() > until {
            let end = unseen(agent, id, "it was stopped, and its supervisor does not answer")?;
            finish(session, agent, id, end)?;
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(5));
        looks += 1;
        if looks % 20 == 0 {
            // The supervisor was about to start the command when its processes were looked for.
            remains(agent, id)?.end(grace)?;
        }
    }
    Ok(())
}

fn input(session: &mut Session, agent: &Agent<'_>, id: TaskId, word: Option<&str>) -> Result<Status> {
    let task = read(agent, id)?;
    let refused =
        |kind, message, hint: &str| Err(Error::Refused { kind, message, hint: Some(hint.to_owned()) });
    if task.status.is_terminal() {
        return refused("task_ended", format!("{id} is {}: it takes no input", task.status), "start it anew");
    }
    if !task.interactive {
        return refused("not_interactive", format!("{id} takes no input"), "start it with --interactive");
    }
    refuse_elsewhere(&task)?;
    let mut said = text("TEXT", word, agent.policy()?.limits.max_message)?;
    if word.is_some_and(|word| word != "-" && !word.starts_with('@')) {
        said.push('\n');
    }
    let path = agent.dir().task_dir(id).join(layout::STDIN);
    supervisor::feed(&path, said.as_bytes(), session.patience().as_std())?;
    let object = json!({ "agent": agent.name(), "task_id": id, "bytes": said.len() });
    session.out.result(&object, |_| format!("wrote {} bytes", said.len()));
    Ok(Status::Done)
}

fn output(
    session: &mut Session,
    agent: &Agent<'_>,
    id: TaskId,
    log: &str,
    follow: bool,
    bytes: Option<u64>,
) -> Result<Status> {
    let mut log = Log::open(agent.dir().task_dir(id).join(log), bytes);
    loop {
        // In this order: what it said last is there before it counts as ended.
        let ended = read(agent, id)?.status.is_terminal();
        let text = log.news(ended || !follow)?;
        if session.out.is_json() {
            if !text.is_empty() || !follow {
                session.out.json_line(&json!({ "task_id": id, "text": text }));
            }
        } else {
            let text = session.out.safe(&text);
            session.out.raw(text.as_bytes());
        }
        session.out.flush();
        if ended || !follow || session.out.is_closed() {
            return Ok(Status::Done);
        }
        std::thread::sleep(FOLLOW_PAUSE);
    }
}
