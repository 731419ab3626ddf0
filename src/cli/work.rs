//! Records of an agent's work: `work`, `wait`, `timer`, and `next-wake`.

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand, ValueEnum};

use crate::model::time::Span;
use crate::model::timer::CatchUp;
use crate::model::wait::WaitKind;
use crate::model::work::{PlanStatus, SchedulingState, WorkState};

use super::groups::{AgentAndText, AgentFlag, AgentFlags, AgentsArg, RecordArg};

pub const WAIT_STATES: &[&str] = &["active", "resolved", "cancelled", "expired", "ended", "all"];

/// Work items: goals of an agent
#[derive(Debug, Subcommand)]
pub enum WorkCommand {
    /// Add a work item
    Add {
        #[command(flatten)]
        objective: AgentAndText,
        /// State of the item's plan [default: ready]
        #[arg(long)]
        plan_status: Option<PlanStatus>,
        /// A step of the item (may be repeated)
        #[arg(long, value_name = "TEXT")]
        todo: Vec<String>,
        /// Plan of the item in prose: the text itself, `@FILE`, or `-` for stdin
        #[arg(long, value_name = "TEXT")]
        plan: Option<String>,
        /// Blocker of the item from the start
        #[arg(long, value_name = "REASON")]
        blocked_by: Option<String>,
        /// Remind the agent of the blocker after this long
        #[arg(long, value_name = "DURATION", requires = "blocked_by")]
        recheck: Option<Span>,
        /// Make the new item the current item
        #[arg(long)]
        pick: bool,
    },
    /// List work items, oldest first
    List {
        #[command(flatten)]
        agents: AgentFlags,
        /// Open or completed items [default: open]
        #[arg(long)]
        state: Option<WorkState>,
        /// Only items in this scheduling state
        #[arg(long)]
        scheduling_state: Option<SchedulingState>,
    },
    /// Show one work item with its plan
    Show(RecordArg),
    /// Change a work item; it becomes eligible for another tick
    Update {
        #[command(flatten)]
        item: RecordArg,
        #[arg(long, value_name = "TEXT")]
        objective: Option<String>,
        #[arg(long)]
        plan_status: Option<PlanStatus>,
        /// The new list of steps (may be repeated); `[x] TEXT` is done
        #[arg(long, value_name = "TEXT")]
        todo: Vec<String>,
        /// Plan of the item in prose: the text itself, `@FILE`, or `-` for stdin
        #[arg(long, value_name = "TEXT")]
        plan: Option<String>,
    },
    /// Make an item the current item
    Pick {
        #[command(flatten)]
        item: RecordArg,
        /// Clear the item's blocker, recheck and waits, too
        #[arg(long, requires = "reason")]
        clear_blocker: bool,
        /// The reason for clearing the blocker
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// Record a blocker of an item
    Block {
        #[command(flatten)]
        item: RecordArg,
        #[arg(long, value_name = "TEXT")]
        reason: String,
        /// Remind the agent of the blocker after this long
        #[arg(long, value_name = "DURATION")]
        recheck: Option<Span>,
    },
    /// Remove the blocker of an item
    Unblock {
        #[command(flatten)]
        item: RecordArg,
        #[arg(long, value_name = "TEXT")]
        reason: String,
    },
    /// Complete an item: its waits are cancelled, its blocker cleared, the focus taken from it
    Complete {
        #[command(flatten)]
        item: RecordArg,
        /// The result of the item
        #[arg(long, value_name = "TEXT")]
        result: Option<String>,
    },
    /// Print the plan of an item, or replace it
    Plan {
        /// Id of the item, at least four digits of it, or `latest`
        id: String,
        /// The new plan: the text itself, `@FILE`, or `-` for stdin
        text: Option<String>,
        #[command(flatten)]
        agent: AgentFlag,
    },
}

/// Record why work is blocked, and what would end that
///
/// The wait belongs to the named work item; else to that of the turn, else to the current one, else
/// to the agent itself.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct WaitArgs {
    #[command(subcommand)]
    pub command: Option<WaitCommand>,
    #[command(flatten)]
    pub agent: AgentFlag,
    /// Kind of the wait
    #[arg(long, value_name = "KIND", required = true)]
    pub on: Option<WaitKind>,
    /// The reason of the wait, for people
    #[arg(long, value_name = "TEXT", required = true)]
    pub reason: Option<String>,
    /// An operator wait: a suggested answer (may be repeated)
    #[arg(long = "option", value_name = "ANSWER")]
    pub options: Vec<String>,
    /// The exact subject of the wait: a task's id, or a reference such as `github:org/repo#12`
    #[arg(long, value_name = "REF")]
    pub resource: Option<String>,
    /// The work item that waits
    #[arg(long, value_name = "ID", conflicts_with = "whole_agent")]
    pub work_item: Option<String>,
    /// Let the agent itself wait, whatever it works on
    #[arg(long)]
    pub whole_agent: bool,
    /// A timer wait: its duration
    #[arg(long = "in", value_name = "DURATION", conflicts_with = "at")]
    pub within: Option<Span>,
    /// A timer wait: its end (`tomorrow 9:00`, `friday 17:30`, RFC 3339)
    #[arg(long, value_name = "TIME")]
    pub at: Option<String>,
    /// Accept a past time for --at: the next step then ends the wait
    #[arg(long, requires = "at")]
    pub past_ok: bool,
    /// Tell the agent to check each time this long has passed, until the wait ends; a system wait
    /// needs this, --recheck-at or --expires
    #[arg(long, value_name = "DURATION", conflicts_with = "recheck_at")]
    pub recheck: Option<Span>,
    /// Tell the agent to check at this time, once (`tomorrow 9:00`, `friday 17:30`, RFC 3339)
    #[arg(long, value_name = "TIME")]
    pub recheck_at: Option<String>,
    /// Let the wait expire after this long
    #[arg(long, value_name = "DURATION")]
    pub expires: Option<Span>,
    /// Confirm, with a reason, that this wait has no timeout
    #[arg(long, value_name = "WHY")]
    pub no_fallback: Option<String>,
    /// The expected sender, as in an origin: `webhook:github`, or `webhook` for any
    #[arg(long, value_name = "NAME")]
    pub source: Option<String>,
    /// The trigger of the agent whose deliveries end an external or system wait
    #[arg(long, value_name = "ID")]
    pub trigger: Option<String>,
}

#[derive(Debug, Subcommand)]
pub enum WaitCommand {
    /// List waits
    List {
        #[command(flatten)]
        agents: AgentFlags,
        /// Only waits in these states, separated by commas: active, resolved, cancelled, expired;
        /// `ended` for the last three, `all` for every one
        #[arg(long, value_name = "STATE", value_delimiter = ',', default_value = "active", value_parser = PossibleValuesParser::new(WAIT_STATES))]
        state: Vec<String>,
    },
    /// Show a wait, active or ended
    Show(RecordArg),
    /// Cancel a wait
    Cancel(RecordArg),
}

/// Timers: messages that are sent at a set time
#[derive(Debug, Subcommand)]
pub enum TimerCommand {
    /// Add a timer
    Add {
        #[command(flatten)]
        said: AgentAndText,
        #[command(flatten)]
        schedule: ScheduleArgs,
        /// The time zone of --cron, like Europe/Berlin [default: the local one]
        #[arg(long, value_name = "ZONE", requires = "cron", conflicts_with_all = ["within", "at", "every"])]
        tz: Option<String>,
        /// An expression of six fields for --cron, the first of them seconds
        #[arg(long, requires = "cron", conflicts_with_all = ["within", "at", "every"])]
        seconds: bool,
        /// Accept a past time for --at: the timer then fires with the next step
        #[arg(long, requires = "at", conflicts_with_all = ["within", "every", "cron"])]
        past_ok: bool,
        /// Handling of fires that were due while no tick ran [default: once]
        #[arg(long)]
        catch_up: Option<CatchUp>,
        /// With --catch-up skip: send a fire that is at most this late [default: until the next]
        #[arg(long, value_name = "DURATION", requires = "catch_up")]
        grace: Option<Span>,
        /// A name that only one active timer of the agent can have. The same command again changes
        /// nothing, and a command with another setting replaces the timer
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
    },
    /// List active timers in the order in which they fire next
    List(AgentFlags),
    /// Cancel a timer
    Cancel(RecordArg),
}

/// Schedule of a timer
#[derive(Debug, Args)]
#[group(required = true, multiple = false, id = "schedule", args = ["within", "at", "every", "cron"])]
pub struct ScheduleArgs {
    /// Fire once, after this long
    #[arg(long = "in", value_name = "DURATION")]
    pub within: Option<Span>,
    /// Fire once, at this time: `tomorrow 9:00`, `friday 17:30`, RFC 3339
    #[arg(long, value_name = "TIME")]
    pub at: Option<String>,
    /// Fire repeatedly at this interval, counted from now
    #[arg(long, value_name = "DURATION")]
    pub every: Option<Span>,
    /// Fire by the calendar: minute hour day month weekday, as in crontab(5), or a name like @daily
    #[arg(long, value_name = "EXPR")]
    pub cron: Option<String>,
}

/// Print the time at which the next step is due
///
/// Prints the earliest time of the named agents; an empty line if nothing is due. A message that
/// has arrived is due at once.
#[derive(Debug, Args)]
pub struct NextWakeArgs {
    #[command(flatten)]
    pub agents: AgentsArg,
    /// Format of the printed time
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
