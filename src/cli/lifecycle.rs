//! `init`, `create`, `rename`, `start`, `stop`, `rm`, `recover`.

use std::path::PathBuf;

use clap::Args;
use clap::builder::PossibleValuesParser;

pub const VISIBILITIES: &[&str] = &["public", "private"];
pub const TEMPLATES: &[&str] = &["script", "llm", "reviewer", "nightly"];

/// Make a state directory
///
/// Makes DIR/.dormouse with its settings and its git files. If there is one already, nothing
/// changes. Without DIR it is made where --dir or DORMOUSE_DIR points, else in the working
/// directory.
///
/// With a URL (postgres://...) it makes the tables of a store in a database. --grant then lets a
/// role of that database be a `ticker`, who does everything, a `producer`, who may `enqueue` and
/// `wake` in its own name and reads nothing, or a `reader`, and nothing else from then on.
#[derive(Debug, Args)]
pub struct Init {
    /// The directory to put it into
    #[arg(value_name = "DIR")]
    pub into: Option<PathBuf>,
    /// Let a role of the database be ticker, producer or reader; may be given again
    #[arg(long, value_name = "PART=ROLE")]
    pub grant: Vec<String>,
}

/// Make a new agent
///
/// The agent is `booting` until it is started. The turn command follows `--`, as a program and its
/// arguments; --shell takes one line for sh instead; --from takes a whole agent.toml. --template
/// makes an agent that works at once, with its turn command as AGENT.sh beside the state directory:
/// a script that is yours and says in its comments what can be done with it.
///
/// The secret of the agent's trigger is shown only now: on a terminal, with --json, or in the file
/// of --secret-file; never with --quiet.
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
    /// Which senders it takes messages from: every agent, or only the operator, its parent and its
    /// triggers [default: public; of a child: private]
    #[arg(long, value_parser = PossibleValuesParser::new(VISIBILITIES))]
    pub visibility: Option<String>,
    /// Write the secret of its trigger to this new file, which only you can read, and show it
    /// nowhere
    #[arg(long, value_name = "FILE")]
    pub secret_file: Option<PathBuf>,
    /// The turn command
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// Make a new agent like one that is there
///
/// The new agent has the settings and hooks of the other, and nothing else of it: no messages, no
/// history, no triggers but one of its own. It is `booting` until it is started. Its turns run the
/// same program, in the same directory.
#[derive(Debug, Args)]
pub struct CloneAgent {
    /// The agent that is there
    pub agent: String,
    /// The name of the new one: 1 to 64 of a-z 0-9 . _ -
    pub new: String,
    /// What the new agent is for [default: as the other]
    #[arg(long, value_name = "TEXT")]
    pub description: Option<String>,
    /// Write the secret of its trigger to this new file, which only you can read, and show it
    /// nowhere
    #[arg(long, value_name = "FILE")]
    pub secret_file: Option<PathBuf>,
}

/// Change the settings of an agent in an editor
///
/// Opens a copy of its agent.toml with $VISUAL, else $EDITOR, else vi, and puts it in place when
/// the editor has ended and the text is sound. If it is not, you can edit again. Settings that have
/// changed meanwhile are not written over; the copy is then kept. The next step goes by the new
/// settings.
#[derive(Debug, Args)]
pub struct Edit {
    /// Which agent
    pub agent: String,
}

/// Give an agent another name
///
/// Everything of it goes along: messages, work items, timers, history, hooks, keys. Its children
/// know it by its new name. Its triggers keep ids and secrets, but the path of their URLs has the
/// new name. What names it outside the state directory (crontabs, units, turn scripts) is yours to
/// change.
///
/// Refused while a turn or a task of it is open, or its parent waits for it. Meanwhile nothing of
/// it changes, and a message to it is refused. A renaming that was cut off is marked in the agent;
/// the same command ends it.
#[derive(Debug, Args)]
pub struct Rename {
    /// Which agent
    pub agent: String,
    /// Its new name: 1 to 64 of a-z 0-9 . _ -
    pub new: String,
}

/// Start agents, so that ticks run them
///
/// Sends no message and runs no turn: the next tick decides what to do. Runs the hooks of the state
/// directory and of the agent that are told of a start. Inside a turn or task, only children of its
/// agent can be started.
#[derive(Debug, Args)]
pub struct Start {
    #[command(flatten)]
    pub agents: Agents,
}

/// Stop agents and end what they run
///
/// A stopped agent takes up no message. A running turn gets SIGTERM once no critical section
/// protects it, and SIGKILL when the grace is over. If it ends in time with exit status 0, it is
/// completed; otherwise its run is aborted. Queued messages, timers, waits and history are kept.
/// Stopping a stopped agent changes nothing.
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
    /// Put the message of a running turn back into the queue instead of aborting it; also a message
    /// that is put off or suspended
    #[arg(long)]
    pub requeue: bool,
    /// Why, for the ledger
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
}

/// Remove agents, each written to a file before
///
/// The stream of each agent is written to AGENT.tar, as export does it; import brings the agent
/// back. When the file is durable, the agent vanishes at once. A message that arrives meanwhile is
/// in the stream, or is refused. Other agents that are its children stay, and so do its turn script
/// and its workspace: they lie beside the state directory.
///
/// Refused while a turn or a task of it is open, or its parent waits for it: `stop` ends those.
/// Refused without --force while messages, work items, waits or timers are open, or something needs
/// attention. At a terminal it asks first. A removal that was cut off is marked in the agent, which
/// changes no more; the same command ends it.
#[derive(Debug, Args)]
pub struct Rm {
    /// Which agents
    #[arg(value_name = "AGENT", required = true)]
    pub agents: Vec<String>,
    /// Remove what is unfinished too, and don't ask
    #[arg(short, long)]
    pub force: bool,
    /// Write the streams of all these agents to this one new file [default: AGENT.tar, one for
    /// each]
    #[arg(short, long, value_name = "FILE", conflicts_with = "no_export")]
    pub output: Option<PathBuf>,
    /// Write nothing: what the agent was is gone
    #[arg(long)]
    pub no_export: bool,
    /// Say what would be removed or refused, and change nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// Let a failed agent go on at once, or retry a message that is put off
///
/// Ends the backoff, and settles a run whose tick is gone. Without this command, `tick` does the
/// same when the time has come. A message that waits for resources is tried by the next step, even
/// if it was put off until later, and so is a message that is held because it came to nothing too
/// often.
#[derive(Debug, Args)]
pub struct Recover {
    /// Which agent
    pub agent: String,
    /// Count a run as interrupted although it may go on elsewhere: on another host, or in the state
    /// directory of which this one is a copy. Tasks of that directory count as lost. No process is
    /// ended there
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
