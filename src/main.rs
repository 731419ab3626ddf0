//! Long-lived agents that live in a directory.
//!
//! To read this program, begin with `cli` (what a user can ask for), then `commands` (one file per
//! command family), `engine` (a step) and `rules` (what happens and when). `ARCHITECTURE.md`
//! describes the other modules.

// Rules of the shipped program: it never panics, it prints only through its `Output`, and its
// matches name every variant, so that the compiler points at each of them when a variant is added.
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

#[cfg(not(target_os = "linux"))]
compile_error!("dormouse needs Linux");

#[cfg(all(test, feature = "postgres"))]
#[macro_use]
#[path = "../tests/it/missing_tools.rs"]
mod missing_tools;
#[cfg(test)]
mod alone;
mod cap_fs;
mod cli;
mod clock;
mod commands;
mod engine;
mod error;
mod http;
mod local;
mod model;
mod process;
mod report;
mod rules;
mod store;

use std::ffi::OsString;
use std::process::ExitCode;

fn main() -> ExitCode {
    let argv: Vec<OsString> = std::env::args_os().collect();
    if let Some(shell) = std::env::var_os(cli::COMPLETES) {
        return commands::complete(&argv, &shell).into();
    }
    match cli::Cli::read(&argv) {
        Ok(cli) => commands::run(cli),
        Err(error) => commands::refuse_usage(error),
    }
    .into()
}
