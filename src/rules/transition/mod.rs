//! Transitions: each takes records and a time, and makes one transaction.
//!
//! Only the files here change `status`, `execution`, `current_run`, `sleeping_until`,
//! `pending_wake_hint`, `resting`, `moved`, `ticked_by` and `revision`.

pub mod arrival;
pub mod attempt;
mod change;
pub mod draft;
pub mod gate;
pub mod hints;
pub mod inbox;
pub mod lifecycle;
pub mod moved;
pub mod outcome;
pub mod preemption;
pub mod recovery;
pub mod resources;
pub mod rest;
pub mod settlement;
pub mod start;
pub mod take_in;
pub mod task;
pub mod timer;
pub mod trace;
pub mod trigger;
pub mod turn;
pub mod wait;
pub mod work;
