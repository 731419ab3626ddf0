//! A tick over many agents: in which order, and several at once.

use std::ffi::OsString;
use std::time::Instant;

use crate::cli;
use crate::error::{Result, Status};
use crate::model::agent::Status as AgentStatus;
use crate::model::id::AgentName;
use crate::model::policy::SchedulingPolicy;
use crate::model::time::Time;
use crate::process::jobs;
use crate::report::step;
use crate::rules::priority::{Rank, rank};
use crate::store::view::View;
use crate::store::{Store, inbox};

use super::session::Session;
use super::tick::{quiet_step, steps};

pub fn one_by_one(
    session: &mut Session,
    store: &Store,
    names: &[AgentName],
    args: &cli::Tick,
    moved: &mut bool,
) -> Status {
    session.each_agent(names, |session, name| {
        if session.cancelled_by.get().is_some() {
            return Ok(Status::Done);
        }
        let (status, did) = steps(session, store, name, args)?;
        *moved |= did;
        Ok(status)
    })
}

/// The agents that have something to do, the most urgent first, and then those that rest: what the
/// others have said to them is there by then.
pub fn in_line(
    session: &mut Session,
    store: &Store,
    names: Vec<AgentName>,
    args: &cli::Tick,
    moved: &mut bool,
) -> Status {
    let (mut busy, mut resting) = (Vec::new(), Vec::new());
    for name in names {
        match store.agent(&name).and_then(|agent| quiet_step(session, store, &agent, Instant::now())) {
            Ok(Some(report)) => resting.push((name, report)),
            Ok(None) | Err(_) => busy.push(name),
        }
    }
    if busy.is_empty() && !args.dry_run {
        // Nobody has done anything meanwhile: what was found still holds.
        for (_, report) in &resting {
            session.out.result(report, |out| step::text(report, out));
        }
        return Status::Done;
    }
    by_urgency(store, &mut busy, session.clock.now());
    busy.extend(resting.into_iter().map(|(name, _)| name));
    one_by_one(session, store, &busy, args, moved)
}

/// Each agent in a process of its own: a turn's stray processes are then never another turn's.
pub fn in_parallel(
    session: &mut Session,
    store: &Store,
    names: &[AgentName],
    args: &cli::Tick,
    moved: &mut bool,
) -> Result<Status> {
    let mut status = Status::Done;
    let mut busy: Vec<AgentName> = Vec::new();
    for name in names {
        // Agents with nothing to do need no process.
        match store.agent(name).and_then(|agent| quiet_step(session, store, &agent, Instant::now())) {
            Ok(Some(report)) => session.out.result(&report, |out| step::text(&report, out)),
            Ok(None) | Err(_) => busy.push(name.clone()),
        }
    }
    if args.all {
        by_urgency(store, &mut busy, session.clock.now());
    }
    session.out.flush();
    let commands = busy.iter().map(|name| own_command(session, store, name, args)).collect::<Vec<_>>();
    let out = &mut session.out;
    let cancelled_by = jobs::run(commands, args.jobs as usize, |lines, code| {
        out.raw(lines);
        out.flush();
        let reached = match code {
            Some(0) => Status::Done,
            Some(10) => return,
            Some(3) => Status::NotFound,
            Some(4) => Status::Refused,
            Some(5) => Status::Busy,
            Some(6) => Status::Damaged,
            Some(7) => Status::TurnFailed,
            Some(_) | None => Status::Failed,
        };
        *moved = true;
        status = status.graver(reached);
    })?;
    session.cancelled_by.set(cancelled_by);
    Ok(status)
}

/// The command line of one agent's own tick.
fn own_command(session: &Session, store: &Store, name: &AgentName, args: &cli::Tick) -> Vec<OsString> {
    let out = &session.out;
    let color = if out.is_colored() { "always" } else { "never" };
    let steps = args.max_steps.to_string();
    let mut command: Vec<OsString> = vec!["--dir".into(), store.root().into()];
    let mut say = |words: &[&str]| command.extend(words.iter().map(OsString::from));
    say(&["tick", name.as_str(), "--exit-code", "--color", color]);
    say(&["--lock-timeout", &session.patience().to_string()]);
    if args.until_idle {
        say(&["--until-idle", "--max-steps", &steps]);
    }
    let flags = [
        (args.commit, "--commit"),
        (out.is_json(), "--json"),
        (out.is_quiet(), "--quiet"),
        (out.is_verbose(), "--verbose"),
    ];
    flags.iter().filter(|(is_set, _)| *is_set).for_each(|(_, flag)| say(&[flag]));
    command
}

/// The most urgent first; agents that are equal in everything stay in the order of their names.
fn by_urgency(store: &Store, names: &mut [AgentName], now: Time) {
    // One that can't be read says so when it is its turn.
    names.sort_by_cached_key(|name| {
        urgency(store, name, now).unwrap_or_else(|_| rank(&SchedulingPolicy::default(), None, now))
    });
}

fn urgency(store: &Store, name: &AgentName, now: Time) -> Result<Rank> {
    let agent = store.agent(name)?;
    let state = agent.peek()?;
    if matches!(state.status, AgentStatus::Stopped | AgentStatus::Booting) {
        return Ok(rank(&SchedulingPolicy::LEAST, None, now));
    }
    let scan = inbox::scan(&View::settled(agent.dir()))?;
    // An id begins with the moment at which it was made.
    let arrived = scan.direct.iter().chain(&scan.segments).map(|key| key.id).chain(scan.hints);
    let due = state.next_due_at.filter(|due| *due <= now);
    let since = arrived.filter_map(|id| id.minted_at()).chain(due).min();
    Ok(rank(&agent.policy()?.scheduler, since, now))
}
