//! `tick --follow`: it steps what arrives or is due at once and sleeps in between. It may be killed at any
//! moment, and may run beside cron and beside another `tick --follow`.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::harness::{Sandbox, dormouse};
use crate::setup::{Beside, add, eventually, failure, field, lives, own_name, say, started, wait_for};

fn kill(child: &Beside, signal: Signal) {
    kill_process(Pid::from_raw(child.0.id() as i32).unwrap(), signal).unwrap();
}

/// A follower, once it has looked at everything and waits.
fn following(sandbox: &Sandbox, args: &[&str]) -> Beside {
    let socket = sandbox.home().join("manager");
    let _ = fs::remove_file(&socket);
    let manager = UnixDatagram::bind(&socket).unwrap();
    let mut all = vec!["tick", "--follow"];
    all.extend(args);
    let child = Beside::start(sandbox.cmd(all).env("NOTIFY_SOCKET", &socket));
    assert_eq!(heard(&manager), "READY=1");
    child
}

fn heard(manager: &UnixDatagram) -> String {
    let mut buffer = [0; 256];
    manager.set_read_timeout(Some(Duration::from_secs(300))).unwrap();
    let length = manager.recv(&mut buffer).unwrap();
    String::from_utf8(buffer[..length].to_vec()).unwrap()
}

#[track_caller]
fn eventually_pending(sandbox: &Sandbox, agent: &str, turns: usize) {
    eventually(&format!("{turns} turns of {agent}"), || {
        let runs = sandbox.json_lines(["run", "list", "-a", agent, "--limit", "0"]);
        let settled = runs.iter().filter(|run| run["ended_at"].is_string());
        let rests = sandbox.run(["get", agent, "status"]) == "asleep\n";
        (settled.count() == turns && rests).then_some(())
    });
}

/// Waits until it makes no step: one that runs writes where its agent was.
fn makes_no_step(follower: &Beside) {
    let children = format!("/proc/{0}/task/{0}/children", follower.0.id());
    eventually("it makes no step", || fs::read_to_string(&children).unwrap().trim().is_empty().then_some(()));
}

/// How often a process was put to sleep and woken.
fn switches(pid: u32) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    status.lines().filter(|line| line.contains("ctxt_switches")).collect()
}

#[test]
fn what_arrives_and_what_is_due_is_stepped_and_then_nothing_happens() {
    let sandbox = started("echo \"turn of $DORMOUSE_AGENT\"").with_real_clock();
    add(&sandbox, "bob", "echo bob");
    let follower = following(&sandbox, &["--all"]);
    say(&sandbox, "hello");
    eventually_pending(&sandbox, "ada", 1);
    sandbox.run(["timer", "add", "-a", "bob", "--in", "50ms", "due"]);
    eventually_pending(&sandbox, "bob", 1);
    // A file that somebody writes in place is taken in once it is whole.
    let inbox = sandbox.agent("ada").join("inbox");
    let mut file = fs::File::create(inbox.join("dropped.json")).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    std::io::Write::write_all(&mut file, b"{\"text\": \"dropped\", \"origin\": \"channel:x\"}").unwrap();
    drop(file);
    eventually_pending(&sandbox, "ada", 2);
    // At rest it sleeps, and is not woken.
    let pid = follower.0.id();
    let is_still = || {
        let before = switches(pid);
        std::thread::sleep(Duration::from_millis(300));
        (switches(pid) == before).then_some(())
    };
    eventually("it sleeps", is_still);
    assert!(is_still().is_some(), "it is woken although nothing happens");
    kill(&follower, Signal::TERM);
    let ran = follower.end();
    let expected = "ada  start_model_turn (a message from you) → completed: turn of ada\n\
        bob  start_model_turn (a timer) → completed: bob\n\
        ada  start_model_turn (a message from a channel) → completed: turn of ada\n";
    assert_eq!((ran.code(), ran.stdout.as_str(), ran.stderr.as_str()), (0, expected, ""), "{ran}");
    sandbox.run(["doctor"]);
}

#[test]
fn agents_come_and_go_and_directories_are_exchanged() {
    let sandbox = started("true").with_real_clock();
    let follower = following(&sandbox, &["--all", "--jobs", "2"]);
    add(&sandbox, "bob", "true");
    sandbox.run(["enqueue", "bob", "x"]);
    eventually_pending(&sandbox, "bob", 1);
    // The inbox is another one, as after a step with a long backlog.
    let inbox = sandbox.agent("bob").join("inbox");
    fs::rename(&inbox, sandbox.home().join("former")).unwrap();
    fs::create_dir(&inbox).unwrap();
    sandbox.run(["enqueue", "bob", "y"]);
    eventually_pending(&sandbox, "bob", 2);
    // The agent is another one, put back from a backup.
    let kept = sandbox.home().join("kept");
    makes_no_step(&follower);
    fs::rename(sandbox.agent("bob"), &kept).unwrap();
    say(&sandbox, "meanwhile");
    eventually_pending(&sandbox, "ada", 1);
    fs::rename(&kept, sandbox.agent("bob")).unwrap();
    sandbox.run(["enqueue", "bob", "z"]);
    eventually_pending(&sandbox, "bob", 3);
    // The whole state directory is.
    let away = sandbox.home().join("away");
    makes_no_step(&follower);
    kill(&follower, Signal::STOP);
    fs::rename(sandbox.store(), &away).unwrap();
    crate::harness::copy_tree(&sandbox.home().join("away"), &{
        fs::create_dir(sandbox.store()).unwrap();
        sandbox.store()
    });
    kill(&follower, Signal::CONT);
    say(&sandbox, "there");
    eventually_pending(&sandbox, "ada", 2);
    makes_no_step(&follower);
    fs::remove_dir_all(sandbox.store()).unwrap();
    let ran = follower.end().exits(3);
    assert!(ran.stderr.contains("not a state directory"), "{ran}");
}

#[test]
fn the_first_signal_lets_turns_end_and_the_second_ends_them() {
    let turn = "touch \"$HOME/begun\"; until test -e \"$HOME/go\"; do sleep 0.02; done; echo done";
    let sandbox = started(turn).with_real_clock();
    let follower = following(&sandbox, &["ada"]);
    say(&sandbox, "one");
    wait_for(&sandbox.home().join("begun"));
    kill(&follower, Signal::HUP);
    kill(&follower, Signal::TERM);
    say(&sandbox, "two");
    std::thread::sleep(Duration::from_millis(100));
    assert!(lives(follower.0.id()), "it has not waited for its turn");
    fs::write(sandbox.home().join("go"), "").unwrap();
    let ran = follower.end().exits(0);
    assert!(ran.stdout.ends_with("→ completed: done\n") && ran.stderr.contains("a second signal"), "{ran}");
    assert_eq!(sandbox.json_lines(["queue", "list", "-a", "ada"]).len(), 1, "it has begun another turn");
    for file in ["go", "begun"] {
        fs::remove_file(sandbox.home().join(file)).unwrap();
    }
    let follower = following(&sandbox, &["ada"]);
    wait_for(&sandbox.home().join("begun"));
    kill(&follower, Signal::INT);
    std::thread::sleep(Duration::from_millis(100));
    kill(&follower, Signal::INT);
    let ran = follower.end().exits(7);
    assert_eq!(sandbox.json_lines(["queue", "list", "-a", "ada"])[0]["attempt"], 1, "{ran}");
}

#[test]
fn a_service_manager_hears_of_it_and_turns_do_not() {
    let sandbox = started("echo \"${NOTIFY_SOCKET-unset} ${WATCHDOG_USEC-unset}\"").with_real_clock();
    let socket = sandbox.home().join("manager");
    let manager = UnixDatagram::bind(&socket).unwrap();
    let cmd = sandbox.cmd(["tick", "--follow", "--all"]);
    let follower = Beside::start(cmd.env("NOTIFY_SOCKET", &socket).env("WATCHDOG_USEC", "100000"));
    let mut seen = Vec::new();
    let mut until = |wanted: &str| {
        while !seen.iter().any(|line: &String| line.starts_with(wanted)) {
            seen.push(heard(&manager));
        }
        seen.clear();
    };
    until("READY=1");
    until("WATCHDOG=1");
    until("WATCHDOG=1");
    kill(&follower, Signal::HUP);
    until("RELOADING=1\nMONOTONIC_USEC=");
    until("READY=1");
    say(&sandbox, "x");
    eventually_pending(&sandbox, "ada", 1);
    kill(&follower, Signal::TERM);
    until("STOPPING=1");
    let ran = follower.end();
    assert!(ran.code() == 0 && ran.stdout.contains("completed: unset unset"), "{ran}");
}

#[test]
fn several_beside_cron_and_kills_at_any_moment_do_each_turn_once() {
    let sandbox = started("echo \"$DORMOUSE_MESSAGE\" >> \"$HOME/turns\"").with_real_clock();
    let mut followers: Vec<Beside> =
        (0..2).map(|_| Beside::start(sandbox.cmd(["tick", "--follow", "ada"]))).collect();
    for number in 0..20 {
        say(&sandbox, &format!("message {number}"));
        if number % 5 == 2 {
            sandbox.cmd(["tick", "--all"]).output();
        }
        if number % 6 == 5 {
            kill(&followers.remove(0), Signal::KILL);
            followers.push(Beside::start(sandbox.cmd(["tick", "--follow", "--all"])));
        }
    }
    eventually("all are done", || {
        (field(&sandbox, "queue.pending") == "0" && field(&sandbox, "status") == "asleep").then_some(())
    });
    let text = fs::read_to_string(sandbox.home().join("turns")).unwrap();
    let turns: std::collections::BTreeSet<&str> = text.lines().collect();
    assert_eq!(turns.len(), 20, "a message was lost");
    let runs = sandbox.json_lines(["run", "list", "-a", "ada", "--limit", "0"]);
    let completed = runs.iter().filter(|run| run["terminal"] == "completed").count();
    // What ran twice was interrupted by a kill before.
    assert!(completed == 20 && text.lines().count() <= runs.len(), "{text}\n{runs:#?}");
    sandbox.run(["doctor"]);
}

#[test]
fn a_tick_that_was_killed_beside_it_is_found() {
    let turn = "test -e \"$HOME/begun\" && exit; touch \"$HOME/begun\"; exec sleep 1000";
    let sandbox = started(turn).with_real_clock();
    say(&sandbox, "x");
    let tick = Beside::start(sandbox.cmd(["tick", "ada"])).after_it_made(sandbox.home().join("begun"));
    let _follower = following(&sandbox, &["ada"]);
    kill(&tick, Signal::KILL);
    eventually("the message is done", || (field(&sandbox, "queue.pending") == "0").then_some(()));
}

/// A follower of all agents under strace, and its own number.
fn traced(sandbox: &Sandbox, args: &[&str]) -> (Beside, Pid) {
    let mut words: Vec<std::ffi::OsString> = ["-qq"].iter().chain(args).map(Into::into).collect();
    words.push(dormouse().into());
    words.extend(["tick", "--follow", "--all"].map(Into::into));
    let follower = Beside::spawn(sandbox.program("strace", words).into_command());
    let child = eventually("it runs", || {
        let children = format!("/proc/{0}/task/{0}/children", follower.0.id());
        let children = fs::read_to_string(children).ok()?;
        // strace has children of its own, which try what the kernel can do.
        let is_ours = |pid: &&str| {
            fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "dormouse\n")
        };
        Pid::from_raw(children.split_whitespace().find(is_ours)?.parse().ok()?)
    });
    (follower, child)
}

#[test]
fn without_watches_it_says_so_and_looks_now_and_then() {
    needs!("strace");
    let sandbox = started("echo seen").with_real_clock();
    let no_watches =
        ["-o", "/dev/null", "-e", "trace=inotify_add_watch", "-e", "inject=inotify_add_watch:error=ENOSPC"];
    let (follower, child) = traced(&sandbox, &no_watches);
    say(&sandbox, "x");
    eventually_pending(&sandbox, "ada", 1);
    kill_process(child, Signal::TERM).unwrap();
    let ran = follower.end();
    assert!(ran.code() == 0 && ran.stderr.contains("fs.inotify.max_user_watches"), "{ran}");
}

/// So a kill of it, at whatever moment, leaves what it found: the steps are other processes, the very ones that cron starts.
#[test]
fn it_writes_nothing_and_keeps_no_lock() {
    needs!("strace");
    let sandbox = started("echo seen").with_real_clock();
    let trace = sandbox.home().join("trace");
    let calls = "trace=/open.*,flock,/rename.*,/.*link.*,/mkdir.*,/.*sync.*,/.*truncate,fallocate,/fchmod.*,/fchown.*,pwrite64";
    let (follower, child) = traced(&sandbox, &["-o", trace.to_str().unwrap(), "-e", calls]);
    for turns in 1..4 {
        say(&sandbox, "x");
        eventually_pending(&sandbox, "ada", turns);
    }
    kill_process(child, Signal::TERM).unwrap();
    assert_eq!(follower.end().code(), 0);
    let text = fs::read_to_string(&trace).unwrap();
    let calls: Vec<&str> =
        text.lines().filter(|line| !line.starts_with("---") && !line.starts_with("+++")).collect();
    assert!(calls.len() > 20, "{text}");
    // A look whether a turn runs is one at its lock, which no other look keeps out and which waits for nothing.
    let only_looks = |call: &&str| {
        let opens = call.starts_with("open")
            && !["O_WRONLY", "O_RDWR", "O_CREAT"].iter().any(|way| call.contains(way));
        opens || call.starts_with("readlink") || call.contains("LOCK_SH|LOCK_NB") || call.contains("LOCK_UN")
    };
    let others: Vec<&str> = calls.into_iter().filter(|call| !only_looks(call)).collect();
    assert_eq!(others, Vec::<&str>::new());
}

/// The kernel keeps so many events and drops those that come after: then anything may have changed.
#[test]
fn more_changes_than_the_kernel_keeps_hide_none() {
    let sandbox = started("echo ada").with_real_clock();
    add(&sandbox, "bob", "echo bob");
    let follower = following(&sandbox, &["--all"]);
    makes_no_step(&follower);
    kill(&follower, Signal::STOP);
    let kept = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
    let inbox = sandbox.agent("bob").join("inbox");
    for number in 0..=kept.trim().parse::<u32>().unwrap() / 2 {
        // Two events: it is there, and it is whole.
        fs::write(inbox.join(format!(".{number}")), "").unwrap();
        fs::remove_file(inbox.join(format!(".{number}"))).unwrap();
    }
    say(&sandbox, "unheard");
    add(&sandbox, "cyd", "echo cyd");
    sandbox.run(["enqueue", "cyd", "unheard"]);
    kill(&follower, Signal::CONT);
    eventually_pending(&sandbox, "ada", 1);
    eventually_pending(&sandbox, "cyd", 1);
}

#[test]
fn orphans_that_it_is_given_are_reaped() {
    let sandbox =
        started(&format!("{} task start -q --no-notify -- true >/dev/null", own_name())).with_real_clock();
    let mut cmd = sandbox.cmd(["tick", "--follow", "--all"]).into_command();
    // As the first process of a container.
    // SAFETY: the closure runs between fork and exec and makes one system call.
    unsafe {
        cmd.pre_exec(|| {
            libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1);
            Ok(())
        })
    };
    let follower = Beside::spawn(cmd);
    say(&sandbox, "x");
    eventually("the task has ended", || {
        (!sandbox.json_lines(["task", "list", "-a", "ada", "--ended"]).is_empty()).then_some(())
    });
    let children = format!("/proc/{0}/task/{0}/children", follower.0.id());
    eventually("no zombie is left", || {
        let children = fs::read_to_string(&children).unwrap();
        children.split_whitespace().all(lives).then_some(())
    });
}

#[test]
fn one_that_is_damaged_keeps_no_other_from_its_turn() {
    let sandbox = started("echo ada").with_real_clock();
    add(&sandbox, "bob", "echo bob");
    let state = sandbox.agent("bob").join("state.json");
    let whole = fs::read(&state).unwrap();
    fs::write(&state, "{").unwrap();
    let follower = following(&sandbox, &["--all"]);
    say(&sandbox, "x");
    eventually_pending(&sandbox, "ada", 1);
    fs::write(&state, whole).unwrap();
    sandbox.run(["enqueue", "bob", "x"]);
    eventually_pending(&sandbox, "bob", 1);
    kill(&follower, Signal::TERM);
    follower.end().exits(0);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let sandbox = started("true");
    for (args, status) in [
        (&["tick", "--follow", "ada", "--until-idle"][..], 2),
        (&["tick", "--follow", "ada", "--until-idle", "--max-steps", "3"], 2),
        (&["tick", "--follow", "ada", "--dry-run"], 2),
        (&["tick", "--follow", "ada", "--exit-code"], 2),
        (&["tick", "--follow"], 2),
        // The time stands still here.
        (&["tick", "--follow", "ada"], 2),
    ] {
        assert_eq!(sandbox.cmd(args.iter().copied()).output().code(), status, "{args:?}");
    }
    let sandbox = sandbox.with_real_clock();
    assert_eq!(sandbox.cmd(["tick", "--follow", "nobody"]).output().code(), 3);
    add(&sandbox, "bob", &format!("{} tick --follow --all --json >\"$HOME/said\"; true", own_name()));
    sandbox.run(["enqueue", "bob", "x"]);
    sandbox.run(["tick", "bob"]);
    let said = fs::read_to_string(Path::new(&sandbox.home()).join("said")).unwrap();
    let said: Value = serde_json::from_str(said.trim()).unwrap();
    assert_eq!(said["error"]["exit_status"], 4, "{said}");
    let ran = sandbox.cmd(["tick", "--follow", "nobody", "--json"]).output();
    assert_eq!(failure(&ran)["kind"], "no_agent", "{ran}");
}
