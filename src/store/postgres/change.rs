//! Writer of changes of any size, in transactions of several round trips, and the creation of an
//! agent. If the answer to a commit is lost, the server reports the outcome by the transaction's
//! id.

use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::model::id::AgentName;

use super::super::backend::Ops;
use super::errors::{self, RoundTripFault};
use super::pool::{ConnectionPool, Then};
use super::statements::{self, OpRow, op_row, row};
use super::wire::{Connection, Row, Statement};

/// Minimum time for which the server is asked again for the outcome of a commit. After this time
/// the server has ended any transaction that was left open.
const OUTCOME_PATIENCE: Duration = Duration::from_secs(20);

/// Delay before the next query for a commit outcome.
const RETRY_DELAY: Duration = Duration::from_millis(20);

/// Approximate maximum size of the rows of one round trip, in bytes.
const AT_ONCE: usize = 1 << 20;
/// Assumed size of a row besides its texts, in bytes.
const OVERHEAD: usize = 200;

/// Function that handles one row of a change, and is called again for the next row.
type EachRow<'e> = dyn FnMut(OpRow) -> Result<()> + 'e;

/// Function that passes all rows of a change to its argument, from the first row at each call.
pub type ChangeRows<'r> = &'r dyn Fn(&mut EachRow<'_>) -> Result<()>;

/// Open transaction of a change, whose outcome the server reports by its id.
#[derive(Debug)]
pub struct OpenTransaction {
    pub connection: Connection,
    /// Id of the transaction, by which the server knows its outcome.
    pub number: String,
}

impl OpenTransaction {
    /// Sends the last statements and commits. Returns the answers; the inner error says why the
    /// answers of the committed transaction were lost. [`RoundTripFault::Lost`] if nothing was
    /// committed, so that the caller may try again. `agent`: id of the changed agent, and its
    /// minimum revision after the commit. `waits`: time for which the server may wait for locks.
    pub fn commit(
        mut self,
        pool: &ConnectionPool,
        agent: (i64, u64),
        last: &[Statement],
        waits: Duration,
    ) -> Result<Result<Vec<Vec<Row>>, String>, RoundTripFault> {
        match pool.send(&mut self.connection, last, Then::Commit, waits) {
            Ok(answers) => {
                pool.give(self.connection);
                Ok(Ok(answers))
            }
            Err(RoundTripFault::Lost { is_sent, why, error }) => {
                pool.forget();
                let is_committed = is_committed(pool, agent, &self.number, &why)?;
                if is_committed { Ok(Err(why)) } else { Err(RoundTripFault::Lost { is_sent, why, error }) }
            }
            Err(fault) => Err(fault),
        }
    }
}

/// Writes the rows of a change in an open transaction, and commits. [`RoundTripFault::Lost`] if
/// nothing was committed. `revision`: minimum revision of the agent after the commit.
pub fn write(
    pool: &ConnectionPool,
    mut open: OpenTransaction,
    (agent, revision): (i64, u64),
    rows: ChangeRows<'_>,
) -> Result<(), RoundTripFault> {
    let (mut batch, mut size, mut fault) = (Vec::new(), 0, None);
    let sent = rows(&mut |row| {
        if size >= AT_ONCE {
            size = 0;
            let some = [statements::apply(agent, revision, std::mem::take(&mut batch))];
            if let Err(why) = pool.send(&mut open.connection, &some, Then::Stay, Duration::ZERO) {
                fault = Some(why);
                return Err(Error::failed("the connection broke"));
            }
        }
        size += OVERHEAD + row.iter().flatten().map(String::len).sum::<usize>();
        batch.push(row);
        Ok(())
    });
    if let Some(fault) = fault {
        return Err(fault);
    }
    sent?;
    let last = [statements::apply(agent, revision, batch)];
    open.commit(pool, (agent, revision), &last, Duration::ZERO).map(drop)
}

/// True if the server has committed the transaction. Error if the server does not tell in time.
fn is_committed(
    pool: &ConnectionPool,
    (agent, revision): (i64, u64),
    transaction: &str,
    why: &str,
) -> Result<bool> {
    // A server that lost its last transactions in a crash may assign an id again. The revision then
    // shows that this change was lost.
    let asked = Statement::new(
        "SELECT pg_xact_status($1::xid8), (SELECT s.revision FROM @.state s WHERE s.agent_id = $2)",
    );
    let asked = [asked.with(transaction).with(agent)];
    let until = Instant::now() + pool.patience().max(OUTCOME_PATIENCE);
    loop {
        match pool.ask_once(&asked, pool.patience()) {
            Ok(answers) => {
                let row = answers.first().and_then(|answer| answer.first());
                match row.and_then(|row| row.get(0)) {
                    Some("committed") => {
                        let now: Option<u64> = row.and_then(|row| row.number(1));
                        return Ok(now.is_none_or(|now| now >= revision));
                    }
                    Some("aborted") => return Ok(false),
                    Some(_) => {}
                    None => return Err(errors::unknown(pool.url(), why)),
                }
            }
            // The server does not know the id, because it lost the transaction in a crash.
            Err(RoundTripFault::Refused { code, .. }) if code == "22023" => return Ok(false),
            Err(RoundTripFault::Lost { .. } | RoundTripFault::Unreachable(_)) => pool.forget(),
            Err(fault) => return Err(fault.into()),
        }
        if Instant::now() > until {
            return Err(errors::unknown(pool.url(), why));
        }
        std::thread::sleep(RETRY_DELAY);
    }
}

/// Repeats an attempt to make a change after each loss of the connection before the commit.
pub fn repeat<T>(pool: &ConnectionPool, attempt: impl Fn() -> Result<T, RoundTripFault>) -> Result<T> {
    pool.repeat(pool.patience() + OUTCOME_PATIENCE, |_, _| attempt())
}

/// Creates an agent from a stream of operations. Returns `false` if the name is taken.
pub fn create(pool: &ConnectionPool, name: &AgentName, ops: Ops<'_>) -> Result<bool> {
    // The identity and the policy are empty here, because the operations `ops` replace them.
    let begun = Statement::new(
        "INSERT INTO @.agent (name, identity, policy) VALUES ($1, '{}', '') \
         ON CONFLICT (name) DO NOTHING RETURNING id, pg_current_xact_id()",
    );
    let begun = [begun.with(name.as_str())];
    repeat(pool, || {
        let mut connection = pool.take()?;
        let answers = pool.send(&mut connection, &begun, Then::Stay, pool.patience())?;
        let made = answers.last().and_then(|rows| rows.first());
        let Some((id, number)) = made.and_then(|row| Some((row.number(0)?, row.text(1)?))) else {
            pool.roll_back(connection);
            return Ok(false);
        };
        // The row `begin_at_floor` keeps fencing tokens of removed agents from being granted again.
        write(pool, OpenTransaction { connection, number }, (id, 0), &|each| {
            ops(&mut |op| each(op_row(&op)))?;
            each(row("begin_at_floor", []))
        })?;
        Ok(true)
    })
}
