//! Supervisor of one task: a process that runs the command, waits for its end and commits the
//! result.

use std::ffi::OsString;
use std::fs::File;
use std::time::Duration;

use serde_json::json;

use crate::cli;
use crate::engine::context::Context;
use crate::engine::environment::{claimant, environment, set};
use crate::engine::monitor::{KILL_GRACE, LeaseKeeper, TaskMonitor};
use crate::engine::session::Session;
use crate::engine::task_input::InputReceiver;
use crate::engine::tasks::finish;
use crate::error::{Error, Result, Status};
use crate::model::id::TaskId;
use crate::model::policy::FirstTold;
use crate::model::run::Exit;
use crate::model::task::{Task, TaskEnd, TaskJob};
use crate::model::time::Span;
use crate::process::supervisor::{Seat, TaskInputPipe};
use crate::process::turn::{Nobody, Stdin, TurnResult, TurnSpec, run};
use crate::process::{FENCE, ProcessMark};
use crate::report::output::failure;
use crate::rules::transition::task::{self as rules, TaskEnding};
use crate::store::{Agent, Store, Subject};
use crate::workdir::{Dir, Stream};

use super::words::parse;

/// Maximum number of attempts to settle the task, one second apart: the lock may be busy, or the
/// disk full.
const SETTLEMENTS: u32 = 60;

/// Hidden command that `task start` runs.
pub fn supervise(session: &mut Session, args: cli::SuperviseArgs) -> Result<Status> {
    let begun = json!({ "agent": args.agent, "task_id": args.task, "begun": true });
    let is_json = session.out.is_json();
    let (mut seat, lock) = Seat::take(is_json.then(|| begun.to_string()))?;
    let done = session.store().and_then(|store| look_after(session, &store, &args, lock, &mut seat));
    if let Err(error) = &done {
        let why = if is_json { failure(error, Some(&args.agent)).to_string() } else { error.to_string() };
        seat.not_begun(&why);
    }
    done.map(|()| Status::Done)
}

fn look_after(
    session: &Session,
    store: &Store,
    args: &cli::SuperviseArgs,
    lock: File,
    seat: &mut Seat,
) -> Result<()> {
    let agent = store.agent(&parse("AGENT", &args.agent)?)?;
    let id: TaskId = parse("TASK", &args.task)?;
    // The lease is held until this process ends.
    let held = agent.inherited_lease(Subject::Task(id), lock, session.clock.now())?;
    let this = claimant(store)?;
    let task = Context::new(session, &agent).change(|draft| rules::run(draft, id, this))?.made;
    let end = match task {
        Some(task) => {
            let run = prepare(store, &agent, &task, held.fence()).and_then(|(spec, input)| {
                seat.begun();
                match input {
                    Some(input) => {
                        let hearing = InputReceiver::new(input, &agent, id);
                        run(&spec, &mut LeaseKeeper::new(TaskMonitor::new(hearing, &agent, id), &held))
                    }
                    None => run(&spec, &mut LeaseKeeper::new(TaskMonitor::new(Nobody, &agent, id), &held)),
                }
            });
            seen(session, run)
        }
        None => not_started(session, "it was stopped before it began".to_owned()),
    };
    // This is also sent if there is nothing to run, because it tells the process that started the
    // supervisor to continue.
    seat.begun();
    // This hint is for another process that settles the task. Without it the task counts as
    // interrupted.
    let _ = agent.workdir().task(id).note_end(&end);
    held.refuse_lost(&id.to_string())?;
    let mut tries = 1;
    loop {
        match finish(Context::new(session, &agent), id, TaskEnding::Seen(end.clone())) {
            Err(_) if tries < SETTLEMENTS => tries += 1,
            done => return done.map(drop),
        }
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// Returns the command of a task, and the pipe of its input, if it has one. `fence`: fencing token
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
    let dir = agent.workdir().task(task.id);
    dir.make()?;
    let (stdin, input) = stdin(task, &dir)?;
    let mut env = environment(agent, &policy, None);
    if let Some(fence) = fence {
        set(&mut env, FENCE, fence.to_string().into());
    }
    let spec = TurnSpec {
        argv: argv.iter().map(OsString::from).collect(),
        workdir: store.anchor().leads_to(&policy.turn.workdir),
        env,
        mark: ProcessMark::task(task.id),
        stdin,
        stdout: dir.stream(Stream::Stdout),
        stderr: dir.stream(Stream::Stderr),
        leader: dir.leader(),
        listener: None,
        max_output: policy.turn.max_output.0,
        timeout: task.timeout.map(Span::as_std),
        kill_grace: KILL_GRACE,
        first: FirstTold::Group,
    };
    Ok((spec, input))
}

fn stdin(task: &Task, dir: &Dir) -> Result<(Stdin, Option<TaskInputPipe>)> {
    if !task.interactive {
        return Ok((Stdin::Null, None));
    }
    let path = dir.stdin();
    let input = TaskInputPipe::make(&path)?;
    Ok((Stdin::Pipe(path), Some(input)))
}

fn seen(session: &Session, run: Result<TurnResult>) -> TaskEnd {
    match run {
        Ok(ended) => TaskEnd {
            exit: ended.exit,
            timed_out: ended.timed_out,
            cancelled_by: ended.cancelled_by,
            ended_at: session.clock.now(),
            stdout_bytes: ended.stdout.bytes,
            stderr_bytes: ended.stderr.bytes,
            last_line: ended.stdout.last_line.or(ended.stderr.last_line),
        },
        Err(error) => not_started(session, error.to_string()),
    }
}

fn not_started(session: &Session, error: String) -> TaskEnd {
    TaskEnd {
        exit: Exit::NotStarted { error },
        timed_out: false,
        cancelled_by: None,
        ended_at: session.clock.now(),
        stdout_bytes: 0,
        stderr_bytes: 0,
        last_line: None,
    }
}
