//! Size limits for input from outside.

use super::policy::Size;
use super::refusal::Refusal;

/// Size limit, and the texts of the error for a larger size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bound {
    /// `kind` of the error, for scripts.
    pub kind: &'static str,
    /// Name of the measured part, such as "the body".
    pub what: &'static str,
    /// Name of the limit, as the error names it.
    pub name: &'static str,
    pub most: Size,
    pub hint: &'static str,
}

/// Maximum size of a settings file, in bytes.
pub const MAX_SETTINGS: u64 = 1 << 20;

/// Limit of a work item's prose plan.
pub const PLAN: Bound = Bound {
    kind: "plan_too_large",
    what: "the plan",
    name: "max_plan",
    most: Size(1 << 20),
    hint: "put the large part into a file, and name the file in the plan",
};

/// Limit of the template file that `turn.prompt` names.
pub const PROMPT: Bound = Bound {
    kind: "prompt_too_large",
    what: "the template",
    name: "max_prompt",
    most: Size(1 << 20),
    hint: "shorten it: the turn can read a large text from a file",
};

pub const CHECKPOINT: Bound = Bound {
    kind: "checkpoint_too_large",
    what: "the checkpoint",
    name: "max_checkpoint",
    most: Size(64 << 20),
    hint: "put the large part into a file of its own, and save the path of that file",
};

/// Limit of a brief (summary of a turn), small because `state.json` has the last brief.
pub const BRIEF: Bound = Bound {
    kind: "brief_too_large",
    what: "it",
    name: "max_brief",
    most: Size(1 << 20),
    hint: "put the large part into a file, and name the file in the brief",
};

/// Limit of the total size of undelivered messages as files. A step reads all of them.
pub const OUTBOX: Bound = Bound {
    kind: "outbox_too_large",
    what: "the outbox",
    name: "max_outbox",
    most: Size(8 << 20),
    hint: "find out why its messages are not delivered, or send less at once",
};

/// Limit of one new record. Readers accept twice this size, because records grow.
pub const RECORD: Bound = Bound {
    kind: "record_too_large",
    what: "the record",
    name: "max_record",
    most: Size(8 << 20),
    hint: "put the large part into a file, and name the file",
};

/// Limit of a short text such as a reason: the maximum length of one argument on Linux.
pub const SHORT_TEXT: Bound = Bound { what: "the text", name: "max_text", most: Size(128 << 10), ..RECORD };

impl Bound {
    /// Returns the limit of a message body. `most` is `limits.max_message`.
    pub const fn message(what: &'static str, most: Size) -> Bound {
        Bound {
            kind: "message_too_large",
            what,
            name: "limits.max_message",
            most,
            hint: "put it in a file and say where, or raise limits.max_message in agent.toml",
        }
    }

    /// Returns the limit of a turn's outcome file. `most` is `limits.max_outcome`.
    pub const fn outcome(most: Size) -> Bound {
        Bound {
            kind: "outcome_too_large",
            what: "it",
            name: "limits.max_outcome",
            most,
            hint: "put the large part into a file, and name the file in the outcome",
        }
    }

    /// Returns the limit of the total size of records, messages and events that one outcome
    /// creates. `most` is `limits.max_effects`.
    pub const fn effects(most: Size) -> Bound {
        Bound {
            kind: "outcome_too_large",
            what: "what it makes",
            name: "limits.max_effects",
            most,
            hint: "put the large parts into files, and name the files in the outcome",
        }
    }

    /// Refuses a size in bytes above the limit.
    pub fn check(&self, bytes: u64) -> Result<(), Refusal> {
        if bytes > self.most.0 { Err(self.refuse(&bytes.to_string())) } else { Ok(()) }
    }

    /// Returns the refusal of a size, which may begin with "at least".
    pub fn refuse(&self, bytes: &str) -> Refusal {
        let Bound { kind, what, name, most, hint } = self;
        Refusal::new(kind, format!("{what} has {bytes} bytes, more than {name} = {most}")).hint(*hint)
    }
}
