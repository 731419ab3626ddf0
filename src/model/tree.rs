//! Files of a state directory in a git commit.

use std::collections::BTreeMap;

/// File in a git commit: its mode, as git writes it, and the id of the object with its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blob {
    pub mode: String,
    pub id: String,
}

impl Blob {
    /// True for a regular file; false for a symbolic link or another repository.
    pub fn is_file(&self) -> bool {
        self.mode.starts_with("100")
    }

    pub fn is_program(&self) -> bool {
        self.mode == "100755"
    }
}

/// Files of a commit, by their path in the state directory.
pub type Tree = BTreeMap<String, Blob>;
