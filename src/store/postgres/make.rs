//! Statements of a change, and the creation or replacement of a whole agent in one transaction of
//! several round trips, however large the agent is.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::model::id::AgentName;

use super::super::elsewhere::{Arrival, Op, Pieces};
use super::super::settings::Settings;
use super::fate::{CommitEvidence, FATE, fate};
use super::faults::{self, RoundTripFault};
use super::pool::ConnectionPool;
use super::shared::{One, Shared, number};
use super::wire::Connection;
use super::{kept, lease, sql, statements, watch};

/// Approximate maximum of a round trip's statements, in bytes.
const AT_ONCE: usize = 1 << 20;

/// Creates an agent from a stream of pieces. Returns `false` if the name is taken.
pub fn create(shared: &Rc<Shared>, name: &AgentName, pieces: Pieces<'_>) -> Result<bool> {
    let pool = &shared.pool;
    let schema = pool.schema();
    // The pieces that follow replace this empty identity and policy.
    let begun = format!(
        "BEGIN;\
         INSERT INTO {schema}.agent (name, identity, policy) VALUES ({},'{{}}','') \
         ON CONFLICT (name) DO NOTHING RETURNING id, pg_current_xact_id()",
        sql::text(name.as_str())?
    );
    let until = Instant::now() + pool.patience() + FATE;
    loop {
        let mut connection = pool.take().map_err(|trouble| trouble.into_error(pool.url()))?;
        let answers = match pool.fly(&mut connection, &begun, pool.patience()) {
            Err(RoundTripFault::Lost { .. }) if Instant::now() < until => {
                pool.forget();
                continue;
            }
            answers => answers.map_err(|trouble| trouble.into_error(pool.url()))?,
        };
        let row = answers.last().and_then(|answer| answer.rows.first());
        let (Some(id), Some(number)) = (number::<i64>(row, 0), row.and_then(|row| row.get(1))) else {
            if pool.fly(&mut connection, "ROLLBACK", Duration::ZERO).is_ok() {
                pool.give(connection);
            }
            return Ok(false);
        };
        let one = One {
            shared: Rc::clone(shared),
            name: name.clone(),
            id,
            policy: RefCell::default(),
            identity: RefCell::default(),
            forgotten: Cell::default(),
        };
        // The floor ensures that the fences of a removed agent are not used again.
        let floor = statements::begin_at_floor(one.schema(), id);
        if finish(&one, connection, number, pieces, &floor)? {
            return Ok(true);
        }
        if Instant::now() > until {
            return Err(faults::unknown(pool.url(), "the connection broke again and again"));
        }
    }
}

/// Writes the pieces in the transaction with this id, then `along`, and commits it. Returns `false`
/// if it was not committed and the caller may try again.
pub fn finish(
    one: &One,
    mut connection: Connection,
    number: &str,
    pieces: Pieces<'_>,
    along: &str,
) -> Result<bool> {
    let pool = &one.shared.pool;
    let last = match send(one, &mut connection, pieces)? {
        Ok(last) => last,
        Err(RoundTripFault::Lost { .. }) => {
            pool.forget();
            return Ok(false);
        }
        Err(trouble) => return Err(trouble.into_error(pool.url())),
    };
    let told = watch::tell(one.schema(), one.id);
    match pool.fly(&mut connection, &format!("{last}{along}{told}COMMIT"), Duration::ZERO) {
        Ok(_) => {
            pool.give(connection);
            Ok(true)
        }
        Err(RoundTripFault::Lost { why, .. }) => {
            pool.forget();
            fate(one, number, &CommitEvidence::None, &why)
        }
        Err(trouble) => Err(trouble.into_error(pool.url())),
    }
}

/// Statements of a change.
#[derive(Debug)]
pub enum Words {
    /// Batches of statements, one for each round trip.
    Flights(Vec<String>),
    /// Call of a database function that writes the whole change.
    Call(kept::ChangeCall),
}

impl Words {
    /// Builds the statements. `revision`: the one after the change. `is_kept`: the connection is
    /// persistent, so calls of functions save time.
    pub fn of(one: &One, revision: u64, pieces: &[Op], is_kept: bool) -> Result<Words> {
        let is_one_flight = pieces.iter().map(size_of).sum::<usize>() < AT_ONCE;
        let call =
            if is_kept && is_one_flight { kept::ChangeCall::of(one.schema(), one.id, pieces)? } else { None };
        call.map_or_else(|| flights(one, revision, pieces).map(Words::Flights), |call| Ok(Words::Call(call)))
    }

    /// Returns all batches but the last, and the last batch, which also notifies waiting commands.
    /// `fence`: the fence of the last lease that is granted with the change.
    pub fn said(&self, one: &One, fence: Option<i64>, is_kept: bool) -> (&[String], String) {
        match self {
            Words::Call(call) => (&[], call.said(fence)),
            Words::Flights(flights) => {
                let (last, first) = flights.split_last().map_or(("", &[][..]), |(last, first)| (last, first));
                let raised = fence.map(|fence| lease::raise(one, fence)).unwrap_or_default();
                let tell = if is_kept { kept::tell } else { watch::tell };
                (first, format!("{last}{raised}{}", tell(one.schema(), one.id)))
            }
        }
    }
}

/// Returns the batches that write a change, in order. `revision`: the one after the change.
fn flights(one: &One, revision: u64, pieces: &[Op]) -> Result<Vec<String>> {
    let mut size = 0;
    let some = pieces.chunk_by(|piece, _| {
        size += size_of(piece);
        let goes_on = size < AT_ONCE;
        size = if goes_on { size } else { 0 };
        goes_on
    });
    some.map(|some| statements::change(one.schema(), one.id, revision, some)).collect()
}

/// Sends all batches but the last, and returns the statements of the last one.
fn send(
    one: &One,
    connection: &mut Connection,
    pieces: Pieces<'_>,
) -> Result<Result<String, RoundTripFault>> {
    let (pool, mut waiting, mut size) = (&one.shared.pool, Vec::new(), 0);
    let mut trouble = None;
    let sent = pieces(&mut |piece| {
        size += size_of(&piece);
        waiting.push(piece);
        if size < AT_ONCE {
            return Ok(());
        }
        size = 0;
        let flight = written(one, std::mem::take(&mut waiting))?;
        fly(pool, connection, &flight).map_err(|found| {
            trouble = Some(found);
            Error::failed("the connection broke")
        })
    });
    match trouble {
        Some(trouble) => Ok(Err(trouble)),
        None => sent.and_then(|()| written(one, waiting)).map(Ok),
    }
}

/// Returns the statements that write pieces of an agent that has none of them yet. Arrivals are
/// inserted together, without the search for an earlier copy of each.
fn written(one: &One, pieces: Vec<Op>) -> Result<String> {
    let (mut arrivals, mut others) = (Vec::new(), Vec::new());
    for piece in pieces {
        if let Op::Arrived(arrival) = piece {
            arrivals.push(arrival);
        } else {
            others.push(piece);
        }
    }
    let mut all = statements::change(one.schema(), one.id, 0, &others)?;
    if !arrivals.is_empty() {
        all.push_str(&statements::fill_inbox(one.schema(), one.id, &arrivals)?);
    }
    Ok(all)
}

fn fly(pool: &ConnectionPool, connection: &mut Connection, flight: &str) -> Result<(), RoundTripFault> {
    pool.fly(connection, flight, Duration::ZERO).map(drop)
}

/// Approximate size of a piece's statement, in bytes.
fn size_of(piece: &Op) -> usize {
    const OVERHEAD: usize = 200;
    let text = match piece {
        Op::Identity(text)
        | Op::Policy(Settings { text, .. })
        | Op::State { text, .. }
        | Op::Open { text, .. }
        | Op::Plan { text, .. }
        | Op::Arrived(Arrival::Message { text, .. } | Arrival::Hint { text, .. })
        | Op::Key { text, .. }
        | Op::Ended { text, .. }
        | Op::Event { text, .. } => text.len(),
        // A hexadecimal literal has two digits for each byte.
        Op::Saved { bytes, .. } | Op::TriggerKey { key: bytes, .. } => bytes.len() * 2,
        Op::File(_)
        | Op::Closed { .. }
        | Op::Shut(_)
        | Op::Taken(_)
        | Op::Heard(_)
        | Op::Unsaved(_)
        | Op::Room(_)
        | Op::Forgotten { .. } => 0,
    };
    OVERHEAD + text
}
