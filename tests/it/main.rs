//! The integration tests: one binary, one file per command family or danger.
//!
//! A reading order:
//!
//! 1. `harness` (a directory for each test, and how a command is run), `setup` (agents as tests need them),
//!    `checker` (a second check of records).
//! 2. What one command does: `lifecycle`, `making`, `editing`, `messages`, `tick`, `turns`, `planes`, `tasks`, `triggers`, `ingress`, `hooks`,
//!    `inspect`, `doctor`, `verdicts`, `following`, `services`, `metrics`, `usage`, `naming`, `logs`, `listing`, `progress`, `reported`, `watching`, `written`; then the file of whatever you change.
//! 3. What two parts do to each other: `edges`, `stop`, `preemption`, `slots`, `delegation`, `silence`, and `model`,
//!    which runs a reference beside the program.
//! 4. What machines do: `strace` and `held` (a command at one of its system calls), `scenarios`, `crash`, `faults`,
//!    `power`, `limits`, `effects`, `concurrency`.
//! 5. What other programs and users put there, and how much of it: `backlog`, `drops`, `rejected`, `sharing`, `owners`, `scratch`, `clones`, `copies`, `git_sync`, `git_push`, `git_merges`, `replays`, `hostile`, `shown`, `fuzz`.
//! 6. Everything at once: `storm`, and on several machines `fleet_chaos`.
//! 7. What holds of the project itself: `tidy`, `docs`, `examples`, `outside`, `packaging`, `pasting`, `format`, `cost`.

#[macro_use]
mod needs;

mod asking;
mod attempts;
mod attention;
mod authority;
mod awaiting;
#[cfg(target_os = "linux")]
mod backlog;
#[cfg(target_os = "linux")]
mod beginning;
#[cfg(target_os = "linux")]
mod checker;
mod clock;
mod clones;
mod committing;
#[cfg(target_os = "linux")]
#[cfg(target_os = "linux")]
mod completions;
mod concurrency;
#[cfg(target_os = "linux")]
mod copies;
#[cfg(target_os = "linux")]
mod cost;
#[cfg(target_os = "linux")]
mod crash;
mod cutting;
mod deferrals;
mod delegation;
mod docs;
mod doctor;
mod drops;
mod edges;
mod editing;
#[cfg(target_os = "linux")]
mod effects;
mod elsewhere;
mod examples;
#[cfg(target_os = "linux")]
mod faults;
#[cfg(target_os = "linux")]
mod fleet;
#[cfg(target_os = "linux")]
mod fleet_chaos;
mod fleet_cuts;
mod fleet_defaults;
mod fleet_pools;
mod fleet_roles;
mod fleet_slots;
mod fleet_tasks;
mod fleet_travel;
mod fleet_triggers;
mod fleet_trouble;
mod fleet_watching;
mod fleet_workers;
mod following;
#[cfg(target_os = "linux")]
mod foresight;
mod format;
#[cfg(target_os = "linux")]
mod fuzz;
mod gc;
mod git_kills;
mod git_merges;
mod git_push;
mod git_races;
mod git_sync;
mod guests;
mod harness;
mod held;
mod hooks;
#[cfg(target_os = "linux")]
mod hostile;
mod ingress;
mod inspect;
#[cfg(target_os = "linux")]
mod journal;
mod leavings;
mod lifecycle;
#[cfg(target_os = "linux")]
mod limits;
mod listing;
#[cfg(target_os = "linux")]
mod litter;
#[cfg(target_os = "linux")]
mod logs;
#[cfg(target_os = "linux")]
mod looking;
mod making;
mod manners;
mod messages;
#[cfg(target_os = "linux")]
mod metrics;
mod mistakes;
#[cfg(target_os = "linux")]
mod model;
#[cfg(target_os = "linux")]
mod moments;
mod naming;
mod output;
#[cfg(target_os = "linux")]
mod outside;
#[cfg(target_os = "linux")]
mod owners;
mod packaging;
mod pasting;
mod permissions;
mod planes;
#[cfg(target_os = "linux")]
mod power;
mod preemption;
mod progress;
mod questions;
#[cfg(target_os = "linux")]
mod rejected;
#[cfg(target_os = "linux")]
mod remotes;
mod removing;
mod renaming;
mod replays;
mod reported;
#[cfg(target_os = "linux")]
mod resources;
#[cfg(target_os = "linux")]
mod scenarios;
#[cfg(target_os = "linux")]
mod scratch;
mod secrets;
mod server;
mod services;
mod setup;
mod several;
#[cfg(target_os = "linux")]
mod sharing;
mod shown;
#[cfg(target_os = "linux")]
mod signals;
mod silence;
#[cfg(target_os = "linux")]
mod slots;
#[cfg(target_os = "linux")]
mod stop;
#[cfg(target_os = "linux")]
mod storm;
#[cfg(target_os = "linux")]
mod strace;
mod summary;
#[cfg(target_os = "linux")]
mod tasks;
#[cfg(target_os = "linux")]
mod telling;
#[cfg(target_os = "linux")]
mod templates;
mod tick;
mod tidy;
mod timeouts;
#[cfg(target_os = "linux")]
mod travel;
mod triggers;
mod turns;
mod usage;
mod verdicts;
#[cfg(target_os = "linux")]
mod waking;
mod watching;
#[cfg(target_os = "linux")]
mod written;
