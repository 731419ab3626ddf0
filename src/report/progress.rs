//! The line at the end of a terminal that says how far long work has come, or for how long a turn
//! has been running.
//!
//! It is drawn on stderr, and only for a person: on a terminal that can take a line back, by a
//! process that has that terminal in the foreground. Whatever else is written to a stream goes
//! through `beside`, which takes the line away first. Drawing sets no timer: the work itself says
//! how far it is.

use std::env;
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle, TermLike};

use crate::model::id::AgentName;
use crate::model::time::Span;

/// Work that ends sooner shows nothing.
const SHORT: Duration = Duration::from_millis(500);

/// How often a second something is drawn at most.
const DRAWS: u8 = 20;

/// How wide a terminal is that does not say it.
const WIDTH: u16 = 80;

/// The last line of the terminal.
static LAST: Mutex<Last> = Mutex::new(Last { bar: None, is_taken: false });

/// What is done before something is drawn.
static BEFORE: OnceLock<fn()> = OnceLock::new();

/// Sets what is done before something is drawn: whoever ends this process has to erase it.
pub fn before_drawing(act: fn()) {
    let _ = BEFORE.set(act);
}

/// Takes away what is drawn. Nothing is drawn any more.
pub fn erase() {
    let mut last = last();
    last.erase();
    last.is_taken = true;
}

struct Last {
    /// What is drawn there.
    bar: Option<ProgressBar>,
    /// Whether text stands there that has not ended its line: then nothing is drawn.
    is_taken: bool,
}

fn last() -> MutexGuard<'static, Last> {
    LAST.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Last {
    /// Begins to draw, if nothing is drawn yet and nothing is in the way. Returns whether it has
    /// begun.
    fn begin(&mut self, bar: impl FnOnce() -> ProgressBar) -> bool {
        let is_free = self.bar.is_none() && !self.is_taken;
        if is_free {
            if let Some(act) = BEFORE.get() {
                act();
            }
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

/// Writes something to a stream of this process. `ends_line`: the next thing begins a line of its
/// own.
pub fn beside<T>(ends_line: bool, write: impl FnOnce() -> T) -> T {
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

/// Whether the terminal can do more than write one line after the other.
pub fn can_erase() -> bool {
    env::var_os("TERM").is_some_and(|term| !term.is_empty() && term != "dumb")
}

/// Whether a person looks at stderr who sees what this process draws there. The ticks that `tick
/// --jobs` starts have a terminal in common, and it is in the foreground of none.
pub fn is_watched() -> bool {
    let stderr = io::stderr();
    let group = || rustix::termios::tcgetpgrp(&stderr);
    stderr.is_terminal() && can_erase() && group().is_ok_and(|group| group == rustix::process::getpgrp())
}

/// The terminal behind stderr. After each drawing the cursor stands where the line begins: what the
/// terminal itself shows of a key, as `^C`, is erased with the line.
#[derive(Debug, Default)]
struct Terminal {
    drawn: Mutex<String>,
}

impl Terminal {
    fn add(&self, text: impl Display) -> io::Result<()> {
        self.drawn.lock().unwrap_or_else(PoisonError::into_inner).push_str(&text.to_string());
        Ok(())
    }

    /// Moves the cursor: `n` and a letter are one of the terminal's commands.
    fn go(&self, n: usize, to: char) -> io::Result<()> {
        if n == 0 { Ok(()) } else { self.add(format_args!("\x1b[{n}{to}")) }
    }
}

impl TermLike for Terminal {
    fn width(&self) -> u16 {
        let size = rustix::termios::tcgetwinsize(io::stderr());
        size.ok().map(|size| size.ws_col).filter(|columns| *columns > 0).unwrap_or(WIDTH)
    }

    fn move_cursor_up(&self, n: usize) -> io::Result<()> {
        self.go(n, 'A')
    }

    fn move_cursor_down(&self, n: usize) -> io::Result<()> {
        self.go(n, 'B')
    }

    fn move_cursor_right(&self, n: usize) -> io::Result<()> {
        self.go(n, 'C')
    }

    fn move_cursor_left(&self, n: usize) -> io::Result<()> {
        self.go(n, 'D')
    }

    fn write_line(&self, text: &str) -> io::Result<()> {
        self.add(format_args!("{text}\n"))
    }

    fn write_str(&self, text: &str) -> io::Result<()> {
        self.add(text)
    }

    fn clear_line(&self) -> io::Result<()> {
        self.add("\r\x1b[2K")
    }

    fn flush(&self) -> io::Result<()> {
        self.add('\r')?;
        let drawn = std::mem::take(&mut *self.drawn.lock().unwrap_or_else(PoisonError::into_inner));
        io::stderr().write_all(drawn.as_bytes())
    }
}

fn new_bar(of: Option<u64>, template: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    let target = ProgressDrawTarget::term_like_with_hz(Box::new(Terminal::default()), DRAWS);
    ProgressBar::with_draw_target(of, target).with_style(style.progress_chars("=> "))
}

/// What progress is counted in.
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

/// How far a long work has come. It is shown once the work has taken a while, until this is
/// dropped.
#[derive(Debug)]
pub struct Progress {
    since: Instant,
    unit: Unit,
    done: u64,
    /// How much there is to do, if that is known.
    of: Option<u64>,
    /// Whether a person sees it; absent until that was asked.
    is_watched: Option<bool>,
    is_drawn: bool,
}

impl Progress {
    /// `quiet`: nothing is shown in any case.
    pub fn new(unit: Unit, of: Option<u64>, quiet: bool) -> Progress {
        let is_watched = quiet.then_some(false);
        Progress { since: Instant::now(), unit, done: 0, of, is_watched, is_drawn: false }
    }

    /// So much more is done.
    pub fn advance(&mut self, by: u64) {
        self.done = self.done.saturating_add(by);
        let is_over = self.of == Some(self.done);
        if is_over || self.is_watched == Some(false) || self.since.elapsed() < SHORT {
            return;
        }
        if *self.is_watched.get_or_insert_with(is_watched) {
            let mut last = last();
            self.is_drawn |= last.begin(|| new_bar(self.of, self.unit.template(self.of.is_some())));
            // A bar that is not its own is that of a larger work, of which this is a part.
            if let Some(bar) = last.bar.as_ref().filter(|_| self.is_drawn) {
                bar.set_position(self.done);
            }
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.is_drawn {
            last().erase();
        }
    }
}

/// For how long the turn of an agent has been running in the foreground. It is shown until this is
/// dropped.
#[derive(Debug)]
pub struct Age {
    since: Instant,
    agent: AgentName,
    quiet: bool,
    /// How many seconds were shown last.
    shown: u64,
    is_drawn: bool,
}

impl Age {
    /// Of a turn that begins now.
    pub fn new(agent: &AgentName, quiet: bool) -> Age {
        Age { since: Instant::now(), agent: agent.clone(), quiet, shown: 0, is_drawn: false }
    }

    /// Draws the age if a second is over since it was drawn.
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
            // The bar of the work that the turn is a part of.
            Some(bar) if !self.is_drawn => bar.set_message(""),
            Some(_) => last.erase(),
            None => {}
        }
    }
}
