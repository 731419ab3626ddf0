//! Output streams of a command: results on stdout, messages to the user on stderr.

use std::cell::{Cell, RefCell};
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::sync::{Mutex, PoisonError};

use rustix::event::{PollFd, PollFlags, Timespec};
use serde::Serialize;
use serde_json::{Value, json};

use crate::error::{Error, Status};
use crate::model::id::short_ids;

use super::progress::{Unit, WorkProgress, without_bar};
use super::text::{Characters, escape, escape_indented, escape_line, escape_painted, paint, present};

/// Writes a message to stderr in one call, so that it stays whole. A terminal shows short ids.
pub fn talk(text: &str) {
    let text = &if io::stderr().is_terminal() { short_ids(text) } else { text.to_owned() };
    print_stderr(&format!("dormouse: {}\n", escape_indented(text)));
}

/// Callback that receives a stream in chunks.
pub type OutputListener = Box<dyn FnMut(&[u8])>;

/// Returns a listener that writes the output of another program to stderr, escaped.
pub fn listener() -> OutputListener {
    let mut characters = Characters::default();
    Box::new(move |said| print_stderr(&escape(&characters.take(said, false))))
}

/// Last text that this process has written to stderr.
static SAID: Mutex<String> = Mutex::new(String::new());

/// Maximum size of [`SAID`] in bytes, more than a turn's last line of output (4 KiB).
const KEPT: usize = 8 << 10;

fn keep(text: &str) {
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    said.push_str(text);
    let end = said.ceil_char_boundary(said.len().saturating_sub(KEPT));
    said.drain(..end);
}

/// Returns `Some` if stdout is the terminal to which `text` was last written through stderr:
/// `Some(true)` if a line end followed.
fn is_last_output(text: &str) -> Option<bool> {
    let (stdout, stderr) = (io::stdout(), io::stderr());
    let device = |stream| rustix::fs::fstat(stream).ok().map(|found| found.st_rdev);
    let is_one =
        stdout.is_terminal() && stderr.is_terminal() && device(stdout.as_fd()) == device(stderr.as_fd());
    let said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    let before = said.trim_end().strip_suffix(text.trim_end()).filter(|_| is_one)?;
    (before.is_empty() || before.ends_with('\n')).then(|| said.ends_with('\n'))
}

/// Copies the stderr of another dormouse process to stderr.
pub fn relay(said: &[u8]) {
    let _ = without_bar(said.ends_with(b"\n"), || io::stderr().write_all(said));
}

/// Writes to stderr. An error is ignored, because it must not change the command's exit status.
fn print_stderr(text: &str) {
    if !text.is_empty() {
        keep(text);
        let _ = without_bar(text.ends_with('\n'), || io::stderr().write_all(text.as_bytes()));
    }
}

/// Meaning of a colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    Good,
    Bad,
    Quiet,
    Strong,
}

/// Output settings of a command.
#[derive(Debug, Clone, Copy)]
pub struct Style {
    pub json: bool,
    pub quiet: bool,
    pub verbose: bool,
    /// Use of colours; `None` for colours on a terminal only.
    pub color: Option<bool>,
}

/// Number of bytes of results that are collected before they are written.
const BUFFER: usize = 8 << 10;

/// Output streams of one command. A reader that closes its pipe early is no error.
pub struct Output {
    style: Style,
    /// Results that are not written yet.
    buffer: RefCell<Vec<u8>>,
    to_terminal: bool,
    colored: bool,
    failure: RefCell<Option<io::Error>>,
    /// Errors of this command as lines of JSON, written after the results, the most severe last.
    errors: RefCell<Vec<(Status, Vec<u8>)>>,
    /// True if the command runs until it is stopped, so that errors are written immediately.
    is_endless: Cell<bool>,
    /// Agent of the next results, if the command has results about several agents.
    about: RefCell<Option<String>>,
}

impl Output {
    pub fn new(style: Style) -> Output {
        let to_terminal = io::stdout().is_terminal();
        let wants_none = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Output {
            style,
            buffer: RefCell::new(Vec::with_capacity(BUFFER)),
            to_terminal,
            colored: style.color.unwrap_or(to_terminal && !wants_none),
            failure: RefCell::default(),
            errors: RefCell::default(),
            is_endless: Cell::default(),
            about: RefCell::default(),
        }
    }

    /// Sets the agent of the following results.
    pub fn is_about(&self, agent: Option<String>) {
        self.about.replace(agent);
    }

    pub fn is_json(&self) -> bool {
        self.style.json
    }

    pub fn is_quiet(&self) -> bool {
        self.style.quiet
    }

    pub fn is_verbose(&self) -> bool {
        self.style.verbose
    }

    pub fn is_colored(&self) -> bool {
        self.colored
    }

    pub fn is_on_terminal(&self) -> bool {
        self.to_terminal
    }

    /// Width of the terminal on stdout, in columns; `None` if stdout is no terminal.
    pub fn width(&self) -> Option<usize> {
        let size = rustix::termios::tcgetwinsize(io::stdout()).ok().filter(|_| self.to_terminal)?;
        Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
    }

    /// Creates a progress bar, which a terminal shows after half a second. `of`: amount of work.
    pub fn progress(&self, unit: Unit, of: Option<u64>) -> WorkProgress {
        WorkProgress::new(unit, of, self.style.quiet)
    }

    /// Writes a message with `--verbose` only.
    pub fn detail(&self, text: &str) {
        if self.style.verbose {
            talk(text);
        }
    }

    /// Writes one result: a JSON object for scripts, or lines of text for people. A terminal shows
    /// short ids; a pipe gets whole ones, because a script may compare them.
    pub fn result(&self, object: &impl Serialize, text: impl FnOnce(&Output) -> String) {
        self.quote(object, |out| if out.to_terminal { short_ids(&text(out)) } else { text(out) });
    }

    /// Writes one result as [`Output::result`] does, but leaves the ids in its text as they are.
    pub fn quote(&self, object: &impl Serialize, text: impl FnOnce(&Output) -> String) {
        let about = self.about.borrow().clone();
        match (self.style.json, about) {
            (true, None) => self.json_line(object),
            (true, Some(agent)) => {
                let mut object = json!(object);
                if let Value::Object(fields) = &mut object {
                    fields.entry("agent").or_insert_with(|| json!(agent));
                }
                self.json_line(&object);
            }
            (false, about) => {
                let agent = about.map(|agent| format!("{}  ", self.paint(Tone::Strong, &agent)));
                let text = format!("{}{}", agent.unwrap_or_default(), text(self));
                self.line(&text);
            }
        }
    }

    /// Writes one line of JSON with or without `--json`, for results that are always JSON.
    pub fn json_line(&self, object: &impl Serialize) {
        let line = serde_json::to_vec(object).unwrap_or_default();
        self.raw(&line);
        self.raw(b"\n");
    }

    /// Writes lines of text, escaped. All results as text are written by this function.
    pub fn line(&self, text: &str) {
        if self.colored {
            self.raw(escape_painted(text).as_bytes());
        } else {
            self.raw(escape(text).as_bytes());
        }
        if !text.ends_with('\n') {
            self.raw(b"\n");
        }
    }

    /// Writes a line, unless the terminal already shows it as the last output on stderr.
    pub fn line_unless_said(&self, text: &str) {
        match is_last_output(text) {
            None => self.line(text),
            Some(true) => {}
            Some(false) => self.raw(b"\n"),
        }
    }

    /// Writes later errors immediately, for a command that runs until it is stopped.
    pub fn report_errors_at_once(&self) {
        self.is_endless.set(true);
    }

    /// Writes the collected errors, the most severe as the last line of stdout.
    pub fn errors(&self) {
        let mut errors = self.errors.take();
        let gravest = errors.iter().fold(Status::Done, |status, (other, _)| status.graver(*other));
        if let Some(at) = errors.iter().position(|(status, _)| *status == gravest) {
            let last = errors.remove(at);
            errors.push(last);
        }
        for (_, line) in errors {
            self.raw(&line);
        }
    }

    fn add_error(&self, status: Status, line: Vec<u8>) {
        self.errors.borrow_mut().push((status, line));
        if self.is_endless.get() {
            self.errors();
        }
    }

    /// Writes the output of another process. A final JSON error counts as this command's error.
    pub fn results(&self, lines: &[u8], status: Status) {
        let begins = lines.trim_ascii_end().iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let (results, last) = lines.split_at(begins);
        if self.style.json && last.starts_with(b"{\"error\":") {
            self.raw(results);
            self.add_error(status, last.to_vec());
        } else {
            self.raw(lines);
        }
    }

    /// Writes bytes unchanged.
    pub fn raw(&self, bytes: &[u8]) {
        if self.buffer.borrow().len() + bytes.len() > BUFFER {
            self.flush();
        }
        self.buffer.borrow_mut().extend_from_slice(bytes);
    }

    /// Flushes the buffer, so that a reader gets all results.
    pub fn flush(&self) {
        let mut buffer = self.buffer.borrow_mut();
        if !self.is_closed() && !buffer.is_empty() {
            let mut stdout = io::stdout();
            let write = || stdout.write_all(&buffer).and_then(|()| stdout.flush());
            self.failure.replace(without_bar(true, write).err());
        }
        buffer.clear();
    }

    /// True if stdout is not the null device.
    pub fn is_read(&self) -> bool {
        let null = std::fs::metadata("/dev/null").map(|null| null.rdev());
        let stdout = rustix::fs::fstat(io::stdout()).map(|stdout| stdout.st_rdev);
        !matches!((null, stdout), (Ok(null), Ok(stdout)) if null == stdout)
    }

    /// True if a write to stdout has failed, for example because the reader closed the pipe.
    pub fn is_closed(&self) -> bool {
        self.failure.borrow().is_some()
    }

    /// Polls stdout, for a command that writes rarely. Returns false if no reader has it open.
    pub fn has_reader(&self) -> bool {
        let stdout = io::stdout();
        let mut asked = [PollFd::new(&stdout, PollFlags::empty())];
        let is_answered =
            rustix::event::poll(&mut asked, Some(&Timespec::default())).is_ok_and(|count| count > 0);
        let is_broken = is_answered && asked[0].revents().contains(PollFlags::ERR);
        !(self.is_closed() || is_broken)
    }

    /// Escapes text from outside, so that it can neither end its line nor change the colour.
    pub fn safe(&self, text: &str) -> String {
        escape_line(text).into_owned()
    }

    /// Escapes text from outside that has several lines, and indents all lines but the first.
    pub fn indented(&self, text: &str) -> String {
        escape_indented(text)
    }

    /// Escapes text from outside that is last in the output, so that its line breaks can be kept.
    pub fn whole(&self, text: &str) -> String {
        escape(text).into_owned()
    }

    /// Writes a part of a program's log, escaped on a terminal. `ended`: true for the last part.
    pub fn log(&self, bytes: &[u8], text: &mut Characters, ended: bool) {
        if self.to_terminal {
            let text = text.take(bytes, ended);
            self.raw(escape(&text).as_bytes());
        } else {
            self.raw(bytes);
        }
    }

    pub fn paint(&self, tone: impl Into<Option<Tone>>, text: &str) -> String {
        tone.into().map_or_else(|| text.to_owned(), |tone| paint(self.colored, tone, text))
    }

    /// Writes a message, except with `--quiet`.
    pub fn note(&self, text: &str) {
        if !self.style.quiet {
            talk(text);
        }
    }

    /// Writes a message, even with `--quiet`.
    pub fn alarm(&self, text: &str) {
        talk(text);
    }

    /// Reports an error: as text on stderr, and with --json also as an object on stdout. `of`: the
    /// failed agent, if there are several. `agent`: the object's agent, if `error` has none.
    pub fn failure(&self, error: &Error, of: Option<&str>, agent: Option<&str>) {
        let about = of
            .filter(|agent| error.agent() != Some(agent))
            .map(|agent| format!("{agent}: "))
            .unwrap_or_default();
        talk(&format!("{about}{error}"));
        let hint = error.hint();
        if let Some(hint) = &hint {
            print_stderr(&format!("hint: {}\n", escape_indented(hint)));
        }
        if self.style.json {
            let mut line = failure(error, agent).to_string().into_bytes();
            line.push(b'\n');
            self.add_error(error.exit_status(), line);
        }
    }

    /// Writes the rest. Returns a graver status if stdout failed, but not for a closed pipe.
    pub fn finish(self, status: Status) -> Status {
        self.errors();
        self.flush();
        match self.failure.into_inner() {
            None => status,
            Some(error) if error.kind() == io::ErrorKind::BrokenPipe => status,
            Some(error) => {
                talk(&format!("can't write to stdout: {error}"));
                status.graver(Status::Failed)
            }
        }
    }
}

/// Returns an error as a JSON object. `agent`: agent of the object, unless the error has one.
pub fn failure(error: &Error, agent: Option<&str>) -> Value {
    let (line, column) = error.place().unzip();
    let (from, to) = error.edge().unzip();
    let object = json!({
        "kind": error.kind(),
        "message": error.to_string(),
        "hint": error.hint(),
        "path": error.path().map(|path| path.to_string_lossy()),
        "line": line,
        "column": column.filter(|column| *column > 0),
        "agent": error.agent().or(agent),
        "from": from,
        "to": to,
        "exit_status": error.exit_status().code(),
    });
    json!({ "error": present(object) })
}
