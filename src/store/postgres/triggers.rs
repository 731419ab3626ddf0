//! What all machines have in common of triggers beside their records: the keys of signatures, and
//! how often each was used lately.

use std::num::NonZeroU32;

use crate::error::Result;
use crate::model::id::{AgentName, TriggerId};
use crate::model::time::Span;
use crate::model::trigger::Uses;

use super::shared::{One, first, number};
use super::{sql, statements};

/// The key of this digest, if the trigger has it.
pub fn key(one: &One, trigger: TriggerId, digest: &str) -> Result<Option<Vec<u8>>> {
    let answers =
        one.ask(&format!("SELECT encode(k.key, 'hex') FROM {}", row_of_key(one, trigger, digest)?))?;
    let Some(hex) = first(&answers).and_then(|row| row.get(0)) else { return Ok(None) };
    sql::bytes_of_hex(hex).map(Some).ok_or_else(|| one.shared.pool.unexpected("the key of a trigger"))
}

/// Whether the trigger has the key. The key itself is not looked at, which not everybody may do.
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

/// A statement that gives the keys of an agent to another one that has the same triggers.
pub fn hand_on(one: &One, heir: &AgentName) -> Result<String> {
    let (schema, id) = (one.schema(), one.id);
    Ok(format!(
        "INSERT INTO {schema}.trigger_key (agent_id, trigger_id, sha, key) \
         SELECT h.id, k.trigger_id, k.sha, k.key FROM {schema}.trigger_key k, {schema}.agent h \
         WHERE k.agent_id = {id} AND h.name = {} ON CONFLICT DO NOTHING;",
        sql::text(heir.as_str())?
    ))
}

/// Counts one use in one flight, without the agent's lock. If its answer is lost the use is counted
/// once more: so never more uses are allowed than are meant.
pub fn count_use(one: &One, trigger: TriggerId, most: NonZeroU32) -> Result<std::result::Result<(), Span>> {
    let (schema, id, now) = (one.schema(), one.id, sql::SERVER_NOW);
    let window = Uses::WINDOW.as_millis();
    // Whoever waited for the row of another use has asked for the time before that. So a minute
    // that has begun a moment later than now is the current one, and only one that begins much
    // later was written by a clock that was wrong.
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
    // Of an agent that was moved away nothing is counted: what is delivered to it is refused.
    if is_counted || seen.get(0) == Some("t") {
        return Ok(Ok(()));
    }
    let (Some(since), Some(now)) = (number::<i64>(Some(seen), 1), number::<i64>(Some(seen), 2)) else {
        return Err(one.shared.pool.unexpected("how often a trigger was used"));
    };
    let left = since.saturating_add_unsigned(window).saturating_sub(now);
    Ok(Err(Span::from_millis(left.clamp(1, window.cast_signed()).unsigned_abs())))
}
