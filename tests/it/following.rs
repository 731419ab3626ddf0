//! Tests `tick --follow`, which steps agents as soon as something arrives or is due.
//!
//! A `tick --follow` (follower) may be killed at any moment, and may run beside cron and others.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{Sandbox, copy_tree, dormouse};
use crate::setup::{Beside, add, eventually, field, json_in, lives, own_name, say, started, wait_for, words};

fn kill(child: &Beside, signal: Signal) {
    kill_process(Pid::from_raw(child.0.id() as i32).unwrap(), signal).unwrap();
}

/// Starts a follower, and waits until it has stepped all agents and is ready.
fn following(sandbox: &Sandbox, args: &[&str]) -> Beside {
    let socket = sandbox.home().join("manager");
    let _ = fs::remove_file(&socket);
    let manager = UnixDatagram::bind(&socket).unwrap();
    let mut all = vec!["tick", "--follow"];
    all.extend(args);
    let child = Beside::start(sandbox.cmd(all).env("NOTIFY_SOCKET", &socket));
    assert_eq!(received(&manager), "READY=1");
    child
}

/// Returns the next notification to the service manager.
fn received(manager: &UnixDatagram) -> String {
    let mut buffer = [0; 256];
    manager.set_read_timeout(Some(Duration::from_secs(300))).unwrap();
    let length = manager.recv(&mut buffer).unwrap();
    String::from_utf8(buffer[..length].to_vec()).unwrap()
}

/// Waits until an agent has had this number of turns and rests.
#[track_caller]
fn until_turns(sandbox: &Sandbox, agent: &str, turns: usize) {
    eventually(&format!("{turns} turns of {agent}"), || {
        let runs = sandbox.json_lines(["run", "list", "-a", agent, "--limit", "0"]);
        let settled = runs.iter().filter(|run| run["ended_at"].is_string());
        let rests = sandbox.run(["get", agent, "status"]) == "asleep\n";
        (settled.count() == turns && rests).then_some(())
    });
}

/// Waits until `tick --follow` runs no step. A test may move an agent only then, because a step
/// would write to the former path.
fn until_no_step(follower: &Beside) {
    let children = format!("/proc/{0}/task/{0}/children", follower.0.id());
    eventually("no step", || fs::read_to_string(&children).unwrap().trim().is_empty().then_some(()));
}

/// Returns the counts of context switches of a process.
fn switches(pid: u32) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    status.lines().filter(|line| line.contains("ctxt_switches")).collect()
}

#[test]
fn a_follower_steps_agents_with_new_or_due_work_and_then_sleeps() {
    let sandbox = started("echo \"turn of $DORMOUSE_AGENT\"").with_real_clock();
    add(&sandbox, "bob", "echo bob");
    let follower = following(&sandbox, &["--all"]);
    say(&sandbox, "hello");
    until_turns(&sandbox, "ada", 1);
    sandbox.run(["timer", "add", "-a", "bob", "--in", "50ms", "due"]);
    until_turns(&sandbox, "bob", 1);
    // The follower takes a dropped file only after its writer has closed it.
    let inbox = sandbox.agent("ada").join("inbox");
    let mut file = fs::File::create(inbox.join("dropped.json")).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    std::io::Write::write_all(&mut file, b"{\"text\": \"dropped\", \"origin\": \"channel:x\"}").unwrap();
    drop(file);
    until_turns(&sandbox, "ada", 2);
    // While there is nothing to do, the follower sleeps and is not woken.
    let pid = follower.0.id();
    let is_still = || {
        let before = switches(pid);
        std::thread::sleep(Duration::from_millis(300));
        (switches(pid) == before).then_some(())
    };
    eventually("the follower sleeps", is_still);
    assert!(is_still().is_some(), "the follower is woken although nothing happens");
    kill(&follower, Signal::TERM);
    let ran = follower.end();
    let expected = "ada  start_model_turn (a message from you) → completed: turn of ada\n\
        bob  start_model_turn (a timer) → completed: bob\n\
        ada  start_model_turn (a message from a channel) → completed: turn of ada\n";
    assert_eq!((ran.code(), ran.stdout.as_str(), ran.stderr.as_str()), (0, expected, ""), "{ran}");
    sandbox.run(["doctor"]);
}

#[test]
fn a_follower_notices_new_agents_and_replaced_directories() {
    let sandbox = started("true").with_real_clock();
    let follower = following(&sandbox, &["--all", "--jobs", "2"]);
    add(&sandbox, "bob", "true");
    sandbox.run(["enqueue", "bob", "x"]);
    until_turns(&sandbox, "bob", 1);
    // A new inbox directory replaces the former one, as after a step with a long backlog.
    let inbox = sandbox.agent("bob").join("inbox");
    fs::rename(&inbox, sandbox.home().join("former")).unwrap();
    fs::create_dir(&inbox).unwrap();
    sandbox.run(["enqueue", "bob", "y"]);
    until_turns(&sandbox, "bob", 2);
    // The agent's directory is moved away and back, as when a backup is restored.
    let kept = sandbox.home().join("kept");
    until_no_step(&follower);
    fs::rename(sandbox.agent("bob"), &kept).unwrap();
    say(&sandbox, "meanwhile");
    until_turns(&sandbox, "ada", 1);
    fs::rename(&kept, sandbox.agent("bob")).unwrap();
    sandbox.run(["enqueue", "bob", "z"]);
    until_turns(&sandbox, "bob", 3);
    // A copy replaces the whole state directory.
    let away = sandbox.home().join("away");
    until_no_step(&follower);
    kill(&follower, Signal::STOP);
    fs::rename(sandbox.store(), &away).unwrap();
    fs::create_dir(sandbox.store()).unwrap();
    copy_tree(&away, &sandbox.store());
    kill(&follower, Signal::CONT);
    say(&sandbox, "there");
    until_turns(&sandbox, "ada", 2);
    until_no_step(&follower);
    fs::remove_dir_all(sandbox.store()).unwrap();
    follower.end().exits(3).warns("not a state directory");
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
    assert!(lives(follower.0.id()), "the follower has not waited for its turn");
    fs::write(sandbox.home().join("go"), "").unwrap();
    let ran = follower.end().exits(0).warns("a second signal");
    assert!(ran.stdout.ends_with("→ completed: done\n"), "{ran}");
    assert_eq!(sandbox.json_lines(["queue", "list", "-a", "ada"]).len(), 1, "another turn has begun");
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
fn a_service_manager_is_notified_and_turns_do_not_see_its_socket() {
    let sandbox = started("echo \"${NOTIFY_SOCKET-unset} ${WATCHDOG_USEC-unset}\"").with_real_clock();
    let socket = sandbox.home().join("manager");
    let manager = UnixDatagram::bind(&socket).unwrap();
    let cmd = sandbox.cmd(["tick", "--follow", "--all"]);
    let follower = Beside::start(cmd.env("NOTIFY_SOCKET", &socket).env("WATCHDOG_USEC", "100000"));
    let mut seen = Vec::new();
    let mut until = |wanted: &str| {
        while !seen.iter().any(|line: &String| line.starts_with(wanted)) {
            seen.push(received(&manager));
        }
        seen.clear();
    };
    until("READY=1");
    until("WATCHDOG=1");
    until("WATCHDOG=1");
    kill(&follower, Signal::HUP);
    until("WATCHDOG=1");
    say(&sandbox, "x");
    until_turns(&sandbox, "ada", 1);
    kill(&follower, Signal::TERM);
    follower.end().exits(0).shows("completed: unset unset");
}

#[test]
fn killed_followers_and_cron_ticks_complete_each_message_once() {
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
    eventually("all messages are settled", || {
        (field(&sandbox, "queue.pending") == "0" && field(&sandbox, "status") == "asleep").then_some(())
    });
    let text = fs::read_to_string(sandbox.home().join("turns")).unwrap();
    let turns: std::collections::BTreeSet<&str> = text.lines().collect();
    assert_eq!(turns.len(), 20, "a message was lost");
    let runs = sandbox.json_lines(["run", "list", "-a", "ada", "--limit", "0"]);
    let completed = runs.iter().filter(|run| run["terminal"] == "completed").count();
    // A kill may interrupt a turn, so a message may have two turns, but each turn has its own run.
    assert!(completed == 20 && text.lines().count() <= runs.len(), "{text}\n{runs:#?}");
    sandbox.run(["doctor"]);
}

#[test]
fn a_follower_recovers_the_run_of_another_tick_that_was_killed() {
    let turn = "test -e \"$HOME/begun\" && exit; touch \"$HOME/begun\"; exec sleep 1000";
    let sandbox = started(turn).with_real_clock();
    say(&sandbox, "x");
    let tick = Beside::start(sandbox.cmd(["tick", "ada"])).after_it_made(sandbox.home().join("begun"));
    let _follower = following(&sandbox, &["ada"]);
    kill(&tick, Signal::KILL);
    eventually("the message is settled", || (field(&sandbox, "queue.pending") == "0").then_some(()));
}

/// Starts a follower of all agents under strace. Returns strace and the process id of the follower.
fn traced(sandbox: &Sandbox, args: &[&str]) -> (Beside, Pid) {
    let mut words: Vec<std::ffi::OsString> = ["-qq"].iter().chain(args).map(Into::into).collect();
    words.push(dormouse().into());
    words.extend(["tick", "--follow", "--all"].map(Into::into));
    let follower = Beside::spawn(sandbox.program("strace", words).into_command());
    let child = eventually("the follower runs", || {
        let children = format!("/proc/{0}/task/{0}/children", follower.0.id());
        let children = fs::read_to_string(children).ok()?;
        // strace also starts children of its own, to test features of the kernel.
        let is_ours = |pid: &&str| {
            fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "dormouse\n")
        };
        Pid::from_raw(children.split_whitespace().find(is_ours)?.parse().ok()?)
    });
    (follower, child)
}

#[test]
fn a_follower_without_inotify_watches_warns_and_polls() {
    needs!("strace");
    let sandbox = started("echo seen").with_real_clock();
    let no_watches =
        ["-o", "/dev/null", "-e", "trace=inotify_add_watch", "-e", "inject=inotify_add_watch:error=ENOSPC"];
    let (follower, child) = traced(&sandbox, &no_watches);
    say(&sandbox, "x");
    until_turns(&sandbox, "ada", 1);
    kill_process(child, Signal::TERM).unwrap();
    follower.end().exits(0).warns("fs.inotify.max_user_watches");
}

/// A kill of a follower changes no file, because separate processes make the steps, with the same
/// command as cron.
#[test]
fn a_follower_writes_nothing_and_keeps_no_lock() {
    needs!("strace");
    let sandbox = started("echo seen").with_real_clock();
    let trace = sandbox.home().join("trace");
    let calls = "trace=/open.*,flock,/rename.*,/.*link.*,/mkdir.*,/.*sync.*,/.*truncate,fallocate,/fchmod.*,/fchown.*,pwrite64";
    let (follower, child) = traced(&sandbox, &["-o", trace.to_str().unwrap(), "-e", calls]);
    for turns in 1..4 {
        say(&sandbox, "x");
        until_turns(&sandbox, "ada", turns);
    }
    kill_process(child, Signal::TERM).unwrap();
    assert_eq!(follower.end().code(), 0);
    let text = fs::read_to_string(&trace).unwrap();
    let calls: Vec<&str> =
        text.lines().filter(|line| !line.starts_with("---") && !line.starts_with("+++")).collect();
    assert!(calls.len() > 20, "{text}");
    // To see whether a turn runs, a follower tries a shared lock for a moment, which never waits
    // and does not exclude other readers.
    let only_looks = |call: &&str| {
        let opens = call.starts_with("open")
            && !["O_WRONLY", "O_RDWR", "O_CREAT"].iter().any(|way| call.contains(way));
        opens || call.starts_with("readlink") || call.contains("LOCK_SH|LOCK_NB") || call.contains("LOCK_UN")
    };
    let others: Vec<&str> = calls.into_iter().filter(|call| !only_looks(call)).collect();
    assert_eq!(others, Vec::<&str>::new());
}

/// The kernel drops inotify events when its queue is full. Then the follower must look at all
/// agents.
#[test]
fn more_changes_than_the_kernel_keeps_hide_none() {
    let sandbox = started("echo ada").with_real_clock();
    add(&sandbox, "bob", "echo bob");
    let follower = following(&sandbox, &["--all"]);
    until_no_step(&follower);
    kill(&follower, Signal::STOP);
    let kept = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
    let inbox = sandbox.agent("bob").join("inbox");
    for number in 0..=kept.trim().parse::<u32>().unwrap() / 2 {
        // Each new file makes two events: one for its creation, and one when its writer closes it.
        fs::write(inbox.join(format!(".{number}")), "").unwrap();
        fs::remove_file(inbox.join(format!(".{number}"))).unwrap();
    }
    say(&sandbox, "unheard");
    add(&sandbox, "cyd", "echo cyd");
    sandbox.run(["enqueue", "cyd", "unheard"]);
    kill(&follower, Signal::CONT);
    until_turns(&sandbox, "ada", 1);
    until_turns(&sandbox, "cyd", 1);
}

#[test]
fn a_follower_reaps_orphans() {
    let sandbox =
        started(&format!("{} task start -q --no-notify -- true >/dev/null", own_name())).with_real_clock();
    let mut cmd = sandbox.cmd(["tick", "--follow", "--all"]).into_command();
    // The follower inherits orphans, like the first process of a container.
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
fn a_damaged_agent_does_not_block_other_agents() {
    let sandbox = started("echo ada").with_real_clock();
    add(&sandbox, "bob", "echo bob");
    let state = sandbox.agent("bob").join("state.json");
    let whole = fs::read(&state).unwrap();
    fs::write(&state, "{").unwrap();
    let follower = following(&sandbox, &["--all"]);
    say(&sandbox, "x");
    until_turns(&sandbox, "ada", 1);
    fs::write(&state, whole).unwrap();
    sandbox.run(["enqueue", "bob", "x"]);
    until_turns(&sandbox, "bob", 1);
    kill(&follower, Signal::TERM);
    follower.end().exits(0);
}

#[test]
fn a_follower_that_could_do_nothing_is_refused() {
    let sandbox = started("true");
    for args in [
        "ada --until-idle",
        "ada --until-idle --max-steps 3",
        "ada --dry-run",
        "ada --exit-code",
        "",
        // These arguments are valid, but with the sandbox's fixed clock no timer would ever be due.
        "ada",
    ] {
        sandbox.cmd(words("tick --follow").into_iter().chain(words(args))).exits(2);
    }
    let sandbox = sandbox.with_real_clock();
    sandbox.cmd(["tick", "--follow", "nobody"]).exits(3);
    add(&sandbox, "bob", &format!("{} tick --follow --all --json >\"$HOME/said\"; true", own_name()));
    sandbox.run(["enqueue", "bob", "x"]);
    sandbox.run(["tick", "bob"]);
    let said = json_in(sandbox.home().join("said"));
    assert_eq!(said["error"]["exit_status"], 4, "{said}");
    sandbox.cmd(["tick", "--follow", "nobody", "--json"]).fails(3, "no_agent");
}
