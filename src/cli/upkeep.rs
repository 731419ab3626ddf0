//! `doctor`, `gc`, `export`, `import`, `sync`, `merge-driver`, `schema`, `check-outcome`,
//! `completions`, `man`, `service`.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum, ValueHint};

use crate::model::id::AgentName;
use crate::model::time::Span;

use super::groups::{AgentFlag, AgentsArg, SomeAgents};

/// Records and documents that have a published schema.
pub const SCHEMAS: &str = "agent brief context dedupe event identity message outcome run state \
    submission task timer trigger wait wake_hint work";

/// Check every record
///
/// Prints a line per finding, and exits with 6 if there is any. Changes nothing without --repair. A
/// repair moves unreadable records to `quarantine/`, and deletes nothing but incomplete files of
/// killed commands.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    #[command(flatten)]
    pub agents: SomeAgents,
    /// Repair what can be repaired in only one way
    #[arg(long)]
    pub repair: bool,
    /// Check only settings, policies, `state.json` and journals, which is quick
    #[arg(long, conflicts_with_all = ["agents", "repair", "merge_driver"])]
    pub quick: bool,
    /// Configure git, in this clone, to merge the files of this state directory by `merge-driver`
    #[arg(long)]
    pub merge_driver: bool,
}

/// Delete expired history
///
/// Deletes the directories of runs and tasks and the months of the archive and the ledger that are
/// past `[retention]`. Nothing that an open record names is deleted. Steps that come to rest do a
/// part of this automatically.
#[derive(Debug, Args)]
pub struct GcArgs {
    #[command(flatten)]
    pub agents: SomeAgents,
    /// Keep the directories of runs and tasks that ended less than this ago, despite `[retention]`
    #[arg(long, value_name = "DURATION")]
    pub keep: Option<Span>,
    /// Print what would be done, with sizes, and do nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// Write agents as a stream, to be imported elsewhere
///
/// The stream is a tar archive of everything that an agent has, except locks, journals and caches.
/// Each agent is one revision of its own, even if it changes meanwhile; equal records are always
/// equal bytes. With --move the agent is marked as moved, and every later change of it here is
/// refused, so that only one place steps it.
#[derive(Debug, Args)]
pub struct ExportArgs {
    #[command(flatten)]
    pub agents: AgentsArg,
    /// Mark the agents as moved to this place: a host, a URL, or another text for people
    #[arg(long = "move", value_name = "TO")]
    pub to: Option<String>,
    /// Write to this file instead of stdout; it appears when it is complete
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Read agents from a stream that export wrote
///
/// Each agent of the stream is checked as by doctor, and appears when it is complete. An agent that
/// exists already is refused, unless it was moved away from here. A stream contains agent.toml and
/// hooks, which a tick will run, so import only streams that you trust.
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// The file that export wrote; without FILE or with `-`, stdin
    pub file: Option<PathBuf>,
    /// A new name for the one agent of the stream
    #[arg(long = "as", value_name = "NAME")]
    pub name: Option<AgentName>,
}

/// Merge the changes of clones of this directory, through git
///
/// Commits the state directory, fetches the branch of the remote, merges, checks the new files,
/// pushes, and updates the records here. Messages, ledgers and archives of all clones merge. Of a
/// record that only one clone may write, the version with more progress is kept, and the other one
/// goes to `quarantine/`. Uncommitted changes elsewhere in the repository stay as they are. Nothing
/// changes if the check fails.
#[derive(Debug, Args)]
pub struct SyncArgs {
    /// Which remote [default: that of the branch, else origin, else the only one]
    pub remote: Option<String>,
}

/// Merge two versions of a file of the state directory, for git
///
/// git runs this command in a clone that `sync` or `doctor --merge-driver` has configured. Every
/// line of the ledger and the archive that either side has is kept once, in order. Of a record that
/// only one clone may write, the version with more progress is kept, and the other one goes to
/// `quarantine/`.
#[derive(Debug, Args)]
pub struct MergeDriverArgs {
    /// A file with the common ancestor (%O)
    pub base: PathBuf,
    /// A file with our version, which becomes the merged one (%A)
    pub ours: PathBuf,
    /// A file with their version (%B)
    pub theirs: PathBuf,
    /// The path of the merged file, from the top of the work tree (%P)
    pub path: PathBuf,
}

/// Print the JSON Schema of a record, a context or an outcome
///
/// `context` is the input of a turn on stdin and in DORMOUSE_CONTEXT, `outcome` the output that it
/// may write to DORMOUSE_OUTCOME, `agent` an agent.toml.
#[derive(Debug, Args)]
pub struct SchemaArgs {
    /// Which record or document; without it, the names of all are printed
    #[arg(value_parser = PossibleValuesParser::new(SCHEMAS.split(' ')))]
    pub kind: Option<String>,
}

/// Check the outcome of a turn before the turn ends
///
/// Reads the file as the settlement of the turn will read it. A mistake is shown with its line and
/// column, its field, and the values that the field may have. Only the settlement checks that an
/// action makes sense, for example its times and text, and that the records exist that it names.
#[derive(Debug, Args)]
pub struct CheckOutcomeArgs {
    /// The file; `-` for stdin
    #[arg(value_hint = ValueHint::FilePath)]
    pub file: String,
    #[command(flatten)]
    pub agent: AgentFlag,
}

/// Print the completions of a shell
///
/// They complete commands, flags, the agents of the state directory, and the ids of their records
/// with descriptions. For each completion the shell runs `dormouse`, which must be in PATH.
#[derive(Debug, Args)]
pub struct CompletionsArgs {
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
pub struct ManArgs {
    /// Command that the page describes [default: dormouse itself]
    #[arg(value_name = "COMMAND")]
    pub page: Option<String>,
}

/// Print the service or crontab lines that tick this directory
///
/// A unit for systemd, a crontab line, or a property list for launchd. It contains the paths of
/// this program and of this state directory, quoted for that format. Nothing is installed: each
/// text begins with the name of its file.
#[derive(Debug, Args)]
pub struct ServiceArgs {
    /// The service manager
    pub manager: ServiceManager,
    /// For the service manager of this user, the default for all users but root
    #[arg(long)]
    pub user: bool,
    /// For the service manager of the machine, which runs the program as the owner of the directory
    #[arg(long, conflicts_with = "user")]
    pub system: bool,
    /// With systemd: a service that keeps running (`tick --follow`) instead of a timer
    #[arg(long)]
    pub follow: bool,
    /// Number of agents that are ticked at once
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub jobs: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ServiceManager {
    /// Units for systemd
    Systemd,
    /// A crontab, of a user or for /etc/cron.d
    Cron,
    /// A property list for launchd
    Launchd,
}
