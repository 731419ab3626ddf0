//! The command line: clap declarations and nothing else. Their doc comments are the help text.

mod inspect;
mod lifecycle;
mod messages;
mod monitor;
mod pictures;
mod planes;
mod preemption;
mod service;
mod step;
mod tasks;
mod triggers;
mod upkeep;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::styling::{AnsiColor, Styles};
use clap::{Args, FromArgMatches, Parser, Subcommand, ValueEnum};

pub use inspect::*;
pub use lifecycle::*;
pub use messages::*;
pub use monitor::*;
pub use pictures::*;
pub use planes::*;
pub use preemption::*;
pub use service::*;
pub use step::*;
pub use tasks::*;
pub use triggers::*;
pub use upkeep::*;

/// Set by the completion functions of a shell to its name: then the words after `--` are a line to be completed.
pub const COMPLETES: &str = "DORMOUSE_COMPLETE";

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

/// Long-lived agents that live in a directory: no daemon, one step per invocation
///
/// An agent is a directory of JSON records. `enqueue` puts a message into its inbox. `tick` reads the
/// records, decides what to do next, commits the decision, carries it out and ends. Between two steps no
/// daemon runs: everything that matters is in the records.
#[derive(Debug, Parser)]
#[command(name = "dormouse", version, styles = STYLES, max_term_width = 100, propagate_version = false)]
#[command(disable_help_subcommand = false)]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    /// Absent: how things stand.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// Flags that every command takes
#[derive(Debug, Args)]
#[command(next_help_heading = "Everywhere")]
pub struct Global {
    /// The state directory, or the directory that holds it [default: $DORMOUSE_DIR, else the nearest .dormouse upwards]
    #[arg(short = 'C', long, value_name = "DIR", global = true)]
    pub dir: Option<PathBuf>,
    /// Print results and errors as JSON Lines on stdout
    #[arg(long, global = true)]
    pub json: bool,
    /// Print nothing but results
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Print more messages on stderr
    #[arg(short, long, global = true)]
    pub verbose: bool,
    /// When to use colour
    #[arg(long, value_name = "WHEN", default_value = "auto", global = true, hide_possible_values = false)]
    pub color: Color,
    /// How long to wait for a lock before giving up with exit status 5
    #[arg(long, value_name = "DURATION", default_value = "10s", global = true)]
    pub lock_timeout: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal, unless NO_COLOR is set
    Auto,
    Always,
    Never,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Init(Init),
    Create(Create),
    Start(Start),
    Stop(Stop),
    /// Deprecated: use stop
    #[command(hide = true)]
    Pause(Stop),
    Enqueue(Enqueue),
    Ask(Ask),
    Wake(Wake),
    Tick(Tick),
    Get(Get),
    List(List),
    Explain(Explain),
    State(State),
    Await(Await),
    NextWake(NextWake),
    Queue(Queue),
    Work(Work),
    Wait(Wait),
    Timer(Timer),
    Task(Task),
    Trigger(Trigger),
    Ingress(Ingress),
    #[command(hide = true)]
    Supervise(Supervise),
    Run(Run),
    Briefs(Briefs),
    Events(Events),
    Logs(Logs),
    Usage(Usage),
    Metrics(Metrics),
    Report(Report),
    Recover(Recover),
    Fail(Fail),
    Preempt(Preempt),
    Resume(Resume),
    SafePoint(SafePoint),
    Checkpoint(Checkpoint),
    Yield(Yield),
    NonPreemptible(NonPreemptible),
    Doctor(Doctor),
    Gc(Gc),
    Export(Export),
    Import(Import),
    Sync(Sync),
    MergeDriver(MergeDriver),
    Service(Service),
    Schema(Schema),
    CheckOutcome(CheckOutcome),
    Completions(Completions),
    Man(Man),
}

impl Cli {
    /// Reads the command line.
    ///
    /// Building the whole grammar takes longer than all the rest of most commands, so a few common commands
    /// are first parsed with a grammar of their own. If that fails, because of a mistake or a request for
    /// help, the line is parsed again with the whole grammar.
    pub fn read(argv: &[OsString]) -> Result<Cli, clap::Error> {
        let common = argv.iter().skip(1).find_map(|word| match word.to_str()? {
            "checkpoint" => alone(argv, "checkpoint", Command::Checkpoint),
            "enqueue" => alone(argv, "enqueue", Command::Enqueue),
            "get" => alone(argv, "get", Command::Get),
            "list" => alone(argv, "list", Command::List),
            "next-wake" => alone(argv, "next-wake", Command::NextWake),
            "queue" => alone(argv, "queue", Command::Queue),
            "safe-point" => alone(argv, "safe-point", Command::SafePoint),
            "task" => alone(argv, "task", Command::Task),
            "tick" => alone(argv, "tick", Command::Tick),
            "timer" => alone(argv, "timer", Command::Timer),
            "wait" => alone(argv, "wait", Command::Wait),
            "wake" => alone(argv, "wake", Command::Wake),
            "work" => alone(argv, "work", Command::Work),
            _ => None,
        });
        common.map_or_else(|| Cli::try_parse_from(argv), Ok)
    }
}

/// Parses the command line as this command alone; `None` if that fails.
fn alone<A: Args>(argv: &[OsString], name: &'static str, wrap: fn(A) -> Command) -> Option<Cli> {
    let mut grammar = Global::augment_args(clap::Command::new("dormouse"))
        .subcommand(A::augment_args(clap::Command::new(name)));
    let matches = grammar.try_get_matches_from_mut(argv).ok();
    // Freeing the grammar takes time, and the process ends soon anyway.
    std::mem::forget(grammar);
    let matches = matches?;
    let (_, words) = matches.subcommand()?;
    let command = wrap(A::from_arg_matches(words).ok()?);
    Some(Cli { global: Global::from_arg_matches(&matches).ok()?, command: Some(command) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_declarations_hold_together() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_command_by_itself_is_read_as_among_all() {
        for line in [
            "tick a b --dry-run --jobs 2",
            "--json tick --all --exit-code -C here",
            "-C tick tick a",
            "-C tick enqueue tick list",
            "-q enqueue a --origin webhook:ci --ttl 5m -- --text",
            "enqueue a -",
            "enqueue a --body-json {} text",
            "get a queue.pending --color never",
            "list --posture idle --posture blocked --status nonsense",
            "list --posture idle --kind child",
            "wake a --resource get",
            "stop get list",
            "queue list --agent tick",
            "queue list -a tick extra",
            "queue list one -a tick two --all",
            "queue list --all --json",
            "queue dead one two --ack x",
            "work add wait -a tick --todo one --todo two --recheck 1h",
            "work add tick wait",
            "work add tick wait more",
            "work add wait --blocked-by tick --recheck 1h --json",
            "work list -a a --state open --scheduling-state none",
            "work",
            "work help add",
            "wait --on task --resource x --reason y",
            "wait --on task",
            "wait list -a a",
            "wait --on task list",
            "wait cancel work",
            "timer add -a a --in 1h --every 2h",
            "timer add -a a --cron x --tz UTC text",
            "task start -q -- work -q list",
            "task output x -f --bytes 3 -C there",
            "task start -a a",
            "next-wake --all --format epoch",
            "next-wake",
            "tick",
            "tick --help",
            "help tick",
            "get a -q -v",
            "enqueue",
            "run list -a tick --limit x",
            "safe-point",
            "safe-point -a tick --json",
            "safe-point more",
            "safe-point --wait 1m --peek",
            "safe-point --grace 3s --signal INT -- curl -q --json x",
            "safe-point --grace 3s",
            "checkpoint -",
            "checkpoint",
            "",
        ] {
            let argv: Vec<OsString> =
                std::iter::once("dormouse").chain(line.split_whitespace()).map(OsString::from).collect();
            let text = |read: Result<Cli, clap::Error>| match read {
                Ok(cli) => format!("{cli:?}"),
                Err(error) => error.to_string(),
            };
            assert_eq!(text(Cli::read(&argv)), text(Cli::try_parse_from(&argv)), "{line}");
        }
    }
}
