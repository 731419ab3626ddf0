//! Tests the examples for CI and containers: extracts the steps that can run here from the files,
//! and runs them.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{Cmd, Sandbox, dormouse};
use crate::setup::{Beside, add, eventually, extend_policy, lives, own_name, started};

fn example(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(path)
}

/// Returns the scripts below each `run: |` of a workflow.
fn steps(workflow: &str) -> Vec<String> {
    let depth = |line: &str| line.len() - line.trim_start().len();
    let lines: Vec<&str> = workflow.lines().collect();
    let begins = (0..lines.len()).filter(|at| lines[*at].trim() == "run: |");
    let script = |at: usize| {
        let is_part = |line: &&&str| line.trim().is_empty() || depth(line) > depth(lines[at]);
        let script = lines[at + 1..].iter().take_while(is_part);
        script.map(|line| format!("{}\n", line.trim_start_matches(' '))).collect()
    };
    begins.map(script).collect()
}

/// Agent `reviewer` and a `tick --all --follow` that runs its turns. A turn fails for good if its
/// context contains `worse`, which occurs in no id.
fn reviewer() -> (Sandbox, Beside) {
    let sandbox = started("true").with_real_clock();
    let turn = "case \"$(cat)\" in *worse*) exit 3 ;; *) echo \"all is well\" ;; esac";
    add(&sandbox, "reviewer", turn);
    extend_policy(&sandbox, "reviewer", "[recovery]\nmax_attempts = 1\n");
    let programs = sandbox.home().join("bin");
    fs::create_dir(&programs).unwrap();
    symlink(dormouse(), programs.join("dormouse")).unwrap();
    let follower = Beside::start(sandbox.cmd(["tick", "--all", "--follow"]));
    (sandbox, follower)
}

fn shell<'s>(sandbox: &'s Sandbox, script: &str) -> Cmd<'s> {
    let path = format!("{}:{}", sandbox.home().join("bin").display(), std::env::var("PATH").unwrap());
    let cmd = sandbox.program("sh", vec!["-ec".into(), script.into()]);
    cmd.env("PATH", path).env("DORMOUSE_DIR", sandbox.store())
}

#[test]
fn a_workflow_ends_with_the_verdict() {
    let (sandbox, _follower) = reviewer();
    let steps = steps(&fs::read_to_string(example("ci/review.yml")).unwrap());
    assert_eq!(steps.len(), 2, "{steps:?}");
    let run = |step: &str, sha: &str, payload: &str| {
        let cmd = shell(&sandbox, step).env("GITHUB_SHA", sha).env("GITHUB_REPOSITORY", "org/repo");
        cmd.env("PAYLOAD", payload).env("GITHUB_STEP_SUMMARY", sandbox.home().join("summary")).output()
    };
    for _ in 0..2 {
        let ran = run(&steps[0], "aaaa", r#"{"message": "good"}"#);
        assert_eq!((ran.code(), ran.stdout.as_str(), ran.stderr.as_str()), (0, "", ""), "{ran}");
        assert_eq!(run(&steps[1], "aaaa", "").code(), 0);
    }
    assert_eq!(fs::read_to_string(sandbox.home().join("summary")).unwrap(), "all is well\n".repeat(2));
    run(&steps[0], "bbbb", r#"{"message": "worse"}"#).exits(7);
    let runs = sandbox.json_lines(["run", "list", "-a", "reviewer"]);
    assert_eq!(runs.len(), 2, "the repeated job has made a second run");
}

#[test]
fn a_job_of_gitlab_ends_with_the_verdict() {
    let (sandbox, _follower) = reviewer();
    let job = fs::read_to_string(example("ci/gitlab-ci.yml")).unwrap();
    let (_, script) = job.split_once("  script:\n").unwrap();
    let lines: Vec<&str> = script.lines().map_while(|line| line.strip_prefix("    - ")).collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    for (sha, expected) in
        [("aaaa", (0, "all is well\n")), ("aaaa", (0, "all is well\n")), ("worse", (7, ""))]
    {
        let ran = shell(&sandbox, &lines.join("\n")).env("CI_COMMIT_SHA", sha).output();
        assert_eq!((ran.code(), ran.stdout.as_str()), expected, "{sha}: {ran}");
    }
}

#[test]
fn the_script_exits_with_the_verdict_or_after_its_timeout() {
    let (sandbox, follower) = reviewer();
    let script = |text: &str, timeout: &str| {
        let words =
            [example("ci/verdict.sh").display().to_string(), "reviewer".into(), text.into(), text.into()];
        let cmd = sandbox.program("sh", words.iter().map(Into::into).collect());
        cmd.env("DORMOUSE", dormouse()).env("DORMOUSE_DIR", sandbox.store()).env("TIMEOUT", timeout).output()
    };
    assert_eq!(script("good", "5m").stdout, "all is well\n");
    assert_eq!(script("worse", "5m").code(), 7);
    drop(follower);
    assert_eq!(script("later", "20ms").code(), 8);
    assert_eq!(script("good", "20ms").stdout, "all is well\n");
}

/// Starts the entry point of the container as the first process of a process namespace, or else as
/// a process that adopts orphans. Returns the child process, and the process id of the entry point.
fn entry_point(sandbox: &Sandbox) -> (Beside, u32) {
    let entry = example("container/entrypoint.sh").into_os_string();
    let environment =
        |cmd: Cmd<'_>| cmd.env("DORMOUSE", dormouse()).env("DORMOUSE_DIR", sandbox.store()).into_command();
    let unshare = |script: &str| {
        let words =
            ["--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", script, entry.to_str().unwrap()];
        environment(sandbox.program("unshare", words.iter().map(Into::into).collect()))
    };
    if unshare("true").output().is_ok_and(|ran| ran.status.success()) {
        let outer = Beside::spawn(unshare("exec sh \"$0\""));
        let inner = eventually("its first process", || children(outer.0.id()).first().copied());
        return (outer, inner);
    }
    let mut command = environment(sandbox.program("sh", vec![entry.clone()]));
    // SAFETY: the closure runs between fork and exec and makes one system call.
    unsafe {
        command.pre_exec(|| {
            libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1);
            Ok(())
        })
    };
    let first = Beside::spawn(command);
    let pid = first.0.id();
    (first, pid)
}

fn children(pid: u32) -> Vec<u32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    children.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

#[test]
fn the_first_process_of_a_container_steps_reaps_and_lets_turns_end() {
    let sandbox = Sandbox::empty().with_real_clock();
    let (outer, first) = entry_point(&sandbox);
    eventually("a state directory", || sandbox.store().join("dormouse.toml").exists().then_some(()));
    let go = sandbox.home().join("go");
    let turn = format!(
        "{} task start -q --no-notify -- true >/dev/null; (setsid sleep 0.1 &); echo begun >> \"$HOME/begun\"
         until test -e '{}'; do sleep 0.02; done; echo reviewed",
        own_name(),
        go.display()
    );
    sandbox.run(["create", "ada", "--shell", &turn]);
    sandbox.run(["start", "ada"]);
    fs::write(&go, "").unwrap();
    assert_eq!(sandbox.run(["enqueue", "ada", "look at it", "--await"]), "reviewed\n");
    let has_no_zombie = || children(first).into_iter().all(lives).then_some(());
    eventually("no zombie is left", has_no_zombie);
    // Without the file `go`, for which it waits, the next turn still runs at the SIGTERM.
    fs::remove_file(&go).unwrap();
    sandbox.run(["enqueue", "ada", "look once more"]);
    let begun = sandbox.home().join("begun");
    eventually("another turn", || (fs::read_to_string(&begun).unwrap().lines().count() == 2).then_some(()));
    kill_process(Pid::from_raw(first as i32).unwrap(), Signal::TERM).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(100));
    assert!(lives(first), "the entry point has not waited for its turn");
    fs::write(&go, "").unwrap();
    let ran = outer.end();
    assert!(
        ran.code() == 0 && ran.stdout.ends_with("→ completed: reviewed\n") && !ran.stderr.contains("error"),
        "{ran}"
    );
    sandbox.run(["doctor"]);
}
