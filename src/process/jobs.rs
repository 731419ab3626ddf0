//! `tick --jobs`: several agents at once, each in a process of its own.

use std::io::Read;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;

use crate::error::{Context, Result};

/// Runs this program with each of these command lines, at most `at_once` at a time. `done` gets
/// what each wrote to stdout, whole, and its exit status (`None`: ended by a signal), in the order
/// in which they end. What they say on stderr goes where ours goes.
pub fn run(
    commands: Vec<Vec<String>>,
    at_once: usize,
    mut done: impl FnMut(&[u8], Option<i32>),
) -> Result<()> {
    let program = std::env::current_exe().context("find", Path::new("this program"))?;
    let (sender, receiver) = std::sync::mpsc::channel();
    let mut waiting = commands.into_iter();
    let mut running = 0;
    loop {
        while running < at_once {
            let Some(arguments) = waiting.next() else { break };
            let mut child = Command::new(&program)
                .args(&arguments)
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .spawn()
                .context("run", &program)?;
            let stdout = child.stdout.take();
            let sender = sender.clone();
            thread::spawn(move || {
                // Nobody receives any more only when we are ending ourselves.
                let _ = sender.send(collect(child, stdout));
            });
            running += 1;
        }
        if running == 0 {
            return Ok(());
        }
        let Ok((lines, code)) = receiver.recv() else { return Ok(()) };
        running -= 1;
        done(&lines, code);
    }
}

fn collect(mut child: Child, stdout: Option<ChildStdout>) -> (Vec<u8>, Option<i32>) {
    let mut lines = Vec::new();
    if let Some(mut stdout) = stdout {
        // A child whose output can't be read still has an exit status, and that is what counts.
        let _ = stdout.read_to_end(&mut lines);
    }
    let code = child.wait().ok().and_then(|status| status.code());
    (lines, code)
}
