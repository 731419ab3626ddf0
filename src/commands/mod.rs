//! One file or directory per command family, which builds a request from the arguments, passes the
//! request to the engine, and shows the result; no family imports another.

mod args;
mod completing;
mod create;
mod edit;
mod export;
mod history;
mod ingress;
mod inside;
mod inspect;
mod lifecycle;
mod messages;
mod monitor;
mod pages;
mod queue;
mod service;
mod sync;
mod task;
#[cfg(test)]
mod tests;
mod tick;
mod trigger;
mod upkeep;
mod watch;
mod work;

use crate::cli::{self, Cli, Color, Command, Global};
use crate::clock::Clock;
use crate::engine::context;
use crate::engine::session::{GlobalOptions, Session};
use crate::error::{Result, Status};
use crate::model::zone;
use crate::process::spawn;
use crate::report::output::{Output, Style};
use crate::store::Store;

pub use completing::complete;
pub use pages::refuse_usage;

/// Runs one command and returns its exit status after all output is written.
pub fn run(cli: Cli) -> Status {
    spawn::raise_limits();
    let out = Output::new(style(&cli.global));
    let command = match &cli.command {
        Some(Command::Pause(_)) => "stop",
        command => command.as_ref().map_or("", Command::name),
    };
    let (dir, patience) = (cli.global.dir.clone(), cli.global.lock_timeout);
    let session = match Clock::from_env() {
        Ok(clock) => Session::new(clock, out, GlobalOptions { command, dir, patience }),
        Err(error) => {
            out.failure(&error, None, None);
            return out.finish(error.exit_status());
        }
    };
    let done = match cli.command {
        Some(command) => dispatch(&session, command),
        None => inspect::overview(&session),
    };
    if done.is_ok()
        && !cli.global.json
        && let Some(problem) = zone::problem()
    {
        session.out.note(&format!("times are in UTC, because {problem}"));
    }
    let status = done.unwrap_or_else(|error| session.fail(error));
    context::notify_rest(&session);
    session.out.finish(status)
}

/// Returns the output settings of the command line.
fn style(global: &Global) -> Style {
    let color = match global.color {
        Color::Auto => None,
        Color::Always => Some(true),
        Color::Never => Some(false),
    };
    Style { json: global.json, quiet: global.quiet, verbose: global.verbose, color }
}

/// Turns a function that needs the store into one that opens the store first.
fn on_store<A>(
    run: impl FnOnce(&Session, &Store, A) -> Result<Status>,
) -> impl FnOnce(&Session, A) -> Result<Status> {
    |session, args| {
        let store = session.store()?;
        run(session, &store, args)
    }
}

macro_rules! dispatch {
    ($($purpose:literal { $($(#[$meta:meta])* $variant:ident($args:ty) = $name:literal => $run:expr,)* })*) => {
        fn dispatch(session: &Session, command: Command) -> Result<Status> {
            match command {
                $($(Command::$variant(args) => $run(session, args),)*)*
            }
        }
    };
}
cli::command_table!(dispatch);
