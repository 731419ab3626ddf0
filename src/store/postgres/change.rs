//! Writer of changes of any size, in transactions of several round trips, and the creation of an
//! agent. If the answer to a commit is lost, the server reports the outcome by the transaction's
//! id.

use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::model::id::AgentName;

use super::super::backend::Ops;
use super::context::{AgentContext, StoreContext};
use super::errors::{self, RoundTripFault};
use super::pool::{ConnectionPool, Then};
use super::statements::{self, OpRow, op_row, row};
use super::wire::{Connection, Statement};

/// Minimum time of queries for a commit outcome, longer than an idle transaction stays open.
const OUTCOME_PATIENCE: Duration = Duration::from_secs(20);

/// Delay before the next query for a commit outcome.
const RETRY_DELAY: Duration = Duration::from_millis(20);

/// Approximate maximum size of the rows of one round trip, and of a row without its texts, in
/// bytes.
const AT_ONCE: usize = 1 << 20;
const OVERHEAD: usize = 200;

/// Handles the next row.
type EachRow<'e> = dyn FnMut(OpRow) -> Result<()> + 'e;

/// Function that calls back with all rows of a change, from the first on.
pub type ChangeRows<'r> = &'r dyn Fn(&mut EachRow<'_>) -> Result<()>;

/// Writes the rows of a change in the open transaction `number`, and commits. `revision`: revision
/// of the agent after the change, or a lower one. Returns `false` if nothing was committed and the
/// caller may try again.
pub fn write(
    one: &AgentContext,
    mut connection: Connection,
    number: &str,
    revision: u64,
    rows: ChangeRows<'_>,
) -> Result<bool> {
    let pool = &one.shared.pool;
    let (mut batch, mut size, mut is_lost) = (Vec::new(), 0, false);
    let sent = rows(&mut |row| {
        if size >= AT_ONCE {
            size = 0;
            let some = [statements::apply(one.id, revision, std::mem::take(&mut batch))];
            if pool.send_open(&mut connection, &some, Duration::ZERO)?.is_none() {
                is_lost = true;
                return Err(Error::failed("the connection broke"));
            }
        }
        size += OVERHEAD + row.iter().flatten().map(String::len).sum::<usize>();
        batch.push(row);
        Ok(())
    });
    if is_lost {
        return Ok(false);
    }
    sent?;
    let last = [statements::apply(one.id, revision, batch)];
    match pool.send(&mut connection, &last, Then::Commit, Duration::ZERO) {
        Ok(_) => {
            pool.give(connection);
            Ok(true)
        }
        Err(RoundTripFault::Lost { why, .. }) => {
            pool.forget();
            commit_outcome(one, number, revision, &why)
        }
        Err(trouble) => Err(trouble.into_error(pool.url())),
    }
}

/// True if the transaction was committed. Error if the server does not report it in time.
/// `revision`: revision of the agent after the change, or a lower one.
pub fn commit_outcome(one: &AgentContext, transaction: &str, revision: u64, why: &str) -> Result<bool> {
    let pool = &one.shared.pool;
    // A server that lost its last transactions in a crash may assign an id again. The revision then
    // shows that this change was lost.
    let asked = Statement::new(
        "SELECT pg_xact_status($1::xid8), (SELECT s.revision FROM @.state s WHERE s.agent_id = $2)",
    );
    let asked = [asked.with(transaction).with(one.id)];
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
            // The server lost the transaction in a crash, so the id is unknown.
            Err(RoundTripFault::Refused { code, .. }) if code == "22023" => return Ok(false),
            Err(RoundTripFault::Lost { .. } | RoundTripFault::Unreachable(_)) => pool.forget(),
            Err(trouble) => return Err(trouble.into_error(pool.url())),
        }
        if Instant::now() > until {
            return Err(errors::unknown(pool.url(), why));
        }
        std::thread::sleep(RETRY_DELAY);
    }
}

/// Repeats an attempt until it returns a value. It returns `None` if the connection was lost and
/// nothing was committed.
pub fn repeat<T>(pool: &ConnectionPool, attempt: impl Fn() -> Result<Option<T>>) -> Result<T> {
    let until = Instant::now() + pool.patience() + OUTCOME_PATIENCE;
    loop {
        if let Some(done) = attempt()? {
            return Ok(done);
        }
        if Instant::now() > until {
            let why = "again and again".to_owned();
            return Err(RoundTripFault::Lost { is_sent: true, why }.into_error(pool.url()));
        }
    }
}

/// Creates an agent from a stream of operations. Returns `false` if the name is taken.
pub fn create(shared: &Rc<StoreContext>, name: &AgentName, ops: Ops<'_>) -> Result<bool> {
    let pool = &shared.pool;
    // The following operations replace the empty identity and policy.
    let begun = Statement::new(
        "INSERT INTO @.agent (name, identity, policy) VALUES ($1, '{}', '') \
         ON CONFLICT (name) DO NOTHING RETURNING id, pg_current_xact_id()",
    );
    let begun = [begun.with(name.as_str())];
    repeat(pool, || {
        let mut connection = pool.take()?;
        let Some(answers) = pool.send_open(&mut connection, &begun, pool.patience())? else {
            return Ok(None);
        };
        let made = answers.last().and_then(|rows| rows.first());
        let Some((id, number)) = made.and_then(|row| Some((row.number(0)?, row.text(1)?))) else {
            pool.roll_back(connection);
            return Ok(Some(false));
        };
        let one = AgentContext::new(shared, name, id, [String::new(), String::new()]);
        // The floor ensures that fences of a removed agent of this name are not granted again.
        let is_done = write(&one, connection, &number, 0, &|each| {
            ops(&mut |op| each(op_row(&op)))?;
            each(row("begin_at_floor", []))
        })?;
        Ok(is_done.then_some(true))
    })
}
