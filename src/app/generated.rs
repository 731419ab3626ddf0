//! The generated texts. `cargo test generated` makes this file and those that it names.

pub const BASH: &str = "";
pub const ZSH: &str = "";
pub const FISH: &str = "";
pub const MAN: &[(&str, &str)] = &[];
pub const SCHEMAS: &[(&str, &str)] = &[];
