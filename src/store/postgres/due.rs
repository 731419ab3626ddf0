//! Which agents a ticking process looks at: those that are due, and those that have something in the inbox. Each is a walk
//! along an index, as long as what it finds.

use crate::error::Result;
use crate::model::time::Time;

use super::super::elsewhere::Due;
use super::pool::Pool;
use super::shared::number;
use super::wire::Row;

/// Agents whose moment has come at `now`, in milliseconds, by the clock that has set the moments: that of machines that tick.
pub fn due(schema: &str, now: i64) -> String {
    format!("SELECT d.agent_id FROM {schema}.due d WHERE d.pool = '' AND d.rank = 0 AND d.due_at <= {now}")
}

/// When the next moment after `now` comes.
pub fn next(schema: &str, now: i64) -> String {
    format!(
        "SELECT d.due_at FROM {schema}.due d WHERE d.pool = '' AND d.rank = 0 AND d.due_at > {now} \
         ORDER BY d.due_at LIMIT 1"
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
pub fn names(schema: &str, now: i64) -> String {
    format!(
        "SELECT n.name FROM (SELECT (SELECT a.name FROM {schema}.agent a WHERE a.id = q.agent_id) AS name \
           FROM (({}) UNION ({})) q) n WHERE n.name IS NOT NULL ORDER BY n.name",
        due(schema, now),
        with_arrivals(schema)
    )
}

/// Both, and the next moment, in one flight.
pub fn ask(pool: &Pool, now: Time) -> Result<Due> {
    let (schema, now) = (pool.schema(), now.as_millis());
    let answers = pool.ask(&format!("{};{}", names(schema, now), next(schema, now)))?;
    let [names, next] = answers.as_slice() else { return Err(pool.unexpected("which agents are due")) };
    let name = |row: &Row| row.get(0).and_then(|name| name.parse().ok());
    let names = names.rows.iter().map(|row| name(row).ok_or_else(|| pool.unexpected("names of agents")));
    Ok(Due {
        names: names.collect::<Result<_>>()?,
        next: number(next.rows.first(), 0).map(Time::from_millis),
    })
}
