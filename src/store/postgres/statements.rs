//! Statements that several operations use, and the rows of the function `apply`.
//!
//! Each name is qualified by its schema, and no statement changes the session.

use std::borrow::Cow;
use std::fmt::Display;

use crate::local::workdir;
use crate::model::digest;
use crate::model::id::AgentName;

use super::super::backend::{Arrival, Claim, Op};
use super::super::settings::Takes;
use super::sql;
use super::tables::{Rows, TABLES};
use super::wire::{Statement, Value};

/// Priority of a hint in the table `inbox`.
pub const HINT: &str = "-1";

/// Value of the column `agent.takes` if the size limit is the default of the sender's machine.
const AS_BY_DEFAULT: i64 = -1;

/// Number of keys at the head of the inbox that the SQL function `load` returns.
pub const HEAD: usize = 256;

/// Number of turn summaries that the SQL function `load` returns: as many as a turn receives.
pub const BRIEFS: usize = 5;

/// Returns a statement that loads an agent's records. `with_past`: with archive lines for a run.
pub fn load(agent: i64, with_past: bool) -> Statement {
    Statement::new("SELECT * FROM @.load($1, $2)").with(agent).with(with_past)
}

/// Returns a statement that limits the time in milliseconds for which the transaction waits for a
/// lock, and the server for the next statement. After these times the server rolls back, for
/// example if the client's machine was disconnected.
pub fn limits(waits: u128) -> Statement {
    Statement::new(
        "SELECT set_config('lock_timeout', $1, true), set_config('idle_in_transaction_session_timeout', '15s', true)",
    )
    .with(format!("{waits}ms"))
}

/// Returns a statement that locks an agent and returns the transaction's id. Later statements of
/// the transaction see all commits of the lock's previous owner, because each statement sees
/// earlier commits. A single statement that locks and reads would not see them.
///
/// `at_once`: fails immediately if the agent is locked.
pub fn lock(agent: i64, at_once: bool) -> Statement {
    let nowait = if at_once { " NOWAIT" } else { "" };
    Statement::new(format!(
        "SELECT pg_current_xact_id() FROM @.state s WHERE s.agent_id = $1 FOR UPDATE{nowait}"
    ))
    .with(agent)
}

/// Returns a statement whose parameter `$1` is the agent, and whose `$2` to `$4` are the subject,
/// the fencing token and the run of the lease `claim`; null without a lease.
pub fn claimed(
    sql: impl Into<Cow<'static, str>>,
    agent: impl Into<Value>,
    claim: Option<&Claim>,
) -> Statement {
    Statement::new(sql)
        .with(agent)
        .with(claim.map(|claim| sql::subject(claim.subject)))
        .with(claim.map(|claim| claim.fence))
        .with(claim.and_then(|claim| claim.run).map(|run| run.to_string()))
}

/// Returns a statement that inserts arrivals into an inbox if the lease `claim` is still valid, and
/// the agent accepts a body of this size. `id`: the agent's id; `None` to look up the name. `size`:
/// bytes of the body, and the maximum if the agent's settings have none. `again`: `None` for the
/// first attempt. A retry after a lost answer skips messages that have ended since; with
/// `Some(true)` it takes the agent's lock first.
///
/// Columns of the row: true if the lease and the size are valid, true if the inbox is closed, and
/// the text of the agent's state, which the sender needs next. No row if the agent does not exist.
pub fn arrive(
    (id, name): (Option<i64>, &AgentName),
    arrivals: &[Arrival],
    claim: Option<&Claim>,
    size: Option<(u64, u64)>,
    again: Option<bool>,
) -> Statement {
    let [priorities, ids, texts] = columns(arrivals);
    let (size, default) = size.unzip();
    claimed(
        "SELECT * FROM @.arrive($1, $5, NULL, $6::text[]::smallint[], $7::text[]::uuid[], $8, $9, $10, $2, $3, $4, $11, $12)",
        id,
        claim,
    )
        .with(name.as_str())
        .with(priorities)
        .with(ids)
        .with(texts)
        .with(again.is_some())
        .with(again.unwrap_or_default())
        .with(size)
        .with(default)
}

/// Returns a statement that inserts messages and hints for a database role that may only call the
/// SQL function `deliver`. `again`: true for a retry after a lost answer.
pub fn deliver(agent: &str, arrivals: &[Arrival], again: bool) -> Statement {
    let [priorities, ids, texts] = columns(arrivals);
    Statement::new("SELECT @.deliver($1, $2::text[]::smallint[], $3::text[]::uuid[], $4, $5)")
        .with(agent)
        .with(priorities)
        .with(ids)
        .with(texts)
        .with(again)
}

/// Returns the priorities, the ids and the texts of arrivals.
fn columns(arrivals: &[Arrival]) -> [Vec<String>; 3] {
    let mut columns = [const { Vec::new() }; 3];
    for arrival in arrivals {
        let (priority, id, text) = arrived(arrival);
        for (column, value) in columns.iter_mut().zip([priority, id, text.to_owned()]) {
            column.push(value);
        }
    }
    columns
}

fn arrived(arrival: &Arrival) -> (String, String, &str) {
    match arrival {
        Arrival::Message { key, text } => (key.priority.digit().to_string(), key.id.0.to_string(), text),
        Arrival::Hint { id, text } => (HINT.to_owned(), id.0.to_string(), text),
    }
}

/// Returns a row for the SQL function `apply` that deletes the agent's rows in the tables for which
/// `are_meant` is true.
pub fn emptied(are_meant: impl Fn(Rows) -> bool) -> OpRow {
    let tables = TABLES.iter().filter(|table| are_meant(table.rows)).map(|table| table.name);
    row("emptied", [some(format!("{{{}}}", tables.collect::<Vec<_>>().join(",")))])
}

/// Number of columns of a row for the SQL function `apply`.
const WIDTH: usize = 7;

/// Row for the SQL function `apply`: the name of an operation, and its operands.
pub type OpRow = Vec<Option<String>>;

/// Returns a row for the SQL function `apply`, with the operation's name `word`.
pub fn row<const N: usize>(word: &str, operands: [Option<String>; N]) -> OpRow {
    let mut row = vec![Some(word.to_owned())];
    row.extend(operands);
    row.resize(WIDTH, None);
    row
}

/// Formats a value as an operand for the SQL function `apply`.
pub fn some(value: impl Display) -> Option<String> {
    Some(value.to_string())
}

/// Returns a statement that applies the rows of a change. `revision`: revision after the change.
pub fn apply(agent: i64, revision: u64, rows: Vec<OpRow>) -> Statement {
    Statement::new("SELECT @.apply($1, $2, $3)").with(agent).with(revision).with(Value::Table(rows))
}

/// Returns the row with which the SQL function `apply` performs an operation.
pub fn op_row(op: &Op) -> OpRow {
    match op {
        Op::Identity(text) => row("identity", [some(text)]),
        Op::Policy(settings) => {
            let takes = match settings.takes {
                Takes::ByDefault => some(AS_BY_DEFAULT),
                Takes::AtMost(bytes) => some(i64::try_from(bytes).unwrap_or(i64::MAX)),
                Takes::Unknown => None,
            };
            row("policy", [some(&settings.text), some(settings.pool.as_str()), takes])
        }
        Op::State { revision, due, text, .. } => {
            row("state", [some(revision), due.and_then(|due| some(due.as_millis())), some(text)])
        }
        Op::Open { plane, id, text } => row("open", [some(sql::plane(*plane)), some(id), some(text)]),
        Op::Closed { plane, id } => row("closed", [some(sql::plane(*plane)), some(id)]),
        Op::Plan { work, text } => row("plan", [some(work), some(digest::digits(text.as_bytes()))]),
        Op::Saved { checkpoint, part, bytes } => {
            let (run, name) = (some(checkpoint.run_id), some(workdir::name_of(*checkpoint)));
            row("saved", [run, name, some(part), some(digest::digits(bytes))])
        }
        Op::Unsaved(checkpoint) => row("unsaved", [some(checkpoint.run_id)]),
        Op::LocalDir(name) => row("room", [some(name)]),
        Op::InboxClosed(is_shut) => row("shut", [some(is_shut)]),
        Op::Arrived(arrival) => {
            let (priority, id, text) = arrived(arrival);
            row("arrived", [Some(priority), Some(id), some(text)])
        }
        Op::MessageTaken(key) => row("taken", [some(key.priority.digit()), some(key.id.0)]),
        Op::HintTaken(id) => row("taken", [some(HINT), some(id.0)]),
        Op::Key { key, admitted_at, text } => {
            row("key", [some(digest::sha256(key.as_bytes())), some(admitted_at.as_millis()), some(text)])
        }
        Op::KeysForgotten(before) => row("forget_keys", [some(before.as_millis())]),
        Op::TriggerKey { trigger, digest, key } => {
            row("trigger_key", [some(trigger), some(digest), some(digest::digits(key))])
        }
        Op::Ended { kind, id, at, text } => {
            row("ended", [some(kind), id.clone(), some(at.as_millis()), some(text)])
        }
        Op::Event { seq, at, text } => row("event", [some(seq), some(at.as_millis()), some(text)]),
        Op::Forgotten { from, until, seen_at } => {
            row("forgotten", [some(from.as_millis()), some(until.as_millis()), some(seen_at)])
        }
    }
}
