//! Records as plain data, stored by the store and used by the rules. No I/O, no clock.

#[macro_use]
mod names;
#[cfg(test)]
mod tests;

pub(crate) use names::{names, unknown_name};
#[cfg(test)]
pub(crate) use tests::schema;

pub mod action;
pub mod agent;
pub mod attention;
pub mod author;
pub mod bound;
pub mod closure;
pub mod continuation;
pub mod decision;
pub mod dedupe;
pub mod digest;
pub mod event;
pub mod execution;
pub mod id;
pub mod inbox;
pub mod json;
pub mod message;
pub mod meters;
pub mod moved;
pub mod place;
pub mod policy;
pub mod pool;
pub mod posture;
pub mod preemption;
pub mod record;
pub mod records;
pub mod recovery;
pub mod refusal;
pub mod resource;
pub mod retention;
pub mod run;
pub mod setbacks;
pub mod settings;
pub mod stamp;
pub mod state;
pub mod strict;
pub mod submission;
pub mod task;
pub mod text;
pub mod time;
pub mod timer;
pub mod transaction;
pub mod tree;
pub mod trigger;
pub mod turn;
pub mod wait;
pub mod work;
pub mod zone;
