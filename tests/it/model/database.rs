//! The records of a case whose store is PostgreSQL.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;

use crate::harness::Sandbox;
use crate::server::{Session, durable};
use crate::setup::{edit_file, tree};

/// Schema of one case. It is dropped at the end, except if the case panics.
pub struct Database {
    schema: String,
    session: RefCell<Session>,
}

impl Database {
    /// Moves the records of a state directory without agents to a new schema.
    pub fn below(sandbox: &Sandbox) -> Database {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let schema = format!("model_{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let url = durable().url(&schema);
        edit_file(&sandbox.store().join("dormouse.toml"), |text| {
            text.replace("[store]\n", &format!("[store]\nurl = \"{url}\"\n"))
        });
        sandbox.cmd(["init", &url]).exits(0);
        Database { schema, session: RefCell::new(durable().session()) }
    }

    /// Writes the records into `dir`, at the paths that their files would have. `dir` has no other
    /// content.
    pub fn as_files(&self, dir: &Path) -> PathBuf {
        let file = |path: &str, from: &str| {
            format!(
                "SELECT 0 AS seq, json_build_object('path', {path}, 'text', body::text) FROM {}.{from}",
                self.schema
            )
        };
        let plane = "CASE kind WHEN 'work' THEN 'work' ELSE kind || 's' END || '/' || id || '.json'";
        let arrived = "'inbox/' || CASE prio WHEN -1 THEN 'w' ELSE prio::text END || '-msg_' || replace(id::text, '-', '') || '.json'";
        let lines = "'archive/' || to_char(to_timestamp(at / 1000) AT TIME ZONE 'UTC', 'YYYY-MM') || '/' || kind || '.jsonl'";
        let asked = format!(
            "SELECT json_build_object FROM ({} UNION ALL {} UNION ALL {} UNION ALL {}) q ORDER BY seq",
            file("'state.json'", "state"),
            file(plane, "record"),
            file(arrived, "inbox"),
            file(lines, "archive").replace("SELECT 0 AS", "SELECT"),
        );
        let mut texts: BTreeMap<PathBuf, String> = BTreeMap::new();
        for row in self.session.borrow_mut().ask(&asked) {
            let row: Value = serde_json::from_str(&row).unwrap();
            let path = dir.join(row["path"].as_str().unwrap());
            texts.entry(path).or_default().push_str(row["text"].as_str().unwrap());
        }
        // Unchanged files are not written again, because the test compares their times.
        for path in tree(dir).keys().filter(|path| !texts.contains_key(*path)) {
            let _ = fs::remove_file(path);
        }
        for (path, text) in texts {
            if fs::read_to_string(&path).ok().as_ref() != Some(&text) {
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
        }
        dir.to_owned()
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let dropped = format!("SET client_min_messages = error; DROP SCHEMA {} CASCADE", self.schema);
            self.session.borrow_mut().ask(&dropped);
        }
    }
}
