//! Runs all examples, unchanged.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::docs::root;
use crate::harness::{Ran, copy_tree, dormouse, write_program};
use crate::missing_tools::leave_out;

fn examples() -> PathBuf {
    root().join("examples")
}

/// Returns a value of `PATH` with a directory before all others.
fn path_with(dir: PathBuf) -> OsString {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    std::env::join_paths(std::iter::once(dir).chain(std::env::split_paths(&paths))).unwrap()
}

/// Runs a script with the program under test, in an empty home and temporary directory.
fn run(script: &Path, arguments: &[&str]) -> Output {
    let place = tempfile::tempdir().unwrap();
    // `PATH` begins with the real `cargo` and `rustc`: rustup's wrappers need the real home.
    let toolchain = Path::new(env!("CARGO")).parent().unwrap().to_owned();
    let output = Command::new("sh")
        .arg(script)
        .args(arguments)
        .current_dir(place.path())
        .env_clear()
        .env("PATH", path_with(toolchain))
        .env("HOME", place.path())
        .env("TMPDIR", place.path())
        .env("DORMOUSE", dormouse())
        .output()
        .unwrap();
    let ran = Ran::from(output.clone());
    assert!(output.status.success(), "{}: {ran}", script.display());
    let left: Vec<_> = fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.is_empty(), "{} left {left:?} behind", script.display());
    output
}

/// Asserts that standard output contains a text, and standard error is empty.
#[track_caller]
fn shows(output: &Output, expected: &str) {
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains(expected), "no `{expected}` in:\n{text}");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn quickstart() {
    let output = run(&examples().join("quickstart.sh"), &[]);
    shows(&output, "nothing wrong");
    shows(&output, "completed, attempt 2");
}

#[test]
fn a_build_that_fails_ends_the_example() {
    let place = tempfile::tempdir().unwrap();
    write_program(&place.path().join("cargo"), "#!/bin/sh\nexit 101\n");
    let output = Command::new("sh")
        .arg(examples().join("quickstart.sh"))
        .env_clear()
        .env("PATH", path_with(place.path().to_owned()))
        .env("TMPDIR", place.path())
        .output()
        .unwrap();
    let ran = Ran::from(output).exits(1);
    assert_eq!(ran.stderr, "dormouse could not be built: cargo says why above\n");
}

#[test]
fn one_checkout() {
    let output = run(&examples().join("one-checkout.sh"), &[]);
    shows(&output, "writer  wait_for_resources (workspace): ");
    shows(&output, "checkout is held by builder");
    shows(&output, "writer  start_model_turn (resources available) → completed: done in link");
    shows(&output, "\nbuilder\nwriter\n");
    shows(&output, "nothing wrong");
}

#[test]
fn two_machines() {
    let output = run(&examples().join("two-machines/run.sh"), &[]);
    shows(&output, "\n6 turns of 6 messages\n");
    assert_eq!(String::from_utf8_lossy(&output.stdout).matches("nothing wrong").count(), 2);
}

#[test]
fn fleet() {
    needs!("postgresql");
    let output = run(&examples().join("fleet/run.sh"), &[]);
    shows(&output, "--await --timeout 2m\ndone under lease ");
    shows(&output, "\n7 turns under 7 leases\n");
    shows(&output, "\nbuilder          idle                    0      2          2      0\n");
    shows(&output, "\nwriter           idle                    0      6          6      0\n");
}

#[test]
fn budget() {
    let output = run(&examples().join("budget.sh"), &[]);
    let turn = "dreamer  start_model_turn (a message from an agent) → completed: One more idea\n";
    let waits = "dreamer  wait_for_resources (cost per day): 1.2 of 1 USD since 2026-01-31T00:00:00.000Z";
    shows(&output, &format!("(a message from you) → completed: One more idea\n{turn}{turn}{waits}"));
    shows(&output, "\n$ dormouse next-wake dreamer\n2026-02-01T00:00:00.000Z\n");
    shows(&output, "(resources available) → completed");
    shows(&output, "nothing wrong");
}

#[test]
fn flaky_service() {
    needs!("awk");
    let output = run(&examples().join("flaky-service/run.sh"), &[]);
    let down = "exit status 1: 503 Service Unavailable";
    shows(
        &output,
        &format!("$ dormouse tick courier\ncourier  start_model_turn (a message from you) → failed: {down}"),
    );
    for least in [10, 20, 40] {
        shows(&output, &format!(" s: {least} s, and a part of a tenth of it\n"));
    }
    shows(&output, "→ completed, attempt 4: 200 OK, on attempt 4\n");
    shows(&output, "aborted, attempt 4  a message from you  the order that has bad luck\n");
    shows(&output, &format!("attempt 4 failed: {down}\naborted: gave up after 4 attempts: {down}\n"));
    shows(&output, "\ndormouse: courier: dead letter msg_");
    shows(&output, "\ncourier !  ");
    shows(&output, "\nrequeued msg_");
    shows(&output, "nothing wrong");
}

/// Reviews the project's last commits, or without a history those of a small repository.
#[test]
fn commit_reviewer() {
    needs!("jq");
    let output = run(&examples().join("commit-reviewer/run.sh"), &["-n", "3"]);
    shows(&output, "1 failed and was tried again");
    shows(&output, "is unreachable (pretended, on attempt 1)");
}

/// Outside any repository the example makes one with three commits.
#[test]
fn commit_reviewer_without_history() {
    needs!("jq");
    let elsewhere = tempfile::tempdir().unwrap();
    let copy = elsewhere.path().join("examples");
    fs::create_dir(&copy).unwrap();
    copy_tree(&examples(), &copy);
    let output = run(&copy.join("commit-reviewer/run.sh"), &[]);
    shows(&output, "3 commits, 3 notes");
    shows(&output, "The subject says that this is not finished.");
}

#[test]
fn background_build() {
    needs!("jq");
    let output = run(&examples().join("background-build/run.sh"), &[]);
    let text = String::from_utf8_lossy(&output.stdout);
    let (passes, fails) = text.split_once("2. A check that fails.").unwrap();
    for part in [passes, fails] {
        assert!(part.contains("$ dormouse get builder status\nawaiting_task\n"), "{part}");
        assert!(part.contains("builder  wait_for_task (agent task wait)\n"), "{part}");
        assert!(part.contains("start_model_turn (the result of a task) → completed"), "{part}");
    }
    assert!(brief_of(passes).starts_with("the check passed:\n"), "{passes}");
    assert!(brief_of(passes).contains("Finished"), "{passes}");
    assert!(brief_of(fails).starts_with("the check did not pass:\n"), "{fails}");
    assert!(brief_of(fails).contains("could not compile `greeting`"), "{fails}");
    shows(&output, "nothing wrong");
}

/// Returns the last summary by the agent `builder` in a part of the output, and all after it.
fn brief_of(part: &str) -> &str {
    part.rsplit_once("$ dormouse get builder last_turn.brief\n").unwrap().1
}

#[test]
fn daily_look() {
    needs!("jq");
    let output = run(&examples().join("daily-look/run.sh"), &[]);
    shows(&output, "exit status 10, and not a byte written\n");
    shows(&output, "\n2026-03-02 08:00:00.000 UTC\n");
    shows(&output, "3 to do, the first is: water the plants (6 looks before this one were missed)\n");
    shows(&output, "19 mornings.");
    shows(&output, "\n2026-03-28T08:00:00.000Z\n2026-03-29T07:00:00.000Z\n");
}

#[test]
fn delegating_pair() {
    needs!("jq");
    let output = run(&examples().join("delegating-pair/run.sh"), &[]);
    shows(
        &output,
        "(a message from you) → completed: asked the writer for it\n$ dormouse get editor status\nawaiting_task",
    );
    shows(&output, "queued  a message from editor  Write a word on mice");
    shows(&output, "editor  awaiting_task  has_queued_input\n");
    shows(&output, "(the result of a task) → completed: printed: a word on mice, in three sentences");
    shows(&output, "  cancelled  a longer word on mice\n");
    shows(&output, "nothing wrong");
}

#[test]
fn long_turn() {
    let output = run(&examples().join("long-turn/run.sh"), &[]);
    shows(&output, "poster  wait_for_resources (workspace): ");
    shows(&output, "press is held by book");
    shows(&output, "(a message from you) → suspended: a poster, now\n");
    shows(&output, "book is suspended (6) since ");
    shows(&output, "book would wait_for_resources: suspended: a poster, now\n");
    shows(&output, "(resources available) → completed: printed from page 1 to page 1\n");
    shows(&output, "(resume suspended) → completed: printed from page 4 to page 6\n");
    shows(&output, "nothing wrong");
}

/// Runs the example `model-agent` with one of its clients for language models.
fn model_agent(client: &str) {
    let has = |program| Command::new(program).arg("--version").output().is_ok_and(|ran| ran.status.success());
    for program in ["python3", "jq", client] {
        if !has(program) {
            return leave_out(&format!("the agent of a model needs {program}"));
        }
    }
    let output = run(&examples().join("model-agent/run.sh"), &[client]);
    shows(&output, "(a message from you) → suspended: the machine is needed\n");
    shows(&output, "(resume suspended) → suspended: the machine is needed again\n");
    let first = "3. Now and then it wakes, looks around, and sleeps on.\n4. Nobody has to stay up for it. (more briskly)\n";
    shows(&output, first);
    shows(&output, "→ completed: 2 parts, 8 lines, published as ");
    shows(&output, "\"cost_usd\":0.");
    shows(&output, "→ deferred: model:stand-in: 429\n");
    shows(&output, "author  wait_for_resources (model:stand-in: 429): back at ");
    shows(&output, "(resources available) → completed: 2 parts, 8 lines, published as ");
    shows(&output, "nothing wrong");
}

#[test]
fn model_agent_with_curl() {
    model_agent("curl");
}

#[test]
fn model_agent_with_llm() {
    model_agent("llm");
}

/// The model gets the answer of a person as the result of a tool call, in a later turn.
#[test]
fn tool_loop() {
    needs!("curl", "jq", "python3");
    let output = run(&examples().join("tool-loop/run.sh"), &[]);
    shows(&output, "(a message from you) → completed: asks for a review\n");
    shows(&output, "writer  wait_for_operator (agent operator wait)\nA dormouse sleeps.\n");
    shows(&output, "(a message from you) → completed: the review says: yes, publish it\n");
    shows(&output, "nothing wrong");
}

/// A POSIX shell can parse every shell script of the examples.
#[test]
fn scripts_are_plain_shell() {
    let paths = walkdir::WalkDir::new(examples()).into_iter().map(|entry| entry.unwrap().into_path());
    let scripts: Vec<PathBuf> = paths.filter(|path| path.extension() == Some("sh".as_ref())).collect();
    assert!(scripts.len() >= 7, "{scripts:?}");
    for path in scripts {
        let script = path.display();
        assert!(fs::read_to_string(&path).unwrap().starts_with("#!/bin/sh\n"), "{script}");
        let checked = Command::new("sh").arg("-n").arg(&path).output().unwrap();
        assert!(checked.status.success(), "{script}: {}", String::from_utf8_lossy(&checked.stderr));
    }
}

#[test]
fn a_webhook_becomes_a_review() {
    needs!("jq");
    let output = run(&examples().join("webhook/run.sh"), &[]);
    shows(&output, "forged: no active trigger has this capability");
    shows(&output, "# org/repo#12: WIP: everything");
    shows(&output, "- It says that it is not done yet.");
    shows(&output, "reviews: 1");
}
