//! Operations of a commit, and arrivals in an inbox.

use crate::error::Result;
use crate::model::bound::RECORD;
use crate::model::id::{MessageId, TriggerId};
use crate::model::message::InboxKey;
use crate::model::preemption::Checkpoint;
use crate::model::record::Plane;
use crate::model::time::Time;

use super::super::settings::Settings;

/// Function that handles one operation of a commit, and is called again for the next operation.
pub type EachOp<'e> = dyn FnMut(Op) -> Result<()> + 'e;

/// Function that passes all operations of a change to its argument, from the first at each call.
pub type Ops<'p> = &'p dyn Fn(&mut EachOp<'_>) -> Result<()>;

/// Returns a function that passes each of these operations to its argument, in order.
pub fn each_of(ops: &[Op]) -> impl Fn(&mut EachOp<'_>) -> Result<()> {
    |each| ops.iter().cloned().try_for_each(each)
}

/// Message or hint for an inbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Arrival {
    Message { key: InboxKey, text: String },
    Hint { id: MessageId, text: String },
}

impl Arrival {
    /// Error if the text of the message or hint is longer than a record may be.
    pub fn check(&self) -> Result<()> {
        let (Arrival::Message { text, .. } | Arrival::Hint { text, .. }) = self;
        Ok(RECORD.check(text.len() as u64)?)
    }
}

/// Maximum bytes of a part of a checkpoint.
pub const PART: usize = 1 << 20;

/// Operation of a commit. All operations of a commit take effect together, in their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Sets `identity.json`. Only for a new or replaced agent, and in `Txn::put`.
    Identity(String),
    /// Sets `agent.toml`. Only for a new or replaced agent, and in `Txn::put`.
    Policy(Settings),
    /// Replaces `state.json`. `due`: time of the next step if no message arrives, if any;
    /// [`due_now`] if a step is due already. `is_at_rest`: true if no step has to follow at once.
    State {
        revision: u64,
        due: Option<Time>,
        is_at_rest: bool,
        text: String,
    },
    /// Adds a record that has not ended, replacing a record with this id.
    Open {
        plane: Plane,
        id: String,
        text: String,
    },
    /// Removes a record because it has ended; for a work item, also removes its plan.
    Closed {
        plane: Plane,
        id: String,
    },
    /// Sets the plan of an existing work item.
    Plan {
        work: String,
        text: String,
    },
    /// Closes the inbox to arrivals, except from lock holders (`true`), or opens it (`false`).
    InboxClosed(bool),
    /// Puts a message or a hint into the inbox, replacing an entry with this id.
    Arrived(Arrival),
    /// Removes a message from the inbox.
    MessageTaken(InboxKey),
    /// Removes a hint from the inbox.
    HintTaken(MessageId),
    /// Adds a part of a checkpoint, numbered from 0, of at most [`PART`] bytes. An empty checkpoint
    /// has one empty part.
    Saved {
        checkpoint: Checkpoint,
        part: u32,
        bytes: Vec<u8>,
    },
    /// Removes this checkpoint, the last one of its run, and the run's earlier checkpoints.
    Unsaved(Checkpoint),
    /// Sets the name of the local agent directory that this machine has prepared for an agent that
    /// it creates or replaces.
    LocalDir(String),
    Key {
        key: String,
        admitted_at: Time,
        text: String,
    },
    /// Removes the dedupe keys that were admitted before this moment. A store may leave some for
    /// the next such operation.
    KeysForgotten(Time),
    /// Stores the key of a trigger's signatures, replacing the earlier key. The end of the trigger
    /// removes its key.
    TriggerKey {
        trigger: TriggerId,
        digest: String,
        key: Vec<u8>,
    },
    /// Adds a line to the archive. `id`: id of the record, if the record has one.
    Ended {
        kind: &'static str,
        id: Option<String>,
        at: Time,
        text: String,
    },
    Event {
        seq: u64,
        at: Time,
        text: String,
    },
    /// Removes lines of the archive and events from `from` to before `until`, unless a revision
    /// after `seen_at` wrote them. The lists of ids kept from deleted months ([`ENDED`]) stay.
    /// Checkpoints that no record names afterwards are removed too.
    Forgotten {
        from: Time,
        until: Time,
        seen_at: u64,
    },
}

/// Returns the operations that store a checkpoint.
pub fn parts(checkpoint: Checkpoint, bytes: &[u8]) -> impl Iterator<Item = Op> {
    let whole = bytes.is_empty().then_some(bytes);
    let parts = whole.into_iter().chain(bytes.chunks(PART)).zip(0..);
    parts.map(move |(some, part)| Op::Saved { checkpoint, part, bytes: some.to_vec() })
}
