//! Privileges of database roles in a store.

use postgres_protocol::escape::escape_identifier;

use super::super::backend::DatabaseRole;
use super::statements::FUNCTIONS;
use super::tables::{META, TABLES, Table};
use super::wire::Statement;

/// Returns statements that grant a database role its privileges as `part` in this store and revoke
/// its other privileges there.
pub fn grant(part: DatabaseRole, role: &str) -> Vec<Statement> {
    let role = escape_identifier(role);
    let all = TABLES.map(|table| format!("@.{}", table.name)).join(",");
    // Default privileges may let no role call a function without a grant.
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
            format!(
                "GRANT EXECUTE ON FUNCTION @.load, @.apply, @.may_act, @.arrive, @.take_lease, @.make_months TO {role}"
            ),
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
