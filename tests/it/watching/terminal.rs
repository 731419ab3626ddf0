//! A pseudo-terminal on which a program draws, read as a terminal would show it.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Termios, Winsize, tcgetattr, tcsetwinsize};

use crate::harness::Sandbox;
use crate::setup::{Beside, eventually};

/// How long a picture is waited for at most. No machine is as slow as that.
const PATIENCE: Duration = Duration::from_secs(600);

/// How often is looked whether the program that is to draw has ended. Longer than a screen takes to be read.
const LOOK: Duration = Duration::from_secs(10);

/// What was drawn, and all that was written.
struct Drawn {
    parser: vt100::Parser,
    written: Vec<u8>,
}

pub struct Terminal {
    /// The first field, so that the program ends before its terminal is closed.
    child: Beside,
    /// Where keys are pressed. Nothing once the terminal was closed.
    ours: Option<File>,
    /// Ends the thread that reads.
    reads: Option<OwnedFd>,
    theirs: OwnedFd,
    before: Termios,
    drawn: Arc<(Mutex<Drawn>, Condvar)>,
}

impl Terminal {
    /// `watch` with these arguments, on a terminal of the usual size.
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

    /// Any program. A shell that runs a script finds the name of dormouse in `$0`.
    pub fn of_program(
        sandbox: &Sandbox,
        program: &str,
        args: &[&str],
        env: &[(&str, &str)],
        columns: u16,
        rows: u16,
    ) -> Terminal {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        let name = ptsname(&ours, Vec::new()).unwrap().into_string().unwrap();
        let theirs = OwnedFd::from(File::options().read(true).write(true).open(name).unwrap());
        tcsetwinsize(&theirs, size(columns, rows)).unwrap();
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
                // Whoever runs the tests in the background has them ignore some of these.
                for signal in [libc::SIGINT, libc::SIGHUP, libc::SIGTERM, libc::SIGTSTP] {
                    libc::signal(signal, libc::SIG_DFL);
                }
                // The terminal is that of a session of its own, so that it sends its signals.
                if libc::setsid() < 0 || libc::ioctl(0, libc::TIOCSCTTY, 0) < 0 {
                    return Err(std::io::Error::last_os_error());
                }
                Ok(())
            });
        }
        let child = Beside(command.spawn().unwrap());
        drop(command);
        let ours = File::from(ours);
        let drawn = Drawn { parser: vt100::Parser::new(rows, columns, 0), written: Vec::new() };
        let drawn = Arc::new((Mutex::new(drawn), Condvar::new()));
        let (stops, reads) = rustix::pipe::pipe().unwrap();
        let (from, to) = (ours.try_clone().unwrap(), drawn.clone());
        thread::spawn(move || read(from, stops, &to));
        Terminal { ours: Some(ours), reads: Some(reads), theirs, before, drawn, child }
    }

    /// Waits until the screen shows this, and returns all of it.
    #[track_caller]
    pub fn shows(&self, what: &str) -> String {
        self.becomes(what, |text| text.contains(what))
    }

    #[track_caller]
    pub fn becomes(&self, what: &str, is: impl Fn(&str) -> bool) -> String {
        let (drawn, changed) = &*self.drawn;
        let text = |drawn: &Drawn| drawn.parser.screen().contents();
        let begun = Instant::now();
        loop {
            let how = self.how_it_is();
            let waits = |drawn: &mut Drawn| !is(&text(drawn));
            let (drawn, waited) = changed.wait_timeout_while(drawn.lock().unwrap(), LOOK, waits).unwrap();
            let shown = text(&drawn);
            if !waited.timed_out() {
                return shown;
            }
            let written = String::from_utf8_lossy(&drawn.written).into_owned();
            drop(drawn);
            // What has ended draws nothing more.
            let is_over = how.starts_with("it has ended") || begun.elapsed() > PATIENCE;
            assert!(!is_over, "no {what} on the screen, and {how}:\n{shown}\nwritten: {written:?}");
        }
    }

    /// Whether the program lives, and what it does.
    fn how_it_is(&self) -> String {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        match waitid(WaitId::Pid(Pid::from_child(&self.child.0)), options).unwrap() {
            Some(end) => format!("it has ended: {end:?}"),
            None => std::fs::read_to_string(format!("/proc/{}/stat", self.child.0.id())).unwrap(),
        }
    }

    /// All that was written so far.
    pub fn written(&self) -> String {
        String::from_utf8_lossy(&self.drawn.0.lock().unwrap().written).into_owned()
    }

    pub fn press(&mut self, keys: &str) {
        self.ours.as_mut().unwrap().write_all(keys.as_bytes()).unwrap();
    }

    pub fn resize(&mut self, columns: u16, rows: u16) {
        let mut drawn = self.drawn.0.lock().unwrap();
        drawn.parser.screen_mut().set_size(rows, columns);
        tcsetwinsize(self.ours.as_ref().unwrap(), size(columns, rows)).unwrap();
    }

    /// As when the window is closed.
    pub fn close(&mut self) {
        self.reads = None;
        self.ours = None;
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child.0), signal).unwrap();
    }

    /// Sends a signal to the `watch` that a shell has started.
    pub fn signal_watch(&self, signal: Signal) {
        let children = format!("/proc/{0}/task/{0}/children", self.child.0.id());
        let child = std::fs::read_to_string(children).unwrap();
        kill_process(Pid::from_raw(child.trim().parse().unwrap()).unwrap(), signal).unwrap();
    }

    /// How often the program was put to sleep and woken.
    pub fn switches(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.0.id())).unwrap();
        let counts = status.lines().filter_map(|line| line.split_once("ctxt_switches:"));
        counts.map(|(_, count)| count.trim().parse::<u64>().unwrap()).sum()
    }

    /// Whether the terminal is as it was.
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

    /// Waits for the end, and for the terminal to be as it was. Returns the exit status.
    #[track_caller]
    pub fn ends(mut self) -> Option<i32> {
        let status = eventually("it ends", || self.child.0.try_wait().unwrap());
        if self.ours.is_some() {
            eventually("the terminal is put back", || self.is_put_back().then_some(()));
        }
        status.code()
    }
}

fn size(columns: u16, rows: u16) -> Winsize {
    Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}

/// Shows what is written, until the other end is closed or `stops` is.
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
