//! Integration tests: one binary, with one file for each command family or danger.
//!
//! A reading order:
//!
//! 1. Shared parts: `harness` (a directory for each test, and running a command), `setup` (agents
//!    and helpers), `checker` (an independent check of records).
//! 2. Single commands: `lifecycle`, `making`, `editing`, `messages`, `tick`, `turns`, `planes`,
//!    `tasks`, `triggers`, `ingress`, `hooks`, `inspect`, `doctor`, `verdicts`, `following`,
//!    `services`, `metrics`, `usage`, `naming`, `logs`, `listing`, `progress`, `reported`,
//!    `watching`, `written`.
//! 3. Combinations of parts: `edges`, `stop`, `preemption`, `slots`, `delegation`, `silence`, and
//!    `model`, which compares the program with a reference model.
//! 4. Faults of the machine: `strace` and `held` (stop a command at a system call), `scenarios`,
//!    `crash`, `faults`, `power`, `limits`, `effects`, `concurrency`.
//! 5. Other programs and users: `backlog`, `drops`, `rejected`, `sharing`, `owners`, `scratch`,
//!    `clones`, `copies`, `git_sync`, `git_push`, `git_merges`, `replays`, `hostile`, `shown`,
//!    `fuzz`.
//! 6. Everything at once: `storm`, and on several machines `fleet_chaos`.
//! 7. Rules of the project itself: `tidy`, `docs`, `examples`, `outside`, `packaging`, `pasting`,
//!    `format`, `cost`.

#[macro_use]
mod needs;

mod asking;
mod attempts;
mod attention;
mod authority;
mod awaiting;
mod backlog;
mod beginning;
mod checker;
mod clock;
mod clones;
mod command_lists;
mod committing;
mod completions;
mod concurrency;
mod copies;
mod cost;
mod crash;
mod cutting;
mod deferrals;
mod delegation;
mod docs;
mod doctor;
mod drops;
mod edges;
mod editing;
mod effects;
mod elsewhere;
mod examples;
mod faults;
mod fleet;
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
mod foresight;
mod format;
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
mod hostile;
mod ingress;
mod inspect;
mod journal;
mod leavings;
mod lifecycle;
mod limits;
mod listing;
mod litter;
mod logs;
mod looking;
mod making;
mod manners;
mod messages;
mod metrics;
mod mistakes;
mod model;
mod moments;
mod naming;
mod output;
mod outside;
mod owners;
mod packaging;
mod pasting;
mod permissions;
mod planes;
mod power;
mod preemption;
mod progress;
mod questions;
mod rejected;
mod remotes;
mod removing;
mod renaming;
mod replays;
mod reported;
mod resources;
mod scenarios;
mod scratch;
mod secrets;
mod server;
mod services;
mod setup;
mod several;
mod sharing;
mod shown;
mod signals;
mod silence;
mod slots;
mod stop;
mod storm;
mod strace;
mod summary;
mod tasks;
mod telling;
mod templates;
mod tick;
mod tidy;
mod timeouts;
mod travel;
mod triggers;
mod turns;
mod usage;
mod verdicts;
mod waking;
mod watching;
mod written;
