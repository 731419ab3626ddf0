//! `tick`.

use clap::{Args, value_parser};

use crate::model::id::AgentName;

/// Run one step of an agent
///
/// One step for each named agent: read its records, decide, commit the decision, carry it out, and
/// print the decision with its reason. The exit status is 0 also if there was nothing to do, and 7
/// if a turn ran and failed.
#[derive(Debug, Args)]
#[command(override_usage = "dormouse tick [OPTIONS] <AGENT>...\n       dormouse tick [OPTIONS] --all")]
pub struct TickArgs {
    /// Names of the agents
    #[arg(value_name = "AGENT", required_unless_present_any = ["all", "by_line"])]
    pub agents: Vec<AgentName>,
    /// Every agent
    #[arg(long, conflicts_with = "agents")]
    pub all: bool,
    /// Run steps until one finds nothing to do
    #[arg(long)]
    pub until_idle: bool,
    /// With --until-idle: at most this many steps per agent
    #[arg(long, value_name = "N", default_value_t = 1000, requires = "until_idle",
          value_parser = value_parser!(u32).range(1..))]
    pub max_steps: u32,
    /// Number of agents that are ticked at once
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u32).range(1..))]
    pub jobs: u32,
    /// Stay in the foreground, and run a step of an agent whenever it has something to do. SIGTERM
    /// and SIGINT let running turns end, and a second one ends them; SIGHUP reads the settings
    /// again
    #[arg(long, conflicts_with_all = ["until_idle", "dry_run", "exit_code"])]
    pub follow: bool,
    /// Print what a step would do, and change nothing
    #[arg(long, conflicts_with_all = ["until_idle", "commit"])]
    pub dry_run: bool,
    /// Exit with 10 if no step did anything
    #[arg(long)]
    pub exit_code: bool,
    /// Make a git commit of the state directory for each step that changed something
    #[arg(long)]
    pub commit: bool,
    /// Take each agent by a push to this remote, or the branch's own, and push its step's result
    #[arg(long, value_name = "REMOTE", num_args = 0..=1, default_missing_value = "",
          conflicts_with_all = ["commit", "dry_run", "follow"])]
    pub push: Option<String>,
    /// Ignore an agent that was moved away meanwhile; `tick --all` passes this to each tick
    #[arg(long, hide = true)]
    pub unless_moved: bool,
    /// Step each agent that a line of stdin names, when the line arrives. `tick --follow` and
    /// `--jobs` use this if a new process for each step is expensive
    #[arg(long, hide = true, conflicts_with_all = ["agents", "all", "follow", "dry_run", "commit", "push"])]
    pub by_line: bool,
}
