//! List of the tables in `schema.sql`, with properties that `schema.sql` does not contain, and the
//! privileges of database roles. A new table must be added to both.

use postgres_protocol::escape::escape_identifier;

use super::super::backend::DatabaseRole;
use super::wire::Statement;

#[derive(Debug, Clone, Copy)]
pub struct Table {
    pub name: &'static str,
    pub rows: Rows,
    /// Columns that the reader role may select; `None` for all columns. Only machines that step
    /// agents may select the other columns.
    pub shown: Option<&'static str>,
}

/// Owner of the rows of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rows {
    Store,
    /// The agent `agent_id`. Its rows are deleted when its contents are replaced.
    Agent,
    /// The agent `agent_id`. Its rows remain when its contents are replaced.
    Place,
}

const fn of(name: &'static str, rows: Rows) -> Table {
    Table { name, rows, shown: None }
}

/// All tables except partitions. The table `meta` has the format of the store as a constant row.
pub const TABLES: [Table; 17] = [
    of(META, Rows::Store),
    of("agent", Rows::Store),
    of("state", Rows::Place),
    of("due", Rows::Agent),
    of("inbox", Rows::Agent),
    of("record", Rows::Agent),
    of("plan", Rows::Agent),
    of("dedupe", Rows::Agent),
    of("lease", Rows::Agent),
    of("fence_floor", Rows::Store),
    of("archive", Rows::Agent),
    of("event", Rows::Agent),
    of("blob", Rows::Agent),
    Table { name: "trigger_key", rows: Rows::Agent, shown: Some("agent_id, trigger_id, sha") },
    of("trigger_use", Rows::Agent),
    of("watcher", Rows::Place),
    of("anchor", Rows::Store),
];

const META: &str = "meta";

/// Database functions that a role needs to step agents and to read them.
pub const FUNCTIONS: [&str; 8] =
    ["load", "apply", "may_act", "arrive", "take_lease", "deliver", "make_months", "drop_months"];

/// Returns statements that grant a database role its privileges as `part` in this store and revoke
/// its other privileges there.
pub fn grant(part: DatabaseRole, role: &str) -> Vec<Statement> {
    let role = escape_identifier(role);
    let all = TABLES.map(|table| format!("@.{}", table.name)).join(",");
    // Functions are granted one by one: the database may not let every role call new functions.
    let functions = FUNCTIONS.map(|function| format!("@.{function}")).join(",");
    let mut statements = vec![
        format!("REVOKE ALL ON {all} FROM {role}"),
        format!("REVOKE ALL ON FUNCTION {functions} FROM {role}"),
        format!("GRANT USAGE ON SCHEMA @ TO {role}"),
    ];
    match part {
        DatabaseRole::Ticker => statements.extend([
            format!("GRANT SELECT, INSERT, UPDATE, DELETE ON {all} TO {role}"),
            format!("REVOKE INSERT, UPDATE, DELETE ON @.{META} FROM {role}"),
            format!("GRANT EXECUTE ON FUNCTION {functions} TO {role}"),
        ]),
        DatabaseRole::Reader => {
            statements.extend(TABLES.map(|Table { name, shown, .. }| {
                let columns = shown.map_or_else(String::new, |columns| format!(" ({columns})"));
                format!("GRANT SELECT{columns} ON @.{name} TO {role}")
            }));
            statements.push(format!("GRANT EXECUTE ON FUNCTION @.load, @.may_act TO {role}"));
        }
        DatabaseRole::Producer => statements.extend([
            format!("GRANT SELECT ON @.{META} TO {role}"),
            format!("GRANT EXECUTE ON FUNCTION @.deliver TO {role}"),
        ]),
    }
    statements.into_iter().map(Statement::new).collect()
}

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
