//! Groups of arguments that several commands take.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::model::id::AgentName;

// A command that only groups other commands. This is no doc comment, because clap would show a doc
// comment instead of the help text of the group.
#[derive(Debug, Args)]
pub struct CommandGroup<C: Subcommand> {
    #[command(subcommand)]
    pub command: C,
}

/// The agent of a command about records
#[derive(Debug, Args)]
pub struct AgentFlag {
    /// Name of the agent; the same as --agent
    #[arg(value_name = "AGENT")]
    pub word: Option<AgentName>,
    /// The agent [default: $DORMOUSE_AGENT; not needed where an id is given]
    #[arg(short, long, value_name = "AGENT")]
    pub agent: Option<AgentName>,
}

/// The agent and the text of a command such as `timer add`
#[derive(Debug, Args)]
pub struct AgentAndText {
    /// The text. If two words are given, the first one is the agent
    #[arg(value_name = "TEXT", num_args = 0..=2)]
    pub words: Vec<String>,
    /// The agent [default: $DORMOUSE_AGENT]
    #[arg(short, long, value_name = "AGENT")]
    pub agent: Option<AgentName>,
}

/// The agents that a command lists or reads
#[derive(Debug, Args)]
pub struct AgentFlags {
    /// The agents, as words; equal to --agent
    #[arg(value_name = "AGENT")]
    pub words: Vec<AgentName>,
    /// An agent (may be repeated) [default: $DORMOUSE_AGENT, else every agent]
    #[arg(short, long, value_name = "AGENT")]
    pub agent: Vec<AgentName>,
    /// Every agent, also inside a turn
    #[arg(long)]
    pub all: bool,
}

/// The agents of a command that changes them
#[derive(Debug, Args)]
pub struct AgentsArg {
    /// Names of the agents
    #[arg(value_name = "AGENT", required_unless_present = "all")]
    pub agents: Vec<AgentName>,
    /// Every agent
    #[arg(long, conflicts_with = "agents")]
    pub all: bool,
}

/// The agents of a command that by default takes all agents
#[derive(Debug, Args)]
pub struct SomeAgents {
    /// Names of the agents [default: all]
    #[arg(value_name = "AGENT")]
    pub agents: Vec<AgentName>,
}

/// A record of an agent
#[derive(Debug, Args)]
pub struct RecordArg {
    /// Id of the record, at least four digits of it, or `latest`
    pub id: String,
    #[command(flatten)]
    pub agent: AgentFlag,
}

/// The source or the destination of the secret of a trigger
#[derive(Debug, Args)]
pub struct SecretArgs {
    /// Write the secret to this new file, which only you can read, and show it nowhere
    #[arg(long, value_name = "FILE")]
    pub secret_file: Option<PathBuf>,
    /// Take the secret that the sender has generated from this file; `-` for stdin
    #[arg(long, value_name = "FILE", conflicts_with = "secret_file")]
    pub secret_from: Option<PathBuf>,
}
