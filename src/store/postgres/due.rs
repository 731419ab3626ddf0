//! Which agents a ticking process looks at: those that are due, and those that have something in
//! the inbox. Each is a walk along an index, as long as what it finds.

use uuid::Uuid;

use crate::error::Result;
use crate::model::id::MessageId;
use crate::model::message::Priority;
use crate::model::time::Time;

use super::super::elsewhere::{Claimant, Due, DueAgent};
use super::pool::Pool;
use super::shared::number;
use super::wire::Row;
use super::{sql, statements};

/// Agents whose moment has come at `now`, in milliseconds, by the clock that has set the moments:
/// that of machines that tick. `pools`: their names as statements have them, parted by commas.
pub fn due(schema: &str, now: i64, pools: &str) -> String {
    format!("SELECT d.agent_id FROM {schema}.due d WHERE d.pool IN ({pools}) AND d.due_at <= {now}")
}

/// When the next moment after `now` comes.
pub fn next(schema: &str, now: i64, pools: &str) -> String {
    format!(
        "SELECT min((SELECT d.due_at FROM {schema}.due d WHERE d.pool = p.pool AND d.due_at > {now} \
         ORDER BY d.due_at LIMIT 1)) FROM unnest(ARRAY[{pools}]) p (pool)"
    )
}

/// Agents that have something in the inbox, one probe for each, however long its inbox is. A step
/// may have looked at it before and left it there: it is looked at again, because a message may
/// have expired since.
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

/// The agents of both, with what their place among others depends on. It is one probe of each table
/// for each agent, whatever is known of how many there are. `but`: not those whose turn runs on
/// another machine than this one.
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

/// How long a machine that ticks need not say so again, in milliseconds.
const SAID: i64 = 60_000;

/// Notes that a machine ticks agents of these pools, and sees to it that the next months have their
/// parts, unless that is noted already: nothing is written then.
fn note(schema: &str, by: &Claimant, pools: &str) -> Result<String> {
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

/// How many machines tick agents of these pools.
fn machines(schema: &str, pools: &str) -> String {
    format!(
        "SELECT count(*) FROM {schema}.anchor n WHERE n.pools && ARRAY[{pools}]::text[] AND n.seen_at > {} - 2 * {SAID}",
        sql::SERVER_NOW
    )
}

/// Both, and the next moment, in one flight. `by`: who steps the agents.
pub fn ask(pool: &Pool, now: Time, pools: &[&str], by: Option<&Claimant>) -> Result<Due> {
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
    Ok(Due {
        agents: agents.rows.iter().filter_map(agent).collect(),
        next: number(next.rows.first(), 0).map(Time::from_millis),
        machines: number(machines.rows.first(), 0).unwrap_or(1),
    })
}

/// One whose name is none keeps nobody else from a step. `doctor` finds it.
fn agent(row: &Row) -> Option<DueAgent> {
    let id = row.get(2).and_then(|id| Uuid::parse_str(id).ok()).map(MessageId);
    Some(DueAgent {
        name: row.get(0)?.parse().ok()?,
        policy: row.get(1)?.to_owned(),
        since: id.and_then(|id| id.minted_at()),
        due: number(Some(row), 3).map(Time::from_millis),
    })
}
