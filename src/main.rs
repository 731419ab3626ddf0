mod clock;
mod error;
mod model;
fn main() {}
