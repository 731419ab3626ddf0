//! Stops a command at one of its system calls, while a test runs other commands.

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{Ran, Sandbox};
use crate::setup::eventually;
use crate::strace::{Call, own_line};

/// Command under strace that was stopped after a system call, or that has ended before the call.
pub struct Held {
    strace: Child,
}

/// Returns the first recorded call with this name whose arguments contain `part`.
#[track_caller]
pub fn call<'c>(calls: &'c [Call], name: &str, part: &str) -> &'c Call {
    let found = calls.iter().find(|call| call.act() == name && call.rest.contains(part));
    found.unwrap_or_else(|| panic!("no {name} of {part}"))
}

impl Held {
    pub fn at(sandbox: &Sandbox, args: &[&str], stdin: &str, call: &Call) -> Held {
        Held::inside(sandbox, &[], args, stdin, call)
    }

    /// Stops a command at a system call. `variables` (`NAME=VALUE`) can make it one of a turn.
    pub fn inside(sandbox: &Sandbox, variables: &[String], args: &[&str], stdin: &str, call: &Call) -> Held {
        Held::line(sandbox, variables, own_line(args), stdin, call)
    }

    /// Stops a program, which may start dormouse by `exec`, at a system call.
    pub fn line(
        sandbox: &Sandbox,
        variables: &[String],
        program: Vec<OsString>,
        stdin: &str,
        call: &Call,
    ) -> Held {
        let file = |name: &str| -> PathBuf { sandbox.root().join(name) };
        let (trace, inject) = (
            format!("trace={}", call.name),
            format!("inject={}:signal=SIGSTOP:when={}", call.name, call.nth),
        );
        let mut line: Vec<OsString> = ["-qq", "-e", &trace, "-e", &inject, "-o"].map(OsString::from).into();
        line.push(file("held.log").into());
        line.extend(variables.iter().flat_map(|variable| ["-E", variable.as_str()]).map(OsString::from));
        line.extend(program);
        let mut command = sandbox.program("strace", line).into_command();
        fs::write(file("held.in"), stdin).unwrap();
        command.stdin(fs::File::open(file("held.in")).unwrap()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut strace = command.spawn().unwrap();
        eventually("the command is stopped or has ended", || {
            let is_over = strace.try_wait().unwrap().is_some();
            let text = fs::read_to_string(file("held.log")).unwrap_or_default();
            (is_over || text.contains("stopped by SIGSTOP")).then_some(())
        });
        Held { strace }
    }

    /// Continues the command, and waits for its end.
    pub fn go_on(self) -> Ran {
        let children = format!("/proc/{pid}/task/{pid}/children", pid = self.strace.id());
        for pid in fs::read_to_string(children).unwrap_or_default().split_whitespace() {
            let _ = kill_process(Pid::from_raw(pid.parse().unwrap()).unwrap(), Signal::CONT);
        }
        self.strace.wait_with_output().unwrap().into()
    }
}
