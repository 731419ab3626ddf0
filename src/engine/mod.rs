//! What a step and every change of an agent are made of: the only code that knows rules, store and processes together.

pub mod attention;
pub mod authority;
pub mod background;
pub mod checks;
pub mod delegate;
pub mod desk;
pub mod drops;
pub mod due;
pub mod environment;
pub mod errand;
pub mod foresee;
pub mod gate;
pub mod hooks;
pub mod installed;
pub mod litter;
pub mod load;
pub mod lookup;
pub mod merging;
pub mod new_agent;
pub mod outbox;
pub mod outcome;
pub mod outside;
pub mod oversee;
pub mod owner;
pub mod patience;
pub mod recover;
pub mod resources;
pub mod secret;
pub mod session;
pub mod slot;
pub mod step;
pub mod stop;
pub mod telling;
#[cfg(test)]
mod tests;
pub mod turn;
pub mod untold;
