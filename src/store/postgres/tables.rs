//! The tables of a store, and what has to be known of each besides `schema.sql`. A table that is
//! added there is added here.

/// A table.
#[derive(Debug, Clone, Copy)]
pub struct Table {
    pub name: &'static str,
    pub rows: Rows,
    /// The columns that a reader may see, where these are not all: the others are what only
    /// machines that step agents may know.
    pub shown: Option<&'static str>,
}

/// What the rows of a table belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rows {
    /// The store as a whole.
    Store,
    /// An agent, by `agent_id`. They go with what the agent consists of.
    Agent,
    /// An agent, too. Another agent in its place goes on with them.
    Place,
}

const fn of(name: &'static str, rows: Rows) -> Table {
    Table { name, rows, shown: None }
}

const fn shown_in_part(name: &'static str, shown: &'static str) -> Table {
    Table { name, rows: Rows::Agent, shown: Some(shown) }
}

/// All tables but the parts of partitioned ones. Which format the store has is in `meta`, which is
/// made once.
pub const TABLES: [Table; 19] = [
    of(META, Rows::Store),
    of("agent", Rows::Store),
    of("state", Rows::Place),
    of("due", Rows::Agent),
    of("inbox", Rows::Agent),
    of("record", Rows::Agent),
    of("plan", Rows::Agent),
    of("file", Rows::Agent),
    of("dedupe", Rows::Agent),
    of("lease", Rows::Agent),
    of("fence_floor", Rows::Store),
    of("archive", Rows::Agent),
    of("event", Rows::Agent),
    of("blob", Rows::Agent),
    shown_in_part("trigger_key", "agent_id, trigger_id, sha"),
    of("trigger_use", Rows::Agent),
    shown_in_part("task_input", "agent_id, task_id, seq"),
    of("watcher", Rows::Place),
    of("anchor", Rows::Store),
];

pub const META: &str = "meta";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_tables_are_known() {
        let schema = include_str!("schema.sql");
        let made = schema.split("CREATE TABLE @.").skip(1).map(|rest| rest.split([' ', '(']).next().unwrap());
        let made: Vec<&str> = made.filter(|name| !name.ends_with("_default")).collect();
        let (mut known, mut made) = (TABLES.map(|table| table.name).to_vec(), made);
        known.sort_unstable();
        made.sort_unstable();
        assert_eq!(known, made);
    }

    #[test]
    fn rows_of_agents_name_their_agent() {
        let lines = include_str!("schema.sql").lines();
        let schema: String = lines.filter_map(|line| line.split("--").next()).collect();
        for Table { name, rows, .. } in TABLES {
            let columns = schema.split(&format!("CREATE TABLE @.{name} (")).nth(1).unwrap();
            let columns = columns.split(';').next().unwrap();
            assert_eq!(columns.contains("agent_id bigint"), rows != Rows::Store, "{name}");
        }
    }
}
