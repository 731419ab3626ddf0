//! `init`, `create`, `rename`, `start`, `stop`, `rm`, `recover`.

use std::path::PathBuf;

use clap::Args;
use clap::builder::PossibleValuesParser;

use crate::model::agent::Visibility;
use crate::model::id::AgentName;
use crate::model::time::Span;

use super::groups::AgentsArg;

pub const TEMPLATES: &[&str] = &["script", "llm", "reviewer", "nightly"];

/// Create a state directory
///
/// Creates DIR/.dormouse with its settings and its git files. An existing one is not changed.
/// Without DIR, --dir or DORMOUSE_DIR names the place, or else it is the working directory.
///
/// With a URL (postgres://...) it creates the tables of a store in a database. --grant then gives a
/// role of that database the rights of a `ticker`, a `producer` or a `reader`. A ticker may do
/// everything; a producer may `enqueue` and `wake` in its own name and reads nothing. A role that
/// had other rights before loses them.
#[derive(Debug, Args)]
pub struct InitArgs {
    /// Directory in which .dormouse is created
    #[arg(value_name = "DIR")]
    pub into: Option<PathBuf>,
    /// Make a role of the database a ticker, producer or reader (may be repeated)
    #[arg(long, value_name = "PART=ROLE")]
    pub grant: Vec<String>,
}

/// Create an agent
///
/// The agent is `booting` until it is started. The turn command follows `--`, as a program and its
/// arguments; --shell takes one line for sh instead; --from takes a whole agent.toml. --template
/// creates an agent that is ready to run. Its turn command is AGENT.sh beside the state directory,
/// a script for you to edit, with comments that explain it.
///
/// The secret of the agent's trigger is shown only now: on a terminal, with --json, or in the file
/// of --secret-file; never with --quiet.
#[derive(Debug, Args)]
pub struct CreateArgs {
    /// Name of the agent: 1 to 64 of a-z 0-9 . _ -
    pub agent: AgentName,
    /// The turn command as one line for sh
    #[arg(long, value_name = "LINE", conflicts_with_all = ["from", "command"])]
    pub shell: Option<String>,
    /// Use this file as the agent.toml of the agent
    #[arg(long, value_name = "FILE", conflicts_with_all = ["command", "description", "profile"])]
    pub from: Option<PathBuf>,
    /// An agent that runs a script, asks a language model, reviews commits or works every night
    #[arg(long, value_parser = PossibleValuesParser::new(TEMPLATES), conflicts_with_all = ["shell", "from", "command"])]
    pub template: Option<String>,
    /// Purpose of the agent
    #[arg(long, value_name = "TEXT")]
    pub description: Option<String>,
    /// Owner of the new agent, which is a private child. Inside a turn or task: the calling agent
    #[arg(long, value_name = "AGENT")]
    pub parent: Option<AgentName>,
    /// The table [profiles.NAME] of dormouse.toml with its default settings
    #[arg(long, value_name = "NAME")]
    pub profile: Option<String>,
    /// Senders that may send the new agent messages: every agent, or only the operator, its parent
    /// and its triggers [default: public; of a child: private]
    #[arg(long)]
    pub visibility: Option<Visibility>,
    /// Write the trigger's secret to this new file, which only you can read, and don't show it
    #[arg(long, value_name = "FILE")]
    pub secret_file: Option<PathBuf>,
    /// The turn command
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// Copy an agent's settings to a new agent
///
/// The new agent has the settings and hooks of the other agent, but no messages and no history. It
/// gets a new trigger. It is `booting` until it is started. Its turns run the same program, in the
/// same directory.
#[derive(Debug, Args)]
pub struct CloneArgs {
    /// The agent to copy
    pub agent: AgentName,
    /// Name of the new agent: 1 to 64 of a-z 0-9 . _ -
    pub new: AgentName,
    /// Write the trigger's secret to this new file, which only you can read, and don't show it
    #[arg(long, value_name = "FILE")]
    pub secret_file: Option<PathBuf>,
}

/// Change the settings of an agent in an editor
///
/// Opens a copy of its agent.toml with $VISUAL, else $EDITOR, else vi. When the editor ends, a
/// valid copy replaces agent.toml; an invalid one is kept, and the error names it. If agent.toml
/// has changed meanwhile, it is not overwritten and the copy is kept. The next step uses the new
/// settings.
#[derive(Debug, Args)]
pub struct EditArgs {
    /// Name of the agent
    pub agent: AgentName,
}

/// Give an agent another name
///
/// Messages, work items, timers, history, hooks and keys are kept. Its children refer to it by its
/// new name. Its triggers keep their ids and secrets, but the path of their URLs has the new name.
/// References outside the state directory (crontabs, units, turn scripts) are yours to change.
///
/// Refused while it has an open turn or task, or its parent waits for it. During the rename its
/// records don't change, and messages to it are refused. An interrupted rename is marked in the
/// agent; the same command continues it.
#[derive(Debug, Args)]
pub struct RenameArgs {
    /// Name of the agent
    pub agent: AgentName,
    /// New name of the agent: 1 to 64 of a-z 0-9 . _ -
    pub new: AgentName,
}

/// Start agents, so that ticks run them
///
/// Sends no message and runs no turn: the next tick decides what to do. Starting a started agent
/// changes nothing. Runs the start hooks of the state directory and of the agent. Inside a turn or
/// task, only children of its agent can be started.
#[derive(Debug, Args)]
pub struct StartArgs {
    #[command(flatten)]
    pub agents: AgentsArg,
}

/// Stop agents and end what they run
///
/// A stopped agent takes up no message. A running turn gets SIGTERM once no critical section
/// protects it, and SIGKILL after the grace. If it ends in time with exit status 0, it is
/// completed; otherwise its run is aborted. Queued messages, timers, waits and history are kept.
/// Stopping a stopped agent changes nothing.
#[derive(Debug, Args)]
pub struct StopArgs {
    #[command(flatten)]
    pub agents: AgentsArg,
    /// Time for a running turn to end by itself [default: timeouts.shutdown, 30s]
    #[arg(long, value_name = "DURATION")]
    pub grace: Option<Span>,
    /// Don't wait for a critical section of the turn
    #[arg(long)]
    pub now: bool,
    /// Put the message of a running turn back into the queue instead of aborting it; also a
    /// deferred or suspended message
    #[arg(long)]
    pub requeue: bool,
    /// The reason, for the ledger
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
}

/// Delete agents, after exporting each to a file
///
/// The stream of each agent is written to AGENT.tar, as by export; import restores the agent. When
/// the file is durable, the agent is deleted at once. A message that arrives meanwhile is in the
/// stream, or is refused. Its children, its turn script and its workspace stay: the latter two are
/// beside the state directory.
///
/// Refused while it has an open turn or task, or its parent waits for it: `stop` ends those.
/// Refused without --force while messages, work items, waits or timers are open, or something needs
/// attention. An interrupted deletion is marked in the agent, whose records no longer change; the
/// same command continues it.
#[derive(Debug, Args)]
pub struct RmArgs {
    /// Names of the agents
    #[arg(value_name = "AGENT", required = true)]
    pub agents: Vec<AgentName>,
    /// Delete unfinished work, too
    #[arg(short, long)]
    pub force: bool,
    /// Write the stream to this new file, for one agent only [default: AGENT.tar for each agent]
    #[arg(short, long, value_name = "FILE", conflicts_with = "no_export")]
    pub output: Option<PathBuf>,
    /// Export nothing: the agent can't be restored
    #[arg(long)]
    pub no_export: bool,
    /// Print what would be deleted or refused, and change nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// Resume a failed agent at once, or retry a deferred message
///
/// Ends the backoff, and settles a run whose tick has died. Without this command, `tick` does the
/// same in time. The next step tries a message that waits for resources, even if it was deferred,
/// and a message that is held after too many setbacks.
#[derive(Debug, Args)]
pub struct RecoverArgs {
    /// Name of the agent
    pub agent: AgentName,
    /// Count a run as interrupted although it may still be running: on another host, or in the
    /// state directory that this one was copied from. Tasks of that directory count as lost. No
    /// process is ended there
    #[arg(long)]
    pub force: bool,
}
