//! Privileges of database roles in a store.

use super::super::elsewhere::DatabaseRole;
use super::tables::{META, TABLES, Table};
use super::{kept, sql};

/// Returns statements that grant a role one part in this store and revoke its other privileges
/// there.
pub fn grant(schema: &str, part: DatabaseRole, role: &str) -> String {
    let role = sql::name(role);
    let tables = TABLES.map(|table| format!("{schema}.{}", table.name));
    let (all, meta) = (tables.join(","), format!("{schema}.{META}"));
    // Default privileges of a database may let no role call a function without a grant.
    let functions = kept::NAMES.map(|function| format!("{schema}.{function}")).join(",");
    let given = match part {
        DatabaseRole::Ticker => format!(
            "GRANT SELECT, INSERT, UPDATE, DELETE ON {all} TO {role};\
             REVOKE INSERT, UPDATE, DELETE ON {meta} FROM {role};\
             GRANT EXECUTE ON FUNCTION {functions}, {schema}.make_months TO {role}"
        ),
        DatabaseRole::Reader => {
            let shown = TABLES.map(|Table { name, shown, .. }| {
                let columns = shown.map_or_else(String::new, |columns| format!(" ({columns})"));
                format!("GRANT SELECT{columns} ON {schema}.{name} TO {role}")
            });
            format!("{}; GRANT EXECUTE ON FUNCTION {functions} TO {role}", shown.join(";"))
        }
        DatabaseRole::Producer => {
            format!("GRANT SELECT ON {meta} TO {role}; GRANT EXECUTE ON FUNCTION {schema}.deliver TO {role}")
        }
    };
    format!(
        "REVOKE ALL ON {all} FROM {role}; REVOKE ALL ON FUNCTION {functions}, {schema}.deliver, {schema}.make_months FROM {role};\
         GRANT USAGE ON SCHEMA {schema} TO {role}; {given}"
    )
}
