//! `init`, `create`, `start`, `stop`, `recover`.

use std::path::PathBuf;

use clap::Args;
use clap::builder::PossibleValuesParser;

pub const VISIBILITIES: &[&str] = &["public", "private"];
pub const TEMPLATES: &[&str] = &["script", "llm", "reviewer", "nightly"];

/// Make a state directory
///
/// Makes DIR/.dormouse with its settings and its git files. If there is one already, nothing changes. Without
/// DIR it is made where --dir or DORMOUSE_DIR points, else in the working directory.
#[derive(Debug, Args)]
pub struct Init {
    /// The directory to put it into
    #[arg(value_name = "DIR")]
    pub into: Option<PathBuf>,
}

/// Make a new agent
///
/// The agent is `booting` until it is started. The turn command follows `--`, as a program and its arguments;
/// --shell takes one line for sh instead; --from takes a whole agent.toml. --template makes an agent that works
/// at once, with its turn command as AGENT.sh beside the state directory: a script that is yours and says in its
/// comments what can be done with it.
///
/// The secret of the agent's trigger is shown only now: on a terminal, with --json, or in the file of
/// --secret-file; never with --quiet.
#[derive(Debug, Args)]
pub struct Create {
    /// Its name: 1 to 64 of a-z 0-9 . _ -
    pub agent: String,
    /// The turn command as one line for sh
    #[arg(long, value_name = "LINE", conflicts_with_all = ["from", "command"])]
    pub shell: Option<String>,
    /// Take this file as its agent.toml
    #[arg(long, value_name = "FILE", conflicts_with_all = ["command", "description"])]
    pub from: Option<PathBuf>,
    /// An agent that runs a script, asks a language model, reviews commits or works every night
    #[arg(long, value_parser = PossibleValuesParser::new(TEMPLATES), conflicts_with_all = ["shell", "from", "command"])]
    pub template: Option<String>,
    /// What the agent is for
    #[arg(long, value_name = "TEXT")]
    pub description: Option<String>,
    /// The agent that owns it, as a private child. Inside a turn or task: always its agent
    #[arg(long, value_name = "AGENT")]
    pub parent: Option<String>,
    /// The table [profiles.NAME] of dormouse.toml whose keys are its defaults
    #[arg(long, value_name = "NAME")]
    pub profile: Option<String>,
    /// Which senders it takes messages from: every agent, or only the operator, its parent and its triggers
    /// [default: public; of a child: private]
    #[arg(long, value_parser = PossibleValuesParser::new(VISIBILITIES))]
    pub visibility: Option<String>,
    /// Write the secret of its trigger to this new file, which only you can read, and show it nowhere
    #[arg(long, value_name = "FILE")]
    pub secret_file: Option<PathBuf>,
    /// The turn command
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// Start agents, so that ticks run them
///
/// Sends no message and runs no turn: the next tick decides what to do. Runs the hooks of the state directory
/// and of the agent that are told of a start. Inside a turn or task, only children of its agent can be
/// started.
#[derive(Debug, Args)]
pub struct Start {
    #[command(flatten)]
    pub agents: Agents,
}

/// Stop agents and end what they run
///
/// A stopped agent takes up no message. A running turn gets SIGTERM once no critical section protects it, and
/// SIGKILL when the grace is over. If it ends in time with exit status 0, it is completed; otherwise its run
/// is aborted. Queued messages, timers, waits and history are kept. Stopping a stopped agent changes nothing.
#[derive(Debug, Args)]
pub struct Stop {
    #[command(flatten)]
    pub agents: Agents,
    /// How long a running turn may take to end by itself [default: timeouts.shutdown, 30s]
    #[arg(long, value_name = "DURATION")]
    pub grace: Option<String>,
    /// Don't wait for a critical section of the turn
    #[arg(long)]
    pub now: bool,
    /// Put the message of a running turn back into the queue instead of aborting it; also a message that is
    /// put off or suspended
    #[arg(long)]
    pub requeue: bool,
    /// Why, for the ledger
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
}

/// Let a failed agent go on at once, or retry a message that is put off
///
/// Ends the backoff, and settles a run whose tick is gone. Without this command, `tick` does the same when
/// the time has come. A message that waits for resources is tried by the next step, even if it was put off
/// until later.
#[derive(Debug, Args)]
pub struct Recover {
    /// Which agent
    pub agent: String,
    /// Count a run of another host as interrupted although its lease has not ended
    #[arg(long)]
    pub force: bool,
}

/// Which agents
#[derive(Debug, Args)]
pub struct Agents {
    /// Which agents
    #[arg(value_name = "AGENT", required_unless_present = "all")]
    pub agents: Vec<String>,
    /// Every agent
    #[arg(long, conflicts_with = "agents")]
    pub all: bool,
}
