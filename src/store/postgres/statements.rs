//! Queries and changes as SQL.
//!
//! Each name is qualified by its schema, and no statement leaves anything in the session.

use std::fmt::{Display, Write};

use crate::error::Result;
use crate::model::record::Plane;
use crate::workdir;

use super::super::elsewhere::{Arrival, ENDED, ImportedFile, Op};
use super::super::settings::{Settings, Takes};
use super::tables::{Rows, TABLES, Table};
use super::{input, sql};

/// Priority of a hint in the inbox.
pub const HINT: &str = "-1";

/// Value of `agent.takes` for agents whose size limit is the default of the sender's machine.
const AS_BY_DEFAULT: i64 = -1;

/// Number of keys at the head of the inbox that a read view loads, and of texts among them.
pub const HEAD: usize = 256;
const READ: usize = 2;

/// Idle timeout of a transaction: the server rolls it back when the client's machine is cut off.
pub const MOST_IDLE: &str = "15s";

/// Query that loads a read view, in one statement and so of one revision. Columns: a word for the
/// kind of the row, then four texts. `agent`: its number, or an SQL expression for it.
pub fn load(schema: &str, agent: impl Display) -> String {
    let now = sql::SERVER_NOW;
    format!(
        "SELECT 's', s.revision::text, s.fence::text, s.body::text, NULL \
           FROM {schema}.state s WHERE s.agent_id = {agent} \
         UNION ALL SELECT 'a', a.policy, a.identity::text, NULL, NULL FROM {schema}.agent a WHERE a.id = {agent} \
         UNION ALL SELECT 'o', r.kind, r.id, r.body::text, NULL FROM {schema}.record r WHERE r.agent_id = {agent} \
         UNION ALL (SELECT 'm', i.prio::text, i.id::text, \
             CASE WHEN row_number() OVER (ORDER BY i.prio, i.id) <= {READ} THEN i.body::text END, i.by::text \
           FROM {schema}.inbox i WHERE i.agent_id = {agent} AND i.prio >= 0 ORDER BY i.prio, i.id LIMIT {HEAD}) \
         UNION ALL (SELECT 'h', h.id::text, h.body::text, h.by::text, NULL FROM {schema}.inbox h \
           WHERE h.agent_id = {agent} AND h.prio = {HINT} ORDER BY h.id) \
         UNION ALL SELECT 'l', l.subject, l.fence::text, l.anchor, (l.expires_at > {now})::text \
           FROM {schema}.lease l WHERE l.agent_id = {agent}"
    )
}

/// Query for the facts that a command needs first about an agent.
pub fn glance(schema: &str, name: &str) -> String {
    format!(
        "SELECT a.id, a.identity, a.policy, s.revision, s.body, \
           EXISTS (SELECT FROM {schema}.inbox i WHERE i.agent_id = a.id), a.room \
         FROM {schema}.agent a JOIN {schema}.state s ON s.agent_id = a.id WHERE a.name = {name}"
    )
}

/// Begins a transaction and locks the agent. Later statements of the round trip see all that the
/// previous owner of the lock committed, because each statement sees earlier commits. A single
/// statement that locks and reads would not.
///
/// `waits`: timeout for locks, in milliseconds. `at_once`, or no time to wait: fails immediately if
/// the agent is locked.
pub fn lock(schema: &str, agent: impl Display, waits: u128, at_once: bool) -> String {
    let nowait = if at_once || waits == 0 { " NOWAIT" } else { "" };
    format!("{}{}{nowait};", begin(waits), locked(schema, agent))
}

/// First column of the row that [`locked`] returns.
pub const LOCKED: &str = "x";

/// Locks an agent. The row has [`LOCKED`], the transaction's id and the agent's last fence, and the
/// same number of columns as [`load`].
pub fn locked(schema: &str, agent: impl Display) -> String {
    format!(
        "SELECT '{LOCKED}', pg_current_xact_id()::text, s.fence::text, NULL, NULL FROM {schema}.state s \
         WHERE s.agent_id = {agent} FOR UPDATE"
    )
}

/// Begins a transaction that is to lock an agent. `waits`: timeout for locks, in milliseconds; zero
/// for none.
pub fn begin(waits: u128) -> String {
    format!(
        "BEGIN;SET LOCAL lock_timeout = '{waits}ms';SET LOCAL idle_in_transaction_session_timeout = '{MOST_IDLE}';"
    )
}

/// SQL row for the inbox: priority, id, text.
fn arrived(arrival: &Arrival) -> Result<String> {
    Ok(match arrival {
        Arrival::Message { key, text } => {
            format!(
                "({}::smallint,{}::uuid,{}::json)",
                key.priority.digit(),
                sql::uuid(key.id.0),
                sql::text(text)?
            )
        }
        Arrival::Hint { id, text } => {
            format!("({HINT}::smallint,{}::uuid,{}::json)", sql::uuid(id.0), sql::text(text)?)
        }
    })
}

/// Takes the advisory lock of an agent's inbox until the end of the transaction: shared to insert,
/// exclusive to close the inbox. So each insertion is committed before the inbox closes, or sees
/// that it is closed.
pub fn door(schema: &str, agent: impl Display, shared: &str) -> String {
    let schema = super::wire::literal(schema);
    format!("SELECT pg_advisory_xact_lock{shared}(hashtextextended({schema}, {agent}))")
}

/// Query for live runs that have a slot. `alone`: locks the slots until the end of the transaction.
pub fn slots(schema: &str, alone: bool) -> String {
    let name = super::wire::literal(&format!("{schema} slots"));
    let alone = if alone {
        format!("SELECT pg_advisory_xact_lock(hashtextextended({name}, 0));")
    } else {
        String::new()
    };
    format!(
        "{alone}SELECT a.name, l.anchor, l.host FROM {schema}.lease l JOIN {schema}.agent a ON a.id = l.agent_id \
         WHERE l.has_slot AND l.expires_at > {} ORDER BY l.fence, a.name",
        sql::SERVER_NOW
    )
}

/// Marks the run of an agent as one that has a slot.
pub fn take_slot(schema: &str, agent: i64) -> String {
    format!("UPDATE {schema}.lease SET has_slot = true WHERE agent_id = {agent} AND subject = 'run';")
}

/// SQL expression for the number of the agent with this name.
pub fn number_of(schema: &str, name: &str) -> Result<String> {
    Ok(format!("(SELECT n.id FROM {schema}.agent n WHERE n.name = {})", sql::text(name)?))
}

/// SQL condition: agent `a` accepts a body of this size. `default`: limit of the sender's machine.
pub fn takes(size: u64, default: u64) -> String {
    let by_default = if size <= default { format!(" OR a.takes = {AS_BY_DEFAULT}") } else { String::new() };
    format!("(a.takes >= {size}{by_default})")
}

/// Inserts arrivals into the inbox of an agent. `agent`: its number, or an SQL expression for it.
/// `again`: after a lost answer, under the agent's lock, ids of ended messages are left out.
///
/// `provided`: condition, for instance on the agent `a`, without which nothing is inserted. The
/// last row has the number of agents, the condition, and `is_shut`. Needs a transaction in which
/// each statement sees all earlier commits.
pub fn arrive(
    schema: &str,
    agent: impl Display,
    arrivals: &[Arrival],
    again: bool,
    provided: &str,
) -> Result<String> {
    let rows = arrivals.iter().map(arrived).collect::<Result<Vec<_>>>()?.join(",");
    let not_ended = if again {
        format!(
            " AND NOT EXISTS (SELECT FROM {schema}.archive e WHERE e.agent_id = a.id \
               AND e.id = 'msg_' || replace(v.id::text, '-', ''))"
        )
    } else {
        String::new()
    };
    Ok(format!(
        "{};INSERT INTO {schema}.inbox (agent_id, prio, id, body) \
         SELECT a.id, v.prio, v.id, v.body FROM {schema}.agent a, (VALUES {rows}) v (prio, id, body) \
         WHERE a.id = {agent} AND NOT a.is_shut{not_ended} AND {provided} ON CONFLICT DO NOTHING;\
         SELECT count(*), coalesce(bool_and({provided}), false), bool_or(a.is_shut) FROM {schema}.agent a WHERE a.id = {agent}",
        door(schema, &agent, "_shared")
    ))
}

/// Inserts arrivals as a producer, whose role may only call the function `deliver`.
pub fn deliver(schema: &str, agent: &str, arrivals: &[Arrival], again: bool) -> Result<String> {
    let (mut prios, mut ids, mut bodies) = (Vec::new(), Vec::new(), Vec::new());
    for arrival in arrivals {
        let (prio, id, text) = match arrival {
            Arrival::Message { key, text } => (key.priority.digit().to_string(), key.id, text),
            Arrival::Hint { id, text } => (HINT.to_owned(), *id, text),
        };
        prios.push(prio);
        ids.push(sql::uuid(id.0));
        bodies.push(sql::text(text)?);
    }
    Ok(format!(
        "SELECT {schema}.deliver({}, ARRAY[{}]::smallint[], ARRAY[{}]::uuid[], ARRAY[{}]::text[], {again})",
        sql::text(agent)?,
        prios.join(","),
        ids.join(","),
        bodies.join(",")
    ))
}

/// Inserts arrivals into an inbox that has none of them.
pub fn fill_inbox(schema: &str, agent: i64, arrivals: &[Arrival]) -> Result<String> {
    let rows = arrivals.iter().map(arrived).collect::<Result<Vec<_>>>()?.join(",");
    Ok(format!(
        "INSERT INTO {schema}.inbox (agent_id, prio, id, body) SELECT {agent}, v.* FROM (VALUES {rows}) v (prio, id, body);"
    ))
}

/// Returns the statements of a change, in order. `revision`: the one after the change.
pub fn change(schema: &str, agent: i64, revision: u64, pieces: &[Op]) -> Result<String> {
    let mut all = String::new();
    for (at, piece) in pieces.iter().enumerate() {
        // Adjacent lines for the same table become one statement.
        let goes_on = at.checked_sub(1).is_some_and(|before| are_alike(&pieces[before], piece));
        if !all.is_empty() {
            all.push(if goes_on { ',' } else { ';' });
        }
        change_by(&mut all, schema, agent, revision, piece, goes_on)?;
    }
    all.push(';');
    Ok(all)
}

/// Replaces the settings of an agent.
pub fn replace_policy(schema: &str, agent: i64, settings: &Settings) -> Result<String> {
    let takes = match settings.takes {
        Takes::ByDefault => AS_BY_DEFAULT.to_string(),
        Takes::AtMost(bytes) => i64::try_from(bytes).unwrap_or(i64::MAX).to_string(),
        Takes::Unknown => "NULL".to_owned(),
    };
    Ok(format!(
        "UPDATE {schema}.agent SET policy = {}, pool = {}, takes = {takes} WHERE id = {agent}",
        sql::text(&settings.text)?,
        sql::text(settings.pool.as_str())?
    ))
}

/// Returns the revision after a change, if the change writes the state.
pub fn revision_of(pieces: &[Op]) -> Option<u64> {
    pieces
        .iter()
        .find_map(|piece| if let Op::State { revision, .. } = piece { Some(*revision) } else { None })
}

fn are_alike(one: &Op, other: &Op) -> bool {
    matches!(
        (one, other),
        (Op::Event { .. }, Op::Event { .. })
            | (Op::File(_), Op::File(_))
            | (Op::Ended { .. }, Op::Ended { .. })
    )
}

fn change_by(
    all: &mut String,
    schema: &str,
    agent: i64,
    revision: u64,
    piece: &Op,
    goes_on: bool,
) -> Result<()> {
    // Writing to a `String` can't fail.
    let _ = match piece {
        Op::Identity(text) => {
            write!(all, "UPDATE {schema}.agent SET identity = {} WHERE id = {agent}", sql::text(text)?)
        }
        Op::Policy(settings) => write!(all, "{}", replace_policy(schema, agent, settings)?),
        Op::State { revision, due: at, text } => write!(
            all,
            "INSERT INTO {schema}.state AS s (agent_id, revision, body) VALUES ({agent},{revision},{}) \
             ON CONFLICT (agent_id) DO UPDATE SET revision = excluded.revision, body = excluded.body;{}",
            sql::text(text)?,
            at.map_or_else(|| not_due(schema, agent), |at| due(schema, agent, at.as_millis()))
        ),
        Op::Open { plane, id, text } => write!(
            all,
            "INSERT INTO {schema}.record (agent_id, kind, id, body) VALUES ({agent},'{}',{},{}) \
             ON CONFLICT (agent_id, kind, id) DO UPDATE SET body = excluded.body",
            sql::plane(*plane),
            sql::text(id)?,
            sql::text(text)?
        ),
        Op::Closed { plane, id } => {
            let (id, kind) = (sql::text(id)?, sql::plane(*plane));
            let _ = write!(
                all,
                "DELETE FROM {schema}.record WHERE agent_id = {agent} AND kind = '{kind}' AND id = {id}"
            );
            if *plane == Plane::Tasks {
                let _ = write!(all, ";{}", input::end(schema, agent, &id));
            }
            for (table, column) in belongings(*plane) {
                let _ =
                    write!(all, ";DELETE FROM {schema}.{table} WHERE agent_id = {agent} AND {column} = {id}");
            }
            Ok(())
        }
        // The record of the work item may follow its plan.
        Op::Plan { work, text } => write!(
            all,
            "INSERT INTO {schema}.plan (agent_id, id, body) VALUES ({agent},{},{}) \
             ON CONFLICT (agent_id, id) DO UPDATE SET body = excluded.body",
            sql::text(work)?,
            sql::bytes(text.as_bytes())
        ),
        Op::Saved { checkpoint, part, bytes } => write!(
            all,
            "INSERT INTO {schema}.blob (agent_id, subject, name, part, bytes) VALUES ({agent},'{}','{}',{part},{}) \
             ON CONFLICT (agent_id, subject, name, part) DO UPDATE SET bytes = excluded.bytes",
            checkpoint.run_id,
            workdir::name_of(*checkpoint),
            sql::bytes(bytes)
        ),
        Op::Unsaved(run) => {
            write!(all, "DELETE FROM {schema}.blob WHERE agent_id = {agent} AND subject = '{run}'")
        }
        Op::Room(room) => {
            write!(all, "UPDATE {schema}.agent SET room = {} WHERE id = {agent}", sql::text(room)?)
        }
        Op::File(ImportedFile { path, written_at, digest }) => {
            if !goes_on {
                let _ = write!(all, "INSERT INTO {schema}.file (agent_id, path, written_at, digest) VALUES ");
            }
            write!(all, "({agent},{},{written_at},{})", sql::text(path)?, sql::text(digest)?)
        }
        Op::Shut(is_shut) => write!(
            all,
            "{}UPDATE {schema}.agent SET is_shut = {is_shut} WHERE id = {agent}",
            if *is_shut {
                format!("{};{}", door(schema, agent, ""), raise_floor(schema, agent))
            } else {
                String::new()
            }
        ),
        Op::Arrived(arrival) => {
            // A message may already be in the inbox with another priority.
            let (id, sign) = match arrival {
                Arrival::Message { key, .. } => (key.id, ">="),
                Arrival::Hint { id, .. } => (*id, "<"),
            };
            write!(
                all,
                "DELETE FROM {schema}.inbox WHERE agent_id = {agent} AND prio {sign} 0 AND id = {};\
                 INSERT INTO {schema}.inbox (agent_id, prio, id, body) \
                 SELECT {agent}, v.* FROM (VALUES {}) v (prio, id, body)",
                sql::uuid(id.0),
                arrived(arrival)?
            )
        }
        Op::Taken(key) => write!(
            all,
            "DELETE FROM {schema}.inbox WHERE agent_id = {agent} AND prio = {} AND id = {}",
            key.priority.digit(),
            sql::uuid(key.id.0)
        ),
        Op::Heard(id) => write!(
            all,
            "DELETE FROM {schema}.inbox WHERE agent_id = {agent} AND prio = {HINT} AND id = {}",
            sql::uuid(id.0)
        ),
        Op::Key { key, admitted_at, text } => write!(
            all,
            "INSERT INTO {schema}.dedupe (agent_id, key_sha, revision, admitted_at, body) \
             VALUES ({agent},{},{revision},{},{}) ON CONFLICT (agent_id, key_sha) DO UPDATE \
             SET revision = excluded.revision, admitted_at = excluded.admitted_at, body = excluded.body",
            sql::digest(key),
            admitted_at.as_millis(),
            sql::text(text)?
        ),
        Op::TriggerKey { trigger, digest, key } => write!(
            all,
            "INSERT INTO {schema}.trigger_key (agent_id, trigger_id, sha, key) VALUES ({agent},'{trigger}',{},{}) \
             ON CONFLICT (agent_id, trigger_id) DO UPDATE SET sha = excluded.sha, key = excluded.key",
            sql::text(digest)?,
            sql::bytes(key)
        ),
        Op::Ended { kind, id, at, text } => {
            if !goes_on {
                let _ = write!(
                    all,
                    "INSERT INTO {schema}.archive (agent_id, kind, at, revision, id, body) VALUES "
                );
            }
            write!(
                all,
                "({agent},{},{},{revision},{},{})",
                sql::text(kind)?,
                at.as_millis(),
                sql::optional(id.as_deref())?,
                sql::text(text)?
            )
        }
        Op::Event { seq, at, text } => {
            if !goes_on {
                let _ =
                    write!(all, "INSERT INTO {schema}.event (agent_id, number, at, revision, body) VALUES ");
            }
            write!(all, "({agent},{seq},{},{revision},{})", at.as_millis(), sql::text(text)?)
        }
        Op::Forgotten { from, until, seen_at } => {
            let of_it = format!(
                "agent_id = {agent} AND at >= {} AND at < {} AND revision <= {seen_at}",
                from.as_millis(),
                until.as_millis()
            );
            let ended = sql::text(ENDED)?;
            all.push_str(&forget_saved(schema, agent, &of_it));
            write!(
                all,
                "DELETE FROM {schema}.archive WHERE {of_it} AND kind <> {ended};DELETE FROM {schema}.event WHERE {of_it}"
            )
        }
    };
    Ok(())
}

/// Tables with rows that belong to an open record, and the columns with its id.
fn belongings(plane: Plane) -> &'static [(&'static str, &'static str)] {
    match plane {
        Plane::Work => &[("plan", "id")],
        Plane::Triggers => &[("trigger_key", "trigger_id"), ("trigger_use", "trigger_id")],
        Plane::Tasks | Plane::Waits | Plane::Timers | Plane::Outbox => &[],
    }
}

/// Deletes checkpoints that no record names after archive lines are deleted. The archive line of a
/// dead letter names its checkpoint, because the message can be requeued. `of_it`: condition for
/// the lines that are deleted.
fn forget_saved(schema: &str, agent: i64, of_it: &str) -> String {
    let none_names = |table: &str, which: &str| {
        format!(
            " AND NOT EXISTS (SELECT FROM {schema}.{table} n WHERE n.agent_id = {agent}{which} \
             AND strpos(n.body::text, b.subject) > 0)"
        )
    };
    format!(
        "DELETE FROM {schema}.blob b WHERE b.agent_id = {agent}{}{}{}{};",
        none_names("state", ""),
        none_names("inbox", ""),
        none_names("record", ""),
        none_names("archive", &format!(" AND NOT ({of_it})")),
    )
}

/// Removes the time at which an agent is due. `agent`: its number, or an SQL expression for it.
pub fn not_due(schema: &str, agent: impl Display) -> String {
    format!("DELETE FROM {schema}.due d WHERE d.agent_id = {agent}")
}

/// Sets the time at which an agent is due: a number or an SQL expression. Writes only a change.
pub fn due(schema: &str, agent: impl Display, at: impl Display) -> String {
    format!(
        "INSERT INTO {schema}.due AS d (agent_id, pool, due_at) SELECT a.id, a.pool, {at} FROM {schema}.agent a WHERE a.id = {agent} \
         ON CONFLICT (agent_id) DO UPDATE SET due_at = excluded.due_at, pool = excluded.pool \
         WHERE (d.due_at, d.pool) IS DISTINCT FROM (excluded.due_at, excluded.pool)"
    )
}

/// Deletes the dedupe keys that were admitted before a time.
pub fn forget_keys(schema: &str, agent: i64, before: i64) -> String {
    format!("DELETE FROM {schema}.dedupe WHERE agent_id = {agent} AND admitted_at < {before};")
}

/// Raises the fence at which later agents begin to the last fence of this agent.
fn raise_floor(schema: &str, agent: i64) -> String {
    format!(
        "UPDATE {schema}.fence_floor f SET fence = s.fence FROM {schema}.state s WHERE s.agent_id = {agent} AND s.fence > f.fence;"
    )
}

/// Raises the fence of a new agent to the highest one of all removed agents.
pub fn begin_at_floor(schema: &str, agent: i64) -> String {
    format!(
        "UPDATE {schema}.state s SET fence = greatest(s.fence, f.fence) FROM {schema}.fence_floor f WHERE s.agent_id = {agent};"
    )
}

/// Deletes an agent with all its rows.
pub fn remove(schema: &str, agent: i64) -> String {
    let mut all = super::watch::tell(schema, agent);
    all.push_str(&raise_floor(schema, agent));
    all.push_str(&empty(schema, agent));
    for Table { name, .. } in TABLES.iter().filter(|table| table.rows == Rows::Place) {
        let _ = write!(all, "DELETE FROM {schema}.{name} WHERE agent_id = {agent};");
    }
    let _ = write!(all, "DELETE FROM {schema}.agent WHERE id = {agent};");
    all
}

/// Deletes the contents of an agent, except rows that a replacement of the agent needs.
pub fn empty(schema: &str, agent: i64) -> String {
    let mut all = String::new();
    for Table { name, .. } in TABLES.iter().filter(|table| table.rows == Rows::Agent) {
        let _ = write!(all, "DELETE FROM {schema}.{name} WHERE agent_id = {agent};");
    }
    all
}

/// Creates the missing partitions of archive and events from this month on, by the server's clock.
pub fn months(schema: &str, ahead: u32) -> String {
    format!("SELECT {schema}.make_months({ahead})")
}
