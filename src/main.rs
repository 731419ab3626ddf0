//! Long-lived agents that live in a directory.
//!
//! To read this program, begin with `cli` (what can be said), then `app` (one file per command
//! family), then `rules` (what happens and when). `ARCHITECTURE.md` shows the rest of the house.

mod app;
mod cli;
mod clock;
mod error;
mod model;
mod process;
mod report;
mod rules;
mod store;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    match cli::Cli::try_parse() {
        Ok(cli) => app::run(cli),
        Err(error) => app::refuse_usage(&error),
    }
    .into()
}
