//! Command `watch`: shows the agents on a screen, with keys that run commands.
//!
//! The screen is redrawn after keys, after changes of records, and when the text of a visible time
//! changes. Only agents whose changes raise no event are read at intervals.

mod acts;
mod keys;

use std::collections::BTreeSet;
use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use crate::cli;
use crate::engine::session::{Session, agents};
use crate::engine::views::{self, LastOutput, detail};
use crate::error::{Error, Result, Status};
use crate::model::id::AgentName;
use crate::model::time::{Span, Time};
use crate::process::alarm::{Alarm, AlarmStage};
use crate::process::jobs::Jobs;
use crate::process::screen::Screen;
use crate::process::signals::Signals;
use crate::report::dashboard::{
    AgentDetail, AgentRow, Fleet, ScreenContents, ScreenView, draw, visible_rows,
};
use crate::report::progress::can_erase;
use crate::store::{News, RecordWatch, Store, Told};

use super::args::{POLL_INTERVAL, cannot_watch, poll_interval};

use acts::{Act, result_text};

/// Maximum time for reading agents before pressed keys are handled again.
const READ_SLICE: Duration = Duration::from_millis(40);

/// Minimum time between two reads of changed agents or output, which limits the load.
const REDRAW_INTERVAL: Duration = Duration::from_millis(100);

/// Delay of the first check for the return of a missing state directory.
const RETURN_CHECK: Span = Span::from_secs(1);

pub fn watch(session: &Session, args: cli::WatchArgs) -> Result<Status> {
    let refuse = |message: &str| {
        Error::usage(message).with_hint("use `dormouse list`, with --json for scripts, or `dormouse logs -f`")
    };
    if session.out.is_json() {
        return Err(refuse("watch draws a picture, and has no result for --json"));
    }
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        return Err(refuse("watch needs a terminal to draw on and to read keys from"));
    }
    if !can_erase() {
        return Err(refuse("watch can't draw on this terminal: TERM names one that only writes lines"));
    }
    if session.clock.is_pinned() {
        return Err(Error::usage("watch needs the real time, but DORMOUSE_NOW is set: unset it"));
    }
    let store = session.store()?;
    for name in agents(&store, &args.agents.agents, false)? {
        store.agent(&name)?;
    }
    let signals = Signals::catch()?;
    signals.watch_children()?;
    signals.watch_terminal()?;
    let mut dashboard = Dashboard {
        named: args.agents.agents,
        news: store.news(),
        store,
        fleet: Fleet::default(),
        to_read: BTreeSet::new(),
        to_list: false,
        read_at: None,
        unwatched: BTreeSet::new(),
        next_check: None,
        trouble: None,
        chosen: None,
        top: 0,
        detail_view: None,
        footer: FooterState::Keys,
        jobs: Jobs::new()?,
        alarm: Alarm::new()?,
        is_changed: true,
    };
    dashboard.list(session)?;
    let mut screen = Screen::open(session.out.is_colored())?;
    dashboard.run(session, &signals, &mut screen)
}

/// Content of the last line of the screen.
enum FooterState {
    Keys,
    Message(String),
    /// Question before a command with an irreversible effect.
    Confirm(Act, AgentName),
    /// Question before quitting while a command that a key has started runs.
    ConfirmQuit,
    EditFilter,
}

/// Agent that the detail view shows.
struct DetailState {
    name: AgentName,
    seen: Result<AgentDetail, String>,
    said: Option<LastOutput>,
    /// Subscription to changes of an agent in a database, for which files raise no event.
    heard: RecordWatch,
    /// True if the agent's turn may have written more output than was read.
    has_more: bool,
    /// Number of lines that are scrolled out above the top of the screen.
    from: usize,
}

impl DetailState {
    fn readable(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let written = self.said.iter().flat_map(|said| said.watch.readable());
        written.chain(self.heard.readable())
    }
}

struct Dashboard {
    named: Vec<AgentName>,
    store: Store,
    news: News,
    fleet: Fleet,
    /// Agents whose records may have changed.
    to_read: BTreeSet<AgentName>,
    /// True if the list of agents may have changed.
    to_list: bool,
    /// Time of the last read of changed agents.
    read_at: Option<Instant>,
    /// Agents whose changes raise no event.
    unwatched: BTreeSet<AgentName>,
    /// Time of the next check of unwatched agents, or of a missing state directory.
    next_check: Option<Time>,
    /// Error of opening the state directory or listing its agents.
    trouble: Option<String>,
    chosen: Option<AgentName>,
    /// Number of agents that are scrolled out above the top of the screen.
    top: usize,
    detail_view: Option<DetailState>,
    footer: FooterState,
    jobs: Jobs<(Act, AgentName)>,
    alarm: Alarm,
    is_changed: bool,
}

impl Dashboard {
    fn run(&mut self, session: &Session, signals: &Signals, screen: &mut Screen) -> Result<Status> {
        let keyboard = io::stdin();
        let mut drawn = screen.size();
        loop {
            let size = screen.size();
            self.is_changed |= std::mem::replace(&mut drawn, size) != size;
            let height = size.height;
            let until = self.next_read();
            if until.is_some_and(|until| until <= Instant::now()) {
                self.read(session, height);
            }
            if std::mem::take(&mut self.is_changed) {
                self.draw(session, screen, height)?;
            }
            self.alarm.set(self.next(session, height))?;
            let until = self.next_read();
            let mut wakes = vec![keyboard.as_fd(), signals.as_fd(), self.alarm.as_fd()];
            if until.is_none() {
                wakes.extend(self.news.readable());
                wakes.extend(self.detail_view.iter().flat_map(DetailState::readable));
            }
            let ended = self.jobs.wait(&wakes, until)?;
            drop(wakes);
            for ended in ended {
                self.footer = FooterState::Message(result_text(&ended));
                self.to_read.insert(ended.of.1);
                self.is_changed = true;
            }
            match self.alarm.has_rung() {
                AlarmStage::No => {}
                AlarmStage::Due => self.check_unwatched(session),
                AlarmStage::ClockSet => self.is_changed = true,
            }
            // A closed terminal sends SIGHUP.
            if signals.caught().is_some() {
                return Ok(Status::Done);
            }
            let Some(keys) = screen.keys()? else { return Ok(Status::Done) };
            for key in keys {
                self.is_changed = true;
                if self.press(session, screen, key, height)? {
                    return Ok(Status::Done);
                }
            }
            self.take_changes(session);
        }
    }

    /// Returns the time of the next read of changed agents or turn output; `None` without changes.
    fn next_read(&self) -> Option<Instant> {
        let has_more = self.detail_view.as_ref().is_some_and(|detail_view| detail_view.has_more);
        if self.to_read.is_empty() && !self.to_list && !has_more {
            return None;
        }
        let is_loading = self.fleet.counts().unread > 0;
        let pause = if is_loading { Duration::ZERO } else { REDRAW_INTERVAL };
        Some(self.read_at.map_or_else(Instant::now, |at| at + pause))
    }

    /// Reads the list of agents again.
    fn list(&mut self, session: &Session) -> Result<()> {
        self.to_list = false;
        // File events start before the list is read, so that no change is missed in between.
        let is_watched = self.news.follow_list(self.store.local());
        let new = self.fleet.list(agents(&self.store, &self.named, self.named.is_empty())?);
        self.to_read.extend(new);
        if !is_watched {
            self.check_within(session, POLL_INTERVAL);
        }
        if !self.named.is_empty() {
            // An import may bring a removed agent back, so every named agent is read.
            self.to_read.extend(self.fleet.names().cloned());
        }
        self.is_changed = true;
        Ok(())
    }

    /// Schedules a check of unwatched agents at most `after` from now.
    fn check_within(&mut self, session: &Session, after: Span) {
        let at = session.clock.now().after(after);
        self.next_check = Some(self.next_check.map_or(at, |other| other.min(at)));
    }

    /// Notes that the state directory can't be read because it is being deleted or replaced.
    fn mark_missing(&mut self, session: &Session, error: &Error) {
        let after = if self.trouble.is_some() { POLL_INTERVAL } else { RETURN_CHECK };
        self.trouble = Some(format!("the screen shows the previous state: {error}"));
        self.to_read.clear();
        self.to_list = false;
        self.is_changed = true;
        self.check_within(session, after);
    }

    /// Opens the state directory again, and schedules a read of every agent.
    fn reopen(&mut self, session: &Session) {
        let opened = session.store_at(self.store.anchor().clone()).and_then(|store| {
            self.news = store.news();
            self.store = store;
            self.list(session)
        });
        match opened {
            Ok(()) => {
                self.trouble = None;
                self.to_read.extend(self.fleet.names().cloned());
            }
            Err(error) => self.mark_missing(session, &error),
        }
    }

    /// Reads changed agents for at most `READ_SLICE`, those on the screen first.
    fn read(&mut self, session: &Session, height: u16) {
        let start = Instant::now();
        if self.to_list
            && let Err(error) = self.list(session)
        {
            return self.mark_missing(session, &error);
        }
        let detail_view = self.detail_view.as_ref().map(|detail_view| detail_view.name.clone());
        let seen = self.fleet.from(self.top).take(visible_rows(height)).map(|(name, _)| name.clone());
        let seen: Vec<AgentName> = detail_view.into_iter().chain(seen).collect();
        let mut seen = seen.into_iter();
        while start.elapsed() < READ_SLICE {
            let next = seen.by_ref().find(|name| self.to_read.contains(name));
            let Some(name) = next.or_else(|| self.to_read.first().cloned()) else { break };
            self.to_read.remove(&name);
            self.read_one(session, &name);
        }
        if self.detail_view.as_ref().is_some_and(|detail_view| detail_view.has_more) {
            self.read_output();
        }
        self.fleet.sort();
        self.read_at = Some(Instant::now());
        self.is_changed = true;
    }

    fn read_one(&mut self, session: &Session, name: &AgentName) {
        let now = session.clock.now();
        let found = self.store.agent(name).and_then(|agent| {
            let is_watched = self.news.follow(agent.local());
            Ok((views::line(&agent, None, now)?, is_watched))
        });
        let known = match found {
            Ok((line, is_watched)) => {
                self.note_watched(session, name, is_watched);
                AgentRow::Read(Box::new(line))
            }
            Err(error) => AgentRow::Broken(error.to_string()),
        };
        self.fleet.note(name, known);
        if self.detail_view.as_ref().is_some_and(|detail_view| detail_view.name == *name) {
            self.open_detail(session, name.clone());
        }
    }

    fn note_watched(&mut self, session: &Session, name: &AgentName, is_watched: bool) {
        if is_watched {
            self.unwatched.remove(name);
            return;
        }
        if self.unwatched.is_empty() && self.news.is_possible {
            self.footer = FooterState::Message(cannot_watch());
        }
        self.unwatched.insert(name.clone());
        if self.next_check.is_none() {
            self.check_within(session, poll_interval(self.unwatched.len()));
        }
    }

    /// Opens or refreshes the detail view of an agent.
    fn open_detail(&mut self, session: &Session, name: AgentName) {
        let before = self.detail_view.take().filter(|detail_view| detail_view.name == name);
        let (said, mut heard, from) = before.map_or_else(
            || (None, RecordWatch::for_long(), 0),
            |detail_view| (detail_view.said, detail_view.heard, detail_view.from),
        );
        let seen = self.store.agent(&name).and_then(|agent| {
            if self.unwatched.contains(&name) {
                heard.follow_records(&agent);
            }
            detail(&agent, session.clock.now())
        });
        let seen = seen.map_err(|error| error.to_string());
        self.detail_view = Some(DetailState { name, seen, said, heard, has_more: true, from });
        self.read_output();
    }

    /// Reads new output of the turn in the detail view.
    fn read_output(&mut self) {
        let Some(detail_view) = &mut self.detail_view else { return };
        detail_view.has_more = false;
        let Ok(seen) = &detail_view.seen else { return };
        let live = seen.state.current_run.as_ref().map(|run| run.run_id);
        let last = || seen.state.last_turn.as_ref().map(|turn| turn.run_id);
        let Some(run) = live.or_else(last) else { return };
        let listened = self.store.agent(&detail_view.name).and_then(|agent| {
            let mut said = match detail_view.said.take() {
                Some(said) if said.run == run => said,
                Some(_) | None => LastOutput::of(&agent, run),
            };
            said.look(&agent, live.is_some())?;
            Ok(said)
        });
        // A turn's unreadable output is not shown, because the agent's records show the error.
        detail_view.said = listened.ok();
    }

    /// Returns the time of the next redraw or check if no event reports a change before.
    fn next(&self, session: &Session, height: u16) -> Option<Time> {
        let now = session.clock.now();
        let seen: Option<Time> = match &self.detail_view {
            Some(detail_view) => detail_view.seen.as_ref().ok().and_then(|seen| seen.next_change(now)),
            None => {
                let rows = self.fleet.from(self.top).take(visible_rows(height));
                rows.filter_map(|(_, known)| known.row()?.next_change(now)).min()
            }
        };
        seen.into_iter().chain(self.next_check).min()
    }

    /// Redraws, and checks unwatched agents if their time has come.
    fn check_unwatched(&mut self, session: &Session) {
        self.is_changed = true;
        if self.next_check.is_none_or(|at| at > session.clock.now()) {
            return;
        }
        self.next_check = None;
        if self.trouble.is_some() {
            return self.reopen(session);
        }
        // The list may be polled, and then no event reports that the state directory was removed.
        match session.store_at(self.store.anchor().clone()).and_then(|_| self.list(session)) {
            Ok(()) => self.to_read.extend(self.unwatched.iter().cloned()),
            Err(error) => self.mark_missing(session, &error),
        }
    }

    /// Schedules reads of the agents and lists whose changes file events have reported.
    fn take_changes(&mut self, session: &Session) {
        for change in self.news.take() {
            match change {
                Told::Agent(name) | Told::Begun(name) => {
                    self.to_read.insert(name);
                }
                Told::Agents => self.to_list = true,
                Told::Anything => {
                    self.to_list = true;
                    self.to_read.extend(self.fleet.names().cloned());
                }
                Told::Moved => return self.reopen(session),
            }
        }
        if let Some(detail_view) = &mut self.detail_view {
            detail_view.has_more |= detail_view.said.as_mut().is_some_and(|said| said.watch.has_news());
            if detail_view.heard.has_news() {
                self.to_read.insert(detail_view.name.clone());
            }
        }
    }

    fn draw(&mut self, session: &Session, screen: &mut Screen, height: u16) -> Result<()> {
        let at = self.selected_index();
        let room = visible_rows(height);
        self.top =
            self.top.clamp((at + 1).saturating_sub(room), at).min(self.fleet.len().saturating_sub(room));
        if self.chosen.is_none() && self.fleet.counts().unread == 0 {
            // The selection stays on this agent even if another agent is later sorted above it.
            self.chosen = self.fleet.from(0).next().map(|(name, _)| name.clone());
        }
        let is_asking = !matches!(self.footer, FooterState::Keys | FooterState::Message(_));
        let foot = match &self.footer {
            FooterState::Keys => None,
            FooterState::Message(said) => Some(said.clone()),
            FooterState::Confirm(act, name) => {
                Some(format!("{} {name}? y/n: {}", act.name, act.doubt.unwrap_or_default()))
            }
            FooterState::ConfirmQuit => {
                Some("quit? y/n: a step that was begun here still runs, and ends with it".to_owned())
            }
            FooterState::EditFilter => Some(format!("show agents with: {}_", self.fleet.filter())),
        };
        let view = match &self.detail_view {
            Some(detail_view) => ScreenView::One {
                name: &detail_view.name,
                seen: detail_view.seen.as_ref().map_err(String::as_str),
                said: detail_view.said.as_ref().map(|said| said.lines().collect()).unwrap_or_default(),
                from: detail_view.from,
            },
            None => ScreenView::Fleet { fleet: &self.fleet, above: self.top, chosen: at },
        };
        let (now, trouble) = (session.clock.now(), self.trouble.as_deref());
        let shown = ScreenContents { now, colored: session.out.is_colored(), trouble, view, foot, is_asking };
        let mut above = 0;
        screen.draw(|frame| above = draw(frame, &shown))?;
        if let Some(detail_view) = &mut self.detail_view {
            detail_view.from = above;
        }
        Ok(())
    }

    /// Returns the index of the selected agent among the shown agents.
    fn selected_index(&self) -> usize {
        self.chosen.as_ref().and_then(|chosen| self.fleet.place(chosen)).unwrap_or(0)
    }
}
