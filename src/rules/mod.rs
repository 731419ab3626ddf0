//! Rules: pure functions of records and a time, without I/O, clock or randomness.

pub mod admission;
pub mod advisory;
pub mod authority;
pub mod calendar;
pub mod clock;
pub mod closure;
pub mod continuation;
pub mod delegation;
pub mod delivery;
pub mod due;
pub mod execution;
pub mod forecast;
pub mod ladder;
pub mod limits;
pub mod notification;
pub mod posture;
pub mod preemption;
pub mod priority;
pub mod projection;
pub mod schedule;
pub mod signature;
pub mod stall;
pub mod step;
pub mod transition;
pub mod waits;
pub mod work;

#[cfg(test)]
mod tests;
