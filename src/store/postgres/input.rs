//! Input for a task on another machine, as rows of `task_input`.

use std::borrow::Cow;
use std::rc::Rc;
use std::time::Duration;

use uuid::Uuid;

use crate::error::Result;
use crate::model::digest;
use crate::model::id::TaskId;

use super::super::backend::input::{InputAnswer, InputRemainder, MOST_PARTS, SAID, TaskInput, WAITING};
use super::change::{OpenTransaction, repeat};
use super::context::AgentContext;
use super::pool::Then;
use super::wire::{Row, Statement};
use super::{errors, statements};

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
        // Parts are encoded as text, because the array parameter contains texts.
        let parts = bytes.chunks(SAID).map(digest::digits).collect::<Vec<_>>();
        let said = statements::claimed(
            "SELECT * FROM @.say($1, $5, $6, $7, $8, $9, $2, $3, $4)",
            self.one.id,
            self.one.claim().as_ref(),
        );
        let said = said.with(self.task.to_string());
        let saying = [said.with(words).with(parts).with(bytes.len()).with(WAITING)];
        repeat(pool, || {
            let mut connection = pool.take()?;
            let answers = pool.send(&mut connection, &begun, Then::Stay, Duration::ZERO)?;
            let number = answers.last().and_then(|rows| rows.first()?.text(0));
            let number = number.ok_or_else(|| pool.unexpected("a transaction"))?;
            let open = OpenTransaction { connection, number };
            match open.commit(pool, (self.one.id, 0), &saying, pool.patience())? {
                Ok(answers) => {
                    let row = answers.last().and_then(|rows| rows.first());
                    let is = |column| row.is_some_and(|row| row.is(column));
                    match (is(0), is(1), is(2)) {
                        (true, _, _) => Ok(InputAnswer::Waits),
                        (false, _, false) => Err(errors::fenced(self.one.name.as_str()).into()),
                        (false, false, true) => Ok(InputAnswer::Ended),
                        (false, true, true) => Ok(InputAnswer::Full),
                    }
                }
                Err(_) if self.rest(words)?.bytes > 0 => Ok(InputAnswer::Waits),
                // No input is stored: the supervisor has taken the input, or the server refused to
                // add it, and only the lost answer told which.
                Err(why) => Err(errors::unknown(pool.url(), &why).into()),
            }
        })
    }

    fn rest(&self, words: Uuid) -> Result<InputRemainder> {
        let asked = self.statement(
            "SELECT coalesce(sum(length(bytes)), 0), coalesce(bool_or(is_refused), false), \
             EXISTS (SELECT FROM @.record r WHERE r.agent_id = $1 AND r.kind = 'task' AND r.id = $2) \
             AND EXISTS (SELECT FROM @.lease l WHERE l.agent_id = $1 AND l.subject = $2 AND l.expires_at > @now) \
             FROM @.task_input WHERE agent_id = $1 AND task_id = $2 AND words = $3",
        );
        let answer = self.one.ask(asked.with(words))?;
        let read = answer.first().and_then(|row| {
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
        let left = answers.last().and_then(|answer| answer.first()?.number(0));
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
        let taken = answers.last().map(Vec::as_slice).unwrap_or_default();
        let part = |row: &Row| Some((row.number(0)?, digest::bytes(row.get(1)?)?));
        let mut parts = pool.parse(taken, "what was said", part)?;
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
