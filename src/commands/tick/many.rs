//! Order of the ticks of many agents, and parallel ticks.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use crate::cli;
use crate::engine::session::Session;
use crate::error::{Error, Result, Status};
use crate::model::agent::Status as AgentStatus;
use crate::model::id::AgentName;
use crate::model::policy::SchedulingPolicy;
use crate::model::time::Time;
use crate::process::jobs::Work;
use crate::report::output::Output;
use crate::rules::priority::{Rank, rank};
use crate::store::{DueAgents, Store, due_now};

/// Prints the output or the error of an agent's tick. Returns the exit status.
pub fn print_tick(out: &Output, name: &AgentName, lines: &[u8], end: ExitStatus) -> Status {
    let reached = match end.code() {
        Some(0) => Status::Done,
        Some(10) => Status::NothingDone,
        Some(3) => Status::NotFound,
        Some(4) => Status::Refused,
        Some(5) => Status::Busy,
        Some(6) => Status::Damaged,
        Some(7) => Status::TurnFailed,
        Some(_) | None => Status::Failed,
    };
    out.results(lines, reached);
    let without_result = match (end.code(), end.signal().unwrap_or_default()) {
        (Some(code), _) => lines.is_empty().then(|| format!("its tick ended with exit status {code}")),
        (None, signal) => Some(format!("its tick was ended by signal {signal}")),
    };
    if reached == Status::Failed
        && let Some(message) = without_result
    {
        let name = name.as_str();
        out.failure(&Error::failed(message), Some(name), Some(name));
    }
    out.flush();
    reached
}

/// Work item that ticks one agent: a new process, or a job for a worker that keeps its connection.
pub fn own_tick(session: &Session, store: &Store, name: &AgentName, args: &cli::TickArgs) -> Work {
    if store.properties().has_connection {
        let worker = command(session, store, "--by-line", args);
        return Work::Line { worker, line: name.to_string() };
    }
    Work::Process(command(session, store, name.as_str(), args))
}

/// Returns the command line of a tick. `of`: an agent's name, or the flag of a persistent worker.
fn command(session: &Session, store: &Store, of: &str, args: &cli::TickArgs) -> Vec<OsString> {
    let out = &session.out;
    let color = if out.is_colored() { "always" } else { "never" };
    let steps = args.max_steps.to_string();
    let mut command: Vec<OsString> = vec!["--dir".into(), store.anchor().path().into()];
    let mut say = |words: &[&str]| command.extend(words.iter().map(OsString::from));
    say(&["tick", of, "--exit-code", "--color", color]);
    say(&["--lock-timeout", &session.patience().to_string()]);
    if args.until_idle {
        say(&["--until-idle", "--max-steps", &steps]);
    }
    let flags = [
        (args.commit, "--commit"),
        (args.all, "--unless-moved"),
        (out.is_json(), "--json"),
        (out.is_quiet(), "--quiet"),
        (out.is_verbose(), "--verbose"),
    ];
    flags.iter().filter(|(is_set, _)| *is_set).for_each(|(_, flag)| say(&[flag]));
    command
}

/// Sorts agents by urgency. Agents of equal urgency keep their order by name.
pub fn by_urgency(store: &Store, names: &mut [AgentName], urgencies: &Urgencies, now: Time) {
    names.sort_by_cached_key(|name| match urgencies.get(name) {
        Some(urgency) => urgency.rank(now),
        None => Urgency::of(store, name).rank(now),
    });
}

/// Urgencies of the due agents by name, as the database reports them.
pub type Urgencies = BTreeMap<AgentName, Urgency>;

pub fn urgencies(store: &Store, due: DueAgents) -> Urgencies {
    let urgencies = due.agents.into_iter().map(|agent| {
        // Unreadable settings count as default settings here; the agent's tick reports the error.
        let policy =
            store.local().policy_from(agent.name.as_str(), &agent.policy).map(|policy| policy.scheduler);
        let policy = policy.unwrap_or_default();
        // The time `due_now()` only marks an immediate step; the waiting time is unknown.
        let due = agent.due.filter(|due| *due != due_now());
        (agent.name, Urgency { policy, since: agent.since, due })
    });
    urgencies.collect()
}

/// Input for the rank of an agent in the order of steps.
#[derive(Debug, Clone, Default)]
pub struct Urgency {
    policy: SchedulingPolicy,
    /// Creation time of the oldest message or hint in the inbox.
    since: Option<Time>,
    /// Due time of the agent's next step. The rank ignores this time while it is in the future.
    due: Option<Time>,
}

impl Urgency {
    /// Returns the urgency of an agent; for an unreadable agent that of default settings.
    pub fn of(store: &Store, name: &AgentName) -> Urgency {
        urgency(store, name).unwrap_or_default()
    }

    pub fn rank(&self, now: Time) -> Rank {
        let due = self.due.filter(|due| *due <= now);
        rank(&self.policy, self.since.into_iter().chain(due).min(), now)
    }
}

fn urgency(store: &Store, name: &AgentName) -> Result<Urgency> {
    let agent = store.agent(name)?;
    let state = agent.peek()?;
    if matches!(state.status, AgentStatus::Stopped | AgentStatus::Booting) {
        return Ok(Urgency { policy: SchedulingPolicy::LEAST, since: None, due: None });
    }
    let since = agent.unchecked_snapshot().oldest_arrival()?;
    Ok(Urgency { policy: agent.policy()?.scheduler, since, due: state.next_due_at })
}
