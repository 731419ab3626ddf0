//! Key bindings of `watch`.

use crate::engine::session::Session;
use crate::error::Result;
use crate::model::id::AgentName;
use crate::process::jobs::Work;
use crate::process::keys::Key;
use crate::process::screen::Screen;
use crate::report::dashboard::visible_rows;

use super::acts::Act;
use super::{Dashboard, DetailState, FooterState};

impl Dashboard {
    /// Handles a key. Returns true if the key ends the command.
    pub(super) fn press(
        &mut self,
        session: &Session,
        screen: &mut Screen,
        key: Key,
        height: u16,
    ) -> Result<bool> {
        if key == Key::Redraw {
            screen.renew()?;
            return Ok(false);
        }
        match std::mem::replace(&mut self.footer, FooterState::Keys) {
            FooterState::EditFilter => {
                self.filter_with(key);
                return Ok(key == Key::Cancel);
            }
            FooterState::Confirm(act, name) => {
                if matches!(key, Key::Char('y' | 'Y')) {
                    self.start(session, act, &name);
                }
                return Ok(false);
            }
            FooterState::ConfirmQuit => return Ok(matches!(key, Key::Char('y' | 'Y') | Key::Cancel)),
            FooterState::Keys | FooterState::Message(_) => {}
        }
        let page = visible_rows(height);
        match key {
            Key::Up | Key::Char('k') => self.go(|at| at.saturating_sub(1)),
            Key::Down | Key::Char('j') => self.go(|at| at.saturating_add(1)),
            Key::PageUp => self.go(|at| at.saturating_sub(page)),
            Key::PageDown | Key::Char(' ') => self.go(|at| at.saturating_add(page)),
            Key::Home | Key::Char('g') => self.go(|_| 0),
            Key::End | Key::Char('G') => self.go(|_| usize::MAX),
            Key::Cancel | Key::Char('q') if self.jobs.count() > 0 => self.footer = FooterState::ConfirmQuit,
            Key::Cancel | Key::Char('q') => return Ok(true),
            Key::Escape | Key::Back if self.detail_view.is_some() => self.detail_view = None,
            Key::Escape | Key::Back => self.fleet.filter_by(String::new()),
            Key::Char('/') => {
                self.detail_view = None;
                self.fleet.filter_by(String::new());
                self.footer = FooterState::EditFilter;
            }
            Key::Enter => {
                if let Some(name) = self.subject() {
                    self.open_detail(session, name);
                }
            }
            Key::Char(letter) => {
                if let (Some(act), Some(name)) = (Act::of(letter), self.subject()) {
                    match act.doubt {
                        Some(_) => self.footer = FooterState::Confirm(act, name),
                        None => self.start(session, act, &name),
                    }
                }
            }
            Key::Left | Key::Right | Key::Redraw => {}
        }
        Ok(false)
    }

    /// Returns the agent of the detail view, or the selected agent.
    fn subject(&self) -> Option<AgentName> {
        match &self.detail_view {
            Some(detail_view) => Some(detail_view.name.clone()),
            None => self.fleet.from(self.selected_index()).next().map(|(name, _)| name.clone()),
        }
    }

    /// Moves the selection, or scrolls the detail view.
    fn go(&mut self, to: impl Fn(usize) -> usize) {
        if let Some(DetailState { from, .. }) = &mut self.detail_view {
            // `draw` limits the offset to the last line.
            *from = to(*from);
            return;
        }
        let at = to(self.selected_index()).min(self.fleet.len().saturating_sub(1));
        self.chosen = self.fleet.from(at).next().map(|(name, _)| name.clone());
    }

    fn filter_with(&mut self, key: Key) {
        let mut filter = self.fleet.filter().to_owned();
        if let Key::Char(letter) = key {
            filter.push(letter);
        } else if key == Key::Back {
            filter.pop();
        } else if key == Key::Escape {
            filter.clear();
        } else {
            return;
        }
        if key != Key::Escape {
            self.footer = FooterState::EditFilter;
        }
        self.chosen = None;
        self.top = 0;
        self.fleet.filter_by(filter);
    }

    /// Runs a command for an agent.
    fn start(&mut self, session: &Session, act: Act, name: &AgentName) {
        let started = act.command(session, &self.store, name).and_then(|command| match command {
            Some(command) => {
                self.jobs.start((act, name.clone()), &Work::Process(command))?;
                Ok(format!("{} {name} …", act.name))
            }
            None => Ok(format!("{name} has no dead letter")),
        });
        self.footer = FooterState::Message(started.unwrap_or_else(|error| error.to_string()));
    }
}
