//! Queries for the agents that a ticking process checks: due agents, and agents with arrivals. The
//! cost of each query depends only on the number of returned agents.

use uuid::Uuid;

use crate::error::Result;
use crate::local::LeaseClaimant;
use crate::model::id::MessageId;
use crate::model::message::Priority;
use crate::model::pool::Pool;
use crate::model::time::Time;

use super::super::backend::{DueAgent, DueAgents};
use super::pool::ConnectionPool;
use super::statements;
use super::wire::{Row, Statement, Value};

/// Interval in milliseconds after which a ticking machine renews its row in the table `anchor`.
const ANCHOR_INTERVAL: i64 = 60_000;

/// Query for the first due time after `$1` in the pools (groups of agents) `$2`. Times are
/// milliseconds by the clock of ticking machines, which set the due times.
pub const NEXT: &str = "SELECT min((SELECT d.due_at FROM @.due d WHERE d.pool = p.pool AND d.due_at > $1 \
     ORDER BY d.due_at LIMIT 1)) FROM unnest($2::text[]) p (pool)";

/// Query for agents that are due at `$1`, agents with arrivals, and the times that order them.
/// `$2`: pools (groups of agents). `$3`: id of this machine's state directory, to exclude agents
/// whose turn runs on another machine; NULL excludes no agent.
///
/// Arrivals cost one index probe for each agent with arrivals, for an inbox of any length. Arrivals
/// that a step has left in the inbox are included, because they may have expired since. `OFFSET 0`
/// enforces one index probe per table and agent, with any statistics.
pub fn agents() -> String {
    let digits = Priority::ALL.iter().map(|priority| priority.digit().to_string());
    let oldest: Vec<String> = std::iter::once(statements::HINT.to_owned())
        .chain(digits)
        .map(|prio| {
            format!("(SELECT i.id FROM @.inbox i WHERE i.agent_id = q.agent_id AND i.prio = {prio} ORDER BY i.id LIMIT 1)")
        })
        .collect();
    format!(
        "WITH RECURSIVE f(agent_id) AS (\
           (SELECT i.agent_id FROM @.inbox i WHERE i.agent_id > -1 ORDER BY i.agent_id LIMIT 1) \
           UNION ALL SELECT (SELECT i.agent_id FROM @.inbox i WHERE i.agent_id > f.agent_id ORDER BY i.agent_id LIMIT 1) \
             FROM f WHERE f.agent_id IS NOT NULL) \
         SELECT a.name, a.policy, LEAST({}), (SELECT d.due_at FROM @.due d WHERE d.agent_id = q.agent_id) \
         FROM (SELECT d.agent_id FROM @.due d WHERE d.pool = ANY ($2::text[]) AND d.due_at <= $1 \
           UNION SELECT agent_id FROM f WHERE agent_id IS NOT NULL) q \
         CROSS JOIN LATERAL (SELECT a.name, a.policy FROM @.agent a WHERE a.id = q.agent_id AND a.pool = ANY ($2::text[]) \
           AND NOT EXISTS (SELECT FROM @.lease l WHERE l.agent_id = a.id AND l.subject = 'run' AND l.anchor <> $3::text \
             AND l.expires_at > @now) OFFSET 0) a ORDER BY a.name",
        oldest.join(",")
    )
}

/// Returns a statement that records that a machine ticks these pools (groups of agents), and
/// creates the table partitions of the next months, at most once per [`ANCHOR_INTERVAL`].
fn note(by: &LeaseClaimant, pools: Value) -> Statement {
    Statement::new(format!(
        "WITH noted AS (INSERT INTO @.anchor (id, host, pools, version, seen_at) \
         SELECT $1, $2, $3::text[], $4, @now WHERE NOT EXISTS (SELECT FROM @.anchor n \
           WHERE n.id = $1 AND n.pools = $3::text[] AND n.seen_at > @now - {ANCHOR_INTERVAL}) \
         ON CONFLICT (id) DO UPDATE SET host = excluded.host, pools = excluded.pools, version = excluded.version, \
           seen_at = excluded.seen_at RETURNING id) SELECT @.make_months($5) FROM noted"
    ))
    .with(&by.anchor)
    .with(&by.host)
    .with(pools)
    .with(env!("CARGO_PKG_VERSION"))
    .with(super::MONTHS_AHEAD)
}

/// Returns the agents of these pools (groups of agents) to check, the next due time, and the number
/// of machines that tick any of these pools, in one round trip. `by`: ticking process.
pub fn ask(pool: &ConnectionPool, now: Time, pools: &[Pool], by: Option<LeaseClaimant>) -> Result<DueAgents> {
    let pools = Value::Texts(pools.iter().map(|pool| pool.as_str().to_owned()).collect());
    let now = now.as_millis();
    let machines = Statement::new(format!(
        "SELECT count(*) FROM @.anchor n WHERE n.pools && $1::text[] AND n.seen_at > @now - 2 * {ANCHOR_INTERVAL}"
    ));
    let mut asked: Vec<Statement> = by.iter().map(|by| note(by, pools.clone())).collect();
    asked.extend([
        Statement::new(agents()).with(now).with(pools.clone()).with(by.map(|by| by.anchor)),
        Statement::new(NEXT).with(now).with(pools.clone()),
        machines.with(pools),
    ]);
    let answers = pool.ask(&asked)?;
    let [.., agents, next, machines] = answers.as_slice() else {
        return Err(pool.unexpected("which agents are due"));
    };
    Ok(DueAgents {
        agents: agents.iter().filter_map(agent).collect(),
        next: next.first().and_then(|row| row.number(0)).map(Time::from_millis),
        machines: machines.first().and_then(|row| row.number(0)).unwrap_or(1),
    })
}

/// Parses a row. Returns `None` for an invalid agent name, so that other agents are ticked.
fn agent(row: &Row) -> Option<DueAgent> {
    let id = row.get(2).and_then(|id| Uuid::parse_str(id).ok()).map(MessageId);
    Some(DueAgent {
        name: row.get(0)?.parse().ok()?,
        policy: row.text(1)?,
        since: id.and_then(|id| id.minted_at()),
        due: row.number(3).map(Time::from_millis),
    })
}
