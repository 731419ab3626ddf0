//! How large something may be that comes from outside.

use super::policy::Size;
use super::refusal::Refusal;

/// A limit of size, with everything that is told of it where it is passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bound {
    /// The word for scripts.
    pub kind: &'static str,
    /// What is measured, as in "the body".
    pub what: &'static str,
    /// What the limit is called.
    pub name: &'static str,
    pub most: Size,
    pub hint: &'static str,
}

/// A plan is prose, not an archive.
pub const PLAN: Bound = Bound {
    kind: "plan_too_large",
    what: "the plan",
    name: "max_plan",
    most: Size(1 << 20),
    hint: "put what is large into a file, and say in the plan where that is",
};

pub const CHECKPOINT: Bound = Bound {
    kind: "checkpoint_too_large",
    what: "the checkpoint",
    name: "max_checkpoint",
    most: Size(64 << 20),
    hint: "keep what is large in a file of its own, and save where that is",
};

/// The last one is part of `state.json`.
pub const BRIEF: Bound = Bound {
    kind: "brief_too_large",
    what: "it",
    name: "max_brief",
    most: Size(1 << 20),
    hint: "put what is large into a file, and say in the brief where that is",
};

/// What waits for delivery is part of `state.json`.
pub const OUTBOX: Bound = Bound {
    kind: "outbox_too_large",
    what: "the outbox",
    name: "max_outbox",
    most: Size(8 << 20),
    hint: "see why what is in it does not arrive, or say less at once",
};

/// No record is larger when it is made. Readers take twice as much: what happens to one adds to it.
pub const RECORD: Bound = Bound {
    kind: "record_too_large",
    what: "the record",
    name: "max_record",
    most: Size(8 << 20),
    hint: "put what is large into a file, and say where that is",
};

/// All the records that one outcome writes.
pub const TRANSACTION: Bound = Bound {
    kind: "transaction_too_large",
    what: "what it writes together",
    name: "max_transaction",
    most: Size(64 << 20),
    hint: "put what is large into files, and say in the outcome where they are",
};

impl Bound {
    /// What somebody says; `most` is `limits.max_message`.
    pub const fn message(what: &'static str, most: Size) -> Bound {
        Bound {
            kind: "message_too_large",
            what,
            name: "limits.max_message",
            most,
            hint: "put it in a file and say where, or raise limits.max_message in agent.toml",
        }
    }

    /// What a turn has written as its outcome; `most` is `limits.max_outcome`.
    pub const fn outcome(most: Size) -> Bound {
        Bound {
            kind: "outcome_too_large",
            what: "it",
            name: "limits.max_outcome",
            most,
            hint: "put what is large into a file, and say in the outcome where that is",
        }
    }

    /// Refuses what has more bytes than the limit.
    pub fn check(&self, bytes: u64) -> Result<(), Refusal> {
        if bytes > self.most.0 { Err(self.refuse(&bytes.to_string())) } else { Ok(()) }
    }

    /// The refusal of what has so many bytes, in words: not all may have been read.
    pub fn refuse(&self, bytes: &str) -> Refusal {
        let Bound { kind, what, name, most, hint } = self;
        Refusal::new(kind, format!("{what} has {bytes} bytes, more than {name} = {most}")).hint(*hint)
    }
}
