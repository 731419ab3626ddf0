//! Limits of size for what comes from outside.

use super::policy::Size;
use super::refusal::Refusal;

/// A limit of size, with everything that its error says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bound {
    /// The error's `kind`, a word for scripts.
    pub kind: &'static str,
    /// What is measured, as in "the body".
    pub what: &'static str,
    /// The name of the limit.
    pub name: &'static str,
    pub most: Size,
    pub hint: &'static str,
}

/// The most that a file of settings may have, in bytes.
pub const MAX_SETTINGS: u64 = 1 << 20;

/// The prose plan of a work item.
pub const PLAN: Bound = Bound {
    kind: "plan_too_large",
    what: "the plan",
    name: "max_plan",
    most: Size(1 << 20),
    hint: "put what is large into a file, and say in the plan where that is",
};

/// The template that `turn.prompt` names.
pub const PROMPT: Bound = Bound {
    kind: "prompt_too_large",
    what: "the template",
    name: "max_prompt",
    most: Size(1 << 20),
    hint: "shorten it: the turn can read what is large from a file",
};

pub const CHECKPOINT: Bound = Bound {
    kind: "checkpoint_too_large",
    what: "the checkpoint",
    name: "max_checkpoint",
    most: Size(64 << 20),
    hint: "put what is large into a file of its own, and save the path of that file",
};

/// A brief. The last one is part of `state.json`.
pub const BRIEF: Bound = Bound {
    kind: "brief_too_large",
    what: "it",
    name: "max_brief",
    most: Size(1 << 20),
    hint: "put what is large into a file, and say in the brief where that is",
};

/// The messages that wait for delivery, as files. A step reads all of them.
pub const OUTBOX: Bound = Bound {
    kind: "outbox_too_large",
    what: "the outbox",
    name: "max_outbox",
    most: Size(8 << 20),
    hint: "find out why its messages are not delivered, or send less at once",
};

/// One record when it is made. Readers accept twice as much, because a record grows with what
/// happens to it.
pub const RECORD: Bound = Bound {
    kind: "record_too_large",
    what: "the record",
    name: "max_record",
    most: Size(8 << 20),
    hint: "put what is large into a file, and say where that is",
};

impl Bound {
    /// The body of a message; `most` is `limits.max_message`.
    pub const fn message(what: &'static str, most: Size) -> Bound {
        Bound {
            kind: "message_too_large",
            what,
            name: "limits.max_message",
            most,
            hint: "put it in a file and say where, or raise limits.max_message in agent.toml",
        }
    }

    /// The outcome file of a turn; `most` is `limits.max_outcome`.
    pub const fn outcome(most: Size) -> Bound {
        Bound {
            kind: "outcome_too_large",
            what: "it",
            name: "limits.max_outcome",
            most,
            hint: "put what is large into a file, and say in the outcome where that is",
        }
    }

    /// All that one outcome makes: records, messages, events. `most` is `limits.max_effects`.
    pub const fn effects(most: Size) -> Bound {
        Bound {
            kind: "outcome_too_large",
            what: "what it makes",
            name: "limits.max_effects",
            most,
            hint: "put what is large into files, and say in the outcome where they are",
        }
    }

    /// Refuses what has more bytes than the limit.
    pub fn check(&self, bytes: u64) -> Result<(), Refusal> {
        if bytes > self.most.0 { Err(self.refuse(&bytes.to_string())) } else { Ok(()) }
    }

    /// The refusal of something of this size. `bytes` is text, because it may say "at least".
    pub fn refuse(&self, bytes: &str) -> Refusal {
        let Bound { kind, what, name, most, hint } = self;
        Refusal::new(kind, format!("{what} has {bytes} bytes, more than {name} = {most}")).hint(*hint)
    }
}
