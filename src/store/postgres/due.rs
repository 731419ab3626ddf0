//! Which agents a ticking process looks at: those that are due, and those that have something in the inbox. Each is a walk
//! along an index, as long as what it finds.

use crate::error::Result;
use crate::model::time::Time;

use super::super::elsewhere::{Claimant, Due};
use super::pool::Pool;
use super::shared::number;
use super::sql;
use super::wire::Row;

/// Agents whose moment has come at `now`, in milliseconds, by the clock that has set the moments: that of machines that tick.
/// `pools`: their names as statements have them, parted by commas.
pub fn due(schema: &str, now: i64, pools: &str) -> String {
    format!(
        "SELECT d.agent_id FROM {schema}.due d WHERE d.pool IN ({pools}) AND d.rank = 0 AND d.due_at <= {now}"
    )
}

/// When the next moment after `now` comes.
pub fn next(schema: &str, now: i64, pools: &str) -> String {
    format!(
        "SELECT min((SELECT d.due_at FROM {schema}.due d WHERE d.pool = p.pool AND d.rank = 0 AND d.due_at > {now} \
         ORDER BY d.due_at LIMIT 1)) FROM unnest(ARRAY[{pools}]) p (pool)"
    )
}

/// Agents that have something in the inbox, one probe for each, however long its inbox is. A step may have looked at it
/// before and left it there: it is looked at again, because a message may have expired since.
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

/// The names of both. The sub-select makes it one probe for each name, whatever is known of how many there are.
pub fn names(schema: &str, now: i64, pools: &str) -> String {
    format!(
        "SELECT n.name FROM (SELECT (SELECT a.name FROM {schema}.agent a WHERE a.id = q.agent_id AND a.pool IN ({pools})) AS name \
           FROM (({}) UNION ({})) q) n WHERE n.name IS NOT NULL ORDER BY n.name",
        due(schema, now, pools),
        with_arrivals(schema)
    )
}

/// How long a machine that ticks need not say so again, in milliseconds.
const SAID: i64 = 60_000;

/// Notes that a machine ticks agents of these pools, unless that is noted already: nothing is written then.
fn note(schema: &str, by: &Claimant, pools: &str) -> Result<String> {
    let (anchor, host) = (sql::text(&by.anchor)?, sql::text(&by.host)?);
    let (now, version) = (sql::SERVER_NOW, sql::text(env!("CARGO_PKG_VERSION"))?);
    Ok(format!(
        "INSERT INTO {schema}.anchor (id, host, pools, version, seen_at) \
         SELECT {anchor}, {host}, ARRAY[{pools}]::text[], {version}, {now} WHERE NOT EXISTS (SELECT FROM {schema}.anchor n \
           WHERE n.id = {anchor} AND n.pools = ARRAY[{pools}]::text[] AND n.seen_at > {now} - {SAID}) \
         ON CONFLICT (id) DO UPDATE SET host = excluded.host, pools = excluded.pools, version = excluded.version, \
           seen_at = excluded.seen_at;"
    ))
}

/// Both, and the next moment, in one flight. `by`: who steps the agents.
pub fn ask(pool: &Pool, now: Time, pools: &[&str], by: Option<&Claimant>) -> Result<Due> {
    let (schema, now) = (pool.schema(), now.as_millis());
    let pools = pools.iter().map(|name| sql::text(name)).collect::<Result<Vec<_>>>()?.join(",");
    let note = by.map(|by| note(schema, by, &pools)).transpose()?.unwrap_or_default();
    let answers = pool.ask(&format!("{note}{};{}", names(schema, now, &pools), next(schema, now, &pools)))?;
    let [.., names, next] = answers.as_slice() else { return Err(pool.unexpected("which agents are due")) };
    // One whose name is none keeps nobody else from a step. `doctor` finds it.
    let name = |row: &Row| row.get(0).and_then(|name| name.parse().ok());
    Ok(Due {
        names: names.rows.iter().filter_map(name).collect(),
        next: number(next.rows.first(), 0).map(Time::from_millis),
    })
}
