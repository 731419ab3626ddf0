//! The integration tests: one binary, one file per command family or danger.

#[cfg(target_os = "linux")]
mod checker;
#[cfg(target_os = "linux")]
mod concurrency;
#[cfg(target_os = "linux")]
mod cost;
#[cfg(target_os = "linux")]
mod crash;
mod docs;
mod doctor;
mod drops;
mod examples;
#[cfg(target_os = "linux")]
mod faults;
mod format;
mod harness;
mod inspect;
mod lifecycle;
mod messages;
mod output;
mod planes;
#[cfg(target_os = "linux")]
mod power;
#[cfg(target_os = "linux")]
mod scenarios;
mod setup;
#[cfg(target_os = "linux")]
mod strace;
#[cfg(target_os = "linux")]
mod tasks;
mod tick;
mod tidy;
mod turns;
