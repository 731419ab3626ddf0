//! Tests commands on a disk that is full, broken, over its quota or read-only. The test makes each
//! command fail at each system call, and checks the error message and the records.
//!
//! One fault in eighteen is tried. `DORMOUSE_CUTS=1 cargo test --test it faults` tries them all.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::checker;
use crate::harness::{Ran, Sandbox, dormouse, each_in_parallel, one_in};
use crate::scenarios::{
    AGENT, Before, Case, SCENARIOS, Scenario, acknowledged, hold, prepared, queued, settle,
};
use crate::strace::{self, Call, Harm};

/// System calls that don't fail on a full or broken disk.
const NO_FAULTS: &str =
    "exit_group poll ppoll wait4 waitid clone clone3 fork vfork pidfd_open pidfd_send_signal kill";

struct Fault<'a> {
    scenario: &'a Scenario,
    template: &'a Sandbox,
    args: &'a [String],
    call: Call,
    harm: Harm,
}

#[test]
fn every_command_can_fail_at_every_call() {
    needs!("strace");
    let prepared = prepared();
    let mut faults = Vec::new();
    for (scenario, (template, args)) in SCENARIOS.iter().zip(&prepared) {
        let words: Vec<&str> = args.iter().map(String::as_str).collect();
        let points = strace::record(&template.copy(), &words, scenario.stdin).points();
        let points = points.into_iter().filter(|call| NO_FAULTS.split(' ').all(|name| name != call.name));
        for (number, call) in points.enumerate().filter(|(at, _)| at % scenario.every == 0) {
            // The number is the distance of the calls at which a fault is injected: a full or
            // broken disk fails at each call, the other faults at each third or seventh.
            let harms = [
                (Harm::Error("ENOSPC"), 1),
                (Harm::Error("EIO"), 1),
                (Harm::ErrorsFrom("ENOSPC"), 3),
                (Harm::Error("EDQUOT"), 7),
                (Harm::ErrorsFrom("EROFS"), 7),
            ];
            for (harm, every) in harms {
                // On a full disk files can still be opened for reading, which is the same system
                // call.
                let is_impossible = matches!(harm, Harm::ErrorsFrom(_)) && call.act() == "open";
                if number % every > 0 || is_impossible {
                    continue;
                }
                faults.push(Fault { scenario, template, args, call: call.clone(), harm });
            }
        }
    }
    let faults = one_in(18, faults);
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    faults.iter().for_each(|fault| *counts.entry(fault.scenario.name).or_default() += 1);
    let (hit, failed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    each_in_parallel(&faults, |fault| {
        let (was_hit, has_failed) = fail(fault);
        hit.fetch_add(usize::from(was_hit), Ordering::Relaxed);
        failed.fetch_add(usize::from(has_failed), Ordering::Relaxed);
    });
    for (name, count) in counts {
        println!("{name}: {count} faults");
    }
    println!("{} faults, {} commands failed", hit.into_inner(), failed.into_inner());
}

fn fail(fault: &Fault<'_>) -> (bool, bool) {
    let sandbox = fault.template.copy();
    let words: Vec<&str> = fault.args.iter().map(String::as_str).collect();
    let before = Before::of(&sandbox);
    let files_before = records(&sandbox.agent(AGENT));
    let harmed = strace::harm(&sandbox, &words, fault.scenario.stdin, &fault.call, fault.harm);
    let case = Case {
        scenario: fault.scenario,
        what: format!("{:?} at {} (really: {:?})", fault.harm, fault.call, harmed.hit),
    };
    // If the deletion of a temporary file fails, the command can't clean up.
    let may_leave = harmed.hit.iter().any(|call| call.starts_with("unlink") || call.starts_with("rmdir"));
    let is_mute = harmed.hit.iter().any(|call| call.starts_with("write(2<"));
    let limits = Limits { may_leave, is_mute };
    check_failure(&case, &sandbox, &before, &files_before, &harmed.ran, limits);
    let again = sandbox.cmd(fault.args.to_vec()).stdin(fault.scenario.stdin).output();
    case.must(fault.scenario.again.contains(&again.code()), &sandbox, format!("tried again: {again}"));
    let mut kept = acknowledged(&harmed.ran);
    kept.extend(acknowledged(&again));
    settle(&case, &sandbox);
    hold(&case, &sandbox, &before, &kept);
    let left = checker::look(&sandbox.agent(AGENT)).leftovers;
    case.must(left.is_empty() || may_leave, &sandbox, format!("left in tmp/: {left:?}"));
    (!harmed.hit.is_empty(), harmed.ran.code() == 1)
}

/// Checks that are left out after some faults.
#[derive(Debug, Clone, Copy, Default)]
struct Limits {
    /// True if the command could not delete its temporary files.
    may_leave: bool,
    /// True if the command could not write to standard error.
    is_mute: bool,
}

/// Checks exit status, message and records after a command that may have failed.
fn check_failure(
    case: &Case<'_>,
    sandbox: &Sandbox,
    before: &Before,
    files_before: &BTreeMap<String, Vec<u8>>,
    ran: &Ran,
    limits: Limits,
) {
    let allowed: &[i32] = if case.scenario.name.starts_with("tick") { &[0, 1, 7] } else { &[0, 1] };
    case.must(allowed.contains(&ran.code()), sandbox, format!("the exit status: {ran}"));
    let found = checker::look(&sandbox.agent(AGENT));
    case.must(
        found.leftovers.is_empty() || found.has_journal || limits.may_leave,
        sandbox,
        format!("left in tmp/: {:?}", found.leftovers),
    );
    // A step may have renamed a dropped file, so complaints are compared without the new prefix.
    let mut complaints: Vec<String> =
        found.complaints.iter().map(|complaint| complaint.replace("taken~", "")).collect();
    complaints.retain(|complaint| !before.found.complaints.contains(complaint));
    case.must(found.has_journal || complaints.is_empty(), sandbox, format!("{complaints:#?}"));
    if ran.code() != 1 {
        return;
    }
    // The message names the path of the failed operation, or standard output.
    let root = sandbox.root().to_string_lossy().into_owned();
    case.must(
        ran.stderr.contains(&root) || ran.stderr.contains("stdout") || limits.is_mute,
        sandbox,
        format!("no path is named: {ran}"),
    );
    let promised = ran.stderr.contains("nothing was changed");
    let changed = records(&sandbox.agent(AGENT)) != *files_before;
    case.must(!(promised && changed), sandbox, format!("the message denies a change: {ran}"));
    // If the command has committed nothing, it may have added records, but changed none.
    if !found.has_journal && found.revision() == before.found.revision() {
        let now = records(&sandbox.agent(AGENT));
        for (path, bytes) in files_before {
            let is_same = now.get(path).is_some_and(|now| now == bytes);
            // A step may quarantine an invalid file, and sort a long backlog into directories.
            let may_move = path.starts_with("inbox/");
            case.must(is_same || may_move, sandbox, format!("{path} has changed without a commit: {ran}"));
        }
    }
}

/// Returns the contents of all records of an agent, by their paths from its directory.
fn records(agent: &Path) -> BTreeMap<String, Vec<u8>> {
    let is_no_record = |entry: &walkdir::DirEntry| {
        let names = ["lock", "run.lock", "journal.jsonl", "tmp", "cache"];
        entry.depth() == 1 && names.iter().any(|name| entry.file_name() == *name)
    };
    walkdir::WalkDir::new(agent)
        .into_iter()
        .filter_entry(|entry| !is_no_record(entry))
        .map(|entry| entry.unwrap().into_path())
        .filter(|path| !path.is_dir() && !path.ends_with(".gitkeep"))
        .map(|path| (path.strip_prefix(agent).unwrap().display().to_string(), fs::read(&path).unwrap()))
        .collect()
}

/// A limit of the file size makes writes incomplete. A command that fails because of the limit
/// names the file, whether it was started with SIGXFSZ ignored or not.
#[test]
fn writes_may_be_torn_at_any_length() {
    let mut cases: Vec<(&Scenario, usize, bool)> = Vec::new();
    let of_interest =
        ["enqueue", "enqueue --dedupe-key, first", "start", "tick: claim, turn, settle", "tick: reduce"];
    for scenario in SCENARIOS.iter().filter(|scenario| of_interest.contains(&scenario.name)) {
        // The sizes reach beyond the longest file, and are closer together where short files end.
        let sizes = (0..600).step_by(67).chain((600..9000).step_by(499));
        cases.extend(sizes.flat_map(|size| [(scenario, size, false), (scenario, size, true)]));
    }
    each_in_parallel(&cases, |(scenario, size, is_ignored)| {
        let sandbox = (scenario.prepare)();
        let args = scenario.args(&sandbox);
        let before = Before::of(&sandbox);
        let files_before = records(&sandbox.agent(AGENT));
        let ignore = if *is_ignored { "trap '' XFSZ; " } else { "" };
        let script = format!("{ignore}exec prlimit --fsize={size} \"$@\"");
        let mut line = vec!["-c".into(), script.into(), "sh".into(), dormouse().into()];
        line.extend(args.iter().map(Into::into));
        let ran = sandbox.program("sh", line).output();
        let case = Case { scenario, what: format!("no file longer than {size}, ignored: {is_ignored}") };
        check_failure(&case, &sandbox, &before, &files_before, &ran, Limits::default());
        let again = sandbox.cmd(args).output();
        case.must(scenario.again.contains(&again.code()), &sandbox, format!("tried again: {again}"));
        settle(&case, &sandbox);
        hold(&case, &sandbox, &before, &acknowledged(&ran));
    });
    println!("{} torn writes", cases.len());
}

#[test]
fn a_command_that_can_not_write_names_the_path() {
    needs!("strace");
    let template = queued();
    let calls = strace::record(&template.copy(), &["enqueue", AGENT, "hello"], "").points();
    let call = calls.iter().find(|call| call.act() == "open").unwrap();
    let sandbox = template.copy();
    let harmed = strace::harm(&sandbox, &["enqueue", AGENT, "hello"], "", call, Harm::Error("EROFS"));
    let tmp = sandbox.agent(AGENT).join("tmp");
    let said = harmed.ran.stderr.replace(&*tmp.to_string_lossy(), "[TMP]");
    let said: BTreeSet<&str> = said.lines().map(|line| line.split("2-msg_").next().unwrap()).collect();
    assert_eq!(harmed.ran.code(), 1);
    assert_eq!(said, BTreeSet::from(["dormouse: can't create [TMP]/"]));
}
