//! Output of commands: one file per subject, as text for people and as JSON Lines for scripts.

pub mod context;
pub mod dashboard;
pub mod explain;
pub mod list;
pub mod log;
pub mod metrics;
pub mod output;
pub mod progress;
pub mod prompt;
pub mod step;
pub mod summary;
pub mod text;
pub mod timeline;
pub mod trigger;
pub mod usage;
pub mod wait;
