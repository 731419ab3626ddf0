//! Long-lived agents that live in a directory.
//!
//! To read this program, begin with `cli` (what can be said), then `app` (one file per command
//! family), then `rules` (what happens and when). `ARCHITECTURE.md` shows the rest of the house.

// What the shipped program never does: it ends by a value and not by a panic, prints through its output
// alone, and names every variant of an enum, so that the compiler finds each place when a new one comes.
#![cfg_attr(
    not(test),
    warn(
        clippy::dbg_macro,
        clippy::disallowed_methods,
        clippy::exit,
        clippy::expect_used,
        clippy::panic,
        clippy::print_stderr,
        clippy::print_stdout,
        clippy::todo,
        clippy::unimplemented,
        clippy::unreachable,
        clippy::unwrap_used,
        clippy::wildcard_enum_match_arm,
        clippy::wildcard_imports,
        unsafe_code
    )
)]

mod app;
mod beneath;
mod cli;
mod clock;
mod error;
mod model;
mod process;
mod report;
mod rules;
mod store;

use std::ffi::OsString;
use std::process::ExitCode;

fn main() -> ExitCode {
    let argv: Vec<OsString> = std::env::args_os().collect();
    match cli::Cli::read(&argv) {
        Ok(cli) => app::run(cli),
        Err(error) => app::refuse_usage(error),
    }
    .into()
}
