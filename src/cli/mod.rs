//! The command line: clap declarations and nothing else. Their doc comments are the help text.

mod groups;
mod inspect;
mod lifecycle;
mod messages;
mod preemption;
mod step;
mod tasks;
mod triggers;
mod upkeep;
mod work;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::PossibleValue;
use clap::builder::styling::{AnsiColor, Styles};
use clap::{Args, FromArgMatches, Parser, Subcommand, ValueEnum};

use crate::model::time::Span;
use crate::model::{agent, event, message, posture, timer, trigger, wait};

pub use groups::*;
pub use inspect::*;
pub use lifecycle::*;
pub use messages::*;
pub use preemption::*;
pub use step::*;
pub use tasks::*;
pub use triggers::*;
pub use upkeep::*;
pub use work::*;

/// Environment variable that the completion functions of a shell set to its name. The words after
/// `--` are then the line to complete.
pub const COMPLETES: &str = "DORMOUSE_COMPLETE";

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

/// Long-lived agents that live in a directory: no daemon, one step per invocation
///
/// An agent is a directory of JSON records. `enqueue` writes a message into its inbox. `tick` reads
/// the records, decides what to do next, commits the decision, carries it out and ends. Between two
/// steps no daemon runs: the records are the whole state.
#[derive(Debug, Parser)]
#[command(name = "dormouse", version, styles = STYLES, max_term_width = 100)]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    /// Command; without a command, dormouse prints an overview.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// Global flags
#[derive(Debug, Args)]
#[command(next_help_heading = "Everywhere")]
pub struct Global {
    /// The state directory, or the directory that holds it [default: $DORMOUSE_DIR, else the
    /// nearest .dormouse upwards]
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
    /// Use of colour
    #[arg(long, value_name = "WHEN", default_value = "auto", global = true, hide_possible_values = false)]
    pub color: Color,
    /// Time to wait for a lock before failing with exit status 5
    #[arg(long, value_name = "DURATION", default_value = "10s", global = true)]
    pub lock_timeout: Span,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal, unless NO_COLOR is set
    Auto,
    Always,
    Never,
}

/// Passes the commands to a macro: variants, arguments, names, functions, by heading of `--help`.
macro_rules! command_table {
    ($with:ident) => {
        $with! {
            "Begin" {
                Init(InitArgs) = "init" => create::init,
                Create(CreateArgs) = "create" => on_store(create::create),
                Start(StartArgs) = "start" => on_store(lifecycle::start),
                Stop(StopArgs) = "stop" => on_store(lifecycle::stop),
                /// Deprecated: use stop
                #[command(hide = true)]
                Pause(StopArgs) = "pause" => on_store(lifecycle::pause),
                Edit(EditArgs) = "edit" => on_store(edit::edit),
                Clone(CloneArgs) = "clone" => on_store(create::clone),
                Service(ServiceArgs) = "service" => on_store(service::service),
                Completions(CompletionsArgs) = "completions" => pages::completions,
                Man(ManArgs) = "man" => pages::man,
            }
            "Every day" {
                Ask(AskArgs) = "ask" => on_store(messages::ask::ask),
                Enqueue(EnqueueArgs) = "enqueue" => on_store(messages::enqueue),
                Wake(WakeArgs) = "wake" => on_store(messages::wake),
                Tick(TickArgs) = "tick" => tick::tick,
                List(ListArgs) = "list" => on_store(inspect::list),
                Get(GetArgs) = "get" => on_store(inspect::get),
                Explain(ExplainArgs) = "explain" => on_store(inspect::explain),
                Logs(LogsArgs) = "logs" => on_store(history::logs),
                Watch(WatchArgs) = "watch" => watch::watch,
                Await(AwaitArgs) = "await" => on_store(messages::awaiting::wait_until),
                NextWake(NextWakeArgs) = "next-wake" => on_store(inspect::next_wake),
            }
            "When something fails" {
                Queue(CommandGroup<QueueCommand>) = "queue" => on_store(queue::queue),
                Recover(RecoverArgs) = "recover" => on_store(lifecycle::recover),
                Fail(FailArgs) = "fail" => on_store(lifecycle::fail),
                Preempt(PreemptArgs) = "preempt" => on_store(lifecycle::preempt),
                Resume(ResumeArgs) = "resume" => on_store(lifecycle::resume),
                Doctor(DoctorArgs) = "doctor" => on_store(upkeep::doctor),
            }
            "Inside a turn" {
                Work(CommandGroup<WorkCommand>) = "work" => on_store(work::work),
                Wait(WaitArgs) = "wait" => on_store(work::wait),
                Timer(CommandGroup<TimerCommand>) = "timer" => on_store(work::timer),
                Task(CommandGroup<TaskCommand>) = "task" => on_store(task::task),
                #[command(hide = true)]
                Supervise(SuperviseArgs) = "supervise" => task::supervise,
                SafePoint(SafePointArgs) = "safe-point" => on_store(inside::safe_point),
                Checkpoint(CheckpointArgs) = "checkpoint" => on_store(inside::checkpoint),
                Yield(YieldArgs) = "yield" => on_store(inside::yield_turn),
                NonPreemptible(NonPreemptibleArgs) = "non-preemptible" => on_store(inside::non_preemptible),
                Schema(SchemaArgs) = "schema" => pages::schema,
                CheckOutcome(CheckOutcomeArgs) = "check-outcome" => pages::check_outcome,
            }
            "Outside systems" {
                Trigger(CommandGroup<TriggerCommand>) = "trigger" => on_store(trigger::trigger),
                Ingress(IngressArgs) = "ingress" => ingress::ingress,
                Metrics(MetricsArgs) = "metrics" => on_store(monitor::metrics),
                Sync(SyncArgs) = "sync" => on_store(sync::sync),
                MergeDriver(MergeDriverArgs) = "merge-driver" => sync::merge_driver,
            }
            "History" {
                Run(CommandGroup<RunCommand>) = "run" => on_store(history::run),
                Briefs(BriefsArgs) = "briefs" => on_store(history::briefs),
                Events(EventsArgs) = "events" => on_store(history::events),
                State(StateArgs) = "state" => on_store(inspect::state),
                Usage(UsageArgs) = "usage" => on_store(monitor::usage),
                Report(ReportArgs) = "report" => on_store(monitor::report),
            }
            "Moving and removing" {
                Export(ExportArgs) = "export" => export::export,
                Import(ImportArgs) = "import" => export::import,
                Rename(RenameArgs) = "rename" => export::rename::rename,
                Rm(RmArgs) = "rm" => export::delete::rm,
                Gc(GcArgs) = "gc" => on_store(upkeep::gc),
            }
        }
    };
}
pub(crate) use command_table;

macro_rules! commands {
    ($($purpose:literal { $($(#[$meta:meta])* $variant:ident($args:ty) = $name:literal => $run:expr,)* })*) => {
        #[derive(Debug, Subcommand)]
        pub enum Command {
            $($($(#[$meta])* $variant($args),)*)*
        }

        /// Headings of `--help`, each with its commands.
        pub const PURPOSES: &[(&str, &[&str])] = &[$(($purpose, &[$($name),*]),)*];

        impl Command {
            pub const fn name(&self) -> &'static str {
                match self {
                    $($(Command::$variant(_) => $name,)*)*
                }
            }

            /// Parses the command line with the grammar of one command. Returns `None` on failure.
            fn alone(argv: &[OsString], name: &str) -> Option<Cli> {
                match name {
                    $($($name => alone(argv, $name, Command::$variant),)*)*
                    _ => None,
                }
            }
        }
    };
}
command_table!(commands);

/// Lets arguments take the names of an enum. Help texts show the enum's `words()`.
macro_rules! take_names {
    ($($type:ty),+ $(,)?) => {$(
        impl ValueEnum for $type {
            fn value_variants<'a>() -> &'a [Self] {
                Self::ALL
            }

            fn to_possible_value(&self) -> Option<PossibleValue> {
                Some(PossibleValue::new(self.words()).alias(self.name()))
            }
        }
    )+};
}

take_names! {
    agent::AgentKind, agent::Status, agent::Visibility, event::EventKind, message::Priority,
    posture::Posture, timer::CatchUp, trigger::DeliveryMode, trigger::VerifyKind, wait::WaitKind,
    crate::model::work::PlanStatus, crate::model::work::SchedulingState, crate::model::work::WorkState,
}

impl Cli {
    /// Parses the command line with the grammar of its command alone, because building the whole
    /// grammar takes longer than most commands. If that fails (because of a mistake, or because the
    /// user asks for help), parses the line again with the whole grammar.
    pub fn read(argv: &[OsString]) -> Result<Cli, clap::Error> {
        let alone = argv.iter().skip(1).find_map(|word| Command::alone(argv, word.to_str()?));
        alone.map_or_else(|| Cli::try_parse_from(argv), Ok)
    }
}

/// Parses the command line with the grammar of one command only. Returns `None` on failure.
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
    fn the_command_line_declarations_are_valid() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_parser_of_one_command_agrees_with_the_full_parser() {
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
            "state state --can running --history",
            "-C state state tick",
            "run show latest -a state --follow",
            "run",
            "events a --kind attention --since 2h --limit 3 --follow",
            "briefs one two --limit 4",
            "explain explain --json",
            "create a --shell true --visibility private",
            "create a -- state -C x --json",
            "create a --shell x -- y",
            "clone a b --secret-file edit",
            "rename a b",
            "edit",
            "rm a --force -o file",
            "stop",
            "pause a",
            "ask a init --timeout 3s",
            "await a --posture idle --status asleep",
            "preempt a --grace 1m",
            "non-preemptible --deadline 20s -- git push -C x",
            "non-preemptible begin",
            "trigger create -a a --mode wake_hint",
            "trigger",
            "doctor --repair a",
            "gc --keep 0s --dry-run",
            "export a b -o -",
            "import --as b file",
            "sync --help",
            "service systemd --follow",
            "schema message",
            "schema nonsense",
            "man queue list",
            "completions bash",
            "logs -f --all --since 2h",
            "report -o x --since 30d a b",
            "usage --by model",
            "metrics -o x",
            "watch a b",
            "no-such-command a",
            "-V",
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
