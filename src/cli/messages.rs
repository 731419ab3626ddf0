//! `enqueue`, `ask`, `wake`, `queue`.

use std::ffi::OsString;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};

use crate::model::id::AgentName;
use crate::model::message::{MessageKind, Priority};
use crate::model::time::Span;

use super::groups::{AgentFlags, RecordArg};

/// Message kinds that can be enqueued from outside.
pub const OUTSIDE_KINDS: &[&str] =
    &["operator_prompt", "control", "channel_event", "webhook_event", "callback_event", "internal_followup"];

/// Send a message to an agent
///
/// Admits one message and prints its id. Once the id is printed, the message survives a crash. TEXT
/// is the text itself, `-` for stdin, or `@FILE`. Without TEXT, stdin is read unless it is a
/// terminal. With --await it waits for the end of the message and prints the brief of its turn
/// instead of the id. Another process must run the steps.
#[derive(Debug, Args)]
pub struct EnqueueArgs {
    /// Name of the agent
    pub agent: AgentName,
    #[command(flatten)]
    pub said: MessageArgs,
    /// Admit the message after this long, by a timer
    #[arg(long = "in", value_name = "DURATION", conflicts_with_all = ["at", "batch", "retry"])]
    pub within: Option<Span>,
    /// Admit the message at this time, by a timer: `tomorrow 9:00`, `friday 17:30`, RFC 3339
    #[arg(long, value_name = "TIME", conflicts_with_all = ["batch", "retry"])]
    pub at: Option<String>,
    /// Accept a past time for --at: the next step then admits the message
    #[arg(long, requires = "at")]
    pub past_ok: bool,
    /// Read one message per line of stdin, each a JSON object. Its fields are text or body, kind,
    /// origin, priority, dedupe_key, ttl, expires_at, resource, work_item_id, wait_id,
    /// correlation_id, allow_empty. If one line is bad, no message is admitted
    #[arg(long, conflicts_with_all = ["text", "body_json", "kind", "dedupe_key", "work_item", "wait"])]
    pub batch: bool,
    /// Wait until the message, or each of the batch, has ended, and print the brief of its turn.
    /// Exit with 0 if it was completed, with 7 if it failed for good
    #[arg(long = "await")]
    pub awaits: bool,
    /// With --await: exit with 8 after this long; the message stays queued
    #[arg(long, value_name = "DURATION", requires = "awaits")]
    pub timeout: Option<Span>,
}

/// Send a message to an agent and wait for its answer
///
/// Admits one message as `enqueue` does, runs steps of that agent until the message is settled, and
/// prints the brief (summary) of its turn. The output of the turn goes to stderr. The exit status
/// is 0 if the message was completed, 7 if it failed for good, and 8 after the timeout. After a
/// timeout or a signal the message stays queued.
#[derive(Debug, Args)]
pub struct AskArgs {
    /// Name of the agent
    pub agent: AgentName,
    #[command(flatten)]
    pub said: MessageArgs,
    /// Begin no step after this long; a turn that runs at that time is not ended
    #[arg(long, value_name = "DURATION")]
    pub timeout: Option<Span>,
}

/// The options of one message
#[derive(Debug, Args)]
pub struct MessageArgs {
    /// The text of the message
    #[arg(value_name = "TEXT", conflicts_with = "body_json")]
    pub text: Option<String>,
    /// A JSON body instead of text: the JSON itself, `@FILE`, or `-` for stdin
    #[arg(long, value_name = "JSON")]
    pub body_json: Option<String>,
    /// The message kind [default: the first that the origin may send]
    #[arg(long, value_parser = PossibleValuesParser::new(OUTSIDE_KINDS).try_map(|kind| kind.parse::<MessageKind>()))]
    pub kind: Option<MessageKind>,
    /// The sender: operator, channel, webhook or callback, with or without a name (`webhook:ci`)
    /// [default: operator]
    #[arg(long, value_name = "KIND[:ID]")]
    pub origin: Option<String>,
    /// Which messages are taken up first; only the operator can interject [default: normal]
    #[arg(long)]
    pub priority: Option<Priority>,
    /// Admit only one message under this key within 24 hours; a repeat prints the id of the first
    #[arg(long, value_name = "KEY")]
    pub dedupe_key: Option<String>,
    /// If the message under this key failed before, put it back into the queue
    #[arg(long, requires = "dedupe_key")]
    pub retry: bool,
    /// Drop the message if no step has taken it up after this long
    #[arg(long, value_name = "DURATION")]
    pub ttl: Option<Span>,
    /// Subject of the message, for example `github:org/repo#12`
    #[arg(long, value_name = "REF")]
    pub resource: Option<String>,
    /// The open work item that the message belongs to
    #[arg(long, value_name = "ID")]
    pub work_item: Option<String>,
    /// The active wait that the message answers
    #[arg(long, value_name = "ID")]
    pub wait: Option<String>,
    /// An id that ties the message to other messages
    #[arg(long, value_name = "ID")]
    pub correlation_id: Option<String>,
    /// Accept a blank message, which is refused otherwise
    #[arg(long)]
    pub allow_empty: bool,
}

/// Tell an agent that something may have changed
///
/// A wake hint is not a message: pending hints about the same wait, resource or source are merged.
/// A turn runs if the hint names what the agent waits for, or if the agent has runnable work.
/// Otherwise the command prints that none will run, and the agent's next turn gets the hint;
/// `enqueue` sends a message that runs a turn.
#[derive(Debug, Args)]
pub struct WakeArgs {
    /// Name of the agent
    pub agent: AgentName,
    /// The reason of the hint, which the next turn gets
    pub text: Option<String>,
    /// The source of the hint [default: operator; inside a turn, its agent]
    #[arg(long, value_name = "NAME")]
    pub source: Option<String>,
    /// The resource that has changed, for example `github:org/repo#12`; this ends the waits for it
    #[arg(long, value_name = "REF")]
    pub resource: Option<String>,
    /// The active wait that the hint ends
    #[arg(long, value_name = "ID")]
    pub wait: Option<String>,
    /// A trigger of the agent: the hint is about the wait or resource that the trigger is scoped to
    #[arg(long, value_name = "ID", conflicts_with_all = ["resource", "wait"])]
    pub trigger: Option<String>,
    /// Reason of the hint, placed before TEXT
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
}

/// Show messages, and handle dead letters
#[derive(Debug, Subcommand)]
pub enum QueueCommand {
    /// List queued messages in processing order
    List {
        #[command(flatten)]
        agents: AgentFlags,
        /// Maximum number of messages of each agent; 0 for all
        #[arg(long, value_name = "N", default_value_t = 100)]
        limit: usize,
    },
    /// Show one message, queued or ended
    Show(RecordArg),
    /// List dead letters: messages that have failed all their attempts
    Dead {
        #[command(flatten)]
        agents: AgentFlags,
        /// Acknowledge all attentions of the agents, not only those about dead letters, and list
        /// nothing. No message is changed
        #[arg(long)]
        ack: bool,
    },
    Rejected(RejectedArgs),
    /// Put a dead, aborted or dropped message back into the queue
    Requeue(RecordArg),
    /// Drop a queued, deferred or suspended message, or a dead letter
    Drop {
        #[command(flatten)]
        message: RecordArg,
        /// The reason, for the ledger
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
}

/// List files that could not be admitted, and handle them
///
/// Such a file was dropped into the inbox and is not a message for the agent, or can't be read. A
/// step moved it to inbox/rejected/ and wrote the reason beside it; a file that can't be moved is
/// still in the inbox. `list`, `get` and `doctor` count it until it is accepted or dropped.
/// With --accept or --drop, --all names every file of the agent.
#[derive(Debug, Args)]
pub struct RejectedArgs {
    #[command(flatten)]
    pub agents: AgentFlags,
    /// Try these files again: each returns to the inbox, and the next step reads it
    #[arg(long, value_name = "FILE", num_args = 0.., conflicts_with = "drop")]
    pub accept: Option<Vec<OsString>>,
    /// Delete these files. No other command does
    #[arg(long, value_name = "FILE", num_args = 0..)]
    pub drop: Option<Vec<OsString>>,
}
