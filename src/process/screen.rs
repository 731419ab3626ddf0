//! Terminal as a screen for drawing.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Stdout, Write};
use std::os::fd::OwnedFd;
use std::panic;
use std::path::Path;
use std::sync::Arc;

use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::event::{DisableBracketedPaste, EnableBracketedPaste};
use ratatui::crossterm::{cursor, execute, style, terminal};
use ratatui::layout::Size;
use ratatui::{Frame, Terminal};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use crate::error::{IoContext, Result};

use super::keys::{Key, Keys};

/// Name of the terminal in errors.
const TERMINAL: &str = "the terminal";

/// Size of the read buffer, in bytes.
const BYTES: usize = 1024;

/// Terminal as a screen. Dropping this value, or a panic, restores the terminal.
pub struct Screen {
    terminal: Terminal<CrosstermBackend<BufWriter<Stdout>>>,
    /// Original stderr, which is redirected because messages would overwrite the screen.
    stderr: Arc<Option<OwnedFd>>,
    keys: Keys,
}

impl Screen {
    /// Turns the terminal into a screen. `colored`: use colours regardless of the environment.
    pub fn open(colored: bool) -> Result<Screen> {
        let stderr = Arc::new(silence_stderr());
        let (previous_hook, saved) = (panic::take_hook(), stderr.clone());
        panic::set_hook(Box::new(move |panic| {
            leave(&saved);
            previous_hook(panic);
        }));
        style::force_color_output(colored);
        let terminal = enter().inspect_err(|_| leave(&stderr)).context("draw on", Path::new(TERMINAL))?;
        Ok(Screen { terminal, stderr, keys: Keys::default() })
    }

    /// Draws the screen. Only the differences from the last drawing are written.
    pub fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> Result<()> {
        self.terminal.draw(draw).map(drop).context("draw on", Path::new(TERMINAL))
    }

    /// Returns the numbers of columns and rows; zero if unknown.
    pub fn size(&self) -> Size {
        self.terminal.size().unwrap_or_default()
    }

    /// Returns the keys that were pressed since the last call; `None` if the terminal was closed.
    pub fn keys(&mut self) -> Result<Option<Vec<Key>>> {
        let stdin = io::stdin();
        let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
        let _ = rustix::event::poll(&mut fds, Some(&Timespec::default()));
        let events = fds[0].revents();
        if events.intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL) {
            return Ok(None);
        }
        if !events.contains(PollFlags::IN) {
            return Ok(Some(Vec::new()));
        }
        let mut bytes = [0; BYTES];
        match rustix::io::read(&stdin, &mut bytes) {
            // The terminal was closed after the call of `poll`.
            Ok(0) | Err(Errno::IO) => Ok(None),
            Ok(length) => Ok(Some(self.keys.of(&bytes[..length]))),
            Err(Errno::INTR | Errno::AGAIN) => Ok(Some(Vec::new())),
            Err(errno) => Err(errno).context("read keys from", Path::new(TERMINAL)),
        }
    }

    /// Turns the terminal into a screen again after another program may have used the terminal.
    pub fn renew(&mut self) -> Result<()> {
        // crossterm does not set raw mode again while it believes that raw mode is on.
        let _ = terminal::disable_raw_mode();
        self.terminal = enter().context("draw on", Path::new(TERMINAL))?;
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        leave(&self.stderr);
    }
}

/// Starts drawing. Requests marks around pasted text, so that its letters are not taken for keys.
fn enter() -> io::Result<Terminal<CrosstermBackend<BufWriter<Stdout>>>> {
    terminal::enable_raw_mode()?;
    execute!(
        io::stdout(),
        terminal::EnterAlternateScreen,
        terminal::Clear(terminal::ClearType::All),
        EnableBracketedPaste,
        cursor::Hide
    )?;
    Terminal::new(CrosstermBackend::new(BufWriter::new(io::stdout())))
}

/// Restores the terminal and stderr, so that later errors are visible. Errors are ignored, because
/// they mean that the terminal was closed.
fn leave(stderr: &Option<OwnedFd>) {
    let _ = execute!(
        io::stdout(),
        DisableBracketedPaste,
        style::ResetColor,
        terminal::LeaveAlternateScreen,
        cursor::Show
    );
    let _ = io::stdout().flush();
    let _ = terminal::disable_raw_mode();
    if let Some(stderr) = stderr {
        let _ = rustix::stdio::dup2_stderr(stderr);
    }
}

/// Redirects stderr to /dev/null if stderr is a terminal. Returns the original stderr.
fn silence_stderr() -> Option<OwnedFd> {
    if !io::stderr().is_terminal() {
        return None;
    }
    let stderr = rustix::io::fcntl_dupfd_cloexec(io::stderr(), 3).ok()?;
    let null = File::options().write(true).open("/dev/null").ok()?;
    rustix::stdio::dup2_stderr(&null).ok()?;
    Some(stderr)
}
