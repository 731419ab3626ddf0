//! Integration tests: one binary, with one file for each command family or danger.
//!
//! A reading order:
//!
//! 1. Shared parts: `harness` (a directory for each test, and running a command), `setup` (agents
//!    and helpers), `checker` (an independent check of records).
//! 2. Single commands: `lifecycle`, `creation`, `editing`, `messages`, `tick`, `turns`,
//!    `work_and_waits`, `tasks`, `triggers`, `ingress`, `hooks`, `inspect`, `doctor`,
//!    `enqueue_await`, `following`, `services`, `metrics`, `usage`, `naming`, `logs`, `listing`,
//!    `progress`, `report_page`, `watching`, `output_files`.
//! 3. Combinations of parts: `edges`, `stop`, `preemption`, `slots`, `delegation`, `wait_ends`, and
//!    `model`, which compares the program with a reference model.
//! 4. Faults of the machine: `strace` and `paused` (stop a command at a system call), `scenarios`,
//!    `crash`, `faults`, `power`, `limits`, `effects`, `concurrency`.
//! 5. Other programs and users: `backlog`, `drops`, `rejected`, `sharing`, `owners`, `cache_files`,
//!    `clones`, `copies`, `git_sync`, `git_push`, `git_merges`, `replays`, `hostile`, `escaping`,
//!    `fuzz`.
//! 6. Everything at once: `storm`, and on several machines `fleet_chaos`.
//! 7. Rules of the project itself: `tidy`, `docs`, `examples`, `outside`, `packaging`, `pasting`,
//!    `format`, `cost`.

#[macro_use]
mod missing_tools;

mod asking;
mod attempts;
mod attention;
mod authority;
mod awaiting;
mod backlog;
mod cache_files;
mod checker;
mod clock;
mod clones;
mod command_lists;
mod committing;
mod completions;
mod concurrency;
mod connection_proxy;
mod copies;
mod cost;
mod crash;
mod creation;
mod deferrals;
mod delegation;
mod docs;
mod doctor;
mod drops;
mod edges;
mod editing;
mod effects;
mod ended_runs;
mod enqueue_await;
mod escaping;
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
mod forecasts;
mod format;
mod fuzz;
mod gc;
mod git_kills;
mod git_merges;
mod git_push;
mod git_races;
mod git_sync;
mod group_members;
mod group_races;
mod harness;
mod help;
mod hook_delivery;
mod hooks;
mod hostile;
mod in_database;
mod ingress;
mod inspect;
mod journal;
mod lifecycle;
mod limits;
mod listing;
mod logs;
mod messages;
mod metrics;
mod mistakes;
mod model;
mod naming;
mod output;
mod output_files;
mod outside;
mod owners;
mod packaging;
mod pasting;
mod paused;
mod permissions;
mod power;
mod preemption;
mod progress;
mod questions;
mod reading;
mod rejected;
mod remotes;
mod removing;
mod renaming;
mod replays;
mod report_page;
mod resources;
mod scenarios;
mod secrets;
mod server;
mod services;
mod setup;
mod several_agents;
mod sharing;
mod signals;
mod slots;
mod stale_files;
mod stop;
mod storm;
mod strace;
mod summary;
mod tasks;
mod templates;
mod tick;
mod tidy;
mod timeouts;
mod times;
mod travel;
mod triggers;
mod turns;
mod usage;
mod wait_ends;
mod wake_inputs;
mod warnings;
mod watching;
mod work_and_waits;
