//! Engine: steps, turns and changes of an agent. The only code that uses rules, store and processes
//! together.

pub mod authority;
pub mod checks;
pub mod context;
pub mod delegate;
pub mod delivery;
pub mod effects;
pub mod environment;
pub mod follow;
pub mod gate;
pub mod hooks;
pub mod load;
pub mod lookup;
pub mod monitor;
pub mod new_agent;
pub mod new_file;
pub mod outbox;
pub mod outcome;
pub mod owner;
pub mod resources;
pub mod secret;
pub mod session;
pub mod step;
pub mod stop;
pub mod submissions;
pub mod sync;
pub mod tasks;
#[cfg(test)]
mod tests;
pub mod turn;
pub mod views;
