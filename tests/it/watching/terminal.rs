//! Provides a pseudo-terminal, and interprets the output of its program like a real terminal.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use rustix::termios::{Termios, Winsize, tcgetattr, tcsetwinsize};

use crate::harness::Sandbox;
use crate::setup::{Beside, eventually, pseudo_terminal};

/// Maximum time until an expected text must appear on the screen, even on a slow machine.
const PATIENCE: Duration = Duration::from_secs(600);

/// Time without the expected screen after which a test checks if the program has ended. Reading the
/// last output takes less time.
const LOOK: Duration = Duration::from_secs(10);

/// Screen of a terminal, and all bytes that were written to it.
struct Drawn {
    parser: vt100::Parser,
    written: Vec<u8>,
}

pub struct Terminal {
    /// Dropped first, so that the program ends before its terminal is closed.
    child: Beside,
    /// Master side of the terminal, which gets the keys. `None` after [`Terminal::close`].
    ours: Option<File>,
    /// Pipe that, when closed, stops the thread that reads the output.
    reads: Option<OwnedFd>,
    theirs: OwnedFd,
    before: Termios,
    drawn: Arc<(Mutex<Drawn>, Condvar)>,
}

impl Terminal {
    /// Starts `dormouse watch` with the given arguments, on a terminal of 80 columns and 24 rows.
    pub fn watch(sandbox: &Sandbox, args: &[&str]) -> Terminal {
        Terminal::of_size(sandbox, args, &[], 80, 24)
    }

    pub fn of_size(
        sandbox: &Sandbox,
        args: &[&str],
        env: &[(&str, &str)],
        columns: u16,
        rows: u16,
    ) -> Terminal {
        let args: Vec<&str> = ["watch"].iter().chain(args).copied().collect();
        let own = sandbox.dormouse();
        Terminal::of_program(sandbox, own.to_str().unwrap(), &args, env, columns, rows)
    }

    /// Starts a program on a terminal. A script of `bash` has the path of dormouse in `$0`.
    pub fn of_program(
        sandbox: &Sandbox,
        program: &str,
        args: &[&str],
        env: &[(&str, &str)],
        columns: u16,
        rows: u16,
    ) -> Terminal {
        let (ours, theirs) = pseudo_terminal(columns, rows);
        let before = tcgetattr(&theirs).unwrap();
        let mut args: Vec<std::ffi::OsString> = args.iter().map(Into::into).collect();
        if program == "bash" {
            args.push(sandbox.dormouse().into());
        }
        let mut cmd = sandbox.program(program, args).env("TERM", "xterm-256color");
        for (name, value) in env {
            cmd = cmd.env(name, value);
        }
        let mut command = cmd.into_command();
        let side = || theirs.try_clone().unwrap();
        command.stdin(side()).stdout(side()).stderr(side());
        // SAFETY: the closure runs between fork and exec and makes system calls alone.
        unsafe {
            command.pre_exec(|| {
                // The tests may have inherited ignored signals from a script that runs them in the
                // background.
                for signal in [libc::SIGINT, libc::SIGHUP, libc::SIGTERM, libc::SIGTSTP] {
                    libc::signal(signal, libc::SIG_DFL);
                }
                // A terminal sends signals only to the session that it controls.
                if libc::setsid() < 0 || libc::ioctl(0, libc::TIOCSCTTY, 0) < 0 {
                    return Err(std::io::Error::last_os_error());
                }
                Ok(())
            });
        }
        let child = Beside(command.spawn().unwrap());
        drop(command);
        let drawn = Drawn { parser: vt100::Parser::new(rows, columns, 0), written: Vec::new() };
        let drawn = Arc::new((Mutex::new(drawn), Condvar::new()));
        let (stops, reads) = rustix::pipe::pipe().unwrap();
        let (from, to) = (ours.try_clone().unwrap(), drawn.clone());
        thread::spawn(move || read(from, stops, &to));
        Terminal { ours: Some(ours), reads: Some(reads), theirs, before, drawn, child }
    }

    /// Waits until the screen contains a text. Returns the whole screen.
    #[track_caller]
    pub fn shows(&self, what: &str) -> String {
        self.becomes(what, |text| text.contains(what))
    }

    /// Waits until `is` accepts the screen, which failures call `what`. Returns the whole screen.
    #[track_caller]
    pub fn becomes(&self, what: &str, is: impl Fn(&str) -> bool) -> String {
        let (drawn, changed) = &*self.drawn;
        let text = |drawn: &Drawn| drawn.parser.screen().contents();
        let begun = Instant::now();
        loop {
            let state = self.state();
            let waits = |drawn: &mut Drawn| !is(&text(drawn));
            let (drawn, waited) = changed.wait_timeout_while(drawn.lock().unwrap(), LOOK, waits).unwrap();
            let shown = text(&drawn);
            if !waited.timed_out() {
                return shown;
            }
            let written = String::from_utf8_lossy(&drawn.written).into_owned();
            drop(drawn);
            // A program that has ended draws nothing more, so the wait ends.
            let is_over = state.starts_with("ended") || begun.elapsed() > PATIENCE;
            assert!(!is_over, "no {what} on the screen; program: {state}:\n{shown}\nwritten: {written:?}");
        }
    }

    /// Returns how the program has ended, or else the `stat` line of its process.
    fn state(&self) -> String {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        match waitid(WaitId::Pid(Pid::from_child(&self.child.0)), options).unwrap() {
            Some(end) => format!("ended: {end:?}"),
            None => std::fs::read_to_string(format!("/proc/{}/stat", self.child.0.id())).unwrap(),
        }
    }

    /// Returns all bytes that the program has written, as text.
    pub fn written(&self) -> String {
        String::from_utf8_lossy(&self.drawn.0.lock().unwrap().written).into_owned()
    }

    pub fn press(&mut self, keys: &str) {
        self.ours.as_mut().unwrap().write_all(keys.as_bytes()).unwrap();
    }

    /// Presses keys, and waits until the screen contains a text. Returns the whole screen.
    #[track_caller]
    pub fn press_until(&mut self, keys: &str, text: &str) -> String {
        self.press(keys);
        self.shows(text)
    }

    pub fn resize(&mut self, columns: u16, rows: u16) {
        let mut drawn = self.drawn.0.lock().unwrap();
        drawn.parser.screen_mut().set_size(rows, columns);
        tcsetwinsize(self.ours.as_ref().unwrap(), size(columns, rows)).unwrap();
    }

    /// Closes the terminal, as a user closes a window.
    pub fn close(&mut self) {
        self.reads = None;
        self.ours = None;
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child.0), signal).unwrap();
    }

    /// Returns the number of context switches of the program.
    pub fn switches(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.0.id())).unwrap();
        let counts = status.lines().filter_map(|line| line.split_once("ctxt_switches:"));
        counts.map(|(_, count)| count.trim().parse::<u64>().unwrap()).sum()
    }

    /// True if the terminal has the same modes as before the program, and shows the main screen.
    pub fn is_put_back(&self) -> bool {
        let after = tcgetattr(&self.theirs).unwrap();
        let drawn = self.drawn.0.lock().unwrap();
        let screen = drawn.parser.screen();
        let modes = |termios: &Termios| (termios.local_modes, termios.input_modes, termios.output_modes);
        modes(&after) == modes(&self.before)
            && !screen.alternate_screen()
            && !screen.hide_cursor()
            && !screen.bracketed_paste()
    }

    /// Presses the keys that end the program, and asserts that it exits with 0.
    #[track_caller]
    pub fn quits(mut self, keys: &str) {
        self.press(keys);
        assert_eq!(self.ends(), Some(0));
    }

    /// Waits until the program has ended and the terminal is as before. Returns the exit status.
    #[track_caller]
    pub fn ends(mut self) -> Option<i32> {
        let status = eventually("the end of the program", || self.child.0.try_wait().unwrap());
        if self.ours.is_some() {
            eventually("the terminal is put back", || self.is_put_back().then_some(()));
        }
        status.code()
    }
}

fn size(columns: u16, rows: u16) -> Winsize {
    Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}

/// Interprets the program's output until the terminal or the other end of `stops` is closed.
fn read(mut from: File, stops: OwnedFd, to: &(Mutex<Drawn>, Condvar)) {
    let mut buffer = [0; 4096];
    loop {
        let mut asked = [PollFd::new(&from, PollFlags::IN), PollFd::new(&stops, PollFlags::IN)];
        rustix::event::poll(&mut asked, None).unwrap();
        if !asked[1].revents().is_empty() {
            return;
        }
        let Ok(length @ 1..) = from.read(&mut buffer) else { return };
        let mut drawn = to.0.lock().unwrap();
        drawn.parser.process(&buffer[..length]);
        drawn.written.extend_from_slice(&buffer[..length]);
        to.1.notify_all();
    }
}
