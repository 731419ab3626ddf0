//! What a server answers: rows of text.

use std::ops::Range;

use bytes::Bytes;

/// What the server answered to one statement.
#[derive(Debug, Default)]
pub struct Answer {
    /// What a query returned, in the server's order. Empty for other statements.
    pub rows: Vec<Row>,
    /// How many rows the statement returned, inserted, changed or removed; 0 for statements that
    /// count none.
    pub affected: u64,
}

/// One row of an answer: its columns as text.
#[derive(Debug)]
pub struct Row {
    pub(super) bytes: Bytes,
    pub(super) columns: Vec<Option<Range<usize>>>,
}

impl Row {
    /// The text of a column, counted from 0. `None` for SQL's NULL and where there is no such
    /// column.
    pub fn get(&self, at: usize) -> Option<&str> {
        let range = self.columns.get(at)?.clone()?;
        // It was looked at when the row came in.
        std::str::from_utf8(self.bytes.get(range)?).ok()
    }

    /// How many columns there are.
    pub fn columns(&self) -> usize {
        self.columns.len()
    }
}
