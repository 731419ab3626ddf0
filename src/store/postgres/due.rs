//! Queries for the agents that a ticking process looks at: due agents, and agents with arrivals.
//! The cost of each grows only with the number of agents it returns.

use uuid::Uuid;

use crate::error::Result;
use crate::model::id::MessageId;
use crate::model::message::Priority;
use crate::model::time::Time;

use super::super::elsewhere::{DueAgent, DueAgents, LeaseClaimant};
use super::pool::ConnectionPool;
use super::shared::number;
use super::wire::Row;
use super::{sql, statements};

/// Query for agents that are due at `now`, in milliseconds by the clock of ticking machines, which
/// also set the due times. `pools`: names as SQL literals, separated by commas.
pub fn due(schema: &str, now: i64, pools: &str) -> String {
    format!("SELECT d.agent_id FROM {schema}.due d WHERE d.pool IN ({pools}) AND d.due_at <= {now}")
}

/// Query for the first due time after `now`.
pub fn next(schema: &str, now: i64, pools: &str) -> String {
    format!(
        "SELECT min((SELECT d.due_at FROM {schema}.due d WHERE d.pool = p.pool AND d.due_at > {now} \
         ORDER BY d.due_at LIMIT 1)) FROM unnest(ARRAY[{pools}]) p (pool)"
    )
}

/// Query for agents with arrivals, with one index probe for each agent, however long its inbox is.
/// It includes arrivals that a step has left in the inbox, because they may have expired since.
pub fn with_arrivals(schema: &str) -> String {
    let next = |than: &str| {
        format!(
            "SELECT i.agent_id FROM {schema}.inbox i WHERE i.agent_id > {than} ORDER BY i.agent_id LIMIT 1"
        )
    };
    format!(
        "WITH RECURSIVE f(agent_id) AS (({}) UNION ALL SELECT ({}) FROM f WHERE f.agent_id IS NOT NULL) \
         SELECT agent_id FROM f WHERE agent_id IS NOT NULL",
        next("-1"),
        next("f.agent_id")
    )
}

/// Query for due agents and agents with arrivals, and the times by which they are ordered. `OFFSET
/// 0` enforces one index probe per table and agent, whatever the statistics are. `but`: anchor of
/// this machine; leaves out agents whose turn runs on another machine.
pub fn agents(schema: &str, now: i64, pools: &str, but: Option<&str>) -> String {
    let is_here = but.map_or_else(String::new, |anchor| {
        let now = sql::SERVER_NOW;
        format!(
            " AND NOT EXISTS (SELECT FROM {schema}.lease l WHERE l.agent_id = a.id AND l.subject = 'run' \
             AND l.anchor <> {anchor} AND l.expires_at > {now})"
        )
    });
    let oldest: Vec<String> = [statements::HINT.to_owned()]
        .into_iter()
        .chain(Priority::ALL.iter().map(|priority| priority.digit().to_string()))
        .map(|prio| {
            format!(
                "(SELECT i.id FROM {schema}.inbox i WHERE i.agent_id = q.agent_id AND i.prio = {prio} ORDER BY i.id LIMIT 1)"
            )
        })
        .collect();
    format!(
        "SELECT a.name, a.policy, LEAST({}), (SELECT d.due_at FROM {schema}.due d WHERE d.agent_id = q.agent_id) \
         FROM (({}) UNION ({})) q CROSS JOIN LATERAL (SELECT a.name, a.policy FROM {schema}.agent a \
           WHERE a.id = q.agent_id AND a.pool IN ({pools}){is_here} OFFSET 0) a ORDER BY a.name",
        oldest.join(","),
        due(schema, now, pools),
        with_arrivals(schema)
    )
}

/// Interval at which a ticking machine updates its row in `anchor`, in milliseconds.
const SAID: i64 = 60_000;

/// Updates the row of a machine that ticks these pools and creates missing monthly partitions.
/// Writes nothing if the row is recent.
fn note(schema: &str, by: &LeaseClaimant, pools: &str) -> Result<String> {
    let (anchor, host) = (sql::text(&by.anchor)?, sql::text(&by.host)?);
    let (now, version) = (sql::SERVER_NOW, sql::text(env!("CARGO_PKG_VERSION"))?);
    Ok(format!(
        "WITH noted AS (INSERT INTO {schema}.anchor (id, host, pools, version, seen_at) \
         SELECT {anchor}, {host}, ARRAY[{pools}]::text[], {version}, {now} WHERE NOT EXISTS (SELECT FROM {schema}.anchor n \
           WHERE n.id = {anchor} AND n.pools = ARRAY[{pools}]::text[] AND n.seen_at > {now} - {SAID}) \
         ON CONFLICT (id) DO UPDATE SET host = excluded.host, pools = excluded.pools, version = excluded.version, \
           seen_at = excluded.seen_at RETURNING id) {} FROM noted;",
        statements::months(schema, super::MONTHS_AHEAD)
    ))
}

/// Query for the number of machines that tick these pools.
fn machines(schema: &str, pools: &str) -> String {
    format!(
        "SELECT count(*) FROM {schema}.anchor n WHERE n.pools && ARRAY[{pools}]::text[] AND n.seen_at > {} - 2 * {SAID}",
        sql::SERVER_NOW
    )
}

/// Returns the agents to look at and the next due time, in one round trip. `by`: the ticking
/// process.
pub fn ask(
    pool: &ConnectionPool,
    now: Time,
    pools: &[&str],
    by: Option<&LeaseClaimant>,
) -> Result<DueAgents> {
    let (schema, now) = (pool.schema(), now.as_millis());
    let pools = pools.iter().map(|name| sql::text(name)).collect::<Result<Vec<_>>>()?.join(",");
    let note = by.map(|by| note(schema, by, &pools)).transpose()?.unwrap_or_default();
    let anchor = by.map(|by| sql::text(&by.anchor)).transpose()?;
    let (agents, next) = (agents(schema, now, &pools, anchor.as_deref()), next(schema, now, &pools));
    let machines = machines(schema, &pools);
    let answers = pool.ask(&format!("{note}{agents};{next};{machines}"))?;
    let [.., agents, next, machines] = answers.as_slice() else {
        return Err(pool.unexpected("which agents are due"));
    };
    Ok(DueAgents {
        agents: agents.rows.iter().filter_map(agent).collect(),
        next: number(next.rows.first(), 0).map(Time::from_millis),
        machines: number(machines.rows.first(), 0).unwrap_or(1),
    })
}

/// An agent with an invalid name is left out, so that the others are ticked. `doctor` reports it.
fn agent(row: &Row) -> Option<DueAgent> {
    let id = row.get(2).and_then(|id| Uuid::parse_str(id).ok()).map(MessageId);
    Some(DueAgent {
        name: row.get(0)?.parse().ok()?,
        policy: row.get(1)?.to_owned(),
        since: id.and_then(|id| id.minted_at()),
        due: number(Some(row), 3).map(Time::from_millis),
    })
}
