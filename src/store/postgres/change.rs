//! Changes of any size in transactions of several round trips: the rows of a change, and the
//! creation or replacement of a whole agent.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::model::id::AgentName;

use super::super::backend::{Arrival, Op, Ops};
use super::super::settings::Settings;
use super::context::{AgentContext, StoreContext};
use super::errors::{self, RoundTripFault};
use super::outcome::{CommitEvidence, OUTCOME_PATIENCE, commit_outcome};
use super::pool::Then;
use super::statements::{OpRow, apply, op_row, row};
use super::wire::{Connection, Statement};

/// Approximate maximum size of the rows of one round trip, in bytes.
const AT_ONCE: usize = 1 << 20;

/// Creates an agent from a stream of operations. Returns `false` if the name is taken.
pub fn create(shared: &Rc<StoreContext>, name: &AgentName, ops: Ops<'_>) -> Result<bool> {
    let pool = &shared.pool;
    // The following operations replace the empty identity and policy.
    let begun = Statement::new(
        "INSERT INTO @.agent (name, identity, policy) VALUES ($1, '{}', '') \
         ON CONFLICT (name) DO NOTHING RETURNING id, pg_current_xact_id()",
    );
    let begun = [begun.with(name.as_str())];
    let until = Instant::now() + pool.patience() + OUTCOME_PATIENCE;
    loop {
        let mut connection = pool.take().map_err(|trouble| trouble.into_error(pool.url()))?;
        let answers = match pool.send(&mut connection, &begun, Then::Stay, pool.patience()) {
            Err(RoundTripFault::Lost { .. }) if Instant::now() < until => {
                pool.forget();
                continue;
            }
            answers => answers.map_err(|trouble| trouble.into_error(pool.url()))?,
        };
        let made = answers.last().and_then(|answer| answer.row());
        let Some((id, number)) = made.and_then(|row| Some((row.number(0)?, row.text(1)?))) else {
            pool.roll_back(connection);
            return Ok(false);
        };
        let one = AgentContext {
            shared: Rc::clone(shared),
            name: name.clone(),
            id,
            policy: RefCell::default(),
            identity: RefCell::default(),
            forgotten: Cell::default(),
        };
        // The floor ensures that fences of a removed agent of this name are not granted again.
        if finish(&one, connection, &number, ops, Some(row("begin_at_floor", [])))? {
            return Ok(true);
        }
        if Instant::now() > until {
            return Err(errors::unknown(pool.url(), "the connection broke again and again"));
        }
    }
}

/// Writes the operations and the row `along` in the open transaction `number`, and commits. Returns
/// `false` if nothing was committed and the caller may try again.
pub fn finish(
    one: &AgentContext,
    mut connection: Connection,
    number: &str,
    ops: Ops<'_>,
    along: Option<OpRow>,
) -> Result<bool> {
    let pool = &one.shared.pool;
    let (mut rows, mut size, mut trouble) = (Vec::new(), 0, None);
    let sent = ops(&mut |op| {
        size += size_of(&op);
        rows.push(op_row(&op));
        if size < AT_ONCE {
            return Ok(());
        }
        size = 0;
        let some = [apply(one.id, 0, std::mem::take(&mut rows))];
        pool.send(&mut connection, &some, Then::Stay, Duration::ZERO).map(drop).map_err(|found| {
            trouble = Some(found);
            Error::failed("the connection broke")
        })
    });
    match trouble {
        Some(RoundTripFault::Lost { .. }) => {
            pool.forget();
            return Ok(false);
        }
        Some(trouble) => return Err(trouble.into_error(pool.url())),
        None => sent?,
    }
    rows.extend(along);
    match pool.send(&mut connection, &[apply(one.id, 0, rows)], Then::Commit, Duration::ZERO) {
        Ok(_) => {
            pool.give(connection);
            Ok(true)
        }
        Err(RoundTripFault::Lost { why, .. }) => {
            pool.forget();
            commit_outcome(one, number, &CommitEvidence::None, &why)
        }
        Err(trouble) => Err(trouble.into_error(pool.url())),
    }
}

/// Rows and statements of a change.
#[derive(Debug, Default)]
pub struct ChangeRows {
    /// Revision after the change.
    pub revision: u64,
    /// Rows in order, each batch for one round trip. The last round trip also commits.
    pub batches: Vec<Vec<OpRow>>,
    /// Statements that run after the rows.
    pub after: Vec<Statement>,
}

impl ChangeRows {
    pub fn of(revision: u64, ops: &[Op]) -> ChangeRows {
        let mut size = 0;
        let batches = ops.chunk_by(|op, _| {
            size += size_of(op);
            let goes_on = size < AT_ONCE;
            size = if goes_on { size } else { 0 };
            goes_on
        });
        let batches = batches.map(|batch| batch.iter().map(op_row).collect()).collect();
        ChangeRows { revision, batches, after: Vec::new() }
    }

    /// Returns a change that writes one row and does not change the state.
    pub fn of_row(row: OpRow) -> ChangeRows {
        ChangeRows { batches: vec![vec![row]], ..ChangeRows::default() }
    }
}

/// Approximate size of an operation's row, in bytes.
fn size_of(op: &Op) -> usize {
    const OVERHEAD: usize = 200;
    let text = match op {
        Op::Identity(text)
        | Op::Policy(Settings { text, .. })
        | Op::State { text, .. }
        | Op::Open { text, .. }
        | Op::Plan { text, .. }
        | Op::Arrived(Arrival::Message { text, .. } | Arrival::Hint { text, .. })
        | Op::Key { text, .. }
        | Op::Ended { text, .. }
        | Op::Event { text, .. } => text.len(),
        // Each byte is sent as two hexadecimal digits.
        Op::Saved { bytes, .. } | Op::TriggerKey { key: bytes, .. } => bytes.len() * 2,
        Op::File(_)
        | Op::Closed { .. }
        | Op::Shut(_)
        | Op::Taken(_)
        | Op::Heard(_)
        | Op::Unsaved(_)
        | Op::LocalDir(_)
        | Op::Forgotten { .. } => 0,
    };
    OVERHEAD + text
}
