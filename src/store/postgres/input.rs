//! Input of a task on another machine, as rows of `task_input`.

use std::rc::Rc;
use std::time::{Duration, Instant};

use uuid::Uuid;

use crate::error::Result;
use crate::model::id::TaskId;

use super::super::elsewhere::input::{InputAnswer, InputRemainder, SAID, TAKEN, TaskInput, WAITING};
use super::fate::{CommitEvidence, FATE, fate};
use super::faults::{self, RoundTripFault};
use super::shared::{One, first, number};
use super::{sql, statements};

/// Timeout of a supervisor's queries. It is short, because the supervisor also watches its task.
const MOMENT: Duration = Duration::from_secs(1);

/// Retention period, in milliseconds, of refused parts that their sender has not taken back because
/// it was killed.
pub const KEPT: i64 = 3_600_000;

#[derive(Debug)]
pub struct PgInput {
    one: Rc<One>,
    task: TaskId,
}

impl PgInput {
    pub fn new(one: &Rc<One>, task: TaskId) -> PgInput {
        PgInput { one: Rc::clone(one), task }
    }

    /// SQL condition: the row belongs to this task.
    fn rows(&self) -> String {
        format!("agent_id = {} AND task_id = '{}'", self.one.id, self.task)
    }

    fn table(&self) -> String {
        format!("{}.task_input", self.one.schema())
    }

    /// SQL source: the row of the task's record, which exists while the task is open.
    fn record(&self) -> String {
        let (schema, id, task) = (self.one.schema(), self.one.id, self.task);
        format!("{schema}.record WHERE agent_id = {id} AND kind = 'task' AND id = '{task}'")
    }

    /// SQL condition: the task is open and its supervisor has a live lease.
    fn is_heard(&self) -> String {
        format!(
            "EXISTS (SELECT FROM {}) AND EXISTS (SELECT FROM {}.lease l WHERE l.agent_id = {} AND l.subject = '{}' \
             AND l.expires_at > {})",
            self.record(),
            self.one.schema(),
            self.one.id,
            self.task,
            sql::SERVER_NOW
        )
    }

    /// Returns statements that add input in a transaction that has begun. The lock on the task's
    /// record orders concurrent senders, so that `seq` follows the order of commits, and makes the
    /// end of a task come before the input or see it.
    fn saying(&self, words: Uuid, bytes: &[u8]) -> Result<String> {
        let (table, rows, heard) = (self.table(), self.rows(), self.is_heard());
        let parts: Vec<String> = bytes
            .chunks(SAID)
            .zip(1..)
            .map(|(part, number)| format!("({number},{})", sql::bytes(part)))
            .collect();
        let waiting = format!("(SELECT coalesce(sum(length(bytes)), 0) FROM {table} WHERE {rows})");
        let fits = format!("{waiting} + {} <= {WAITING}", bytes.len());
        Ok(format!(
            "SELECT FROM {record} FOR NO KEY UPDATE;\
             INSERT INTO {table} (agent_id, task_id, words, at, bytes) \
             SELECT {id}, '{task}', {words}, {now}, v.bytes FROM (VALUES {parts}) v (number, bytes) \
             WHERE {heard} AND {fits} AND {provided} ORDER BY v.number;\
             SELECT EXISTS (SELECT FROM {table} WHERE {rows} AND words = {words}), {heard}, {provided};COMMIT",
            record = self.record(),
            id = self.one.id,
            task = self.task,
            words = sql::uuid(words),
            now = sql::SERVER_NOW,
            parts = parts.join(","),
            provided = self.one.not_fenced()?,
        ))
    }
}

impl TaskInput for PgInput {
    fn say(&self, words: Uuid, bytes: &[u8]) -> Result<InputAnswer> {
        let pool = &self.one.shared.pool;
        if bytes.is_empty() {
            return Ok(InputAnswer::Waits);
        }
        if bytes.len() > WAITING {
            return Ok(InputAnswer::Full);
        }
        let begun = format!(
            "BEGIN;SET LOCAL lock_timeout = '{}ms';\
             SET LOCAL idle_in_transaction_session_timeout = '{}';SELECT pg_current_xact_id()",
            pool.patience().as_millis().max(1),
            statements::MOST_IDLE
        );
        let saying = self.saying(words, bytes)?;
        let until = Instant::now() + pool.patience() + FATE;
        loop {
            let mut connection = pool.take().map_err(|trouble| trouble.into_error(pool.url()))?;
            let flown = pool.fly(&mut connection, &begun, Duration::ZERO).map(|answers| {
                let number = answers.last().and_then(|answer| answer.rows.first()?.get(0)).map(str::to_owned);
                (number, pool.fly(&mut connection, &saying, pool.patience()))
            });
            match flown {
                Ok((_, Ok(answers))) => {
                    pool.give(connection);
                    let row = answers.iter().rev().find_map(|answer| answer.rows.first());
                    let is = |column| row.and_then(|row| row.get(column)) == Some("t");
                    return match (is(0), is(1), is(2)) {
                        (true, _, _) => Ok(InputAnswer::Waits),
                        (false, _, false) => Err(faults::fenced(self.one.name.as_str())),
                        (false, false, true) => Ok(InputAnswer::Nobody),
                        (false, true, true) => Ok(InputAnswer::Full),
                    };
                }
                Ok((Some(number), Err(RoundTripFault::Lost { why, .. }))) => {
                    pool.forget();
                    if fate(&self.one, &number, &CommitEvidence::None, &why)? {
                        // The input was committed but is missing: the supervisor has taken it, or
                        // it was refused.
                        let is_there = self.rest(words)?.bytes > 0;
                        return if is_there {
                            Ok(InputAnswer::Waits)
                        } else {
                            Err(faults::unknown(pool.url(), &why))
                        };
                    }
                }
                Ok((None, Err(RoundTripFault::Lost { .. }))) | Err(RoundTripFault::Lost { .. }) => {
                    pool.forget()
                }
                Ok((_, Err(trouble))) | Err(trouble) => return Err(trouble.into_error(pool.url())),
            }
            if Instant::now() > until {
                return Err(faults::unknown(pool.url(), "the connection broke again and again"));
            }
        }
    }

    fn rest(&self, words: Uuid) -> Result<InputRemainder> {
        let (table, rows, heard) = (self.table(), self.rows(), self.is_heard());
        let answers = self.one.ask(&format!(
            "SELECT coalesce(sum(length(bytes)), 0), coalesce(bool_or(is_refused), false), {heard} FROM {table} \
             WHERE {rows} AND words = {}",
            sql::uuid(words)
        ))?;
        let row = first(&answers);
        let is = |column| row.and_then(|row| row.get(column)) == Some("t");
        let bytes = number(row, 0).ok_or_else(|| self.one.shared.pool.unexpected("what was said"))?;
        Ok(InputRemainder { bytes, is_refused: is(1), is_heard: is(2) })
    }

    fn take_back(&self, words: Uuid) -> Result<usize> {
        let (table, rows) = (self.table(), format!("{} AND words = {}", self.rows(), sql::uuid(words)));
        let pool = &self.one.shared.pool;
        // The update and the deletion are separate round trips, so that each can be repeated.
        let answers = pool.ask(&format!(
            "\
             UPDATE {table} SET is_refused = true WHERE {rows} AND NOT is_taken AND NOT is_refused;\
             SELECT coalesce(sum(length(bytes)), 0) FROM {table} WHERE {rows} AND is_refused"
        ))?;
        let row = answers.last().and_then(|answer| answer.rows.first());
        let left = number(row, 0).ok_or_else(|| pool.unexpected("what was said"))?;
        pool.ask(&format!("DELETE FROM {table} WHERE {rows} AND is_refused"))?;
        Ok(left)
    }

    fn hear(&self, written: i64) -> Result<Vec<(i64, Vec<u8>)>> {
        let (table, rows, pool) = (self.table(), self.rows(), &self.one.shared.pool);
        let answers = pool.ask_within(
            &format!(
                "\
                 DELETE FROM {table} WHERE {rows} AND is_taken AND seq <= {written};\
                 UPDATE {table} SET is_taken = true WHERE {rows} AND NOT is_refused AND seq IN \
                   (SELECT seq FROM {table} WHERE {rows} AND NOT is_refused AND seq > {written} ORDER BY seq LIMIT {TAKEN}) \
                 RETURNING seq, encode(bytes, 'hex')"
            ),
            MOMENT,
        )?;
        let taken = answers.last().map(|answer| answer.rows.as_slice()).unwrap_or_default();
        let part =
            |row: &super::wire::Row| Some((row.get(0)?.parse().ok()?, sql::bytes_of_hex(row.get(1)?)?));
        let mut parts = taken
            .iter()
            .map(|row| part(row).ok_or_else(|| pool.unexpected("what was said")))
            .collect::<Result<Vec<_>>>()?;
        parts.sort_by_key(|(seq, _)| *seq);
        Ok(parts)
    }

    fn refuse(&self) -> Result<()> {
        let (table, rows) = (self.table(), self.rows());
        let flight =
            format!("UPDATE {table} SET is_refused = true WHERE {rows} AND NOT is_taken AND NOT is_refused");
        self.one.shared.pool.ask_within(&flight, MOMENT).map(drop)
    }
}

/// Returns statements that end the input of a task after its record is deleted. Parts that were not
/// taken become refused, which tells their sender.
pub fn end(schema: &str, agent: i64, task: &str) -> String {
    format!(
        "UPDATE {schema}.task_input SET is_refused = true WHERE agent_id = {agent} AND task_id = {task} AND NOT is_taken;\
         DELETE FROM {schema}.task_input WHERE agent_id = {agent} AND (task_id = {task} AND is_taken \
           OR is_refused AND at < {} - {KEPT})",
        sql::SERVER_NOW
    )
}
