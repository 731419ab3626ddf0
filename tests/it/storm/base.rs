//! Database of the stress test: a server that the test kills, and readers of its records that do
//! not use the code of the program.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use serde_json::Value;

use super::history::{Luck, What};
use super::world::{World, pause};
use crate::checker::{self, Found};
use crate::server::Server;

/// Database schema of all agents but the moved one.
pub const STORM: &str = "storm";

/// Database schema of one store of the moved agent. Its other store is a directory.
pub const WEST: &str = "west";

/// SQL pattern for the texts of messages that [`Base::mole`] deletes: those of producer threads.
const PREY: &str = "% producer-";

/// Database server with a schema for most agents, and a schema for the moved agent.
pub struct Base {
    server: Server,
    /// Recent number of pending messages, by schema and agent.
    waiting: Mutex<BTreeMap<(String, String), usize>>,
}

impl Base {
    pub fn new() -> Base {
        Base { server: Server::start(""), waiting: Mutex::default() }
    }

    pub fn url(&self, schema: &str) -> String {
        self.server.url(schema)
    }

    /// Returns the columns of each row of a query; `None` while the server is down.
    fn rows(&self, sql: &str) -> Option<Vec<Vec<String>>> {
        let rows = self.server.try_sql(sql).ok()?;
        Some(rows.iter().map(|row| row.split('|').map(str::to_owned).collect()).collect())
    }

    pub fn agents(&self, schema: &str) -> Vec<String> {
        let rows = self.rows(&format!("SELECT name FROM {schema}.agent ORDER BY name"));
        rows.unwrap_or_default().into_iter().map(|mut row| row.remove(0)).collect()
    }

    pub fn waiting(&self, schema: &str, agent: &str) -> usize {
        let key = (schema.to_owned(), agent.to_owned());
        self.waiting.lock().unwrap().get(&key).copied().unwrap_or(0)
    }

    /// Returns the greatest id of the triggers of an agent; `None` without a trigger.
    pub fn trigger(&self, schema: &str, agent: &str) -> Option<String> {
        let of_agent = format!(
            "SELECT r.id FROM {schema}.record r JOIN {schema}.agent a ON a.id = r.agent_id \
             WHERE a.name = '{agent}' AND r.kind = 'trigger' ORDER BY r.id DESC LIMIT 1"
        );
        self.rows(&of_agent)?.pop().map(|mut row| row.remove(0))
    }

    /// Updates the numbers of pending messages until the stress test is over.
    pub fn count(&self, world: &World) {
        while !world.is_over() {
            let of = |schema| {
                format!(
                    "SELECT '{schema}', a.name, count(*) FROM {schema}.inbox i JOIN {schema}.agent a ON a.id = i.agent_id \
                     GROUP BY a.name"
                )
            };
            if let Some(rows) = self.rows(&format!("{} UNION ALL {}", of(STORM), of(WEST))) {
                let counted = rows.into_iter().map(|row| {
                    let [schema, agent, count] = row.try_into().unwrap();
                    ((schema, agent), count.parse().unwrap())
                });
                *self.waiting.lock().unwrap() = counted.collect();
            }
            pause(world, 200);
        }
    }

    /// Reads the records of an agent: writes them as files, like those of a state directory, below
    /// `aside`, and reads these files.
    pub fn look(&self, schema: &str, agent: &str, aside: &Path) -> Found {
        let dir = aside.join(schema).join(agent);
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        let moment = |column: &str, form: &str| {
            format!("to_char(to_timestamp({column} / 1000) AT TIME ZONE 'UTC', '{form}')")
        };
        let plane = "CASE kind WHEN 'work' THEN 'work' ELSE kind || 's' END || '/' || id || '.json'";
        let arrived = "'inbox/' || CASE prio WHEN -1 THEN 'w' ELSE prio::text END || \
            CASE prio WHEN -1 THEN '-wake_' ELSE '-msg_' END || replace(id::text, '-', '') || '.json'";
        let month = moment("at", "YYYY-MM");
        let file = |seq: &str, path: &str, body: &str, from: &str, of: &str| {
            format!(
                "SELECT {seq}::bigint AS seq, {path} AS path, {body}::text AS text FROM {schema}.{from} \
                 WHERE {of} = (SELECT id FROM {schema}.agent WHERE name = '{agent}')"
            )
        };
        let all = [
            file("0", "'identity.json'", "identity", "agent", "id"),
            file("0", "'state.json'", "body", "state", "agent_id"),
            file("0", plane, "body", "record", "agent_id"),
            file("0", arrived, "body", "inbox", "agent_id"),
            file("0", "'cache/dedupe/day/' || encode(key_sha, 'hex')", "body", "dedupe", "agent_id"),
            file(
                "seq",
                &format!("'archive/' || {month} || '/' || kind || '.jsonl'"),
                "body",
                "archive",
                "agent_id",
            ),
            file("seq", &format!("'ledger/' || {month} || '.jsonl'"), "body", "event", "agent_id"),
        ];
        let asked = format!(
            "SELECT json_build_object('path', path, 'text', text) FROM ({}) q ORDER BY seq",
            all.join(" UNION ALL ")
        );
        let mut texts: BTreeMap<PathBuf, String> = BTreeMap::new();
        for row in self.server.sql(&asked) {
            let row: Value = serde_json::from_str(&row).unwrap();
            texts
                .entry(dir.join(row["path"].as_str().unwrap()))
                .or_default()
                .push_str(row["text"].as_str().unwrap());
        }
        for (path, text) in texts {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        checker::look(&dir)
    }

    /// Breaks connections, which no command may report, and sometimes kills the server, which must
    /// lose nothing.
    pub fn thunder(&self, world: &World, luck: &mut Luck) {
        while !world.is_over() {
            pause(world, 200 + luck.below(800));
            if luck.one_in(8) {
                world.history.note(What::Server { is_away: true });
                self.server.crash();
                world.history.note(What::Server { is_away: false });
            } else {
                let one = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                           WHERE usename = 'dormouse' ORDER BY random() LIMIT 1";
                let _ = self.server.try_sql(one);
            }
        }
    }

    /// Deletes messages from the database without an event. The test oracle must report the loss.
    pub fn mole(&self, world: &World) {
        let one = format!(
            "DELETE FROM {STORM}.inbox WHERE id IN (SELECT id FROM {STORM}.inbox \
             WHERE body->'body'->>'text' LIKE '{PREY}%' LIMIT 1)"
        );
        while !world.is_over() {
            self.rows(&one);
            pause(world, 50);
        }
    }
}
