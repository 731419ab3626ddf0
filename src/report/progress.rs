//! Last line of a terminal: progress of long work, or age of the running turn.
//!
//! The line is drawn on stderr, only on a terminal that can erase a line, and only by a process in
//! the foreground of that terminal. Every other write to a stream uses `without_bar`, which erases
//! the line first. No timer redraws the line, only calls of the code that does the work. A signal
//! that ends the process leaves the line on the terminal.

use std::env;
use std::io::{self, IsTerminal};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::model::id::AgentName;
use crate::model::time::Span;

/// Duration of work up to which no progress is shown.
const SHORT: Duration = Duration::from_millis(500);

/// Maximum number of redraws per second.
const DRAWS: u8 = 20;

static LAST: Mutex<Last> = Mutex::new(Last { bar: None, is_taken: false });

struct Last {
    /// Progress bar on the last line, if one is drawn.
    bar: Option<ProgressBar>,
    /// True while the terminal's last line has text without a newline; no progress is drawn then.
    is_taken: bool,
}

fn last() -> MutexGuard<'static, Last> {
    LAST.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Last {
    /// Draws a bar and returns true, unless another bar or unfinished text occupies the line.
    fn begin(&mut self, bar: impl FnOnce() -> ProgressBar) -> bool {
        let is_free = self.bar.is_none() && !self.is_taken;
        if is_free {
            self.bar = Some(bar());
        }
        is_free
    }

    fn erase(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

/// Writes to a stream of this process while the progress bar is erased. `ends_line`: true if the
/// output ends with a newline.
pub fn without_bar<T>(ends_line: bool, write: impl FnOnce() -> T) -> T {
    let mut last = last();
    if !ends_line {
        last.erase();
    }
    last.is_taken = !ends_line;
    match &last.bar {
        Some(bar) => bar.suspend(write),
        None => write(),
    }
}

/// True if `TERM` names a terminal that can erase a line.
pub fn can_erase() -> bool {
    env::var_os("TERM").is_some_and(|term| !term.is_empty() && term != "dumb")
}

/// True if this process is in the foreground of the terminal on stderr. The processes of `tick
/// --jobs` share a terminal, and are all in its background.
pub fn is_watched() -> bool {
    let stderr = io::stderr();
    let group = || rustix::termios::tcgetpgrp(&stderr);
    stderr.is_terminal() && can_erase() && group().is_ok_and(|group| group == rustix::process::getpgrp())
}

fn new_bar(of: Option<u64>, template: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::with_draw_target(of, ProgressDrawTarget::stderr_with_hz(DRAWS))
        .with_style(style.progress_chars("=> "))
}

/// Unit of progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    Agents,
    Messages,
    Bytes,
}

impl Unit {
    fn template(self, is_bounded: bool) -> &'static str {
        match (self, is_bounded) {
            (Unit::Agents, true) => "[{bar:30}] {human_pos} of {human_len} agents  {wide_msg}",
            (Unit::Agents, false) => "{human_pos} agents  {wide_msg}",
            (Unit::Messages, true) => "[{bar:30}] {human_pos} of {human_len} messages  {wide_msg}",
            (Unit::Messages, false) => "{human_pos} messages  {wide_msg}",
            (Unit::Bytes, true) => "[{bar:30}] {binary_bytes} of {binary_total_bytes}  {wide_msg}",
            (Unit::Bytes, false) => "{binary_bytes}  {wide_msg}",
        }
    }
}

/// Progress of long work. The bar appears after `SHORT`, and disappears when this value is dropped.
#[derive(Debug)]
pub struct WorkProgress {
    since: Instant,
    unit: Unit,
    done: u64,
    /// Total amount of work, if known.
    of: Option<u64>,
    /// True if a terminal may show the bar (see [`is_watched`]); `None` before the first check.
    is_watched: Option<bool>,
    is_drawn: bool,
}

impl WorkProgress {
    /// Starts progress at zero. `quiet`: the bar never appears.
    pub fn new(unit: Unit, of: Option<u64>, quiet: bool) -> WorkProgress {
        let is_watched = quiet.then_some(false);
        WorkProgress { since: Instant::now(), unit, done: 0, of, is_watched, is_drawn: false }
    }

    /// Adds to the progress.
    pub fn advance(&mut self, by: u64) {
        self.done = self.done.saturating_add(by);
        let is_over = self.of == Some(self.done);
        if is_over || self.is_watched == Some(false) || self.since.elapsed() < SHORT {
            return;
        }
        if *self.is_watched.get_or_insert_with(is_watched) {
            let mut last = last();
            self.is_drawn |= last.begin(|| new_bar(self.of, self.unit.template(self.of.is_some())));
            // The bar may be of other work that includes this work, and then stays unchanged.
            if let Some(bar) = last.bar.as_ref().filter(|_| self.is_drawn) {
                bar.set_position(self.done);
            }
        }
    }
}

impl Drop for WorkProgress {
    fn drop(&mut self) {
        if self.is_drawn {
            last().erase();
        }
    }
}

/// Terminal line with the age of the turn in the foreground. Dropping this value erases the line.
#[derive(Debug)]
pub struct Age {
    since: Instant,
    agent: AgentName,
    quiet: bool,
    /// Age of the turn at the last drawing, in seconds.
    shown: u64,
    is_drawn: bool,
}

impl Age {
    /// Creates the line of a turn that starts now. `quiet`: the line never appears.
    pub fn new(agent: &AgentName, quiet: bool) -> Age {
        Age { since: Instant::now(), agent: agent.clone(), quiet, shown: 0, is_drawn: false }
    }

    /// Draws the age of the turn, at most once per second.
    pub fn show(&mut self) {
        let seconds = self.since.elapsed().as_secs();
        if seconds == self.shown || self.quiet {
            return;
        }
        self.shown = seconds;
        if is_watched() {
            let (agent, age) = (&self.agent, Span::from_millis(seconds.saturating_mul(1000)));
            let text = format!("{agent}: its turn runs, {age} so far (dormouse logs -f {agent})");
            let mut last = last();
            self.is_drawn |= last.begin(|| new_bar(None, "{wide_msg}"));
            if let Some(bar) = &last.bar {
                bar.set_message(text);
            }
        }
    }
}

impl Drop for Age {
    fn drop(&mut self) {
        let mut last = last();
        match &last.bar {
            // The bar of other work, of which the turn is a part, stays; only its text is removed.
            Some(bar) if !self.is_drawn => bar.set_message(""),
            Some(_) => last.erase(),
            None => {}
        }
    }
}
