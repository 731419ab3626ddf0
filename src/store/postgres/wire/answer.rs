//! Answers of a server: rows of text.

use std::ops::Range;

use bytes::Bytes;

/// Answer of the server to one statement.
#[derive(Debug, Default)]
pub struct ServerAnswer {
    /// Rows that a query returned, in the server's order. Empty for other statements.
    pub rows: Vec<Row>,
    /// Number of rows that the statement returned, inserted, changed or deleted; 0 for statements
    /// that report none.
    pub affected: u64,
}

#[derive(Debug)]
pub struct Row {
    pub(super) bytes: Bytes,
    pub(super) columns: Vec<Option<Range<usize>>>,
}

impl Row {
    /// Returns the text of a column, counted from 0. `None` for NULL or a column that does not
    /// exist.
    pub fn get(&self, at: usize) -> Option<&str> {
        let range = self.columns.get(at)?.clone()?;
        // The parser of rows has already checked the encoding.
        std::str::from_utf8(self.bytes.get(range)?).ok()
    }

    /// Number of columns.
    pub fn columns(&self) -> usize {
        self.columns.len()
    }
}
