//! One file per command family: load, decide by the rules, commit, act, report. The only glue.

mod admit;
mod ask;
mod attention;
mod authority;
mod awaiting;
mod background;
mod committing;
mod create;
mod delegate;
mod desk;
mod doctor;
mod drops;
mod due;
mod environment;
mod errand;
mod evidence;
mod foresee;
mod gate;
mod gc;
mod generated;
mod guests;
mod hooks;
mod inside;
mod inspect;
mod installed;
mod lifecycle;
mod litter;
mod load;
mod log;
mod lookup;
mod many;
mod merging;
mod next_wake;
mod outbox;
mod outcome;
mod oversee;
mod owner;
mod patience;
mod planes;
mod preempt;
mod queue;
mod recover;
mod rejected;
mod resources;
mod safe_point;
mod secret;
mod session;
mod static_text;
mod supervise;
mod tasks;
mod telling;
#[cfg(test)]
mod tests;
mod tick;
mod turn;
mod untold;
#[cfg(test)]
mod vocabulary;
mod words;

use std::io::Write;

use clap::error::ContextValue;

use crate::cli::{Cli, Command};
use crate::error::{Result, Status};
use crate::process::limits;
use crate::report::text::escape_line;

use session::Session;

/// Runs one command and returns its exit status; whatever is to be said has been said.
pub fn run(cli: Cli) -> Status {
    limits::make_room();
    let mut session = match Session::new(&cli.global, name(&cli.command)) {
        Ok(session) => session,
        Err(failed) => {
            let (mut out, error) = *failed;
            out.failure(&error, None, None);
            return out.finish(error.exit_status());
        }
    };
    let status = dispatch(&mut session, cli.command).unwrap_or_else(|error| {
        session.fail(&error);
        error.exit_status()
    });
    attention::tell_rest(&session);
    session.out.finish(status)
}

/// Says what is wrong with a command line, in JSON too where that was asked for. Help and version
/// come this way as well.
pub fn refuse_usage(error: clap::Error) -> Status {
    let is_mistake = error.use_stderr();
    let wants_json = std::env::args_os().take_while(|arg| arg != "--").any(|arg| arg == "--json");
    if is_mistake && wants_json {
        let text = error.render().to_string();
        // The first paragraph: what is missing stands below the line that says that something is.
        let said = text.lines().take_while(|line| !line.is_empty()).map(str::trim);
        let message = said.collect::<Vec<_>>().join(" ");
        let object = serde_json::json!({ "error": {
            "kind": "usage",
            "message": message.trim_start_matches("error: "),
            "exit_status": Status::Usage.code(),
        } });
        let _ = writeln!(std::io::stdout(), "{object}");
    }
    // A closed pipe is no reason to fail: whoever asked has seen enough.
    let _ = without_what_hides(error).print();
    if is_mistake { Status::Usage } else { Status::Done }
}

/// The same error, in which the words of the command line are fit to be shown.
fn without_what_hides(mut error: clap::Error) -> clap::Error {
    let shown = |word: &String| escape_line(word).into_owned();
    let quoted = error.context().filter_map(|(kind, value)| {
        if let ContextValue::String(word) = value {
            Some((kind, ContextValue::String(shown(word))))
        } else if let ContextValue::Strings(words) = value {
            Some((kind, ContextValue::Strings(words.iter().map(shown).collect())))
        } else {
            // What clap has made of our own declarations.
            None
        }
    });
    for (kind, value) in quoted.collect::<Vec<_>>() {
        error.insert(kind, value);
    }
    error
}

/// What those who wait for our locks are told.
fn name(command: &Command) -> &'static str {
    match command {
        Command::Init(_) => "init",
        Command::Create(_) => "create",
        Command::Start(_) => "start",
        Command::Resume(_) => "resume",
        Command::Preempt(_) => "preempt",
        Command::Fail(_) => "fail",
        Command::SafePoint(_) => "safe-point",
        Command::Checkpoint(_) => "checkpoint",
        Command::Yield(_) => "yield",
        Command::NonPreemptible(_) => "non-preemptible",
        Command::Stop(_) | Command::Pause(_) => "stop",
        Command::Enqueue(_) => "enqueue",
        Command::Ask(_) => "ask",
        Command::Wake(_) => "wake",
        Command::Tick(_) => "tick",
        Command::Get(_) => "get",
        Command::List(_) => "list",
        Command::Explain(_) => "explain",
        Command::State(_) => "state",
        Command::Await(_) => "await",
        Command::NextWake(_) => "next-wake",
        Command::Queue(_) => "queue",
        Command::Work(_) => "work",
        Command::Wait(_) => "wait",
        Command::Timer(_) => "timer",
        Command::Task(_) => "task",
        Command::Supervise(_) => "supervise",
        Command::Run(_) => "run",
        Command::Briefs(_) => "briefs",
        Command::Events(_) => "events",
        Command::Recover(_) => "recover",
        Command::Doctor(_) => "doctor",
        Command::Gc(_) => "gc",
        Command::MergeDriver(_) => "merge-driver",
        Command::Schema(_) => "schema",
        Command::Completions(_) => "completions",
        Command::Man(_) => "man",
    }
}

fn dispatch(session: &mut Session, command: Command) -> Result<Status> {
    match command {
        Command::Init(args) => create::init(session, args),
        Command::Create(args) => create::create(session, args),
        Command::Start(args) => lifecycle::start(session, args),
        Command::Stop(args) => lifecycle::stop(session, args),
        Command::Pause(args) => {
            session.out.note("`pause` is deprecated: there is no pause, this is `stop`");
            lifecycle::stop(session, args)
        }
        Command::Preempt(args) => preempt::preempt(session, args),
        Command::Resume(args) => preempt::resume(session, args),
        Command::Fail(args) => lifecycle::fail(session, args),
        Command::SafePoint(args) => safe_point::safe_point(session, args),
        Command::Checkpoint(args) => inside::checkpoint(session, args),
        Command::Yield(args) => inside::give_way(session, args),
        Command::NonPreemptible(args) => inside::non_preemptible(session, args),
        Command::Enqueue(args) => admit::enqueue(session, args),
        Command::Ask(args) => ask::ask(session, args),
        Command::Wake(args) => admit::wake(session, args),
        Command::Tick(args) => tick::tick(session, args),
        Command::Get(args) => inspect::get(session, args),
        Command::List(args) => inspect::list(session, args),
        Command::Explain(args) => inspect::explain(session, args),
        Command::State(args) => inspect::state(session, args),
        Command::Await(args) => awaiting::wait_until(session, args),
        Command::NextWake(args) => next_wake::next_wake(session, args),
        Command::Work(args) => planes::work(session, args.command),
        Command::Wait(args) => planes::wait(session, args),
        Command::Timer(args) => planes::timer(session, args.command),
        Command::Task(args) => tasks::task(session, args.command),
        Command::Supervise(args) => supervise::supervise(session, args),
        Command::Queue(args) => queue::queue(session, args.command),
        Command::Run(args) => evidence::run(session, args.command),
        Command::Briefs(args) => evidence::briefs(session, args),
        Command::Events(args) => evidence::events(session, args),
        Command::Recover(args) => recover::recover(session, args),
        Command::Doctor(args) => doctor::doctor(session, args),
        Command::Gc(args) => gc::gc(session, args),
        Command::MergeDriver(args) => merging::merge_driver(session, args),
        Command::Schema(args) => static_text::schema(session, args),
        Command::Completions(args) => static_text::completions(session, args),
        Command::Man(args) => static_text::man(session, args),
    }
}
