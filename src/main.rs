//! Long-lived agents that live in a directory.
//!
//! To read this program, begin with `cli` (what can be said), then `app` (one file per command
//! family), then `rules` (what happens and when). `ARCHITECTURE.md` shows the rest of the house.

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
