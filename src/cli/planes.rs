//! The planes of an agent's own work: `work`, `wait`, `timer`, and `next-wake`.

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand, ValueEnum};

use super::messages::PlaneAgent;

pub const PLAN_STATUSES: &[&str] = &["draft", "ready", "needs_input"];
pub const WORK_STATES: &[&str] = &["open", "completed"];
pub const SCHEDULING_STATES: &[&str] = &[
    "completed",
    "waiting_task",
    "waiting_operator",
    "waiting_timer",
    "waiting_external",
    "waiting_system",
    "blocked",
    "runnable",
];
pub const WAIT_KINDS: &[&str] = &["operator", "task", "external", "timer", "system"];
pub const CATCH_UPS: &[&str] = &["once", "all", "skip"];

/// What the agent means to get done
#[derive(Debug, Args)]
pub struct Work {
    #[command(subcommand)]
    pub command: WorkCommand,
}

#[derive(Debug, Subcommand)]
pub enum WorkCommand {
    /// Add a work item
    Add {
        /// What is to be done
        objective: String,
        #[command(flatten)]
        agent: PlaneAgent,
        /// How far its plan is [default: ready]
        #[arg(long, value_parser = PossibleValuesParser::new(PLAN_STATUSES))]
        plan_status: Option<String>,
        /// A step of it (may be repeated)
        #[arg(long, value_name = "TEXT")]
        todo: Vec<String>,
        /// Its plan in prose: itself, `@FILE`, or `-`
        #[arg(long, value_name = "TEXT")]
        plan: Option<String>,
        /// What blocks it from the start
        #[arg(long, value_name = "REASON")]
        blocked_by: Option<String>,
        /// When to be reminded of the blocker
        #[arg(long, value_name = "DURATION", requires = "blocked_by")]
        recheck: Option<String>,
        /// Make it the current one
        #[arg(long)]
        pick: bool,
    },
    /// List work items, oldest first
    List {
        #[command(flatten)]
        agent: PlaneAgent,
        /// Open or completed ones [default: open]
        #[arg(long, value_parser = PossibleValuesParser::new(WORK_STATES))]
        state: Option<String>,
        /// Only those that stand like this
        #[arg(long, value_parser = PossibleValuesParser::new(SCHEDULING_STATES))]
        scheduling_state: Option<String>,
    },
    /// Show one work item with its plan
    Show {
        id: String,
        #[command(flatten)]
        agent: PlaneAgent,
    },
    /// Change a work item; it becomes eligible for another tick
    Update {
        id: String,
        #[command(flatten)]
        agent: PlaneAgent,
        #[arg(long, value_name = "TEXT")]
        objective: Option<String>,
        #[arg(long, value_parser = PossibleValuesParser::new(PLAN_STATUSES))]
        plan_status: Option<String>,
        /// The steps, anew (may be repeated); `[x] TEXT` is done
        #[arg(long, value_name = "TEXT")]
        todo: Vec<String>,
        /// Its plan in prose: itself, `@FILE`, or `-`
        #[arg(long, value_name = "TEXT")]
        plan: Option<String>,
    },
    /// Make an item the current one
    Pick {
        id: String,
        #[command(flatten)]
        agent: PlaneAgent,
        /// Clear its blocker, its recheck and its waits too
        #[arg(long, requires = "reason")]
        clear_blocker: bool,
        /// Why they can be cleared
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// Say what blocks an item
    Block {
        id: String,
        #[command(flatten)]
        agent: PlaneAgent,
        #[arg(long, value_name = "TEXT")]
        reason: String,
        /// When to be reminded of it
        #[arg(long, value_name = "DURATION")]
        recheck: Option<String>,
    },
    /// Say that nothing blocks it any more
    Unblock {
        id: String,
        #[command(flatten)]
        agent: PlaneAgent,
        #[arg(long, value_name = "TEXT")]
        reason: String,
    },
    /// Complete an item: its waits are cancelled, its blocker cleared, the focus taken from it
    Complete {
        id: String,
        #[command(flatten)]
        agent: PlaneAgent,
        /// What came of it
        #[arg(long, value_name = "TEXT")]
        result: Option<String>,
    },
    /// Print the plan of an item, or write it anew
    Plan {
        id: String,
        #[command(flatten)]
        agent: PlaneAgent,
        /// The new plan: itself, `@FILE`, or `-`
        text: Option<String>,
    },
}

/// Say why progress stops, and what would end that
///
/// The wait is the work item's that is named; else that of the turn, else the current one, else the agent's own.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Wait {
    #[command(subcommand)]
    pub command: Option<WaitCommand>,
    #[command(flatten)]
    pub agent: PlaneAgent,
    /// What it waits for
    #[arg(long, value_name = "KIND", required = true, value_parser = PossibleValuesParser::new(WAIT_KINDS))]
    pub on: Option<String>,
    /// Why, for people
    #[arg(long, value_name = "TEXT", required = true)]
    pub reason: Option<String>,
    /// What exactly: a task's id, or a reference such as `github:org/repo#12`
    #[arg(long, value_name = "REF")]
    pub resource: Option<String>,
    /// Whose wait it is
    #[arg(long, value_name = "ID", conflicts_with = "whole_agent")]
    pub work_item: Option<String>,
    /// The agent's own wait, whatever it works on
    #[arg(long)]
    pub whole_agent: bool,
    /// A timer wait: how long
    #[arg(long = "in", value_name = "DURATION", conflicts_with = "at")]
    pub within: Option<String>,
    /// A timer wait: until when
    #[arg(long, value_name = "TIME")]
    pub at: Option<String>,
    /// Take a moment for --at that is past: the wait is over with the next step
    #[arg(long, requires = "at")]
    pub past_ok: bool,
    /// When to go and look; a system wait needs this or --expires
    #[arg(long, value_name = "DURATION")]
    pub recheck: Option<String>,
    /// When to give up
    #[arg(long, value_name = "DURATION")]
    pub expires: Option<String>,
    /// That nothing else will bring the agent back, and why that is right
    #[arg(long, value_name = "WHY")]
    pub no_fallback: Option<String>,
    /// Who is expected to say it, as in an origin: `webhook:github`, or `webhook` for any
    #[arg(long, value_name = "NAME")]
    pub source: Option<String>,
}

#[derive(Debug, Subcommand)]
pub enum WaitCommand {
    /// List active waits
    List {
        #[command(flatten)]
        agent: PlaneAgent,
    },
    /// Cancel a wait
    Cancel {
        id: String,
        #[command(flatten)]
        agent: PlaneAgent,
    },
}

/// Messages that come by themselves
#[derive(Debug, Args)]
pub struct Timer {
    #[command(subcommand)]
    pub command: TimerCommand,
}

#[derive(Debug, Subcommand)]
pub enum TimerCommand {
    /// Add a timer
    Add {
        #[command(flatten)]
        agent: PlaneAgent,
        #[command(flatten)]
        schedule: Schedule,
        /// The time zone of --cron, like Europe/Berlin [default: the machine's]
        #[arg(long, value_name = "ZONE", requires = "cron", conflicts_with_all = ["within", "at", "every"])]
        tz: Option<String>,
        /// An expression of six fields for --cron, the first of them seconds
        #[arg(long, requires = "cron", conflicts_with_all = ["within", "at", "every"])]
        seconds: bool,
        /// Take a moment for --at that is past: the timer fires with the next step
        #[arg(long, requires = "at", conflicts_with_all = ["within", "every", "cron"])]
        past_ok: bool,
        /// What the agent is told when it fires
        text: Option<String>,
        /// What becomes of fires that nobody was there for [default: once]
        #[arg(long, value_parser = PossibleValuesParser::new(CATCH_UPS))]
        catch_up: Option<String>,
    },
    /// List active timers
    List {
        #[command(flatten)]
        agent: PlaneAgent,
    },
    /// Cancel a timer
    Cancel {
        id: String,
        #[command(flatten)]
        agent: PlaneAgent,
    },
}

/// When
#[derive(Debug, Args)]
#[group(required = true, multiple = false, id = "schedule", args = ["within", "at", "every", "cron"])]
pub struct Schedule {
    /// Once, so long from now
    #[arg(long = "in", value_name = "DURATION")]
    pub within: Option<String>,
    /// Once, then
    #[arg(long, value_name = "TIME")]
    pub at: Option<String>,
    /// Again and again, counted from now
    #[arg(long, value_name = "DURATION")]
    pub every: Option<String>,
    /// By the calendar: minute hour day month weekday
    #[arg(long, value_name = "EXPR")]
    pub cron: Option<String>,
}

/// Say when the next step is due
///
/// The earliest of the agents named; nothing if none has anything due. Arrivals are due at once.
#[derive(Debug, Args)]
pub struct NextWake {
    #[arg(value_name = "AGENT", required_unless_present = "all")]
    pub agents: Vec<String>,
    /// Every agent
    #[arg(long, conflicts_with = "agents")]
    pub all: bool,
    /// How to write it
    #[arg(long, value_enum, default_value_t = WakeFormat::Rfc3339)]
    pub format: WakeFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum WakeFormat {
    Rfc3339,
    Epoch,
    /// For OnCalendar= of a systemd timer
    Systemd,
}
