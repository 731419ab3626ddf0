//! Command `task`: background tasks, and their supervisor process (contract, semantics §12).

use std::ffi::OsString;
use std::fs::File;
use std::time::Duration;

use serde_json::json;

use crate::cli::{self, AgentAndText, AgentFlag, CommandGroup, RecordArg, TaskCommand, TaskStartArgs};
use crate::engine::authority;
use crate::engine::context::Context;
use crate::engine::effects::Effect;
use crate::engine::environment::{claimant, environment};
use crate::engine::follow::print_output;
use crate::engine::monitor::{KILL_GRACE, LeaseKeeper, of_task};
use crate::engine::owner::{away_task, out_of_reach};
use crate::engine::session::Session;
use crate::engine::stop::stop_tasks;
use crate::engine::tasks::{self, TaskAction, finish};
use crate::error::{Error, Result, Status};
use crate::local::{Subject, workdir::Stream};
use crate::model::action::TaskRequest;
use crate::model::bound::Bound;
use crate::model::id::{AgentName, TaskId};
use crate::model::place::Away;
use crate::model::policy::EndOrder;
use crate::model::run::Exit;
use crate::model::task::{Task, TaskEnd, TaskJob, TaskStatus};
use crate::model::time::Span;
use crate::model::wait::Wait;
use crate::model::work::WorkItem;
use crate::process::supervisor::{self, StartReport, TaskInputPipe};
use crate::process::turn::{Stdin, TurnResult, TurnSpec, run};
use crate::process::{ProcessMark, TASK};
use crate::report::output::{Output, Tone, failure};
use crate::report::text::one_line;
use crate::rules::transition::task::{self as rules, TaskEnding};
use crate::store::{Agent, Store};

use super::args::{
    agent_and_text, answer, each_listed, ended_records, find_any, open_id, optional_text, parse_optional,
    read_record, requester, required_agent, settings, text,
};

pub fn task(session: &Session, store: &Store, args: CommandGroup<TaskCommand>) -> Result<Status> {
    match args.command {
        TaskCommand::Start(args) => {
            let (name, text) = agent_and_message(&args)?;
            let agent = store.agent(&name)?;
            authority::reach_records(Context::new(session, &agent), "start a task of")?;
            start(Context::new(session, &agent), args, text)
        }
        TaskCommand::List { agents, ended } => {
            each_listed(session, store, &agents, |context| list(context, ended))
        }
        TaskCommand::Status(task) => {
            let (agent, id) = find_any::<Task>(store, &task)?;
            let task: Task = read_record(&agent, id)?;
            let mut waits = agent.read(|seen, _| seen.open::<Wait>())?;
            waits.retain(|wait| wait.is_active() && wait.task_id() == Some(task.id));
            let mut object = json!(task);
            object["waits"] = waits.iter().map(|wait| json!(wait.id)).collect();
            answer(session, &object, |out| {
                let waits = waits.iter().map(|wait| {
                    let owner = wait.work_item_id.map_or_else(|| "the agent".to_owned(), |id| id.to_string());
                    let reason = out.safe(&one_line(&wait.reason, 80));
                    format!("\n  {} of {owner} waits for it: {reason}", wait.id)
                });
                line(&task, out) + &waits.collect::<String>()
            })
        }
        TaskCommand::Output { task, stderr, follow, bytes } => {
            let (agent, id) = find_any::<Task>(store, &task)?;
            let stream = if stderr { Stream::Stderr } else { Stream::Stdout };
            let dir = agent.local().task(id);
            let object = |text: &str| json!({ "task_id": id, "text": text });
            let has_ended = || Ok(read_record::<Task>(&agent, id)?.status.is_terminal());
            let context = Context::new(session, &agent);
            print_output(context, (&dir, stream, bytes), follow, object, has_ended)
        }
        TaskCommand::Input { id, agent, text } => {
            let (agent, id) = find_any::<Task>(store, &RecordArg { id, agent })?;
            authority::reach_records(Context::new(session, &agent), "speak to a task of")?;
            input(Context::new(session, &agent), id, text.as_deref())
        }
        TaskCommand::Stop { task, grace, force } => {
            let (agent, id) = find_any::<Task>(store, &task)?;
            authority::reach_records(Context::new(session, &agent), "stop a task of")?;
            stop(Context::new(session, &agent), id, grace, force)
        }
    }
}

/// Returns the agent of `task start`, and the message for a child. Without --delegate, the only
/// positional argument is the agent.
fn agent_and_message(args: &TaskStartArgs) -> Result<(AgentName, Option<String>)> {
    let AgentAndText { words, agent } = &args.said;
    if args.delegate.is_some() {
        return agent_and_text(AgentAndText { words: words.clone(), agent: agent.clone() });
    }
    if let [_, text, ..] = words.as_slice() {
        return Err(Error::usage(format!("`{text}`: a command takes no text"))
            .with_hint("put its arguments after `--`; --delegate CHILD sends a text to a child"));
    }
    let word = parse_optional("--agent", words.first().map(String::as_str))?;
    let agent = AgentFlag { word, agent: agent.clone() };
    Ok((required_agent(&agent)?, None))
}

/// Checks the flags of `task start`, and resolves ids and files in them. Returns the request, and
/// the `agent.toml` of a child.
fn wanted(agent: &Agent<'_>, args: TaskStartArgs, message: Option<String>) -> Result<(TaskRequest, String)> {
    let work_item_id = open_id::<WorkItem>(agent, args.work_item.as_deref())?;
    let (mut policy, mut said) = (String::new(), None);
    if let Some(child) = &args.delegate {
        policy = args.from.as_ref().map_or_else(|| agent.policy_text(), |path| settings("--from", path))?;
        tasks::check(agent.store(), agent.name(), child, &policy)?;
        let bound = Bound::message("the text", agent.policy()?.limits.max_message);
        said = Some(text("TEXT", message.as_deref(), &bound)?);
    }
    let new = TaskRequest {
        command: args.command,
        delegate: args.delegate,
        text: said,
        summary: optional_text("--summary", args.summary)?,
        work_item_id,
        notify: !args.no_notify,
        interactive: args.interactive,
        timeout: args.timeout,
    };
    Ok((new, policy))
}

fn line(task: &Task, out: &Output) -> String {
    let status = match task.status {
        TaskStatus::Completed => out.paint(Tone::Good, task.status.name()),
        TaskStatus::Failed | TaskStatus::Interrupted => out.paint(Tone::Bad, task.status.name()),
        TaskStatus::Queued | TaskStatus::Running | TaskStatus::Cancelling | TaskStatus::Cancelled => {
            task.status.to_string()
        }
    };
    let why = task.reason.clone().or(task.exit.as_ref().map(Exit::to_string));
    let why = why.map(|why| format!(" ({why})")).unwrap_or_default();
    format!("{}  {status}{}  {}", task.id, out.safe(&why), out.safe(&one_line(&task.purpose(), 80)))
}

fn show(session: &Session, task: &Task) {
    session.out.result(task, |out| line(task, out));
}

fn list(Context { session, agent }: Context<'_>, ended: bool) -> Result<Status> {
    let tasks = agent.read(|seen, _| if ended { ended_records(&seen) } else { seen.open::<Task>() })?;
    for task in &tasks {
        show(session, task);
    }
    Ok(Status::Done)
}

fn start(context: Context<'_>, args: TaskStartArgs, text: Option<String>) -> Result<Status> {
    let Context { session, agent } = context;
    let (new, policy) = wanted(agent, args, text)?;
    let (by, at) = (requester(context)?, claimant(agent.store())?);
    let task = context.change(|draft| rules::start(draft, new, by, policy, at))?.made;
    match &task.job {
        TaskJob::Command { .. } => tasks::begin(context, task.id)?,
        // The delegation is committed, so a later step retries a failed delivery.
        TaskJob::ChildAgent { .. } => {
            context.run_effects([Effect::Task(Box::new(task.clone()), TaskAction::HandOver)])?;
        }
    }
    let task: Task = read_record(agent, task.id)?;
    answer(session, &task, |_| task.id.to_string())
}

/// Ends a task. `force`: abandons a task of another machine or state directory instead.
fn stop(context: Context<'_>, id: TaskId, grace: Span, force: bool) -> Result<Status> {
    let Context { session, agent } = context;
    let mut task: Task = read_record(agent, id)?;
    let away = if force { away_task(agent, &task, session.clock.now())? } else { None };
    if let Some(away) = away.filter(|_| !task.status.is_terminal()) {
        tasks::give_up(context, id, &away)?;
        task = read_record(agent, id)?;
    }
    if !task.status.is_terminal() {
        refuse_elsewhere(&task, out_of_reach(agent, &task, session.clock.now())?)?;
        if std::env::var(TASK).is_ok_and(|own| own.parse() == Ok(id)) {
            return Err(Error::refused("own_task", format!("this is {id} itself: it can't stop itself"))
                .with_hint("end the command; that ends the task"));
        }
        stop_tasks(context, std::slice::from_ref(&task), grace)?;
    }
    let task: Task = read_record(agent, id)?;
    show(session, &task);
    Ok(Status::Done)
}

fn refuse_elsewhere(task: &Task, away: Option<Away>) -> Result<()> {
    let Some(away) = away else { return Ok(()) };
    let (kind, hint) = match away {
        Away::Machine { .. } => (
            "task_on_another_host",
            "do this there; if that host is gone for good: `dormouse task stop --force`",
        ),
        Away::Directory { .. } => (
            "task_elsewhere",
            "do this there; `dormouse task stop --force` counts it as lost here and leaves it alone",
        ),
    };
    Err(Error::refused(kind, format!("{} runs {away}", task.id)).with_hint(hint))
}

fn input(Context { session, agent }: Context<'_>, id: TaskId, word: Option<&str>) -> Result<Status> {
    let task: Task = read_record(agent, id)?;
    let refused = |kind, message, hint: &str| Err(Error::refused(kind, message).with_hint(hint));
    if task.status.is_terminal() {
        return refused(
            "task_ended",
            format!("{id} is {}: it takes no input", task.status),
            "start it again",
        );
    }
    if !task.interactive {
        return refused("not_interactive", format!("{id} takes no input"), "start it with --interactive");
    }
    refuse_elsewhere(&task, away_task(agent, &task, session.clock.now())?)?;
    let mut text = text("TEXT", word, &Bound::message("the input", agent.policy()?.limits.max_message))?;
    if word.is_some_and(|word| word != "-" && !word.starts_with('@')) {
        text.push('\n');
    }
    let path = agent.local().task(id).stdin();
    supervisor::feed(&path, text.as_bytes(), session.patience().as_std())?;
    let object = json!({ "agent": agent.name(), "task_id": id, "bytes": text.len() });
    answer(session, &object, |_| format!("wrote {} bytes", text.len()))
}

/// Maximum number of attempts to settle the task, one second apart. An attempt fails if the agent's
/// lock is busy or the disk is full.
const SETTLEMENTS: u32 = 60;

/// Supervises one task. `task start` runs this hidden command.
pub fn supervise(session: &Session, args: cli::SuperviseArgs) -> Result<Status> {
    let begun = json!({ "agent": args.agent, "task_id": args.task, "begun": true });
    let is_json = session.out.is_json();
    let (mut start, lock) = StartReport::take(is_json.then(|| begun.to_string()))?;
    let done = session.store().and_then(|store| run_supervised(session, &store, &args, lock, &mut start));
    if let Err(error) = &done {
        let why =
            if is_json { failure(error, Some(args.agent.as_str())).to_string() } else { error.to_string() };
        start.report(&why);
    }
    done.map(|()| Status::Done)
}

fn run_supervised(
    session: &Session,
    store: &Store,
    args: &cli::SuperviseArgs,
    lock: File,
    start: &mut StartReport,
) -> Result<()> {
    let (agent, id) = (store.agent(&args.agent)?, args.task);
    // The lease keeps other processes from settling the task while this process lives.
    let held = agent.inherited_lease(Subject::Task(id), lock, session.clock.now())?;
    let (context, this) = (Context::new(session, &agent), claimant(store)?);
    let task = context.change(|draft| rules::run(draft, id, this))?.made;
    let end = match task {
        Some(task) => {
            let run = prepare(store, &agent, &task, held.fence()).and_then(|(spec, input)| {
                start.begun();
                run(&spec, &mut (LeaseKeeper(Some(&held)), (of_task(context, id, held.fence()), input)))
            });
            task_end(session, run)
        }
        None => task_end(session, Err(Error::failed("it was stopped before it began"))),
    };
    // The process that started this supervisor waits for this report, even if no command runs.
    start.begun();
    // If this process dies, another one settles the task by this file. Without the file the task
    // counts as interrupted.
    let _ = agent.local().task(id).write_end(&end);
    held.refuse_lost(&id.to_string())?;
    let mut tries = 1;
    loop {
        match finish(context, id, TaskEnding::Seen(end.clone())) {
            Err(_) if tries < SETTLEMENTS => tries += 1,
            done => return done.map(drop),
        }
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// Returns the command of a task, and the input pipe of an interactive task. `fence`: fencing token
/// of the task's lease in a database.
fn prepare(
    store: &Store,
    agent: &Agent<'_>,
    task: &Task,
    fence: Option<u64>,
) -> Result<(TurnSpec, Option<TaskInputPipe>)> {
    let TaskJob::Command { argv } = &task.job else {
        return Err(Error::failed(format!("{} is no command", task.id)));
    };
    let policy = agent.policy()?;
    let dir = agent.local().task(task.id);
    dir.cap.make_dirs()?;
    let (stdin, input) = match task.interactive {
        true => (Stdin::Pipe(dir.stdin()), Some(TaskInputPipe::make(&dir.stdin())?)),
        false => (Stdin::Null, None),
    };
    let spec = TurnSpec {
        argv: argv.iter().map(OsString::from).collect(),
        workdir: store.anchor().leads_to(&policy.turn.workdir),
        env: environment(agent, &policy, None, fence),
        mark: ProcessMark::task(task.id),
        stdin,
        stdout: dir.stream(Stream::Stdout),
        stderr: dir.stream(Stream::Stderr),
        leader: dir.leader(),
        listener: None,
        max_output: policy.turn.max_output.0,
        timeout: task.timeout.map(Span::as_std),
        kill_grace: KILL_GRACE,
        first: EndOrder::Group,
    };
    Ok((spec, input))
}

fn task_end(session: &Session, run: Result<TurnResult>) -> TaskEnd {
    let ended = run.unwrap_or_else(|error| TurnResult::not_started(error.to_string(), None, Duration::ZERO));
    ended.faults().for_each(|fault| session.out.note(&format!("a part of the output is lost: {fault}")));
    TaskEnd {
        exit: ended.exit,
        timed_out: ended.timed_out,
        cancelled_by: ended.cancelled_by,
        ended_at: session.clock.now(),
        stdout_bytes: ended.stdout.bytes,
        stderr_bytes: ended.stderr.bytes,
        last_line: ended.stdout.last_line.or(ended.stderr.last_line),
    }
}
