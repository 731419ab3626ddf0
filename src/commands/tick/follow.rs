//! Option `tick --follow`: runs in the foreground, and starts a step of an agent when the agent has
//! something to do.
//!
//! Each step runs in another process, with the command that cron would use. This process holds no
//! lock and writes no file, so its death leaves nothing to repair.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsFd;

use crate::cli;
use crate::commands::args::{POLL_INTERVAL, cannot_watch, poll_interval};
use crate::engine::authority;
use crate::engine::context::Context;
use crate::engine::session::{Session, agents};
use crate::engine::step::forecast;
use crate::error::{Error, Result, Status};
use crate::local::anchor::Anchor;
use crate::model::id::AgentName;
use crate::model::time::{Span, Time};
use crate::process::Signal;
use crate::process::alarm::{Alarm, AlarmStage};
use crate::process::jobs::{FinishedJob, Jobs};
use crate::process::notify::Manager;
use crate::process::signals::Signals;
use crate::rules::priority::next_of;
use crate::store::{News, Store, Told};

use super::many::{self, Urgency, own_tick, print_tick};

/// Interval of queries to a database for agents with a due step. One query covers all agents.
const QUERY_INTERVAL: Span = Span::from_secs(2);
/// Delay of the next query after another machine has run an agent's step first.
const REQUERY_DELAY: Span = Span::from_millis(100);

/// Time for a producer to finish a file in the inbox, if no event reports the end of writing.
const SETTLE_DELAY: Span = Span::from_secs(1);

/// First pause of an agent after an idle step, which found nothing to do. Each further idle step
/// doubles the pause, up to `LONGEST`, the interval of cron.
const IDLE_PAUSE: Span = Span::from_millis(20);
/// Number of consecutive idle steps after which a database's report of a due step is not trusted.
const IDLE_STEPS: u8 = 2;
const FAILED: Span = Span::from_secs(1);
const LONGEST: Span = Span::from_secs(60);

pub fn follow(session: &Session, store: Store, args: &cli::TickArgs) -> Result<Status> {
    if authority::inside(session, &store)?.is_some() {
        return Err(Error::refused("own_turn", "a turn or task can't follow agents: it would never end")
            .with_hint("use `tick --until-idle`"));
    }
    if session.clock.is_pinned() {
        return Err(Error::usage("--follow needs the real time, but DORMOUSE_NOW is set: unset it"));
    }
    session.out.report_errors_at_once();
    let signals = Signals::catch()?;
    signals.watch_children()?;
    // A misspelled agent name must be an error now, because a missing agent is no error later.
    for name in agents(&store, &args.agents, false)? {
        store.agent(&name)?;
    }
    let mut follower = TickFollower {
        args,
        news: store.news(),
        anchor: store.anchor().clone(),
        store,
        followed: BTreeMap::new(),
        to_check: BTreeSet::new(),
        machines: 1,
        list_at: None,
        unwatched: 0,
        is_ending: false,
        is_gone: false,
        exit_status: Status::Done,
        jobs: Jobs::new()?,
        manager: Manager::from_env(),
        alarm: Alarm::new()?,
    };
    follower.list(session)?;
    follower.check_agents(session);
    follower.manager.notify_ready();
    follower.run(session, &signals)
}

/// Scheduling state of one agent.
#[derive(Default)]
struct FollowedAgent {
    /// Time of the next check for a due step, if no change of the agent is reported before.
    next_check: Option<Time>,
    /// Urgency of the agent's next step; `None` if no step is due.
    ready: Option<Urgency>,
    /// Urgency from the last query, if the store is a database.
    urgency: Option<Urgency>,
    /// True while a process runs a step of the agent.
    runs: bool,
    /// Number of consecutive steps that found nothing to do. After one, another process may have
    /// just run the step; after two, the agent has nothing to do.
    idle_steps: u8,
    /// Length of the pause after a step that failed or found nothing to do; ends at `until`.
    pause: Span,
    until: Option<Time>,
    is_unwatched: bool,
}

struct TickFollower<'a> {
    args: &'a cli::TickArgs,
    anchor: Anchor,
    store: Store,
    news: News,
    followed: BTreeMap<AgentName, FollowedAgent>,
    /// Agents whose records may have changed.
    to_check: BTreeSet<AgentName>,
    /// Number of machines that follow the same agents, including this one.
    machines: usize,
    /// Time of the next read of the list of agents; `None` if file events report its changes.
    list_at: Option<Time>,
    unwatched: usize,
    is_ending: bool,
    /// True if the state directory was missing at the last check. A backup may restore it.
    is_gone: bool,
    exit_status: Status,
    jobs: Jobs<AgentName>,
    manager: Manager,
    alarm: Alarm,
}

impl TickFollower<'_> {
    fn run(&mut self, session: &Session, signals: &Signals) -> Result<Status> {
        loop {
            self.check_agents(session);
            self.start(session);
            if self.is_ending && self.jobs.count() == 0 {
                return Ok(self.exit_status);
            }
            let until = self.manager.ping();
            self.alarm.set(self.next())?;
            let mut wakes = vec![signals.as_fd(), self.alarm.as_fd()];
            wakes.extend(self.news.readable());
            let ended = self.jobs.wait(&wakes, until)?;
            drop(wakes);
            ended.into_iter().for_each(|ended| self.finish_step(session, ended));
            match self.alarm.has_rung() {
                AlarmStage::No | AlarmStage::Due => {}
                AlarmStage::ClockSet => self.check_all(),
            }
            match signals.caught() {
                Some(signal) if signal != Signal::HUP.as_raw() => self.end(session, signal),
                Some(_) if !self.is_ending => {
                    if let Err(error) = self.reopen(session) {
                        session.fail(error);
                    }
                }
                Some(_) | None => {}
            }
            if session.out.is_closed() {
                self.is_ending = true;
            }
            self.take_changes(session)?;
        }
    }

    /// Handles changes of agents and of the state directory that `news` has reported.
    fn take_changes(&mut self, session: &Session) -> Result<()> {
        let mut list = self.list_at.is_some_and(|at| at <= session.clock.now());
        if list && self.is_gone {
            return self.reopen(session);
        }
        // The list may be polled, and then no event reports that the state directory was removed.
        if list && let Err(Error::NotAStore { .. }) = session.store_at(self.anchor.clone()) {
            self.mark_missing(session);
            return Ok(());
        }
        for change in self.news.take() {
            match change {
                Told::Agent(name) => {
                    if let Some(agent) = self.followed.get_mut(&name) {
                        agent.idle_steps = 0;
                        self.to_check.insert(name);
                    }
                }
                Told::Begun(name) => {
                    let soon = session.clock.now().after(SETTLE_DELAY);
                    if let Some(agent) = self.followed.get_mut(&name) {
                        agent.next_check = Some(agent.next_check.map_or(soon, |at| at.min(soon)));
                    }
                }
                Told::Agents => list = true,
                Told::Anything => {
                    list = true;
                    self.check_all();
                }
                // A backup may have replaced the directory, so the path is opened again.
                Told::Moved => match self.reopen(session) {
                    Ok(()) => {}
                    Err(Error::NotAStore { .. } | Error::Io { .. }) => self.mark_missing(session),
                    Err(error) => session.out.failure(&error, None, None),
                },
            }
        }
        if list && let Err(error) = self.list(session) {
            session.out.detail(&error.to_string());
            if error.path().is_some() {
                self.mark_missing(session);
            } else {
                // No file of the state directory caused the error, so the database failed; the
                // query is repeated.
                self.list_at = Some(session.clock.now().after(QUERY_INTERVAL));
            }
        }
        Ok(())
    }

    /// Marks the state directory as missing, and schedules the next check.
    fn mark_missing(&mut self, session: &Session) {
        self.is_gone = true;
        self.list_at = Some(session.clock.now().after(SETTLE_DELAY));
    }

    /// Reopens the state directory, reloads the settings, and schedules a check of every agent.
    fn reopen(&mut self, session: &Session) -> Result<()> {
        self.store = session.store_at(self.anchor.clone())?;
        self.jobs.renew();
        self.news = self.store.news();
        self.is_gone = false;
        self.followed.values_mut().for_each(|agent| (agent.pause, agent.until) = (Span::ZERO, None));
        self.check_all();
        self.list(session)
    }

    fn check_all(&mut self) {
        self.to_check.extend(self.followed.keys().cloned());
    }

    /// Reads the list of agents, or queries the database for the due agents.
    fn list(&mut self, session: &Session) -> Result<()> {
        let now = session.clock.now();
        let known = if self.args.all { self.store.due(now, true)? } else { None };
        let next = known.as_ref().map(|known| {
            let query = now.after(QUERY_INTERVAL);
            known.next.map_or(query, |next| next.min(query))
        });
        // A database reports only agents with something to do, so other agents are not followed.
        let names: BTreeMap<AgentName, Option<Urgency>> = match known {
            Some(known) => {
                self.machines = known.machines;
                let urgencies = many::urgencies(&self.store, known).into_iter();
                urgencies.map(|(name, urgency)| (name, Some(urgency))).collect()
            }
            None => {
                let names = agents(&self.store, &self.args.agents, self.args.all)?.into_iter();
                names.map(|name| (name, None)).collect()
            }
        };
        self.followed.retain(|name, agent| agent.runs || names.contains_key(name));
        for (name, urgency) in names {
            let agent = self.followed.entry(name.clone()).or_insert_with(|| {
                self.to_check.insert(name.clone());
                FollowedAgent::default()
            });
            if agent.ready.is_some() && urgency.is_some() {
                agent.ready.clone_from(&urgency);
            }
            let is_back = agent.urgency.is_none() && urgency.is_some();
            if is_back && !agent.runs && agent.idle_steps < IDLE_STEPS {
                self.to_check.insert(name);
            }
            agent.urgency = urgency;
        }
        if !self.args.all {
            // An import may bring a removed agent back, so every named agent is checked.
            self.check_all();
        }
        let is_watched = self.news.follow_list(self.store.local());
        self.list_at = next.or_else(|| (!is_watched).then(|| now.after(POLL_INTERVAL)));
        Ok(())
    }

    /// Checks the agents whose records may have changed, or whose next check is due.
    fn check_agents(&mut self, session: &Session) {
        let now = session.clock.now();
        let due = self.followed.iter().filter(|(_, agent)| agent.next_check.is_some_and(|at| at <= now));
        let mut names = std::mem::take(&mut self.to_check);
        names.extend(due.map(|(name, _)| name.clone()));
        if names.is_empty() {
            return;
        }
        // An agent whose turn or task another process runs is polled, too, because the death of a
        // process changes no file.
        let again = poll_interval(self.unwatched);
        for name in names {
            let Some(agent) = self.followed.get_mut(&name) else { continue };
            if agent.runs {
                // The end of the running step schedules the next check.
                agent.next_check = None;
                continue;
            }
            // The database has reported the agent as due. The report is trusted until `IDLE_STEPS`
            // steps find nothing to do.
            if let Some(urgency) = agent.urgency.clone().filter(|_| agent.idle_steps < IDLE_STEPS) {
                agent.next_check = None;
                agent.set_due(Some(now), now, || urgency);
                continue;
            }
            let found = self.store.agent(&name).and_then(|found| {
                let is_watched = self.news.follow(found.local());
                Ok((forecast(Context::new(session, &found), now)?, is_watched))
            });
            let due = match found {
                Ok((expected, is_watched)) => {
                    agent.is_unwatched = !is_watched;
                    let looks = !is_watched || expected.is_beside || expected.has_tasks;
                    agent.next_check = looks.then(|| now.after(again));
                    // An agent with more to do gets another step at once, unless its last step did
                    // nothing or another process runs its turn.
                    let goes_on = !expected.is_at_rest && agent.idle_steps == 0 && !expected.is_beside;
                    if goes_on { Some(now) } else { expected.due }
                }
                // A moved agent has no steps in this store. A step reports any other error.
                Err(error) => {
                    agent.next_check = None;
                    (!error.has_left()).then_some(now)
                }
            };
            agent.set_due(due, now, || Urgency::of(&self.store, &name));
        }
        let unwatched = self.followed.values().filter(|agent| agent.is_unwatched).count();
        let are_new = std::mem::replace(&mut self.unwatched, unwatched) == 0 && unwatched > 0;
        if are_new && self.news.is_possible {
            session.out.note(&cannot_watch());
        }
    }

    /// Returns the time of the next check of agents or of their list, if no change is reported.
    fn next(&self) -> Option<Time> {
        let waiting = self.followed.values().filter(|agent| !agent.runs && agent.ready.is_none());
        let next = waiting.filter_map(|agent| agent.next_check).chain(self.list_at).min();
        next.filter(|_| !self.is_ending)
    }

    /// Starts steps of the ready agents, most urgent first, up to the maximum number of jobs.
    fn start(&mut self, session: &Session) {
        while !self.is_ending && self.jobs.count() < self.args.jobs as usize {
            let now = session.clock.now();
            let ready = self.followed.iter().filter_map(|(name, agent)| Some((name, agent.ready.as_ref()?)));
            let ranked = ready.map(|(name, urgency)| (name, urgency.rank(now)));
            // Without a random number the most urgent agent is chosen.
            let chance = if self.machines > 1 { session.clock.chance().unwrap_or_default() } else { 0.0 };
            let Some(name) = next_of(ranked, self.machines, chance).cloned() else { return };
            let work = own_tick(session, &self.store, &name, self.args);
            let started = self.jobs.start(name.clone(), &work);
            let Some(agent) = self.followed.get_mut(&name) else { return };
            match started {
                Ok(()) => (agent.ready, agent.runs) = (None, true),
                // The end of a running job will free resources, and the start is then tried again.
                Err(error) if error.is_shortage() && self.jobs.count() > 0 => return,
                Err(error) => {
                    session.out.failure(&error, Some(name.as_str()), Some(name.as_str()));
                    agent.back_off(FAILED, now);
                    agent.ready = None;
                    agent.next_check = agent.until;
                }
            }
        }
    }

    /// Handles the end of a step's process.
    fn finish_step(&mut self, session: &Session, ended: FinishedJob<AgentName>) {
        let FinishedJob { of: name, lines, end } = ended;
        let did_nothing = end.code() == Some(Status::NothingDone.code().into());
        let lines = if did_nothing { &[][..] } else { &lines[..] };
        let reached = print_tick(&session.out, &name, lines, end);
        let Some(agent) = self.followed.get_mut(&name) else { return };
        agent.runs = false;
        agent.idle_steps = if did_nothing { agent.idle_steps.saturating_add(1) } else { 0 };
        let now = session.clock.now();
        match reached {
            Status::Done | Status::TurnFailed => (agent.pause, agent.until) = (Span::ZERO, None),
            Status::NothingDone => agent.back_off(IDLE_PAUSE, now),
            Status::Failed
            | Status::Usage
            | Status::NotFound
            | Status::Refused
            | Status::Busy
            | Status::Damaged
            | Status::TimedOut
            | Status::PleaseYield
            | Status::OfCommand(_) => agent.back_off(FAILED, now),
        }
        if agent.idle_steps == 1 && agent.urgency.take().is_some() {
            // Another machine has run the step. The database knows if the agent is still due, and
            // one query covers all agents.
            let soon = now.after(REQUERY_DELAY);
            self.list_at = Some(self.list_at.map_or(soon, |at| at.min(soon)));
            return;
        }
        self.to_check.insert(name);
    }

    /// Starts no steps after the first signal, and passes later signals on to running steps.
    fn end(&mut self, session: &Session, signal: i32) {
        if self.is_ending {
            self.exit_status = Status::TurnFailed;
            self.jobs.forward_signal(signal);
            return;
        }
        self.is_ending = true;
        let running = self.jobs.count();
        if running > 0 {
            session.out.note(&format!("waiting for {running} running: a second signal ends them"));
        }
    }
}

impl FollowedAgent {
    /// Marks the agent as ready if its step is due; otherwise sets the time of the next check.
    fn set_due(&mut self, due: Option<Time>, now: Time, urgency: impl FnOnce() -> Urgency) {
        self.ready = None;
        if due.is_none_or(|due| due > now) {
            self.pause = Span::ZERO;
            self.until = None;
            self.next_check = [self.next_check, due].into_iter().flatten().min();
            return;
        }
        // No pause is longer than `LONGEST`, so a later `until` means that the clock was set back.
        let backoff_end = self.until.filter(|until| *until > now && until.since(now) <= LONGEST);
        match backoff_end {
            Some(until) => self.next_check = Some(until),
            None => self.ready = Some(urgency()),
        }
    }

    fn back_off(&mut self, minimum: Span, now: Time) {
        self.pause = self.pause.times(2).max(minimum).min(LONGEST);
        self.until = Some(now.after(self.pause));
    }
}
