//! `doctor`, `gc`, `export`, `import`, `sync`, `merge-driver`, `schema`, `check-outcome`,
//! `completions`, `man`.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum, ValueHint};

use super::messages::PlaneAgent;

/// The records and documents that have a published schema.
pub const SCHEMAS: &[&str] = &[
    "agent",
    "brief",
    "context",
    "dedupe",
    "event",
    "identity",
    "message",
    "outcome",
    "run",
    "state",
    "submission",
    "task",
    "timer",
    "trigger",
    "wait",
    "wake_hint",
    "work",
];

/// Check every record
///
/// Prints what is wrong, a line per finding, and exits with 6 if there is anything. Changes nothing
/// unless told to repair. A repair moves unreadable records to `quarantine/`, and deletes nothing
/// but what killed commands have left half-made.
#[derive(Debug, Args)]
pub struct Doctor {
    /// Only these agents
    #[arg(value_name = "AGENT")]
    pub agents: Vec<String>,
    /// Repair what can be repaired in only one way
    #[arg(long)]
    pub repair: bool,
    /// Only what can be seen at a glance: settings, policies, `state.json`, journals
    #[arg(long, conflicts_with_all = ["agents", "repair", "merge_driver"])]
    pub quick: bool,
    /// Configure git, in this clone, to merge the files of this state directory by `merge-driver`
    #[arg(long)]
    pub merge_driver: bool,
}

/// Drop what is kept no longer, and pack old months
///
/// Removes the directories of runs and tasks that `[retention]` keeps no longer, drops months of
/// the archive and the ledger that it keeps no longer, and packs those that are over for at least a
/// month: every command reads them as before. What an open record names stays. Steps that come to
/// rest do a part of it by themselves.
#[derive(Debug, Args)]
pub struct Gc {
    /// Only these agents
    #[arg(value_name = "AGENT")]
    pub agents: Vec<String>,
    /// Keep the directories of runs and tasks that ended less than this ago, whatever `[retention]`
    /// says
    #[arg(long, value_name = "DURATION")]
    pub keep: Option<String>,
    /// Say what would be done, with sizes, and do nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// Write agents as a stream, to be imported elsewhere
///
/// The stream is a tar archive of everything that an agent has, but for locks, journals and caches.
/// Each agent is one revision of its own, whatever goes on meanwhile; the same records are always
/// the same bytes. With --move the agent is stepped in one place only: it is marked as moved, and
/// every later change of it here is refused.
#[derive(Debug, Args)]
pub struct Export {
    /// The agents to write
    #[arg(value_name = "AGENT", required_unless_present = "all")]
    pub agents: Vec<String>,
    /// All agents
    #[arg(long, conflicts_with = "agents")]
    pub all: bool,
    /// Mark them as moved to this place: a host, a URL, whatever tells people where they are now
    #[arg(long = "move", value_name = "TO")]
    pub to: Option<String>,
    /// Write to this file instead of stdout; it appears when it is whole
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Read agents from a stream that export wrote
///
/// Every agent of the stream is made whole, checked as doctor does it, and appears at once; one
/// that is there already is refused, unless it was moved away from here. A stream brings agent.toml
/// and hooks, which a tick will run: import what you would run.
#[derive(Debug, Args)]
pub struct Import {
    /// The file with the stream; `-`, or none: stdin
    pub file: Option<PathBuf>,
    /// The name that the one agent of the stream gets
    #[arg(long = "as", value_name = "NAME")]
    pub name: Option<String>,
}

/// Exchange what clones of this state directory have done, through git
///
/// Commits the state directory, fetches the branch of the remote, merges, checks what is new,
/// pushes, and brings it into the records here. Messages, ledgers and archives of all clones merge.
/// Of a record that only one clone may write, the version that is further on is kept, and the other
/// one goes to `quarantine/`. What is not committed elsewhere in the repository stays as it is.
/// Nothing changes where the check fails.
#[derive(Debug, Args)]
pub struct Sync {
    /// Which remote [default: that of the branch, else origin, else the only one]
    pub remote: Option<String>,
}

/// Merge two versions of a file of the state directory, for git
///
/// git runs this command in a clone that `sync` or `doctor --merge-driver` has configured. Every
/// line of the ledger and the archive that either side has is kept once, in order. Of a record that
/// only one clone may write, the version that is further on is kept, and the other one goes to
/// `quarantine/`.
#[derive(Debug, Args)]
pub struct MergeDriver {
    /// A file with the version that both began with (%O)
    pub base: PathBuf,
    /// A file with our version, which becomes the merged one (%A)
    pub ours: PathBuf,
    /// A file with their version (%B)
    pub theirs: PathBuf,
    /// The path of the merged file, from the top of the work tree (%P)
    pub path: PathBuf,
}

/// Print the JSON Schema of a record, or of what a turn gets and gives
///
/// `context` is what a turn gets on stdin and in DORMOUSE_CONTEXT, `outcome` what it may write to
/// DORMOUSE_OUTCOME, `agent` an agent.toml.
#[derive(Debug, Args)]
pub struct Schema {
    /// Which record or document; without it, the names of all are printed
    #[arg(value_parser = PossibleValuesParser::new(SCHEMAS))]
    pub kind: Option<String>,
}

/// Check the outcome of a turn before the turn ends
///
/// Reads the file as the settlement of the turn will read it. A mistake is shown with its line and
/// column, the field that it is in, and what that field may have. Whether the records exist that
/// the file names, only the settlement knows.
#[derive(Debug, Args)]
pub struct CheckOutcome {
    /// The file; `-` for stdin
    #[arg(value_hint = ValueHint::FilePath)]
    pub file: String,
    #[command(flatten)]
    pub agent: PlaneAgent,
}

/// Print the completions of a shell
///
/// They know commands, flags, the agents of the state directory, and the ids of their records with
/// what they stand for: at each key the shell asks `dormouse` itself, which therefore has to be in
/// PATH.
#[derive(Debug, Args)]
pub struct Completions {
    /// Which shell
    pub shell: Shell,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// Print a manual page
#[derive(Debug, Args)]
pub struct Man {
    /// The command that the page is about; without it, dormouse itself
    #[arg(value_name = "COMMAND")]
    pub page: Option<String>,
}
