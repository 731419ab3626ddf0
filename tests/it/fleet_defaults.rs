//! Tests agents in databases whose roles have other defaults than those of a new server.

use crate::fleet::{Machine, lives};
use crate::server::durable;
use crate::setup::eventually;

/// Defaults of a role or a database that change what a client reads or may do.
const ODD: &[(&str, &str)] = &[
    ("default_transaction_isolation", "serializable"),
    ("default_transaction_isolation", "repeatable read"),
    ("default_transaction_deferrable", "on"),
    ("DateStyle", "SQL, DMY"),
    ("TimeZone", "Pacific/Chatham"),
    ("IntervalStyle", "sql_standard"),
    ("bytea_output", "escape"),
    ("standard_conforming_strings", "off"),
    ("backslash_quote", "on"),
    ("search_path", "nowhere"),
    ("client_encoding", "LATIN1"),
    ("statement_timeout", "30s"),
    ("lock_timeout", "5s"),
    ("idle_in_transaction_session_timeout", "5s"),
    ("extra_float_digits", "-15"),
    ("transform_null_equals", "on"),
    ("array_nulls", "off"),
    ("quote_all_identifiers", "on"),
    ("row_security", "off"),
    ("client_min_messages", "debug1"),
    ("synchronous_commit", "local"),
    ("jit_above_cost", "0"),
    ("enable_indexscan", "off"),
];

/// Creates a role with these defaults, and uses an agent with that role.
fn lives_with(name: &str, defaults: &[(&str, &str)]) {
    let server = durable();
    let mut made = format!("CREATE ROLE {name} LOGIN; GRANT CREATE ON DATABASE dormouse TO {name};");
    for (setting, value) in defaults {
        let value = if *setting == "DateStyle" { (*value).to_owned() } else { format!("'{value}'") };
        made.push_str(&format!("ALTER ROLE {name} SET {setting} = {value};"));
    }
    // The statements fail as a whole if another test grants on the same database at that moment.
    eventually("a role", || server.try_sql(&made).ok());
    let machine = Machine::new(&server.url_of(name, name), None).with_ada("echo done");
    lives(&machine);
    machine.run(["start", "ada"]);

    // The text has characters that client encoding and quoting settings could change.
    let text = r#"Grüße, 'x' \\ "y" \u0041 $1"#;
    let id = machine.id(["enqueue", "ada", text, "--dedupe-key", "k"]);
    let again = machine.cmd(["enqueue", "ada", text, "--dedupe-key", "k"]).exits(0);
    assert_eq!(again.stdout.trim_end(), id, "{again}");
    assert_eq!(machine.json(["queue", "show", &id])["body"]["text"], text);
    assert_eq!(machine.json(["tick", "ada"])["terminal"], "completed");
    machine.run(["timer", "add", "-a", "ada", "--in", "100ms", "later"]);
    machine.run(["wait", "-a", "ada", "--on", "external", "--reason", "why", "--expires", "1h"]);
    eventually("the timer", || (machine.json(["tick", "ada"])["reason"] == "timer_tick").then_some(()));
    machine.cmd(["ask", "ada", "now", "--timeout", "60s"]).exits(0);
    machine.run(["task", "stop", &machine.id(["task", "start", "-a", "ada", "--", "sleep", "600"])]);
    machine.run(["tick", "--all", "--until-idle"]);

    let file = machine.sandbox.root().join("ada.tar").to_str().unwrap().to_owned();
    machine.cmd(["export", "ada", "-o", &file]).output();
    machine.cmd(["import", &file, "--as", "eve"]).exits(0);
    for line in ["list", "logs ada", "events ada", "usage", "explain eve", "gc", "doctor"] {
        machine.cmd(line.split(' ')).exits(0);
    }
    machine.run(["stop", "--all"]);
}

#[test]
fn the_defaults_of_a_role_change_nothing() {
    needs!("postgresql");
    if std::env::var_os("DORMOUSE_FLEET").is_some() {
        for (number, odd) in ODD.iter().enumerate() {
            lives_with(&format!("odd_{number}"), &[*odd]);
        }
    }
    // `ODD` begins with two isolation levels, of which a role can have only one.
    let (first, rest) = (&ODD[..1], &ODD[2..]);
    lives_with("odd_all", &[first, rest].concat());
}

#[test]
fn agents_run_with_repeatable_read_as_the_default_isolation() {
    needs!("postgresql");
    lives_with("odd_isolation", &ODD[1..2]);
}
