//! `enqueue`, `ask`, `wake`, `queue`.

use std::ffi::OsString;

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};

/// The message kinds that can be enqueued from outside.
pub const OUTSIDE_KINDS: &[&str] =
    &["operator_prompt", "control", "channel_event", "webhook_event", "callback_event", "internal_followup"];
pub const PRIORITIES: &[&str] = &["interject", "next", "normal", "background"];

/// Say something to an agent
///
/// Admits one message and prints its id. It is kept for good when the id appears. The text is
/// TEXT, or `-` for stdin, or `@FILE`; without any, stdin if it is no terminal.
#[derive(Debug, Args)]
pub struct Enqueue {
    /// Which agent
    pub agent: String,
    #[command(flatten)]
    pub said: Said,
    /// Admit it so long from now, by a timer
    #[arg(long = "in", value_name = "DURATION", conflicts_with_all = ["at", "batch"])]
    pub within: Option<String>,
    /// Admit it then, by a timer
    #[arg(long, value_name = "TIME", conflicts_with = "batch")]
    pub at: Option<String>,
    /// Take a moment for --at that is past: it is admitted with the next step
    #[arg(long, requires = "at")]
    pub past_ok: bool,
    /// One message per line of stdin, each a JSON object: text or body, kind, origin, priority,
    /// dedupe_key, ttl, expires_at, resource, work_item_id, wait_id, correlation_id, allow_empty. A bad
    /// line admits none
    #[arg(long, conflicts_with_all = ["text", "body_json", "kind", "dedupe_key", "work_item", "wait"])]
    pub batch: bool,
}

/// Say something to an agent and wait for what comes of it
///
/// Admits one message as enqueue does, makes steps of that agent until the message is settled, and
/// prints the brief of its turn. What the turn says meanwhile goes to stderr. Exit status 0 says that
/// the message was completed, 7 that it failed for good, 8 that the time was over first: it stays
/// queued then, as it does when this is interrupted.
#[derive(Debug, Args)]
pub struct Ask {
    /// Which agent
    pub agent: String,
    #[command(flatten)]
    pub said: Said,
    /// Make no more steps after this long; a turn that runs then is not cut off
    #[arg(long, value_name = "DURATION")]
    pub timeout: Option<String>,
}

/// One message, as it is said on the command line
#[derive(Debug, Args)]
pub struct Said {
    /// What to say
    #[arg(value_name = "TEXT", conflicts_with = "body_json")]
    pub text: Option<String>,
    /// A body of JSON instead of text: itself, `@FILE`, or `-`
    #[arg(long, value_name = "JSON")]
    pub body_json: Option<String>,
    /// The message kind [default: the first that the origin may send]
    #[arg(long, value_parser = PossibleValuesParser::new(OUTSIDE_KINDS))]
    pub kind: Option<String>,
    /// Who speaks: operator, channel, webhook or callback, and a name (`webhook:ci`) [default: operator]
    #[arg(long, value_name = "KIND[:ID]")]
    pub origin: Option<String>,
    /// What goes first; only the operator can interject [default: normal]
    #[arg(long, value_parser = PossibleValuesParser::new(PRIORITIES))]
    pub priority: Option<String>,
    /// Admit one message under this key within 24 hours, and answer a repeat with its id
    #[arg(long, value_name = "KEY")]
    pub dedupe_key: Option<String>,
    /// Drop the message if it has not been taken up by then
    #[arg(long, value_name = "DURATION")]
    pub ttl: Option<String>,
    /// What it is about, for example `github:org/repo#12`
    #[arg(long, value_name = "REF")]
    pub resource: Option<String>,
    /// The open work item it belongs to
    #[arg(long, value_name = "ID")]
    pub work_item: Option<String>,
    /// The active wait that it answers
    #[arg(long, value_name = "ID")]
    pub wait: Option<String>,
    /// What ties it to other messages
    #[arg(long, value_name = "ID")]
    pub correlation_id: Option<String>,
    /// Say nothing, and mean it: a blank message is refused otherwise
    #[arg(long)]
    pub allow_empty: bool,
}

/// Tell an agent that something may have changed
///
/// A wake hint is no message: hints of the same wait, resource or source that are still pending are one.
#[derive(Debug, Args)]
pub struct Wake {
    /// Which agent
    pub agent: String,
    /// What the agent should find, if it should find anything
    pub text: Option<String>,
    /// Who gives the hint [default: operator; inside a turn, its agent]
    #[arg(long, value_name = "NAME")]
    pub source: Option<String>,
    /// What has changed, for example `github:org/repo#12`; ends the waits for it
    #[arg(long, value_name = "REF")]
    pub resource: Option<String>,
    /// The active wait that is over
    #[arg(long, value_name = "ID")]
    pub wait: Option<String>,
    /// Why the agent should look
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
}

/// Look at messages, and deal with dead letters
#[derive(Debug, Args)]
pub struct Queue {
    #[command(subcommand)]
    pub command: QueueCommand,
}

#[derive(Debug, Subcommand)]
pub enum QueueCommand {
    /// List queued messages in processing order
    List {
        #[command(flatten)]
        agent: PlaneAgent,
        /// At most this many; 0 for all
        #[arg(long, value_name = "N", default_value_t = 100)]
        limit: usize,
    },
    /// Show one message, queued or ended
    Show {
        /// The message, or at least four characters of its id
        id: String,
        #[command(flatten)]
        agent: PlaneAgent,
    },
    /// List dead letters: messages that failed for the last time
    Dead {
        #[command(flatten)]
        agent: PlaneAgent,
        /// Acknowledge what needs attention, and list nothing: all of it, be it dead letters or anything
        /// else, or what names one of these ids or files. No message is changed
        #[arg(long, value_name = "ID", num_args = 0..)]
        ack: Option<Vec<String>>,
    },
    Rejected(Rejected),
    /// Put a dead, aborted or dropped message back into the queue
    Requeue {
        /// The message, or at least four characters of its id
        id: String,
        #[command(flatten)]
        agent: PlaneAgent,
    },
    /// Drop a queued message, one that is put off or suspended, or a dead letter
    Drop {
        /// The message, or at least four characters of its id
        id: String,
        #[command(flatten)]
        agent: PlaneAgent,
        /// Why, for the ledger
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
}

/// List files that could not be admitted, and deal with them
///
/// Such a file was dropped into the inbox and is no message of the agent, or is a message that can't be
/// read. A step has moved it to inbox/rejected/, with the reason beside it, or has left it in the inbox
/// where it can't be moved. List, get and doctor count it until it is accepted or dropped.
#[derive(Debug, Args)]
pub struct Rejected {
    #[command(flatten)]
    pub agent: PlaneAgent,
    /// Try these files again: each goes back into the inbox, or stays with the reason why not
    #[arg(long, value_name = "FILE", num_args = 0.., conflicts_with = "drop")]
    pub accept: Option<Vec<OsString>>,
    /// Remove these files for good. Nothing else does
    #[arg(long, value_name = "FILE", num_args = 0..)]
    pub drop: Option<Vec<OsString>>,
    /// With --accept or --drop: all of them
    #[arg(long)]
    pub all: bool,
}

/// The agent of a command about records
#[derive(Debug, Args)]
pub struct PlaneAgent {
    /// Whose [default: $DORMOUSE_AGENT; where an id is given it is never needed]
    #[arg(short, long, value_name = "AGENT")]
    pub agent: Option<String>,
}
