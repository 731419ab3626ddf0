//! Size limits for input, settings and records.

use super::policy::Size;
use super::refusal::Refusal;

/// Size limit, and the texts of the error for a larger size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bound {
    /// `kind` of the error, for scripts.
    pub kind: &'static str,
    /// Name of the measured part, such as "the body".
    pub what: &'static str,
    /// Name of the limit in the error, such as `limits.max_message`.
    pub name: &'static str,
    pub most: Size,
    pub hint: &'static str,
}

/// Maximum size of a settings file, in bytes.
pub const MAX_SETTINGS: u64 = 1 << 20;

/// Hint to put the large part of a text into a file, and to name the file in the text.
const IN_FILE: &str = "put the large part into a file, and name the file";

/// Limit of a work item's prose plan.
pub const PLAN: Bound = Bound::new("plan_too_large", "the plan", "max_plan", 1 << 20);

/// Limit of the template file that `turn.prompt` names.
pub const PROMPT: Bound = Bound {
    hint: "shorten it: the turn can read a large text from a file",
    ..Bound::new("prompt_too_large", "the template", "max_prompt", 1 << 20)
};

pub const CHECKPOINT: Bound =
    Bound::new("checkpoint_too_large", "the checkpoint", "max_checkpoint", 64 << 20);

/// Limit of a brief (summary of a turn), small because `state.json` contains the last brief.
pub const BRIEF: Bound = Bound::new("brief_too_large", "it", "max_brief", 1 << 20);

/// Limit of the outbox: total size, as files, of undelivered messages to other agents.
pub const OUTBOX: Bound = Bound {
    hint: "find out why its messages are not delivered, or send less at once",
    ..Bound::new("outbox_too_large", "the outbox", "max_outbox", 8 << 20)
};

/// Limit of one new record. Readers accept twice this size, because records grow.
pub const RECORD: Bound = Bound::new("record_too_large", "the record", "max_record", 8 << 20);

/// Limit of a short text such as a reason: the maximum length of one argument on Linux.
pub const SHORT_TEXT: Bound = Bound::new("record_too_large", "the text", "max_text", 128 << 10);

impl Bound {
    const fn new(kind: &'static str, what: &'static str, name: &'static str, most: u64) -> Bound {
        Bound { kind, what, name, most: Size(most), hint: IN_FILE }
    }

    /// Returns the limit of a message body. `most` is `limits.max_message`.
    pub const fn message(what: &'static str, most: Size) -> Bound {
        let hint = "put it in a file and say where, or raise limits.max_message in agent.toml";
        Bound { hint, ..Bound::new("message_too_large", what, "limits.max_message", most.0) }
    }

    /// Returns the limit of a turn's outcome file. `most` is `limits.max_outcome`.
    pub const fn outcome(most: Size) -> Bound {
        Bound::new("outcome_too_large", "it", "limits.max_outcome", most.0)
    }

    /// Returns the limit of the total size of records, messages and events that one outcome
    /// creates. `most` is `limits.max_effects`.
    pub const fn effects(most: Size) -> Bound {
        Bound::new("outcome_too_large", "what it makes", "limits.max_effects", most.0)
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
