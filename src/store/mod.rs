//! The seam: what the rest of the program asks of a store, whichever it is. Beneath it stands the state directory.

mod dir;

pub use dir::*;
