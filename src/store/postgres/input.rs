//! Input for a task on another machine, as rows of `task_input`.

use std::borrow::Cow;
use std::rc::Rc;
use std::time::{Duration, Instant};

use uuid::Uuid;

use crate::error::Result;
use crate::model::id::TaskId;

use super::super::backend::input::{InputAnswer, InputRemainder, MOST_PARTS, SAID, TaskInput, WAITING};
use super::context::AgentContext;
use super::errors::{self, RoundTripFault};
use super::outcome::{CommitEvidence, OUTCOME_PATIENCE, commit_outcome};
use super::pool::Then;
use super::statements::NOT_FENCED;
use super::wire::{Row, Statement};
use super::{sql, statements};

/// Timeout of a supervisor's query, short because the supervisor also watches its task.
const MOMENT: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct PgInput {
    one: Rc<AgentContext>,
    task: TaskId,
}

impl PgInput {
    pub fn new(one: &Rc<AgentContext>, task: TaskId) -> PgInput {
        PgInput { one: Rc::clone(one), task }
    }

    /// Returns a statement whose first two parameters are the agent and the task.
    fn statement(&self, sql: impl Into<Cow<'static, str>>) -> Statement {
        Statement::new(sql).with(self.one.id).with(self.task.to_string())
    }

    /// Returns statements that add input. A lock on the task's record orders concurrent senders, so
    /// that `seq` follows the order of commits. The end of the task precedes the input or sees it.
    /// The last row has three flags: the input was added, the task has a supervisor, the process is
    /// not fenced.
    fn saying(&self, words: Uuid, bytes: &[u8]) -> [Statement; 3] {
        let heard = has_live_supervisor("$4::bigint", "$5");
        let lease = self.one.claimed();
        let of_task = |sql: String| lease.statement(sql).with(self.one.id).with(self.task.to_string());
        // Parts are encoded as text, because the array parameter contains texts.
        let parts = bytes.chunks(SAID).map(sql::hex).collect::<Vec<_>>();
        let added = of_task(format!(
            "INSERT INTO @.task_input (agent_id, task_id, words, at, bytes) \
             SELECT $4::bigint, $5, $6::uuid, @now, decode(v.part, 'hex') \
             FROM (VALUES ($4::bigint)) a (id), unnest($7::text[]) WITH ORDINALITY v (part, number) \
             WHERE {heard} AND {NOT_FENCED} AND $8::bigint + \
               (SELECT coalesce(sum(length(bytes)), 0) FROM @.task_input WHERE agent_id = $4 AND task_id = $5) <= {WAITING} \
             ORDER BY v.number"
        ));
        let told = of_task(format!(
            "SELECT EXISTS (SELECT FROM @.task_input WHERE agent_id = $4 AND task_id = $5 AND words = $6), {heard}, {NOT_FENCED} \
             FROM (VALUES ($4::bigint)) a (id)"
        ));
        [
            self.statement(
                "SELECT FROM @.record WHERE agent_id = $1 AND kind = 'task' AND id = $2 FOR NO KEY UPDATE",
            ),
            added.with(words).with(parts).with(bytes.len()),
            told.with(words),
        ]
    }
}

/// Returns the SQL condition that the task is open and its supervisor has a live lease. `agent` and
/// `task`: parameters.
fn has_live_supervisor(agent: &str, task: &str) -> String {
    format!(
        "EXISTS (SELECT FROM @.record r WHERE r.agent_id = {agent} AND r.kind = 'task' AND r.id = {task}) \
         AND EXISTS (SELECT FROM @.lease l WHERE l.agent_id = {agent} AND l.subject = {task} AND l.expires_at > @now)"
    )
}

impl TaskInput for PgInput {
    fn append(&self, words: Uuid, bytes: &[u8]) -> Result<InputAnswer> {
        let pool = &self.one.shared.pool;
        if bytes.is_empty() {
            return Ok(InputAnswer::Waits);
        }
        if bytes.len() > WAITING {
            return Ok(InputAnswer::Full);
        }
        let begun = [
            statements::limits(pool.patience().as_millis().max(1)),
            Statement::new("SELECT pg_current_xact_id()"),
        ];
        let saying = self.saying(words, bytes);
        let until = Instant::now() + pool.patience() + OUTCOME_PATIENCE;
        loop {
            let mut connection = pool.take().map_err(|trouble| trouble.into_error(pool.url()))?;
            let sent = pool.send(&mut connection, &begun, Then::Stay, Duration::ZERO).map(|answers| {
                let number = answers.last().and_then(|answer| answer.row()?.text(0));
                (number, pool.send(&mut connection, &saying, Then::Commit, pool.patience()))
            });
            match sent {
                Ok((_, Ok(answers))) => {
                    pool.give(connection);
                    let row = answers.last().and_then(|answer| answer.row());
                    let is = |column| row.is_some_and(|row| row.is(column));
                    return match (is(0), is(1), is(2)) {
                        (true, _, _) => Ok(InputAnswer::Waits),
                        (false, _, false) => Err(errors::fenced(self.one.name.as_str())),
                        (false, false, true) => Ok(InputAnswer::Nobody),
                        (false, true, true) => Ok(InputAnswer::Full),
                    };
                }
                Ok((Some(number), Err(RoundTripFault::Lost { why, .. }))) => {
                    pool.forget();
                    if commit_outcome(&self.one, &number, &CommitEvidence::None, &why)? {
                        // The input was committed but does not exist, because the supervisor has
                        // taken or refused the input.
                        let is_there = self.rest(words)?.bytes > 0;
                        return if is_there {
                            Ok(InputAnswer::Waits)
                        } else {
                            Err(errors::unknown(pool.url(), &why))
                        };
                    }
                }
                Ok((None, Err(RoundTripFault::Lost { .. }))) | Err(RoundTripFault::Lost { .. }) => {
                    pool.forget()
                }
                Ok((_, Err(trouble))) | Err(trouble) => return Err(trouble.into_error(pool.url())),
            }
            if Instant::now() > until {
                return Err(errors::unknown(pool.url(), "the connection broke again and again"));
            }
        }
    }

    fn rest(&self, words: Uuid) -> Result<InputRemainder> {
        let asked = self.statement(format!(
            "SELECT coalesce(sum(length(bytes)), 0), coalesce(bool_or(is_refused), false), {} FROM @.task_input \
             WHERE agent_id = $1 AND task_id = $2 AND words = $3",
            has_live_supervisor("$1", "$2")
        ));
        let answer = self.one.ask(asked.with(words))?;
        let read = answer.row().and_then(|row| {
            Some(InputRemainder { bytes: row.number(0)?, is_refused: row.is(1), is_heard: row.is(2) })
        });
        read.ok_or_else(|| self.one.shared.pool.unexpected("what was said"))
    }

    fn take_back(&self, words: Uuid) -> Result<usize> {
        let pool = &self.one.shared.pool;
        let statement = |sql| self.statement(sql).with(words);
        // The update and the deletion are separate round trips, because each can then be repeated.
        let answers = pool.ask(&[
            statement(
                "UPDATE @.task_input SET is_refused = true \
                 WHERE agent_id = $1 AND task_id = $2 AND words = $3 AND NOT is_taken AND NOT is_refused",
            ),
            statement(
                "SELECT coalesce(sum(length(bytes)), 0) FROM @.task_input \
                 WHERE agent_id = $1 AND task_id = $2 AND words = $3 AND is_refused",
            ),
        ])?;
        let left = answers.last().and_then(|answer| answer.row()?.number(0));
        let left = left.ok_or_else(|| pool.unexpected("what was said"))?;
        pool.ask_one(statement(
            "DELETE FROM @.task_input WHERE agent_id = $1 AND task_id = $2 AND words = $3 AND is_refused",
        ))?;
        Ok(left)
    }

    fn next_parts(&self, written: i64) -> Result<Vec<(i64, Vec<u8>)>> {
        let pool = &self.one.shared.pool;
        let removed = self.statement(
            "DELETE FROM @.task_input WHERE agent_id = $1 AND task_id = $2 AND is_taken AND seq <= $3",
        );
        let taken = self.statement(format!(
            "UPDATE @.task_input SET is_taken = true WHERE agent_id = $1 AND task_id = $2 AND NOT is_refused AND seq IN \
               (SELECT seq FROM @.task_input WHERE agent_id = $1 AND task_id = $2 AND NOT is_refused AND seq > $3 \
                ORDER BY seq LIMIT {MOST_PARTS}) RETURNING seq, encode(bytes, 'hex')"
        ));
        let answers = pool.ask_within(&[removed.with(written), taken.with(written)], MOMENT)?;
        let taken = answers.last().map(|answer| answer.rows.as_slice()).unwrap_or_default();
        let part = |row: &Row| Some((row.number(0)?, sql::bytes_of_hex(row.get(1)?)?));
        let mut parts = taken
            .iter()
            .map(|row| part(row).ok_or_else(|| pool.unexpected("what was said")))
            .collect::<Result<Vec<_>>>()?;
        parts.sort_by_key(|(seq, _)| *seq);
        Ok(parts)
    }

    fn refuse(&self) -> Result<()> {
        let refused = self.statement(
            "UPDATE @.task_input SET is_refused = true WHERE agent_id = $1 AND task_id = $2 AND NOT is_taken AND NOT is_refused",
        );
        self.one.shared.pool.ask_within(&[refused], MOMENT).map(drop)
    }
}
