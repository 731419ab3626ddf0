//! Output of commands: one file per subject, as text for people and as JSON Lines for scripts.

pub mod chronicle;
pub mod context;
pub mod explain;
pub mod list;
pub mod log;
pub mod metrics;
pub mod output;
pub mod panel;
pub mod progress;
pub mod prompt;
pub mod step;
pub mod summary;
pub mod text;
pub mod trigger;
pub mod usage;
pub mod wait;
