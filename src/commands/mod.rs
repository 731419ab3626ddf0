//! One file or directory per command family. A command builds a request from its arguments, passes
//! it to the engine, and shows the result. No family imports another.

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

use std::io::Write;

use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::cli::{self, Cli, Color, Command, Global};
use crate::clock::Clock;
use crate::engine::notifications;
use crate::engine::session::{GlobalOptions, Session};
use crate::error::{Error, Result, Status};
use crate::model::id::Malformed;
use crate::model::zone;
use crate::process::{limits, signals};
use crate::report::output::{Output, Style};
use crate::report::progress;
use crate::report::text::escape_line;

pub use completing::complete;

/// Runs one command and returns its exit status. All output has been written.
pub fn run(cli: Cli) -> Status {
    limits::make_room();
    // Without the signal handler a progress line stays behind, which is no reason to fail.
    progress::before_drawing(|| drop(signals::before_end(progress::erase)));
    let mut out = Output::new(style(&cli.global));
    let mut session = match said(&cli) {
        Ok((clock, said)) => Session::new(clock, out, said),
        Err(error) => {
            out.failure(&error, None, None);
            return out.finish(error.exit_status());
        }
    };
    let done = match cli.command {
        Some(command) => dispatch(&mut session, command),
        None => inspect::overview(&mut session),
    };
    if done.is_ok()
        && !cli.global.json
        && let Some(problem) = zone::problem()
    {
        session.out.note(&format!("times are in UTC, because {problem}"));
    }
    let status = done.unwrap_or_else(|error| session.fail(error));
    notifications::tell_rest(&session);
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

/// Returns the settings from the environment and the global flags.
fn said(cli: &Cli) -> Result<(Clock, GlobalOptions)> {
    let clock = Clock::from_env()?;
    let command = match &cli.command {
        Some(Command::Pause(_)) => "stop",
        command => command.as_ref().map_or("", Command::name),
    };
    Ok((clock, GlobalOptions { command, dir: cli.global.dir.clone(), patience: cli.global.lock_timeout }))
}

/// Shows an error of the command line, in JSON with --json. Help and version arrive as errors, too.
pub fn refuse_usage(error: clap::Error) -> Status {
    let wants_json = std::env::args_os().take_while(|arg| arg != "--").any(|arg| arg == "--json");
    if let Some(error) = malformed_word(&error) {
        let mut out = Output::new(Style { json: wants_json, quiet: false, verbose: false, color: None });
        out.failure(&error, None, None);
        return out.finish(Status::Usage);
    }
    let error = with_tip_for_names(without_hidden_commands(error));
    let is_mistake = error.use_stderr();
    if is_mistake && wants_json {
        let text = error.render().to_string();
        // The first paragraph: clap lists missing arguments below its message.
        let said = text.lines().take_while(|line| !line.is_empty()).map(str::trim);
        let message = said.collect::<Vec<_>>().join(" ");
        let mut object = serde_json::json!({ "error": {
            "kind": "usage",
            "message": message.trim_start_matches("error: "),
            "exit_status": Status::Usage.code(),
        } });
        let near = nearest(&error);
        if !near.is_empty() {
            object["error"]["hint"] = format!("did you mean {}?", near.join(" or ")).into();
        } else if is_name_for_list(&error) {
            object["error"]["hint"] = ONE_AGENT.into();
        }
        let _ = writeln!(std::io::stdout(), "{object}");
    }
    let error = if error.kind() == ErrorKind::DisplayHelp { pages::with_examples(error) } else { error };
    // A closed pipe is no failure, because the reader has read enough.
    let _ = without_what_hides(error).print();
    if is_mistake { Status::Usage } else { Status::Done }
}

/// Returns the error for a duration, a name or an id that is none.
fn malformed_word(error: &clap::Error) -> Option<Error> {
    let reason = std::error::Error::source(error)?.downcast_ref::<Malformed>()?;
    let Some(ContextValue::String(arg)) = error.get(ContextKind::InvalidArg) else { return None };
    // The name of an option is followed by that of its value.
    let name = arg.split_whitespace().next()?.trim_matches(['<', '>', '[', ']', '.']);
    Some(Error::in_word(name, reason))
}

/// Hint for an agent's name after `list`.
const ONE_AGENT: &str = "`dormouse get NAME` shows one agent";

/// True if the error is a positional argument of `list`, which takes none.
fn is_name_for_list(error: &clap::Error) -> bool {
    let is_word = matches!(error.get(ContextKind::InvalidArg),
        Some(ContextValue::String(word)) if !word.starts_with('-'));
    let is_list = matches!(error.get(ContextKind::Usage),
        Some(ContextValue::StyledStr(usage)) if usage.to_string().contains("dormouse list"));
    error.kind() == ErrorKind::UnknownArgument && is_word && is_list
}

fn with_tip_for_names(mut error: clap::Error) -> clap::Error {
    if is_name_for_list(&error) {
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![ONE_AGENT.into()]));
    }
    error
}

/// Removes suggestions of hidden commands.
fn without_hidden_commands(mut error: clap::Error) -> clap::Error {
    let Some(ContextValue::Strings(words)) = error.get(ContextKind::SuggestedSubcommand) else {
        return error;
    };
    let program = Cli::command();
    let is_shown = |word: &&String| !program.find_subcommand(word).is_some_and(clap::Command::is_hide_set);
    let shown: Vec<String> = words.iter().filter(is_shown).cloned().collect();
    if shown.is_empty() {
        error.remove(ContextKind::SuggestedSubcommand);
    } else {
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(shown));
    }
    error
}

/// Returns the known words that are nearest to an unknown one.
fn nearest(error: &clap::Error) -> Vec<String> {
    let suggested =
        [ContextKind::SuggestedSubcommand, ContextKind::SuggestedArg, ContextKind::SuggestedValue];
    let words = |kind| {
        if let Some(ContextValue::String(word)) = error.get(kind) {
            vec![word.clone()]
        } else if let Some(ContextValue::Strings(words)) = error.get(kind) {
            words.clone()
        } else {
            Vec::new()
        }
    };
    suggested.into_iter().flat_map(words).map(|word| format!("`{word}`")).collect()
}

/// Escapes the words of the command line in the error.
fn without_what_hides(mut error: clap::Error) -> clap::Error {
    let shown = |word: &String| escape_line(word).into_owned();
    let quoted = error.context().filter_map(|(kind, value)| {
        if let ContextValue::String(word) = value {
            Some((kind, ContextValue::String(shown(word))))
        } else if let ContextValue::Strings(words) = value {
            Some((kind, ContextValue::Strings(words.iter().map(shown).collect())))
        } else {
            // All other contexts come from our own declarations.
            None
        }
    });
    for (kind, value) in quoted.collect::<Vec<_>>() {
        error.insert(kind, value);
    }
    error
}

macro_rules! dispatch {
    ($($(#[$meta:meta])* $variant:ident($args:ty) = $name:literal => $run:path,)*) => {
        fn dispatch(session: &mut Session, command: Command) -> Result<Status> {
            match command {
                $(Command::$variant(args) => $run(session, args),)*
            }
        }
    };
}
cli::command_table!(dispatch);
