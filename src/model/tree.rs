//! The files of a state directory in a commit.

use std::collections::BTreeMap;

/// One of them: its mode as git writes it, and the object with its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blob {
    pub mode: String,
    pub id: String,
}

impl Blob {
    /// Neither a symbolic link nor another repository.
    pub fn is_file(&self) -> bool {
        self.mode.starts_with("100")
    }

    pub fn is_program(&self) -> bool {
        self.mode == "100755"
    }
}

/// All of them, by their path in the state directory.
pub type Tree = BTreeMap<String, Blob>;
