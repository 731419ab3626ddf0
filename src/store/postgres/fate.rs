//! What became of a change whose answer was lost: it is looked up by the number of its transaction.

use std::time::{Duration, Instant};

use crate::error::Result;

use super::faults::{self, Trouble};
use super::shared::{One, first, number};

/// How long to ask for the fate of a change at least: longer than the server waits for a silent
/// process.
pub const FATE: Duration = Duration::from_secs(20);

/// How long to wait before the same is asked again.
const AGAIN: Duration = Duration::from_millis(20);

/// What there is to see in the records after a change, if it was committed.
pub enum Sign {
    /// At least this revision.
    Revision(u64),
    None,
}

/// Whether the transaction of this number was committed, whose answer was lost.
pub fn fate(one: &One, transaction: &str, sign: &Sign, why: &str) -> Result<bool> {
    let pool = &one.shared.pool;
    // A server that lost its last moments in a crash may give the same number again. Then the
    // records show nothing of it.
    let asked = format!(
        "SELECT pg_xact_status('{transaction}'::xid8), (SELECT s.revision FROM {}.state s WHERE s.agent_id = {})",
        one.schema(),
        one.id
    );
    let until = Instant::now() + pool.patience().max(FATE);
    loop {
        match pool.ask_once(&asked) {
            Ok(answers) => match first(&answers).and_then(|row| row.get(0)) {
                Some("committed") => {
                    let revision: Option<u64> = number(first(&answers), 1);
                    return Ok(match sign {
                        Sign::Revision(least) => revision.is_none_or(|revision| revision >= *least),
                        Sign::None => true,
                    });
                }
                Some("aborted") => return Ok(false),
                Some(_) => {}
                None => return Err(faults::unknown(pool.url(), why)),
            },
            // It has never heard of the number, so it has lost it.
            Err(Trouble::Refused { code, .. }) if code == "22023" => return Ok(false),
            Err(Trouble::Lost { .. } | Trouble::Unreachable(_)) => pool.forget(),
            Err(trouble) => return Err(trouble.into_error(pool.url())),
        }
        if Instant::now() > until {
            return Err(faults::unknown(pool.url(), why));
        }
        std::thread::sleep(AGAIN);
    }
}
