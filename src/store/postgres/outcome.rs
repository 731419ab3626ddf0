//! Commit outcome of a change whose answer was lost. The server reports the outcome by the
//! transaction's id.

use std::time::{Duration, Instant};

use crate::error::Result;

use super::context::AgentContext;
use super::errors::{self, RoundTripFault};
use super::wire::Statement;

/// Minimum time of queries for a commit outcome, longer than an idle transaction stays open.
pub const OUTCOME_PATIENCE: Duration = Duration::from_secs(20);

/// Delay before the next query for a commit outcome.
const RETRY_DELAY: Duration = Duration::from_millis(20);

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
