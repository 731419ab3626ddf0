//! Data of triggers that all machines share and that is not in the records: the keys of signatures,
//! and the recent uses of each trigger.

use std::num::NonZeroU32;

use crate::error::Result;
use crate::model::id::{AgentName, TriggerId};
use crate::model::time::Span;
use crate::model::trigger::Uses;

use super::shared::{One, first, number};
use super::{sql, statements};

/// Returns the trigger's key if its SHA-256 is `digest`.
pub fn key(one: &One, trigger: TriggerId, digest: &str) -> Result<Option<Vec<u8>>> {
    let answers =
        one.ask(&format!("SELECT encode(k.key, 'hex') FROM {}", row_of_key(one, trigger, digest)?))?;
    let Some(hex) = first(&answers).and_then(|row| row.get(0)) else { return Ok(None) };
    sql::bytes_of_hex(hex).map(Some).ok_or_else(|| one.shared.pool.unexpected("the key of a trigger"))
}

/// True if the trigger has the key with this SHA-256. A role that may not read keys can ask this.
pub fn has_key(one: &One, trigger: TriggerId, digest: &str) -> Result<bool> {
    let answers = one.ask(&format!("SELECT EXISTS (SELECT FROM {})", row_of_key(one, trigger, digest)?))?;
    Ok(first(&answers).and_then(|row| row.get(0)) == Some("t"))
}

fn row_of_key(one: &One, trigger: TriggerId, digest: &str) -> Result<String> {
    Ok(format!(
        "{}.trigger_key k WHERE k.agent_id = {} AND k.trigger_id = '{trigger}' AND k.sha = {}",
        one.schema(),
        one.id,
        sql::text(digest)?
    ))
}

/// Returns a statement that copies an agent's keys to another agent that has the same triggers.
pub fn hand_on(one: &One, heir: &AgentName) -> Result<String> {
    let (schema, id) = (one.schema(), one.id);
    Ok(format!(
        "INSERT INTO {schema}.trigger_key (agent_id, trigger_id, sha, key) \
         SELECT h.id, k.trigger_id, k.sha, k.key FROM {schema}.trigger_key k, {schema}.agent h \
         WHERE k.agent_id = {id} AND h.name = {} ON CONFLICT DO NOTHING;",
        sql::text(heir.as_str())?
    ))
}

/// Counts one use of a trigger in one round trip, without the agent's lock. If the answer is lost,
/// the use may be counted twice, so the limit is never exceeded.
pub fn count_use(one: &One, trigger: TriggerId, most: NonZeroU32) -> Result<std::result::Result<(), Span>> {
    let (schema, id, now) = (one.schema(), one.id, sql::SERVER_NOW);
    let window = Uses::WINDOW.as_millis();
    // A transaction that waited for this row read its own time before the wait, so the stored
    // minute may begin slightly later than that. Only a start that is more than a minute away is
    // from another minute or from a wrong clock.
    let is_current = format!("u.since > excluded.since - {window} AND u.since < excluded.since + {window}");
    let answers = one.shared.pool.ask(&format!(
        "{door};\
         INSERT INTO {schema}.trigger_use AS u (agent_id, trigger_id, since, times) \
         SELECT a.id, '{trigger}', {now}, 1 FROM {schema}.agent a WHERE a.id = {id} AND NOT a.is_shut \
         ON CONFLICT (agent_id, trigger_id) DO UPDATE SET \
           since = CASE WHEN {is_current} THEN u.since ELSE excluded.since END, \
           times = CASE WHEN {is_current} THEN u.times + 1 ELSE 1 END \
         WHERE NOT ({is_current}) OR u.times < {most} RETURNING times;\
         SELECT a.is_shut, u.since, {now} FROM {schema}.agent a LEFT JOIN {schema}.trigger_use u \
           ON u.agent_id = a.id AND u.trigger_id = '{trigger}' WHERE a.id = {id}",
        door = statements::door(schema, id, "_shared"),
    ))?;
    let mut last = answers.iter().rev();
    let seen = last.next().and_then(|answer| answer.rows.first()).ok_or_else(|| one.gone())?;
    let is_counted = last.next().is_some_and(|answer| !answer.rows.is_empty());
    // A use for an agent that was moved away is not counted, because the delivery that follows is
    // refused.
    if is_counted || seen.get(0) == Some("t") {
        return Ok(Ok(()));
    }
    let (Some(since), Some(now)) = (number::<i64>(Some(seen), 1), number::<i64>(Some(seen), 2)) else {
        return Err(one.shared.pool.unexpected("how often a trigger was used"));
    };
    let left = since.saturating_add_unsigned(window).saturating_sub(now);
    Ok(Err(Span::from_millis(left.clamp(1, window.cast_signed()).unsigned_abs())))
}
