//! Data of triggers outside the records, shared by all machines: the keys of signatures, and the
//! recent uses of each trigger.

use std::num::NonZeroU32;

use crate::error::Result;
use crate::model::id::TriggerId;
use crate::model::time::Span;
use crate::model::trigger::Uses;

use super::super::backend::UseOutcome;
use super::context::AgentContext;
use super::sql;
use super::wire::Statement;

/// SQL source of a trigger's key by its SHA-256.
const ROW_OF_KEY: &str = "FROM @.trigger_key k WHERE k.agent_id = $1 AND k.trigger_id = $2 AND k.sha = $3";

/// Returns the trigger's key if its SHA-256 is `digest`.
pub fn key(one: &AgentContext, trigger: TriggerId, digest: &str) -> Result<Option<Vec<u8>>> {
    let asked = Statement::new(format!("SELECT encode(k.key, 'hex') {ROW_OF_KEY}"));
    let answer = one.ask(asked.with(one.id).with(trigger.to_string()).with(digest))?;
    let Some(hex) = answer.first().and_then(|row| row.get(0)) else { return Ok(None) };
    sql::bytes_of_hex(hex).map(Some).ok_or_else(|| one.shared.pool.unexpected("the key of a trigger"))
}

/// True if the trigger has the key with this SHA-256. Needs no right to read keys.
pub fn has_key(one: &AgentContext, trigger: TriggerId, digest: &str) -> Result<bool> {
    let asked = Statement::new(format!("SELECT EXISTS (SELECT {ROW_OF_KEY})"));
    let answer = one.ask(asked.with(one.id).with(trigger.to_string()).with(digest))?;
    Ok(answer.first().is_some_and(|row| row.is(0)))
}

/// Counts a use of a trigger in one round trip, without the agent's lock. After a lost answer the
/// use may be counted twice, so the limit is never exceeded.
pub fn count_use(one: &AgentContext, trigger: TriggerId, most: NonZeroU32) -> Result<UseOutcome> {
    let window = Uses::WINDOW.as_millis();
    // A transaction that waited for this row had read its own time before the wait, so the stored
    // start may be slightly later than that time. Only a start that differs by more than a minute
    // belongs to another minute or to a wrong clock.
    let is_current = format!("u.since > excluded.since - {window} AND u.since < excluded.since + {window}");
    let counted = Statement::new(format!(
        "INSERT INTO @.trigger_use AS u (agent_id, trigger_id, since, times) \
         SELECT a.id, $2, @now, 1 FROM @.agent a WHERE a.id = $1 AND NOT a.is_shut \
         ON CONFLICT (agent_id, trigger_id) DO UPDATE SET \
           since = CASE WHEN {is_current} THEN u.since ELSE excluded.since END, \
           times = CASE WHEN {is_current} THEN u.times + 1 ELSE 1 END \
         WHERE NOT ({is_current}) OR u.times < $3 RETURNING times"
    ));
    let told = Statement::new(
        "SELECT a.is_shut, u.since, @now FROM @.agent a LEFT JOIN @.trigger_use u \
         ON u.agent_id = a.id AND u.trigger_id = $2 WHERE a.id = $1",
    );
    let trigger = trigger.to_string();
    let answers = one.shared.pool.ask(&[
        Statement::new("SELECT pg_advisory_xact_lock_shared(hashtextextended('@', $1))").with(one.id),
        counted.with(one.id).with(&trigger).with(most.get()),
        told.with(one.id).with(&trigger),
    ])?;
    let mut last = answers.iter().rev();
    let seen = last.next().and_then(|answer| answer.first()).ok_or_else(|| one.gone())?;
    let is_counted = last.next().is_some_and(|answer| !answer.is_empty());
    // A use for a moved agent is not counted, because the following delivery is refused.
    if is_counted || seen.is(0) {
        return Ok(Ok(()));
    }
    let (Some(since), Some(now)) = (seen.number::<i64>(1), seen.number::<i64>(2)) else {
        return Err(one.shared.pool.unexpected("how often a trigger was used"));
    };
    let left = since.saturating_add_unsigned(window).saturating_sub(now);
    Ok(Err(Span::from_millis(left.clamp(1, window.cast_signed()).unsigned_abs())))
}
