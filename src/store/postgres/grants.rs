//! What roles of the database may do with a store.

use super::super::elsewhere::Part;
use super::{kept, sql};

/// The tables that hold what agents consist of, as those who step them use them.
const TABLES: [&str; 17] = [
    "agent",
    "state",
    "due",
    "inbox",
    "record",
    "plan",
    "file",
    "dedupe",
    "lease",
    "fence_floor",
    "archive",
    "event",
    "blob",
    "trigger_use",
    "watcher",
    "anchor",
    "meta",
];

/// The tables that have what only those know who step agents, and what else of each may be read by who reads everything.
const SECRET: [(&str, &str); 2] =
    [("trigger_key", "agent_id, trigger_id, sha"), ("task_input", "agent_id, task_id, seq")];

/// Lets a role of the database be something to this store, and nothing else from then on.
pub fn grant(schema: &str, part: Part, role: &str) -> String {
    let role = sql::name(role);
    let tables: Vec<String> = TABLES.iter().map(|table| format!("{schema}.{table}")).collect();
    let (all, meta) = (tables.join(","), format!("{schema}.meta"));
    let secret = SECRET.map(|(table, _)| format!("{schema}.{table}")).join(",");
    // A database may be set so that nobody calls a function without a grant.
    let functions = kept::NAMES.map(|function| format!("{schema}.{function}")).join(",");
    let given = match part {
        Part::Ticker => format!(
            "GRANT SELECT, INSERT, UPDATE, DELETE ON {all}, {secret} TO {role};\
             REVOKE INSERT, UPDATE, DELETE ON {meta} FROM {role};\
             GRANT EXECUTE ON FUNCTION {functions}, {schema}.make_months TO {role}"
        ),
        Part::Reader => {
            let some =
                SECRET.map(|(table, some)| format!("; GRANT SELECT ({some}) ON {schema}.{table} TO {role}"));
            format!(
                "GRANT SELECT ON {all} TO {role}; GRANT EXECUTE ON FUNCTION {functions} TO {role}{}",
                some.concat()
            )
        }
        Part::Producer => {
            format!("GRANT SELECT ON {meta} TO {role}; GRANT EXECUTE ON FUNCTION {schema}.deliver TO {role}")
        }
    };
    format!(
        "REVOKE ALL ON {all}, {secret} FROM {role}; REVOKE ALL ON FUNCTION {functions}, {schema}.deliver, {schema}.make_months FROM {role};\
         GRANT USAGE ON SCHEMA {schema} TO {role}; {given}"
    )
}
